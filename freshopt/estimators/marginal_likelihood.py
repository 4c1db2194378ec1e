"""Marginal likelihood of a log under gamma priors, the rates integrated out.

The integral of a source is that of the Gamma with the same mode and curvature in ln Δ as its posterior: exact
for counted and dated changes and for a source without any, close where crawls tell only whether there was a
change (`explained`).

The date of a source's first crawl, of age A, is its last change or its birth. With lives exponential of rate
η its density is (Δ+η)e^{−(Δ+η)A}, so that the posterior is a mixture of two: with K changes and exposure U, A
included,

    Δ | log ~ p·Gamma(a+K+1, b+U) + (1−p)·Gamma(a+K, b+U),    p/(1−p) = (a+K)/(η(b+U)),

and its integral a sum of two, times e^{−ηA}. Given a and b the evidence is concave in η: its best value is
the root of a decreasing function.

Of sources that most crawls found changed (`MarginalLikelihood`) the likelihood is level where rates are high,
and falls towards low rates as no Gamma does. Two crawls a source would then tell that rates are spread over a
hundred decades. Such a source is integrated in ln Δ by the trapezoidal rule, whose error falls as
e^{−2π²(σ/h)²} for a width σ and a step h, with incomplete gamma functions beyond the ends. The likelihoods at
the nodes do not depend on the prior: they are computed once, and a prior costs one product of a matrix and a
vector. With a first date there are two of them, as it is a change or a birth.

Cost: one maximisation of the likelihood, two where first dates are told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import GammaParameters
from freshopt.heavy import optimize, special
from freshopt.numerics.arrays import Array, BoolArray


class Explained(NamedTuple):
    """Posterior of one explanation of the first dates.

    - `mode` (n,): Mode of ln Δ, which is the mean where all changes are counted or dated.
    - `evidence` (n,): The logarithm of the integral of prior and likelihood.
    """

    mode: Array
    evidence: Array


def explained(observed: CrawlLikelihood, prior: GammaParameters) -> tuple[Explained, Explained]:
    """Return the posteriors if first dates are changes, and births.

    Both are the same where no first date is told. The birth rate is not in them.
    """
    if observed.dates is None:
        alone = _integrated(observed.counting(prior.shape, prior.exposure), prior)
        return alone, alone
    possible, age = observed.dates
    birth = observed.counting(prior.shape, prior.exposure + age)
    return _integrated(birth.counting(possible, 0.0), prior), _integrated(birth, prior)


def posterior_mode(observed: CrawlLikelihood, prior: GammaParameters) -> Array:
    """Return the mode of ln Δ, averaged over changes and births.

    That is the posterior mean of Δ where all changes are counted or dated.

    Examples
    --------
    Unchanged since 3 days before its first crawl and for 2 after it; p is ½.

    >>> from freshopt.estimators.crawl_rows import FirstDates, Intervals
    >>> none, date = Intervals(np.empty(0), np.zeros(2, np.int64)), FirstDates(np.ones(1), np.array([3.0]))
    >>> one = CrawlLikelihood(none, counted=np.zeros(1), exposure=np.array([2.0]), dates=date)
    >>> posterior_mode(one, GammaParameters(np.ones(1), np.array([5.0]), np.array([0.1])))
    array([0.15])
    """
    if observed.dates is None:
        return observed.under(prior).maximum()
    change, birth = explained(observed, prior)
    told = observed.dates.possible > 0.0
    with np.errstate(divide="ignore"):
        against = observed.dates.possible[told] * np.log(prior.birth_rate[told])
    share = 1.0 / (1.0 + np.exp(against + birth.evidence[told] - change.evidence[told]))
    mode = change.mode.copy()
    mode[told] = share * change.mode[told] + (1.0 - share) * birth.mode[told]
    return mode


def by_odds(observed: CrawlLikelihood, shape: float, exposure: float) -> tuple[float, Array]:
    """Return the evidence if first dates are changes, and odds of births."""
    n = len(observed.counted)
    change, birth = explained(observed, GammaParameters(np.full(n, shape), np.full(n, exposure), np.zeros(n)))
    odds = np.empty(0)
    if observed.dates is not None:
        odds = np.exp((birth.evidence - change.evidence)[observed.dates.possible > 0.0])
    return float(np.sum(change.evidence)), odds


def laplace(value: Array, alpha: Array) -> Array:
    """Return log integrals of densities, as if Gamma, by their modes."""
    integral: Array = value + special.gammaln(alpha) + alpha - alpha * np.log(alpha)
    return integral


def _integrated(posterior: CrawlLikelihood, prior: GammaParameters) -> Explained:
    rate, value, alpha = posterior.peaks()  # the curvature in ln Δ is the shape of a Gamma
    each = laplace(value, alpha)
    return Explained(rate, each + prior.shape * np.log(prior.exposure) - special.gammaln(prior.shape))


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
# Stands for an integral that underflows: of a prior whose rates are far from all that a source may have.
NOTHING = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class MarginalLikelihood:
    """Marginal likelihood of a log as a function of the gamma prior.

    - `observed`: Of all sources.
    - `smooth`: Of those whose likelihood is close to a Gamma's.
    - `grids`: The others', their first dates being changes, and births: one and the same where there are no
      dates. None without any.
    - `dated`: Which of the others have first dates; None if the log has none.
    """

    observed: CrawlLikelihood
    smooth: CrawlLikelihood | None
    grids: tuple[Grid, Grid] | None
    dated: BoolArray | None = None

    @classmethod
    def of(cls, observed: CrawlLikelihood, mean: float, shape: float) -> MarginalLikelihood:
        """Return that of a log; rates have roughly this mean and shape."""
        hard = _saturated(observed, mean, shape)
        if not np.any(hard):
            return cls.smoothly(observed)
        smooth = None if np.all(hard) else observed.select(~hard)
        own = observed.select(hard)
        if own.dates is None:
            grid = Grid.of(own)
            return cls(observed, smooth, (grid, grid))
        possible, age = own.dates
        births = replace(own.counting(0.0, age), dates=None)
        grid, dated = Grid.of(births), possible > 0.0
        changes = Grid.of(births.counting(possible, 0.0)) if np.any(dated) else grid
        return cls(observed, smooth, (changes, grid), dated)

    @classmethod
    def smoothly(cls, observed: CrawlLikelihood) -> MarginalLikelihood:
        """Return that of sources whose likelihoods are all close to a Gamma's."""
        return cls(observed, observed, None)

    def best(self, shape: float, exposure: float) -> tuple[float, float]:
        """Return the largest log marginal likelihood and its birth rate."""
        evidence, odds = self._parts(shape, exposure)
        births = self._best_births(odds)
        return self._with_births(evidence, odds, births), births

    def at(self, shape: float, exposure: float, birth_rate: float = 0.0) -> float:
        """Return the log marginal likelihood under one prior."""
        return self._with_births(*self._parts(shape, exposure), birth_rate)

    @property
    def _age(self) -> float | None:
        """The sum of the ages of first dates, None without any."""
        return None if self.observed.dates is None else float(np.sum(self.observed.dates.age))

    def _best_births(self, odds: Array) -> float:
        """Return the likeliest rate of births by odds, 0 without dates."""
        age = self._age
        if age is None:
            return 0.0

        def slope(rate: float) -> float:
            return float(np.sum(odds / (1.0 + rate * odds))) - age

        if not (age > 0.0 and slope(0.0) > 0.0):
            return 0.0
        return float(optimize.brentq(slope, 0.0, len(odds) / age, xtol=1e-14 / age, rtol=1e-12))

    def _with_births(self, evidence: float, odds: Array, birth_rate: float) -> float:
        """Return the evidence at a rate of births."""
        if self._age is None:
            return evidence
        return evidence + float(np.sum(np.log1p(birth_rate * odds)) - birth_rate * self._age)

    def _parts(self, shape: float, exposure: float) -> tuple[float, Array]:
        """Return evidence of changes and odds of births."""
        if self.grids is None or shape > STEEP:
            return by_odds(self.observed, shape, exposure)
        evidence, odds = (0.0, np.zeros(0)) if self.smooth is None else by_odds(self.smooth, shape, exposure)
        changes, births = self.grids
        change = changes.integrals(shape, exposure)
        if self.dated is not None and np.any(self.dated):
            birth = births.integrals(shape, exposure)
            odds = np.append(odds, np.exp((birth - change)[self.dated]))
        return evidence + float(np.sum(change)), odds


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Likelihoods of n sources at common rates.

    - `rate` (J,): Equally spaced in logarithms.
    - `largest` (n,): Logarithm of each source's largest likelihood over the rates.
    - `likelihood` (n, J): In units of that.
    - `power` (n,): Number of changes: below the lowest rate the likelihood is proportional to
      Δ^power·e^{−time·Δ}.
    - `time` (n,): What falls as e^{−time·Δ}.
    - `counted` (n,): Those that are counted: above the highest rate it is proportional to
      Δ^counted·e^{−time·Δ}.
    """

    rate: Array
    largest: Array
    likelihood: Array
    power: Array
    time: Array
    counted: Array

    @classmethod
    def of(cls, observed: CrawlLikelihood) -> Grid:
        """Return the likelihoods of sources that crawls found changed."""
        span = observed.exposure + observed.rows.span
        shortest = float(np.min(observed.rows.length))
        if np.any(observed.exposure > 0.0):
            shortest = min(shortest, float(np.min(observed.exposure[observed.exposure > 0.0])))
        low, high = np.log(FEWEST / np.max(span)), np.log(MOST / shortest)
        rate = np.exp(np.linspace(low, high, int(np.ceil((high - low) / STEP)) + 1))
        n = len(span)
        value = np.stack([observed.value(np.full(n, each)) for each in rate], axis=1)
        largest = np.max(value, axis=1)
        value -= largest[:, None]
        power = observed.rows.size + observed.counted
        return cls(rate, largest, np.exp(value, out=value), power, observed.exposure, observed.counted)

    def integrals(self, shape: float, exposure: float) -> Array:
        """Return the log marginal likelihood of each source."""
        x = exposure * self.rate
        density = np.exp(shape * np.log(x) - x - special.gammaln(shape))  # of ln Δ
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
        series = short if np.max(z) < NEAR else special.hyp1f1(1.0, total + 1.0, z)
        below = self.likelihood[:, 0] * density[0] * series / total
        # ∫ from the highest rate on of Δ^counted e^{−time·Δ} times the prior, in units of the largest.
        above = np.zeros(len(total))
        some = np.flatnonzero(falls * self.rate[-1] < FAR)
        own, fall = left[some], falls[some]
        outside = (
            shape * np.log(exposure) - own * np.log(fall) + special.gammaln(own) - special.gammaln(shape)
        )
        above[some] = special.gammaincc(own, fall * self.rate[-1]) * np.exp(outside - self.largest[some])
        found: Array = self.largest + np.log(np.maximum(inside + below + above, NOTHING))
        return found


def _saturated(observed: CrawlLikelihood, mean: float, shape: float) -> BoolArray:
    """Return which sources are integrated by the rule."""
    n = len(observed.counted)
    span = observed.rows.span
    often = (observed.found > 0) & (span > SATURATED * (span + observed.exposure))
    if not np.any(often):
        return often
    prior = GammaParameters(np.full(n, shape), np.full(n, shape / mean), np.zeros(n))
    often[often] = observed.counting(prior.shape, prior.exposure).select(often).peaks().bend < NARROWEST**-2.0
    return often
