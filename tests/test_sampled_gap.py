"""Verdicts on solvers that learn from samples: right, wrong, or too short to tell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.solution import Answer
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.problems import BinaryFreshness, HarmonicStaleness, LaterThan
from freshopt.sampled_gap import AGREES, DISAGREES, NO_GAP, TOO_FEW, SampledGap
from freshopt.solvers import AutomataTree, WaterFilling

SOURCES = fo.Sources(np.geomspace(0.2, 5.0, 8), np.geomspace(4.0, 0.3, 8)[[3, 0, 6, 1, 7, 4, 2, 5]])
PROBLEM = fo.Problem(HarmonicStaleness(), SOURCES, bandwidth=4.0)


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
@pytest.mark.parametrize("objective", [BinaryFreshness(), HarmonicStaleness()], ids=str)
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
