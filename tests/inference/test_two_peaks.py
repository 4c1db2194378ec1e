"""Evidence with two peaks: what is found is held against a dense grid."""

from __future__ import annotations

import numpy as np
import pytest

from freshopt.inference.crawl_likelihood import CrawlLikelihood
from freshopt.inference.gamma_prior import GammaPrior
from freshopt.inference.marginal_likelihood import MarginalLikelihood
from freshopt.logs.crawl_log import CrawlLog

# Typical shape and spread of ln(shape): the hyperprior that comes with first dates.
TYPICAL, VARIETY = 0.6, 0.5


def dated_log(seed: int) -> CrawlLog:
    """One to three kinds of sources: each with rates, births and a share of dates of its own."""
    rng = np.random.default_rng(seed)
    n, crawls = int(rng.integers(10, 200)), int(rng.integers(1, 12))
    gap = 10.0 ** rng.uniform(-0.5, 1.0)
    kinds = int(rng.integers(1, 4))
    source, times, changed, dates = [], [], [], []
    for kind in range(kinds):
        typical, spread = 10.0 ** rng.uniform(-4.0, 1.0), rng.choice([0.0, 0.3, 1.0, 3.0])
        births, dated, at_once = (
            10.0 ** rng.uniform(-4.0, 1.0),
            rng.choice([1, 1, 0, 0.5]),
            rng.random() < 0.3,
        )
        for k in range(max(2, n // kinds)):
            rate = np.clip(typical * np.exp(rng.normal(0.0, spread)), 1e-9, 1e3) / gap
            end = (crawls + 1) * gap
            birth = -(1.0 / births if at_once else rng.exponential(1.0 / births)) - 0.01 * gap
            begin = max(birth, -50.0 / max(rate, 1e-3))
            change = np.sort(np.append(rng.uniform(begin, end, rng.poisson(rate * (end - begin))), birth))
            time = gap * np.arange(crawls + 1) + rng.uniform(0.0, 0.1 * gap)
            seen = np.searchsorted(change, time)
            source += [1000 * kind + k] * len(time)
            times.append(time)
            changed.append(np.diff(seen, prepend=seen[0]) > 0)
            dates.append(change[seen - 1] if rng.random() < dated else np.full(len(time), np.nan))
    told = np.concatenate(dates)
    return CrawlLog(source, np.concatenate(times), np.concatenate(changed), last_modified=told)


def evidence_of(log: CrawlLog, mean: float) -> MarginalLikelihood:
    return MarginalLikelihood.of(CrawlLikelihood.of(log), mean, TYPICAL)


def assert_highest(log: CrawlLog) -> None:
    prior = GammaPrior.from_marginal_likelihood(log)
    observed = CrawlLikelihood.of(log)
    changes = float(np.sum(observed.found + observed.counted))
    pooled = changes / float(np.sum(observed.exposure) + 0.5 * np.sum(observed.intervals))
    evidence = evidence_of(log, pooled)

    def value(log_shape: float, log_mean: float) -> float:
        shape = float(np.exp(log_shape))
        hyperprior = -0.5 * ((log_shape - np.log(TYPICAL)) / VARIETY) ** 2
        return float(evidence.best(shape, float(np.exp(log_shape - log_mean)))[0] + hyperprior)

    found = value(np.log(prior.shape), np.log(prior.shape / prior.exposure))
    grid = [
        value(shape, np.log(pooled) + mean)
        for shape in np.arange(-5.0, 2.1, 0.5)
        for mean in np.arange(-3.0, 8.1, 0.5)
    ]
    assert found >= max(grid) - 1e-6


# Of simulated logs those with a second peak, and some without.
@pytest.mark.parametrize("seed", [32, 48, 113, 124, 149, 186, 236, 257, 297, 5, 11])
def test_the_prior_of_dated_logs_is_the_highest_peak(seed: int) -> None:
    assert_highest(dated_log(seed))


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(1000, 1400, 25))
def test_the_prior_of_any_dated_log_is_the_highest_peak(first: int) -> None:
    for seed in range(first, first + 25):
        log = dated_log(seed)
        observed = CrawlLikelihood.of(log)
        if (
            observed.age is not None
            and np.any(observed.found + observed.counted)
            and np.any(observed.exposure)
        ):
            assert_highest(log)
