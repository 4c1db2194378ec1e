"""dbt: a project's graph, run times, and jobs, parents first.

dbt leaves both behind in ``target``: ``manifest.json`` when it parses, ``run_results.json`` when it runs
[1]_.

Jobs refresh models on a ladder of periods. Each period is a multiple of the one before, and its moments are
among that one's. A moment has one line of the crontab, whose selector has all models with the longest period
that it belongs to, or a shorter one: so each model is built right after the parents that are due with it, in
dbt's own order, and no two jobs begin at once. Two files are written: ``selectors.yml`` [2]_, for the
project's folder, and ``crontab``.

Rates from `freshopt.pipelines.AfterParents` with `DbtJobs.periods` are on the ladder already; other intervals
are rounded up to it.

Cost: reading the files.

References
----------
.. [1] https://docs.getdbt.com/reference/artifacts/dbt-artifacts
.. [2] https://docs.getdbt.com/reference/node-selection/yaml-selectors
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from freshopt.errors import SourceDataError, list_offenders
from freshopt.scheduling.rate_table import RateTable
from freshopt.tools.export import Exported
from freshopt.tools.records import read_document, typed
from freshopt.tools.whole_seconds import (
    IntervalFormat,
    Limits,
    exported,
    labels,
    on_ladder,
    whole_intervals,
)
from freshopt.units import SECONDS, check_time_unit

# Nodes that are copies, and among them the materializations that keep nothing.
COPIES = ("model", "snapshot")
KEEP_NOTHING = ("view", "ephemeral")
# Status of a node that was run to its end.
SUCCESS = "success"
# The shortest run, in seconds, of what takes less than the clock tells.
SHORTEST = 1e-3
_RUNS = "Pass a run_results.json as dbt wrote it."


@dataclass(frozen=True, slots=True)
class Parents:
    """What a node depends on."""

    nodes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration of a node, with what its owner wrote into it."""

    materialized: str | None = None
    meta: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """Node of a manifest: a model, a seed, ..., or an exposure."""

    resource_type: str = ""
    depends_on: Parents | None = None
    config: Config | None = None
    meta: dict[str, Any] | None = None
    fqn: list[str] = field(default_factory=list)

    @property
    def parents(self) -> tuple[str, ...]:
        """The nodes that this one is made of, each once."""
        return () if self.depends_on is None else tuple(dict.fromkeys(self.depends_on.nodes))

    def importance(self, where: str) -> float:
        """Return what its meta says, else 1."""
        metas = (None if self.config is None else self.config.meta, self.meta)
        told = [meta["importance"] for meta in metas if meta and meta.get("importance") is not None]
        value = typed(told[0], float, where, "Write a number >= 0 in its meta.") if told else 1.0
        if not 0.0 <= value < 1e100:
            raise SourceDataError(f"{where} is {value:g}. Write a number >= 0 in its meta.")
        return value


@dataclass(frozen=True, slots=True)
class ManifestArtifact:
    """``manifest.json``."""

    nodes: dict[str, Node]
    sources: dict[str, Any]
    exposures: dict[str, Node]


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a node; one that was not run has no time."""

    unique_id: str
    status: str
    execution_time: float | None = None


@dataclass(frozen=True, slots=True)
class RunArtifact:
    """``run_results.json``."""

    results: list[Run]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Graph of a dbt project, by ``unique_id``.

    - `edges`: From upstream to downstream; of sources and seeds only those of which something is made.
    - `views`: What keeps nothing: views, ephemeral models, exposures.
    - `parentless`: Models that are made of nothing.
    - `importance`: Of exposures; None if there are none.
    - `selectors`: dbt's fully qualified name of each model and snapshot that is a table.
    """

    edges: tuple[tuple[str, str], ...]
    views: tuple[str, ...]
    parentless: tuple[str, ...]
    importance: dict[str, float] | None
    selectors: dict[str, str]

    def short_names(self) -> Mapping[object, str]:
        """Return nodes by endings of a ``unique_id`` that are unique."""
        found: dict[object, list[str]] = {}
        for node in dict.fromkeys(node for edge in self.edges for node in edge):
            parts = node.split(".")
            for k in range(1, len(parts)):
                found.setdefault(".".join(parts[k:]), []).append(node)
        return {short: nodes[0] for short, nodes in found.items() if len(nodes) == 1}


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read the graph of a dbt project."""
    file = _artifact(path, "manifest.json")
    found = read_document(file, ManifestArtifact, "Pass a manifest.json as dbt wrote it.")
    copies = {key: node for key, node in found.nodes.items() if node.resource_type in COPIES}
    seeds = (key for key, node in found.nodes.items() if node.resource_type == "seed")
    known = {*copies, *found.sources, *seeds}
    edges = [
        (up, key)
        for key, node in [*copies.items(), *found.exposures.items()]
        for up in node.parents
        if up in known
    ]
    if not edges:
        raise SourceDataError(
            f"{file} has no model with a parent. Pass the manifest of a project with models."
        )
    linked = {node for edge in edges for node in edge}
    made = {down for _, down in edges}
    importance = {
        key: node.importance(f"the importance of {key!r} in {file}")
        for key, node in found.exposures.items()
        if key in linked
    }
    kept = {
        key: ".".join(node.fqn)
        for key, node in copies.items()
        if node.config is None or node.config.materialized not in KEEP_NOTHING
    }
    return Manifest(
        tuple(edges),
        tuple(key for key in [*copies, *found.exposures] if key in linked and key not in kept),
        tuple(key for key in copies if key in linked and key not in made),
        importance or None,
        kept,
    )


def read_run_times(path: str | os.PathLike[str]) -> dict[str, float]:
    """Read how long each node of a dbt run took, in seconds."""
    file = _artifact(path, "run_results.json")
    times: dict[str, float] = {}
    for run in read_document(file, RunArtifact, _RUNS).results:
        if run.status == SUCCESS:
            if run.execution_time is None or run.execution_time < 0.0:
                raise SourceDataError(
                    f"execution_time of {run.unique_id!r} is {run.execution_time} in {file}. {_RUNS}"
                )
            times[run.unique_id] = max(run.execution_time, SHORTEST)
    return times


def _artifact(path: str | os.PathLike[str], name: str) -> Path:
    """Return the file, which may be named by its folder."""
    file = Path(path)
    return file / name if file.is_dir() else file


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
        seconds = on_ladder(whole_intervals(table, _LIMITS), [step.seconds for step in LADDER])
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
