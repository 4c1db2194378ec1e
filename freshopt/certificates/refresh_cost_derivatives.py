"""`in_refresh_cost`: what the sources' refresh costs change in the KKT conditions.

They are coefficients of the bandwidth, of host limits and nested limits, of budgets without a cost of their
own, and of an objective that is the bandwidth itself.
"""

from __future__ import annotations

import numpy as np

from freshopt.certificates.parameter_derivatives import Mean, ParameterDerivatives
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.tied import Tied
from freshopt.modelling.problem import Problem
from freshopt.modelling.spend import Spend
from freshopt.numerics.arrays import Array, IntArray
from freshopt.separable.program import Program


def cost_rows(problem: Problem, program: Program) -> Mean:
    """Return the program's rows that add up the sources' own refresh costs."""
    place = {label: j for j, label in enumerate(program.rows.labels)}
    sources, (name, host_name) = problem.sources, problem.labels
    entries: list[tuple[IntArray, IntArray]] = []
    if name in place:
        every = np.arange(len(sources))
        entries.append((every, np.full(len(sources), place[name])))
    if len(problem.hosts):
        members = np.flatnonzero(problem.hosts.codes < len(problem.hosts))
        rows = np.array([place[f"{host_name}[{host}]"] for host in problem.hosts.names])
        entries.append((members, rows[problem.hosts.codes[members]]))
    for one in problem.constraints:
        if isinstance(one, Nested) or (isinstance(one, Budget) and one.cost is None):
            for block in one.blocks(sources):
                if block.name not in problem.labels:
                    rows = np.array([place[label] for label in block.labels])
                    entries.append((block.source, rows[block.row]))
    none = np.zeros(0, dtype=np.int64)
    source, row = (np.concatenate([none, *part]) for part in zip((none, none), *entries, strict=True))
    if problem.bundles is not None and any(
        isinstance(one, Tied) and one.cost == "once" for one in problem.constraints
    ):
        # Of a bundle's sources in a row the dearest is what it costs.
        key = row * np.int64(len(problem.bundles)) + problem.bundles.codes[source]
        order = np.lexsort((-sources.refresh_cost[source], key))
        kept = order[np.unique(key[order], return_index=True)[1]]
        source, row = source[kept], row[kept]
    return Mean(problem.objective, source, row, program.rows.direction[row])


def in_refresh_cost(
    problem: Problem, program: Program, rates: Array, multipliers: Array
) -> ParameterDerivatives:
    """Return derivatives with respect to refresh costs."""
    rows, n = cost_rows(problem, program), len(rates)
    paid = np.bincount(rows.source, weights=multipliers[rows.row] * rows.share, minlength=n)
    own = float(isinstance(problem.objective, Spend))
    slope = (paid + own).astype(np.float64)
    used = np.where(multipliers[rows.row] > 0.0, rows.share * rates[rows.source], 0.0)
    return ParameterDerivatives(slope, own * rates, (rows,), (used,), (np.zeros(len(used)),))
