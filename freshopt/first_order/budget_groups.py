"""`Budgets`: budget constraints of disjoint groups of sources.

One budget for all is one group.
The groups lie one behind the other, so that a sum per group is one pass (`np.add.reduceat`, pairwise within
each group) however many groups there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import CHUNK, Array, IntArray, Scalar, total

# Below this share of a budget the rest of it is summed without rounding.
CANCELLED = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Budgets:
    """Budgets of groups of sources, none of which is empty.

    - `amounts` (G,): Budget of each group, > 0.
    - `groups` (n,): The group of each source, ascending.
    - `starts` (G,): The first source of each group.
    """

    amounts: Array
    groups: IntArray
    starts: IntArray

    @classmethod
    def of(cls, amounts: Array, groups: IntArray) -> Budgets:
        """Return the budgets of given groups."""
        return cls(amounts, groups, np.searchsorted(groups, np.arange(len(amounts))))

    @classmethod
    def single(cls, amount: float, n: int) -> Budgets:
        """Return one budget for n sources."""
        return cls(np.array([amount]), np.zeros(n, dtype=np.int64), np.zeros(1, dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.amounts)

    @property
    def sizes(self) -> IntArray:
        """Sources per group, shape (G,)."""
        return np.append(self.starts[1:], len(self.groups)) - self.starts

    def totals(self, values: Array) -> Array:
        """Return sums per group, shape (G,)."""
        if len(self) > 1:
            return np.add.reduceat(values, self.starts)
        return np.array([total(values)]) if len(values) > CHUNK else np.add.reduce(values, keepdims=True)

    def broadcast_to_sources(self, values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return each source's value of its group, a single one's broadcast."""
        each: npt.NDArray[Scalar] = values if len(self) == 1 else values[self.groups]
        return each

    def some(self, sources: IntArray) -> tuple[IntArray, Budgets]:
        """Return the groups of some sources, ascending, and their own budgets."""
        starts = np.flatnonzero(np.diff(self.groups[sources], prepend=-1) > 0)
        present = self.groups[sources[starts]]
        renamed = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(sources)))
        return present, Budgets(self.amounts[present], renamed, starts)

    def left(self, taken: Array, wanted: IntArray) -> Array:
        """Return the rest of the wanted groups' budgets, an ulp at least."""
        amounts = self.amounts[wanted]
        rest = amounts - self.totals(taken)[wanted]
        begin, end = self.starts[wanted], (self.starts + self.sizes)[wanted]
        for k in np.flatnonzero(rest < CANCELLED * amounts):
            exact = math.fsum([amounts[k], *(-taken[begin[k] : end[k]]).tolist()])
            rest[k] = exact if exact > 0.0 else float(np.finfo(float).eps) * amounts[k]
        return rest


class HostBudgets(NamedTuple):
    """Budgets of limited hosts, and their sources by host, shape (m,)."""

    members: IntArray
    budgets: Budgets

    @classmethod
    def of(cls, codes: IntArray, limits: Array) -> HostBudgets:
        """Sort sources by host, with `codes` as in `HostLimits`."""
        order = np.argsort(codes, kind="stable")
        members = order[: int(np.count_nonzero(codes < len(limits)))]
        return cls(members, Budgets.of(limits, codes[members]))

    def over(self, amounts: Array) -> tuple[IntArray, IntArray, Budgets]:
        """Return the hosts above budget, their sources and budgets."""
        exceeded = self.budgets.totals(amounts[self.members]) > self.budgets.amounts
        chosen = np.flatnonzero(exceeded[self.budgets.groups])
        present, budgets = self.budgets.some(chosen)
        return present, self.members[chosen], budgets
