"""Posterior distributions of change rates, and likelihoods beside the prior.

`RateDistribution` has quantiles, intervals and random samples, `RateEvidence` likelihoods.

Every estimator has one. Those that keep the crawls take it from them (`rate_posterior`), those that keep a
few sums from a distribution in closed form (`of_counts`, `of_crawls`). All are posteriors under
Jeffreys' prior unless the estimator has a prior of its own: their central intervals cover the true rate about
as often as they say, from few crawls on.

Without a prior over sources it is Jeffreys' posterior (`crawl_formulas`), whose central intervals cover the
true rate about as often as they say, also after few crawls and although the outcomes are binary:
likelihood-ratio intervals, exact ones and those between have coverage errors that are larger on average over
rates (`benchmarks/accuracy/interval_coverage.py`). No smoothing enters. With a prior it is the posterior of
empirical Bayes.

Cost: some 20 evaluations of the density per source, one exponential per crawl interval each; with 100 crawls
of a source 4 to 8 µs where loops are compiled, 30 to 70 µs in NumPy. Sources are taken in blocks, so that
the memory is that of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from freshopt.errors import FreshoptError, check_seed
from freshopt.estimators.crawl_formulas import (
    CELL,
    FAR,
    NODES,
    SHARP,
    STEPS,
    TOGETHER,
    mode_step,
    posterior_range,
)
from freshopt.estimators.crawl_likelihood import BLOCK, CrawlLikelihood, crawl_loops, plain
from freshopt.estimators.crawl_rows import Forgetting, GammaParameters
from freshopt.heavy import special
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import CHUNK, SMALLEST, Array, BoolArray, IntArray, as_whole, chunks
from freshopt.numerics.density_quantiles import GridQuantiles, modes
from freshopt.numerics.gauss_quadrature import Quadrature, gauss_rows
from freshopt.numerics.segments import segment_sums

# Largest number of samples at once: 4 GB, and as many again on the way.
MOST_NUMBERS = 500_000_000
# Level that replaces 0, which has no quantile; what is cut off is too rare for any sample.
EDGE = 1e-9
# Number of quantiles that stand for a posterior; their levels are Φ(z), z from −6 to 6, where 1e-9 is left.
LEVELS, REACH = 24, 6.0


@dataclass(frozen=True, slots=True, eq=False)
class RateDistribution:
    """Posterior distributions of n change rates.

    - `quantiles`: Takes levels of shape (k, n), returns change rates of that shape; NaN for a source without
      data.
    - `lowest`, `highest` (n,): Sources whose intervals begin at 0, because they never changed, or have no
      end, because they had always changed.
    - `evidence`: Takes nothing, returns what is behind them beside the prior.

    Examples
    --------
    >>> rates = RateDistribution.of_counts(np.array([3.0]), np.array([2.0]))
    >>> [float(end.round(3)[0]) for end in rates.interval(0.95)]
    [0.422, 4.003]
    """

    quantiles: Callable[[Array], Array]
    lowest: BoolArray
    highest: BoolArray
    evidence: Callable[[], RateEvidence] | None = None

    @classmethod
    def of_counts(cls, changes: Array, time: Array) -> RateDistribution:
        """Return the gamma posterior Gamma(changes + ½)/time of counts."""

        def quantiles(levels: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore"):
                rates: Array = np.where(time > 0, special.gammaincinv(changes + 0.5, levels) / time, np.nan)
            return rates

        never = np.zeros(len(changes), dtype=np.bool_)
        return cls(quantiles, changes == 0, never, lambda: RateEvidence.of_counts(changes, time))

    @classmethod
    def of_crawls(cls, found: Array, missed: Array, scale: Array, *, odds: bool) -> RateDistribution:
        """Return the distribution of scale·μ/(1−μ), or of scale·μ, μ beta distributed.

        μ ~ Beta(found + ½, missed + ½): crawls found a change or missed one.
        """

        def quantiles(levels: Array) -> Array:
            known = found + missed > 0
            share = np.where(known, special.betaincinv(found + 0.5, missed + 0.5, levels), np.nan)
            with np.errstate(divide="ignore"):
                return scale * (share / (1.0 - share) if odds else share)

        return cls(
            quantiles,
            found == 0,
            (missed == 0) & odds,
            lambda: RateEvidence.of_crawls(found, missed, scale, odds=odds),
        )

    def median(self) -> Array:
        """Return the posterior medians, shape (n,), NaN without data."""
        median: Array = self.quantiles(np.full((1, len(self.lowest)), 0.5))[0]
        return median

    def interval(self, confidence: float) -> tuple[Array, Array]:
        """Return central credible intervals of all rates, (0, inf) without data."""
        tail = 0.5 * (1.0 - confidence)
        levels = np.repeat([[tail], [1.0 - tail]], len(self.lowest), axis=1)
        lower, upper = self.quantiles(levels)
        lower[self.lowest | np.isnan(lower)] = 0.0
        upper[self.highest | np.isnan(upper)] = np.inf
        return lower, upper

    def nodes(self, number: int = 8) -> Quadrature:
        """Return the Gauss quadrature of each posterior in ∛Δ.

        Its weighted sums are posterior expectations: of Δ itself exact up to the quantiles, of costs close.
        Nodes and weights are NaN where there is no data.

        Notes
        -----
        The cube root of a gamma variable is nearly normal, and Gauss nodes are exact for its powers. With
        8 of them the mean is right to 1e-6. Costs under binary, harmonic and age penalties, periodic and
        Poisson refreshes at 0.01 to 10 refreshes per change, are off by at most 5e-4 of themselves where the
        posterior is a Gamma of shape 1, 1e-3 at 0.6, 7e-3 at 0.3, 3e-2 at 0.1, and 2e-6 at 3. Nodes in Δ
        itself would be off by 2e-2, 8e-2, 0.3, 1 and 4e-4.
        """
        number = as_whole(number, "nodes", 2, 16)
        n = len(self.lowest)
        z = np.linspace(-REACH, REACH, LEVELS)
        mass = np.exp(-0.5 * z * z)
        mass /= np.sum(mass)
        rates, weights = np.full((n, number), np.nan), np.full((n, number), np.nan)
        levels = np.clip(special.ndtr(z), EDGE, 1.0 - EDGE)
        # One source at a time would do: what others there are does not move a source's nodes.
        quantiles = self.quantiles(np.repeat(levels[:, None], n, axis=1)).T
        known = np.flatnonzero(np.all(np.isfinite(quantiles), axis=1))
        for part in chunks(len(known), CHUNK):
            some = known[part]
            roots = np.cbrt(np.maximum(quantiles[some], SMALLEST))
            found = gauss_rows(roots, np.repeat(mass[None], len(some), axis=0), number)
            inside = np.clip(found.nodes, roots[:, :1], roots[:, -1:])
            rates[some], weights[some] = np.maximum(inside**3, SMALLEST), found.weights
        return Quadrature(rates, weights)

    def draws(self, count: int, seed: int) -> Array:
        """Return independent posterior samples, shape (count, n), NaN without data."""
        count = as_whole(count, "draws", 1, MOST_NUMBERS // max(1, len(self.lowest)))
        uniform = np.random.default_rng(check_seed(seed)).random((count, len(self.lowest)))
        return self.quantiles(np.clip(uniform, EDGE, 1.0 - EDGE))


# Rates beyond what crawls tell: by these factors slower than 1 in the longest time, and faster than 1 in the
# shortest gap. Of rates with a heavy tail a few in a thousand are faster than that.
SLOWER, FASTER = 100.0, 300.0


@dataclass(frozen=True, slots=True, eq=False)
class RateEvidence:
    """What is known of n change rates, whatever the prior.

    - `log_likelihood`: Takes change rates of shape (k, m) and the increasing positions, shape (m,), of their
      sources; returns log-likelihoods of that shape, 0 where there is no data.
    - `slowest`, `fastest`: Rates beyond which crawls tell nothing.
    - `changed`, `open` (n,): Sources of which a change was seen, and those whose crawls any rate explains,
      however large.
    - `gap` (n,): Mean time between crawls; NaN where there are none, or their number is not kept.
    - `expected` (n,): Mean of each source's own prior, where these differ.

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
    expected: Array | None = None

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
    def of_crawls(cls, found: Array, missed: Array, scale: Array, *, odds: bool) -> RateEvidence:
        """Return what shares tell: found·ln μ + missed·ln(1−μ).

        Δ = scale·μ/(1−μ), or scale·μ.
        """
        known = (found + missed > 0.0) & np.isfinite(scale) & (scale > 0.0)
        unit = np.where(known, scale, 1.0)

        def value(rates: Array, which: IntArray) -> Array:
            x, few, others = rates / unit[which], found[which], missed[which]
            if odds:
                told = few * (np.log(x) - np.log1p(x)) - others * np.log1p(x)
            else:
                with np.errstate(divide="ignore", invalid="ignore"):
                    none = np.where(others > 0.0, others * np.log1p(-np.minimum(x, 1.0)), 0.0)
                told = np.where(x > 1.0, -np.inf, few * np.log(x) + none)
            return np.where(known[which], told, 0.0)

        gap = np.divide(1.0, scale, out=np.full(len(scale), np.nan), where=known)
        span = (found + missed)[known] * gap[known]
        endless = known & (missed == 0.0) & odds
        return cls(value, *_range(span, FASTER * scale[known]), found > 0.0, endless, gap)

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


def _range(span: Array, fastest: Array) -> tuple[float, float]:
    """Return the slowest and the fastest rate that crawls tell, or 0."""
    if len(span) == 0:
        return 0.0, 0.0
    return 1.0 / (SLOWER * float(np.max(span))), float(np.max(fastest))


def rate_posterior(log: CrawlLog, forgetting: Forgetting, prior: GammaParameters | None) -> RateDistribution:
    """Return the posterior distribution of each source's change rate.

    - `forgetting`: With weights w and without a prior each source counts as (Σw)²/Σw² crawls: the interval
      covers a rate that did not drift. With a prior the weights are taken as they are, and stale sources
      return to it.
    - `prior`: Gamma priors of the sources, in the log's time unit.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 4, time=[0.0, 1.0, 2.0, 3.0], changed=[0, 1, 0, 1])
    >>> lower, upper = rate_posterior(log, Forgetting(None), None).interval(0.95)
    >>> float(lower[0].round(2)), float(upper[0].round(2))  # −ln(1−μ), μ ~ Beta(2.5, 1.5)
    (0.19, 3.25)
    """
    weight = forgetting.weights(log)
    if weight is not None and prior is None:
        weight = _alike(np.where(np.isnan(log.interval), 0.0, weight), weight, log.offsets)
    observed = CrawlLikelihood.of(log, weight, jeffreys=prior is None)
    if prior is None:
        never = (observed.found == 0) & (observed.counted == 0.0)
        always = (observed.found > 0) & (observed.counted == 0.0) & (observed.exposure == 0.0)
    else:
        observed = observed.under(prior)
        never = always = np.zeros(len(observed.counted), dtype=np.bool_)
    return RateDistribution(
        lambda levels: _quantiles(observed, levels), never, always, lambda: crawl_evidence(log, weight, prior)
    )


def crawl_evidence(log: CrawlLog, weight: Array | None, prior: GammaParameters | None) -> RateEvidence:
    """Return what weighted crawls tell, the rate of births alone of priors."""
    observed = CrawlLikelihood.of(log, weight)
    if prior is not None and observed.dates is not None:
        exposure = observed.exposure + observed.dates.age
        observed = replace(observed, exposure=exposure, birth_rate=prior.birth_rate)

    def value(rates: Array, which: IntArray) -> Array:
        some = observed.select(which)
        return np.stack([some.value(rate) for rate in rates])

    changed = (observed.found > 0) | (observed.counted > 0)
    if observed.birth_rate is not None and observed.dates is not None:
        changed |= (observed.dates.possible > 0) & (observed.birth_rate == 0.0)
    endless = (observed.found > 0) & (observed.counted == 0) & (observed.exposure == 0)
    time = observed.exposure + segment_sums(observed.rows.length, observed.rows.offsets)
    gap, known = log.interval[log.interval > 0.0], time > 0.0
    fastest = FASTER * np.concatenate([1.0 / gap, observed.counted[known] / time[known]])
    expected = None if prior is None else prior.shape / prior.exposure
    if expected is not None and not np.ptp(expected) > 0.0:
        expected = None
    ends = _range(time[known], fastest)
    return RateEvidence(value, *ends, changed, endless, 1.0 / log.crawl_rate, expected)


def _quantiles(posterior: CrawlLikelihood, levels: Array) -> Array:
    """Return quantiles of the change rates, NaN for sources without data."""
    if posterior.loaded:
        return _by_loops(posterior, levels)
    rates = np.full(levels.shape, np.nan)
    for part, block in posterior._blocks():
        known = np.flatnonzero(block.known)
        for some, grid in _grids(block.select(known)) if len(known) else ():
            at, each = part.start + known[some], max(1, BLOCK // len(some))
            for k in range(0, len(levels), each):
                rates[k : k + each, at] = np.exp(grid.at(levels[k : k + each, at]))
    return rates


def _by_loops(posterior: CrawlLikelihood, levels: Array) -> Array:
    quiet = None if posterior.quiet is None else plain(posterior.quiet)
    (time,) = plain((np.empty(0) if posterior.time is None else posterior.time,))
    given = (plain(posterior.rows), quiet, plain(posterior.terms), time)
    rates, unsettled = np.full(levels.shape, np.nan), 0
    for part in chunks(len(posterior.counted), CHUNK):
        asked, found = plain((levels[:, part],))[0], np.full((len(levels), part.stop - part.start), np.nan)
        unsettled += crawl_loops()[2](part.start, part.stop, *given, asked, found)
        rates[:, part] = found
    if unsettled:
        raise FreshoptError(f"{unsettled} quantiles did not settle. Report the gaps of the log.")
    return rates


def _grids(posterior: CrawlLikelihood) -> Iterator[tuple[IntArray, GridQuantiles]]:
    """Yield sources' positions and quantiles, those with a sharp mode first."""
    jeffreys, terms = posterior.quiet is not None, posterior.terms
    number, span = posterior.rows.size, posterior.rows.span
    start = np.log((number + terms.counted + 0.5 * jeffreys) / (0.5 * span + terms.exposure))
    mode, deviation, unclear = modes(posterior.density, start, STEPS, mode_step)
    sharp = deviation < SHARP
    sharp[unclear] = False
    far = posterior.density(mode + NODES[1] * deviation)[0] - posterior.density(mode)[0]
    sharp &= far < -FAR  # where nearly all crawls found a change the right tail is long
    if len(chosen := np.flatnonzero(sharp)):
        at, unit = mode[chosen], deviation[chosen]
        density = posterior.select(chosen).density
        yield chosen, GridQuantiles.of(density, at + NODES[0] * unit, at + NODES[1] * unit, NODES[2])
    if len(chosen := np.flatnonzero(~sharp)):
        others = posterior.select(chosen)
        with np.errstate(divide="ignore"):
            known = number[chosen], span[chosen], _shortest(others)
            left, right = posterior_range(others.terms, *known, jeffreys)
        # By its own range alone: what other sources there are does not move a source's nodes.
        cells = TOGETHER * np.ceil((right - left) / (TOGETHER * CELL)).astype(np.int64)
        for count in np.unique(cells).tolist():
            some = np.flatnonzero(cells == count)
            density = others.select(some).density
            yield chosen[some], GridQuantiles.of(density, left[some], right[some], count + 1)


def _shortest(posterior: CrawlLikelihood) -> Array:
    """Return each source's shortest crawl interval, inf without any."""
    shortest = np.full(len(posterior.counted), np.inf)
    for rows in (posterior.rows, posterior.quiet):
        if rows is not None and len(filled := np.flatnonzero(rows.number)):
            least = np.minimum.reduceat(rows.length, rows.offsets[filled])
            shortest[filled] = np.minimum(shortest[filled], least)
    return shortest


def _alike(effective: Array, weight: Array, offsets: IntArray) -> Array:
    """Return weights with which each source counts as (Σw)²/Σw² crawls."""
    total, square = (segment_sums(values, offsets) for values in (effective, effective**2))
    alike: Array = weight * np.repeat(total / np.where(square > 0, square, 1.0), np.diff(offsets))
    return alike
