"""`MarginalLikelihood`: marginal likelihood of a log under gamma priors.

The integral over the rate of a source is that of a Gamma with the same mode and curvature (`evidence`), but
for sources that most crawls found changed: their likelihood is level where rates are high, and falls towards
low rates as no Gamma does. Two crawls a source would then tell that rates are spread over a hundred decades.
Such a source is integrated in ln Δ by the trapezoidal rule, whose error falls as e^{−2π²(σ/h)²} for a width σ
and a step h, with incomplete gamma functions beyond the ends. The likelihoods at the nodes do not depend on
the prior: they are computed once, and a prior costs one product of a matrix and a vector. With a first date
there are two of them, as it is a change or a birth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.inference.crawl_likelihood import CrawlLikelihood
from freshopt.inference.dated_crawls import GammaParameters
from freshopt.inference.evidence import best_births, by_odds, with_births
from freshopt.numerics.arrays import Array, BoolArray

# Share of a source's time that ended with a change, above which its likelihood is no Gamma's.
SATURATED = 0.1
# Step of the rule in ln Δ, and least standard deviation of ln Δ for which it serves.
STEP, NARROWEST = 0.2, 0.15
# Largest shape of a prior that is not too narrow for the rule.
STEEP = 25.0
# Ends of the grid: changes in all the time of a source, and in the shortest of its times.
FEWEST, MOST = 1e-3, 40.0
# Exponents for which two terms of the series of the left end are enough, and beyond which all is 0.
NEAR, FAR = 1e-2, 600.0


@dataclass(frozen=True, slots=True, eq=False)
class MarginalLikelihood:
    """Marginal likelihood of a log as a function of the gamma prior.

    Parameters
    ----------
    observed : CrawlLikelihood
        Of all sources.
    smooth : CrawlLikelihood or None
        Of those whose likelihood is close to a Gamma's.
    grid : Grid or None
        The others', their first dates being births; None without any.
    changes : Grid or None
        The same, their first dates being changes.
    dated : ndarray of bool or None
        Which of the others have first dates; None if the log has none.
    """

    observed: CrawlLikelihood
    smooth: CrawlLikelihood | None
    grid: Grid | None
    changes: Grid | None = None
    dated: BoolArray | None = None

    @classmethod
    def of(cls, observed: CrawlLikelihood, mean: float, shape: float) -> MarginalLikelihood:
        """Return that of a log; rates have roughly this mean and shape."""
        hard = _saturated(observed, mean, shape)
        if not np.any(hard):
            return cls(observed, observed, None)
        smooth = None if np.all(hard) else observed.select(~hard)
        own = observed.select(hard)
        if own.age is None or own.possible is None:
            grid = Grid.of(own)
            return cls(observed, smooth, grid, grid)
        births = replace(own.counting(0.0, own.age), possible=None, age=None)
        grid, dated = Grid.of(births), own.possible > 0.0
        changes = Grid.of(births.counting(own.possible, 0.0)) if np.any(dated) else grid
        return cls(observed, smooth, grid, changes, dated)

    def best(self, shape: float, exposure: float) -> tuple[float, float]:
        """Return the log marginal likelihood at its best birth rate.

        And that rate.
        """
        evidence, odds, age = self._parts(shape, exposure)
        births = best_births(odds, age)
        return with_births(evidence, odds, births, age), births

    def at(self, shape: float, exposure: float, birth_rate: float = 0.0) -> float:
        """Return the log marginal likelihood under one prior."""
        evidence, odds, age = self._parts(shape, exposure)
        return with_births(evidence, odds, birth_rate, age)

    def _parts(self, shape: float, exposure: float) -> tuple[float, Array, float | None]:
        """Return evidence of changes, odds of births, and total age."""
        age = None if self.observed.age is None else float(np.sum(self.observed.age))
        if self.grid is None or self.changes is None or shape > STEEP:
            return *by_odds(self.observed, shape, exposure), age
        evidence, odds = (0.0, np.zeros(0)) if self.smooth is None else by_odds(self.smooth, shape, exposure)
        change = self.changes.integrals(shape, exposure)
        if self.dated is not None and np.any(self.dated):
            birth = self.grid.integrals(shape, exposure)
            odds = np.append(odds, np.exp((birth - change)[self.dated]))
        return evidence + float(np.sum(change)), odds, age


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Likelihoods of n sources at common rates.

    Parameters
    ----------
    rate : ndarray, shape (J,)
        Equally spaced in logarithms.
    largest : ndarray, shape (n,)
        Logarithm of each source's largest likelihood over the rates.
    likelihood : ndarray, shape (n, J)
        In units of that.
    power : ndarray, shape (n,)
        Number of changes: below the lowest rate the likelihood is proportional to Δ^power·e^{−time·Δ}.
    time : ndarray, shape (n,)
        What falls as e^{−time·Δ}.
    counted : ndarray, shape (n,)
        Those that are counted: above the highest rate it is proportional to Δ^counted·e^{−time·Δ}.
    """

    rate: Array
    largest: Array
    likelihood: Array
    power: Array
    time: Array
    counted: Array

    @classmethod
    def of(cls, observed: CrawlLikelihood) -> Grid:
        """Return the likelihoods of sources that changed.

        Each has a crawl that found a change.
        """
        span = observed.exposure + observed._span()
        shortest = float(np.min(observed.intervals))
        if np.any(observed.exposure > 0.0):
            shortest = min(shortest, float(np.min(observed.exposure[observed.exposure > 0.0])))
        low, high = np.log(FEWEST / np.max(span)), np.log(MOST / shortest)
        rate = np.exp(np.linspace(low, high, int(np.ceil((high - low) / STEP)) + 1))
        n = len(span)
        value = np.stack([observed.value(np.full(n, each)) for each in rate], axis=1)
        largest = np.max(value, axis=1)
        value -= largest[:, None]
        power = observed._number() + observed.counted
        return cls(rate, largest, np.exp(value, out=value), power, observed.exposure, observed.counted)

    def integrals(self, shape: float, exposure: float) -> Array:
        """Return the log marginal likelihood of each source."""
        from scipy.special import gammaincc, gammaln, hyp1f1

        x = exposure * self.rate
        density = np.exp(shape * np.log(x) - x - gammaln(shape))  # of ln Δ
        step = np.log(self.rate[1] / self.rate[0])
        weight = density * step
        weight[[0, -1]] *= 0.5
        total, left = shape + self.power, shape + self.counted
        # By Euler and Maclaurin: the rule's error is h²/12 of the difference of the slopes at the ends.
        falls = exposure + self.time
        slope = self.likelihood[:, -1] * density[-1] * (left - falls * self.rate[-1])
        slope -= self.likelihood[:, 0] * density[0] * (total - falls * self.rate[0])
        # Not by BLAS, whose order of terms depends on the number of cores.
        inside = np.sum(self.likelihood * weight, axis=1) - step**2 / 12.0 * slope
        # ∫₀^Δ₀ of (Δ/Δ₀)^power e^{−time·(Δ−Δ₀)} times the prior, by Kummer's series.
        z = np.minimum(falls * self.rate[0], FAR)
        short = 1.0 + z / (total + 1.0) * (1.0 + z / (total + 2.0))
        series = short if np.max(z) < NEAR else hyp1f1(1.0, total + 1.0, z)
        below = self.likelihood[:, 0] * density[0] * series / total
        # ∫ from the highest rate on of Δ^counted e^{−time·Δ} times the prior, in units of the largest.
        above = np.zeros(len(total))
        some = np.flatnonzero(falls * self.rate[-1] < FAR)
        own, fall = left[some], falls[some]
        outside = shape * np.log(exposure) - own * np.log(fall) + gammaln(own) - gammaln(shape)
        above[some] = gammaincc(own, fall * self.rate[-1]) * np.exp(outside - self.largest[some])
        found: Array = self.largest + np.log(inside + below + above)
        return found


def _saturated(observed: CrawlLikelihood, mean: float, shape: float) -> BoolArray:
    """Return which sources are integrated by the rule."""
    n = len(observed.counted)
    span = observed._span()
    often = (observed.found > 0) & (span > SATURATED * (span + observed.exposure))
    if not np.any(often):
        return often
    prior = GammaParameters(np.full(n, shape), np.full(n, shape / mean), np.zeros(n))
    often[often] = observed.counting(prior.shape, prior.exposure).select(often).peaks().bend < NARROWEST**-2.0
    return often
