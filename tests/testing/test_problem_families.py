"""The kit's families: every problem exists and is solved, every kind of constraint is there and binds."""

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt.solvers import WaterFilling
from freshopt.testing import instances, standard_objectives
from tests.ground_truth.strata import matrix, stratified
from tests.ground_truth.tolerances import EXACT, SCALAR

DELAY = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
REFUSING = (fo.problems.LaterThan(1.0), fo.problems.PollingKnapsack())


ON_REQUEST = fo.Refresh.ON_REQUEST
REQUESTS = (
    fo.problems.HarmonicStaleness(ON_REQUEST),
    fo.problems.BinaryFreshness(ON_REQUEST),
    fo.problems.AccumulatedDelay(ON_REQUEST),
    fo.problems.Age(ON_REQUEST),
    fo.problems.SynchronizationCost(fo.problems.PowerCost(1.0, 0.5), ON_REQUEST),
)


def kinds(objective: fo.Objective, n: int = 5) -> set[str]:
    return {name.split(", bandwidth")[0] for name, _ in instances(objective, n)}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("objective", "n", "scale"),
    stratified(standard_objectives(), [1, 7], ["benign", "ill"], every=3),
    ids=repr,
)
def test_every_instance_exists_and_is_solved(objective: fo.Objective, n: int, scale: str) -> None:
    every_instance_is_solved(objective, n, scale)


@pytest.mark.exhaustive
@matrix(scale=["ill", "benign"], n=[1, 7, 60])
@pytest.mark.parametrize("objective", REQUESTS, ids=repr)
def test_every_instance_on_request_is_solved(objective: fo.Objective, n: int, scale: str) -> None:
    every_instance_is_solved(objective, n, scale)


def every_instance_is_solved(objective: fo.Objective, n: int, scale: str) -> None:
    """Feasible by arithmetic of the test's own, and with a finite optimum."""
    found = list(instances(objective, n, 3, scale))  # type: ignore[arg-type]
    assert len({name for name, _ in found}) == len(found) >= 40
    for name, problem in found:
        s = problem.sources
        assert len(s) == (1 if name.startswith("one source") else n)
        assert math.fsum(s.refresh_cost * problem.lower) <= problem.bandwidth * (1 + EXACT)
        assert np.all(problem.lower <= problem.upper)
        for host, limit in problem.host_limits.items():
            assert math.fsum((s.refresh_cost * problem.lower)[s.host == host]) <= limit
        solution = fo.solve(problem, WaterFilling(), tolerance=SCALAR)
        assert math.isfinite(solution.value)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scale", ["benign", "ill"])
def test_no_seed_yields_an_infeasible_problem(scale: str) -> None:
    for seed in range(10):
        for n in (1, 2, 3, 5, 40):
            for name, problem in instances(DELAY, n, seed, scale):  # type: ignore[arg-type]
                room = problem.bandwidth * (1 + EXACT) - math.fsum(
                    problem.sources.refresh_cost * problem.lower
                )
                assert room >= 0.0, name


def test_the_constraints_are_there_and_bind() -> None:
    """Without constraints that bind, a family would let through a solver that ignores them."""
    binding: set[str] = set()
    for name, problem in instances(DELAY, 10, 0):
        solution = fo.solve(problem)
        s, kind = problem.sources, name.split(", bandwidth")[0]
        used = float(s.refresh_cost @ solution.rates)
        free = (problem.lower < solution.rates) & (solution.rates < problem.upper)
        facts = {
            "low": np.any((solution.rates == problem.lower) & (problem.lower > 0) & (s.importance > 0)),
            "high": np.any((solution.rates == problem.upper) & ~s.signalled),
            "host": any(price > 0 for price in solution.host_prices.values()),
            "idle": used < 0.99 * problem.bandwidth and solution.price == 0.0,
            "signal": np.any(s.signalled) and np.any(free & s.signalled),
            "mixed": np.any(s.signalled) and not np.all(s.signalled),
            "cost": np.ptp(s.refresh_cost) > 1.0,
            "ties": len(np.unique(np.stack([s.change_rate, s.importance]), axis=1).T) <= 4 < len(s),
            "zero": np.any(s.importance == 0) and np.any(s.importance > 0),
            "nothing": np.all(s.importance == 0),
            "one": len(s) == 1,
        }
        binding |= {f"{kind}: {fact}" for fact, holds in facts.items() if holds}
    assert {
        "lower bounds: low",
        "upper bounds: high",
        "both bounds: low",
        "both bounds: high",
        "lower bounds that use the bandwidth up: low",
        "upper bounds that leave bandwidth unused: idle",
        "hosts: host",
        "hosts that leave bandwidth unused: idle",
        "signals: mixed",
        "signals: signal",
        "all on signal: idle",
        "signals, bounds, costs and hosts: mixed",
        "unequal costs: cost",
        "ties: ties",
        "all alike: ties",
        "zero importances: zero",
        "no importance at all: nothing",
        "bounds, costs and hosts: host",
        "bounds, costs and hosts: low",
        "one source: one",
    } <= binding


def test_budgets_and_scales_are_as_stated() -> None:
    for scale, decades in (("benign", 3.0), ("ill", 6.0)):
        plain = [p for name, p in instances(DELAY, 200, 1, scale) if name.startswith("plain")]  # type: ignore[arg-type]
        shares = [p.bandwidth / math.fsum(p.sources.change_rate) for p in plain]
        assert np.allclose(shares, [1e-3, 0.5, 20.0], rtol=EXACT, atol=0.0)
        d, w = plain[0].sources.change_rate, plain[0].sources.importance
        spread = min(math.log10(x.max() / x.min()) for x in (d, w))
        assert (spread > decades) == (scale == "ill")
        if scale == "ill":
            assert d.min() >= 1e-6
            assert d.max() <= 1e4
            assert w.min() >= 1e-6
            assert w.max() <= 1e6


def test_signals_appear_where_the_objective_admits_them() -> None:
    assert {"signals", "all on signal", "signals, bounds, costs and hosts"} <= kinds(DELAY)
    for objective in REFUSING:
        assert {kind for kind in kinds(DELAY) - kinds(objective) if "fail" not in kind} == {
            "signals",
            "all on signal",
            "signals, bounds, costs and hosts",
        }


def test_the_seed_decides() -> None:
    def rates(seed: int, n: int = 4) -> list[float]:
        return [x for _, p in instances(DELAY, n, seed) for x in p.sources.change_rate.tolist()]

    assert rates(5) == rates(5)
    assert rates(5) != rates(6)


@pytest.mark.parametrize(
    ("arguments", "word"), [((0, 0, "benign"), "n is 0"), ((3, -1, "ill"), "-1"), ((3, 0, "bad"), "'bad'")]
)
def test_families_that_do_not_exist_are_refused(arguments: tuple[int, int, str], word: str) -> None:
    with pytest.raises(fo.SourceDataError, match=word):
        next(instances(DELAY, *arguments))  # type: ignore[arg-type]
