"""Programs with nested limits and reserves, from cases of `tests.ground_truth.nested_truth`."""

from __future__ import annotations

import numpy as np

import freshopt as fo
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.separable.kernel import Numerics
from freshopt.separable.program import Program, implied_upper
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.nested_truth import Floats, Forest

OBJECTIVES = {
    "harmonic": HarmonicStaleness(),
    "delay": AccumulatedDelay(),
    "binary": BinaryFreshness(),
    "jump": BinaryFreshness(),
}


def rows_of(case: Forest) -> Rows:
    """Return limits, then reserves; those that bind nothing are left out."""
    blocks = []
    for has, bound, least in (
        (np.isfinite(case.limit), case.limit, False),
        (case.reserve > 0.0, case.reserve, True),
    ):
        groups = np.flatnonzero(has)
        row, source = np.nonzero(case.member[groups])
        name = "reserve" if least else "limit"
        blocks.append(
            RowBlock.linear(
                name, groups.tolist(), source, row, case.cost[source], bound[groups], at_least=least
            )
        )
    return Rows.gather(blocks, len(case.cost))


def numerics_of(case: Forest) -> Numerics:
    sources = fo.Sources(case.change, case.weight)
    objective = OBJECTIVES[case.curve]
    found = objective.signalled_kernel(sources) if case.curve == "jump" else objective.kernel(sources)
    assert found is not None
    return found


def program_of(case: Forest) -> Program:
    rows = rows_of(case)
    upper = implied_upper(rows, case.lower, case.upper)
    return Program(numerics_of(case), case.lower, upper, case.change, rows)


def by_group(case: Forest, multipliers: Floats) -> tuple[Floats, Floats]:
    """Return the multipliers of limits and of reserves, shape (G,) each."""
    mu, xi = np.zeros(len(case.limit)), np.zeros(len(case.limit))
    limited, reserved = np.flatnonzero(np.isfinite(case.limit)), np.flatnonzero(case.reserve > 0.0)
    mu[limited], xi[reserved] = multipliers[: len(limited)], multipliers[len(limited) :]
    return mu, xi
