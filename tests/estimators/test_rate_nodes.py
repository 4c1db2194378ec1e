"""Gauss nodes of posteriors: expectations against fine quadrature of the density, written out here."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.estimators.rate_distribution import RateDistribution
from freshopt.problems import HarmonicStaleness
from tests.ground_truth.crawl_logs import log_at
from tests.ground_truth.refusals import present

Floats = npt.NDArray[np.float64]
LOG_RATES = np.linspace(-160.0, 12.0, 200_001)


def expectation(log_density: Callable[[Floats], Floats], cost: Callable[[Floats], Floats]) -> float:
    """Return the expectation over a density of Δ, known up to a factor."""
    return average(log_density, cost(np.exp(LOG_RATES)))


def average(log_density: Callable[[Floats], Floats], costs: Floats) -> float:
    """Return the mean of costs at `LOG_RATES`, by the trapezium rule in ln Δ."""
    rate = np.exp(LOG_RATES)
    each = log_density(rate) + LOG_RATES
    mass = np.exp(each - np.max(each))
    return float(np.sum(mass * costs) / np.sum(mass))


def stale(rate: Floats, u: float) -> Floats:
    """Return the stale share of copies refreshed each u time units."""
    x = rate * u
    return np.where(x < 1e-6, x / 2.0, 1.0 + np.expm1(-x) / np.maximum(x, 1e-300))


COSTS: dict[str, Callable[[Floats, float], Floats]] = {
    "binary, periodic": stale,
    "binary, Poisson": lambda rate, u: rate / (rate + 1.0 / u),
    "harmonic, Poisson": lambda rate, u: np.log1p(rate * u),
    "age, Poisson": lambda rate, u: u * rate / (rate + 1.0 / u),
}


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(("shape", "worst"), [(0.5, 3e-3), (1.5, 2e-4), (3.5, 2e-6), (60.5, 1e-8)])
def test_expected_costs_under_a_gamma_posterior(cost: str, shape: float, worst: float) -> None:
    found = RateDistribution.of_counts(np.array([shape - 0.5]), np.array([10.0])).nodes()
    for per_change in (0.01, 0.1, 1.0, 10.0):
        u = 10.0 / shape / per_change
        costs = COSTS[cost](np.exp(LOG_RATES), u)
        exact = average(lambda rate: (shape - 1.0) * np.log(rate) - 10.0 * rate, costs)
        assert np.sum(found.weights * COSTS[cost](found.nodes, u)) == pytest.approx(exact, rel=worst)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_nodes_have_the_mean_and_scale_with_time(scale: float) -> None:
    changes = np.array([0.0, 1.0, 30.0, 1e4])
    found = RateDistribution.of_counts(changes, np.full(4, 10.0 * scale)).nodes(5)
    np.testing.assert_allclose(
        np.sum(found.nodes * found.weights, axis=1) * 10.0 * scale, changes + 0.5, rtol=1e-6
    )
    np.testing.assert_allclose(np.sum(found.weights, axis=1), 1.0, rtol=1e-13)
    assert np.all(found.nodes > 0.0)


def test_nodes_under_a_prior_and_censored_crawls() -> None:
    gaps, changed = np.array([2.0, 7.0, 30.0, 4.0]), np.array([True, False, True, False])
    log = fo.CrawlLog(["a"] * 5, np.concatenate([[0.0], np.cumsum(gaps)]), [0, *changed])
    model = MaximumLikelihood(prior=GammaPrior(0.6, 20.0)).fit(log)
    nodes, weights = model.nodes()

    def log_density(rate: Floats) -> Floats:
        found: Floats = np.sum([np.log(-np.expm1(-rate * gap)) for gap in gaps[changed]], axis=0)
        density: Floats = found - rate * gaps[~changed].sum() - 0.4 * np.log(rate) - 20.0 * rate
        return density

    exact = expectation(log_density, lambda rate: stale(rate, 5.0))
    assert float(np.sum(weights * stale(nodes, 5.0))) == pytest.approx(exact, rel=1e-4)
    mean = expectation(log_density, lambda rate: rate)
    assert float(np.sum(weights * nodes)) == pytest.approx(mean, rel=2e-6)


def test_nodes_where_a_first_date_may_be_a_birth() -> None:
    log = fo.CrawlLog(["a"] * 2, [100.0, 107.0], [0, 0], last_modified=[60.0, 60.0])
    model = MaximumLikelihood(prior=GammaPrior(0.6, 20.0, birth_rate=0.005)).fit(log)
    nodes, weights = model.nodes()

    def log_density(rate: Floats) -> Floats:
        return np.log(rate + 0.005) - rate * 47.0 - 0.4 * np.log(rate) - 20.0 * rate

    for cost in (lambda rate: stale(rate, 40.0), lambda rate: np.log1p(rate * 300.0)):
        exact = expectation(log_density, cost)
        assert float(np.sum(weights * cost(nodes))) == pytest.approx(exact, rel=1e-3)
    assert float(np.sum(weights * nodes)) == pytest.approx(expectation(log_density, lambda r: r), rel=1e-5)


def test_a_source_without_crawls_has_no_nodes() -> None:
    log = fo.CrawlLog(["a", "b", "b", "b"], [0.0, 0.0, 1.0, 2.0], [0, 0, 1, 0])
    nodes, weights = MaximumLikelihood().fit(log).nodes(4)
    assert np.all(np.isnan(nodes[0]))
    assert np.all(np.isnan(weights[0]))
    assert np.all(nodes[1] > 0.0)


def test_other_sources_do_not_move_the_nodes() -> None:
    rng = np.random.default_rng(1)
    changed = rng.random((6, 9)) < np.array([0.0, 0.05, 0.3, 0.6, 0.95, 1.0])[:, None]
    prior, time = GammaPrior(0.6, 20.0), np.arange(9.0)
    together = MaximumLikelihood(prior=prior).fit(log_at(time, changed))
    for k in range(6):
        alone = MaximumLikelihood(prior=prior).fit(log_at(time, changed[k : k + 1]))
        np.testing.assert_allclose(alone.nodes()[0][0], together.nodes()[0][k], rtol=1e-12)


@pytest.mark.exhaustive
def test_expectation_of_a_problem_is_that_of_samples() -> None:
    rng = np.random.default_rng(2)
    n = 50
    changed = rng.random((n, 6)) < rng.beta(0.5, 1.5, n)[:, None]
    log = log_at(np.arange(6.0), changed)
    model = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log)
    objective = HarmonicStaleness(fo.Refresh.PERIODIC)
    sources = fo.Sources(model.change_rate_)
    problem = fo.Problem(fo.Expected(objective, *model.nodes()), sources, 20.0)
    rates = fo.solve(problem).rates
    drawn = []
    for rate in model._distribution().draws(1000, seed=3):
        own = present(fo.Problem(objective, sources.with_change_rate(np.maximum(rate, 1e-90)), 20.0).numerics)
        drawn.append(float(np.sum(own.cost(rates))))
    error = np.std(drawn) / np.sqrt(1000)
    assert abs(float(np.sum(present(problem.numerics).cost(rates))) - np.mean(drawn)) < 3.0 * error
