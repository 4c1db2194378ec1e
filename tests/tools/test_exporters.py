"""What crawlers load, read back by parsers of their formats: intervals, names, totals, refusals."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import freshopt as fo
from freshopt.scheduling import Periodic
from freshopt.scheduling.rate_table import RateTable, read_rates
from freshopt.tools import ChangeDetection, Crontab, ExternalSecrets, Nutch, StormCrawler, write_icalendar
from freshopt.tools.whole_intervals import IntervalFormat
from tests.ground_truth import export_parsers as parse
from tests.ground_truth.tolerances import EXACT

DAY = 86_400.0
RNG = np.random.default_rng(5)
ODD = ("ü", "日本", "%41", "?a='1'&b=\"2\"", "#part", ";,\\", "$(x)`y`", "*")
URLS = [f"https://host{k % 7}.example.org/{k}{ODD[k % len(ODD)]}" for k in range(200)]
RATES = 10.0 ** RNG.uniform(-1.9, 2.9, len(URLS))  # per day: every 79 days to every 109 s
RATES[::20] = 0.0
PLAN = dict(zip(URLS, RATES.tolist(), strict=True))
FORMATS: tuple[IntervalFormat, ...] = (
    Nutch(),
    StormCrawler(),
    ChangeDetection(),
    Crontab(),
    ExternalSecrets(),
)


def written(target: IntervalFormat, rates: dict[str, float], folder: Path, unit: str = "day") -> Path:
    path = folder / "out"
    if target.files:
        path.mkdir()
    done = target.write(read_rates(rates, unit), path)
    assert done.realised <= done.planned * (1.0 + EXACT)
    return path


def require_rounded_up(seconds: dict[str, float], step: float, rates: dict[str, float]) -> None:
    """Intervals are the least multiples of a step at which no rate is exceeded."""
    for name, interval in seconds.items():
        exact = DAY / rates[name]
        assert exact * (1.0 - 1e-9) <= interval < exact + step
        assert interval % step == 0.0


def test_nutch(tmp_path: Path) -> None:
    path = written(Nutch(), PLAN, tmp_path)
    assert sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()) == [
        "conf/adaptive-host-specific-intervals.txt",
        "seeds/seeds.tsv",
    ]
    seeds = parse.tab_seeds((path / "seeds/seeds.tsv").read_bytes().decode())
    assert seeds.keys() == {name for name, rate in PLAN.items() if rate > 0.0}
    assert {key for metadata in seeds.values() for key in metadata} == {"nutch.fetchInterval.fixed"}
    seconds = {name: float(int(data["nutch.fetchInterval.fixed"])) for name, data in seeds.items()}
    require_rounded_up(seconds, 1.0, PLAN)
    hosts = parse.nutch_hosts((path / "conf/adaptive-host-specific-intervals.txt").read_text())
    for k in range(7):
        host = f"host{k}.example.org"
        own = [interval for name, interval in seconds.items() if f"//{host}/" in name]
        assert hosts[host] == (min(own), max(own))


def test_nutch_keeps_long_intervals_in_single_precision(tmp_path: Path) -> None:
    rates = {f"http://a.org/{k}": 1.0 / days for k, days in enumerate(np.linspace(195.0, 399.0, 50).tolist())}
    path = written(Nutch(longest=400 * 86_400), rates, tmp_path)
    seeds = parse.tab_seeds((path / "seeds/seeds.tsv").read_text())
    for name, rate in rates.items():
        seconds = int(seeds[name]["nutch.fetchInterval.fixed"])
        assert float(np.float32(seconds)) == seconds
        assert DAY / rate * (1.0 - 1e-9) <= seconds < DAY / rate + 5.0  # floats are 2 or 4 apart there


def test_stormcrawler(tmp_path: Path) -> None:
    text = written(StormCrawler(), PLAN, tmp_path).read_bytes().decode()
    seeds = parse.tab_seeds(text)
    assert list(seeds) == URLS
    delays = {name: int(data["scheduler.delay.mins"]) for name, data in seeds.items()}
    assert {name for name, delay in delays.items() if delay == -1} == set(URLS[::20])
    require_rounded_up({name: 60.0 * delay for name, delay in delays.items() if delay != -1}, 60.0, PLAN)


def test_changedetection(tmp_path: Path) -> None:
    watches = json.loads(written(ChangeDetection(), PLAN, tmp_path).read_bytes())
    assert [watch["url"] for watch in watches] == URLS
    units = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
    seconds = {}
    for watch in watches:
        if watch.get("paused"):
            assert PLAN[watch["url"]] == 0.0
            continue
        assert watch["time_between_check_use_default"] is False
        assert watch["time_between_check"].keys() == units.keys()
        seconds[watch["url"]] = float(sum(units[key] * n for key, n in watch["time_between_check"].items()))
    assert len(seconds) == np.count_nonzero(RATES)
    require_rounded_up(seconds, 1.0, PLAN)


def test_external_secrets(tmp_path: Path) -> None:
    names = ["prod/db", "null", "1e3", "true", "a.b-c.d", "0/0", "never"]
    rates = dict(zip(names, [24.0, 0.3, 7.0, 1e3, 1.0 / 400.0, 86_400.0, 0.0], strict=True))
    documents = parse.yaml_documents(written(ExternalSecrets(), rates, tmp_path).read_text())
    seconds = {}
    for document in documents:
        assert document["apiVersion"] == "external-secrets.io/v1"
        assert document["kind"] == "ExternalSecret"
        space = document.get("metadata.namespace")
        name = document["metadata.name"] if space is None else f"{space}/{document['metadata.name']}"
        seconds[name] = parse.go_duration(document["spec.refreshInterval"])
    assert list(seconds) == names
    assert seconds.pop("never") == 0.0
    require_rounded_up(seconds, 1.0, rates)


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


def test_totals_are_those_of_what_was_written(tmp_path: Path) -> None:
    done = StormCrawler().write(read_rates({"http://a/": 13.0, "http://b/": 0.0}, "hour"), tmp_path / "s")
    assert (done.sources, done.never, done.planned) == (1, 1, 13.0)
    assert done.realised == pytest.approx(12.0, rel=EXACT)  # every 5 minutes instead of 4.6
    assert done.largest_loss == pytest.approx(1.0 / 13.0, rel=EXACT)


def test_nothing_to_refresh(tmp_path: Path) -> None:
    for k, target in enumerate(FORMATS[1:4]):
        assert target.write(read_rates({"http://a/": 0.0}), tmp_path / str(k)).realised == 0.0
    assert json.loads((tmp_path / "1").read_text()) == [{"url": "http://a/", "paused": True}]


@pytest.mark.parametrize("target", FORMATS, ids=lambda target: type(target).__name__)
def test_signalled_sources_are_refused(target: IntervalFormat, tmp_path: Path) -> None:
    flags = np.array([False, True])
    table = RateTable(np.array([1.0, 1.0]), np.array(["http://a/", "http://b/"]), "day", flags, None)
    with pytest.raises(
        fo.SourceDataError, match=r"^source 'http://b/' is refreshed on its signals\. .*Take it"
    ):
        target.write(table, tmp_path / "x")
    assert not list(tmp_path.iterdir())


BAD_URLS: tuple[str, ...] = (
    "page/7",
    "ftp://a/",
    "http://",
    "http://a b/",
    "http://a/\tb",
    "http://a/\n",
    "http://[::1/",
    "",
)
BAD_URLS += ("http://a:99999/", "#http://a/", "http://a/\u2028", "javascript:alert(1)", "http://a/\x00b")
BAD_SECRETS = ("Upper", "a_b", "-a", "a/b/c", "a" * 254, "a/", "ü", f"{'n' * 64}/a", "a..b", "a\n")
REFUSED: list[tuple[IntervalFormat, str, float, str]] = [
    *((target, name, 1.0, "is no URL") for target in FORMATS[:3] for name in BAD_URLS),
    *((ExternalSecrets(), name, 1.0, "is no name of a Kubernetes resource") for name in BAD_SECRETS),
    (
        Nutch(),
        "http://a/",
        1.0 / 91.0,
        r"'http://a/' every 91 days. Nutch has no intervals above 90 days. Raise",
    ),
    (
        Nutch(),
        "http://a/",
        1e5,
        r"'http://a/' every 0.864 s. Nutch has no intervals below 1 s. Give .* max_rate",
    ),
    (Nutch(), "http://a/", 1e-320, "'http://a/' every inf days. Nutch has no intervals above 90 days"),
    (StormCrawler(), "http://a/", 1441.0, "every 60 s. StormCrawler has no intervals below 60 s"),
    (StormCrawler(), "http://a/", 1e-9, "above 1.49131e.06 days. Raise their min_rate"),
    (ChangeDetection(), "http://a/", 2000.0, "every 43.2 s. .*no intervals below 60 s"),
    (ChangeDetection(), "http://a/{{now}}", 1.0, "templates"),
    (ChangeDetection(), "http://a/{%x%}", 1.0, "templates"),
    (ChangeDetection(), "http://a/" + "x" * 5000, 1.0, "more than 5000 letters"),
    (ExternalSecrets(), "a", 1e-10, "above 106752 days"),
    (Crontab(), "a", 1441.0, "1441 times a day. cron goes .* Lower its max_rate"),
    (Crontab(), "a", 1.0 / 366.0, "0.002732 times a day. .* Raise its min_rate"),
]


@pytest.mark.parametrize(("target", "name", "rate", "words"), REFUSED)
def test_what_a_format_cannot_hold_is_refused(
    target: IntervalFormat, name: str, rate: float, words: str, tmp_path: Path
) -> None:
    with pytest.raises(fo.SourceDataError, match=words) as caught:
        target.write(read_rates({name: rate}), tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


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
