"""Maximum likelihood: against its equation solved source by source, on simulated crawls, at its edges."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from scipy.stats import binom, chi2

from freshopt.estimators import (
    LikelihoodRatio,
    MaximumLikelihood,
    Posterior,
    crawl_likelihood,
    rate_distribution,
)
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.crawl_logs import log_at, log_of_gaps
from tests.ground_truth.tolerances import EXACT, SCALAR

Rows = list[tuple[float, bool, float]]  # gap, changed, number of changes or NaN


def log_of(sources: list[Rows], time_unit: str = "day") -> CrawlLog:
    rows = [(k, *row) for k, source in enumerate(sources) for row in source]
    source, gap, changed, changes = zip(*rows, strict=True)
    columns = {"source": source, "elapsed": gap, "changed": changed, "changes": changes}
    return CrawlLog.from_columns(columns, time_unit=time_unit)


def score(rate: float, rows: Rows) -> float:
    """The derivative of the log-likelihood, as the paper prints it."""
    total = 0.0
    for gap, changed, changes in rows:
        if not math.isnan(changes):
            total += changes / rate - gap
        elif changed:
            total += gap / math.expm1(gap * rate) if gap * rate < 700 else 0.0
        else:
            total -= gap
    return total


def log_likelihood(rate: float, rows: Rows) -> float:
    total = 0.0
    for gap, changed, changes in rows:
        if not math.isnan(changes):
            total += changes * math.log(rate) - gap * rate
        else:
            total += math.log(-math.expm1(-gap * rate)) if changed else -gap * rate
    return total


def best_rate(rows: Rows) -> float:
    return math.exp(brentq(lambda t: score(math.exp(t), rows), -60, 60, xtol=1e-15, rtol=1e-14))


def random_rows(rng: np.random.Generator) -> Rows:
    size, scale, spread = rng.integers(1, 30), 10.0 ** rng.integers(-6, 6), rng.choice([0.0, 0.5, 3.0])
    share = rng.choice([0.05, 0.5, 0.95])
    rows: Rows = []
    for gap in scale * np.exp(spread * rng.standard_normal(size)):
        changed, counted = bool(rng.random() < share), rng.random() < 0.2
        rows.append((float(gap), changed, float(changed * rng.integers(1, 6)) if counted else math.nan))
    return rows


SMOOTHING: Rows = [(0.5, True, math.nan), (0.5, False, math.nan)]


def test_rates_solve_the_equation_of_each_source() -> None:
    rng = np.random.default_rng(11)
    sources = [random_rows(rng) for _ in range(300)]
    model = MaximumLikelihood(smoothing=0.5).fit(log_of(sources))
    expected = [best_rate([*rows, *SMOOTHING]) for rows in sources]
    np.testing.assert_allclose(model.change_rate_, expected, rtol=SCALAR)


def test_interval_ends_are_where_the_likelihood_has_fallen() -> None:
    rng = np.random.default_rng(12)
    sources = [random_rows(rng) for _ in range(300)]
    for confidence in (0.5, 0.95, 0.9999):
        model = MaximumLikelihood(smoothing=0.5).fit(log_of(sources))
        lower, upper = model.interval(confidence, LikelihoodRatio())
        for k, rows in enumerate(sources):
            smoothed = [*rows, *SMOOTHING]
            best = log_likelihood(model.change_rate_[k], smoothed)
            assert 0 < lower[k] < model.change_rate_[k] < upper[k] < math.inf
            for end in (lower[k], upper[k]):
                fallen = 2 * (best - log_likelihood(end, smoothed))
                assert fallen == pytest.approx(chi2.ppf(confidence, 1), rel=SCALAR, abs=1e-11 * abs(best))


@pytest.mark.parametrize("decade", range(-12, 3))
def test_equal_gaps_have_a_closed_form(decade: int) -> None:
    x = min(10.0**decade, 99.0)  # aΔ; found/missed = e^x − 1
    rows: Rows = [(2.0, True, math.nan)] * 3 + [(6.0 / math.expm1(x), False, math.nan)]
    rate = MaximumLikelihood(smoothing=0).fit(log_of([rows])).change_rate_
    np.testing.assert_allclose(rate, x / 2.0, rtol=EXACT)


CELL = st.tuples(
    st.floats(-12, 12), st.sampled_from([0.0, 1.0, math.nan])
)  # log10 of the gap; nan: uncounted


@given(st.lists(CELL, min_size=1, max_size=12))
def test_score_changes_sign_at_the_rate(cells: list[tuple[float, float]]) -> None:
    rows: Rows = [(10.0**decade, kind != 0, kind) for decade, kind in cells]
    model = MaximumLikelihood(smoothing=0.5).fit(log_of([rows]))
    (rate,), (lower,), (upper,) = model.change_rate_, *model.interval(method=LikelihoodRatio())
    assert score(rate * (1 - 1e-9), [*rows, *SMOOTHING]) > 0 > score(rate * (1 + 1e-9), [*rows, *SMOOTHING])
    assert 0 <= lower < rate < upper < math.inf


def test_counted_changes_give_the_poisson_rate() -> None:
    rows: Rows = [(2.0, True, 3.0), (1.0, False, 0.0), (3.0, True, 2.0)]
    model = MaximumLikelihood(smoothing=0).fit(log_of([rows]))
    np.testing.assert_allclose(model.change_rate_, 5 / 6, rtol=EXACT)
    assert model.flag_.tolist() == ["ok"]
    always: Rows = [(2.0, True, 3.0)]  # changed in every gap, but how often is known
    np.testing.assert_allclose(MaximumLikelihood(0).fit(log_of([always])).change_rate_, 1.5, rtol=EXACT)


EDGES = CrawlLog(
    source=["always", "always", "baseline", "never", "never"], time=[0, 2, 0, 0, 4], changed=[0, 1, 1, 0, 0]
)


def test_without_smoothing_the_edges_are_flagged() -> None:
    model = MaximumLikelihood(smoothing=0).fit(EDGES)
    np.testing.assert_array_equal(model.change_rate_, [np.inf, np.nan, 0.0])
    assert model.flag_.tolist() == ["always changed", "baseline only", "never changed"]
    lower, upper = model.interval(0.95, LikelihoodRatio())
    drop = chi2.ppf(0.95, 1) / 2
    np.testing.assert_allclose(lower, [-math.log1p(-math.exp(-drop)) / 2, 0.0, 0.0], rtol=SCALAR)
    np.testing.assert_allclose(upper, [np.inf, np.inf, drop / 4], rtol=SCALAR)


def test_with_smoothing_the_edges_are_finite_and_still_flagged() -> None:
    model = MaximumLikelihood(smoothing=0.5).fit(EDGES)
    assert model.flag_.tolist() == ["always changed", "baseline only", "never changed"]
    np.testing.assert_allclose(model.change_rate_[1], math.log(2) / 0.5, rtol=EXACT)
    np.testing.assert_allclose(model.change_rate_[2], math.log1p(0.5 / 4.5) / 0.5, rtol=EXACT)
    assert np.isfinite(model.interval(method=LikelihoodRatio())).all()


def test_smoothing_is_in_days_whatever_the_unit() -> None:
    rng = np.random.default_rng(5)
    rows = [(float(gap), bool(rng.random() < 0.5), math.nan) for gap in rng.exponential(1.0, 20)]
    hours: Rows = [(24 * gap, changed, changes) for gap, changed, changes in rows]
    days, other = (
        MaximumLikelihood(smoothing=0.5).fit(log_of([rows])),
        MaximumLikelihood(smoothing=0.5).fit(log_of([hours], "hour")),
    )
    np.testing.assert_allclose(other.change_rate_ * 24, days.change_rate_, rtol=EXACT)
    assert other.time_unit_ == "hour"


def simulate(rng: np.random.Generator, rates: np.ndarray[Any, Any], crawls: int) -> CrawlLog:
    gaps = rng.exponential(1.0, (len(rates), crawls))
    return log_of_gaps(gaps, rng.poisson(gaps * rates[:, None]) > 0)


@pytest.mark.exhaustive
def test_rates_of_simulated_poisson_changes_are_recovered() -> None:
    rng = np.random.default_rng(2)
    rates = np.exp(rng.normal(-0.5, 1.0, 200))
    model = MaximumLikelihood(smoothing=0).fit(simulate(rng, rates, 4000))
    x = np.linspace(1e-6, 60, 200_001)[:, None]  # Fisher information per crawl, gaps being exponential
    for rate, estimate in zip(rates[:20], model.change_rate_[:20], strict=True):
        information = trapezoid(np.exp(-x) * x**2 / np.expm1(rate * x), x, axis=0)[0]
        assert abs(estimate - rate) < 4.5 / math.sqrt(4000 * information)
    assert abs(np.mean(model.change_rate_ / rates) - 1) < 0.01


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(8)
    rates = np.exp(rng.uniform(-1.0, 1.0, 3000))
    model = MaximumLikelihood(smoothing=0).fit(simulate(rng, rates, 60))
    for confidence in (0.8, 0.95):
        lower, upper = model.interval(confidence)
        covered = np.count_nonzero((lower <= rates) & (rates <= upper))
        low, high = binom.interval(0.999, 3000, confidence)
        assert low <= covered <= high


def test_random_row_order_gives_identical_rates() -> None:
    rng = np.random.default_rng(4)
    source, time = rng.integers(0, 50, 3000), rng.permutation(3000) / 7
    changed = rng.random(3000) < 0.4
    order = rng.permutation(3000)
    one = MaximumLikelihood().fit(CrawlLog(source, time, changed))
    other = MaximumLikelihood().fit(CrawlLog(source[order], time[order], changed[order]))
    np.testing.assert_array_equal(one.change_rate_, other.change_rate_)
    np.testing.assert_array_equal(one.interval(), other.interval())


@pytest.mark.exhaustive
def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    log = log_of([random_rows(rng) for _ in range(80)] + [[(1.0, False, math.nan)]])
    whole, smooth = MaximumLikelihood().fit(log), MaximumLikelihood(0.5).fit(log)
    monkeypatch.setattr(crawl_likelihood, "BLOCK", 7)
    monkeypatch.setattr(rate_distribution, "BLOCK", 7)
    parts = MaximumLikelihood().fit(log)
    np.testing.assert_allclose(MaximumLikelihood(0.5).fit(log).change_rate_, smooth.change_rate_, rtol=EXACT)
    np.testing.assert_allclose(parts.change_rate_, whole.change_rate_, rtol=SCALAR)
    for method in (LikelihoodRatio(), Posterior()):
        np.testing.assert_allclose(parts.interval(0.9, method), whole.interval(0.9, method), rtol=SCALAR)


def test_crawls_that_hardly_count_have_intervals_too() -> None:
    rng = np.random.default_rng(3)
    log = log_at(np.arange(1.0, 201.0), rng.random((20, 200)) < 0.4)
    lower, upper = MaximumLikelihood(half_life=0.01).fit(log).interval(0.9, LikelihoodRatio())
    assert np.all(lower <= upper)
