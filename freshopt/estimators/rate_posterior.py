"""`RatePosterior`: posterior distribution of each change rate, given a log.

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

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from freshopt.errors import FreshoptError
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
from freshopt.estimators.crawl_rows import Forgetting, GammaParameters, moment_of
from freshopt.estimators.rate_distribution import RateDistribution, RateEvidence, crawled_range
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import CHUNK, Array, IntArray, chunks
from freshopt.numerics.density_quantiles import GridQuantiles, modes
from freshopt.numerics.segments import segment_sums


@dataclass(frozen=True, slots=True, eq=False)
class RatePosterior:
    """Posterior distribution of each source's change rate.

    Attributes
    ----------
    forgetting : Forgetting
        With weights w and without a prior each source counts as (Σw)²/Σw² crawls: the interval covers a rate
        that did not drift. With a prior the weights are taken as they are, and stale sources return to it.
    prior : GammaParameters or None
        Gamma priors of the sources, in the log's time unit.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 4, time=[0.0, 1.0, 2.0, 3.0], changed=[0, 1, 0, 1])
    >>> lower, upper = RatePosterior(log, Forgetting(None), None).distribution().interval(0.95)
    >>> float(lower[0].round(2)), float(upper[0].round(2))  # −ln(1−μ), μ ~ Beta(2.5, 1.5)
    (0.19, 3.25)
    """

    log: CrawlLog
    forgetting: Forgetting
    prior: GammaParameters | None

    def distribution(self) -> RateDistribution:
        """Return the posterior distribution of the change rates."""
        observed = self._observed(jeffreys=self.prior is None)
        if self.prior is None:
            never = (observed.found == 0) & (observed.counted == 0.0)
            always = (observed.found > 0) & (observed.counted == 0.0) & (observed.exposure == 0.0)
        else:
            observed = observed.under(self.prior)
            never = always = np.zeros(len(observed.counted), dtype=np.bool_)
        return RateDistribution(lambda levels: _quantiles(observed, levels), never, always, self.evidence)

    def evidence(self) -> RateEvidence:
        """Return what the crawls tell, the rate of births alone of priors."""
        log = self.log
        observed = self._observed(jeffreys=False)
        if self.prior is not None and observed.age is not None:
            exposure, births = observed.exposure + observed.age, self.prior.birth_rate
            observed = replace(observed, exposure=exposure, birth_rate=births)

        def value(rates: Array, which: IntArray) -> Array:
            some = observed.select(which)
            return np.stack([some.value(rate) for rate in rates])

        changed = (observed.found > 0) | (observed.counted > 0)
        if observed.birth_rate is not None and observed.possible is not None:
            changed |= (observed.possible > 0) & (observed.birth_rate == 0.0)
        endless = (observed.found > 0) & (observed.counted == 0) & (observed.exposure == 0)
        time = observed.exposure + segment_sums(observed.intervals, observed.offsets)
        range_ = crawled_range(log.interval[~np.isnan(log.interval)], time, observed.counted)
        expected = None if self.prior is None else self.prior.shape / self.prior.exposure
        if expected is not None and not np.ptp(expected) > 0.0:
            expected = None
        return RateEvidence(value, *range_, changed, endless, mean_gaps(log), expected)

    def _observed(self, *, jeffreys: bool) -> CrawlLikelihood:
        """Return the likelihood of the crawls, old ones weighed less."""
        log = self.log
        weight = self.forgetting.weights(log, slice(None), moment_of(log, log.end))
        if weight is not None and self.prior is None:
            weight = _alike(np.where(np.isnan(log.interval), 0.0, weight), weight, log.offsets)
        return CrawlLikelihood.of(log, weight, jeffreys=jeffreys)


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
    number, span = posterior._number(), posterior._span()
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


def mean_gaps(log: CrawlLog) -> Array:
    """Return the mean crawl interval of each source, or NaN."""
    seen = ~np.isnan(log.interval)
    total, number = (segment_sums(v, log.offsets) for v in (np.where(seen, log.interval, 0.0), 1.0 * seen))
    mean: Array = np.divide(total, number, out=np.full(len(total), np.nan), where=number > 0)
    return mean


def _alike(effective: Array, weight: Array, offsets: IntArray) -> Array:
    """Return weights with which each source counts as (Σw)²/Σw² crawls."""
    total, square = (segment_sums(values, offsets) for values in (effective, effective**2))
    alike: Array = weight * np.repeat(total / np.where(square > 0, square, 1.0), np.diff(offsets))
    return alike
