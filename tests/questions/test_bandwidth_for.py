"""The least bandwidth for a promise: what it is, that less does not do, and what is out of reach."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq

import freshopt as fo
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    LaterThan,
    PollingKnapsack,
)
from freshopt.questions.rates_in_force import rates_in_force
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]
RNG = np.random.default_rng(11)
N = 40
DELTA, WEIGHT = RNG.lognormal(0.0, 2.0, N), RNG.lognormal(0.0, 1.0, N)
SOURCES = fo.Sources(DELTA, WEIGHT)
HARMONIC = fo.Problem(HarmonicStaleness(fo.Refresh.PERIODIC), SOURCES, 5.0)


def fresh(rates: Floats, refresh: fo.Refresh = fo.Refresh.PERIODIC) -> float:
    """Share of time that copies are fresh, by importance (Cho & Garcia-Molina 2003, section 4)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        u = DELTA / rates
        each = -np.expm1(-u) / u if refresh is fo.Refresh.PERIODIC else 1.0 / (1.0 + u)
    return float(WEIGHT @ np.where(rates > 0.0, each, 0.0) / WEIGHT.sum())


def poisson_rates(price: float) -> Floats:
    """Best responses of w·ρ/(Δ + ρ) − λρ: ρ = √(wΔ/λ) − Δ, or 0."""
    return np.maximum(np.sqrt(WEIGHT * DELTA / price) - DELTA, 0.0)


@pytest.mark.parametrize("share", [0.2, 0.9, 0.999])
def test_the_bandwidth_for_a_freshness_is_that_of_water_filling(share: float) -> None:
    problem = fo.Problem(Age(fo.Refresh.POISSON), SOURCES, 5.0)
    found = fo.bandwidth_for(problem, freshness=share)
    log_price = brentq(
        lambda x: fresh(poisson_rates(np.exp(x)), fo.Refresh.POISSON) - share, -40.0, 10.0, xtol=1e-13
    )
    assert found.bandwidth == pytest.approx(float(poisson_rates(np.exp(log_price)).sum()), rel=SCALAR)
    assert found.reached == pytest.approx(share, rel=EXACT)
    assert found.fresh
    assert found.today is found.saving is None
    assert isinstance(found.solution.problem.objective, fo.Spend)


def test_the_bandwidth_for_a_value_is_cauchys() -> None:
    """Σ wΔ/ρ ≤ v has Σρ ≥ (Σ√(wΔ))²/v, with equality where ρ ∝ √(wΔ)."""
    problem = fo.Problem(AccumulatedDelay(), SOURCES, 5.0)
    found = fo.bandwidth_for(problem, value=7.0)
    assert found.bandwidth == pytest.approx(float(np.sqrt(WEIGHT * DELTA).sum() ** 2 / 7.0), rel=SCALAR)
    assert found.reached == pytest.approx(7.0, rel=EXACT)


@pytest.mark.parametrize(
    ("objective", "value"),
    [
        (HarmonicStaleness(), 20.0),
        (BinaryFreshness(), 0.8 * float(WEIGHT.sum())),
        (Age(fo.Refresh.PERIODIC), 30.0),
        (PollingKnapsack(), 5.0),
        (LaterThan(0.5, fo.Refresh.PERIODIC), 3.0),
    ],
    ids=repr,
)
def test_less_does_not_do(objective: fo.Objective, value: float) -> None:
    """The optimum at the bandwidth found keeps the promise, and a thousandth less bandwidth breaks it."""
    problem = fo.Problem(objective, SOURCES, 5.0)
    found = fo.bandwidth_for(problem, value=value)
    sign = 1.0 if objective.sense == "minimise" else -1.0
    assert 0.0 <= found.bandwidth - found.at_least <= 1e-6 * found.bandwidth
    for part, kept in ((1.0 + 1e-5, True), (1.0 - 1e-3, False)):
        best = fo.solve(problem.with_bandwidth(part * found.bandwidth), tolerance=1e-6)
        assert (sign * best.value <= sign * value) is kept
    assert sign * found.reached <= sign * value + 1e-9 * abs(value)


def test_no_rates_that_keep_the_promise_use_less_than_the_proved_bound() -> None:
    found = fo.bandwidth_for(HARMONIC, freshness=0.9)
    rng = np.random.default_rng(2)
    for _ in range(50):
        shape = found.solution.rates * rng.lognormal(0.0, rng.uniform(0.001, 1.0), N)
        scale = brentq(lambda x, shape=shape: fresh(x * shape) - 0.9, 1e-3, 1e6, xtol=1e-14)
        assert scale * shape.sum() >= found.at_least * (1.0 - EXACT)


def test_as_today_is_judged_by_the_same_formula() -> None:
    today = RNG.lognormal(0.0, 1.0, N)
    found = fo.bandwidth_for(HARMONIC, freshness="as today", today=today)
    assert found.target == pytest.approx(fresh(today), rel=EXACT)
    assert found.today == pytest.approx(float(today.sum()), rel=EXACT)
    assert found.saving is not None
    assert found.saving == pytest.approx(1.0 - found.bandwidth / today.sum(), rel=SCALAR)
    assert found.saving > 0.0
    assert "fewer refreshes" in found.sentence
    # What is the cheapest already cannot be had for less.
    again = fo.bandwidth_for(HARMONIC, freshness="as today", today=found.solution.rates)
    assert again.saving == pytest.approx(0.0, abs=1e-9)
    assert "needs as many refreshes" in again.sentence
    value = fo.bandwidth_for(HARMONIC, value="as today", today=today)
    assert value.saving is not None
    assert value.saving > 0.0


def test_bounds_may_ask_for_more_than_today() -> None:
    sources = fo.Sources([1.0, 1.0], min_rate=[4.0, 0.0])
    found = fo.bandwidth_for(fo.Problem(Age(), sources, 9.0), freshness="as today", today=[1.0, 1.0])
    # ½ + ½ today; 4/5 of the first leave 1/5 = ρ/(1 + ρ) for the second.
    assert found.bandwidth == pytest.approx(4.25, rel=SCALAR)
    assert found.saving == pytest.approx(-1.125, rel=SCALAR)
    assert "112.5 % more refreshes" in found.sentence
    costly = fo.Sources([1.0, 1.0], refresh_cost=[1.0, 3.0])
    words = fo.bandwidth_for(fo.Problem(Age(), costly, 9.0), freshness="as today", today=[1.0, 9.0]).sentence
    assert "less bandwidth" in words


def test_a_logs_crawls_are_matched_by_name_and_unit() -> None:
    log = fo.CrawlLog(
        ["b"] * 3 + ["a"] * 5 + ["c"], [0, 24, 48, 0, 6, 12, 18, 24, 3], [0] * 9, time_unit="hour"
    )
    # Sorted by name: a every 6 hours, b every 24; c was crawled once and counts with the mean of the others.
    assert rates_in_force(log) * 24.0 == pytest.approx([4.0, 1.0, 2.5], rel=EXACT)
    sources = fo.Sources([1.0, 2.0], name=["b", "a"])
    problem = fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), sources, 9.0)
    found = fo.bandwidth_for(problem, freshness="as today", today=log)
    assert found.today == pytest.approx(5.0, rel=EXACT)
    assert found.target == pytest.approx((-np.expm1(-1.0) - np.expm1(-0.5) / 0.5) / 2.0, rel=EXACT)


def test_the_problems_other_limits_hold_and_its_bandwidth_does_not() -> None:
    size = fo.Budget(500.0, cost=np.linspace(1.0, 3.0, N), name="kB")
    declared = fo.Problem(Age(), SOURCES, constraints=[fo.Budget(0.1), size])
    found = fo.bandwidth_for(declared, freshness=0.5)
    alone = fo.bandwidth_for(fo.Problem(Age(), SOURCES, 0.1), freshness=0.5)
    assert float(np.linspace(1.0, 3.0, N) @ found.solution.rates) <= 500.0 * (1.0 + SCALAR)
    assert found.bandwidth == pytest.approx(alone.bandwidth, rel=SCALAR)
    with pytest.raises(fo.InfeasibleProblemError, match="out of reach at any bandwidth: kB <= 500 and"):
        fo.bandwidth_for(declared, freshness=0.99)


def test_what_is_out_of_reach_says_what_is_best() -> None:
    capped = fo.Problem(Age(), fo.Sources([1.0, 4.0], max_rate=2.0), 5.0)
    # 2/(1 + 2) and 2/(4 + 2) of the time fresh: a half.
    with pytest.raises(fo.InfeasibleProblemError) as told:
        fo.bandwidth_for(capped, freshness=0.9)
    assert str(told.value) == (
        "90 % fresh is out of reach at any bandwidth: max_rate everywhere gives copies fresh 50 % of the "
        "time. Ask for that, or raise max_rate."
    )
    assert fo.bandwidth_for(capped, freshness=0.5).bandwidth == pytest.approx(4.0, rel=SCALAR)
    delay = fo.Problem(AccumulatedDelay(), SOURCES, 5.0)
    with pytest.raises(fo.InfeasibleProblemError, match="approach a value of 0, and do not reach it"):
        fo.bandwidth_for(delay, value=0.0)
    with pytest.raises(fo.InfeasibleProblemError, match="approach a value of 2, and do not"):
        fo.bandwidth_for(fo.Problem(BinaryFreshness(), fo.Sources([1.0, 1.0]), 5.0), value=2.0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "either a freshness or a value"),
        ({"freshness": 0.5, "value": 1.0}, "either a freshness or a value"),
        ({"freshness": 1.0}, "only at infinite rates"),
        ({"freshness": -0.5}, "not between 0 and 1"),
        ({"freshness": "tomorrow"}, 'Pass a number, or "as today"'),
        ({"freshness": "as today"}, "need each other"),
        ({"freshness": 0.5, "today": np.ones(N)}, "need each other"),
        ({"value": "as today", "today": np.zeros(N)}, "never refreshed costs without limit"),
        ({"freshness": "as today", "today": -np.ones(N)}, "no number >= 0"),
    ],
)
def test_what_is_no_question_is_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(fo.SourceDataError, match=message):
        fo.bandwidth_for(HARMONIC, **asked)  # type: ignore[arg-type]


def test_a_bandwidth_has_no_value_to_promise() -> None:
    problem = fo.Problem(
        fo.Spend(), SOURCES, constraints=[fo.Target(BinaryFreshness(fo.Refresh.PERIODIC), at_least=0.3)]
    )
    with pytest.raises(fo.ObjectiveError, match="no mean value to promise"):
        fo.bandwidth_for(problem, value=1.0)
    # Of a freshness the discipline is the target's, which itself holds on.
    found = fo.bandwidth_for(problem, freshness=0.2)
    assert found.reached == pytest.approx(0.3, rel=SCALAR)


def test_nothing_that_matters_has_no_freshness() -> None:
    problem = fo.Problem(Age(), fo.Sources([1.0, 1.0], importance=0.0), 5.0)
    with pytest.raises(fo.SourceDataError, match="all importances are 0"):
        fo.bandwidth_for(problem, freshness=0.5)


def test_a_promise_beside_a_target_of_the_same_name() -> None:
    objective = BinaryFreshness(fo.Refresh.PERIODIC)
    target = fo.Target(objective, at_least=0.3, name="freshness")
    problem = fo.Problem(fo.Spend(), fo.Sources([1.0, 2.0]), 5.0, constraints=[target])
    for promised, reached in ((0.2, 0.3), (0.5, 0.5)):
        found = fo.bandwidth_for(problem, freshness=promised)
        assert found.reached == pytest.approx(reached, rel=SCALAR)
