"""Text of the kernels of one objective and kind of columns.

A column is an array or one number for all sources, which the text of a kernel knows; each kernel is one pass.

**Sums.** A block of threads takes `BLOCK` sources. A thread adds up those that are `THREADS` apart, in order,
`PIECE` of them at a time; the pieces, and the threads' sums in a tree, with what rounding loses. A sum is a
pair, what it is and what was lost of it, and blocks write theirs out, to be added by one more block in the
same way. No sum depends on which block or thread comes first, so that the same input gives the same bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from freshopt.compiled.columns import Columns
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.proof_columns import ProofColumns
from freshopt.compiled.proof_functions import ProofCell, proved
from freshopt.cuda.formulas import Edition, has_edition
from freshopt.numerics.arrays import Array

# Sources of a block: 10⁹ of them make 244 141 blocks, whose sums are 4 MB each.
BLOCK = 4096
# Terms that are added one after the other: equal ones lose 8e-16 at worst.
PIECE = 16
# A price's inverse over a cost counts as no more, so that 0 importance times it is 0.
MOST_WORTH = 1e300
# Bytes of a table up to which each block copies it to its shared memory: threads that read rows far apart
# wait for each other less there. Larger ones would leave too few blocks at work.
SHARED_TABLE = 24_576
# Sums that a kernel writes: bandwidth used and what of it is between bounds; both sides of a mixture and what
# is written; cost, gain, bandwidth, gap and rates outside; how many are wrong.
DEMAND, MIX, PROVE, FIND = 2, 3, 5, 1


@dataclass(frozen=True, slots=True)
class Kinds:
    """Formulas of a problem, and which of its columns are arrays.

    - `demand`, `announced`: Demand functions of silent and of signalled sources.
    - `silent`, `other`: The cells of their proofs.
    - `demand_arrays`, `proof_arrays`: Names of the columns that are arrays.
    - `demand_parameters`, `proof_parameters`: How many parameters the formulas take.
    - `narrow`: Whether rates are kept in float32.
    """

    demand: Demand
    announced: Demand | None
    silent: ProofCell
    other: ProofCell | None
    demand_arrays: tuple[str, ...]
    proof_arrays: tuple[str, ...]
    demand_parameters: int
    proof_parameters: int
    narrow: bool


def why_no_text(columns: Columns, proof: ProofColumns) -> str | None:
    """Return which formulas have no edition for devices, or None."""
    cells = [cell for cell in (proof.silent, proof.announced) if cell is not None]
    formulas: list[Callable[..., Any]] = [
        columns.formula,
        *([columns.announced] if columns.announced is not None else []),
    ]
    formulas += [function for cell in cells for function in (cell.values, cell.reach)]
    if all(map(has_edition, formulas)):
        return None
    return "its formulas are not those of freshopt.compiled, from which kernels are made"


def column_names(parameters: int) -> tuple[str, ...]:
    """Return the names of columns in the kernels' order.

    Examples
    --------
    >>> column_names(1)
    ('signalled', 'importance', 'p0', 'cost', 'lower', 'upper')
    """
    return ("signalled", "importance", *(f"p{k}" for k in range(parameters)), "cost", "lower", "upper")


def kernels_of(kinds: Kinds, threads: int, block: int) -> tuple[Edition, dict[str, str]]:
    """Return device functions of a problem's formulas, and its kernels by name.

    The last that a kernel takes are the tables that "best_response" needs, or "proved".
    """
    edition = Edition()
    add = edition.add(_added())
    own = ", ".join(f"p{k}" for k in range(kinds.demand_parameters))
    _choose(
        edition, "rate_of", kinds.demand, kinds.announced, f"marginal_value, {own}", f"marginal_value, {own}"
    )
    _best_response(edition, own)
    cell, other = kinds.silent, kinds.other
    other_values, other_reach = (None, None) if other is None else (other.values, other.reach)
    own = ", ".join(f"p[{k}]" for k in range(kinds.proof_parameters))
    _choose(edition, "values_of", cell.values, other_values, "given, p", f"given[0], given[1], {own}")
    _choose(edition, "reach_of", cell.reach, other_reach, "given, p", f"given[0], given[1], given[2], {own}")
    _prove(edition)
    shape = _Shape(threads, block, add, edition.tables)
    return edition, {
        "demand": _demand(kinds, edition, shape, stored=False),
        "fill": _demand(kinds, edition, shape, stored=True),
        "mix": _mix(kinds, edition, shape),
        "prove": _prove_kernel(kinds, edition, shape),
    }


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a kernel walks over sources, and how it adds up."""

    threads: int
    block: int
    add: str
    tables: dict[str, Array] = field(default_factory=dict)

    def small(self, name: str) -> bool:
        """Return whether an argument is a table for shared memory."""
        return name in self.tables and self.tables[name].nbytes <= SHARED_TABLE

    def copied(self, arguments: list[str]) -> str:
        """Return the text that copies small tables to shared memory."""
        small = [name for name in arguments if self.small(name)]
        text = ""
        for name in small:
            rows, width = self.tables[name].shape
            text += (
                f"    {name} = cuda.shared.array(({rows}, {width}), np.float64)\n"
                f"    for i in range(thread, {rows * width}, {self.threads}):\n"
                f"        {name}[i // {width}, i % {width}] = {name}_there[i // {width}, i % {width}]\n"
            )
        return text + ("    cuda.syncthreads()\n" if small else "")

    def kernel(self, name: str, arguments: list[str], body: str, terms: list[str]) -> str:
        """Return the text of a kernel that sums terms over its block."""
        width = len(terms)
        terms_each = self.block // self.threads
        piece = min(PIECE, terms_each)
        starts = "\n".join(f"    t{c} = l{c} = 0.0" for c in range(width))
        pieces = "\n".join(f"        s{c} = 0.0" for c in range(width))
        each = "\n".join(f"                s{c} += {term}" for c, term in enumerate(terms))
        adds = "\n".join(f"        t{c}, l{c} = {self.add}(t{c}, l{c}, s{c})" for c in range(width))
        given = [f"{one}_there" if self.small(one) else one for one in arguments]
        return (
            f"def {name}(n, {', '.join(given)}, sums):\n"
            f"    thread = cuda.threadIdx.x\n"
            f"{self.copied(arguments)}"
            f"    first = np.int64(cuda.blockIdx.x) * {self.block} + thread\n"
            f"{starts}\n"
            f"    for begin in range(0, {terms_each}, {piece}):\n"
            f"{pieces}\n"
            f"        for step in range(begin, begin + {piece}):\n"
            f"            k = first + step * {self.threads}\n"
            f"            if k < n:\n{_indented(body, 16)}\n{each}\n"
            f"{adds}\n"
            f"{self.tree(width)}"
        )

    def tree(self, width: int) -> str:
        """Return the text that adds the threads' sums and writes the block's."""
        shared = f"    shared = cuda.shared.array(({self.threads}, {2 * width}), np.float64)\n"
        written = "".join(
            f"    shared[thread, {2 * c}] = t{c}\n    shared[thread, {2 * c + 1}] = l{c}\n"
            for c in range(width)
        )
        out = "".join(f"        sums[cuda.blockIdx.x, {c}] = shared[0, {c}]\n" for c in range(2 * width))
        return (
            f"{shared}{written}"
            f"    half = {self.threads // 2}\n"
            f"    while half > 0:\n"
            f"        cuda.syncthreads()\n"
            f"        if thread < half:\n"
            f"            for c in range({width}):\n"
            f"                a, b = {self.add}(shared[thread, 2 * c], shared[thread, 2 * c + 1],"
            f" shared[thread + half, 2 * c])\n"
            f"                shared[thread, 2 * c] = a\n"
            f"                shared[thread, 2 * c + 1] = b + shared[thread + half, 2 * c + 1]\n"
            f"        half //= 2\n"
            f"    if thread == 0:\n{out}"
        )


def reduce_text(width: int, threads: int) -> tuple[dict[str, str], str]:
    """Return the kernel that adds up blocks' sums, in one block."""
    edition = Edition()
    shape = _Shape(threads, threads, edition.add(_added()))
    adds = "".join(
        f"        t{c}, l{c} = {shape.add}(t{c}, l{c}, partial[k, {2 * c}])\n"
        f"        l{c} += partial[k, {2 * c + 1}]\n"
        for c in range(width)
    )
    starts = "".join(f"    t{c} = l{c} = 0.0\n" for c in range(width))
    text = (
        f"def reduced(blocks, partial, sums):\n    thread = cuda.threadIdx.x\n{starts}"
        f"    for k in range(thread, blocks, {threads}):\n{adds}{shape.tree(width)}"
    )
    return edition.sources, text


def find_text(columns: list[str], condition: str, threads: int, block: int) -> tuple[dict[str, str], str]:
    """Return the kernel that counts where a condition holds.

    The device functions that it calls come first.

    Columns are arrays, and named in the condition as their entries.
    """
    edition = Edition()
    shape = _Shape(threads, block, edition.add(_added()))
    body = "\n".join(f"{name} = np.float64({name}_column[k])" for name in columns)
    arguments = [f"{name}_column" for name in columns]
    return edition.sources, shape.kernel("find", arguments, body, [f"1.0 if {condition} else 0.0"])


def _added() -> Callable[..., Any]:
    from freshopt.compiled.column_passes import added  # noqa: PLC0415 - numba loads only if needed

    return added


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


def _choose(
    edition: Edition,
    name: str,
    silent: Callable[..., Any],
    announced: Callable[..., Any] | None,
    taken: str,
    passed: str,
) -> None:
    """Add the function of sources that are signalled or not."""
    mine, other = _called(edition, silent, passed), ""
    if announced is not None:
        other = f"    if signalled:\n        return {_called(edition, announced, passed)}\n"
    text = f"def {name}(signalled, {taken}):\n{other}    return {mine}\n"
    edition.add_source(name, text, {})


def _called(edition: Edition, function: Callable[..., Any], passed: str) -> str:
    """Return the text of a call with what the function uses."""
    assert isinstance(function, FunctionType)
    code, given = function.__code__, passed.split(", ")
    named = code.co_varnames[: code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS)]
    own = given[: code.co_argcount] if named[-1] == "_p" else given
    return f"{edition.add(function)}({', '.join(own)})"


def _best_response(edition: Edition, parameters: str) -> None:
    """Add the optimal rate of a source within its bounds."""
    from freshopt.compiled.source_columns import LARGEST_RATE  # noqa: PLC0415 - numba loads only if needed

    text = (
        f"def best_response(inverse_price, signalled, w, {parameters}, cost, lower, upper):\n"
        f"    free = rate_of(signalled, w * min(inverse_price / cost, {MOST_WORTH!r}), {parameters})\n"
        f"    finite = min(free, {LARGEST_RATE!r})\n"
        f"    return min(max(finite, lower), upper)\n"
    )
    edition.add_source("best_response", text, {})


def _prove(edition: Edition) -> None:
    """Add `proved` with the values and the reach of this problem's cells."""
    bound = {"values": "values_of", "reach": "reach_of"}
    edition.add_source("proved", inspect.getsource(proved), proved.__globals__, bound)


def _loads(names: tuple[str, ...], arrays: tuple[str, ...]) -> str:
    """Return the text that reads a source's columns by name."""
    lines = []
    for name in names:
        entry = f"{name}_column[k]" if name in arrays else f"{name}_column"
        lines.append(f"{name} = {entry}" if name == "signalled" else f"{name} = np.float64({entry})")
    return "\n".join(lines)


def _arguments(names: tuple[str, ...], tables: list[str]) -> list[str]:
    return [*(f"{name}_column" for name in names), *tables]


def _response(kinds: Kinds, edition: Edition, price: str) -> str:
    own = ", ".join(f"p{k}" for k in range(kinds.demand_parameters))
    return edition.call("best_response", f"{price}, signalled, importance, {own}, cost, lower, upper")


# A rate is what is stored of it, within its bounds: in float32 one that was rounded beyond them is moved in.
_STORE = """rate = min(max(rate, lower), upper)
out[k] = rate"""
_STORE_NARROW = """narrow = np.float32(rate)
if np.float64(narrow) > upper:
    narrow = np.float32(upper * (1.0 - 2.0 ** -23))
elif np.float64(narrow) < lower:
    narrow = np.float32(lower * (1.0 + 2.0 ** -23))
out[k] = narrow
rate = np.float64(narrow)"""


def _demand(kinds: Kinds, edition: Edition, shape: _Shape, *, stored: bool) -> str:
    names, tables = column_names(kinds.demand_parameters), edition.needed["best_response"]
    body = f"{_loads(names, kinds.demand_arrays)}\nrate = {_response(kinds, edition, 'inverse_price')}"
    if stored:
        body += f"\n{_STORE_NARROW if kinds.narrow else _STORE}"
    body += "\nused = cost * rate"
    arguments = ["inverse_price", *(["out"] if stored else []), *_arguments(names, tables)]
    inside = "used if (rate > lower) & (rate < upper) else 0.0"
    return shape.kernel("fill" if stored else "demand", arguments, body, ["used", inside])


def _mix(kinds: Kinds, edition: Edition, shape: _Shape) -> str:
    names, tables = column_names(kinds.demand_parameters), edition.needed["best_response"]
    body = (
        f"{_loads(names, kinds.demand_arrays)}\n"
        f"generous = {_response(kinds, edition, 'generous_inverse')}\n"
        f"frugal = {_response(kinds, edition, 'frugal_inverse')}\n"
        f"rate = frugal + share * (generous - frugal)\n{_STORE_NARROW if kinds.narrow else _STORE}"
    )
    arguments = ["generous_inverse", "frugal_inverse", "share", "out", *_arguments(names, tables)]
    return shape.kernel("mix", arguments, body, ["cost * generous", "cost * frugal", "cost * rate"])


def _prove_kernel(kinds: Kinds, edition: Edition, shape: _Shape) -> str:
    names, tables = column_names(kinds.proof_parameters), edition.needed["proved"]
    own = "".join(f"p{k}, " for k in range(kinds.proof_parameters))
    call = edition.call("proved", f"signalled, rate, importance, cost * price, lower, upper, ({own})")
    body = (
        f"{_loads(names, kinds.proof_arrays)}\n"
        f"rate = np.float64(rates[k])\n"
        f"rate = part * rate if lower < upper else rate\n"
        f"found = {call}"
    )
    terms = ["found[0]", "found[1]", "cost * rate", "found[2]", "found[3]"]
    return shape.kernel("prove", ["price", "part", "rates", *_arguments(names, tables)], body, terms)
