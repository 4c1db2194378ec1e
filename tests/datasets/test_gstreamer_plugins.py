"""The history of minutes: its file, provenance note, extraction, measurements, and the log made from it."""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from freshopt.datasets.change_histories import EXAMPLES, example_events, load_example

NAME = "gstreamer-plugins"
PAGES = Path(__file__).parents[2] / "benchmarks" / "pages"
CHANGELOG = """\
=== release 1.18.0 ===

2020-09-07 00:00:00 +0100  A Developer <a@example.org>

\t* gst/late/after.c:
\t  Sunday, 23:00 UTC: a week after the window

2019-09-02 20:30:59 -0400  A Developer <a@example.org>

\t* NEWS:
\t* ext/x264/gstx264enc.c:
\t* ext/x264/gstx264enc.h:
\t* ext/x264/meson.build:
\t* gst/asfdemux/gstasfdemux.c:
\t* tests/check/elements/x264.c:
\t  x264enc: Two files of one directory are one change
\t  * ext/none/not-a-file.c: is text

2018-01-01 10:00:30 +0100  Another <b@example.org>

\t* ext/old/Makefile.am:
\t* ext/x264/gstx264enc.c:
\t  build files count as a sign of life only

2018-01-01 10:00:10 +0100  Another <b@example.org>

\t* ext/x264/gstx264enc.c:
\t  The same minute

2016-09-05 00:30:00 +0200  Another <b@example.org>

\t* ext/x264/gstx264enc.c:
\t* ext/old/old.c:
\t* ext/gone/gone.c:
\t  Sunday, 22:30 UTC: before the window

2015-01-01 00:00:00 +0000  Another <b@example.org>

\t* ext/x264/gstx264enc.c:
\t  The first
"""


def module(name: str) -> ModuleType:
    """Return a script of benchmarks/pages as a module."""
    spec = importlib.util.spec_from_file_location(name, PAGES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look their module up
    spec.loader.exec_module(found)
    return found


def read(ending: str) -> str:
    return (resources.files("freshopt.datasets") / f"{NAME}.{ending}").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    return list(csv.reader(read("csv").splitlines()))


@pytest.fixture(scope="module")
def extract() -> ModuleType:
    return module("extract_gstreamer_plugins")


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    return module("measure_gstreamer_plugins")


def test_the_file_has_directories_of_plugins_and_minutes(rows: list[list[str]]) -> None:
    assert rows[0] == ["source", "time"]
    repository = r"(base|good|ugly|bad|libav|vaapi)/(ext|gst|sys)(/[\w.+-]+)*"
    assert all(re.fullmatch(repository, source) for source, _ in rows[1:])
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", time) for _, time in rows[1:])
    assert rows[1:] == sorted(rows[1:])
    assert len({tuple(row) for row in rows}) == len(rows)


def test_a_source_has_at_most_one_row_before_the_window_and_none_after(rows: list[list[str]]) -> None:
    example = EXAMPLES[NAME]
    assert example.start.weekday() == example.end.weekday() == 0
    before = [source for source, time in rows[1:] if time < f"{example.start}"]
    assert len(before) == len(set(before)) > 300
    assert all(time < f"{example.end}" for _, time in rows[1:])


def test_the_note_quotes_the_numbers_of_the_file(rows: list[list[str]], extract: ModuleType) -> None:
    histories: dict[str, object] = {}
    for source, time in rows[1:]:
        minute = datetime.fromisoformat(time)
        histories.setdefault(source, extract.History()).minutes.add(minute)  # type: ignore[attr-defined]
    note = read("md")
    assert re.findall(r"^\| ([a-z ,]+) \| ([0-9.]+) \|$", note.split("**The week.**")[0], re.MULTILINE) == (
        extract.summary(histories)
    )
    assert f"commits to {len(histories)} plugins" in EXAMPLES[NAME].description
    assert "@" not in note + read("csv")


def quoted_rows(heading: str) -> list[list[str]]:
    """Return the rows of the note's table with a heading."""
    lines = read("md").split(f"| {heading} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def agree(quoted: list[list[str]], computed: list[tuple[str, ...]]) -> bool:
    """Return whether rows agree, up to the last digit, which differs from machine to machine."""
    assert [row[0] for row in quoted] == [row[0] for row in computed]
    for row, now in zip(quoted, computed, strict=True):
        for cell, value in zip(row[1:], now[1:], strict=True):
            if cell or value:
                ours, theirs = (float(text.split(" ±")[0]) for text in (cell, value))
                assert ours == pytest.approx(theirs, rel=0.03, abs=0.11), row
    return True


def test_the_note_quotes_what_the_week_rewards(measure: ModuleType) -> None:
    changes = measure.read_changes(load_example(NAME))
    assert agree(quoted_rows("the week | number"), measure.cycle_numbers(changes))


@pytest.mark.exhaustive
def test_the_note_quotes_what_dates_reward(measure: ModuleType) -> None:
    log = load_example(NAME)
    heading = "crawls per source | error without dates | with dates | gain of dates, %"
    assert agree(quoted_rows(heading), measure.date_numbers(log, measure.read_changes(log)))


def test_extraction_keeps_the_utc_minutes_of_code(extract: ModuleType) -> None:
    commits = list(extract.read_commits(CHANGELOG))
    assert [len(commit.files) for commit in commits] == [1, 6, 2, 1, 3, 1]
    assert commits[1].moment == datetime(2019, 9, 3, 0, 30, 59, tzinfo=UTC)
    histories = extract.collect({"bad": CHANGELOG})
    assert {
        name: [f"{minute:%Y-%m-%dT%H:%M}" for minute in history.rows()] for name, history in histories.items()
    } == {
        "bad/ext/old": ["2016-09-04T22:30"],
        "bad/ext/x264": ["2016-09-04T22:30", "2018-01-01T09:00", "2019-09-03T00:30"],
        "bad/gst/asfdemux": ["2019-09-03T00:30"],
    }


def test_the_log_and_the_events_tell_the_same_story() -> None:
    log, events = load_example(NAME), example_events(NAME)
    assert log.origin == datetime(2016, 9, 5, tzinfo=UTC)
    assert log.last_modified is not None
    known = {(source, time) for source, time in events.iter_rows()}
    assert len(known) == len(events)
    for source, time in list(known)[:200]:
        assert time.second == 0
        assert source in log.sources_
    found = np.flatnonzero(log.changed)
    for row in found[:: len(found) // 200].tolist():
        told = log.origin + timedelta(minutes=round(log.last_modified[row] * 1440))
        assert (str(log.sources_[log.source_index[row]]), told) in known
    # Changes that no crawl tells apart are not found: one a crawl at most.
    assert 0.4 * len(known) < len(found) < len(known)


def test_waiting_is_the_time_to_the_next_crawl(measure: ModuleType) -> None:
    rng = np.random.default_rng(0)
    source, time = np.repeat(np.arange(3), 8), np.sort(rng.uniform(0.0, 60.0, (3, 8)), axis=1).ravel()
    changes = measure.Changes(source, time, 3)
    crawls = 1.25 + 7.0 * np.arange(-1, 11)
    grid = np.arange(0.0, 75.0, 1e-3)
    for k in range(3):
        own = time[source == k]
        each = [float(crawls[crawls >= at][0] - at) for at in own]
        assert measure.waiting(changes, 1.25, 7.0, False)[k] == pytest.approx(sum(each))
        crawl = crawls[np.searchsorted(crawls, grid, side="right") - 1]
        stale = [bool(((own > last) & (own <= at)).any()) for last, at in zip(crawl, grid, strict=True)]
        assert measure.waiting(changes, 1.25, 7.0, True)[k] == pytest.approx(np.mean(stale) * 75.0, abs=0.05)


def test_replayed_cost_is_the_mean_over_phases(measure: ModuleType) -> None:
    rng = np.random.default_rng(1)
    time = np.sort(rng.uniform(10.0, 190.0, 9))
    changes = measure.Changes(np.zeros(9, dtype=np.int64), time, 1)
    begin, gap = 8.0, 11.0
    value = measure.replayed(np.array([1 / gap]), np.array([0]), changes, begin)
    grid = begin + (np.arange(40_000) + 0.5) * measure.AHEAD / 40_000
    stale = 0.0
    for phase in (np.arange(64) + 0.5) / 64 * gap:
        crawl = grid - (grid - phase) % gap
        last = time[np.maximum(np.searchsorted(time, grid, side="right") - 1, 0)]
        stale += np.mean((last > crawl) & (last <= grid)) / 64
    assert value == pytest.approx(stale * measure.AHEAD, rel=5e-3)
