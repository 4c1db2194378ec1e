"""Weights of `Worst`, and labels and exponents in functions of the rate."""

import re
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.problems import AccumulatedDelay, BinaryFreshness
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import CONIC, SCALAR

POISSON = fo.Refresh.POISSON
RNG = np.random.default_rng(7)
D, W, ILL = RNG.lognormal(0.0, 1.0, (3, 12))
ILL = ILL**6
GROUPS = np.array(list("abcd"))[np.arange(12) % 4]
WEIGHTS = {"a": 1.0, "b": 5.0, "c": 0.2, "d": 3.0}


@pytest.mark.parametrize("then", ["stop", "next"])
def test_weighted_minimax_of_single_sources(then: Any) -> None:  # noqa: ANN401
    # max_k w_k·Δ_k/ρ_k under Σρ ≤ B is least at rates in proportion to w·Δ, where it is Σw·Δ/B.
    names = [f"source {k}" for k in range(12)]
    own = dict(zip(names, ILL.tolist(), strict=True))
    worst = fo.Worst(AccumulatedDelay(POISSON), by=names, then=then, weights=own)
    solution = fo.solve(fo.Problem(worst, fo.Sources(D, RNG.lognormal(0.0, 1.0, 12)), 7.0))
    assert solution.value == pytest.approx(float(ILL @ D) / 7.0, rel=SCALAR)
    assert solution.rates == pytest.approx(7.0 * ILL * D / float(ILL @ D), rel=1e-8)


@pytest.mark.parametrize("objective", [AccumulatedDelay(POISSON), BinaryFreshness(POISSON)])
def test_weighted_means_of_groups(objective: fo.Objective) -> None:
    problem = fo.Problem(
        fo.Worst(objective, by=GROUPS, weights=WEIGHTS), fo.Sources(D, W, max_rate=9.0), 10.0
    )
    solution, rate = fo.solve(problem), cp.Variable(12, nonneg=True)
    delay = isinstance(objective, AccumulatedDelay)
    each = cp.multiply(D, cp.inv_pos(rate)) if delay else 1 - cp.multiply(D, cp.inv_pos(D + rate))
    means = [WEIGHTS[g] * (W * (g == GROUPS) / W[g == GROUPS].sum()) @ each for g in WEIGHTS]
    goal = cp.Minimize(cp.maximum(*means)) if delay else cp.Maximize(cp.minimum(*means))
    limits = [cp.sum(rate) <= 10.0, rate <= 9.0]
    assert solution.value == pytest.approx(cp.Problem(goal, limits).solve(solver="CLARABEL"), rel=CONIC)
    declared = problem.to_cvxpy().solve(solver="CLARABEL")
    assert solution.value == pytest.approx(declared, rel=CONIC)
    # Leximin begins with the same level.
    further = fo.solve(
        fo.Problem(fo.Worst(objective, GROUPS, "next", WEIGHTS), problem.sources, bandwidth=10.0)
    )
    assert further.value == pytest.approx(solution.value, rel=SCALAR)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"a": 1.0}, "weights of Worst lack 'b', 'c', 'd'. Pass a weight for each group."),
        (3.0, "weights of Worst are 3.0. Pass {group: weight}."),
        ({"a": 0.0}, "the weight of 'a' in Worst is 0, not > 0."),
        ({"a": "x"}, "the weight of 'a' in Worst is 'x', not a number."),
    ],
)
def test_weights_that_are_none(weights: Any, words: str) -> None:  # noqa: ANN401
    refused(
        re.escape(words),
        lambda: fo.Problem(fo.Worst("delay", by=GROUPS, weights=weights), fo.Sources(D), bandwidth=1.0),
        error=(fo.ObjectiveError, fo.SourceDataError),
    )


def test_functions_of_the_rate_go_on_counting() -> None:
    rules = [
        lambda rate: [cp.sum(rate[:4]) <= 2, (cp.sum(rate[4:8]) <= 2).set_label("middle")],
        fo.Budget(9.0, cost=W, name="bytes"),
        lambda rate: cp.sum(rate[8:]) <= 1,
    ]
    problem = fo.Problem(AccumulatedDelay(POISSON), fo.Sources(D), bandwidth=9.0, constraints=rules)
    labels = ["bandwidth", "constraint 1", "middle", "bytes", "constraint 3"]
    assert list(fo.solve(problem).prices) == labels
    assert [one.label for one in problem.to_cvxpy().constraints] == labels


def test_an_array_of_exponents_is_told_of_power() -> None:
    exponents = np.linspace(-2.0, -1.0, 12)

    class Falling(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401, ARG002
            return cp.power(rate, exponents)

    remedy, error = re.escape("exponent for each source, use fo.power(rate, exponents)"), fo.ObjectiveError
    refused(remedy, lambda: fo.Problem(Falling(), fo.Sources(D), bandwidth=9.0), error=error)
    refused(
        remedy,
        lambda: fo.Problem(
            AccumulatedDelay(POISSON), fo.Sources(D), constraints=lambda rate: cp.sum(rate**-exponents) <= 9
        ),
        error=error,
    )


def test_the_users_own_type_errors_stay_theirs() -> None:
    class Own(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return float(sources.change_rate) * cp.inv_pos(rate)

    refused("arrays can be converted", fo.Problem, Own(), fo.Sources(D), bandwidth=9.0, error=TypeError)
