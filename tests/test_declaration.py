"""Declarations that must be refused, with the offending term named, and what passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.problems import BinaryFreshness, HarmonicStaleness

W = np.array([1.0, 2.0, 3.0])
Written = Callable[[Any], Any]


def declared(written: Written, sense: Literal["minimise", "maximise"] = "minimise") -> fo.Problem:
    """Return a problem of three sources whose objective is what is written."""
    objective = type(
        "Mine", (fo.Objective,), {"sense": sense, "per_source": lambda _self, rate, _sources: written(rate)}
    )()
    return fo.Problem(objective, fo.Sources(W), 3.0)


@pytest.mark.parametrize(
    ("written", "phrases"),
    [
        pytest.param(lambda r: cp.sum(cp.inv_pos(r)), ("shape ()", "no cp.sum"), id="sum"),
        pytest.param(lambda r: cp.inv_pos(r)[:2], ("shape (2,)",), id="two of three"),
        pytest.param(lambda r: W @ cp.inv_pos(r), ("shape ()", "cp.multiply"), id="dot product"),
        pytest.param(lambda r: cp.inv_pos(r) + cp.sum(r), ("not separable", "Sum"), id="sum of all added"),
        pytest.param(lambda r: -(W * cp.log(r)) + r, ("not separable", "@ log(rate)"), id="w * log(rate)"),
        pytest.param(lambda r: cp.inv_pos(r[::-1]), ("not separable", "rate["), id="reversed"),
        pytest.param(lambda r: cp.inv_pos(r[0]) + 0 * r, ("not separable", "rate[0]"), id="first for all"),
        pytest.param(lambda r: np.eye(3) @ cp.inv_pos(r), ("not separable", "@"), id="matrix product"),
        pytest.param(lambda r: cp.cumsum(cp.inv_pos(r)), ("not separable", "cumsum"), id="cumsum"),
        pytest.param(lambda r: cp.hstack([r[1], r[0], r[2]]), ("not separable", "rate[1]"), id="hstack"),
        pytest.param(
            lambda r: cp.maximum(cp.inv_pos(r), cp.max(r)), ("not separable", "max(rate"), id="largest of all"
        ),
        pytest.param(lambda r: cp.diff(cp.hstack([0, r])), ("not separable",), id="differences"),
        pytest.param(
            lambda r: cp.log(1 + 1 / r),
            ("not convex", "DCP", "/ rate'", "cp.inv_pos(rate) for 1/rate"),
            id="not DCP",
        ),
        pytest.param(lambda r: cp.multiply(r, cp.exp(r)), ("not convex", "DCP", "exp(rate)"), id="product"),
        pytest.param(
            lambda r: cp.log(r), ("is concave", "'minimise' needs convex", "log(rate)"), id="concave"
        ),
        pytest.param(lambda _: 7.0, ("returned a float", "shape (3,)"), id="number"),
        pytest.param(lambda _: W, ("returned a ndarray",), id="array"),
        pytest.param(lambda _: None, ("returned a NoneType",), id="nothing"),
        pytest.param(
            lambda r: cp.inv_pos(r) + cp.Variable(3, name="stray"),
            ("'stray'", "nothing constrains"),
            id="stray",
        ),
    ],
)
def test_refused_with_the_term(written: Written, phrases: tuple[str, ...]) -> None:
    with pytest.raises(fo.ObjectiveError) as caught:
        declared(written)
    message = str(caught.value)
    assert message.startswith("Mine.")
    assert all(phrase in message for phrase in phrases), message


def test_maximising_a_convex_expression_is_refused() -> None:
    with pytest.raises(fo.ObjectiveError, match="is convex but sense = 'maximise' needs concave"):
        declared(cp.inv_pos, "maximise")


def test_auxiliary_constraints_need_a_kernel() -> None:
    def written(rate: Any) -> Any:  # noqa: ANN401
        t = cp.Variable(3)
        return t, [t >= cp.inv_pos(rate)]

    with pytest.raises(
        fo.ObjectiveError, match=r"auxiliary constraints but there is no kernel.*Write kernel"
    ):
        declared(written)


def test_an_objective_without_declaration_says_so() -> None:
    class Empty(fo.Objective):
        pass

    with pytest.raises(fo.ObjectiveError, match="Empty declares no per_source"):
        fo.Problem(Empty(), fo.Sources([1.0]), 1.0)


def test_signals_without_their_cell_are_refused() -> None:
    class Plain(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401, ARG002
            return cp.inv_pos(rate)

    with pytest.raises(
        fo.ObjectiveError,
        match=r"'b' is signalled, but Plain declares no signalled_per_source.*signalled=False",
    ):
        fo.Problem(Plain(), fo.Sources([1.0, 2.0], name=["a", "b"], signalled=[False, True]), 1.0)


def test_signals_beside_periodic_refreshes_are_for_binary_freshness_only() -> None:
    sources = fo.Sources([1.0, 2.0], signalled=[True, False])
    fo.Problem(BinaryFreshness(refresh=fo.Refresh.PERIODIC), sources, 1.0)
    with pytest.raises(fo.ObjectiveError, match=r"source 0 is signalled, but .*periodic.*signalled=False"):
        fo.Problem(HarmonicStaleness(refresh=fo.Refresh.PERIODIC), sources, 1.0)


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda r: cp.multiply(W, cp.inv_pos(r)), id="multiply"),
        pytest.param(lambda r: 3.0 * cp.inv_pos(r) / 2.0, id="scalars"),
        pytest.param(lambda r: cp.inv_pos(r + W) - r / 100.0 + W, id="sums"),
        pytest.param(lambda r: cp.exp(-cp.log(r)), id="composition"),
        pytest.param(lambda r: cp.inv_pos(cp.multiply(1 / W, r)), id="affine inside"),
    ],
)
def test_separable_expressions_pass_and_are_proved(written: Written) -> None:
    assert fo.solve(declared(written)).status is fo.Status.OPTIMAL


def test_one_source_has_nothing_to_mix() -> None:
    class Summed(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return sources.importance[0] * cp.inv_pos(rate)

    solution = fo.solve(fo.Problem(Summed(), fo.Sources([1.0]), 2.0))
    assert abs(solution.value - 0.5) <= 1e-12
