"""Few passes over sources whose best responses are dear, or from tables.

A sample tells the price, a larger one corrects it, and two or three passes over all sources, by secants of
the logarithms, use the bandwidth to 1e-9; what is left goes to all rates between their bounds. Hosts, and
demand that jumps, are for the general search, with the same best responses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from freshopt.certificates.solution import Answer
from freshopt.compiled.columns import spread
from freshopt.dual_search.price_bracketing import trimmed
from freshopt.dual_search.sampled_search import interpolated, root
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import ROUNDED, Array, Index, IntArray, total
from freshopt.separable.kernel import Kernel, Numerics, Quick

# Sources of the first sample, and of the second, of which there is one in so many.
FIRST, SPARSE = 128, 64
# What samples' prices, and the bandwidth that all use, may be off by.
ROUGH, FINE, CLOSE = 1e-2, 1e-5, 1e-9
PASSES = 8
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
    log_bandwidth, everyone = math.log(problem.bandwidth), slice(None)

    def rates_at(x: float, index: Index) -> Array:
        own = cost[index]
        free = quick.respond(math.exp(x) * own, index)
        free = np.where(np.isinf(free), 2.0 * problem.bandwidth / own, free)
        rates: Array = np.clip(free, lower[index], upper[index])
        return rates

    def off_at(x: float, index: Index, weight: float) -> float:
        used = weight * total(cost[index] * rates_at(x, index))
        return math.log(used) - log_bandwidth if 0.0 < used < math.inf else math.copysign(1e3, used - 1.0)

    few, many = spread(n, FIRST), spread(n, max(FIRST, n // SPARSE))
    x = math.log(start) if start else _typical_price(problem, kernel.take(few), few)
    x = root(lambda x: off_at(x, few, n / len(few)), x, ROUGH)
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
    weight = n / len(many)
    x = root(lambda x: off_at(x, many, weight), x, FINE)
    seen: list[tuple[float, float]] = []
    for passes in range(1, PASSES + 1):
        if not math.isfinite(x) or any(x == place for _, place in seen):
            break
        rates = rates_at(x, everyone)
        used = total(cost * rates)
        inside = np.where((rates > lower) & (rates < upper), rates, 0.0)
        room = total(cost * inside)
        if not (0.0 < used < math.inf and room > 0.0):
            break
        off = math.log(used) - log_bandwidth
        if abs(off) * used <= CLOSE * room:
            rates += inside * ((problem.bandwidth - used) / room)
            rates = np.clip(rates, lower, upper)
            return Answer(
                trimmed(problem, rates), math.exp(x), problem.hosts.named(np.zeros(0)), passes
            ), numerics
        seen.append((off, x))
        if passes == 1:
            apart = off_at(x, many, weight) - off
            x = root(lambda x, apart=apart: off_at(x, many, weight) - apart, x, FINE * FINE)
        else:
            latest = seen[-3:]
            x = interpolated(latest, 0.0) if len({own for own, _ in latest}) == len(latest) else math.nan
    return None, numerics


def _typical_price(problem: Problem, kernel: Kernel, few: IntArray) -> float:
    """Return the logarithm of a sampled price at equal rates."""
    cost = problem.sources.refresh_cost[few]
    share = problem.bandwidth / total(problem.sources.refresh_cost)
    slope = kernel.marginal(np.full(len(few), share)) / cost
    usable = slope[(slope > 0.0) & np.isfinite(slope)]
    return float(np.median(np.log(usable))) if len(usable) else 0.0
