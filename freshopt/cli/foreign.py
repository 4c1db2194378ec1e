"""``freshopt check --solver MODULE:FUNCTION``: someone else's solver through the families of problems."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence

import click

from freshopt.cli.console import progress
from freshopt.cli.options import Decorator
from freshopt.errors import SourceDataError, list_offenders
from freshopt.model import Problem
from freshopt.objective import Objective
from freshopt.testing.families import SCALES
from freshopt.testing.foreign import guarded
from freshopt.testing.report import Report
from freshopt.testing.validation import validate, validate_on

WRITTEN = "Write MODULE:FUNCTION, such as mysolver:solve."

solver_option: Decorator = click.option(
    "--solver",
    metavar="MODULE:FUNCTION",
    help="A solver of your own, a function from a problem to rates; MODULE may lie in the current folder.",
)
seed_option: Decorator = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the families of problems for --solver.",
)


def check_solver(
    path: str,
    objectives: Sequence[Objective],
    given: Iterable[tuple[str, Problem]],
    seed: int,
    tolerance: float,
) -> bool:
    """Run a solver through problems, print the report, and tell whether it fell short nowhere.

    Parameters
    ----------
    path : str
        ``module:function``; a class or a solver instance serves too.
    objectives : sequence of Objective
        Whose families are run if there are no problems given.
    given : iterable of (str, Problem)
        A user's own problems.
    seed : int
    tolerance : float

    Raises
    ------
    SourceDataError
        If there is no such module or function, or importing it fails.
    """
    solver, problems = load(path), list(given)
    with progress(len(problems) or len(objectives) * len(SCALES)) as announce:
        report: Report
        if problems:
            report = validate_on(solver, problems, tolerance=tolerance, announce=announce)
        else:
            report = validate(solver, objectives, seed=seed, tolerance=tolerance, announce=announce)
    click.echo(repr(report))
    return report.passed


def load(path: str) -> object:
    """Import a solver by its path, from the current folder too, as ``python -m`` does.

    Examples
    --------
    >>> load("freshopt.solvers:WaterFilling")
    <class 'freshopt.solvers.water_filling.WaterFilling'>
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise SourceDataError(f"--solver: {path!r} names no function in a module. {WRITTEN}")
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
            f"--solver: there is no module {module_name!r} in {folder} or among the installed ones. {WRITTEN}"
        )
    if isinstance(module, BaseException):
        kind = type(module).__name__
        raise SourceDataError(f"--solver: importing {module_name!r} fails with {kind}: {module}. Mend it.")
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        has = f" It has {list_offenders(own)}." if own else ""
        raise SourceDataError(f"--solver: module {module_name!r} has no {name!r}. {WRITTEN}{has}")
    solver = getattr(module, name)
    made = guarded(solver) if isinstance(solver, type) else solver
    if isinstance(made, BaseException):
        raise SourceDataError(
            f"--solver: {path} cannot be called without arguments: {type(made).__name__}: {made}. "
            "Name a function, or a class without required settings."
        )
    if not callable(made) and not hasattr(made, "solve"):
        raise SourceDataError(f"--solver: {path} is {made!r}, not a function. {WRITTEN}")
    return solver
