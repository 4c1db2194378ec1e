"""Marginal likelihoods and posteriors, with dated changes and births: against sums, integrals, bisections."""

import math

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import gammaln

from freshopt.estimators import GammaPrior, HostPriors, LikelihoodRatio, MaximumLikelihood
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import FirstDates, GammaParameters, Intervals
from freshopt.estimators.marginal_likelihood import MarginalLikelihood, explained, posterior_mode
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.crawl_logs import log_at
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import SCALAR

# Shape and mean of the rates per crawl interval: usual, spread over decades, nearly alike, fast and slow.
PRIORS = [(0.6, 2.0), (0.1, 12.0), (1e-3, 1e3), (20.0, 1.5), (0.6, 100.0), (3.0, 0.05)]


def equal_intervals(crawls: int, n: int, clock: float = 1.0, seed: int = 0) -> tuple[CrawlLog, list[int]]:
    """Crawls one clock tick apart, and how many sources had each number of changes found."""
    rng = np.random.default_rng([seed, crawls])
    rate = np.maximum(rng.gamma(0.6, 2.0 / 0.6, n), 1e-6)
    changed = np.zeros((n, crawls), dtype=np.bool_)
    changed[:, 1:] = rng.random((n, crawls - 1)) < -np.expm1(-rate)[:, None]
    log = log_at(np.arange(crawls) * clock, changed)
    return log, np.bincount(changed.sum(axis=1), minlength=crawls).tolist()


@pytest.mark.parametrize("crawls", [2, 3, 6])
@pytest.mark.parametrize("clock", [1.0, 1e-5, 1e5])
def test_crawls_at_equal_intervals_sum_to_the_binomial_series(crawls: int, clock: float) -> None:
    log, found = equal_intervals(crawls, 400, clock)
    marginal = MarginalLikelihood.of(CrawlLikelihood.of(log), 2.0 / clock, 0.6)
    assert marginal.grids is not None
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


Floats = npt.NDArray[np.float64]
# a, b, η, K, U (without A), A; on very different clocks.
CASES = [
    (0.6, 20.0, 0.01, 0, 14.0, 300.0),
    (0.6, 20.0, 0.001, 2, 14.0, 0.5),
    (0.05, 3.0, 2.0, 1, 1.0, 4.0),
    (30.0, 0.01, 5.0, 7, 0.02, 0.001),
    (0.6, 2e6, 1e-7, 0, 1.4e6, 3e7),
    (2.0, 1e-4, 0.0, 3, 2e-4, 1e-5),
]


def single(case: tuple[float, ...]) -> tuple[CrawlLikelihood, GammaParameters]:
    a, b, births, changes, time, age = case
    one = CrawlLikelihood(
        Intervals(np.empty(0), np.zeros(2, dtype=np.int64)),
        np.array([float(changes)]),
        np.array([time]),
        dates=FirstDates(np.ones(1), np.array([age])),
    )
    return one, GammaParameters(np.array([a]), np.array([b]), np.array([births]))


def integral(case: tuple[float, ...], power: int = 0, until: float = math.inf) -> mpmath.mpf:
    """∫ Δ^power × prior × likelihood up to a rate, by quadrature in ln Δ with 30 digits."""
    mpmath.mp.dps = 30
    a, b, births, changes, time, age = map(mpmath.mpf, case)

    def density(t: mpmath.mpf) -> mpmath.mpf:
        rate = mpmath.exp(t)
        prior = b**a * rate**a * mpmath.exp(-b * rate) / mpmath.gamma(a)  # of t
        dated = (rate + births) * mpmath.exp(-(rate + births) * age)
        return rate**power * prior * rate**changes * mpmath.exp(-time * rate) * dated

    middle = mpmath.log((a + changes + 1) / (b + time + age))
    top = middle + 6 if until == math.inf else mpmath.log(until)
    return (
        mpmath.quad(
            density,
            [
                *mpmath.linspace(middle - 120 / min(a, 1), middle - 8, 40),
                *mpmath.linspace(middle - 8, top, 12)[1:],
            ],
        )
        if top > middle - 8
        else mpmath.quad(density, [-mpmath.inf, top])
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
def test_posteriors_with_births_are_the_brute_force_integrals(case: tuple[float, ...]) -> None:
    observed, prior = single(case)
    a, b, births, changes, time, age = case
    whole = integral(case)
    assert MarginalLikelihood.smoothly(observed).at(a, b, births) == pytest.approx(
        float(mpmath.log(whole)), rel=1e-10
    )
    mean = float(integral(case, 1) / whole)
    assert posterior_mode(observed, prior)[0] == pytest.approx(mean, rel=1e-10)
    # The density of ln Δ that quantiles come from, normalised by the evidence.
    posterior = observed.under(prior)
    for rate in mean * np.array([0.01, 0.3, 1.0, 4.0]):
        expected = (
            mpmath.mpf(b) ** a * mpmath.mpf(rate) ** (a + changes) * mpmath.exp(-(b + time + age) * rate)
        )
        expected *= (rate + births) * mpmath.exp(-births * age) / mpmath.gamma(a)
        constant = a * math.log(b) - math.lgamma(a) - births * age
        density = posterior.density(np.log([rate]))[0][0]
        found = math.exp(density + constant - MarginalLikelihood.smoothly(observed).at(a, b, births))
        assert found == pytest.approx(float(expected / whole), rel=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_first_dates_are_changes_with_the_published_odds(case: tuple[float, ...]) -> None:
    a, b, births, changes, time, age = case
    observed, prior = single(case)
    change, birth = explained(observed, prior)
    odds = math.exp(change.evidence[0] - birth.evidence[0])
    assert odds == pytest.approx((a + changes) / (b + time + age), rel=1e-10)
    if births:
        assert (
            MarginalLikelihood.smoothly(observed).best(a, b)[0]
            >= MarginalLikelihood.smoothly(observed).at(a, b, births) - 1e-9
        )


def random_log(seed: int, n: int = 60, crawls: int = 4, births: float = 0.01) -> CrawlLog:
    """Dated and undated crawls of sources with and without a first date."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(0.8, 0.1, n)
    gaps = rng.exponential(5.0, (n, crawls))
    time = np.concatenate([np.zeros((n, 1)), np.cumsum(gaps, axis=1)], axis=1)
    told = np.full(time.shape, np.nan)
    told[:, 0] = -rng.exponential(1.0, n) / (rate + births)
    changed = np.zeros(time.shape, dtype=np.bool_)
    for j in range(1, crawls + 1):
        back = rng.exponential(1.0, n) / rate
        changed[:, j] = back < gaps[:, j - 1]
        told[changed[:, j], j] = (time[:, j] - back)[changed[:, j]]
    told[rng.random(time.shape) < 0.4] = np.nan
    source = np.repeat(np.arange(n), crawls + 1)
    return CrawlLog(source, time.ravel(), changed.ravel(), last_modified=told.ravel())


def log_posterior(log: CrawlLog, k: int, prior: GammaPrior, rate: float) -> float:
    """The log density of ln Δ of source k, row by row as the model has it."""
    assert log.last_modified is not None
    value = prior.shape * math.log(rate) - prior.exposure * rate
    for row in range(int(log.offsets[k]), int(log.offsets[k + 1])):
        gap, date = log.interval[row], log.last_modified[row]
        since = log.time[row] - date
        if math.isnan(gap):
            if not math.isnan(date):
                value += math.log(rate + prior.birth_rate) - (rate + prior.birth_rate) * since
        elif not log.changed[row]:
            value -= gap * rate
        else:
            value += math.log(-math.expm1(-gap * rate)) if math.isnan(date) else math.log(rate) - rate * since
    return value


@pytest.mark.parametrize(
    "births",
    [0.0, pytest.param(0.004, marks=pytest.mark.exhaustive), pytest.param(1.0, marks=pytest.mark.exhaustive)],
)
@pytest.mark.exhaustive
def test_intervals_and_quantiles_are_those_of_the_row_by_row_posterior(births: float) -> None:
    log, prior = random_log(5), GammaPrior(0.7, 9.0, "day", births)
    model = MaximumLikelihood(prior=prior).fit(log)
    lower, upper = model.interval(0.8)
    near, far = model.interval(0.8, LikelihoodRatio())
    drop = 0.5 * 1.6423744151498171  # the χ²₁ quantile of 0.8
    t = np.linspace(-40.0, 4.0, 44_001)
    for k in range(0, 60, 3):
        g = np.array([log_posterior(log, k, prior, math.exp(x)) for x in t])
        mass = np.cumsum(np.exp(g - g.max()))
        mass /= mass[-1]
        for level, end in ((0.1, lower[k]), (0.9, upper[k])):
            assert np.interp(math.log(end), t, mass) == pytest.approx(level, abs=1e-3)
        best = float(g.max())
        inside = t[g >= best - drop]
        at = math.exp(t[int(g.argmax())])
        assert math.log(min(near[k], at)) == pytest.approx(inside[0], abs=3e-3)
        assert math.log(max(far[k], at)) == pytest.approx(inside[-1], abs=3e-3)


@pytest.mark.exhaustive
def test_estimates_do_not_depend_on_the_clock() -> None:
    log, prior = random_log(6), GammaPrior(0.7, 9.0, "day", 0.01)
    assert log.last_modified is not None
    hours = CrawlLog(
        log.source_index, 24 * log.time, log.changed, time_unit="hour", last_modified=24 * log.last_modified
    )
    one, two = (MaximumLikelihood(prior=prior).fit(each) for each in (log, hours))
    np.testing.assert_allclose(24 * two.change_rate_, one.change_rate_, rtol=SCALAR)
    learnt, other = GammaPrior.from_log(log), GammaPrior.from_log(hours)
    assert other.birth_rate * 24 == pytest.approx(learnt.birth_rate, rel=1e-3)
    assert other.shape == pytest.approx(learnt.shape, rel=1e-3)


def test_with_dates_on_every_row_and_a_known_start_the_rate_is_changes_over_time() -> None:
    rng = np.random.default_rng(7)
    time = np.cumsum(rng.exponential(3.0, 9))
    gaps = np.diff(time, prepend=0.0)
    told = time - rng.random(9) * gaps
    log = CrawlLog(["a"] * 9, time, np.ones(9), start=0.0, last_modified=told)
    model = MaximumLikelihood(smoothing=0).fit(log)
    assert model.change_rate_[0] == pytest.approx(9.0 / np.sum(time - told), rel=1e-13)
    assert model.flag_.tolist() == ["ok"]
    undated = MaximumLikelihood(smoothing=0).fit(CrawlLog(["a"] * 9, time, np.ones(9), start=0.0))
    assert undated.flag_.tolist() == ["always changed"]


def simulated(births: float, seed: int, n: int = 3000) -> tuple[Floats, CrawlLog]:
    """Gamma(0.6, 20) rates, two crawls after the first."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(0.6, 1 / 20.0, n)
    time = np.concatenate([np.zeros((n, 1)), np.cumsum(rng.exponential(7.0, (n, 2)), axis=1)], axis=1)
    told, changed = np.zeros((n, 3)), np.zeros((n, 3), dtype=np.bool_)
    told[:, 0] = -rng.exponential(1.0, n) / (rate + births)
    for j in (1, 2):
        back = rng.exponential(1.0, n) / rate
        changed[:, j] = back < time[:, j] - time[:, j - 1]
        told[:, j] = np.where(changed[:, j], time[:, j] - back, told[:, j - 1])
    return rate, CrawlLog(
        np.repeat(np.arange(n), 3), time.ravel(), changed.ravel(), last_modified=told.ravel()
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("births", [0.0, 0.001, 0.01])
def test_births_are_learnt_and_rates_add_up(births: float) -> None:
    rate, log = simulated(births, 11)
    prior = GammaPrior.from_log(log)
    assert prior.birth_rate == pytest.approx(births, rel=0.1, abs=1e-5)
    assert prior.shape == pytest.approx(0.6, rel=0.15)
    found = MaximumLikelihood(prior=prior).fit(log).change_rate_
    assert 0.95 < found.sum() / rate.sum() < 1.05
    plain = CrawlLog(log.source_index, log.time, log.changed)
    without = MaximumLikelihood(prior=GammaPrior.from_log(plain)).fit(plain).change_rate_
    assert np.mean(np.log(found / rate) ** 2) < 0.85 * np.mean(np.log(without / rate) ** 2)


def test_intervals_with_births_cover() -> None:
    rate, log = simulated(0.005, 12)
    lower, upper = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log).interval(0.8)
    assert np.mean((lower <= rate) & (rate <= upper)) == pytest.approx(0.8, abs=0.03)  # 4 standard errors


def test_host_priors_learn_from_first_dates() -> None:
    rate, log = simulated(0.005, 13, 300)
    host = np.where(rate > 0.02, "fast", "slow")
    priors = HostPriors.from_log(log, host)
    assert priors.birth_rate > 0.0
    found = MaximumLikelihood(prior=priors).fit(log).change_rate_
    plain = CrawlLog(log.source_index, log.time, log.changed)
    without = MaximumLikelihood(prior=HostPriors.from_log(plain, host)).fit(plain).change_rate_
    assert np.mean(np.log(found / rate) ** 2) < np.mean(np.log(without / rate) ** 2)


def test_few_changes_do_not_end_in_equal_rates() -> None:
    _, log = simulated(0.01, 14, 600)
    quiet = CrawlLog(
        log.source_index[~log.changed],
        log.time[~log.changed],
        log.changed[~log.changed] * 0,
        last_modified=None if log.last_modified is None else log.last_modified[~log.changed],
    )
    refused("no source changed", GammaPrior.from_log, quiet)
    changed = quiet.changed.copy()
    changed[np.flatnonzero(~np.isnan(quiet.interval))[::200]] = True
    some = CrawlLog(quiet.source_index, quiet.time, changed, last_modified=quiet.last_modified)
    assert GammaPrior.from_log(some).shape < 5.0
