"""What is free: of the machine, within control groups of both versions, and where nothing is told."""

import os
from pathlib import Path

import pytest

from freshopt.numerics.memory import free_memory

MEMINFO = "MemTotal:       32000000 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\n"
UNIFIED = ("memory.max", "memory.current", "inactive_file")
FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def machine(
    root: Path, line: str, groups: dict[str, tuple[str, int, int]], names: tuple[str, str, str]
) -> Path:
    """Write the files that Linux has of a machine and of control groups: limit, use, what is given back."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(MEMINFO, encoding="ascii")
    (root / "proc/self/cgroup").write_text(line + "\n", encoding="ascii")
    for folder, (limit, used, kept) in groups.items():
        place = root / "sys/fs/cgroup" / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / names[0]).write_text(f"{limit}\n", encoding="ascii")
        (place / names[1]).write_text(f"{used}\n", encoding="ascii")
        (place / "memory.stat").write_text(f"anon 5\n{names[2]} {kept}\n", encoding="ascii")
    return root


@pytest.mark.parametrize(
    ("line", "groups", "names", "free"),
    [
        ("0::/", {}, UNIFIED, 20_480_000_000),
        ("0::/", {".": ("max", 7, 7)}, UNIFIED, 20_480_000_000),
        ("0::/", {".": ("3000", 1000, 200)}, UNIFIED, 2200),
        ("0::/a/b", {"a/b": ("max", 1, 0), "a": ("5000", 1000, 0)}, UNIFIED, 4000),
        ("0::/a/b", {"a/b": ("500", 100, 0), "a": ("5000", 1000, 0)}, UNIFIED, 400),
        ("0::/a", {"a": ("500", 600, 0)}, UNIFIED, 0),
        ("4:cpu,memory:/a", {"memory/a": ("900", 100, 50)}, FIRST, 850),
        ("4:cpu:/a", {"memory/a": ("900", 100, 50)}, FIRST, 20_480_000_000),
        ("4:memory:/gone", {"memory": ("900", 100, 0)}, FIRST, 800),
    ],
)
def test_what_is_free_is_the_least_of_the_machine_and_its_groups(
    line: str, groups: dict[str, tuple[str, int, int]], names: tuple[str, str, str], free: int, tmp_path: Path
) -> None:
    assert free_memory(machine(tmp_path, line, groups, names)) == free


def test_where_nothing_is_told_the_whole_stands_in_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__, raising=False
    )
    assert free_memory(tmp_path) == 4_096_000
    monkeypatch.delattr(os, "sysconf")
    assert free_memory(tmp_path) is None


def test_this_machine_tells_something() -> None:
    assert (free_memory() or 2**30) > 2**20
