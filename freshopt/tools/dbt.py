"""dbt: freshness artifacts as a crawl log; selectors with cron times.

Each ``dbt source freshness`` queries all sources once and writes ``sources.json`` [1]_: when it queried
(``snapshotted_at``) and up to when the source was loaded (``max_loaded_at``). Artifacts of several runs,
kept, are a crawl log: a source has changed if the latter moved, and then it is when the last change took
place. A run sees one change at most, the last, so that the history is not complete; its date tells what the
others' would: with it a rate is known as well as from a count in the time since.

dbt runs nothing by itself: a scheduler calls it for the sources that a selector names [2]_. Sources therefore
share times: each is refreshed at the shortest of `RUNGS` that is not below its interval, and every
rung that is used becomes a selector of the sources and all that is built from them. Three files are written:

``selectors.yml`` is for the project's folder; ``crontab`` has a line ``dbt build --selector`` for each; and
``sources.yml`` has the sources with ``freshness`` [3]_, to be merged with the project's own: a warning after
a rung and an error after two, by which ``dbt source freshness`` tells a source that is refreshed too late.

What is lost of a rate, about half where the interval lies just above a rung, is reported. Where that is too
much, ``--format crontab`` with a command of dbt's has the rates themselves, in a run for each source.

References
----------
.. [1] https://docs.getdbt.com/reference/artifacts/sources-json
.. [2] https://docs.getdbt.com/reference/node-selection/yaml-selectors
.. [3] https://docs.getdbt.com/reference/resource-properties/freshness
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.logs.crawl_log import CrawlLog
from freshopt.scheduling.rate_table import RateTable
from freshopt.tools.export import Exported, refuse
from freshopt.tools.records import Paths, Snapshot, files_of, log_of, read_document, typed
from freshopt.tools.whole_seconds import (
    NEVER,
    IntervalFormat,
    Limits,
    exported,
    labels,
    on_ladder,
    whole_intervals,
)
from freshopt.units import check_time_unit, share_of

# Beginnings of an artifact's file name, before a date or the like.
NAMES = ("sources", "freshness")
# Status of a source that could not be queried.
FAILED = "runtime error"
ANEW = "Pass artifacts as dbt wrote them, `dbt source freshness` of schema v1 or newer."


@dataclass(frozen=True, slots=True)
class Span:
    """Time of a criterion, such as 12 hours."""

    count: int | None = None
    period: Literal["minute", "hour", "day"] | None = None

    @property
    def text(self) -> str | None:
        """The time in words, None where it is none."""
        return f"{self.count} {self.period}" if self.count and self.count > 0 and self.period else None


@dataclass(frozen=True, slots=True)
class Criteria:
    """Ages from which dbt warns and fails."""

    warn_after: Span | None = None
    error_after: Span | None = None


@dataclass(frozen=True, slots=True)
class Freshness:
    """Result of a freshness check; one that failed lacks its times."""

    unique_id: str
    status: str | None = None
    max_loaded_at: str | None = ""
    snapshotted_at: str = ""
    criteria: Any = None


@dataclass(frozen=True, slots=True)
class SourcesArtifact:
    """``sources.json``, schema v1 or newer, or ``freshness.json`` v0."""

    results: list[Freshness]


def read_dbt(path: Paths, time_unit: str = "day") -> CrawlLog:
    """Read dbt freshness artifacts as a crawl log.

    Parameters
    ----------
    path : path or iterable of paths
        A folder, searched with the folders in it for JSON files whose names begin with ``sources`` or
        ``freshness``; or the files themselves. dbt overwrites ``target/sources.json``: keep a copy of each
        run's, such as ``sources-2026-01-31T06.json``.
    time_unit : str
        "second", "minute", "hour", "day" or "week".

    Returns
    -------
    CrawlLog
        Sources are dbt's ``unique_id``, crawls its ``snapshotted_at`` (in UTC where there is no offset). A
        crawl found a change if ``max_loaded_at`` is not what it was at the one before, which is also its
        ``last_modified``; the first is the baseline. Results of queries that failed are left out, and
        artifacts that occur twice count once.

    Raises
    ------
    SourceDataError
        If there is no artifact, a file is none, or a result lacks what is needed; names the file, the result
        and the field.

    Notes
    -----
    Read are the artifact's schemas v1 to v3 (``results``), and ``freshness.json`` v0, whose results have the
    same fields, models included.
    """
    check_time_unit(time_unit)
    return log_of(
        (snapshot for file in _artifacts(path) for snapshot in _snapshots(file)),
        "max_loaded_at of {source!r} at one snapshotted_at",
        f"{path} has no result of a freshness check that succeeded. Add artifacts of more runs.",
        time_unit,
    )


def _artifacts(path: Paths) -> list[Path]:
    """Return the artifacts of a folder, or the files given."""
    return files_of(
        path,
        lambda file: file.suffix == ".json" and file.name.lower().startswith(NAMES),
        f"JSON file whose name begins with {' or '.join(NAMES)}. Run `dbt source freshness` and keep a copy "
        "of target/sources.json of each run.",
    )


def dbt_freshness(path: Paths, share: float | str = 0.95) -> polars.DataFrame:
    """Read the freshness that dbt sources are to have, as limits.

    - `path` path or iterable of paths: As of `read_dbt`; of each source the latest artifact counts.
    - `share`: Of the time that a source is to be younger than its ``warn_after``.
    - returns: Columns source, min_rate, which keeps that share at equal intervals, and max_interval, its
      ``error_after``; a source without either is left out. Both are ages since it was loaded.
    - raises SourceDataError if there is no artifact, a file is none, or no source has any.
    """
    kept = share_of("share", share)
    latest: dict[str, tuple[str, str | None, str | None]] = {}
    for file in _artifacts(path):
        for result in read_document(file, SourcesArtifact, ANEW).results:
            where = f"criteria of {result.unique_id!r} in {file}"
            told = typed(result.criteria or {}, Criteria, where, ANEW)
            warn, error = (
                None if each is None else each.text for each in (told.warn_after, told.error_after)
            )
            before = latest.get(result.unique_id, ("", None, None))
            if result.unique_id and (warn or error) and result.snapshotted_at >= before[0]:
                latest[result.unique_id] = (result.snapshotted_at, warn, error)
    if not latest:
        raise SourceDataError(f"no source in {path} has warn_after or error_after. Give them in sources.yml.")
    names = sorted(latest)
    rates = [None if latest[name][1] is None else f"{kept!r}/{latest[name][1]}" for name in names]
    columns = {"source": names, "min_rate": rates, "max_interval": [latest[name][2] for name in names]}
    return polars.DataFrame(columns, schema=dict.fromkeys(columns, polars.String))


def _snapshots(file: Path) -> Iterator[Snapshot]:
    """Yield the results of an artifact whose queries succeeded."""
    for k, result in enumerate(read_document(file, SourcesArtifact, ANEW).results):
        if (result.status or "").lower() == FAILED:
            continue
        where = f"results[{k}] of {file}"
        if not result.unique_id:
            raise SourceDataError(f"unique_id is empty in {where}. {ANEW}")
        loaded = result.max_loaded_at
        changed = None if loaded is None else _moment(loaded, "max_loaded_at", where)
        seen = _moment(result.snapshotted_at, "snapshotted_at", where)
        yield Snapshot(result.unique_id, seen, changed, where, changed)


def _moment(text: str, field: str, where: str) -> datetime:
    """Return a time of an artifact, also as early dbt writes it."""
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z") if text.endswith("+00:00Z") else text)
    except ValueError:
        moment = None
    if moment is None or not 1 < moment.year < 9999:  # with a day to spare for an offset
        raise SourceDataError(
            f"{field} is {text[:60]!r} in {where}. It is a time such as 2026-01-31T06:00:00Z. {ANEW}"
        )
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class Rung(NamedTuple):
    """An interval that cron repeats.

    Its selector's name; in seconds, in dbt's amount and period, and as time fields.
    """

    name: str
    seconds: int
    amount: int
    period: str
    cron: str


_DAY = 86_400
RUNGS = (
    *(Rung(f"freshopt_{n}min", 60 * n, n, "minute", f"*/{n} * * * *") for n in (1, 2, 3, 5, 10, 15, 20, 30)),
    *(Rung(f"freshopt_{n}h", 3600 * n, n, "hour", f"7 */{n} * * *") for n in (1, 2, 3, 4, 6, 8, 12)),
    Rung("freshopt_1d", _DAY, 1, "day", "7 3 * * *"),
    # The gaps of this one are 3 and 4 days, and of the last at most 31.
    Rung("freshopt_2_a_week", 7 * _DAY // 2, 4, "day", "7 3 * * 1,4"),
    Rung("freshopt_7d", 7 * _DAY, 7, "day", "7 3 * * 1"),
    Rung("freshopt_2_a_month", 16 * _DAY, 17, "day", "7 3 1,16 * *"),
    Rung("freshopt_1_a_month", 31 * _DAY, 31, "day", "7 3 1 * *"),
)
_LIMITS = Limits("a dbt job", step=60, longest=RUNGS[-1].seconds, shortest=60)
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
        rung_of = {rung.seconds: rung for rung in RUNGS}
        names, seconds = labels(table), on_ladder(whole_intervals(table, _LIMITS), rung_of)
        found = [_SOURCE.fullmatch(name) for name in names]
        refuse(
            names,
            [k for k, match in enumerate(found) if match is None],
            "is no unique_id of a dbt source, such as source.shop.raw.orders. Name it as sources.json does, "
            "which freshopt import dbt reads.",
        )
        places = [(match[1], match[2], match[3]) for match in found if match is not None]
        by_rung: dict[Rung, list[tuple[str, str, str]]] = {}
        for place, own in sorted(zip(places, seconds.tolist(), strict=True)):
            if own != NEVER:
                by_rung.setdefault(rung_of[own], []).append(place)
        used = sorted(by_rung, key=lambda rung: rung.seconds)
        text = "selectors:\n" + "".join(_selector(rung, by_rung[rung]) for rung in used)
        text = text if used else "selectors: []\n"
        (path / "selectors.yml").write_text(text, encoding="utf-8", newline="\n")
        (path / "sources.yml").write_text(_sources(by_rung), encoding="utf-8", newline="\n")
        lines = [f"{rung.cron} dbt build --selector {rung.name}\n" for rung in used]
        (path / "crontab").write_text("".join(lines), encoding="utf-8", newline="\n")
        return exported(table, seconds, "left out")


def _selector(rung: Rung, places: list[tuple[str, str, str]]) -> str:
    """Return the YAML of a selector."""
    lines = [f"  - name: {rung.name}", f'    description: "{rung.cron}"', "    definition:", "      union:"]
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
