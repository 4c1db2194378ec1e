"""Tables written and read back, and what cannot be."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from freshopt.errors import SourceDataError
from freshopt.io.tables import column_names, read_table, write_table

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
