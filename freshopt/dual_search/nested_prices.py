"""Exact dual solver of nested limits and reserves in one pass.

Sources of one cost vector in nested or disjoint groups, with l_a ≤ S_a ≤ L_a for what group a uses. Let ν be
the price outside a group. What its sources would use falls with ν, so the group keeps to its limit from a
price up_a on and falls to its reserve at a price low_a ≥ up_a, and both depend on its own sources alone. It
pays E_a = clip(E_parent, up_a, low_a): the price outside, unless its own limit or reserve decides. A chain of
clips is one clip, so all that a group leaves to the groups around it is an interval for the rate of each of
its sources: from those at low_a to those at up_a. One pass from the leaves to the root finds all prices, each
by a search on the slice of its own sources; one pass back down finds what is paid. The multiplier of a limit
is (E_a − E_parent)⁺ and that of a reserve (E_parent − E_a)⁺.

Where demand jumps at a price (constant marginals) the rates are the mixture of both sides that meets the
bound, so that complementary slackness holds to rounding. Cost: about ten to twenty evaluations of each source
per level of the tree.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from freshopt.compiled import backend
from freshopt.compiled.columns import Columns
from freshopt.compiled.rows.nested_groups import settle_groups
from freshopt.compiled.rows.nested_records import FEW_ULP, LOWEST_PRICE, NestedGroups
from freshopt.dual_search.nested_levels import best_responses, settle_levels
from freshopt.dual_search.typical_price import typical_log_price
from freshopt.errors import InfeasibleProblemError
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import group_sums
from freshopt.separable.kernel import Numerics
from freshopt.separable.kernel_columns import kernel_columns
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.laminar_feasibility import require_feasible
from freshopt.separable.program import Program

# Below so many sources NumPy is done before the compiled loop is loaded from its cache.
_COMPILED_FROM = 20_000


class _Settled(NamedTuple):
    """Groups' own prices, and the bounds of rates that they leave."""

    prices: Array
    lower: Array
    upper: Array
    evaluated: float


def fill_nested(program: Program, tree: LaminarTree) -> tuple[Array, Array, int]:
    """Return optimal rates, multipliers of the rows, and evaluations.

    - `program`: With `numerics`, and rows that are the tree's.
    - `tree`: Of rates; ``LaminarTree.from_rows(program.rows)``.
    - returns `rates` (n,)
    - returns `multipliers` (m,): ≥ 0, in the order of the rows.
    - returns `evaluations`: Passes over all sources, of which each is a best response at a price.
    - raises InfeasibleProblemError if no rates keep every limit and reserve.
    """
    require_feasible(tree, program.lower, program.upper)
    numerics = program.numerics
    if numerics is None:
        raise ValueError("the program has no objective, so that all multipliers are 0. Pass numerics.")
    heights, pushed = tree.bounded_heights(), tree.pushed()
    program = replace(program, upper=_declared_upper(program, tree))
    settled = _settle(program, numerics, tree, heights, pushed)
    order, nesting = tree.nesting.order, tree.nesting
    rates = np.empty(len(order))
    rates[order] = settled.upper
    pinned = _edges(program, numerics, tree, settled, rates)
    price = tree.paid(*pinned)
    # Whoever pays for a limit has the most that it leaves; the others have what they take at the price 0.
    free = np.flatnonzero(price[nesting.leaf] <= 0.0)
    if len(free):
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        most, least = settled.upper[place[free]], settled.lower[place[free]]
        unpriced = best_responses(numerics.take(free), np.full(len(free), LOWEST_PRICE) * tree.cost[free])
        rates[free] = np.clip(np.where(np.isnan(unpriced), least, unpriced), least, most)
    return rates, tree.multipliers(price), math.ceil(settled.evaluated / max(1, len(rates)))


def _settle(
    program: Program, numerics: Numerics, tree: LaminarTree, heights: list[IntArray], pushed: BoolArray
) -> _Settled:
    """Return the groups' own prices, by compiled loops where they serve."""
    nesting, order = tree.nesting, tree.nesting.order
    groups = NestedGroups(nesting.begin, nesting.end, np.stack([tree.limit, tree.reserve]), pushed)
    typical = typical_log_price(program, tree.cost)
    columns = _columns(program, numerics, tree)
    if columns is not None:
        lower, upper = program.lower[order], program.upper[order]
        own = replace(columns.take(order, len(order)), lower=lower, upper=upper)
        prices, evaluated = settle_groups(own, groups, heights, typical)
        if not bool(np.any(np.isnan(prices))):
            return _Settled(prices, lower, upper, evaluated)
    lower, upper = program.lower[order], program.upper[order]
    prices, evaluated = settle_levels(
        numerics.take(order), tree.cost[order], groups, heights, typical, lower, upper
    )
    return _Settled(prices, lower, upper, evaluated)


def _columns(program: Program, numerics: Numerics, tree: LaminarTree) -> Columns | None:
    if len(program) < _COMPILED_FROM or not backend.compiled():
        return None
    return kernel_columns(Columns, numerics, tree.cost, program.lower, program.upper)


def _declared_upper(program: Program, tree: LaminarTree) -> Array:
    """Return upper bounds without those that the limits imply.

    A source alone in its group is held by the limit, whose multiplier says what more of it brings; not by the
    bound that follows from it.
    """
    nesting, lower = tree.nesting, program.lower
    if not bool(np.any(np.isfinite(program.upper))):
        return program.upper
    needed = group_sums(tree.cost * lower, nesting.leaf, len(tree))
    levels = tree.levels()
    for groups in levels[:0:-1]:
        np.add.at(needed, nesting.parent[groups], needed[groups])
    room = np.maximum(0.0, tree.limit - needed)
    for groups in levels[1:]:
        room[groups] = np.minimum(room[groups], room[nesting.parent[groups]])
    implied = lower + room[nesting.leaf] / tree.cost
    return np.where(program.upper >= implied * (1.0 - FEW_ULP), np.inf, program.upper)


def _edges(
    program: Program, numerics: Numerics, tree: LaminarTree, settled: _Settled, rates: Array
) -> tuple[Array, Array]:
    """Return the groups' prices, also where bounds of rates decide.

    Where lower bounds use up a limit, the least price at which no source takes more; where upper bounds are a
    reserve, the highest at which none takes less.
    """
    upper_price, lower_price = np.array(settled.prices[0]), np.array(settled.prices[1])
    full, scarce = np.flatnonzero(upper_price == np.inf), np.flatnonzero(lower_price == -np.inf)
    if len(full) or len(scarce):
        marginal = numerics.marginal(rates) / tree.cost
        loose = program.upper > program.lower
        if len(full):
            starved = np.where(loose, marginal, -np.inf)
            upper_price[full] = np.maximum(0.0, _over(tree, full, starved, np.maximum))
            require_finite(tree, full[upper_price[full] == np.inf])
        if len(scarce):
            eager = np.where(loose, marginal, np.inf)
            found = _over(tree, scarce, eager, np.minimum)
            lower_price[scarce] = np.where(np.isfinite(found), found, 0.0)
    return upper_price, lower_price


def _over(tree: LaminarTree, groups: IntArray, values: Array, reduce: np.ufunc) -> Array:
    """Return the largest or least value of each group's sources."""
    ordered = np.append(values[tree.nesting.order], 0.0)
    edges = np.stack([tree.nesting.begin[groups], tree.nesting.end[groups]], axis=1).ravel()
    found: Array = reduce.reduceat(ordered, edges)[::2]
    return found


def require_finite(tree: LaminarTree, starved: IntArray) -> None:
    """Raise InfeasibleProblemError if any groups are starved of sources of infinite cost."""
    if len(starved):
        label = tree.labels[tree.limit_row[starved[0]]]
        raise InfeasibleProblemError(
            f"lower bounds and reserves use up {label!r} and leave nothing for the other sources, whose cost "
            "is then infinite. Raise the limit, or lower min_rate or the reserves."
        )
