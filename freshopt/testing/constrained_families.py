"""Families of problems with declared constraints.

Limits are set from reference rates in proportion to the change rates, which take nine tenths of the
bandwidth. They meet every target of a family with room; budgets and nested limits they meet once they are
halved. So each problem is feasible, and its constraints bind or nearly do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.ratio import Ratio
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.constraints.tied import Tied
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, total
from freshopt.separable.rows import Rows
from freshopt.testing.recipe import Recipe

# Share of the bandwidth that the reference rates take.
SHARE = 0.9


def _reference(recipe: Recipe) -> Array:
    """Return rates in proportion to the change rates."""
    d, bandwidth = recipe.change_rate, recipe.bandwidth
    if bandwidth is None:
        raise ObjectiveError("a family of constraints starts from a bandwidth. Pass one.")
    return SHARE * bandwidth * d / total(recipe.refresh_cost * d)


def _groups(n: int, rng: np.random.Generator, names: tuple[str, ...]) -> npt.NDArray[np.str_]:
    group = np.array(names)[rng.integers(0, len(names), n)]
    group[0] = names[0]
    return group


def _sums(amounts: Array, group: npt.NDArray[np.str_]) -> dict[str, float]:
    return {str(name): float(np.sum(amounts[group == name])) for name in np.unique(group)}


def _reached(recipe: Recipe, by: npt.NDArray[np.str_] | None) -> dict[Any, float]:
    """Return the mean of the objective at the reference rates, by group."""
    sources = Sources(recipe.change_rate, recipe.importance, refresh_cost=recipe.refresh_cost)
    side = "at_least" if recipe.objective.sense == "maximise" else "at_most"
    zero: dict[str, Any] = {side: 0.0}
    rows = Rows.gather(Target(recipe.objective, by=by, **zero).blocks(sources), len(recipe))
    keys = ["all"] if by is None else np.unique(by).tolist()
    return dict(zip(keys, rows.declared(rows.used(_reference(recipe))).tolist(), strict=True))


def _two_budgets(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    cost = rng.lognormal(0.0, 1.5, len(recipe))
    limit = float(rng.uniform(0.3, 0.9)) * total(cost * _reference(recipe))
    return _with(recipe, Budget(limit, cost=cost, name="bytes"))


def _grouped_budget(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    cost, group = rng.lognormal(0.0, 1.0, len(recipe)), _groups(len(recipe), rng, ("eu", "us", "as"))
    limits = {
        key: float(rng.uniform(0.4, 1.2)) * used
        for key, used in _sums(cost * _reference(recipe), group).items()
    }
    return _with(recipe, Budget(limits, cost=cost, by=group, name="region"))


def _nested(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    inner = _groups(len(recipe), rng, ("a", "b", "c", "d"))
    outer = np.where(np.isin(inner, ["a", "b"]), "x", "y")
    used = recipe.refresh_cost * _reference(recipe)
    most = {
        key: float(rng.uniform(0.6, 1.2)) * s for key, s in (_sums(used, inner) | _sums(used, outer)).items()
    }
    least = {key: float(rng.uniform(0.1, 0.5)) * s for key, s in _sums(used, inner).items()}
    return _with(recipe, Nested([inner, outer], at_most=most, at_least=least))


def _target(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    group = _groups(len(recipe), rng, ("news", "blog"))
    return _with(recipe, _target_of(recipe, group, rng))


def _cheapest(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    cost = rng.lognormal(0.0, 1.0, len(recipe))
    recipe = replace(recipe, refresh_cost=cost)
    group = _groups(len(recipe), rng, ("news", "blog"))
    target = _target_of(recipe, group, rng)
    return replace(recipe, objective=Spend(), bandwidth=None, constraints=(target,))


def _fairest(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    group = _groups(len(recipe), rng, ("eu", "us", "as"))
    return replace(recipe, objective=Worst(recipe.objective, by=group))


def _tied(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    bundle = _groups(len(recipe), rng, ("p", "q", "r", "s"))
    return _with(recipe, Tied(bundle, cost="once" if rng.random() < 0.5 else "each"))


def _ratios(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    n = len(recipe)
    parent = np.array([-1 if k % 3 == 0 else int(rng.integers(0, k)) for k in range(n)], dtype=np.int64)
    return _with(recipe, Ratio(of=parent, at_most=rng.uniform(0.3, 3.0, n)))


def _target_of(recipe: Recipe, group: npt.NDArray[np.str_], rng: np.random.Generator) -> Target:
    maximised = recipe.objective.sense == "maximise"
    low, high = (0.5, 0.95) if maximised else (1.05, 2.0)
    limits = {key: float(rng.uniform(low, high)) * s for key, s in _reached(recipe, group).items()}
    given: dict[str, Any] = {"at_least" if maximised else "at_most": limits}
    return Target(recipe.objective, by=group, name="target", **given)


def _with(recipe: Recipe, constraint: object) -> Recipe:
    return replace(recipe, constraints=(*recipe.constraints, constraint))


CONSTRAINED: dict[str, Callable[[Recipe, np.random.Generator], Recipe]] = {
    "two budgets": _two_budgets,
    "budget by group": _grouped_budget,
    "nested limits and reserves": _nested,
    "target by group": _target,
    "cheapest under a target": _cheapest,
    "fairest to groups": _fairest,
    "tied": _tied,
    "ratios": _ratios,
}
