"""The prior over sources: against the negative binomial, quadrature, and the rates that it should improve."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import brentq, minimize
from scipy.special import gammaln
from scipy.stats import gamma, nbinom

from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.crawl_logs import log_of_gaps
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]


def simulate(
    seed: int, sources: int, crawls: int, shape: float
) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Rates of mean 1/2, gaps and counts."""
    rng = np.random.default_rng(seed)
    rates = rng.gamma(shape, 0.5 / shape, sources)
    gaps = rng.exponential(1.0, (sources, crawls))
    return rates, gaps, rng.poisson(gaps * rates[:, None])


def test_counted_changes_give_the_negative_binomial_optimum() -> None:
    _, gaps, counts = simulate(51, 200, 3, shape=1.5)
    time, total = gaps.sum(axis=1), counts.sum(axis=1)

    def loss(parameters: Floats) -> float:
        shape, exposure = np.exp(parameters)
        return -float(np.sum(nbinom.logpmf(total, shape, exposure / (exposure + time))))

    best = minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-6})
    prior = GammaPrior.from_marginal_likelihood(log_of_gaps(gaps, counts > 0, counts))
    np.testing.assert_allclose([prior.shape, prior.exposure], np.exp(best.x), rtol=1e-4)
    assert loss(np.log([prior.shape, prior.exposure])) <= best.fun + 1e-8


def exact_evidence(prior: tuple[float, float], gaps: Floats, found: npt.NDArray[np.bool_]) -> float:
    """The logarithm of the likelihood of all sources, each integrated over its rate."""
    shape, exposure = prior
    rate = np.exp(np.linspace(-30, 5, 1500))  # the integrand is smooth in ln Δ and vanishes at both ends
    each = np.exp(-gaps[:, :, None] * rate)
    likelihood = np.prod(np.where(found[:, :, None], 1 - each, each), axis=1)
    return float(
        np.sum(
            np.log(trapezoid(likelihood * gamma.pdf(rate, shape, scale=1 / exposure) * rate, np.log(rate)))
        )
    )


def test_where_crawls_tell_only_whether_the_prior_is_nearly_the_best() -> None:
    _, gaps, counts = simulate(52, 60, 5, shape=2.0)
    prior = GammaPrior.from_log(log_of_gaps(gaps, counts > 0))

    def loss(parameters: Floats) -> float:
        return -exact_evidence((math.exp(parameters[0]), math.exp(parameters[1])), gaps, counts > 0)

    best = minimize(loss, [0.7, 1.4], method="Nelder-Mead", options={"xatol": 1e-2, "fatol": 1e-4})
    assert loss(np.log([prior.shape, prior.exposure])) - best.fun < 0.1  # two parameters' noise is about 1
    assert loss(np.log([0.5, 1.0])) - best.fun > 2


def test_estimates_solve_the_posterior_equation() -> None:
    _, gaps, counts = simulate(53, 100, 4, shape=1.0)
    prior = GammaPrior(0.8, 3.0)
    model = MaximumLikelihood(prior=prior).fit(log_of_gaps(gaps, counts > 0))
    for k, (a, found) in enumerate(zip(gaps, counts > 0, strict=True)):

        def slope(rate: float, a: Floats = a, found: npt.NDArray[np.bool_] = found) -> float:
            terms = [*(a[found] / np.expm1(a[found] * rate)), *-a[~found], 0.8 / rate, -3.0]
            return math.fsum(terms)

        assert model.change_rate_[k] == pytest.approx(brentq(slope, 1e-6, 100, xtol=1e-14), rel=SCALAR)
    lower, upper = model.interval()
    assert np.all(
        (lower > 0) & (lower < model.change_rate_) & (model.change_rate_ < upper) & np.isfinite(upper)
    )


def test_a_baseline_alone_gets_the_mean_of_the_prior() -> None:
    log = CrawlLog(["a", "b", "b"], [0, 0, 1], [0, 0, 1])
    model = MaximumLikelihood(prior=GammaPrior(2.0, 5.0)).fit(log)
    assert model.change_rate_[0] == pytest.approx(0.4, rel=EXACT)
    assert model.flag_.tolist() == ["baseline only", "always changed"]


def test_the_prior_has_its_own_time_unit() -> None:
    _, gaps, counts = simulate(54, 50, 4, shape=1.0)
    days, hours = log_of_gaps(gaps, counts > 0), log_of_gaps(24 * gaps, counts > 0, time_unit="hour")
    prior, other = GammaPrior.from_log(days), GammaPrior.from_log(hours)
    assert other.time_unit == "hour"
    assert other.shape == pytest.approx(prior.shape, rel=1e-4)
    assert other.exposure == pytest.approx(24 * prior.exposure, rel=1e-4)
    one, two = (MaximumLikelihood(prior=prior).fit(log).change_rate_ for log in (days, hours))
    np.testing.assert_allclose(24 * two, one, rtol=EXACT)


@pytest.mark.parametrize("shape", [0.7, 3.0])
def test_rates_of_rarely_crawled_sources_come_closer_to_the_truth(shape: float) -> None:
    rates, gaps, counts = simulate(55, 400, 5, shape)
    log = log_of_gaps(gaps, counts > 0)
    learnt = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log).change_rate_
    smoothed = MaximumLikelihood().fit(log).change_rate_
    assert np.mean((learnt - rates) ** 2) < 0.75 * np.mean((smoothed - rates) ** 2)


def test_rates_that_are_all_the_same_are_seen_to_be() -> None:
    gaps, counts = np.ones((40, 10)), np.tile([0, 1, 0, 0, 1, 0, 1, 0, 0, 0], (40, 1))
    prior = GammaPrior.from_marginal_likelihood(log_of_gaps(gaps, counts > 0))
    assert prior.shape > 1e3
    assert prior.shape / prior.exposure == pytest.approx(-math.log(0.7), rel=1e-3)


def test_a_prior_is_no_surer_than_its_log() -> None:
    """Against the average of 1/shape over the evidence, integrated densely; counted changes make it exact."""
    rng = np.random.default_rng(6)
    gaps = np.full((25, 1), 10.0)
    counts = rng.poisson(gaps * rng.gamma(4.0, 0.1, (25, 1)))
    log = log_of_gaps(gaps, counts > 0, counts)
    sure, prior = GammaPrior.from_marginal_likelihood(log), GammaPrior.from_log(log)
    mean = sure.shape / sure.exposure

    def evidence(shape: float, m: float) -> float:
        b = shape / m
        each = (
            gammaln(shape + counts) - gammaln(shape) + shape * np.log(b) - (shape + counts) * np.log(b + 10.0)
        )
        return float(np.sum(each))

    spread = np.linspace(1e-3, 2.5, 4000)
    values = np.array([evidence(s**-2, mean) for s in spread])
    weight = np.exp(values - values.max())
    squared = float(np.sum(weight * spread**2) / np.sum(weight))
    h = 1e-3
    around = [evidence(1 / squared, mean * np.exp(k * h)) for k in (-1, 0, 1)]
    variance = h * h / (2 * around[1] - around[0] - around[2])
    assert 1 / prior.shape == pytest.approx((1 + squared) * np.exp(variance) - 1, rel=0.02)
    assert prior.shape / prior.exposure == pytest.approx(mean * np.exp(variance / 2), rel=1e-3)
    assert prior.shape < sure.shape


@pytest.mark.exhaustive
def test_intervals_of_few_sources_alike_cover_them() -> None:
    covered = []
    for seed in range(8):
        changed = np.random.default_rng(seed).random((30, 20)) < -np.expm1(-0.3)
        log = log_of_gaps(np.ones((30, 20)), changed)
        low, high = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log).interval(0.95)
        covered.append(np.mean((low <= 0.3) & (high >= 0.3)))
    assert np.mean(covered) > 0.9  # the most likely prior: 0.2


def test_dates_of_first_crawls_alone_are_half_changes_half_births() -> None:
    rng = np.random.default_rng(0)
    age = rng.exponential(20.0, 400)
    log = CrawlLog(np.arange(400), np.full(400, 500.0), np.zeros(400), last_modified=500.0 - age)
    prior = GammaPrior.weak(log)
    assert prior.shape / prior.exposure == pytest.approx(0.5 * 401.0 / age.sum(), rel=1e-9)
