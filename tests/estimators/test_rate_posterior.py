"""Intervals from the posterior: against Beta and Gamma quantiles, brute-force integration, and simulation."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import beta, binom, gamma

from freshopt.estimators import (
    FullObservation,
    GammaPrior,
    LawOfLargeNumbers,
    LikelihoodRatio,
    MaximumLikelihood,
    MomentMatching,
    MomentumStochasticApproximation,
    Naive,
    Published,
    StochasticApproximation,
)
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps
from tests.ground_truth.tolerances import EXACT

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
CRAWLS = 20


def every_share(gap: float = 2.0) -> CrawlLog:
    """Source k found a change after k of 20 equal gaps."""
    found = [np.arange(CRAWLS) < k for k in range(CRAWLS + 1)]
    return log_of_gaps([np.full(CRAWLS, gap)] * (CRAWLS + 1), found)


def every_share_at_poisson_crawls() -> CrawlLog:
    """The same with gaps that are spread as exponential ones of mean 1."""
    found = [np.arange(CRAWLS) < k for k in range(CRAWLS + 1)]
    return log_of_gaps([-np.log1p(-(np.arange(CRAWLS) + 0.5) / CRAWLS)] * (CRAWLS + 1), found)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("make", [MaximumLikelihood, MomentMatching])
def test_equal_gaps_have_the_quantiles_of_a_beta_share(make: Any, confidence: float) -> None:  # noqa: ANN401
    lower, upper = make().fit(every_share()).interval(confidence)
    found = np.arange(CRAWLS + 1)
    share = beta(found + 0.5, CRAWLS - found + 0.5)
    expected = [-np.log1p(-share.ppf(level)) / 2.0 for level in (0.5 - confidence / 2, 0.5 + confidence / 2)]
    expected[0][0], expected[1][-1] = 0.0, np.inf
    np.testing.assert_allclose(lower, expected[0], rtol=2e-3)  # left of the first node: 1e-4 of the density
    np.testing.assert_allclose(upper, expected[1], rtol=1e-4)
    np.testing.assert_allclose(lower[3:], expected[0][3:], rtol=1e-5)


def brute_quantiles(gaps: Floats, found: Flags, weights: Floats, prior: tuple[float, float] | None) -> Any:  # noqa: ANN401
    """Integrate the density on 40 000 points of ln Δ."""
    t = np.linspace(-50.0, 32.0, 40_001)
    x = gaps[:, None] * np.exp(t)
    with np.errstate(over="ignore", divide="ignore"):
        log = np.where(found[:, None], np.log(-np.expm1(-x)), -x)
        information = np.sum(weights[:, None] * x * (x / np.expm1(x)), axis=0)
    g = np.sum(weights[:, None] * log, axis=0)
    if prior is None:
        g += 0.5 * np.log(np.maximum(information, 1e-300))
    else:
        g += prior[0] * t - prior[1] * np.exp(t)
    mass = np.exp(g - g.max())
    below = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    return lambda rates: np.interp(np.log(rates), t, below)


@pytest.mark.parametrize("kind", ["plain", "forgetting", "prior", "both"])
@pytest.mark.exhaustive
def test_any_gaps_have_the_quantiles_of_the_integrated_density(kind: str) -> None:
    """Gaps over many decades and few crawls: densities with two modes, flat shoulders, no mode at all."""
    rng = np.random.default_rng(61)
    gaps, found = [], []
    for _ in range(70):
        size, rate = int(rng.choice([1, 2, 5, 20, 80])), float(rng.choice([0.05, 1.0, 3.0, 30.0]))
        gaps.append(rng.gamma(0.25, 4.0, size) + 1e-6)
        found.append(found_changes(rng, rate, gaps[-1]))
    times = [np.arange(1.0, len(each) + 1) + 100.0 - len(each) for each in gaps]  # all end at 100
    log = log_of_gaps(gaps, found, time=times)
    half_life = 7.0 if kind in ("forgetting", "both") else None
    prior = (0.7, 0.3) if kind in ("prior", "both") else None
    model = MaximumLikelihood(prior=GammaPrior(*prior) if prior else None, half_life=half_life).fit(log)
    levels = np.array([0.001, 0.025, 0.3, 0.5, 0.9, 0.975, 0.999])
    rates = model._distribution().quantiles(np.repeat(levels[:, None], len(gaps), axis=1))
    for k, (a, changed, time) in enumerate(zip(gaps, found, times, strict=True)):
        weights = np.ones(len(a)) if half_life is None else 0.5 ** ((100.0 - time) / half_life)
        if prior is None:
            weights = weights * weights.sum() / np.sum(weights**2)
        got = brute_quantiles(a, changed, weights, prior)(rates[:, k])
        np.testing.assert_allclose(got, levels, rtol=3e-3)
        np.testing.assert_allclose(1 - got, 1 - levels, rtol=3e-3)


def test_counted_changes_have_the_quantiles_of_a_gamma_rate() -> None:
    counts = [np.array([0, 3]), np.array([0, 0]), np.array([40, 1])]
    log = log_of_gaps([np.array([1.0, 2.0])] * 3, [each > 0 for each in counts], changes=counts)
    total = np.array([3, 0, 41])
    expected = np.array(gamma.ppf([[0.1], [0.9]], total + 0.5, scale=1 / 3.0))
    expected[0, 1] = 0.0
    np.testing.assert_allclose(FullObservation().fit(log).interval(0.8), expected, rtol=1e-9)
    np.testing.assert_allclose(MaximumLikelihood().fit(log).interval(0.8), expected, rtol=1e-4)


def test_one_known_crawl_rate_has_the_quantiles_of_beta_odds() -> None:
    found = np.arange(CRAWLS + 1)
    share = np.array(beta.ppf([[0.1], [0.9]], found + 0.5, CRAWLS - found + 0.5))
    expected = 3.0 * share / (1 - share)
    expected[0, 0], expected[1, -1] = 0.0, np.inf
    for model in (LawOfLargeNumbers(), StochasticApproximation(), MomentumStochasticApproximation()):
        interval = model.fit(every_share_at_poisson_crawls(), 3.0).interval(0.8)
        estimate = model.change_rate_  # steps that have not converged may be beyond an end
        ends = [np.minimum(expected[0], estimate), np.maximum(expected[1], estimate)]
        np.testing.assert_allclose(interval, ends, rtol=1e-9)
    share[0, 0], share[1, -1] = 0.0, 1.0  # the estimate itself
    np.testing.assert_allclose(Naive().fit(every_share()).interval(0.8), share / 2.0, rtol=1e-9)


def coverage(interval: tuple[Floats, Floats], rates: Floats) -> float:
    return float(np.mean((interval[0] <= rates) & (rates <= interval[1])))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["equal", "exponential"])
def test_intervals_cover_as_often_as_they_say_after_20_crawls(kind: str) -> None:
    rng = np.random.default_rng(62)
    n = 4000
    rates = np.exp(rng.uniform(math.log(0.05), math.log(3.0), n))
    gaps = np.ones((n, CRAWLS)) if kind == "equal" else rng.exponential(1.0, (n, CRAWLS))
    log = log_of_gaps(gaps, found_changes(rng, rates[:, None], gaps))
    model = MaximumLikelihood().fit(log)
    for confidence in (0.8, 0.95):
        slack = 3.3 * math.sqrt(confidence * (1 - confidence) / n)
        assert abs(coverage(model.interval(confidence), rates) - confidence) < 0.01 + slack
    if kind == "equal":  # why another interval is the default
        plain = MaximumLikelihood(smoothing=0).fit(log)
        assert coverage(plain.interval(0.8, LikelihoodRatio()), rates) < 0.78


def test_intervals_at_crawl_rates_that_differ_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(63)
    n, crawls = 3000, 40
    rates, p = np.exp(rng.uniform(-1.5, 1.0, n)), np.exp(rng.uniform(-1.0, 1.0, (n, crawls)))
    found = rng.random((n, crawls)) < rates[:, None] / (rates[:, None] + p)
    log = log_of_gaps(rng.exponential(1.0 / p), found)
    model = LawOfLargeNumbers().fit(log, p.ravel())
    for confidence in (0.8, 0.95):
        low, high = binom.interval(0.999, n, confidence)
        assert low - 0.01 * n <= n * coverage(model.interval(confidence), rates) <= high + 0.01 * n


@pytest.mark.exhaustive
@pytest.mark.parametrize("half_life", [3.0, 30.0])
def test_intervals_with_a_half_life_cover_rates_that_did_not_drift(half_life: float) -> None:
    rng = np.random.default_rng(64)
    n, crawls = 2000, 100
    rates = np.exp(rng.uniform(math.log(0.2), math.log(2.0), n))
    counts = rng.poisson(np.repeat(rates[:, None], crawls, axis=1))
    times = [np.arange(1.0, crawls + 1)] * n
    more: dict[str, Any] = {"time": times, "changes": counts}
    counted = log_of_gaps(np.ones((n, crawls)), counts > 0, **more)
    plain = log_of_gaps(np.ones((n, crawls)), counts > 0, time=times)
    models: list[Any] = [
        MaximumLikelihood(half_life=half_life).fit(plain),
        FullObservation(half_life=half_life).fit(counted),
    ]
    for model in models:
        for confidence in (0.8, 0.95):
            slack = 3.3 * math.sqrt(confidence * (1 - confidence) / n)
            assert abs(coverage(model.interval(confidence), rates) - confidence) < 0.02 + slack


@pytest.mark.exhaustive
def test_draws_are_spread_as_the_intervals_say() -> None:
    log = every_share()
    law = LawOfLargeNumbers(alpha=0.5).fit(every_share_at_poisson_crawls(), 0.5)
    for model in (MaximumLikelihood().fit(log), law):
        draws = model._distribution().draws(4000, seed=3)
        assert draws.shape == (4000, CRAWLS + 1)
        lower, upper = model.interval(0.8)
        inside = np.mean((draws[:, 1:-1] >= lower[1:-1]) & (draws[:, 1:-1] <= upper[1:-1]), axis=0)
        assert np.all(np.abs(inside - 0.8) < 4.5 * math.sqrt(0.16 / 4000))
        np.testing.assert_array_equal(model.draws(3, seed=5), model.draws(3, seed=5))


EDGES = CrawlLog(["always", "always", "baseline", "never", "never"], [0, 2, 0, 0, 4], [0, 1, 1, 0, 0])


def test_sources_that_say_little_have_open_intervals() -> None:
    for make, rated in ((MaximumLikelihood, False), (MomentMatching, False), (LawOfLargeNumbers, True)):
        model: Any = make().fit(EDGES, *[1.0] * rated)
        lower, upper = model.interval()
        assert lower[0] > 0
        assert upper[0] == np.inf
        assert (lower[1], upper[1]) == (0.0, np.inf)
        assert lower[2] == 0
        assert upper[2] < np.inf
        draws = model._distribution().draws(2, seed=1)
        assert np.isnan(draws[:, 1]).all()
        assert np.isfinite(draws[:, [0, 2]]).all()
        assert np.isfinite(model.draws(2, seed=1)).all()
    with_prior = MaximumLikelihood(prior=GammaPrior(2.0, 5.0)).fit(EDGES)
    np.testing.assert_allclose(
        np.array(with_prior.interval(0.8))[:, 1], gamma.ppf([0.1, 0.9], 2.0, scale=1 / 5.0), rtol=1e-4
    )


def test_published_intervals_are_the_estimate_and_its_bound() -> None:
    log = every_share(0.5)
    model = MomentMatching((0.1, 4.0)).fit(log)
    lower, upper = model.interval(0.9, Published())
    spread = math.sqrt(math.log(20.0) / 40.0) / (0.5 * math.exp(-2.0))
    np.testing.assert_allclose(lower, np.maximum(model.change_rate_ - spread, 0.1), rtol=EXACT)
    np.testing.assert_allclose(upper, np.minimum(model.change_rate_ + spread, 4.0), rtol=EXACT)
