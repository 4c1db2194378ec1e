"""`shrink`: greedy simplification of a failing problem.

Fewer sources first, in halves and then one by one, the bandwidth cut along with them; then fewer features,
each first for all sources at once; then rounder numbers. Every step keeps the failure, and no step undoes
another, so that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from freshopt.errors import FreshoptError
from freshopt.numerics.arrays import Array, IntArray
from freshopt.testing.recipe import COLUMNS, DEFAULTS, Recipe

Edit: TypeAlias = Callable[[Recipe], Recipe]
# Solver runs at most; with ten sources a kind of failure takes 5 to 30.
RUNS = 200
DIGITS = (1, 2, 3)


def shrink(recipe: Recipe, fails: Callable[[Recipe], bool], runs: int = RUNS) -> Recipe:
    """Return a simpler recipe that still fails.

    Parameters
    ----------
    recipe : Recipe
        It fails.
    fails : callable
        Returns whether a recipe fails in the same way; called for problems that exist only.
    runs : int
        Calls of `fails` at most.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([0.123, 1.0, 4.56]), bandwidth=2.718)
    >>> small = shrink(Recipe.from_problem(problem), lambda recipe: bool(recipe.change_rate.max() > 1.5))
    >>> small.change_rate, small.bandwidth
    (array([5.]), 1.0)
    """
    left = runs

    def keeps(candidate: Recipe) -> bool:
        nonlocal left
        try:
            candidate.problem()
        except (FreshoptError, ValueError):  # ValueError: a user's objective with arrays of another length
            return False
        left -= 1
        return left >= 0 and fails(candidate)

    before = None
    while before is not recipe and left > 0:
        before = recipe
        recipe = _fewer_sources(recipe, keeps)
        for edit in _edits(recipe):
            candidate = edit(recipe)
            if candidate is not recipe and keeps(candidate):
                recipe = candidate
    return recipe


def _fewer_sources(recipe: Recipe, keeps: Callable[[Recipe], bool]) -> Recipe:
    """Drop chunks of sources while the failure persists."""
    chunk = max(1, len(recipe) // 2)
    while chunk >= 1:
        start = 0
        while start < len(recipe) and len(recipe) > 1:
            kept = np.delete(np.arange(len(recipe)), np.s_[start : start + chunk])
            smaller = next((c for c in _cut(recipe, kept) if keeps(c)), None) if len(kept) else None
            if smaller is None:
                start += chunk
            else:
                recipe = smaller
        chunk //= 2
    return recipe


def _cut(recipe: Recipe, kept: IntArray) -> Iterator[Recipe]:
    """Yield recipes of some sources, bandwidth and limits scaled first."""
    try:
        part = recipe.take(kept)
    except (FreshoptError, ValueError):  # a constraint that needs all sources
        return
    share = len(part) / len(recipe)
    limits = {host: limit * share for host, limit in part.host_limits.items()}
    if recipe.bandwidth is not None:
        yield replace(part, bandwidth=recipe.bandwidth * share, host_limits=limits)
    yield part


def _edits(recipe: Recipe) -> Iterator[Edit]:
    """Yield simplifications: fewer features, then rounder numbers.

    Each is tried for all sources at once, then for one.
    """
    n = len(recipe)
    scopes = [np.arange(n), *([np.array([k]) for k in range(n)] if n > 1 else [])]
    yield _without_names
    yield _without_hosts
    for one in recipe.constraints:
        yield partial(_without_constraint, constraint=one)
    for host in recipe.host_limits:
        yield partial(_without_limit, host=host)
    for key, default in (*DEFAULTS.items(), ("change_rate", 1.0)):
        for scope in scopes:
            yield partial(_set, key=key, scope=scope, value=partial(np.full_like, fill_value=default))
    yield _with_unit_bandwidth
    for digits in DIGITS:
        for key in (key for key in COLUMNS if key != "signalled"):
            for scope in scopes:
                yield partial(_set, key=key, scope=scope, value=partial(_round, digits=digits))
        yield partial(_round_totals, digits=digits)


def _without_names(recipe: Recipe) -> Recipe:
    return recipe if recipe.name is None else replace(recipe, name=None)


def _without_hosts(recipe: Recipe) -> Recipe:
    return recipe if recipe.host is None else replace(recipe, host=None, host_limits={})


def _without_constraint(recipe: Recipe, constraint: object) -> Recipe:
    """Remove a constraint; return the same recipe if it is gone."""
    kept = tuple(one for one in recipe.constraints if one is not constraint)
    return recipe if len(kept) == len(recipe.constraints) else replace(recipe, constraints=kept)


def _with_unit_bandwidth(recipe: Recipe) -> Recipe:
    return recipe if recipe.bandwidth in (1.0, None) else replace(recipe, bandwidth=1.0)


def _without_limit(recipe: Recipe, host: object) -> Recipe:
    """Remove a host's limit; return the same recipe without one."""
    if host not in recipe.host_limits:
        return recipe
    return replace(recipe, host_limits={h: limit for h, limit in recipe.host_limits.items() if h != host})


def _set(recipe: Recipe, key: str, scope: IntArray, value: Callable[[Array], Array]) -> Recipe:
    """Set part of a column, if that changes it."""
    column: Array = getattr(recipe, key)
    changed = column.copy()
    changed[scope] = value(column[scope])
    if np.array_equal(changed, column):
        return recipe
    changes: dict[str, Any] = {key: changed}
    return replace(recipe, **changes)


def _round_totals(recipe: Recipe, digits: int) -> Recipe:
    """Round the bandwidth and the limits."""
    bandwidth = None if recipe.bandwidth is None else _round([recipe.bandwidth], digits).item()
    limits = {host: _round([limit], digits).item() for host, limit in recipe.host_limits.items()}
    if bandwidth == recipe.bandwidth and limits == recipe.host_limits:
        return recipe
    return replace(recipe, bandwidth=bandwidth, host_limits=limits)


def _round(numbers: Iterable[float], digits: int) -> Array:
    """Round to significant digits.

    Examples
    --------
    >>> _round([123.4, 0.05678, np.inf], 2)
    array([1.2e+02, 5.7e-02,     inf])
    """
    return np.array([float(f"{number:.{digits - 1}e}") for number in numbers])
