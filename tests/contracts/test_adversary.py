"""The adversary's oracle finds planted faults within few instances, and none where there are none."""

import dataclasses
import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from freshopt.certificates.dual_prices import best_prices
from freshopt.certificates.duality_gap import Gap
from freshopt.modelling.host_limits import HostLimits
from freshopt.modelling.problem import Problem
from freshopt.problems import accumulated_delay, harmonic_staleness
from tests.ground_truth.truth import Floats

ROOT = Path(__file__).parents[2]
Patch = pytest.MonkeyPatch
Case = Any  # a benchmarks.adversary.case.Case, which mypy does not see
FEW = 12  # instances within which a fault is to be found
QUICK = ("harmonic", "binary", "delay", "delay periodic", "age", "power", "polls")


@pytest.fixture
def adversary(monkeypatch: Patch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT))
    parts = ("drawing", "judging", "declared", "cells", "files")
    return {part: importlib.import_module(f"benchmarks.adversary.{part}") for part in parts}


def cases(adversary: dict[str, ModuleType], touched: Callable[[Case], object]) -> Iterator[Case]:
    """Draw small cases that a fault touches, without anything to compile."""
    seed = 0
    while True:
        seed += 1
        case = adversary["drawing"].draw(np.random.default_rng(seed))
        if len(case) <= 6 and case.kind in QUICK and touched(case):
            yield case.changed(compiled=False)


def a_wrong_price(monkeypatch: Patch) -> None:
    def off(gap: Gap, *given: Any) -> tuple[float, Floats]:  # noqa: ANN401
        price, host_prices = best_prices(gap, *given)
        return 1.01 * price, host_prices

    monkeypatch.setattr("freshopt.certificates.certificate.best_prices", off)


def a_forgotten_bound(monkeypatch: Patch) -> None:
    build = Problem.__init__

    def forgetful(self: Problem, *given: Any) -> None:  # noqa: ANN401
        build(self, *given)
        object.__setattr__(self, "upper", np.full(len(self.sources), np.inf))

    monkeypatch.setattr(Problem, "__init__", forgetful)


def a_dropped_host_limit(monkeypatch: Patch) -> None:
    build = HostLimits.of.__func__  # type: ignore[attr-defined]

    def forgetful(cls: type[HostLimits], *given: Any) -> HostLimits:  # noqa: ANN401
        made: HostLimits = build(cls, *given)
        return dataclasses.replace(made, limits=np.full(len(made.limits), 1e100))

    monkeypatch.setattr(HostLimits, "of", classmethod(forgetful))


def a_cell_in_the_place_of_another(monkeypatch: Patch) -> None:
    """Marginal and inverse agree, so that freshopt's own certificate has nothing to object to."""
    other = accumulated_delay.POISSON
    wrong = dataclasses.replace(harmonic_staleness.POISSON, marginal=other.marginal, inverse=other.inverse)
    monkeypatch.setattr(harmonic_staleness, "POISSON", wrong)


def a_gap_without_the_sources(monkeypatch: Patch) -> None:
    def slack(self: Gap, price: float, host_prices: Floats) -> float:
        return price * self.slack + float(np.dot(host_prices, self.host_slack))

    monkeypatch.setattr(Gap, "at", slack)


UNIFORM, OWN = "fo.solvers.Uniform()", "None"
FAULTS: dict[str, tuple[Callable[[Patch], None], str, Callable[[Case], object]]] = {
    "wrong price": (a_wrong_price, OWN, lambda case: len(case) > 1),
    "forgotten bound": (a_forgotten_bound, OWN, lambda case: np.any(np.isfinite(case.columns["max_rate"]))),
    "dropped host limit": (a_dropped_host_limit, OWN, lambda case: case.limits),
    "other cell": (a_cell_in_the_place_of_another, OWN, lambda case: case.kind == "harmonic"),
    "gap without the sources": (a_gap_without_the_sources, UNIFORM, lambda case: len(case) > 1),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.sampled(5)
def test_a_planted_fault_is_found(fault: str, adversary: dict[str, ModuleType], monkeypatch: Patch) -> None:
    plant, solver, touched = FAULTS[fault]
    drawn = [case.changed(solver=solver) for case in itertools.islice(cases(adversary, touched), FEW)]
    judge = adversary["judging"].judge
    assert not [found for case in drawn[:2] for found in judge(case)[1]]
    plant(monkeypatch)
    assert any(judge(case)[1] for case in drawn)


@pytest.mark.parametrize(("allowed", "problems"), [(True, 100), (True, 300), (False, 300)])
@pytest.mark.sampled(3)
def test_no_certified_gap_is_below_the_true_one(
    adversary: dict[str, ModuleType], monkeypatch: Patch, *, allowed: bool, problems: int
) -> None:
    """In extended precision, of all cells; without the allowance for rounding of limits some are."""
    exactness = importlib.import_module("benchmarks.accuracy.exactness")
    assert "harmonic" in adversary["cells"].CELLS
    monkeypatch.setattr(exactness, "COMPILED", 0.0)
    monkeypatch.setattr(exactness, "FEW", 4)
    if not allowed:
        monkeypatch.setattr("freshopt.certificates.best_response.ROUNDED", 0.0)
    found = exactness.certificates(problems)
    assert found["checked"] >= problems
    assert (found["violations"] == 0) is allowed


def test_what_is_found_is_shrunk_to_a_script_that_runs(adversary: dict[str, ModuleType]) -> None:
    drawn = next(cases(adversary, lambda case: case.kind == "harmonic" and case.limits and len(case) > 3))
    small = adversary["drawing"].shrink(drawn, lambda case: bool(np.max(case.columns["change_rate"]) > 0.01))
    assert len(small) == 1
    assert not small.limits
    for layout in ("plain", "reversed", "float32"):
        shown: dict[str, Any] = {}
        exec(small.changed(layout=layout).script("a fault: of two\nlines"), shown)
        assert shown["solution"].status.value == "optimal"


def test_bounds_that_fill_the_bandwidth_and_a_limit_are_no_fault(adversary: dict[str, ModuleType]) -> None:
    """The sum of the bounds is the bandwidth but for rounding: the oracle must not look beyond it."""
    drawn = next(cases(adversary, lambda case: case.kind == "binary" and len(case) == 3))
    cost, low = np.array([7.92, 0.195, 9.28]), np.array([7.81, 330.7, 1.159])
    plain = drawn.changed(
        refresh_cost=cost, min_rate=low, max_rate=np.full(3, np.inf), signalled=np.zeros(3), solver="None"
    )
    full = plain.changed(bandwidth=float(np.sum(cost * low)), limits={})
    limited = full.changed(
        host=np.array([0, 0, 1]), limits={0: float(np.sum((cost * low)[:2]))}, bandwidth=200.0
    )
    for case in (full, limited):
        assert adversary["judging"].judge(case) == ("optimal", [])


ENDS: dict[str, tuple[tuple[int | None, str, str, str], bytes | None]] = {
    "traceback": ((1, "", "Traceback (most recent call last):\nValueError\n", ""), None),
    "exception": ((None, "", "", "ValueError: x"), None),
    "two lines": ((2, "", "Error: a.\nb.\n", ""), None),
    "no sentence": ((2, "", "Error: bad\n", ""), None),
    "refusal and output": ((2, "", "Error: It is bad.\n", ""), b"source\na\n"),
    "success without output": ((0, "", "", ""), None),
    "warning": ((0, "", "RuntimeWarning\n", ""), b"source\na\n"),
    "empty output": ((0, "", "", ""), b""),
    "control characters": ((0, "\x1b[31m", "", ""), b"source\na\n"),
}


@pytest.mark.parametrize("end", ENDS)
def test_bad_ends_of_commands_are_seen(end: str, adversary: dict[str, ModuleType], tmp_path: Path) -> None:
    files, outcome = adversary["files"], adversary["files"].Outcome
    given, output = ENDS[end]
    if output is not None:
        (tmp_path / "out.csv").write_bytes(output)
    assert files.problems_of(outcome(*given), {}, tmp_path, "out.csv")
    (tmp_path / "out.csv").write_text("source\na\n")
    assert not files.problems_of(outcome(0, "", "", ""), {}, tmp_path, "out.csv")


def test_dual_numbers_have_the_derivatives_of_finite_differences(adversary: dict[str, ModuleType]) -> None:
    declared, rng = adversary["declared"], np.random.default_rng(3)
    x = np.array([0.11, 0.7, 1.3, 4.9], dtype=np.longdouble)
    for _ in range(60):
        text = declared.cost(rng, 3)
        h = np.longdouble(1e-9)
        steep = (declared.evaluate(text, x + h).value - declared.evaluate(text, x).value) / h
        slope = declared.evaluate(text, x).slope
        assert np.all(abs(steep - slope) <= 1e-5 * (1 + abs(slope))), text


FETCHES = ("failing", "failing periodic", "requested", "requested delay", "conditional", "conditional fresh")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind == "conditional" else pytest.mark.exhaustive) for kind in FETCHES],
)
def test_requests_attempts_and_conditional_fetches_are_judged(
    kind: str, adversary: dict[str, ModuleType]
) -> None:
    drawn = (adversary["drawing"].draw(np.random.default_rng([seed, 3]), kind) for seed in itertools.count())
    small = (case.changed(compiled=False, solver=OWN) for case in drawn if len(case) <= 4)
    for case in itertools.islice(small, 2 if kind == "conditional" else FEW):
        status, found = adversary["judging"].judge(case)
        assert not found, case.script()
        assert status == "optimal" or case.limits


@pytest.mark.parametrize(
    "kind",
    ["binary periodic", "harmonic periodic", "age periodic", "materials", "capped poisson", *FETCHES],
)
def test_cells_have_the_slopes_of_finite_differences(kind: str, adversary: dict[str, ModuleType]) -> None:
    cell = adversary["cells"].CELLS[kind]
    rate = np.geomspace(np.longdouble(0.02), np.longdouble(900), 9)
    d, own = (
        np.full(9, np.longdouble(2)),
        {key: np.full(9, np.longdouble(0.7)) for key in (*cell.columns, *cell.given, "COST")},
    )
    if "request_rate" in cell.given:
        own["request_rate"] = np.full(9, np.longdouble(1000))
    h = rate * np.longdouble(1e-6)
    steep = (cell.cost(rate - h, d, own) - cell.cost(rate + h, d, own)) / (2 * h)
    np.testing.assert_allclose(steep.astype(float), cell.slope(rate, d, own).astype(float), rtol=1e-6)
