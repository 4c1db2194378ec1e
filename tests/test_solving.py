"""The front door: statuses, what is thrown, starts, the frontier, and how results print."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.solution import Answer
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, Solver, certified_solution
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from freshopt.solvers import Auto, ClosedForm, Conic, Proportional, SquareRoot, Uniform, WaterFilling
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

SOURCES = fo.Sources([0.1, 1.0, 100.0], names=["a", "b", "c<d>"])
PROBLEM = fo.Problem(HARMONIC, SOURCES, 2.0)


@dataclass(frozen=True)
class Pretender:
    """A foreign solver that claims whatever it is told to."""

    answer: Answer

    def supports(self, problem: fo.Problem) -> str | None:  # noqa: ARG002
        return None

    def solve(self, problem: fo.Problem, terms: SolveOptions = DEFAULT) -> fo.Solution:
        return certified_solution(self, problem, terms, lambda _problem, _start: self.answer)


def test_every_status_has_a_word_and_a_sentence() -> None:
    words = [
        "optimal",
        "inaccurate",
        "infeasible",
        "unbounded",
        "iteration limit",
        "time limit",
        "failed",
        "refused",
    ]
    assert [status.value for status in fo.Status] == words
    for status in fo.Status:
        assert status.sentence.endswith(".")
        assert "\n" not in status.sentence


def test_the_default_is_auto_and_says_why() -> None:
    solution = fo.solve(PROBLEM)
    assert solution.status is fo.Status.OPTIMAL
    assert solution.solver == WaterFilling()
    assert solution.note.startswith("Auto chose WaterFilling(): ")


def test_a_false_claim_of_optimality_is_not_believed() -> None:
    poor = Pretender(Answer(np.full(3, 2.0 / 3.0)))
    solution = fo.solve(PROBLEM, poor, throw=False)
    assert solution.status is fo.Status.INACCURATE
    assert "exceeds the tolerance 1e-06" in solution.note
    with pytest.raises(fo.CertificateError, match=r"ended inaccurate.*throw=False") as caught:
        fo.solve(PROBLEM, poor)
    assert np.array_equal(caught.value.solution.rates, np.full(3, 2.0 / 3.0))
    assert fo.solve(PROBLEM, poor, tolerance=1.0).status is fo.Status.OPTIMAL


def test_infeasible_rates_are_repaired_before_they_leave() -> None:
    solution = fo.solve(PROBLEM, Pretender(Answer(np.full(3, 10.0))), throw=False)
    assert solution.rates.sum() <= 2.0 * (1.0 + EXACT)
    assert abs(present(solution.certificate).infeasibility - 14.0) <= EXACT * 14.0


def test_a_claim_of_optimality_is_no_proof() -> None:
    boast = Pretender(Answer(np.full(3, 0.1), status=fo.Status.OPTIMAL))
    assert fo.solve(PROBLEM, boast, throw=False).status is fo.Status.INACCURATE


@pytest.mark.parametrize("status", [fo.Status.FAILED, fo.Status.ITERATION_LIMIT])
def test_failures_are_a_status_or_an_error(status: fo.Status) -> None:
    broken = Pretender(Answer(None, status=status, note="It gave up.", iterations=7))
    solution = fo.solve(PROBLEM, broken, throw=False)
    assert solution.status is status
    assert solution.certificate is None
    assert np.all(np.isnan(solution.rates))
    assert math.isnan(solution.value)
    assert solution.iterations == 7
    refused(f"ended {status.value}. It gave up", fo.solve, PROBLEM, broken, error=fo.CertificateError)


def test_refusal_names_the_solver_and_the_reason() -> None:
    with pytest.raises(fo.SolverRefusedError, match=r"ClosedForm does not apply: .*HarmonicStaleness"):
        fo.solve(PROBLEM, ClosedForm())
    assert fo.solve(PROBLEM, ClosedForm(), throw=False).status is fo.Status.REFUSED


def test_closed_form_refuses_binding_bounds_and_limits_by_name() -> None:
    capped = fo.Problem(DELAY, fo.Sources([1.0, 4.0], names=["a", "b"], max_rate=[9.0, 1.0]), 3.0)
    refused("bounds bind for 'b'", fo.solve, capped, ClosedForm(), error=fo.SolverRefusedError)
    limited = fo.Problem(DELAY, fo.Sources([1.0, 4.0], host=["g", "h"]), 3.0, {"h": 1.0})
    refused("limits bind for 'h'", fo.solve, limited, ClosedForm(), error=fo.SolverRefusedError)


@pytest.mark.parametrize("wrong", [WaterFilling, "WaterFilling", 3, object()])
def test_a_class_or_a_name_is_no_solver(wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(
        fo.SolverRefusedError, match=r"is not a solver instance. Pass one, such as .*WaterFilling\(\)"
    ):
        fo.solve(PROBLEM, wrong)


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(fo.SolverRefusedError, match=r"'GUROBIX' is unknown, use one of CLARABEL.*OSQP"):
        fo.solve(PROBLEM, Conic("GUROBIX"))


def test_any_solver_that_cvxpy_has_installed_will_do() -> None:
    """OSQP solves quadratic programs: periodic deadlines are linear; of other costs it refuses the cones."""
    late = fo.problems.LaterThan(2.0, fo.Refresh.PERIODIC)
    linear = fo.Problem(late, fo.Sources([1.0, 2.0], [3.0, 1.0]), 0.6)
    solution = fo.solve(linear, Conic("OSQP", ladder=False), tolerance=1e-3)
    assert solution.value == pytest.approx(fo.solve(linear).value, rel=1e-3)
    assert solution.note.startswith("OSQP said optimal")
    failed = fo.solve(PROBLEM, Conic("OSQP", ladder=False), throw=False)
    assert failed.status is fo.Status.FAILED
    assert failed.note.startswith("OSQP ended with an error")
    scipy = fo.solve(linear, Conic("SCIPY", ladder=False))
    assert scipy.value == pytest.approx(fo.solve(linear).value)
    with pytest.raises(fo.SolverRefusedError, match="SCIPY solves linear programs only"):
        fo.solve(PROBLEM, Conic("SCIPY"))


@pytest.mark.parametrize("refresh", [fo.Refresh.POISSON, fo.Refresh.PERIODIC])
@pytest.mark.parametrize("kind", [HarmonicStaleness, BinaryFreshness, fo.problems.Age])
def test_the_scaled_program_is_solved_by_a_cone_solver_as_it_is(kind: Any, refresh: fo.Refresh) -> None:  # noqa: ANN401
    """As it is declared, CLARABEL's rates of periodic harmonic staleness lose 4 % and more here."""
    rng = np.random.default_rng(0)
    sources = fo.Sources(np.exp(rng.normal(-1.0, 1.5, 30)), rng.pareto(1.5, 30) + 0.1)
    problem = fo.Problem(kind(refresh), sources, 0.5 * float(sources.change_rate.sum()))
    scaled = Conic().to_cvxpy(problem)
    scaled.program.solve(solver="CLARABEL")
    assert scaled.rate.shape == (30,)
    found = fo.certify(problem, np.maximum(scaled.rate.value, 0.0))
    assert found.infeasibility < 1e-6
    assert found.relative_gap < 1e-5


def test_nothing_is_left_to_a_scaled_program_where_bounds_decide() -> None:
    capped = fo.Problem(HARMONIC, fo.Sources([1.0, 1.0], max_rate=0.5), 2.0)
    refused("every source is held at a bound", Conic().to_cvxpy, capped, error=fo.SolverRefusedError)


def test_bounds_that_leave_nothing_for_a_source_are_infeasible() -> None:
    sources = fo.Sources([1.0, 1.0], names=["a", "b"], min_rate=[2.0, 0.0])
    problem = fo.Problem(HARMONIC, sources, 2.0)
    with pytest.raises(fo.InfeasibleProblemError, match=r"nothing for 'b'.*infinite.*Raise the bandwidth"):
        fo.solve(problem)
    assert fo.solve(problem, throw=False).status is fo.Status.INFEASIBLE
    binary = fo.solve(fo.Problem(BINARY, sources, 2.0))
    assert binary.rates.tolist() == [2.0, 0.0]


def test_baselines_are_inaccurate_without_being_an_error() -> None:
    for baseline in (Uniform(), Proportional(), SquareRoot()):
        solution = fo.solve(PROBLEM, baseline)
        assert solution.status is fo.Status.INACCURATE
        assert solution.note.startswith("A baseline, not meant to be optimal")
    assert np.all(np.abs(fo.solve(PROBLEM, Uniform()).rates - 2.0 / 3.0) <= EXACT)
    proportional = fo.solve(PROBLEM, Proportional()).rates
    assert np.all(np.abs(proportional / SOURCES.change_rate * 101.1 / 2.0 - 1.0) <= EXACT)


@pytest.mark.parametrize("baseline", [Uniform(), Proportional(), SquareRoot()])
@pytest.mark.parametrize("extra", [0.0, 5.0])
@pytest.mark.parametrize("least", [[2.0, 3.0, 0.0], [2.0, 2.0, 1.0]])
def test_baselines_where_min_rate_uses_the_whole_bandwidth(
    baseline: Solver, extra: float, least: list[float]
) -> None:
    sources = fo.Sources([1.0, 2.0, 3.0], min_rate=least, changed_cost=extra)
    used = float(fo.Problem(BINARY, sources, 1e3).used_by_source(np.array(least)).sum())
    rates = fo.solve(fo.Problem(BINARY, sources, used), baseline).rates
    np.testing.assert_allclose(rates, least, rtol=EXACT)


def test_baselines_share_what_bounds_leave() -> None:
    """One source capped at 0.5 of 3, the other two share 2.5: the cap binds, equal shares elsewhere."""
    problem = fo.Problem(DELAY, fo.Sources([1.0] * 3, max_rate=[0.5, np.inf, np.inf]), 3.0)
    assert np.all(np.abs(fo.solve(problem, Uniform()).rates - [0.5, 1.25, 1.25]) <= EXACT)


def test_the_square_root_rule_is_the_optimum_of_the_delay() -> None:
    """Σ w·Δ/2ρ under Σ cost·ρ = B: Lagrange's ρ = B·√(wΔ/cost)/Σ√(wΔ·cost); 0 where nothing matters."""
    delta, weight, cost = np.array([[0.1, 1.0, 100.0, 3.0], [2.0, 0.5, 1.0, 0.0], [1.0, 4.0, 0.25, 1.0]])
    sources = fo.Sources(delta, weight, refresh_cost=cost)
    found = fo.solve(fo.Problem(HARMONIC, sources, 7.0), SquareRoot())
    rates = 7.0 * np.sqrt(weight * delta / cost) / np.sum(np.sqrt(weight * delta * cost))
    assert np.all(np.abs(found.rates - rates) <= EXACT * 7.0)
    capped = fo.Problem(HARMONIC, fo.Sources([1.0, 4.0, 9.0], max_rate=[9.0, 9.0, 2.0]), 5.0)
    assert np.all(np.abs(fo.solve(capped, SquareRoot()).rates - [1.0, 2.0, 2.0]) <= EXACT)


def test_without_certificate_the_value_is_the_same() -> None:
    bare = fo.solve(PROBLEM, certify=False)
    assert bare.certificate is None
    assert abs(bare.value - fo.solve(PROBLEM).value) <= EXACT * bare.value
    assert "bound" not in repr(bare)


def test_every_solution_carries_its_proof() -> None:
    solution = fo.solve(PROBLEM)
    proof = present(solution.certificate)
    assert proof.value == solution.value
    assert proof.price == solution.price
    assert proof.relative_gap <= SCALAR
    assert fo.certify(PROBLEM, solution.rates).relative_gap <= SCALAR


@pytest.mark.parametrize("factor", [1.0, 0.2, 1e6, 1e-9])
def test_a_start_changes_the_effort_and_not_the_answer(factor: float) -> None:
    cold = fo.solve(PROBLEM)
    warm = fo.solve(PROBLEM, warm_start=cold.price * factor)
    assert np.all(np.abs(warm.rates - cold.rates) <= SCALAR * cold.rates)
    assert factor != 1.0 or warm.iterations <= cold.iterations


def test_a_solution_is_a_start() -> None:
    cold = fo.solve(PROBLEM)
    other = PROBLEM.with_bandwidth(2.02)
    warm = fo.solve(other, warm_start=cold)
    assert warm.status is fo.Status.OPTIMAL
    assert np.all(np.abs(warm.rates - fo.solve(other).rates) <= SCALAR * warm.rates)


@pytest.mark.parametrize("start", [0.0, math.inf, math.nan, -1.0])
def test_a_useless_start_is_ignored(start: float) -> None:
    assert fo.solve(PROBLEM, warm_start=start).status is fo.Status.OPTIMAL


def test_a_solution_without_answer_is_a_harmless_start() -> None:
    empty = fo.solve(PROBLEM, ClosedForm(), throw=False)
    assert fo.solve(PROBLEM, warm_start=empty).status is fo.Status.OPTIMAL


def test_solving_changes_nothing() -> None:
    before = PROBLEM.sources.change_rate.copy()
    first, second = fo.solve(PROBLEM), fo.solve(PROBLEM)
    assert np.array_equal(first.rates, second.rates)
    assert first.price == second.price
    assert np.array_equal(PROBLEM.sources.change_rate, before)


def test_frontier_follows_the_bandwidth_and_keeps_infeasible_rows() -> None:
    sources = fo.Sources([1.0, 4.0], min_rate=[1.0, 0.0])
    problem = fo.Problem(DELAY, sources, 3.0)
    frontier = fo.frontier(problem, [0.5, 3.0, 12.0])
    assert frontier.limits == (0.5, 3.0, 12.0)
    assert frontier.solutions[0] is None
    assert "bandwidth is 0.5" in frontier.reasons[0]
    values = [s.value for s in frontier.solutions if s is not None]
    assert np.all(
        np.abs(np.array(values) - [9.0 / 3.0, 9.0 / 12.0]) <= SCALAR
    )  # (1+2)²/B, the square-root rule
    table = frontier.to_frame()
    assert table.columns == ["bandwidth", "status", "value", "price", "relative_gap", "fresh", "cost"]
    assert table["status"].to_list() == ["infeasible", "optimal", "optimal"]
    assert table["value"].null_count() == table["price"].null_count() == 1
    # Rates are as the square roots 1 : 2 of the change rates, in all B; under Poisson refreshes a copy is
    # fresh a share r/(r + Δ) of the time, and a refresh costs 1.
    fresh = [(b / 3.0 / (b / 3.0 + 1.0) + 2.0 * b / 3.0 / (2.0 * b / 3.0 + 4.0)) / 2.0 for b in (3.0, 12.0)]
    assert table["fresh"].to_list() == [None, *(pytest.approx(share, rel=SCALAR) for share in fresh)]
    assert table["cost"].to_list() == [None, pytest.approx(3.0, rel=EXACT), pytest.approx(12.0, rel=EXACT)]
    assert repr(frontier) == "Frontier(3 bandwidths, 0.5..12)"


def test_price_is_the_slope_of_the_frontier() -> None:
    """dF*/dB = −λ, by central differences with a relative step of 1e-4: error 1e-8."""
    h = 1e-4
    low, middle, high = (fo.solve(PROBLEM.with_bandwidth(2.0 * x)) for x in (1.0 - h, 1.0, 1.0 + h))
    slope = (low.value - high.value) / (4.0 * h)
    assert abs(slope - middle.price) <= CONIC * middle.price


def test_a_failed_row_does_not_stop_the_frontier() -> None:
    frontier = fo.frontier(PROBLEM, [1.0, 2.0], ClosedForm())
    assert [s.status for s in frontier.solutions if s is not None] == [fo.Status.REFUSED] * 2
    assert all("ClosedForm does not apply" in reason for reason in frontier.reasons)


@pytest.mark.parametrize("solver", [Auto(), Uniform(), ClosedForm(), Conic()])
@pytest.mark.parametrize("n", [1, 1000])
def test_a_solution_prints_in_nine_lines(solver: Any, n: int) -> None:  # noqa: ANN401
    sources = fo.Sources(np.linspace(1.0, 2.0, n), host=["h"] * n, max_rate=5.0)
    text = repr(fo.solve(fo.Problem(HARMONIC, sources, 0.5 * n, {"h": 0.4 * n}), solver, throw=False))
    lines = text.splitlines()
    assert len(lines) <= 9
    assert lines[0].startswith("solution: ")
    assert not any("[" in line for line in lines)


def test_counts_at_bounds_are_shown() -> None:
    sources = fo.Sources([1.0, 1.0, 1.0, 8.0], min_rate=[0.9, 0.0, 0.0, 0.0], max_rate=[2.0, 0.1, 9.0, 9.0])
    text = repr(fo.solve(fo.Problem(BINARY, sources, 1.5)))
    assert "4: 1 never refreshed, 1 at min_rate, 1 at max_rate" in text
    assert "(maximised)" in text


def test_html_is_escaped() -> None:
    @dataclass(frozen=True)
    class Tag(Pretender):
        def __repr__(self) -> str:
            return "<script>alert(1)</script>"

    solution = fo.solve(PROBLEM, Tag(Answer(None, status=fo.Status.FAILED, note="a < b & c")), throw=False)
    markup = solution._repr_html_()
    assert markup.startswith("<table>")
    assert "<script>" not in markup
    assert "&lt;script&gt;" in markup
    assert "a &lt; b &amp; c" in markup


def test_a_solution_is_a_table_of_sources() -> None:
    table = fo.solve(fo.Problem(BINARY, SOURCES, 1.0)).to_frame()
    assert table.columns == ["source", "rate", "interval"]
    assert table["source"].to_list() == ["a", "b", "c<d>"]
    assert table["interval"].to_list()[2] is None  # never refreshed
    assert abs(table["rate"][0] * table["interval"][0] - 1.0) <= EXACT


def test_an_absolute_tolerance_is_as_good_as_a_relative_one() -> None:
    best = fo.solve(PROBLEM)
    loss = fo.solve(PROBLEM, Uniform()).value - best.value
    for solver in (
        Uniform(),
        Pretender(Answer(np.array(fo.solve(PROBLEM, Uniform()).rates), price=best.price)),
    ):
        within = fo.solve(PROBLEM, solver, absolute_tolerance=1.001 * loss)
        assert within.status is fo.Status.OPTIMAL
        assert within.certificate.gap == pytest.approx(loss, rel=CONIC)
        short = fo.solve(PROBLEM, solver, absolute_tolerance=0.999 * loss, throw=False)
        assert short.status is fo.Status.INACCURATE


@pytest.mark.parametrize("wrong", [-1.0, math.nan, "x", None])
def test_an_absolute_tolerance_that_is_none(wrong: Any) -> None:  # noqa: ANN401
    refused("absolute_tolerance is", lambda: fo.solve(PROBLEM, absolute_tolerance=wrong))
