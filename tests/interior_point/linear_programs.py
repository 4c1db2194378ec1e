"""Linear programs over rates: arrays, and HiGHS's answer to them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from tests.ground_truth.named import present

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinearProgram:
    """min c·x subject to A x ≤ b and bounds."""

    c: Floats
    a: Floats
    b: Floats
    lower: Floats
    upper: Floats
    ill: bool


def drawn(seed: int, n: int = 300) -> LinearProgram:
    """Return a feasible program: budgets, reserves or both, a third with ties, half of ill scale."""
    r = np.random.default_rng(seed)
    ill, m = seed % 2 == 1, int(r.integers(1, 25))
    if ill:
        w, d = np.exp(r.normal(0.0, 3.0, n)), 10.0 ** r.uniform(-5.0, 5.0, n)
        a = np.exp(r.normal(0.0, 1.5, (m, n)))
    else:
        w, d = np.exp(r.normal(0.0, 1.0, n)), 10.0 ** r.uniform(-1.0, 1.0, n)
        a = r.uniform(0.5, 2.0, (m, n))
    if seed % 3 == 0:
        # Marginal values and coefficients of few sizes.
        w, a = d * np.round(4.0 * r.random(n) + 1.0), np.round(a) + 1.0
    a[1:] *= r.random((m - 1, n)) < 0.4
    c, b, lower = -w / d, (a @ d) * r.uniform(0.05, 0.6, m), np.zeros(n)
    if seed % 5 == 0:
        lower = d * r.uniform(0.0, 0.02, n)
    if seed % 4 == 2:
        c, a, b = w, -a, -(a @ d) * r.uniform(0.05, 0.6, m)
    if seed % 4 == 3 and m > 2:
        inside = lower + r.uniform(0.1, 0.9, n) * (d - lower)
        a = a * np.where(r.random(m) < 0.3, -1.0, 1.0)[:, None]
        b = a @ inside + np.abs(a @ inside) * r.uniform(0.01, 0.2, m)
    return LinearProgram(c, a, b, lower, d, ill)


def best_value(lp: LinearProgram) -> float:
    """Return HiGHS's optimal value."""
    bounds = [(float(low), float(high)) for low, high in zip(lp.lower, lp.upper, strict=True)]
    found = linprog(lp.c, A_ub=lp.a, b_ub=lp.b, bounds=bounds, method="highs")
    assert found.status == 0
    return float(present(found.fun))
