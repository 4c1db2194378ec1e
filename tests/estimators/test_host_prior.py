"""Priors by host: what is recovered from simulated hosts, what becomes of small and unseen ones."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from freshopt.errors import SourceDataError
from freshopt.estimators import GammaPrior, HostPriors, MaximumLikelihood
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.crawl_logs import log_of_gaps

Floats = npt.NDArray[np.float64]


def simulate(
    seed: int, within: float, spread: float, crawls: int = 5
) -> tuple[Any, Floats, Floats, CrawlLog]:
    """150 hosts of 1 to 40 sources: the host of each source, the hosts' means, the rates, a log."""
    rng = np.random.default_rng(seed)
    size = np.maximum(1, (40 * rng.random(150) ** 3).astype(int))
    host = np.repeat(np.arange(150), size)
    means = np.exp(-1.0 + spread * rng.standard_normal(150))
    rates = rng.gamma(within, means[host] / within)
    gaps = rng.exponential(1.0, (len(host), crawls))
    return host, means, rates, log_of_gaps(gaps, rng.poisson(gaps * rates[:, None]) > 0)


@pytest.mark.parametrize(("within", "spread"), [(5.0, 1.0), (1.0, 0.5)])
def test_shape_and_spread_are_recovered(within: float, spread: float) -> None:
    host, means, _, log = simulate(91, within, spread)
    priors = HostPriors.from_log(log, host)
    assert abs(np.log(priors.within / within)) < 0.35
    assert abs(np.log(priors.spread / spread)) < 0.25
    size = np.bincount(host)
    # Shape and mean of a prior tell what is known of ln m: its variance v, and its mean.
    variance = np.log((1 + 1 / priors.shape) / (1 + 1 / priors.within))[:-1]
    error = np.log(priors.mean[:-1] / means) - 0.5 * variance
    assert 0.7 < np.mean(error**2 / variance) < 1.4  # of 150: the standard error is 0.12
    assert np.median(variance[size > 20]) < 0.5 * np.median(variance[size < 3])
    assert np.all(variance <= priors.spread**2 * (1 + 1e-9))


@pytest.mark.exhaustive
def test_rates_come_closer_to_the_truth_than_with_one_prior_for_all() -> None:
    host, _, rates, log = simulate(92, within=5.0, spread=1.0)
    own = MaximumLikelihood(prior=HostPriors.from_log(log, host)).fit(log)
    one = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log)

    def error(model: MaximumLikelihood) -> float:
        return float(np.mean(np.log(model.change_rate_ / rates) ** 2))

    assert error(own) < 0.6 * error(one)
    lower, upper = own.interval(0.8)
    assert 0.75 < np.mean((lower <= rates) & (rates <= upper)) < 0.86


@pytest.mark.exhaustive
def test_hosts_that_are_alike_have_the_prior_of_all() -> None:
    host, _, _, log = simulate(93, within=2.0, spread=0.0)
    priors, one = HostPriors.from_log(log, host), GammaPrior.from_log(log)
    assert priors.spread < 0.25
    np.testing.assert_allclose(priors.mean, one.shape / one.exposure, rtol=0.25)
    own = MaximumLikelihood(prior=priors).fit(log).change_rate_
    shared = MaximumLikelihood(prior=one).fit(log).change_rate_
    assert np.sqrt(np.mean(np.log(own / shared) ** 2)) < 0.1


def test_cold_starts_have_the_mean_of_their_host() -> None:
    """A source with a baseline only, on a fast host, on a slow one, and of no known host."""
    rng = np.random.default_rng(94)
    rates = np.repeat([2.0, 0.05], 20)
    gaps = np.ones((40, 30))
    counts = rng.poisson(gaps * rates[:, None])
    source = [*np.repeat([f"p{k:02}" for k in range(40)], 30), "q1", "q2"]
    time = [*np.tile(np.arange(30.0), 40), 7.0, 7.0]
    changed = [*(counts.ravel() > 0), False, False]
    log = CrawlLog(source, time, changed)
    priors = HostPriors.from_log(log, ["fast"] * 20 + ["slow"] * 20 + ["fast", "slow"])
    model = MaximumLikelihood(prior=priors).fit(log)
    fast, slow = model.change_rate_[-2:]
    assert 1.2 < fast < 3.5
    assert 0.02 < slow < 0.12
    assert model.flag_[-2:].tolist() == ["baseline only"] * 2
    later = MaximumLikelihood(prior=priors).fit(CrawlLog(["p00", "p00", "new"], [0, 1, 0], [0, 1, 0]))
    assert slow < later.change_rate_[0] < fast  # "new" sorts first
    assert later.interval(0.8)[1][0] / later.interval(0.8)[0][0] > 3 * np.exp(priors.spread)


def test_priors_have_their_own_time_unit() -> None:
    host, _, _, log = simulate(95, within=2.0, spread=1.0)
    hours = CrawlLog.from_columns(
        {"source": log.source_index, "elapsed": 24 * log.interval, "changed": log.changed}, time_unit="hour"
    )
    priors = HostPriors.from_log(log, host)
    days = MaximumLikelihood(prior=priors).fit(log).change_rate_
    np.testing.assert_allclose(24 * MaximumLikelihood(prior=priors).fit(hours).change_rate_, days, rtol=1e-12)


def test_what_cannot_be_learnt_is_refused() -> None:
    _, _, _, log = simulate(96, within=2.0, spread=1.0)
    with pytest.raises(SourceDataError, match=r"host has shape \(2,\) but the log has .* sources"):
        HostPriors.from_log(log, ["a", "b"])
    priors = HostPriors.from_log(log, np.zeros(len(log.names), dtype=int))
    other = CrawlLog(["a", "a"], [0, 1], [0, 1])
    with pytest.raises(SourceDataError, match=r"the priors know no source of this log, such as 'a'\."):
        MaximumLikelihood(prior=priors).fit(other)
    assert repr(priors).startswith("HostPriors(1 hosts, within=")
