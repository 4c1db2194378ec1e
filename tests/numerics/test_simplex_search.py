"""The Nelder-Mead search: SciPy's steps, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from freshopt.numerics.arrays import Array
from freshopt.numerics.simplex_search import least_in_box


def bowl(x: Array) -> float:
    return float(np.sum((x - np.arange(1.0, len(x) + 1.0)) ** 2 * 10.0 ** np.arange(len(x))))


def valley(x: Array) -> float:
    return float(100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2)


def steps(x: Array) -> float:
    """Return what makes the simplex shrink: only lattice points are told apart."""
    return float(np.sum(np.floor(4.0 * x) ** 2) + (0.1 if x[0] > 0.25 else 0.0))


def likelihood(x: Array) -> float:
    return float(np.exp(x[0] - x[1]) - 3.0 * x[0] + 1e3 * np.cosh(1e-3 * x[1]))


@pytest.mark.parametrize("function", [bowl, valley, steps, likelihood])
@pytest.mark.parametrize("bound", [0.3, 1.0, 50.0])
@pytest.mark.parametrize("size", [1e-3, 0.7, 5.0])
@pytest.mark.parametrize("most", [4, 1000])
def test_the_same_bits_as_scipy(
    function: Callable[[Array], float], bound: float, size: float, most: int
) -> None:
    start = np.array([0.25, -0.3])
    simplex = start + size * np.array([[0.0, 0.0], [1.0, 0.3], [-0.2, 1.0]])
    low, high = np.full(2, -bound), np.full(2, bound)
    options: Any = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": most, "initial_simplex": simplex}
    truth = minimize(
        function, start, method="Nelder-Mead", bounds=list(zip(low, high, strict=True)), options=options
    )
    point, value = least_in_box(function, simplex, low, high, near=1e-6, close=1e-9, steps=most)
    assert point.tolist() == truth.x.tolist()
    assert value == truth.fun


def test_one_variable_and_five() -> None:
    for n in (1, 5):
        box = np.full(n, 30.0)
        simplex = np.vstack([np.zeros(n), np.eye(n)])
        point, value = least_in_box(bowl, simplex, -box, box, near=1e-9, close=1e-12, steps=5000)
        assert np.allclose(point, np.arange(1.0, n + 1.0), rtol=0.0, atol=1e-6)
        assert value == bowl(point)
