"""What uncertainty costs: against closed forms worked out here; estimates put into problems by name."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.estimators import GammaPrior, LawOfLargeNumbers, MaximumLikelihood, Naive
from freshopt.modelling.objective import Refresh
from freshopt.planning.uncertainty import plan_uncertainty, quantiles
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR


@dataclass
class Told:
    """What a problem needs of an estimator."""

    sources_: Any
    change_rate_: Any
    time_unit_: str = "day"


def simulated(seed: int, n: int, crawls: int) -> tuple[Any, fo.CrawlLog]:
    rng = np.random.default_rng(seed)
    rates = np.exp(rng.uniform(-2.0, 1.0, n))
    gaps = rng.exponential(1.0, (n, crawls))
    names = np.array([f"s{k:03}" for k in range(n)])
    return rates, log_of_gaps(gaps, found_changes(rng, rates[:, None], gaps), names=names)


def problem_of(objective: fo.Objective, n: int, bandwidth: float, **more: Any) -> fo.Problem:  # noqa: ANN401
    names = [f"s{k:03}" for k in reversed(range(n))]
    importance = np.linspace(1.0, 3.0, n)
    return fo.Problem(objective, fo.Sources(1.0, importance, names=names, **more), bandwidth)


def test_regret_is_that_of_the_closed_form() -> None:
    """Delay: Σ wΔ/ρ is least at ρ = B√(wΔ)/Σ√(wΔ), where it is (Σ√(wΔ))²/B."""
    _, log = simulated(81, 12, 15)
    model = MaximumLikelihood().fit(log)
    spread = plan_uncertainty(problem_of(AccumulatedDelay(Refresh.POISSON), 12, 5.0), model, draws=30, seed=4)
    weight, estimate = np.linspace(1.0, 3.0, 12), model.change_rate_[::-1]
    root = np.sqrt(weight * estimate)
    plan = 5.0 * root / root.sum()
    np.testing.assert_allclose(spread.solution.rates, plan, rtol=SCALAR)
    drawn = model.draws(30, 4)[:, ::-1]
    np.testing.assert_allclose(spread.change_rates, drawn, rtol=EXACT)
    roots = np.sqrt(weight * drawn)
    optimal = roots.sum(axis=1) ** 2 / 5.0
    planned = np.sum(weight * drawn / plan, axis=1)
    np.testing.assert_allclose(spread.optimal, optimal, rtol=SCALAR)
    np.testing.assert_allclose(spread.planned, planned, rtol=SCALAR)
    np.testing.assert_allclose(spread.regret, planned - optimal, rtol=1e-6)
    np.testing.assert_allclose(spread.rates, 5.0 * roots / roots.sum(axis=1, keepdims=True), rtol=SCALAR)
    assert spread.relative_regret == pytest.approx(np.mean(planned - optimal) / np.mean(optimal), rel=1e-6)


@pytest.mark.parametrize(
    "objective", [BinaryFreshness(Refresh.POISSON), HarmonicStaleness(fo.Refresh.PERIODIC)]
)
def test_regret_is_not_negative_and_shrinks_with_the_log(objective: fo.Objective) -> None:
    mean = []
    for crawls in (20, 320):
        _, log = simulated(82, 40, crawls)
        spread = plan_uncertainty(problem_of(objective, 40, 15.0), MaximumLikelihood().fit(log), draws=10)
        assert spread.regret.min() > -1e-9 * np.abs(spread.optimal).max()
        mean.append(spread.relative_regret)
    assert mean[1] < mean[0] / 4  # quadratic in errors that halve with four times the log: 16 times less


@pytest.mark.parametrize("draws", [5, 20, 100])
@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_the_interval_of_draws_holds_one_draw_more_as_often_as_it_says(draws: int, confidence: float) -> None:
    held = min(confidence, (draws - 1) / (draws + 1))  # between the least and the largest
    sampled = np.random.default_rng(86).random((draws, 4000))
    low, high = quantiles(sampled, confidence)
    assert np.mean(high - low) == pytest.approx(held, abs=0.01)  # uniform: the chance of one draw more


@pytest.mark.exhaustive
def test_the_truth_lies_among_the_draws() -> None:
    """The value that the plan has in truth falls into its 90 % interval in about 90 % of logs."""
    inside = 0
    for seed in range(40):
        rates, log = simulated(100 + seed, 10, 25)
        spread = plan_uncertainty(
            problem_of(AccumulatedDelay(Refresh.POISSON), 10, 5.0), MaximumLikelihood().fit(log), draws=100
        )
        truth = np.sum(np.linspace(1.0, 3.0, 10) * rates[::-1] / spread.solution.rates)
        low, high = spread.value_interval(0.9)
        inside += low <= truth <= high
    assert 30 <= inside <= 40  # of 36 expected: P < 1e-3 outside


def test_table_and_repr() -> None:
    _, log = simulated(83, 5, 20)
    spread = plan_uncertainty(
        problem_of(AccumulatedDelay(Refresh.POISSON), 5, 2.0), MaximumLikelihood().fit(log), seed=1
    )
    frame = spread.to_frame()
    assert frame["source"].to_list() == ["s004", "s003", "s002", "s001", "s000"]
    assert (frame["lower"] <= frame["upper"]).all()
    drawn = np.sort(spread.change_rates, axis=0)  # 19.95th of 20: 0.95 of the 21 gaps lie below
    np.testing.assert_allclose(frame["change_rate_upper"], 0.05 * drawn[-2] + 0.95 * drawn[-1])
    assert repr(spread).startswith("PlanUncertainty(20 draws of 5 change rates)\n  value")
    assert len(repr(spread).splitlines()) == 3
    again = plan_uncertainty(
        problem_of(AccumulatedDelay(Refresh.POISSON), 5, 2.0), MaximumLikelihood().fit(log), seed=1
    )
    np.testing.assert_array_equal(spread.planned, again.planned)


def test_baselines_are_drawn_like_the_others() -> None:
    log = fo.CrawlLog(["a", "a", "a", "b"], [0, 1, 2, 0], [0, 1, 0, 0])
    problem = fo.Problem(AccumulatedDelay(Refresh.POISSON), fo.Sources(1.0, names=["a", "b"]), 2.0)
    model = MaximumLikelihood().fit(log)
    spread = plan_uncertainty(problem, model, draws=5)
    np.testing.assert_allclose(spread.change_rates, model.draws(5, 0), rtol=EXACT)
    with_prior = plan_uncertainty(problem, MaximumLikelihood(prior=GammaPrior(2.0, 5.0)).fit(log), draws=5)
    assert len(np.unique(with_prior.change_rates[:, 1])) == 5
    with pytest.raises(fo.SourceDataError, match="nothing but baselines"):
        plan_uncertainty(problem, MaximumLikelihood(0.5).fit(fo.CrawlLog(["a", "b"], [0, 0], [0, 0])))


def test_units_are_converted() -> None:
    _, log = simulated(84, 4, 20)
    model = MaximumLikelihood().fit(log)
    names = ["s002", "s000"]
    hours = fo.Problem(AccumulatedDelay(Refresh.POISSON), fo.Sources(1.0, names=names, time_unit="hour"), 1.0)
    learnt = hours.with_estimates(model)
    np.testing.assert_allclose(learnt.sources.change_rate, model.change_rate_[[2, 0]] / 24, rtol=EXACT)
    assert hours.sources.change_rate[0] == 1.0
    assert repr(learnt.objective) == repr(hours.objective)
    spread = plan_uncertainty(hours, model, draws=3, seed=7)
    np.testing.assert_allclose(spread.change_rates, model.draws(3, 7)[:, [2, 0]] / 24, rtol=EXACT)


def test_estimates_keep_all_else() -> None:
    sources = fo.Sources(
        [1.0, 2.0], [3.0, 1.0], host=["h", "g"], min_rate=0.1, max_rate=5.0, refresh_cost=[1.0, 2.0]
    )
    problem = fo.Problem(HarmonicStaleness(Refresh.POISSON), sources, 3.0, {"h": 0.5})
    learnt = problem.with_estimates(Told(np.array([1, 0, 7]), np.array([0.25, 4.0, 9.0])))
    np.testing.assert_array_equal(learnt.sources.change_rate, [4.0, 0.25])
    for key in ("importance", "host", "min_rate", "max_rate", "refresh_cost"):
        np.testing.assert_array_equal(getattr(learnt.sources, key), getattr(sources, key))
    assert (learnt.bandwidth, learnt.host_limits) == (3.0, {"h": 0.5})
    direct = fo.Problem(HarmonicStaleness(Refresh.POISSON), learnt.sources, 3.0, {"h": 0.5})
    assert fo.solve(learnt).value == pytest.approx(fo.solve(direct).value, rel=EXACT)


EDGES = fo.CrawlLog(["always", "always", "base", "never", "never"], [0, 2, 0, 0, 4], [0, 1, 1, 0, 0])


def test_unusable_estimates_are_refused_by_name() -> None:
    problem = fo.Problem(
        AccumulatedDelay(Refresh.POISSON), fo.Sources(1.0, names=["never", "base", "always"]), 1.0
    )
    with pytest.raises(fo.SourceDataError) as caught:
        problem.with_estimates(MaximumLikelihood(smoothing=0).fit(EDGES))
    message = str(caught.value)
    for words in (
        "'never' (never changed: 0)",
        "'base' (crawled only once)",
        "'always' (always changed: inf)",
        "prior",
    ):
        assert words in message
    assert math.isfinite(fo.solve(problem.with_estimates(MaximumLikelihood().fit(EDGES))).value)
    assert math.isfinite(fo.solve(problem.with_estimates(LawOfLargeNumbers().fit(EDGES, 1.0))).value)


def test_sources_without_an_estimate_are_refused_by_name() -> None:
    model = Naive().fit(EDGES)
    named = fo.Problem(AccumulatedDelay(Refresh.POISSON), fo.Sources(1.0, names=["never", "other"]), 1.0)
    refused(r"no estimate of 'other'.*3 sources, such as 'always', 'base'", named.with_estimates, model)
    unnamed = fo.Problem(AccumulatedDelay(Refresh.POISSON), fo.Sources([1.0, 2.0]), 1.0)
    refused(r"have no names, and there is no estimate of source 0, source 1", unnamed.with_estimates, model)


def test_what_cannot_be_spread_is_refused() -> None:
    model = MaximumLikelihood().fit(EDGES)
    sources = fo.Sources(1.0, names=["never", "always"], signalled=[False, True])
    with pytest.raises(fo.SourceDataError, match=r"'always' is signalled.*signalled=False"):
        plan_uncertainty(fo.Problem(HarmonicStaleness(Refresh.POISSON), sources, 1.0), model)
    problem = fo.Problem(AccumulatedDelay(Refresh.POISSON), fo.Sources(1.0, names=["never"]), 1.0)
    refused("draws is 0", plan_uncertainty, problem, model, draws=0)


def test_what_was_not_fitted_and_numbers_out_of_range_are_refused_in_one_line() -> None:
    _, log = simulated(85, 4, 20)
    model, problem = MaximumLikelihood(), problem_of(AccumulatedDelay(Refresh.POISSON), 4, 2.0)
    refused(r"has no change rates yet. Call fit\(log\) first", problem.with_estimates, model)
    model.fit(log)
    for count in (0, -1, 2.5):
        refused("count is", model.draws, count, 0)
        refused("draws is", plan_uncertainty, problem, model, draws=count)
    refused("confidence is", plan_uncertainty(problem, model, draws=2).value_interval, 1.5)
