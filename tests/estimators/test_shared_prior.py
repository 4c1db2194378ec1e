"""Draws of rates with the prior that they share: against quadrature, closed forms, and simulated worlds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import gamma

import freshopt as fo
from freshopt.estimators import (
    FullObservation,
    GammaPrior,
    HostPriors,
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentMatching,
    Naive,
)
from freshopt.estimators.rate_distribution import RateDistribution
from freshopt.estimators.shared_prior import CONCENTRATIONS, SCALES, RateDraws
from tests.ground_truth.crawl_logs import found_changes, log_after_baselines, log_at

Floats = npt.NDArray[np.float64]


def crawled(rate: Floats, gap: Floats, seed: int, **more: Any) -> fo.CrawlLog:  # noqa: ANN401
    """Return the log of Poisson sources, `gap` of shape (sources, crawls)."""
    changed = found_changes(np.random.default_rng([seed, 1]), rate[:, None], gap)
    return log_after_baselines(gap, changed, **more)


def logistic_density(t: Floats, scale: float) -> Floats:
    """Return what `scipy.stats.logistic.pdf` does, in a twentieth of its time."""
    return 0.25 / (scale * np.cosh(0.5 * t / scale) ** 2)


def base(t: Floats, location: float, left: float, right: float) -> Floats:
    """The density of a logistic law with a scale on either side."""
    share = 2.0 * left / (left + right)
    other = 2.0 - share
    return np.where(
        t < location,
        share * logistic_density(t - location, left),
        other * logistic_density(t - location, right),
    )


@pytest.mark.parametrize(("found", "missed"), [(3, 6), (0, 9), (9, 0), (40, 200)])
def test_one_source_has_the_posterior_of_the_averaged_prior(found: int, missed: int) -> None:
    """With one source the prior of its rate is the mean of all logistic laws, whatever the concentration."""
    changed = np.array([False] + [True] * found + [False] * missed)
    log = fo.CrawlLog([0] * len(changed), np.arange(float(len(changed))), changed)
    drawn = np.log(MaximumLikelihood().fit(log).draws(800, seed=1)[:, 0])
    t = np.linspace(np.log(0.01 / (found + missed)), np.log(300.0), 501)
    weight = 1.0 / np.cosh(0.5 * t)  # half-Cauchy of the root of rate times gap
    prior = np.zeros(len(t))
    for location, mass in zip(t[::5], weight[::5], strict=True):
        for left in SCALES:
            for right in SCALES:
                prior += mass * base(t, location, left, right)
    x = np.exp(t)
    told = found * np.log(-np.expm1(-x)) - missed * x
    below = np.cumsum(prior * np.exp(told - told.max()))
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        exact = np.interp(level * below[-1], below, t)
        assert abs(np.mean(drawn < exact) - level) < 0.08


@pytest.mark.parametrize("changes", [3.0, 100.0, 1e4, 1e7])
def test_what_is_known_well_is_drawn_from_the_likelihood(changes: float) -> None:
    """Counts: a Gamma, to be narrower than any cell; the prior's slope matters by less than half a change."""
    count, time = np.array([changes, 0.0, 5.0]), np.array([10.0, 2.0, 1.0])
    drawn = RateDraws.of(RateDistribution.of_counts(count, time), 400, 3).rates[:, 0]
    low, high = (gamma.ppf(level, changes, scale=0.1) for level in (0.05, 0.95))
    assert 0.84 < np.mean((low < drawn) & (drawn < high)) < 0.96
    assert np.std(drawn) == pytest.approx(np.sqrt(changes) / 10.0, rel=0.2 if changes > 50.0 else 0.4)


def births_log() -> fo.CrawlLog:
    rng = np.random.default_rng(8)
    rows: dict[str, list[Any]] = {"source": [], "time": [], "changed": [], "last_modified": []}
    for k in range(40):
        when = np.sort(np.append(-rng.exponential(5.0), rng.uniform(0.0, 60.0, rng.poisson(12.0))))
        for day in range(0, 60, 4):
            last = when[when <= day].max()
            rows["source"].append(k)
            rows["time"].append(float(day))
            rows["changed"].append(bool(day and last > day - 4))
            rows["last_modified"].append(last)
    return fo.CrawlLog.from_columns(rows)


def counted_log() -> fo.CrawlLog:
    counts = np.random.default_rng(9).poisson(2.0, (40, 20))
    counts[:, 0] = 0
    return log_at(np.arange(20.0), counts > 0, changes=counts.ravel())


GAPS = np.random.default_rng(7).exponential(1.0, (40, 30))
BINARY = crawled(np.full(40, 0.7), GAPS, 4)
FITTED: dict[str, Callable[[], Any]] = {
    "no prior": lambda: MaximumLikelihood().fit(BINARY),
    "smoothing": lambda: MaximumLikelihood(0.5).fit(BINARY),
    "prior": lambda: MaximumLikelihood(prior=GammaPrior.from_log(BINARY)).fit(BINARY),
    "hosts": lambda: MaximumLikelihood(prior=HostPriors.from_log(BINARY, np.arange(40) % 4)).fit(BINARY),
    "half-life": lambda: MaximumLikelihood(half_life=20.0).fit(BINARY),
    "resets": lambda: MaximumLikelihood(prior=GammaPrior(2.0, 3.0), reset=0.001).fit(BINARY),
    "moments": lambda: MomentMatching().fit(BINARY),
    "naive": lambda: Naive().fit(BINARY),
    "poisson crawls": lambda: LawOfLargeNumbers().fit(BINARY, 1.0),
    "counts": lambda: FullObservation().fit(counted_log()),
    "counts in a log": lambda: MaximumLikelihood().fit(counted_log()),
    "dates": lambda: MaximumLikelihood(prior=GammaPrior(1.0, 5.0, birth_rate=0.01)).fit(births_log()),
}


# Changes of all sources per day; `Naive` counts those that crawls find.
TRUE = dict.fromkeys(FITTED, 28.0) | {"counts": 80.0, "counts in a log": 80.0, "dates": 8.0, "naive": 16.5}


@pytest.mark.parametrize("kind", FITTED)
def test_logs_and_estimators_of_all_kinds_have_draws_about_their_estimates(kind: str) -> None:
    model = FITTED[kind]()
    drawn = model.draws(80, seed=2)
    assert drawn.shape == (80, 40)
    assert np.all(np.isfinite(drawn))
    assert np.all(drawn > 0.0)
    total = np.sum(drawn, axis=1)
    assert np.mean(total) == pytest.approx(float(np.sum(TRUE[kind])), rel=0.2)
    assert 0.005 < np.std(total) / np.mean(total) < 0.15
    np.testing.assert_array_equal(model.draws(80, seed=2), drawn)
    assert not np.array_equal(model.draws(80, seed=3), drawn)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_draws_scale_with_the_clock(scale: float, spread: float) -> None:
    rng = np.random.default_rng(5)
    gap = np.exp(spread * rng.standard_normal((20, 1))) * rng.uniform(0.7, 1.3, (20, 9))
    rate = rng.gamma(0.6, 0.5, 20)
    drawn = [
        MaximumLikelihood().fit(crawled(rate / each, gap * each, 6)).draws(30, seed=1) * each
        for each in (1.0, scale)
    ]
    np.testing.assert_allclose(np.median(drawn[1], axis=0), np.median(drawn[0], axis=0), rtol=0.7)
    low, high = (np.quantile(np.sum(each, axis=1), 0.5) for each in drawn)
    assert high == pytest.approx(low, rel=0.2)


def test_a_source_of_which_nothing_is_known_is_drawn_like_the_others() -> None:
    rng = np.random.default_rng(3)
    rate = np.exp(rng.normal(0.0, 0.3, 60))
    log = crawled(rate, np.full((60, 40), 0.7), 2)
    source = np.append(np.repeat(np.arange(60), 41), 60)
    with_one = fo.CrawlLog(source, np.append(log.time, 0.0), np.append(log.changed, False))
    drawn = np.log(MaximumLikelihood().fit(with_one).draws(300, seed=1)[:, 60])
    assert abs(np.median(drawn)) < 0.4
    assert 0.15 < np.std(drawn) < 1.2


def test_nothing_but_baselines_leave_the_prior_alone() -> None:
    log = fo.CrawlLog(["a", "b"], [0, 0], [0, 0])
    drawn = MaximumLikelihood(prior=GammaPrior(2.0, 5.0)).fit(log).draws(2000, seed=1)
    assert np.mean(drawn) == pytest.approx(0.4, rel=0.1)
    assert np.isnan(MaximumLikelihood(0.5).fit(log).draws(3, seed=1)).all()


@pytest.mark.exhaustive
def test_totals_rank_evenly_among_draws_where_the_prior_is_the_model() -> None:
    """Simulated from the hyperprior itself, the truth is as likely to be above as below any draw."""
    rng, ranks, n, gap = np.random.default_rng(12), [], 6, np.ones((6, 4))
    for seed in range(300):
        left, right = rng.choice(SCALES, 2)
        c = rng.choice(CONCENTRATIONS)
        location = np.log(np.tan(0.5 * np.pi * rng.random()) ** 2)
        t: list[float] = []
        for k in range(n):
            if t and rng.random() < k / (c + k):
                t.append(float(rng.choice(t)))
                continue
            side = -left if rng.random() < left / (left + right) else right
            t.append(location + side * abs(rng.logistic()))
        if not np.log(0.01 / 4.0) < min(t) <= max(t) < np.log(300.0):
            continue  # beyond the grid
        rate = np.exp(t)
        drawn = MaximumLikelihood().fit(crawled(rate, gap, seed)).draws(240, seed=seed)
        score = np.sum(np.log1p(drawn), axis=1)
        ranks.append(np.mean(score < np.sum(np.log1p(rate))))
    inside = np.mean((np.array(ranks) > 0.05) & (np.array(ranks) < 0.95))
    assert 0.85 < inside < 0.95
    assert abs(np.mean(ranks) - 0.5) < 3.5 * np.sqrt(1.0 / 12.0 / len(ranks))
