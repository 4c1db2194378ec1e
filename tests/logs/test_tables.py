"""Tables written and read back, and what cannot be."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from freshopt.errors import SourceDataError
from freshopt.logs.tables import column_names, read_table, write_table
from tests.ground_truth.hostile_names import HOSTILE, hostile_names

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
    with pytest.raises(SourceDataError, match=r"rates\.xlsx ends in '\.xlsx'"):
        write_table(TABLE, tmp_path / "rates.xlsx")
    for path in (tmp_path / "missing" / "rates.csv", tmp_path / "missing" / "rates.csv.gz"):
        with pytest.raises(SourceDataError, match=r"rates\.csv.* cannot be written: No such file"):
            write_table(TABLE, path)
    (tmp_path / "rates.parquet").mkdir()
    with pytest.raises(SourceDataError, match=r"rates\.parquet cannot be written: Is a directory"):
        write_table(TABLE, tmp_path / "rates.parquet")


def test_unreadable_tables(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("a,b\n1,2,3\n")
    (tmp_path / "rates.parquet").write_bytes(b"PAR1")
    for name in ("rates.csv", "rates.parquet", "missing.csv", "missing.parquet"):
        with pytest.raises(SourceDataError, match=name):
            read_table(tmp_path / name)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(SourceDataError, match="is a folder"):
        column_names(tmp_path / "folder.csv")


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


@pytest.mark.parametrize("parting", [",", ";", "\t", ",;\t"])
@pytest.mark.sampled(4)
def test_no_name_becomes_a_formula(tmp_path: Path, parting: str) -> None:
    """However a spreadsheet parts the file, what begins with a sign is a number."""
    for k, name in enumerate(NAMES):
        table = pl.DataFrame({"source": [name], "rate": [-0.5], "host": ["=1"]})
        write_table(table, tmp_path / f"{k}.csv")
        text = (tmp_path / f"{k}.csv").read_bytes().decode()
        for cell in spreadsheet_cells(text, parting):
            harmless = not cell.startswith(tuple("=+-@\t\r\n＝＋－＠")) or cell.split(",")[0] == "-0.5"
            assert harmless, (name, text)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
@pytest.mark.parametrize("as_text", [False, True])
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
    path = tmp_path / "log.csv"
    path.write_text("a,0,0\nb,1,1\n")
    with pytest.raises(SourceDataError, match="first line has numbers, such as 0, where the columns' names"):
        read_table(path)
