"""Many small problems, searched and proved in one compiled call.

A problem has a batch route if its objective has compiled formulas of demand and proof, and bandwidth and
bounds are its only constraints. What the call cannot settle, because demand is flat around the bandwidth, or
cannot prove to rounding, is left to the general solver, problem by problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.certificates.solutions import BatchSums, proved_solution
from freshopt.certificates.solver_protocol import SolveOptions, Solver
from freshopt.compiled import backend
from freshopt.compiled.batch.batch_columns import BatchCell, solve_groups
from freshopt.compiled.batch.batch_records import UNSOLVED, BatchFound, BatchGroups
from freshopt.compiled.columns import Columns
from freshopt.compiled.proof_columns import ProofColumns
from freshopt.compiled.source_columns import SourceColumns
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, IntArray, read_only
from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.kernel_columns import kernel_columns, kinds_of

# Larger problems are solved alone: their passes are shared by threads, and a sample tells their price.
SMALL = 65_536
# Evaluations of every source by NumPy in a search, and in its proof, which is entered by itself; and those
# that Python's steps cost besides.
EVALUATIONS, PROOF, STEPS = 10.0, 3.0, 40_000.0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Problems of one cell, as columns of all their sources.

    - `columns`, `proof`: What demand functions and proofs take.
    - `first`, `size` (m,): Where the problems' sources are.
    - `bandwidth` (m,)
    - `gains`: Whether values are what the sources gain, and not their costs.
    """

    cell: BatchCell
    columns: SourceColumns
    proof: SourceColumns
    first: IntArray
    size: IntArray
    bandwidth: Array
    gains: bool

    @property
    def free(self) -> Array:
        """Bandwidth that min_rate leaves free, shape (m,)."""
        lower, cost = self.proof.lower, self.proof.cost
        if not isinstance(lower, np.ndarray):
            needed = lower * cost * self.size if lower else 0.0
            return np.maximum(0.0, self.bandwidth - needed)
        # Of pairs of places the first tells the sum up to the second.
        pairs = np.stack((self.first, self.first + self.size), axis=1).ravel()
        needed = np.add.reduceat(np.append(lower * cost, 0.0), pairs)[::2]
        return np.maximum(0.0, self.bandwidth - needed)

    def solve(self, start: float | None = None) -> BatchFound:
        """Return the rates, prices and proofs of all problems.

        - `start`: A price for the first problem to start from.
        """
        place = np.cumsum(self.size) - self.size
        groups = BatchGroups(self.first, self.size, place, self.bandwidth)
        guess = math.nan if start is None else math.log(start)
        with np.errstate(all="ignore"):
            return solve_groups(self.cell, groups, self.columns, self.proof, guess)


def batch_cell(problem: Problem, most: int = SMALL) -> BatchCell | None:
    """Return the batch formulas of `most` sources or fewer, or None."""
    if problem.program is not None or len(problem.hosts) or len(problem.sources) > most:
        return None
    return numerics_cell(problem.objective, problem.numerics)


def numerics_cell(objective: Objective, numerics: Numerics | None) -> BatchCell | None:
    """Return the formulas of an objective's numerics for batches, or None."""
    kernels = [each for each in kinds_of(numerics) if isinstance(each, Kernel)]
    demands, proofs = [k.unit_demand for k in kernels], [k.unit_proof for k in kernels]
    gained = objective.sense == "minimise" or all(k.unit_gain is not None for k in kernels)
    if len(kernels) < len(kinds_of(numerics)) or None in demands or None in proofs or not gained:
        return None
    two = len(kernels) == 2
    return BatchCell(demands[0], demands[1] if two else None, proofs[0], proofs[1] if two else None)  # type: ignore[arg-type]


def enabled(cell: BatchCell, n: int, m: int) -> bool:
    """Return whether m problems of n sources together are compiled.

    If not, their work is entered when each is solved.
    """
    return backend.takes(cell, n, EVALUATIONS + PROOF + STEPS * m / n, entered=False)


def batch_of(cell: BatchCell, problems: Sequence[Problem]) -> Batch | None:
    """Return problems of one cell as a batch, or None.

    - `problems`: Those with the same `batch_cell`. Successive ones that share sources share their columns.
    """
    first: list[int] = []
    demands: list[Columns] = []
    proofs: list[Columns | ProofColumns] = []
    begin = 0
    # Of a power law demands take other parameters than proofs.
    apart = any(kernel.demand_parameters is not None for kernel in kinds_of(problems[0].numerics))
    for before, problem in zip((None, *problems), problems, strict=False):
        if before is None or not _same_columns(before, problem):
            begin += 0 if before is None else len(before.sources)
            demand = proof = None
            if problem.numerics is not None:
                own = problem.numerics, problem.sources.refresh_cost, problem.lower, problem.upper
                demand = kernel_columns(Columns, *own)
                proof = kernel_columns(ProofColumns, *own) if apart else demand
            if demand is None or proof is None:
                return None
            demands.append(demand)
            proofs.append(proof)
        first.append(begin)
    columns = _joined(demands)
    return Batch(
        cell,
        columns,
        _joined(proofs) if apart else columns,
        np.array(first, dtype=np.int64),
        np.array([len(problem.sources) for problem in problems], dtype=np.int64),
        np.array([problem.bandwidth for problem in problems]),
        problems[0].objective.sense == "maximise",
    )


def _same_columns(one: Problem, other: Problem) -> bool:
    """Return whether two problems differ in their bandwidth alone."""
    return (
        one.numerics is other.numerics
        and one.sources is other.sources
        and one.lower is other.lower
        and one.upper is other.upper
    )


def _joined(parts: Sequence[Columns | ProofColumns]) -> SourceColumns:
    """Return the columns of several problems' sources, one after the other.

    Importances and parameters are arrays. Costs and bounds are, unless all three are the same numbers
    throughout: so loops are compiled for two kinds of columns, and not for eight.
    """

    def joined(columns: Sequence[Any], kind: type = np.float64) -> Any:  # noqa: ANN401 - of any kind
        if len(columns) == 1 and isinstance(columns[0], np.ndarray) and columns[0].dtype == kind:
            return columns[0]
        given = zip(columns, parts, strict=True)
        whole = np.concatenate([np.broadcast_to(column, (part.n,)) for column, part in given])
        return read_only(whole.astype(kind, copy=False))

    bounds = {(part.cost, part.lower, part.upper) if _plain(part) else None for part in parts}
    plain = bounds.pop() if len(bounds) == 1 else None
    cost, lower, upper = plain or (
        joined([part.cost for part in parts]),
        joined([part.lower for part in parts]),
        joined([part.upper for part in parts]),
    )
    several = range(len(parts[0].parameters))
    return SourceColumns(
        joined([part.signalled for part in parts], np.bool_) if _mixed(parts[0]) else False,
        joined([part.importance for part in parts]),
        tuple(joined([part.parameters[k] for part in parts]) for k in several),
        cost,
        lower,
        upper,
    )


def _plain(part: Columns | ProofColumns) -> bool:
    return all(isinstance(column, float) for column in (part.cost, part.lower, part.upper))


def _mixed(part: Columns | ProofColumns) -> bool:
    return part.announced is not None


def solve_alone(problem: Problem, options: SolveOptions, solver: Solver) -> Solution | None:
    """Return a small problem's solution by a batch of one, or None.

    None means that there is no batch route, that NumPy is faster, or that the general solver is to decide.
    """
    begun = time.perf_counter()
    cell = batch_cell(problem)
    if cell is None or not backend.takes(cell, len(problem.sources), EVALUATIONS):
        return None
    batch = batch_of(cell, [problem])
    found = None if batch is None else batch.solve(options.warm_start)
    if found is None or found.states[0] == UNSOLVED:
        return None
    price, seconds = float(found.prices[0]), time.perf_counter() - begun
    return proved_solution(
        problem,
        found.rates,
        price,
        BatchSums(found.prices, found.sums).proof(0),
        solver,
        options.tolerance,
        iterations=int(found.evaluations[0]),
        seconds=seconds,
        certify=options.certify,
    )
