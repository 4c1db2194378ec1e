"""Memory that this process may still take.

Where the system does not tell (it does on Linux), the whole memory of the machine stands in for it, and where
not even that is told nothing is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Files of a control group: limit, use, and the statistics that have what the kernel gives back when asked. Of
# the second version, and of the first one's memory controller.
_UNIFIED = ("memory.max", "memory.current", "inactive_file")
_FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_memory(root: Path = Path("/")) -> int | None:
    """Return how many bytes this process, or its container, has free."""
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return _whole_memory()
    return max(0, min((available, *_left_in_groups(root))))


def _whole_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf, others not these names
        return None


def _left_in_groups(root: Path) -> Iterator[int]:
    """Yield what control groups leave the process, inner ones first."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        names = _FIRST if controllers else _UNIFIED
        top = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup")
        inner = top / path.lstrip("/")
        for folder in (inner, *inner.parents):
            limit, used = _text(folder / names[0]).strip(), _text(folder / names[1]).strip()
            if limit.isdigit() and used.isdigit():
                kept = dict(line.split() for line in _text(folder / "memory.stat").splitlines())
                yield int(limit) - int(used) + int(kept.get(names[2], "0"))
            if folder == top:
                break


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
