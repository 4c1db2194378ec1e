"""`freshopt plan --engine dask`: a folder of Parquet logs in, a folder of Parquet tables out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from freshopt.cli import tables
from freshopt.cli.console import count, number, progress, show
from freshopt.cli.estimation import Estimation
from freshopt.cli.origins import Origin
from freshopt.cli.partitioned import connected
from freshopt.distributed import plan as plan_partitions
from freshopt.errors import SourceDataError
from freshopt.plan_folder import TABLES
from freshopt.planning import Wishes

SPENT = 1e-9  # of the bandwidth: what is missing below that is rounding
PASSES = 6  # of most plans, for the progress bar
_WHOLE_LOG = ("prior", "half_life")  # settings of estimators that depend on all of the log


def plan_in_partitions(
    origin: Origin,
    wishes: Wishes,
    out: Path,
    importance: Path | None,
    hosts: Path | None,
    estimation: Estimation,
    time_unit: str,
    scheduler: str | None,
    *,
    csv: bool,
    overwrite: bool,
) -> None:
    """Plan, write and print; the arguments are the command's, and the wishes without importances and hosts.

    Parameters
    ----------
    scheduler : str or None
        Address of a Dask scheduler; None for threads of this process.
    """
    others: dict[str, object] = {
        "--example": origin.example,
        "--git": origin.git,
        "--history": origin.history,
    }
    others |= {"--nutch": origin.nutch, "--changedetection": origin.changedetection}
    others |= {"--dbt": origin.dbt, "--bing": origin.bing, "--csv": csv or None}
    for name, given in others.items():
        if given is not None:
            raise click.UsageError(
                f"--engine dask reads and writes folders of Parquet files. Leave {name} out."
            )
    if origin.log is None:
        raise click.UsageError("--engine dask needs LOG, a folder of Parquet files. Name it.")
    for name in _WHOLE_LOG:
        if name in estimation.settings:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} depends on the whole log, and --engine dask reads a file at a time. Leave it out."
            )
    for table in (importance, hosts):
        if table is not None and not table.exists():
            raise SourceDataError(f"there is no file or folder {table}. Check the path.")
    own = partial(with_tables, _absolute(importance), _absolute(hosts))
    with connected(scheduler), progress(PASSES) as report:
        made = plan_partitions(
            origin.log, wishes, out, adapt=own, overwrite=overwrite, time_unit=time_unit, report=report
        )
    show(_rows(made.facts, str(origin.log)))
    folders = "".join(f"{table}/, " for table in TABLES)
    click.echo(f"\nwrote {folders}summary.json to {out}; each part of the schedule is sorted by time")


def _rows(facts: dict[str, Any], log: str) -> list[tuple[str, str]]:
    """Return what a newcomer should read of a plan, from its summary."""
    counts, unit = facts["counts"], facts["time_unit"]
    read = (count(counts["crawls"], "crawl"), count(counts["sources"], "source"))
    flags = "".join(f", {times:,} {flag}" for flag, times in counts["flags"].items() if flag != "ok")
    others = "".join(f"; {kind} rates {number(value)}" for kind, value in facts["baselines"].items())
    sense = "higher is better" if facts["sense"] == "maximise" else "lower is better"
    return [
        ("log", f"{log}: {' of '.join(read)} in {count(counts['partitions'], 'file')}"),
        ("change rates", f"total {number(facts['change_rate']['sum'])} per {unit}{flags}"),
        ("objective", f"{facts['objective']} ({sense}), {facts['discipline']} refreshes"),
        (
            "bandwidth",
            f"{number(facts['bandwidth_used'])} of {number(facts['bandwidth'])} per {unit} used; "
            f"{worth_of_more(facts)}",
        ),
        ("value", f"{number(facts['value'])} in the long run{others}"),
        (
            "schedule",
            f"{count(counts['refreshes'], 'refresh')} in {count(facts['horizon'], unit)}, {facts['method']}, "
            f"value over that time {number(facts['schedule_value'])}",
        ),
        ("proof", f"{facts['status']}, gap {number(facts['gap'])}"),
        ("time", ", ".join(f"{step} {seconds:.2f} s" for step, seconds in facts["seconds"].items())),
    ]


def worth_of_more(facts: dict[str, Any]) -> str:
    """Return what more bandwidth would bring, or why some of it is left."""
    if facts["price"] == 0.0:
        if facts["bandwidth_used"] >= (1.0 - SPENT) * facts["bandwidth"]:
            return "more would be worth nothing"
        return "the rest is of no use: maximum rates or host limits are reached, or nothing is left to gain"
    return f"one more refresh per {facts['time_unit']} would be worth up to {number(facts['price'])}"


def with_tables(importance: Path | None, hosts: Path | None, wishes: Wishes, file: Path) -> Wishes:
    """Return a file's wishes: with its importances and hosts, from one table or from one of its own name."""
    return replace(
        wishes,
        importance=tables.importance_of(_for_file(importance, file)),
        hosts=tables.hosts_of(_for_file(hosts, file)),
    )


def _for_file(table: Path | None, file: Path) -> Path | None:
    return table / file.name if table is not None and table.is_dir() else table


def _absolute(path: Path | None) -> Path | None:
    """Return a path that means the same on every worker of a shared file system."""
    return None if path is None else path.resolve()
