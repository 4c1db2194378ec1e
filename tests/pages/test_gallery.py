"""The gallery tells the truth: its code prints what follows it, its declarations are its formulas."""

from __future__ import annotations

import contextlib
import io
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

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
RESULTS = harness.saved("gallery")["objectives"]


BENCHMARK = module("pages.gallery")
OBJECTIVES: list[fo.Objective] = BENCHMARK.declared()


def test_the_code_runs_and_prints_what_follows_it() -> None:
    names: dict[str, Any] = {"__name__": "gallery"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for kind, text in BLOCKS:
            if kind == "python":
                exec(compile(text, "gallery.md", "exec", dont_inherit=True), names)
    (sample,) = (text for kind, text in BLOCKS if not kind)
    assert sample == printed.getvalue()
    assert "agree: False" not in sample


def test_each_is_declared_in_ten_lines() -> None:
    classes = [text for kind, text in BLOCKS if kind == "python" and "fo.Objective)" in text]
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
