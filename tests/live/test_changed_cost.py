"""Fetches of a live planner that cost what they bring: planned as a plan does, and charged."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.separable.conditional_kernel import BandwidthUsed
from tests.ground_truth.command_lines import Run
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import SCALAR
from tests.live.test_own_columns import Sized

ROOT = Path(__file__).parents[2]
NAMES = [f"s{k}" for k in range(12)]
COSTS = {name: 2.0 + 3.0 * k for k, name in enumerate(NAMES)}
PERIODIC, POISSON = fo.Refresh.PERIODIC, fo.Refresh.POISSON
OBJECTIVES = {
    "harmonic": fo.problems.HarmonicStaleness(PERIODIC),
    "harmonic, at random": fo.problems.HarmonicStaleness(POISSON),
    "binary": fo.problems.BinaryFreshness(PERIODIC),
    "delay": fo.problems.AccumulatedDelay(PERIODIC),
}
# Begins a planner, in a process of its own.
FIRST = f"""
import sys, freshopt as fo
with fo.Planner(sys.argv[1], "400/day", burst="1d", explore=0.0, changed_cost={COSTS}) as planner:
    planner.add_many({NAMES})
"""


def crawled(planner: fo.Planner, days: float, seed: int = 0, step: float = 0.02) -> tuple[int, int, float]:
    """Crawl what is due; return fetches, those that found a change, and what all of them cost."""
    rng = np.random.default_rng(seed)
    change = dict(zip(NAMES, np.geomspace(0.2, 20.0, len(NAMES)).tolist(), strict=True))
    last: dict[str, float] = {}
    many = found = 0
    cost = 0.0
    for now in np.arange(0.0, days, step).tolist():
        for visit in planner.due(now, limit=None):
            gap = now - last.get(visit.source, -np.inf)
            changed = bool(rng.random() < -np.expm1(-change[visit.source] * gap))
            planner.observed(visit.source, now, changed)
            last[visit.source], many, found = now, many + 1, found + changed
            cost += 1.0 + COSTS[visit.source] * changed
    return many, found, cost


@matrix(objective=list(OBJECTIVES), by_source=[True, False], every=5)
def test_rates_are_those_of_a_plan_of_the_same_evidence(
    tmp_path: Path, objective: str, by_source: bool
) -> None:
    told: Any = COSTS if by_source else 20.0
    given = {"objective": OBJECTIVES[objective], "changed_cost": told}
    with fo.Planner(tmp_path, "400/day", burst="1d", explore=0.0, **given) as planner:
        planner.add_many(NAMES, importance=np.arange(1.0, 13.0))
        crawled(planner, 3.0)
        planner.replan(3.0)
        own = planner.solution()
        frame, log = planner.to_frame(), planner.log()
        status = planner.status(3.0)
    weights = dict(zip(NAMES, range(1, 13), strict=True))
    made = fo.plan(log, bandwidth="400/day", importance=weights, draws=0, load_limit=1.0, **given)
    order = np.argsort([NAMES.index(str(name)) for name in log.names])
    np.testing.assert_allclose(
        frame["change_rate"].to_numpy(), made.problem.sources.change_rate[order], rtol=0.02
    )
    # Rates that moved by less than 1 % stay, which may leave some bandwidth: values are compared at what is
    # used, and at the same change rates.
    costs = np.array([COSTS[name] for name in NAMES]) if by_source else 20.0
    sources = fo.Sources(frame["change_rate"].to_numpy(), np.arange(1.0, 13.0), changed_cost=costs)
    best = fo.solve(fo.Problem(OBJECTIVES[objective], sources, status.used))
    np.testing.assert_allclose(own.rates, best.rates, rtol=0.03)
    assert own.value == pytest.approx(best.value, rel=1e-4)
    assert present(own.certificate).relative_gap < 0.01
    used = BandwidthUsed(OBJECTIVES[objective].refresh is PERIODIC).used(
        own.rates, sources.change_rate, np.ones(12), np.broadcast_to(costs, 12)
    )
    assert status.used == pytest.approx(float(used.sum()), rel=SCALAR)
    assert status.used == pytest.approx(400.0, rel=0.01)
    assert status.infeasibility < 1e-9
    assert 0.0 < status.freshness < 1.0
    assert not status.counted


def test_costs_are_kept_by_another_process_and_charged(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FIRST, str(tmp_path)], cwd=ROOT, check=True)
    with fo.Planner(tmp_path) as planner:
        many, found, cost = crawled(planner, 5.0)
        # As much as the bandwidth, one burst at the beginning, and what a few fetches in flight bring.
        assert 0.85 * 2000.0 < cost <= 2000.0 + 12.0 * 38.0
        assert 0 < found < many
        # Nothing is charged for what was not handed out.
        before = planner.next_due(5.0)
        planner.observed_many(NAMES, 3.001, np.ones(12))
        assert planner.next_due(5.0) == before
        refused("there is no changed_cost of 'new', and this planner's plan reads it", planner.add, "new")
        planner.add_many(pl.DataFrame({"source": ["new"], "changed_cost": [5.0]}))
        planner.add_many(fo.Sources([1.0], names=["newer"], changed_cost=[6.0]))
        planner.due(5.1, limit=None)
        assert set(planner.to_frame().drop_nulls("rate")["source"]) == {*NAMES, "new", "newer"}
    # A number for all takes their place, and 0 ends it.
    with fo.Planner(tmp_path, changed_cost=7) as planner:
        planner.add("newest")
        planner.due(5.2)
        assert planner.settings.changed_cost == 7.0
        assert planner.status(5.2).relative_gap <= 0.01
    with fo.Planner(tmp_path, changed_cost=0) as planner:
        planner.due(5.3)
        assert planner.status(5.3).counted


@pytest.mark.parametrize("objective", [OBJECTIVES["harmonic"], OBJECTIVES["harmonic, at random"]])
def test_before_anything_is_known_sources_change_as_often_as_equal_rates_crawl(
    tmp_path: Path, objective: fo.Objective
) -> None:
    with fo.Planner(tmp_path, "400/day", changed_cost=20.0, objective=objective) as planner:
        planner.add_many(NAMES)
        planner.due(0.0)
        problem = planner.solution().problem
    taken = problem.sources.change_rate
    assert problem.used_by_source(taken).sum() == pytest.approx(400.0, rel=SCALAR)
    # Less than without what changes cost, by which prices of promises were too dear.
    assert np.all(taken < 0.1 * 400.0 / len(NAMES))


def test_exploration_and_promises_keep_to_the_bandwidth(tmp_path: Path) -> None:
    given: Any = {"changed_cost": 20.0, "host_limits": {"a": 150.0}, "promise": "always less than 1h behind"}
    given["objective"] = OBJECTIVES["delay"]
    with fo.Planner(tmp_path, "400/day", burst="1d", explore=0.5, **given) as planner:
        planner.add_many(NAMES, host=["a"] * 6 + ["b"] * 6, min_rate=[5.0] * 2 + [0.0] * 10)
        for days in (0.1, 0.2):
            crawled(planner, days, step=0.1)
            problem, rates = planner.solution().problem, planner.solution().rates
            used = problem.used_by_source(rates)
            assert used.sum() <= 400.0 * (1.0 + 1e-9)
            assert used[:6].sum() <= 150.0 * (1.0 + 1e-9)
            # Least rates use all that there is; rules have them, too.
            status = planner.status(days)
            assert set(status.simple) == {"uniform", "proportional", "square-root"}
            assert status.promises[-1].endswith("leave no more")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"changed_cost": -1}, "changed_cost is -1"),
        ({"changed_cost": "dear"}, "Pass a number of 0 or more"),
        ({"changed_cost": float("nan")}, "changed_cost"),
        ({"changed_cost": {"a": -1.0}}, "Pass numbers of 0 or more"),
        ({"changed_cost": 3, "source_columns": {"changed_cost": {"a": 1.0}}}, "Pass one of them"),
        (
            {"changed_cost": 3, "objective": Sized()},
            "no answer for fetches that cost",
        ),
    ],
)
def test_costs_that_cannot_be_used(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    refused(words, fo.Planner, tmp_path / "x", "5/day", **given, error=(SourceDataError, ObjectiveError))
    assert not (tmp_path / "x").exists()


def test_signals_and_costs(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, "50/day", changed_cost=20) as planner:
        planner.add("a")
        refused("signals do not go with the changed_cost", planner.signal, "a", 1.0)
    with fo.Planner(tmp_path, changed_cost=0) as planner:
        planner.signal("a", 1.0)
        refused("changed_cost does not go with signals", fo.Planner, tmp_path, changed_cost=20)


def test_commands_keep_costs(run: Run) -> None:
    Path("sources.txt").write_text("a\nb\n", encoding="utf-8")
    pl.DataFrame({"source": ["b", "a"], "changed_cost": [4.0, 1.0]}).write_csv("costs.csv")
    asked = ("run", "state", "--once", "--command", "echo {source}")
    run(
        *asked, "-b", "1000/day", "--burst", "1d", "--sources", "sources.txt", "--source-columns", "costs.csv"
    )
    twice = run(*asked, "--changed-cost", "3", "--source-columns", "costs.csv", code=2)
    assert "costs.csv has a column changed_cost. Give one" in twice.output
    with fo.Planner("state") as planner:
        assert np.isnan(planner.settings.changed_cost)
        assert present(planner.solution().problem.sources.changed_cost).tolist() == [1.0, 4.0]
    run(*asked, "--changed-cost", "3")
    with fo.Planner("state") as planner:
        assert planner.settings.changed_cost == 3.0
