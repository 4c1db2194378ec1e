"""Access to columns in compiled loops: arrays or single numbers.

A column is an array, one number for all sources, or a table that all look into, which is an array of two
dimensions; numba tells them by type. For a number or a table the functions below cost nothing. They are given
to numba by overloads, tuples and records of columns column by column; what stands in their bodies is what the
overloads do with arrays, and in plain Python.
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

# Calls would count references to each column of a record, for each host anew.
INLINED: Data = {"forceinline": True}


def part(column: Data, begin: int, end: int) -> Data:
    """Return a column's entries, or the number."""
    return _by_column(part, column, begin, end) if isinstance(column, tuple) else column[begin:end]


def at(column: Data, k: int) -> Data:
    """Return a column's entry, or the number."""
    return _by_column(at, column, k) if isinstance(column, tuple) else column[k]


def room(column: Data, size: int) -> Data:
    """Return memory for some of a column's entries, or the number."""
    return np.empty(size, column.dtype)


def gathered(column: Data, members: IntArray, into: Data) -> Data:
    """Return a column's entries of some sources, or the number.

    They are written to memory at hand, where they stay in the first-level cache.
    """
    into[: len(members)] = column[members]
    return into[: len(members)]


def copied(column: Data, k: int, into: Data) -> Data:
    """Fill memory with a column's entry, and return whether it is memory."""
    if isinstance(column, tuple):
        return tuple(copied(each, k, own) for each, own in zip(column, into, strict=True))
    if isinstance(into, np.ndarray):
        into[:] = column[k]
    return isinstance(into, np.ndarray)


def written(column: Data, k: int, value: float) -> bool:
    """Write a column's entry, and return whether it has one."""
    if not isinstance(column, np.ndarray) or k >= len(column):
        return False
    column[k] = value
    return True


def _by_column(access: Callable[..., Data], columns: Data, *given: int) -> Data:
    found = [access(column, *given) for column in columns]
    return type(columns)(*found) if hasattr(columns, "_fields") else tuple(found)


def _each(access: Callable[..., Data], columns: Data, given: str, passed: str = "") -> Data:
    """Return what does the same to each column of a tuple."""
    own = [f"access(column[{j}], {(passed or given).format(j)})" for j in range(len(columns))]
    record = getattr(columns, "instance_class", None)
    made = f"({', '.join(own)},)" if record is None else f"record({', '.join(own)})"
    names: dict[str, Data] = {"access": access, "record": record}
    exec(f"def each(column, {given}):\n    return {made}\n", names)
    return names["each"]


def _is_column(kind: Data) -> bool:
    return isinstance(kind, types.Array) and kind.ndim == 1


@overload(room, jit_options=INLINED, strict=False)
def _room(column: Data, size: int) -> Data:
    if isinstance(column, types.BaseTuple):
        return _each(room, column, "size")
    if _is_column(column):
        return lambda column, size: np.empty(size, column.dtype)
    return lambda column, size: column


@overload(gathered, jit_options=INLINED, strict=False)
def _gathered(column: Data, members: IntArray, into: Data) -> Data:
    if isinstance(column, types.BaseTuple):
        return _each(gathered, column, "members, into", "members, into[{}]")
    if _is_column(column):

        def picked(column: Data, members: IntArray, into: Data) -> Data:
            for j in range(len(members)):
                into[j] = column[members[j]]
            return into[: len(members)]

        return picked
    return lambda column, members, into: column


@overload(copied, jit_options=INLINED, strict=False)
def _copied(column: Data, k: int, into: Data) -> Data:
    if isinstance(column, types.BaseTuple):
        own = [f"access(column[{j}], k, into[{j}])" for j in range(len(column))]
        names: dict[str, Data] = {"access": copied}
        exec(f"def each(column, k, into):\n    return ({', '.join(own)},)\n", names)
        return names["each"]
    if _is_column(into) and into.mutable:

        def filled(column: Data, k: int, into: Data) -> Data:
            for j in range(len(into)):
                into[j] = column[k]
            return True

        return filled
    return lambda column, k, into: False


@overload(written, jit_options=INLINED, strict=False)
def _written(column: Data, k: int, value: float) -> Data:
    # What is written would be rounded.
    if _is_column(column) and column.mutable and column.dtype != types.float32:

        def put(column: Data, k: int, value: float) -> Data:
            there = k < len(column)
            if there:
                column[k] = value
            return there

        return put
    return lambda column, k, value: False


@overload(part, jit_options=INLINED, strict=False)
def _part(column: Data, begin: int, end: int) -> Data:
    if isinstance(column, types.BaseTuple):
        return _each(part, column, "begin, end")
    if _is_column(column):
        return lambda column, begin, end: column[begin:end]
    return lambda column, begin, end: column


@overload(at, jit_options=INLINED, strict=False)
def _at(column: Data, k: int) -> Data:
    if isinstance(column, types.BaseTuple):
        return _each(at, column, "k")
    if _is_column(column):
        if column.dtype == types.float32:
            return lambda column, k: np.float64(column[k])
        return lambda column, k: column[k]
    return lambda column, k: column


def _gathers(context: Any) -> bool:  # noqa: ANN401 - numba's
    """Return whether the processor is quick at gathers and long vectors.

    Those of Intel with this feature are, at 512 bits. Others, and older ones, gather more slowly than they
    load; in the older ones long vectors lower the clock.
    """
    return "+avx512fp16" in str(context.codegen().magic_tuple())


def _one_by_one(_context: Any, index: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401 - numba's types
    """Return an index whose loop is not vectorised where gathers are slow."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return arguments[0] if _gathers(context) else _veil(context, builder, signature, arguments)

    return index(index), generate


def _unknown(_context: Any, number: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401 - numba's types
    """Return a number that compilers do not know.

    Loops with few turns, as far as they know, are not vectorised.
    """
    return number(number), _veil


def _veil(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
    """Write an empty line of assembly, from a register to itself."""
    kind = ir.FunctionType(arguments[0].type, [arguments[0].type])
    return builder.call(ir.InlineAsm(kind, "", "=r,0", side_effect=True), arguments)


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
unknown: Any = intrinsic(_unknown)
wide: Any = intrinsic(_wide)
# Numba pickles intrinsics into the key of a loop's cache with an id that is random in each process: with one
# that is always the same, loops are found there again.
one_by_one._set_uuid("freshopt.one_by_one")
unknown._set_uuid("freshopt.unknown")
wide._set_uuid("freshopt.wide")
