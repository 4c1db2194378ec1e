"""Rates and comparisons for compiled declared expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cvxpy.atoms.elementwise.elementwise import Elementwise

from freshopt.autodiff.compiler import register
from freshopt.cvx import cp
from freshopt.numerics.arrays import Array
from tests.autodiff.test_compiler import EXPRESSIONS


def accepted(name: str) -> bool:
    """Return whether this CVXPY builds an expression: exponents that vary are of 1.9."""
    try:
        EXPRESSIONS[name][0](cp.Variable(1, nonneg=True))
    except ValueError:
        return False
    return True


ACCEPTED = [name for name in EXPRESSIONS if name != "power: of a constant" or accepted(name)]
RATES = np.logspace(-6.0, 5.0, 25)
# Zero, the smallest and largest floats, ties and the edges of the tested atoms' domains.
TINY = (0.0, 5e-324, 1e-310, 2.3e-308, 1e-200, 1e-100, 1e-30)
USUAL = (0.25, 0.5, 1.0, 1.3, 2.0, 2.5, 3.0, 4.0, 8.0, 9.0, 10.0, 50.0, 700.0, 800.0)
EDGES = np.array([*TINY, *USUAL, 1e30, 1e150, 1e300, 1.7e308])


def disagreement(found: Array, expected: Array) -> float:
    """Return the largest relative difference; infinities and NaN must agree in place and sign."""
    known = np.isfinite(expected)
    if not np.array_equal(found[~known], expected[~known], equal_nan=True):
        return np.inf
    if not np.all(np.isfinite(found[known])):
        return np.inf
    difference = np.abs(found[known] - expected[known])
    return float(np.max(difference / np.maximum(np.abs(expected[known]), 1e-300), initial=0.0))


def data(n: int) -> tuple[Array, Array]:
    """Return change rates over ten decades, and importances that are lognormal with σ = 3, some 0."""
    rng = np.random.default_rng(n)
    d, w = 10.0 ** rng.uniform(-6.0, 4.0, n), rng.lognormal(0.0, 3.0, n)
    w[10::17] = 0.0
    return d, w


Written = Callable[[Any, Array, Array], Any]


def _entropies(rate: Any, d: Array, w: Array) -> Any:  # noqa: ANN401 - CVXPY's expressions
    share = cp.multiply(1.0 / d, rate)
    return cp.multiply(w, cp.rel_entr(1.0, share + 1.0) - cp.log1p(share) - cp.sqrt(share))


# Written as users do, and the sign: −1 of what is maximised. Costs fall and are convex, over all rates > 0.
FORMS: dict[str, tuple[Written, float]] = {
    "harmonic": (lambda r, d, w: cp.multiply(w, cp.logistic(np.log(d) - cp.log(r))), 1.0),
    "binary": (lambda r, d, w: -cp.multiply(w, cp.inv_pos(1.0 + cp.multiply(1.0 / d, r))), -1.0),
    "tail": (lambda r, _, w: cp.multiply(w, cp.exp(-0.01 * r) + cp.power(r, -1.5)), 1.0),
    "deadline": (
        lambda r, d, w: cp.multiply(
            w,
            cp.maximum(3 - 4 * cp.multiply(1.0 / d, r), 2 - 1.5 * cp.multiply(1.0 / d, r), 0.0)
            + cp.pos(1 - cp.multiply(1.0 / d, r)),
        ),
        1.0,
    ),
    "entropies": (_entropies, 1.0),
    "concave, kinked": (
        lambda r, d, w: cp.multiply(
            w, cp.minimum(cp.log(1 + cp.multiply(1.0 / d, r)), cp.sqrt(cp.multiply(0.5 / d, r)))
        ),
        -1.0,
    ),
}
# At small rates these marginals are flat on logarithms: ρ/Δ = 1e-4 changes them by 1e-4.
FLAT = {"binary": 1e-11, "entropies": 1e-10, "concave, kinked": 1e-10}


class rounded(Elementwise):  # type: ignore[misc]  # noqa: N801 - as in CVXPY
    """√(1 + x²), an atom of a user, registered below."""

    def numeric(self, values: Any) -> Any:  # noqa: ANN401
        return np.sqrt(1.0 + values[0] ** 2)

    def sign_from_args(self) -> tuple[bool, bool]:
        return True, False

    def is_atom_convex(self) -> bool:
        return True

    def is_atom_concave(self) -> bool:
        return False

    def is_incr(self, idx: int) -> bool:
        return bool(self.args[idx].is_nonneg())

    def is_decr(self, idx: int) -> bool:
        return bool(self.args[idx].is_nonpos())

    def _grad(self, values: Any) -> Any:  # noqa: ANN401, ARG002
        return [None]


register(rounded, lambda x: (np.sqrt(1.0 + x * x), x / np.sqrt(1.0 + x * x), (1.0 + x * x) ** -1.5))
