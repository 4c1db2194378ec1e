"""Plots of results: what a picture shows is what the result holds, read from Matplotlib's own objects."""

import sys
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import freshopt as fo
from freshopt.report.held_out import POLICIES
from tests.ground_truth.named import BINARY, BINARY_PERIODIC, DELAY
from tests.ground_truth.plans import crawls, dated
from tests.ground_truth.refusals import refused

N = 12


@pytest.fixture(autouse=True)
def no_window() -> Iterator[None]:
    mpl.use("Agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def plan() -> fo.Plan:
    log = fo.CrawlLog(**dated(crawls(n=N)))
    return fo.plan(log, bandwidth=3.0, horizon="7d", draws=0, objective=BINARY_PERIODIC)


@pytest.fixture(scope="module")
def tested() -> fo.BackTest:
    return fo.backtest(fo.CrawlLog(**crawls(n=N)), bandwidth=[2.0, 4.0])


def drawn(axes: Axes, label: str) -> Any:  # noqa: ANN401 - points of a line, x beside y
    (line,) = (line for line in axes.lines if str(line.get_label()).startswith(label))
    return np.asarray(line.get_xydata())


def test_a_solution_shows_rates_against_change_rates_and_who_is_never_refreshed() -> None:
    sources = fo.Sources([0.1, 1.0, 3.0, 900.0])
    solution = fo.solve(fo.Problem(BINARY, sources, bandwidth=2.0))
    axes = solution.plot()
    dots, crosses = axes.lines[0].get_xydata(), drawn(axes, "1 source never refreshed")
    assert np.array_equal(dots, np.column_stack([sources.change_rate, solution.rates])[:3])
    assert solution.rates[3] == 0.0
    assert crosses[:, 0].tolist() == [900.0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("changes per day", "refreshes per day")
    assert f"{solution.price:.4g} per refresh/day" in axes.get_title()


def test_a_plan_shows_its_frontier_what_it_is_compared_with_and_its_intervals(plan: fo.Plan) -> None:
    achieved, intervals = plan.plot(), plan.plot_intervals()
    points = [[each["bandwidth"], 100.0 * each["fresh"]] for each in plan.findings["frontier"]]
    assert np.allclose(drawn(achieved, "optimal rates"), points)
    fresh, today = plan.findings["fresh"], plan.today
    assert today is not None
    marks = {
        "this plan": (3.0, fresh["plan"]),
        "equal rates": (3.0, fresh["uniform"]),
        "the log's own crawls": (today.bandwidth, today.fresh),
    }
    for label, (at, share) in marks.items():
        assert drawn(achieved, label)[0] == pytest.approx([at, 100.0 * share])
    assert achieved.get_ylabel() == "% of the time up to date"
    rates = plan.solution.rates
    some = rates > 0.0
    expected = np.column_stack([plan.sources.change_rate[some], 1.0 / rates[some]])
    assert np.allclose(intervals.lines[0].get_xydata(), expected)
    assert np.allclose(drawn(intervals, "the log's own")[:, 1], 1.0 / plan.log.crawl_rate)
    assert intervals.get_ylabel() == "days between refreshes"


def test_a_plan_without_shares_shows_the_objective() -> None:
    signalled = fo.CrawlLog(**crawls(n=N))
    none = fo.plan(signalled, bandwidth=3.0, horizon=7.0, draws=0, importance=0.0)
    achieved = none.plot()
    points = [[each["bandwidth"], each["value"]] for each in none.findings["frontier"]]
    assert np.allclose(drawn(achieved, "optimal rates"), points)
    assert "HarmonicStaleness (minimised)" in achieved.get_ylabel()


def test_a_back_test_shows_every_policy_with_its_error(tested: fo.BackTest) -> None:
    axes = tested.plot()
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == len(tested.means)
    assert all(name.startswith(POLICIES[row.policy]) for name, row in zip(names, tested.means, strict=True))
    bars = {
        float(y): (float(low), float(high))
        for group in axes.containers
        for (low, y), (high, _) in group.lines[2][0].get_segments()  # type: ignore[attr-defined]
    }
    for place, row in enumerate(tested.means):
        assert bars[place] == pytest.approx((row.realised - row.error, row.realised + row.error))
    rings = [(row.predicted, k) for k, row in enumerate(tested.means) if row.predicted is not None]
    assert np.allclose(drawn(axes, "predicted"), rings)
    assert axes.get_xlabel() == "measured objective (lower is better)"


def test_a_frontier_shows_values_and_marks_what_is_infeasible() -> None:
    sources = fo.Sources([1.0, 4.0], min_rate=0.5)
    frontier = fo.frontier(fo.Problem(DELAY, sources, 3.0), [9.0, 0.5, 3.0])
    axes = frontier.plot()
    values = {
        limit: each.value for limit, each in zip(frontier.limits, frontier.solutions, strict=True) if each
    }
    assert drawn(axes, "optimal value").tolist() == [[at, values[at]] for at in (3.0, 9.0)]
    (infeasible,) = axes.lines[1:]
    assert np.asarray(infeasible.get_xydata())[:, 0].tolist() == [0.5, 0.5]
    assert axes.get_xlabel() == "bandwidth, refreshes per day"


def test_a_schedule_shows_its_load(plan: fo.Plan) -> None:
    axes = plan.schedule.plot()
    load = axes.patches[0].get_data()  # type: ignore[attr-defined]
    assert load.values @ np.diff(load.edges) == pytest.approx(len(plan.schedule))
    assert drawn(axes, "mean")[0][1] == pytest.approx(len(plan.schedule) / 7.0)
    assert axes.get_xlabel().startswith("days since 20")


def test_plots_go_on_the_axes_given(plan: fo.Plan, tested: fo.BackTest) -> None:
    figure = Figure()
    one, other, third, fourth = figure.subplots(1, 4)
    assert plan.plot(ax=one) is one
    assert plan.plot_intervals(ax=other) is other
    assert plan.solution.plot(ax=third) is third
    assert tested.plot(ax=fourth) is fourth
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (lambda: Figure().subplots(1, 2), r"ax is ndarray, where Matplotlib axes are drawn on"),
        (lambda: "here", r"ax is str, where .* Pass Matplotlib axes, or nothing"),
    ],
)
def test_other_axes_are_refused(plan: fo.Plan, given: Any, match: str) -> None:  # noqa: ANN401
    for draw in (plan.plot, plan.plot_intervals, plan.solution.plot):
        refused(match, draw, ax=given())


def test_without_matplotlib_the_extra_is_named(plan: fo.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused(r'pip install "freshopt\[report\]"', plan.plot, error=fo.FreshoptError)
