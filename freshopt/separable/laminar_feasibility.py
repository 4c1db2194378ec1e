"""Feasibility of nested limits and reserves, by arithmetic.

A group must use m_a = max(reserve_a, Σ m_child), and can use M_a = min(limit_a, Σ M_child);
sources add their bounds. There are feasible rates if and only if m_a ≤ M_a for every group. Where that fails,
the innermost such group is named with the frontier: the groups below it whose reserves and limits make up m_a
and M_a.
"""

from __future__ import annotations

import numpy as np

from freshopt.errors import InfeasibleProblemError, list_offenders
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.segments import group_sums
from freshopt.separable.laminar import LaminarTree

_FEW_ULP = 8 * float(np.finfo(np.float64).eps)
# Relative: sums that differ by less are made of the same bounds.
_CLOSE = 1e-12


def require_feasible(tree: LaminarTree, lower: Array, upper: Array) -> None:
    """Raise InfeasibleProblemError unless limits, reserves and bounds agree.

    - `tree`: Of rates.
    - `lower`, `upper` (n,): Bounds of the rates.
    - raises InfeasibleProblemError: naming the innermost group whose sources must use more than they may.
    """
    least, most = ranges(tree, lower, upper)
    conflict = np.flatnonzero(least > most * (1.0 + _FEW_ULP))
    if len(conflict):
        raise InfeasibleProblemError(_message(tree, int(conflict[0]), least, most))


def ranges(tree: LaminarTree, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return the least and the most that each group can use.

    The least may exceed the most: then there are no feasible rates.
    """
    nesting, count = tree.nesting, len(tree)
    least = group_sums(tree.cost * lower, nesting.leaf, count)
    most = group_sums(tree.cost * upper, nesting.leaf, count)
    for groups in reversed(tree.levels()):
        least[groups] = np.maximum(least[groups], tree.reserve[groups])
        most[groups] = np.minimum(most[groups], tree.limit[groups])
        inner = groups[nesting.parent[groups] >= 0]
        np.add.at(least, nesting.parent[inner], least[inner])
        np.add.at(most, nesting.parent[inner], most[inner])
    return least, most


def _message(tree: LaminarTree, group: int, least: Array, most: Array) -> str:
    """Return what a group must and may use, why, and a remedy."""
    need = _reasons(tree, group, tree.reserve_row, tree.reserve, least, "min_rate")
    may = _reasons(tree, group, tree.limit_row, tree.limit, most, "max_rate")
    row = tree.limit_row[group] if tree.limit_row[group] >= 0 else tree.reserve_row[group]
    return (
        f"the sources of {tree.labels[row]!r} must use {least[group]:g} ({need}) and may use {most[group]:g} "
        f"({may}). The two cannot both hold, by {least[group] - most[group]:.3g}. "
        "Raise limits or lower reserves by as much."
    )


def _reasons(tree: LaminarTree, group: int, row: IntArray, bound: Array, found: Array, rest: str) -> str:
    """Return the labels of the deciding outermost rows and `rest`."""
    nesting = tree.nesting
    frontier: list[int] = []
    covered = nesting.end[group]
    # In reverse post-order groups begin and end ever earlier: one that begins where another did, or after
    # it, is inside it.
    for one in np.flatnonzero((row[: group + 1] >= 0) & (bound[: group + 1] == found[: group + 1]))[::-1]:
        if nesting.begin[group] <= nesting.begin[one] < covered:
            frontier.append(int(one))
            covered = nesting.begin[one]
    names = [repr(tree.labels[row[one]]) for one in frontier]
    accounted = float(np.sum(bound[frontier])) if frontier else 0.0
    if abs(found[group] - accounted) > _CLOSE * abs(found[group]) or not names:
        names.append(rest)
    return list_offenders(names)
