"""Tables and folders written and read back: as a whole or not at all, and what cannot be."""

import ctypes
import errno
import os
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from freshopt.errors import SourceDataError
from freshopt.logs import atomic_output as module
from freshopt.logs.atomic_output import complete_file, complete_folder
from freshopt.logs.tables import column_names, read_table, write_table
from tests.ground_truth.command_lines import file_with
from tests.ground_truth.hostile_names import HOSTILE, hostile_names
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix

TABLE = pl.DataFrame(
    {
        "source": ["a", "ü,\n"],
        "rate": [0.1 + 0.2, 1e-300],
        "interval": [None, 2.0],
        "timestamp": [datetime(2024, 1, 1, 6, tzinfo=UTC), None],
    }
)


@pytest.mark.parametrize("name", ["rates.csv", "rates.csv.gz", "rates.PARQUET"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_table(TABLE, path)
    assert_frame_equal(read_table(path), TABLE, check_exact=True)
    assert column_names(path) == TABLE.columns
    assert read_table(path, columns=["rate", "nothing"]).columns == ["rate"]
    before = path.read_bytes()
    write_table(TABLE, path)
    assert path.read_bytes() == before


def test_as_text_leaves_cells_alone(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("source,rate\n007,1e3\n,x\n")
    assert read_table(tmp_path / "t.csv", as_text=True).rows() == [("007", "1e3"), (None, "x")]


def test_types_are_inferred_from_all_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("rate\n" + "1\n" * 5000 + "0.5\n")
    assert read_table(tmp_path / "t.csv")["rate"].dtype == pl.Float64


def test_unwritable_paths(tmp_path: Path) -> None:
    refused(r"rates\.xlsx ends in '\.xlsx'", write_table, TABLE, tmp_path / "rates.xlsx")
    for path in (tmp_path / "missing" / "rates.csv", tmp_path / "missing" / "rates.csv.gz"):
        refused(r"rates\.csv.* cannot be written: No such file", write_table, TABLE, path)
    (tmp_path / "rates.parquet").mkdir()
    with pytest.raises(SourceDataError, match=r"rates\.parquet cannot be written: Is a directory"):
        write_table(TABLE, tmp_path / "rates.parquet")


def test_unreadable_tables(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("a,b\n1,2,3\n")
    (tmp_path / "rates.parquet").write_bytes(b"PAR1")
    for name in ("rates.csv", "rates.parquet", "missing.csv", "missing.parquet"):
        refused(name, read_table, tmp_path / name)
    (tmp_path / "folder.csv").mkdir()
    refused("is a folder", column_names, tmp_path / "folder.csv")


def spreadsheet_cells(text: str, parting: str) -> list[str]:
    """The cells that a spreadsheet makes of a file: any of `parting` parts them, except within quotes."""
    cells, cell, quoted, at = [], "", False, 0
    while at < len(text):
        letter = text[at]
        if quoted:
            if letter == '"' and text[at + 1 : at + 2] == '"':
                cell, at = cell + '"', at + 1
            elif letter == '"':
                quoted = False
            else:
                cell += letter
        elif letter == '"' and not cell:
            quoted = True
        elif letter in parting or letter in "\r\n":
            cells.append(cell)
            cell = ""
        else:
            cell += letter
        at += 1
    return [*cells, cell]


NAMES = [
    *HOSTILE,
    *hostile_names(150),
    "=",
    "-1",
    "-x",
    "+1e3",
    "@scope/name",
    "\t=1",
    "''=1",
    "'a",
    "x;=1;y",
]
NAMES = [name for name in dict.fromkeys(NAMES) if not any("\ud800" <= letter <= "\udfff" for letter in name)]


@matrix(parting=[",", ";", "\t", ",;\t"], every=4)
def test_no_name_becomes_a_formula(tmp_path: Path, parting: str) -> None:
    """However a spreadsheet parts the file, what begins with a sign is a number."""
    for k, name in enumerate(NAMES):
        table = pl.DataFrame({"source": [name], "rate": [-0.5], "host": ["=1"]})
        write_table(table, tmp_path / f"{k}.csv")
        text = (tmp_path / f"{k}.csv").read_bytes().decode()
        for cell in spreadsheet_cells(text, parting):
            harmless = not cell.startswith(tuple("=+-@\t\r\n＝＋－＠")) or cell.split(",")[0] == "-0.5"
            assert harmless, (name, text)


@matrix(name=["t.csv", "t.csv.gz", "t.parquet"], as_text=[False, True])
def test_every_name_comes_back(tmp_path: Path, name: str, as_text: bool) -> None:
    table = pl.DataFrame({"source": NAMES, "rate": [-0.5] * len(NAMES), "host": NAMES[::-1]})
    write_table(table, tmp_path / name)
    found = read_table(tmp_path / name, as_text=as_text)
    assert found["source"].to_list() == NAMES
    assert found["host"].to_list() == NAMES[::-1]
    assert found["rate"].cast(pl.Float64).to_list() == [-0.5] * len(NAMES)
    if not as_text:
        assert found["rate"].dtype == pl.Float64


def test_names_that_no_spreadsheet_computes_stand_bare(tmp_path: Path) -> None:
    write_table(pl.DataFrame({"source": ["a-b", "'a", "x@y", "1=2"], "rate": [-1.0] * 4}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "source,rate\na-b,-1.0\n'a,-1.0\nx@y,-1.0\n1=2,-1.0\n"


def test_a_file_without_a_line_of_names(tmp_path: Path) -> None:
    path = file_with(tmp_path / "log.csv", "a,0,0\nb,1,1\n")
    refused("first line has numbers, such as 0, where the columns' names", read_table, path)


@pytest.mark.parametrize("octets", [b"[\x8d", b"[" + b" " * 70_000 + b"\xff"])
def test_documents_that_are_no_text_are_refused_in_a_line(tmp_path: Path, octets: bytes) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(octets)
    refused("log.json cannot be read as JSON: .*codec can't decode byte", read_table, path)


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


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A folder with an earlier result."""
    write(tmp_path / "plan", "one")
    return tmp_path / "plan"


def contents(folder: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() for entry in sorted(folder.iterdir())}


def assert_alone(target: Path, text: str) -> None:
    """A result is as a whole that of one text, and nothing is left beside it."""
    assert contents(target) == result(text)
    assert list(target.parent.iterdir()) == [target]


def result(text: str) -> dict[str, str]:
    return {"rates.csv": text, "summary.json": text}


@matrix(make=[None, "empty"], name=["plan", "deep/er/plan"])
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
    target: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(module, "_exchange", lambda *_: False)
    (target / "schedule.csv").write_text("one")
    target.chmod(0o750)
    refused(r"already holds a result \(summary.json\).*--overwrite", write, target, "two")
    assert contents(target)["summary.json"] == "one"
    write(target, "two", overwrite=True)
    assert_alone(target, "two")
    assert stat.S_IMODE(target.stat().st_mode) == 0o750


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_what_ends_the_work_early_leaves_no_trace(target: Path, failure: type[BaseException]) -> None:
    for path in (target, target.parent / "a" / "b"):
        with pytest.raises(failure):
            write_in_part(path, failure)
    assert_alone(target, "one")


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.EACCES])
def test_only_an_exchange_that_cannot_be_has_a_fallback(
    target: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    class Library:
        def __init__(self, name: None, use_errno: bool) -> None: ...

        def renameat2(self, *_: object) -> int:
            ctypes.set_errno(code)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", Library)
    if code == errno.EACCES:
        refused("plan cannot be written: Permission denied", write, target, "two", overwrite=True)
    else:
        write(target, "two", overwrite=True)
    assert contents(target) == result("one" if code == errno.EACCES else "two")
    monkeypatch.delattr(Library, "renameat2")
    write(target, "three", overwrite=True)
    assert_alone(target, "three")


def test_a_failed_swap_restores_the_old_folder(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_exchange", lambda *_: False)
    rename = Path.rename

    def refuse(self: Path, to: Path) -> Path:
        if to == target and (self / "summary.json").read_text() == "two":
            raise PermissionError(13, "Permission denied", str(self))
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", refuse)
    refused("plan cannot be written: Permission denied", write, target, "two", overwrite=True)
    assert_alone(target, "one")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_files_is_never_replaced(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "plan"
    target.mkdir()
    (target / "rates.csv").write_text("precious")
    refused(r"not of an earlier result: rates\.csv", write, target, "two", overwrite)
    (target / "summary.json").write_text("one")
    (target / "thesis.tex").write_text("precious")
    refused(r"not of an earlier result: thesis\.tex", write, target, "two", overwrite)
    (target / "thesis.tex").unlink()
    (target / "schedule.csv").mkdir()
    refused(r"not of an earlier result: schedule\.csv", write, target, "two", overwrite)
    assert (target / "rates.csv").read_text() == "precious"


def test_refusals_come_before_the_work(here: Path) -> None:
    (here / "file").write_text("")
    for path, words in (("file", "is a file"), ("file/x", "is a file"), (".", "working folder")):
        with pytest.raises(SourceDataError, match=words), complete_folder(path, True, files=FILES):
            pytest.fail("the work began")
    assert contents(here) == {"file": ""}


def test_an_unwritable_parent_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:  # file permissions do not stop a superuser
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(Path, "touch", refuse)
    refused(r"plan cannot be written: Permission denied", write, tmp_path / "plan", "one")
    target = tmp_path / "rates.csv"
    with pytest.raises(SourceDataError, match=r"rates\.csv cannot be written"), complete_file(target):
        pytest.fail("the work began")


def test_a_folder_filled_meanwhile_is_not_lost(tmp_path: Path) -> None:
    target = tmp_path / "plan"

    def write_both() -> None:
        with complete_folder(target, files=FILES) as part:
            fill(part, "slow")
            write(target, "fast")

    refused("already holds", write_both)
    assert_alone(target, "fast")


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
