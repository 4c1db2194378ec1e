"""`instances`: seeded problem families for an objective.

Their data are benign or range over ten decades.

Each kind is there because solvers were seen to fail on it: bounds that bind, bounds that leave the bandwidth
unused, hosts that take less than the bandwidth, sources without importance, a lower bound on everything, one
source alone. Budgets run from starvation (a thousandth of all changes) to plenty (twenty times as much).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import check_seed, expect, one_of
from freshopt.modelling.cost_curve import CurveObjective
from freshopt.modelling.objective import Objective, Refresh, as_objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, as_whole, total
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryCost,
    BinaryFreshness,
    ExpectedPenalty,
    HarmonicStaleness,
    LogFreshness,
    PiecewiseLinearCost,
    PollingKnapsack,
    PowerCost,
    SynchronizationCost,
)
from freshopt.testing.constrained_families import CONSTRAINED
from freshopt.testing.recipe import Recipe

Scale = Literal["benign", "ill"]
SCALES: tuple[Scale, ...] = ("benign", "ill")
# Most sources of an instance: the columns of the problem then take 8 GB.
MOST = 100_000_000
# Numbers of sources in one validation; some solvers go wrong from a size on, where they change their method.
SIZES = (1, 2, 10, 30, 300)
# Bandwidths in units of the sum of the change rates.
BUDGETS = (1e-3, 0.5, 20.0)
# Relative slack below a bandwidth that min_rate is to use up, so that rounding does not make it infeasible.
ROUNDING = 1e-9


class Instance(NamedTuple):
    """A named problem of a family."""

    name: str
    problem: Problem


def instances(
    objective: Objective | str,
    n: int = 10,
    seed: int = 0,
    scale: Scale = "benign",
    *,
    constraints: bool = False,
    conditional: bool = False,
) -> Iterator[Instance]:
    """Yield named problems: each constraint kind at each budget.

    Parameters
    ----------
    objective : Objective or str
        If it holds arrays of length n, its ``take`` must cut them (one kind has a single source).
    n : int
        Sources, ≥ 1.
    seed : int
        The same seed yields the same problems.
    scale : {"benign", "ill"}
        Change rates Δ and importances w lognormal(0, 1), or w = 10^U(−6, 6) and Δ = 10^U(−6, 4) per day.
    constraints : bool
        Whether to yield the families with declared constraints in place of the others: several budgets,
        nested limits, targets, the cheapest rates under a target, the fairest, ties and ratios.
    conditional : bool
        Whether to yield the families of fetches that cost what they bring in place of the others; none of an
        objective that refuses them.

    Yields
    ------
    Instance
        ``(name, problem)``. Bandwidths are 1e-3, 0.5 and 20 times ΣΔ, or the sum of the request rates for
        refreshes on request, which are lognormal or 10^U(−6, 4) too. Signals appear where the objective
        admits them. Every problem is feasible and has a finite optimum.

    Raises
    ------
    SourceDataError
        If `n`, `seed` or `scale` is invalid.
    ObjectiveError
        If the objective is refused.

    Examples
    --------
    >>> import freshopt as fo
    >>> found = list(instances(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), n=3, seed=1))
    >>> len(found), found[0].name
    (60, 'plain, bandwidth 0.001·ΣΔ')
    """
    objective = as_objective(objective, "day")
    n, seed = as_whole(n, "n", 1, MOST), check_seed(seed)
    one_of(scale, SCALES, "scale")
    expect(constraints, (bool, np.bool_), "constraints", "Pass True or False")
    expect(conditional, (bool, np.bool_), "conditional", "Pass True or False")
    kinds = CONDITIONAL if conditional else CONSTRAINED if constraints else KINDS
    start = 1000 if conditional else len(KINDS) if constraints else 0
    for position, (kind, change) in enumerate(kinds.items(), start=start):
        if "signal" in kind and objective.refuses_signals() is not None:
            continue
        # Periodic attempts need a cost of age; there are no attempts on request.
        curved = objective.refresh is Refresh.POISSON or isinstance(objective, CurveObjective)
        if "fail" in kind and (not curved or objective.refresh is Refresh.ON_REQUEST):
            continue
        for budget in BUDGETS:
            rng = np.random.default_rng([seed, n, position, SCALES.index(scale)])
            recipe = change(_plain(objective, n, budget, scale, rng), rng)
            if conditional and refuses_conditional_fetches(objective, recipe):
                continue
            unit = "ΣΔ" if recipe.request_rate is None else "Σζ"
            yield Instance(f"{kind}, bandwidth {budget:g}·{unit}", recipe.problem())


def refuses_conditional_fetches(objective: Objective, recipe: Recipe) -> bool:
    """Return whether an objective refuses conditional fetches."""
    sources = Sources(recipe.change_rate, refresh_cost=recipe.refresh_cost, changed_cost=recipe.changed_cost)
    return (
        recipe.objective.convex_per_bandwidth(sources) is not None or objective.refresh is Refresh.ON_REQUEST
    )


def standard_objectives() -> tuple[Objective, ...]:
    """Return the named objectives under each of their disciplines.

    Refreshes on request, which need request rates, are not among them; `instances` takes such objectives too.

    Examples
    --------
    >>> standard_objectives()[2:4]
    (BinaryFreshness(refresh=Refresh.POISSON), BinaryFreshness(refresh=Refresh.PERIODIC))
    """
    both = (Refresh.POISSON, Refresh.PERIODIC)
    deadline = PiecewiseLinearCost(slopes=[0.0, 1.0], intercepts=[0.0, -2.0])
    return (
        *(HarmonicStaleness(refresh) for refresh in both),
        *(BinaryFreshness(refresh) for refresh in both),
        *(LogFreshness(refresh) for refresh in both),
        *(AccumulatedDelay(refresh) for refresh in both),
        *(Age(refresh) for refresh in both),
        *(SynchronizationCost(PowerCost(1.0, 0.5), refresh) for refresh in both),
        SynchronizationCost(PowerCost(1.0, 0.5, cap=1.0)),
        *(SynchronizationCost(BinaryCost(), refresh) for refresh in both),
        SynchronizationCost(deadline),
        PollingKnapsack("polls"),
        PollingKnapsack("materials"),
        ExpectedPenalty(np.sqrt),
    )


def _plain(objective: Objective, n: int, budget: float, scale: Scale, rng: np.random.Generator) -> Recipe:
    if scale == "ill":
        d, w = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    else:
        d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    asked = None
    if objective.refresh is Refresh.ON_REQUEST:
        asked = 10.0 ** rng.uniform(-6.0, 4.0, n) if scale == "ill" else rng.lognormal(0.0, 1.0, n)
    return Recipe(
        objective,
        budget * total(d if asked is None else asked),
        change_rate=d,
        importance=w,
        signalled=np.zeros(n, dtype=np.bool_),
        min_rate=np.zeros(n),
        max_rate=np.full(n, np.inf),
        refresh_cost=np.ones(n),
        success=np.ones(n),
        request_rate=asked,
        changed_cost=np.zeros(n),
    )


def _lower(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Bound half of the rates from below.

    Bounds are 0.1 to 3 times an even share and take at most nine tenths of the bandwidth.
    """
    n = len(recipe)
    floor = recipe.available / n / recipe.refresh_cost * 10.0 ** rng.uniform(-1.0, 0.5, n) * _some(rng, n)
    floor *= min(
        1.0, 0.9 * recipe.available / max(total(recipe.refresh_cost * floor), recipe.available * ROUNDING)
    )
    return replace(recipe, min_rate=np.minimum(floor, recipe.most / 2.0))


def _upper(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Bound half of the rates from above.

    Bounds are 0.01 to 2 times an even share, at least the lower bounds.
    """
    n = len(recipe)
    cap = recipe.available / n / recipe.refresh_cost * 10.0 ** rng.uniform(-2.0, 0.3, n)
    return replace(recipe, max_rate=np.where(_some(rng, n), np.maximum(cap, recipe.min_rate), np.inf))


def _both(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Bound on both sides; fix the last source's rate."""
    bounded = _upper(_lower(recipe, rng), rng)
    floor, cap = bounded.min_rate.copy(), bounded.max_rate.copy()
    floor[-1] = min(
        0.1 * recipe.available / len(recipe) / recipe.refresh_cost[-1],
        recipe.change_rate[-1] / 2.0,
        recipe.most[-1] / 2.0,
    )
    cap[-1] = floor[-1]
    return replace(bounded, min_rate=floor, max_rate=cap)


def _no_room(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Make the lower bounds use all of the bandwidth."""
    shares = rng.dirichlet(np.ones(len(recipe)))
    floor = recipe.available * (1.0 - ROUNDING) * shares / recipe.refresh_cost
    return replace(recipe, min_rate=np.minimum(floor, recipe.most))


def _idle(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Make the upper bounds leave bandwidth unused."""
    n = len(recipe)
    return replace(recipe, max_rate=recipe.available / n / recipe.refresh_cost * rng.uniform(0.2, 0.9, n))


def _hosts(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Limit two of three hosts around their even shares."""
    host = np.array(["a", "b", "free"])[rng.integers(0, 3, len(recipe))]
    host[0] = "a"
    return _limited(recipe, host, ("a", "b"), rng.uniform(0.3, 1.5, 2))


def _thin_hosts(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Limit all hosts to less than the bandwidth together."""
    host = np.array(["a", "b", "c"])[rng.integers(0, 3, len(recipe))]
    return _limited(recipe, host, ("a", "b", "c"), rng.uniform(0.2, 0.9, 3))


def _limited(recipe: Recipe, host: npt.NDArray[np.str_], names: tuple[str, ...], share: Array) -> Recipe:
    """Limit hosts to multiples of their even shares, feasibly."""
    limits = {}
    for name, factor in zip(names, share, strict=True):
        members = host == name
        if bool(np.any(members)):
            least = float(np.sum((recipe.refresh_cost * recipe.min_rate)[members]))
            even = recipe.available * float(np.mean(members))
            limits[name] = max(float(factor) * even, 1.01 * least)
    return replace(recipe, host=host, host_limits=limits)


def _signals(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Make half of the sources signalled, the first included."""
    signalled = _some(rng, len(recipe))
    signalled[0] = True
    return replace(recipe, signalled=signalled)


def _costs(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    return replace(recipe, refresh_cost=10.0 ** rng.uniform(-1.0, 1.0, len(recipe)))


def _failures(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Let the fetches of some sources fail."""
    chance = 10.0 ** rng.uniform(-1.0, 0.0, len(recipe))
    return replace(recipe, success=np.where(_some(rng, len(recipe)), chance, 1.0))


def _ties(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Create ties: two change rates, two importances."""
    two = rng.integers(0, 2, (2, len(recipe)))
    d, w = recipe.change_rate[:2], recipe.importance[:2]
    return replace(recipe, change_rate=d[two[0] % len(d)], importance=w[two[1] % len(w)])


def _zeros(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Set half of the importances to 0, not the first."""
    kept = _some(rng, len(recipe))
    kept[0] = True
    return replace(recipe, importance=recipe.importance * kept)


def _some(rng: np.random.Generator, n: int) -> BoolArray:
    return rng.random(n) < 0.5


def _everything(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    for change in (_costs, _zeros, _lower, _upper, _hosts):
        recipe = change(recipe, rng)
    return recipe


KINDS: dict[str, Callable[[Recipe, np.random.Generator], Recipe]] = {
    "plain": lambda recipe, _: recipe,
    "lower bounds": _lower,
    "upper bounds": _upper,
    "both bounds": _both,
    "lower bounds that use the bandwidth up": _no_room,
    "upper bounds that leave bandwidth unused": _idle,
    "hosts": _hosts,
    "hosts that leave bandwidth unused": _thin_hosts,
    "signals": _signals,
    "all on signal": lambda recipe, _: replace(recipe, signalled=np.ones(len(recipe), dtype=np.bool_)),
    "signals, bounds, costs and hosts": lambda recipe, rng: _everything(_signals(recipe, rng), rng),
    "unequal costs": _costs,
    "ties": _ties,
    "all alike": lambda recipe, _: recipe.take(np.zeros(len(recipe), dtype=np.int64)),
    "zero importances": _zeros,
    "no importance at all": lambda recipe, _: replace(recipe, importance=np.zeros(len(recipe))),
    "bounds, costs and hosts": _everything,
    "one source": lambda recipe, _: recipe.take(np.zeros(1, dtype=np.int64)),
    "fetches that fail": _failures,
    "fetches that fail, bounds, costs and hosts": lambda recipe, rng: _everything(
        _failures(recipe, rng), rng
    ),
}


def _changed(most: float) -> Callable[[Recipe, np.random.Generator], Recipe]:
    """Let changed fetches cost up to `most` times as much."""

    def change(recipe: Recipe, rng: np.random.Generator) -> Recipe:
        dear = most ** rng.uniform(-1.0, 1.0, len(recipe)) * _some(rng, len(recipe))
        dear[0] = most
        return replace(recipe, changed_cost=recipe.refresh_cost * dear)

    return change


def _changed_everything(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """Bounds, costs, hosts and conditional fetches, with limits for whatever min_rate needs."""
    recipe = _changed(100.0)(_everything(recipe, rng), rng)
    shrunk = recipe.min_rate / (1.0 + recipe.changed_cost / recipe.refresh_cost)
    return replace(recipe, min_rate=shrunk)


CONDITIONAL: dict[str, Callable[[Recipe, np.random.Generator], Recipe]] = {
    "changes cost as much again": _changed(1.0),
    "changes cost ten times as much": _changed(10.0),
    "changes cost a million times as much": _changed(1e6),
    "changes cost, bounds, costs and hosts": _changed_everything,
    "changes cost, ties": lambda recipe, rng: _changed(3.0)(_ties(recipe, rng), rng),
    "changes cost, zero importances": lambda recipe, rng: _changed(30.0)(_zeros(recipe, rng), rng),
    "changes cost, one source": lambda recipe, rng: _changed(10.0)(
        recipe.take(np.zeros(1, dtype=np.int64)), rng
    ),
}
