"""Rates on a forest of ratios at a price, for any numerics.

In units of the path's ratios rates fall from a tree's root to its leaves: isotonic regression with convex
costs. Let x_v be the rate that node v would have as a root. The least cost of its subtree with v at rate x
has the slope

    g_v(x) = φ_v'(x) + Σ_children c_j min(0, g_j(c_j x)),

which adds up, over those descendants whose x exceed what their path leaves them, their own slopes: a pool,
and one equation in one unknown. From the leaves upwards all nodes of a height are solved at once; downwards
ρ_v = min(x_v, c_v ρ_parent).

References
----------
W. A. Thompson, "The problem of negative estimates of variance components", Ann. Math. Stat. 33(1), 1962,
doi:10.1214/aoms/1177704731, pools on rooted trees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.compiled.backend import fast
from freshopt.compiled.rows import ratio_loops
from freshopt.compiled.rows.nested_records import LOWEST_PRICE
from freshopt.dual_search.nested_levels import best_responses
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.bracketed_roots import bracketed_roots
from freshopt.separable.forest import Forest
from freshopt.separable.kernel import Numerics

# Log of 1e300: slopes beyond are not representable.
_LOG_RANGE = 690.0
# Room for members, per node of a height and per node of the forest; beyond it they are gathered anew. Memory
# that is not written costs nothing.
_MEMBERS = 8
# Relative: the exponential of a logarithm is off by no more.
_NEAR = 2e-14
# A rate without bound counts as one beyond all limits, whose cost is finite.
_LARGEST_RATE = 1e190


@dataclass(frozen=True, slots=True, eq=False)
class _Pools:
    """Who may be in each of k pools: member by member.

    A member's rate is `factor` times the top's, and it has left once the top's is `until`.
    """

    numerics: Numerics
    paid: Array
    factor: Array
    until: Array
    code: IntArray
    count: int

    def take(self, chosen: BoolArray) -> _Pools:
        """Return some of the pools."""
        if bool(np.all(chosen)):
            return self
        own = np.flatnonzero(chosen[self.code])
        code = (np.cumsum(chosen) - 1)[self.code[own]]
        factor, until = self.factor[own], self.until[own]
        return _Pools(self.numerics.take(own), self.paid[own], factor, until, code, int(np.sum(chosen)))

    def excess(self, x: Array) -> Array:
        """Return log of marginal value over price, at tops exp(x)."""
        rate = np.exp(x)[self.code]
        weight = np.where(self.until > rate, self.factor, 0.0)
        value = self.numerics.marginal(rate * self.factor)
        value = np.multiply(weight, value, out=np.zeros(len(rate)), where=weight > 0.0)
        gained = np.bincount(self.code, weights=value, minlength=self.count)
        asked = np.bincount(self.code, weights=weight * self.paid, minlength=self.count)
        found = np.log(np.maximum(gained, 0.0)) - np.log(asked)
        found = np.where(gained > 0.0, found, -_LOG_RANGE)
        clipped: Array = np.clip(found, -_LOG_RANGE, _LOG_RANGE)
        return clipped


@dataclass(frozen=True, slots=True, eq=False)
class Pooling:
    """A forest of sources at any price.

    - `lower`, `upper` (n,): Bounds, tightened along the trees.
    - `levels` tuple of ndarray of int: Nodes of each height, leaves first.
    """

    numerics: Numerics
    forest: Forest
    lower: Array
    upper: Array
    levels: tuple[IntArray, ...]

    @classmethod
    def of(cls, numerics: Numerics, forest: Forest, lower: Array, upper: Array) -> Pooling:
        """Return the forest, its nodes divided by height."""
        by_height = np.argsort(forest.height, kind="stable")
        edges = np.cumsum(np.bincount(forest.height))[:-1]
        return cls(numerics, forest, lower, upper, tuple(np.split(by_height, edges)))

    def tops(self, price: float, near: tuple[Array, float] | None = None) -> tuple[Array, float]:
        """Return the rates x that nodes would have as roots, and evaluations.

        These count sources.

        - `price`: ≥ 0, of the budget.
        - `near` tuple of (ndarray of (n,), float): Such rates at another price, and how far they may be off,
          in log x. It is only a guess.
        """
        forest = self.forest
        paid = np.maximum(max(price, LOWEST_PRICE) * forest.cost, LOWEST_PRICE)
        top = best_responses(self.numerics, paid)
        top = np.where(np.isnan(top), self.lower, np.minimum(top, _LARGEST_RATE))
        top = np.clip(top, self.lower, self.upper)
        most = np.zeros(len(forest))
        evaluated = float(len(forest))
        for nodes in self.levels:
            wanted = most[nodes]
            rising = nodes[(wanted > top[nodes]) & (top[nodes] < self.upper[nodes])]
            if len(rising):
                high = np.minimum(most[rising], self.upper[rising])
                guess = None if near is None else (near[0][rising], near[1])
                found, looked = self._pooled(rising, top, top[rising], high, paid, guess)
                top[rising] = found
                evaluated += looked
            inner = nodes[forest.parent[nodes] >= 0]
            np.maximum.at(most, forest.parent[inner], top[inner] / forest.ratio[inner])
        return top, evaluated

    def rates(self, top: Array) -> Array:
        """Return optimal rates, from those that nodes would have as roots."""
        return self.forest.capped(top, self.lower)

    def _pooled(
        self,
        nodes: IntArray,
        top: Array,
        low: Array,
        high: Array,
        paid: Array,
        guess: tuple[Array, float] | None = None,
    ) -> tuple[Array, float]:
        """Return rates x of nodes whose children ask for more."""
        if guess is None:
            return _solved(self._pools(nodes, top, low, paid), low, high)
        inner = np.clip(guess[0] * np.exp(-guess[1]), low, high)
        outer = np.clip(guess[0] * np.exp(guess[1]), inner, high)
        pools = self._pools(nodes, top, inner, paid)
        ends = np.log(inner), np.log(outer)
        at_inner, at_outer = pools.excess(ends[0]), pools.excess(ends[1])
        hit = (at_inner > 0.0) & (at_outer < 0.0)
        found, own = np.empty(len(nodes)), pools.take(hit)
        roots, evaluations = bracketed_roots(own, ends[0][hit], ends[1][hit], at_inner[hit], at_outer[hit])
        found[hit] = np.minimum(_onto_jumps(own, np.exp(roots)), outer[hit])
        evaluated = 2.0 * len(pools.code) + float(np.sum(evaluations[own.code]))
        rest = np.flatnonzero(~hit)
        if len(rest):
            # A guess that is no bound is dropped.
            least = np.where((inner > low) & ~(at_inner > 0.0), low, inner)[rest]
            most = np.where(at_outer < 0.0, outer, high)[rest]
            found[rest], looked = _solved(self._pools(nodes[rest], top, least, paid), least, most)
            evaluated += looked
        return found, evaluated

    def _pools(self, nodes: IntArray, top: Array, low: Array, paid: Array) -> _Pools:
        """Return the pools of nodes at rates of at least `low`."""
        forest = self.forest
        begin = np.zeros(len(nodes) + 1, dtype=np.int64)
        tree = (nodes, low, top, self.lower, forest.ratio, forest.first, forest.child, begin)
        room = _MEMBERS * len(nodes) + len(forest)
        while True:
            member, factor, until = np.empty(room, dtype=np.int64), np.empty(room), np.empty(room)
            needed = fast(ratio_loops.gather)(*tree, member, factor, until)
            if needed <= room:
                break
            room = needed
        member, factor, until = member[:needed], factor[:needed], until[:needed]
        code = np.repeat(np.arange(len(nodes)), np.diff(begin))
        return _Pools(self.numerics.take(member), paid[member], factor, until, code, len(nodes))


def _solved(pools: _Pools, low: Array, high: Array) -> tuple[Array, float]:
    """Return the roots between low and high, and evaluations of members."""
    found, evaluated = _roots(pools, low, high)
    return np.minimum(_onto_jumps(pools, found), high), evaluated


def _onto_jumps(pools: _Pools, found: Array) -> Array:
    """Return the roots, put right on a jump that they are near.

    Slopes jump where a member that its upper bound holds leaves its pool.
    """
    x = found[pools.code]
    near = np.flatnonzero(np.abs(pools.until - x) <= _NEAR * x)
    found[pools.code[near]] = pools.until[near]
    return found


def _roots(pools: _Pools, low: Array, high: Array) -> tuple[Array, float]:
    """Return the roots of the pools' slopes, and evaluations of members."""
    found = np.array(high)
    b = np.log(high)
    fb = pools.excess(b)
    evaluated = 2.0 * len(pools.code)
    # Where a bound is less than what the children ask for, it may be the root.
    below = fb < 0.0
    a = np.where(low > 0.0, np.log(low), b - 1.0)
    fa = pools.excess(a)
    found = np.where(below & (low > 0.0) & (fa <= 0.0), low, found)
    step = 4.0
    while bool(np.any(short := below & (low == 0.0) & (fa <= 0.0) & (a > -_LOG_RANGE))):
        b, fb = np.where(short, a, b), np.where(short, fa, fb)
        a = np.where(short, np.maximum(a - step, -_LOG_RANGE), a)
        fa, step = np.where(short, pools.excess(a), fa), 4.0 * step
        evaluated += len(pools.code)
    found = np.where(below & (low == 0.0) & (fa <= 0.0), 0.0, found)
    left = np.flatnonzero(below & (fa > 0.0))
    if not len(left):
        return found, evaluated
    if len(left) < pools.count:
        pools = pools.take(below & (fa > 0.0))
        a, fa, b, fb = a[left], fa[left], b[left], fb[left]
    roots, evaluations = bracketed_roots(pools, a, b, fa, fb)
    found[left] = np.exp(roots)
    return found, evaluated + float(np.sum(evaluations[pools.code]))
