"""`read_dbt`: crawl log from dbt's source freshness artifacts.

dbt leaves one behind per run.

Each ``dbt source freshness`` queries all sources once and writes ``sources.json``: when it queried
(``snapshotted_at``) and up to when the source was loaded (``max_loaded_at``). Artifacts of several runs,
kept, are a crawl log: a source has changed if the latter moved, and then it is when the last change took
place. A run sees one change at most, the last, so that the history is not complete; its date tells what the
others' would: with it a rate is known as well as from a count in the time since.

Cost: reading the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from freshopt.errors import SourceDataError
from freshopt.io.dbt_artifacts import read_document, shown_value
from freshopt.io.run_snapshots import Paths, Snapshot, files_of, log_of
from freshopt.logs.crawl_log import CrawlLog
from freshopt.units import check_time_unit

# Beginnings of an artifact's file name, before a date or the like.
NAMES = ("sources", "freshness")
# Status of a source that could not be queried.
FAILED = "runtime error"


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
    Read are the artifact's schemas v1 to v3 (``results``, as in [1]_), and ``freshness.json`` v0, whose
    results have the same fields, models included.

    References
    ----------
    .. [1] https://docs.getdbt.com/reference/artifacts/sources-json
    """
    check_time_unit(time_unit)
    files = files_of(
        path,
        lambda file: file.suffix == ".json" and file.name.lower().startswith(NAMES),
        f"JSON file whose name begins with {' or '.join(NAMES)}. Run `dbt source freshness` and keep a copy "
        "of target/sources.json of each run.",
    )
    return log_of(
        (snapshot for file in files for snapshot in _snapshots(file)),
        "max_loaded_at of {source!r} at one snapshotted_at",
        f"{path} has no result of a freshness check that succeeded. Add artifacts of more runs.",
        time_unit,
    )


def _snapshots(file: Path) -> Iterator[Snapshot]:
    """Yield the results of an artifact whose queries succeeded."""
    document = read_document(file)
    results = document.get("results")
    if not isinstance(results, list):
        raise SourceDataError(
            f"{file} has no list 'results'. Pass artifacts of `dbt source freshness`, schema v1 or newer."
        )
    for k, result in enumerate(results):
        where = f"result {k + 1} of {file}"
        if not isinstance(result, dict):
            raise SourceDataError(
                f"{where} is {shown_value(result)}, not an object. Write the artifact anew."
            )
        source = result.get("unique_id")
        if not isinstance(source, str) or not source:
            raise SourceDataError(f"unique_id is {shown_value(source)} in {where}. Write the artifact anew.")
        if str(result.get("status")).lower() == FAILED:
            continue
        if "max_loaded_at" not in result:
            raise SourceDataError(
                f"max_loaded_at is missing in {where} ({source!r}). Write the artifact anew."
            )
        loaded = result["max_loaded_at"]
        changed = None if loaded is None else _moment(loaded, "max_loaded_at", where)
        seen = _moment(result.get("snapshotted_at"), "snapshotted_at", where)
        yield Snapshot(source, seen, changed, where, changed)


def _moment(text: object, field: str, where: str) -> datetime:
    """Return a time of an artifact.

    Early versions of dbt wrote ``+00:00Z``.
    """
    if isinstance(text, str):
        plain = text.removesuffix("Z") if text.endswith("+00:00Z") else text
        try:
            moment = datetime.fromisoformat(plain)
        except ValueError:
            moment = None
        if moment is not None and 1 < moment.year < 9999:  # with a day to spare for an offset
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    raise SourceDataError(
        f"{field} is {shown_value(text)} in {where}. It is a time such as 2026-01-31T06:00:00Z. Write the "
        "artifact anew."
    )
