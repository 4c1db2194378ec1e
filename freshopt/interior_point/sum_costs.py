"""`SumCosts`: costs of what sums of rates use. `sums_of`: these sums.

Rows that share their sources, in one unit but for a factor, are of one sum, and each has a part in its cost:
a variable of its own that rises or falls with the use, as prices and utilities do, or no more than an end of
it, as limits and reserves have. All of them are convex functions of the use, whose slopes add up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.autodiff.kinked_atoms import LEFT, RIGHT
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_rows
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE
from freshopt.separable.usage_costs import UsageCosts

# Coefficients of rows of one sum are multiples of each other if their ratios differ by no more, relatively.
PROPORTIONAL = 8 * float(np.finfo(np.float64).eps)


class SumCosts(NamedTuple):
    """Costs of what sums use, one for each of their rows.

    The rows of sum s are first[s]:first[s + 1]; they have `scale` times its coefficients, and between `least`
    and `most` of what they use a cost at `place` among the numerics, where that is not −1. One that `rises`
    costs nothing below and is infinite above; others the reverse.
    """

    numerics: DerivedNumerics | UsageCosts
    first: IntArray
    row: IntArray
    scale: Array
    rises: BoolArray
    place: IntArray
    least: Array
    most: Array

    @property
    def number(self) -> int:
        """Number of sums."""
        return len(self.first) - 1

    @property
    def of(self) -> IntArray:
        """Sum of each row."""
        return np.repeat(np.arange(self.number), np.diff(self.first))

    def take(self, index: IntArray | BoolArray) -> SumCosts:
        """Return the costs of some sums."""
        chosen = np.arange(self.number)[index]
        first = np.concatenate(([0], np.cumsum(np.diff(self.first)[chosen])))
        own = segment_rows(self.first, chosen)
        row, scale, rises, place = self.row[own], self.scale[own], self.rises[own], self.place[own]
        return SumCosts(self.numerics, first, row, scale, rises, place, self.least[own], self.most[own])

    def ends(self) -> tuple[Array, Array]:
        """Return the least and the most that sums may use."""
        least, most, of = np.zeros(self.number), np.full(self.number, np.inf), self.of
        np.maximum.at(least, of[~self.rises], (self.least / self.scale)[~self.rises])
        np.minimum.at(most, of[self.rises], (self.most / self.scale)[self.rises])
        return least, most

    def slopes(self, used: Array, near: float = 0.0) -> tuple[Array, Array]:
        """Return the sums' slopes on either side of uses, or kinks nearby."""
        of = self.of
        left, right = (
            np.bincount(of, weights=self.scale * side, minlength=self.number).astype(np.float64)
            for side in self.of_rows(used, near)
        )
        return left, right

    def of_rows(self, used: Array, near: float = 0.0) -> tuple[Array, Array]:
        """Return each row's slopes on either side of what it uses."""
        at = used[self.of] * self.scale
        ends, some = (at * (1.0 - near), at * (1.0 + near)), np.flatnonzero(self.place >= 0)
        found = np.zeros((2, len(at)))
        if len(some):
            own = self.numerics.take(self.place[some])
            assert isinstance(own, DerivedNumerics | UsageCosts)
            for side, (to, end) in enumerate(zip((LEFT, RIGHT), ends, strict=True)):
                within = np.clip(end[some], self.least[some], self.most[some])
                found[side, some] = -own.marginal(within, to)
        # Below it all, between, and beyond.
        nothing, endless = np.where(self.rises, ((0.0,), (np.inf,)), ((-np.inf,), (0.0,)))
        left = np.where(ends[0] <= self.least, nothing, np.where(ends[0] > self.most, endless, found[0]))
        right = np.where(ends[1] < self.least, nothing, np.where(ends[1] >= self.most, endless, found[1]))
        unknown = np.isnan(left) | np.isnan(right)
        left, right = np.where(unknown, np.where(self.rises, np.inf, -np.inf), (left, right))
        return np.where(self.rises, np.maximum(left, 0.0), left), np.where(
            self.rises, right, np.minimum(right, 0.0)
        )

    def multipliers(self, used: Array, paid: Array, near: float) -> Array:
        """Return each row's part of the prices that sums pay.

        Rows at an end share what is paid beyond the slopes of the others; kinks and ends so `near` are met.
        """
        left, right = self.of_rows(used, near)
        of, y = self.of, np.clip(0.0, left, right)

        def total(amounts: Array) -> Array:
            sums = np.bincount(of, weights=self.scale * amounts, minlength=self.number)
            return sums.astype(np.float64)[of]

        for at_end in (False, True):
            rest = paid[of] - total(y)
            room = np.where(rest > 0.0, right - y, y - left)
            room = np.where(np.isinf(room) == at_end, 1.0 if at_end else room, 0.0)
            with np.errstate(all="ignore"):
                share = np.abs(rest) / total(room)
            share = np.where(np.isfinite(share), share if at_end else np.minimum(share, 1.0), 0.0)
            y = y + np.sign(rest) * share * room
        found: Array = np.maximum(np.where(self.rises, y, -y), 0.0)
        return found

    def amounts(self, used: Array) -> Array:
        """Return what rows' variables are at the sums' uses."""
        return np.clip(used[self.of] * self.scale, self.least, self.most)


class Sums(NamedTuple):
    """Sums that share no source.

    `of` is each source's sum, the last one where it has none, and `coefficient` its coefficient there or 0.
    """

    of: IntArray
    coefficient: Array
    costs: SumCosts


def sums_of(program: Program, n: int) -> tuple[Sums, Sums | None] | None:
    """Return the groups of n sources and their whole, or None.

    None where rows are of something else, and where units differ.
    """
    rows, m = program.rows, len(program.rows)
    own, row = rows.source < n, rows.row.astype(np.int64)
    rises = np.zeros(m, dtype=np.bool_)
    rises[row[own]] = rows.coefficient[own] > 0.0
    variables, many = (np.bincount(row[some], minlength=m) for some in (~own, own))
    alike = (rows.coefficient > 0.0) == (own == rises[row])
    if bool(np.any((rows.kind != RATE) | ~alike | (rows.coefficient == 0.0))):
        return None
    beyond = np.where(variables > 0, rows.limits != 0.0, (rows.limits < 0.0) == rises)
    if bool(np.any((variables > 1) | (many == 0) | beyond)):
        return None
    # Alone, what all sources share is a group.
    of_all = (many == n) & bool(np.any(many < n))
    groups = _sums(program, ~of_all, rises, n)
    whole = _sums(program, of_all, rises, n) if bool(np.any(of_all)) else None
    if groups is None or (whole is None) == bool(np.any(of_all)):
        return None
    if whole is not None:
        grouped = np.flatnonzero(groups.of < groups.costs.number - 1)
        ratio, usual = whole.coefficient[grouped] / groups.coefficient[grouped], np.ones(groups.costs.number)
        usual[groups.of[grouped]] = ratio
        if bool(np.any(np.abs(ratio - usual[groups.of[grouped]]) > PROPORTIONAL * ratio)):
            return None
    return groups, whole


def _sums(program: Program, chosen: BoolArray, rises: BoolArray, n: int) -> Sums | None:
    """Return the sums of chosen rows, and one without a row."""
    rows, m, numerics = program.rows, len(program.rows), program.numerics
    assert isinstance(numerics, UsageCosts)
    usages = numerics.usages
    assert isinstance(usages, DerivedNumerics | UsageCosts)
    some = np.flatnonzero(chosen[rows.row] & (rows.source < n))
    source, row, size = rows.source[some], rows.row[some].astype(np.int64), np.abs(rows.coefficient[some])
    # A sum is named by the first row of its sources.
    first, name, scale = np.full(n, -1, dtype=np.int64), np.full(m, -1, dtype=np.int64), np.ones(m)
    first[source[::-1]] = row[::-1]
    name[row] = first[source]
    many, unit = np.bincount(row, minlength=m), np.zeros(n)
    leads = row == first[source]
    unit[source[leads]] = size[leads]
    ratio = size / unit[source]
    scale[row] = ratio
    # Rows that share a source share all, in one unit.
    named = np.flatnonzero(name >= 0)
    alike = (name[row] == first[source]) & (np.abs(ratio - scale[row]) <= PROPORTIONAL * ratio)
    if not bool(np.all(alike)) or not bool(np.all(many[named] == many[name[named]])):
        return None
    sums = np.unique(name[named])
    place = np.full(m + 1, len(sums))
    place[sums] = np.arange(len(sums))
    order = named[np.argsort(place[name[named]], kind="stable")]
    variable = np.full(m, -1)
    beyond = np.flatnonzero(rows.source >= n)
    variable[rows.row[beyond]] = rows.source[beyond] - n
    variable, end = variable[order], np.abs(rows.limits[order])
    least, most = (
        np.where(variable >= 0, bound[n + variable], end) for bound in (program.lower, program.upper)
    )
    count = np.bincount(place[name[order]], minlength=len(sums) + 1)
    begin = np.concatenate(([0], np.cumsum(count)))
    costs = SumCosts(usages, begin, order, scale[order], rises[order], variable, least, most)
    return Sums(place[first], unit, costs)
