"""Crawls of the plan itself continue the log that it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.terminal.own_crawls import with_own_crawls


def file(folder: Path, text: str, name: str = "own.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_first_row_follows_the_last_crawl_of_the_log(tmp_path: Path) -> None:
    log = fo.CrawlLog(["a", "a", "b"], [0.0, 2.0, 1.0], [0, 1, 0])
    own = file(tmp_path, "source,time,changed\nb,4,1\na,2.5,1\na,7,0\nc,5,1\n")
    more = with_own_crawls(log, [own])
    assert more.sources_.tolist() == ["a", "b", "c"]
    assert more.time.tolist() == [0.0, 2.0, 2.5, 7.0, 1.0, 4.0, 5.0]
    np.testing.assert_array_equal(more.interval, [np.nan, 2.0, 0.5, 4.5, np.nan, 3.0, np.nan])
    assert more.changed.tolist() == [False, True, True, False, False, True, False]
    assert with_own_crawls(log, []) is log


def test_nothing_is_learnt_of_first_hashes_that_follow_none(tmp_path: Path) -> None:
    log = fo.CrawlLog(["a", "a", "b"], [0.0, 2.0, 1.0], [0, 1, 0])
    own = file(
        tmp_path, "source,time,hash,status\nb,4,x,\nb,5,y,200\na,3,,304\na,4,,503\na,7,z,200\na,9,z,\n"
    )
    more = with_own_crawls(log, [own])
    assert more.time.tolist() == [0.0, 2.0, 3.0, 7.0, 9.0, 1.0, 4.0, 5.0]
    np.testing.assert_array_equal(more.interval, [np.nan, 2.0, 1.0, np.nan, 2.0, np.nan, np.nan, 1.0])
    assert more.changed.tolist() == [False, True, False, False, False, False, False, True]


@pytest.mark.parametrize("counted", [False, True])
def test_dates_counts_and_known_first_intervals_stay(counted: bool, tmp_path: Path) -> None:
    days = np.array(["2026-01-05T06:00", "2026-01-07T06:00", "2026-01-06T00:00"], "M8[us]")
    told: dict[str, Any] = {"changes": [2, 1, 0]}
    if not counted:
        told = {"last_modified": [None, days[1] - np.timedelta64(3, "h"), None]}
    log = fo.CrawlLog([1, 1, 2], days, [1, 1, 0], start=days[0] - np.timedelta64(1, "D"), **told)
    key, value = ("changes", "3") if counted else ("last_modified", "2026-01-08T00:00:00Z")
    text = f"source,time,changed,{key}\n1,2026-01-08T06:00Z,1,{value}\n2,2026-01-09T00:00Z,0,\n"
    also = file(tmp_path, "source,time,changed\n1,2026-01-10T06:00Z,0\n", "later.csv")
    more = with_own_crawls(log, [also, file(tmp_path, text)])
    assert more.origin == log.origin
    assert more.time.tolist() == [0.25, 2.25, 3.25, 5.25, 1.0, 4.0]
    assert more.interval.tolist() == [1.0, 2.0, 1.0, 2.0, 1.75, 3.0]
    expected = [2, 1, 3, np.nan, 0, np.nan] if counted else [np.nan, 2.125, 3.0, *[np.nan] * 3]
    np.testing.assert_allclose(getattr(more, key), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source,time,changed\na,1.5,1\n", "before the log's last crawl of 'a'"),
        ("source,time,changed\na,3,1\na,3,0\n", "twice at one time of 'a'"),
        ("source,time,changed\na,2,1\n", "'a'"),
        ("source,elapsed,changed\na,3,1\n", "no column 'time'"),
        ("source,time,changed\na,2026-01-05,1\n", "own.csv: "),
        ("source,changed\na,1\n", "no column 'time'"),
    ],
)
def test_what_cannot_follow_is_refused(text: str, words: str, tmp_path: Path) -> None:
    log = fo.CrawlLog(["a", "a", "b"], [0.0, 2.0, 1.0], [0, 1, 0])
    with pytest.raises(fo.SourceDataError, match=words):
        with_own_crawls(log, [file(tmp_path, text)])


def test_a_log_without_times_cannot_be_continued(tmp_path: Path) -> None:
    log = fo.CrawlLog.from_columns({"source": ["a"] * 2, "elapsed": [1.0, 2.0], "changed": [0, 1]})
    with pytest.raises(fo.SourceDataError, match="no times"):
        with_own_crawls(log, [file(tmp_path, "source,time,changed\na,9,1\n")])
