"""Wishes: one table, one answer however they are given, and what does not go together is refused."""

import datetime
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import freshopt as fo
from freshopt.cli.plan import plan as command
from freshopt.estimators import GammaPrior, LawOfLargeNumbers, MaximumLikelihood, Naive
from freshopt.estimators.default_prior import MANY, default_prior
from freshopt.live.settings import SETTINGS, PlannerWishes
from freshopt.planning import request
from freshopt.planning.clashes import CLASHES, Clash, refuse_clashes
from freshopt.planning.request import as_crawl_log
from freshopt.planning.wishes import WISHES, BackTestWishes, LifetimeWishes, PlanWishes, Wishes
from freshopt.problems import BinaryFreshness, HarmonicStaleness, PowerCost, SynchronizationCost
from freshopt.problems.piecewise_linear_cost import deadline_cost
from freshopt.terminal.wish_options import option_of
from tests.ground_truth.named import PERIODIC
from tests.ground_truth.plans import crawls, dated
from tests.ground_truth.refusals import present, refused

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
    refused("the log is an int, not a dataframe", fo.plan, [1, 2], **ASKED)
    refused(r"there is no file .*no\.csv", fo.plan, tmp_path / "no.csv", **ASKED)


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
        ({"bandwidth": np.nan}, "bandwidth is nan"),
        ({"bandwidth": np.inf}, "bandwidth is inf. Pass a finite rate, such as"),
        ({"horizon": "3/day"}, "horizon: '3/day' is a rate, not a duration"),
        ({"horizon": True}, "horizon is True"),
        ({"min_rate": -1.0}, "min_rate is -1.0"),
        ({"importance": [1.0, 2.0]}, "importance has shape .2,. but the log has 12 sources"),
        ({"importance": {"s00": 1.0}}, "there is no importance for 's01'"),
        (
            {"importance": pl.DataFrame({"source": ["s00", "s00"], "importance": [1, 2]})},
            "importance names 's00' more than once",
        ),
        ({"importance": pl.DataFrame({"source": ["s00"]})}, "no column 'importance'"),
        ({"time_unit": "hour"}, "time_unit is 'hour', but the log is in days"),
        ({"estimator": MaximumLikelihood}, "Pass an instance, such as MaximumLikelihood"),
        ({"estimator": "naive"}, "estimator is 'naive'"),
        ({"hosts": {"s00": "a"}, "host_limits": {"a": "x"}}, "the limit of host 'a': 'x'"),
        ({"host_limits": {"a": "1/day"}}, "no host can be read from"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_arguments_end_in_one_line(changes: dict[str, Any], message: str, log: fo.CrawlLog) -> None:
    refused(message, fo.plan, log, **{**ASKED, **changes})


def test_the_bandwidth_is_by_default_that_of_the_logs_own_crawls(log: fo.CrawlLog) -> None:
    own = float(np.sum(log.crawl_rate))
    made = fo.plan(log, draws=0)
    assert made.problem.bandwidth == pytest.approx(own, rel=1e-12)
    assert made.schedule.horizon == 7.0
    assert present(made.today).bandwidth == made.problem.bandwidth
    target = fo.Target(BinaryFreshness(PERIODIC), at_least=0.01)
    assert fo.plan(log, constraints=[target], draws=0).problem.bandwidth == made.problem.bandwidth
    # A budget stands in its place.
    assert fo.plan(log, constraints=[fo.Budget(1.0)], draws=0).solution.rates.sum() == pytest.approx(1.0)
    failing = fo.plan(log, success=0.5, draws=0)
    assert failing.problem.bandwidth == pytest.approx(2.0 * own, rel=1e-12)
    dearer = fo.plan(log, changed_cost=3.0, draws=0)
    assert own < dearer.problem.bandwidth < 4.0 * own
    served = fo.plan_lifetimes(log, dict.fromkeys(log.names.tolist(), 9.0))
    assert served.problem.bandwidth == pytest.approx(own, rel=1e-12)
    assert served.to_frame()["rate"].to_list() == served.rates.tolist()
    assert {"change_rate", "lower", "upper", "lifetime"} <= {*served.to_frame().columns}
    held = fo.backtest(log, share=0.5, splits=1)
    assert held.means[0].bandwidth == pytest.approx(own, rel=1e-12)


NO_CRAWLS = fo.ChangeHistory(["a", "a"], [1.0, 2.0], 0.0, 60.0)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (lambda: fo.plan(NO_CRAWLS), "a history of changes tells no crawls"),
        (lambda: fo.backtest(NO_CRAWLS), "a history of changes tells no crawls"),
        (lambda: fo.plan_lifetimes(NO_CRAWLS, {"a": 1.0}), "a history of changes tells no crawls"),
        (
            lambda: fo.plan(
                fo.CrawlLog(["a"], [0.0], [0]), estimator=MaximumLikelihood(prior=GammaPrior(1.0, 1.0))
            ),
            "no source of the log was crawled twice",
        ),
    ],
)
def test_a_log_without_crawls_of_its_own_has_no_bandwidth(job: Callable[[], Any], words: str) -> None:
    refused(f"{words}.*Pass a bandwidth .*, or a freshness", job)


@pytest.mark.parametrize(
    ("name", "same_as"),
    [
        ("harmonic", HarmonicStaleness(PERIODIC)),
        ("binary", BinaryFreshness(PERIODIC)),
        ("power:0.25", SynchronizationCost(PowerCost(1.0, 0.25), PERIODIC)),
        ("deadline: 12h", SynchronizationCost(deadline_cost(0.5), PERIODIC)),
    ],
)
def test_an_objective_is_a_name_or_an_instance(
    name: str, same_as: fo.Objective, log: fo.CrawlLog, tmp_path: Path
) -> None:
    assert repr(Wishes.of(log, {"objective": name}, PlanWishes).objective) == repr(same_as)
    with fo.Planner(tmp_path, "2/day", objective=name) as planner:
        assert repr(planner.settings.objective) == repr(same_as)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("freshness", "there is no objective 'freshness'. Pass harmonic, binary"),
        ("binary:3", "'binary:3': binary takes no parameter. Pass 'binary'"),
        ("power:x", "'power:x' has no number > 0 after the colon"),
        ("deadline", "objective 'deadline' needs a deadline. Pass such as .deadline:2d"),
        ("deadline:4/day", "'4/day' is a rate, not a duration"),
        (HarmonicStaleness, "objective is of type .*Pass a name such as .binary., or an instance"),
    ],
)
def test_a_name_of_no_objective_is_refused(wrong: str, words: str, log: fo.CrawlLog) -> None:
    refused(words, fo.plan, log, objective=wrong, error=(fo.FreshoptError, TypeError), **ASKED)


@pytest.mark.exhaustive
def test_weights_and_hosts_by_name_table_array_or_function_are_one(log: fo.CrawlLog) -> None:
    names = log.names.tolist()
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
    assert len(log.names) < MANY
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
    refused("does not tell the change rate of 'a'", fo.plan, once, **ASKED)


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
    refused("overwrite", made.write, tmp_path / "plan")
    page = made.report()
    assert page.startswith("<!DOCTYPE html>")
    assert "Refresh plan for 12 sources" in page
    frame = made._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert "&lt;!DOCTYPE html&gt;" in frame
    assert page._repr_html_() == frame
    told = repr(made).splitlines()
    assert told[0].startswith("12 sources, 40 days of crawls.")
    assert any(line.startswith("Refresh every") for line in told)
    assert any(line.startswith("Proved optimal for these estimates.") for line in told)
    assert made.summary()["counts"]["sources"] == 12
    table = made.to_frame()
    assert table["refreshes"].sum() == len(made.schedule)
    first = made.schedule.to_frame().group_by("source", maintain_order=True).first().sort("source")
    assert table["next_refresh"].to_list() == first["time"].to_list()


def test_the_schedule_of_a_dated_log_starts_at_its_end() -> None:
    made = fo.plan(fo.CrawlLog(**dated(crawls())), **ASKED)
    end = np.datetime64(present(made.log.origin).replace(tzinfo=None)) + np.rint(
        made.log.end * 86400e6
    ).astype("m8[us]")
    assert made.schedule.start == end
    first = made.schedule.due(end + np.timedelta64(1, "D"))
    assert 0 < len(first) < len(made.schedule)
    assert first.time.tolist() == made.schedule.time[made.schedule.time <= 1.0].tolist()


def test_a_change_history_is_planned_for_by_daily_crawls_and_tested_against_all_changes() -> None:
    world = fo.World.poisson(fo.Sources([0.2, 1.5, 0.7], names=["a", "b", "c"]), seed=2)
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
        "host_limits": {"h": "1.5/day"},
        "estimator": MaximumLikelihood(1.0),
    }
    held = fo.backtest(log, bandwidth=2.0, share=0.5, splits=1, **asked)
    assert held.to_frame()["refreshes"][0] == pytest.approx(1.5, rel=0.1)
    assert held.begin == pytest.approx(39.5)
    assert fo.plan(log, 2.0, 7.0, draws=0, **asked).solution.rates.sum() == pytest.approx(1.5, rel=1e-12)


TAKEN: list[tuple[Callable[..., Any], type]] = [
    (fo.plan, PlanWishes),
    (fo.backtest, BackTestWishes),
    (fo.plan_lifetimes, LifetimeWishes),
    (fo.Planner, PlannerWishes),
]


def described(function: Callable[..., Any]) -> set[str]:
    """Return the parameters that a docstring describes."""
    section = (inspect.getdoc(function) or "").split("Parameters\n----------\n")[1]
    section = re.split(r"\n\n[A-Z][a-z]+\n---", section)[0]
    heads = [line.partition(" : ")[0] for line in section.splitlines() if line and not line.startswith(" ")]
    return {name.strip() for head in heads for name in head.split(",")}


@pytest.mark.parametrize(("function", "takes"), TAKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_what_a_function_takes_is_in_its_signature_and_described(
    function: Callable[..., Any], takes: type
) -> None:
    shown = inspect.signature(function).parameters
    assert set(takes.__annotations__) <= set(shown)
    assert set(shown) == described(function)
    with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'hozirno'"):
        function("nowhere", "1/day", "7d", hozirno=1.0)


def test_every_wish_is_taken_by_a_function_or_by_position() -> None:
    taken = {name for _, takes in TAKEN[:3] for name in takes.__annotations__}
    assert taken | {"bandwidth", "horizon", "requests"} == set(WISHES)
    # Columns and features of sources are kept with them, not among the settings.
    beside = {"time_unit", "objective", "source_columns", "features"}
    assert set(PlannerWishes.__annotations__) - beside == set(SETTINGS) - {"bandwidth"}


def test_options_are_those_of_the_table() -> None:
    options = {parameter.name: parameter for parameter in command.params}
    for name, one in WISHES.items():
        if one.help:
            assert options[name].opts[0] == option_of(name)
            assert getattr(options[name], "help", None) == one.help


@pytest.mark.parametrize("clash", CLASHES, ids=lambda clash: f"{clash.first} {clash.others[0]}")
def test_clashes_are_refused_in_the_words_of_the_caller(clash: Clash) -> None:
    given = {clash.first} if clash.needs else {clash.first, clash.others[-1]}
    with pytest.raises(fo.SourceDataError) as refused:
        refuse_clashes(given, lambda name: f"<{name}>")
    said = str(refused.value)
    assert said.endswith(".")
    assert said.count("<") == len(re.findall(r"<[^<>]+>", said))
    refuse_clashes({clash.first, clash.others[0], "bandwidth"} if clash.needs else ())


def test_the_earlier_name_of_wishes_is_told() -> None:
    with pytest.warns(DeprecationWarning, match=r"freshopt\.planning\.wishes\.Wishes"):
        assert request.PlanRequest is Wishes


def test_wishes_of_earlier_pickles_are_the_same(log: fo.CrawlLog) -> None:
    asked = Wishes.of(log, {"bandwidth": 3.0, "min_rate": 0.5, "host_limits": {"a": "2/day"}}, PlanWishes)
    copy = pickle.loads(pickle.dumps(asked))
    # Earlier ones are a list, in which bounds come before hosts.
    first = ["objective", "bandwidth", "horizon", "importance", "min_rate", "max_rate", "hosts"]
    later = [
        "min_interval",
        "max_interval",
        "limits",
        "compare_rule",
        "signals",
        "source_columns",
        "promise",
        "hours",
        "features",
        "change_model",
    ]
    names = first + [name for name in WISHES if name not in first + later]
    earlier = Wishes.__new__(Wishes)
    earlier.__setstate__([getattr(asked, name) for name in names])
    for name in WISHES:
        if name != "hosts":
            assert getattr(copy, name) == getattr(earlier, name) == getattr(asked, name)
    assert earlier.hosts is asked.hosts


def test_a_horizon_of_none_is_named(log: fo.CrawlLog) -> None:
    refused("horizon is None, not a number", fo.plan, log, 8.0, None)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        *((name, "tolerance") for name in ("solve", "solve_many", "frontier", "cross_check")),
        *(("bandwidth_for", "tolerance"), ("certify", "host_prices"), ("plan_uncertainty", "draws")),
        *(("replay", "objective"), ("schedule", "horizon"), ("read_log", "time_unit")),
        *(("pipeline", "importance"), ("Planner", "burst")),
    ],
)
def test_a_mistyped_keyword_is_told_with_the_nearest(name: str, known: str) -> None:
    mistyped = known[:2] + known[3:]
    with pytest.raises(TypeError, match=rf"^{name}\(\) got .*{mistyped}'\. Did you mean '{known}'\?$"):
        getattr(fo, name)(**{mistyped: 1})


def test_rates_and_durations_may_be_written_out() -> None:
    sources = fo.Sources([1.0, 4.0], host=["a", "b"], time_unit="hour")
    problem = fo.Problem("binary", sources, "48/day", {"a": "12/day"})
    assert problem.bandwidth == 2.0
    assert problem.host_limits == {"a": 0.5}
    assert problem.with_bandwidth("1/h").bandwidth == 1.0
    solution = fo.solve(problem)
    lengths = ("7d", datetime.timedelta(days=7), 168.0)
    assert {fo.schedule(solution, length).horizon for length in lengths} == {168.0}
    refused("'3 days' is a duration, not a rate", fo.Problem, "binary", sources, "3 days")
    refused("the limit of host 'a': '2h' is a duration", fo.Problem, "binary", sources, 2.0, {"a": "2h"})
    refused("horizon: '7/d' is a rate, not a duration", fo.schedule, solution, "7/d")


def test_tables_of_limits_have_the_columns_that_files_may_have() -> None:
    log = fo.CrawlLog(**crawls())
    first, second = log.names.tolist()[:2]
    hosts = pl.DataFrame({"URL": log.names, "Host": ["a" if k % 2 else "b" for k in range(len(log.names))]})
    limits = pl.DataFrame({"Hostname": ["a", "b"], "Limit": ["2/day", "1/12h"]})
    own = pd.DataFrame({"url": [first, second], "Min Interval": ["12h", None], "max_rate": [None, "1/day"]})
    plan = fo.plan(log, 6.0, "7d", hosts=hosts, host_limits=limits, limits=own, draws=0)
    assert plan.problem.host_limits == {"a": 2.0, "b": 2.0}
    assert plan.problem.sources.max_rate[:2].tolist() == [2.0, 1.0]
    one = pl.DataFrame({"Hostname": ["b"], "Limit": [None]}, schema=limits.schema)
    refused("no limit of 'b'", lambda: fo.plan(log, hosts=hosts, host_limits=limits[:1].vstack(one)))
    alone = limits[["Limit"]]
    refused("has host and limit or min_interval", lambda: fo.plan(log, hosts=hosts, host_limits=alone))
