"""Exact costs of static rates in known changes, against simulations over many phases and ages."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.integrate import quad

import freshopt as fo
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    ExpectedPenalty,
    HarmonicStaleness,
    PowerCost,
    SynchronizationCost,
)
from freshopt.simulation.static_costs import ChangeWindow, age_law, has_static_cost, static_costs
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR

PERIODIC, POISSON = fo.Refresh.PERIODIC, fo.Refresh.POISSON
CHANGES: tuple[list[float], ...] = ([1.0, 1.5, 4.0, 9.0], [], [2.0, 2.25, 2.5, 2.75, 7.0], [3.0])
FIRST, UNTIL = 2.2, np.array([10.0, 10.0, 9.5, 8.0])
RATES = np.array([0.3, 1.0, 1.7, 0.0])


def window() -> ChangeWindow:
    source = np.repeat(np.arange(4), [len(times) for times in CHANGES])
    world = fo.World.from_events(
        {"source": source, "time": np.concatenate(CHANGES)}, names=np.arange(4), start=0.0, horizon=10.0
    )
    return ChangeWindow.of(world, FIRST, UNTIL)


def penalty_of(name: str, missed: np.ndarray) -> float:
    """Return the cost rate of a copy that missed these changes, given by how long ago they were."""
    m = len(missed)
    costs: dict[str, Callable[[], float]] = {
        "binary": lambda: float(m > 0),
        "harmonic": lambda: sum(1.0 / k for k in range(1, m + 1)),
        "delay": lambda: float(m),
        "age": lambda: float(max(missed, default=0.0)),
        "sqrt": lambda: float(np.sqrt(m)),
    }
    found: float = costs[name]()
    return found


def brute(name: str, k: int, refresh: fo.Refresh, steps: int = 2500, ages: int = 400) -> float:
    """Return a source's cost by moments and equally likely ages of the copy, capped at the record's begin."""
    times, rate = np.array(CHANGES[k]), RATES[k]
    share = (np.arange(ages) + 0.5) / ages
    if rate == 0.0:
        age = np.full(1, np.inf)
    else:
        age = share / rate if refresh is PERIODIC else -np.log1p(-share) / rate
    length = UNTIL[k] - FIRST
    total = 0.0
    for x in FIRST + (np.arange(steps) + 0.5) / steps * length:
        # The cost is constant between ages at which one more change is missed.
        back = np.sort(x - times[times <= x])
        cost = np.array([penalty_of(name, back[:m]) for m in range(len(back) + 1)])
        total += float(np.mean(cost[np.searchsorted(back, age, side="left")]))
    return float(total / steps * length)


OBJECTIVES = {
    "binary": BinaryFreshness,
    "harmonic": HarmonicStaleness,
    "delay": AccumulatedDelay,
    "age": Age,
}


@matrix(name=OBJECTIVES, refresh=[PERIODIC, POISSON], every=5)
def test_costs_are_means_over_phases_and_ages(name: str, refresh: fo.Refresh) -> None:
    found = static_costs(window(), RATES, OBJECTIVES[name](refresh))
    expected = [brute(name, k, refresh) for k in range(4)]
    np.testing.assert_allclose(found, expected, rtol=0.01, atol=2e-3)
    assert found[1] == 0.0


def test_any_penalty_on_the_number_of_missed_changes() -> None:
    found = static_costs(window(), RATES, ExpectedPenalty(np.sqrt))
    np.testing.assert_allclose(found, [brute("sqrt", k, POISSON) for k in range(4)], rtol=0.01, atol=2e-3)
    same = static_costs(window(), RATES, ExpectedPenalty(lambda m: m))
    np.testing.assert_allclose(same, static_costs(window(), RATES, AccumulatedDelay(POISSON)), rtol=EXACT)


def test_a_copy_that_is_never_refreshed_is_as_old_as_the_record() -> None:
    """The last source changes at 3 and counts from 2.2 to 8."""
    values = [static_costs(window(), np.zeros(4), made(PERIODIC))[3] for made in OBJECTIVES.values()]
    assert values == pytest.approx([5.0, 5.0, 5.0, 12.5], rel=EXACT)


@matrix(refresh=[PERIODIC, POISSON], rate=[1e-6, 1e-3, 0.4, 30.0, 1e4])
def test_integrals_of_the_laws(refresh: fo.Refresh, rate: float) -> None:
    law = age_law(refresh)
    scale = 1.0 / rate
    for a, b in ((0.0, 0.3), (0.2, 0.9), (0.5, 4.0), (2.0, 3.0), (0.3, 0.3), (0.1, 0.1001)):
        low, high = a * scale, b * scale

        def survival(t: float) -> float:
            return max(1.0 - rate * t, 0.0) if refresh is PERIODIC else float(np.exp(-rate * t))

        kink = [scale] if low < scale < high else None
        arguments = (np.array([low]), np.array([high]), np.array([rate]))
        plain = quad(survival, low, high, points=kink, epsabs=0.0, epsrel=1e-12)[0]
        first = quad(lambda t: t * survival(t), low, high, points=kink, epsabs=0.0, epsrel=1e-12)[0]
        assert law.survival(*arguments)[0] == pytest.approx(plain, rel=SCALAR, abs=1e-15 * scale)
        assert law.moment(*arguments)[0] == pytest.approx(first, rel=SCALAR, abs=1e-15 * scale**2)


def test_poisson_sources_cost_what_the_formula_says() -> None:
    """Many changes: the exact cost of a window is the objective's value, to its sampling error."""
    rng = np.random.default_rng(4)
    n, rate, length = 400, 0.8, 60.0
    counts = rng.poisson(rate * 80.0, n)
    time = rng.uniform(0.0, 80.0, counts.sum())
    names = np.arange(n)
    world = fo.World.from_events(
        {"source": np.repeat(names, counts), "time": time}, names=names, start=0.0, horizon=80.0
    )
    changes = ChangeWindow.of(world, 20.0, 80.0)
    for objective in (HarmonicStaleness(PERIODIC), Age(POISSON), BinaryFreshness(PERIODIC)):
        each = static_costs(changes, np.full(n, 0.5), objective) / length
        problem = fo.Problem(objective, fo.Sources(np.full(1, rate)), 1.0)
        assert problem.numerics is not None
        expected = float(problem.numerics.cost(np.full(1, 0.5))[0])
        assert abs(each.mean() - expected) < 4.0 * each.std(ddof=1) / np.sqrt(n)


def test_a_cost_of_age_has_no_such_form() -> None:
    objective = SynchronizationCost(PowerCost(1.0, 0.5))
    assert not has_static_cost(objective)
    with pytest.raises(fo.ObjectiveError, match="Replay a schedule instead"):
        static_costs(window(), RATES, objective)


@pytest.mark.parametrize("refresh", [fo.Refresh.PERIODIC, fo.Refresh.POISSON])
def test_a_rate_of_minus_zero_is_none(refresh: fo.Refresh) -> None:
    law, ends, zero = age_law(refresh), (np.array([1.0]), np.array([3.0])), np.zeros(1)
    for integral in (law.survival, law.moment):
        np.testing.assert_array_equal(integral(*ends, -zero), integral(*ends, zero))
    assert law.reach(-zero)[0] == np.inf
