"""`general_program`: a problem with declared constraints in its general form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from freshopt.errors import InfeasibleProblemError, SourceDataError, list_offenders
from freshopt.modelling.declared_constraints import require_labels
from freshopt.modelling.ratio_cycles import require_open_cycles
from freshopt.modelling.sources import Sources
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array
from freshopt.separable.bundles import bundled
from freshopt.separable.kernel import Kernel
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program, implied_upper
from freshopt.separable.rows import RATE, RowBlock, Rows

if TYPE_CHECKING:
    from freshopt.modelling.problem import Problem

# Relative: a row that its least value exceeds by no more is met but for rounding.
ROUNDING = 1e-14
# A rate so far above the typical one at which more still helps has no bound.
FAR = 1e6


def general_program(
    problem: Problem, rest: Sequence[RowBlock], worst: Worst | None, *, once: bool
) -> Program:
    """Return a problem as a general program.

    Its rows are the bandwidth, the host limits, then all others.

    Raises
    ------
    SourceDataError
        If nothing bounds a rate of which more always helps.
    InfeasibleProblemError
        If bounds alone exclude a row.
    """
    sources, n = problem.sources, len(problem.sources)
    every, cost = np.arange(n), sources.refresh_cost
    blocks: list[RowBlock] = []
    if np.isfinite(problem.bandwidth):
        limit = np.array([problem.bandwidth])
        blocks.append(RowBlock.linear(problem.labels[0], (None,), every, np.zeros(n, np.int64), cost, limit))
    if len(problem.hosts):
        members = np.flatnonzero(problem.hosts.codes < len(problem.hosts))
        codes = problem.hosts.codes[members]
        names, limits = problem.hosts.names, problem.hosts.limits
        blocks.append(RowBlock.linear(problem.labels[1], names, members, codes, cost[members], limits))
    blocks += rest
    level = None
    if worst is not None:
        fair = worst.blocks(sources)
        level = np.concatenate([np.zeros(sum(map(len, blocks))), *(np.ones(len(block)) for block in fair)])
        blocks += fair
    rows = Rows.gather(blocks, n)
    require_labels(rows.labels)
    program = Program(problem.numerics, problem.lower, problem.upper, sources.change_rate, rows, level)
    if problem.bundles is not None:
        program = bundled(program, problem.bundles, once)
    require_open_cycles(program.rows, sources, problem.bundles)
    _require_feasible_rows(program, sources)
    program = replace(program, upper=implied_upper(program.rows, program.lower, program.upper))
    if not problem.couplings:  # which may bound what the rows leave open
        require_bounded(program, sources)
    return program


def require_bounded(program: Program, sources: Sources) -> None:
    """Raise SourceDataError if a rate has no bound, and more always helps."""
    if program.numerics is None:
        return
    far = program.typical * FAR
    unbounded = np.flatnonzero(np.isinf(program.upper) & (program.numerics.marginal(far) > 0.0))
    if len(unbounded):
        names = map(sources.label, unbounded) if len(program) == len(sources) else map(str, unbounded)
        raise SourceDataError(
            f"no constraint bounds the rate of {list_offenders(names)}, and more always helps. Pass "
            "bandwidth=, a Budget with a positive cost there, or max_rate."
        )


def _require_feasible_rows(program: Program, sources: Sources) -> None:
    """Raise InfeasibleProblemError if bounds alone exclude a row.

    The least value of each row over the bounds is found source by source.
    """
    if program.level is not None:
        return
    require_least(program.rows, least_values(program), sources.time_unit)


def require_least(rows: Rows, least: Array, time_unit: str) -> None:
    """Raise InfeasibleProblemError if the least value of a row exceeds its limit."""
    scale = np.maximum(np.abs(rows.limits), np.finfo(float).tiny)
    broken = np.flatnonzero(least - rows.limits > ROUNDING * scale)
    if not len(broken):
        return
    j = int(broken[0])
    best, limit = rows.declared(least)[j], rows.declared(rows.limits)[j]
    falling = rows.direction[j] < 0.0
    unit = f"/{time_unit}" if not len(rows.curves) else ""
    raise InfeasibleProblemError(
        f"bounds on the rates exclude {rows.labels[j]}: it is {best:.6g}{unit} at "
        f"{'most' if falling else 'least'}, and must be at {'least' if falling else 'most'} {limit:.6g}. "
        f"{'Lower' if falling else 'Raise'} it to {best:.6g}, or change min_rate or max_rate."
    )


def least_values(program: Program) -> Array:
    """Return the least value of every row over the bounds, shape (m,)."""
    rows = program.rows
    if not rows.curves and not bool(np.any(program.lower)) and bool(np.all(rows.coefficient >= 0.0)):
        return np.zeros(len(rows))
    lowest, highest = [program.lower], [program.upper]
    with np.errstate(all="ignore"):
        for curve in rows.curves:
            # Costs of kernels never rise.
            at = program.upper
            if not isinstance(curve, Kernel):
                at = Lagrangian(program, np.zeros(len(program)), ((None, curve),), None).best_response()
            smallest = curve.cost(np.minimum(at, np.finfo(float).max))
            lowest.append(np.where(np.isnan(smallest), 0.0, smallest))
            highest.append(lowest[-1])
        values = np.where(
            (rows.kind == RATE) & (rows.coefficient < 0.0),
            np.stack(highest)[rows.kind, rows.source],
            np.stack(lowest)[rows.kind, rows.source],
        )
        return np.bincount(rows.row, weights=rows.coefficient * values, minlength=len(rows)).astype(
            np.float64
        )
