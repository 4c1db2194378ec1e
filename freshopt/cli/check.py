"""`freshopt check`: cross-check solvers on given or built-in problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import click
import numpy as np

from freshopt.cli import check_foreign
from freshopt.cli.bounded_runs import LIMIT, LONGEST, BoundedRuns, bounded, solving
from freshopt.cli.check_problems import LEFT_OUT, Case, Task, built_in, takes_long
from freshopt.cli.check_summary import Checked, Digest, Skipped, page
from freshopt.crosscheck import cross_check
from freshopt.errors import FreshoptError, SourceDataError, suggestion
from freshopt.formatting import fitted
from freshopt.logs.atomic_output import complete_file
from freshopt.modelling.problem import Problem
from freshopt.naming import OBJECTIVES, Parameters
from freshopt.terminal import inputs, options, tables
from freshopt.terminal.commands import command
from freshopt.terminal.console import count, heartbeat
from freshopt.terminal.constraint_options import refuse_constraints
from freshopt.terminal.own_objectives import OwnObjective, is_own
from freshopt.terminal.wish_options import own_option, table_options, wished
from freshopt.testing.problem_families import SIZES
from freshopt.units import rate_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What is solved, by which solvers, and how answers are judged."""

    refresh: Literal["periodic", "poisson"] | None = own_option(
        help="Refresh discipline to check (default: every one that the objective has)."
    )
    bandwidth: str | None = own_option(
        metavar="RATE", help="Total refresh rate, such as 200/day (default: half of the total change rate)."
    )
    host_limits: Path | None = wished()
    solvers: str | None = own_option(
        metavar="NAMES",
        help="Solvers, comma-separated, such as water-filling,clarabel (default: all).",
    )
    tolerance: float = own_option(1e-6, help="Relative duality gap up to which an answer counts as optimal.")
    time_limit: float = own_option(
        LIMIT,
        metavar="SECONDS",
        help="Seconds that an iterative solver, or one of your own, may take on one problem.",
    )
    solver: str | None = own_option(
        metavar="MODULE:FUNCTION",
        help="Solver of your own, a function from a problem to rates; MODULE may lie in the current folder.",
    )
    seed: int = own_option(
        0,
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Random seed of the problem families for --solver.",
    )
    sizes: str | None = own_option(
        names=("--n",),
        metavar="NUMBERS",
        help="Numbers of sources, comma-separated, of the problem families for --solver (default: "
        f"{','.join(map(str, SIZES))}).",
    )
    details: bool = own_option(False, help="Print a table per problem for the built-in instances too.")
    html: Path | None = own_option(
        type=options.Output("Name a file"), metavar="FILE", help="HTML page to write, with all results."
    )


@command()
@click.argument("sources", required=False, type=click.Path(path_type=Path))
@inputs.goal_options(OBJECTIVES, default=None, own=True)
@table_options("asked", CheckOptions)
@options.table_unit_option
@options.overwrite_option
@refuse_constraints("is for solve, plan and frontier; check compares solvers under bandwidth and host limits")
@click.pass_context
def check(
    context: click.Context,
    sources: Path | None,
    goal: inputs.Goal,
    asked: CheckOptions,
    time_unit: str | None,
    overwrite: bool,
) -> None:
    """Solve with several solvers and compare their certificates.

    SOURCES is a table with columns source, change_rate, importance, ...; without it, small built-in instances
    are solved, in a minute or so. Every answer is judged by its own certificate, and no answer may be better
    than the dual bound of another's.

    An iterative solver is ended after --time-limit seconds, and what takes long is named every 15 seconds.

    The exit code is 1 if the optimum of a problem is proved by no solver, or if a solver asked for by name
    with --solvers does not prove every problem that it applies to. With --solver a solver of your own is
    run instead, on families of problems that solvers were seen to fail on or on SOURCES, and the exit code is
    1 if it falls short anywhere; the smallest problem for each kind of failure is printed.
    """
    if not 0.0 < asked.tolerance < math.inf:
        raise SourceDataError(f"--tolerance: {asked.tolerance} is not > 0. Pass a relative gap such as 1e-6.")
    if not 0.0 < asked.time_limit <= LONGEST:
        raise SourceDataError(
            f"--time-limit: {asked.time_limit} is not within 0 and {LONGEST:g}. Pass seconds, such as 60."
        )
    if asked.host_limits is not None and sources is None:
        raise click.UsageError(
            "--host-limits is for SOURCES; the built-in instances have limits of their own."
        )
    if asked.sizes is not None and (asked.solver is None or sources is not None):
        raise click.UsageError(
            "--n is for the problem families of --solver, which take the place of SOURCES."
        )
    named = _names(asked.solvers)
    cases = (
        [_own(sources, asked.bandwidth, asked.host_limits, time_unit, str(goal.objective))]
        if sources
        else _built_in(asked.bandwidth, time_unit)
    )
    given = [(case, _parameters(case, sources is None, goal)) for case in cases]
    tasks = [
        Task(name, discipline, case, parameters)
        for name in ([goal.objective] if goal.objective else OBJECTIVES)
        for discipline in _disciplines(name, asked.refresh, alone=goal.objective is not None)
        for case, parameters in given
    ]
    if asked.solver is not None:
        if named or asked.details or asked.html is not None:
            raise click.UsageError("--solver runs alone: leave --solvers, --details and --html out.")
        work = check_foreign.made(tasks, own=sources is not None)
        passed = check_foreign.check_solver(
            asked.solver,
            work,
            asked.seed,
            check_foreign.sizes_of(asked.sizes),
            asked.tolerance,
            asked.time_limit,
        )
        context.exit(0 if passed else 1)
    digest = Digest(named)
    with complete_file(asked.html, overwrite) if asked.html else nullcontext() as staging:
        about = _about(sources, cases, named, asked.tolerance)
        for checked in _run(tasks, digest, asked.tolerance, asked.time_limit, built=sources is None):
            if len(digest.checked) == 1:  # not before it is known that there is anything to check
                click.echo("\n".join([*map(fitted, about), ""]))
            if sources or asked.details:
                click.echo(f"{fitted(checked.label)}\n{_coloured(fitted(repr(checked.agreement)))}\n")
            else:
                click.echo(_row(checked))
        _conclude(digest, idle=sources is None)
        if staging is not None:
            staging.write_text(page(digest, about=about), encoding="utf-8", newline="\n")
    if asked.html is not None:
        click.echo(f"wrote {asked.html}")
    context.exit(0 if digest.passed() else 1)


def _run(
    tasks: list[Task], digest: Digest, tolerance: float, time_limit: float, *, built: bool
) -> Iterator[Checked]:
    """Yield each checked problem; raise the first error if none exists."""
    errors: list[FreshoptError] = []
    with BoundedRuns(solving, time_limit) as runs, heartbeat() as announce:
        for k, task in enumerate(tasks, 1):
            name, refresh, case, _ = task
            chosen = digest.named or [solver for solver in options.SOLVERS if solver != "auto"]
            if built and not digest.named:
                chosen = [solver for solver in chosen if not takes_long(case.name, name, solver)]
            if not chosen:
                continue
            label = f"{name} {refresh}, {case.name} ({k} of {len(tasks)})"
            announce(label)
            problem = task.problem()
            if not isinstance(problem, Problem):
                errors.append(problem)
                digest.skipped.append(Skipped(name, refresh, case.name, str(problem)))
                continue
            solvers = {solver: bounded(options.SOLVERS[solver], runs) for solver in chosen}
            agreement = cross_check(
                problem, solvers, tolerance=tolerance, announce=partial(_announced, announce, label)
            )
            digest.checked.append(Checked(name, refresh, case.name, agreement))
            yield digest.checked[-1]
    if errors and not digest.checked:
        raise errors[0]


def _announced(announce: Callable[[str], None], label: str, solver: str) -> None:
    announce(f"{solver} on {label}")


def _own(
    path: Path, bandwidth: str | None, host_limits: Path | None, time_unit: str | None, objective: str
) -> Case:
    """Return a user's sources as a case."""
    known, parameters, _ = tables.sources_of(path, time_unit, own=is_own(objective))
    unit = known.time_unit
    limit = (
        rate_of("--bandwidth", bandwidth, unit)
        if bandwidth is not None
        else 0.5 * float(np.sum(known.change_rate))
    )
    return Case(str(path), known, limit, tables.host_limits_of(host_limits, unit), parameters)


def _built_in(bandwidth: str | None, time_unit: str | None) -> list[Case]:
    """Return the built-in instances, per day, by default at their own bandwidth."""
    if time_unit not in (None, "day"):
        raise click.UsageError("--time-unit is for SOURCES; the built-in instances count in days.")
    if bandwidth is None:
        return built_in()
    limit = rate_of("--bandwidth", bandwidth, "day")
    return [case._replace(bandwidth=limit) for case in built_in()]


def _parameters(case: Case, built: bool, goal: inputs.Goal) -> Parameters:
    """Return a case's parameters, options before a built-in instance's own."""
    own = case.parameters
    if built:
        own = replace(
            own,
            exponent=own.exponent if goal.exponent is None else None,
            deadline=own.deadline if goal.deadline is None else None,
        )
    return goal.parameters(own, case.sources.time_unit)


def _disciplines(name: str, refresh: str | None, *, alone: bool) -> list[str]:
    """Return the disciplines in which to check an objective.

    An objective that is checked alone keeps a discipline that it lacks, so that the error is shown.
    """
    if is_own(name):
        return [OwnObjective.parsed(name).made(refresh).refresh.value]
    known = [each.value for each in OBJECTIVES[name].refreshes]
    if refresh is None:
        return known
    return [refresh] if alone or refresh in known else []


def _names(given: str | None) -> tuple[str, ...]:
    """Return the solver names of --solvers."""
    if given is None:
        return ()
    names = tuple(name.strip() for name in given.split(","))
    unknown = [name for name in names if name not in options.SOLVERS]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} is not one of {', '.join(options.SOLVERS)}."
            f"{suggestion(unknown[0], options.SOLVERS)}",
            param_hint="'--solvers'",
        )
    return names


def _about(sources: Path | None, cases: list[Case], named: tuple[str, ...], tolerance: float) -> list[str]:
    """Return the lines that describe the run."""
    if sources is not None:
        case = cases[0]
        many, unit = count(len(case.sources), "source"), case.sources.time_unit
        what = f"{sources}: {many}, bandwidth {case.bandwidth:g} per {unit}"
        return [
            f"{what}. An answer counts as optimal if its certified relative gap is at most {tolerance:g}."
        ]
    shown = ", ".join(f"{case.name} ({len(case.sources)})" for case in cases)
    lines = [
        f"Built-in instances (and their sources): {shown}. They are seeded: every run solves the same.",
        f"An answer counts as optimal if its certified relative gap is at most {tolerance:g}.",
    ]
    if not named:
        lines.append(
            f"Left out because they take long, but not if named in --solvers: {'; '.join(LEFT_OUT)}."
        )
    return lines


def _row(checked: Checked) -> str:
    """Return a problem's line in columns of fixed width."""
    objective, refresh, case, n, text = checked.cells()
    width = max(map(len, OBJECTIVES))
    line = f"{objective:<{width}}  {refresh:<8}  {case:<13}  {n:>4}  "
    good = not checked.agreement.short()
    colour = "green" if good else "yellow" if checked.agreement.proved else "red"
    shown = fitted(line + text)  # wider than the columns before, so that these stay on the first line
    return line + click.style(shown[len(line) :], fg=colour)


def _coloured(table: str) -> str:
    """Return a table with coloured verdicts."""
    for words, colour in (("proved optimal", "green"), ("NOT optimal", "red"), ("NO ANSWER", "red")):
        table = table.replace(words, click.style(words, fg=colour))
    return table


def _conclude(digest: Digest, *, idle: bool) -> None:
    """Print the summary of all problems, with `idle` solvers if asked."""
    if len(digest.checked) > 1 and digest.summary():
        click.echo("\n" + "\n".join(digest.summary()))
    useless = [name for name in digest.idle() if name not in digest.named]
    if idle and useless:
        click.echo("\n" + fitted(f"not applicable to any of these problems: {', '.join(useless)}"))
    if digest.skipped:
        click.echo(f"\nskipped, because there is no such problem ({count(len(digest.skipped), 'case')}):")
        for line in digest.skips():
            click.echo(fitted(f"  {line}"))
    click.echo("\n" + fitted(digest.outcome()))
