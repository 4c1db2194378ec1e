"""Trial search: many dual prices at once, several trials per pass.

Passes go over files. Each group of sources (all of them under the bandwidth; the sources of a host under its
limit) has a price at which its demand falls to its limit. On logarithms of price and demand a demand is
nearly straight, so the price is the inverse cubic interpolation between the four trials next to it, and the
difference to the quadratic one says how far to trust it. The trials of the next pass stand around that
estimate, at distances from a fraction of its error up to the bracket's end: whichever of them the price is
between, the bracket shrinks by orders of magnitude. Where demand jumps, interpolation tells nothing and the
trials divide the bracket evenly.

Two trials apart that both meet the limit, but for rounding, tell that many prices do. From then on the least
price is sought whose demand is above the limit by no more than rounding, as in memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import ROUNDED, Array, BoolArray, IntArray, chunks

# Trials per group and pass; 6 need one or two passes more where demand has kinks or jumps.
TRIALS = 10
# Trials that are kept of a group: two on either side of its price.
NEAR = 4
# Groups that are worked on at a time, for the sake of temporaries.
BLOCK = 8192
# Logarithms of prices so low, or so high, that nothing is beyond them.
TINY_LOG_PRICE, TOP_LOG = -667.0, 667.0
# Trials nearer than so many nats say nothing more, as mixtures err by the square of a bracket.
FINE = 1e-8
# A bracket that shrinks by less in a pass is divided evenly in the next.
SLOW = 6.0
# Demand that is the same at trials so many nats apart is flat.
APART = 1e-9
# Relative width of a bracket around the least price of many that are as good.
EDGE = 1e-13
# Of a bracket whose ends are neighbouring floats.
CLOSED = float(np.finfo(np.float64).eps)
# Beyond these, log prices are ends of the floats, and log demands are none.
FAR, FLAT = 600.0, 30.0


class Bracket(NamedTuple):
    """Brackets of each group's dual price, with demands.

    Log price and log(demand/limit) on both sides of the price, shapes (G,).
    `slack` is what log(demand/limit) may be above 0: rounding, where demand is flat, else 0.
    """

    low: Array
    above: Array
    high: Array
    below: Array
    slack: Array

    def shortfall(self) -> Array:
        """Return a bound on the loss of mixing both ends.

        In units of price·limit.
        It is inf while the least of many prices is not known, and 0 where no float is between the ends.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            jump, width = np.exp(np.minimum(self.above, FAR)) - np.exp(self.below), self.high - self.low
            size = np.maximum(1.0, np.abs(self.high))
            unknown = (self.slack > 0.0) & (width > EDGE * size)
            least = (self.above <= self.slack) | (width <= CLOSED * size)
            return np.where(least, 0.0, np.where(unknown, np.inf, jump * width))


class Trials:
    """All trials of all groups so far.

    - `least` (G,): log(demand/limit) at an infinite price, −inf where demand is 0.

    Examples
    --------
    >>> search = Trials(np.array([-np.inf]))
    >>> search.add(np.array([[TINY_LOG_PRICE], [0.5], [0.7]]), np.array([[300.0], [0.1], [-0.1]]))
    >>> search.propose()[3:7].round(3).ravel()
    array([0.592, 0.599, 0.601, 0.608])
    """

    def __init__(self, least: Array) -> None:
        self._x = np.full((NEAR, len(least)), TOP_LOG)
        self._f = np.tile(_bounded(least), (NEAR, 1))
        self._width = np.full(len(least), np.inf)
        self._slack = np.zeros(len(least))

    def take(self, groups: BoolArray | slice) -> Trials:
        """Return the trials of some groups."""
        some = object.__new__(Trials)
        some._x, some._f = self._x[:, groups], self._f[:, groups]
        some._width, some._slack = self._width[groups], self._slack[groups]
        return some

    def put(self, groups: BoolArray | slice, some: Trials) -> None:
        """Replace the trials of some groups."""
        self._x[:, groups], self._f[:, groups] = some._x, some._f
        self._width[groups], self._slack[groups] = some._width, some._slack

    def add(self, log_price: Array, log_excess: Array) -> None:
        """Add trials of log prices and log(demand/limit).

        Shapes (K, 1) or (K, G), and (K, G); +inf or nan stands for an infinite demand.
        """
        x = np.concatenate([self._x, np.broadcast_to(log_price, log_excess.shape)])
        order = np.argsort(x, axis=0, kind="stable")
        f = np.concatenate([self._f, _bounded(log_excess)])
        x, f = np.take_along_axis(x, order, 0), np.take_along_axis(f, order, 0)
        # Two on either side of the price are all that is asked for; where there are fewer, one stands twice.
        met = np.abs(f) <= ROUNDED
        flat = np.any(met[1:] & met[:-1] & (x[1:] - x[:-1] > APART), axis=0)
        self._slack = np.where(flat, ROUNDED, self._slack)
        near = np.argmax(f <= self._slack, axis=0) + np.arange(-NEAR // 2, NEAR // 2)[:, None]
        near = np.clip(near, 0, len(x) - 1)
        self._x, self._f = np.take_along_axis(x, near, 0), np.take_along_axis(f, near, 0)

    def measured(self, log_price: Array, used: Array, limits: Array) -> None:
        """Add trials, (K, G), by the bandwidth they use of limits, (G,)."""
        for block in chunks(len(limits), BLOCK):
            some = self.take(block)
            with np.errstate(divide="ignore", over="ignore"):
                excess = np.log(used[:, block] / limits[block])
            some.add(log_price if log_price.shape[1] == 1 else log_price[:, block], excess)
            self.put(block, some)

    def bracket(self) -> Bracket:
        """Return the trials next to each group's price."""
        place = self._place()
        return Bracket(*self._at(place - 1), *self._at(place), self._slack)

    def propose(self) -> Array:
        """Return the log prices to try next, shape (TRIALS, G)."""
        proposed = np.empty((TRIALS, len(self._width)))
        for block in chunks(len(self._width), BLOCK):
            some = self.take(block)
            proposed[:, block] = some._next()
            self._width[block] = some._width
        return proposed

    def _next(self) -> Array:
        """Return the log prices to try next, of few groups."""
        place = self._place()
        near = [self._at(place + k) for k in (-2, -1, 0, 1)]
        (low, above), (high, below) = near[1], near[2]
        width = high - low
        with np.errstate(all="ignore"):
            estimate, error = _estimate(near)
            known = (width < FAR) & (above < FLAT) & (below > -FLAT)
            error = np.clip(error, FINE, width / 3.0)
            steps = np.stack(
                [error / 64, error / 8, *(error ** (1 - k) * width**k for k in (0, 1 / 3, 2 / 3))]
            )
            inside = np.concatenate([estimate - steps[::-1], estimate + steps])
            inside = np.clip(inside, low, high)
            share = np.arange(1, TRIALS + 1)[:, None] / (TRIALS + 1.0)
            evenly = low + share * width
            slow = width > self._width / SLOW
            outside = self._outwards(near, place)
        self._width = np.where(known, width, np.inf)
        return np.where(known & ~slow, inside, np.where(width < FAR, evenly, outside))

    def _outwards(self, near: list[tuple[Array, Array]], place: IntArray) -> Array:
        """Return trials beyond the last one, by linear extrapolation."""
        (x2, f2), (x1, f1), (y1, g1), (y2, g2) = near
        up = x1 > -FAR  # the low end is a real trial: the price is above it
        # Where demand is flat the least price is lower, whatever the sign of what rounding leaves.
        begin, value = np.where(up, x1, y1), np.where(up, f1, np.minimum(g1, -self._slack))
        other, there = np.where(up, x2, y2), np.where(up, f2, g2)
        slope = (value - there) / (begin - other)
        usable = np.isfinite(slope) & (slope < 0.0) & (np.abs(value) < FLAT) & (np.abs(other) < FAR)
        step = np.where(usable, -value / slope, np.sign(value) * np.clip(np.abs(value), 0.5, 8.0))
        step = np.where(place < 1, -1.0, np.where(np.abs(step) > 1e-6, np.clip(step, -64.0, 64.0), 1e-6))
        factors = np.array([0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 4.0, 12.0, 36.0])[:, None]
        trials: Array = np.clip(begin + factors * step, TINY_LOG_PRICE, TOP_LOG)
        return trials

    def _place(self) -> IntArray:
        """Return the row of the first feasible trial."""
        found: IntArray = np.argmax(self._f <= self._slack, axis=0)
        return found

    def _at(self, row: IntArray) -> tuple[Array, Array]:
        """Return a trial of each group, nan beyond the ends."""
        inside = (row >= 0) & (row < len(self._x))
        index = np.clip(row, 0, len(self._x) - 1)[None, :]
        x, f = np.take_along_axis(self._x, index, 0)[0], np.take_along_axis(self._f, index, 0)[0]
        return np.where(inside, x, np.nan), np.where(inside, f, np.nan)


def _estimate(near: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the interpolated root x(f = 0) and its error."""
    (low, _), (high, _) = near[1], near[2]

    def usable(point: tuple[Array, Array]) -> tuple[Array, Array]:
        x, f = point
        real = (np.abs(x) < FAR) & (np.abs(f) < FLAT)
        return np.where(real, x, np.nan), np.where(real, f, np.nan)

    outer_low, inner_low, inner_high, outer_high = (usable(point) for point in near)
    line = _neville([inner_low, inner_high])
    left, right = _neville([outer_low, inner_low, inner_high]), _neville([inner_low, inner_high, outer_high])
    cubic = _neville([outer_low, inner_low, inner_high, outer_high])
    best, error = np.where(np.isfinite(line), line, 0.5 * (low + high)), (high - low) / 3.0
    for finer, coarser in ((left, line), (right, line), (cubic, left), (cubic, right)):
        agreed = np.isfinite(finer) & (finer > low) & (finer < high)
        best, error = np.where(agreed, finer, best), np.where(agreed, np.abs(finer - coarser), error)
    return best, error


def _neville(points: list[tuple[Array, Array]]) -> Array:
    """Return the polynomial x(f) through points at f = 0."""
    column, f = [x for x, _ in points], [value for _, value in points]
    for k in range(1, len(points)):
        column = [
            (f[j + k] * column[j] - f[j] * column[j + 1]) / (f[j + k] - f[j]) for j in range(len(column) - 1)
        ]
    return column[0]


def _bounded(log_excess: Array) -> Array:
    return np.clip(np.where(np.isnan(log_excess), FAR, log_excess), -FAR, FAR)
