"""Costs of use that are infinite from some use on, or up to one, and what must be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.modelling.constraints.constraint import Constraint

DELAY = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
BY = np.arange(24) % 3
Cost = Callable[[float], Callable[[Expression], Any]]
# Costs of use up to a capacity; the last one is finite there, but not its slope.
COSTS: dict[str, Cost] = {
    "queue": lambda most: lambda u: most * cp.inv_pos(most - u) - 1.0,
    "barrier": lambda most: lambda u: -cp.log(most - u),
    "root": lambda most: lambda u: -cp.sqrt(most - u),
}


def sources(n: int = 24, **given: Any) -> fo.Sources:  # noqa: ANN401
    """Return sources without bounds."""
    rng = np.random.default_rng(5)
    return fo.Sources(10.0 ** rng.uniform(-1.0, 1.0, n), 10.0 ** rng.uniform(-1.0, 1.0, n), **given)


def shapes(cost: Any, whole: float, by: Any = BY) -> dict[str, list[Constraint]]:  # noqa: ANN401
    """Return reserves that add up to 9 beside costs that end where all use `whole`."""
    all_use = fo.Priced(fo.Budget(name="use"), cost(whole))
    each = fo.Priced(fo.Budget(by=by, name="shop"), cost(whole / 3.0))
    return {
        "of the same sum": [fo.Priced(fo.Budget(name="use", at_least=9.0), cost(whole))],
        "beside it": [all_use, fo.Budget(at_least=9.0, name="all")],
        "of groups": [each, fo.Budget(by=by, at_least=3.0, name="own")],
        "of groups under the whole": [all_use, fo.Budget(by=by, at_least=3.0, name="own")],
        "of priced groups": [
            all_use,
            fo.Priced(fo.Budget(by=by, at_least=3.0, name="own"), {0: 0.1, 4: 1.0}),
        ],
        "of the whole over groups": [each, fo.Budget(at_least=9.0, name="all")],
    }


NAMES = {
    "of the same sum": ("cost of use", "use must use 9"),
    "beside it": ("'cost of use'", "'all reserve'"),
    "of groups": ("'cost of shop[", "'own reserve["),
    "of groups under the whole": ("'cost of use'", "'own reserve[0]'"),
    "of priced groups": ("'cost of use'", "'cost of own[0, less]'"),
    "of the whole over groups": ("'cost of shop[0]'", "'all reserve'"),
}


@pytest.mark.parametrize("shape", list(NAMES))
@pytest.mark.parametrize("name", list(COSTS))
def test_reserves_beyond_the_domain_are_named(shape: str, name: str) -> None:
    """They are refused when declared, however little they are beyond; reserves within it are met."""
    for whole in (4.0, 9.0 * (1.0 - 1e-9), 9.0 * (1.0 - 1e-13)):
        with pytest.raises(fo.InfeasibleProblemError) as refused:
            fo.Problem(DELAY, sources(), constraints=shapes(COSTS[name], whole)[shape])
        assert all(part in str(refused.value) for part in NAMES[shape])
        assert "\n" not in str(refused.value)
    for whole in (9.1, 12.0):
        solution = fo.solve(fo.Problem(DELAY, sources(), constraints=shapes(COSTS[name], whole)[shape]))
        assert np.sum(solution.rates) >= 9.0 * (1.0 - 1e-12)


@pytest.mark.parametrize("shape", list(NAMES))
@pytest.mark.parametrize("name", list(COSTS))
def test_a_capacity_is_out_of_reach(shape: str, name: str) -> None:
    """Where the slope is infinite there, no price pays for a reserve of just as much."""
    with pytest.raises(fo.InfeasibleProblemError):
        fo.Problem(DELAY, sources(), constraints=shapes(COSTS[name], 9.0)[shape])


def test_many_sources_are_refused_before_a_search() -> None:
    """Conflicts are found by arithmetic, and no program is solved."""
    by = np.arange(10_000) % 4
    cases = shapes(COSTS["queue"], 4.0, by)
    for constraints in cases.values():
        with pytest.raises(fo.InfeasibleProblemError):
            fo.Problem(DELAY, sources(10_000), constraints=constraints)


def test_utilities_that_begin_beyond_a_limit_are_named() -> None:
    """A utility of uses above 3 alone cannot have 2."""
    fair = fo.Priced(fo.Budget(by=BY, name="shop"), lambda u: -cp.log(u - 1.0))
    with pytest.raises(fo.InfeasibleProblemError, match=r"'cost of shop\[0\]'.*may use 2 \('cap'\)"):
        fo.Problem(DELAY, sources(), constraints=[fair, fo.Budget(2.0, name="cap")])
    assert fo.solve(fo.Problem(DELAY, sources(), constraints=[fair, fo.Budget(4.0, name="cap")]))


def test_least_rates_beyond_the_domain_are_named() -> None:
    """Lower bounds of rates use up a capacity as reserves do."""
    priced = fo.Priced(fo.Budget(name="use"), COSTS["queue"](9.0))
    with pytest.raises(fo.InfeasibleProblemError, match=r"must use 24 \(min_rate\).*'cost of use'"):
        fo.Problem(DELAY, sources(min_rate=1.0), constraints=[priced])


def test_capacity_0_is_named() -> None:
    """A cost that is infinite everywhere allows nothing."""
    with pytest.raises(fo.InfeasibleProblemError, match=r"cost of use.* allow nothing, not even 0\."):
        fo.Problem(DELAY, sources(), constraints=[fo.Priced(fo.Budget(name="use"), COSTS["barrier"](0.0))])


def test_conflicts_of_other_units_say_what_costs_allow() -> None:
    """Rows in several units are no tree: the conflict that is proved has the capacity for a limit."""
    cost = np.linspace(1.0, 3.0, 24)
    kilobytes = fo.Budget(cost=cost, at_least=40.0, name="kB")
    priced = fo.Priced(fo.Budget(name="use"), COSTS["queue"](9.0))
    with pytest.raises(fo.InfeasibleProblemError, match=r"kB reserve >= 40 and cost of use <= 9 cannot both"):
        fo.solve(fo.Problem(DELAY, sources(), constraints=[kilobytes, priced]))
