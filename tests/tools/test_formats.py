"""Properties of all formats: intervals, units, names, parts, what is never refreshed, whole files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import freshopt as fo
from freshopt.scheduling.rate_table import RateTable, read_rates
from freshopt.tools import Crontab, Dbt, Nutch, PgCron, StormCrawler, export, text_lines
from freshopt.tools.export import ToolFormat
from freshopt.tools.table import INTERVALS, LIFETIMES, SERVED, TOOLS
from tests.ground_truth import export_parsers as parse
from tests.ground_truth.hostile_names import HOSTILE, hostile_names
from tests.ground_truth.tolerances import EXACT
from tests.tools.formats import FORMATS, Format, nutch, url

DAY = 86_400.0
# Per day: every 79 days to every 109 s.
RATES = 10.0 ** np.random.default_rng(5).uniform(-1.9, 2.9, 200)
RATES[::20] = 0.0
NAMES = tuple(dict.fromkeys((*HOSTILE, *hostile_names(150))))
# Refused by every format.
BAD = "bad \ud83d\n"

every_format = pytest.mark.parametrize("own", FORMATS.values(), ids=list(FORMATS))


def plan_of(own: Format) -> dict[str, float]:
    return {own.name(k): rate for k, rate in enumerate(RATES.tolist())}


def test_every_format_of_the_table_has_a_case() -> None:
    # Of cron times, which are no intervals, are tests of their own.
    assert {*INTERVALS, *LIFETIMES} - FORMATS.keys() == {"crontab", "pg_cron", "dbt"}
    assert {tool.name for tool in TOOLS if tool.read} == {"git", "history", "dbt", "nutch", "changedetection"}
    assert all(tool.help for tool in TOOLS if tool.read)
    assert list(SERVED) == ["changedetection"]


@every_format
def test_intervals_are_the_least_that_exceed_no_rate(own: Format, tmp_path: Path) -> None:
    plan = plan_of(own)
    done = own.write(plan, tmp_path / "out")
    seconds = own.read(tmp_path / "out")
    assert list(seconds) == [name for name, rate in plan.items() if rate > 0.0]
    for name, interval in seconds.items():
        exact = DAY / plan[name]
        assert exact * (1.0 - 1e-9) <= interval < exact + own.step
        assert interval % own.step == 0.0
    assert (done.sources, done.never) == (len(seconds), len(plan) - len(seconds))
    if not own.of_lifetimes:  # whose rates depend on requests
        assert done.planned == pytest.approx(RATES.sum(), rel=EXACT)
        assert done.realised == pytest.approx(sum(DAY / each for each in seconds.values()), rel=EXACT)
        assert done.realised <= done.planned * (1.0 + EXACT)


@every_format
def test_units_make_no_difference(own: Format, tmp_path: Path) -> None:
    plan = plan_of(own)
    own.write(plan, tmp_path / "day")
    for unit, scale in (("hour", 24.0), ("second", DAY)):
        own.write({name: rate / scale for name, rate in plan.items()}, tmp_path / unit, unit)
        assert own.content(tmp_path / unit) == own.content(tmp_path / "day")


@every_format
def test_files_in_parts_are_those_in_one(
    own: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {own.name(k): 0.0 if k % 4 == 1 else 0.3 + k for k in range(10)}
    found = []
    for together in (1, 3, 10, 1000):
        monkeypatch.setattr(text_lines, "TOGETHER", together)
        own.write(plan, tmp_path / str(together))
        found.append(own.content(tmp_path / str(together)))
    assert all(one == found[0] for one in found)


@every_format
def test_nothing_to_refresh(own: Format, tmp_path: Path) -> None:
    done = own.write({own.name(0): 0.0}, tmp_path / "out")
    assert (done.sources, done.never) == (0, 1)
    assert done.realised == 0.0 or own.of_lifetimes
    assert own.read(tmp_path / "out") == {}


def test_watches_that_are_never_checked_are_paused(tmp_path: Path) -> None:
    FORMATS["changedetection"].write({"http://a/": 0.0}, tmp_path / "out")
    assert json.loads((tmp_path / "out").read_text()) == [{"url": "http://a/", "paused": True}]


@every_format
def test_all_is_written_or_nothing(own: Format, tmp_path: Path) -> None:
    path, good = tmp_path / "out", own.given({own.name(0): 2.0})
    export(good, own.target, path)
    before = own.content(path)
    with pytest.raises(fo.SourceDataError, match="out"):
        export(own.given({own.name(1): 2.0}), own.target, path)
    with pytest.raises(fo.SourceDataError, match=r"bad \\ud83d\\n"):
        export(own.given({own.name(1): 2.0, BAD: 1.0}), own.target, path, overwrite=True)
    assert own.content(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    export(own.given({own.name(1): 2.0}), own.target, path, overwrite=True)
    assert list(own.read(path)) == [own.name(1)]


@every_format
def test_hostile_names_come_back_or_are_refused_in_one_line(own: Format, tmp_path: Path) -> None:
    kept = []
    names = [*NAMES, *(f"http://a.org/{name}" for name in NAMES), *(f"{name} A 192.0.2.1" for name in NAMES)]
    for k, name in enumerate(names):
        try:
            own.write({name: 1.0}, tmp_path / str(k))
        except fo.SourceDataError as error:
            words = str(error)
        else:
            kept.append(name)
            assert list(own.read(tmp_path / str(k))) == [name]
            continue
        assert words.isprintable()
        assert words.endswith(".")
    assert (1 if own is FORMATS["dns"] else 4) <= len(kept) < len(names)
    if own is FORMATS["nginx"]:  # whose maps do not see the case of letters
        kept = list({name.lower(): name for name in kept}.values())
    own.write(dict.fromkeys(kept, 1.0), tmp_path / "all")
    assert list(own.read(tmp_path / "all")) == kept


@every_format
def test_all_names_that_do_not_fit_are_named(own: Format, tmp_path: Path) -> None:
    names = [own.name(0), "b\ud83d", own.name(1), "c\ud83d"]
    with pytest.raises(fo.SourceDataError, match=r"^source 'b\\ud83d', 'c\\ud83d' "):
        own.write(dict.fromkeys(names, 1.0), tmp_path / "out")


@pytest.mark.parametrize(
    "target",
    [*(own.target for own in FORMATS.values() if not own.of_lifetimes), Crontab(), PgCron(), Dbt()],
    ids=repr,
)
def test_signalled_sources_are_refused(target: ToolFormat[RateTable], tmp_path: Path) -> None:
    flags = np.array([False, True])
    table = RateTable(np.array([1.0, 1.0]), np.array(["http://a/", "http://b/"]), "day", flags, None)
    with pytest.raises(
        fo.SourceDataError, match=r"^source 'http://b/' is refreshed on its signals\. .*Take it"
    ):
        target.write(table, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_totals_are_those_of_what_was_written(tmp_path: Path) -> None:
    done = StormCrawler().write(read_rates({"http://a/": 13.0, "http://b/": 0.0}, "hour"), tmp_path / "s")
    assert (done.sources, done.never, done.planned) == (1, 1, 13.0)
    assert done.realised == pytest.approx(12.0, rel=EXACT)  # every 5 minutes instead of 4.6
    assert done.largest_loss == pytest.approx(1.0 / 13.0, rel=EXACT)


def test_nutch_has_bounds_of_hosts(tmp_path: Path) -> None:
    path, own = tmp_path / "out", FORMATS["nutch"]
    own.write(plan_of(own), path)
    assert sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()) == [
        "conf/adaptive-host-specific-intervals.txt",
        "seeds/seeds.tsv",
    ]
    hosts = parse.nutch_hosts((path / "conf/adaptive-host-specific-intervals.txt").read_text())
    for k in range(7):
        host = f"host{k}.example.org"
        intervals = [interval for name, interval in nutch(path).items() if f"//{host}/" in name]
        assert hosts[host] == (min(intervals), max(intervals))


def test_nutch_keeps_long_intervals_in_single_precision(tmp_path: Path) -> None:
    own = FORMATS["nutch"]._replace(target=Nutch(longest=400 * 86_400))
    rates = {url(k): 1.0 / days for k, days in enumerate(np.linspace(195.0, 399.0, 50).tolist())}
    own.write(rates, tmp_path / "out")
    for name, seconds in own.read(tmp_path / "out").items():
        assert float(np.float32(seconds)) == seconds
        assert (
            DAY / rates[name] * (1.0 - 1e-9) <= seconds < DAY / rates[name] + 5.0
        )  # floats are 2 or 4 apart
