"""From logs of fetches and of requests to certified lifetimes.

Copies that are refreshed on request have no schedule: the first request after a lifetime refreshes. A plan of
them is made as one of refresh times is, of change rates that are estimated from what fetches found, and of
how often each source is requested. All values are what requests see.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import SolveOptions
from freshopt.errors import SourceDataError, by_weight, expect, hearing
from freshopt.estimators.estimator import Estimator
from freshopt.formatting import aligned
from freshopt.frames import framed, polars_table
from freshopt.heavy import polars
from freshopt.logs.atomic_output import complete_folder
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_events import read_requests, requests_of
from freshopt.logs.tables import with_unit
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.planning.findings import frontier_of, time_fresh
from freshopt.planning.plan_files import (
    Solved,
    change_rates,
    flag_counts,
    per_source,
    solved_facts,
    write_files,
)
from freshopt.planning.plan_steps import TOLERANCE, doubt_extremes, learn, problem_asked
from freshopt.planning.request import Log, as_crawl_log
from freshopt.planning.wishes import LifetimeWishes, Wishes, taking
from freshopt.questions.bandwidth_for import BandwidthFor
from freshopt.report.context import SUMMARY, Context, Facts
from freshopt.report.page import PAGE, findings
from freshopt.solvers.lifetime_rule import LifetimeRule
from freshopt.solving import solve
from freshopt.tools.export import Exported, export
from freshopt.tools.table import LIFETIMES
from freshopt.tools.whole_seconds import LifetimeFormat

# What people give caches by hand, by the names that a summary has for it.
RULES = {
    "one lifetime for all": LifetimeRule(),
    "lifetimes in proportion to 1/change rate": LifetimeRule(1.0),
}
TABLES = ("change_rates", "lifetimes", "per_source")
FILES = (
    PAGE,
    *("summary.json", "lifetimes.toml", "plan.toml"),
    *(f"{table}{ending}" for table in TABLES for ending in (".csv", ".parquet")),
    *(each.file for each in LIFETIMES.values()),
)


@frozen_value(repr=False)
class LifetimePlan(Solved):
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

    Examples
    --------
    >>> import freshopt as fo
    >>> log = fo.CrawlLog(["a", "a", "b", "b"], [0.0, 2.0, 0.0, 1.0], [0, 1, 0, 1])
    >>> made = fo.plan_lifetimes(log, {"a": 20.0, "b": 3.0}, bandwidth=1.0)
    >>> made.solution.status.value
    'optimal'
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

    @framed
    def to_frame(self) -> polars.DataFrame:
        """Return a dataframe with rates, lifetime and cost of each source.

        It is of polars, or of the library of the dataframe that was planned from.
        """
        known, *others = self.tables().values()
        return known.hstack([each for table in others for each in table if each.name not in known.columns])

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

    def summary(self) -> dict[str, Any]:
        """Return the plan in numbers, as ``summary.json`` has it.

        First the shares of requests that find a fresh copy, ``bandwidth``, ``bandwidth_used`` and ``n``, how
        many sources there are; then status, warnings and the value with its proof, and all else.
        """
        life, asked = self.solution.lifetimes, self.sources.asked
        return {
            "requests_see_fresh": self.fresh(),
            **solved_facts(self),
            "lifetimes": self._spread(),
            "baselines": {name: each.value for name, each in self.rules.items()},
            "findings": {
                "importance": total(self.sources.column("importance")),
                "frontier": list(self.frontier),
            },
            "request_rate": total(asked),
            "stale_while_revalidate": self._windows(),
            "counts": {
                "sources": len(self.sources),
                "fetches": len(self.log),
                "fetches_that_found_a_change": int(np.count_nonzero(self.log.changed)),
                "never_fetched": int(np.count_nonzero(np.isinf(life))),
                "fetched_at_each_request": int(np.count_nonzero(life == 0.0)),
                "flags": flag_counts(self.estimate),
            },
            "settings": self.request.told(LifetimeWishes.__annotations__),
            "seconds": round(self.seconds, 6),
        }

    def facts(self) -> dict[str, Any]:
        """Return the plan in numbers, as `summary` does."""
        return self.summary()

    def _spread(self) -> dict[str, float] | None:
        """Return the shortest, median and longest finite lifetime."""
        life = self.solution.lifetimes
        known = life[(life > 0.0) & np.isfinite(life)]
        keys = ("shortest", "median", "longest")
        ends = np.quantile(known, [0.0, 0.5, 1.0]).tolist() if len(known) else []
        return dict(zip(keys, ends, strict=True)) if ends else None

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
        told = Context.of(Facts(Path(SUMMARY), self.summary()))
        return [row for each in findings(told, read=read or "") for row in each.rows()]

    def tables(self) -> dict[str, polars.DataFrame]:
        """Return the tables change_rates, with the request rates, lifetimes and per_source."""
        learnt = change_rates(self.estimate, self.lower, self.upper, self.sources)
        return {
            "change_rates": learnt.with_columns(request_rate=np.array(self.sources.asked)),
            "lifetimes": with_unit(polars_table(self.solution), self.log.time_unit),
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
            names = write_files(self, staging, csv=csv, more=more)
            if target is not None:
                done = export(self.solution, target, staging / target.file)
                names.append(target.file)
        return names, done

    def __repr__(self) -> str:
        return "\n".join(f"{label}  {text}" for label, text in aligned(self.rows()))


@taking(LifetimeWishes)
def plan_lifetimes(
    log: Log,
    requests: Any,  # noqa: ANN401 - whatever names sources
    bandwidth: float | str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
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
    bandwidth : float or str, optional
        Total fetches per time unit, or with its unit, such as "200/day". By default what `freshness` needs,
        or as many as the log has.
    freshness : float or str, optional
        Share of requests that are to find a fresh copy, such as "99%", by importance, with the least fetches.
    objective : Objective or str, optional
        By default ``HarmonicStaleness(Refresh.ON_REQUEST)``; for a freshness ``BinaryFreshness`` alone.
    importance, hosts, host_limits, estimator, confidence, columns, time_unit : optional
        As `fo.plan` takes them. Importances are the request rates by default.
    min_interval, max_interval, limits, min_rate, max_rate : optional
        As `fo.plan` takes them.
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
    crawls, known = as_crawl_log(log, time_unit, columns)
    if isinstance(requests, str | os.PathLike):
        requests = requests_of(read_requests(requests, time_unit=crawls.time_unit), crawls.names.tolist())
    asked = {"bandwidth": bandwidth, "requests": requests, **wishes}
    request = Wishes.of(crawls, asked, LifetimeWishes)
    with hearing() as heard, request.bounded():
        doubt_extremes(crawls)
        estimate, lower, upper, sources = learn(crawls, request)
        problem, request, needed = problem_asked(request, sources, crawls if known is None else None)
    solution = solve(problem, tolerance=TOLERANCE)
    rules = {name: rule.solve(problem, SolveOptions(certify=False)) for name, rule in RULES.items()}
    frontier = tuple(frontier_of(solution))
    seconds = time.perf_counter() - begin
    told = by_weight([*crawls.warnings, *heard])
    found = crawls, estimate, lower, upper, solution, rules, frontier, needed, request, seconds
    return LifetimePlan(*found, told)
