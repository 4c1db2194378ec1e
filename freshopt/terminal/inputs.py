"""Inputs besides tables, validated: quantities, moments, a crawl log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import click

from freshopt.datasets.change_histories import load_example
from freshopt.errors import SourceDataError
from freshopt.logs.client_copies import ALL, Client
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog, derived_log
from freshopt.logs.read_log import read_log
from freshopt.terminal.objective_options import OBJECTIVES, Parameters
from freshopt.units import duration_of


def moment_of(option: str, text: str | None) -> datetime | None:
    """Return an option's ISO 8601 moment, with or without offset."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise SourceDataError(
            f"{option}: {text!r} is no moment. Write it such as 2026-01-31 or 2026-01-31T06:00:00Z (UTC)."
        ) from None


def log_of(
    path: Path | None,
    example: str | None,
    time_unit: str,
    columns: Mapping[str, str] | None = None,
    client: Client = ALL,
    *,
    answers_are_changes: bool = False,
) -> CrawlLog:
    """Return the crawl log of LOG or --example, in `time_unit`."""
    if (path is None) == (example is None):
        raise click.UsageError("Give either LOG or --example NAME, and not both.")
    if example is None:
        return read_log(
            path or "",
            time_unit,
            columns=columns,
            client=client.address,
            agent=client.agent,
            answers_are_changes=answers_are_changes,
        )
    log = load_example(example)
    if log.time_unit == time_unit:
        return log
    own = {"source": log.source_index, "time": log.clock.moments(log.time), "changed": log.changed}
    if log.last_modified is not None:
        own["last_modified"] = log.clock.moments(log.last_modified)
    return derived_log(own, log.sources_, Clock(time_unit))


def parameters_of(
    columns: Parameters, objective: str | None, exponent: float | None, deadline: str | None, time_unit: str
) -> Parameters:
    """Return objective parameters from table columns and options.

    An option gives one number for all sources.

    Without an objective the options are for whichever of all objectives knows them.
    """
    given = {
        "exponent": exponent,
        "deadline": None if deadline is None else duration_of("--deadline", deadline, time_unit),
    }
    for name, value in given.items():
        if value is None:
            continue
        if objective is not None and name not in OBJECTIVES[objective].uses:
            owners = ", ".join(key for key, named in OBJECTIVES.items() if name in named.uses)
            raise SourceDataError(f"--{name} is for --objective {owners}, not for {objective}. Leave it out.")
        if getattr(columns, name) is not None:
            raise SourceDataError(
                f"--{name} and the column '{name}' of the sources both give it. Leave one of them out."
            )
        columns = replace(columns, **{name: value})
    return columns


def require_other(read: Path | None, out: Path) -> None:
    """Raise if the output would overwrite the input."""
    if read is not None and read.exists() and out.exists() and read.samefile(out):
        raise SourceDataError(
            f"--out {out} is the file that is read, and it would be lost. Choose another name."
        )
