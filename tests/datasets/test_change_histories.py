"""The history of days: the data file, its provenance note, its extraction, and the log made from it."""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
from datetime import UTC, date, datetime
from importlib import resources
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from freshopt.datasets.change_histories import EXAMPLES, example_events, load_example
from freshopt.datasets.crawl_rhythms import daily_crawls
from freshopt.errors import SourceDataError

NAME = "debian-uploads"
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


@pytest.fixture(scope="module")
def extract() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "pages" / "extract_debian_uploads.py"
    spec = importlib.util.spec_from_file_location("extract_debian_uploads", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


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
    names = log.sources_[log.source_index[log.changed]]
    days = [(time - log.origin).total_seconds() / 86400 for time in events["time"]]
    seen = set(zip(names.tolist(), (found - 0.5).tolist(), strict=True))
    told = set(zip(events["source"].to_list(), days, strict=True))
    assert seen <= told
    # What the log does not tell is the first upload of each source that began in the window: its baseline.
    beginners = np.count_nonzero(log.time[log.offsets[:-1]] > 0)
    assert len(told - seen) == beginners == 25


def test_an_unknown_example_is_refused_with_the_list() -> None:
    for function in (load_example, example_events):
        with pytest.raises(
            SourceDataError, match=r"no example 'debian'\. Use one of: debian-uploads, gstreamer-plugins"
        ):
            function("debian")
