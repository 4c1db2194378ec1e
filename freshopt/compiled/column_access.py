"""Access to columns in compiled loops: arrays or single numbers.

A column is an array, one number for all sources, or a table that all look into, which is an array of two
dimensions; numba tells them by type. For a number or a table the functions below cost nothing. They are given
to numba by overloads; what stands in their bodies is what the overloads do with arrays.
Imported by `freshopt.compiled.loops` alone.

Rows of a table are read one by one: a row is a cache line, and eight loads of it are sooner done than the
gathers from eight rows that a vectorised look-up consists of, twice as soon on processors with AVX-512.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from freshopt.compiled.source_columns import Data
from freshopt.numerics.arrays import IntArray


def part(column: Data, begin: int, end: int) -> Data:
    """Return a column's entries, or the number."""
    return column[begin:end]


def at(column: Data, k: int) -> Data:
    """Return a column's entry, or the number."""
    return column[k]


def parts(columns: Data, begin: int, end: int) -> Data:
    """Return `part` of each column."""
    return tuple(part(column, begin, end) for column in columns)


def entries(columns: Data, k: int) -> Data:
    """Return `at` of each column."""
    return tuple(at(column, k) for column in columns)


def room(column: Data, size: int) -> Data:
    """Return memory for some of a column's entries, or the number."""
    return np.empty(size, column.dtype)


def rooms(columns: Data, size: int) -> Data:
    """Return `room` for each column."""
    return tuple(room(column, size) for column in columns)


def gathered(column: Data, members: IntArray, into: Data) -> Data:
    """Return a column's entries of some sources, or the number.

    They are written to memory at hand.
    """
    into[: len(members)] = column[members]
    return into[: len(members)]


def all_gathered(columns: Data, members: IntArray, into: Data) -> Data:
    """Return `gathered` of each column."""
    return tuple(gathered(column, members, place) for column, place in zip(columns, into, strict=True))


def _is_column(kind: Data) -> bool:
    return isinstance(kind, types.Array) and kind.ndim == 1


@overload(room, strict=False)
def _room(column: Data, size: int) -> Data:
    if _is_column(column):
        return lambda column, size: np.empty(size, column.dtype)
    return lambda column, size: column


@overload(rooms, strict=False)
def _rooms(columns: Data, size: int) -> Data:
    if len(columns) == 1:
        return lambda columns, size: (room(columns[0], size),)
    if len(columns) == 2:
        return lambda columns, size: (room(columns[0], size), room(columns[1], size))
    return lambda columns, size: (room(columns[0], size), *rooms(columns[1:], size))


@overload(gathered, strict=False)
def _gathered(column: Data, members: IntArray, into: Data) -> Data:
    if _is_column(column):

        def picked(column: Data, members: IntArray, into: Data) -> Data:
            for j in range(len(members)):
                into[j] = column[members[j]]
            return into[: len(members)]

        return picked
    return lambda column, members, into: column


@overload(all_gathered, strict=False)
def _all_gathered(columns: Data, members: IntArray, into: Data) -> Data:
    if len(columns) == 1:
        return lambda columns, members, into: (gathered(columns[0], members, into[0]),)
    if len(columns) == 2:
        return lambda columns, members, into: (
            gathered(columns[0], members, into[0]),
            gathered(columns[1], members, into[1]),
        )
    return lambda columns, members, into: (
        gathered(columns[0], members, into[0]),
        *all_gathered(columns[1:], members, into[1:]),
    )


@overload(part, strict=False)
def _part(column: Data, begin: int, end: int) -> Data:
    if _is_column(column):
        return lambda column, begin, end: column[begin:end]
    return lambda column, begin, end: column


@overload(at, strict=False)
def _at(column: Data, k: int) -> Data:
    if _is_column(column):
        if column.dtype == types.float32:
            return lambda column, k: np.float64(column[k])
        return lambda column, k: column[k]
    return lambda column, k: column


@overload(parts, strict=False)
def _parts(columns: Data, begin: int, end: int) -> Data:
    if len(columns) == 1:
        return lambda columns, begin, end: (part(columns[0], begin, end),)
    if len(columns) == 2:
        return lambda columns, begin, end: (part(columns[0], begin, end), part(columns[1], begin, end))
    return lambda columns, begin, end: (part(columns[0], begin, end), *parts(columns[1:], begin, end))


@overload(entries, strict=False)
def _entries(columns: Data, k: int) -> Data:
    if len(columns) == 1:
        return lambda columns, k: (at(columns[0], k),)
    if len(columns) == 2:
        return lambda columns, k: (at(columns[0], k), at(columns[1], k))
    return lambda columns, k: (at(columns[0], k), *entries(columns[1:], k))


def _gathers(context: Any) -> bool:  # noqa: ANN401 - numba's
    """Return whether the processor is quick at gathers and long vectors.

    Those of Intel with this feature are, at 512 bits. Others, and older ones, gather more slowly than they
    load; in the older ones long vectors lower the clock.
    """
    return "+avx512fp16" in str(context.codegen().magic_tuple())


def _one_by_one(_context: Any, index: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401 - numba's types
    """Return an index whose loop is not vectorised where gathers are slow."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        if _gathers(context):
            return arguments[0]
        # An empty line of assembly from a register to the same one.
        kind = ir.FunctionType(arguments[0].type, [arguments[0].type])
        return builder.call(ir.InlineAsm(kind, "", "=r,0", side_effect=True), arguments)

    return index(index), generate


def _wide(_context: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401 - numba's types
    """Have loops of the calling function use vectors of 512 bits.

    LLVM prefers 256 for all processors of Intel.
    """

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:  # noqa: ANN401
        if _gathers(context):
            # A string attribute, which llvmlite's set of known ones does not have.
            set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), generate


one_by_one: Any = intrinsic(_one_by_one)
wide: Any = intrinsic(_wide)
# Numba pickles intrinsics into the key of a loop's cache with an id that is random in each process: with one
# that is always the same, loops are found there again.
one_by_one._set_uuid("freshopt.one_by_one")
wide._set_uuid("freshopt.wide")
