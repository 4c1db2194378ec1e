"""Priors by features: recovered from simulated sources, calibrated, and left out where nothing is told."""

import sys
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.sparse import csc_array

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.estimators import FeaturePriors, GammaPrior, MaximumLikelihood
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.features.feature_priors import _regressed, _Regression
from freshopt.estimators.features.source_features import SourceFeatures, with_new_sources
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.crawl_logs import found_changes, log_at, log_of_gaps
from tests.ground_truth.refusals import refused

Floats = npt.NDArray[np.float64]
Known: TypeAlias = tuple[CrawlLog, pl.DataFrame, Floats, Floats, FeaturePriors]


def simulated(
    seed: int, n: int = 600, shape: float = 2.0, crawls: int = 15, strength: float = 1.0, hosts: int = 15
) -> tuple[CrawlLog, pl.DataFrame, Floats, Floats]:
    """Return a log, features, what these expect, and the rates; every fourth source is new.

    The last host is one of new sources alone.
    """
    rng = np.random.default_rng(seed)
    host, x = rng.integers(0, hosts, n), rng.normal(size=n)
    new = np.arange(0, n, 4)
    host[new[::5]] = hosts
    effect = 0.8 * strength * rng.normal(size=hosts + 1)
    expected = 0.05 * np.exp(0.7 * strength * x + effect[host])
    rate = expected * rng.gamma(shape, 1.0 / shape, n)
    gap = rng.exponential(4.0, (n, crawls)) + 1e-3
    old = np.setdiff1d(np.arange(n), new)
    changed = found_changes(rng, rate[:, None], gap)
    crawled = log_of_gaps(gap[old], changed[old], names=old, time=np.cumsum(gap[old], axis=1))
    log = with_new_sources(crawled, new)
    words = [f"h{each}" for each in host]
    return log, pl.DataFrame({"source": np.arange(n), "site": words, "size": np.exp(3 * x)}), expected, rate


@pytest.fixture(scope="module")
def known() -> Known:
    """Return sources with their priors."""
    log, frame, expected, rate = simulated(1, n=300)
    return log, frame, expected, rate, FeaturePriors.from_log(log, frame)


def test_effects_are_recovered(known: Known) -> None:
    _, _, expected, rate, priors = known
    new = np.arange(0, len(rate), 4)
    seen = new[np.arange(len(new)) % 5 != 0]
    assert np.std(np.log(priors.mean[seen] / expected[seen])) < 0.5 * np.std(np.log(expected))
    assert priors.gain > 30.0
    assert priors.spread.keys() == {"site", "size"}
    # A host that was not learnt widens the prior.
    assert np.max(priors.shape[new[::5]]) < 0.8 * np.min(priors.shape[seen])
    assert priors.within > 1.5 * priors.pooled.shape


@pytest.mark.exhaustive
def test_intervals_of_new_sources_cover_their_rates() -> None:
    inside, own, expected, true = [], [], 0.0, 0.0
    for seed, shape in ((11, 2.0), (12, 2.0), (13, 0.7), (14, 5.0)):
        log, frame, _, rate = simulated(seed, shape=shape, hosts=40 if shape > 4.0 else 15)
        model = MaximumLikelihood(prior=FeaturePriors.from_log(log, frame)).fit(log)
        lower, upper = model.interval(0.9)
        new = np.arange(0, len(rate), 4)
        there = (lower <= rate) & (rate <= upper)
        inside.append(np.mean(there[new]))
        own.append(np.mean(np.delete(there, new)))
        expected, true = expected + np.sum(model.change_rate_[new]), true + np.sum(rate[new])
    assert 0.86 < np.mean(inside) < 0.94  # of 600: the standard error is 0.012
    assert 0.86 < np.mean(own) < 0.94
    assert 0.8 < expected / true < 1.25


def test_sources_with_much_history_keep_their_own_estimate(known: Known) -> None:
    log, _, _, rate, priors = known
    rng, n, crawls = np.random.default_rng(3), len(rate), 300
    gap = rng.exponential(2.0, (n, crawls))
    changed = found_changes(rng, rate[:, None], gap)
    longer = log_of_gaps(gap, changed)
    model = MaximumLikelihood(prior=priors).fit(longer)
    alone = MaximumLikelihood(prior=priors.pooled).fit(longer).change_rate_
    much = changed.sum(axis=1) > 30
    assert np.count_nonzero(much) > 30
    short = MaximumLikelihood(prior=priors).fit(log).change_rate_
    before = np.log(short / MaximumLikelihood(prior=priors.pooled).fit(log).change_rate_)
    after = np.log(model.change_rate_ / alone)
    assert np.max(np.abs(after[much])) < 0.1
    assert np.median(np.abs(after[much])) < 0.02 < 0.1 * np.max(np.abs(before))


def test_features_that_tell_nothing_leave_the_pooled_prior() -> None:
    log, frame, _, _ = simulated(4, n=200, strength=0.0)
    frame = frame.with_columns(site=pl.Series(np.random.default_rng(0).permutation(frame["site"].to_numpy())))
    priors, pooled = FeaturePriors.from_log(log, frame), GammaPrior.from_log(log)
    assert priors.gain < 3.0
    assert not priors.spread
    np.testing.assert_allclose(priors.mean, pooled.shape / pooled.exposure, rtol=1e-12)
    np.testing.assert_allclose(priors.shape, pooled.shape, rtol=1e-12)
    assert "no feature tells" in repr(priors)


def test_what_separates_changes_has_a_finite_effect() -> None:
    """All sources of one kind changed in each crawl, none of the other ever did."""
    n, crawls = 80, 6
    kind = np.repeat(["still", "busy"], n // 2)
    crawled = log_at(np.arange(crawls), np.repeat(kind == "busy", crawls).reshape(n, crawls))
    log = with_new_sources(crawled, np.array([n, n + 1]))
    frame = pl.DataFrame({"source": np.arange(n + 2), "kind": [*kind, "still", "busy"]})
    priors = FeaturePriors.from_log(log, frame)
    assert 0.0 < priors.mean[-2] < 0.1 * priors.mean[-1] < np.inf
    assert np.all(np.isfinite(priors.shape))


def test_the_regression_is_the_penalised_maximum_of_its_likelihood() -> None:
    """Of crawls, changes and counts, by a search that knows the log-likelihood alone; ill-scaled gaps."""
    rng = np.random.default_rng(5)
    n, columns = 60, 3
    x = rng.normal(size=(n, columns))
    gap = np.exp(rng.uniform(-6.0, 6.0, 40 * n))
    source = np.repeat(np.arange(n), 40)
    found = rng.random(len(gap)) < -np.expm1(-0.1 * gap * np.exp(x[source] @ [0.5, -1.0, 0.0]))
    weight = rng.uniform(0.2, 1.0, len(gap))
    intercept, effects = _regressed(
        csc_array(x[source]), found.astype(float), weight, np.log(gap), 3.0 / weight.sum()
    )

    def loss(at: Floats) -> float:
        passed = gap * np.exp(at[0] + x[source] @ at[1:])
        told = np.where(found, np.log(-np.expm1(-passed)), -passed)
        return float(1.5 * np.sum(at[1:] ** 2) - np.sum(weight * told))

    best = minimize(loss, np.append(-2.0, np.zeros(columns)), method="BFGS", options={"gtol": 1e-7}).x
    np.testing.assert_allclose([intercept, *effects], best, rtol=1e-4, atol=1e-5)


def test_rows_have_the_likelihood_of_the_crawls() -> None:
    """Gaps, counts and dates: the rows' likelihood is that of the log, source by source."""
    rng = np.random.default_rng(6)
    source, gap = np.repeat(np.arange(40), 12), rng.exponential(2.0, 480) + 0.01
    changes = rng.poisson(0.3 * gap).astype(float)
    counts = np.where(source % 2 == 0, changes, np.where(changes > 0, np.nan, 0.0))
    log = CrawlLog.from_columns({"source": source, "elapsed": gap, "changed": changes > 0, "changes": counts})
    observed = CrawlLikelihood.of(log)
    frame = pl.DataFrame({"source": np.arange(40), "x": rng.normal(size=40)})
    rows = _Regression.of(observed, SourceFeatures.of(log.names, frame), np.arange(40))
    values = []
    for rate in (0.1, 0.3, 0.6):
        passed = rows.gap * rate
        told = rows.weight * np.where(rows.found > 0, np.log(-np.expm1(-passed)), -passed)
        values.append(np.bincount(rows.source, told, 40))
    # A count differs by a constant.
    for k, rate in ((1, 0.3), (2, 0.6)):
        expected = observed.value(np.full(40, rate)) - observed.value(np.full(40, 0.1))
        np.testing.assert_allclose(values[k] - values[0], expected, rtol=2e-3, atol=5e-3)


def test_priors_are_of_the_time_unit_of_the_log_and_of_known_sources(known: Known) -> None:
    log, _, _, _, priors = known
    rows = {"source": log.source_index, "elapsed": 24.0 * log.interval, "time": 24.0 * log.time}
    hours = CrawlLog.from_columns({**rows, "changed": log.changed}, time_unit="hour")
    own, other = priors.parameters(log), priors.parameters(hours)
    np.testing.assert_allclose(other.exposure, 24.0 * own.exposure, rtol=1e-12)
    refused("no features of '999'", priors.parameters, CrawlLog([999, 999], [0.0, 1.0], [0, 1]))


def test_too_little_is_refused() -> None:
    log, frame, _, _ = simulated(8, n=32)
    refused("the log has 24 of them, where 30 are needed", FeaturePriors.from_log, log, frame)
    log, frame, _, _ = simulated(8, n=80)
    alike = frame.with_columns(size=pl.when(pl.col("source") == 0).then(1.0).otherwise(2.0)).drop("site")
    with pytest.raises(SourceDataError, match="no feature tells sources that were crawled twice apart: size"):
        FeaturePriors.from_log(log, alike)
    still = log_at([0.0, 1.0], np.zeros((80, 2)))
    refused("no source changed", FeaturePriors.from_log, still, frame)


def test_without_glum_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    log, frame, _, _ = simulated(9, n=60)
    monkeypatch.setitem(sys.modules, "glum", None)
    with pytest.raises(FreshoptError, match=r"glum is not installed. .*freshopt\[features\]"):
        FeaturePriors.from_log(log, frame)
