"""Properties of all formats: intervals, lifetimes, units, names, what is never refreshed, whole files."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.modelling.objective import Refresh
from freshopt.problems import BinaryFreshness
from freshopt.scheduling import Periodic, retried_at_once
from freshopt.scheduling.rate_table import LifetimeTable, RateTable, read_lifetimes, read_rates
from freshopt.tools.export import ToolFormat
from freshopt.tools.table import INTERVALS, LIFETIMES, SERVED, TOOLS
from freshopt.tools.whole_seconds import LONGEST
from tests.ground_truth import export_parsers as parse
from tests.ground_truth.hostile_names import HOSTILE, hostile_names
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.strata import matrix
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
    # What is read has its cases in tests/cli/test_import.py.
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
        monkeypatch.setattr(sys.modules["freshopt.tools.export"], "TOGETHER", together)
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
    fo.tools.export(good, own.target, path)
    before = own.content(path)
    refused("out", fo.tools.export, own.given({own.name(1): 2.0}), own.target, path)
    with pytest.raises(fo.SourceDataError, match=r"bad \\ud83d\\n"):
        fo.tools.export(own.given({own.name(1): 2.0, BAD: 1.0}), own.target, path, overwrite=True)
    assert own.content(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    fo.tools.export(own.given({own.name(1): 2.0}), own.target, path, overwrite=True)
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
    refused(r"^source 'b\\ud83d', 'c\\ud83d' ", own.write, dict.fromkeys(names, 1.0), tmp_path / "out")


@pytest.mark.parametrize(
    "target",
    [
        *(own.target for own in FORMATS.values() if not own.of_lifetimes),
        fo.tools.Crontab(),
        fo.tools.PgCron(),
        fo.tools.Dbt(),
    ],
    ids=repr,
)
def test_signalled_sources_are_refused(target: ToolFormat[RateTable], tmp_path: Path) -> None:
    flags = np.array([False, True])
    table = RateTable(np.array([1.0, 1.0]), np.array(["http://a/", "http://b/"]), "day", flags, None)
    refused(
        r"^source 'http://b/' is refreshed on its signals\. .*Take it", target.write, table, tmp_path / "x"
    )
    assert not list(tmp_path.iterdir())


def test_totals_are_those_of_what_was_written(tmp_path: Path) -> None:
    done = fo.tools.StormCrawler().write(
        read_rates({"http://a/": 13.0, "http://b/": 0.0}, "hour"), tmp_path / "s"
    )
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
    own = FORMATS["nutch"]._replace(target=fo.tools.Nutch(longest=400 * 86_400))
    rates = {url(k): 1.0 / days for k, days in enumerate(np.linspace(195.0, 399.0, 50).tolist())}
    own.write(rates, tmp_path / "out")
    for name, seconds in own.read(tmp_path / "out").items():
        assert float(np.float32(seconds)) == seconds
        assert (
            DAY / rates[name] * (1.0 - 1e-9) <= seconds < DAY / rates[name] + 5.0
        )  # floats are 2 or 4 apart


PERIODIC = fo.Refresh.PERIODIC
BANDWIDTH = 30.0


def failing(scale: float = 1.0) -> fo.Sources:
    rng = np.random.default_rng(8)
    return fo.Sources(
        scale * 10.0 ** rng.uniform(-1.0, 1.0, 12),
        importance=10.0 ** rng.uniform(-1.0, 1.0, 12),
        names=[f"p{k}" for k in range(12)],
        success=rng.uniform(0.15, 1.0, 12),
    )


def written(given: object, path: Path, *, retry_at_once: bool = False) -> dict[str, float]:
    """Return the intervals of a file, in days."""
    fo.tools.export(given, fo.tools.TextTemplate("{source} {seconds}"), path, retry_at_once=retry_at_once)
    lines = [line.split() for line in path.read_text().splitlines()]
    return {name: int(seconds) / DAY for name, seconds in lines}


def test_attempts_keep_to_the_bandwidth_and_copies_are_as_fresh_as_predicted(tmp_path: Path) -> None:
    """Event by event: at each interval of the file a fetch is tried until it succeeds."""
    sources = failing()
    assert sources.success is not None
    solution = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), retried_at_once(sources), bandwidth=BANDWIDTH))
    waiting = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), sources, bandwidth=BANDWIDTH))
    assert solution.value > waiting.value
    intervals = written(solution, tmp_path / "retried")
    rng = np.random.default_rng(5)
    fresh, variance, attempts, noise = 0.0, 0.0, 0.0, 0.0
    for k, (d, w, s) in enumerate(zip(sources.change_rate, sources.importance, sources.success, strict=True)):
        every = intervals.get(f"p{k}")
        if every is None:
            continue
        tries = rng.geometric(s, 40_000)
        share = np.minimum(rng.exponential(1.0 / d, 40_000), every) / every
        fresh += w * float(np.mean(share))
        variance += w**2 * float(np.var(share)) / 40_000
        attempts += float(np.mean(tries)) / every
        noise += float(np.var(tries)) / 40_000 / every**2
    assert attempts < BANDWIDTH + 3.0 * math.sqrt(noise)
    assert attempts > BANDWIDTH * 0.999 - 3.0 * math.sqrt(noise)
    assert abs(fresh - solution.value) < 3.0 * math.sqrt(variance)


def test_replay_of_successes_is_the_prediction() -> None:
    retried = retried_at_once(failing())
    solution = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), retried, bandwidth=BANDWIDTH))
    found = fo.replay(fo.schedule(solution, 300.0, Periodic()), fo.World.poisson(retried, seed=2), skip=5.0)
    assert abs(found.of(BinaryFreshness(PERIODIC)).z(solution.value)) < 3.0


def test_attempts_are_written_as_intervals_of_successes(tmp_path: Path) -> None:
    sources = failing()
    assert sources.success is not None
    solution = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), sources, bandwidth=BANDWIDTH))
    rates = dict(zip([f"p{k}" for k in range(12)], (solution.rates * sources.success).tolist(), strict=True))
    for name, given in (("solution", solution), ("table", solution.to_frame())):
        found = written(given, tmp_path / name, retry_at_once=True)
        assert found.keys() == {source for source, rate in rates.items() if rate > 0.0}
        for source, every in found.items():
            assert 1.0 / rates[source] <= every * (1.0 + 1e-9) < 1.0 / rates[source] + 1.0 / DAY + 1e-9
    plain = written(solution, tmp_path / "attempts")
    assert all(
        every > plain[source]
        for source, every in written(solution, tmp_path / "x", retry_at_once=True).items()
    )


@matrix(scale=[1e-6, 1e4], share=[1e-3, 20.0])
def test_ill_scaled_attempts_keep_to_the_bandwidth(scale: float, share: float) -> None:
    sources = failing(scale)
    limit = share * float(np.sum(sources.change_rate))
    solution = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), retried_at_once(sources), bandwidth=limit))
    assert float(np.sum(solution.rates / present(sources.success))) <= limit * (1.0 + 1e-12)
    assert present(solution.certificate).relative_gap < 1e-9


def test_what_has_no_failures_or_no_intervals_is_refused(tmp_path: Path) -> None:
    target = fo.tools.StormCrawler()
    rates = {"https://a.org/": 1.0}
    refused(r"have no column 'success'", fo.tools.export, rates, target, tmp_path / "a", retry_at_once=True)
    with pytest.raises(fo.SourceDataError, match=r"lifetimes are of fetches that succeed"):
        fo.tools.export({"a": 1.0}, fo.tools.CacheControl(), tmp_path / "b", retry_at_once=True)
    wrong = pl.DataFrame({"source": ["https://a.org/"], "rate": [1.0], "success": [0.0]})
    with pytest.raises(fo.SourceDataError, match=r"success out of range for 'https://a.org/': 0"):
        fo.tools.export(wrong, target, tmp_path / "c", retry_at_once=True)
    assert not list(tmp_path.iterdir())


def test_what_a_changed_source_brings_is_paid_once() -> None:
    retried = retried_at_once(fo.Sources([1.0], success=0.5, changed_cost=3.0))
    assert retried.refresh_cost.tolist() == [2.0]
    assert present(retried.changed_cost).tolist() == [3.0]


def solved(share: float, seed: int = 4) -> fo.Solution:
    """Sources whose rates differ by ten orders of magnitude, called by records of a zone."""
    rng = np.random.default_rng(seed)
    asked = 10.0 ** rng.uniform(-4.0, 6.0, 60)
    names = [f"h{k}.example.org. A 192.0.2.{k}" for k in range(60)]
    sources = fo.Sources(10.0 ** rng.uniform(-6.0, 4.0, 60), request_rate=asked, names=names)
    fresh = BinaryFreshness(fo.Refresh.ON_REQUEST)
    return fo.solve(fo.Problem(fresh, sources, bandwidth=share * float(asked.sum())))


@matrix(name=LIFETIMES, share=[1e-3, 0.4, 0.999])
def test_whole_seconds_within_the_bandwidth(name: str, share: float, tmp_path: Path) -> None:
    solution, own = solved(share), FORMATS[name]
    done = fo.tools.export(solution, own.target, tmp_path / "out")
    found = own.read(tmp_path / "out")
    sources = solution.problem.sources
    assert sources.names is not None
    life = dict(zip(sources.names.tolist(), solution.lifetimes.tolist(), strict=True))
    assert found.keys() == {name for name, each in life.items() if each < np.inf}
    for source, seconds in found.items():
        exact = life[source] * DAY
        assert seconds == LONGEST or exact * (1.0 - 1e-9) <= seconds < max(exact + 1.0, own.least + 1e-9)
        assert own.least <= seconds <= LONGEST
    whole = np.array([found.get(source, np.inf) for source in sources.names.tolist()]) / DAY
    used = float(np.sum(1.0 / (whole + 1.0 / sources.asked)))
    assert done.realised == pytest.approx(used, rel=EXACT)
    # A lifetime of 68 years instead of a longer one: one more fetch of each in that time.
    assert used <= solution.problem.bandwidth * (1.0 + EXACT) + len(life) * DAY / LONGEST
    assert (done.sources, done.never) == (len(found), len(life) - len(found))


def test_a_window_of_stale_while_revalidate(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"source": ["a", "b"], "lifetime": [10.0, 0.5], "stale_while_revalidate": [30.9, 0.0]}
    )
    fo.tools.export(frame, fo.tools.CacheControl(), tmp_path / "out", time_unit="second")
    assert (tmp_path / "out").read_text() == "a\tmax-age=10, stale-while-revalidate=30\nb\tmax-age=1\n"
    for target in (fo.tools.Nginx(), fo.tools.Redis(), fo.tools.Dns()):
        with pytest.raises(fo.SourceDataError, match=r"source 'a' has a window of stale-while-revalidate"):
            fo.tools.export(frame, target, tmp_path / repr(target), time_unit="second")


def test_what_is_never_fetched_has_no_line(tmp_path: Path) -> None:
    for name in LIFETIMES:
        own, path = FORMATS[name], tmp_path / name
        done = fo.tools.export({own.name(0): np.inf, own.name(1): 0.0}, own.target, path, time_unit="hour")
        assert (done.sources, done.never) == (1, 1)
        assert own.read(path) == {own.name(1): own.least}


def test_a_key_of_redis_may_be_a_zero_byte(tmp_path: Path) -> None:
    fo.tools.Redis().write(LifetimeTable(np.ones(2), ["\0", "ü"], "hour"), tmp_path / "out")
    assert (tmp_path / "out").read_text() == 'EXPIRE "\\x00" 3600\nEXPIRE "\\xc3\\xbc" 3600\n'


def test_records_of_a_zone(tmp_path: Path) -> None:
    records = [
        '@ TXT "v=spf1 -all; \\"x\\""',
        "*.a_b.example.org. AAAA 2001:db8::1",
        "www MX 10 mail.example.org.",
        f"{'.'.join(['a' * 62] * 4)}.b. A 1",
    ]
    fo.tools.export(dict.fromkeys(records, 1.0), fo.tools.Dns(), tmp_path / "zone", time_unit="minute")
    assert (tmp_path / "zone").read_text() == (
        '@ 60 IN TXT "v=spf1 -all; \\"x\\""\n'
        "*.a_b.example.org. 60 IN AAAA 2001:db8::1\n"
        "www 60 IN MX 10 mail.example.org.\n"
        f"{'.'.join(['a' * 62] * 4)}.b. 60 IN A 1\n"
    )


def test_other_solutions_have_no_lifetimes(tmp_path: Path) -> None:
    periodic = fo.solve(fo.Problem(BinaryFreshness(Refresh.POISSON), fo.Sources([1.0, 2.0]), bandwidth=1.0))
    with pytest.raises(fo.ObjectiveError, match=r"refreshes no copies on request"):
        fo.tools.export(periodic, fo.tools.CacheControl(), tmp_path / "out")
    refused(r"time_unit is 'hour'", read_lifetimes, solved(0.5), "hour")
    unknown = fo.tools.export({"a": 1.0}, fo.tools.CacheControl(), tmp_path / "out")
    assert np.isnan(unknown.planned)
