"""Perspectives ρ·g(a/ρ) beside closed forms, differences, CVXPY's own atoms, and what is refused."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

import freshopt as fo
from freshopt.autodiff.compiler import compile_expression
from freshopt.cvx import Expression, cp

A = np.array([0.3, 1.0, 7.0, 2e5])
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "exponential": (lambda t: cp.exp(-t), lambda t: mp.exp(-t)),
    "square": (cp.square, lambda t: t * t),
    "log": (lambda t: cp.log(1.0 + t), lambda t: mp.log(1 + t)),
    "late": (lambda t: cp.pos(t - 2.0), lambda t: max(t - 2, mpf(0))),
}


@pytest.mark.parametrize("name", list(CASES))
def test_value_slope_and_curvature_are_those_of_40_digits(name: str) -> None:
    g, exact = CASES[name]
    rate = cp.Variable(4, nonneg=True)
    tape = compile_expression(fo.perspective(g, rate, A), rate)
    with mp.workdps(40):
        for at in (A / 1.7, A / 3.3, 2.0 * A):
            found = tape.evaluate(at)
            for k in range(4):
                f = partial(lambda a, r: r * exact(a / r), mpf(A[k]))
                assert float(found.value[k]) == pytest.approx(float(f(mpf(at[k]))), rel=1e-13)
                assert float(found.slope[k]) == pytest.approx(float(mp.diff(f, mpf(at[k]))), rel=1e-11)
                bend = float(mp.diff(f, mpf(at[k]), 2))
                assert float(found.curvature[k]) == pytest.approx(bend, rel=1e-9, abs=1e-9 / A[k])


class Delay(fo.Objective):
    """ρ·(a/ρ)²/2, which is a²/(2ρ), or that by CVXPY's own atom."""

    def __init__(self, *, own: bool) -> None:
        self.own = own

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        if self.own:
            return cp.multiply(sources.importance * sources.change_rate**2 / 2.0, cp.inv_pos(rate))
        half = fo.perspective(lambda t: 0.5 * cp.square(t), rate, sources.change_rate)
        return cp.multiply(sources.importance, half)


def test_a_perspective_is_solved_as_cvxpys_own_atom() -> None:
    rng = np.random.default_rng(1)
    sources = fo.Sources(10.0 ** rng.uniform(-4.0, 4.0, 50), 10.0 ** rng.uniform(-3.0, 3.0, 50))
    mine, own = (fo.solve(fo.Problem(Delay(own=own), sources, 30.0)) for own in (False, True))
    np.testing.assert_allclose(mine.rates, own.rates, rtol=1e-9)
    assert mine.certificate.relative_gap < 1e-12


def test_what_is_no_perspective_is_refused() -> None:
    rate = cp.Variable(2, nonneg=True)
    for given, words in (
        ((lambda t: cp.square(t) - cp.exp(t), rate), "neither convex nor concave"),
        ((lambda t: cp.sum(t), rate), r"returns shape \(\) for \(2,\)"),
        ((cp.square, rate, [1.0, 0.0]), "must be > 0"),
        ((2.0, rate), "pass a function of an expression"),
    ):
        with pytest.raises(fo.ObjectiveError, match=words):
            fo.perspective(*given)
    # The rules of CVXPY: a convex perspective of what is not affine is of unknown sign.
    assert not fo.perspective(cp.square, cp.square(rate)).is_dcp()
    assert fo.perspective(cp.square, rate).is_convex()
    assert fo.perspective(cp.sqrt, rate).is_concave()
    with pytest.raises(fo.SolverRefusedError, match="no cone form"):
        fo.solve(fo.Problem(Delay(own=False), fo.Sources([1.0, 2.0]), 3.0), fo.solvers.Conic())
