"""Re-planning in a recorded world, from the policy's own crawls.

It begins with the plan of the log at the beginning of a window. After each period the outcomes of its own
crawls, changed or not and nothing else (`SimulatedCrawler`), are appended to the log, change rates are learnt
again, and the problem is solved again from the last price. The prior of the change rates is learnt again
whenever the log has grown by half: in between it would hardly move, and learning it takes most of the time. A
source is crawled whenever the integral of its rate passes a whole number: the copies keep their ages when
rates change, and the bandwidth is used exactly. Under Poisson refreshes crawls are those of a Poisson process
of the rate.

As of the static policies that it is compared with, the copies' first ages are those that the plan itself
gives them: the phase of each source is random, and its last crawl before the window a gap earlier.

Crawls that follow signals follow the first plan's rule since the record began, and in each period the rule of
the plan that its own crawls and all signals so far make. What a new rule finds overdue is crawled at once.
Cost: an estimate and a solve a period.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.errors import SourceDataError
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.logs.crawl_log import OPTIONAL, CrawlLog, derived_log
from freshopt.modelling.objective import Refresh
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.noisy_signals.signal_waits import SignalWaits
from freshopt.noisy_signals.with_signals import rule_of, with_signals
from freshopt.numerics.arrays import Array, IntArray, total
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.plan_steps import TOLERANCE, estimated_sources, problem_of, sources_of
from freshopt.planning.request import default_estimate
from freshopt.planning.wishes import Wishes
from freshopt.scheduling.refresh_order import ordinals
from freshopt.simulation.crawler import SimulatedCrawler
from freshopt.simulation.staleness_integrals import Refreshes
from freshopt.solving import solve

Follow = Callable[[Array, float, np.random.Generator], Refreshes]
# How many times the window a wait is from which on it counts as none.
FAR = 1e6
# Growth of the log after which its prior is learnt again.
GROWTH = 1.5
# Periods and crawls of a window, some minutes and some GiB.
MOST_PERIODS, MOST_CRAWLS = 10_000, 30_000_000


def replanned_crawls(
    window: HeldOutWindow, request: Wishes, solution: Solution, estimate: Estimator, every: float
) -> Refreshes:
    """Return the crawls of a policy planned again each period.

    `solution` is the plan at the beginning of the window, made with `estimate`. Crawls come source by source,
    with each source's last one before the window. Where fetches fail, they are attempts.
    """
    bandwidth = float(solution.problem.bandwidth)
    _check_periods(window, every)
    check_size(window.end - window.begin, float(np.sum(solution.rates)), window.past.time_unit)
    rng = np.random.default_rng([request.seed, 19])
    random = request.objective.refresh is not Refresh.PERIODIC
    log, now, n = window.past, window.begin, len(window.past.names)
    learner = _Learner(request, estimate, len(log))
    phase = rng.random(n)
    passed = -np.log1p(-phase) if random else phase
    if window.outcomes is None:
        with np.errstate(divide="ignore"):
            ages = np.where(solution.rates > 0.0, passed / solution.rates, np.inf)
        # A copy older than the record was made when the record began.
        source, time = [np.arange(n)], [np.maximum(window.begin - ages, window.world.start)]
    else:
        # The latest attempt may have failed, and some before it.
        own, moment = _attempts_before(window, solution.rates, passed, rng, random=random)
        source, time = [own], [moment]
    latest, crawler = log.last_crawl, _crawler(window)
    period = 0
    while now < window.end:
        period += 1
        later = min(window.begin + period * every, window.end)
        if random:
            own, moment = _poisson(solution.rates, now, later, rng)
        else:
            own, moment, phase = _equal_gaps(solution.rates, phase, now, later)
        seen = (moment <= window.changes.until[own]) & (moment > latest[own])
        own, moment = own[seen], moment[seen]
        source.append(own)
        time.append(moment)
        if window.outcomes is not None:
            answered = window.outcomes.of(own, moment)
            own, moment = own[answered], moment[answered]
        if later < window.end and len(own):
            log = _observed(log, crawler, own, moment)
            latest = log.last_crawl
            sources = sources_of(learner.fitted(log), log, request)
            problem = problem_of(request, sources, bandwidth)
            solution = solve(problem, tolerance=TOLERANCE, certify=False, warm_start=solution)
        now = later
    return _by_source(np.concatenate(source), np.concatenate(time))


def following_replanned(window: HeldOutWindow, request: Wishes, bandwidth: float, every: float) -> Refreshes:
    """Return the crawls that follow signals, planned again each period.

    As `replanned_crawls`, since the record began.
    """
    _check_periods(window, every)
    rng, log, n = np.random.default_rng([request.seed, 47]), window.past, len(window.past.names)
    crawler, start = _crawler(window), np.broadcast_to(window.world.start, (n,))
    follow, rates, wait = _signalled_rule(log, request, bandwidth)
    check_size(window.end - float(np.min(start)), total(rates), log.time_unit)
    wait = np.where(wait < FAR * (window.end - start), wait, 0.0)
    own, moment = follow(start - wait * rng.random(n), window.begin, rng)
    source, time, last, now, period = [own], [moment], start.copy(), window.begin, 0
    np.maximum.at(last, own, moment)
    while now < window.end:
        period += 1
        later = min(window.begin + period * every, window.end)
        late = np.unique(follow(last, now, rng)[0])
        last[late] = now
        own, moment = follow(last, later, rng)
        np.maximum.at(last, own, moment)
        own, moment = np.append(late, own), np.append(np.full(len(late), now), moment)
        seen = (moment <= window.changes.until[own]) & (moment > log.last_crawl[own])
        order = np.lexsort((moment, own))
        order = order[seen[order]]
        source.append(own[order])
        time.append(moment[order])
        if later < window.end and len(order):
            log = _observed(log, crawler, own[order], moment[order])
            follow = _signalled_rule(log, request, bandwidth)[0]
        now = later
    return _by_source(np.concatenate(source), np.concatenate(time))


def _signalled_rule(log: CrawlLog, request: Wishes, bandwidth: float) -> tuple[Follow, Array, Array]:
    """Return how a log's plan crawls, its rates and waits without signals."""
    learnt, sources = estimated_sources(log, request)
    assert isinstance(learnt, PooledSignals)
    objective, heard = with_signals(request.objective, learnt.recall_, learnt.precision_), learnt.signals_
    problem = problem_of(replace(request, objective=objective), sources, bandwidth)
    rates = solve(problem, tolerance=TOLERANCE, certify=False).rates
    rule = rule_of(objective, rates, sources)
    if rule is None:
        with np.errstate(divide="ignore"):
            rule, heard = (
                SignalWaits(1.0 / rates[:, None], rates > 0.0),
                heard.of_kinds(np.zeros(len(heard.kinds))),
            )

    def follow(last: Array, end: float, rng: np.random.Generator) -> Refreshes:
        rows = np.flatnonzero((heard.time > last[heard.source]) & (heard.time <= end))
        rows = rows[np.argsort(heard.time[rows], kind="stable")]
        horizon = float(np.nextafter(end, np.inf))
        return rule.crawls(heard.source[rows], heard.time[rows], horizon, rng.random(len(rows)), last)

    return follow, rates, rule.waiting(0.0)


def _check_periods(window: HeldOutWindow, every: float) -> None:
    """Raise SourceDataError if a window has too many periods."""
    length, unit = window.end - window.begin, window.past.time_unit
    if length > MOST_PERIODS * every:
        raise SourceDataError(
            f"every is {every:g} {unit}s, {length / every:.3g} plans in a window of {length:g}. Pass "
            f"{length / MOST_PERIODS:.2g} {unit}s or more."
        )


def _attempts_before(
    window: HeldOutWindow, rates: Array, passed: Array, rng: np.random.Generator, *, random: bool
) -> Refreshes:
    """Return the attempts at some rates in the record before a window."""
    length = window.begin - np.broadcast_to(window.world.start, rates.shape)
    if random:
        many = rng.poisson(rates * length)
        own = np.repeat(np.arange(len(rates)), many)
        return own, window.begin - length[own] * rng.random(len(own))
    many = np.maximum(np.floor(rates * length - passed) + 1.0, 0.0).astype(np.int64)
    own, turn = ordinals(many)
    return own, window.begin - (passed[own] + turn) / rates[own]


def check_size(length: float, rate: float, time_unit: str) -> None:
    """Raise SourceDataError if a window has too many crawls."""
    if rate * length > MOST_CRAWLS:
        raise SourceDataError(
            f"{rate:.4g} refreshes per {time_unit} are {rate * length:.3g} in a window of {length:g} "
            f"{time_unit}s, too many to replay one by one. Pass a smaller bandwidth, or leave every and "
            "signals out."
        )


class _Learner:
    """Estimator that is fitted again to a growing log."""

    def __init__(self, request: Wishes, estimate: Estimator, size: int) -> None:
        self._fit = request.estimator or default_estimate
        self._estimate, self._size = estimate, size

    def fitted(self, log: CrawlLog) -> Estimator:
        """Return the estimator of a log.

        Its prior may be of when the log was shorter, by a third at most.
        """
        latest, grown = self._estimate, len(log) >= GROWTH * self._size
        if isinstance(latest, MaximumLikelihood) and latest.prior is not None and not grown:
            self._estimate = copy.copy(latest).fit(log)
        else:
            self._estimate, self._size = self._fit(log), len(log)
        return self._estimate


def _crawler(window: HeldOutWindow) -> SimulatedCrawler:
    """Return the crawler whose copies are as the record before leaves them."""
    crawler, latest = SimulatedCrawler(window.world), window.past.last_crawl
    order = np.argsort(latest)
    crawler.refresh(order, np.maximum(latest[order], crawler.clock))
    return crawler


def _by_source(source: IntArray, time: Array) -> Refreshes:
    """Return crawls source by source, in order of time."""
    order = np.lexsort((time, source))
    return source[order], time[order]


def _equal_gaps(rates: Array, phase: Array, begin: float, end: float) -> tuple[IntArray, Array, Array]:
    """Return crawls in (begin, end], and the phases at the end."""
    whole = phase + rates * (end - begin)
    many = np.floor(whole).astype(np.int64)
    own, turn = ordinals(many)
    return own, np.minimum(begin + (turn + 1 - phase[own]) / rates[own], end), whole - many


def _poisson(rates: Array, begin: float, end: float, rng: np.random.Generator) -> tuple[IntArray, Array]:
    """Return Poisson crawls in a period, source by source."""
    many = rng.poisson(rates * (end - begin))
    own = np.repeat(np.arange(len(rates)), many)
    return _by_source(own, begin + (end - begin) * rng.random(len(own)))


def _observed(log: CrawlLog, crawler: SimulatedCrawler, own: IntArray, moment: Array) -> CrawlLog:
    """Return the log with what more crawls, source by source, found."""
    order = np.argsort(moment, kind="stable")
    found = np.empty(len(own), dtype=np.bool_)
    found[order] = crawler.refresh(own[order], moment[order])
    before = log.last_crawl[own]
    same = np.flatnonzero(own[1:] == own[:-1])
    before[same + 1] = moment[same]
    columns = {
        "source": np.concatenate([log.source_index, own]),
        "time": np.concatenate([log.time, moment]),
        "elapsed": np.concatenate([log.interval, moment - before]),
        "changed": np.concatenate([log.changed, found]),
    }
    for key in OPTIONAL:
        if getattr(log, key) is not None:
            columns[key] = np.concatenate([getattr(log, key), np.full(len(own), np.nan)])
    return derived_log(columns, log.names, log.clock)
