"""`default_prior`: gamma prior learnt from a log of any size."""

from __future__ import annotations

import numpy as np

from freshopt.inference.crawl_likelihood import CrawlLikelihood
from freshopt.inference.gamma_prior import GammaPrior, few_crawls
from freshopt.inference.reset_filter import Resets
from freshopt.inference.resetting_prior import resetting_prior
from freshopt.logs.crawl_log import CrawlLog

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
    if crawled == 0 and observed.age is None:
        return None
    tells = bool(np.any(log.changed)) and bool(np.any(observed.exposure))
    if not (crawled >= MANY and tells):
        return GammaPrior.weak(log)
    if reset is None:
        return GammaPrior.from_likelihood(observed, log.time_unit, few=few_crawls(log))
    return resetting_prior(log, reset)
