"""Kinks of declared costs: where branches are equal, on data of twelve decades."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from freshopt.autodiff.compiler import compile_expression
from freshopt.autodiff.kink_rates import kink_rates, kinked
from freshopt.cvx import cp
from tests.ground_truth.refusals import present

Array = np.ndarray[Any, np.dtype[np.float64]]
N = 50
RNG = np.random.default_rng(0)
D, K = 10.0 ** RNG.uniform(-6.0, 6.0, N), 10.0 ** RNG.uniform(-6.0, 6.0, N)
FAR = np.full(N, 1e40)
NONE = np.full(N, np.nan)

# What is declared, and the rates of its kinks, by formulas of their own.
CASES: dict[str, tuple[Callable[[Any], Any], list[Array]]] = {
    "pos": (lambda r: cp.pos(K - cp.multiply(1 / D, r)), [K * D]),
    "abs": (lambda r: cp.abs(cp.multiply(1 / D, r) - K), [K * D]),
    "minimum": (lambda r: cp.minimum(cp.multiply(1 / D, r), K), [K * D]),
    "inverse": (lambda r: cp.pos(cp.multiply(D, cp.inv_pos(r)) - K), [D / K]),
    "logarithm": (lambda r: cp.maximum(-cp.log(cp.multiply(1 / D, r)), -1.0), [D * np.exp(1.0)]),
    "exponential": (lambda r: cp.pos(cp.exp(-cp.multiply(1 / D, r)) - 0.25), [D * np.log(4.0)]),
    "logistic": (lambda r: cp.pos(cp.logistic(-cp.multiply(1 / D, r)) - 0.25), [-D * np.log(np.expm1(0.25))]),
    "nested": (
        lambda r: cp.pos(cp.pos(cp.multiply(D, cp.inv_pos(r)) - K) - 2.0 * K),
        [D / K, D / (3.0 * K)],
    ),
    "three lines": (
        lambda r: cp.multiply(K, cp.maximum(3 - 4 * cp.multiply(1 / D, r), 1 - cp.multiply(1 / D, r), 0)),
        [D * 2.0 / 3.0, D],
    ),
    "a line that never leads": (
        lambda r: cp.maximum(2 - 2 * cp.multiply(1 / D, r), 0.5 - cp.multiply(1 / D, r), 0),
        [D],
    ),
    "a parabola above a line": (
        lambda r: cp.maximum(cp.square(cp.multiply(1 / D, r) - 3), 1),
        [2 * D, 4 * D],
    ),
    "huber": (lambda r: cp.huber(cp.multiply(1 / D, r) - 3, 2), [D, 5 * D]),
    "two curves": (
        lambda r: cp.maximum(cp.multiply(D, cp.inv_pos(r)) + cp.exp(-cp.multiply(1 / D, r)), np.exp(-1) + 1),
        [D],
    ),
    "an inverse and a line": (
        lambda r: cp.maximum(cp.multiply(D, cp.inv_pos(r)), 2.5 - cp.multiply(1 / D, r)),
        [D / 2, 2 * D],
    ),
}


def tape_of(declared: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    rate = cp.Variable(N, nonneg=True)
    return compile_expression(declared(rate), rate)


@pytest.mark.parametrize("name", CASES)
def test_every_rate_at_which_branches_change_is_found(name: str) -> None:
    declared, expected = CASES[name]
    crossings = present(kink_rates(tape_of(declared), np.zeros(N), FAR, D))
    found = np.sort(np.stack([crossing.rate for crossing in crossings]), axis=0)
    assert np.allclose(found, np.sort(expected, axis=0), rtol=1e-13, atol=0.0)
    # What rounding may have moved a rate by is claimed, and not a multiple of what it is.
    for crossing in crossings:
        assert np.all((crossing.error > 0.0) & (crossing.error < 1e-11))


def test_kinks_count_above_the_lower_bound_and_up_to_the_upper() -> None:
    declared, (kink, *_) = CASES["pos"]
    tape = tape_of(declared)
    both = kink_rates(tape, np.zeros(N), kink, D), kink_rates(tape, 0.5 * kink, 2.0 * kink, D)
    assert [len(found or []) for found in both] == [1, 1]
    assert kink_rates(tape, kink * (1.0 + 1e-12), FAR, D) == []
    assert kink_rates(tape, np.zeros(N), kink * (1.0 - 1e-12), D) == []


def test_smooth_expressions_have_none_and_many_curved_branches_are_left() -> None:
    assert not kinked(tape_of(cp.inv_pos))
    assert kink_rates(tape_of(cp.inv_pos), np.zeros(N), FAR, D) == []
    many = tape_of(lambda r: cp.maximum(*(cp.multiply(k * D, cp.inv_pos(r)) - k * k for k in range(1, 9))))
    assert kinked(many)
    assert kink_rates(many, np.zeros(N), FAR, D) is None


def test_many_lines_are_walked_along() -> None:
    """Tangents of a parabola: each leads for a while, and every kink is halfway between two of them."""
    touch = np.arange(1.0, 31.0)
    tape = tape_of(
        lambda r: cp.maximum(
            *((31.0 - t) ** 2 - 2.0 * (31.0 - t) * (cp.multiply(1 / D, r) - t) for t in touch)
        )
    )
    crossings = present(kink_rates(tape, np.zeros(N), FAR, D))
    found = np.sort(np.stack([crossing.rate for crossing in crossings]) / D, axis=0)
    assert np.allclose(found, (touch[:-1] + 0.5)[:, None] * np.ones(N), rtol=1e-12, atol=0.0)
