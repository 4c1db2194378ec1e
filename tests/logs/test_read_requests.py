"""Request rates from access logs and tables."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import freshopt as fo
from freshopt.logs import read_requests
from freshopt.logs.read_requests import requests_of

LINE = '192.0.2.1 - - [{}/Jan/2026:{} +0000] "GET {} HTTP/1.1" {} 7\n'


def test_an_access_log_counts_every_request(tmp_path: Path) -> None:
    path = tmp_path / "edge.log"
    lines = [("01", "00:00:00", "/a", 200), ("01", "00:00:00", "/a", 304), ("02", "12:00:00", "/b", 200)]
    lines += [("03", "00:00:00", "/a", 404)]
    path.write_text(
        "".join(LINE.format(*line) for line in lines)
        + LINE.replace("GET", "POST").format("09", "00:00:00", "/c", 200)
    )
    found = read_requests(path)
    assert found.to_dict(as_series=False) == {
        "source": ["/a", "/b"],
        "requests": [3, 1],
        "request_rate": [3.5 / 2.0, 1.5 / 2.0],
    }
    assert requests_of(found, ["/c", "/a"]).tolist() == pytest.approx([0.25, 1.75])
    assert read_requests(path, time_unit="hour")["request_rate"].to_list() == [3.5 / 48.0, 1.5 / 48.0]


def test_two_logs_that_name_sources_differently_are_refused(tmp_path: Path) -> None:
    """Else all sources had the rate of no requests, and a cache that fetches at each were proved optimal."""
    (tmp_path / "edge.csv").write_text("source,time\nhttps://x.example/a,1\nhttps://x.example/b,3\n")
    found = read_requests(tmp_path / "edge.csv")
    words = r"no source of the log \('/a'\) is among those that are requested \('https://x.example/a', "
    with pytest.raises(fo.SourceDataError, match=words):
        requests_of(found, ["/a"])


def test_tables_and_their_names(tmp_path: Path) -> None:
    pl.DataFrame({"url": ["x", "y", "x"], "at": [1.0, 3.0, 5.0]}).write_parquet(tmp_path / "a.parquet")
    found = read_requests(tmp_path / "a.parquet", columns={"url": "source", "at": "time"})
    assert found["request_rate"].to_list() == [2.5 / 4.0, 1.5 / 4.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source,when\na,1\n", r"no column 'time'.*A log of requests has source and time"),
        ("source,time\n", r"no rows"),
        ("source,time\na,1\nb,1\n", r"all requests .* are at one time"),
        ("source,time\na,1\nb,x\n", r"row 2, line 3"),
    ],
)
def test_refusals(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "edge.csv").write_text(text)
    with pytest.raises(fo.SourceDataError, match=words):
        read_requests(tmp_path / "edge.csv")
