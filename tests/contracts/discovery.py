"""What there is to test: objectives and solvers are found, not listed, so that a new file is covered.

An objective enters by the doctest that every public class has (whatever it passes to `Problem`), a solver by
its defaults, or by its doctest where it has none. Fields that are a choice (`refresh`, `form`, `backend`) are
tried in all their values.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import doctest
import functools
import importlib
import inspect
import io
import itertools
import pkgutil
import typing
from types import ModuleType
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.certificates.solver_protocol import Solver


def modules(package: str) -> list[ModuleType]:
    """Import every module of a subpackage of freshopt."""
    home = importlib.import_module(package)
    return [importlib.import_module(f"{package}.{info.name}") for info in pkgutil.iter_modules(home.__path__)]


def classes(package: str) -> list[type]:
    """Return the public classes that the modules of a subpackage define."""
    return [
        member
        for module in modules(package)
        for name, member in inspect.getmembers(module, inspect.isclass)
        if member.__module__ == module.__name__ and not name.startswith("_")
    ]


def calls_in_doctest(owner: type, callee: str, argument: int | None) -> list[Any]:
    """Follow a class's doctest and evaluate each call of `callee` in it (or one of its arguments)."""
    namespace = {**vars(importlib.import_module(owner.__module__))}
    found: list[Any] = []
    for example in doctest.DocTestParser().get_examples(owner.__doc__ or ""):
        tree = ast.parse(example.source)
        if not all(isinstance(statement, ast.Expr) for statement in tree.body):  # it binds names
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(example.source, "<doctest>", "exec"), namespace)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == callee:
                expression = node if argument is None else node.args[argument]
                found.append(eval(compile(ast.Expression(expression), "<doctest>", "eval"), namespace))
    return found


def variants(value: Any) -> list[Any]:  # noqa: ANN401 - any frozen record
    """Return a dataclass in all values of its fields of type Refresh or Literal."""
    if not dataclasses.is_dataclass(value):
        return [value]
    hints = typing.get_type_hints(type(value))
    choices = {
        field.name: [r for r in fo.Refresh if r is not fo.Refresh.ON_SIGNAL]
        if hints[field.name] is fo.Refresh
        else list(typing.get_args(hints[field.name]))
        for field in dataclasses.fields(value)
        if field.init
        and (hints[field.name] is fo.Refresh or typing.get_origin(hints[field.name]) is typing.Literal)
    }
    rows = itertools.product(*choices.values())
    found = []
    for row in rows:
        with contextlib.suppress(fo.ObjectiveError):  # a choice that the class itself refuses is no variant
            found.append(dataclasses.replace(value, **dict(zip(choices, row, strict=True))))  # type: ignore[type-var]
    return found


@functools.cache
def objectives() -> dict[str, fo.Objective]:
    """Return every objective in every variant by its repr; those that hold arrays hold a few entries."""
    found: dict[str, fo.Objective] = {}
    for owner in classes("freshopt.problems"):
        for objective in calls_in_doctest(owner, "Problem", 0):
            for variant in variants(objective):
                found.setdefault(repr(variant), variant)
    return found


def sized(objective: Any, n: int) -> Any:  # noqa: ANN401 - an objective or a cost of age
    """Return the objective for n sources, its arrays (of two entries, in doctests) repeated."""
    return objective.take(np.arange(n) % 2)


def solvers() -> dict[str, Solver]:
    """Return every solver in every variant by its repr."""
    found: dict[str, Solver] = {}
    for owner in classes("freshopt.solvers"):
        if not (hasattr(owner, "supports") and hasattr(owner, "solve")):
            continue
        for solver in instances(owner):
            for variant in variants(solver):
                found.setdefault(repr(variant), variant)
    return found


def instances(owner: type) -> list[Any]:
    """Return a class made with its defaults, or as in its doctest where it has none."""
    given = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    required = [
        f
        for f in given
        if f.init and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    return calls_in_doctest(owner, owner.__name__, None) if required else [owner()]


def instance(owner: type) -> Any:  # noqa: ANN401
    """Return one instance of a class; fails where it needs arguments and its doctest makes none."""
    found = instances(owner)
    assert found, f"make one in the doctest of {owner.__name__}"
    return found[0]
