"""`LogDensity`: log posterior density of ln Δ, with two derivatives.

With x = aΔ for each crawl interval a, F the crawl intervals after which an unknown number of changes was
found, K counted changes in a time A and U the sum of the crawl intervals that ended without one, all weighted
by w where weights are given,

    l = Σ_F w ln(1−e^{−x}) + K ln Δ − (U+A)Δ.

Without a prior the density of t = ln Δ is e^l √H, H = Δ²·I(Δ) = Σ w x²/(e^x−1) + AΔ, where I is the Fisher
information of the crawls and the sum is over all crawl intervals without a count: Jeffreys' prior. For equal
crawl intervals that is Beta(F+½, N−F+½) of the share of crawls that find a change, for counted changes
Gamma(K+½)/A. A Gamma prior of shape s and exposure b takes its place: s·t − bΔ. With it a first date that is
a change or, at the rate η, a birth, brings ln(Δ+η); its age is part of b.

Cost: one exponential per crawl interval, and a logarithm per crawl interval in F.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from freshopt.inference.dated_crawls import GammaParameters
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.density_quantiles import GridQuantiles, modes
from freshopt.numerics.segments import segment_sums

# Standard deviation of ln Δ, about 8 changes, up to which nodes may follow the mode.
SHARP = 0.35
# Ends and number of the nodes in standard deviations; at SHARP the left end lies below e^-14 of the mode.
NODES = (-8.0, 10.0, 14)
# e^-16 is negligible beside the levels of intervals.
FAR = 16.0
# Cell in ln Δ: the likelihood of one crawl interval changes over about 2.
CELL = 0.5
# Numbers of cells are multiples of this one, so that many sources are evaluated together.
TOGETHER = 8
# ΣaΔ below which g' is constant to that relative accuracy.
STRAIGHT = 1e-4
# e^-60 is negligible in float64.
FALL = 60.0
# Largest number and length of the steps of Newton's iteration.
STEPS, LEAP = 12, 2.0
# Stands for an information that underflows, far to the right of all crawls.
NOTHING = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class LogDensity:
    """Log posterior density g(t) of n sources, up to a constant.

    Attributes
    ----------
    intervals : ndarray of float, shape (m,)
        Those without a count, source after source.
    found : ndarray of bool, shape (m,)
    weight : ndarray of float, shape (m,), or None
        None weighs all alike.
    offsets : ndarray of int, shape (n+1,)
    counted, time : ndarray of float, shape (n,)
        K and A, weighted.
    prior : GammaParameters or None
        Gamma priors of the sources; None for Jeffreys' prior.
    possible : ndarray of float, shape (n,), or None
        Factor of ln(Δ+η); only with a prior.

    Examples
    --------
    One crawl of two found a change: e^{−x}(1−e^{−x})·√(x²/(e^x−1)), up to a factor.

    >>> density = LogDensity(np.ones(2), np.array([True, False]), None, np.array([0, 2]), np.zeros(1),
    ...                      np.zeros(1), None)
    >>> density(np.log([0.5]))[0].round(6)
    array([-1.56295])
    """

    intervals: Array
    found: BoolArray
    weight: Array | None
    offsets: IntArray
    counted: Array
    time: Array
    prior: GammaParameters | None
    possible: Array | None = None
    _where: IntArray = field(init=False)  # the crawl intervals in F
    _ends: IntArray = field(init=False)  # their offsets
    _free: Array = field(init=False)  # U + A

    def __post_init__(self) -> None:
        """Precompute the terms of every evaluation."""
        where = np.flatnonzero(self.found)
        object.__setattr__(self, "_where", where)
        object.__setattr__(self, "_ends", np.searchsorted(where, self.offsets).astype(np.int64))
        free = self.time + self._sums(np.where(self.found, 0.0, self.intervals))
        object.__setattr__(self, "_free", free)

    def grids(self) -> Iterator[tuple[IntArray, GridQuantiles]]:
        """Yield positions of sources and their quantiles.

        First those with a sharp mode, then the others.
        """
        mode, deviation, unclear = modes(self, self._start(), STEPS, LEAP)
        sharp = deviation < SHARP
        sharp[unclear] = False
        far = self(mode + NODES[1] * deviation)[0] - self(mode)[0]
        sharp &= far < -FAR  # where nearly all crawls found a change the right tail is long
        for chosen in (np.flatnonzero(sharp), np.flatnonzero(~sharp)):
            if len(chosen) == 0:
                continue
            part = self._select(chosen)
            if sharp[chosen[0]]:
                at, unit = mode[chosen], deviation[chosen]
                left, right, nodes = at + NODES[0] * unit, at + NODES[1] * unit, NODES[2]
                yield chosen, GridQuantiles.of(part, left, right, nodes)
                continue
            left, right = part._range()
            # By its own range alone: what other sources there are does not move a source's nodes.
            cells = TOGETHER * np.ceil((right - left) / (TOGETHER * CELL)).astype(np.int64)
            for count in np.unique(cells).tolist():
                some = np.flatnonzero(cells == count)
                yield chosen[some], GridQuantiles.of(part._select(some), left[some], right[some], count + 1)

    def _start(self) -> Array:
        """Return values of t near the mode, shape (n,)."""
        changes = self._sums(self.found.astype(np.float64)) + self.counted
        time = self._sums(np.where(self.found, 0.5 * self.intervals, self.intervals)) + self.time
        shape, exposure = (0.5, 0.0) if self.prior is None else self.prior[:2]
        begun: Array = np.log((changes + shape) / (time + exposure))
        return begun

    def _range(self) -> tuple[Array, Array]:
        """Return the range of t that holds the posterior mass.

        Left of it the density falls exponentially, right of it it is negligible.
        """
        changes = self._sums(self.found.astype(np.float64)) + self.counted
        span = self._sums(self.intervals) + self.time
        n = len(self.counted)
        shape, exposure = (np.full(n, 0.5), np.zeros(n)) if self.prior is None else self.prior[:2]
        if self.possible is not None:
            changes = changes + self.possible
        with np.errstate(divide="ignore"):
            right = (FALL + 5.0 * (changes + shape)) / (self._free + exposure)  # l falls by UΔ at least
        filled = np.flatnonzero(np.diff(self.offsets))
        if self.prior is None and len(filled):
            # Where every crawl interval ended with a change √H falls by aΔ/2, a the shortest.
            shortest = np.minimum.reduceat(self.intervals, self.offsets[filled])
            right[filled] = np.minimum(right[filled], 3.0 * FALL / shortest)
        left = STRAIGHT / (span + exposure)
        if self.possible is not None and self.prior is not None:
            # ln(Δ+η) is straight left of η.
            births = self.prior.birth_rate
            left = np.where((self.possible > 0.0) & (births > 0.0), np.minimum(left, STRAIGHT * births), left)
        return np.log(left), np.log(right)

    def _select(self, chosen: IntArray) -> LogDensity:
        if len(chosen) == len(self.counted):
            return self
        mask = np.zeros(len(self.counted), dtype=np.bool_)
        mask[chosen] = True
        counts = np.diff(self.offsets)
        rows = np.repeat(mask, counts)
        return LogDensity(
            intervals=self.intervals[rows],
            found=self.found[rows],
            weight=None if self.weight is None else self.weight[rows],
            offsets=np.concatenate([[0], np.cumsum(counts[mask])]).astype(np.int64),
            counted=self.counted[mask],
            time=self.time[mask],
            prior=None if self.prior is None else self.prior.of(mask),
            possible=None if self.possible is None else self.possible[mask],
        )

    def __call__(self, t: Array) -> tuple[Array, Array, Array]:
        """Return g, g' and g'' at one t per source."""
        rate = np.exp(t)
        x = self.intervals * np.repeat(rate, np.diff(self.offsets))
        with np.errstate(over="ignore"):
            odds = 1.0 / np.expm1(x)  # of no change against a change; 0 beyond x = 710
        each = x * odds
        growth = x + each
        free, change = self._free * rate, each[self._where]
        value = self.counted * t - free - self._found_sums(np.log1p(odds[self._where]))
        slope = self.counted - free + self._found_sums(change)
        curve = self._found_sums(change * (1.0 - growth[self._where])) - free
        if self.prior is not None:
            shape, exposure, births = self.prior
            more = exposure * rate
            value, slope, curve = value + shape * t - more, slope + shape - more, curve - more
            if self.possible is not None:
                change = rate / (rate + births)  # the probability that the first date is a change
                value = value + self.possible * np.log(rate + births)
                slope = slope + self.possible * change
                curve = curve + self.possible * change * (1.0 - change)
            return value, slope, curve
        own = x * each
        push = 2.0 - growth
        counted = self.time * rate
        h = np.maximum(self._sums(own) + counted, NOTHING)
        first = (self._sums(own * push) + counted) / h
        second = (self._sums(own * (push * push - growth * (1.0 - each))) + counted) / h
        return value + 0.5 * np.log(h), slope + 0.5 * first, curve + 0.5 * (second - first * first)

    def _found_sums(self, values: Array) -> Array:
        return segment_sums(values if self.weight is None else self.weight[self._where] * values, self._ends)

    def _sums(self, values: Array) -> Array:
        return segment_sums(values if self.weight is None else self.weight * values, self.offsets)
