"""Costs that follow from what a declared one is the penalty of: simulated, bisected, of named objectives."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import GAPS, PhasedObjective
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from freshopt.separable.kernel import Kernel
from tests.ground_truth import own_objectives
from tests.ground_truth.hull_truth import Savings
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

Array = npt.NDArray[np.float64]
POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC


@dataclass(frozen=True)
class SquaredChanges(fo.Objective):
    """E m² of the number m of missed changes, under either discipline."""

    refresh: fo.Refresh = POISSON
    penalty_of = "changes"

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        one, two = (1.0, 2.0) if self.refresh is POISSON else (0.5, 1.0 / 3.0)
        w, d = sources.importance, sources.change_rate
        return cp.multiply(w * d * one, cp.inv_pos(rate)) + cp.multiply(w * d**2 * two, cp.power(rate, -2))


class Stale(fo.Objective):
    """The stale share, its cost flat where changes are announced."""

    penalty_of = "changes"

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance * sources.change_rate, cp.inv_pos(rate + sources.change_rate))


class Harmonic(own_objectives.Harmonic):
    """log(1 + Δ/ρ)."""

    penalty_of = "changes"


class Oldest(fo.Objective):
    """E A of the age A of the oldest missed change."""

    penalty_of = "age"

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        one = cp.exp(-cp.log(rate) - cp.log(rate + sources.change_rate))
        return cp.multiply(sources.importance * sources.change_rate, one)


class Patience(fo.Objective):
    """A gain that is lost as E A² grows."""

    penalty_of = "age"
    sense = "maximise"

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        one = cp.exp(-2.0 * cp.log(rate) - cp.log(rate + sources.change_rate))
        return cp.multiply(sources.importance, 3.0) - cp.multiply(
            2.0 * sources.importance * sources.change_rate, one
        )


def drawn(n: int = 40, seed: int = 1, decades: float = 6.0) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    change, weight = 10.0 ** rng.uniform(-decades, decades, n), 10.0 ** rng.uniform(-3.0, 3.0, n)
    return change, weight, rng.random(n) < 0.5


@pytest.mark.parametrize(
    ("own", "penalty"),
    [(SquaredChanges(), lambda m, _: m**2), (Oldest(), lambda _, a: a), (Patience(), lambda _, a: a**2)],
)
def test_announced_changes_cost_what_a_simulation_says(
    own: fo.Objective, penalty: Callable[[Array, Array], Array]
) -> None:
    rng, change, rate, many = np.random.default_rng(3), 2.0, 0.7, 400_000
    gaps = rng.exponential(1.0 / change, many)
    followed = rng.random(many) < rate / change
    followed[0] = True
    # Before each gap the last change was followed, or it is missed together with those before it.
    last = np.maximum.accumulate(np.where(followed, np.arange(many), 0))
    missed = np.arange(many) - last
    time = np.concatenate(([0.0], np.cumsum(gaps)))[:-1]
    begin = np.where(missed > 0, time - time[np.minimum(last + 1, many - 1)], 0.0)
    x = rng.random(many) * gaps  # a moment of each gap, which counts by its length
    cost = gaps * np.where(missed > 0, penalty(missed.astype(float), begin + x), 0.0)
    blocks = cost.reshape(100, -1).sum(axis=1) / gaps.reshape(100, -1).sum(axis=1)
    sources = fo.Sources([change], signalled=True)
    found = present(numerics_of(own, sources)[0]).cost(np.array([rate]))[0]
    found = found + 3.0 if isinstance(own, Patience) else found
    assert abs(blocks.mean() - found) < 4.0 * blocks.std(ddof=1) / 10.0


def optimum(
    cost: Callable[[Array], Array], slope: Callable[[Array], Array], top: Array, total: float
) -> float:
    """Return the least Σ cost(ρ) with Σρ = total by bisections of rates and of the price."""

    def response(price: float) -> Array:
        low, high = np.full(len(top), -80.0), np.log(top)
        for _ in range(200):
            middle = 0.5 * (low + high)
            above = slope(np.exp(middle)) > price
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(slope(top) >= price, top, np.exp(high))

    price = brentq(lambda x: np.log(response(np.exp(x)).sum() / total), -80.0, 80.0, xtol=1e-15)
    return float(np.sum(cost(response(np.exp(price)))))


@pytest.mark.parametrize("share", [1e-4, 0.1, 0.7])
@pytest.mark.parametrize("decades", [1.0, 4.0])
def test_optima_of_squared_changes_are_those_of_bisection(share: float, decades: float) -> None:
    change, weight, _ = drawn(decades=decades)
    total = share * change.sum()

    def cost(rate: Array) -> Array:
        v = (change - rate) / rate
        return weight * (v + 2.0 * v**2)

    def slope(rate: Array) -> Array:
        return weight * (change / rate**2) * (1.0 + 4.0 * (change - rate) / rate)

    solution = fo.solve(
        fo.Problem(SquaredChanges(), fo.Sources(change, weight, signalled=True), total), tolerance=1e-12
    )
    assert present(solution.certificate).relative_gap < EXACT
    assert solution.value == pytest.approx(optimum(cost, slope, change, total), rel=SCALAR)


@pytest.mark.parametrize("share", [1e-4, 0.1, 0.7])
def test_optima_of_squared_ages_are_those_of_bisection(share: float) -> None:
    change, weight, _ = drawn(decades=2.0)
    total = share * change.sum()

    def cost(rate: Array) -> Array:
        return weight * (3.0 - 2.0 * (1.0 - rate / change) / rate**2)

    def slope(rate: Array) -> Array:
        return weight * (4.0 / rate**3 - 2.0 / (rate**2 * change))

    solution = fo.solve(fo.Problem(Patience(), fo.Sources(change, weight, signalled=True), total))
    assert present(solution.certificate).relative_gap < SCALAR
    assert solution.value == pytest.approx(optimum(cost, slope, change, total), rel=SCALAR)


@pytest.mark.parametrize("budget", [1e-3, 0.3, 5.0])
@pytest.mark.parametrize(
    ("own", "named"),
    [
        (Stale(), BinaryFreshness(POISSON)),
        (Harmonic(), HarmonicStaleness(POISSON)),
        (Oldest(), Age(POISSON)),
    ],
)
@pytest.mark.parametrize("more", ["signals", "failing signals", "changed cost"])
@pytest.mark.sampled(2)
def test_costs_are_those_of_named_objectives(
    own: fo.Objective, named: fo.Objective, budget: float, more: str
) -> None:
    change, weight, signalled = drawn()
    rng = np.random.default_rng(2)
    if more == "changed cost":
        costs = {
            "refresh_cost": 10.0 ** rng.uniform(-1, 1, 40),
            "changed_cost": 10.0 ** rng.uniform(-2, 2, 40),
        }
        sources = fo.Sources(change, weight, **costs)  # type: ignore[arg-type]
    else:
        success = rng.uniform(0.1, 1.0, 40) if more == "failing signals" else None
        sources = fo.Sources(change, weight, signalled=signalled, success=success)
    found, known = (fo.solve(fo.Problem(one, sources, budget * change.sum())) for one in (own, named))
    value = weight.sum() - known.value if known.problem.objective.sense == "maximise" else known.value
    assert found.value == pytest.approx(value, rel=SCALAR)
    assert present(found.certificate).relative_gap < SCALAR


def test_marginals_and_responses_are_those_of_the_cost() -> None:
    change, weight, _ = drawn(decades=3.0)
    for own in (SquaredChanges(), Harmonic(), Oldest(), Patience()):
        numerics = present(numerics_of(own, fo.Sources(change, weight, signalled=True))[0])
        for share in (1e-5, 0.01, 0.4, 0.99, 0.999999):
            rate = share * change
            marginal = numerics.marginal(rate)
            step = 1e-4 * np.minimum(rate, change - rate)
            slope = (numerics.cost(rate - step) - numerics.cost(rate + step)) / (2.0 * step)
            rounding = 1e-15 * np.abs(numerics.cost(rate)) / step
            assert np.all(np.abs(slope - marginal) <= 1e-5 * marginal + 4.0 * rounding)
            assert numerics.inverse_marginal(marginal) == pytest.approx(rate, rel=1e-9)
        assert np.all(numerics.cost(change) <= numerics.cost(0.999 * change))
        assert np.all(numerics.marginal(1.5 * change) == 0.0)
        assert np.array_equal(numerics.inverse_marginal(np.full(40, 1e-250)), change)


@pytest.mark.parametrize("budget", [0.01, 1.0, 30.0])
def test_periodic_fetches_that_cost_what_they_bring(budget: float) -> None:
    change, weight, _ = drawn(decades=2.0)
    costs = 10.0 ** np.random.default_rng(4).uniform(-2, 2, (2, 40))
    sources = fo.Sources(change, weight, refresh_cost=costs[0], changed_cost=costs[1])
    total = budget * float(np.sum(costs[0] * change))

    def used(rate: Array) -> Array:
        return np.asarray(costs[0] * rate - costs[1] * rate * np.expm1(-change / rate))

    def response(price: float) -> Array:
        low, high = np.full(40, -60.0), np.full(40, 60.0)
        for _ in range(200):
            middle = 0.5 * (low + high)
            u = change / np.exp(middle)
            with np.errstate(over="ignore", invalid="ignore"):
                earned = weight * (u / 2.0 + 2.0 * u**2 / 3.0) / np.exp(middle)
                spent = costs[0] - costs[1] * (np.expm1(-u) + u * np.exp(-u))
            above = earned > price * spent
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.asarray(np.exp(high))

    price = brentq(lambda x: np.log(used(response(np.exp(x))).sum() / total), -60.0, 60.0, xtol=1e-15)
    u = change / response(np.exp(price))
    solution = fo.solve(fo.Problem(SquaredChanges(PERIODIC), sources, total))
    assert solution.value == pytest.approx(float(np.sum(weight * (u / 2.0 + u**2 / 3.0))), rel=SCALAR)
    assert present(solution.certificate).relative_gap < SCALAR
    assert solution.bandwidth_used == pytest.approx(total, rel=SCALAR)


def test_equal_gaps_and_announced_changes_side_by_side() -> None:
    change, weight, signalled = drawn(decades=1.0)
    sources = fo.Sources(change, weight, signalled=signalled)
    solution = fo.solve(fo.Problem(SquaredChanges(PERIODIC), sources, 0.3 * change.sum()))
    rate, price = solution.rates, solution.price
    u, v = change / rate, (change - rate) / rate
    silent, announced = (u / 2.0 + 2.0 * u**2 / 3.0) / rate, change / rate**2 * (1.0 + 4.0 * v)
    paid = weight * np.where(signalled, announced, silent)
    inside = rate < change * (1.0 - CONIC)
    assert paid[inside | ~signalled] == pytest.approx(price, rel=CONIC)
    assert present(solution.certificate).relative_gap < SCALAR


def test_a_kernel_of_ones_own_and_announced_changes_share_a_declared_budget() -> None:
    class Delay(own_objectives.Delay):
        penalty_of = "changes"

        def kernel(self, sources: fo.Sources) -> Kernel:
            return AccumulatedDelay(POISSON).kernel(sources)

    change, weight, signalled = drawn(decades=1.0)
    sources = fo.Sources(change, weight, signalled=signalled)
    kilobytes = fo.Budget(0.2 * change.sum(), cost=weight, name="kB")
    own, named = (
        fo.solve(fo.Problem(one, sources, 0.3 * change.sum(), constraints=[kilobytes]))
        for one in (Delay(), AccumulatedDelay(POISSON))
    )
    assert own.value == pytest.approx(named.value, rel=SCALAR)
    assert own.prices == pytest.approx(named.prices, rel=CONIC)


def test_good_phases_save_what_the_slope_of_the_cost_of_age_says() -> None:
    change, weight, _ = drawn(n=30, decades=1.0)
    change = 0.1 * change
    sources = fo.Sources(change, weight)
    profile = Savings()
    own = fo.Problem(SquaredChanges(PERIODIC), sources, 3.0, profile=profile)
    assert isinstance(own.objective, PhasedObjective)
    rate, saving = own.objective.points(sources, numerics_of(SquaredChanges(PERIODIC), sources)[0])
    gap = np.array([7.0 * one for one in GAPS if np.any(np.isclose(rate, 1.0 / (7.0 * one)))])
    shorter = profile.saving(gap, 2.0)
    # c(s) = Δs + (Δs)²
    slope = weight * (change + 2.0 * change**2 * 0.5 * gap[:, None])
    assert saving == pytest.approx(shorter[:, None] * slope, rel=SCALAR)
    found = fo.solve(own)
    assert present(found.certificate).relative_gap < SCALAR
    # The dual function, from the curve and the points themselves, bounds the value from below.
    tried = np.geomspace(1e-4, 1e3, 20_001)
    u = change[:, None] / tried
    curve = weight[:, None] * (u / 2.0 + u**2 / 3.0) + found.price * tried
    at = change[:, None] * gap
    points = weight[:, None] * (at / 2.0 + at**2 / 3.0) - saving.T + found.price / gap
    bound = float(np.sum(np.minimum(curve.min(axis=1), points.min(axis=1)))) - found.price * 3.0
    assert bound == pytest.approx(found.value, rel=CONIC)
    assert found.value < fo.solve(fo.Problem(SquaredChanges(PERIODIC), sources, 3.0)).value


def test_good_phases_of_delay_are_those_of_the_named_objective() -> None:
    class Delay(fo.Objective):
        refresh, penalty_of = PERIODIC, "changes"

        def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
            return cp.multiply(0.5 * sources.importance * sources.change_rate, cp.inv_pos(rate))

    change, weight, signalled = drawn(n=30, decades=1.0)
    for settings in ({}, {"max_rate": 0.2, "min_rate": 0.01}):
        sources = fo.Sources(change, weight, **settings)  # type: ignore[arg-type]
        own, named = (
            fo.solve(fo.Problem(one, sources, 3.0, profile=Savings()))
            for one in (Delay(), AccumulatedDelay(PERIODIC))
        )
        assert own.value == pytest.approx(named.value, rel=SCALAR)
    refused(
        "cost of equal gaps",
        fo.Problem,
        Delay(),
        fo.Sources(change, signalled=signalled),
        3.0,
        error=fo.ObjectiveError,
    )


@dataclass(frozen=True)
class Contradictory(SquaredChanges):
    """Under both disciplines the same, which no cost of age allows."""

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance * sources.change_rate, cp.inv_pos(rate))


class Flattening(fo.Objective):
    """A power that is none of a number of changes."""

    penalty_of = "changes"

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance, cp.power(rate, -0.5))


class Charged(Flattening):
    """With a price for each refresh, at which more is worse in the end."""

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance, cp.inv_pos(rate) + rate)


class Unclaimed(Flattening):
    """Nothing is said of it."""

    penalty_of = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("objective", "more", "why"),
    [
        (Contradictory(PERIODIC), {"signalled": True}, "at random gaps costs"),
        (Flattening(), {"signalled": True}, "no penalty of 'changes'"),
        (Flattening(), {"changed_cost": 3.0}, "no penalty of 'changes'"),
        (Charged(), {"signalled": True}, "no penalty of 'changes'"),
        (Unclaimed(), {"signalled": True}, "nor penalty_of"),
        (Unclaimed(), {"changed_cost": 3.0}, "penalty_of"),
        (fo.Expected(Harmonic(), [[1.0, 2.0]], [0.5, 0.5]), {"signalled": True}, "to expect"),
    ],
)
def test_what_does_not_follow_is_refused(objective: fo.Objective, more: dict[str, object], why: str) -> None:
    sources = fo.Sources([1.5], **more)  # type: ignore[arg-type]
    refused(why, fo.Problem, objective, sources, 1.0, error=fo.ObjectiveError)


def test_derived_costs_have_no_declared_form() -> None:
    problem = fo.Problem(Harmonic(), fo.Sources([1.0, 2.0], signalled=True), 1.0)
    for solver in (fo.solvers.Conic(), fo.solvers.SeparableNewton()):
        refused(
            "numerics and no declared form",
            fo.solve,
            problem,
            solver,
            error=(fo.ObjectiveError, fo.SolverRefusedError),
        )
    refused("numerics and no declared form", problem.to_cvxpy, error=fo.ObjectiveError)
    phased = fo.Problem(SquaredChanges(PERIODIC), fo.Sources([0.1, 0.2]), 0.3, profile=Savings())
    refused("numerics and no declared form", phased.to_cvxpy, error=fo.ObjectiveError)


def test_what_is_no_penalty_is_refused() -> None:
    with pytest.raises(fo.ObjectiveError, match="Did you mean 'changes'"):
        type("Odd", (fo.Objective,), {"penalty_of": "change"})
