"""Calendars: events against the schedule, folded lines, parts, whole files at any path."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars
import pytest

import freshopt as fo
from freshopt.scheduling import Periodic
from freshopt.tools import icalendar, write_icalendar
from tests.ground_truth import export_parsers as parse
from tests.ground_truth.hostile_names import HOSTILE, hostile_names


def test_calendar(tmp_path: Path) -> None:
    names = ["a;b,c\\d", "two\nlines", "ü" * 80, "日本" * 40, 'quote"d', "x" * 62]
    rates = {name: 2.0 + k for k, name in enumerate(names)}
    plan = fo.schedule(rates, horizon=3.0, method=Periodic())
    start = datetime(2026, 1, 31, 5, tzinfo=UTC)
    assert write_icalendar(plan, start, tmp_path / "x.ics") == len(plan)
    events = parse.calendar_events((tmp_path / "x.ics").read_bytes())
    assert [event.summary for event in events] == [f"refresh {names[k]}" for k in plan.source]
    for event, time in zip(events, plan.time.tolist(), strict=True):
        assert event.stamp == start
        assert timedelta(0) <= start + timedelta(days=time) - event.start < timedelta(seconds=1)


def test_refreshes_in_one_second_are_events_of_their_own(tmp_path: Path) -> None:
    plan = fo.schedule({"a": 7.0}, horizon=3.0, method=Periodic(), time_unit="second")
    write_icalendar(plan, datetime(2026, 1, 1), tmp_path / "x.ics")
    starts = Counter(event.start for event in parse.calendar_events((tmp_path / "x.ics").read_bytes()))
    assert sorted(starts.values()) == [7, 7, 7]


@pytest.mark.parametrize("fraction", [0, 1, 400_000, 999_999])
def test_moments_are_within_a_second_of_the_schedule(fraction: int, tmp_path: Path) -> None:
    plan = fo.schedule({"a": 7.3}, horizon=3.0, method=Periodic(), time_unit="minute")
    start = datetime(2026, 1, 31, 5, tzinfo=UTC) + timedelta(microseconds=fraction)
    write_icalendar(plan, start, tmp_path / "x.ics")
    events = parse.calendar_events((tmp_path / "x.ics").read_bytes())
    for event, time in zip(events, plan.time.tolist(), strict=True):
        late = start + timedelta(minutes=time) - event.start
        assert timedelta(microseconds=-2) <= late < timedelta(seconds=1)


def test_a_calendar_is_whole_at_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, start = fo.schedule({"a": 2.0}, 3.0, Periodic()), datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.chdir(tmp_path)
    assert write_icalendar(plan, start, "new/x.ics") == 6
    before = Path("new/x.ics").read_bytes()
    with pytest.raises(fo.SourceDataError, match=r"x\.ics"):
        write_icalendar(plan, start, "new/x.ics", overwrite=False)
    with pytest.raises(fo.SourceDataError, match="control character"):
        write_icalendar(fo.schedule({"a\x07": 1.0}, 2.0, Periodic()), start, "new/x.ics")
    assert write_icalendar(plan, start, tmp_path / "new" / "x.ics") == 6
    assert Path("new/x.ics").read_bytes() == before
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["x.ics"]
    with pytest.raises(fo.SourceDataError, match="new"):
        write_icalendar(plan, start, "new")


def test_hostile_names_come_back_or_are_refused_in_one_line(tmp_path: Path) -> None:
    names = dict.fromkeys((*HOSTILE, *hostile_names(150)))
    kept = []

    def write(some: list[str]) -> list[str]:
        label = np.array(some, dtype=object)
        plan = fo.Schedule(np.arange(len(some)), np.zeros(len(some)), 1.0, np.ones(len(some)), label)
        write_icalendar(plan, datetime(2026, 1, 1, tzinfo=UTC), tmp_path / "x.ics")
        events = parse.calendar_events((tmp_path / "x.ics").read_bytes())
        assert all(event.summary.startswith("refresh ") for event in events)
        return [event.summary.removeprefix("refresh ") for event in events]

    for name in names:
        try:
            found = write([name])
        except fo.SourceDataError as error:
            words = str(error)
        else:
            kept.append(name)
            assert found == [name]
            continue
        assert words.isprintable()
        assert words.endswith(".")
    assert 150 < len(kept) < len(names)
    assert write(kept) == kept


def folded(line: str) -> bytes:
    """Fold a content line letter by letter."""
    pieces = [b""]
    for letter in line:
        if len(pieces[-1]) + len(letter.encode()) > 75:
            pieces.append(b" ")
        pieces[-1] += letter.encode()
    return b"".join(piece + b"\r\n" for piece in pieces)


def test_lines_are_folded_between_letters() -> None:
    draw = random.Random(2)
    lines = ["".join(draw.choices("aü名😀", k=draw.randint(1, 300))) for _ in range(300)]
    lines += ["x" * many for many in range(60, 240)]
    found = polars.Series("line", lines).to_frame().select(icalendar._folded(polars.col("line"))).to_series()
    assert [line.encode() for line in found.to_list()] == [folded(line) for line in lines]


def test_events_bear_the_digest_of_their_source(tmp_path: Path) -> None:
    """Also where other sources have no events; by the standard library, name by name."""
    rates = {"a": 2.0, "never": 0.0, "ü/漢": 1.0, "x" * 200: 3.0}
    write_icalendar(fo.schedule(rates, 2.0), datetime(2026, 1, 1, tzinfo=UTC), tmp_path / "some.ics")
    text = (tmp_path / "some.ics").read_text(encoding="utf-8")
    marks = {line[4:20] for line in text.splitlines() if line.startswith("UID:")}
    assert marks == {hashlib.sha256(name.encode()).hexdigest()[:16] for name in rates if name != "never"}


def test_calendars_in_parts_are_those_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    plan = fo.Schedule(random.integers(0, 5, 40), np.sort(random.random(40)), 1.0, np.ones(5), list("abcde"))
    found = []
    for together in (1, 7, 40, 1000):
        monkeypatch.setattr(icalendar, "TOGETHER", together)
        path = tmp_path / str(together)
        assert write_icalendar(plan, datetime(2026, 1, 1, tzinfo=UTC), path) == 40
        found.append(path.read_bytes())
    assert all(one == found[0] for one in found)


def test_calendars_are_refused(tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    cases = (
        (fo.schedule({"a": 0.0}, 1.0, Periodic()), "no refresh falls into 1 days. .*Lengthen"),
        (fo.schedule({"a\x07": 1.0}, 2.0, Periodic()), r"source 'a\\x07' has a control character"),
        (fo.schedule({"a": 1e-5}, 9e6, Periodic()), "year 9999. Shorten"),
        (fo.Schedule([], [], 1.0, [1.0], ["s"], crawl_probability=[0.5]), "'s' is refreshed on its signals"),
    )
    for plan, words in cases:
        with pytest.raises(fo.SourceDataError, match=words):
            write_icalendar(plan, start, tmp_path / "x.ics")
        assert not list(tmp_path.iterdir())
