"""Atomic folder of a plan: tables, summary and page."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.estimators.estimator import Estimator
from freshopt.io.atomic_output import complete_folder
from freshopt.io.tables import with_unit, write_table
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.expected import Expected
from freshopt.modelling.phased_objective import plain
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, is_scalar, total
from freshopt.planning.declared import constraint_facts, discipline_of, row_table
from freshopt.planning.request import PlanRequest
from freshopt.planning.uncertainty import PlanUncertainty
from freshopt.report.page import PAGE, write_report
from freshopt.units import SECONDS

if TYPE_CHECKING:
    import polars

    from freshopt.planning.plan import Plan

TABLES = ("change_rates", "rates", "schedule")
# A table that only plans with declared constraints have.
CONSTRAINTS = "constraints"
FILES = (
    "summary.json",
    PAGE,
    *(f"{table}{ending}" for table in (*TABLES, CONSTRAINTS) for ending in (".csv", ".parquet")),
)


def tables(plan: Plan) -> dict[str, polars.DataFrame]:
    """Return the plan's tables: change_rates, rates, schedule, and constraints if any."""
    rows = row_table(plan.solution)
    return {
        "change_rates": change_rates(plan.estimate, plan.lower, plan.upper, plan.solution.problem.sources),
        "rates": with_unit(plan.solution.to_frame(), plan.log.time_unit),
        "schedule": plan.schedule.to_frame(),
        **({} if rows is None else {CONSTRAINTS: rows.to_frame()}),
    }


def moment(log: CrawlLog, time: float) -> datetime | None:
    """Return a time as a moment, if the log has dates.

    The time is on the log's clock.
    """
    return None if log.origin is None else log.origin + timedelta(seconds=time * SECONDS[log.time_unit])


def change_rates(estimate: Estimator, lower: Array, upper: Array, sources: Sources) -> polars.DataFrame:
    """Return the table change_rates, one row per source.

    It has what is known of each source; importance and host where they differ.
    """
    import polars

    columns = {
        "source": estimate.sources_.tolist(),
        "change_rate": estimate.change_rate_,
        "lower": lower,
        "upper": upper,
        "flag": estimate.flag_,
    }
    if not is_scalar(sources.importance):
        columns["importance"] = sources.importance
    if sources.host is not None:
        columns["host"] = sources.host.tolist()
    return with_unit(polars.DataFrame(columns), estimate.time_unit_)


def summary(plan: Plan) -> dict[str, Any]:
    """Return the plan in numbers, as it is written to summary.json."""
    solution, log = plan.solution, plan.log
    problem, proof, sources = solution.problem, solution.certificate, solution.problem.sources
    objective = plain(problem.objective)
    flags, counts = np.unique(plan.estimate.flag_, return_counts=True)
    return {
        "objective": type(objective).__name__,
        "sense": objective.sense,
        "discipline": discipline_of(problem).value,
        "time_unit": log.time_unit,
        "log": {"begin": _when(log, float(np.min(log.time))), "end": _when(log, log.end)},
        "bandwidth": problem.bandwidth if math.isfinite(problem.bandwidth) else None,
        "bandwidth_used": total(sources.refresh_cost * solution.rates),
        "horizon": plan.schedule.horizon,
        "status": solution.status.value,
        "value": solution.value,
        "bound": proof.bound if proof else None,
        "gap": proof.gap if proof else None,
        "relative_gap": proof.relative_gap if proof and math.isfinite(proof.relative_gap) else None,
        "price": solution.price if math.isfinite(solution.price) else None,
        "schedule_value": plan.schedule_value,
        "baselines": plan.baselines,
        "solver": str(solution.solver),
        "method": plan.schedule.method,
        "uncertainty": None if plan.uncertainty is None else _uncertainty(plan.uncertainty),
        "forecast": None if plan.forecast is None else plan.forecast.facts(),
        "phases": None if plan.phases is None else plan.phases.facts(),
        "findings": plan.findings,
        "constraints": constraint_facts(solution),
        "settings": settings(plan.request) | _no_draws(plan),
        "counts": {
            "sources": len(sources),
            "crawls": len(log),
            "crawls_that_found_a_change": int(np.count_nonzero(log.changed)),
            "refreshes": len(plan.schedule),
            "never_refreshed": int(np.count_nonzero(solution.rates == 0.0)),
            "at_min_rate": int(np.count_nonzero((solution.rates <= problem.lower) & (problem.lower > 0.0))),
            "at_max_rate": int(np.count_nonzero((solution.rates >= problem.upper) & (solution.rates > 0.0))),
            "flags": dict(zip(flags.tolist(), counts.tolist(), strict=True)),
        },
        "change_rate": {
            "sum": total(sources.change_rate),
            "median": float(np.median(sources.change_rate)),
            "estimator": repr(plan.estimate),
        },
        "seconds": {step: round(seconds, 6) for step, seconds in plan.seconds.items()},
        "versions": versions("freshopt", "numpy", "scipy", "polars"),
    }


def settings(request: PlanRequest) -> dict[str, Any]:
    """Return the request that nothing else in a summary tells."""
    return {
        "objective": repr(request.objective),
        "min_rate": float(request.min_rate),
        "max_rate": float(request.max_rate) if math.isfinite(request.max_rate) else None,
        "confidence": request.confidence,
        "seed": request.seed,
        "draws": request.draws,
        "load_limit": request.load_limit,
    }


def _no_draws(plan: Plan) -> dict[str, int]:
    """Return that nothing was drawn, where constraints or objective are why."""
    declared = plan.problem.program is not None or isinstance(plan.request.objective, Expected)
    return {"draws": 0} if plan.uncertainty is None and declared else {}


def _when(log: CrawlLog, time: float) -> str | float:
    """Return a time in ISO 8601, or as a number.

    It is a number where the log has no dates.
    """
    at = moment(log, time)
    return time if at is None else at.isoformat()


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of packages."""
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def _uncertainty(found: PlanUncertainty) -> dict[str, Any]:
    """Return what the uncertainty of the change rates costs, in numbers."""
    return {
        "draws": len(found.planned),
        "value_90_percent": list(found.value_interval(0.9)),
        "mean_regret": float(np.mean(found.regret)),
        "largest_regret": float(np.max(found.regret)),
        "mean_optimal_value": float(np.mean(found.optimal)),
        "relative_regret": found.relative_regret if math.isfinite(found.relative_regret) else None,
    }


def write_plan(
    plan: Plan, folder: str | os.PathLike[str], *, csv: bool = False, overwrite: bool = False
) -> list[str]:
    """Write a plan into a folder, all of it or nothing.

    Returns
    -------
    list of str
        The names of the files.

    Raises
    ------
    SourceDataError
        If the folder holds a plan and `overwrite` is false, or cannot be written.
    """
    with complete_folder(folder, overwrite, files=FILES) as staging:
        return write_files(plan, staging, csv=csv)


def write_files(
    plan: Plan, folder: Path, *, csv: bool = False, more: Mapping[str, Any] | None = None
) -> list[str]:
    """Write a plan's files into an existing folder; return their names.

    `more` is added to the summary.

    The page is made of the other files alone, so that `freshopt.report.write_report` can make it again.
    """
    ending = ".csv" if csv else ".parquet"
    made = tables(plan)
    for name, frame in made.items():
        write_table(frame, folder / f"{name}{ending}")
    text = json.dumps(summary(plan) | dict(more or {}), indent=2, allow_nan=False)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
    write_report(folder)
    return [*(f"{name}{ending}" for name in made), "summary.json", PAGE]
