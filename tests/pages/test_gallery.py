"""Curves of notebooks and objectives of a user's own: whole, in agreement, and computed again."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.solvers import Conic, SeparableNewton, WaterFilling
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR
from tests.pages.measured import ROOT, harness, module

PAGE = (ROOT / "docs" / "guides" / "your-own-objective.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
RESULTS = harness.saved("gallery")["objectives"]
BENCHMARK = module("pages.gallery")
OBJECTIVES: list[fo.Objective] = BENCHMARK.declared()


def test_each_is_declared_in_ten_lines() -> None:
    named = tuple(f"class {name}(" for name in BENCHMARK.OBJECTIVES)
    classes = [text for kind, text in BLOCKS if kind == "python" and any(name in text for name in named)]
    assert len(classes) == len(OBJECTIVES) == 3
    for text in classes:
        assert sum(bool(line.strip()) for line in text.splitlines()) <= 10


def test_the_floor_holds_more_than_a_quarter_of_the_sources() -> None:
    problem = BENCHMARK.problem(OBJECTIVES[1], 50)
    missed = problem.sources.change_rate / fo.solve(problem, SeparableNewton()).rates
    at_limit = np.abs(missed / 4.0 - 1.0) <= SCALAR
    assert "more than a quarter" in PAGE
    assert 0.25 < np.mean(at_limit) < 0.35


def staleness(d: float, r: float) -> float:
    return math.log1p(d / r)


# The formulas of the page in plain Python: (importance, change rate, cost, rate) to the cost of a source.
FORMULAS: dict[str, Callable[[float, float, float, float], float]] = {
    "AlphaFairFreshness": lambda w, d, _, r: w * (r / (d + r)) ** (1.0 - 3.0) / (3.0 - 1.0),
    "FairBlend": lambda w, d, _, r: w * (0.5 * d / r + 0.5 * staleness(d, r)) + max(0.0, d / r - 4.0),
    "StalenessAndBill": lambda w, d, c, r: w * staleness(d, r) + 1.0 * c * r,
}


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: type(objective).__name__)
def test_the_declarations_are_the_formulas(objective: fo.Objective) -> None:
    problem = BENCHMARK.problem(objective, 50)
    solution = fo.solve(problem, SeparableNewton())
    formula, sources = FORMULAS[type(objective).__name__], problem.sources
    columns = zip(sources.importance, sources.change_rate, sources.refresh_cost, solution.rates, strict=True)
    expected = math.fsum(formula(*map(float, row)) for row in columns)
    assert abs(solution.value - expected) <= EXACT * expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: type(objective).__name__)
def test_cone_solvers_newton_and_the_dual_agree(objective: fo.Objective) -> None:
    problem = BENCHMARK.problem(objective, 50)
    newton = fo.solve(problem, SeparableNewton(), tolerance=SCALAR)
    for solver, limit in (
        (WaterFilling(), SCALAR),
        (Conic("CLARABEL", ladder=False), CONIC),
        (Conic("ECOS", ladder=False), CONIC),
    ):
        solution = fo.solve(problem, solver, tolerance=limit)
        assert abs(solution.value - newton.value) <= limit * abs(newton.value)
        assert np.max(np.abs(solution.rates - newton.rates)) <= math.sqrt(limit) * np.max(newton.rates)
    measured = next(result for result in RESULTS if result["objective"] == repr(objective))
    assert abs(measured["sizes"][0]["rows"][0]["value"] - newton.value) <= SCALAR * abs(newton.value)


FOLDER, RECORDS = ROOT / "benchmarks" / "reproduce", ROOT / "benchmarks" / "results"
PAPERS = sorted(path.stem.removeprefix("curves_") for path in FOLDER.glob("curves_*.py"))
KEPT = 1e-5  # six digits are kept


def read(kind: str, paper: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RECORDS / f"{kind}_{paper}.json").read_text(encoding="utf-8"))
    return record


def curve(paper: str, figure: str, panel: str, name: str) -> dict[str, Any]:
    wanted = (figure, panel, name)
    (found,) = (x for x in read("curves", paper)["curves"] if (x["figure"], x["panel"], x["name"]) == wanted)
    return dict(found)


def stated(paper: str, name: str) -> dict[str, Any]:
    (found,) = (x for x in read("reproduce", paper)["findings"] if x["id"] == name)
    return dict(found)


def at(each: dict[str, Any], x: float) -> float:
    return float(each["mean"][each["x"].index(x)])


def test_curves_and_statements_are_of_the_same_runs() -> None:
    for kind, figure, gap in (("power", "Fig 2", "Fig 1"), ("binary", "Fig 4", "Fig 3")):
        apart = curve("mirrorsync", figure, f"{kind}, difference", "Async − PSGD")
        closed = curve("mirrorsync", gap, f"{kind}, closed", "MirrorSync")
        end, converged = (stated("mirrorsync", f"{name}-{kind}") for name in ("similar-end", "converged"))
        assert at(apart, 240) == pytest.approx(end["estimate"], abs=1e-6)
        assert at(closed, 240) == pytest.approx(converged["estimate"], abs=1e-6)
        assert apart["runs"] == end["runs"] == closed["runs"] == converged["runs"]
    learnt = {name: curve("lambdacrawl", "Fig 3", "harmonic", name) for name in ("LLC", "LLCA", "BLLC")}
    for name, one, other, day in (
        ("llca-early", "LLCA", "LLC", 5),
        ("llc-last", "LLC", "LLCA", 20),
        ("llca-last", "LLCA", "BLLC", 20),
    ):
        ours = stated("lambdacrawl", name)
        # A ratio of means is the mean of ratios where samples are large and alike.
        assert at(learnt[one], day) / at(learnt[other], day) == pytest.approx(ours["estimate"], rel=1e-3)
        assert learnt[one]["runs"] == ours["runs"]
    near = stated("lambdacrawl", "llc-near")
    assert at(learnt["LLC"], 20) == pytest.approx(near["estimate"], rel=KEPT)
    seldom = curve("automata", "Fig 9", "ranks swap every 80,000 polls", "tree")
    often = curve("automata", "Fig 10", "ranks swap every 1,000 polls", "tree")
    ours = stated("automata", "swaps-seldom-better")
    assert np.mean(seldom["mean"]) - np.mean(often["mean"]) == pytest.approx(ours["estimate"], abs=KEPT)
    assert seldom["runs"] == often["runs"] == ours["runs"]
    ratios = curve("learning_to_crawl", "Fig 1c", "regret", "ETC")["mean"]
    slope = np.polyfit(np.log([1e3, 1e4, 1e5, 1e6]), np.log(ratios), 1)[0]
    assert slope == pytest.approx(stated("learning_to_crawl", "fig-1c-small")["estimate"], abs=0.05)
    for bandwidth in (100, 1000):
        each = curve("learning_to_crawl", "Fig 1c", "regret, 5000 sources", f"R = {bandwidth}")
        slope = np.polyfit(np.log(each["x"]), np.log(each["mean"]), 1)[0]
        found = stated("learning_to_crawl", f"fig-1c-{bandwidth}")["estimate"]
        assert slope == pytest.approx(found, abs=0.05)


def test_what_is_computed_comes_out_again() -> None:
    record = harness.measurement("curves_estimators").measured(quick=True)
    again = [each for each in record["curves"] if each["runs"] == 1]
    assert len(again) == 12
    for each in again:
        kept = curve("estimators", each["figure"], each["panel"], each["name"])
        np.testing.assert_allclose(each["mean"], kept["mean"], rtol=KEPT)
    # SA is pulled to Δ from 0: its error begins at that of the first crawl and falls, as Theorem 2 has it.
    law = curve("estimators", "Fig 2", "Δ = 5, p = 3", "LLN")
    chance = 5 / 8  # of a change; after one crawl the estimate is p with it, else 0
    first = np.sqrt(chance * (3 - 5) ** 2 + (1 - chance) * 5**2)
    assert at(law, 1) == pytest.approx(first, rel=KEPT)


def test_curves_of_estimators_cross_where_it_is_found() -> None:
    crossing = stated("estimators", "fig-4-crossing")["estimate"]
    law, heavy = (curve("estimators", "Fig 4", "Δ = 500, p = 50", name) for name in ("LLN", "SAM"))
    late = [heavy["mean"][k] > law["mean"][k] for k, x in enumerate(law["x"]) if x > crossing]
    assert all(late)
    before = max(x for x in law["x"] if x <= crossing)
    assert at(heavy, before) < at(law, before)


def test_means_and_intervals_of_a_curve() -> None:
    made = module("curves.mean_curve")
    x = [1.0, 2.0, 3.0, 4.0, 5.0]
    half = 2.7764451051977934 * np.sqrt(2.5 / 5)  # Student's 97.5 % quantile of 4 degrees, from a table
    found = made.averaged(("Fig 1", "a", "x", "y"), "n", [10, 20], np.column_stack([x, np.square(x)]))
    np.testing.assert_allclose(
        [found.mean[0], found.low[0], found.high[0]], [3, 3 - half, 3 + half], rtol=EXACT
    )
    assert (found.runs, found.mean[1]) == (5, 11.0)
    rooted = made.averaged(("Fig 1", "a", "x", "y"), "n", [10], np.square(x)[:, None], root=True)
    assert rooted.mean[0] == pytest.approx(np.sqrt(11.0), rel=EXACT)
    assert rooted.low[0] == 0.0 or rooted.low[0] < rooted.mean[0] < rooted.high[0]
    assert made.exactly(("Fig 1", "a", "x", "y"), "n", [1], [1 / 3]).record()["mean"] == [0.333333]
    assert made.spaced(1, 1000, 4).tolist() == [1, 10, 100, 1000]
    assert made.spaced(1, 5, 50).tolist() == [1, 2, 3, 4, 5]
