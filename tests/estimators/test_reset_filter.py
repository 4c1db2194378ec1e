"""Beliefs that reset, and their prior: against a fine quadrature, closed forms, and simulated resets."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import gammaln
from scipy.stats import gamma

from freshopt.compiled.backend import fast
from freshopt.estimators import GammaPrior, HostPriors, MaximumLikelihood, resetting_prior
from freshopt.estimators.default_prior import default_prior, in_windows
from freshopt.estimators.reset_filter import ResetFilter, candidates, filter_crawls
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.crawl_logs import log_at
from tests.ground_truth.refusals import present
from tests.ground_truth.resetting_sources import resetting_log
from tests.ground_truth.strata import matrix

Floats = npt.NDArray[np.float64]
# Largest error on these cases: 8e-6 of a mean, 2.6e-3 of a quantile, 2e-5 nats.
MEAN, QUANTILE, NATS = 2e-5, 4e-3, 5e-5


class Quadrature:
    """The recursion on 40 001 points of ln Δ, one crawl after the other."""

    def __init__(self, a: float, b: float, births: float = 0.0) -> None:
        t = np.linspace(-60.0, 15.0, 40_001)
        self.rate, self.births = np.exp(t), births
        self.prior = np.exp(a * (t + math.log(b)) - b * self.rate - gammaln(a)) * (t[1] - t[0])
        # Shapes below 0.5 have mass left of e^-60, at a rate of 0.
        self.prior[0] += max(0.0, 1.0 - self.prior.sum())
        self.belief, self.evidence = self.prior, 0.0

    def age(self, gap: float, reset: float) -> None:
        kept = math.exp(-reset * gap)
        self.belief = kept * self.belief + (1.0 - kept) * self.prior

    def tell(self, likelihood: Floats) -> None:
        joint = self.belief * likelihood
        self.evidence += math.log(joint.sum())
        self.belief = joint / joint.sum()

    def crawl(self, gap: float, changed: bool, reset: float) -> None:
        self.age(gap, reset)
        self.tell(-np.expm1(-gap * self.rate) if changed else np.exp(-gap * self.rate))

    @property
    def mean(self) -> float:
        return float(self.belief @ self.rate)

    def quantile(self, level: float) -> float:
        return float(np.interp(level, np.cumsum(self.belief) - 0.5 * self.belief, self.rate))


def random_log(rng: np.random.Generator, crawls: int, scale: float) -> tuple[CrawlLog, Floats, Floats]:
    gap = scale * rng.exponential(size=crawls)
    changed = rng.random(crawls) < rng.choice([0.05, 0.5, 0.95])
    columns = {"source": np.zeros(crawls, dtype=np.int64), "elapsed": gap, "changed": changed}
    return CrawlLog.from_columns(columns), gap, changed


@matrix(a=[0.05, 0.6, 3.0, 400.0], reset=[0.0, 0.02, 1.0], crawls=[1, 12, 150], every=4)
def test_means_quantiles_and_evidence_are_those_of_a_fine_quadrature(
    a: float, reset: float, crawls: int
) -> None:
    rng = np.random.default_rng([int(100 * a), int(100 * reset), crawls])
    log, gap, changed = random_log(rng, crawls, 3.0)
    prior = GammaPrior(a, 10.0 * a)
    truth = Quadrature(a, 10.0 * a)
    for g, c in zip(gap, changed, strict=True):
        truth.crawl(g, c, reset)
    model = MaximumLikelihood(prior=prior, reset=reset).fit(log)
    assert model.change_rate_[0] == pytest.approx(truth.mean, rel=MEAN)
    beliefs = ResetFilter(log, prior.parameters(log))
    assert beliefs.evidence(np.array([reset]))[0] == pytest.approx(truth.evidence, abs=NATS)
    levels = [0.05, 0.3, 0.5, 0.8, 0.975]
    got = beliefs.distribution(reset).quantiles(np.array(levels)[:, None])[:, 0]
    expected = np.array([truth.quantile(p) for p in levels])
    keep = expected > 1e-20
    np.testing.assert_allclose(got[keep], expected[keep], rtol=QUANTILE)


def test_without_resets_it_is_the_gamma_posterior_of_counted_changes() -> None:
    changes = np.array([0.0, 3.0, 0.0, 40.0, 1.0, 700.0])
    columns = {
        "source": np.arange(6),
        "elapsed": np.full(6, 30.0),
        "changed": changes > 0,
        "changes": changes,
    }
    log = CrawlLog.from_columns(columns)
    model = MaximumLikelihood(prior=GammaPrior(0.6, 20.0), reset=0.0).fit(log)
    np.testing.assert_allclose(model.change_rate_, (0.6 + changes) / 50.0, rtol=MEAN)
    lower, upper = model.interval(0.9)
    np.testing.assert_allclose(lower, gamma.ppf(0.05, 0.6 + changes) / 50.0, rtol=QUANTILE)
    np.testing.assert_allclose(upper, gamma.ppf(0.95, 0.6 + changes) / 50.0, rtol=QUANTILE)
    middle = np.median(model._distribution().draws(20_000, seed=1), axis=0)
    np.testing.assert_allclose(middle, gamma.ppf(0.5, 0.6 + changes) / 50.0, rtol=0.05)


def test_dates_and_births_without_resets_are_two_gammas() -> None:
    """One change in 5 days, dated 2 days before its crawl; a first date 30 days old, a change or a birth."""
    log = CrawlLog(["a"] * 2, [30.0, 35.0], [0, 1], last_modified=[0.0, 33.0])
    a, b, births = 0.6, 20.0, 0.01
    span = b + 30.0 + 2.0
    odds = (a + 1.0) / (births * span)
    share = odds / (1.0 + odds)
    expected = (share * (a + 2.0) + (1.0 - share) * (a + 1.0)) / span
    model = MaximumLikelihood(prior=GammaPrior(a, b, birth_rate=births), reset=0.0).fit(log)
    assert model.change_rate_[0] == pytest.approx(expected, rel=MEAN)


def test_the_pass_is_compiled_once_whatever_a_log_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    for dates in (None, [0.0, 33.0]):
        log = CrawlLog(["a"] * 2, [30.0, 35.0], [0, 1], last_modified=dates)
        MaximumLikelihood(prior=GammaPrior(0.6, 20.0), reset=0.01).fit(log)
    compiled: Any = fast(filter_crawls)
    assert len(compiled.signatures) == 1


def test_after_the_last_crawl_a_source_returns_to_its_prior() -> None:
    """Source 0 was crawled until day 10 and the log ends on day 40."""
    log = CrawlLog([0, 0, 1, 1], [0.0, 10.0, 0.0, 40.0], [0, 1, 0, 0])
    prior = GammaPrior(1.0, 5.0)
    truth = Quadrature(1.0, 5.0)
    truth.crawl(10.0, True, 0.03)
    truth.age(30.0, 0.03)
    model = MaximumLikelihood(prior=prior, reset=0.03).fit(log)
    assert model.change_rate_[0] == pytest.approx(truth.mean, rel=MEAN)


def test_a_baseline_alone_has_the_prior_and_its_flag() -> None:
    log = CrawlLog(["a", "b", "b"], [0.0, 0.0, 1.0], [0, 0, 1])
    model = MaximumLikelihood(prior=GammaPrior(0.6, 20.0), reset="auto").fit(log)
    assert model.change_rate_[0] == pytest.approx(0.03, rel=MEAN)
    assert model.flag_.tolist() == ["baseline only", "always changed"]
    assert model.reset_ == 0.0  # one crawl interval tells nothing of resets


def test_no_crawl_interval_at_all_has_no_resets() -> None:
    log = CrawlLog(["a", "b"], [0.0, 1.0], [0, 0])
    assert candidates(log).tolist() == [0.0]
    assert MaximumLikelihood(prior=GammaPrior(1.0, 2.0), reset="auto").fit(log).reset_ == 0.0


def test_resets_are_per_day_and_answered_in_the_unit_of_the_log() -> None:
    days = CrawlLog([0] * 4, [0.0, 3.0, 4.0, 9.0], [0, 1, 0, 0])
    hours = CrawlLog([0] * 4, [0.0, 72.0, 96.0, 216.0], [0, 1, 0, 0], time_unit="hour")
    prior = GammaPrior(0.6, 20.0)
    own, other = (MaximumLikelihood(prior=prior, reset=0.1).fit(log) for log in (days, hours))
    assert own.reset_ == 0.1
    assert other.reset_ == pytest.approx(0.1 / 24.0)
    assert 24.0 * other.change_rate_[0] == pytest.approx(own.change_rate_[0], rel=1e-9)


def test_hosts_bring_priors_of_their_own() -> None:
    rng = np.random.default_rng(5)
    host = np.repeat(["fast", "slow"], 20)
    changed = rng.random((40, 12)) < np.where(host == "fast", 0.6, 0.05)[:, None]
    log = log_at(np.arange(12.0), changed)
    priors = HostPriors.from_log(log, host)
    rate = MaximumLikelihood(prior=priors, reset=100.0).fit(log).change_rate_
    # Drawn anew within each crawl interval: the last crawl of a source is all that is known.
    for k in (0, 39):
        own = priors.parameters(log)
        truth = Quadrature(float(own.shape[k]), float(own.exposure[k]))
        truth.crawl(1.0, bool(changed[k, -1]), 100.0)
        assert rate[k] == pytest.approx(truth.mean, rel=MEAN)


@pytest.mark.exhaustive
@pytest.mark.parametrize("days", [1 / 40.0, 1 / 150.0])
def test_the_rate_of_resets_is_found_within_a_factor_of_two(days: float) -> None:
    """Band set before the run: a factor of 2, of 600 sources crawled weekly for two years."""
    log, rate = resetting_log(600, 700.0, 7.0, days, 0.6, 20.0, seed=3)
    prior = GammaPrior(0.6, 20.0)
    model = MaximumLikelihood(prior=prior, reset="auto").fit(log)
    assert 0.5 < present(model.reset_) / days < 2.0
    lasting = MaximumLikelihood(prior=prior).fit(log).change_rate_
    assert np.mean((model.change_rate_ - rate) ** 2) < np.mean((lasting - rate) ** 2)


def test_rates_that_last_have_no_or_rare_resets() -> None:
    log, _ = resetting_log(600, 700.0, 7.0, 0.0, 0.6, 20.0, seed=4)
    reset = present(MaximumLikelihood(prior=GammaPrior(0.6, 20.0), reset="auto").fit(log).reset_)
    assert reset < 1.0 / 3000.0


def test_intervals_cover_rates_that_reset() -> None:
    """Band set before the run: 0.9 within 0.05 over 600 sources."""
    log, rate = resetting_log(600, 350.0, 7.0, 1 / 60.0, 0.6, 20.0, seed=6)
    model = MaximumLikelihood(prior=GammaPrior(0.6, 20.0), reset=1 / 60.0).fit(log)
    lower, upper = model.interval(0.9)
    assert np.mean((lower <= rate) & (rate <= upper)) == pytest.approx(0.9, abs=0.05)


@matrix(scale=[1e-6, 1.0, 1e6], shape=[1e-3, 0.6, 1e6, 1e60])
def test_scales_of_time_do_not_matter(scale: float, shape: float) -> None:
    rng = np.random.default_rng(8)
    source, gap = np.repeat(np.arange(20), 30), rng.exponential(size=600)
    changed = rng.random(600) < 0.4
    columns = {"source": source, "elapsed": scale * gap, "changed": changed}
    prior = GammaPrior(shape, shape * scale * 3.0)
    model = MaximumLikelihood(prior=prior, reset="auto").fit(CrawlLog.from_columns(columns))
    rate = scale * model.change_rate_
    one = CrawlLog.from_columns({**columns, "elapsed": gap})
    same = MaximumLikelihood(prior=GammaPrior(shape, shape * 3.0), reset="auto").fit(one).change_rate_
    np.testing.assert_allclose(rate, same, rtol=1e-9)
    assert np.all(np.isfinite(rate) & (rate > 0.0))
    lower, upper = model.interval(0.95)
    assert np.all((lower <= model.change_rate_) & (model.change_rate_ <= upper))


@pytest.mark.exhaustive
def test_outcomes_held_for_impossible_begin_anew() -> None:
    """A thousand changes a day, and then none in a century, without resets."""
    columns = {"source": [0, 0], "elapsed": [10.0, 36500.0], "changed": [1, 0], "changes": [10_000, 0]}
    model = MaximumLikelihood(prior=GammaPrior(1.0, 1e-3), reset=0.0).fit(CrawlLog.from_columns(columns))
    assert 0.0 < model.change_rate_[0] < 1.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [3e3, 1e6])
def test_priors_that_hold_an_outcome_for_impossible_have_a_posterior(shape: float) -> None:
    """A rate near 1 a day, and a thousand days without a change."""
    prior, log = GammaPrior(shape, shape), CrawlLog(["a", "a"], [0.0, 1000.0], [0, 0])
    model = MaximumLikelihood(prior=prior, reset=0.0).fit(log)
    assert model.change_rate_[0] == pytest.approx(shape / (shape + 1000.0), rel=1e-4)


@pytest.mark.parametrize("changes", [1e4, 1e5, 1e7])
def test_a_source_may_be_ever_so_far_from_its_prior(changes: float) -> None:
    columns = {"source": [0], "elapsed": [1000.0], "changed": [1], "changes": [changes]}
    model = MaximumLikelihood(prior=GammaPrior(0.6, 20.0), reset=0.0).fit(CrawlLog.from_columns(columns))
    # Beyond e^-600 of the prior its exposure, 20 in 1020, no longer counts. The largest number of nodes
    # resolves 1e5 changes.
    assert changes / 1020.0 <= model.change_rate_[0] <= 1.005 * changes / 1000.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("days", [50.0, 150.0])
def test_shape_mean_and_resets_are_recovered(days: float) -> None:
    """Bands set before the run: the mean within 20 %, resets and shape within a factor of 2."""
    log, rate = resetting_log(250, 700.0, 7.0, 1.0 / days, 0.6, 20.0, seed=11)
    prior, averaged = resetting_prior(log), GammaPrior.from_log(log)
    assert averaged.shape > 1.8
    assert 0.3 < prior.shape < 1.2
    assert prior.shape / prior.exposure == pytest.approx(0.03, rel=0.2)
    model, before = (MaximumLikelihood(prior=each, reset="auto").fit(log) for each in (prior, averaged))
    assert 0.5 < present(model.reset_) * days < 2.0
    lasting = MaximumLikelihood(prior=averaged).fit(log).change_rate_
    rmse = [
        np.sqrt(np.mean((each - rate) ** 2)) for each in (model.change_rate_, before.change_rate_, lasting)
    ]
    assert rmse[0] < rmse[1] < rmse[2]
    assert default_prior(log, "auto") == prior


@pytest.mark.exhaustive
def test_a_given_rate_sets_the_windows() -> None:
    log, _ = resetting_log(250, 700.0, 7.0, 1.0 / 50.0, 0.6, 20.0, seed=12)
    assert 0.3 < resetting_prior(log, 0.02).shape < 1.2
    assert resetting_prior(log, 0.0) == GammaPrior.from_log(log)


def test_rates_that_last_have_the_usual_prior() -> None:
    log, _ = resetting_log(200, 350.0, 7.0, 0.0, 0.6, 20.0, seed=13)
    usual, own = GammaPrior.from_log(log), resetting_prior(log)
    assert own.shape == pytest.approx(usual.shape, rel=0.15)
    assert own.shape / own.exposure == pytest.approx(usual.shape / usual.exposure, rel=0.1)


def test_windows_keep_all_that_crawls_tell() -> None:
    log = CrawlLog(
        ["a"] * 4 + ["b"] * 2,
        [5.0, 6.0, 9.0, 16.0, 5.0, 25.0],
        [0, 1, 0, 1, 0, 1],
        changes=[np.nan, 3.0, 0.0, np.nan, np.nan, np.nan],
        last_modified=[np.nan, np.nan, np.nan, 14.0, np.nan, np.nan],
    )
    cut = in_windows(log, 5.0)
    assert len(cut.names) == 3
    assert cut.interval.tolist() == [1.0, 3.0, 2.0, 20.0]
    assert cut.changed.tolist() == [True, False, True, True]
    np.testing.assert_equal(cut.changes, [3.0, 0.0, 1.0, np.nan])
