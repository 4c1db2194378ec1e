"""Marginal likelihood of a log under gamma priors, the rates integrated out.

The integral of a source is that of the Gamma with the same mode and curvature in ln Δ as its posterior: exact
for counted and dated changes and for a source without any, close where crawls tell only whether there was a
change.

The date of a source's first crawl, of age A, is its last change or its birth. With lives exponential of rate
η its density is (Δ+η)e^{−(Δ+η)A}, so that the posterior is a mixture of two: with K changes and exposure U, A
included,

    Δ | log ~ p·Gamma(a+K+1, b+U) + (1−p)·Gamma(a+K, b+U),    p/(1−p) = (a+K)/(η(b+U)),

and its integral a sum of two, times e^{−ηA}. Given a and b the evidence is concave in η: its best value is
the root of a decreasing function.

Cost: one maximisation of the likelihood, two where first dates are told.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.inference.crawl_likelihood import CrawlLikelihood
from freshopt.inference.dated_crawls import GammaParameters
from freshopt.numerics.arrays import Array


class Explained(NamedTuple):
    """Posterior of one explanation of the first dates.

    Attributes
    ----------
    mode : ndarray of float, shape (n,)
        Mode of ln Δ, which is the mean where all changes are counted or dated.
    evidence : ndarray of float, shape (n,)
        The logarithm of the integral of prior and likelihood.
    """

    mode: Array
    evidence: Array


def explained(observed: CrawlLikelihood, prior: GammaParameters) -> tuple[Explained, Explained]:
    """Return the posteriors if first dates are changes, and births.

    Both are the same where no first date is told. The birth rate is not in them.
    """
    if observed.age is None or observed.possible is None:
        alone = _integrated(observed.counting(prior.shape, prior.exposure), prior)
        return alone, alone
    birth = observed.counting(prior.shape, prior.exposure + observed.age)
    return _integrated(birth.counting(observed.possible, 0.0), prior), _integrated(birth, prior)


def posterior_mode(observed: CrawlLikelihood, prior: GammaParameters) -> Array:
    """Return the mode of ln Δ, averaged over changes and births.

    That is the posterior mean of Δ where all changes are counted or dated.

    Examples
    --------
    Unchanged since 3 days before its first crawl and for 2 after it; p is ½.

    >>> one = CrawlLikelihood(np.empty(0), np.zeros(2, np.int64), np.zeros(1), np.array([2.0]),
    ...                       possible=np.ones(1), age=np.array([3.0]))
    >>> posterior_mode(one, GammaParameters(np.ones(1), np.array([5.0]), np.array([0.1])))
    array([0.15])
    """
    if observed.possible is None:
        return observed.under(prior).maximum()
    change, birth = explained(observed, prior)
    told = observed.possible > 0.0
    with np.errstate(divide="ignore"):
        against = observed.possible[told] * np.log(prior.birth_rate[told])
    share = 1.0 / (1.0 + np.exp(against + birth.evidence[told] - change.evidence[told]))
    mode = change.mode.copy()
    mode[told] = share * change.mode[told] + (1.0 - share) * birth.mode[told]
    return mode


def log_evidence(observed: CrawlLikelihood, shape: float, exposure: float, birth_rate: float = 0.0) -> float:
    """Return the log marginal likelihood of a log under one prior."""
    evidence, odds = by_odds(observed, shape, exposure)
    return with_births(
        evidence, odds, birth_rate, None if observed.age is None else float(np.sum(observed.age))
    )


def best_evidence(observed: CrawlLikelihood, shape: float, exposure: float) -> tuple[float, float]:
    """Return the log marginal likelihood at its best birth rate.

    And that rate.
    """
    evidence, odds = by_odds(observed, shape, exposure)
    age = None if observed.age is None else float(np.sum(observed.age))
    births = best_births(odds, age)
    return with_births(evidence, odds, births, age), births


def best_births(odds: Array, age: float | None) -> float:
    """Return the likeliest rate of births, 0 without first dates.

    `odds` are those of births at a rate of 1, and `age` is the sum of the ages.
    """
    if age is None:
        return 0.0

    def slope(rate: float) -> float:
        return float(np.sum(odds / (1.0 + rate * odds))) - age

    if not (age > 0.0 and slope(0.0) > 0.0):
        return 0.0
    from scipy.optimize import brentq

    return float(brentq(slope, 0.0, len(odds) / age, xtol=1e-14 / age, rtol=1e-12))


def by_odds(observed: CrawlLikelihood, shape: float, exposure: float) -> tuple[float, Array]:
    """Return the evidence if all first dates are changes.

    And the odds, for each first date, that it is a birth at a rate of 1.
    """
    n = len(observed.counted)
    change, birth = explained(observed, GammaParameters(np.full(n, shape), np.full(n, exposure), np.zeros(n)))
    told = np.zeros(n, dtype=np.bool_) if observed.possible is None else observed.possible > 0.0
    return float(np.sum(change.evidence)), np.exp((birth.evidence - change.evidence)[told])


def with_births(evidence: float, odds: Array, birth_rate: float, age: float | None) -> float:
    """Return the evidence at a rate of births."""
    if age is None:
        return evidence
    return evidence + float(np.sum(np.log1p(birth_rate * odds)) - birth_rate * age)


def _integrated(posterior: CrawlLikelihood, prior: GammaParameters) -> Explained:
    from scipy.special import gammaln

    rate, value, alpha = posterior.peaks()  # the curvature in ln Δ is the shape of a Gamma
    each = value + gammaln(alpha) + alpha - alpha * np.log(alpha)
    return Explained(rate, each + prior.shape * np.log(prior.exposure) - gammaln(prior.shape))
