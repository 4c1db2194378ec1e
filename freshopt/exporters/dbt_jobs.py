"""dbt: jobs that refresh models on a ladder of periods, parents first.

Each period of the ladder is a multiple of the one before, and its moments are among that one's. A moment has
one line of the crontab, whose selector has all models with the longest period that it belongs to, or a
shorter one: so each model is built right after the parents that are due with it, in dbt's
own order, and no two jobs begin at once. Two files are written: ``selectors.yml`` [1]_, for the project's
folder, and ``crontab``.

Rates from `freshopt.pipelines.AfterParents` with `DbtJobs.periods` are on the ladder already; other intervals
are rounded up to it.

References
----------
.. [1] https://docs.getdbt.com/reference/node-selection/yaml-selectors
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.exporters.tool_format import Exported
from freshopt.exporters.whole_intervals import (
    NEVER,
    IntervalFormat,
    Limits,
    exported,
    labels,
    whole_intervals,
)
from freshopt.io.dbt_artifacts import read_manifest
from freshopt.scheduling.rate_table import RateTable
from freshopt.units import SECONDS, check_time_unit


class Step(NamedTuple):
    """A period of the ladder, and its own moments.

    Those that belong to no longer period: minutes of every hour, or whole hours of every day, or midnights of
    days of the week.
    """

    name: str
    seconds: int
    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    days: tuple[int, ...] = ()


LADDER = (
    Step("5min", 300, minutes=(5, 10, 20, 25, 35, 40, 50, 55)),
    Step("15min", 900, minutes=(15, 45)),
    Step("30min", 1800, minutes=(30,)),
    Step("1h", 3600, hours=tuple(range(1, 24, 2))),
    Step("2h", 7200, hours=tuple(range(2, 24, 4))),
    Step("4h", 14_400, hours=(4, 8, 16, 20)),
    Step("12h", 43_200, hours=(12,)),
    Step("1d", 86_400, days=(0, 2, 3, 4, 5, 6)),
    Step("7d", 604_800, days=(1,)),
)
_LIMITS = Limits(
    "a dbt job",
    step=1,
    longest=LADDER[-1].seconds,
    shortest=LADDER[0].seconds,
    remedy="Raise the bandwidth, or round the rates by AfterParents with DbtJobs.periods.",
)
FILES = ("selectors.yml", "crontab")


@dataclass(frozen=True, slots=True)
class DbtJobs(IntervalFormat):
    """A folder with selectors of models and a crontab that builds them.

    Parameters
    ----------
    manifest : path
        dbt's ``manifest.json`` of the models, which are called by their ``unique_id``.

    Examples
    --------
    >>> [round(period, 4) for period in DbtJobs.periods("hour")]
    [0.0833, 0.25, 0.5, 1.0, 2.0, 4.0, 12.0, 24.0, 168.0]
    """

    manifest: str | os.PathLike[str]
    files: ClassVar[tuple[str, ...]] = FILES

    @staticmethod
    def periods(time_unit: str = "day") -> tuple[float, ...]:
        """Return the ladder's periods, in a time unit."""
        check_time_unit(time_unit)
        return tuple(step.seconds / SECONDS[time_unit] for step in LADDER)

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write into a folder; see `ToolFormat.write`.

        Raises
        ------
        SourceDataError
            If a name is no model that the manifest keeps as a table, or an interval is below 5 minutes or
            above 7 days.
        """
        known = read_manifest(self.manifest).selectors
        names = labels(table)
        wrong = [repr(name[:80]) for name in names if name not in known]
        if wrong:
            raise SourceDataError(
                f"{list_offenders(wrong)} is no model that {os.fspath(self.manifest)} keeps as a table. Name "
                "it by its unique_id, such as model.shop.orders."
            )
        ladder = np.array([step.seconds for step in LADDER])
        exact = whole_intervals(table, _LIMITS)
        rung = np.searchsorted(ladder, exact)
        seconds = np.where(exact == NEVER, NEVER, ladder[np.minimum(rung, len(ladder) - 1)])
        selectors, before = ["selectors:"], ""
        together: dict[str, list[Step]] = {}
        for step in LADDER:
            own = sorted(
                known[name] for name, at in zip(names, seconds.tolist(), strict=True) if at == step.seconds
            )
            if own:
                name = f"freshopt_{step.name}"
                selectors += [f"  - name: {name}", "    definition:", "      union:"]
                selectors += [f"        - {_chosen('selector', before)}"] * bool(before)
                selectors += [f"        - {_chosen('fqn', model)}" for model in own]
                before = name
            if before:
                together.setdefault(before, []).append(step)
        text = "\n".join(selectors) + "\n" if before else "selectors: []\n"
        (path / "selectors.yml").write_text(text, encoding="utf-8", newline="\n")
        lines = [
            f"{cron} dbt build --selector {name}\n"
            for name, steps in together.items()
            for cron in cron_lines(steps)
        ]
        (path / "crontab").write_text("".join(lines), encoding="utf-8", newline="\n")
        return exported(table, seconds, "left out")


def cron_lines(steps: Sequence[Step]) -> list[str]:
    """Return the fewest time fields of cron with the moments of steps.

    Examples
    --------
    >>> cron_lines(LADDER), cron_lines(LADDER[:3]), cron_lines(LADDER[3:8])
    (['*/5 * * * *'], ['5-55/5 * * * *'], ['0 1-23 * * *', '0 0 * * 0,2-6'])
    """
    minutes = {at for step in steps for at in step.minutes}
    hours = {at for step in steps for at in step.hours}
    days = {at for step in steps for at in step.days}
    if len(days) == 7:
        hours, days = hours | {0}, set()
    if len(hours) == 24:
        minutes, hours = minutes | {0}, set()
    lines = []
    if minutes:
        lines.append(f"{_field(minutes, 60)} * * * *")
    if hours:
        lines.append(f"0 {_field(hours, 24)} * * *")
    if days:
        lines.append(f"0 0 * * {_field(days, 7)}")
    return lines


def _field(values: set[int], of: int) -> str:
    """Return a field of cron with values out of so many."""
    first, last = min(values), max(values)
    step = min((b - a for a, b in pairwise(sorted(values))), default=of)
    if sorted(values) == list(range(0, of, step)):
        return "0" if step == of else "*" if step == 1 else f"*/{step}"
    if len(values) > 2 and sorted(values) == list(range(first, last + 1, step)):
        return f"{first}-{last}" if step == 1 else f"{first}-{last}/{step}"
    return ",".join(_runs(sorted(values)))


def _runs(values: Sequence[int]) -> Iterator[str]:
    """Yield ascending values, three or more in a row as a range."""
    begin = 0
    for k in range(1, len(values) + 1):
        if k == len(values) or values[k] != values[k - 1] + 1:
            if k - begin > 2:
                yield f"{values[begin]}-{values[k - 1]}"
            else:
                yield from map(str, values[begin:k])
            begin = k


def _chosen(method: str, value: str) -> str:
    """Return the YAML of one method."""
    return f"{{method: {method}, value: {json.dumps(value, ensure_ascii=False)}}}"
