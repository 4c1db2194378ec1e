"""Default estimates scale with the log, lie in their intervals, and are calibrated from few crawls on."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import beta

import freshopt as fo
from freshopt import CrawlLog
from freshopt.planning.request import default_estimate
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from tests.estimators.test_batches import AT_KNOWN_RATE
from tests.estimators.test_settings import ESTIMATORS
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import SCALAR

Floats = npt.NDArray[np.float64]
MINUTE = 1.0 / 1440.0


def crawls(seed: int, sources: int, most: int = 30) -> dict[str, Any]:
    """Poisson crawls, one per unit on average, of sources with up to 29; the first three are edges."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {"source": [], "elapsed": [], "changed": [], "changes": []}
    for k in range(sources):
        n = int(rng.integers(1, most))
        gaps = rng.exponential(1.0, n)
        counts = rng.poisson(gaps * 10.0 ** rng.uniform(-2.0, 2.0))
        counts = {0: 0 * counts, 1: np.maximum(counts, 1)}.get(k, counts)
        gaps = np.array([math.nan]) if k == 2 else gaps
        counts = np.array([0]) if k == 2 else counts
        for key, values in (("elapsed", gaps), ("changed", counts > 0), ("changes", counts)):
            columns[key] += list(values)
        columns["source"] += [k] * len(gaps)
    return {key: np.array(values) for key, values in columns.items()}


def log_of(columns: dict[str, Any], scale: float, unit: str = "day", counted: bool = False) -> CrawlLog:
    keep = {**columns, "elapsed": columns["elapsed"] * scale}
    if not counted:
        del keep["changes"]
    return CrawlLog.from_columns(keep, time_unit=unit)


def fitted(make: Callable[[], Any], columns: dict[str, Any], scale: float, unit: str = "day") -> Any:  # noqa: ANN401
    model = make()
    log = log_of(columns, scale, unit, counted=isinstance(model, fo.estimators.FullObservation))
    rated = [1.0 / scale] * isinstance(model, tuple(AT_KNOWN_RATE))
    return model.fit(log, *rated)


@pytest.mark.parametrize("make", ESTIMATORS, ids=lambda make: make.__name__)
def test_default_estimates_scale_with_the_log(make: Any) -> None:  # noqa: ANN401
    columns = crawls(91, 25)
    expected = fitted(make, columns, 1.0).change_rate_
    assert np.all((expected > 0) & (expected < math.inf))
    for scale, unit in ((MINUTE, "day"), (1440.0, "minute"), (30.0, "day"), (86_400.0, "second")):
        rates = fitted(make, columns, scale, unit).change_rate_
        np.testing.assert_allclose(rates * scale, expected, rtol=SCALAR)


@pytest.mark.parametrize("sources", [1, 29, 40])
def test_the_estimate_of_a_plan_scales_with_the_log(sources: int) -> None:
    columns = crawls(92, max(sources, 4))
    keep = columns["source"] >= len(set(columns["source"])) - sources
    columns = {key: values[keep] for key, values in columns.items()}
    expected = default_estimate(log_of(columns, 1.0)).change_rate_
    for scale in (MINUTE, 30.0):
        rates = default_estimate(log_of(columns, scale)).change_rate_ * scale
        np.testing.assert_allclose(rates, expected, rtol=1e-5)  # a learnt prior is searched to 1e-6


OTHERS: list[Callable[[], Any]] = [
    lambda: fo.estimators.MaximumLikelihood(smoothing=0.5),
    lambda: fo.estimators.MaximumLikelihood(smoothing=0),
    lambda: fo.estimators.MaximumLikelihood(half_life=3.0, smoothing=2.0),
    lambda: fo.estimators.MaximumLikelihood(prior=fo.estimators.GammaPrior(0.01, 0.01)),
    lambda: fo.estimators.MaximumLikelihood(prior=fo.estimators.GammaPrior(50.0, 3.0)),
    lambda: fo.estimators.MomentMatching((0.5, 2.0)),
    lambda: fo.estimators.MomentMatching((0.0, math.inf)),
    lambda: fo.estimators.FullObservation(smoothing=0.5),
    lambda: fo.estimators.FullObservation(smoothing=0),
    lambda: fo.estimators.Naive(floor=5.0),
    lambda: fo.estimators.LawOfLargeNumbers(alpha=30.0, floor=0.1),
    lambda: fo.estimators.StochasticApproximation(step=1.0, floor=0),
    lambda: fo.estimators.MomentumStochasticApproximation(1.2, 0.6, 0.1, floor=0),
]
METHODS = [
    fo.estimators.Posterior(),
    fo.estimators.LikelihoodRatio(),
    fo.estimators.Exact(),
    fo.estimators.Hoeffding(),
    fo.estimators.Published(),
    fo.estimators.Published((0.01, 1e5)),
    fo.estimators.Published((1.0, 3.0)),
]


@pytest.mark.parametrize("make", [*ESTIMATORS, *OTHERS], ids=lambda make: repr(make()))
def test_every_estimate_lies_in_each_of_its_intervals(make: Any) -> None:  # noqa: ANN401
    columns, served = crawls(93, 12), 0
    for scale, method in itertools.product((MINUTE, 30.0), METHODS):
        times = np.concatenate([np.arange(n) for n in np.unique(columns["source"], return_counts=True)[1]])
        model = fitted(make, {**columns, "time": times.astype(float)}, scale)
        for confidence in (0.01, 0.95):
            try:
                lower, upper = model.interval(confidence, method)
            except fo.SourceDataError as refused:
                assert "has no interval" in str(refused) or "has no bounds" in str(refused)  # noqa: PT017
                continue
            known = ~np.isnan(model.change_rate_)
            assert np.all((lower <= model.change_rate_)[known] & (model.change_rate_ <= upper)[known])
            assert np.all(lower <= upper)
            served += 1
    assert served >= 4


def test_at_equal_gaps_estimates_are_medians_from_the_first_crawl_on() -> None:
    """All outcomes of 1 to 29 crawls: at 1, 5 and 60 minutes, and 30 days."""
    cases = [(n, found) for n in range(1, 30) for found in range(n + 1)]
    share = np.array([beta.median(found + 0.5, n - found + 0.5) for n, found in cases])
    changed = [np.arange(n) < found for n, found in cases]
    for gap in (MINUTE, 5 * MINUTE, 60 * MINUTE, 30.0):
        log = log_of_gaps([np.full(n, gap) for n, _ in cases], changed)
        rates = fo.estimators.MaximumLikelihood().fit(log).change_rate_
        np.testing.assert_allclose(rates, -np.log1p(-share) / gap, rtol=1e-4)


@pytest.mark.exhaustive
def test_medians_and_intervals_are_calibrated() -> None:
    """At 0.1 to 3 changes per gap; where every crawl sees a change, no estimate but the prior's is left."""
    gap = MINUTE
    rng = np.random.default_rng(94)
    for n in (3, 10, 29):
        rates = np.exp(rng.uniform(math.log(0.1), math.log(3.0), 1000))
        gaps = rng.exponential(1.0, (1000, n))
        log = log_of_gaps(gap * gaps, found_changes(rng, rates[:, None], gaps))
        model = fo.estimators.MaximumLikelihood().fit(log)
        low = np.mean(model.change_rate_ * gap < rates)
        assert abs(low - 0.5) < 0.06 + 3.3 * math.sqrt(0.25 / 1000)
        for confidence in (0.5, 0.95):
            lower, upper = model.interval(confidence)
            covered = np.mean((lower * gap <= rates) & (rates <= upper * gap))
            slack = 3.3 * math.sqrt(confidence * (1 - confidence) / 1000)
            assert abs(covered - confidence) < 0.04 + slack


def test_a_source_that_outruns_its_crawls_is_told_so() -> None:
    columns = {"source": [0] * 29, "elapsed": [MINUTE] * 29, "changed": [1] * 29}
    model = fo.estimators.MaximumLikelihood().fit(CrawlLog.from_columns(columns))
    lower, upper = model.interval()
    assert model.flag_.tolist() == ["always changed"]
    assert 4.5 < model.change_rate_[0] * MINUTE < 5.0
    assert 2.0 < lower[0] * MINUTE < 3.0
    assert upper[0] == math.inf


def test_a_source_does_not_depend_on_the_others_of_its_log() -> None:
    columns = crawls(95, 25)
    together = fitted(fo.estimators.MaximumLikelihood, columns, 1.0).change_rate_
    for k in range(3, 25):
        rows = columns["source"] == k
        alone = fitted(
            fo.estimators.MaximumLikelihood, {key: values[rows] for key, values in columns.items()}, 1.0
        )
        np.testing.assert_allclose(alone.change_rate_[0], together[k], rtol=SCALAR)


@pytest.mark.parametrize(
    "objective", [HarmonicStaleness(fo.Refresh.PERIODIC), BinaryFreshness(fo.Refresh.POISSON)]
)
@pytest.mark.parametrize("sources", [3, 12, 29])
@pytest.mark.sampled(3)
def test_a_plan_of_minutes_has_its_value_in_the_interval_of_the_value(
    objective: fo.Objective, sources: int
) -> None:
    inside = 0
    for seed in range(4):
        rng = np.random.default_rng([96 + seed, sources])
        rows: dict[str, list[Any]] = {"source": [], "elapsed": [], "changed": []}
        true: dict[str, float] = {}
        for k in range(sources):
            gaps = np.full(12, 5 * MINUTE) if k % 2 else rng.choice([1.0, 5.0, 15.0, 1440.0], 12) * MINUTE
            rows["source"] += [f"model {k}"] * 12
            rows["elapsed"] += gaps.tolist()
            chance = rng.random(12)
            true[f"model {k}"] = 10.0 ** rng.uniform(1.5, 3.5)
            rows["changed"] += (chance < -np.expm1(-gaps * true[f"model {k}"])).tolist()
        plan = fo.plan(
            CrawlLog.from_columns(rows), f"{100 * sources}/day", "1d", objective=objective, confidence=0.5
        )
        assert np.all((plan.lower <= plan.sources.change_rate) & (plan.sources.change_rate <= plan.upper))
        # The value that the plan has in truth; at the estimates of so few crawls it is another.
        truth = plan.solution.problem.with_change_rate(
            np.array([true[plan.sources.label(k).strip("'")] for k in range(sources)])
        )
        value = objective.value_from_cost(
            float(np.sum(present(truth.numerics).cost(plan.solution.rates))), truth.sources
        )
        low, high = present(plan.uncertainty).value_interval(0.9)
        inside += low <= value <= high
    assert inside >= 3
