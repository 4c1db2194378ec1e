"""`make_plan`: every number of the summary follows from the tables; what files say, and when they appear."""

import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import freshopt as fo
from freshopt.estimators import MaximumLikelihood, Naive
from freshopt.planning import plan as planning
from freshopt.planning import plan_files
from freshopt.planning.plan import Plan, make_plan
from freshopt.planning.plan_files import summary, write_plan
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from tests.ground_truth import plans
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

STEPS = ["change rates", "refresh rates", "weekly cycle", "baselines", "today", "schedule", "findings"]


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**plans.crawls())


@pytest.mark.parametrize("objective", plans.OBJECTIVES, ids=repr)
@pytest.mark.sampled(4)
def test_the_summary_follows_from_the_tables(
    objective: fo.Objective, log: fo.CrawlLog, tmp_path: Path
) -> None:
    made = make_plan(log, plans.plan_request(objective))
    names = write_plan(made, tmp_path / "plan", csv=True)
    assert sorted(names) == sorted(path.name for path in (tmp_path / "plan").iterdir())
    facts, change_rates, rates, schedule = plans.read(tmp_path / "plan")
    assert change_rates.columns == ["source", "change_rate", "lower", "upper", "flag"]
    assert rates.columns == ["source", "rate", "interval"]
    assert schedule.columns == ["source", "time"]
    assert change_rates["source"].to_list() == rates["source"].to_list() == log.names.tolist()
    delta, rho = change_rates["change_rate"].to_numpy(), rates["rate"].to_numpy()
    assert np.all((change_rates["lower"].to_numpy() < delta) & (delta < change_rates["upper"].to_numpy()))
    some = rho > 0.0
    np.testing.assert_allclose(rates["interval"].to_numpy()[some], 1.0 / rho[some], rtol=EXACT)
    assert rates.filter(pl.col("rate") == 0.0)["interval"].null_count() == np.count_nonzero(~some)

    assert (facts["objective"], facts["discipline"]) == (type(objective).__name__, objective.refresh.value)
    assert facts["sense"] == ("maximise" if isinstance(objective, BinaryFreshness) else "minimise")
    assert (facts["time_unit"], facts["bandwidth"], facts["horizon"]) == ("day", 9.0, 14.0)
    assert list(facts)[:5] == ["saving", "fresh", "bandwidth", "bandwidth_used", "n"]
    assert facts["saving"] == pytest.approx(
        1.0 - facts["today"]["needed"] / facts["today"]["bandwidth"], rel=EXACT
    )
    assert facts["fresh"] == facts["findings"]["fresh"]["plan"]
    assert facts["bandwidth_used"] == pytest.approx(math.fsum(rho), rel=EXACT)
    assert facts["bandwidth_used"] == pytest.approx(9.0, rel=EXACT)
    assert facts["value"] == pytest.approx(
        float(np.sum(plans.cell(objective, delta[some], rho[some]))), rel=SCALAR
    )
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
        value = float(np.sum(plans.cell(objective, delta, other)))
        assert facts["baselines"][name] == pytest.approx(value, rel=SCALAR)
        # Where a rule is optimal itself, rounding decides which is less.
        as_good = value == pytest.approx(facts["value"], rel=EXACT)
        assert as_good or (value < facts["value"]) == (facts["sense"] == "maximise")
    assert list(facts["seconds"]) == STEPS
    assert set(facts["versions"]) == {"python", "freshopt", "numpy", "scipy", "polars"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", plans.OBJECTIVES[::2], ids=repr)
def test_the_price_is_the_marginal_gain_and_bounds_a_whole_refresh(
    objective: fo.Objective, log: fo.CrawlLog
) -> None:
    less, same, more, much = (
        make_plan(log, plans.plan_request(objective, bandwidth=b)).solution for b in (8.999, 9.0, 9.001, 10.0)
    )
    gain = abs(more.value - less.value) / 0.002
    assert same.price == pytest.approx(gain, rel=1e-6)
    assert 0.5 * same.price < abs(much.value - same.value) < same.price


@pytest.mark.parametrize("objective", plans.OBJECTIVES[::2], ids=repr)
@pytest.mark.sampled(3)
def test_the_schedules_value_is_what_simulated_changes_cost(
    objective: fo.Objective, log: fo.CrawlLog, tmp_path: Path
) -> None:
    write_plan(make_plan(log, plans.plan_request(objective)), tmp_path / "plan")
    facts, change_rates, _, schedule = plans.read(tmp_path / "plan")
    rng, runs, horizon = np.random.default_rng(7), 4000, 14.0
    cost = np.zeros(runs)
    for name, delta in change_rates.select("source", "change_rate").iter_rows():
        age = log.end - float(log.last_crawl[log.names == name][0])
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
    write_plan(make_plan(log, plans.plan_request()), tmp_path / "plan")
    _, _, rates, schedule = plans.read(tmp_path / "plan")
    assert schedule["time"].is_sorted()
    assert 0.0 <= schedule["time"].to_numpy().min() <= schedule["time"].to_numpy().max() < 14.0
    for name, rate, interval in rates.iter_rows():
        own = schedule.filter(pl.col("source") == name)["time"].to_numpy()
        assert len(own) in (math.floor(rate * 14.0), math.ceil(rate * 14.0))
        np.testing.assert_allclose(np.diff(own), interval, rtol=SCALAR)
    assert abs(len(schedule) - 9.0 * 14.0) <= len(rates)


def test_poisson_refreshes_are_seeded_and_as_many_as_planned(log: fo.CrawlLog) -> None:
    wanted = plans.plan_request(HarmonicStaleness(plans.POISSON), horizon=2000.0, seed=3)
    one, same = make_plan(log, wanted).schedule, make_plan(log, wanted).schedule
    other = make_plan(log, plans.plan_request(HarmonicStaleness(plans.POISSON), horizon=2000.0, seed=4))
    np.testing.assert_array_equal(one.time, same.time)
    assert len(other.schedule) != len(one) or bool(np.any(other.schedule.time != one.time))
    assert other.schedule.method == "PoissonArrivals(seed=4)"
    expected = other.solution.rates * 2000.0
    assert np.all(np.abs(one.counts - expected) < 5.0 * np.sqrt(expected))


@pytest.mark.exhaustive
def test_importance_bounds_and_confidence_are_what_was_wished(log: fo.CrawlLog) -> None:
    seen: list[str] = []

    def weigh(names: npt.NDArray[Any]) -> plans.Floats:
        seen.extend(names.tolist())
        return np.where(names == "s03", 25.0, 1.0)

    plain, heavy = make_plan(log, plans.plan_request()), make_plan(log, plans.plan_request(importance=weigh))
    assert seen == log.names.tolist()
    assert heavy.solution.rates[3] > 2.0 * plain.solution.rates[3]
    assert math.fsum(heavy.solution.rates) == pytest.approx(9.0, rel=EXACT)
    bounded = make_plan(log, plans.plan_request(min_rate=0.5, max_rate=0.9))
    assert bounded.solution.rates.min() == 0.5
    assert bounded.solution.rates.max() == 0.9
    counts = plan_files.summary(bounded)["counts"]
    assert counts["at_min_rate"] == np.count_nonzero(bounded.solution.rates == 0.5) > 0
    assert counts["at_max_rate"] == np.count_nonzero(bounded.solution.rates == 0.9) > 0
    wide = make_plan(log, plans.plan_request(confidence=0.999))
    assert np.all((wide.lower < plain.lower) & (wide.upper > plain.upper))
    rough = make_plan(log, plans.plan_request(estimator=MaximumLikelihood(5.0).fit))
    assert np.all(rough.estimate.change_rate_ != plain.estimate.change_rate_)


def test_steps_are_reported_as_they_begin(log: fo.CrawlLog) -> None:
    steps: list[str] = []
    made = make_plan(log, plans.plan_request(), steps.append)
    assert steps == [*STEPS, "done"]
    assert list(made.seconds) == steps[:-1]
    assert all(seconds >= 0.0 for seconds in made.seconds.values())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"min_rate": 1.0}, fo.InfeasibleProblemError, "need 12 refreshes/day but bandwidth is 9"),
        ({"min_rate": 0.5, "max_rate": 0.1}, fo.SourceDataError, "max_rate for all sources: 0.5 > 0.1"),
        ({"bandwidth": 0.0}, fo.FreshoptError, "bandwidth is 0"),
        ({"horizon": 0.0}, fo.SourceDataError, "horizon is 0"),
        ({"horizon": math.inf}, fo.SourceDataError, "horizon is inf"),
        ({"horizon": 1e12}, fo.SourceDataError, "GiB"),
        ({"confidence": 1.0}, fo.SourceDataError, "confidence is 1"),
        ({"importance": lambda names: -np.ones(len(names))}, fo.SourceDataError, "importance out of range"),
        ({"importance": lambda _: np.ones(3)}, fo.SourceDataError, "importance has length 3"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wishes_that_cannot_be_met_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str, log: fo.CrawlLog
) -> None:
    refused(message, make_plan, log, plans.plan_request(**changes), error=error)


def test_what_only_smoothing_could_tell_is_refused_without_it() -> None:
    log = fo.CrawlLog(
        ["a", "a", "b", "c", "c", "d", "d", "d"], [0, 1, 0, 0, 1, 0, 1, 2], [0, 0, 0, 0, 1, 0, 1, 0]
    )
    assert len(make_plan(log, plans.plan_request()).solution.rates) == 4
    message = (
        r"rate of 'a' \(never changed\), 'b' \(crawled only once\), 'c' \(always changed\)\. Leave smoothing"
    )
    refused(message, make_plan, log, plans.plan_request(estimator=MaximumLikelihood(0.0).fit))


def test_draws_tell_what_uncertainty_costs() -> None:
    log = fo.CrawlLog(["a"] * 6 + ["b"] * 6, [0, 1, 2, 3, 4, 5] * 2, [0, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0])
    assert summary(make_plan(log, plans.plan_request()))["uncertainty"] is None
    told = summary(make_plan(log, plans.plan_request(draws=8)))["uncertainty"]
    low, high = told["value_90_percent"]
    assert told["draws"] == 8
    assert 0 < low < high
    assert 0 <= told["mean_regret"] <= told["largest_regret"]
    assert told["relative_regret"] > 0


def test_any_estimator_can_be_asked_for() -> None:
    log = fo.CrawlLog(["a"] * 6 + ["b"] * 6, [0, 1, 2, 3, 4, 5] * 2, [0, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0])
    made = make_plan(log, plans.plan_request(estimator=Naive(half_life=2.0).fit))
    assert summary(made)["change_rate"]["estimator"] == "Naive(floor=None, half_life=2.0)"
    np.testing.assert_array_equal(made.estimate.change_rate_, made.solution.problem.sources.change_rate)


def test_failing_attempts_are_compared_with_attempts(log: fo.CrawlLog) -> None:
    made = make_plan(
        log, plans.plan_request(HarmonicStaleness(plans.POISSON), success=lambda names: [0.5] * len(names))
    )
    moved = summary(made)["moved"]
    assert moved["crawled"] == pytest.approx(2.0 * float(np.sum(log.crawl_rate)), rel=EXACT)


def test_bounds_beyond_the_logs_own_crawls_say_whose_bandwidth_it_is(log: fo.CrawlLog) -> None:
    with pytest.raises(fo.InfeasibleProblemError, match="the log's own crawls; set another"):
        fo.plan(log, None, "7d", min_rate=100.0)
    with pytest.raises(fo.InfeasibleProblemError) as given:
        fo.plan(log, 9.0, "7d", min_rate=100.0)
    assert "own crawls" not in str(given.value)


def write_bytes(made: Plan, folder: Path) -> dict[str, bytes]:
    write_plan(made, folder, overwrite=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_log_with_dates_gives_moments_counted_from_its_end(tmp_path: Path) -> None:
    columns = plans.crawls()
    write_plan(make_plan(fo.CrawlLog(**plans.dated(columns)), plans.plan_request()), tmp_path / "dated")
    write_plan(make_plan(fo.CrawlLog(**columns), plans.plan_request()), tmp_path / "numbers")
    _, _, rates, schedule = plans.read(tmp_path / "dated")
    _, _, same_rates, same_schedule = plans.read(tmp_path / "numbers")
    assert same_schedule.columns == ["source", "time"]
    assert schedule.schema == {
        "source": pl.String(),
        "time": pl.Float64(),
        "timestamp": pl.Datetime("us", "UTC"),
    }
    np.testing.assert_allclose(rates["rate"].to_numpy(), same_rates["rate"].to_numpy(), rtol=1e-6)
    end = plans.BEGIN + timedelta(days=float(np.max(columns["time"])))
    for time, moment in schedule.select("time", "timestamp").iter_rows():
        assert abs(moment - (end + timedelta(days=time))) <= timedelta(microseconds=2)


def test_in_hours_everything_is_the_same_but_the_unit() -> None:
    days, hours = (fo.CrawlLog(**plans.dated(plans.crawls()), time_unit=unit) for unit in ("day", "hour"))
    one = make_plan(days, plans.plan_request())
    other = make_plan(hours, plans.plan_request(bandwidth=9.0 / 24.0, horizon=14.0 * 24.0))
    np.testing.assert_allclose(other.solution.rates * 24.0, one.solution.rates, rtol=SCALAR)
    np.testing.assert_allclose(other.schedule.time / 24.0, one.schedule.time, rtol=SCALAR)
    assert other.solution.value == pytest.approx(one.solution.value, rel=SCALAR)
    assert other.schedule_value == pytest.approx(one.schedule_value, rel=SCALAR)
    frames = [plan_files.tables(plan)["schedule"]["timestamp"].to_list() for plan in (one, other)]
    assert all(abs(a - b) <= timedelta(microseconds=2) for a, b in zip(*frames, strict=True))


@pytest.mark.parametrize("csv", [False, True])
@pytest.mark.sampled(2)
def test_the_order_of_the_rows_does_not_show(
    csv: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another minute may begin between the two, and the page tells when a plan was made.
    monkeypatch.setattr(plan_files, "moment_made", lambda: "2026-01-05 06:00 UTC")
    columns = plans.dated(plans.crawls())
    shuffled = np.random.default_rng(0).permutation(len(columns["time"]))
    for name, order in (("one", np.arange(len(shuffled))), ("two", shuffled)):
        log = fo.CrawlLog(**{key: value[order] for key, value in columns.items()})
        write_plan(make_plan(log, plans.plan_request()), tmp_path / name, csv=csv)
    for path in sorted((tmp_path / "one").iterdir()):
        one, two = path.read_bytes(), (tmp_path / "two" / path.name).read_bytes()
        if path.name == "summary.json":
            facts, others = json.loads(one), json.loads(two)
            assert facts.pop("seconds").keys() == others.pop("seconds").keys()
            assert facts == others
        else:
            assert one == two, path.name


def test_integers_stay_integers(tmp_path: Path) -> None:
    columns = plans.crawls()
    columns["source"] = np.array([int(name[1:]) * 10 for name in columns["source"]])
    write_plan(make_plan(fo.CrawlLog(**columns), plans.plan_request()), tmp_path / "plan")
    for frame in plans.read(tmp_path / "plan")[1:]:
        assert frame["source"].dtype.is_integer()
        assert set(frame["source"].to_list()) <= set(range(0, 120, 10))


def test_a_plan_replaces_an_earlier_one_only_when_told_and_then_as_a_whole(
    log: fo.CrawlLog, tmp_path: Path
) -> None:
    folder = tmp_path / "plan"
    made = make_plan(log, plans.plan_request())
    before = write_bytes(made, folder)
    refused("already holds a result", write_plan, made, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(write_plan(made, folder, csv=True, overwrite=True)) == sorted(
        path.name for path in folder.iterdir()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_nothing_appears_and_nothing_is_lost_if_writing_fails(
    log: fo.CrawlLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plan"
    made = make_plan(log, plans.plan_request())
    before = write_bytes(made, folder)

    def fail(plan: Plan) -> dict[str, Any]:
        raise OSError(28, f"No space left on device, {len(plan.log)} rows")

    monkeypatch.setattr("freshopt.planning.plan.summary", fail)  # the tables are there by then
    for target in (folder, tmp_path / "new"):
        refused(r"No space left.*Make room", write_plan, made, target, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_sources_that_are_never_refreshed_have_no_interval(log: fo.CrawlLog, tmp_path: Path) -> None:
    write_plan(
        make_plan(log, plans.plan_request(BinaryFreshness(plans.PERIODIC), bandwidth=0.3)), tmp_path / "plan"
    )
    facts, _, rates, schedule = plans.read(tmp_path / "plan")
    never = rates.filter(pl.col("rate") == 0.0)
    assert facts["counts"]["never_refreshed"] == len(never) > 0
    assert never["interval"].null_count() == len(never)
    assert not set(never["source"].to_list()) & set(schedule["source"].to_list())
