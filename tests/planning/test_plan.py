"""`make_plan`: every number of the summary recomputed from the tables that were written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import FreshoptError, InfeasibleProblemError, SourceDataError
from freshopt.estimators import MaximumLikelihood, Naive
from freshopt.planning import plan as planning
from freshopt.planning import plan_files
from freshopt.planning.plan import make_plan
from freshopt.planning.plan_files import summary, write_plan
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from tests.ground_truth.plans import OBJECTIVES, POISSON, Floats, cell, crawls, plan_request, read
from tests.ground_truth.tolerances import EXACT, SCALAR

STEPS = ["change rates", "refresh rates", "weekly cycle", "baselines", "today", "schedule", "findings"]


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**crawls())


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.sampled(4)
def test_the_summary_follows_from_the_tables(
    objective: fo.Objective, log: fo.CrawlLog, tmp_path: Path
) -> None:
    made = make_plan(log, plan_request(objective))
    names = write_plan(made, tmp_path / "plan", csv=True)
    assert sorted(names) == sorted(path.name for path in (tmp_path / "plan").iterdir())
    facts, change_rates, rates, schedule = read(tmp_path / "plan")
    assert change_rates.columns == ["source", "change_rate", "lower", "upper", "flag"]
    assert rates.columns == ["source", "rate", "interval"]
    assert schedule.columns == ["source", "time"]
    assert change_rates["source"].to_list() == rates["source"].to_list() == log.sources_.tolist()
    delta, rho = change_rates["change_rate"].to_numpy(), rates["rate"].to_numpy()
    assert np.all((change_rates["lower"].to_numpy() < delta) & (delta < change_rates["upper"].to_numpy()))
    some = rho > 0.0
    np.testing.assert_allclose(rates["interval"].to_numpy()[some], 1.0 / rho[some], rtol=EXACT)
    assert rates.filter(pl.col("rate") == 0.0)["interval"].null_count() == np.count_nonzero(~some)

    assert (facts["objective"], facts["discipline"]) == (type(objective).__name__, objective.refresh.value)
    assert facts["sense"] == ("maximise" if isinstance(objective, BinaryFreshness) else "minimise")
    assert (facts["time_unit"], facts["bandwidth"], facts["horizon"]) == ("day", 9.0, 14.0)
    assert facts["bandwidth_used"] == pytest.approx(math.fsum(rho), rel=EXACT)
    assert facts["bandwidth_used"] == pytest.approx(9.0, rel=EXACT)
    assert facts["value"] == pytest.approx(float(np.sum(cell(objective, delta[some], rho[some]))), rel=SCALAR)
    assert facts["status"] == "optimal"
    assert facts["relative_gap"] <= planning.TOLERANCE
    assert abs(facts["value"] - facts["bound"]) <= facts["gap"] + EXACT * abs(facts["value"])
    counts = facts["counts"]
    assert counts["sources"] == len(rates)
    assert counts["crawls"] == len(log)
    assert counts["crawls_that_found_a_change"] == np.count_nonzero(log.changed)
    assert counts["never_refreshed"] == np.count_nonzero(~some)
    assert counts["refreshes"] == len(schedule)
    assert counts["flags"] == dict(change_rates["flag"].value_counts().iter_rows())
    assert facts["change_rate"]["sum"] == pytest.approx(math.fsum(delta), rel=EXACT)
    assert facts["change_rate"]["median"] == pytest.approx(float(np.median(delta)), rel=EXACT)
    uniform = np.full(len(delta), 9.0 / len(delta))
    proportional = 9.0 * delta / math.fsum(delta)
    root = 9.0 * np.sqrt(delta) / math.fsum(np.sqrt(delta))
    rules = (("uniform", uniform), ("proportional", proportional), ("square-root", root))
    for name, other in rules:
        value = float(np.sum(cell(objective, delta, other)))
        assert facts["baselines"][name] == pytest.approx(value, rel=SCALAR)
        # Where a rule is optimal itself, rounding decides which is less.
        as_good = value == pytest.approx(facts["value"], rel=EXACT)
        assert as_good or (value < facts["value"]) == (facts["sense"] == "maximise")
    assert list(facts["seconds"]) == STEPS
    assert set(facts["versions"]) == {"python", "freshopt", "numpy", "scipy", "polars"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", OBJECTIVES[::2], ids=repr)
def test_the_price_is_the_marginal_gain_and_bounds_a_whole_refresh(
    objective: fo.Objective, log: fo.CrawlLog
) -> None:
    less, same, more, much = (
        make_plan(log, plan_request(objective, bandwidth=b)).solution for b in (8.999, 9.0, 9.001, 10.0)
    )
    gain = abs(more.value - less.value) / 0.002
    assert same.price == pytest.approx(gain, rel=1e-6)
    assert 0.5 * same.price < abs(much.value - same.value) < same.price


@pytest.mark.parametrize("objective", OBJECTIVES[::2], ids=repr)
@pytest.mark.sampled(3)
def test_the_schedules_value_is_what_simulated_changes_cost(
    objective: fo.Objective, log: fo.CrawlLog, tmp_path: Path
) -> None:
    write_plan(make_plan(log, plan_request(objective)), tmp_path / "plan")
    facts, change_rates, _, schedule = read(tmp_path / "plan")
    rng, runs, horizon = np.random.default_rng(7), 4000, 14.0
    cost = np.zeros(runs)
    for name, delta in change_rates.select("source", "change_rate").iter_rows():
        age = log.end - float(log.last_crawl[log.sources_ == name][0])
        ends = [*schedule.filter(pl.col("source") == name)["time"].to_list(), horizon]
        for begin, end in zip([-age, *ends[:-1]], ends, strict=True):
            # The m-th change after `begin` falls on the sum of m exponential gaps.
            most = int(delta * (end - begin) + 12 * math.sqrt(delta * (end - begin)) + 12)
            at = begin + np.cumsum(rng.exponential(1.0 / delta, (runs, most)), axis=1)
            weight = (
                1.0 / np.arange(1, most + 1) if isinstance(objective, HarmonicStaleness) else np.ones(most)
            )
            if isinstance(objective, BinaryFreshness):
                weight[1:] = 0.0
            cost += np.maximum(end - np.maximum(at, 0.0), 0.0) @ weight / horizon
    mean, error = float(np.mean(cost)), float(np.std(cost)) / math.sqrt(runs)
    mean = len(change_rates) - mean if isinstance(objective, BinaryFreshness) else mean
    assert abs(facts["schedule_value"] - mean) < 4.0 * error  # false alarm once in 16 000
    assert error < 0.01 * mean


def test_periodic_refreshes_are_counted_right_and_evenly_apart(log: fo.CrawlLog, tmp_path: Path) -> None:
    write_plan(make_plan(log, plan_request()), tmp_path / "plan")
    _, _, rates, schedule = read(tmp_path / "plan")
    assert schedule["time"].is_sorted()
    assert 0.0 <= schedule["time"].to_numpy().min() <= schedule["time"].to_numpy().max() < 14.0
    for name, rate, interval in rates.iter_rows():
        own = schedule.filter(pl.col("source") == name)["time"].to_numpy()
        assert len(own) in (math.floor(rate * 14.0), math.ceil(rate * 14.0))
        np.testing.assert_allclose(np.diff(own), interval, rtol=SCALAR)
    assert abs(len(schedule) - 9.0 * 14.0) <= len(rates)


def test_poisson_refreshes_are_seeded_and_as_many_as_planned(log: fo.CrawlLog) -> None:
    wanted = plan_request(HarmonicStaleness(POISSON), horizon=2000.0, seed=3)
    one, same = make_plan(log, wanted).schedule, make_plan(log, wanted).schedule
    other = make_plan(log, plan_request(HarmonicStaleness(POISSON), horizon=2000.0, seed=4))
    np.testing.assert_array_equal(one.time, same.time)
    assert len(other.schedule) != len(one) or bool(np.any(other.schedule.time != one.time))
    assert other.schedule.method == "PoissonArrivals(seed=4)"
    expected = other.solution.rates * 2000.0
    assert np.all(np.abs(one.counts - expected) < 5.0 * np.sqrt(expected))


@pytest.mark.exhaustive
def test_importance_bounds_and_confidence_are_what_was_wished(log: fo.CrawlLog) -> None:
    seen: list[str] = []

    def weigh(names: npt.NDArray[Any]) -> Floats:
        seen.extend(names.tolist())
        return np.where(names == "s03", 25.0, 1.0)

    plain, heavy = make_plan(log, plan_request()), make_plan(log, plan_request(importance=weigh))
    assert seen == log.sources_.tolist()
    assert heavy.solution.rates[3] > 2.0 * plain.solution.rates[3]
    assert math.fsum(heavy.solution.rates) == pytest.approx(9.0, rel=EXACT)
    bounded = make_plan(log, plan_request(min_rate=0.5, max_rate=0.9))
    assert bounded.solution.rates.min() == 0.5
    assert bounded.solution.rates.max() == 0.9
    counts = plan_files.summary(bounded)["counts"]
    assert counts["at_min_rate"] == np.count_nonzero(bounded.solution.rates == 0.5) > 0
    assert counts["at_max_rate"] == np.count_nonzero(bounded.solution.rates == 0.9) > 0
    wide = make_plan(log, plan_request(confidence=0.999))
    assert np.all((wide.lower < plain.lower) & (wide.upper > plain.upper))
    rough = make_plan(log, plan_request(estimator=MaximumLikelihood(5.0).fit))
    assert np.all(rough.estimate.change_rate_ != plain.estimate.change_rate_)


def test_steps_are_reported_as_they_begin(log: fo.CrawlLog) -> None:
    steps: list[str] = []
    made = make_plan(log, plan_request(), steps.append)
    assert steps == [*STEPS, "done"]
    assert list(made.seconds) == steps[:-1]
    assert all(seconds >= 0.0 for seconds in made.seconds.values())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"min_rate": 1.0}, InfeasibleProblemError, "need 12 refreshes/day but bandwidth is 9"),
        ({"min_rate": 0.5, "max_rate": 0.1}, SourceDataError, "min_rate exceeds max_rate for 's00'"),
        ({"bandwidth": 0.0}, FreshoptError, "bandwidth is 0"),
        ({"bandwidth": math.nan}, FreshoptError, "bandwidth is nan"),
        ({"horizon": 0.0}, SourceDataError, "horizon is 0"),
        ({"horizon": math.inf}, SourceDataError, "horizon is inf"),
        ({"horizon": 1e12}, SourceDataError, "GiB"),
        ({"confidence": 1.0}, SourceDataError, "confidence is 1"),
        ({"importance": lambda names: -np.ones(len(names))}, SourceDataError, "importance out of range"),
        ({"importance": lambda _: np.ones(3)}, SourceDataError, "importance has length 3"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wishes_that_cannot_be_met_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str, log: fo.CrawlLog
) -> None:
    with pytest.raises(error, match=message):
        make_plan(log, plan_request(**changes))


def test_what_only_smoothing_could_tell_is_refused_without_it() -> None:
    log = fo.CrawlLog(
        ["a", "a", "b", "c", "c", "d", "d", "d"], [0, 1, 0, 0, 1, 0, 1, 2], [0, 0, 0, 0, 1, 0, 1, 0]
    )
    assert len(make_plan(log, plan_request()).solution.rates) == 4
    message = (
        r"rate of 'a' \(never changed\), 'b' \(baseline only\), 'c' \(always changed\)\. Leave smoothing"
    )
    with pytest.raises(SourceDataError, match=message):
        make_plan(log, plan_request(estimator=MaximumLikelihood(0.0).fit))


def test_draws_tell_what_uncertainty_costs() -> None:
    log = fo.CrawlLog(["a"] * 6 + ["b"] * 6, [0, 1, 2, 3, 4, 5] * 2, [0, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0])
    assert summary(make_plan(log, plan_request()))["uncertainty"] is None
    told = summary(make_plan(log, plan_request(draws=8)))["uncertainty"]
    low, high = told["value_90_percent"]
    assert told["draws"] == 8
    assert 0 < low < high
    assert 0 <= told["mean_regret"] <= told["largest_regret"]
    assert told["relative_regret"] > 0


def test_any_estimator_can_be_asked_for() -> None:
    log = fo.CrawlLog(["a"] * 6 + ["b"] * 6, [0, 1, 2, 3, 4, 5] * 2, [0, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0])
    made = make_plan(log, plan_request(estimator=Naive(half_life=2.0).fit))
    assert summary(made)["change_rate"]["estimator"] == "Naive(floor=None, half_life=2.0)"
    np.testing.assert_array_equal(made.estimate.change_rate_, made.solution.problem.sources.change_rate)
