"""What freshopt is measured against: harmonic staleness as one would solve it without freshopt.

Every function takes change rates d, importances w and a bandwidth, and returns rates that minimise
Σ w·log(1 + d/ρ) with Σρ ≤ bandwidth. None uses freshopt. Each is written as its tool
wants to be used: whole-array NumPy with temporaries, a plain loop over floats, SciPy with gradients, CVXPY as
the problem reads.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import cvxpy as cp
import numpy as np
from scipy.optimize import minimize

BISECTIONS = 60  # of a bracket of 28 nats, to 2e-17
LOWEST = 1e-12  # of the price at which importance alone would use up the bandwidth

Rival = Callable[[np.ndarray, np.ndarray, float], np.ndarray]


class NoRatesError(Exception):
    """A rival ended without rates."""


def numpy_bisection(d: np.ndarray, w: np.ndarray, bandwidth: float) -> np.ndarray:
    """Bisect the price, all sources at once: ρ(λ) = 2a/(1 + √(1 + 4a/d)) with a = w/λ."""
    high = w.sum() / bandwidth  # there Σρ ≤ Σw/λ = bandwidth
    low = LOWEST * high
    for _ in range(BISECTIONS):
        price = np.sqrt(low * high)
        a = w / price
        rates = 2.0 * a / (1.0 + np.sqrt(1.0 + 4.0 * a / d))
        if rates.sum() > bandwidth:
            low = price
        else:
            high = price
    return rates


def python_bisection(d: np.ndarray, w: np.ndarray, bandwidth: float) -> np.ndarray:
    """Bisect the price with a loop over the sources."""
    rows = list(zip(d.tolist(), w.tolist(), strict=True))
    high = sum(b for _, b in rows) / bandwidth
    low = LOWEST * high
    for _ in range(BISECTIONS):
        price = math.sqrt(low * high)
        used = 0.0
        for change_rate, importance in rows:
            a = importance / price
            used += 2.0 * a / (1.0 + math.sqrt(1.0 + 4.0 * a / change_rate))
        if used > bandwidth:
            low = price
        else:
            high = price
    worth = [(c, b / price) for c, b in rows]
    return np.array([2.0 * a / (1.0 + math.sqrt(1.0 + 4.0 * a / c)) for c, a in worth])


def slsqp(d: np.ndarray, w: np.ndarray, bandwidth: float) -> np.ndarray:
    """Give SciPy's SLSQP the cost, its gradient and one linear constraint."""
    found = minimize(
        lambda rates: float(np.sum(w * np.log1p(d / rates))),
        np.full(len(d), bandwidth / len(d)),
        jac=lambda rates: -w * d / (rates * (rates + d)),
        bounds=[(1e-9, None)] * len(d),
        constraints={
            "type": "ineq",
            "fun": lambda rates: bandwidth - rates.sum(),
            "jac": lambda rates: -np.ones_like(rates),
        },
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-9},
    )
    if not found.success:
        raise NoRatesError(found.message)
    return np.asarray(found.x)


def cone_program(backend: str) -> Rival:
    """Return CVXPY with a cone solver behind it: the declaration, compiled and solved."""

    def solve(d: np.ndarray, w: np.ndarray, bandwidth: float) -> np.ndarray:
        rates = cp.Variable(len(d), nonneg=True)
        staleness = cp.logistic(np.log(d) - cp.log(rates))
        program = cp.Problem(cp.Minimize(cp.sum(cp.multiply(w, staleness))), [cp.sum(rates) <= bandwidth])
        with warnings.catch_warnings():  # the gap tells what the answer is worth
            warnings.filterwarnings("ignore", message="Solution may be inaccurate", category=UserWarning)
            try:
                program.solve(solver=backend)
            except cp.SolverError as error:
                raise NoRatesError(f"{backend} failed") from error
        if rates.value is None:
            raise NoRatesError(f"{backend} said {program.status}")
        return np.asarray(rates.value)

    return solve


RIVALS: dict[str, Rival] = {
    "NumPy bisection": numpy_bisection,
    "pure Python": python_bisection,
    "SciPy SLSQP": slsqp,
    "CVXPY + CLARABEL": cone_program("CLARABEL"),
    "CVXPY + ECOS": cone_program("ECOS"),
}
