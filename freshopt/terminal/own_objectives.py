"""Objectives of one's own on the command line: MODULE:CLASS(ARGUMENTS).

The module is imported, from the current folder too, as by ``python -m``; of what it has only an `Objective`
is called. Arguments are literals: nothing in them is evaluated.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from typing import Any, NamedTuple

from freshopt.errors import ObjectiveError, SourceDataError, guarded, list_offenders, shown
from freshopt.modelling.objective import Objective, Refresh, require_discipline
from freshopt.naming import OBJECTIVES, PLANNED, Parameters, objective_named, objective_of
from freshopt.terminal.commands import OWN_FILES

WRITTEN = "Write MODULE:CLASS or MODULE:CLASS(ARGUMENTS), such as mymodule:Mine(2.0)."
# Longer ones are no settings, and a parser's stack is finite.
LONGEST = 10_000


class OwnObjective(NamedTuple):
    """An objective as text: where it is, and its arguments."""

    module: str
    name: str
    arguments: tuple[Any, ...] | None
    settings: dict[str, Any]

    @classmethod
    def parsed(cls, text: str) -> OwnObjective:
        """Return what a text names.

        Examples
        --------
        >>> OwnObjective.parsed("mymodule:Mine(2.0, limit=[1, None])")
        OwnObjective(module='mymodule', name='Mine', arguments=(2.0,), settings={'limit': [1, None]})
        """
        module, _, call = text.partition(":")
        # The name of its file means it, too.
        module = module.removesuffix(".py")
        node = guarded(lambda: ast.parse(call.strip(), mode="eval").body) if len(text) <= LONGEST else None
        own = node.func if isinstance(node, ast.Call) else node
        known = all(word.isidentifier() for word in module.split("."))
        if not known or not isinstance(own, ast.Name):
            raise SourceDataError(f"--objective: {shown(text)} names no class in a module. {WRITTEN}")
        if not isinstance(node, ast.Call):
            return cls(module, own.id, None, {})
        settings = {str(each.arg): _literal(each.value) for each in node.keywords if each.arg is not None}
        if len(settings) < len(node.keywords):
            raise SourceDataError(f"--objective: {shown(text)} names no class in a module. {WRITTEN}")
        return cls(module, own.id, tuple(map(_literal, node.args)), settings)

    def made(self, refresh: str | None) -> Objective:
        """Return the objective, under the discipline that is asked for."""
        found = imported(self.module, self.name, "--objective", WRITTEN)
        where = f"--objective: {self.module}:{self.name}"
        if isinstance(found, type) and issubclass(found, Objective):
            kind = found
            made = guarded(lambda: kind(*(self.arguments or ()), **self.settings))
            if isinstance(made, BaseException):
                raise ObjectiveError(
                    f"{where} cannot be made of these arguments: {type(made).__name__}: {made}. Correct them."
                )
            found = made
        elif isinstance(found, Objective) and self.arguments is not None:
            raise ObjectiveError(f"{where} is an instance, which takes no arguments. Leave these out.")
        if not isinstance(found, Objective):
            raise ObjectiveError(f"{where} is {shown(found)}, no freshopt.Objective. Name a subclass of it.")
        require_discipline(found)
        if refresh is not None and found.refresh is not Refresh(refresh.replace("-", " ")):
            raise ObjectiveError(
                f"{where} is of {found.refresh.value} refreshes, not of {refresh} ones. Leave --refresh out, "
                "or declare another refresh."
            )
        return found


def is_own(text: str) -> bool:
    """Return whether a text names an objective of one's own, MODULE:CLASS."""
    name, colon, _ = text.partition(":")
    return bool(colon) and name not in OBJECTIVES


def made_objective(text: str, refresh: str | None, given: Parameters) -> Objective:
    """Return the named objective, or one's own, under a discipline."""
    if is_own(text):
        return OwnObjective.parsed(text).made(refresh)
    return objective_of(text, refresh, given)


def live_objective_of(text: str) -> Objective:
    """Return the objective of a planner that a text names."""
    return (
        OwnObjective.parsed(text).made(None) if is_own(text) else objective_named(text, "day", None, PLANNED)
    )


def imported(module_name: str, name: str, option: str, written: str) -> object:
    """Import a module, perhaps of this folder; return what a name is."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = guarded(lambda: importlib.import_module(module_name))
    if (
        isinstance(module, ModuleNotFoundError)
        and module.name
        and f"{module_name}.".startswith(f"{module.name}.")
    ):
        raise SourceDataError(
            f"{option}: there is no module {module_name!r} in {folder} or among the installed ones. {written}"
        )
    if isinstance(module, BaseException):
        kind = type(module).__name__
        raise SourceDataError(f"{option}: importing {module_name!r} fails with {kind}: {module}. Mend it.")
    OWN_FILES[str(getattr(module, "__file__", ""))] = option
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        has = f" It has {list_offenders(own)}." if own else ""
        raise SourceDataError(f"{option}: module {module_name!r} has no {name!r}. {written}{has}")
    found: object = getattr(module, name)
    return found


def _literal(node: ast.expr) -> Any:  # noqa: ANN401 - whatever a literal is
    found = guarded(lambda: ast.literal_eval(node))
    if isinstance(found, BaseException):
        raise SourceDataError(
            f"--objective: the argument {shown(ast.unparse(node))} is no literal. Write numbers, text in "
            "quotes, True, False, None, or lists of them."
        )
    return found
