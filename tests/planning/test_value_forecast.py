"""Expected value of a plan and its interval, against sums, samples and Student's law."""

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import t

import freshopt as fo
from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.planning.plan_files import summary, told_of
from freshopt.planning.request import default_estimate
from freshopt.planning.uncertainty import plan_uncertainty, rate_draws
from freshopt.planning.value_forecast import (
    RealisedRatios,
    ValueForecast,
    ratios_or_none,
    realised_ratios,
    value_forecast,
)
from freshopt.planning.wishes import Wishes
from freshopt.problems import (
    AccumulatedDelay,
    BinaryFreshness,
    HarmonicStaleness,
    PowerCost,
    SynchronizationCost,
)
from freshopt.report.page import findings as telling
from tests.ground_truth.crawl_logs import found_changes, log_at
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]
PERIODIC = fo.Refresh.PERIODIC


OF_DRAWS = (math.nan, math.nan)  # both ends of an interval are those of the draws


def log_of(rate: Floats, days: int, seed: int, drift: float = 1.0) -> fo.CrawlLog:
    """Return daily crawls; from the middle on rates are `drift` times as large."""
    rng, n = np.random.default_rng(seed), len(rate)
    factor = np.where(np.arange(days) < days // 2, 1.0, drift)
    return log_at(np.arange(days), found_changes(rng, rate[:, None], np.tile(factor, (n, 1))))


def request_for(objective: fo.Objective, bandwidth: float) -> Wishes:
    return Wishes(objective, bandwidth=bandwidth, horizon=1.0)


@pytest.mark.parametrize(
    ("objective", "scale"),
    [
        (BinaryFreshness(PERIODIC), 1e-6),
        (HarmonicStaleness(PERIODIC), 1e6),
        (HarmonicStaleness(fo.Refresh.POISSON), 1.0),
    ],
)
@pytest.mark.sampled(2)
def test_mean_and_interval_are_those_of_the_draws(objective: fo.Objective, scale: float) -> None:
    rng = np.random.default_rng(4)
    log = log_of(rng.gamma(0.6, 0.2, 40), 6, seed=1)
    model = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log)
    weight = scale * (rng.pareto(1.5, 40) + 1.0)
    sources = fo.Sources(model.change_rate_, weight, names=log.names)
    rates = rng.gamma(2.0, 0.1, 40)
    told = value_forecast(objective, sources, rates, rate_draws(sources, model, 99, seed=5))
    drawn = []
    for rate in model.draws(99, seed=5):
        own = present(fo.Problem(objective, sources.with_change_rate(rate), 20.0).numerics)
        drawn.append(float(np.sum(own.cost(rates))))
    np.testing.assert_allclose(told.costs, drawn, rtol=EXACT)
    whole = float(np.sum(weight))
    mean = whole - np.mean(drawn) if objective.sense == "maximise" else np.mean(drawn)
    assert told.expected == pytest.approx(mean, rel=1e-9)
    low, high = np.sort(drawn)[[4, 94]]  # the 5th and the 95th of 99: 5 of 100 gaps beyond either
    ends = (whole - high, whole - low) if objective.sense == "maximise" else (low, high)
    np.testing.assert_allclose(told.interval(), ends, rtol=1e-9)


def test_without_spread_the_interval_is_students() -> None:
    ratios = np.array([0.7, 1.1, 1.3, 0.9])
    logs = np.log(ratios)
    reach = t.ppf(0.95, 3) * np.std(logs, ddof=1) * math.sqrt(1.25)
    told = ValueForecast(3.0, np.full(9, 3.0), OF_DRAWS, math.inf, 0.0, 1.0, ratios)
    expected = 3.0 * np.exp(np.mean(logs) + np.array([-reach, reach]))
    np.testing.assert_allclose(told.interval(), expected, rtol=EXACT)
    assert told.interval(0.5)[1] < told.interval(0.9)[1] < told.interval(0.99)[1]


def test_without_back_tests_it_holds_if_the_model_does() -> None:
    costs = np.random.default_rng(1).permutation(np.arange(1.0, 100.0))
    told = ValueForecast(50.0, costs, OF_DRAWS, math.inf, 0.0, 1.0, np.empty(0))
    np.testing.assert_allclose(told.interval(), (5.0, 95.0), rtol=EXACT)
    np.testing.assert_allclose(told.interval(0.5), (25.0, 75.0), rtol=EXACT)
    assert told.sentence == "50 is expected; 90 % interval 5 to 95, if sources change at random"


def test_draws_and_drift_reach_to_either_side_as_independent_ones_do() -> None:
    ratios, costs = np.array([0.7, 1.1, 1.3, 0.9]), np.exp(np.linspace(-1.0, 1.0, 99))
    alone = ValueForecast(1.0, costs, OF_DRAWS, math.inf, 0.0, 1.0, np.empty(0)).interval()
    drift = ValueForecast(1.0, np.ones(9), OF_DRAWS, math.inf, 0.0, 1.0, ratios).interval()
    both = ValueForecast(1.0, costs, OF_DRAWS, math.inf, 0.0, 1.0, ratios).interval()
    middle = float(np.mean(np.log(ratios)))
    for k in (0, 1):
        reach = math.hypot(math.log(alone[k]), math.log(drift[k]) - middle)
        assert abs(math.log(both[k]) - middle) == pytest.approx(reach, rel=SCALAR)


def test_noise_of_the_windows_is_no_drift() -> None:
    ratios = np.array([0.8, 1.25, 0.9, 1.1])
    own = float(np.std(np.log(ratios), ddof=1))
    wide, narrow = (
        ValueForecast(1.0, np.ones(9), OF_DRAWS, math.inf, 0.0, 1.0, ratios, noise) for noise in (0.0, own)
    )
    reach = [math.log(high / low) for low, high in (wide.interval(), narrow.interval())]
    assert reach[1] / reach[0] == pytest.approx(math.sqrt(0.25 / 1.25), rel=SCALAR)


def test_a_value_is_no_share_below_nothing() -> None:
    told = ValueForecast(
        0.2, 0.8 + 0.001 * np.arange(-9.0, 10.0), OF_DRAWS, 1.0, 1.0, -1.0, np.array([0.5, 2.0, 1.0, 3.0])
    )
    low, high = told.interval()
    assert low == 0.0
    assert 0.2 < high < 1.0
    nothing = ValueForecast(1.0, np.zeros(9), OF_DRAWS, 1.0, 1.0, -1.0, np.array([0.5, 2.0]))
    assert nothing.interval() == (1.0, 1.0)
    endless = ValueForecast(1.0, np.ones(9), OF_DRAWS, math.inf, 0.0, 1.0, np.array([1e-9, 1e9]))
    assert math.isfinite(endless.interval()[1])
    assert repr(pickle.loads(pickle.dumps(told))) == repr(told)
    assert json.dumps(told.facts())


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", [BinaryFreshness(PERIODIC), AccumulatedDelay(fo.Refresh.POISSON)])
def test_ratios_are_one_where_the_model_holds(objective: fo.Objective) -> None:
    every = []
    for seed in range(6):
        rate = np.random.default_rng(seed).gamma(0.8, 0.1, 60)
        request = Wishes(objective, bandwidth=8.0, horizon=1.0, seed=1000 * seed)
        every.append(realised_ratios(log_of(rate, 60, seed + 100), request))
    logs = np.log(np.concatenate([each.ratios for each in every]))
    assert len(logs) == 24
    assert abs(np.mean(logs)) < 3.0 * np.std(logs) / math.sqrt(24)
    # Their scatter is what was told of it.
    assert 0.6 < np.std(logs) / np.mean([each.noise for each in every]) < 1.5


def test_ratios_tell_a_drift() -> None:
    rate = np.random.default_rng(8).gamma(0.8, 0.1, 150)
    log = log_of(rate, 80, seed=3, drift=3.0)
    found = realised_ratios(log, request_for(BinaryFreshness(PERIODIC), 20.0))
    assert found.ratios[0] > 1.4
    # The later plans have seen some of it.
    assert found.ratios[-1] < found.ratios[0]


def test_a_log_too_short_has_no_ratios() -> None:
    log = log_of(np.full(3, 0.5), 3, seed=1)
    assert ratios_or_none(log, request_for(BinaryFreshness(PERIODIC), 1.0)) is None
    still = fo.CrawlLog(["a"] * 50, np.arange(50.0), [0] * 50)
    assert ratios_or_none(still, request_for(BinaryFreshness(PERIODIC), 1.0)) is None
    long = log_of(np.full(9, 0.5), 60, seed=1)
    power = SynchronizationCost(PowerCost(1.0, 0.5))
    assert ratios_or_none(long, request_for(power, 1.0)) is None
    found = present(ratios_or_none(long, request_for(BinaryFreshness(PERIODIC), 1.0)))
    assert len(found.ratios) == 4


@pytest.mark.exhaustive
def test_plans_tell_it(tmp_path: Path) -> None:
    log = log_of(np.random.default_rng(8).gamma(0.8, 0.1, 30), 60, seed=3)
    made = fo.plan(log, bandwidth="5/day", horizon="7d")
    assert made.forecast is not None
    assert len(made.forecast.ratios) == 4
    (row,) = (each for each in telling(told_of(made)) if each.key == "certainty")
    assert made.forecast.sentence in row.sentence
    assert "Costs on your own past were" in str(made)
    made.write(tmp_path / "plan")
    told = json.loads((tmp_path / "plan" / "summary.json").read_text())["forecast"]
    assert told == made.forecast.facts()
    assert fo.plan(log, bandwidth="5/day", horizon="7d", draws=0).forecast is None
    short = fo.plan(log_of(np.full(3, 0.5), 3, seed=1), bandwidth=1.0, horizon=7.0)
    assert "if sources change at random" in present(short.forecast).sentence
    power = fo.plan(log, bandwidth=5.0, horizon=7.0, objective=SynchronizationCost(PowerCost(1.0, 0.5)))
    rows = telling(told_of(power))
    assert not any("is expected" in each.sentence for each in rows)  # the cost has nothing to do with changes


def test_draws_of_sources_by_name_and_unit() -> None:
    log = fo.CrawlLog(["b"] * 4 + ["a"] * 4 + ["c"], [*range(4), *range(4), 0], [0, 1, 0, 1, 0, 0, 0, 1, 0])
    model = MaximumLikelihood().fit(log)
    drawn = rate_draws(fo.Sources(1.0, names=["c", "b"], time_unit="hour"), model, 7, seed=3)
    np.testing.assert_allclose(drawn.rates, model.draws(7, seed=3)[:, [2, 1]] / 24.0, rtol=EXACT)
    assert drawn.changed.tolist() == [False, True]


def test_intervals_by_back_tests_hold_a_drift() -> None:
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        ratios = np.exp(rng.normal(0.1, 0.3, 5))
        told = ValueForecast(1.0, np.ones(9), OF_DRAWS, math.inf, 0.0, 1.0, ratios[:4])
        low, high = told.interval()
        held.append(low < ratios[4] < high)
    assert 0.86 < np.mean(held) < 0.94


def test_ratios_are_frozen() -> None:
    found = RealisedRatios(np.ones(2), 0.1)
    with pytest.raises(ValueError, match="read-only"):
        found.ratios[0] = 2.0


def test_savings_lessen_mean_and_spread() -> None:
    rng = np.random.default_rng(8)
    log = log_of(rng.gamma(0.6, 0.2, 20), 9, seed=2)
    model = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log)
    weight, rates = 1e6 * rng.uniform(0.5, 2.0, 20), rng.uniform(0.1, 1.0, 20)
    sources = fo.Sources(model.change_rate_, weight, names=log.names)
    less = rng.uniform(0.0, 0.5, 20) / rates

    def savings(own: fo.Sources) -> Floats:
        return weight * np.asarray(own.change_rate) * less

    drawn = rate_draws(sources, model, 50, seed=1)
    told = value_forecast(AccumulatedDelay(PERIODIC), sources, rates, drawn, savings=savings)
    np.testing.assert_allclose(told.costs, drawn.rates @ (weight * (0.5 / rates - less)), rtol=SCALAR)
    assert told.expected == pytest.approx(float(np.mean(told.costs)), rel=SCALAR)


@pytest.mark.exhaustive
def test_an_expected_objective_has_rates_of_its_own() -> None:
    log = log_of(np.random.default_rng(8).gamma(0.6, 0.2, 20), 9, seed=2)
    nodes, weights = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log).nodes()
    plan = fo.plan(log, 5.0, 7.0, objective=fo.Expected(HarmonicStaleness(PERIODIC), nodes, weights))
    assert plan.forecast is None
    assert plan.uncertainty is None
    assert "Proved optimal for the change rates given." in repr(plan)
    assert "estimate" not in repr(plan)
    assert json.loads(json.dumps(summary(plan)))["settings"]["draws"] == 0


def forecast_of(log: fo.CrawlLog, objective: fo.Objective, bandwidth: float = 5.0) -> ValueForecast:
    model = default_estimate(log)
    sources = fo.Sources(model.change_rate_, names=log.names)
    rates = fo.solve(fo.Problem(objective, sources, bandwidth)).rates
    return value_forecast(objective, sources, rates, rate_draws(sources, model, 99, seed=1))


STILL, RESTLESS = (log_of(np.full(12, rate), 9, seed=1) for rate in (1e-9, 99.0))


def test_an_end_that_no_log_gives_is_not_printed() -> None:
    """No change ever: costs may be as small as any. Changes at every crawl: as large, without a largest."""
    still = forecast_of(STILL, HarmonicStaleness(fo.Refresh.POISSON))
    assert still.interval()[0] == 0.0
    assert 0.0 < still.expected < still.interval()[1] < math.inf
    assert "90 % interval at most" in still.sentence
    assert still.facts()["value_90_percent"] == [None, still.interval()[1]]
    for objective in (HarmonicStaleness(fo.Refresh.POISSON), AccumulatedDelay(fo.Refresh.POISSON)):
        told = forecast_of(RESTLESS, objective)
        assert 0.0 < told.interval()[0] < told.interval()[1] == math.inf
        assert "90 % interval at least" in told.sentence
        assert json.loads(json.dumps(told.facts(), allow_nan=False))["value_90_percent"][1] is None
    fresh = forecast_of(STILL, BinaryFreshness(fo.Refresh.POISSON))
    assert 0.0 < fresh.interval()[0] < fresh.interval()[1] == 12.0
    assert "90 % interval at least" in fresh.sentence
    # A copy is at worst never fresh: that bounds the cost.
    low, high = forecast_of(RESTLESS, BinaryFreshness(fo.Refresh.POISSON)).interval()
    assert 0.0 <= low < high < 12.0


def test_the_regret_has_the_same_ends() -> None:
    for log, ends, words in ((STILL, (0.0, None), "at most"), (RESTLESS, (None, math.inf), "at least")):
        problem = fo.Problem(HarmonicStaleness(fo.Refresh.POISSON), fo.Sources(1.0, names=log.names), 5.0)
        found = plan_uncertainty(problem, default_estimate(log), draws=6)
        for end, limit in zip(found.value_interval(), ends, strict=True):
            assert limit is None or end == limit
        assert words in repr(found)


WORLDS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "two kinds": lambda rng, n: np.where(rng.random(n) < 0.6, 0.03, 2.0),
    "heavy-tailed": lambda rng, n: 0.03 * rng.pareto(0.7, n) + 1e-3,
    "log-normal": lambda rng, n: np.exp(rng.normal(-1.0, 1.0, n)),
    "hardly ever": lambda rng, n: np.exp(rng.normal(-5.0, 0.6, n)),
}


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.sampled(2)
def test_the_true_cost_lies_inside_however_rates_are_distributed(kind: str) -> None:
    inside = 0
    for seed in range(10):
        rate = WORLDS[kind](np.random.default_rng([seed, 5]), 60)
        log = log_of(rate, 12, seed)
        model = default_estimate(log)
        sources = fo.Sources(model.change_rate_, names=log.names)
        rates = np.sqrt(model.change_rate_)
        told = value_forecast(
            HarmonicStaleness(fo.Refresh.POISSON), sources, rates, rate_draws(sources, model, 120, seed)
        )
        low, high = told.interval()
        inside += low <= float(np.sum(np.log1p(rate / rates))) <= high
    assert inside >= 7
