"""Sources whose names are in two columns, and columns that only late rows have."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from freshopt.errors import SourceDataError, hearing
from freshopt.logs.read_crawls import read_log


@pytest.mark.parametrize(
    ("head", "rows", "sources"),
    [
        ("host,path", (("a.example", "/x"), ("b.example", "/x")), ["a.example/x", "b.example/x"]),
        ("Schema,Table", (("sales", "t"), ("web", "t")), ["sales.t", "web.t"]),
        ("table,schema,database", (("t", "s", "one"), ("t", "s", "two")), ["one.s.t", "two.s.t"]),
        ("host,path", (("a.example", "/x"), ("b.example", "/y")), ["/x", "/y"]),
    ],
)
def test_a_name_that_stands_in_several_hosts_is_told_with_them(
    head: str, rows: tuple[tuple[str, ...], ...], sources: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    lines = (f"{','.join(row)},{day},{row[0]}{day}" for row in rows for day in (1, 2))
    path.write_text("\n".join([f"{head},time,hash", *lines]))
    with warnings.catch_warnings(action="ignore"), hearing() as heard:
        assert read_log(path).names.tolist() == sources
    assert len(heard) == (sources[0] != "/x")
    if heard:
        with pytest.raises(SourceDataError, match="stands beside several values"):
            read_log([path, path])


def test_keys_of_late_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    early = [{"url": f"a{k}", "at": 1.0, "hash": "x"} for k in range(1200)]
    late = {"url": "a0", "at": 2.0, "hash": "x", "changed": True}
    path.write_text("\n".join(map(json.dumps, [*early, late])))
    with warnings.catch_warnings(action="ignore"):
        assert np.count_nonzero(read_log(path).changed) == 1
    # A key that holds what does not go together is no reason to refuse the others.
    odd = [{**late, "more": 1}, {**late, "at": 3.0, "more": {"b": 1}}]
    path.write_text("\n".join(map(json.dumps, [*early, *odd])))
    with warnings.catch_warnings(action="ignore"):
        assert len(read_log(path)) == 1202
