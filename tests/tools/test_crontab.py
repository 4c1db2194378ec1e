"""Crontabs and calendars: names, refusals and whole years, under transcribed rules and a real shell."""

import hashlib
import random
import subprocess
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars
import pytest

import freshopt as fo
from freshopt.numerics.arrays import Array
from freshopt.scheduling import Periodic
from freshopt.scheduling.rate_table import read_rates
from freshopt.tools import Crontab, icalendar, write_icalendar
from freshopt.tools.cron_fields import _dates
from tests.ground_truth import export_parsers as parse
from tests.ground_truth.cron_rules import CRONIE, CRONS, DEBIAN, Cron, CronError, Job, given_to_shell, load
from tests.ground_truth.hostile_names import HOSTILE, hostile_names
from tests.ground_truth.refusals import refused

# 28 years are whole weeks and have seven leap years.
CYCLE = [date(2001, 1, 1) + timedelta(days=k) for k in range(28 * 365 + 7)]
MONTH = np.array([day.month for day in CYCLE])
DAY = np.array([day.day for day in CYCLE])
WEEKDAY = np.array([day.isoweekday() % 7 for day in CYCLE])
YEAR = np.array([day.year for day in CYCLE])
LEAP = (MONTH == 2) & (DAY == 29)
EDGES = [1440.0, 1439.99, 1399.9, 745.3, 47.9, 25.01, 24.0, 23.99, 7.5, 1.9, 1.1, 1.0, 0.999, 2 / 7, 0.2]
EDGES += [1 / 7, 0.142, 1 / 14, 2 / 30.4, 1 / 30, 1 / 31, 0.02, 0.0115, 3 / 365, 1.999 / 365, 1 / 365]


def written(rates: dict[str, float], folder: Path, command: str = "refresh") -> bytes:
    done = Crontab(command).write(read_rates(rates), folder / "crontab")
    assert done.realised <= done.planned * (1.0 + 1e-9)
    return (folder / "crontab").read_bytes()


def days_of(job: Job) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """On which days of the cycle a job runs: one of its two days is a star in every line that is written."""
    assert job.stars[2] or job.stars[4]
    _, _, days, months, weekdays = (np.array(sorted(field)) for field in job.fields)
    return np.isin(DAY, days) & np.isin(MONTH, months) & np.isin(WEEKDAY, weekdays)


def counts(octets: bytes) -> dict[str, Array]:
    """Refreshes of each source on each day of the cycle."""
    found: dict[str, Array] = {}
    for job in load(octets, DEBIAN):
        name = job.command.decode().rpartition(" ")[2]
        many = len(job.fields[0]) * len(job.fields[1])
        found[name] = found.get(name, np.zeros(len(CYCLE))) + many * days_of(job)
    return found


def test_the_days_of_the_cycle_are_those_of_the_transcription() -> None:
    for line in (b"0 0 29,31 2,12 *", b"0 0 * * 0,3", b"0 0 * * *"):
        (job,) = load(line + b" x\n", CRONIE)
        assert days_of(job)[:1500].tolist() == [job.runs_on(day) for day in CYCLE[:1500]]


def test_a_source_is_refreshed_at_its_rate(tmp_path: Path) -> None:
    rates = {f"s{k}": rate for k, rate in enumerate(EDGES)}
    rates |= {
        f"r{k}": rate
        for k, rate in enumerate((10.0 ** np.random.default_rng(3).uniform(-2.4, 3, 150)).tolist())
    }
    octets = written(rates, tmp_path)
    found = counts(octets)
    assert found.keys() == rates.keys()
    assert max(Counter(job.command for job in load(octets, DEBIAN)).values()) <= 6
    for name, rate in rates.items():
        total = float(found[name].sum())
        assert total <= rate * len(CYCLE) * (1.0 + 1e-9), name
        # In a calendar year there are at most 53 of a day of the week.
        per_year = np.bincount(YEAR - 2001, found[name])
        assert per_year.max() <= max(rate * 366.0, rate * 371.0 if rate >= 1 / 7 else 0.0) * (1.0 + 1e-9)
        n = np.floor(365.0 * rate * (1.0 + 1e-9))
        assert total > rate * len(CYCLE) * (1.0 - max(0.01, 1.0 / (n + 1.0)) - 1e-3), (name, rate)


def test_refreshes_are_evenly_apart(tmp_path: Path) -> None:
    rates = {f"s{k}": rate for k, rate in enumerate(EDGES) if 0.033 < rate < 50.0}
    rates |= {
        f"r{k}": rate
        for k, rate in enumerate((10.0 ** np.random.default_rng(4).uniform(-2.2, 1.5, 30)).tolist())
    }
    minutes: dict[str, list[Array]] = {name: [] for name in rates}
    for job in load(written(rates, tmp_path), DEBIAN):
        often = [60 * hour + minute for hour in job.fields[1] for minute in job.fields[0]]
        days = np.flatnonzero(days_of(job)[900:1400])  # with 29 February 2004
        times_of_day = np.add.outer(1440.0 * days, np.array(often, dtype=np.float64)).ravel()
        minutes[job.command.decode().rpartition(" ")[2]].append(times_of_day)
    for name, times in minutes.items():
        gaps = np.diff(np.sort(np.concatenate(times)))
        assert gaps.min() > 0.0, "two lines of a source meet"
        # A gap over 29 February is a day longer for most sources that have dates only.
        longest = 2.2 * 1440.0 / rates[name] + (1440.0 if rates[name] < 1.0 else 0.0)
        assert gaps.max() <= longest, (name, rates[name])


def plans() -> dict[str, dict[str, float]]:
    draw = np.random.default_rng(1)
    return {
        "monthly": dict.fromkeys((f"s{k}" for k in range(900)), 1 / 30),
        "below weekly": {f"s{k}": r for k, r in enumerate((10 ** draw.uniform(-2.5, -0.9, 400)).tolist())},
        "below daily": {f"s{k}": r for k, r in enumerate((10 ** draw.uniform(-2, 0, 200)).tolist())},
        "weekly": dict.fromkeys((f"s{k}" for k in range(200)), 2 / 7),
        "mixed": {f"s{k}": r for k, r in enumerate((10 ** draw.uniform(-2.5, 3, 100)).tolist())},
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("plan", plans())
def test_every_day_of_every_year_has_its_share(plan: str, tmp_path: Path) -> None:
    """31 December, 1 January and 28 February like all others; 29 February too where the rates differ."""
    load_of_day = sum(counts(written(plans()[plan], tmp_path)).values(), start=np.zeros(len(CYCLE)))
    usual = load_of_day[~LEAP]
    assert abs(usual - usual.mean()).max() < max(0.15 * usual.mean(), 6.0)
    for month in range(1, 13):
        assert load_of_day[(month == MONTH) & ~LEAP].mean() == pytest.approx(usual.mean(), rel=0.03)
    last = load_of_day[(DAY >= 29) & ~LEAP]
    assert last.mean() == pytest.approx(usual.mean(), rel=0.03)
    if plan != "monthly":  # 12.2 in 366 days: no source has room for a thirteenth
        assert 0.7 * usual.mean() < load_of_day[LEAP].mean() < 1.3 * usual.mean()


def test_dates_are_laid_in_whole_numbers() -> None:
    """Each month has its share of the year's dates, at equal distances of its days: in integers of Python."""
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    counts, number = np.arange(1, 365), np.arange(7, 371)
    months, places = _dates(counts, number)
    at = 0
    for count, k, bits in zip(counts.tolist(), number.tolist(), months.tolist(), strict=True):
        turn = [((k + 1) * 1.324717957244746**-power) % 1.0 for power in (1, 2)]
        begin, offset, before = int(365 * turn[0]), int(1000 * turn[1]), 0
        for length, own in zip(lengths, bits, strict=True):
            many = ((before + length) * count + begin) // 365 - (before * count + begin) // 365
            days = [(1000 * j + offset) * length // (1000 * many) for j in range(many)]
            assert [day for day in range(32) if own >> day & 1] == [day + 1 for day in days]
            assert places[at : at + many].tolist() == [before + day for day in days]
            at, before = at + many, before + length
    assert at == len(places)


def test_the_total_is_that_of_the_file(tmp_path: Path) -> None:
    rates = dict(zip("abcdef", (0.11, 1.1, 2 / 7, 30.3, 0.0071, 0.9), strict=True))
    done = Crontab().write(read_rates(rates), tmp_path / "crontab")
    found = counts((tmp_path / "crontab").read_bytes())
    # Of 28 years 7 are leap years, of 400 years 97: the dates of 29 February weigh so much less.
    assert done.realised == pytest.approx(sum(each.sum() for each in found.values()) / len(CYCLE), rel=1e-4)
    loss = max(1.0 - found[name].mean() / rate for name, rate in rates.items())
    assert done.largest_loss == pytest.approx(loss, abs=1e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cron", CRONS, ids=lambda cron: cron.name)
def test_names_reach_the_command(cron: Cron, tmp_path: Path) -> None:
    """What is kept out of the crontab is refused; the shell hands on all else, octet by octet."""
    names = [name for name in dict.fromkeys((*HOSTILE, *hostile_names(250))) if accepted(name, tmp_path)]
    assert len(names) > 150
    rates = dict.fromkeys(names, 1.0)
    jobs = load(written(rates, tmp_path, r"printf '%s\0'"), cron)
    scripts = [given_to_shell(job.command, cron) for job in jobs]
    assert {given for _, given in scripts} == {b""}
    shown = subprocess.run(
        ["/bin/sh", "-c", b"\n".join(script for script, _ in scripts)], capture_output=True, check=True
    )
    assert shown.stdout.split(b"\0")[:-1] == [name.encode() for name in names]


def accepted(name: str, folder: Path) -> bool:
    """Whether a name is written; where not, it is in one line that says what, why and what to do."""
    try:
        written({name: 1.0}, folder)
    except fo.SourceDataError as error:
        words = str(error)
    else:
        return True
    assert "\n" not in words
    assert words.endswith(".")
    assert words.isprintable()
    return False


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x00b", "\x1b[31m", "a\x7f", "half \ud83d", "x" * 999])
def test_names_that_no_line_holds_are_refused(name: str, tmp_path: Path) -> None:
    assert not accepted(name, tmp_path)


@pytest.mark.parametrize(
    "name", [r"a\%b", r"\\%", "\\", "100%", "'", "a\\'%", "\u2028", "a\x85b", "", " x ", "#x", "~", "*"]
)
def test_names_that_a_line_holds_are_not(name: str, tmp_path: Path) -> None:
    assert accepted(name, tmp_path)


def test_the_longest_command_is_what_cron_keeps(tmp_path: Path) -> None:
    octets = written({"x" * 990: 1.0}, tmp_path)
    assert len(load(octets, DEBIAN)[0].command) == 998
    longer = octets.replace(b"xxx", b"xxxx", 1)
    refused("too long", load, longer, DEBIAN, error=CronError)


def test_the_longest_crontab_is_what_crons_keep(tmp_path: Path) -> None:
    assert written(dict.fromkeys(map(str, range(9999)), 1.0), tmp_path).count(b"\n") == DEBIAN.most_lines
    with pytest.raises(
        fo.SourceDataError, match=r"10,001 lines for 10,000 sources\. cron keeps 10,000 .* parts"
    ):
        written(dict.fromkeys(map(str, range(10_000)), 1.0), tmp_path)


@pytest.mark.parametrize("cron", CRONS, ids=lambda cron: cron.name)
def test_a_command_keeps_its_percent_signs(cron: Cron, tmp_path: Path) -> None:
    (job,) = load(written({"a": 1.0}, tmp_path, " fetch --at $(date +%F)\n"), cron)
    assert given_to_shell(job.command, cron) == (b"fetch --at $(date +%F) a", b"")


def test_names_that_are_options_need_a_command_for_them(tmp_path: Path) -> None:
    with pytest.raises(
        fo.SourceDataError, match=r"'-rf' begins with '-'\. The command would .*end the command in --"
    ):
        written({"-rf": 1.0}, tmp_path, "rm")
    assert written({"-rf": 1.0}, tmp_path, "rm --").endswith(b" rm -- -rf\n")


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


def test_a_calendar_is_whole_at_any_path(here: Path) -> None:
    plan, start = fo.schedule({"a": 2.0}, 3.0, Periodic()), datetime(2026, 1, 1, tzinfo=UTC)
    assert write_icalendar(plan, start, "new/x.ics") == 6
    before = Path("new/x.ics").read_bytes()
    refused(r"x\.ics", write_icalendar, plan, start, "new/x.ics", overwrite=False)
    with pytest.raises(fo.SourceDataError, match="control character"):
        write_icalendar(fo.schedule({"a\x07": 1.0}, 2.0, Periodic()), start, "new/x.ics")
    assert write_icalendar(plan, start, here / "new" / "x.ics") == 6
    assert Path("new/x.ics").read_bytes() == before
    assert [entry.name for entry in (here / "new").iterdir()] == ["x.ics"]
    refused("new", write_icalendar, plan, start, "new")


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
        refused(words, write_icalendar, plan, start, tmp_path / "x.ics")
        assert not list(tmp_path.iterdir())
