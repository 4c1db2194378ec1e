"""`general_program`: a problem with declared constraints in its general form.

`require_open_cycles`: ratios of rates around cycles.

Rows ρ_i ≤ c_ij·ρ_j are edges of a graph. Around a cycle whose ratios multiply to less than 1 only the rate
0 is left; where they multiply to 1 every one of them binds, so that no rates are strictly inside and an
interior point method stalls. In logarithms of rates, x_i ≤ x_j + log c_ij, these are cycles of negative
length and of length 0: shortest distances (Bellman-Ford) within the strongly connected components find both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from freshopt.errors import InfeasibleProblemError, SourceDataError, list_offenders
from freshopt.heavy import sparse
from freshopt.modelling.constraints.usages import priced_without_end, with_usages, without_variables
from freshopt.modelling.declared_constraints import require_labels
from freshopt.modelling.sources import Sources
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.separable.bundles import Bundles, bundled
from freshopt.separable.kernel import Kernel
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.laminar_feasibility import require_feasible
from freshopt.separable.program import Program, implied_upper
from freshopt.separable.rows import RATE, RowBlock, Rows

# Products of ratios that are 1 are off by less.
_ROUNDING = 1e-12
# Rounds of Bellman-Ford at most; components with longer shortest paths are left to the solver.
_ROUNDS = 2000


def require_open_cycles(rows: Rows, sources: Sources, bundles: Bundles | None) -> None:
    """Raise SourceDataError if ratios around a cycle multiply to 1 or less.

    - `rows`: Of sources, or of bundles.
    """
    found = closed_cycle(rows)
    if found is None:
        return
    nodes, log_product = found
    leaders = nodes if bundles is None else bundles.order[bundles.first[nodes]]
    names = list_offenders(sources.label(k) for k in sorted(leaders.tolist()))
    if log_product < -_ROUNDING:
        raise SourceDataError(
            f"ratios around the cycle {names} multiply to {np.exp(log_product):.6g} < 1, which leaves only "
            "the rate 0. Raise one of them, or take it out of the cycle."
        )
    raise SourceDataError(
        f"ratios around the cycle {names} multiply to 1, which fixes the proportions of these rates. Raise "
        "one of the ratios, or tie rates that are to be equal with fo.Tied."
    )


def closed_cycle(rows: Rows) -> tuple[IntArray, float] | None:
    """Return a cycle of ratios without room, and its log product."""
    child, parent, length = _edges(rows)
    if len(child) < 2:
        return None
    same = _components(child, parent, rows.n)
    inside = np.flatnonzero(same[child] == same[parent])
    if not len(inside):
        return None
    nodes, place = np.unique(np.concatenate((child[inside], parent[inside])), return_inverse=True)
    i, j, w = place[: len(inside)], place[len(inside) :], length[inside]
    order = np.argsort(i, kind="stable")
    i, j, w = i[order], j[order], w[order]
    starts = np.flatnonzero(np.diff(i, prepend=-1))
    distance, by = np.zeros(len(nodes)), np.full(len(nodes), -1, dtype=np.int64)
    for k in range(_ROUNDS):
        reached = distance[j] + w
        best = np.minimum.reduceat(reached, starts)
        shorter = best < distance[i[starts]] - _ROUNDING
        if not bool(np.any(shorter)):
            break
        # The edge by which each node was reached last leads around a negative cycle if there is one.
        first = np.flatnonzero(reached <= np.repeat(best, np.diff(np.append(starts, len(i)))))
        edge = first[np.searchsorted(first, starts)]
        by[i[starts][shorter]] = edge[shorter]
        distance[i[starts][shorter]] = best[shorter]
        # Looking for it costs more than a round; it is looked for after 1, 2, 4, ... of them.
        cycle = _around(by, j) if k & (k + 1) == 0 else None
        if cycle is not None and float(np.sum(w[by[cycle]])) < -_ROUNDING:
            return nodes[cycle], float(np.sum(w[by[cycle]]))
    else:
        return None
    tight = distance[j] + w - distance[i] <= len(nodes) * _ROUNDING
    tied = _components(i[tight], j[tight], len(nodes))
    members, counts = np.unique(tied, return_counts=True)
    if not bool(np.any(counts > 1)):
        return None
    return nodes[tied == members[np.argmax(counts > 1)]], 0.0


def _edges(rows: Rows) -> tuple[IntArray, IntArray, Array]:
    """Return child, parent and log ratio of rows a·ρ_i ≤ b·ρ_j."""
    if not bool(np.any(rows.limits == 0.0)):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    m, weighty = len(rows), rows.coefficient != 0.0
    # Most rows, as those of budgets, have more than a pair of entries, or none below 0.
    pairs = np.bincount(rows.row[weighty], minlength=m) == 2
    some = np.flatnonzero(weighty & pairs[rows.row])
    row, size = rows.row[some].astype(np.int64), rows.coefficient[some]
    rising = np.bincount(row, weights=size > 0.0, minlength=m)
    falling = np.bincount(row, weights=size < 0.0, minlength=m)
    curved = np.bincount(row, weights=rows.kind[some] != RATE, minlength=m)
    which = np.flatnonzero(pairs & (rising == 1) & (falling == 1) & (curved == 0) & (rows.limits == 0.0))
    source = rows.source[some]
    ends, sizes = np.zeros((2, m), dtype=np.int64), np.ones((2, m))
    for side, own in enumerate((size > 0.0, size < 0.0)):
        ends[side, row[own]], sizes[side, row[own]] = source[own], np.abs(size[own])
    with np.errstate(all="ignore"):
        length = np.log(sizes[1, which]) - np.log(sizes[0, which])
    return ends[0, which], ends[1, which], length


def _components(child: IntArray, parent: IntArray, n: int) -> IntArray:
    """Return the strongly connected component of each node, shape (n,)."""
    from scipy.sparse.csgraph import connected_components

    graph = sparse.csr_array((np.ones(len(child)), (child, parent)), shape=(n, n))
    return np.asarray(connected_components(graph, connection="strong")[1], dtype=np.int64)


def _around(by: IntArray, parent: IntArray) -> IntArray | None:
    """Return a cycle of the edges by which nodes were reached."""
    state = np.zeros(len(by), dtype=np.int64)
    for start in range(len(by)):
        node, path = start, []
        while by[node] >= 0 and state[node] == 0:
            state[node] = start + 1
            path.append(node)
            node = int(parent[by[node]])
        if by[node] >= 0 and state[node] == start + 1 and path:
            return np.array(path[path.index(node) :])
    return None


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

    - raises SourceDataError if nothing bounds a rate of which more always helps.
    - raises InfeasibleProblemError if bounds alone exclude a row.
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
        level = np.concatenate([np.zeros(sum(map(len, blocks))), *map(worst.units, fair)])
        blocks += fair
    rows = Rows.gather([*blocks, *(own.block for own in problem.usages)], n)
    require_labels(rows.labels)
    program = Program(problem.numerics, problem.lower, problem.upper, sources.scale, rows, level)
    bundles = problem.bundles
    if bundles is not None:
        program = bundled(program, bundles, once)
    program = with_usages(program, problem.usages)
    if problem.usages:
        _require_room(without_variables(program, problem.usages)[0])
    require_open_cycles(program.rows, sources, bundles)
    if program.level is None:
        # The least value of each row over the bounds, source by source.
        require_least(program.rows, least_values(program), sources.time_unit)
    program = replace(program, upper=implied_upper(program.rows, program.lower, program.upper))
    if not problem.couplings:  # which may bound what the rows leave open
        bounded = priced_without_end(problem.usages, n) if problem.usages else None
        if bounded is not None and bundles is not None:
            bounded = bundles.largest(bounded.astype(np.float64)) > 0.0
        require_bounded(program, sources, bounded)
    return program


def require_bounded(program: Program, sources: Sources, costly: BoolArray | None = None) -> None:
    """Raise SourceDataError if a rate has no bound, and more always helps.

    Sources that are `costly` have a price that bounds them.
    """
    if program.numerics is None:
        return
    far = program.typical * FAR
    endless = np.isinf(program.upper) & (program.numerics.marginal(far) > 0.0)
    unbounded = np.flatnonzero(endless if costly is None else endless[: len(costly)] & ~costly)
    if len(unbounded):
        plain = len(program if costly is None else costly) >= len(sources)
        names = map(sources.label, unbounded) if plain else map(str, unbounded)
        none = "" if len(program.rows) else "there is no bandwidth: "
        raise SourceDataError(
            f"{none}no constraint bounds the rate of {list_offenders(names)}, and more always helps. Pass "
            "bandwidth=, a Budget or a price with a positive cost there, or max_rate."
        )


def _require_room(program: Program) -> None:
    """Raise InfeasibleProblemError if what sums must use exceeds what they may.

    Rows of anything else are left out.
    """
    rows = program.rows
    kinds = (rows.kind != RATE, rows.coefficient > 0.0, rows.coefficient < 0.0)
    curved, rising, falling = (np.bincount(rows.row, kind, len(rows)) > 0.0 for kind in kinds)
    sums = ~curved & (rising != falling)
    if bool(np.any(sums & falling)) or bool(np.any(program.lower)):
        tree = LaminarTree.from_rows(rows.only(sums))
        if tree is not None:
            require_feasible(tree, program.lower, program.upper)


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
