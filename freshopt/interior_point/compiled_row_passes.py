"""Compiled passes over the sources of a program, where loops exist."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.compiled.rows.row_columns import RowColumns
from freshopt.interior_point.newton_systems import ArrowGram
from freshopt.interior_point.program_columns import row_columns
from freshopt.interior_point.row_layout import Arrow, arrow_of
from freshopt.interior_point.row_passes import Evaluation, NumpyRowPasses, RowPasses
from freshopt.numerics.arrays import Array
from freshopt.separable.program import Program
from freshopt.separable.usage_costs import UsageCosts


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRowPasses:
    """Passes of `RowColumns`, as `RowPasses`.

    - `arrow`: Which rows the parts of an `ArrowGram` belong to.
    """

    columns: RowColumns
    arrow: Arrow | None

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Evaluation:
        """Return best responses, used amounts and, with `gram`, the matrix."""
        rates, used, matrix = self.columns.evaluate(multipliers, gram=gram)
        if matrix is None or isinstance(matrix, np.ndarray):
            return Evaluation(rates, used, matrix)
        assert self.arrow is not None
        return Evaluation(rates, used, ArrowGram(*matrix, self.arrow))


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRowPasses:
    """Passes over sources, and over what they use, one after the other."""

    parts: tuple[RowPasses, ...]

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Evaluation:
        """Return best responses, used amounts and, with `gram`, the matrix."""
        found = [part.evaluate(multipliers, gram=gram) for part in self.parts]
        rates = np.concatenate([one.rates for one in found])
        matrix, *others = (one.gram for one in found)
        for other in others:
            if isinstance(matrix, ArrowGram) and isinstance(other, ArrowGram):
                matrix = ArrowGram(
                    matrix.diagonal + other.diagonal,
                    matrix.cross + other.cross,
                    matrix.corner + other.corner,
                    matrix.arrow,
                )
            elif isinstance(matrix, np.ndarray) and isinstance(other, np.ndarray):
                matrix = matrix + other
        return Evaluation(rates, np.sum([one.used for one in found], axis=0), matrix)


def row_passes(program: Program) -> RowPasses:
    """Return the fastest passes over a program's sources."""
    return passes_in_parts(program, arrow_of(program.rows))


def passes_in_parts(program: Program, arrow: Arrow | None) -> RowPasses:
    """Return the same, with the matrix in given parts."""
    if isinstance(program.numerics, UsageCosts):
        # Each kind keeps the closed form of its best responses, and its loops.
        first = int(np.argmax(program.numerics.usage))
        own = passes_in_parts(program.take(slice(0, first)), arrow)
        return JoinedRowPasses((own, NumpyRowPasses(program.take(slice(first, len(program))), arrow)))
    disjoint = None
    if arrow is not None:
        disjoint = np.zeros(len(program.rows), dtype=np.bool_)
        disjoint[arrow.hosts] = True
    columns = row_columns(program, disjoint)
    if columns is None:
        return NumpyRowPasses(program, arrow)
    return CompiledRowPasses(columns, arrow)
