"""From a crawl log to certified refresh rates and a schedule.

`plan` is the main job: change rates are estimated, the problem is solved and certified, its rates are
scheduled.

Each step is a public function of its own; a `Plan` keeps what they returned, so that the result can be
inspected before it is written to a folder or shown as a page. ``freshopt plan`` calls the same function.
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import SolveOptions, Solver, run_solver
from freshopt.errors import by_weight, hearing
from freshopt.estimators.estimator import Estimator
from freshopt.formatting import aligned
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.planning.declared import (
    constraints_for,
)
from freshopt.planning.findings import findings, time_fresh
from freshopt.planning.good_phases import (
    GoodPhases,
    phase_savings,
    phased_method,
    phased_problem,
)
from freshopt.planning.plan_files import write_files, write_plan
from freshopt.planning.plan_rows import plan_rows
from freshopt.planning.plan_steps import TOLERANCE as TOLERANCE
from freshopt.planning.plan_steps import at_phases_that_pay, has_uncertainty, schedule_value_of
from freshopt.planning.plan_steps import estimated_sources as estimated_sources
from freshopt.planning.plan_steps import learn as learn
from freshopt.planning.plan_steps import method_of as method_of
from freshopt.planning.plan_steps import sources_of as sources_of
from freshopt.planning.realised_ratios import ratios_or_none
from freshopt.planning.request import Log, as_crawl_log
from freshopt.planning.uncertainty import PlanUncertainty, draws_for, rate_draws, uncertainty_under
from freshopt.planning.value_forecast import ValueForecast, value_forecast
from freshopt.planning.wishes import PlanWishes, Wishes, taking
from freshopt.questions.bandwidth_for import BandwidthFor
from freshopt.questions.few_changes import FewChanges, with_few_changes
from freshopt.questions.rate_changes import RateChanges, rate_changes
from freshopt.questions.rates_in_force import old_rates
from freshopt.questions.solve_with_kinks import solve_with_kinks
from freshopt.questions.todays_crawls import TodaysCrawls, needed_bandwidth, todays_crawls
from freshopt.report.context import PROVED
from freshopt.report.document import Page
from freshopt.report.page import PAGE
from freshopt.scheduling.host_gap import with_host_gap
from freshopt.scheduling.refresh_order import PLANNED_BYTES, check_size
from freshopt.scheduling.schedule import Schedule, schedule
from freshopt.solvers.proportional import Proportional
from freshopt.solvers.square_root import SquareRoot
from freshopt.solvers.uniform import Uniform

_LOGGER = logging.getLogger(__name__)
Progress = Callable[[str], None]
# Simple rules beside a plan, by the names that its summary has for them.
BASELINES: dict[str, Solver] = {
    "uniform": Uniform(),
    "proportional": Proportional(),
    "square-root": SquareRoot(),
}


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plan:
    """Everything that `plan` found.

    Attributes
    ----------
    log : CrawlLog
    estimate : Estimator
        Fitted to the log.
    lower, upper : ndarray, shape (n,)
        Interval of each change rate.
    solution : Solution
        Certified refresh rates.
    schedule : Schedule
        Offsets count from the end of the log, which is its `start` where the log has dates.
    schedule_value : float
        The objective's expected value over the schedule's horizon, given each source's last crawl in the log.
    baselines : dict
        The long-run value of the simple rules of `BASELINES` at the same bandwidth.
    request : Wishes
        What was asked.
    findings : dict
        See `freshopt.planning.findings`.
    uncertainty : PlanUncertainty or None
        What the uncertainty of the change rates costs.
    forecast : ValueForecast or None
        The value under the posterior, with an interval that back-tests inside the log widen.
    phases : GoodPhases or None
        When in the week changes peak, and what crawling after the peaks saves; None where it does not pay.
    needed : BandwidthFor or None
        The least bandwidth for the freshness that was asked for, with its proof.
    today : TodaysCrawls or None
        What the log's own crawls keep fresh, and how few would do the same; None where nobody crawled.
    changes : RateChanges or None
        What the plan changes of the rates that it was compared with, and what that brings.
    few : FewChanges or None
        What a limit on these changes costs.
    seconds : dict
        Time of each step.
    crawled : bool
        Whether the log's crawls were made; those of a change history were not.
    warnings : tuple of str
        What was warned of while the log was read and the plan was made; first what may make the change rates
        wrong, and with them all that the plan promises.
    """

    log: CrawlLog
    estimate: Estimator
    lower: Array
    upper: Array
    solution: Solution
    schedule: Schedule
    schedule_value: float
    baselines: dict[str, float]
    request: Wishes
    findings: dict[str, Any]
    uncertainty: PlanUncertainty | None = None
    forecast: ValueForecast | None = None
    phases: GoodPhases | None = None
    needed: BandwidthFor | None = None
    today: TodaysCrawls | None = None
    changes: RateChanges | None = None
    few: FewChanges | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    crawled: bool = True
    warnings: tuple[str, ...] = ()

    @property
    def problem(self) -> Problem:
        """The problem that was solved."""
        return self.solution.problem

    @property
    def sources(self) -> Sources:
        """The log's sources with their estimated change rates."""
        return self.solution.problem.sources

    def write(
        self, folder: str | os.PathLike[str], *, csv: bool = False, overwrite: bool = False
    ) -> list[str]:
        """Write tables, summary and page into a folder, atomically.

        Parameters
        ----------
        folder : path
        csv : bool
            Write CSV instead of Parquet.
        overwrite : bool
            Whether an earlier plan in the folder may be replaced.

        Returns
        -------
        list of str
            The names of the files.

        Raises
        ------
        SourceDataError
            If the folder holds a plan and `overwrite` is false, or cannot be written.
        """
        return write_plan(self, folder, csv=csv, overwrite=overwrite)

    def report(self) -> Page:
        """Return the plan's page as HTML.

        A notebook shows it; ``write`` has it as ``report.html``.
        """
        with tempfile.TemporaryDirectory() as folder:
            write_files(self, Path(folder))
            return Page((Path(folder) / PAGE).read_text(encoding="utf-8"))

    def __repr__(self) -> str:
        """Return what a newcomer should read of the plan, in labelled rows."""
        return "\n".join(f"{label}  {text}" for label, text in aligned(plan_rows(self)))

    def _repr_html_(self) -> str:
        """Return the page for a notebook."""
        return self.report()._repr_html_()


@taking(PlanWishes)
def plan(
    log: Log,
    bandwidth: float | str | None,
    horizon: float | str,
    *,
    time_unit: str | None = None,
    on_progress: Progress = lambda _: None,
    **wishes: Unpack[PlanWishes],
) -> Plan:
    """Plan the refreshes of a crawl log's sources, with proof.

    Change rates are estimated from the log, refresh rates optimised for the objective and certified, and
    written as a schedule that begins at the end of the log.

    Parameters
    ----------
    log : CrawlLog, ChangeHistory, path or dataframe
        What crawls found; a path or a dataframe of any library has columns as in `read_log`.
    bandwidth : float or str
        Total refreshes per time unit, or with its unit, such as "200/day"; None where constraints limit them,
        or a freshness is given.
    horizon : float or str
        Length of the schedule in time units, or with its unit, such as "7d".
    objective : Objective, optional
        By default ``HarmonicStaleness(Refresh.PERIODIC)``. Its discipline decides the schedule's method.
    importance : number, mapping, dataframe, array_like or callable, optional
        Weights ≥ 0 by source: a mapping or a table (source, importance), one value each in the order of
        ``log.sources_``, or a function of the names. All alike by default.
    hosts : mapping, dataframe, array_like or callable, optional
        The host of each source, given as `importance` is. By default, where there are limits or gaps, the
        host that its URL names.
    host_limits : mapping of host to float or str, optional
        Bandwidth that a host may take, per time unit, or such as "5/day".
    host_gap : float or str, optional
        Least time between two refreshes of one host in the schedule, such as "2s"; up to half as long again.
    min_rate, max_rate : float or str, optional
        Bounds on each source's refresh rate.
    estimator : Estimator or callable, optional
        An instance, which is fitted to the log, or a function of the log that returns a fitted one. By
        default maximum likelihood under a gamma prior that is learnt from the log, a weak one where it has
        fewer than 30 sources: ``freshopt plan`` does the same.
    confidence : float
        Of the change rates' intervals.
    seed : int
        Random seed of Poisson arrivals and posterior samples.
    draws : int
        Posterior samples of the change rates, to estimate the cost of uncertainty; 0 disables.
    constraints : list of constraints, or callable, optional
        `Budget`, `Nested`, `Target`, `Tied` and `Ratio` on the log's sources, with arrays in the order of
        ``log.sources_``; or a function from the plan's `Sources` to such a list. With targets, or with
        `Spend` as objective, there are no posterior samples.
    load_limit : float
        Where the log shows that changes peak at some hours of the week, sources may be crawled after the
        peaks, at gaps of whole weeks or whole parts of one, and up to so many times the mean load; 1 keeps
        the load flat. Of periodic refreshes under bandwidth, bounds and host limits.
    freshness : float or str, optional
        Share of time that copies are to be fresh, such as 0.99 or "99%", or "as today" for that of the log's
        own crawls: the plan has the least bandwidth that does it. Of objective `BinaryFreshness`, then the
        default.
    compare : Plan, Solution, mapping or dataframe, optional
        Rates in force by source (columns source, rate), which the plan is compared with.
    max_churn : float or str, optional
        Share of the sources with a rate in `compare` that may get another one, such as 0.1 or "10%": those
        whose change brings most. Sources without one do not count. Under bandwidth, bounds and host limits;
        all then keep their phases.
    success : number, mapping, dataframe, array_like or callable, optional
        Chance in (0, 1] that a fetch succeeds, given as `importance` is; such as
        `freshopt.estimators.SuccessRates` learns. Rates, bounds and the schedule are then of
        attempts. There is no weekly cycle then, and no back-test inside the log.
    retry_at_once : bool
        Whether the crawler repeats a fetch that fails at once, which is best where failures do not depend on
        each other. Rates and the schedule are then of successes, each of which uses 1/success of the
        bandwidth on average.
    changed_cost : number, mapping, dataframe, array_like or callable, optional
        What a fetch uses besides where the source has changed, given as `importance` is, in units of what
        asking uses: a conditional fetch of what is unchanged uses 1, of what has changed 1 + changed_cost.
        Bandwidth and host limits are in that unit, rates and the schedule are of fetches. Under bandwidth,
        bounds and host limits alone; there is no weekly cycle then, and no posterior sample.
    time_unit : str, optional
        The clock of a path's or dataframe's numeric times and of all results, "day" by default; a log in
        memory brings its own.
    on_progress : callable
        Called with the name of each step as it begins.

    Returns
    -------
    Plan
        With `sources`, `problem`, `solution`, `schedule`, `findings`, ``write(folder)`` and ``report()``.

    Raises
    ------
    FreshoptError
        If the log, the bounds or the weights cannot be used.
    CertificateError
        If the rates are not proved optimal to 1e-9.

    Examples
    --------
    >>> import freshopt as fo
    >>> days, names = [0, 1, 2, 3] * 2, ["a"] * 4 + ["b"] * 4
    >>> log = fo.CrawlLog(source=names, time=days, changed=[0, 1, 1, 0, 0, 0, 0, 1])
    >>> plan = fo.plan(log, bandwidth="2/day", horizon="7d", importance={"a": 2.0, "b": 1.0})
    >>> plan.schedule
    Schedule(15 refreshes of 2 sources in 7 days, Periodic())
    >>> plan.solution.status.value, plan.sources.importance.tolist()
    ('optimal', [2.0, 1.0])
    """
    crawls, known = as_crawl_log(log, time_unit)
    asked = {"bandwidth": bandwidth, "horizon": horizon, **wishes}
    request = Wishes.of(crawls, asked, PlanWishes)
    return make_plan(crawls, request, on_progress, crawled=known is None)


def make_plan(
    log: CrawlLog, request: Wishes, on_progress: Progress = lambda _: None, *, crawled: bool = True
) -> Plan:
    """Return the plan that a request asks for."""
    with hearing() as heard:
        made = _made(log, request, on_progress, crawled=crawled)
        return replace(made, warnings=by_weight([*log.warnings, *heard]))


def _made(log: CrawlLog, request: Wishes, on_progress: Progress, *, crawled: bool) -> Plan:
    """Return the plan, step by step."""
    seconds: dict[str, float] = {}

    def step(name: str) -> None:
        now = time.perf_counter()
        if seconds:
            latest = next(reversed(seconds))
            seconds[latest] = now - seconds[latest]
            _LOGGER.info("%s: %.2f s", latest, seconds[latest])
        seconds[name] = now
        on_progress(name)

    step("change rates")
    estimate, lower, upper, sources = learn(log, request)
    _LOGGER.debug("%r", estimate)
    step("refresh rates")
    needed = None
    if request.freshness is not None:
        own = log if crawled else None
        needed = needed_bandwidth(request.objective, sources, request.host_limits, request.freshness, own)
        request = replace(request, bandwidth=needed.bandwidth)
    constraints = constraints_for(request.constraints, sources)
    problem = Problem(
        request.objective,
        sources,
        None if constraints and math.isinf(request.bandwidth) else request.bandwidth,
        request.host_limits,
        constraints,
    )
    solution = solve_with_kinks(problem, TOLERANCE, PROVED)
    few, old, gone = None, None, 0
    if request.compare is not None:
        old, gone = old_rates(sources, request.compare)
    if old is not None and request.max_churn is not None:
        few = with_few_changes(solution, old, request.max_churn)
        solution = few.solution
    step("weekly cycle")
    flat, phases = solution, None
    if few is None:
        solution, phases = at_phases_that_pay(log, estimate, flat, request.load_limit)
    elif phased_problem(log, estimate, problem, request.load_limit) is not None:
        few = replace(few, no_cycle=True)
    if phases is not None:
        shares = time_fresh(flat.problem, {"flat": flat})
        phases = replace(phases, fresh_without=None if shares is None else shares["flat"])
    changes = None if old is None else rate_changes(solution, old, gone, few.prices if few else None)
    # Beside a weekly cycle, what knows none says so.
    cycle = phases is not None or (few is not None and few.no_cycle)
    if needed is not None:
        needed = replace(needed, no_cycle=cycle)
    step("baselines")
    # Simple rules know nothing of other constraints than bandwidth, bounds and host limits.
    simple = {
        name: run_solver(solver, problem, SolveOptions(certify=False))
        for name, solver in BASELINES.items()
        if problem.program is None
    }
    baselines = {name: answer.value for name, answer in simple.items()}
    step("today")
    # Costs that depend on the change rate, and attempts under targets, have no quick answer.
    slow = problem.program is not None and sources.failing is not None
    asked = crawled and problem.per_bandwidth is None and not slow
    today = todays_crawls(problem, log) if asked else None
    if today is not None:
        today = replace(today, no_cycle=cycle)
    step("schedule")
    method = method_of(request, problem) if phases is None else phased_method(phases)
    begin = log.clock.date(log.end) if phases is None or log.origin is not None else log.end
    check_size(solution.rates, request.horizon, log.time_unit, PLANNED_BYTES)
    times = schedule(solution, request.horizon, method, start=begin)
    if request.host_gap > 0.0 and sources.host is not None:
        # Kept also by what is moved: no source is refreshed sooner than 1/max_rate after its last refresh.
        times = with_host_gap(times, sources.host, request.host_gap, max_rate=sources.max_rate)
    problem = solution.problem
    value = schedule_value_of(times, solution, log)
    uncertainty, forecast = None, None
    # Samples plan anew, and tell nothing of rates that were kept.
    if request.draws and few is None and has_uncertainty(problem, len(log)):
        step("uncertainty")
        many = max(request.draws, draws_for(len(sources)))
        drawn = rate_draws(sources, estimate, many, request.seed)
        uncertainty = uncertainty_under(solution, drawn.some(request.draws))
        step("back-tests")
        if problem.numerics is not None:
            ratios = ratios_or_none(log, request)
            savings = partial(phase_savings, problem, solution.rates)
            forecast = value_forecast(request.objective, sources, solution.rates, drawn, ratios, savings)
    step("findings")
    found = findings(solution, simple)
    step("done")
    seconds.pop("done")
    return Plan(
        log,
        estimate,
        lower,
        upper,
        solution,
        times,
        value,
        baselines,
        request,
        found,
        uncertainty,
        forecast,
        phases,
        needed,
        today,
        changes,
        few,
        seconds,
        crawled,
    )
