"""NumPy formulas made of the scalar ones, from the same source.

A cell is written once, for one source, in plain Python: numba compiles its source for loops, and here it is
rewritten for arrays, callees first. `a if c else b` and an early return become `np.where`, min and max and
functions of `math` their ufuncs, `and` and `or` bitwise operators; a loop takes as many steps as any element
needs, of which more must not do harm. What is not asked for of several results is left out. Both sides of a
branch are evaluated: a formula may divide by 0 on the side that is not taken, of which
`freshopt.separable.kernel` takes no notice.

A rewritten function costs a third of a millisecond once; numba, which alone takes half a second to load, is
not needed.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from freshopt.compiled.cost_functions import log_one_plus
from freshopt.compiled.demand_functions import Demand
from freshopt.numerics.arrays import Array
from freshopt.numerics.inverse_tables import polynomial, row_polynomials
from freshopt.numerics.vector_math import fast_exp, fast_log

# Rates beyond are taken for it: no cell is larger there than what underflows.
MOST = 1e300
# What `ProofCell.values` returns, by place.
COST, GAIN, MARGINAL = range(3)


@dataclass(frozen=True, slots=True)
class OfRate:
    """One of a cell's values at a rate, on arrays.

    Examples
    --------
    >>> from freshopt.compiled.proof_functions import HARMONIC
    >>> OfRate(HARMONIC.values, MARGINAL)(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    array([0.5 , 0.25])
    """

    values: Callable[..., Any]
    part: int

    def __call__(self, rate: Array, *parameters: Array) -> Array:
        """Return the value, of importance 1."""
        found: Array = array_edition(self.values, self.part)(np.minimum(rate, MOST), 1.0, *parameters)
        return found


@dataclass(frozen=True, slots=True)
class OfPrice:
    """Best response of a cell to a price, on arrays.

    Examples
    --------
    >>> from freshopt.compiled.demand_functions import harmonic_poisson
    >>> OfPrice(harmonic_poisson)(np.array([0.5]), np.array([1.0]))
    array([1.])
    """

    response: Demand

    def __call__(self, price: Array, *parameters: Array) -> Array:
        """Return the rate, of importance 1."""
        found: Array = array_edition(self.response)(1.0 / price, *parameters)
        return found


def _bits(x: Array, kind: type[np.generic]) -> Array:
    return np.asarray(x).view(kind)


def _number(x: Array, kind: type[np.generic]) -> Array:
    return np.asarray(x).astype(kind, copy=False)


def _most(count: Array | int) -> int:
    return count if isinstance(count, int) else int(np.max(count, initial=0))


# What NumPy has itself, and what is no arithmetic of elements.
KNOWN: dict[Callable[..., Any], Callable[..., Any]] = {
    fast_log: np.log,
    fast_exp: np.exp,
    log_one_plus: np.log1p,
    polynomial: row_polynomials,
}


@functools.cache
def array_edition(function: Callable[..., Any], part: int | None = None) -> Callable[..., Any]:
    """Return a function of arrays with the source of one of numbers.

    `part` is the place of the only result that is wanted.

    - raises TypeError if it has a statement that arrays do not have.
    """
    if function in KNOWN:
        return KNOWN[function]
    assert isinstance(function, FunctionType)
    tree = next(iter(ast.parse(_source(function)).body), None)
    # A package that was replaced under a running process has other lines.
    if not isinstance(tree, ast.FunctionDef) or tree.name != function.__name__:
        raise RuntimeError(f"the source of {function.__qualname__} has changed. Start Python again.")
    body = _selected(tree.body, function.__name__)
    rewrite = _Elementwise(function.__globals__)
    tree.body = [rewrite.visit(node) for node in (body if part is None else _only(body, part))]
    tree.returns = None
    for argument in tree.args.args:
        argument.annotation = None
    module = ast.fix_missing_locations(ast.Module([tree], []))
    names: dict[str, Any] = {**_names(function), "np": np, "_bits": _bits, "_most": _most, "_number": _number}
    exec(compile(module, f"<array edition of {function.__module__}.{tree.name}>", "exec"), names)
    edition: Callable[..., Any] = names[tree.name]
    return edition


def _source(function: FunctionType) -> str:
    """Return the source of a module's function.

    It ends where another statement begins. `inspect` takes ten times as long, most of it to load a tokenizer.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 :]
    body = itertools.takewhile(lambda line: line[0].isspace() or line[0] in ")#", lines[1:])
    return "".join([*lines[:1], *body])


def _names(function: FunctionType) -> dict[str, Any]:
    """Return what a function's names stand for, functions as array editions."""
    used = set(function.__code__.co_names)
    found = {name: value for name, value in function.__globals__.items() if name in used}
    return {
        name: array_edition(value) if isinstance(value, FunctionType) else value
        for name, value in found.items()
    }


def _selected(body: Sequence[ast.stmt], name: str) -> list[ast.stmt]:
    """Turn `if c: return a` before `return b` into a select."""
    done: list[ast.stmt] = []
    for k, node in enumerate(body):
        match node:
            case ast.Expr(ast.Constant()):
                continue
            case ast.AnnAssign(target, _, ast.expr() as value):
                done.append(ast.Assign([target], value))
            case ast.If(test, [ast.Return(ast.expr() as early)], []):
                *between, last = _selected(body[k + 1 :], name)
                assert isinstance(last, ast.Return)
                assert last.value is not None
                return [*done, *between, ast.Return(ast.IfExp(test, early, last.value))]
            case ast.For(_, ast.Call(ast.Name("range"), counts) as steps, inner, []):
                steps.args = [_call("_most", each) for each in counts]
                node.body = _selected(inner, name)
                done.append(node)
            case ast.AugAssign(ast.Name(known) as target, op, value):
                done.append(ast.Assign([target], ast.BinOp(ast.Name(known, ast.Load()), op, value)))
            case ast.Assign() | ast.Return():
                done.append(node)
            case _:
                raise TypeError(f"line {node.lineno} of {name} has no array edition. Write a select.")
    return done


def _only(body: list[ast.stmt], part: int) -> list[ast.stmt]:
    """Return what one of several results needs of straight-line code."""
    last = body[-1]
    assert isinstance(last, ast.Return)
    assert isinstance(last.value, ast.Tuple)
    kept: list[ast.stmt] = [ast.Return(last.value.elts[part])]
    needed = _names_in(kept[0], ast.Load)
    for node in reversed(body[:-1]):
        stored = _names_in(node, ast.Store)
        if stored & needed:
            kept.append(node)
            # A loop may use what it writes.
            needed = needed - (stored if isinstance(node, ast.Assign) else set()) | _names_in(node, ast.Load)
    return kept[::-1]


def _names_in(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    return {each.id for each in names if isinstance(each.ctx, context)}


class _Elementwise(ast.NodeTransformer):
    """Rewrites expressions of numbers into those of arrays."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.body, ast.Tuple) and isinstance(node.orelse, ast.Tuple):
            pairs = zip(node.body.elts, node.orelse.elts, strict=True)
            return ast.Tuple([_call("np.where", node.test, *pair) for pair in pairs], ast.Load())
        return _call("np.where", node.test, node.body, node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return _joined(ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr(), node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call("np.logical_not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        return _joined(ast.BitAnd(), [ast.Compare(left, [op], [right]) for left, op, right in pairs])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value, "view"):
                return _call("_bits", value, *node.args)
            case ast.Attribute(ast.Name("np"), "float64" | "int64" | "uint64"):
                return _call("_number", *node.args, node.func)
            case ast.Attribute(ast.Name(module), name) if self.names.get(module) is math:
                return _call(f"np.{name}", *node.args)
            case ast.Name("min" | "max" as name):
                return functools.reduce(lambda a, b: _call(f"np.{name}imum", a, b), node.args)
            case ast.Name("float"):
                return node.args[0]
        return node


def _joined(op: ast.operator, values: list[ast.expr]) -> ast.expr:
    return functools.reduce(lambda a, b: ast.BinOp(a, op, b), values)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.parse(name, mode="eval").body, list(arguments), [])
