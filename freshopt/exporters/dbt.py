"""dbt: selectors with cron times, and the freshness of their sources.

dbt runs nothing by itself: a scheduler calls it for the sources that a selector names [1]_. Sources therefore
share times: each is refreshed at the shortest of `RUNGS` that is not below its interval, and every
rung that is used becomes a selector of the sources and all that is built from them. Three files are written:

``selectors.yml`` is for the project's folder; ``crontab`` has a line ``dbt build --selector`` for each; and
``sources.yml`` has the sources with ``freshness`` [2]_, to be merged with the project's own: a warning after
a rung and an error after two, by which ``dbt source freshness`` tells a source that is refreshed too late.

What is lost of a rate, about half where the interval lies just above a rung, is reported. Where that is too
much, ``--format crontab`` with a command of dbt's has the rates themselves, in a run for each source.

References
----------
.. [1] https://docs.getdbt.com/reference/node-selection/yaml-selectors
.. [2] https://docs.getdbt.com/reference/resource-properties/freshness
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
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
from freshopt.numerics.arrays import IntArray
from freshopt.scheduling.rate_table import RateTable


class Rung(NamedTuple):
    """An interval that cron repeats.

    In seconds, in dbt's amount and period, and as time fields.
    """

    name: str
    seconds: int
    amount: int
    period: str
    cron: str


def _rungs() -> tuple[Rung, ...]:
    minutes = [Rung(f"{n}min", 60 * n, n, "minute", f"*/{n} * * * *") for n in (1, 2, 3, 5, 10, 15, 20, 30)]
    hours = [Rung(f"{n}h", 3600 * n, n, "hour", f"7 */{n} * * *") for n in (1, 2, 3, 4, 6, 8, 12)]
    day = 86_400
    # The gaps of the second to last are 3 and 4 days, and of the last at most 31.
    days = [
        Rung("1d", day, 1, "day", "7 3 * * *"),
        Rung("2_a_week", 7 * day // 2, 4, "day", "7 3 * * 1,4"),
        Rung("7d", 7 * day, 7, "day", "7 3 * * 1"),
        Rung("2_a_month", 16 * day, 17, "day", "7 3 1,16 * *"),
        Rung("1_a_month", 31 * day, 31, "day", "7 3 1 * *"),
    ]
    return (*minutes, *hours, *days)


RUNGS = _rungs()
_LIMITS = Limits("a dbt job", step=60, longest=RUNGS[-1].seconds, shortest=60, remedy="Raise their min_rate.")
# dbt's unique_id of a source: its package, its source's and its table's name.
_SOURCE = re.compile(r"source\.(\w+)\.(\w+)\.([^.\x00-\x1f\x7f\ud800-\udfff]+)")
FILES = ("selectors.yml", "sources.yml", "crontab")


@dataclass(frozen=True, slots=True)
class Dbt(IntervalFormat):
    """A folder with selectors, freshness of sources and a crontab.

    A source is called by dbt's unique_id, as in ``sources.json``: ``source.PACKAGE.SOURCE.TABLE``.
    """

    files: ClassVar[tuple[str, ...]] = FILES

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write into a folder; see `ToolFormat.write`.

        Raises
        ------
        SourceDataError
            If a name is no unique_id of a source, an interval is below a minute or above 31 days, or a source
            waits for signals.
        """
        names, seconds = labels(table), _on_rungs(whole_intervals(table, _LIMITS))
        found = [_SOURCE.fullmatch(name) for name in names]
        wrong = [repr(name[:80]) for name, match in zip(names, found, strict=True) if match is None]
        if wrong:
            raise SourceDataError(
                f"source {list_offenders(wrong)} is no unique_id of a dbt source, such as "
                "source.shop.raw.orders. Name it as sources.json does, which freshopt plan --dbt reads."
            )
        places = [(match[1], match[2], match[3]) for match in found if match is not None]
        rung_of = {rung.seconds: rung for rung in RUNGS}
        by_rung: dict[Rung, list[tuple[str, str, str]]] = {}
        for place, own in sorted(zip(places, seconds.tolist(), strict=True)):
            if own != NEVER:
                by_rung.setdefault(rung_of[own], []).append(place)
        used = sorted(by_rung, key=lambda rung: rung.seconds)
        text = "selectors:\n" + "".join(_selector(rung, by_rung[rung]) for rung in used)
        text = text if used else "selectors: []\n"
        (path / "selectors.yml").write_text(text, encoding="utf-8", newline="\n")
        (path / "sources.yml").write_text(_sources(by_rung), encoding="utf-8", newline="\n")
        lines = [f"{rung.cron} dbt build --selector {_name(rung)}\n" for rung in used]
        (path / "crontab").write_text("".join(lines), encoding="utf-8", newline="\n")
        return exported(table, seconds, "left out")


def _on_rungs(seconds: IntArray) -> IntArray:
    """Return intervals rounded up to rungs."""
    steps = np.array([rung.seconds for rung in RUNGS])
    on: IntArray = np.where(seconds == NEVER, NEVER, steps[np.searchsorted(steps, seconds)])
    return on


def _name(rung: Rung) -> str:
    return f"freshopt_{rung.name}"


def _selector(rung: Rung, places: list[tuple[str, str, str]]) -> str:
    """Return the YAML of a selector."""
    lines = [f"  - name: {_name(rung)}", f'    description: "{rung.cron}"', "    definition:", "      union:"]
    for place in places:
        lines += ["        - method: source", f"          value: {json.dumps('.'.join(place))}"]
        lines += ["          children: true"]
    return "\n".join(lines) + "\n"


def _sources(by_rung: dict[Rung, list[tuple[str, str, str]]]) -> str:
    """Return the YAML of the sources' freshness."""
    tables: dict[str, list[tuple[str, Rung]]] = {}
    for rung, places in by_rung.items():
        for _, source, table in places:
            tables.setdefault(source, []).append((table, rung))
    lines = ["version: 2", "sources:" if tables else "sources: []"]
    for source, own in sorted(tables.items()):
        lines += [f"  - name: {json.dumps(source)}", "    tables:"]
        for table, rung in sorted(own):
            late = [f"{{count: {rung.amount * times}, period: {rung.period}}}" for times in (1, 2)]
            lines += [f"      - name: {json.dumps(table, ensure_ascii=False)}", "        config:"]
            lines += [f"          freshness: {{warn_after: {late[0]}, error_after: {late[1]}}}"]
    return "\n".join(lines) + "\n"
