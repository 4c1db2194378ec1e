"""`RatePosterior`: posterior distribution of each change rate, given a log.

Without a prior over sources it is Jeffreys' posterior (`log_density`), whose central intervals cover the true
rate about as often as they say, also after few crawls and although the outcomes are binary: likelihood-ratio
intervals, exact ones and those between have coverage errors that are larger on average over rates
(`benchmarks/accuracy/interval_coverage.py`). No smoothing enters. With a prior it is the posterior of
empirical Bayes.

Cost: some 20 evaluations of the density per source, one exponential per crawl interval each; with 100 crawls
of a source 4 to 8 µs where loops are compiled, 100 to 200 µs in NumPy. Sources are taken in blocks, so that
the memory is that of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from freshopt.inference.compiled_likelihood import worthwhile
from freshopt.inference.compiled_posterior import compiled_extremes, compiled_quantiles
from freshopt.inference.crawl_likelihood import BLOCK, CrawlLikelihood
from freshopt.inference.dated_crawls import GammaParameters, counted_changes, first_dates
from freshopt.inference.forgetting import Forgetting, moment_of
from freshopt.inference.log_posterior import LogDensity
from freshopt.inference.rate_distribution import RateDistribution
from freshopt.inference.rate_evidence import RateEvidence, crawled_range
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_sums


@dataclass(frozen=True, slots=True, eq=False)
class RatePosterior:
    """Posterior distribution of each source's change rate.

    Attributes
    ----------
    log : CrawlLog
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
        never, always = (
            self._extremes() if self.prior is None else (np.zeros(len(self.log.sources_), np.bool_),) * 2
        )
        return RateDistribution(self._quantiles, never, always, self.evidence)

    def evidence(self) -> RateEvidence:
        """Return what the crawls tell, beside the prior.

        Of this the rate of births alone is taken.
        """
        log = self.log
        seen = ~np.isnan(log.interval)
        weight = self.forgetting.weights(log, slice(None), moment_of(log, log.end))
        if weight is not None and self.prior is None:
            weight = _alike(np.where(seen, weight, 0.0), weight, log.offsets)
        observed = CrawlLikelihood.of(log, weight)
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
        range_ = crawled_range(log.interval[seen], time, observed.counted)
        return RateEvidence(value, *range_, changed, endless, mean_gaps(log))

    def _quantiles(self, levels: Array) -> Array:
        if worthwhile(len(self.log)):
            return compiled_quantiles(self.log, self.forgetting, self.prior, levels)
        rates = np.full(levels.shape, np.nan)
        for part, known, density in self._blocks():
            where = part.start + np.flatnonzero(known)
            for chosen, grid in density.grids():
                at, some = where[chosen], max(1, BLOCK // len(chosen))
                for k in range(0, len(levels), some):
                    rates[k : k + some, at] = np.exp(grid.at(levels[k : k + some, at]))
        return rates

    def _extremes(self) -> tuple[BoolArray, BoolArray]:
        """Return which sources never changed or had always changed.

        Always: every crawl found a change, and how many is unknown.
        """
        log = self.log
        if worthwhile(len(log)):
            return compiled_extremes(log)
        seen = ~np.isnan(log.interval)
        counted = seen & ~np.isnan(counted_changes(log)[0])
        rows = segment_sums(seen.astype(np.float64), log.offsets)
        found = segment_sums((log.changed & seen).astype(np.float64), log.offsets)
        open_rows = segment_sums((seen & ~counted).astype(np.float64), log.offsets)
        return found == 0, (found == rows) & (open_rows == rows) & (rows > 0)

    def _blocks(self) -> Iterator[tuple[slice, BoolArray, LogDensity]]:
        """Yield blocks of sources with their posterior densities.

        Also which sources of each block are known.
        """
        log, n, start = self.log, len(self.log.sources_), 0
        newest = moment_of(log, log.end)
        while start < n:
            end = int(np.searchsorted(log.offsets, log.offsets[start] + BLOCK, side="right")) - 1
            end = min(max(end, start + 1), n)
            rows = slice(int(log.offsets[start]), int(log.offsets[end]))
            part = slice(start, end)
            yield (part, *self._density(part, rows, newest))
            start = end

    def _density(self, part: slice, rows: slice, newest: float) -> tuple[BoolArray, LogDensity]:
        log = self.log
        weight = self.forgetting.weights(log, rows, newest)
        offsets = log.offsets[part.start : part.stop + 1] - rows.start
        interval, changed = log.interval[rows], log.changed[rows]
        seen = ~np.isnan(interval)
        number, period = counted_changes(log, rows)
        counts = seen & ~np.isnan(number)
        if weight is not None and self.prior is None:
            weight = _alike(np.where(seen, weight, 0.0), weight, offsets)
        each = np.ones(len(interval)) if weight is None else weight
        counted = segment_sums(np.where(counts, each * np.where(counts, number, 0.0), 0.0), offsets)
        time = segment_sums(np.where(counts, each * np.where(counts, period, 0.0), 0.0), offsets)
        known = segment_sums(seen.astype(np.float64), offsets) > 0
        prior, possible = None, None
        if self.prior is not None:
            known[:] = True
            prior = self.prior.of(part)
            possible, age = first_dates(
                log, part, self.forgetting.weights(log, log.offsets[:-1][part], newest)
            )
            if age is not None:
                prior = prior._replace(exposure=prior.exposure + age)
        keep = np.flatnonzero(seen & ~counts)
        inner = np.searchsorted(keep, offsets).astype(np.int64)
        chosen = np.flatnonzero(known)
        # A source that is not known has no crawl intervals: leaving it out keeps the others' together.
        density = LogDensity(
            intervals=interval[keep],
            found=changed[keep],
            weight=None if weight is None else weight[keep],
            offsets=np.concatenate([[0], inner[1:][chosen]]).astype(np.int64),
            counted=counted[chosen],
            time=time[chosen],
            prior=prior,
            possible=possible,
        )
        return known, density


def mean_gaps(log: CrawlLog) -> Array:
    """Return the mean crawl interval of each source.

    NaN where there is none.
    """
    seen = ~np.isnan(log.interval)
    total, number = (segment_sums(v, log.offsets) for v in (np.where(seen, log.interval, 0.0), 1.0 * seen))
    mean: Array = np.divide(total, number, out=np.full(len(total), np.nan), where=number > 0)
    return mean


def _alike(effective: Array, weight: Array, offsets: IntArray) -> Array:
    """Return weights with which each source counts as (Σw)²/Σw² crawls."""
    total, square = (segment_sums(values, offsets) for values in (effective, effective**2))
    alike: Array = weight * np.repeat(total / np.where(square > 0, square, 1.0), np.diff(offsets))
    return alike
