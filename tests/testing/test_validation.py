"""Foreign solvers that go wrong in every way: each is reported as what it is, and cut down."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.solvers import ClosedForm, WaterFilling
from freshopt.testing import Recipe, instances, validate, validate_on
from freshopt.testing.foreign_runs import Verdict, attempt
from freshopt.testing.problem_families import SIZES
from freshopt.testing.validation import shrink
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import CONIC

DELAY = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
PROBLEM = fo.Problem(
    DELAY,
    fo.Sources([1.0, 4.0, 9.0], host=["a", "b", "b"], max_rate=[9.0, 9.0, 1.5], names=["x", "y", "z"]),
    6.0,
    {"b": 4.0},
)
BEST = fo.solve(PROBLEM).rates


class Panic(BaseException):
    """What a panic in a Rust extension looks like from Python."""


Panic.__name__ = "PanicException"


def square_root(problem: fo.Problem) -> np.ndarray[Any, Any]:
    """The rule for accumulated delay, without bounds, hosts and costs."""
    root = np.sqrt(problem.sources.importance * problem.sources.change_rate)
    rates: np.ndarray[Any, Any] = problem.bandwidth * root / np.sum(root)
    return rates


def throw(error: BaseException) -> Any:  # noqa: ANN401 - it never returns
    raise error


def write(array: np.ndarray[Any, Any]) -> None:
    """Write to a read-only array as foreign code can, if it wants to."""
    base = array.base if isinstance(array.base, np.ndarray) else array
    base.flags.writeable = True
    base[0] = 77.0


def clobber(problem: fo.Problem, what: str) -> np.ndarray[Any, Any]:
    write(problem.hosts.limits if what == "host_limits" else getattr(problem.sources, what))
    return BEST


WAYS: dict[str, tuple[Any, str]] = {
    "right": (lambda _: BEST, "proved optimal"),
    "a list": (lambda _: BEST.tolist(), "proved optimal"),
    "a solution": (fo.solve, "proved optimal"),
    "a lying solution": (lambda p: fo.solve(p, fo.solvers.Uniform()), "not optimal"),
    "even": (lambda _: [1.5, 1.5, 1.5], "not optimal"),
    "too much": (lambda _: [9.0, 1.5, 1.5], "infeasible"),
    "negative": (lambda _: [-1e-9, 2.0, 1.5], "infeasible"),
    "not a number": (lambda _: [1.0, float("nan"), 1.0], "not finite"),
    "infinite": (lambda _: np.full(3, np.inf), "not finite"),
    "a row": (lambda _: BEST[None, :], "wrong shape"),
    "too few": (lambda _: BEST[:2], "wrong shape"),
    "a number": (lambda _: 2.0, "wrong shape"),
    "nothing": (lambda _: None, "no rates"),
    "words": (lambda _: ["1", "2", "3"], "no rates"),
    "complex": (lambda _: BEST + 0j, "no rates"),
    "ragged": (lambda _: [[1.0], [1.0, 2.0], []], "raised ValueError"),
    "an error": (lambda _: throw(KeyError("Δ")), "raised KeyError"),
    "an exit": (lambda _: sys.exit(3), "raised SystemExit"),
    "a panic": (lambda _: throw(Panic("index out of bounds")), "raised PanicException"),
    "polite": (lambda _: throw(fo.SolverRefusedError("not for hosts")), "declined"),
    "importance": (lambda p: clobber(p, "importance"), "changed its input"),
    "change rate": (lambda p: clobber(p, "change_rate"), "changed its input"),
    "upper bound": (lambda p: clobber(p, "max_rate"), "changed its input"),
    "host limit": (lambda p: clobber(p, "host_limits"), "changed its input"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_end_is_reported_as_what_it_is(way: str) -> None:
    solve, kind = WAYS[way]
    outcome = attempt(solve, Recipe.from_problem(PROBLEM), CONIC)
    assert outcome.kind == kind
    assert outcome.seconds >= 0.0
    assert bool(outcome.detail) == (kind != "proved optimal")
    has_proof = kind in ("proved optimal", "not optimal", "infeasible", "changed its input")
    assert (outcome.certificate is not None) == has_proof
    assert outcome.verdict.is_shortfall == (kind not in ("proved optimal", "declined"))


def test_what_the_solver_did_to_its_problem_does_not_reach_the_judge() -> None:
    for what in ("importance", "change_rate", "max_rate", "host_limits"):
        outcome = attempt(partial(clobber, what=what), Recipe.from_problem(PROBLEM), CONIC)
        assert f"it changed {what}" in outcome.detail
        assert present(outcome.certificate).confirms(CONIC)  # of the true problem
    assert np.array_equal(fo.solve(PROBLEM).rates, BEST)


class Mute:
    """An answer or error that cannot even be printed."""

    @property
    def note(self) -> str:
        return str(throw(RuntimeError("no note")))

    def __repr__(self) -> str:
        return str(throw(ValueError("no words")))

    __str__ = __repr__


class MuteError(Mute, Exception):
    """An exception that raises when it is printed."""


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [(lambda _: Mute(), Verdict.NO_RATES), (lambda _: throw(MuteError()), Verdict.RAISED)],
)
def test_what_cannot_be_printed_is_reported_all_the_same(
    answer: Callable[[fo.Problem], Any], verdict: Verdict
) -> None:
    outcome = attempt(answer, Recipe.from_problem(PROBLEM), CONIC)
    assert outcome.verdict is verdict
    assert "Mute" in outcome.detail


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
def test_interrupts_pass(error: type[BaseException]) -> None:
    with pytest.raises(error):
        attempt(lambda _: throw(error()), Recipe.from_problem(PROBLEM), CONIC)


class Callable_:  # noqa: N801
    def __call__(self, problem: fo.Problem) -> Any:  # noqa: ANN401
        return fo.solve(problem).rates


@pytest.mark.parametrize("solver", [WaterFilling, WaterFilling(), Callable_, Callable_(), fo.solve])
def test_functions_solvers_and_classes_are_solvers(solver: object) -> None:
    assert validate_on(solver, [("mine", PROBLEM)], tolerance=1e-9).passed


def test_what_is_no_solver_is_refused() -> None:
    refused("'clarabel' is no solver", validate, "clarabel", error=fo.SolverRefusedError)


def test_a_refusal_is_no_shortfall_but_shows_nothing() -> None:
    report = validate_on(ClosedForm(), [("mine", PROBLEM)])
    assert not report.shortfalls
    assert not report.passed
    assert report.sentence == "The solver declined every problem: nothing is shown."
    both = validate_on(
        ClosedForm(), [("mine", PROBLEM), ("plain", fo.Problem(DELAY, fo.Sources([1.0]), 2.0))]
    )
    assert both.passed
    assert both.sentence == "No shortfall: 1 answers are proved optimal, 1 declined."


@pytest.mark.exhaustive
def test_a_right_solver_passes() -> None:
    report = validate(WaterFilling(), [fo.problems.BinaryFreshness(fo.Refresh.POISSON)], n=4, tolerance=1e-9)
    assert report.passed, report
    assert len(report.runs) == 2 * 60
    assert report.smallest == ()
    assert report.to_frame()["verdict"].unique().to_list() == ["proved optimal"]


def from_thirty(problem: fo.Problem) -> np.ndarray[Any, Any]:
    """Right up to 29 sources; from 30 on it leaves the last one half of what it needs."""
    rates = np.array(fo.solve(problem).rates)
    if len(rates) >= 30:
        rates[-1] = max(rates[-1] / 2.0, problem.lower[-1])
    return rates


@pytest.mark.parametrize("sizes", [(29, 30), pytest.param(SIZES, marks=pytest.mark.exhaustive)])
def test_a_fault_that_begins_at_thirty_sources_is_found_in_one_run(sizes: tuple[int, ...]) -> None:
    assert signature(validate).parameters["n"].default == SIZES == (1, 2, 10, 30, 300)
    report = validate(from_thirty, [DELAY], n=sizes, scales=["benign"], smallest=False)
    assert {len(run.instance.problem.sources) for run in report.runs} == {1, *sizes}
    wrong = {len(run.instance.problem.sources) for run in report.shortfalls}
    assert wrong == {n for n in sizes if n >= 30}
    assert {run.outcome.kind for run in report.shortfalls} == {"not optimal"}
    refused("n is empty", validate, from_thirty, [DELAY], n=())


@pytest.mark.exhaustive
def test_a_wrong_solver_is_found_out() -> None:
    with np.errstate(invalid="ignore"):
        report = validate(
            square_root, [DELAY, fo.problems.HarmonicStaleness(fo.Refresh.POISSON)], n=5, scales=["benign"]
        )
    by_kind = {found.outcome.kind: found for found in report.smallest}
    assert set(by_kind) == {"infeasible", "not optimal", "not finite"}
    delay = repr(DELAY)
    names = {run.instance.name.split(", band")[0] for run in report.shortfalls if run.objective == delay}
    assert not {"plain", "ties", "all alike", "one source"} & names  # where the rule is right
    assert {"upper bounds", "both bounds", "hosts", "unequal costs", "no importance at all"} <= names
    assert len(by_kind["infeasible"].recipe) == len(by_kind["not finite"].recipe) == 1
    differing = by_kind["not optimal"].recipe
    assert len(differing) == 2
    assert isinstance(differing.objective, fo.problems.HarmonicStaleness)
    assert np.ptp(differing.change_rate) > 0.0
    assert np.all(
        (differing.importance == 1.0) & (differing.refresh_cost == 1.0) & (differing.max_rate == np.inf)
    )
    frame = report.to_frame()
    assert len(frame) == len(report.runs) == 120
    counted: dict[str, int] = dict(frame["verdict"].value_counts().iter_rows())
    assert sum(times for kind, times in counted.items() if kind != "proved optimal") == len(report.shortfalls)
    text = repr(report)
    assert "falls short" in text
    assert all(f"{times} {kind}" in text for kind, times in counted.items() if kind != "proved optimal")


@pytest.mark.exhaustive
def test_the_smallest_problem_reproduces_the_failure_when_pasted(tmp_path: Path) -> None:
    module = "import numpy as np\n\n\ndef solve(problem):\n    return np.full(len(problem.sources), 1e9)\n"
    (tmp_path / "greedy.py").write_text(module)
    report = validate(lambda p: np.full(len(p.sources), 1e9), [DELAY], n=3, scales=["benign"])
    (found,) = report.smallest
    assert len(found.recipe) == 1
    code = found.code("greedy:solve", report.tolerance)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert "AssertionError: not feasible" in ran.stderr, ran.stderr
    assert "solve = ...  # <lambda>" in found.code("<lambda>", 1e-6)


def every_kind() -> list[tuple[str, fo.Problem]]:
    return [
        (f"{objective!r}, {name}", problem)
        for objective in (DELAY, fo.problems.ExpectedPenalty(np.sqrt), fo.problems.PollingKnapsack())
        for name, problem in instances(objective, 3, 5, "ill")
        if "0.5" in name
    ]


@pytest.mark.parametrize(("name", "problem"), [*every_kind(), ("given", PROBLEM)], ids=lambda x: str(x)[:60])
def test_code_rebuilds_the_problem(name: str, problem: fo.Problem) -> None:
    names: dict[str, Any] = {}
    exec(compile(Recipe.from_problem(problem).code(), name, "exec", dont_inherit=True), names)
    again = names["problem"]
    assert Recipe.from_problem(problem).changes_in(again) == []
    assert repr(again.objective) == repr(problem.objective)


def test_code_of_many_sources_has_short_lines_and_rebuilds_the_problem() -> None:
    for _, problem in instances(DELAY, 30, 5, "ill"):
        code = Recipe.from_problem(problem).code()
        assert max(map(len, code.splitlines())) <= 96
        names: dict[str, Any] = {}
        exec(compile(code, "many", "exec", dont_inherit=True), names)
        assert Recipe.from_problem(problem).changes_in(names["problem"]) == []


def test_an_objective_that_cannot_be_written_leaves_a_line_to_fill_in() -> None:
    problem = fo.Problem(fo.problems.ExpectedPenalty(lambda m: m**0.5), fo.Sources([1.0]), 1.0)
    assert "\nobjective = ...  # " in Recipe.from_problem(problem).code()


def test_shrinking_ends_drops_all_that_it_can_and_respects_its_effort() -> None:
    calls = 0

    def fails(recipe: Recipe) -> bool:
        nonlocal calls
        calls += 1
        return bool(np.any(recipe.max_rate < np.inf)) and len(recipe) >= 2

    small = shrink(Recipe.from_problem(PROBLEM), fails)
    assert len(small) == 2
    assert small.host is small.names is None
    assert small.bandwidth == 1.0
    assert np.all(small.change_rate == 1.0)
    assert np.sum(small.max_rate < np.inf) == 1
    calls = 0
    shrink(Recipe.from_problem(PROBLEM), fails, runs=3)
    assert calls == 3


@pytest.mark.exhaustive
def test_a_solver_that_does_not_do_the_same_twice_is_reported_as_seen() -> None:
    answers = iter([[9.0, 1.5, 1.5]])
    report = validate_on(lambda p: next(answers, None) or fo.solve(p), [("once", PROBLEM)])
    (found,) = report.smallest
    assert "did not fail again" in found.origin
    assert found.outcome.verdict is Verdict.INFEASIBLE
    assert len(found.recipe) == 3
