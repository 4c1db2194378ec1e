"""What `freshopt plan` prints: a few lines, all details, or `summary.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from freshopt.planning.backtest import BackTest
from freshopt.planning.plan import Plan
from freshopt.report.context import Context
from freshopt.report.headline import closing, headline
from freshopt.report.page import findings
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.summary_facts import SUMMARY, Facts
from freshopt.terminal.console import columns, fitted, show, wrapped

# Findings whose tables are printed too.
TABLES = ("earlier", "held-out")


@dataclass(frozen=True, slots=True)
class Told:
    """A plan as it was written, with further words.

    Attributes
    ----------
    folder : Path
        Where it was written.
    files : sequence of str
        Their names in it.
    log : str
        What the log is called, with its crawls and sources.
    objective : str
        Its name as the command line has it.
    fetches : sequence of (str, str)
        Rows on fetches that failed.
    again : str
        How to plan again, or empty.
    """

    made: Plan
    folder: Path
    files: Sequence[str]
    log: str
    objective: str
    fetches: Sequence[tuple[str, str]] = ()
    held: BackTest | None = None
    again: str = ""


def tell_plan(told: Told, *, details: bool = False, json: bool = False, quiet: bool = False) -> None:
    """Print a plan: ten lines, all details, JSON, or nothing."""
    if json:
        click.echo((told.folder / SUMMARY).read_text(encoding="utf-8").rstrip("\n"))
    if json or quiet:
        return
    known = Context.of(Facts.of(told.folder))
    click.echo(headline(known, width=columns(), warned=True))
    if details:
        click.echo()
        found = findings(known, PlanFolder(told.folder, known), read=told.log, objective=told.objective)
        rows = (row for each in found if each.key != "warnings" for row in each.rows())  # said by now
        show([*rows, *told.fetches, _time(told.made)])
        for each in found:
            if each.key in TABLES and each.table is not None:
                notes = [wrapped(note) for note in each.facts.get("notes", ())]
                click.echo(
                    "\n" + "\n".join([wrapped(f"{each.table.caption}:"), fitted(each.table.texts()), *notes])
                )
    elif told.fetches:
        click.echo()
        show(told.fetches)
    if told.again:
        click.echo(f"\n{told.again}")
    click.echo(
        ("\n" if details or told.again or told.fetches else "")
        + closing(known, told.folder, told.files, details=details, replayed=told.held is not None)
    )


def _time(made: Plan) -> tuple[str, str]:
    """Return the row of the seconds of each step."""
    return "time", ", ".join(f"{step} {seconds:.2f} s" for step, seconds in made.seconds.items())
