"""Marginal likelihoods against sums of powers and quadrature that share no code with them."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.special import gammaln

from freshopt.estimators import GammaPrior
from freshopt.inference.crawl_likelihood import CrawlLikelihood
from freshopt.inference.marginal_likelihood import MarginalLikelihood
from freshopt.logs.crawl_log import CrawlLog

# Shape and mean of the rates per crawl interval: usual, spread over decades, nearly alike, fast and slow.
PRIORS = [(0.6, 2.0), (0.1, 12.0), (1e-3, 1e3), (20.0, 1.5), (0.6, 100.0), (3.0, 0.05)]


def equal_intervals(crawls: int, n: int, clock: float = 1.0, seed: int = 0) -> tuple[CrawlLog, list[int]]:
    """Crawls one clock tick apart, and how many sources had each number of changes found."""
    rng = np.random.default_rng([seed, crawls])
    rate = np.maximum(rng.gamma(0.6, 2.0 / 0.6, n), 1e-6)
    changed = np.zeros((n, crawls), dtype=np.bool_)
    changed[:, 1:] = rng.random((n, crawls - 1)) < -np.expm1(-rate)[:, None]
    time = np.tile(np.arange(crawls) * clock, n)
    log = CrawlLog(np.repeat(np.arange(n), crawls), time, changed.ravel())
    return log, np.bincount(changed.sum(axis=1), minlength=crawls).tolist()


@pytest.mark.parametrize("crawls", [2, 3, 6])
@pytest.mark.parametrize("clock", [1.0, 1e-5, 1e5])
def test_crawls_at_equal_intervals_sum_to_the_binomial_series(crawls: int, clock: float) -> None:
    log, found = equal_intervals(crawls, 400, clock)
    marginal = MarginalLikelihood.of(CrawlLikelihood.of(log), 2.0 / clock, 0.6)
    assert marginal.grid is not None
    mpmath.mp.dps = 60
    for shape, mean in PRIORS:
        a, b = mpmath.mpf(shape), mpmath.mpf(shape) / mean
        # E (1 − e^{−Δ})^f e^{−(k−f)Δ} by the binomial theorem.
        each = [
            mpmath.log(
                sum(
                    (-1) ** i * mpmath.binomial(f, i) * (b / (b + crawls - 1 - f + i)) ** a
                    for i in range(f + 1)
                )
            )
            for f in range(crawls)
        ]
        exact = float(mpmath.fdot(found, each))
        assert marginal.at(shape, shape / mean * clock) == pytest.approx(exact, abs=2e-3)


def test_irregular_intervals_and_counted_changes_agree_with_quadrature() -> None:
    rng = np.random.default_rng(5)
    n, crawls = 12, 6
    time = np.cumsum(rng.lognormal(0.0, 2.0, (n, crawls)), axis=1)
    changed = rng.random((n, crawls)) < 0.8
    changed[:, 0] = False
    changes = np.full((n, crawls), np.nan)
    changes[:4, 2] = rng.integers(0, 4, 4)
    changed[:4, 2] = changes[:4, 2] > 0
    log = CrawlLog(np.repeat(np.arange(n), crawls), time.ravel(), changed.ravel(), changes=changes.ravel())
    marginal = MarginalLikelihood.of(CrawlLikelihood.of(log), 1.0, 0.6)
    gaps = np.diff(time, axis=1)[:, :, None]
    hit, number = changed[:, 1:, None], changes[:, 1:, None]
    for shape, exposure in [(0.6, 0.6), (0.05, 0.001), (4.0, 0.1), (2.0, 30.0)]:
        t = np.linspace(-30.0 / min(1.0, shape), 9.0, 20_001)
        rate = np.exp(t)
        with np.errstate(divide="ignore"):
            told = np.where(hit, np.log(-np.expm1(-gaps * rate)), -gaps * rate)
        value = np.where(np.isnan(number), told, number * t - gaps * rate).sum(axis=1)
        value += shape * (np.log(exposure) + t) - exposure * rate - gammaln(shape)
        whole = np.sum(np.log(np.trapezoid(np.exp(value), t, axis=1)))
        assert marginal.at(shape, exposure) == pytest.approx(float(whole), abs=2e-3 * n)


@pytest.mark.parametrize(("crawls", "low", "high"), [(2, 0.4, 3.0), (3, 0.4, 0.8), (5, 0.5, 0.7)])
def test_a_few_crawls_at_equal_intervals_tell_how_rates_are_spread(
    crawls: int, low: float, high: float
) -> None:
    # The rates are drawn with shape 0.6 and mean 2.
    log, _ = equal_intervals(crawls, 4000, seed=1)
    prior = GammaPrior.from_log(log)
    assert low < prior.shape < high
    assert prior.shape / prior.exposure == pytest.approx(2.0, rel=0.5)
