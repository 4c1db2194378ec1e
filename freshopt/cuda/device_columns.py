"""Columns on the device, and the passes over them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.compiled.columns import Columns
from freshopt.compiled.proof_columns import INFLATION, Proof, ProofColumns
from freshopt.cuda.device import DeviceArray, empty, loops
from freshopt.cuda.kernel_text import (
    BLOCK,
    DEMAND,
    FIND,
    MIX,
    PROVE,
    Kinds,
    column_names,
    find_text,
    kernels_of,
    reduce_text,
)
from freshopt.cuda.transfers import on_host, uploaded
from freshopt.numerics.arrays import Array

# A column on the device, or one number for all sources.
Entry = Any


@dataclass(frozen=True, slots=True, eq=False)
class DeviceColumns:
    """Columns of demand and proof on the device, and their kernels.

    - `demand_columns`, `proof_columns` dict of str to device array or float: By the names of
      `freshopt.cuda.kernel_text.column_names`.
    - `scratch` dict of int to tuple of device array: Memory of the blocks' sums and of their sum, by how many
      there are.
    """

    n: int
    demand_columns: dict[str, Entry]
    proof_columns: dict[str, Entry]
    demand_tables: tuple[DeviceArray, ...]
    proof_tables: tuple[DeviceArray, ...]
    kernels: dict[str, Any]
    scratch: dict[int, tuple[DeviceArray, DeviceArray]] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Columns, proof: ProofColumns, dtype: str = "float64") -> DeviceColumns:
        """Return columns on the device, each copied once."""
        there: dict[object, DeviceArray] = {}

        def placed(column: Entry) -> Entry:
            if isinstance(column, np.ndarray):
                memory = column.ctypes.data, column.dtype  # the same column is viewed by several arrays
                if memory not in there:
                    there[memory] = uploaded(column)
                return there[memory]
            return column if is_array(column) or isinstance(column, bool) else float(column)

        demand = {name: placed(value) for name, value in _named(columns).items()}
        proofs = {name: placed(value) for name, value in _named(proof).items()}
        kinds = Kinds(
            columns.formula,
            columns.announced,
            proof.silent,
            proof.announced,
            tuple(name for name, value in demand.items() if is_array(value)),
            tuple(name for name, value in proofs.items() if is_array(value)),
            len(columns.parameters),
            len(proof.parameters),
            dtype == "float32",
        )
        kernels, demand_tables, proof_tables = _built(kinds)
        return cls(columns.n, demand, proofs, demand_tables, proof_tables, kernels)

    def demand(self, price: float) -> tuple[float, float]:
        """Return the bandwidth used at a price, and that between bounds."""
        used, inside = self._sums("demand", DEMAND, self._of_demand(), 1.0 / price)
        return used, inside

    def least(self) -> float:
        """Return the bandwidth used at an infinite price: Σ cost·min_rate."""
        lower = self.demand_columns["lower"]
        if not is_array(lower) and lower == 0.0:
            return 0.0
        return self._sums("demand", DEMAND, self._of_demand(), 0.0)[0]

    def fill(self, price: float, out: DeviceArray) -> tuple[float, float]:
        """Write the best responses to a price; return what `demand` returns."""
        used, inside = self._sums("fill", DEMAND, self._of_demand(), 1.0 / price, out)
        return used, inside

    def mix(self, low: float, high: float, share: float, out: DeviceArray) -> tuple[float, float, float]:
        """Write share·ρ(low) + (1 − share)·ρ(high).

        What is returned are the bandwidths of both sides and of the mixture.

        Sums and mixture are of one kernel: another's last bits may differ, and demand jumps there.
        """
        own = 1.0 / low, 1.0 / high, share, out
        generous, frugal, used = self._sums("mix", MIX, self._of_demand(), *own)
        return generous, frugal, used

    def prove(self, rates: DeviceArray, price: float, part: float = 1.0) -> Proof:
        """Return cost, bandwidth and gap of rates at a price.

        With a `part` they are those of that part of each rate, but where bounds meet.
        """
        own = (*self.proof_columns.values(), *self.proof_tables)
        cost, gain, used, gap, outside = self._sums("prove", PROVE, own, price, part, rates)
        return Proof(cost, gain, used, INFLATION * gap, outside, np.zeros(0))

    def sample(self, stride: int) -> DeviceColumns:
        """Return every so manieth source."""
        n = len(range(0, self.n, stride))
        there: dict[int, DeviceArray] = {}

        def taken(column: Entry) -> Entry:
            if not is_array(column):
                return column
            if id(column) not in there:
                there[id(column)] = gathered(column, n, stride)
            return there[id(column)]

        return replace(
            self,
            n=n,
            demand_columns={name: taken(value) for name, value in self.demand_columns.items()},
            proof_columns={name: taken(value) for name, value in self.proof_columns.items()},
            scratch={},
        )

    def _of_demand(self) -> tuple[Entry, ...]:
        return (*self.demand_columns.values(), *self.demand_tables)

    def _sums(self, kernel: str, width: int, own: tuple[Entry, ...], *first: Entry) -> list[float]:
        """Run a kernel over all sources and return its sums.

        The blocks' sums are added by one more block, in a fixed order; the host reads `width` pairs.
        """
        blocks = -(-self.n // BLOCK)
        if width not in self.scratch:
            self.scratch[width] = tuple(empty((rows, 2 * width), np.float64) for rows in (blocks, 1))
        partial, whole = self.scratch[width]
        loops().launch(self.kernels[kernel], blocks, self.n, *first, *own, partial)
        loops().launch(_reduction(width), 1, blocks, partial, whole)
        pairs = on_host(whole)[0].reshape(width, 2).tolist()
        return [total + lost if math.isfinite(total) else total for total, lost in pairs]


def is_array(column: Entry) -> bool:
    """Return whether a column is an array, and not a number."""
    return hasattr(column, "shape") and len(column.shape) == 1


def counted(condition: str, columns: dict[str, DeviceArray], n: int) -> Array:
    """Count by block, on the host, where a condition on columns holds."""
    blocks = -(-n // BLOCK)
    partial = empty((blocks, 2 * FIND), np.float64)
    loops().launch(_finder(condition, tuple(columns)), blocks, n, *columns.values(), partial)
    counts: Array = on_host(partial)[:, 0]
    return counts


def gathered(column: DeviceArray, n: int, stride: int) -> DeviceArray:
    """Return n entries of a column, evenly spaced; itself if all."""
    if stride == 1:
        return column
    out = empty(n, column.dtype)
    loops().launch(loops().gather, -(-n // loops().THREADS), n, stride, column, out)
    return out


def scattered(values: npt.NDArray[Any], stride: int, column: DeviceArray) -> None:
    """Write entries back to where `gathered` has them from."""
    if stride == 1:
        column.copy_to_device(values)
        return
    loops().launch(
        loops().scatter, -(-len(values) // loops().THREADS), len(values), stride, uploaded(values), column
    )


def _named(columns: Columns | ProofColumns) -> dict[str, Entry]:
    own = (
        columns.signalled,
        columns.importance,
        *columns.parameters,
        columns.cost,
        columns.lower,
        columns.upper,
    )
    return dict(zip(column_names(len(columns.parameters)), own, strict=True))


@functools.cache
def _built(kinds: Kinds) -> tuple[dict[str, Any], tuple[DeviceArray, ...], tuple[DeviceArray, ...]]:
    """Return kernels, compiled on use, and the tables that they read."""
    edition, texts = kernels_of(kinds, loops().THREADS, BLOCK)
    tables = {name: uploaded(table) for name, table in edition.tables.items()}
    demand, proof = (
        tuple(tables[name] for name in edition.needed[function]) for function in ("best_response", "proved")
    )
    return loops().compiled(edition.sources, texts), demand, proof


@functools.cache
def _reduction(width: int) -> Any:  # noqa: ANN401 - numba's
    functions, text = reduce_text(width, loops().THREADS)
    return loops().compiled(functions, {"reduced": text})["reduced"]


@functools.cache
def _finder(condition: str, columns: tuple[str, ...]) -> Any:  # noqa: ANN401 - numba's
    functions, text = find_text(list(columns), condition, loops().THREADS, BLOCK)
    return loops().compiled(functions, {"find": text})["find"]
