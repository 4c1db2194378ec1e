"""What there is to test: objectives and solvers are found, not listed, so that a new file is covered.

An objective enters by the doctest that every public class has (whatever it passes to `Problem`), a solver by
its defaults, or by its doctest where it has none. Fields that are a choice (`refresh`, `form`, `backend`) are
tried in all their values. A cell is an objective and what its fetches are like: plain, failing, dearer where
they find a change, or of copies that may be served while they are fetched; sources suit it.
"""

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
import re
import typing
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import freshopt as fo
from freshopt.certificates.solver_protocol import Solver
from tests.ground_truth.truth import Floats, Instance


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


def listed(hint: Any) -> list[str]:  # noqa: ANN401
    """Return the values that a Literal lists, alone or beside other types."""
    kinds = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return list(kinds)
    return [each for kind in kinds for each in listed(kind)]


def variants(value: Any) -> list[Any]:  # noqa: ANN401 - any frozen record
    """Return a dataclass in all values of its fields of type Refresh or Literal."""
    if not dataclasses.is_dataclass(value):
        return [value]
    hints = typing.get_type_hints(type(value))
    known = getattr(value, "disciplines", ())
    requested = fo.Refresh.ON_REQUEST if getattr(value, "on_request", False) else None
    refreshes = [each for each in fo.Refresh if each in known or each is requested]
    choices = {
        field.name: refreshes if hints[field.name] is fo.Refresh else listed(hints[field.name])
        for field in dataclasses.fields(value)
        if field.init and (hints[field.name] is fo.Refresh or listed(hints[field.name]))
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


class Cell(NamedTuple):
    """An objective, and what its fetches are like: "plain", or one of `KINDS`."""

    objective: fo.Objective
    fetches: str = "plain"

    @property
    def on_request(self) -> bool:
        """Whether the copies are refreshed on request."""
        return self.objective.refresh is fo.Refresh.ON_REQUEST

    def columns(self, seed: int, rates: Floats, refresh_cost: Floats | float = 1.0) -> dict[str, Any]:
        """Return the columns of sources that the cell needs; request rates are spread around `rates`."""
        rng, n = np.random.default_rng([seed, len(rates)]), len(rates)
        some = np.arange(n) % 3 > 0
        found: dict[str, Any] = {}
        if self.on_request:
            found["request_rate"] = rates * rng.lognormal(0.0, 0.5, n)
        if self.fetches == "windows":
            found["stale_while_revalidate"] = rng.exponential(1.0, n) * some
        elif self.fetches == "failing":
            found["success"] = np.where(some, rng.uniform(0.2, 1.0, n), 1.0)
        elif self.fetches == "conditional":
            found["changed_cost"] = refresh_cost * np.where(some, 9.0 * rng.random(n), 0.0)
        return found

    def problem(self, plain: Instance, seed: int = 0) -> fo.Problem | None:
        """Return the cell's problem with an instance's columns, or None where it is refused, in one line.

        Lower bounds are lowered to what requests, or fetches that find changes, leave room for.
        """
        more = self.columns(seed, plain.change_rate, plain.cost)
        lower = np.minimum(plain.lower, 0.5 * more.get("request_rate", np.inf))
        sources = fo.Sources(
            plain.change_rate,
            plain.importance,
            host=plain.host,
            signalled=plain.signalled,
            min_rate=lower / (1.0 + more.get("changed_cost", 0.0) / plain.cost),
            max_rate=plain.upper,
            refresh_cost=plain.cost,
            **more,
        )
        limits = {int(h): float(plain.limits[h]) for h in set(plain.host.tolist()) - {-1}}
        try:
            return fo.Problem(sized(self.objective, len(sources)), sources, plain.bandwidth, limits)
        except fo.ObjectiveError as refusal:
            if re.fullmatch(
                r".*(Pass signalled=False|Use |Drop |Leave (success|stale_while_revalidate) out).*",
                str(refusal),
            ):
                return None
            raise


# Fetches that are not plain, and whether they are of copies that are refreshed on request.
KINDS = {"windows": True, "failing": False, "conditional": False}


@functools.cache
def cells() -> dict[str, Cell]:
    """Return every cell by its name: those of an objective and of its fetches."""
    found = {name: Cell(objective) for name, objective in objectives().items()}
    for name, cell in list(found.items()):
        kinds = (kind for kind, on_request in KINDS.items() if on_request == cell.on_request)
        found |= {f"{name}, {kind}": cell._replace(fetches=kind) for kind in kinds}
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
