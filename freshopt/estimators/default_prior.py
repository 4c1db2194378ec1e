"""`default_prior` and `resetting_prior`: gamma priors learnt from a log.

A source's rate over a long log is an average over what was drawn in it. The spread of averages is smaller
than that of rates, and a prior learnt from them too narrow, with resets that seem too rare: at one in 50
days, in logs of two years, by a factor of three. So each source's log is cut into windows within which its
rate hardly resets, and the prior is learnt as if each window were a source. How long they are depends on the
resets, and these on the prior: two rounds settle it.

Cost: that of three priors of the log, and of three choices of resets.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import counted_changes
from freshopt.estimators.gamma_prior import GammaPrior, few_crawls
from freshopt.estimators.reset_filter import ResetFilter, Resets, check_reset
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog, derived_log
from freshopt.units import convert_time

# Resets per window, on average.
PART = 0.5
# Median crawl intervals that a window holds at least: a single crawl tells nothing of how rates are spread.
LEAST = 4.0
ROUNDS = 2


def resetting_prior(log: CrawlLog, reset: Resets = "auto") -> GammaPrior:
    """Return the prior that rates are drawn from, now and then.

    Parameters
    ----------
    log : CrawlLog
        As for `GammaPrior.from_log`, which it is if there are no resets.
    reset : float or "auto"
        Resets per *day*, or "auto" for the rate that predicts the log best.

    Raises
    ------
    SourceDataError
        As `GammaPrior.from_log`, or if `reset` is no rate.

    Examples
    --------
    Ten sources, every other one fast, that change places after 40 days.

    >>> fast = (np.arange(10)[:, None] + (np.arange(80) >= 40)) % 2 == 1
    >>> changed = fast & (np.arange(80) % 4 > 0)
    >>> log = CrawlLog(np.repeat(np.arange(10), 80), np.tile(np.arange(80), 10), changed.ravel())
    >>> GammaPrior.from_log(log).shape > 10.0 * resetting_prior(log).shape
    True
    """
    given = check_reset(reset)
    prior = GammaPrior.from_log(log)
    known = log.interval[~np.isnan(log.interval)]
    least = LEAST * float(np.median(known)) if len(known) else 0.0
    for _ in range(ROUNDS):
        if isinstance(given, str):
            rate = ResetFilter(log, prior.parameters(log)).chosen()
        else:
            rate = convert_time(1.0, log.time_unit, "day") * (given or 0.0)
        if rate == 0.0:
            break
        prior = replace(
            GammaPrior.from_log(in_windows(log, max(PART / rate, least))), birth_rate=prior.birth_rate
        )
    return prior


def in_windows(log: CrawlLog, length: float) -> CrawlLog:
    """Return a log whose sources are windows of sources."""
    number, time = counted_changes(log)
    known = np.flatnonzero(~np.isnan(log.interval))
    window = np.floor((log.time[known] - np.min(log.time)) / length).astype(np.int64)
    code = log.source_index[known] * (np.max(window, initial=0) + 1) + window
    names, code = np.unique(code, return_inverse=True)
    columns = {
        "source": code,
        "elapsed": time[known],
        "changed": log.changed[known],
        "changes": number[known],
    }
    return derived_log(columns, names, Clock(log.time_unit))


# Sources from which a prior of two parameters is learnt unasked.
MANY = 30


def default_prior(log: CrawlLog, reset: Resets | None = None) -> GammaPrior | None:
    """Return the prior that plans use unless told otherwise.

    The empirical-Bayes prior of the log, or a weak one in the log's own scale where it has too little to
    learn one: it takes 30 sources with two crawls, and crawls that found a change beside time without one.
    None where nothing was observed but baselines. With `reset`, as `MaximumLikelihood` has it, the prior is
    that of rates that are drawn anew.

    Examples
    --------
    >>> default_prior(CrawlLog(source=["a"] * 3, time=[0.0, 2.0, 5.0], changed=[0, 0, 0]))
    GammaPrior(shape=0.6, exposure=6.0, time_unit='day')
    """
    observed = CrawlLikelihood.of(log)
    crawled = int(np.count_nonzero(log.known_intervals))
    if crawled == 0 and observed.dates is None:
        return None
    tells = bool(np.any(log.changed)) and bool(np.any(observed.exposure))
    if not (crawled >= MANY and tells):
        return GammaPrior.weak(log)
    if reset is None:
        return GammaPrior.from_likelihood(observed, log.time_unit, few=few_crawls(log))
    return resetting_prior(log, reset)
