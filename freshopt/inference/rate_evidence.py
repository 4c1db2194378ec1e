"""`RateEvidence`: what a log tells of each change rate.

Whatever the prior, and integrated over cells of ln Δ.

A prior that all sources share is constant on cells of ln(Δ·s), s a time of each source's own. All that it
needs of a source is then the integral of its likelihood over each cell, and a draw from the likelihood within
one. A likelihood that bends within a cell has nodes of its own where it is not negligible.

Cost: one likelihood per cell and source, and 32 to 100 more for a source whose rate is known well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, IntArray

# Width of a cell in ln Δ, and the largest number of cells; a wider range has wider ones.
WIDTH, MOST = 0.25, 200
# Nats below its largest value from which on a likelihood is nothing.
NOTHING = 20.0
# Cells within that distance, below which a source has nodes of its own; so many, of which so many count.
WIDE, NODES, COUNTING = 16, 32, 12
# Each zoom makes the range eight times as narrow or more.
ZOOMS = 5
# Rates beyond what crawls tell: by these factors slower than 1 in the longest time, and faster than 1 in the
# shortest gap. Of rates with a heavy tail a few in a thousand are faster than that.
SLOWER, FASTER = 100.0, 300.0


@dataclass(frozen=True, slots=True, eq=False)
class RateEvidence:
    """What is known of n change rates, whatever the prior.

    Attributes
    ----------
    log_likelihood : callable
        Takes change rates of shape (k, m) and the increasing positions, shape (m,), of their sources; returns
        log-likelihoods of that shape, 0 where there is no data.
    slowest, fastest : float
        Rates beyond which crawls tell nothing.
    changed, open : ndarray of bool, shape (n,)
        Sources of which a change was seen, and those whose crawls any rate explains, however large.
    gap : ndarray of float, shape (n,)
        Mean time between crawls; NaN where there are none, or their number is not kept.

    Examples
    --------
    >>> evidence = RateEvidence.of_counts(np.array([3.0]), np.array([2.0]))
    >>> evidence.log_likelihood(np.array([[1.0], [2.0]]), np.array([0])).round(3)  # 3 ln Δ − 2Δ
    array([[-2.   ],
           [-1.921]])
    """

    log_likelihood: Callable[[Array, IntArray], Array]
    slowest: float
    fastest: float
    changed: BoolArray
    open: BoolArray
    gap: Array

    @classmethod
    def of_counts(cls, changes: Array, time: Array) -> RateEvidence:
        """Return what counts tell: changes·ln Δ − time·Δ."""

        def value(rates: Array, which: IntArray) -> Array:
            return changes[which] * np.log(rates) - time[which] * rates

        known = time > 0.0
        unknown, fastest = np.full(len(time), np.nan), FASTER * (changes[known] + 1.0) / time[known]
        never = np.zeros(len(time), dtype=np.bool_)
        return cls(value, *_range(time[known], fastest), changes > 0.0, never, unknown)

    @classmethod
    def of_odds(cls, found: Array, missed: Array, scale: Array) -> RateEvidence:
        """Return what shares tell: found·ln μ + missed·ln(1−μ), Δ = scale·μ/(1−μ)."""

        def value(rates: Array, which: IntArray) -> Array:
            odds = rates / np.where(known, scale, 1.0)[which]
            told = found[which] * (np.log(odds) - np.log1p(odds)) - missed[which] * np.log1p(odds)
            return np.where(known[which], told, 0.0)

        known = _known(found, missed, scale)
        return cls._of_crawls(value, found, missed, scale, known, known & (missed == 0.0))

    @classmethod
    def of_shares(cls, found: Array, missed: Array, scale: Array) -> RateEvidence:
        """Return what shares tell, as `of_odds` does, where Δ = scale·μ."""

        def value(rates: Array, which: IntArray) -> Array:
            share = np.clip(rates / np.where(known, scale, 1.0)[which], 0.0, 1.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                none = np.where(missed[which] > 0.0, missed[which] * np.log1p(-share), 0.0)
            over = rates > np.where(known, scale, 1.0)[which]
            told = np.where(over, -np.inf, found[which] * np.log(share) + none)
            return np.where(known[which], told, 0.0)

        known = _known(found, missed, scale)
        return cls._of_crawls(value, found, missed, scale, known, np.zeros(len(known), dtype=np.bool_))

    @classmethod
    def _of_crawls(
        cls,
        value: Callable[[Array, IntArray], Array],
        found: Array,
        missed: Array,
        scale: Array,
        known: BoolArray,
        always: BoolArray,
    ) -> RateEvidence:
        gap = np.divide(1.0, scale, out=np.full(len(scale), np.nan), where=known)
        span = (found + missed)[known] * gap[known]
        return cls(value, *_range(span, FASTER * scale[known]), found > 0.0, always, gap)

    @property
    def known(self) -> BoolArray:
        """Sources of which there is any data, shape (n,)."""
        n = len(self.changed)
        if not self.slowest < self.fastest:
            return np.zeros(n, dtype=np.bool_)
        ends = np.repeat(np.geomspace(self.slowest, self.fastest, 3)[:, None], n, axis=1)
        told = self.log_likelihood(ends, np.arange(n))
        known: BoolArray = np.any(told != 0.0, axis=0)
        return known


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Likelihoods of m sources, integrated over cells of t = ln(Δ·s).

    Attributes
    ----------
    left, width : float
        Where the cells begin, and how wide each is.
    shift : ndarray of float, shape (m,)
        ln s.
    weight : ndarray of float, shape (m, cells)
        Integrals, over the largest likelihood.
    top : ndarray of float, shape (m,)
        Its logarithm.
    sharp : ndarray of int, shape (s,)
        Sources with nodes of their own.
    node, likelihood, cell : ndarray, shape (s, nodes)
        Their nodes of t, the likelihoods there, and the nodes' cells.
    """

    left: float
    width: float
    shift: Array
    weight: Array
    top: Array
    sharp: IntArray
    node: Array
    likelihood: Array
    cell: IntArray

    @classmethod
    def of(
        cls, evidence: RateEvidence, which: IntArray, shift: Array, left: float, width: float, count: int
    ) -> Cells:
        """Return the cells of some sources, given by increasing positions."""

        def told(t: Array, some: IntArray) -> Array:
            with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
                value = evidence.log_likelihood(np.exp(t.T - shift[some]), which[some]).T
            return np.nan_to_num(value, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)

        every = np.arange(len(which))
        centre = left + width * (np.arange(count) + 0.5)
        value = told(np.repeat(centre[None], len(which), axis=0), every)
        top = _tops(value)
        sharp = np.flatnonzero(np.count_nonzero(value > top[:, None] - NOTHING, axis=1) < WIDE)
        with np.errstate(under="ignore"):
            weight = width * np.exp(value - top[:, None])
        own, at = value[sharp], np.repeat(centre[None], len(sharp), axis=0)
        node, found, moving = (
            np.empty((len(sharp), NODES)),
            np.empty((len(sharp), NODES)),
            np.arange(len(sharp)),
        )
        for _ in range(ZOOMS):
            if len(moving) == 0:
                break
            lowest, highest = _reach(at, own)
            at = lowest[:, None] + (highest - lowest)[:, None] * np.linspace(0.0, 1.0, NODES)
            own = told(at, sharp[moving])
            node[moving], found[moving] = at, own
            few = np.count_nonzero(own > _tops(own)[:, None] - NOTHING, axis=1) < COUNTING
            moving, at, own = moving[few], at[few], own[few]
        high = _tops(found)
        with np.errstate(under="ignore"):
            likelihood = np.exp(found - high[:, None])
        cell = np.clip(np.floor((node - left) / width), 0, count - 1).astype(np.int64)
        top[sharp] = high
        weight[sharp] = 0.0
        step = node[:, 1:2] - node[:, :1] if len(sharp) else np.empty((0, 1))
        np.add.at(weight, (sharp[:, None], cell), likelihood * step)
        return cls(left, width, shift, weight, top, sharp, node, likelihood, cell)

    def rates(self, prior: Array, random: np.random.Generator) -> Array:
        """Return one draw of the change rates, shape (m,).

        Given the prior mass of each cell.
        """
        chosen = chosen_cells(self.weight * prior, random)
        t = self.left + self.width * (chosen + random.random(len(chosen)))
        if len(self.sharp):
            inside = np.where(self.cell == chosen[self.sharp, None], self.likelihood, 0.0)
            node = chosen_cells(inside, random)
            step = self.node[:, 1] - self.node[:, 0]
            at = self.node[np.arange(len(node)), node]
            t[self.sharp] = at + step * (random.random(len(node)) - 0.5)
        rates: Array = np.exp(t - self.shift)
        return rates


def chosen_cells(mass: Array, random: np.random.Generator) -> IntArray:
    """Return a column of each row, drawn with probabilities like its numbers."""
    below = np.cumsum(mass, axis=1)
    level = random.random(len(mass)) * below[:, -1]
    chosen: IntArray = np.minimum(np.count_nonzero(below <= level[:, None], axis=1), mass.shape[1] - 1)
    return chosen


def _tops(value: Array) -> Array:
    """Return the largest log-likelihood of each row; 0 where all vanish."""
    top: Array = np.max(value, axis=1, initial=-np.inf)
    return np.where(np.isfinite(top), top, 0.0)


def _reach(at: Array, value: Array) -> tuple[Array, Array]:
    """Return the nodes next to those where a likelihood counts."""
    row, last = np.arange(len(at)), at.shape[1] - 1
    there = value > _tops(value)[:, None] - NOTHING
    first, end = np.argmax(there, axis=1), last - np.argmax(there[:, ::-1], axis=1)
    return at[row, np.maximum(first - 1, 0)], at[row, np.minimum(end + 1, last)]


def _known(found: Array, missed: Array, scale: Array) -> BoolArray:
    known: BoolArray = (found + missed > 0.0) & np.isfinite(scale) & (scale > 0.0)
    return known


def crawled_range(gap: Array, time: Array, counted: Array) -> tuple[float, float]:
    """Return the slowest and the fastest rate that crawls tell of.

    As `RateEvidence` has them.

    Given all gaps between crawls, and the sources' observed times and counted changes.
    """
    told, known = gap[gap > 0.0], time > 0.0
    return _range(time[known], FASTER * np.concatenate([1.0 / told, counted[known] / time[known]]))


def _range(span: Array, fastest: Array) -> tuple[float, float]:
    """Return the slowest and the fastest rate that crawls tell of.

    Both are 0 without any.
    """
    if len(span) == 0:
        return 0.0, 0.0
    return 1.0 / (SLOWER * float(np.max(span))), float(np.max(fastest))
