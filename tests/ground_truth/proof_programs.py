"""Programs of planted rows: arrays into the library's own values, and nothing else."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.program import Program, implied_upper
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.named import chosen, present
from tests.ground_truth.row_truth import Planted

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def numerics(kind: str, w: Floats, d: Floats) -> Numerics:
    """Return the library's numerics of a named cost; of the rate itself, a linear kernel."""
    if kind == "rate":
        return Kernel(
            w, (d,), lambda r, _: r, lambda r, _: -np.ones_like(r), lambda p, _: np.where(p > 0.0, 0.0, 0.0)
        )
    objectives: dict[str, Objective] = chosen("harmonic", "binary", "delay")
    made = present(Problem(objectives[kind], Sources(d, importance=w), bandwidth=1.0).numerics)
    return made


def blocks(
    labels: Sequence[str],
    source: Ints,
    row: Ints,
    coefficient: Floats,
    limits: Floats,
    *,
    curve: Numerics | None = None,
    at_least: bool = False,
) -> list[RowBlock]:
    """Return one block per label, of rates or of one curve."""
    made, curves, sign = [], () if curve is None else (curve,), -1.0 if at_least else 1.0
    for j, label in enumerate(labels):
        own = row == j
        size, one = int(np.sum(own)), np.ones(1)
        kind, zeros = np.full(size, len(curves), dtype=np.int64), np.zeros(size, dtype=np.int64)
        sides = (sign * limits[j : j + 1], sign * one, 0.0 * one)
        made.append(
            RowBlock(label, (None,), source[own], zeros, kind, sign * coefficient[own], curves, *sides)
        )
    return made


def rows_of(instance: Planted) -> Rows:
    """Return the rows; a row with negative coefficients is declared with ≥."""
    m, n = instance.matrices[0].shape
    own = {kind: numerics(kind, np.ones(n), instance.d) for kind in instance.types if kind != "rate"}
    made = []
    for j in range(m):
        source, kind, coefficient = [], [], []
        for name, matrix in zip(instance.types, instance.matrices, strict=True):
            k = np.flatnonzero(matrix[j])
            source.append(k)
            kind.append(np.full(len(k), 1 + list(own).index(name) if name in own else 0, dtype=np.int64))
            coefficient.append(matrix[j, k])
        sign = -1.0 if any(bool(np.any(c < 0.0)) for c in coefficient) else 1.0
        k = np.concatenate(source)
        sides = (instance.limits[j : j + 1], sign * np.ones(1), np.zeros(1))
        entries = (k, np.zeros(len(k), dtype=np.int64), np.concatenate(kind), np.concatenate(coefficient))
        made.append(RowBlock(f"row{j}", (None,), *entries, tuple(own.values()), *sides))
    return Rows.gather(made, n)


def tried(rng: np.random.Generator, p: Planted, program: Program) -> tuple[Floats, Floats]:
    """Return rates within bounds, which rows may not allow, and multipliers: near the optimum or far."""
    n, m = len(p.rates), len(p.y)
    near = 10.0 ** rng.uniform(-8.0, 0.5)
    rates = np.clip(p.rates * np.exp(near * rng.standard_normal(n)), p.lower, program.upper)
    if rng.random() < 0.2:
        rates = np.where(rng.random(n) < 0.3, p.lower, rates)
    y = p.y * np.exp(10.0 ** rng.uniform(-8.0, 0.5) * rng.standard_normal(m))
    if rng.random() < 0.3:
        y = np.where(rng.random(m) < 0.3, rng.random(m) * np.mean(y), y)
    return rates, y


def program_of(instance: Planted, *, objective: bool = True) -> Program:
    """Return the program that an instance stands for."""
    rows = rows_of(instance)
    typical = np.sqrt(np.maximum(instance.w, 1e-3) * instance.d)
    upper = implied_upper(rows, instance.lower, instance.upper)
    upper = np.maximum(upper, instance.lower)
    own = numerics(instance.objective, instance.w, instance.d) if objective else None
    return Program(own, instance.lower, upper, typical, rows)
