"""`fo.plan` and `fo.backtest`: the same answer however a log, weights, hosts and quantities are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import SourceDataError
from freshopt.estimators import GammaPrior, LawOfLargeNumbers, MaximumLikelihood, Naive
from freshopt.estimators.default_prior import MANY, default_prior
from freshopt.planning.request import as_crawl_log
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from tests.ground_truth.plans import PERIODIC, crawls, dated

ASKED: dict[str, Any] = {"bandwidth": 9.0, "horizon": 14.0, "draws": 0}


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**crawls())


@pytest.fixture(scope="module")
def plain(log: fo.CrawlLog) -> fo.Plan:
    return fo.plan(log, **ASKED)


def same(one: fo.Plan, other: fo.Plan) -> bool:
    return bool(
        np.array_equal(one.solution.rates, other.solution.rates)
        and np.array_equal(one.schedule.time, other.schedule.time)
        and np.array_equal(one.schedule.source, other.schedule.source)
    )


@pytest.mark.exhaustive
def test_a_log_may_be_a_file_or_a_dataframe_of_any_library(plain: fo.Plan, tmp_path: Path) -> None:
    columns = {key: np.asarray(value) for key, value in crawls().items()}
    frame = pl.DataFrame(columns)
    frame.write_csv(tmp_path / "log.csv")
    frame.write_parquet(tmp_path / "log.parquet")
    for given in (frame, pd.DataFrame(columns), tmp_path / "log.csv", str(tmp_path / "log.parquet")):
        assert same(fo.plan(given, **ASKED), plain)
    with pytest.raises(SourceDataError, match="the log is a list, not a dataframe"):
        fo.plan([1, 2], **ASKED)
    with pytest.raises(SourceDataError, match=r"there is no file .*no\.csv"):
        fo.plan(tmp_path / "no.csv", **ASKED)


def test_quantities_may_carry_their_units(log: fo.CrawlLog, plain: fo.Plan) -> None:
    assert same(fo.plan(log, bandwidth="9/day", horizon="2w", draws=0), plain)
    bounded = fo.plan(log, 9.0, 14.0, min_rate=0.5, max_rate=0.9, draws=0)
    assert same(fo.plan(log, "9/day", "14d", min_rate="0.5/day", max_rate="0.9/day", draws=0), bounded)
    hours = fo.plan(pl.DataFrame(dated(crawls())), "9/day", "14d", draws=0, time_unit="hour")
    assert hours.schedule.horizon == 14 * 24
    assert hours.solution.problem.bandwidth == pytest.approx(9 / 24, rel=1e-15)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bandwidth": "9 apples"}, "bandwidth: '9 apples'"),
        ({"bandwidth": None}, "bandwidth is None, not a number. Pass a rate such as"),
        ({"horizon": "3/day"}, "horizon: '3/day' is a rate, not a duration"),
        ({"horizon": True}, "horizon is True"),
        ({"min_rate": -1.0}, "min_rate is -1.0"),
        ({"importance": [1.0, 2.0]}, "importance has shape .2,. but the log has 12 sources"),
        ({"importance": {"s00": 1.0}}, "there is no importance for 's01'"),
        (
            {"importance": pl.DataFrame({"source": ["s00", "s00"], "importance": [1, 2]})},
            "more than one impor",
        ),
        ({"importance": pl.DataFrame({"source": ["s00"]})}, "no column 'importance'"),
        ({"time_unit": "hour"}, "time_unit is 'hour', but the log is in days"),
        ({"estimator": MaximumLikelihood}, "Pass an instance, such as MaximumLikelihood"),
        ({"estimator": "naive"}, "estimator is 'naive'"),
        ({"hosts": {"s00": "a"}, "host_limits": {"a": "x"}}, "the limit of host 'a': 'x'"),
        ({"host_limits": {"a": 1.0}}, "no host can be read from"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_arguments_end_in_one_line(changes: dict[str, Any], message: str, log: fo.CrawlLog) -> None:
    with pytest.raises(SourceDataError, match=message):
        fo.plan(log, **{**ASKED, **changes})


def test_an_objective_is_an_instance(log: fo.CrawlLog) -> None:
    for wrong in ("harmonic", HarmonicStaleness):
        with pytest.raises(TypeError, match="objective is of type"):
            fo.plan(log, **ASKED, objective=wrong)  # type: ignore[arg-type]


@pytest.mark.exhaustive
def test_weights_and_hosts_by_name_table_array_or_function_are_one(log: fo.CrawlLog) -> None:
    names = log.sources_.tolist()
    weight, host = np.linspace(1.0, 3.0, len(names)), ["x" if k % 2 else "y" for k in range(len(names))]
    by_name, of_host = dict(zip(names, weight.tolist(), strict=True)), dict(zip(names, host, strict=True))
    frames = (
        pl.DataFrame({"source": names, "importance": weight}),
        pd.DataFrame({"source": names[::-1], "host": host[::-1]}),
    )
    forms: list[tuple[Any, Any]] = [
        (by_name, of_host),
        (weight, np.array(host)),
        frames,
        (lambda asked: np.array([by_name[name] for name in asked.tolist()]), of_host),
    ]
    limits = {"x": "2/day"}
    made = [fo.plan(log, **ASKED, importance=w, hosts=h, host_limits=limits) for w, h in forms]
    assert all(same(one, made[0]) for one in made[1:])
    assert made[0].sources.importance.tolist() == weight.tolist()
    on_x = np.array(host) == "x"
    assert made[0].solution.rates[on_x].sum() == pytest.approx(2.0, rel=1e-12)
    scaled = fo.plan(log, **ASKED, importance=2.0)
    assert scaled.solution.value == pytest.approx(2.0 * fo.plan(log, **ASKED).solution.value, rel=1e-12)


def test_the_default_estimator_learns_a_prior_where_there_are_sources_enough(log: fo.CrawlLog) -> None:
    assert len(log.sources_) < MANY
    weak = GammaPrior.weak(log)
    assert default_prior(log) == weak
    few = MaximumLikelihood(prior=weak).fit(log)
    assert np.array_equal(fo.plan(log, **ASKED).sources.change_rate, few.change_rate_)
    rng = np.random.default_rng(3)
    rows = [(k, day, rng.random() < 0.1 + 0.02 * k) for k in range(MANY) for day in range(9)]
    source, time, changed = zip(*rows, strict=True)
    many = fo.CrawlLog(source, time, changed)
    prior = default_prior(many)
    assert isinstance(prior, GammaPrior)
    own = MaximumLikelihood(prior=prior).fit(many)
    assert np.array_equal(fo.plan(many, **ASKED).sources.change_rate, own.change_rate_)
    never = fo.CrawlLog(source, time, np.zeros(len(rows)))
    assert default_prior(never) == GammaPrior.weak(never)
    once = fo.CrawlLog(["a", "b"], [0.0, 0.0], [0, 0])
    assert default_prior(once) is None
    with pytest.raises(fo.SourceDataError, match="does not tell the change rate of 'a'"):
        fo.plan(once, **ASKED)


def test_estimators_are_fitted_to_the_log(log: fo.CrawlLog) -> None:
    made = fo.plan(log, **ASKED, estimator=Naive())
    assert np.array_equal(made.sources.change_rate, Naive().fit(log).change_rate_)
    rated = fo.plan(log, **ASKED, estimator=LawOfLargeNumbers())
    assert np.array_equal(
        rated.sources.change_rate, LawOfLargeNumbers().fit(log, log.crawl_rate).change_rate_
    )
    fitted = fo.plan(log, **ASKED, estimator=lambda crawled: MaximumLikelihood(2.0).fit(crawled))
    assert np.array_equal(fitted.sources.change_rate, MaximumLikelihood(2.0).fit(log).change_rate_)


def test_a_plan_has_what_was_found_and_writes_it(log: fo.CrawlLog, tmp_path: Path) -> None:
    steps: list[str] = []
    made = fo.plan(
        log, **{**ASKED, "draws": 3}, objective=BinaryFreshness(PERIODIC), on_progress=steps.append
    )
    assert made.problem is made.solution.problem
    assert made.sources is made.problem.sources
    assert "uncertainty" in steps
    assert made.uncertainty is not None
    assert made.findings["frontier"]
    files = made.write(tmp_path / "plan", csv=True)
    assert sorted(files) == sorted(path.name for path in (tmp_path / "plan").iterdir())
    with pytest.raises(SourceDataError, match="overwrite"):
        made.write(tmp_path / "plan")
    page = made.report()
    assert page.startswith("<!DOCTYPE html>")
    assert "Refresh plan for 12 sources" in page
    frame = made._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert "&lt;!DOCTYPE html&gt;" in frame
    assert page._repr_html_() == frame
    told = repr(made).splitlines()
    assert [line.split()[0] for line in told][:3] == ["log", "change", "objective"]
    assert any(line.startswith("certificate") and "relative duality gap" in line for line in told)
    assert any("shadow price" in line and "per refresh/day" in line for line in told)


def test_the_schedule_of_a_dated_log_starts_at_its_end() -> None:
    made = fo.plan(fo.CrawlLog(**dated(crawls())), **ASKED)
    assert made.log.origin is not None
    end = np.datetime64(made.log.origin.replace(tzinfo=None)) + np.rint(made.log.end * 86400e6).astype(
        "m8[us]"
    )
    assert made.schedule.start == end
    first = made.schedule.due(end + np.timedelta64(1, "D"))
    assert 0 < len(first) < len(made.schedule)
    assert first.time.tolist() == made.schedule.time[made.schedule.time <= 1.0].tolist()


def test_a_change_history_is_planned_for_by_daily_crawls_and_tested_against_all_changes() -> None:
    world = fo.World.poisson(fo.Sources([0.2, 1.5, 0.7], name=["a", "b", "c"]), seed=2)
    offsets, time = world.events(0.0, 200.0)
    source = np.repeat(["a", "b", "c"], np.diff(offsets))
    history = fo.ChangeHistory(source, time, 0.0, 200.0)
    crawled, known = as_crawl_log(history, None)
    assert known is history
    made = fo.plan(history, bandwidth=3.0, horizon=7.0, draws=0)
    assert np.array_equal(made.sources.change_rate, fo.plan(crawled, 3.0, 7.0, draws=0).sources.change_rate)
    held = fo.backtest(history, bandwidth=3.0)
    rules = ["uniform", "proportional", "∝ √(w·Δ)", "best static in hindsight"]
    assert [row.policy for row in held.means] == ["plan", *rules]
    from_log = fo.backtest(crawled, bandwidth="3/day")
    policies = [row.policy for row in from_log.means]
    assert policies == ["plan", "rates in force", *rules, "current", "plan at current"]
    both = fo.backtest(crawled, bandwidth=3.0, history=history, every="20d")
    assert [row.policy for row in both.means] == ["plan", "re-planned", *policies[1:]]
    assert both.means[0].realised == pytest.approx(held.means[0].realised, rel=1e-12)


def test_a_backtest_takes_what_a_plan_takes() -> None:
    rng = np.random.default_rng(5)
    names = ["a", "b", "c"]
    rows = [
        (name, day, rng.random() < p)
        for name, p in zip(names, (0.1, 0.4, 0.9), strict=True)
        for day in range(80)
    ]
    source, time, changed = zip(*rows, strict=True)
    log = fo.CrawlLog(source, time, changed)
    asked: dict[str, Any] = {
        "objective": BinaryFreshness(PERIODIC),
        "importance": {"a": 5.0, "b": 1.0, "c": 1.0},
        "hosts": dict.fromkeys(names, "h"),
        "host_limits": {"h": 1.5},
        "estimator": MaximumLikelihood(1.0),
    }
    held = fo.backtest(log, bandwidth=2.0, share=0.5, splits=1, **asked)
    assert held.to_frame()["refreshes"][0] == pytest.approx(1.5, rel=0.1)
    assert held.begin == pytest.approx(39.5)
    assert fo.plan(log, 2.0, 7.0, draws=0, **asked).solution.rates.sum() == pytest.approx(1.5, rel=1e-12)
