"""The bundled histories: their files, notes and extraction, the logs made from them, and weekly crawls."""

import csv
import importlib.util
import re
import sys
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from freshopt.datasets.change_histories import (
    EXAMPLES,
    daily_crawls,
    example_events,
    load_example,
    weekly_crawls,
)
from tests.ground_truth.refusals import present, refused

NAME = "debian-uploads"
PAGES = Path(__file__).parents[2] / "benchmarks" / "pages"
EVE = date(2019, 7, 5)
CHANGELOG = """\
foo (1.3-2) UNRELEASED; urgency=medium

  * Not uploaded.

 -- A Maintainer <a@example.org>  Wed, 04 Mar 2020 12:00:00 +0000

foo (1.3-1ubuntu1) focal; urgency=medium

  * A derivative's.

 -- A Maintainer <a@example.org>  Tue, 03 Mar 2020 12:00:00 +0000

foo (1.3-1) unstable; urgency=medium

  * Just after midnight in Paris.

 -- A Maintainer <a@example.org>  Mon, 02 Mar 2020 00:10:00 +0100

foo (1.2-2) experimental unstable; urgency=low

  * Late in the evening in New York.

 -- A Maintainer <a@example.org>  Sat, 01 Feb 2020 22:00:00 -0500

foo (1.2-1) bullseye-proposed-updates; urgency=low

  * A date that is none.

 -- A Maintainer <a@example.org>  Sat, 32 Foo 2020 22:00:00 -0500

foo (1.1-1) unstable; urgency=low

 -- A Maintainer <a@example.org>  Sun, 05 Jan 2020 08:00:00 +0000
"""


def parent(source: str, day: str) -> str:
    """Return one more entry, older than those of CHANGELOG."""
    signed = f" -- A Maintainer <a@example.org>  {day} 09:00:00 +0000"
    return f"\n{source} (1.0-1) unstable; urgency=low\n\n{signed}\n"


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    text = (resources.files("freshopt.datasets") / f"{NAME}.csv").read_text(encoding="utf-8")
    assert "@" not in text
    return list(csv.reader(text.splitlines()))


def script(name: str) -> ModuleType:
    """Return a script of benchmarks/pages as a module."""
    spec = present(importlib.util.spec_from_file_location(name, PAGES / f"{name}.py"))
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look their module up
    present(spec.loader).exec_module(found)
    return found


@pytest.fixture(scope="module")
def extract() -> ModuleType:
    return script("extract_debian_uploads")


def test_the_file_has_two_columns_of_source_names_and_days(rows: list[list[str]]) -> None:
    assert rows[0] == ["source", "day"]
    assert all(len(row) == 2 for row in rows)
    # Debian Policy 5.6.1: lower case letters, digits, plus, minus, dot; at least two, the first alphanumeric.
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", source) for source, _ in rows[1:])


def test_its_days_are_in_the_window_sorted_and_unique(rows: list[list[str]]) -> None:
    example = EXAMPLES[NAME]
    days = [date.fromisoformat(day) for _, day in rows[1:]]
    assert all(day == EVE or example.start <= day < example.end for day in days)
    assert rows[1:] == sorted(rows[1:])
    assert len({tuple(row) for row in rows}) == len(rows)


def test_the_provenance_note_quotes_the_numbers_of_the_file(
    rows: list[list[str]], extract: ModuleType
) -> None:
    histories: dict[str, object] = {}
    for source, day in rows[1:]:
        histories.setdefault(source, extract.History()).days.add(date.fromisoformat(day))  # type: ignore[attr-defined]
    note = (resources.files("freshopt.datasets") / f"{NAME}.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| ([a-z][^|]*) \| ([0-9.]+) \|$", note, flags=re.MULTILINE)
    assert quoted == extract.summary(histories)
    assert f"upload days of {len(histories)} Debian source packages" in EXAMPLES[NAME].description
    assert "@" not in note


def test_extraction_keeps_debians_uploads_by_their_utc_day(extract: ModuleType) -> None:
    entries = list(extract.read_entries(CHANGELOG))
    assert [(entry.uploaded, entry.day) for entry in entries] == [
        (False, date(2020, 3, 4)),
        (False, date(2020, 3, 3)),
        (True, date(2020, 3, 1)),
        (True, date(2020, 2, 2)),
        (True, None),
        (True, date(2020, 1, 5)),
    ]
    history = extract.collect([CHANGELOG])["foo"]
    assert history.rows() == [date(2020, 1, 5), date(2020, 2, 2), date(2020, 3, 1)]


@pytest.mark.parametrize(
    ("suites", "debian"),
    [
        ("unstable", True),
        ("frozen unstable", True),
        ("stable-proposed-updates", True),
        ("woody-proposed-updates unstable", True),
        ("bookworm-backports", True),
        ("UNRELEASED", False),
        ("UNRLEASED", False),
        ("unreleased", False),
        ("SKIPPED", False),
        ("jammy", False),
        ("focal-proposed", False),
        ("unstable jammy", False),
    ],
)
def test_extraction_tells_debians_suites_from_others(extract: ModuleType, suites: str, debian: bool) -> None:
    (entry,) = extract.read_entries(
        f"foo (1-1) {suites}; urgency=low\n -- A <a@example.org>  Sun, 05 Jan 2020 08:00:00 +0000\n"
    )
    assert entry.uploaded is debian


def test_extraction_marks_sources_that_are_older_than_the_window(extract: ModuleType) -> None:
    own = parent("foo", "Mon, 01 Jul 2019")
    days = [date(2020, 1, 5), date(2020, 2, 2), date(2020, 3, 1)]
    assert extract.collect([CHANGELOG + own])["foo"].rows() == [EVE, *days]
    assert extract.collect([f"{CHANGELOG}\n{extract.CUT}\n"])["foo"].rows() == [EVE, *days]
    # Cut below an entry of another source: how old this one is, its own first entry tells.
    other = parent("foo0.9", "Mon, 15 Jul 2019")
    assert extract.collect([f"{CHANGELOG}{other}\n{extract.CUT}\n"])["foo"].rows() == days


def test_extraction_leaves_other_sources_out_and_follows_a_renaming(extract: ModuleType) -> None:
    assert list(extract.collect([CHANGELOG + parent("foo0.9", "Mon, 15 Jul 2019")])) == ["foo"]
    renamed = CHANGELOG.replace("foo", "setuptools") + parent("python-setuptools", "Mon, 15 Jul 2019")
    assert extract.collect([renamed])["setuptools"].rows()[0] == date(2019, 7, 15)


def test_extraction_unites_packages_of_one_source_and_drops_what_begins_later(extract: ModuleType) -> None:
    second = CHANGELOG.replace("05 Jan", "07 Jan")
    days = [date(2020, 1, 5), date(2020, 1, 7), date(2020, 2, 2), date(2020, 3, 1)]
    assert extract.collect([CHANGELOG, second])["foo"].rows() == days
    assert extract.collect([CHANGELOG.replace("2020", "2024"), "no changelog at all\n"]) == {}


def test_the_daily_log_of_a_history_made_by_hand() -> None:
    # Source 0 exists before the window and changes on its first and last day; source 1 begins on the second.
    source, time, changed = daily_crawls(
        [0, 0, 0, 1, 1],
        ["2020-01-01", "2020-01-04", "2020-01-07", "2020-01-05", "2020-01-06"],
        date(2020, 1, 4),
        date(2020, 1, 8),
    )
    assert source.tolist() == [0] * 5 + [1] * 3
    days = [str(day) for day in time.astype("datetime64[D]")]
    assert days == [f"2020-01-0{d}" for d in (4, 5, 6, 7, 8, 6, 7, 8)]
    assert changed.tolist() == [False, True, False, False, True, False, True, False]
    assert np.all(time == time.astype("datetime64[D]"))


def test_two_changes_between_two_crawls_are_seen_as_one() -> None:
    days = ["2019-12-31", "2020-01-01", "2020-01-01"]
    _, _, changed = daily_crawls([0, 0, 0], days, date(2020, 1, 1), date(2020, 1, 2))
    assert changed.tolist() == [False, True]


def test_the_log_and_the_events_tell_the_same_story() -> None:
    log = load_example(NAME)
    events = example_events(NAME)
    assert log.origin == datetime(2019, 7, 6, tzinfo=UTC)
    assert np.isnan(log.interval[log.offsets[:-1]]).all()
    assert np.nanmin(log.interval) == np.nanmax(log.interval) == 1.0
    found = log.time[log.changed]
    names = log.names[log.source_index[log.changed]]
    days = [(time - log.origin).total_seconds() / 86400 for time in events["time"]]
    seen = set(zip(names.tolist(), (found - 0.5).tolist(), strict=True))
    told = set(zip(events["source"].to_list(), days, strict=True))
    assert seen <= told
    # What the log does not tell is the first upload of each source that began in the window: its baseline.
    beginners = np.count_nonzero(log.time[log.offsets[:-1]] > 0)
    assert len(told - seen) == beginners == 25


def test_an_unknown_example_is_refused_with_the_list() -> None:
    for function in (load_example, example_events):
        refused(
            r"no example 'debian'\. Did you mean 'debian-uploads'\? Use one of: debian-uploads, gst",
            function,
            "debian",
        )


START, END = date(2020, 1, 6), date(2021, 1, 4)
ORIGIN = np.datetime64(START, "s")


def random_changes(sources: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return changes in no order: of each source one before the window, and some in it."""
    rng = np.random.default_rng(seed)
    source = np.concatenate([np.arange(sources), rng.integers(0, sources, 6 * sources)])
    minutes = np.concatenate([-rng.integers(1, 10**6, sources), rng.integers(0, 363 * 1440, 6 * sources)])
    order = rng.permutation(len(source))
    return source[order], (ORIGIN + minutes.astype("timedelta64[m]"))[order]


def test_every_crawl_tells_what_happened_since_the_one_before() -> None:
    source, time = random_changes(30, 3)
    of, at, changed, told = weekly_crawls(source, time, START, END, seed=5)
    assert (np.diff(of) >= 0).all()
    for k in range(30):
        changes, rows = np.sort(time[source == k]), np.flatnonzero(of == k)
        previous = None
        for row in rows.tolist():
            assert ORIGIN < at[row] < np.datetime64(END, "s")
            assert told[row] == changes[changes <= at[row]][-1]
            since = previous is not None and bool(((changes > previous) & (changes <= at[row])).any())
            assert changed[row] == since
            assert previous is None or at[row] > previous
            previous = at[row]


def test_crawls_are_a_week_apart_on_average_and_at_all_hours() -> None:
    n = 400
    of, at, _, _ = weekly_crawls(np.arange(n), np.full(n, ORIGIN - 1), START, END)
    day = (at - ORIGIN) / np.timedelta64(1, "D")
    # Poisson counts: 52 per source; the share of gaps above a week is 1/e.
    assert len(of) / n == pytest.approx(52.0, abs=4 * np.sqrt(52.0 / n))
    counts = np.bincount(of, minlength=n)
    assert counts.var() == pytest.approx(52.0, rel=4 * np.sqrt(2 / n))
    gaps = np.diff(day)[np.diff(of) == 0]
    assert np.mean(gaps > 7.0) == pytest.approx(np.exp(-1.0), abs=0.02)
    hours = np.bincount((day % 7.0 * 24).astype(int), minlength=168)
    assert ((hours - len(of) / 168) ** 2 / (len(of) / 168)).sum() < 167 + 4 * np.sqrt(2 * 167)


def test_a_source_is_crawled_from_its_birth_on() -> None:
    born = np.array(["2020-07-01T12:34", "2021-01-03T23:59:59"], dtype="datetime64[s]")
    of, at, changed, told = weekly_crawls([0, 1], born, START, END)
    assert set(of.tolist()) == {0}  # born a second before the end, the other had no crawl
    assert (at >= born[0]).all()
    assert not changed.any()
    assert (told == born[0]).all()


def test_the_same_seed_gives_the_same_crawls_whatever_the_other_sources() -> None:
    source, time = random_changes(8, 1)
    first, again = (weekly_crawls(source, time, START, END, seed=4) for _ in range(2))
    assert all((one == other).all() for one, other in zip(first, again, strict=True))
    few = source < 3
    part = weekly_crawls(source[few], time[few], START, END, seed=4)
    assert all((one == other[first[0] < 3]).all() for one, other in zip(part, first, strict=True))
    other = weekly_crawls(source, time, START, END, seed=5)
    assert len(other[1]) != len(first[1]) or (other[1] != first[1]).any()


PLUGINS = "gstreamer-plugins"
PLUGIN_LOG = """\
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


def read(ending: str) -> str:
    return (resources.files("freshopt.datasets") / f"{PLUGINS}.{ending}").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plugin_rows() -> list[list[str]]:
    return list(csv.reader(read("csv").splitlines()))


@pytest.fixture(scope="module")
def plugin_extract() -> ModuleType:
    return script("extract_gstreamer_plugins")


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    return script("measure_gstreamer_plugins")


def test_the_file_has_directories_of_plugins_and_minutes(plugin_rows: list[list[str]]) -> None:
    assert plugin_rows[0] == ["source", "time"]
    repository = r"(base|good|ugly|bad|libav|vaapi)/(ext|gst|sys)(/[\w.+-]+)*"
    assert all(re.fullmatch(repository, source) for source, _ in plugin_rows[1:])
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", time) for _, time in plugin_rows[1:])
    assert plugin_rows[1:] == sorted(plugin_rows[1:])
    assert len({tuple(row) for row in plugin_rows}) == len(plugin_rows)


def test_a_source_has_at_most_one_row_before_the_window_and_none_after(plugin_rows: list[list[str]]) -> None:
    example = EXAMPLES[PLUGINS]
    assert example.start.weekday() == example.end.weekday() == 0
    before = [source for source, time in plugin_rows[1:] if time < f"{example.start}"]
    assert len(before) == len(set(before)) > 300
    assert all(time < f"{example.end}" for _, time in plugin_rows[1:])


def test_the_note_quotes_the_numbers_of_the_file(
    plugin_rows: list[list[str]], plugin_extract: ModuleType
) -> None:
    histories: dict[str, object] = {}
    for source, time in plugin_rows[1:]:
        minute = datetime.fromisoformat(time)
        histories.setdefault(source, plugin_extract.History()).minutes.add(minute)  # type: ignore[attr-defined]
    note = read("md")
    assert re.findall(r"^\| ([a-z ,]+) \| ([0-9.]+) \|$", note.split("**The week.**")[0], re.MULTILINE) == (
        plugin_extract.summary(histories)
    )
    assert f"commits to {len(histories)} plugins" in EXAMPLES[PLUGINS].description
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
    changes = measure.read_changes(load_example(PLUGINS))
    assert agree(quoted_rows("the week | number"), measure.cycle_numbers(changes))


@pytest.mark.exhaustive
def test_the_note_quotes_what_dates_reward(measure: ModuleType) -> None:
    log = load_example(PLUGINS)
    heading = "crawls per source | error without dates | with dates | gain of dates, %"
    assert agree(quoted_rows(heading), measure.date_numbers(log, measure.read_changes(log)))


def test_extraction_keeps_the_utc_minutes_of_code(plugin_extract: ModuleType) -> None:
    commits = list(plugin_extract.read_commits(PLUGIN_LOG))
    assert [len(commit.files) for commit in commits] == [1, 6, 2, 1, 3, 1]
    assert commits[1].moment == datetime(2019, 9, 3, 0, 30, 59, tzinfo=UTC)
    histories = plugin_extract.collect({"bad": PLUGIN_LOG})
    assert {
        name: [f"{minute:%Y-%m-%dT%H:%M}" for minute in history.rows()] for name, history in histories.items()
    } == {
        "bad/ext/old": ["2016-09-04T22:30"],
        "bad/ext/x264": ["2016-09-04T22:30", "2018-01-01T09:00", "2019-09-03T00:30"],
        "bad/gst/asfdemux": ["2019-09-03T00:30"],
    }


def test_the_log_of_plugins_and_its_events_tell_the_same_story() -> None:
    log, events = load_example(PLUGINS), example_events(PLUGINS)
    assert log.origin == datetime(2016, 9, 5, tzinfo=UTC)
    known = {(source, time) for source, time in events.iter_rows()}
    assert len(known) == len(events)
    for source, time in list(known)[:200]:
        assert time.second == 0
        assert source in log.names
    found = np.flatnonzero(log.changed)
    for row in found[:: len(found) // 200].tolist():
        told = log.origin + timedelta(minutes=round(present(log.last_modified)[row] * 1440))
        assert (str(log.names[log.source_index[row]]), told) in known
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
