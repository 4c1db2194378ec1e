"""Planted instances as programs: a translation, nothing more."""

from collections.abc import Sequence

import numpy as np

from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.planted_rows import Array, Formula, Planted, cost, fall


def numerics(formula: Formula, weight: Array, d: Array) -> Numerics:
    """Return a formula's weighted numerics."""
    if formula == "rate":
        return LinearCost(weight)
    return Kernel(
        weight, (d,), lambda r, d: cost(formula, r, d), lambda r, d: fall(formula, r, d), INVERSES[formula]
    )


def _tail(price: Array, d: Array) -> Array:
    return np.maximum(0.0, -d * np.log(price * d))


def _binary(price: Array, d: Array) -> Array:
    return np.where(price * d < 1.0, np.sqrt(d / price) - d, 0.0)


def _harmonic(price: Array, d: Array) -> Array:
    return 2.0 * (d / price) / (d + np.sqrt(d * d + 4.0 * d / price))


INVERSES = {
    "harmonic": _harmonic,
    "binary": _binary,
    "tail": _tail,
    "delay": lambda price, d: np.sqrt(d / price),
    "power": lambda price, d: (0.5 * d / price) ** (1.0 / 1.5),
}


def program_of(planted: Planted, order: Sequence[int] | None = None) -> Program:
    """Return a planted instance as a program."""
    n, ones = len(planted.d), np.ones(len(planted.d))
    kernels: dict[Formula, Numerics] = {}
    blocks = []
    for j in range(len(planted.limits)) if order is None else order:
        formula, own = planted.formulas[j], np.flatnonzero(planted.coefficients[j])
        curves: tuple[Numerics, ...] = ()
        if formula != "rate":
            curves = (kernels.setdefault(formula, numerics(formula, ones, planted.d)),)
        zero = np.zeros(len(own), dtype=np.int64)
        a, limit, plus = planted.coefficients[j, own], planted.limits[j : j + 1], np.ones(1)
        blocks.append(
            RowBlock(f"row {j}", (None,), own, zero, zero + len(curves), a, curves, limit, plus, 0.0 * plus)
        )
    rows = Rows.gather(blocks, n)
    fair = bool(np.any(planted.level > 0.0))
    objective = None if fair else numerics(planted.objective, planted.weight, planted.d)
    return Program(objective, planted.lower, planted.upper, planted.d, rows, planted.level if fair else None)
