"""`ResetFilter`: beliefs about change rates that are drawn anew now and then.

A source keeps its rate until, at a Poisson time of rate ν, it is drawn anew from the prior π. The belief P
about the rate at the moment of a crawl, a gap g after the one before, is that after the crawl before with the
chance of a reset mixed in; then it is multiplied by the likelihood of the crawl:

    P ← (1−e^{−νg})·π + e^{−νg}·P,      P ← P·L/ΣP·L,

L(Δ) = 1−e^{−gΔ} where a change was found, e^{−gΔ} where none was, Δ^k e^{−τΔ} where k were counted, or one
was dated, in a time τ. ΣP·L is the prediction of the crawl before it was made; the product of all of them
tells which ν explains a log. In a gap with a reset L is that of the rate in force at its end.

Without resets the belief is the posterior under a gamma prior. With them a crawl is forgotten with
probability 1−e^{−νt} after a time t, whatever came in between, and what it is forgotten for is the prior.

Cost: per crawl an exponential for each of some 100 nodes, and for each ν some three operations more per node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from freshopt.compiled.backend import fast
from freshopt.errors import SourceDataError
from freshopt.estimators.crawl_rows import (
    ALL,
    FirstDates,
    GammaParameters,
    counted_changes,
    evenly,
    first_dates,
)
from freshopt.estimators.gamma_prior import ENOUGH
from freshopt.estimators.rate_distribution import RateDistribution, RateEvidence, crawl_evidence
from freshopt.estimators.rate_grid import RateGrid, Span
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import LARGEST, Array, BoolArray, IntArray, as_number
from freshopt.numerics.segments import segment_sums

# Per day, or to be chosen.
Resets: TypeAlias = float | Literal["auto"]

# Numbers worked on together: 8 MB.
BLOCK = 1 << 20
# Ratio of neighbouring candidates.
RATIO = 2.0
# The slowest resets: a source's observed time holds so many on average.
RAREST = 0.125
# The fastest: a crawl interval does.
OFTENEST = 0.5
# Nats of evidence within which rates explain a log equally well.
EQUAL = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class ResetFilter:
    """Beliefs about the rates of a log's sources.

    - `prior`: Of each source, in the log's time unit.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 3, time=[0.0, 1.0, 2.0], changed=[0, 1, 0])
    >>> prior = GammaParameters(np.array([1.0]), np.array([1.0]), np.zeros(1))
    >>> ResetFilter(log, prior).expected(0.0).round(4)  # (1/4 − 1/9)/(1/2 − 1/3)
    array([0.8333])
    """

    log: CrawlLog
    prior: GammaParameters

    def evidence(self, resets: Array) -> Array:
        """Return the log product of one-step predictions, shape (k,).

        Resets are per time unit of the log. What is the same for all of them is left out, and where there are
        very many sources all but a sample.
        """
        total = np.zeros(len(resets))
        for _, _, _, evidence in self._blocks(resets, evenly(len(self.log.names), ENOUGH)):
            total += evidence.sum(axis=1)
        return total

    def chosen(self) -> float:
        """Return the rate of resets that predicts the log best, or 0."""
        resets = candidates(self.log)
        evidence = self.evidence(resets)
        best = int(np.flatnonzero(evidence >= np.max(evidence) - EQUAL)[0])
        if not 1 < best < len(resets) - 1:
            return float(resets[best])
        left, top, right = evidence[best - 1 : best + 2].tolist()
        shift = 0.5 * (left - right) / (left - 2.0 * top + right) if 2.0 * top > left + right else 0.0
        return float(resets[best] * RATIO**shift)

    def expected(self, reset: float) -> Array:
        """Return E[Δ] at the end of the log, shape (n,)."""
        rate = np.empty(len(self.log.names))
        for chosen, grid, belief in self._at_end(reset):
            rate[chosen] = grid.mean(belief)
        return rate

    def distribution(self, reset: float) -> RateDistribution:
        """Return the posterior of the rates at the end of the log."""

        def quantiles(levels: Array) -> Array:
            rates = np.empty(levels.shape)
            for chosen, grid, belief in self._at_end(reset):
                rates[:, chosen] = grid.quantiles(belief, levels[:, chosen])
            return rates

        never = np.zeros(len(self.log.names), dtype=np.bool_)
        return RateDistribution(quantiles, never, never, lambda: self._evidence(reset))

    def _evidence(self, reset: float) -> RateEvidence:
        """Return the belief over the prior at a log's end, by rate."""
        n = len(self.log.names)
        node: list[Array] = [np.empty(0)] * n
        told: list[Array] = [np.empty(0)] * n
        for chosen, grid, belief in self._at_end(reset):
            ratio = np.log(belief / grid.mass)
            for row, k in enumerate(chosen.tolist()):
                node[k], told[k] = np.log(grid.nodes[row]), ratio[row]
        as_told = crawl_evidence(self.log, None, self.prior)

        def value(rates: Array, which: IntArray) -> Array:
            columns = zip(np.log(rates).T, which.tolist(), strict=True)
            return np.stack([np.interp(t, node[k], told[k]) for t, k in columns], axis=1)

        return replace(as_told, log_likelihood=value)

    def _at_end(self, reset: float) -> Iterator[tuple[IntArray, RateGrid, Array]]:
        """Yield sources, their grids and beliefs at the end of the log."""
        kept = np.exp(-reset * self.log.age)[:, None]
        for chosen, grid, belief, _ in self._blocks(np.array([reset])):
            yield chosen, grid, kept[chosen] * belief[0] + (1.0 - kept[chosen]) * grid.mass

    def _blocks(
        self, resets: Array, sample: IntArray | slice = ALL
    ) -> Iterator[tuple[IntArray, RateGrid, Array, Array]]:
        """Yield sources, their grids, beliefs after the last crawl, and evidence."""
        rows, dates = crawl_rows(self.log), first_dates(self.log)
        most = np.where(rows.number == -1.0, 1.0, np.maximum(rows.number, 0.0))
        changes, time = (segment_sums(each, self.log.offsets) for each in (most, rows.gap))
        if dates is not None:
            changes, time = changes + dates.possible, time + dates.age
        counts = np.zeros(len(changes), dtype=np.int64)
        counts[sample] = Span.of(self.prior, changes, time).counts()[sample]
        for count in np.unique(counts[sample]).tolist():
            alike = np.flatnonzero(counts == count)
            step = max(1, BLOCK // (count * len(resets)))
            for chosen in (alike[k : k + step] for k in range(0, len(alike), step)):
                mask = np.zeros(len(counts), dtype=np.bool_)
                mask[chosen] = True
                own = self.prior.of(mask)
                grid = RateGrid.of(own, changes[chosen], time[chosen], count)
                begin = grid.mass if dates is None else dated(grid, dates.of(mask), own.birth_rate)
                belief, evidence = np.empty((len(resets), *begin.shape)), np.zeros((len(resets), len(chosen)))
                ends = self.log.offsets[chosen], self.log.offsets[chosen + 1]
                # Of one layout, whatever the grid's: for each other one the pass would be compiled anew.
                nodes, mass, begin = (np.array(each, order="C") for each in (grid.nodes, grid.mass, begin))
                fast(filter_crawls)(*ends, rows, resets, nodes, mass, begin, belief, evidence)
                yield chosen, grid, belief, evidence


def dated(grid: RateGrid, dates: FirstDates, births: Array) -> Array:
    """Return beliefs after a first date, a change or a birth."""
    told = (grid.nodes + births[:, None]) * np.exp(-grid.nodes * dates.age[:, None])
    begin: Array = np.where(dates.possible[:, None] > 0.0, grid.mass * told, grid.mass)
    begin /= begin.sum(axis=1, keepdims=True)
    return begin


def crawl_rows(log: CrawlLog) -> CrawlRows:
    """Return what each row of a log tells."""
    number, time = counted_changes(log)
    baseline = np.isnan(log.interval)
    number = np.where(np.isnan(number), np.where(log.changed, -1.0, 0.0), number)
    number = np.where(baseline, -2.0, number)
    return CrawlRows(np.nan_to_num(log.interval), number, np.nan_to_num(time))


def candidates(log: CrawlLog) -> Array:
    """Return rates of resets to choose from.

    Per time unit of the log: 0, and rates between one in eight times the time that the median source was
    observed and one in two median crawl intervals.
    """
    known: BoolArray = ~np.isnan(log.interval)
    if not known.any():
        return np.zeros(1)
    time = segment_sums(np.where(known, log.interval, 0.0), log.offsets)
    slowest = RAREST / float(np.median(time[time > 0.0]))
    fastest = OFTENEST / float(np.median(log.interval[known]))
    steps = max(0, int(np.ceil(np.log(fastest / slowest) / np.log(RATIO)))) + 1
    return np.append(0.0, slowest * RATIO ** np.arange(steps))


def check_reset(reset: Resets | None) -> Resets | None:
    """Return resets that are a rate, "auto" or None, or raise."""
    words = "Pass resets per day, 0 or more, 'auto', or None for rates that last."
    if reset is None:
        return None
    if isinstance(reset, str):
        if reset == "auto":
            return reset
        raise SourceDataError(f"reset is {reset!r}. {words}")
    rate = as_number(reset, "reset", words)
    if not 0.0 <= rate <= LARGEST:
        raise SourceDataError(f"reset is {rate}. {words}")
    return rate


class CrawlRows(NamedTuple):
    """What each row of a log tells.

    - `gap` (rows,): Time during which the rate may have been drawn anew before the row; 0 for none.
    - `number` (rows,): Changes told; −1 for one or more, −2 for a baseline, which tells nothing.
    - `time` (rows,): In which they took place.
    """

    gap: Array
    number: Array
    time: Array


def filter_crawls(
    first: IntArray,
    end: IntArray,
    rows: CrawlRows,
    resets: Array,
    nodes: Array,
    prior: Array,
    begin: Array,
    belief: Array,
    evidence: Array,
) -> None:
    """Pass beliefs about n rates on m nodes through rows of crawls.

    `prior` and `begin`, of shape (n, m), are what rates are drawn from and the beliefs before the rows;
    `belief`, of shape (k, n, m), is filled with those after them, for each rate of resets. The logarithms of
    the products of the predictions are added to `evidence`, of shape (k, n).
    """
    m = nodes.shape[1]
    told = np.empty(m)
    for source in range(len(first)):
        at, drawn = nodes[source], prior[source]
        for k in range(len(resets)):
            belief[k, source, :] = begin[source]
        for i in range(first[source], end[source]):
            shift = likelihood_of(rows.number[i], rows.time[i], at, told)
            for k in range(len(resets)):
                kept = math.exp(-resets[k] * rows.gap[i])
                own = belief[k, source]
                total = 0.0
                for j in range(m):
                    value = (kept * own[j] + (1.0 - kept) * drawn[j]) * told[j]
                    own[j] = value
                    total += value
                if not total > 1e-290:
                    # Beliefs hold these outcomes for impossible: the rate is no longer what it was.
                    total = 0.0
                    for j in range(m):
                        value = drawn[j] * told[j]
                        own[j] = value
                        total += value
                    evidence[k, source] -= 700.0
                    if not total > 0.0:
                        # And so does what rates are drawn from, to rounding: it stays.
                        total = 1.0
                        for j in range(m):
                            own[j] = drawn[j]
                scale = 1.0 / total
                for j in range(m):
                    own[j] *= scale
                evidence[k, source] += math.log(total) + shift


def likelihood_of(number: float, time: float, nodes: Array, told: Array) -> float:
    """Fill in a row's likelihood up to a factor; return its logarithm."""
    m = len(nodes)
    if number == -2.0:
        for j in range(m):
            told[j] = 1.0
        return 0.0
    if number == -1.0:
        for j in range(m):
            told[j] = -math.expm1(-nodes[j] * time)
        return 0.0
    if number == 0.0:
        for j in range(m):
            told[j] = math.exp(-(nodes[j] - nodes[0]) * time)
        return float(-nodes[0] * time)
    best = -math.inf
    for j in range(m):
        told[j] = number * math.log(nodes[j]) - nodes[j] * time
        best = max(best, told[j])
    for j in range(m):
        told[j] = math.exp(told[j] - best)
    return best
