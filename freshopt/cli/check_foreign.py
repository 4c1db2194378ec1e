"""`freshopt check --solver`: validation of a user's solver."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click
import numpy as np

from freshopt.cli.bounded_runs import BoundedRuns, NoAnswerError
from freshopt.cli.check_problems import Task
from freshopt.errors import (
    FreshoptError,
    SourceDataError,
    guarded,
)
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.naming import NAMES, Parameters
from freshopt.terminal.console import heartbeat, progress
from freshopt.terminal.own_objectives import imported
from freshopt.testing.foreign_runs import Outcome, Verdict, as_function, attempt
from freshopt.testing.problem_families import MOST, SCALES, SIZES
from freshopt.testing.recipe import Recipe
from freshopt.testing.validation import validate, validate_on

WRITTEN = "Write MODULE:FUNCTION, such as mysolver:solve."


def made(tasks: Sequence[Task], *, own: bool) -> list[Objective] | list[tuple[str, Problem]]:
    """Return the user's own problems, or each objective's families once."""
    if not own:
        once = {(task.objective, task.refresh): task for task in tasks}
        return [task._replace(parameters=_alike(task.parameters)).goal() for task in once.values()]
    found = [(f"{task.objective}, {task.refresh}", task.problem()) for task in tasks]
    problems = [(label, made) for label, made in found if isinstance(made, Problem)]
    if found and not problems:
        raise next(made for _, made in found if isinstance(made, FreshoptError))
    return problems


def _alike(given: Parameters) -> Parameters:
    """Return parameters with one number for all sources.

    The sources of a family are others than those of the case from which the parameters come.
    """
    middle = {
        name: None if (value := getattr(given, name)) is None else float(f"{np.median(value):.1g}")
        for name in NAMES
    }
    return Parameters(**middle)


def sizes_of(given: str | None) -> tuple[int, ...]:
    """Return the numbers of sources of --n, each once.

    Examples
    --------
    >>> sizes_of("30, 5,30"), sizes_of(None)
    ((30, 5), (1, 2, 10, 30, 300))
    """
    if given is None:
        return SIZES
    words = [word.strip() for word in given.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= len(str(MOST)) and 1 <= int(word) <= MOST):
            raise click.BadParameter(
                f"{word!r} is not a whole number from 1 to {MOST}. Pass numbers, such as 1,30,300.",
                param_hint="'--n'",
            )
    return tuple(dict.fromkeys(map(int, words)))


def check_solver(
    path: str,
    work: list[Objective] | list[tuple[str, Problem]],
    seed: int,
    sizes: tuple[int, ...],
    tolerance: float,
    time_limit: float,
) -> bool:
    """Validate a solver, print the report, return whether it passed.

    - `path`: ``module:function``; a class or a solver instance serves too.
    - `work`: Objectives, whose families are run, or named problems.
    - `sizes`: Numbers of sources of the families.
    - `time_limit`: Seconds that the solver may take on one problem.
    """
    solver = load(path)
    objectives = [each for each in work if isinstance(each, Objective)]
    problems = [each for each in work if isinstance(each, tuple)]
    total = len(problems) + len(objectives) * len(SCALES) * len(sizes)
    with (
        BoundedRuns(partial(_attempts, path), time_limit) as runs,
        progress(total) if sys.stderr.isatty() else heartbeat() as announce,
    ):
        own: dict[str, Any] = {"tolerance": tolerance, "announce": announce, "run": partial(_run, runs)}
        report = (
            validate_on(solver, problems, **own)
            if problems
            else validate(solver, objectives, n=sizes, seed=seed, **own)
        )
    click.echo(repr(report))
    return report.passed


def _attempts(path: str) -> Callable[[Recipe, float], Outcome]:
    """Return the function that runs the solver on one problem."""
    return partial(attempt, as_function(load(path)))


def _run(runs: BoundedRuns, recipe: Recipe, tolerance: float) -> Outcome:
    """Return the outcome of one run, bounded in time."""
    try:
        outcome: Outcome = runs.run(recipe, tolerance)
    except NoAnswerError as error:
        return Outcome(Verdict.NO_ANSWER, f"{error}.", None, runs.limit)
    return outcome


def load(path: str) -> object:
    """Import a solver by its path.

    Modules of the current folder are found too, as by ``python -m``.

    Examples
    --------
    >>> load("freshopt.solvers:WaterFilling")
    <class 'freshopt.solvers.water_filling.WaterFilling'>
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise SourceDataError(f"--solver: {path!r} names no function in a module. {WRITTEN}")
    solver = imported(module_name, name, "--solver", WRITTEN)
    made = guarded(solver) if isinstance(solver, type) else solver
    if isinstance(made, BaseException):
        raise SourceDataError(
            f"--solver: {path} cannot be called without arguments: {type(made).__name__}: {made}. "
            "Name a function, or a class without required settings."
        )
    if not callable(made) and not hasattr(made, "solve"):
        raise SourceDataError(f"--solver: {path} is {made!r}, not a function. {WRITTEN}")
    return solver
