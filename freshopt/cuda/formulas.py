"""Device edition of formulas: the same source, tables as arguments.

The demand functions, proofs and costs of `freshopt.compiled` are written once, in plain Python. A compiler
for devices takes them but for three things, which are rewritten in their syntax trees: a global table would
have to fit the constant memory, and becomes an argument of every function that reads it, or calls one that
does; functions of one name in two modules are told apart; ``np.rint`` becomes ``math.floor``. Nothing else
changes, so that a formula corrected or added there is corrected or added here.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np

from freshopt.numerics.arrays import Array

# Formulas and all that they call live in these rooms.
HOMES = ("freshopt.compiled.", "freshopt.numerics.")


@dataclass(slots=True)
class Edition:
    """Functions rewritten for a device, callees first.

    - `sources`: Source text of each function, by its name on the device.
    - `tables`: By their names as arguments.
    - `needed` dict of str to list of str: The tables that each function takes after its own arguments,
      sorted.
    """

    sources: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Array] = field(default_factory=dict)
    needed: dict[str, list[str]] = field(default_factory=dict)

    def add(self, function: Callable[..., Any]) -> str:
        """Add a function with all that it calls; return its name.

        Examples
        --------
        >>> from freshopt.compiled.demand_functions import harmonic_periodic
        >>> edition = Edition()
        >>> edition.needed[edition.add(harmonic_periodic)]
        ['demand_steps__HARMONIC']
        """
        name = device_name(function)
        if name not in self.sources:
            self.add_source(name, textwrap.dedent(inspect.getsource(function)), _globals(function))
        return name

    def add_source(
        self, name: str, source: str, names: dict[str, Any], bound: dict[str, str] | None = None
    ) -> None:
        """Add the source of a function.

        - `name`: On the device.
        - `names`: What its global names stand for.
        - `bound`: Arguments that are functions, and the functions of this edition that take their place.
        """
        tree = ast.parse(source).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise TypeError(f"{name} is no function")
        rewrite = _Rewrite(self, names, bound or {}, _locals(tree))
        tree.name, tree.returns, tree.decorator_list = name, None, []
        arguments = [one for one in tree.args.args if one.arg not in rewrite.bound]
        for one in arguments:
            one.annotation = None
        # Device functions take no number of arguments that is not known: what is not used is not passed.
        if tree.args.vararg is not None and tree.args.vararg.arg.startswith("_"):
            tree.args.vararg = None
        tree.body = [rewrite.visit(node) for node in tree.body if not _is_text(node)]
        needed = sorted(rewrite.tables)
        tree.args.args = [*arguments, *(ast.arg(table) for table in needed)]
        self.sources[name] = ast.unparse(ast.fix_missing_locations(tree))
        self.needed[name] = needed

    def call(self, name: str, arguments: str) -> str:
        """Return the text of a function's call, with its tables."""
        return f"{name}({', '.join([arguments, *self.needed[name]])})"


def device_name(function: Callable[..., Any]) -> str:
    """Return the name of a function on the device.

    Examples
    --------
    >>> from freshopt.compiled.demand_functions import delay
    >>> device_name(delay)
    'demand_functions__delay'
    """
    return f"{function.__module__.split('.')[-1]}__{function.__name__}"


def has_edition(function: Callable[..., Any] | None) -> bool:
    """Return whether a function is a formula that can be rewritten.

    Examples
    --------
    >>> has_edition(lambda rate: rate)
    False
    """
    known = isinstance(function, FunctionType) and function.__module__.startswith(HOMES)
    return known and isinstance(function, FunctionType) and function.__closure__ is None


class _Rewrite(ast.NodeTransformer):
    """Rewriting of one function; what it needs is added first."""

    def __init__(self, edition: Edition, names: dict[str, Any], bound: dict[str, str], own: set[str]) -> None:
        self.edition, self.names, self.bound, self.own = edition, names, bound, own
        self.home = str(names.get("__name__", "")).split(".")[-1]
        self.tables: set[str] = set()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Rename a function or a table, and write out a constant."""
        if node.id in self.bound:
            return ast.Name(self.bound[node.id], node.ctx)
        value = None if node.id in self.own else self.names.get(node.id)
        if isinstance(value, FunctionType):
            return ast.Name(self.edition.add(value), node.ctx)
        if isinstance(value, np.ndarray):
            name = f"{self.home}__{node.id}"
            self.edition.tables[name] = value
            self.tables.add(name)
            return ast.Name(name, node.ctx)
        if isinstance(value, np.integer | np.floating):
            return ast.parse(f"np.{value.dtype.name}({value.item()!r})", mode="eval").body
        if isinstance(value, bool | int | float):
            return ast.Constant(value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Hand a function's tables on to it."""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "rint":
            nearest = ast.parse("math.floor(x + 0.5)", mode="eval").body
            sum_ = nearest.args[0] if isinstance(nearest, ast.Call) else nearest
            if isinstance(sum_, ast.BinOp):
                sum_.left = self.visit(node.args[0])
            return nearest
        self.generic_visit(node)
        needed = self.edition.needed.get(node.func.id, []) if isinstance(node.func, ast.Name) else []
        self.tables.update(needed)
        node.args += [ast.Name(table, ast.Load()) for table in needed]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign:
        """Drop the annotation of a variable."""
        if node.value is None:
            raise TypeError("an annotated variable has no value")
        return ast.Assign([node.target], self.visit(node.value))


def _globals(function: Callable[..., Any]) -> dict[str, Any]:
    return {**function.__globals__, "math": math, "np": np}


def _locals(tree: ast.FunctionDef) -> set[str]:
    """Return the names that a function assigns, its arguments included."""
    stored = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return stored | {one.arg for one in tree.args.args}


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
