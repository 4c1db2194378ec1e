"""Atoms of a user's own: registered derivatives at work, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cvxpy.atoms.elementwise.elementwise import Elementwise

import freshopt as fo
from freshopt.autodiff import compiler
from freshopt.autodiff.compiler import UnknownAtomError, compile_expression, known_atoms, register
from freshopt.cvx import cp
from freshopt.solvers import Conic, WaterFilling
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.ground_truth.unknown_atom import stranger

RATES = np.array([0.3, 1.0, 2.5, 40.0])


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(compiler, "_REGISTERED", dict(compiler._REGISTERED))


class own(Elementwise):  # type: ignore[misc]  # noqa: N801 - CVXPY is untyped; atoms are named like functions
    """A convex atom without curvature analysis of its own; its arguments must be affine."""

    def numeric(self, values: list[Any]) -> Any:  # noqa: ANN401
        raise NotImplementedError

    def sign_from_args(self) -> tuple[bool, bool]:
        return True, False

    def is_atom_convex(self) -> bool:
        return True

    def is_atom_concave(self) -> bool:
        return False

    def is_incr(self, idx: int) -> bool:  # noqa: ARG002
        return False

    def is_decr(self, idx: int) -> bool:  # noqa: ARG002
        return False

    def _grad(self, values: list[Any]) -> list[None]:
        return [None] * len(values)


class rounded(own):  # noqa: N801
    """√(s² + x²), s one per source."""

    def __init__(self, x: Any, scale: Any) -> None:  # noqa: ANN401
        self.scale = scale
        super().__init__(x)

    def get_data(self) -> list[Any]:
        return [self.scale]

    def numeric(self, values: list[Any]) -> Any:  # noqa: ANN401
        return np.sqrt(self.scale**2 + values[0] ** 2)


def rounded_derivatives(x: Any, scale: Any) -> Any:  # noqa: ANN401
    f = np.hypot(scale, x)
    return f, x / f, scale**2 / f**3


class distance(own):  # noqa: N801
    """√(1 + x² + y²) of two arguments."""

    def numeric(self, values: list[Any]) -> Any:  # noqa: ANN401
        return np.sqrt(1.0 + values[0] ** 2 + values[1] ** 2)


def distance_derivatives(x: Any, y: Any) -> Any:  # noqa: ANN401
    f = np.sqrt(1.0 + x * x + y * y)
    cross = -x * y / f**3
    return f, (x / f, y / f), (((1.0 + y * y) / f**3, cross), (cross, (1.0 + x * x) / f**3))


def jet(written: Any) -> Any:  # noqa: ANN401
    rate = cp.Variable(len(RATES), nonneg=True)
    return compile_expression(written(rate), rate).evaluate(RATES)


def close(found: Any, *expected: Any) -> None:  # noqa: ANN401
    for a, b in zip(found, expected, strict=True):
        assert np.all(np.abs(a - b) <= EXACT * np.abs(b))


def test_an_atom_with_parameters_of_each_source() -> None:
    scale = np.array([1.0, 2.0, 3.0, 4.0])
    register(rounded, rounded_derivatives, parameters=lambda atom: (atom.scale,))
    x = 2.0 * RATES - 1.0
    f = np.sqrt(scale**2 + x**2)
    close(jet(lambda r: rounded(2 * r - 1, scale)), f, 2.0 * x / f, 4.0 * scale**2 / f**3)
    assert "rounded" in known_atoms()


def test_an_atom_of_two_arguments() -> None:
    register(distance, distance_derivatives)
    f = np.sqrt(1.0 + 5.0 * RATES**2)  # both arguments in proportion to the rate: one of √5·r
    close(jet(lambda r: distance(r, 2 * r)), f, 5.0 * RATES / f, 5.0 / f**3)
    g = np.sqrt(10.0 + RATES**2)
    close(jet(lambda r: distance(3.0, r)), g, RATES / g, 10.0 / g**3)


def test_an_atom_of_cvxpy_by_its_name() -> None:
    with pytest.raises(UnknownAtomError, match="'ceil'"):
        jet(cp.ceil)
    register("ceil", lambda x: (np.ceil(x), 0.0 * x, 0.0 * x))
    close(jet(cp.ceil), np.ceil(RATES), 0.0 * RATES, 0.0 * RATES)


def test_a_name_belongs_to_cvxpy_and_a_class_to_itself() -> None:
    impostor = type("log", (own,), {})
    with pytest.raises(UnknownAtomError, match="atom 'log'"):
        jet(impostor)
    heir = type("heir", (stranger,), {})
    with pytest.raises(UnknownAtomError, match="'heir'"):
        jet(heir)


@pytest.mark.parametrize("atom", [3, None, cp.log(cp.Variable(2))])
def test_what_is_no_atom_is_refused(atom: Any) -> None:  # noqa: ANN401
    with pytest.raises(fo.ObjectiveError, match=r"is no atom\. Pass"):
        register(atom, rounded_derivatives)


class NearTarget(fo.Objective):
    """Σ w·√(Δ² + (ρ−Δ)²): be refreshed about as often as there are changes."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance, rounded(rate - sources.change_rate, sources.change_rate))


def test_an_objective_with_it_is_solved_and_certified_without_a_cone_form() -> None:
    """With equal weights the optimum has ρ−Δ in proportion to Δ, so rates are in proportion to Δ."""
    register(rounded, rounded_derivatives, parameters=lambda atom: (atom.scale,))
    d = np.array([0.5, 1.0, 2.5])
    problem = fo.Problem(NearTarget(), fo.Sources(d), 2.0)
    solution = fo.solve(problem, WaterFilling(), tolerance=SCALAR)
    assert np.all(np.abs(solution.rates - d / 2.0) <= SCALAR * d)
    assert abs(solution.value - float(np.sum(d * np.sqrt(1.25)))) <= SCALAR * solution.value
    conic = fo.solve(problem, Conic(), throw=False)  # CVXPY has no cones for it
    assert conic.status is fo.Status.FAILED
    assert "no cone form" in conic.note
