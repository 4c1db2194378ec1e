"""Evidence that might have two peaks: what is found is held against dense grids and integrals."""

from typing import Any

import numpy as np
import pytest
from scipy.special import betaln, expit, gammaln

from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.estimators.host_prior import _Hosts
from freshopt.estimators.marginal_likelihood import MarginalLikelihood
from freshopt.estimators.success_rates import LOGITS, WEIGHTS, _fitted
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
    changes, time = observed.pooled()
    pooled = changes / time
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


def integral(observed: CrawlLikelihood, shape: float, exposure: float, births: float) -> float:
    """The log evidence by a fine sum over ln(rate), source by source."""
    logarithm = np.linspace(-60.0, 14.0, 3000)
    rate, total = np.exp(logarithm), 0.0
    prior = shape * np.log(exposure) + shape * logarithm - exposure * rate - gammaln(shape)
    for k in range(len(observed.counted)):
        value = prior + observed.counted[k] * logarithm - observed.exposure[k] * rate
        for gap in observed.rows.length[observed.rows.offsets[k] : observed.rows.offsets[k + 1]]:
            value = value + np.log(-np.expm1(-rate * gap))
        if observed.dates is not None and observed.dates.possible[k] > 0.0:
            value = value + np.log(rate + births) - (rate + births) * observed.dates.age[k]
        most = float(value.max())
        inside = float(np.sum(np.exp(value - most))) * float(logarithm[1] - logarithm[0])
        total += most + float(np.log(inside + np.exp(value[0] - most) / shape))
    return total


@pytest.mark.parametrize("seed", [32, 113, 149, 236, 297])
def test_the_evidence_of_dated_logs_has_no_peak_but_those_of_the_integral(seed: int) -> None:
    """A Gamma with mode and curvature of a saturated source made one 5 to 48 nats too high."""
    observed = CrawlLikelihood.of(dated_log(seed))
    changes, time = observed.pooled()
    pooled = changes / time
    evidence = evidence_of(dated_log(seed), pooled)
    for log_shape, log_mean in ((-0.5, 0.3), (-2.0, 1.0), (-3.0, 3.5)):
        shape = float(np.exp(log_shape))
        exposure = shape / (pooled * float(np.exp(log_mean)))
        found, births = evidence.best(shape, exposure)
        assert found == pytest.approx(integral(observed, shape, exposure, births), abs=0.5)
        assert evidence.at(shape, exposure, births) == pytest.approx(found, abs=1e-9)


# Of simulated logs those in which many sources are saturated, and some others.
@pytest.mark.parametrize("seed", [32, 48, 113, 124, 149, 186, 236, 257, 297, 5, 11])
@pytest.mark.sampled(4)
def test_the_prior_of_dated_logs_is_the_highest_peak(seed: int) -> None:
    assert_highest(dated_log(seed))


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(1000, 1400, 25))
def test_the_prior_of_any_dated_log_is_the_highest_peak(first: int) -> None:
    for seed in range(first, first + 25):
        log = dated_log(seed)
        observed = CrawlLikelihood.of(log)
        if (
            observed.dates is not None
            and np.any(observed.found + observed.counted)
            and np.any(observed.exposure)
        ):
            assert_highest(log)


@pytest.mark.parametrize("seed", [3, 32, 113, 149, 236])
@pytest.mark.sampled(3)
def test_the_prior_of_undated_logs_is_the_highest_peak(seed: int) -> None:
    dated = dated_log(seed)
    log = CrawlLog(dated.source_index, dated.time, dated.changed)
    prior = GammaPrior.from_marginal_likelihood(log)
    mean = prior.shape / prior.exposure
    evidence = evidence_of(log, mean)
    grid = [
        evidence.best(float(shape), float(shape / (mean * factor)))[0]
        for shape in np.exp(np.arange(-5.0, 6.1, 0.5))
        for factor in np.exp(np.arange(-6.0, 8.1, 0.5))
    ]
    assert evidence.best(prior.shape, prior.exposure)[0] >= max(grid) - 0.01


@pytest.mark.parametrize("seed", range(12))
def test_the_prior_of_success_rates_is_the_highest_peak(seed: int) -> None:
    """Hosts of one chance, of two, of Beta and of logistic normal ones."""
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(2, 80))
    chance = [
        np.full(hosts, rng.uniform()),
        np.where(rng.random(hosts) < 0.3, rng.uniform(0.9, 1.0, hosts), rng.uniform(0.0, 0.1, hosts)),
        rng.beta(0.3, 2.0, hosts),
        expit(rng.normal(1.0, 4.0, hosts)),
    ][seed % 4]
    tried = np.maximum(1, rng.poisson(10.0 ** rng.uniform(0.0, 2.5), hosts)).astype(float)
    good = rng.binomial(tried.astype(int), chance).astype(float)

    def evidence(a: Any, b: Any) -> Any:  # noqa: ANN401 - numbers or arrays
        return np.sum(betaln(a + good[:, None], b + (tried - good)[:, None]) - betaln(a, b), axis=0)

    grid = np.meshgrid(expit(np.linspace(*LOGITS, 45)), np.exp(np.linspace(*WEIGHTS, 45)))
    mean, weight = (axis.ravel() for axis in grid)
    assert evidence(*_fitted(tried, good))[0] >= np.max(evidence(mean * weight, (1.0 - mean) * weight)) - 0.01


@pytest.mark.parametrize("seed", [3001, 3002, 3004, 3005, 3007, 3008, 3009, 3011])
@pytest.mark.sampled(4)
def test_host_priors_do_not_depend_on_where_their_search_begins(seed: int) -> None:
    log = dated_log(seed)
    code = np.random.default_rng(seed).integers(0, 6, len(log.names))
    code = np.unique(code, return_inverse=True)[1]
    start = GammaPrior.from_marginal_likelihood(log)
    hosts = _Hosts(CrawlLikelihood.of(log), code, start.birth_rate)

    def reached(shape: float, mean: float) -> float:
        """The evidence where a search ends, means of hosts integrated out about their best values."""
        within, typical, spread = hosts.spread_of(shape, mean)
        means, _ = hosts.means(within, typical, spread)
        apart = float(np.sum((means - typical) ** 2)) / (2.0 * spread**2) + len(means) * np.log(spread)
        return float(-hosts._loss(float(np.log(within)), means, spread) - apart)

    own = np.log(start.shape / start.exposure)
    others = [
        reached(shape, own + mean) for shape, mean in ((1.0, 0.0), (0.14, 0.0), (0.05, 3.0), (1.0, -3.0))
    ]
    assert reached(start.shape, own) >= max(others) - 0.3
