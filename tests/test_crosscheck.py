"""cross_check: a table in which every claim is judged by its own certificate."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.agreement_cells import COLUMNS
from freshopt.certificates.solution import Answer
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, Solver, certified_solution
from freshopt.modelling.objective import Refresh
from freshopt.problems import AccumulatedDelay, HarmonicStaleness, LaterThan
from freshopt.sampled_gap import AGREES, DISAGREES, NO_GAP, TOO_FEW, SampledGap
from freshopt.solvers import AutomataTree, ClosedForm, Conic, Proportional, Uniform, WaterFilling
from tests.ground_truth.named import BINARY, DELAY, HARMONIC
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import CONIC

SOURCES = fo.Sources(np.geomspace(0.2, 5.0, 8), np.geomspace(4.0, 0.3, 8)[[3, 0, 6, 1, 7, 4, 2, 5]])
PROBLEM = fo.Problem(HARMONIC, SOURCES, bandwidth=4.0)


@dataclass(frozen=True)
class Forgetful:
    """A tree that does not know importances: a mistake that no number of polls mends."""

    polls: int
    seed: int = 0
    sampled: ClassVar[bool] = True

    def supports(self, problem: fo.Problem) -> str | None:  # noqa: ARG002
        return None

    def replica(self, number: int, shorter: int = 1) -> Self:
        return replace(self, seed=self.seed + number, polls=self.polls // shorter)

    def enough(self, problem: fo.Problem) -> bool:
        return AutomataTree(self.polls).enough(problem)

    def solve(self, problem: fo.Problem, terms: SolveOptions = DEFAULT) -> fo.Solution:
        alike = fo.Problem(
            problem.objective, fo.Sources(problem.sources.change_rate), bandwidth=problem.bandwidth
        )
        rates = AutomataTree(self.polls, self.seed).solve(alike).rates
        return certified_solution(self, problem, terms, lambda *_: Answer(rates))


def verdict(tree: AutomataTree | Forgetful, problem: fo.Problem = PROBLEM) -> tuple[str, fo.Agreement]:
    agreement = fo.cross_check(problem, {"dual": WaterFilling(), "tree": tree})
    return agreement.to_frame()["verdict"].to_list()[1], agreement


@pytest.mark.exhaustive
def test_a_right_tree_agrees() -> None:
    word, agreement = verdict(AutomataTree(polls=40_000))
    assert word == AGREES
    assert agreement.agrees
    assert agreement.unconfirmed() == []
    assert "The solvers agree: one proves the optimum" in agreement.closing()
    assert "agrees within 2 s.e. (gap 0." in agreement.closing()


@pytest.mark.exhaustive
def test_a_tree_alone_agrees_with_nobody() -> None:
    agreement = fo.cross_check(PROBLEM, [AutomataTree(polls=40_000)])
    assert not agreement.agrees
    assert agreement.closing().startswith("No solver is judged by its certificate. AutomataTree")
    assert "agrees within 2 s.e." in agreement.closing()


@pytest.mark.exhaustive
def test_a_broken_tree_is_caught() -> None:
    word, agreement = verdict(Forgetful(polls=40_000))
    assert word == DISAGREES
    assert not agreement.agrees
    assert agreement.unconfirmed() == [1]
    assert agreement.proved  # by the other solver, which is not contradicted
    assert "The solvers agree" not in repr(agreement)


@pytest.mark.exhaustive
@pytest.mark.parametrize("tree", [AutomataTree(polls=50), Forgetful(polls=50)], ids=["right", "broken"])
def test_fifty_polls_tell_nothing(tree: AutomataTree | Forgetful) -> None:
    word, agreement = verdict(tree)
    assert word == TOO_FEW
    assert not agreement.agrees
    assert "tree: too few polls to tell" in agreement.closing()


@pytest.mark.exhaustive
@pytest.mark.parametrize("polls", [4_000, 16_000, 64_000, 256_000])
@pytest.mark.parametrize("objective", [BINARY, HARMONIC], ids=str)
def test_a_right_tree_is_never_said_to_disagree(objective: fo.Objective, polls: int) -> None:
    assert verdict(AutomataTree(polls), fo.Problem(objective, SOURCES, bandwidth=4.0))[0] != DISAGREES


@pytest.mark.parametrize(
    ("gaps", "shorter", "enough", "word"),
    [
        ((1e-3, 2e-3, 1e-3, 2e-3), (4e-3, 5e-3, 6e-3, 4e-3), True, AGREES),
        ((1e-3, 2e-3, 1e-3, 2e-3), (1e-3, 2e-3, 1e-3, 2e-3), False, AGREES),  # a proof needs no more polls
        ((0.05, 0.051, 0.049, 0.05), (0.05, 0.052, 0.049, 0.05), True, DISAGREES),
        ((0.05, 0.051, 0.049, 0.05), (0.05, 0.052, 0.049, 0.05), False, TOO_FEW),
        ((0.05, 0.051, 0.049, 0.05), (0.1, 0.11, 0.1, 0.1), True, TOO_FEW),  # halved, and so on its way
        ((0.0, 0.2, 0.0, 0.1), (0.0, 0.3, 0.0, 0.0), True, TOO_FEW),  # anything is within its errors
        ((np.inf, 0.1, 0.1, 0.1), (0.1, 0.1, 0.1, 0.1), True, NO_GAP),
        ((1e-3, 2e-3, 1e-3, 2e-3), (1e-3, 2e-3, 1e-3, np.inf), False, NO_GAP),
    ],
)
def test_the_rule(gaps: tuple[float, ...], shorter: tuple[float, ...], enough: bool, word: str) -> None:
    assert SampledGap(gaps, shorter, enough).verdict == word


def test_runs_without_a_certificate_are_counted_and_blame_nobody() -> None:
    found = SampledGap((np.inf, 0.1, 0.1, 0.1), (0.1, np.inf, 0.1, 0.1), enough=True)
    assert str(found) == "2 of 8 runs have no certified gap"


@pytest.mark.exhaustive
def test_a_right_tree_agrees_where_the_least_cost_is_nothing() -> None:
    """Relative to a least cost of 0 every gap is infinite, however small it is beside other costs."""
    objective = LaterThan(1.0, refresh=fo.Refresh.PERIODIC)
    problem = fo.Problem(objective, fo.Sources([1.0, 1.0]), bandwidth=2.0)
    assert verdict(AutomataTree(polls=40_000), problem)[0] in {AGREES, TOO_FEW}


def test_extrapolation_is_exact_for_gaps_that_fall_with_the_root() -> None:
    found = SampledGap((0.02 + 0.1,) * 4, (0.02 + 0.2,) * 4, enough=True)
    assert abs(found.extrapolated - 0.02) <= 1e-15
    assert found.error == found.extrapolated_error == 0.0
    spread = SampledGap((0.1, 0.2, 0.1, 0.2), (0.3, 0.3, 0.3, 0.3), enough=True)
    assert abs(spread.error - np.std([0.1, 0.2, 0.1, 0.2], ddof=1) / 2.0) <= 1e-15
    assert abs(spread.extrapolated_error - 2.0 * spread.error) <= 1e-15


RNG = np.random.default_rng(3)
N = 12
PARAMETRIC_SOURCES = fo.Sources(RNG.lognormal(size=N), RNG.lognormal(size=N))
SIZE = RNG.lognormal(size=N)
LIMITED = fo.Problem(HARMONIC, PARAMETRIC_SOURCES, 8.0, constraints=[fo.Budget(6.0, cost=SIZE, name="bytes")])


def test_the_frontier_of_a_budget_is_cvxpys() -> None:
    limits = [1.0, 3.0, 9.0, 100.0]
    found = fo.frontier(LIMITED, limits, constraint="bytes")
    rate, limit = cp.Variable(N, nonneg=True), cp.Parameter()
    w, d = np.array(PARAMETRIC_SOURCES.importance), np.array(PARAMETRIC_SOURCES.change_rate)
    # log(1 + d/ρ) in cones: the logistic function of log d − log ρ.
    value = cp.sum(cp.multiply(w, cp.logistic(np.log(d) - cp.log(rate))))
    bytes_used = SIZE @ rate <= limit
    truth = cp.Problem(cp.Minimize(value), [cp.sum(rate) <= 8.0, bytes_used])
    for k, each in enumerate(limits):
        limit.value = each
        truth.solve(solver="CLARABEL")
        solution, price = found.solutions[k], found.prices[k]
        assert present(solution).value == pytest.approx(truth.value, rel=CONIC)
        assert present(price) == pytest.approx(float(bytes_used.dual_value), rel=1e3 * CONIC, abs=1e-5)
    assert found.prices[-1] == 0.0
    table = found.to_frame()
    assert table.columns == ["limit", "status", "value", "price", "relative_gap", "fresh", "cost"]
    rates = [solution.rates for solution in found.solutions if solution is not None]
    # Poisson refreshes: a copy is fresh ρ/(Δ + ρ) of the time.
    fresh = [float(w @ (rate / (rate + d)) / w.sum()) for rate in rates]
    assert table["fresh"].to_list() == pytest.approx(fresh, rel=1e-12)
    assert table["cost"].to_list() == pytest.approx([float(rate.sum()) for rate in rates], rel=1e-12)
    assert table["price"].to_list() == list(found.prices)
    assert repr(found) == "Frontier(4 limits of 'bytes', 1..100)"


def test_the_price_is_the_slope_along_every_kind_of_limit() -> None:
    group = np.where(np.arange(N) % 2 == 0, "even", "odd")
    fresh = fo.Target(BINARY, at_least={"even": 0.3, "odd": 0.2}, by=group, name="fresh")
    tree = fo.Nested([group], at_most={"even": 2.0}, at_least={"odd": 1.0})
    for constraint, label, at in ((fresh, "fresh[even]", 0.45), (tree, "nested[even]", 2.0)):
        problem = fo.Problem(DELAY, PARAMETRIC_SOURCES, 8.0, constraints=[constraint])
        h = 1e-4 * at
        points = fo.frontier(problem, [at - h, at, at + h], constraint=label)
        low, middle, high = (each.value for each in points.solutions if each is not None)
        assert points.prices[1] is not None
        assert points.prices[1] > 1e-3
        assert abs(high - low) / (2.0 * h) == pytest.approx(points.prices[1], rel=1e-3)
        assert low != middle != high


def test_one_number_for_several_groups_has_the_sum_of_their_prices() -> None:
    group = np.where(np.arange(N) % 2 == 0, "even", "odd")
    each = fo.Budget(1.0, by=group, cost=SIZE, name="half")
    problem = fo.Problem(DELAY, PARAMETRIC_SOURCES, 8.0, constraints=[each])
    points = fo.frontier(problem, [0.9999, 1.0, 1.0001], constraint="half")
    low, _, high = (solution.value for solution in points.solutions if solution is not None)
    assert points.prices[1] == pytest.approx((low - high) / 2e-4, rel=1e-5)


def test_infeasible_limits_stay_with_the_conflict() -> None:
    fresh = fo.Target(BINARY, at_least=0.3, name="fresh")
    problem = fo.Problem(DELAY, PARAMETRIC_SOURCES, 2.0, constraints=[fresh])
    found = fo.frontier(problem, [0.1, 0.95, 0.2], constraint="fresh")
    assert [solution is None for solution in found.solutions] == [False, True, False]
    assert "fresh" in found.reasons[1]
    assert "bandwidth" in found.reasons[1]
    assert found.to_frame()["status"].to_list() == ["optimal", "infeasible", "optimal"]
    assert found.to_frame()["price"].null_count() == 1


def test_later_points_start_from_earlier_prices() -> None:
    limits = np.linspace(3.0, 3.3, 6).tolist()
    cold = [fo.solve(LIMITED.with_limit("bytes", limit)).iterations for limit in limits]
    warm = [each.iterations for each in fo.frontier(LIMITED, limits, constraint="bytes").solutions if each]
    assert sum(warm[1:]) < sum(cold[1:])


@pytest.mark.parametrize(
    ("limits", "constraint", "words"),
    [([], None, "no limits"), ("12", "bytes", "not a list"), ([1.0], "other", "no constraint is labelled")],
)
def test_what_is_no_frontier_is_refused(limits: list[float], constraint: str | None, words: str) -> None:
    refused(words, fo.frontier, LIMITED, limits, constraint=constraint)


DELAY_OF_TWO = fo.Problem(AccumulatedDelay(Refresh.POISSON), fo.Sources([1.0, 4.0]), 3.0)
HARMONIC_OF_THREE = fo.Problem(HarmonicStaleness(Refresh.POISSON), fo.Sources([0.1, 1.0, 10.0]), 2.0)


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
    agreement = fo.cross_check(DELAY_OF_TWO, solvers)
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
    agreement = fo.cross_check(DELAY_OF_TWO, both)
    solution = agreement.solutions[1]
    assert solution.status is status
    assert note in solution.note
    assert agreement.agrees == (status in (fo.Status.OPTIMAL, fo.Status.REFUSED))
    assert agreement.contradictions() == []
    alone = fo.cross_check(DELAY_OF_TWO, [WaterFilling(), function])
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
            fo.cross_check(DELAY_OF_TWO, {"mine": wrong})
    with pytest.raises(ZeroDivisionError):
        fo.cross_check(DELAY_OF_TWO, [lambda _: 1 / 0])


def test_refusals_and_baselines_do_not_spoil_it() -> None:
    agreement = fo.cross_check(HARMONIC_OF_THREE, [WaterFilling(), ClosedForm(), Uniform(), Proportional()])
    assert agreement.agrees
    verdicts = agreement.to_frame()["verdict"].to_list()
    assert verdicts == ["proved optimal", "does not apply", "baseline", "baseline"]


@pytest.mark.parametrize(("rates", "verdict"), [((1.0, 0.5, 0.5), "NOT optimal"), (None, "NO ANSWER")])
def test_a_wrong_or_missing_answer_spoils_it(rates: tuple[float, ...] | None, verdict: str) -> None:
    agreement = fo.cross_check(HARMONIC_OF_THREE, [WaterFilling(), Fixed(rates)])
    assert not agreement.agrees
    assert agreement.to_frame()["verdict"].to_list() == ["proved optimal", verdict]
    assert "do NOT agree" in repr(agreement)


def test_the_tolerance_decides() -> None:
    rates = fo.solve(HARMONIC_OF_THREE).rates * np.array([1.001, 1.0, 1.0])
    near = Fixed(tuple(rates.tolist()))
    assert not fo.cross_check(HARMONIC_OF_THREE, [near], tolerance=1e-9).agrees
    assert fo.cross_check(HARMONIC_OF_THREE, [near], tolerance=1e-2).agrees


def test_nobody_answering_is_no_agreement() -> None:
    agreement = fo.cross_check(HARMONIC_OF_THREE, [ClosedForm()])
    assert not agreement.agrees
    assert agreement.best is None
    assert all(math.isnan(x) for x in agreement.rate_differences())
    assert not fo.cross_check(HARMONIC_OF_THREE, []).agrees


def test_the_table_has_a_row_per_solver_and_nulls_without_answers() -> None:
    table = fo.cross_check(HARMONIC_OF_THREE, [WaterFilling(), ClosedForm()]).to_frame()
    assert table.columns == [*COLUMNS, "note"]
    assert COLUMNS[:3] == ("solver", "status", "value")
    assert table["value"].null_count() == table["relative gap"].null_count() == 1
    assert table["largest rate difference"].to_list() == [0.0, None]


def test_rate_differences_are_relative_to_the_best_rates() -> None:
    """Against (1, 2), B/n = 1.5: rates (1.15, 1.85) differ by 0.15/1.5 and 0.15/2."""
    agreement = fo.cross_check(DELAY_OF_TWO, [WaterFilling(), Fixed((1.15, 1.85))])
    assert abs(agreement.rate_differences()[1] - 0.1) <= 1e-9


def test_repr_and_html_show_problem_rows_and_verdict() -> None:
    agreement = fo.cross_check(HARMONIC_OF_THREE, [WaterFilling(), Uniform()])
    lines = repr(agreement).splitlines()
    assert lines[0] == repr(HARMONIC_OF_THREE)
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

    markup = fo.cross_check(HARMONIC_OF_THREE, [Tag(None)])._repr_html_()
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
    problem = fo.Problem(BINARY, sources, 3.0) if maximised else DELAY_OF_TWO
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

    agreement = fo.cross_check(DELAY_OF_TWO, [Raising(None), WaterFilling()])
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
    agreement = fo.cross_check(HARMONIC_OF_THREE, named)
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
