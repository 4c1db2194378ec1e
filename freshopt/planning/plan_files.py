"""Atomic folder of a plan: tables, summary and page."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.estimators.estimator import Estimator
from freshopt.formatting import finite
from freshopt.frames import polars_table
from freshopt.heavy import polars
from freshopt.logs.atomic_output import complete_folder
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.tables import with_unit, write_table
from freshopt.modelling.expected import Expected
from freshopt.modelling.fetches.conditional_fetches import with_numerics
from freshopt.modelling.objective import Refresh
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import plain
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.noisy_signals.with_signals import called, follows_signals, stale_with_signals
from freshopt.numerics.arrays import Array, is_scalar, total
from freshopt.planning.declared import constraint_facts, discipline_of, row_table
from freshopt.planning.findings import interval_facts, moved_facts
from freshopt.planning.good_phases import phase_savings
from freshopt.planning.plan_steps import method_refresh
from freshopt.planning.uncertainty import PlanUncertainty, told
from freshopt.problems.binary_freshness import BinaryFreshness, freshness_like
from freshopt.questions.bandwidth_for import BandwidthFor
from freshopt.questions.promises import fresh_within
from freshopt.questions.rate_changes import attempted
from freshopt.questions.todays_crawls import needed_facts
from freshopt.report.context import SUMMARY, Context, Facts
from freshopt.report.document import Page
from freshopt.report.page import PAGE, write_report
from freshopt.report.value_words import FetchWords, units

if TYPE_CHECKING:
    from freshopt.planning.plan import Plan

TABLES = ("change_rates", "rates", "schedule")
# What a plan in partitions does not have: what each source costs, for the page.
PER_SOURCE = "per_source"
# Tables that only plans with declared constraints, beside earlier rates, with a back-test or signals have.
CONSTRAINTS, CHANGES, HELD_OUT = "constraints", "changes", "held_out"
# Rules of crawls that follow signals: of freshness, of age, and of other objectives.
THRESHOLDS, AGES, WAITS = "thresholds", "ages", "waits"
FILES = (
    "summary.json",
    "plan.toml",
    PAGE,
    *(
        f"{table}{ending}"
        for table in (*TABLES, PER_SOURCE, CONSTRAINTS, CHANGES, HELD_OUT, THRESHOLDS, AGES, WAITS)
        for ending in (".csv", ".parquet")
    ),
)


class Solved:
    """A plan of any kind: what its solution and its log tell."""

    __slots__ = ()
    log: CrawlLog
    estimate: Estimator
    solution: Solution
    needed: BandwidthFor | None
    warnings: tuple[str, ...]

    @property
    def problem(self) -> Problem:
        """The problem that was solved."""
        return self.solution.problem

    @property
    def sources(self) -> Sources:
        """The log's sources with their estimated rates."""
        return self.solution.problem.sources

    @property
    def rates(self) -> Array:
        """Refreshes per time unit of each source, shape (n,)."""
        return self.solution.rates

    @property
    def library(self) -> str:
        """The library of dataframes made from the plan, that of the log."""
        return self.log.library

    def tables(self) -> dict[str, polars.DataFrame]:
        """Return the tables that are written, by name."""
        raise NotImplementedError

    def summary(self) -> dict[str, Any]:
        """Return the plan in numbers, as ``summary.json`` has it."""
        raise NotImplementedError

    def report(self) -> Page:
        """Return the plan's page as HTML.

        A notebook shows it; ``write`` has it as ``report.html``.
        """
        with tempfile.TemporaryDirectory() as folder:
            write_files(self, Path(folder))
            return Page((Path(folder) / PAGE).read_text(encoding="utf-8"))

    def _repr_html_(self) -> str:
        """Return the page for a notebook."""
        return self.report()._repr_html_()


def tables(plan: Plan) -> dict[str, polars.DataFrame]:
    """Return the plan's tables: change_rates, rates, schedule, per_source, and others if any."""
    rows, log = row_table(plan.solution), plan.log
    rule = (
        None if plan.signals is None else plan.signals.to_frame(plan.solution, log, plan.request.confidence)
    )
    return {
        "change_rates": change_rates(plan.estimate, plan.lower, plan.upper, plan.sources, _success(plan)),
        "rates": with_unit(polars_table(plan.solution), plan.log.time_unit),
        "schedule": polars_table(plan.schedule),
        PER_SOURCE: per_source(plan.solution, plan.log if plan.crawled else None),
        **({} if rows is None else {CONSTRAINTS: rows.to_frame()}),
        **({} if plan.changes is None else {CHANGES: with_unit(plan.changes.to_frame(), log.time_unit)}),
        **({} if rule is None else {_rule_table(rule): with_unit(rule, log.time_unit)}),
    }


def _rule_table(rule: polars.DataFrame) -> str:
    return next(table for table in (THRESHOLDS, AGES, WAITS) if table[:-1] in rule.columns)


def source_table(plan: Plan) -> polars.DataFrame:
    """Return what is known and planned of each source, a row each."""
    made = tables(plan)
    known = [name for name in made["rates"].columns if name not in made["change_rates"].columns]
    times = (
        made["schedule"]
        .group_by("source")
        .agg(
            refreshes=polars.len(),
            next_refresh=polars.col("timestamp" if "timestamp" in made["schedule"].columns else "time").min(),
        )
    )
    table = polars.concat(
        [made["change_rates"], made["rates"].select(known), made[PER_SOURCE].drop("source")], how="horizontal"
    )
    return table.join(times, on="source", how="left", maintain_order="left").with_columns(
        polars.col("refreshes").fill_null(0)
    )


def stale_shares(solution: Solution) -> Array | None:
    """Return each copy's stale share of time, shape (n,).

    On request it is that of requests. None where signals promise every change, for which there is no such
    formula here.
    """
    problem = solution.problem
    sources, refresh = problem.sources, discipline_of(problem)
    if refresh is Refresh.ON_SIGNAL or bool(np.any(sources.signalled)):
        return None
    own = plain(problem.objective)
    if follows_signals(own):
        return stale_with_signals(own, solution.rates, sources)
    alike = Sources(
        sources.change_rate,
        1.0,
        time_unit=sources.time_unit,
        success=sources.success,
        request_rate=sources.request_rate,
        stale_while_revalidate=sources.stale_while_revalidate,
    )
    numerics = numerics_of(freshness_like(own, refresh), alike)[0]
    assert numerics is not None, "every cell has a kernel"
    cost = numerics.cost(solution.rates)
    saved = phase_savings(problem, solution.rates, alike, BinaryFreshness(Refresh.PERIODIC))
    return np.asarray(np.clip(cost - saved, 0.0, 1.0))


def per_source(solution: Solution, log: CrawlLog | None) -> polars.DataFrame:
    """Return the table per_source: costs, and crawls of the log.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.5, 2.0], importance=[1.0, 3.0])
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> frame = per_source(fo.solve(fo.Problem(objective, sources, bandwidth=3.0)), None)
    >>> frame.columns, frame["fresh"].round(3).to_list()
    (['source', 'cost', 'fresh'], [0.594, 0.531])
    """
    rates, (own, variable) = solution.rates, with_numerics(solution.problem, solution.rates)
    names = solution.problem.sources.names
    columns = {"source": polars.Series(np.arange(len(rates)) if names is None else names.tolist())}
    if log is not None:
        crawled = attempted(log.crawl_rate, log, solution.problem.sources.failing, slice(None))
        columns["crawl_rate"] = polars.Series(crawled).fill_nan(None)
    if own.numerics is not None:
        cost = np.asarray(own.numerics.cost(variable), dtype=np.float64)
        columns["cost"] = polars.Series(np.where(np.isfinite(cost), cost, np.nan)).fill_nan(None)
    stale = stale_shares(solution)
    if stale is not None:
        columns["fresh"] = polars.Series(1.0 - stale)
    return polars.DataFrame(columns)


def change_rates(
    estimate: Estimator, lower: Array, upper: Array, sources: Sources, success: Array | None = None
) -> polars.DataFrame:
    """Return the table change_rates, one row per source."""
    columns = {
        "source": estimate.sources_.tolist(),
        "change_rate": estimate.change_rate_,
        "lower": lower,
        "upper": upper,
        "flag": estimate.flag_,
    }
    if not is_scalar(sources.importance):
        columns["importance"] = sources.importance
    if success is not None:
        columns["success"] = success
    if sources.changed_cost is not None:
        columns["changed_cost"] = sources.changed_cost
    if sources.host is not None:
        columns["host"] = sources.host.tolist()
    return with_unit(polars.DataFrame(columns), estimate.time_unit_)


def moment_made() -> str:
    """Return the moment of now, as a summary has it."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def summary(plan: Plan) -> dict[str, Any]:
    """Return the plan in numbers, as it is written to summary.json.

    What the console begins with comes first.
    """
    solution, log, problem = plan.solution, plan.log, plan.problem
    failing, changed = _success_facts(plan), _changed_cost_facts(solution)
    objective = called(plain(problem.objective))
    today = None if plan.today is None else plan.today.facts()
    return {
        "saving": None if today is None else today["saving"],
        "fresh": (plan.findings.get("fresh") or {}).get("plan"),
        **solved_facts(plan),
        "units": units(type(objective).__name__, log.time_unit, FetchWords.of(failing | changed)),
        "made": moment_made(),
        "log": _span(plan),
        "horizon": plan.schedule.horizon,
        "schedule_value": finite(plan.schedule_value),
        "oldest_copies": _oldest(plan),
        "baselines": plan.baselines,
        "solver": str(solution.solver),
        "method": plan.schedule.method,
        "uncertainty": None if plan.uncertainty is None else _uncertainty(plan.uncertainty),
        "forecast": None if plan.forecast is None else plan.forecast.facts(),
        "phases": None if plan.phases is None else plan.phases.facts(),
        "today": today,
        **({} if plan.signals is None else {"signals": plan.signals.facts()}),
        **({} if plan.features is None else {"features": plan.features.facts()}),
        **({"promises": [each.facts() for each in plan.promises]} if plan.promises else {}),
        **_within_hours(plan),
        "changes": None if plan.changes is None else plan.changes.facts(),
        "few_changes": None if plan.few is None else plan.few.facts(),
        "intervals": interval_facts(solution.rates, log.names, plan.estimate.flag_),
        "moved": _moved(plan) if plan.crawled else None,
        "findings": plan.findings,
        "constraints": constraint_facts(solution),
        "settings": plan.request.told() | _no_draws(plan),
        "counts": {
            "sources": len(log.names),
            "crawls": len(log),
            "crawls_that_found_a_change": int(np.count_nonzero(log.changed)),
            "refreshes": len(plan.schedule),
            "never_refreshed": int(np.count_nonzero(solution.rates == 0.0)),
            "at_min_rate": int(np.count_nonzero((solution.rates <= problem.lower) & (problem.lower > 0.0))),
            "at_max_rate": int(np.count_nonzero((solution.rates >= problem.upper) & (solution.rates > 0.0))),
            "flags": flag_counts(plan.estimate),
        },
        **failing,
        **changed,
        "seconds": {step: round(seconds, 6) for step, seconds in plan.seconds.items()},
    }


def solved_facts(made: Solved) -> dict[str, Any]:
    """Return what plans of all kinds tell of their solution, in numbers."""
    solution, sources = made.solution, made.sources
    problem, proof = solution.problem, solution.certificate
    objective = called(plain(problem.objective))
    return {
        "bandwidth": finite(problem.bandwidth),
        "bandwidth_used": solution.bandwidth_used,
        "n": len(sources),
        "time_unit": made.log.time_unit,
        "status": solution.status.value,
        "warnings": list(made.warnings),
        "objective": type(objective).__name__,
        "sense": objective.sense,
        "discipline": discipline_of(problem).value,
        "value": solution.value,
        "bound": proof.bound if proof else None,
        "gap": finite(proof.gap) if proof else None,
        **({"reason": proof.reason} if proof and proof.reason else {}),
        "relative_gap": finite(proof.relative_gap) if proof else None,
        "price": finite(solution.price),
        "needed": None if made.needed is None else needed_facts(made.needed),
        "change_rate": {
            "sum": total(sources.change_rate),
            "median": float(np.median(sources.change_rate)),
            "estimator": repr(made.estimate),
        },
        "versions": versions("freshopt", "numpy", "scipy", "polars"),
    }


def flag_counts(estimate: Estimator) -> dict[str, int]:
    """Return how many sources have each flag."""
    flags, counts = np.unique(estimate.flag_, return_counts=True)
    return dict(zip(flags.tolist(), counts.tolist(), strict=True))


def told_of(plan: Plan, more: Mapping[str, Any] | None = None) -> Context:
    """Return the facts of a plan, as its folder would have them."""
    return Context.of(Facts(Path(SUMMARY), summary(plan) | dict(more or {})))


def _success(plan: Plan) -> Array | None:
    """Return the chances of success, or None where no fetch fails."""
    request = plan.request
    if not request.retry_at_once or request.success is None:
        return plan.sources.failing
    chance = np.asarray(request.success(plan.log.names), dtype=np.float64)
    return chance if bool(np.any(chance < 1.0)) else None


def _success_facts(plan: Plan) -> dict[str, Any]:
    """Return the least and the mean chance of success, if fetches fail."""
    chance = _success(plan)
    if chance is None:
        return {}
    least, mean = np.min(chance).item(), np.mean(chance).item()
    return {"success": {"least": least, "mean": mean, "retry_at_once": plan.request.retry_at_once}}


def _changed_cost_facts(solution: Solution) -> dict[str, Any]:
    """Return what asking and downloads use, if fetches cost what they bring."""
    sources, rates = solution.problem.sources, solution.rates
    if sources.changed_cost is None:
        return {}
    asking, used = total(sources.refresh_cost * rates), total(solution.problem.used_by_source(rates))
    return {
        "changed_cost": {
            "mean": float(np.mean(sources.changed_cost)),
            "fetches": total(rates),
            "asking": asking,
            "downloads": max(used - asking, 0.0),
        }
    }


def _moved(plan: Plan) -> dict[str, Any] | None:
    """Return which rates differ from the log's, attempts beside attempts."""
    log, failing = plan.log, plan.solution.problem.sources.failing
    crawled = attempted(log.crawl_rate, log, failing, slice(None))
    return moved_facts(plan.solution.rates, crawled, log.names)


def _no_draws(plan: Plan) -> dict[str, int]:
    """Return that nothing was drawn, where constraints or objective are why."""
    problem = plan.problem
    declared = problem.program is not None or isinstance(plan.request.objective, Expected)
    declared = declared or problem.per_bandwidth is not None
    return {"draws": 0} if plan.uncertainty is None and declared else {}


def _within_hours(plan: Plan) -> dict[str, Any]:
    """Return the hours of fetches, and the freshness within them."""
    hours, sources = plan.request.hours, plan.problem.sources
    if hours is None:
        return {}
    weight = sources.column("importance")
    if plan.findings.get("fresh") is None or not total(weight) > 0.0:
        return {"hours": hours.words}
    success = np.ones(len(sources)) if sources.success is None else sources.success
    given = plan.solution.rates, sources.change_rate, success, method_refresh(plan.request), sources.time_unit
    return {
        "hours": hours.words,
        "fresh_within_hours": total(weight * fresh_within(hours, *given)) / total(weight),
    }


def _span(plan: Plan) -> dict[str, Any]:
    """Return when the log begins and ends, and its crawls."""
    log = plan.log
    begin, end = _when(log, float(np.min(log.time))), _when(log, log.end)
    return {"begin": begin, "end": end, "timed": log.timed, "crawled": plan.crawled}


def _oldest(plan: Plan) -> dict[str, Any]:
    """Return how many copies are older than the horizon, and the oldest."""
    ages = plan.log.age
    beyond = int(np.count_nonzero(ages > plan.schedule.horizon))
    return {"beyond_horizon": beyond, "age": float(np.max(ages))}


def _when(log: CrawlLog, time: float) -> str | float:
    """Return a time in ISO 8601, or as a number without dates."""
    at = log.clock.date(time)
    return time if at is None else at.isoformat()


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of packages."""
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def _uncertainty(found: PlanUncertainty) -> dict[str, Any]:
    """Return what the uncertainty of the change rates costs, in numbers."""
    return {
        "draws": len(found.planned),
        "value_90_percent": list(told(found.value_interval(0.9), found.limits)),
        "mean_regret": float(np.mean(found.regret)),
        "largest_regret": float(np.max(found.regret)),
        "mean_optimal_value": float(np.mean(found.optimal)),
        "relative_regret": finite(found.relative_regret),
    }


def write_plan(
    plan: Plan, folder: str | os.PathLike[str], *, csv: bool = False, overwrite: bool = False
) -> list[str]:
    """Write a plan into a folder, all of it or nothing."""
    with complete_folder(folder, overwrite, files=FILES) as staging:
        return write_files(plan, staging, csv=csv)


def write_files(
    made: Solved,
    folder: Path,
    *,
    csv: bool = False,
    more: Mapping[str, Any] | None = None,
    held_out: polars.DataFrame | None = None,
) -> list[str]:
    """Write a plan's files into an existing folder; return their names.

    `more` is added to the summary; `held_out` is what each source cost in a back-test.

    The page is made of the other files alone, so that `freshopt.report.write_report` can make it again.
    """
    ending = ".csv" if csv else ".parquet"
    frames = made.tables() | ({} if held_out is None else {HELD_OUT: held_out})
    for name, frame in frames.items():
        write_table(frame, folder / f"{name}{ending}")
    text = json.dumps(made.summary() | dict(more or {}), indent=2, allow_nan=False)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8", newline="\n")
    write_report(folder)
    return [*(f"{name}{ending}" for name in frames), "summary.json", PAGE]
