"""`Usage`: a priced sum of rates, as variables beside the sources' rates.

A program with usages has n + q variables: the rates, of bundles where sources are tied, then what groups use.
`variables_of` and `rates_of` lead from one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, BoolArray, IntArray, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.segments import group_sums
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock
from freshopt.separable.usage_costs import UsageCosts

if TYPE_CHECKING:
    from freshopt.modelling.problem import Problem


@frozen_value()
class Usage:
    """Costs of what groups use, with a variable for each row.

    A cost that rises has the row Σ c·ρ − t ≤ 0, one that falls t − Σ c·ρ ≤ 0. One that does both has both
    rows, and two variables on either side of its minimum.

    - `keys` tuple, one per row
    - `source`, `row` (entries,)
    - `coefficient` (entries,): c > 0.
    - `sign` (rows,): +1 of rows for a cost that rises, −1 for one that falls.
    - `numerics`: φ of each row.
    - `lower`, `upper`, `typical` (rows,): Bounds of t.
    - `ends` (rows,): The most, or the least, that they may use by bounds and the domain of φ.
    - `offset`: What the costs of all rows are too much by.
    """

    name: str
    keys: tuple[object, ...]
    source: IntArray
    row: IntArray
    coefficient: Array
    sign: Array
    numerics: DerivedNumerics
    lower: Array
    upper: Array
    typical: Array
    ends: Array
    offset: float

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)

    def amounts(self, rates: Array) -> Array:
        """Return t of each row at the sources' rates."""
        used = group_sums(self.coefficient * rates[self.source], self.row, len(self))
        return np.clip(used, self.lower, self.upper)

    def cost(self, rates: Array) -> float:
        """Return what the groups pay at the sources' rates."""
        return total(self.numerics.cost(self.amounts(rates))) - self.offset

    @property
    def block(self) -> RowBlock:
        """The rows but for their variables."""
        coefficient = self.sign[self.row] * self.coefficient
        return RowBlock.linear(self.name, self.keys, self.source, self.row, coefficient, np.zeros(len(self)))


def with_usages(program: Program, usages: Sequence[Usage]) -> Program:
    """Return a program, its last rows of usages, with their variables."""
    if not usages or program.numerics is None:
        return program
    costs: DerivedNumerics | UsageCosts = usages[0].numerics
    count = len(usages[0])
    for own in usages[1:]:
        costs = UsageCosts(np.arange(count + len(own)) >= count, costs, own.numerics)
        count += len(own)
    columns: dict[str, Any] = {
        key: np.concatenate((getattr(program, key), *(getattr(own, key) for own in usages)))
        for key in ("lower", "upper", "typical")
    }
    usage, nothing = np.arange(len(program) + count) >= len(program), LinearCost(np.zeros(count))
    rows, places = program.rows, np.arange(count)
    rows = replace(
        rows,
        first=np.concatenate((rows.first, rows.first[-1] + 1 + places)),
        row=np.concatenate((rows.row, (len(rows) - count + places).astype(np.int32))),
        kind=np.concatenate((rows.kind, np.zeros(count, dtype=np.int32))),
        coefficient=np.concatenate((rows.coefficient, *(-own.sign for own in usages))),
        curves=tuple(UsageCosts(usage, curve, nothing) for curve in rows.curves),
    )
    return replace(program, numerics=UsageCosts(usage, program.numerics, costs), rows=rows, **columns)


def without_variables(program: Program, usages: Sequence[Usage]) -> tuple[Program, BoolArray]:
    """Return a program of rates alone, and the rows that it keeps.

    Rows of usages are limited by the ends of what their variables may be, and left out where these are none.
    """
    if not usages:
        return program, np.ones(len(program.rows), dtype=np.bool_)
    ends = np.concatenate([own.sign * np.maximum(own.ends, SMALLEST) for own in usages])
    rows = program.rows.take(slice(0, len(program) - len(ends)))
    limits = np.concatenate((rows.limits[: len(rows) - len(ends)], ends))
    kept = np.isfinite(limits) & (limits != -SMALLEST)
    rows = replace(rows, limits=limits).only(kept)
    return replace(program.take(slice(0, rows.n)), rows=rows), kept


def variables_of(problem: Problem, rates: Array) -> Array:
    """Return a program's variables from the sources' rates."""
    own = rates if problem.bundles is None else problem.bundles.common(rates)
    return np.concatenate((own, *(one.amounts(rates) for one in problem.usages)))


def rates_of(problem: Problem, variables: Array) -> Array:
    """Return the sources' rates from a program's variables."""
    if problem.bundles is not None:
        return problem.bundles.of_sources(variables)
    return variables[: len(problem.sources)]


def usage_value(problem: Problem, rates: Array) -> float:
    """Return what usages add to a value in the declared sense."""
    sign = 1.0 if problem.objective.sense == "minimise" else -1.0
    return sign * sum(own.cost(rates) for own in problem.usages)


def priced_without_end(usages: Sequence[Usage], n: int) -> BoolArray:
    """Return which sources pay for ever more use, shape (n,)."""
    found = np.zeros(n, dtype=np.bool_)
    for own in usages:
        rises = (own.sign > 0.0) & ~(own.numerics.marginal(np.minimum(own.upper, LARGEST)) >= 0.0)
        rises |= np.isfinite(own.upper) & (own.sign > 0.0)
        found[own.source[rises[own.row]]] = True
    return found
