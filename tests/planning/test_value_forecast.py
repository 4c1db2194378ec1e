"""Expected value of a plan and its interval, against sums, samples and Student's law."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm, t

import freshopt as fo
from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.modelling.objective import Objective
from freshopt.planning.plan_files import summary
from freshopt.planning.realised_ratios import RealisedRatios, ratios_or_none, realised_ratios
from freshopt.planning.request import PlanRequest
from freshopt.planning.value_forecast import ValueForecast, posterior_nodes, value_forecast
from freshopt.problems import (
    AccumulatedDelay,
    BinaryFreshness,
    HarmonicStaleness,
    PowerCost,
    SynchronizationCost,
)
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]
PERIODIC = fo.Refresh.PERIODIC


def log_of(rate: Floats, days: int, seed: int, drift: float = 1.0) -> fo.CrawlLog:
    """Return daily crawls; from the middle on rates are `drift` times as large."""
    rng, n = np.random.default_rng(seed), len(rate)
    factor = np.where(np.arange(days) < days // 2, 1.0, drift)
    changed = rng.random((n, days)) < -np.expm1(-rate[:, None] * factor)
    return fo.CrawlLog(np.repeat(np.arange(n), days), np.tile(np.arange(float(days)), n), changed.ravel())


def request_for(objective: Objective, bandwidth: float) -> PlanRequest:
    return PlanRequest(objective, bandwidth=bandwidth, horizon=1.0)


@pytest.mark.parametrize(
    ("objective", "scale"),
    [(BinaryFreshness(PERIODIC), 1e-6), (HarmonicStaleness(PERIODIC), 1e6), (HarmonicStaleness(), 1.0)],
)
@pytest.mark.sampled(2)
def test_mean_and_spread_are_those_of_posterior_samples(objective: Objective, scale: float) -> None:
    rng = np.random.default_rng(4)
    log = log_of(rng.gamma(0.6, 0.2, 40), 6, seed=1)
    model = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log)
    weight = scale * (rng.pareto(1.5, 40) + 1.0)
    sources = fo.Sources(model.change_rate_, weight, name=log.sources_)
    rates = rng.gamma(2.0, 0.1, 40)
    told = value_forecast(objective, sources, rates, model)
    drawn = []
    for rate in model.draws(600, seed=5):
        own = fo.Problem(objective, sources.with_change_rate(np.maximum(rate, 1e-90)), 20.0).numerics
        assert own is not None
        drawn.append(float(np.sum(own.cost(rates))))
    assert told.cost == pytest.approx(np.mean(drawn), abs=3.0 * np.std(drawn) / np.sqrt(600))
    assert told.spread == pytest.approx(np.std(drawn), rel=0.12)
    whole = float(np.sum(weight))
    value = whole - told.cost if objective.sense == "maximise" else told.cost
    assert told.expected == pytest.approx(value, rel=1e-9)
    low, high = told.interval()
    costs = (whole - high, whole - low) if objective.sense == "maximise" else (low, high)
    inside = np.mean([costs[0] < cost < costs[1] for cost in drawn])
    assert 0.85 < inside < 0.95


def test_delay_is_expected_at_the_posterior_mean() -> None:
    log = log_of(np.array([0.05, 0.4, 0.9]), 9, seed=2)
    model = MaximumLikelihood(prior=GammaPrior(0.6, 3.0)).fit(log)
    rates = np.array([0.1, 0.2, 0.3])
    nodes, weights = model.nodes()
    told = value_forecast(AccumulatedDelay(PERIODIC), fo.Sources(1.0, name=log.sources_), rates, model)
    assert told.expected == pytest.approx(np.sum(np.sum(nodes * weights, axis=1) / (2.0 * rates)), rel=EXACT)


def test_without_spread_the_interval_is_students() -> None:
    ratios = np.array([0.7, 1.1, 1.3, 0.9])
    logs = np.log(ratios)
    reach = t.ppf(0.95, 3) * np.std(logs, ddof=1) * math.sqrt(1.25)
    told = ValueForecast(3.0, 3.0, 0.0, math.inf, 0.0, 1.0, ratios)
    expected = 3.0 * np.exp(np.mean(logs) + np.array([-reach, reach]))
    np.testing.assert_allclose(told.interval(), expected, rtol=EXACT)
    assert told.interval(0.5)[1] < told.interval(0.9)[1] < told.interval(0.99)[1]


def test_without_back_tests_it_is_lognormal() -> None:
    told = ValueForecast(3.0, 3.0, 0.3, math.inf, 0.0, 1.0, np.empty(0))
    variance = math.log(1.01)
    expected = 3.0 * np.exp(-0.5 * variance + norm.ppf([0.05, 0.95]) * math.sqrt(variance))
    np.testing.assert_allclose(told.interval(), expected, rtol=EXACT)
    assert told.sentence.endswith("if the model holds")


def test_noise_of_the_windows_is_no_drift() -> None:
    ratios = np.array([0.8, 1.25, 0.9, 1.1])
    own = float(np.std(np.log(ratios), ddof=1))
    wide, narrow = (ValueForecast(1.0, 1.0, 0.0, math.inf, 0.0, 1.0, ratios, noise) for noise in (0.0, own))
    reach = [math.log(high / low) for low, high in (wide.interval(), narrow.interval())]
    assert reach[1] / reach[0] == pytest.approx(math.sqrt(0.25 / 1.25), rel=SCALAR)


def test_a_value_is_no_share_below_nothing() -> None:
    told = ValueForecast(0.2, 0.8, 0.01, 1.0, 1.0, -1.0, np.array([0.5, 2.0, 1.0, 3.0]))
    low, high = told.interval()
    assert low == 0.0
    assert 0.2 < high < 1.0
    nothing = ValueForecast(1.0, 0.0, 0.0, 1.0, 1.0, -1.0, np.array([0.5, 2.0]))
    assert nothing.interval() == (1.0, 1.0)
    endless = ValueForecast(1.0, 1.0, 0.0, math.inf, 0.0, 1.0, np.array([1e-9, 1e9]))
    assert math.isfinite(endless.interval()[1])
    assert repr(pickle.loads(pickle.dumps(told))) == repr(told)
    assert json.dumps(told.facts())


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", [BinaryFreshness(PERIODIC), AccumulatedDelay()])
def test_ratios_are_one_where_the_model_holds(objective: Objective) -> None:
    every = []
    for seed in range(6):
        rate = np.random.default_rng(seed).gamma(0.8, 0.1, 60)
        request = PlanRequest(objective, bandwidth=8.0, horizon=1.0, seed=1000 * seed)
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
    found = ratios_or_none(long, request_for(BinaryFreshness(PERIODIC), 1.0))
    assert found is not None
    assert len(found.ratios) == 4


@pytest.mark.exhaustive
def test_plans_tell_it(tmp_path: Path) -> None:
    log = log_of(np.random.default_rng(8).gamma(0.8, 0.1, 30), 60, seed=3)
    made = fo.plan(log, bandwidth="5/day", horizon="7d")
    assert made.forecast is not None
    assert len(made.forecast.ratios) == 4
    assert made.forecast.sentence in " ".join(str(made).split())  # lines are broken at 100 letters
    made.write(tmp_path / "plan")
    told = json.loads((tmp_path / "plan" / "summary.json").read_text())["forecast"]
    assert told == made.forecast.facts()
    assert fo.plan(log, bandwidth="5/day", horizon="7d", draws=0).forecast is None
    short = fo.plan(log_of(np.full(3, 0.5), 3, seed=1), bandwidth=1.0, horizon=7.0)
    assert short.forecast is not None
    assert "if the model holds" in str(short)
    power = fo.plan(log, bandwidth=5.0, horizon=7.0, objective=SynchronizationCost(PowerCost(1.0, 0.5)))
    assert "under the posterior" not in str(power)  # the cost has nothing to do with changes


def test_nodes_of_sources_by_name_and_unit() -> None:
    log = fo.CrawlLog(["b"] * 4 + ["a"] * 4 + ["c"], [*range(4), *range(4), 0], [0, 1, 0, 1, 0, 0, 0, 1, 0])
    model = MaximumLikelihood().fit(log)
    nodes, weights = posterior_nodes(fo.Sources(1.0, name=["c", "b"], time_unit="hour"), model)
    own = model.nodes()
    np.testing.assert_allclose(nodes[1], own[0][1] / 24.0, rtol=EXACT)
    np.testing.assert_allclose(weights[1], own[1][1], rtol=EXACT)
    # Nothing is known of c: it changes like the others.
    assert np.all(
        (nodes[0] * 24.0 >= model.change_rate_[:2].min()) & (nodes[0] * 24.0 <= model.change_rate_[:2].max())
    )


def test_intervals_by_back_tests_hold_a_drift() -> None:
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        ratios = np.exp(rng.normal(0.1, 0.3, 5))
        told = ValueForecast(1.0, 1.0, 0.01, math.inf, 0.0, 1.0, ratios[:4])
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
    sources = fo.Sources(model.change_rate_, weight, name=log.sources_)
    less = rng.uniform(0.0, 0.5, 20) / rates

    def savings(own: fo.Sources) -> Floats:
        return weight * np.asarray(own.change_rate) * less

    told = value_forecast(AccumulatedDelay(PERIODIC), sources, rates, model, savings=savings)
    nodes, chance = posterior_nodes(sources, model)
    mean = np.sum(chance * nodes, axis=1)
    variance = np.sum(chance * (nodes - mean[:, None]) ** 2, axis=1)
    unit = weight * (0.5 / rates - less)
    assert told.expected == told.cost == pytest.approx(float(unit @ mean), rel=SCALAR)
    assert told.spread == pytest.approx(math.sqrt(float(unit**2 @ variance)), rel=SCALAR)


@pytest.mark.exhaustive
def test_an_expected_objective_has_rates_of_its_own() -> None:
    log = log_of(np.random.default_rng(8).gamma(0.6, 0.2, 20), 9, seed=2)
    nodes, weights = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log).nodes()
    plan = fo.plan(log, 5.0, 7.0, objective=fo.Expected(HarmonicStaleness(PERIODIC), nodes, weights))
    assert plan.forecast is None
    assert plan.uncertainty is None
    assert "in the long run for the change rates of the objective" in repr(plan)
    assert "estimate" not in repr(plan)
    assert json.loads(json.dumps(summary(plan)))["settings"]["draws"] == 0
