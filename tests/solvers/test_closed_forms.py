"""Closed forms, and cones against them."""

import numpy as np
import pytest

import freshopt as fo
from freshopt import problems
from freshopt.modelling.objective import Objective, counts_signals
from freshopt.solvers import ClosedForm, Conic, WaterFilling
from tests.ground_truth import named
from tests.ground_truth.cost_truth import Floats
from tests.ground_truth.named import present
from tests.ground_truth.strata import matrix, stratified
from tests.ground_truth.tolerances import CONIC, EXACT

SIZES = (1, 2, 10, 1000)


def change_rates(n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return 10 ** np.random.default_rng(n).uniform(-6, 4, n)


def agree(problem: fo.Problem) -> None:
    closed, exact = fo.solve(problem, ClosedForm(), tolerance=EXACT), fo.solve(problem)
    assert np.all(np.abs(closed.rates - exact.rates) <= EXACT * exact.rates)
    assert abs(closed.price - exact.price) <= EXACT * exact.price
    assert abs(closed.value - exact.value) <= EXACT * abs(exact.value)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "objective", [named.HARMONIC, named.HARMONIC_PERIODIC, named.BINARY, named.BINARY_PERIODIC], ids=repr
)
def test_rates_follow_change_rates_where_importance_does(objective: fo.Objective, n: int) -> None:
    d = change_rates(n)
    problem = fo.Problem(objective, fo.Sources(d, 3.0 * d), 0.5 * float(d.sum()))
    rates = fo.solve(problem, ClosedForm()).rates
    assert np.all(np.abs(rates - 0.5 * d) <= EXACT * d)
    agree(problem)


@matrix(n=SIZES, form=["polls", "materials"])
def test_polls_follow_the_update_rates_without_weights(form: str, n: int) -> None:
    a = change_rates(n)
    objective = problems.PollingKnapsack("polls" if form == "polls" else "materials")
    problem = fo.Problem(objective, fo.Sources(a, 2.0), 0.3 * float(a.sum()))
    assert np.all(np.abs(fo.solve(problem, ClosedForm()).rates - 0.3 * a) <= EXACT * a)
    agree(problem)


@pytest.mark.parametrize("n", SIZES)
def test_signalled_sources_follow_their_importance(n: int) -> None:
    w = change_rates(n)
    cost = np.linspace(1.0, 2.0, n)
    problem = fo.Problem(
        named.HARMONIC, fo.Sources(2.0 * w, w, signalled=True, refresh_cost=cost), 0.5 * float(w.sum())
    )
    assert np.all(np.abs(fo.solve(problem, ClosedForm()).rates - 0.5 * w / cost) <= EXACT * w)
    agree(problem)


@matrix(refresh=[fo.Refresh.POISSON, named.PERIODIC], n=SIZES)
def test_the_square_root_rule(n: int, refresh: fo.Refresh) -> None:
    d = change_rates(n)
    agree(
        fo.Problem(
            problems.AccumulatedDelay(refresh),
            fo.Sources(d, d[::-1], refresh_cost=np.linspace(1.0, 2.0, n)),
            7.0,
        )
    )


@pytest.mark.parametrize(
    ("objective", "sources", "reason"),
    [
        (named.HARMONIC, fo.Sources([1.0, 2.0]), "importance/change_rate and cost are the same"),
        (named.BINARY, fo.Sources([1.0, 2.0], [1.0, 2.0], refresh_cost=[1.0, 2.0]), "cost are the same"),
        (problems.PollingKnapsack(), fo.Sources([1.0, 2.0], [1.0, 2.0]), "importance and cost are the same"),
        (named.DELAY, fo.Sources([1.0, 4.0], max_rate=[9.0, 1.2]), "bounds bind for source 1"),
        (named.HARMONIC, fo.Sources([1.0, 1.0], [1.0, 9.0], signalled=True), "bounds bind for source 1"),
    ],
)
def test_refusals(objective: fo.Objective, sources: fo.Sources, reason: str) -> None:
    with pytest.raises(fo.SolverRefusedError, match=f"ClosedForm does not apply: .*{reason}"):
        fo.solve(
            fo.Problem(objective, sources, 1.9 if reason.startswith("bounds bind") else 1.0), ClosedForm()
        )


N = 60


def deadline(missed: Floats) -> Floats:
    """Two missed changes are forgiven, beyond fifty nothing is added."""
    return np.asarray(np.clip(missed - 2.0, 0.0, 48.0))


def capped(refresh: fo.Refresh) -> Objective:
    rng = np.random.default_rng(5)
    scale, exponent = 10.0 ** rng.uniform(-6.0, 6.0, N), rng.uniform(0.1, 1.0, N)
    return problems.SynchronizationCost(
        problems.PowerCost(scale, exponent, scale * 10 ** (exponent * rng.uniform(-4, 6, N))), refresh
    )


OBJECTIVES: dict[str, Objective] = {
    "age": named.AGE,
    "age, periodic": named.AGE_PERIODIC,
    "binary": named.BINARY,
    "binary, periodic": named.BINARY_PERIODIC,
    "capped": capped(named.POISSON),
    "capped, periodic": capped(named.PERIODIC),
    "materials": problems.PollingKnapsack("materials"),
    "penalty": problems.ExpectedPenalty(np.sqrt),
    "deadline": problems.ExpectedPenalty(deadline),
}


def ill(objective: Objective, kind: str, budget: float, seed: int) -> fo.Problem | None:
    """Return an ill-scaled problem, or None where the objective declares no cost of signals."""
    rng = np.random.default_rng(seed)
    change_rate, importance = 10.0 ** rng.uniform(-6.0, 4.0, N), 10.0 ** rng.uniform(-6.0, 6.0, N)
    bandwidth = budget * float(change_rate.sum())
    draws = rng.random(N)
    signalled = draws < {"some signals": 0.5, "hosts, signals": 1.0, "all signals": 1.0}.get(kind, 0.0)
    if bool(np.any(signalled)) and (counts_signals(objective) or objective.refuses_signals()):
        return None
    host = rng.integers(0, 5, N)
    limits = (
        {int(h): bandwidth * 10 ** rng.uniform(-3.0, 0.0) for h in np.unique(host)}
        if "hosts" in kind
        else None
    )
    sources = fo.Sources(
        change_rate,
        importance,
        host=host,
        signalled=signalled,
        refresh_cost=10 ** rng.uniform(-1.0, 1.0, N) if kind == "costs" else 1.0,
    )
    return fo.Problem(objective, sources, bandwidth, limits)


def require_optimal(problem: fo.Problem) -> None:
    """The certificate must confirm it, and so must the cost of the exact dual's rates."""
    solution = fo.solve(problem, Conic("CLARABEL"), tolerance=CONIC)
    exact = fo.solve(problem, WaterFilling())
    found, best = (float(np.sum(present(problem.numerics).cost(s.rates))) for s in (solution, exact))
    hosts = sum(exact.host_prices[h] * limit for h, limit in problem.host_limits.items())
    nothing = 1e-12 * float(np.sum(problem.sources.importance))
    assert found - best <= CONIC * (abs(best) + exact.price * problem.bandwidth + hosts) + nothing


@pytest.mark.parametrize(
    ("name", "kind", "drawn"),
    stratified(
        OBJECTIVES,
        ["costs", "hosts", "some signals", "all signals"],
        list(enumerate((1e-3, 0.5, 20.0))),
        every=11,
    ),
)
@pytest.mark.sampled(5)
def test_ill_scaled_problems_are_solved_and_proved(name: str, kind: str, drawn: tuple[int, float]) -> None:
    seed, budget = drawn
    problem = ill(OBJECTIVES[name], kind, budget, seed)
    if problem is not None:
        require_optimal(problem)


@pytest.mark.parametrize(("seed", "budget"), [(3, 1e-3), (5, 0.5), (6, 0.5), (6, 20.0)])
@pytest.mark.sampled(4)
def test_bounds_that_hold_at_many_times_the_price_survive_full_hosts(seed: int, budget: float) -> None:
    """Solvers overrun a host by 1e-8 of its limit; scaling all its sources would unsettle those at bounds."""
    problem = present(ill(OBJECTIVES["age"], "hosts, signals", budget, seed))
    require_optimal(problem)


@matrix(seed=[34, 39, 84, 93, 110], every=4)
def test_rates_that_jump_near_the_price_are_seen_from_above(seed: int) -> None:
    """Two large sources whose marginals are all but flat: a crude price says little of their rates."""
    rng = np.random.default_rng(seed)
    small, worth = 10.0 ** rng.uniform(-2.0, 0.0, 6), 10.0 ** rng.uniform(-1.0, 1.0, 6)
    large = float(rng.uniform(50.0, 500.0))
    alone = fo.solve(fo.Problem(named.BINARY_PERIODIC, fo.Sources(small, worth), 1.0))
    edge = (
        alone.price * large * rng.uniform(1.005, 1.05)
    )  # importance that makes it worth 1 % more than others
    sources = fo.Sources([*small, large, 3.0 * large], [*worth, edge, 3.0 * 0.9995 * edge])
    require_optimal(fo.Problem(named.BINARY_PERIODIC, sources, 1.0 + rng.uniform(0.01, 0.3) * large / 6.0))
