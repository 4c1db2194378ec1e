"""`PipelinePlan`: rates of a pipeline, freshness of its nodes, and proof."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.errors import SourceDataError, list_offenders
from freshopt.formatting import count, finite, number, percent
from freshopt.heavy import polars
from freshopt.logs.tables import with_unit, write_table
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.pipelines.after_parents import AfterParents, aligned_freshness, aligned_problem
from freshopt.pipelines.node_table import node_freshness
from freshopt.pipelines.pipeline import Pipeline
from freshopt.planning.plan_files import versions
from freshopt.problems import AccumulatedDelay, BinaryFreshness, LogFreshness
from freshopt.report.value_words import goal_of, meaning, price_text, proved_text, spread
from freshopt.solving import solve
from freshopt.units import rate_text

OBJECTIVES = {"log-freshness": LogFreshness, "delay": AccumulatedDelay, "binary": BinaryFreshness}
TABLES = ("rates", "nodes")
FILES = (
    "summary.json",
    *(f"{table}{ending}" for table in TABLES for ending in (".csv", ".parquet")),
    "jobs/selectors.yml",
    "jobs/crontab",
)
MEANS = "a copy is fresh while no root upstream has changed since it was read, through all copies in between"
# Above so many nodes what is a lower bound is not simulated beside it.
SIMULATED = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class PipelinePlan:
    """Rates of a pipeline's sources, and the freshness of its nodes.

    - `solution`: Certified rates, before they are rounded to a ladder.
    - `rates` (m,): Of the pipeline's sources; on a ladder if aligned.
    - `fresh` (n,)
    - `exact` (n,): Whether `fresh` is exact, or else a lower bound.
    - `simulated`: Mean freshness by importance, where `fresh` is a lower bound.
    """

    line: Pipeline
    solution: Solution
    rates: Array
    fresh: Array
    exact: BoolArray
    aligned: bool
    simulated: float | None

    def mean(self, fresh: Array) -> float:
        """Return the mean by importance."""
        weight = self.line.importance
        return float(weight @ fresh) / float(weight.sum())

    def one_cron(self) -> float:
        """Return the mean freshness of one cron for all nodes, parents first."""
        cost = self.line.sources.refresh_cost
        equal = np.full(len(cost), self.solution.problem.bandwidth / float(cost.sum()))
        return self.mean(aligned_freshness(self.line, equal))

    def facts(self) -> dict[str, Any]:
        """Return the plan in numbers, as it is written to summary.json."""
        line, solution = self.line, self.solution
        problem, proof = solution.problem, solution.certificate
        return {
            "objective": type(problem.objective).__name__,
            "sense": problem.objective.sense,
            "phases": "aligned" if self.aligned else "independent",
            "time_unit": line.sources.time_unit,
            "bandwidth": problem.bandwidth,
            "bandwidth_used": float(line.sources.refresh_cost @ self.rates),
            "status": solution.status.value,
            "value": solution.value,
            "bound": proof.bound if proof else None,
            "relative_gap": finite(proof.relative_gap) if proof else None,
            "price": finite(solution.price),
            "fresh": self.mean(self.fresh),
            "fresh_simulated": self.simulated,
            "fresh_with_one_cron": self.one_cron(),
            "counts": {
                "nodes": len(line),
                "changing_roots": len(line.roots),
                "refreshed": len(line.sources),
                "views": int(line.view.sum()),
                "lower_bounds": int(np.sum(~self.exact)),
                "never_refreshed": int(np.sum(self.rates == 0.0)),
            },
            "versions": versions("freshopt", "numpy", "scipy", "polars"),
        }

    def rows(self, read: str, what: str) -> list[tuple[str, str]]:
        """Return what a newcomer should read of the plan, in labelled rows.

        `read` is the graph's name, `what` a unit of the bandwidth.
        """
        facts, line, unit = self.facts(), self.line, self.line.sources.time_unit
        counts, kind = facts["counts"], facts["objective"]
        changes = rate_text(float(line.root_rate.sum()), unit, "change")
        better = "higher" if facts["sense"] == "maximise" else "lower"
        used, most = number(facts["bandwidth_used"]), count(facts["bandwidth"], what)
        phases = "each node right after its parents" if self.aligned else "phases independent"
        never = count(counts["never_refreshed"], "node")
        own, cron = (percent(facts[key], space=" ") for key in ("fresh", "fresh_with_one_cron"))
        least = "" if self.simulated is None else "at least "
        price = price_text(
            kind,
            self.solution.price,
            facts["bandwidth"],
            facts["value"],
            unit,
            maximised=better == "higher",
            fetch=what,
        )
        proof, words = self.solution.certificate, "none"
        if proof is not None:
            words = proved_text(facts["status"], proof.gap, facts["relative_gap"], proof.reason)
        return [
            (
                "pipeline",
                f"{read}: {count(len(line), 'node')}, {count(counts['changing_roots'], 'changing root')}, "
                f"{counts['refreshed']:,} refreshed, {count(counts['views'], 'view')}; {changes} in all",
            ),
            ("objective", f"{kind} ({better} is better): {meaning(kind)}; {phases}"),
            ("bandwidth", f"{used} of {most} per {unit} used"),
            ("intervals", f"{spread(self.rates, unit)}; {never} never refreshed"),
            *self._idle(),
            ("fresh", f"{least}{own} of the time, by importance; one cron for all {cron}"),
            ("formula", self._formula(counts["lower_bounds"])),
            ("value", f"{goal_of(kind).noun} {number(facts['value'])} before periods are rounded")
            if self.aligned
            else ("value", f"{goal_of(kind).noun} {number(facts['value'])}"),
            ("shadow price", price),
            ("certificate", words),
            ("meaning", MEANS),
        ]

    def _idle(self) -> list[tuple[str, str]]:
        """Return the nodes of which nothing important is made."""
        idle = (self.rates == 0.0) & (self.line.sources.importance == 0.0)
        names = [name for name, some in zip(self.line.source_names, idle.tolist(), strict=True) if some]
        if not names:
            return []
        return [
            ("unused", f"{list_offenders(names)}: no node of importance is made of them; see --importance")
        ]

    def _formula(self, bounds: int) -> str:
        if not bounds:
            return "exact for all nodes"
        told = f"exact, but a lower bound for {bounds:,} of {count(len(self.line), 'node')}"
        if self.simulated is None:
            return told
        return f"{told}, whose branches share roots; simulated {percent(self.simulated, space=' ')}"

    def write(self, folder: Path, *, csv: bool, more: Mapping[str, Any]) -> list[str]:
        """Write tables and summary into an existing folder; return their names."""
        line, ending = self.line, ".csv" if csv else ".parquet"
        unit, own = line.sources.time_unit, line.sources
        with np.errstate(divide="ignore"):
            interval = np.where(self.rates > 0.0, 1.0 / self.rates, np.nan)
        rates = polars.DataFrame(
            {
                "source": line.source_names,
                "rate": self.rates,
                "interval": polars.Series(interval).fill_nan(None),
                "change_rate": own.change_rate,
                "importance": own.importance,
                "refresh_cost": own.refresh_cost,
            }
        )
        whole = np.full(len(line), np.nan)
        whole[line.position] = self.rates
        kinds = np.where(line.view, "view", "copy")
        kinds[np.diff(line.graph.first) == 0] = "root"
        nodes = polars.DataFrame(
            {
                "node": line.names.tolist(),
                "kind": kinds.tolist(),
                "change_rate": line.change_rate,
                "importance": line.importance,
                "rate": polars.Series(whole).fill_nan(None),
                "fresh": self.fresh,
                "formula": np.where(self.exact, "exact", "lower bound").tolist(),
            }
        )
        for name, frame in zip(TABLES, (rates, nodes), strict=True):
            write_table(with_unit(frame, unit), folder / f"{name}{ending}")
        text = json.dumps(self.facts() | dict(more), indent=2, allow_nan=False)
        (folder / "summary.json").write_text(text + "\n", encoding="utf-8", newline="\n")
        return [*(f"{name}{ending}" for name in TABLES), "summary.json"]


def plan_pipeline(
    line: Pipeline, bandwidth: float, objective: str, *, aligned: bool, periods: tuple[float, ...] | None
) -> PipelinePlan:
    """Solve a pipeline, and predict how fresh its nodes are."""
    goal = OBJECTIVES[objective](Refresh.PERIODIC)
    if not line.importance.any():
        raise SourceDataError(
            "no node of the graph has importance, so that none need be fresh. Give one a number > 0."
        )
    if aligned:
        solution = solve(aligned_problem(line, goal, bandwidth))
        rates = AfterParents(line, periods).rates(line.rates_of(solution))
        fresh = aligned_freshness(line, rates)
        return PipelinePlan(line, solution, rates, fresh, np.ones(len(line), dtype=np.bool_), aligned, None)
    if isinstance(goal, BinaryFreshness):
        raise click.UsageError(
            "--objective binary is for --phases aligned: at independent phases a share of time is a product "
            "along the pipeline. Use log-freshness, or delay."
        )
    solution = solve(Problem(goal, line.sources, bandwidth))
    rates = np.array(solution.rates)
    fresh, exact, simulated = line.freshness(rates, Refresh.PERIODIC), line.exact, None
    if not exact.all() and len(line) <= SIMULATED:
        found = node_freshness(line, rates, Refresh.PERIODIC)
        simulated = float(line.importance @ found.sampled) / float(line.importance.sum())
    return PipelinePlan(line, solution, rates, fresh, exact, aligned, simulated)
