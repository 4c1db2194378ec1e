"""Plans and back-tests with and without a weekly cycle, valued on the cycle itself."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest

import freshopt as fo
from freshopt.estimators import MaximumLikelihood
from freshopt.estimators.weekly_learning import learnt_shape
from freshopt.planning import good_phases
from freshopt.planning.good_phases import sampled_sources
from freshopt.planning.plan_files import summary
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.command_lines import details
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.strata import matrix

Floats = np.typing.NDArray[np.float64]
HOUR = np.arange(168)
# Four changes in five come from Tuesday to Friday, from 9 to 17.
OFFICE = np.where((HOUR // 24 >= 1) & (HOUR // 24 < 5) & (HOUR % 24 >= 9) & (HOUR % 24 < 17), 8.0, 0.4)
BEGIN = np.datetime64("2024-01-01")  # a Monday


@dataclass(frozen=True)
class Cycle:
    """Changes of relative rate g over the week, in days since a Monday."""

    g: Floats

    def mean_changes(self, time: Floats) -> Floats:
        """∫₀ᵗ g."""
        whole = np.floor(time / 7.0)
        sums = np.concatenate(([0.0], np.cumsum(self.g / np.mean(self.g)))) / 24.0
        found: Floats = whole * 7.0 + np.interp((time - 7.0 * whole) * 24.0, np.arange(169), sums)
        return found

    def log(self, rates: Floats, crawls: int, seed: int, *, dates: bool = True) -> fo.CrawlLog:
        """Crawls a week apart in the mean, of sources that change in this cycle."""
        rng = np.random.default_rng(seed)
        time = np.cumsum(rng.exponential(7.0, (len(rates), crawls + 1)), axis=1)
        passed = np.diff(self.mean_changes(time), axis=1, prepend=0.0)
        changed = rng.random(time.shape) < -np.expm1(-rates[:, None] * passed)
        changed[:, 0] = False
        names = np.repeat([f"s{k}" for k in range(len(rates))], crawls + 1)
        flat = time.reshape(-1)
        when = BEGIN + (flat * 86_400e6).astype("timedelta64[us]") if dates else flat
        return fo.CrawlLog(source=names, time=when, changed=changed.reshape(-1))

    def fresh(self, plan: fo.Plan, rates: Floats) -> float:
        """Fresh copies in the mean between each source's first and last refresh, from the true changes."""
        begin = plan.log.end
        total = 0.0
        for k, rate in enumerate(rates.tolist()):
            times = np.sort(plan.schedule.time[plan.schedule.source == k]) + begin
            for a, b in itertools.pairwise(times):
                x = np.linspace(a, b, 150)
                y = np.exp(-rate * (self.mean_changes(x) - self.mean_changes(np.array([a]))))
                total += float(np.trapezoid(y, x)) / (times[-1] - times[0])
        return total


RATES = np.random.default_rng(7).gamma(1.0, 0.15, 120) + 0.01


@pytest.mark.exhaustive
@pytest.mark.parametrize("dates", [True, False])
def test_plans_crawl_after_the_peaks(dates: bool) -> None:
    cycle = Cycle(OFFICE)
    log = cycle.log(RATES, 80, 1, dates=dates)
    objective = BinaryFreshness(fo.Refresh.PERIODIC)
    phased = fo.plan(log, len(RATES) / 7.0, "84d", objective=objective, draws=0)
    flat = fo.plan(log, len(RATES) / 7.0, "84d", objective=objective, draws=0, load_limit=1.0)
    assert flat.phases is None
    assert phased.phases is not None
    assert phased.phases.value_without == flat.solution.value
    stale = len(RATES) - np.array([flat.solution.value, phased.solution.value])
    assert phased.phases.saved == pytest.approx(1.0 - stale[1] / stale[0], rel=1e-9)
    assert phased.phases.sources > len(RATES) / 3
    assert ("taking day 0 for a Monday" in details(phased)["weekly cycle"]) is not dates
    assert present(phased.solution.certificate).relative_gap < 1e-12
    # On the true cycle at least nine tenths of what was promised is saved.
    true = [cycle.fresh(plan, RATES) for plan in (flat, phased)]
    assert true[1] - true[0] > 0.9 * (stale[0] - stale[1])


@pytest.mark.exhaustive
def test_the_week_of_a_long_log_is_learnt_from_some_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Cycle(OFFICE).log(RATES, 80, 1)
    estimate = MaximumLikelihood().fit(log)
    assert sampled_sources(log) is None
    monkeypatch.setattr(good_phases, "MOST_CRAWLS", len(log) // 2)
    chosen = present(sampled_sources(log))
    assert len(chosen) == len(RATES) // 2
    # What is learnt from them is learnt from a log of their rows alone.
    rows = np.isin(log.source_index, chosen)
    begin = BEGIN + (log.time[rows] * 86_400e6).astype("timedelta64[us]")
    part = fo.CrawlLog(log.names[log.source_index[rows]], begin, log.changed[rows])
    assert np.datetime64(part.origin.replace(tzinfo=None) if part.origin else "NaT") == BEGIN
    some = learnt_shape(log, estimate.change_rate_, 56, None, chosen)
    alone = learnt_shape(part, estimate.change_rate_[chosen], 56, None)
    np.testing.assert_allclose(some.g, alone.g, rtol=1e-9)
    assert some.evidence == pytest.approx(alone.evidence, rel=1e-6)
    objective = BinaryFreshness(fo.Refresh.PERIODIC)
    plan = fo.plan(log, len(RATES) / 7.0, "28d", objective=objective, draws=0)
    assert present(plan.phases).facts()["sampled_sources"] == len(chosen)
    cycle = details(plan)["weekly cycle"]
    assert f"(learnt from {len(chosen)} sources): crawling after the peaks" in cycle


@pytest.mark.exhaustive
def test_what_is_told_is_computed() -> None:
    log = Cycle(OFFICE).log(RATES, 80, 1)
    plan = fo.plan(log, len(RATES) / 7.0, "28d", objective=BinaryFreshness(fo.Refresh.PERIODIC), draws=3)
    assert plan.phases is not None
    facts = summary(plan)
    assert facts["objective"] == "BinaryFreshness"
    assert facts["phases"] == plan.phases.facts()
    assert facts["settings"]["load_limit"] == 2.0
    cycle = details(plan)["weekly cycle"]
    assert f"saves {100 * plan.phases.saved:.1f} % of the cost at twice the mean load" in cycle
    assert "Changes peak " in cycle
    assert facts["schedule_value"] == pytest.approx(plan.solution.value, rel=0.15)
    assert facts["findings"]["interior"]["deviation"] < 1e-9
    page = str(plan.report())
    assert f"{plan.phases.sentence}. {plan.phases.sources} sources of 120 refreshed at good phases" in page
    inside = facts["findings"]["interior"]["sources"]
    assert f"each of the {inside} sources between their bounds that are not at good phases" in page
    assert np.all(present(plan.uncertainty).regret > -1e-9)


def test_a_log_without_a_cycle_has_a_plan_without_one() -> None:
    log = Cycle(np.ones(168)).log(RATES, 60, 2)
    plans = [fo.plan(log, 12.0, "28d", draws=0, load_limit=load) for load in (2.0, 1.0)]
    assert plans[0].phases is None
    assert np.array_equal(plans[0].solution.rates, plans[1].solution.rates)
    assert np.array_equal(plans[0].schedule.time, plans[1].schedule.time)
    assert summary(plans[0])["phases"] is None
    assert "weekly cycle" not in repr(plans[0])


@matrix(
    settings=[
        {"objective": HarmonicStaleness(fo.Refresh.POISSON)},
        {"objective": Age(fo.Refresh.PERIODIC)},
        {
            "objective": AccumulatedDelay(fo.Refresh.PERIODIC),
            "bandwidth": None,
            "constraints": [fo.Budget(5.0)],
        },
    ],
    every=2,
)
def test_what_has_no_phases_is_planned_as_ever(settings: dict[str, object]) -> None:
    log = Cycle(OFFICE).log(RATES, 60, 1)
    plan = fo.plan(log, horizon="28d", draws=0, **{"bandwidth": 12.0, **settings})  # type: ignore[arg-type]
    assert plan.phases is None
    assert math.isfinite(plan.solution.value)


def test_a_load_limit_below_one_is_refused() -> None:
    refused("load_limit is", fo.plan, Cycle(OFFICE).log(RATES, 3, 1), 12.0, "28d", load_limit=0.5)


@pytest.mark.exhaustive
def test_expected_is_the_value_where_rates_are_known_well() -> None:
    log = Cycle(OFFICE).log(RATES, 600, 3)
    plan = fo.plan(log, len(RATES) / 7.0, "28d", objective=HarmonicStaleness(fo.Refresh.PERIODIC), draws=2)
    assert plan.forecast is not None
    saved = present(plan.phases).value_without - plan.solution.value
    assert abs(plan.forecast.expected - plan.solution.value) < 0.05 * saved
    assert plan.forecast.facts()["expected"] == plan.forecast.expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [BinaryFreshness, HarmonicStaleness])
def test_freshness_counts_what_good_phases_save(kind: type[BinaryFreshness | HarmonicStaleness]) -> None:
    log, bandwidth = Cycle(OFFICE).log(RATES, 80, 1), len(RATES) / 7.0
    plan = fo.plan(log, bandwidth, "28d", objective=kind(fo.Refresh.PERIODIC), draws=0)
    gap = 1.0 / plan.solution.rates
    x = plan.sources.change_rate * gap
    fresh = -np.expm1(-x) / x
    for length in 7.0 * np.array([8.0, 6.0, 4.0, 3.0, 2.0, 1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 7, 1 / 14]):
        shorter = float(present(plan.phases).profile.saving([length], 2.0)[0])
        at = np.abs(gap / length - 1.0) < 1e-12
        fresh += np.where(at, plan.sources.change_rate * shorter * np.exp(-0.5 * x), 0.0)
    assert plan.findings["fresh"]["plan"] == pytest.approx(float(np.mean(fresh)), rel=1e-9)
    if kind is BinaryFreshness:  # but for the one source inside a segment
        assert plan.findings["fresh"]["plan"] == pytest.approx(plan.solution.value / len(RATES), rel=1e-3)


MONDAY = np.datetime64("2024-01-01")
WEEKS, SOURCES = 60, 80


def held(*, dated: bool, peaks: bool, load_limit: float = 2.0) -> fo.BackTest:
    """Sources that change on Tuesdays about ten, or at any hour; 130 crawls of each at random times."""
    rng = np.random.default_rng(4)
    share = rng.uniform(0.2, 0.9, SOURCES)
    source, week = np.nonzero(rng.random((SOURCES, WEEKS)) < share[:, None])
    hour = 1.0 + 10.0 / 24.0 + rng.normal(0.0, 0.1, len(week)) if peaks else rng.uniform(0.0, 7.0, len(week))
    time = np.minimum(7.0 * week + hour, 7.0 * WEEKS)
    crawls = np.sort(rng.uniform(0.0, 7.0 * WEEKS, (SOURCES, 130)), axis=1)
    found = np.zeros(crawls.shape, dtype=bool)
    for k in range(SOURCES):
        passed = np.searchsorted(np.sort(time[source == k]), crawls[k], side="right")
        found[k] = np.diff(passed, prepend=0) > 0

    def clock(days: np.ndarray) -> np.ndarray:
        return MONDAY + np.rint(days * 86_400e6).astype("m8[us]") if dated else days

    begin, end = clock(np.array([0.0, 7.0 * WEEKS]))
    history = fo.ChangeHistory(source, clock(time), begin, end, names=np.arange(SOURCES))
    log = fo.CrawlLog(np.repeat(np.arange(SOURCES), 130), clock(crawls.ravel()), found.ravel())
    objective = BinaryFreshness(fo.Refresh.PERIODIC)
    return fo.backtest(
        log, SOURCES / 7.0, history=history, objective=objective, splits=2, load_limit=load_limit
    )


@matrix(dated=[True, False], every=2)
def test_peaks_are_used_and_the_gain_is_claimed(dated: bool) -> None:
    found = held(dated=dated, peaks=True)
    row = next(row for row in found.means if row.policy == "plan, phased")
    assert present(row.saving) > 0.3
    assert row.predicted == pytest.approx(row.realised, rel=0.1)
    assert row.refreshes == pytest.approx(SOURCES / 7.0, rel=0.02)
    assert "crawling at good phases of the week saves" in found.verdict


def test_a_flat_load_has_no_such_row() -> None:
    found = held(dated=True, peaks=True, load_limit=1.0)
    assert "plan, phased" not in {row.policy for row in found.means}


def test_a_placebo_has_no_such_row() -> None:
    found = held(dated=True, peaks=False)
    assert "plan, phased" not in {row.policy for row in found.means}
    assert "phases" not in found.verdict
