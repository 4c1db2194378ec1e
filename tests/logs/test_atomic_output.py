"""Folders and files that appear complete or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from freshopt.errors import SourceDataError
from freshopt.logs import atomic_output as module
from freshopt.logs.atomic_output import complete_file, complete_folder

FILES = ("rates.csv", "schedule.csv")


def fill(folder: Path, text: str) -> None:
    (folder / "summary.json").write_text(text)
    (folder / "rates.csv").write_text(text)


def write(target: Path, text: str, overwrite: bool = False) -> None:
    with complete_folder(target, overwrite, files=FILES) as part:
        fill(part, text)


def write_in_part(target: Path, failure: type[BaseException]) -> None:
    with complete_folder(target, overwrite=True, files=FILES) as part:
        fill(part, "two")
        raise failure


def contents(folder: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() for entry in sorted(folder.iterdir())}


def result(text: str) -> dict[str, str]:
    return {"rates.csv": text, "summary.json": text}


@pytest.mark.parametrize("make", [None, "empty"])
@pytest.mark.parametrize("name", ["plan", "deep/er/plan"])
def test_a_new_or_empty_folder_is_filled(tmp_path: Path, make: str | None, name: str) -> None:
    target = tmp_path / name
    if make:
        target.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with complete_folder(target, files=FILES) as part:
        assert part.is_dir()
        assert part != target
        fill(part, "one")
        assert sorted(path for path in tmp_path.rglob("*") if part not in (path, *path.parents)) == before
    assert contents(target) == result("one")
    assert len(list(tmp_path.iterdir())) == 1
    assert stat.S_IMODE(target.stat().st_mode) == 0o777 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("exchange", [True, False])
def test_an_earlier_result_is_replaced_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(module, "_exchange", lambda *_: False)
    target = tmp_path / "plan"
    write(target, "one")
    (target / "schedule.csv").write_text("one")
    target.chmod(0o750)
    with pytest.raises(SourceDataError, match=r"already holds a result \(summary.json\).*--overwrite"):
        write(target, "two")
    assert contents(target)["summary.json"] == "one"
    write(target, "two", overwrite=True)
    assert contents(target) == result("two")
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_what_ends_the_work_early_leaves_no_trace(tmp_path: Path, failure: type[BaseException]) -> None:
    target = tmp_path / "plan"
    write(target, "one")
    for path in (target, tmp_path / "a" / "b"):
        with pytest.raises(failure):
            write_in_part(path, failure)
    assert contents(target) == result("one")
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.EACCES])
def test_only_an_exchange_that_cannot_be_has_a_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    class Library:
        def __init__(self, name: None, use_errno: bool) -> None: ...

        def renameat2(self, *_: object) -> int:
            ctypes.set_errno(code)
            return -1

    target = tmp_path / "plan"
    write(target, "one")
    monkeypatch.setattr(ctypes, "CDLL", Library)
    if code == errno.EACCES:
        with pytest.raises(SourceDataError, match="plan cannot be written: Permission denied"):
            write(target, "two", overwrite=True)
    else:
        write(target, "two", overwrite=True)
    assert contents(target) == result("one" if code == errno.EACCES else "two")
    monkeypatch.delattr(Library, "renameat2")
    write(target, "three", overwrite=True)
    assert contents(target) == result("three")
    assert list(tmp_path.iterdir()) == [target]


def test_a_failed_swap_restores_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "plan"
    write(target, "one")
    monkeypatch.setattr(module, "_exchange", lambda *_: False)
    rename = Path.rename

    def refuse(self: Path, to: Path) -> Path:
        if to == target and (self / "summary.json").read_text() == "two":
            raise PermissionError(13, "Permission denied", str(self))
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(SourceDataError, match="plan cannot be written: Permission denied"):
        write(target, "two", overwrite=True)
    assert contents(target) == result("one")
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_files_is_never_replaced(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "plan"
    target.mkdir()
    (target / "rates.csv").write_text("precious")
    with pytest.raises(SourceDataError, match=r"not of an earlier result: rates\.csv"):
        write(target, "two", overwrite)
    (target / "summary.json").write_text("one")
    (target / "thesis.tex").write_text("precious")
    with pytest.raises(SourceDataError, match=r"not of an earlier result: thesis\.tex"):
        write(target, "two", overwrite)
    (target / "thesis.tex").unlink()
    (target / "schedule.csv").mkdir()
    with pytest.raises(SourceDataError, match=r"not of an earlier result: schedule\.csv"):
        write(target, "two", overwrite)
    assert (target / "rates.csv").read_text() == "precious"


def test_refusals_come_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    for path, words in (("file", "is a file"), ("file/x", "is a file"), (".", "working folder")):
        with pytest.raises(SourceDataError, match=words), complete_folder(path, True, files=FILES):
            pytest.fail("the work began")
    assert contents(tmp_path) == {"file": ""}


def test_an_unwritable_parent_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:  # file permissions do not stop a superuser
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(SourceDataError, match=r"plan cannot be written: Permission denied"):
        write(tmp_path / "plan", "one")
    target = tmp_path / "rates.csv"
    with pytest.raises(SourceDataError, match=r"rates\.csv cannot be written"), complete_file(target):
        pytest.fail("the work began")


def test_a_folder_filled_meanwhile_is_not_lost(tmp_path: Path) -> None:
    target = tmp_path / "plan"

    def write_both() -> None:
        with complete_folder(target, files=FILES) as part:
            fill(part, "slow")
            write(target, "fast")

    with pytest.raises(SourceDataError, match="already holds"):
        write_both()
    assert contents(target) == result("fast")
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_to_a_folder_keeps_pointing_to_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", "one")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "real") == result("one")


def test_an_exchange_is_seen_as_old_or_new(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    if not module._exchange(one, other):  # the fall-back promises less
        return
    target, stop, seen = tmp_path / "plan", threading.Event(), set[str]()
    write(target, "x")

    def read() -> None:
        while not stop.is_set():
            seen.update(name for name in ("summary.json", "rates.csv") if not (target / name).exists())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        write(target, "y", overwrite=True)
    stop.set()
    reader.join()
    assert seen == set()


def test_complete_file(tmp_path: Path) -> None:
    target = tmp_path / "new" / "rates.csv.gz"
    with complete_file(target) as part:
        assert part.name.endswith(".rates.csv.gz")
        part.write_text("one")
        assert not target.exists()
    assert target.read_text() == "one"
    target.chmod(0o640)
    with pytest.raises(SourceDataError, match=r"already exists.*overwrite=True"), complete_file(target):
        pytest.fail("the work began")
    with pytest.raises(KeyboardInterrupt), complete_file(target, overwrite=True) as part:
        raise KeyboardInterrupt(part.write_text("two"))
    assert target.read_text() == "one"
    with complete_file(target, overwrite=True) as part:
        part.write_text("three")
    assert target.read_text() == "three"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "rates.csv.gz"]
    with pytest.raises(SourceDataError, match="not a regular file"), complete_file(tmp_path / "new", True):
        pytest.fail("the work began")


def test_the_working_folder_is_not_replaced_by_its_name_in_other_letters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where a system takes both for one folder."""
    for name in ("Plan", "plan"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text("{}", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "Plan")
    monkeypatch.setattr(Path, "samefile", lambda one, other: str(one).lower() == str(other).lower())
    with (
        pytest.raises(SourceDataError, match="is the working folder or above it"),
        complete_folder(tmp_path / "plan", overwrite=True, files=["summary.json"]),
    ):
        pass
