"""Plans for partitioned crawl logs, beyond one machine's memory.

`plan` is the main job for a crawl log in a folder of Parquet files.

The same steps as `freshopt.planning.plan.make_plan`: each worker learns the change rates of a file at a time,
`solve` finds the refresh rates of all, and each partition is scheduled by itself. The client holds a few
numbers per file; what one step leaves for the next is in the folder that becomes the plan.

Cost: the log is read once; then the passes of `solve` and one more over its sources.

The default prior of a partitioned log is one for all files. Without it each file would learn one of its own,
from its own sources alone. It is learnt before the workers begin, from files with as many sources as a prior
takes: a log with no more sources has the prior that a plan in memory has.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.distributed import estimation
from freshopt.distributed.column_rows import column_rows, require_objective
from freshopt.distributed.dask_passes import Passes
from freshopt.distributed.driver import file_name
from freshopt.distributed.estimation import (
    HASHES,
    SOURCES,
    Adapt,
    Featured,
    FurtherColumns,
    Learnt,
    Order,
    features_of_files,
    learn_file,
)
from freshopt.distributed.partitioned_sources import PartitionedSources, footer, parquet_files
from freshopt.distributed.scheduling import Calendar, Scheduled, schedule_part
from freshopt.distributed.solution import DistributedSolution
from freshopt.distributed.solving import part_names, require_parts, solve
from freshopt.distributed.solving import summary as solve_facts
from freshopt.errors import Heard, SourceDataError, by_weight, hearing, list_offenders
from freshopt.estimators.default_prior import default_prior
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.features.feature_priors import FeaturePriors
from freshopt.estimators.gamma_prior import ENOUGH, GammaPrior
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.logs.atomic_output import complete_folder
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import OPTIONAL, CrawlLog, derived_log
from freshopt.logs.log_files import joined_times
from freshopt.logs.read_crawls import read_log
from freshopt.logs.source_index import joined_names
from freshopt.logs.tables import write_table
from freshopt.modelling.declared_constraints import as_constraints
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import exact_sum
from freshopt.planning.declared import DeclaredRows, constraint_facts
from freshopt.planning.plan import TOLERANCE, method_of
from freshopt.planning.plan_files import CONSTRAINTS, FILES, TABLES, moment_made, versions
from freshopt.planning.plan_steps import method_refresh
from freshopt.planning.request import NEVER_CRAWLED
from freshopt.planning.wishes import Wishes
from freshopt.questions.features_bring import FeaturesBring, explained
from freshopt.report.value_words import units
from freshopt.scheduling.expected_cost import expected_value
from freshopt.scheduling.schedule import schedule
from freshopt.units import check_time_unit


def with_whole_prior(
    request: Wishes, files: Sequence[Path], time_unit: str, features: Path | None = None
) -> tuple[Wishes, Featured | None]:
    """Return the request with the default estimator under the log's prior.

    A request with an estimator of its own stays as it is; of features priors are those that they tell.
    """
    if request.estimator is not None:
        return request, None
    logs: list[CrawlLog] = []
    for file in files:
        logs.append(read_log(file, time_unit, answers_are_changes=None))
        if sum(len(log.names) for log in logs) >= ENOUGH:
            break
    if features is None:
        return replace(request, estimator=partial(_fitted, default_prior(_joined(logs)))), None
    told = features_of_files(features, files[: len(logs)], [log.names for log in logs])
    return request, Featured(features, FeaturePriors.from_log(_joined(logs, named=True), told))


def _fitted(prior: GammaPrior | None, log: CrawlLog) -> Estimator:
    return MaximumLikelihood(prior=prior).fit(log)


def _joined(logs: list[CrawlLog], *, named: bool = False) -> CrawlLog:
    """Return one log of all sources, each on its file's clock."""
    rows = [log.source_index for log in logs]
    # The default prior needs no names.
    before = np.cumsum([0, *(len(log.names) for log in logs)])
    own = [log.names if named else np.arange(*each) for log, each in zip(logs, pairwise(before), strict=True)]
    names, source = joined_names(own, rows)
    columns: dict[str, Any] = {
        "source": source,
        "time": np.concatenate([log.time for log in logs]),
        "elapsed": np.concatenate([log.interval for log in logs]),
        "changed": np.concatenate([log.changed for log in logs]),
    }
    for key in OPTIONAL:
        given = [getattr(log, key) for log in logs]
        if any(column is not None for column in given):
            columns[key] = joined_times(given, [len(log) for log in logs], key)
    return derived_log(columns, names, Clock(logs[0].time_unit))


MARKER = "summary.json"
# Of a plan's facts those of its solution, and those that plans in memory alone have.
_SOLVED = ("sense", "time_unit", "bandwidth", "status", "value", "bound", "gap", "relative_gap")
_OF_MEMORY = ("uncertainty", "forecast", "phases", "needed", "today", "changes", "few_changes", "findings")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedPlan:
    """A plan that was written.

    Attributes
    ----------
    folder : Path
        It holds ``change_rates/``, ``rates/`` and ``schedule/``, each with a ``part-*.parquet`` for each file
        of the log, and ``summary.json``.
    facts : dict
        What ``summary.json`` says.
    rows : DeclaredRows or None
        Declared constraints with their prices; None without.
    """

    folder: Path
    facts: dict[str, Any]
    rows: DeclaredRows | None = None

    def __repr__(self) -> str:
        facts, counts = self.facts, self.facts["counts"]
        size = f"{counts['refreshes']} refreshes of {counts['sources']} sources"
        span = f"{facts['horizon']:g} {facts['time_unit']}s, {counts['partitions']} partitions"
        return f"DistributedPlan({facts['status']}, {size} in {span}, {self.folder})"


def plan(
    log: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    request: Wishes,
    out: str | os.PathLike[str],
    *,
    adapt: Adapt | None = None,
    columns: FurtherColumns | None = None,
    features: str | os.PathLike[str] | None = None,
    answers_are_changes: bool = False,
    overwrite: bool = False,
    time_unit: str = "day",
    on_progress: Callable[[str], None] = lambda _: None,
) -> DistributedPlan:
    """Estimate, solve, certify and schedule, file by file of a log.

    Parameters
    ----------
    log : path or list of paths
        A folder of Parquet files as `fo.read_log` takes them, each source's crawls within one file. A worker
        holds a file at a time, with its sources and their schedule. The default prior is learnt from the
        first files with 10 000 sources, and then is that of all.
    request : Wishes
        Its functions are called on the workers. `estimate` sees one file at a time; `draws` is not used.
        Its constraints are a list and name columns, as those of `solve` do.
    out : path
        Folder to write, which every worker must be able to; it is written atomically. Each part of
        the schedule is sorted by time.
    adapt : callable, optional
        Returns the request of a file of the log, given the request for all and the file; runs on the workers,
        and so can read importances and hosts there.
    columns : callable, optional
        Returns the columns that constraints name, by name, given a file of the log and its sources' names;
        runs on the workers. Hosts are the column ``host``.
    features : path or "url", optional
        A table of features as `fo.plan` takes it, or a folder with one of its name for each file of the log,
        whose further sources are planned for with it. What they tell is learnt from the first files with
        10 000 sources.
    answers_are_changes : bool
        As `fo.read_log` takes it, of all files together.
    overwrite : bool
        Whether an earlier plan in `out` may be replaced.
    time_unit : str
        The log's clock.
    on_progress : callable
        Told a word before each pass over the files.

    Returns
    -------
    DistributedPlan

    Raises
    ------
    FreshoptError
        If the log, the bounds or the weights cannot be used, or a source is in two files.
    CertificateError
        If the rates are not proved optimal to 1e-9.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> import freshopt as fo
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("a", "b"):
    ...     crawls = {"source": [name] * 4, "time": [0, 1, 2, 3], "changed": [0, 1, 0, 1]}
    ...     pl.DataFrame(crawls).write_parquet(folder / f"{name}.parquet")
    >>> request = Wishes(fo.problems.HarmonicStaleness(fo.Refresh.PERIODIC), bandwidth=2.0, horizon=7.0)
    >>> made = plan(folder, request, folder / "plan")
    >>> made.facts["status"], made.facts["counts"]["refreshes"]
    ('optimal', 14)
    >>> sorted(entry.name for entry in (folder / "plan").iterdir())
    ['change_rates', 'rates', 'schedule', 'summary.json']
    """
    if callable(request.constraints):
        raise SourceDataError(
            "constraints of a partitioned plan are no function of the sources, which no machine need hold. "
            "Pass a list that names columns, such as [fo.Budget({'eu': 8e5}, by='region')]."
        )
    require_objective(request.objective)
    request = replace(request, constraints=as_constraints(request.constraints or ()))
    column_rows(as_constraints(request.constraints), None, {})
    unit = check_time_unit(time_unit)
    whole = parquet_files(log)
    files = [file for file in whole if footer(file).num_rows]
    if not files:
        raise SourceDataError(f"no rows are in {list_offenders(map(str, whole))}. Write at least one crawl.")
    _rehearse(request)
    with hearing() as heard:
        estimation.require_conditional(files, answers_are_changes=answers_are_changes)
    on_progress("prior")
    told = None if features is None else Path(features)
    request, featured = with_whole_prior(request, files, unit, told)
    known = {*FILES} | {
        f"{table}/{name}"
        for table in TABLES
        for name in {file_name(k) for k in range(len(files))} | part_names(Path(out) / table)
    }
    with complete_folder(out, overwrite, marker=MARKER, files=known) as staging:
        order = Order(request, adapt, columns, featured, unit, str(staging))
        facts, rows = _write(files, order, heard, on_progress)
    return DistributedPlan(Path(out), facts, rows)


def _write(
    files: list[Path], order: Order, heard: Iterable[Heard], on_progress: Callable[[str], None]
) -> tuple[dict[str, Any], DeclaredRows | None]:
    """Write the plan's folders and return its facts and rows."""
    request, unit, staging = order.request, order.time_unit, Path(order.folder)
    clock = [time.perf_counter()]
    for table in (*TABLES[::2], SOURCES, HASHES):  # `solve` makes that of the rates
        (staging / table).mkdir()
    paths = [str(file) for file in files]
    passes = Passes(on_progress)
    calls: list[tuple[Any, ...]] = list(zip(paths, range(len(paths)), strict=True))
    learnt: list[Learnt] = passes.run("change rates", learn_file, calls, order)
    require_parts(staging / "change_rates", len(files))
    require_parts(staging / SOURCES, len(files))
    estimation.require_alike(learnt, files)
    n = sum(one.n for one in learnt)
    if estimation.ranges_overlap(learnt):
        ranges = -(-n // estimation.AT_A_TIME)
        calls = [(k, ranges) for k in range(ranges)]
        passes.run("comparing names", estimation.require_apart, calls, (paths, str(staging)))
    clock.append(time.perf_counter())
    known = PartitionedSources.from_parquet(
        [staging / SOURCES / file_name(k) for k in range(len(files))], unit, rows=n
    )
    solution = solve(
        request.objective,
        known,
        None if math.isinf(request.bandwidth) else request.bandwidth,
        request.host_limits,
        constraints=request.constraints or (),
        out=staging / "rates",
        tolerance=TOLERANCE,
        on_progress=on_progress,
    )
    (staging / "rates" / MARKER).unlink()
    if solution.rows is not None:
        write_table(solution.rows.to_frame(), staging / f"{CONSTRAINTS}.parquet")
    clock.append(time.perf_counter())
    calendar, shifts = _calendar(learnt, order)
    shares = [part.share for (part,) in solution.calls]
    calls = list(zip(range(len(files)), shares, shifts, strict=True))
    scheduled: list[Scheduled] = passes.run("schedule", schedule_part, calls, calendar)
    require_parts(staging / "schedule", len(files))
    clock.append(time.perf_counter())
    for table in (SOURCES, HASHES):
        shutil.rmtree(staging / table)
    steps = dict(zip(("change rates", "refresh rates", "schedule"), np.diff(clock).tolist(), strict=True))
    told = by_weight([*heard, *(each for one in learnt for each in one.warnings)])
    facts = summary(learnt, solution, scheduled, calendar, steps) | {"warnings": list(told)}
    if order.featured is not None:
        facts["features"] = _brought(order.featured.priors, learnt, facts, unit)
    text = json.dumps(facts, indent=2, allow_nan=False)
    (staging / MARKER).write_text(text + "\n", encoding="utf-8", newline="\n")
    return facts, declared_rows(solution, request, unit)


def _calendar(learnt: list[Learnt], order: Order) -> tuple[Calendar, list[float]]:
    """Return the schedule's settings and each file's clock offset."""
    request, unit = order.request, order.time_unit
    dated = [one.origin for one in learnt if one.origin is not None]
    origin = min(dated, default=None)
    clock = Clock(unit, origin)
    shifts = [clock.shift(Clock(unit, one.origin)) for one in learnt]
    end = max(one.end + shift for one, shift in zip(learnt, shifts, strict=True))
    begin = clock.date(end)
    plain = request.min_rate == 0.0 and math.isinf(request.max_rate) and not request.host_limits
    plain = plain and not request.constraints
    changes, roots = (
        exact_sum(each) for each in zip(*((one.change_rate, one.square_roots) for one in learnt), strict=True)
    )
    whole = sum(one.n for one in learnt), changes, roots
    # What only estimation needs may be large.
    lasting = replace(request, importance=None, hosts=None, host_limits=None, estimator=None)
    return Calendar(lasting, unit, order.folder, end, begin, whole if plain else None), shifts


def summary(
    learnt: list[Learnt],
    solution: DistributedSolution,
    scheduled: list[Scheduled],
    calendar: Calendar,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """Return what ``summary.json`` says: as `plan_folder.summary`, but for medians over all sources."""
    request, objective, solved = calendar.request, solution.objective, solve_facts(solution)
    declared = declared_rows(solution, request, calendar.time_unit)
    flags = sum((one.flags for one in learnt), Counter[str]())
    baselines = {rule: exact_sum(one.baselines[rule] for one in scheduled) for rule in scheduled[0].baselines}
    return {
        **{key: solved[key] for key in _SOLVED},
        "objective": type(objective).__name__,
        "discipline": method_refresh(request).value,
        "units": units(type(objective).__name__, calendar.time_unit),
        "made": moment_made(),
        "log": _span(learnt, calendar),
        "bandwidth_used": solution.used,
        "horizon": request.horizon,
        "price": solution.price if math.isfinite(solution.bandwidth) else None,
        "schedule_value": exact_sum(one.value for one in scheduled),
        "baselines": baselines,
        "solver": "freshopt.distributed",
        "method": repr(method_of(request)),
        **dict.fromkeys(_OF_MEMORY),
        "constraints": None if declared is None else constraint_facts(declared),
        "settings": request.told(),
        "counts": {
            "sources": solution.n,
            "crawls": sum(one.crawls for one in learnt),
            "crawls_that_found_a_change": sum(one.found for one in learnt),
            "refreshes": sum(one.refreshes for one in scheduled),
            "never_refreshed": solution.never,
            "at_min_rate": solution.at_lower,
            "at_max_rate": solution.at_upper,
            "flags": dict(sorted(flags.items())),
            "partitions": len(learnt),
        },
        "change_rate": {
            "sum": exact_sum(one.change_rate for one in learnt),
            "estimator": learnt[0].estimator,
        },
        "seconds": {step: round(each, 6) for step, each in seconds.items()},
        "versions": versions("freshopt", "numpy", "scipy", "polars", "dask", "pyarrow"),
    }


def _brought(priors: FeaturePriors, learnt: list[Learnt], facts: dict[str, Any], unit: str) -> dict[str, Any]:
    """Return what features tell, as the summary has it."""
    new = facts["counts"]["flags"].get(NEVER_CRAWLED, 0)
    between = min(one.new[0] for one in learnt), max(one.new[1] for one in learnt)
    return FeaturesBring(priors, explained(priors), new, between, unit).facts()


def _span(learnt: list[Learnt], calendar: Calendar) -> dict[str, str | float]:
    """Return the log's begin and end, in ISO 8601 or numbers."""
    if calendar.origin is None:
        return {"begin": min(one.begin for one in learnt), "end": calendar.end}
    begins = (Clock(calendar.time_unit, one.origin).date(one.begin) for one in learnt)
    begin = min(date for date in begins if date is not None)
    return {"begin": begin.isoformat(), "end": calendar.origin.isoformat()}


def declared_rows(solution: DistributedSolution, request: Wishes, time_unit: str) -> DeclaredRows | None:
    """Return the rows of a plan's constraints; None where none are declared."""
    if solution.rows is None or not request.constraints:
        return None
    constraints = as_constraints(request.constraints)
    return DeclaredRows.of_table(solution.rows, constraints, solution.objective, time_unit)


def _rehearse(request: Wishes) -> None:
    """Plan for one source, to raise before the log is read."""
    one = Sources(change_rate=1.0, columns=dict.fromkeys(request.objective.columns, 1.0))
    bandwidth = request.bandwidth if math.isfinite(request.bandwidth) else 1.0
    times = schedule({0: bandwidth}, request.horizon, method_of(request))
    expected_value(times, request.objective.take(slice(0, 1)), one)
