"""Rows of plain CVXPY constraints, against CVXPY's own evaluation of them."""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse

import freshopt as fo
from freshopt.modelling.row_recognition import UnknownCouplingError, recognise
from freshopt.problems import AccumulatedDelay
from freshopt.separable.rows import Rows
from tests.ground_truth.tolerances import EXACT

N = 9
RNG = np.random.default_rng(7)
SOURCES = fo.Sources(RNG.lognormal(size=N), RNG.lognormal(size=N))
W, D = np.array(SOURCES.importance), np.array(SOURCES.change_rate)
TIER = np.array([True, False, True, True, False, False, True, False, True])
R = RNG.lognormal(size=(3, N))
SPARSE = scipy.sparse.random(4, N, 0.5, random_state=1, format="csr")
SHIFT = RNG.lognormal(size=N)

CONSTRAINTS: dict[str, Callable[[cp.Variable], cp.Constraint]] = {
    "a dot product": lambda rate: W @ rate <= 3.0,
    "a dot product, rate first": lambda rate: rate @ W <= 3.0,
    "a sum": lambda rate: cp.sum(rate) <= 3.0,
    "a mean": lambda rate: cp.mean(rate) <= 0.3,
    "written the other way": lambda rate: cp.sum(rate) >= 3.0,
    "both sides": lambda rate: cp.sum(rate[:4]) <= 2.0 * cp.sum(rate[4:]) + 1.0,
    "a matrix": lambda rate: R @ rate <= np.array([1.0, 2.0, 3.0]),
    "a matrix, rate first": lambda rate: rate @ R.T <= 2.0,
    "a sparse matrix": lambda rate: SPARSE @ rate <= 4.0,
    "a mask": lambda rate: cp.sum(rate[TIER]) <= 1.0,
    "indices": lambda rate: cp.sum(rate[[1, 5, 2]]) <= 1.0,
    "a slice backwards": lambda rate: rate[::-1] <= SHIFT,
    "ratios": lambda rate: rate[1:] <= cp.multiply(SHIFT[1:], rate[:-1]),
    "one ratio": lambda rate: rate[3] <= 2.0 * rate[0],
    "stacked": lambda rate: cp.hstack([rate[0], cp.sum(rate), W @ rate]) <= np.array([1.0, 2.0, 3.0]),
    "quotients": lambda rate: cp.sum(rate / SHIFT) / 4.0 <= 1.0,
    "doubled": lambda rate: cp.sum(rate) + cp.sum(rate[TIER]) - rate[0] <= 1.0,
    "a curve": lambda rate: W @ cp.inv_pos(rate) <= 50.0,
    "harmonic staleness": lambda rate: (
        cp.sum(cp.multiply(W, cp.logistic(np.log(D) - cp.log(rate)))) <= 0.3 * W.sum()
    ),
    "a tier's share of old copies": lambda rate: cp.sum(cp.exp(-3.0 * rate[TIER])) / TIER.sum() <= 0.4,
    "a tier's curve with constants of its own": lambda rate: (
        cp.sum(cp.multiply(W[TIER], cp.inv_pos(rate[TIER] + SHIFT[TIER]))) <= 4.0
    ),
    "a concave floor": lambda rate: W @ cp.log(cp.multiply(1.0 / D, rate)) >= -20.0,
    "a matrix of curves": lambda rate: R @ cp.exp(-rate) <= np.array([3.0, 4.0, 5.0]),
    "curve and rate": lambda rate: cp.sum(rate) + W @ cp.inv_pos(rate) <= 60.0,
    "two curves": lambda rate: cp.sum(cp.exp(-rate)) + cp.sum(cp.square(rate)) <= 30.0,
    "elementwise": lambda rate: cp.square(rate) + cp.inv_pos(rate) <= SHIFT + 20.0,
    "a kink": lambda rate: cp.sum(cp.maximum(rate - SHIFT, 0.0)) <= 2.0,
    "a parameter": lambda rate: cp.sum(rate) <= cp.Parameter(value=3.0),
}


def rows_of(make: Callable[[cp.Variable], cp.Constraint]) -> tuple[cp.Variable, cp.Constraint, Rows]:
    rate = cp.Variable(N, nonneg=True, name="rate")
    constraint = make(rate)
    return rate, constraint, Rows.gather(recognise(constraint, rate, SOURCES, "it"), N)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_rows_are_the_constraint(name: str) -> None:
    rate, constraint, rows = rows_of(CONSTRAINTS[name])
    rng = np.random.default_rng(3)
    for _ in range(5):
        rate.value = rng.lognormal(0.0, 1.5, N)
        expected = np.reshape(constraint.expr.value, -1)
        found = rows.used(np.array(rate.value)) - rows.limits
        assert len(rows) == len(expected)
        assert np.max(np.abs(found - expected)) <= EXACT * (1.0 + np.max(np.abs(rows.values(rate.value))) * N)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_curves_are_convex_and_their_coefficients_positive(name: str) -> None:
    _, _, rows = rows_of(CONSTRAINTS[name])
    assert np.all(rows.coefficient[rows.kind > 0] >= 0.0)
    for curve in rows.curves:
        assert np.all(curve.curvature(np.full(N, 0.7)) >= 0.0)


def test_equal_expressions_share_a_curve() -> None:
    def both(rate: cp.Variable) -> list[cp.Constraint]:
        staleness = cp.multiply(W, cp.logistic(np.log(D) - cp.log(rate)))
        again = cp.multiply(W, cp.logistic(np.log(D) - cp.log(rate)))
        return [cp.sum(staleness[TIER]) <= 2.0, cp.sum(again[~TIER]) <= 3.0]

    problem = fo.Problem(AccumulatedDelay(), SOURCES, 3.0, constraints=both)
    assert problem.program is not None
    assert len(problem.program.rows.curves) == 1


def test_bounds_of_single_sources_become_bounds() -> None:
    problem = fo.Problem(
        AccumulatedDelay(), SOURCES, 5.0, constraints=lambda rate: [rate <= 2.0, rate[3] >= 0.25]
    )
    assert problem.program is None
    assert np.array_equal(problem.upper, np.full(N, 2.0))
    assert np.array_equal(np.flatnonzero(problem.lower), [3])


REFUSED: dict[str, tuple[Callable[[cp.Variable], cp.Constraint], str]] = {
    "a norm": (lambda rate: cp.norm(rate) <= 2.0, "couples sources by the term 'Pnorm"),
    "a maximum over sources": (lambda rate: cp.max(rate) <= 2.0, "couples sources by the term 'max(rate"),
    "log_sum_exp": (lambda rate: cp.log_sum_exp(rate) <= 2.0, "couples sources by the term 'log_sum_exp"),
    "a quadratic form": (
        lambda rate: cp.quad_form(rate, R.T @ R) <= 2.0,
        "couples sources by the term 'QuadForm",
    ),
    "a curve of a sum": (lambda rate: cp.inv_pos(cp.sum(rate)) <= 2.0, "couples sources by the term"),
    "a curve of two selections": (
        lambda rate: cp.sum(cp.square(rate[:3] - rate[3:6])) <= 2.0,
        "couples different sources in the term",
    ),
    "an equality": (lambda rate: cp.sum(rate) == 2.0, "is no inequality"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_couples_sources_is_named(name: str) -> None:
    make, words = REFUSED[name]
    rate = cp.Variable(N, nonneg=True, name="rate")
    with pytest.raises(UnknownCouplingError, match=r"^constraint 'it' ") as caught:
        recognise(make(rate), rate, SOURCES, "it")
    assert words in str(caught.value)


def test_other_variables_and_shapes_are_refused() -> None:
    rate, other = cp.Variable(N, nonneg=True, name="rate"), cp.Variable(name="t")
    with pytest.raises(fo.ObjectiveError, match="uses the variable 't'"):
        recognise(cp.sum(rate) <= other, rate, SOURCES, "it")
    with pytest.raises(fo.ObjectiveError, match="not convex"):
        recognise(cp.sum(cp.sqrt(rate)) <= 1.0, rate, SOURCES, "it")
