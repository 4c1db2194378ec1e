"""Moment matching and counted changes: against root finding source by source, golden values, coverage."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, chi2

from freshopt.estimators import (
    Exact,
    FullObservation,
    Hoeffding,
    MaximumLikelihood,
    MomentMatching,
    Published,
)
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.crawl_logs import log_of_gaps
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]
UNBOUNDED = (0.0, math.inf)


def matching_rate(gaps: Floats, found: float) -> float:
    """Solve Σ(1−e^{−aΔ}) = found in ln Δ."""
    if found <= 0:
        return 0.0
    if found >= len(gaps):
        return math.inf

    def excess(t: float) -> float:
        terms = [found]  # summed exactly: near the root they cancel
        for x in gaps * math.exp(t):
            terms += [math.expm1(-x)] if x < 0.5 else [math.exp(-x), -1.0]
        return math.fsum(terms)

    return math.exp(brentq(excess, -80, 80, xtol=1e-15, rtol=1e-14))


def random_sources(rng: np.random.Generator, n: int) -> tuple[list[Floats], list[npt.NDArray[np.bool_]]]:
    gaps, changed = [], []
    for _ in range(n):
        size, scale = int(rng.integers(1, 30)), 10.0 ** rng.integers(-6, 6)
        gaps.append(scale * np.exp(rng.choice([0.0, 0.5, 3.0]) * rng.standard_normal(size)))
        changed.append(rng.random(size) < rng.choice([0.05, 0.5, 0.95]))
    return gaps, changed


def test_rates_solve_the_equation_of_each_source() -> None:
    gaps, changed = random_sources(np.random.default_rng(41), 300)
    model = MomentMatching(UNBOUNDED).fit(log_of_gaps(gaps, changed))
    expected = [matching_rate(a, found.sum()) for a, found in zip(gaps, changed, strict=True)]
    np.testing.assert_allclose(model.change_rate_, expected, rtol=1e-10)
    bounds = (1e-2, 1e1)
    clipped = MomentMatching(bounds).fit(log_of_gaps(gaps, changed)).change_rate_
    np.testing.assert_allclose(clipped, np.clip(expected, *bounds), rtol=1e-10)
    assert {bounds[0], bounds[1]} <= set(clipped.tolist())


@pytest.mark.exhaustive
@given(st.lists(st.tuples(st.floats(-12, 12), st.booleans()), min_size=2, max_size=12))
def test_any_gaps_are_solved(cells: list[tuple[float, bool]]) -> None:
    gaps, changed = np.array([10.0**decade for decade, _ in cells]), np.array([found for _, found in cells])
    (rate,) = MomentMatching(UNBOUNDED).fit(log_of_gaps([gaps], [changed])).change_rate_
    assert rate == pytest.approx(matching_rate(gaps, changed.sum()), rel=1e-10)


@pytest.mark.parametrize(("crawls", "found"), [(10_000, 1), (10_000, 9_999), (2, 1)])
def test_equal_gaps_are_the_likelihood_and_have_a_closed_form(crawls: int, found: int) -> None:
    log = log_of_gaps([np.full(crawls, 2.0)], [np.arange(crawls) < found])
    rate = MomentMatching(UNBOUNDED).fit(log).change_rate_
    np.testing.assert_allclose(rate, -math.log1p(-found / crawls) / 2, rtol=EXACT)
    np.testing.assert_allclose(rate, MaximumLikelihood(smoothing=0).fit(log).change_rate_, rtol=EXACT)


@pytest.mark.parametrize("confidence", [0.1, 0.95])
def test_interval_ends_solve_their_equations(confidence: float) -> None:
    gaps, changed = random_sources(np.random.default_rng(42), 100)
    bounds = (1e-3, 1e2)
    model = MomentMatching(bounds).fit(log_of_gaps(gaps, changed))
    lower, upper = model.interval(confidence, Hoeffding())
    bound = model.error_bound(confidence)
    for k, (a, found) in enumerate(zip(gaps, changed, strict=True)):
        spread = math.sqrt(len(a) * math.log(2 / (1 - confidence)) / 2)
        for end, sign in ((lower[k], -1), (upper[k], 1)):
            expected = np.clip(matching_rate(a, found.sum() + sign * spread), *bounds)
            assert end == pytest.approx(expected, rel=SCALAR)
        expected = spread / math.fsum(a * np.exp(-a * bounds[1])) if max(a * bounds[1]) < 700 else None
        assert expected is None or bound[k] == pytest.approx(expected, rel=SCALAR)
        assert max(upper[k] - model.change_rate_[k], model.change_rate_[k] - lower[k]) <= bound[k]


def test_published_bound_worked_by_hand() -> None:
    """N = 8 gaps of 1, Δ_max = 1, δ = 2e^{−4}: ε = √(4/16) = 1/2, over e^{−1}."""
    log = log_of_gaps([np.ones(8)], [np.arange(8) < 4])
    model = MomentMatching((0.1, 1.0)).fit(log)
    bound = model.error_bound(1 - 2 * math.exp(-4))
    np.testing.assert_allclose(bound, 0.5 * math.e, rtol=EXACT)
    edges = CrawlLog(["a", "b", "b"], [0, 0, 1], [0, 0, 1])
    assert MomentMatching((0, 5)).fit(edges).error_bound().tolist()[0] == math.inf
    np.testing.assert_array_equal(
        MomentMatching((0, 5)).fit(edges).interval(method=Hoeffding()), [[0, 0], [5, 5]]
    )


def test_intervals_cover_at_least_as_often_as_they_say() -> None:
    rng = np.random.default_rng(43)
    rates = rng.uniform(0.2, 2.0, 400)
    gaps = rng.exponential(1.0, (400, 20))
    counts = rng.poisson(gaps * rates[:, None])
    log = log_of_gaps(gaps, counts > 0, counts)
    wanted = binom.ppf(1e-4, 400, 0.9)
    matching, counting = MomentMatching((0.1, 4.0)).fit(log), FullObservation().fit(log)
    for model, method, widest in (
        (matching, Hoeffding(), 3.0),  # the bounds alone would be 3.9 apart
        (counting, Exact(), 3.0),
        (matching, Published(), 3.9),
        (counting, Published((0.1, 4.0)), 3.9),
    ):
        lower, upper = model.interval(0.9, method)
        covered = np.count_nonzero((lower <= rates) & (rates <= upper))
        assert covered >= wanted
        assert np.mean(upper - lower) < widest
    matched, counted = MomentMatching((0.1, 4.0)).fit(log), FullObservation(0).fit(log)
    assert np.count_nonzero(np.abs(matched.change_rate_ - rates) <= matched.error_bound(0.9)) >= wanted
    clipped = np.clip(counted.change_rate_, 0.1, 4.0)
    assert np.count_nonzero(np.abs(clipped - rates) <= counted.error_bound((0.1, 4.0), 0.9)) >= wanted


def test_counted_changes_worked_by_hand() -> None:
    log = CrawlLog(
        source=[1, 1, 1, 2, 2, 3],
        time=[0, 1, 4, 0, 2, 0],
        changed=[0, 1, 1, 0, 0, 0],
        changes=[0, 2, 5, 0, 0, 0],
    )
    model = FullObservation().fit(log)
    medians = [chi2.median(15) / 8, chi2.median(1) / 4]  # half a change more: an odd number of degrees
    np.testing.assert_allclose(model.change_rate_, [*medians, sum(medians) / 2], rtol=SCALAR)
    half = FullObservation(0.5).fit(log).change_rate_
    np.testing.assert_allclose(half, [7.5 / 4.5, 0.5 / 2.5, 1.0], rtol=EXACT)
    assert model.flag_.tolist() == ["ok", "never changed", "baseline only"]
    np.testing.assert_array_equal(FullObservation(0).fit(log).change_rate_, [7 / 4, 0.0, math.nan])
    lower, upper = model.interval(0.95, Exact())
    np.testing.assert_allclose(lower, [chi2.ppf(0.025, 14) / 8, 0, 0], rtol=SCALAR)
    np.testing.assert_allclose(
        upper, [chi2.ppf(0.975, 16) / 8, chi2.ppf(0.975, 2) / 4, math.inf], rtol=SCALAR
    )
    # Δ within (1, 2): t = 1, ψ = 2(2 ln 2 − 1); δ = 2/e: √(2·2·1/(S ψ))
    psi = 2 * (2 * math.log(2) - 1)
    bound = model.error_bound((1.0, 2.0), 1 - 2 / math.e)
    np.testing.assert_allclose(
        bound, [math.sqrt(4 / (4 * psi)), math.sqrt(4 / (2 * psi)), math.inf], rtol=EXACT
    )


def test_counts_in_hours_are_the_counts_in_days() -> None:
    rows: dict[str, Any] = {"source": [1, 1], "changed": [1, 1], "changes": [2, 1]}
    days = FullObservation().fit(CrawlLog.from_columns({**rows, "elapsed": [1.0, 2.0]}))
    hours = FullObservation().fit(CrawlLog.from_columns({**rows, "elapsed": [24.0, 48.0]}, time_unit="hour"))
    np.testing.assert_allclose(hours.change_rate_ * 24, days.change_rate_, rtol=EXACT)
    assert hours.time_unit_ == "hour"


def test_unknown_counts_are_refused_by_name() -> None:
    counted = CrawlLog(["a", "b", "b"], [0, 0, 3], [0, 0, 1], changes=[0, 0, 2])
    model = FullObservation(0.5).fit(counted)
    for changes in (None, [0, 1, math.nan]):
        log = CrawlLog(["a", "b", "b"], [4, 4, 9], [0, 1, 1], changes=changes, start=[3, 3])
        missing = 2 if changes is None else 1
        refused(rf"source b changed an unknown.*{missing} are missing.*Max", model.partial_fit, log)
    np.testing.assert_allclose(model.change_rate_, [1.0, 2.5 / 3.5], rtol=EXACT)
    unchanged = CrawlLog(["a", "b"], [4, 9], [0, 0], start=[3, 3])  # no change is a count: 0
    np.testing.assert_allclose(model.partial_fit(unchanged).change_rate_, [0.5 / 1.5, 2.5 / 9.5], rtol=EXACT)
