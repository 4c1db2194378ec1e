"""Estimators at a known crawl rate: exact moments, the papers' recursions, consistency, Poisson crawls."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from freshopt.errors import SourceDataError
from freshopt.estimators import (
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentMatching,
    MomentumStochasticApproximation,
    Naive,
    StochasticApproximation,
)
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics import affine_recursion
from freshopt.numerics.arrays import chunks
from tests.ground_truth import estimator_truth as truth
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps
from tests.ground_truth.tolerances import EXACT

Online = Naive | LawOfLargeNumbers | StochasticApproximation | MomentumStochasticApproximation
SETTINGS = [(1.3, 0.75, 1.0), (0.8, 0.5, 1.0), (1.2, 0.6, 0.4), (1.0, 1.0, 1.7)]  # step, beta, omega


CASES: list[tuple[Online, Callable[[int, float, float], truth.Moments]]] = [
    (Naive(floor=0), lambda k, d, p: truth.law_moments(k, d, p, lambda s: p * s / k)),
    (
        LawOfLargeNumbers(alpha=1.0, floor=0),
        lambda k, d, p: truth.law_moments(k, d, p, lambda s: p * s / (k + 1 - s)),
    ),
    (
        LawOfLargeNumbers(floor=0),
        lambda k, d, p: truth.law_moments(k, d, p, lambda s: p * s / (k + math.log(k + 1) - s)),
    ),
    (
        StochasticApproximation(step=0.75, floor=0),
        lambda k, d, p: truth.heavy_ball_moments(k, d, p, 0.75),
    ),
    *(
        (
            MomentumStochasticApproximation(*setting, floor=0),
            lambda k, d, p, setting=setting: truth.heavy_ball_moments(k, d, p, *setting),
        )
        for setting in SETTINGS
    ),
]


@pytest.mark.parametrize(("model", "moments"), CASES, ids=[repr(model) for model, _ in CASES])
@pytest.mark.parametrize("crawls", [1, 2, 3, 8])
def test_moments_are_exact(
    model: Online, moments: Callable[[int, float, float], truth.Moments], crawls: int
) -> None:
    """Every possible outcome of a few crawls is one source; their probabilities are known."""
    outcomes = truth.all_outcomes(crawls)
    for change_rate, crawl_rate in ((5.0, 3.0), (0.2, 1.0), (500.0, 3.0)):
        weights = np.array([truth.probability(outcome, change_rate, crawl_rate) for outcome in outcomes])
        assert math.fsum(weights) == pytest.approx(1.0, rel=EXACT)
        rates = model.fit(
            log_of_gaps([np.ones(len(each)) for each in outcomes], outcomes), crawl_rate=crawl_rate
        ).change_rate_
        first, second = moments(crawls, change_rate, crawl_rate)
        assert float(weights @ rates) == pytest.approx(first, rel=EXACT)
        assert float(weights @ rates**2) == pytest.approx(second, rel=EXACT)


def test_moments_have_the_published_closed_forms() -> None:
    outcomes = truth.all_outcomes(6)
    weights = np.array([truth.probability(outcome, 5.0, 3.0) for outcome in outcomes])
    log = log_of_gaps([np.ones(len(each)) for each in outcomes], outcomes)
    naive = weights @ Naive(floor=0).fit(log, crawl_rate=3.0).change_rate_
    assert naive == pytest.approx(15 / 8, rel=EXACT)
    law = weights @ LawOfLargeNumbers(alpha=1, floor=0).fit(log, crawl_rate=3.0).change_rate_
    assert law == pytest.approx(5 * (1 - (5 / 8) ** 6), rel=EXACT)


PUBLISHED = [  # Δ, p, (step, beta), mean and root mean square error after 1000 crawls
    (5.0, 3.0, (0.75, None), 4.997, 0.374),
    (5.0, 3.0, (1.3, 0.75), 4.999, 0.379),
    (500.0, 3.0, (0.8, None), 44.1, 455.9),
    (500.0, 3.0, (0.8, 0.5), 154.4, 345.8),
    (500.0, 50.0, (0.8, None), 378.7, 124.6),
    (500.0, 50.0, (0.8, 0.5), 498.5, 69.7),
]


@pytest.mark.parametrize(("change_rate", "crawl_rate", "exponents", "mean", "error"), PUBLISHED)
def test_the_recursions_are_those_whose_errors_are_known(
    change_rate: float, crawl_rate: float, exponents: tuple[float, float | None], mean: float, error: float
) -> None:
    first, second = truth.heavy_ball_moments(1000, change_rate, crawl_rate, *exponents)
    assert first == pytest.approx(mean, rel=1e-3)
    square = second - 2 * change_rate * first + change_rate**2
    assert math.sqrt(square) == pytest.approx(error, rel=2e-3)


def test_beyond_the_published_exponents_errors_fall_while_friction_adds_up() -> None:
    def error(crawls: int, step: float) -> float:
        first, second = truth.heavy_ball_moments(crawls, 5.0, 3.0, step, 0.5)
        return math.sqrt(second - 10.0 * first + 25.0)

    assert error(3000, 1.3) < 0.8 * error(300, 1.3)
    assert error(3000, 1.8) > 1.2 * error(300, 1.8)
    with pytest.raises(SourceDataError, match=r"beta <= step <= 2\*beta"):
        MomentumStochasticApproximation(step=1.3, beta=0.5)


def ragged(rng: np.random.Generator, n: int = 60) -> tuple[list[Any], list[Any]]:
    """Outcomes and crawl rates of sources with 1 to some hundred crawls."""
    lengths = np.exp(rng.uniform(0, 6, n)).astype(int)
    lengths[:2] = 1, 700
    return (
        [(rng.random(k) < rng.uniform(0, 1)).astype(int) for k in lengths],
        [np.exp(rng.normal(0, 1, k)) for k in lengths],
    )


@pytest.mark.parametrize("size", [65_536, 37])
def test_ragged_logs_with_a_rate_per_crawl_follow_the_recursions(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affine_recursion, "chunks", lambda n: chunks(n, size))
    outcomes, rates = ragged(np.random.default_rng(3))
    log, per_crawl = log_of_gaps([np.ones(len(each)) for each in outcomes], outcomes), np.concatenate(rates)
    pairs = list(zip(outcomes, rates, strict=True))
    law = LawOfLargeNumbers(alpha=lambda k: math.sqrt(k), floor=0).fit(log, per_crawl).change_rate_
    expected = [truth.law_of_large_numbers(i, p, math.sqrt) for i, p in pairs]
    np.testing.assert_allclose(law, expected, rtol=EXACT)
    plain = StochasticApproximation(0.6, floor=0).fit(log, per_crawl).change_rate_
    np.testing.assert_allclose(plain, [truth.heavy_ball(i, p, 0.6) for i, p in pairs], rtol=EXACT)
    for setting in SETTINGS:
        heavy = MomentumStochasticApproximation(*setting, floor=0).fit(log, per_crawl).change_rate_
        exact = np.array([truth.heavy_ball(i, p, *setting) for i, p in pairs])
        scale = np.abs(exact) + [p.mean() for p in rates]  # it swings through 0, where digits mean nothing
        assert np.max(np.abs(heavy - exact) / scale) < EXACT


def test_worked_by_hand() -> None:
    log = log_of_gaps([[0.5, 1.0, 1.5, 2.0]], [[1, 0, 1, 1]])
    p = [1.0, 2.0, 3.0, 4.0]
    np.testing.assert_allclose(Naive().fit(log).change_rate_, 3 / 5, rtol=EXACT)
    np.testing.assert_allclose(Naive().fit(log, 2.0).change_rate_, 3 / (4 / 2), rtol=EXACT)
    # (1 + 3 + 4)/(4 + 1 − 3)
    np.testing.assert_allclose(LawOfLargeNumbers(1.0).fit(log, p).change_rate_, 4.0, rtol=EXACT)
    # η = 1, 1/2, 1/3, 1/4: 1, 1/2, 1/2 + 3/3, 3/2 + 4/4
    np.testing.assert_allclose(StochasticApproximation(1.0).fit(log, p).change_rate_, 2.5, rtol=EXACT)
    # η = 1, 1/4, 1/9, 1/16 and β = 1, 1/2, 1/3, 1/4, so ζ = 0, 1/4, 4/9, 9/16: z = 1,
    # 1 − 1/4 + 1/4 = 1, 1 + 3/9 + 0 = 4/3, 4/3 + 4/16 + 9/16·1/3 = 85/48
    heavy = MomentumStochasticApproximation(2.0, 1.0, 1.0).fit(log, p)
    np.testing.assert_allclose(heavy.change_rate_, 85 / 48, rtol=EXACT)


def test_without_momentum_it_is_stochastic_approximation() -> None:
    outcomes, rates = ragged(np.random.default_rng(4))
    log, p = log_of_gaps([np.ones(len(each)) for each in outcomes], outcomes), np.concatenate(rates)
    heavy = MomentumStochasticApproximation(step=0.8, beta=0.8, omega=1.0).fit(log, p)
    plain = StochasticApproximation(step=0.8).fit(log, p)
    np.testing.assert_allclose(heavy.change_rate_, plain.change_rate_, rtol=EXACT)


CHANGE_RATE, CRAWL_RATE, CRAWLS, SOURCES = 5.0, 3.0, 2000, 30


@pytest.mark.parametrize("kind", ["exponential", "fixed", "uniform", "gamma"])
def test_who_stays_consistent_for_which_gaps(kind: str) -> None:
    rng = np.random.default_rng(21)
    gaps = truth.gaps_of(kind, rng, (SOURCES, CRAWLS)) / CRAWL_RATE
    log = log_of_gaps(gaps, found_changes(rng, CHANGE_RATE, gaps))
    unchanged = truth.unchanged_share(kind, CHANGE_RATE / CRAWL_RATE)
    seeming = CRAWL_RATE * (1 - unchanged) / unchanged  # what the share of changes is taken for

    def distance(model: Any, target: float) -> float:  # noqa: ANN401 - any estimator
        rates = model.change_rate_
        return float(abs(rates.mean() - target) / (rates.std(ddof=1) / math.sqrt(SOURCES)))

    for consistent in (MaximumLikelihood(smoothing=0).fit(log), MomentMatching().fit(log)):
        assert distance(consistent, CHANGE_RATE) < 4
    naive = Naive().fit(log)
    assert distance(naive, CRAWL_RATE * (1 - unchanged)) < 4
    assert distance(naive, CHANGE_RATE) > 50
    law = LawOfLargeNumbers(alpha=1.0).fit(log, CRAWL_RATE)
    assert distance(law, seeming) < 4
    others: list[Any] = [
        law,
        StochasticApproximation(0.75).fit(log, CRAWL_RATE),
        MomentumStochasticApproximation().fit(log, CRAWL_RATE),
    ]
    for model in others:
        if kind == "exponential":
            assert distance(model, CHANGE_RATE) < 4
        else:
            assert distance(model, CHANGE_RATE) > 20
            assert abs(model.change_rate_.mean() - seeming) < 0.05 * seeming


MODELS: list[Any] = [
    LawOfLargeNumbers(),
    LawOfLargeNumbers(half_life=300.0),
    StochasticApproximation(),
    MomentumStochasticApproximation(),
]


def crawl(kind: str, sources: int, crawls: int, rates: Any, seed: int = 1) -> tuple[CrawlLog, Any]:  # noqa: ANN401
    rng = np.random.default_rng([seed, sources, crawls])
    gaps = truth.gaps_of(kind, rng, (sources, crawls)) / rates[:, None]
    return log_of_gaps(gaps, rng.random(gaps.shape) < 0.5, time=np.cumsum(gaps, axis=1)), rates


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize(
    ("kind", "words"), [("fixed", "regular"), ("uniform", "regular"), ("gamma", "irreg")]
)
@pytest.mark.parametrize(("sources", "crawls"), [(1, 400), (40, 20), (400, 5)])
def test_other_crawls_are_refused_in_one_line(
    model: Any,  # noqa: ANN401
    kind: str,
    words: str,
    sources: int,
    crawls: int,
) -> None:
    log, rates = crawl(kind, sources, crawls, np.geomspace(0.5, 2.0, sources))
    model.fit(log, rates)
    for ask in (model.interval, lambda: model.draws(2, 0)):
        with pytest.raises(SourceDataError, match=rf"more {words}.*Use MaximumLikelihood") as refused:
            ask()
        assert "\n" not in str(refused.value)
    lower, upper = MaximumLikelihood().fit(log).interval()
    assert np.all(lower < upper)


@pytest.mark.parametrize(("sources", "crawls"), [(1, 1), (1, 3), (7, 2), (3, 40), (200, 5)])
def test_poisson_crawls_are_served(sources: int, crawls: int) -> None:
    for seed in range(60):
        log, rates = crawl("exponential", sources, crawls, np.geomspace(1e-2, 1e4, sources), seed)
        LawOfLargeNumbers().fit(log, rates).interval()


def test_batches_are_judged_together() -> None:
    log, rates = crawl("fixed", 1, 200, np.ones(1))
    model = LawOfLargeNumbers()
    for part in np.array_split(np.arange(200), 5):
        columns = {
            "source": log.source_index,
            "time": log.time,
            "elapsed": log.interval,
            "changed": log.changed,
        }
        model.partial_fit(CrawlLog.from_columns({key: value[part] for key, value in columns.items()}), rates)
    with pytest.raises(SourceDataError, match="more regular"):
        model.interval()
