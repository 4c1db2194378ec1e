"""Gaps of samples, and problems with parameters."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.solution import Answer
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.problems import LaterThan
from freshopt.sampled_gap import AGREES, DISAGREES, NO_GAP, TOO_FEW, SampledGap
from freshopt.solvers import AutomataTree, WaterFilling
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
