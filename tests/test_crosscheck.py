"""cross_check: a table in which every claim is judged by its own certificate."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.agreement_cells import COLUMNS
from freshopt.certificates.solution import Answer
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, Solver, certified_solution
from freshopt.modelling.objective import Refresh
from freshopt.problems import AccumulatedDelay, HarmonicStaleness
from freshopt.solvers import ClosedForm, Conic, Proportional, Uniform, WaterFilling
from tests.ground_truth.named import BINARY, present
from tests.ground_truth.tolerances import CONIC

DELAY = fo.Problem(AccumulatedDelay(Refresh.POISSON), fo.Sources([1.0, 4.0]), 3.0)
HARMONIC = fo.Problem(HarmonicStaleness(Refresh.POISSON), fo.Sources([0.1, 1.0, 10.0]), 2.0)


@dataclass(frozen=True)
class Fixed:
    """Returns given rates, or none."""

    rates: tuple[float, ...] | None

    def supports(self, problem: fo.Problem) -> str | None:  # noqa: ARG002
        return None

    def solve(self, problem: fo.Problem, terms: SolveOptions = DEFAULT) -> fo.Solution:
        rates = None if self.rates is None else np.array(self.rates)
        return certified_solution(self, problem, terms, lambda _problem, _start: Answer(rates))


def test_all_solvers_of_one_problem_agree() -> None:
    solvers: list[Solver] = [WaterFilling(), ClosedForm(), Conic("CLARABEL"), Conic("ECOS"), Conic("SCS")]
    agreement = fo.cross_check(DELAY, solvers)
    assert agreement.agrees
    assert [s.status for s in agreement.solutions] == [fo.Status.OPTIMAL] * 5
    assert max(agreement.rate_differences()) <= 1e3 * CONIC  # rates: about the root of the gap
    assert present(agreement.best).solver in (WaterFilling(), ClosedForm())


def refusing(problem: fo.Problem) -> None:
    raise fo.SolverRefusedError(f"not for {len(problem.sources)} sources")


@pytest.mark.parametrize(
    ("function", "status", "note"),
    [
        (lambda problem: fo.solve(problem).rates, fo.Status.OPTIMAL, ""),
        (lambda problem: fo.solve(problem).rates.tolist(), fo.Status.OPTIMAL, ""),
        (fo.solve, fo.Status.OPTIMAL, ""),
        (lambda _: [1.5, 1.5], fo.Status.INACCURATE, "the certified relative gap 0.053 exceeds"),
        (lambda problem: 2.0 * fo.solve(problem).rates, fo.Status.INACCURATE, "infeasible by 1,"),
        (lambda _: [1.0], fo.Status.FAILED, "rates"),
        (lambda _: [1.0, math.nan], fo.Status.FAILED, "not finite"),
        (lambda _: None, fo.Status.FAILED, "rates"),
        (refusing, fo.Status.REFUSED, "not for 2 sources"),
    ],
)
def test_a_plain_function_is_judged_by_its_rates(
    function: Callable[[fo.Problem], object], status: fo.Status, note: str
) -> None:
    both: dict[str, Any] = {"exact": WaterFilling(), "mine": function}
    agreement = fo.cross_check(DELAY, both)
    solution = agreement.solutions[1]
    assert solution.status is status
    assert note in solution.note
    assert agreement.agrees == (status in (fo.Status.OPTIMAL, fo.Status.REFUSED))
    assert agreement.contradictions() == []
    alone = fo.cross_check(DELAY, [WaterFilling(), function])
    assert alone.names == ("WaterFilling()", function.__name__)


def test_functions_see_fetches_that_cost_what_they_bring_and_declared_constraints() -> None:
    dear = fo.Problem(AccumulatedDelay(Refresh.POISSON), fo.Sources([1.0, 4.0], changed_cost=[1.0, 0.0]), 3.0)
    capped = fo.Problem(
        AccumulatedDelay(Refresh.POISSON),
        fo.Sources([1.0, 4.0]),
        bandwidth=3.0,
        constraints=[fo.Budget(2.0, cost=[1.0, 2.0])],
    )
    for problem in (dear, capped):
        agreement = fo.cross_check(problem, [lambda p: fo.solve(p).rates])
        assert agreement.solutions[0].status is fo.Status.OPTIMAL, agreement


def test_what_is_neither_solver_nor_function_is_refused_and_foreign_errors_pass() -> None:
    neither: list[Any] = ["water-filling", WaterFilling]
    for wrong in neither:
        with pytest.raises(fo.SolverRefusedError, match="is not a solver instance"):
            fo.cross_check(DELAY, {"mine": wrong})
    with pytest.raises(ZeroDivisionError):
        fo.cross_check(DELAY, [lambda _: 1 / 0])


def test_refusals_and_baselines_do_not_spoil_it() -> None:
    agreement = fo.cross_check(HARMONIC, [WaterFilling(), ClosedForm(), Uniform(), Proportional()])
    assert agreement.agrees
    verdicts = agreement.to_frame()["verdict"].to_list()
    assert verdicts == ["proved optimal", "does not apply", "baseline", "baseline"]


@pytest.mark.parametrize(("rates", "verdict"), [((1.0, 0.5, 0.5), "NOT optimal"), (None, "NO ANSWER")])
def test_a_wrong_or_missing_answer_spoils_it(rates: tuple[float, ...] | None, verdict: str) -> None:
    agreement = fo.cross_check(HARMONIC, [WaterFilling(), Fixed(rates)])
    assert not agreement.agrees
    assert agreement.to_frame()["verdict"].to_list() == ["proved optimal", verdict]
    assert "do NOT agree" in repr(agreement)


def test_the_tolerance_decides() -> None:
    rates = fo.solve(HARMONIC).rates * np.array([1.001, 1.0, 1.0])
    near = Fixed(tuple(rates.tolist()))
    assert not fo.cross_check(HARMONIC, [near], tolerance=1e-9).agrees
    assert fo.cross_check(HARMONIC, [near], tolerance=1e-2).agrees


def test_nobody_answering_is_no_agreement() -> None:
    agreement = fo.cross_check(HARMONIC, [ClosedForm()])
    assert not agreement.agrees
    assert agreement.best is None
    assert all(math.isnan(x) for x in agreement.rate_differences())
    assert not fo.cross_check(HARMONIC, []).agrees


def test_the_table_has_a_row_per_solver_and_nulls_without_answers() -> None:
    table = fo.cross_check(HARMONIC, [WaterFilling(), ClosedForm()]).to_frame()
    assert table.columns == [*COLUMNS, "note"]
    assert COLUMNS[:3] == ("solver", "status", "value")
    assert table["value"].null_count() == table["relative gap"].null_count() == 1
    assert table["largest rate difference"].to_list() == [0.0, None]


def test_rate_differences_are_relative_to_the_best_rates() -> None:
    """Against (1, 2), B/n = 1.5: rates (1.15, 1.85) differ by 0.15/1.5 and 0.15/2."""
    agreement = fo.cross_check(DELAY, [WaterFilling(), Fixed((1.15, 1.85))])
    assert abs(agreement.rate_differences()[1] - 0.1) <= 1e-9


def test_repr_and_html_show_problem_rows_and_verdict() -> None:
    agreement = fo.cross_check(HARMONIC, [WaterFilling(), Uniform()])
    lines = repr(agreement).splitlines()
    assert lines[0] == repr(HARMONIC)
    assert sum(line.endswith(("proved optimal", "baseline")) for line in lines) == 2
    assert max(map(len, lines)) <= 100
    assert lines[-1] == "The solvers agree: one proves the optimum to a relative gap of 1e-06."
    markup = agreement._repr_html_()
    assert markup.count("<tr>") == 3
    assert "proved optimal" in markup


def test_html_is_escaped() -> None:
    @dataclass(frozen=True)
    class Tag(Fixed):
        def __str__(self) -> str:
            return "<b>bold</b>"

    markup = fo.cross_check(HARMONIC, [Tag(None)])._repr_html_()
    assert "<b>" not in markup
    assert "&lt;b&gt;" in markup


@dataclass(frozen=True)
class Wrong(Fixed):
    """Claims a bound that is off by a share, as a wrong certificate would."""

    share: float = 0.0

    def solve(self, problem: fo.Problem, terms: SolveOptions = DEFAULT) -> fo.Solution:
        solution = Fixed.solve(self, problem, terms)
        claimed = replace(present(solution.certificate), bound=solution.value * (1.0 + self.share))
        return replace(solution, certificate=claimed)


@pytest.mark.parametrize("maximised", [False, True])
def test_a_value_beyond_anothers_bound_is_a_contradiction(maximised: bool) -> None:
    """At (0.5, 2.5) delay is 3.6 and at (1, 2) 3; a bound of 3.6·0.95 = 3.42 says that 3 cannot be."""
    sources = fo.Sources([1.0, 4.0])
    problem = fo.Problem(BINARY, sources, 3.0) if maximised else DELAY
    low = Wrong((0.5, 2.5), share=0.01 if maximised else -0.05)
    both: dict[str, Solver] = {"exact": WaterFilling(), "wrong": low}
    agreement = fo.cross_check(problem, both)
    assert not agreement.agrees
    assert not agreement.proved
    (text,) = agreement.contradictions()
    assert text.startswith("exact has the value ")
    assert text.endswith("that wrong proves.")
    assert agreement.closing().startswith("The solvers CONTRADICT each other: exact has")
    both = {"exact": WaterFilling(), "poor": Fixed((0.5, 2.5))}
    honest = fo.cross_check(problem, both)
    assert honest.contradictions() == []
    assert honest.proved
    assert not honest.agrees


def test_a_solver_that_raises_has_failed_and_the_others_go_on() -> None:
    @dataclass(frozen=True)
    class Raising(Fixed):
        def solve(self, problem: fo.Problem, terms: SolveOptions = DEFAULT) -> fo.Solution:  # noqa: ARG002
            raise fo.ObjectiveError("the penalty cannot be summed at rate 0. Raise min_rate.")

    agreement = fo.cross_check(DELAY, [Raising(None), WaterFilling()])
    assert [s.status for s in agreement.solutions] == [fo.Status.FAILED, fo.Status.OPTIMAL]
    assert agreement.to_frame()["note"][0].startswith("the penalty cannot be summed")
    assert agreement.short() == [0]


def test_names_refusals_and_numbers_read_well() -> None:
    named: dict[str, Solver] = {
        "dual": WaterFilling(),
        "closed": ClosedForm(),
        "cone": Conic("ECOS"),
        "even": Uniform(),
    }
    agreement = fo.cross_check(HARMONIC, named)
    lines = repr(agreement).splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["dual", "cone", "even"]
    assert lines[5] == "not applicable: closed"
    assert len({line.rindex("  ") for line in lines[1:5]}) == 1  # columns are aligned
    assert agreement.closing() == "The solvers agree: 2 of 2 prove the optimum to a relative gap of 1e-06."
    markup = agreement._repr_html_()
    assert 'title="ClosedForm does not apply: ' in markup
    assert markup.count("color:#1a7f37") == 2


def test_a_cost_that_vanishes_has_no_gap() -> None:
    """All changes are announced and there is bandwidth for all: the optimal cost is 0."""
    sources = fo.Sources([1.0, 2.0], signalled=True)
    problem = fo.Problem(HarmonicStaleness(Refresh.POISSON), sources, 5.0)
    agreement = fo.cross_check(problem, {"near": Fixed((1.0 - 4e-16, 2.0))})
    proof = present(agreement.solutions[0].certificate)
    assert proof.vanishing
    assert proof.gap > 0.0 == proof.relative_gap
    assert agreement.agrees
