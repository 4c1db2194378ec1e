"""Inputs besides tables, validated: quantities, moments, a crawl log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from freshopt.datasets.change_histories import load_example
from freshopt.errors import SourceDataError
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog, derived_log
from freshopt.modelling.objective import Objective
from freshopt.naming import OBJECTIVES, Parameters
from freshopt.terminal import options
from freshopt.terminal.commands import not_for
from freshopt.terminal.own_objectives import is_own, made_objective
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


def example_log(name: str, time_unit: str) -> CrawlLog:
    """Return the crawl log of --example, in `time_unit`."""
    log = load_example(name)
    if log.time_unit == time_unit:
        return log
    own = {"source": log.source_index, "time": log.clock.moments(log.time), "changed": log.changed}
    if log.last_modified is not None:
        own["last_modified"] = log.clock.moments(log.last_modified)
    return derived_log(own, log.names, Clock(time_unit))


_NONE = Parameters()


@dataclass(frozen=True, slots=True)
class Goal:
    """Objective as options name it, with its parameters for all sources.

    Without a name the parameters are for whichever of all objectives knows them.
    """

    objective: str | None
    exponent: float | None
    deadline: str | None

    def parameters(self, columns: Parameters, time_unit: str) -> Parameters:
        """Return the parameters of table columns and options."""
        if is_own(str(self.objective)) and (self.exponent is not None or self.deadline is not None):
            raise SourceDataError(
                f"--exponent and --deadline are not for --objective {self.objective}. Leave them out."
            )
        deadline = None if self.deadline is None else duration_of("--deadline", self.deadline, time_unit)
        given = {"exponent": self.exponent, "deadline": deadline}
        for name, value in given.items():
            if value is None:
                continue
            if self.objective is not None and name not in OBJECTIVES[self.objective].uses:
                owners = [key for key, named in OBJECTIVES.items() if name in named.uses]
                raise SourceDataError(not_for(f"--{name}", owners, self.objective, "--objective"))
            if getattr(columns, name) is not None:
                raise SourceDataError(
                    f"--{name} and the column '{name}' of the sources both give it. Leave one of them out."
                )
            columns = replace(columns, **{name: value})
        return columns

    def made(self, refresh: str | None, time_unit: str, columns: Parameters = _NONE) -> Objective:
        """Return the objective, with parameters that columns of a table give."""
        return made_objective(str(self.objective), refresh, self.parameters(columns, time_unit))


def goal_options(
    names: Iterable[str], *, default: str | None = "harmonic", own: bool = False
) -> options.Decorator:
    """Return the options of an objective and its parameters, as `goal`."""
    objective = options.objective_option(names, default=default, own=own)
    return options.bundled("goal", (objective, options.exponent_option, options.deadline_option), Goal)


def require_other(out: Path, *inputs: Path | None) -> None:
    """Raise if the output would overwrite an input."""
    if any(read is not None and read.exists() and out.exists() and read.samefile(out) for read in inputs):
        raise SourceDataError(
            f"--out {out} is the file that is read, and it would be lost. Choose another name."
        )
