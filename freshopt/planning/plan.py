"""From a crawl log to certified refresh rates and a schedule.

`plan` is the main job: change rates are estimated, the problem is solved and certified, its rates are
scheduled.

Each step is a public function of its own; a `Plan` keeps what they returned, so that the result can be
inspected before it is written to a folder or shown as a page. ``freshopt plan`` calls the same function.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from freshopt.certificates.solution import Solution
from freshopt.errors import by_weight, hearing
from freshopt.estimators.estimator import Estimator
from freshopt.frames import framed
from freshopt.heavy import polars
from freshopt.logs.crawl_log import CrawlLog
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.noisy_signals.with_signals import called, follows_signals, with_signals
from freshopt.numerics.arrays import Array
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.planning.findings import findings, freshness_along, time_fresh
from freshopt.planning.good_phases import GoodPhases, phase_savings, phased_problem
from freshopt.planning.plan_files import Solved, source_table, summary, tables, told_of, write_plan
from freshopt.planning.plan_steps import TOLERANCE as TOLERANCE
from freshopt.planning.plan_steps import (
    at_phases_that_pay,
    doubt_extremes,
    prices_of_promises,
    problem_asked,
    schedule_value_of,
    simple_rules,
    times_of,
    why_no_draws,
    with_change_model,
)
from freshopt.planning.plan_steps import estimated_sources as estimated_sources
from freshopt.planning.plan_steps import learn as learn
from freshopt.planning.plan_steps import method_of as method_of
from freshopt.planning.plan_steps import sources_of as sources_of
from freshopt.planning.request import Log, as_crawl_log, with_featured_sources
from freshopt.planning.uncertainty import PlanUncertainty, draws_for, rate_draws, uncertainty_under
from freshopt.planning.value_forecast import ValueForecast, ratios_or_none, value_forecast
from freshopt.planning.wishes import PlanWishes, Wishes, taking
from freshopt.plots import Plotted, axes_for, draw_achieved, draw_intervals
from freshopt.questions.bandwidth_for import BandwidthFor
from freshopt.questions.features_bring import FeaturesBring, features_bring
from freshopt.questions.few_changes import FewChanges, with_few_changes
from freshopt.questions.promises import PromisePrice
from freshopt.questions.rate_changes import RateChanges, old_rates, rate_changes
from freshopt.questions.signals_bring import SignalsBring, signals_bring
from freshopt.questions.solve_with_kinks import solve_with_kinks
from freshopt.questions.todays_crawls import TodaysCrawls, todays_crawls
from freshopt.report.context import PROVED
from freshopt.report.headline import headline
from freshopt.report.value_words import goal_of
from freshopt.scheduling.schedule import Schedule
from freshopt.units import Time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOGGER = logging.getLogger(__name__)
Progress = Callable[[str], None]


@frozen_value(repr=False)
class Plan(Solved, Plotted):
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
        The objective's expected value over the schedule's horizon, given each source's last crawl in the log;
        NaN where no cost of age is known.
    baselines : dict
        The long-run value of simple rules (uniform, proportional, square-root) at the same bandwidth.
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
    signals : SignalsBring or None
        What the signals that were passed tell, and what they bring.
    features : FeaturesBring or None
        What the features that were passed tell.
    seconds : dict
        Time of each step.
    crawled : bool
        Whether the log's crawls were made; those of a change history were not.
    warnings : tuple of str
        What was warned of while the log was read and the plan was made; first what may make the change rates
        wrong, and with them all that the plan promises.
    promises : tuple of PromisePrice
        What each promise needs and costs, and last all of several.

    Examples
    --------
    >>> import freshopt as fo
    >>> log = fo.CrawlLog(["a", "a", "b", "b"], [0.0, 2.0, 0.0, 1.0], [0, 1, 0, 1])
    >>> plan = fo.plan(log, draws=0)
    >>> plan.rates.round(3).tolist(), plan.problem.bandwidth
    ([0.727, 0.773], 1.5)
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
    signals: SignalsBring | None = None
    features: FeaturesBring | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    crawled: bool = True
    warnings: tuple[str, ...] = ()
    promises: tuple[PromisePrice, ...] = ()

    @framed
    def to_frame(self) -> polars.DataFrame:
        """Return a dataframe with one row per source.

        It has the columns source, host (where known), importance (where they differ), change_rate with its
        interval lower and upper, flag (what the log tells of it), rate, interval (empty at rate 0), and what
        each source is expected to be: cost (its part of the value), fresh (share of time); crawl_rate, how
        often the log crawled it; refreshes in the schedule and next_refresh, in time units or as a date. It
        is of polars, or of the library of the dataframe that was planned from.

        Examples
        --------
        >>> import freshopt as fo
        >>> log = fo.CrawlLog(["a", "a", "b", "b"], [0.0, 2.0, 0.0, 1.0], [0, 1, 0, 1])
        >>> fo.plan(log, draws=0).to_frame()["rate"].round(3).to_list()
        [0.727, 0.773]
        """
        return source_table(self)

    def tables(self) -> dict[str, polars.DataFrame]:
        """Return the tables that are written, by name."""
        return tables(self)

    def summary(self) -> dict[str, Any]:
        """Return the plan in numbers, as ``summary.json`` has it.

        First come those of the headline: ``saving``, the share of the log's own fetches that are not needed
        for its own freshness (None where the log does not tell); ``fresh``, the share of time that copies are
        up to date under the plan; ``bandwidth``, and ``bandwidth_used``; and ``n``, how many sources there
        are. Then status, warnings and the value with its proof, and in the end all else. ``units`` names the
        unit of each number.

        Examples
        --------
        >>> import freshopt as fo
        >>> log = fo.CrawlLog(["a", "a", "b", "b"], [0.0, 2.0, 0.0, 1.0], [0, 1, 0, 1])
        >>> found = fo.plan(log, draws=0).summary()
        >>> list(found)[:5]
        ['saving', 'fresh', 'bandwidth', 'bandwidth_used', 'n']
        >>> found["bandwidth"], found["n"], found["status"]
        (1.5, 2, 'optimal')
        """
        return summary(self)

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

    def _draw(self, axes: Axes) -> None:
        """Draw the freshness along the bandwidth.

        This plan, equal rates and the log's own crawls are marked; where an objective tells no share of time
        fresh, it is the objective's value instead.
        """
        draw_achieved(axes, self)

    def plot_intervals(self, ax: Axes | None = None) -> Axes:
        """Plot the sources' intervals against their change rates.

        Those of the log's own crawls stand beside them. What is taken, returned and raised is as in `plot`.
        """
        axes = axes_for(ax)
        draw_intervals(axes, self)
        return axes

    def __repr__(self) -> str:
        return headline(told_of(self))


@taking(PlanWishes)
def plan(
    log: Log,
    bandwidth: float | str | None = None,
    horizon: Time = "7d",
    *,
    columns: Mapping[str, str] | None = None,
    time_unit: str | None = None,
    on_progress: Progress | None = None,
    **wishes: Unpack[PlanWishes],
) -> Plan:
    """Plan the refreshes of a crawl log's sources, with proof.

    Change rates are estimated from the log, refresh rates optimised for the objective and certified, and
    written as a schedule that begins at the end of the log.

    Parameters
    ----------
    log : CrawlLog, ChangeHistory, path or dataframe
        What crawls found; a path or a dataframe of polars, pandas or PyArrow is read as `read_log` does.
    bandwidth : float or str, optional
        Total refreshes per time unit, or with its unit, such as "200/day". By default what `freshness` needs,
        or what a `Budget` leaves, or else as many as the log's own crawls; "as today" says so.
    horizon : float, str or timedelta
        Length of the schedule in time units, or with its unit, such as "7d".
    objective : Objective or str, optional
        By default ``HarmonicStaleness(Refresh.PERIODIC)``. Its discipline decides the schedule's method. By
        name, "harmonic", "binary", "age", "power:0.5", "deadline:2d" and the others of ``freshopt plan
        --objective``, it is of periodic refreshes.
    importance : number, mapping, dataframe, array_like or callable, optional
        Weights ≥ 0 by source: a mapping or a table (source, importance), one value each in the order of
        ``log.names``, or a function of the names. All alike by default.
    hosts : mapping, dataframe, array_like or callable, optional
        The host of each source, given as `importance` is. By default, where there are limits or gaps, the
        host that its URL names.
    host_limits : mapping of host to float or str, or dataframe, optional
        Bandwidth that a host may take, per time unit, or such as "5/day"; a table has columns host, limit.
    host_gap : float, str or timedelta, optional
        Least time between two refreshes of one host in the schedule, such as "2s"; up to half as long again.
    min_interval, max_interval : float or str, optional
        Shortest and longest time between two refreshes of each source, such as "30m" and "30d".
    limits : mapping or dataframe, optional
        The same of single sources: a mapping of names to (min_interval, max_interval), None for none, or a
        table with the columns source, min_interval, max_interval (or min_rate, max_rate).
    min_rate, max_rate : float or str, optional
        Bounds as rates: max_rate is 1/min_interval, and min_rate is 1/max_interval.
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
        ``log.names``; or a function from the plan's `Sources` to such a list. With targets, or with
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
    change_model : str
        "poisson", or "learnt": how likely a copy of some age is stale, by later crawls of the log at change
        rates that earlier ones taught (`problem.objective.changes`, with its evidence and interval). Of
        binary freshness and age; without strong evidence it is a Poisson process, with a warning.
    signals : path or dataframe, optional
        Signals that sources had changed, from a sitemap, a feed or a webhook: columns ``source``, ``time``
        and, where there are several sorts, ``kind``. Recall and precision of each source are learnt from the
        crawls, in place of `estimator`; kinds that tell nothing are left out. Of harmonic staleness, delay,
        age, binary and log freshness at equal intervals: crawls follow a rule (`signals` of the plan, table
        ``waits``, of freshness ``thresholds``, of age ``ages``), and the schedule has those that are due
        while no signal comes. There are no posterior samples then.
    features : dataframe, path or "url", optional
        A row for each source, new ones too, and columns that may tell how often it changes: a regression is
        then the prior of rates, in place of `estimator` (`freshopt.estimators.FeaturePriors`). New sources
        count as first fetched when the log ends. What URLs tell is added; "url" is that alone.
    source_columns : dataframe or mapping, optional
        Columns of your own for objectives and constraints of your own, ``sources["size"]``: a dataframe with
        the column source, or a mapping of their names to values, each given as `importance` is.
    promise : str or sequence of str, optional
        Least shares of time: "95% younger than 2h" since the fetch, "99% less than 1d behind" the oldest
        change missed, ``"news/*: at 7:00 on workdays younger than 2h"`` of names. `promises` tells prices.
    hours : str or sequence of str, optional
        Of the week with fetches: "workdays 8:00-20:00 Europe/Berlin", "not 22-6". No weekly cycle.
    columns : mapping of str to str, optional
        Names of the file's or dataframe's columns to those of a log, such as ``{"url": "source"}``, where
        they are not found.
    time_unit : str, optional
        The clock of a path's or dataframe's numeric times and of all results, "day" by default; a log in
        memory brings its own.
    on_progress : callable, optional
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
    >>> plan = fo.plan(log, importance={"a": 2.0, "b": 1.0})
    >>> plan.problem.bandwidth
    2.0
    >>> plan.schedule
    Schedule(15 refreshes of 2 sources in 7 days, Periodic())
    >>> plan.solution.status.value, plan.sources.importance.tolist()
    ('optimal', [2.0, 1.0])
    """
    crawls, known = as_crawl_log(log, time_unit, columns)
    crawls, features = with_featured_sources(crawls, wishes.get("features"))
    asked = {"bandwidth": bandwidth, "horizon": horizon, **wishes, "features": features}
    request = Wishes.of(crawls, asked, PlanWishes)
    return make_plan(crawls, request, on_progress, crawled=known is None)


def make_plan(
    log: CrawlLog, request: Wishes, on_progress: Progress | None = None, *, crawled: bool = True
) -> Plan:
    """Return the plan that a request asks for."""
    with hearing() as heard, request.bounded():
        made = _made(log, request, on_progress, crawled=crawled)
        return replace(made, warnings=by_weight([*log.warnings, *heard]))


def _made(log: CrawlLog, request: Wishes, on_progress: Progress | None, *, crawled: bool) -> Plan:
    """Return the plan, step by step."""
    seconds: dict[str, float] = {}

    def step(name: str) -> None:
        now = time.perf_counter()
        if seconds:
            latest = next(reversed(seconds))
            seconds[latest] = now - seconds[latest]
            _LOGGER.info("%s: %.2f s", latest, seconds[latest])
        seconds[name] = now
        if on_progress is not None:
            on_progress(name)

    step("change rates")
    doubt_extremes(log)
    estimate, lower, upper, sources = learn(log, request)
    _LOGGER.debug("%r", estimate)
    heard = estimate if isinstance(estimate, PooledSignals) else None
    if heard is not None:
        objective = with_signals(request.objective, heard.recall_, heard.precision_)
        request = replace(request, objective=objective, signals=None)
        if not follows_signals(request.objective):
            estimate, lower, upper, sources = learn(log, request)
    request = with_change_model(log, request)
    step("refresh rates")
    problem, request, needed = problem_asked(request, sources, log if crawled else None)
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
        solution, phases = at_phases_that_pay(log, estimate, flat, request)
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
    simple = simple_rules(problem)
    baselines = {name: answer.value for name, answer in simple.items()}
    step("today")
    # Costs that depend on the change rate, and attempts under targets, have no quick answer.
    slow = problem.program is not None and sources.failing is not None
    asked = crawled and problem.per_bandwidth is None and not slow
    today = todays_crawls(problem, log) if asked else None
    if today is not None:
        today = replace(today, no_cycle=cycle)
    step("schedule")
    times = times_of(request, solution, log, phases)
    problem = solution.problem
    value = schedule_value_of(times, solution, log)
    uncertainty, forecast = None, None
    # Samples plan anew, and tell nothing of rates that were kept.
    if request.draws and few is None and why_no_draws(problem, len(log)) is None:
        step("uncertainty")
        many = max(request.draws, draws_for(len(sources)))
        drawn = rate_draws(sources, estimate, many, request.seed)
        uncertainty = uncertainty_under(solution, drawn.some(request.draws))
        step("back-tests")
        if problem.numerics is not None:
            ratios = ratios_or_none(log, request)
            savings = partial(phase_savings, problem, solution.rates)
            forecast = value_forecast(request.objective, sources, solution.rates, drawn, ratios, savings)
    brought = None
    if heard is not None:
        step("signals")
        brought = signals_bring(solution, heard, goal_of(type(called(problem.objective)).__name__).noun)
    step("findings")
    found = findings(solution, simple)
    marked = [problem.bandwidth, *(() if today is None else today.compared)]
    found["freshness"] = freshness_along(solution, marked)
    step("done")
    seconds.pop("done")
    made = (log, estimate, lower, upper, solution, times, value, baselines, request, found)
    told = (uncertainty, forecast, phases, needed, today, changes, few, brought, features_bring(estimate))
    promised = prices_of_promises(request, estimate, log, crawled=crawled) if request.promise else ()
    return Plan(*made, *told, seconds, crawled, promises=promised)
