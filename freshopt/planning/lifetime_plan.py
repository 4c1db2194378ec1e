"""From logs of fetches and of requests to certified lifetimes.

Copies that are refreshed on request have no schedule: the first request after a lifetime refreshes. A plan of
them is made as one of refresh times is, of change rates that are estimated from what fetches found, and of
how often each source is requested. All values are what requests see.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import SolveOptions
from freshopt.errors import SourceDataError, by_weight, expect, hearing
from freshopt.estimators.estimator import Estimator
from freshopt.formatting import aligned, count, number, percent
from freshopt.logs.atomic_output import complete_folder
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_requests import read_requests, requests_of
from freshopt.logs.tables import with_unit, write_table
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, total
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.planning.findings import frontier_of, time_fresh
from freshopt.planning.plan_files import change_rates, per_source, versions
from freshopt.planning.plan_rows import certificate_text, gap_text, spread
from freshopt.planning.plan_steps import TOLERANCE, learn
from freshopt.planning.request import Log, as_crawl_log
from freshopt.planning.wishes import LifetimeWishes, Wishes, taking
from freshopt.questions.bandwidth_for import BandwidthFor
from freshopt.questions.todays_crawls import needed_bandwidth, needed_facts
from freshopt.report.document import Page
from freshopt.report.objective_names import goal_of
from freshopt.report.page import PAGE, write_report
from freshopt.report.value_words import amount, mean_amount, meaning, price_text
from freshopt.solvers.lifetime_rule import LifetimeRule
from freshopt.solving import solve
from freshopt.tools.export import Exported, export
from freshopt.tools.table import LIFETIMES
from freshopt.tools.whole_lifetimes import LifetimeFormat
from freshopt.units import duration, per_unit, rate_text, rate_unit

if TYPE_CHECKING:
    import polars

# What people give caches by hand, by the names that a summary has for it.
RULES = {
    "one lifetime for all": LifetimeRule(),
    "lifetimes in proportion to 1/change rate": LifetimeRule(1.0),
}
TABLES = ("change_rates", "lifetimes", "per_source")
FILES = (
    PAGE,
    "summary.json",
    *(f"{table}{ending}" for table in TABLES for ending in (".csv", ".parquet")),
    *(each.file for each in LIFETIMES.values()),
)


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LifetimePlan:
    """Everything that `plan_lifetimes` found.

    Attributes
    ----------
    log : CrawlLog
        Of fetches from the origin.
    estimate : Estimator
        Fitted to the log.
    lower, upper : ndarray, shape (n,)
        Interval of each change rate.
    solution : Solution
        Certified rates, and `Solution.lifetimes`.
    rules : dict of str to Solution
        The simple rules of `RULES` at the same bandwidth.
    frontier : tuple of dict
        Value, shadow price and freshness at other bandwidths, each solved anew.
    needed : BandwidthFor or None
        The least bandwidth for the freshness that was asked for, with its proof.
    request : Wishes
        What was asked.
    seconds : float
        Time that it took.
    warnings : tuple of str
        As a `Plan` has them.
    """

    log: CrawlLog
    estimate: Estimator
    lower: Array
    upper: Array
    solution: Solution
    rules: dict[str, Solution]
    frontier: tuple[dict[str, Any], ...]
    needed: BandwidthFor | None
    request: Wishes
    seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def sources(self) -> Sources:
        """The sources with their change and request rates."""
        return self.solution.problem.sources

    def fresh(self) -> dict[str, float]:
        """Return the share of requests that see a fresh copy, by importance.

        Of the plan and of the simple rules; and "over time", the share of time that the plan's copies are
        fresh, which is another number.
        """
        problem, plan = self.solution.problem, {"plan": self.solution}
        own = self.sources
        # Copies that may be served however stale they are: what a request at any time would see.
        ageing = Sources(
            own.change_rate, own.importance, request_rate=own.asked, stale_while_revalidate=np.inf
        )
        over = Problem(problem.objective, ageing, problem.bandwidth)
        found, aged = time_fresh(problem, plan | self.rules), time_fresh(over, plan)
        return {} if found is None or aged is None else {**found, "over time": aged["plan"]}

    def facts(self) -> dict[str, Any]:
        """Return the plan in numbers, as it is written to summary.json."""
        solution, unit = self.solution, self.log.time_unit
        problem, proof = solution.problem, solution.certificate
        life, asked = solution.lifetimes, self.sources.asked
        flags, many = np.unique(self.estimate.flag_, return_counts=True)
        return {
            "objective": type(problem.objective).__name__,
            "sense": problem.objective.sense,
            "discipline": problem.objective.refresh.value,
            "time_unit": unit,
            "bandwidth": problem.bandwidth,
            "bandwidth_used": solution.bandwidth_used,
            "status": solution.status.value,
            "warnings": list(self.warnings),
            "value": solution.value,
            "bound": proof.bound if proof else None,
            "gap": proof.gap if proof and math.isfinite(proof.gap) else None,
            "relative_gap": proof.relative_gap if proof and math.isfinite(proof.relative_gap) else None,
            "price": solution.price if math.isfinite(solution.price) else None,
            "needed": None if self.needed is None else needed_facts(self.needed),
            "requests_see_fresh": self.fresh(),
            "baselines": {name: each.value for name, each in self.rules.items()},
            "findings": {
                "importance": total(self.sources.column("importance")),
                "frontier": list(self.frontier),
            },
            "request_rate": total(asked),
            "stale_while_revalidate": self._windows(),
            "change_rate": {
                "sum": total(self.sources.change_rate),
                "median": float(np.median(self.sources.change_rate)),
                "estimator": repr(self.estimate),
            },
            "counts": {
                "sources": len(self.sources),
                "fetches": len(self.log),
                "fetches_that_found_a_change": int(np.count_nonzero(self.log.changed)),
                "never_fetched": int(np.count_nonzero(np.isinf(life))),
                "fetched_at_each_request": int(np.count_nonzero(life == 0.0)),
                "flags": dict(zip(flags.tolist(), many.tolist(), strict=True)),
            },
            "settings": self.request.told(LifetimeWishes.__annotations__),
            "seconds": round(self.seconds, 6),
            "versions": versions("freshopt", "numpy", "scipy", "polars"),
        }

    def _windows(self) -> dict[str, float] | None:
        """Return the shortest and the longest window, None where there are none."""
        windows = self.sources.stale_while_revalidate
        if windows is None:
            return None
        shortest, longest = (min(float(end(windows)), LARGEST) for end in (np.min, np.max))
        return {"shortest": shortest, "longest": longest}

    def rows(self, read: str | None = None) -> list[tuple[str, str]]:
        """Return what a newcomer should read of the plan, in labelled rows.

        `read` is what was read, for the first row.
        """
        facts, solution, unit = self.facts(), self.solution, self.log.time_unit
        kind, counts, learnt = facts["objective"], facts["counts"], facts["change_rate"]
        weight = total(self.sources.column("importance"))
        noun, fresh = goal_of(kind).noun, facts["requests_see_fresh"]
        changes = rate_text(learnt["sum"], unit, "change")
        often = duration(1.0 / learnt["median"], unit)
        flags = "".join(f"; {many:,} {flag}" for flag, many in counts["flags"].items() if flag != "ok")
        with np.errstate(divide="ignore"):
            life = spread(np.where(solution.lifetimes > 0.0, 1.0 / solution.lifetimes, 0.0), unit)
        scale = rate_unit(facts["bandwidth"], unit)
        used, most = (number(per_unit(facts[key], unit, scale)) for key in ("bandwidth_used", "bandwidth"))
        size = f"{count(len(self.log), 'fetch')} of {count(len(self.sources), 'source')}"
        better = "higher" if facts["sense"] == "maximise" else "lower"
        found = [
            ("log", read or size),
            *(("warning", text) for text in self.warnings),
            (
                "change rates",
                f"{changes} in all; median source one in {often}{flags}",
            ),
            ("requests", f"{rate_text(facts['request_rate'], unit, 'request')} in all"),
            ("objective", f"{kind} ({better} is better): {meaning(kind)}; refreshed on request"),
            ("bandwidth", f"{used} of {most} fetches per {scale} used"),
            (
                "lifetimes",
                f"{life}; {count(counts['never_fetched'], 'source')} never fetched again, "
                f"{counts['fetched_at_each_request']:,} fetched at each request",
            ),
        ]
        windows = facts["stale_while_revalidate"]
        if windows is not None:
            most = duration(windows["longest"], unit)
            found.append(("expired", f"copies are served for up to {most} while they are fetched"))
        if fresh:
            own, clock = (percent(fresh[key], space=" ") for key in ("plan", "over time"))
            rules = ", ".join(f"{name} {percent(fresh[name], space=' ')}" for name in self.rules)
            found.append(("requests see", f"{own} fresh copies, by importance; {rules}"))
            found.append(("over time", f"copies are fresh {clock} of it, as they age until somebody asks"))
        if not (fresh and kind == "BinaryFreshness"):
            means = {name: mean_amount(kind, each, weight, unit) for name, each in facts["baselines"].items()}
            told = ", ".join(f"{name} {each}" for name, each in means.items() if each)
            mean = mean_amount(kind, solution.value, weight, unit) or amount(kind, solution.value, unit)
            found.append(("value", f"{noun} {mean} a request on average if the estimates are right; {told}"))
        if solution.price > 0.0:
            bandwidth, maximised = facts["bandwidth"], facts["sense"] == "maximise"
            text = price_text(
                kind, solution.price, bandwidth, solution.value, unit, maximised=maximised, fetch="fetch"
            )
            found.append(("shadow price", text))
        else:
            found.append(("shadow price", "0: more bandwidth gains nothing"))
        if self.needed is not None:
            found.append(("freshness", self.needed.sentence))
        proof = solution.certificate
        words = "none" if proof is None else certificate_text(facts["status"], gap_text(proof), kind)
        return [*found, ("certificate", words)]

    def tables(self) -> dict[str, polars.DataFrame]:
        """Return the tables change_rates, with the request rates, lifetimes and per_source."""
        learnt = change_rates(self.estimate, self.lower, self.upper, self.sources)
        return {
            "change_rates": learnt.with_columns(request_rate=np.array(self.sources.asked)),
            "lifetimes": with_unit(self.solution.to_frame(), self.log.time_unit),
            "per_source": per_source(self.solution, None),
        }

    def write(
        self,
        folder: str | os.PathLike[str],
        target: LifetimeFormat | None = None,
        *,
        csv: bool = False,
        overwrite: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> tuple[list[str], Exported | None]:
        """Write tables, summary, page and a cache's file atomically.

        Parameters
        ----------
        folder : path
            For all files, or none.
        target : LifetimeFormat, optional
            Such as ``CacheControl()``, for a file that a cache loads.
        csv : bool
            Write CSV instead of Parquet.
        overwrite : bool
            Whether an earlier plan in the folder may be replaced.
        more : mapping, optional
            Added to the summary.

        Returns
        -------
        files : list of str
        done : Exported or None
            Of the cache's file.

        Raises
        ------
        SourceDataError
            If the folder holds a plan and `overwrite` is false, cannot be written, or the format cannot hold
            a name.
        """
        done = None
        if target is not None:
            expect(target, LifetimeFormat, "target", "Pass a format of caches, such as CacheControl()")
        with complete_folder(folder, overwrite, files=FILES) as staging:
            names = self._write(staging, ".csv" if csv else ".parquet", more or {})
            if target is not None:
                done = export(self.solution, target, staging / target.file)
                names.append(target.file)
        return names, done

    def _write(self, folder: Path, ending: str, more: Mapping[str, Any]) -> list[str]:
        """Write tables, summary and page into an existing folder; return their names."""
        for table, frame in self.tables().items():
            write_table(frame, folder / f"{table}{ending}")
        text = json.dumps(self.facts() | dict(more), indent=2, allow_nan=False)
        (folder / "summary.json").write_text(text + "\n", encoding="utf-8", newline="\n")
        write_report(folder)
        return [*(f"{table}{ending}" for table in TABLES), "summary.json", PAGE]

    def report(self) -> Page:
        """Return the plan's page as HTML.

        A notebook shows it; ``write`` has it as ``report.html``.
        """
        with tempfile.TemporaryDirectory() as folder:
            self._write(Path(folder), ".parquet", {})
            return Page((Path(folder) / PAGE).read_text(encoding="utf-8"))

    def _repr_html_(self) -> str:
        """Return the page for a notebook."""
        return self.report()._repr_html_()

    def __repr__(self) -> str:
        """Return the rows."""
        return "\n".join(f"{label}  {text}" for label, text in aligned(self.rows()))


@taking(LifetimeWishes)
def plan_lifetimes(
    log: Log,
    requests: Any,  # noqa: ANN401 - whatever names sources
    bandwidth: float | str | None,
    *,
    time_unit: str | None = None,
    **wishes: Unpack[LifetimeWishes],
) -> LifetimePlan:
    """Plan the lifetimes of a cache's copies, with proof.

    Parameters
    ----------
    log : CrawlLog, ChangeHistory, path or dataframe
        What fetches from the origin found, as `fo.plan` takes it: of an access log 304 is unchanged.
    requests : path, number, mapping, dataframe, array_like or callable
        The log of who asks the cache, as `freshopt.logs.read_requests` reads it; or request rates by source,
        per time unit, given as `importance` is (a dataframe has the columns source, request_rate).
    bandwidth : float or str
        Total fetches per time unit, or with its unit, such as "200/day"; None where a freshness is given.
    freshness : float or str, optional
        Share of requests that are to find a fresh copy, such as "99%", by importance, with the least fetches.
    objective : Objective, optional
        By default ``HarmonicStaleness(Refresh.ON_REQUEST)``; for a freshness ``BinaryFreshness`` alone.
    importance, hosts, host_limits, min_rate, max_rate, estimator, confidence, time_unit : optional
        As `fo.plan` takes them. Importances are the request rates by default.
    stale_while_revalidate : str, number, mapping, dataframe, array_like or callable, optional
        How long an expired copy is served as it is while it is fetched: a time such as "30s" for all
        sources, or time units, given as `importance` is.

    Returns
    -------
    LifetimePlan
        With `solution`, ``fresh()``, ``write(folder, CacheControl())``.

    Raises
    ------
    FreshoptError
        If the logs, the bounds or the weights cannot be used.
    CertificateError
        If the rates are not proved optimal to 1e-9.

    Examples
    --------
    >>> import freshopt as fo
    >>> days, names = [0, 1, 2, 3] * 2, ["a"] * 4 + ["b"] * 4
    >>> log = fo.CrawlLog(source=names, time=days, changed=[0, 1, 1, 0, 0, 0, 0, 1])
    >>> made = fo.plan_lifetimes(log, {"a": 20.0, "b": 3.0}, bandwidth="4/day")
    >>> made.solution.status.value, made.sources.importance.tolist()
    ('optimal', [20.0, 3.0])
    """
    begin = time.perf_counter()
    if requests is None:
        raise SourceDataError(
            'requests is None. Pass the log of who asks the cache, or request rates, such as "edge.log".'
        )
    crawls, _ = as_crawl_log(log, time_unit)
    if isinstance(requests, str | os.PathLike):
        requests = requests_of(read_requests(requests, time_unit=crawls.time_unit), crawls.sources_.tolist())
    asked = {"bandwidth": bandwidth, "requests": requests, **wishes}
    request = Wishes.of(crawls, asked, LifetimeWishes)
    with hearing() as heard:
        estimate, lower, upper, sources = learn(crawls, request)
    needed = None
    if request.freshness is not None:
        needed = needed_bandwidth(request.objective, sources, request.host_limits, request.freshness, None)
        request = replace(request, bandwidth=needed.bandwidth)
    problem = Problem(request.objective, sources, request.bandwidth, request.host_limits)
    solution = solve(problem, tolerance=TOLERANCE)
    rules = {name: rule.solve(problem, SolveOptions(certify=False)) for name, rule in RULES.items()}
    frontier = tuple(frontier_of(solution))
    seconds = time.perf_counter() - begin
    told = by_weight([*crawls.warnings, *heard])
    found = crawls, estimate, lower, upper, solution, rules, frontier, needed, request, seconds
    return LifetimePlan(*found, told)
