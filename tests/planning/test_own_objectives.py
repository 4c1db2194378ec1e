"""An objective of one's own is planned for, scheduled and back-tested, from its declaration alone."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.problems import AccumulatedDelay, PowerCost, SynchronizationCost
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.planning.test_good_phases import OFFICE, RATES, Cycle

PERIODIC = fo.Refresh.PERIODIC


@dataclass(frozen=True)
class Delay(fo.Objective):
    """That of `AccumulatedDelay` under periodic refreshes."""

    refresh = PERIODIC

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(0.5 * sources.importance * sources.change_rate, cp.inv_pos(rate))


@dataclass(frozen=True)
class MeanAge(fo.Objective):
    """The age of a copy, which no change shows: that of `PowerCost(1, 1)`."""

    refresh = PERIODIC

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(0.5 * sources.importance, cp.inv_pos(rate))


@dataclass(frozen=True)
class Squared(fo.Objective):
    """Of random refreshes."""

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -2))


@dataclass(frozen=True)
class Sized(fo.Objective):
    """A utility of rates, with a column of its own."""

    sense: ClassVar[str] = "maximise"  # type: ignore[assignment]
    refresh = PERIODIC

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources["size"], cp.log(1.0 + rate))


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    """Six sources, crawled daily but for every seventh day, for 80 days."""
    rng = np.random.default_rng(5)
    days = np.array([day for day in range(80) if day % 7])
    rate = np.array([0.02, 0.05, 0.1, 0.3, 0.7, 1.5])
    rows = [(f"s{k}", day, rng.random() < -np.expm1(-d)) for k, d in enumerate(rate) for day in days]
    source, time, changed = zip(*rows, strict=True)
    return fo.CrawlLog(source, time, changed)


WEIGHT = {f"s{k}": 1.0 + k % 3 for k in range(6)}


def test_a_plan_is_that_of_the_named_objective(log: fo.CrawlLog) -> None:
    own, known = (
        fo.plan(log, "3/day", "30d", objective=one, importance=WEIGHT, draws=3, load_limit=1.0)
        for one in (Delay(), AccumulatedDelay(PERIODIC))
    )
    assert own.rates == pytest.approx(known.rates, rel=SCALAR)
    assert own.schedule_value == pytest.approx(known.schedule_value, rel=SCALAR)
    assert own.baselines == pytest.approx(known.baselines, rel=SCALAR)
    assert own.schedule.method == known.schedule.method
    assert own.uncertainty is not None
    assert own.summary()["objective"] == "Delay"
    assert "than all alike" in repr(own)


def test_failures_are_planned_for(log: fo.CrawlLog) -> None:
    own, known = (
        fo.plan(log, "3/day", "30d", objective=one, success=0.6, draws=0)
        for one in (Delay(), AccumulatedDelay(PERIODIC))
    )
    assert own.rates == pytest.approx(known.rates, rel=1e-6)
    assert own.schedule_value == pytest.approx(known.schedule_value, rel=1e-6)


class Missed(Delay):
    """The same, said to be of the number of missed changes."""

    penalty_of = "changes"


def test_fetches_that_cost_what_they_bring_are_planned_for(log: fo.CrawlLog) -> None:
    settings = {"importance": WEIGHT, "changed_cost": 5.0, "load_limit": 1.0}
    own, known = (
        fo.plan(log, "12/day", "30d", objective=one, draws=0, **settings)  # type: ignore[arg-type]
        for one in (Missed(), AccumulatedDelay(PERIODIC))
    )
    assert own.rates == pytest.approx(known.rates, rel=SCALAR)
    assert own.schedule_value == pytest.approx(known.schedule_value, rel=SCALAR)
    assert present(own.solution.certificate).relative_gap < SCALAR
    tested = [
        fo.backtest(log, "12/day", objective=one, **settings)  # type: ignore[arg-type]
        for one in (Missed(), AccumulatedDelay(PERIODIC))
    ]
    mine, theirs = ({(r.policy, r.begin): r.refreshes for r in one.rows} for one in tested)
    for key in mine.keys() & theirs.keys():
        assert mine[key] == pytest.approx(theirs[key], rel=1e-6), key
    refused(
        "nothing, such as|nothing tells",
        lambda: fo.plan(log, "12/day", objective=Delay(), changed_cost=5.0),
        error=fo.ObjectiveError,
    )


def test_good_phases_of_the_week_are_planned_for() -> None:
    log = Cycle(OFFICE).log(RATES, 80, 1)
    own, known, plain = (
        fo.plan(log, len(RATES) / 7.0, "84d", objective=one, draws=0)
        for one in (Missed(), AccumulatedDelay(PERIODIC), Delay())
    )
    assert present(own.phases).saved == pytest.approx(present(known.phases).saved, rel=SCALAR)
    assert own.rates == pytest.approx(known.rates, rel=SCALAR)
    assert own.schedule_value == pytest.approx(known.schedule_value, rel=SCALAR)
    assert plain.phases is None


def test_a_back_test_says_that_it_leaves_good_phases_out() -> None:
    office, even = (Cycle(g).log(RATES, 80, 1) for g in (OFFICE, np.ones(168)))
    cases = [(office, Missed(), 2.0), (office, Missed(), 1.0), (office, Delay(), 2.0), (even, Missed(), 2.0)]
    each = len(RATES) / 7.0
    found = [fo.backtest(log, each, objective=own, splits=1, load_limit=most) for log, own, most in cases]
    assert ["good phases" in one.verdict for one in found] == [True, False, False, False]


def test_signals_of_a_log_are_for_named_objectives(log: fo.CrawlLog) -> None:
    heard = pl.DataFrame({"source": ["s0", "s1"], "time": [3.0, 4.0]})
    refused(
        "does not tell what each number of them costs",
        lambda: fo.plan(log, "12/day", objective=Missed(), signals=heard),
        error=fo.ObjectiveError,
    )


def test_costs_that_changes_do_not_show_are_those_of_a_replay(log: fo.CrawlLog) -> None:
    def rows(objective: fo.Objective) -> dict[tuple[str, float], float]:
        found = fo.backtest(log, "3/day", objective=objective, importance=WEIGHT, every="10d", splits=1)
        return {(row.policy, row.begin): row.realised for row in found.rows}

    own, known = rows(MeanAge()), rows(SynchronizationCost(PowerCost(1.0, 1.0), PERIODIC))
    assert own.keys() == known.keys()
    for (policy, begin), value in own.items():
        # Crawls at their own times are the same; a replay of rates has a few phases of all.
        exact = policy in ("current", "re-planned")
        assert value == pytest.approx(known[policy, begin], rel=SCALAR if exact else 0.1), policy


def test_a_back_test_says_how_costs_are_expected(log: fo.CrawlLog) -> None:
    found = fo.backtest(log, "3/day", objective=Delay(), importance=WEIGHT)
    assert found.verdict.endswith("Costs are those expected under the change rates that the whole log gives.")
    saved = found.to_frame().filter(pl.col("policy") == "uniform")["saving"]
    assert bool((saved < 0.0).all())
    fresh = fo.backtest(log, "3/day", objective=AccumulatedDelay(PERIODIC), importance=WEIGHT)
    for mine, theirs in zip(found.rows, fresh.rows, strict=False):
        if mine.policy in ("plan", "uniform", "current"):
            other = next(r for r in fresh.rows if (r.policy, r.begin) == (mine.policy, mine.begin))
            assert mine.fresh == pytest.approx(other.fresh, rel=SCALAR)
            assert mine.refreshes == pytest.approx(other.refreshes, rel=SCALAR), theirs.policy


def test_expected_costs_are_close_to_measured_ones_under_the_model() -> None:
    rng = np.random.default_rng(11)
    rate = rng.lognormal(-1.0, 1.0, 60)
    rows = [(f"s{k}", day, rng.random() < -np.expm1(-d)) for k, d in enumerate(rate) for day in range(1, 60)]
    source, time, changed = zip(*rows, strict=True)
    log = fo.CrawlLog(source, time, changed)
    own = fo.backtest(log, "25/day", objective=Delay(), splits=1)
    known = fo.backtest(log, "25/day", objective=AccumulatedDelay(PERIODIC), splits=1)
    for policy in ("plan", "uniform", "current"):
        mine, theirs = (next(r for r in one.rows if r.policy == policy) for one in (own, known))
        assert abs(mine.realised - theirs.realised) < 4.0 * max(theirs.error, 0.02 * theirs.realised)


def test_random_refreshes_have_no_value_of_a_schedule(log: fo.CrawlLog) -> None:
    made = fo.plan(log, "3/day", "30d", objective=Squared(), draws=0)
    assert "no value over that time, as Squared tells no cost of age" in str(made.report())
    assert np.isnan(made.schedule_value)
    assert made.summary()["schedule_value"] is None
    assert present(made.solution.certificate).relative_gap < EXACT
    found = fo.backtest(log, "3/day", objective=Squared())
    assert {row.policy for row in found.rows} == {
        "plan",
        "rates in force",
        "uniform",
        "proportional",
        "∝ √(w·Δ)",
    }
    refused(
        r"crawls at other times than those of a rate cannot be priced: Squared\(\)",
        lambda: fo.backtest(log, "3/day", objective=Squared(), compare_rule="nutch"),
        error=fo.ObjectiveError,
    )


def test_what_is_maximised_is_a_gain(log: fo.CrawlLog) -> None:
    sizes = {f"s{k}": 1.0 + k for k in range(6)}
    made = fo.plan(log, "3/day", "30d", objective=Sized(), source_columns={"size": sizes}, draws=0)
    frame = pl.DataFrame({"source": list(sizes), "size": list(sizes.values())})
    found = fo.backtest(log, "3/day", objective=Sized(), source_columns=frame)
    gains = {row.policy: row for row in found.rows if row.begin == found.rows[0].begin}
    expected = float(np.sum(made.sources["size"] * np.log1p(made.rates)))
    assert made.solution.value == pytest.approx(expected, rel=EXACT)
    assert gains["plan"].realised == pytest.approx(expected, rel=SCALAR)
    assert gains["uniform"].realised == pytest.approx(21.0 * np.log1p(0.5), rel=SCALAR)
    # Of a gain too what saves nothing is negative.
    assert gains["uniform"].saving == pytest.approx(gains["uniform"].realised / expected - 1.0, rel=SCALAR)


def test_columns_that_no_plan_has(log: fo.CrawlLog) -> None:
    refused(r"no column 'size'.*source_columns", lambda: fo.plan(log, "3/day", objective=Sized()))
    refused(
        r"there is no size for 's1', 's2'",
        lambda: fo.plan(log, "3/day", objective=Sized(), source_columns={"size": {"s0": 1.0}}),
    )
    refused(r"source_columns is list", lambda: fo.plan(log, source_columns=[1.0]))
    refused(
        r"columns has 'importance', which is no name that is free",
        lambda: fo.plan(log, "3/day", source_columns={"importance": 1.0}),
    )
