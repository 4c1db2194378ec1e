"""Few passes over sources whose best responses are dear, or from tables.

A sample tells the price, a larger one corrects it, and two or three passes over all sources, by secants of
the logarithms, come close to the bandwidth; the line through the rates of the last two meets it, also where
demand jumps between them. Hosts are for the general search, with the same best responses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from freshopt.certificates.solution import Answer
from freshopt.compiled.columns import spread
from freshopt.dual_search.price_bracketing import trimmed
from freshopt.dual_search.sampled_search import interpolated, root
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import ROUNDED, Array, Index, IntArray, median, read_only, total
from freshopt.separable.kernel import Kernel, Numerics, Quick

# Sources of the first sample, and of the second, of which there is one in so many.
FIRST, SPARSE = 128, 64
# What samples' prices, and the bandwidth that all use, may be off by.
ROUGH, FINE, CLOSE = 1e-2, 1e-5, 1e-9
# What rates on the line through those of two prices may lose, of the bandwidth's value: a convex combination
# of share t loses at most t(1 − t) of the difference of log prices times that of bandwidths.
LOST = 1e-10
PASSES = 24
# From this pass on prices are halved.
SMOOTH = 6
# What prices may be, over that of a sample; hosts' own are above it.
BESIDE, OF_HOSTS = 2.0, 8.0


@dataclass(frozen=True, slots=True, eq=False)
class QuickNumerics:
    """Numerics of some sources of a kernel, whose best responses are quick."""

    kernel: Kernel
    quick: Quick
    index: IntArray

    def inverse_marginal(self, price: Array) -> Array:
        """Return each source's best response to its price."""
        return self.quick.respond(price, self.index)

    def take(self, index: Index) -> QuickNumerics:
        """Return those of some of the sources."""
        return QuickNumerics(self.kernel, self.quick, self.index[index])

    def cost(self, rate: Array) -> Array:
        """Return each source's weighted cost."""
        return self._own.cost(rate)

    def marginal(self, rate: Array) -> Array:
        """Return each source's decrease of cost per unit of rate."""
        return self._own.marginal(rate)

    def curvature(self, rate: Array) -> Array:
        """Return each source's curvature."""
        return self._own.curvature(rate)

    def gain(self, rate: Array) -> Array | None:
        """Return each source's gain."""
        return self._own.gain(rate)

    @property
    def _own(self) -> Kernel:
        return self.kernel.take(self.index)


def fill_quickly(
    problem: Problem, kernel: Kernel, quick: Quick, start: float | None
) -> tuple[Answer | None, Numerics]:
    """Return rates with their price, or None for a general search."""
    cost, lower, upper, n = problem.sources.refresh_cost, problem.lower, problem.upper, len(problem.sources)
    log_bandwidth = math.log(problem.bandwidth)
    lower, upper, cost = (
        read_only(np.ascontiguousarray(one, dtype=np.float64)) for one in (lower, upper, cost)
    )

    def off_at(x: float, index: IntArray, apart: float = 0.0) -> float:
        own = cost[index]
        free = quick.respond(math.exp(x) * own, index)
        free = np.where(np.isinf(free), 2.0 * problem.bandwidth / own, free)
        used = n / len(index) * total(own * np.clip(free, lower[index], upper[index]))
        off = math.log(used) - log_bandwidth if 0.0 < used < math.inf else math.copysign(1e3, used - 1.0)
        return off - apart

    few, many = spread(n, FIRST), spread(n, max(FIRST, n // SPARSE))
    x = math.log(start) if start else _typical_price(problem, kernel.take(few), few)
    x = root(partial(off_at, index=few), x, ROUGH)
    numerics = QuickNumerics(kernel, quick, np.arange(n))
    if not math.isfinite(x):
        return None, numerics
    quick.cover(math.exp(x) * cost, OF_HOSTS if len(problem.hosts) else BESIDE)
    if (
        len(problem.hosts)
        or total(cost * upper) <= problem.bandwidth * (1.0 + ROUNDED)
        or total(cost * lower) >= problem.bandwidth * (1.0 - FEW_ULP)
    ):
        return None, numerics
    x = root(partial(off_at, index=many), x, FINE)
    seen: list[tuple[float, float]] = []  # log(used / bandwidth), log price
    low, high = -math.inf, math.inf
    below: _Pass | None = None
    above: _Pass | None = None
    for passes in range(1, PASSES + 1):
        if not low < x < high:
            break
        rates = np.empty(n)
        used = quick.fill(math.exp(x), cost, lower, upper, rates)
        if not 0.0 < used < math.inf:
            break
        here = _Pass(x, math.log(used) - log_bandwidth, used, rates)
        ends = (above, below) if here.off > 0.0 else (below, above)
        other = ends[0] or ends[1]
        share, lost = here.line(other, problem.bandwidth) if other is not None else (0.0, math.inf)
        if lost <= LOST or abs(here.off) <= CLOSE:
            mixed = _met(problem, rates if other is None else rates + share * (other.rates - rates))
            if mixed is not None:
                price = math.exp(x if other is None else x + share * (other.x - x))
                mixed = trimmed(problem, mixed)
                return Answer(mixed, price, problem.hosts.named(np.zeros(0)), passes), numerics
        if here.off > 0.0:
            low, below = x, here
        else:
            high, above = x, here
        seen.append((here.off, x))
        if passes == 1:
            apart = off_at(x, many) - here.off
            x = root(partial(off_at, index=many, apart=apart), x, FINE)
        else:
            latest = seen[-3:]
            x = interpolated(latest, 0.0) if len({own for own, _ in latest}) == len(latest) else math.nan
            # Where demand jumps, passes close in on it from both sides.
            x = x if low < x < high and passes < SMOOTH else 0.5 * (low + high)
    return None, numerics


class _Pass(NamedTuple):
    """Log price, log(used / bandwidth), what is used, and rates."""

    x: float
    off: float
    used: float
    rates: Array

    def line(self, other: _Pass, bandwidth: float) -> tuple[float, float]:
        """Return another pass's share that meets the bandwidth, and its loss."""
        if self.used == other.used:
            return 0.0, math.inf
        share = (bandwidth - self.used) / (other.used - self.used)
        return share, abs(share * (1.0 - share) * (self.x - other.x) * (self.off - other.off))


def _met(problem: Problem, rates: Array) -> Array | None:
    """Return rates within bounds that use the bandwidth, or None."""
    lower, upper, cost = problem.lower, problem.upper, problem.sources.refresh_cost
    rates = np.clip(rates, lower, upper)
    inside = np.where((rates > lower) & (rates < upper), rates, 0.0)
    missing, room = problem.bandwidth - total(cost * rates), total(cost * inside)
    if not (room > 0.0 and abs(missing) <= CLOSE * room):
        return None
    return np.clip(rates + inside * (missing / room), lower, upper)


def _typical_price(problem: Problem, kernel: Kernel, few: IntArray) -> float:
    """Return the logarithm of a sampled price at equal rates."""
    cost = problem.sources.refresh_cost[few]
    share = problem.bandwidth / total(problem.sources.refresh_cost)
    slope = kernel.marginal(np.full(len(few), share)) / cost
    usable = slope[(slope > 0.0) & np.isfinite(slope)]
    return median(np.log(usable)) if len(usable) else 0.0
