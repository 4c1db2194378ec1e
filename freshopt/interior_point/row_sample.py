"""`sampled_multipliers`: multipliers of a sample of the sources, where a solve begins.

A sample with limits in its proportion has nearly the same multipliers, at a fraction of the cost of a pass
over all. Rows with few sources are not well represented: they take a start of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.separable.program import Program

# Sources of a sample, and of programs that are not sampled; a sample is this share of the sources at most.
SAMPLE, SHARE = 20_000, 0.2
# Sampled entries of a row, on average, for its multiplier to mean something: off by a fifth at equal weights.
_ENTRIES = 25
# Seed of the sample: the same answer at every run.
_SEED = 20


class _Multipliers(Protocol):
    """What a sample's solve returns."""

    @property
    def multipliers(self) -> Array: ...

    @property
    def gap(self) -> float: ...


def sampled_multipliers(program: Program, solve: Callable[[Program], _Multipliers]) -> Array | None:
    """Return multipliers of a sample, or None where none helps."""
    n, rows = len(program), program.rows
    size = min(SAMPLE, int(SHARE * n))
    if n <= SAMPLE or program.level is not None or len(rows.row) * (size / n) < _ENTRIES * len(rows):
        return None
    chosen = np.sort(np.random.default_rng(_SEED).choice(n, size, replace=False))
    part = program.take(chosen)
    part = replace(part, rows=replace(part.rows, limits=rows.limits * (size / n)))
    found = solve(part)
    return found.multipliers if np.isfinite(found.gap) else None
