"""`LiveOptions`: settings of `freshopt run` and `freshopt serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from freshopt.live.settings import SETTINGS
from freshopt.naming import OBJECTIVES, PLANNED
from freshopt.planning.request import Clock
from freshopt.terminal.options import ObjectiveName
from freshopt.terminal.own_objectives import live_objective_of
from freshopt.terminal.tables import host_limits_with_units, own_columns_in
from freshopt.terminal.wish_options import (
    changed_cost_of,
    given_options,
    option_of,
    own_option,
    refuse,
    wished,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """Settings of a live planner; others stay as they were."""

    bandwidth: str | None = wished(wishes=SETTINGS)
    host_limits: Path | None = wished(wishes=SETTINGS)
    host_gap: str | None = wished(wishes=SETTINGS)
    hours: str | None = wished(wishes=SETTINGS)
    promise: tuple[str, ...] = wished((), SETTINGS, multiple=True)
    no_promise: bool = own_option(False, help="End the promises that are kept.")
    changed_cost: float | None = wished(wishes=SETTINGS, default=None)
    burst: str | None = wished(wishes=SETTINGS)
    source_columns: Path | None = own_option(
        metavar="FILE",
        help="Table with source and the columns that your own objective reads, or changed_cost; for new "
        "sources too. Kept.",
    )
    features: Path | None = own_option(
        metavar="FILE",
        help="Table with a row a source, new ones too, and columns that may tell its change rate; or url.",
    )
    objective: str | None = own_option(
        type=ObjectiveName([name for name in PLANNED if not OBJECTIVES[name].command.needs], own=True),
        help="What to optimise, as of freshopt plan. By default harmonic; later it changes it. One of your "
        "own, MODULE:CLASS(2.0), is named at each start.",
    )

    def settings(self, heard: str | None = None) -> dict[str, Any]:
        """Return the settings of `Planner`; `heard` is an option of signals."""
        # Columns of one's own are kept, whatever the objective of this start.
        others = {"own objective": ""} | ({} if heard is None else {"signals": heard})
        refuse({**given_options(click.get_current_context()), **others})
        told = {name: getattr(self, name) for name in SETTINGS if hasattr(self, name)}
        found = {name: value for name, value in told.items() if value is not None and value != ()}
        if self.no_promise:
            if self.promise:
                raise click.UsageError("--no-promise stands in place of --promise. Leave one of them out.")
            found["promise"] = ""
        if self.host_limits is not None:
            found["host_limits"] = host_limits_with_units(self.host_limits, "day")
        for name, value in found.items():
            SETTINGS[name].read(option_of(name), value, Clock("day"))
        if self.source_columns is not None:
            changed_cost_of(self.changed_cost, self.source_columns)  # refused if told twice
            found["source_columns"] = own_columns_in(self.source_columns, also=("changed_cost",))
        if self.features is not None:
            found["features"] = self.features
        if self.objective is not None:
            found["objective"] = live_objective_of(self.objective)
        return found
