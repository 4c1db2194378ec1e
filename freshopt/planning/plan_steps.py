"""Steps of a plan: change rates, good phases, method, value, uncertainty.

What `freshopt.planning.plan` puts together, and partitions of a log use one by one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import SolveOptions, Solver, run_solver
from freshopt.errors import InfeasibleProblemError, SourceDataError, list_offenders, warn
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.features.feature_priors import FeaturePriors
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.estimators.week_clock import seconds_of, utc_moment
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.cost_curve import CurveObjective
from freshopt.modelling.expected import Expected
from freshopt.modelling.failing_fetches import retried_at_once
from freshopt.modelling.objective import Refresh
from freshopt.modelling.objective_numerics import gap_costs
from freshopt.modelling.phased_objective import plain
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.modelling.spend import Spend
from freshopt.noisy_signals.with_signals import (
    follows_signals,
    learnt_signals,
    silent_rates,
    without_signals,
)
from freshopt.numerics.arrays import LARGEST, Array, total
from freshopt.planning.declared import (
    constraints_for,
    depends_on_change_rates,
    discipline_of,
    discipline_under,
    limits_bandwidth,
)
from freshopt.planning.good_phases import (
    GoodPhases,
    good_phases,
    phase_savings,
    phased_method,
    phased_problem,
    sampled_sources,
)
from freshopt.planning.request import PerSource, default_estimate, featured
from freshopt.planning.wishes import Wishes
from freshopt.questions.bandwidth_for import BandwidthFor
from freshopt.questions.learnt_changes import with_learnt_changes
from freshopt.questions.promises import (
    Promise,
    PromisePrice,
    promise_prices,
    promised_rates,
    rates_for_gaps,
    with_appointments,
)
from freshopt.questions.solve_with_kinks import solve_with_kinks
from freshopt.questions.todays_crawls import needed_bandwidth, own_bandwidth
from freshopt.report.context import PROVED
from freshopt.scheduling.expected_cost import expected_value
from freshopt.scheduling.host_gap import with_host_gap
from freshopt.scheduling.hours import WithinHours
from freshopt.scheduling.periodic import Periodic
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.refresh_order import PLANNED_BYTES, check_size
from freshopt.scheduling.schedule import Method, Schedule, schedule
from freshopt.solvers.proportional import Proportional
from freshopt.solvers.square_root import SquareRoot
from freshopt.solvers.uniform import Uniform
from freshopt.units import duration

# Sizes up to which uncertainty is estimated: with 20 samples the whole job takes about 4 s of one core.
MOST_SOURCES, MOST_CRAWLS = 30_000, 1_000_000
# The same under declared constraints, whose solves take some ten times as long.
MOST_DECLARED = 3_000

# Relative duality gap that a plan must reach; the dual search reaches 1e-14.
TOLERANCE = 1e-9

# Crawls from which on it tells something that none, or each, found a change.
_TELLING = 20
_RULES: dict[str, Solver] = {
    "uniform": Uniform(),
    "proportional": Proportional(),
    "square-root": SquareRoot(),
}
_OWN_BANDWIDTH = "This bandwidth is that of the log's own crawls; set another (--bandwidth, bandwidth=)."


def estimated_sources(log: CrawlLog, request: Wishes) -> tuple[Estimator, Sources]:
    """Estimate change rates; return the estimator and the sources to plan for."""
    own = request.features
    prior = None if own is None else FeaturePriors.from_log(log, own)
    if request.signals is not None:
        hosts = None if request.hosts is None else request.hosts(log.names)
        estimate: Estimator = learnt_signals(log, request.signals, hosts, prior)
    elif prior is not None:
        estimate = MaximumLikelihood(prior=prior).fit(log)
    else:
        estimate = (request.estimator or default_estimate)(log)
    estimate = estimate if own is None else featured(estimate, log, own)
    return estimate, sources_of(estimate, log, request)


def with_change_model(log: CrawlLog, request: Wishes) -> Wishes:
    """Return a request whose objective has the change model asked for."""
    if request.change_model == "poisson":
        return request
    fit = request.estimator or default_estimate
    return replace(request, objective=with_learnt_changes(request.objective, log, fit))


def sources_of(estimate: Estimator, log: CrawlLog, request: Wishes) -> Sources:
    """Return the sources to plan for, by a fitted estimator."""
    _require_known(estimate)

    def by_source(given: PerSource | None) -> Any:  # noqa: ANN401 - as `Sources` takes it
        return None if given is None else given(log.names)

    lower, upper = request.min_rate, request.max_rate
    bounds = (lower, upper) if request.limits is None else request.limits.around(log.names, lower, upper)
    least, most = open_bounds(request, bounds[0], bounds[1], log.time_unit)
    promised = least_promised(request, estimate.change_rate_, log, most)
    made = Sources(
        estimate.change_rate_,
        by_source(request.importance),
        names=log.names,
        host=by_source(request.hosts),
        min_rate=reduce(np.maximum, promised, least),
        max_rate=most,
        time_unit=log.time_unit,
        request_rate=by_source(request.requests),
        stale_while_revalidate=by_source(request.stale_while_revalidate),
        success=by_source(request.success),
        changed_cost=0.0 if request.changed_cost is None else request.changed_cost(log.names),
        columns={name: values(log.names) for name, values in (request.source_columns or {}).items()},
    )
    made = made.of_library(log.library)
    return retried_at_once(made) if request.retry_at_once else made


def has_appointments(request: Wishes) -> bool:
    """Return whether a promise is of moments."""
    return any(promise.appointments for promise in request.promise or ())


def least_promised(request: Wishes, change_rate: Array, log: CrawlLog, most: Array | float) -> list[Array]:
    """Return each promise's least rates, of attempts, up to the largest."""
    for promise in request.promise or ():
        promise.require_sources(log.names)
    success = None if request.success is None else np.asarray(request.success(log.names), dtype=np.float64)
    given = method_refresh(request), request.hours, log.time_unit
    # What is retried at once succeeds at its rate, and takes more attempts.
    if request.retry_at_once and success is not None:
        found = promised_rates(request.promise or (), log.names, change_rate, None, most * success, given)
        return [each / success for each in found]
    return promised_rates(request.promise or (), log.names, change_rate, success, most, given)


def open_bounds(request: Wishes, least: Array | float, most: Array | float, unit: str) -> tuple[Any, Any]:
    """Return bounds of rates that keep intervals to theirs within hours."""
    if request.hours is None:
        return least, most
    by_interval = request.max_interval is not None or (
        request.limits is not None and request.limits.by_interval
    )
    given = np.array(least, dtype=np.float64, ndmin=1)
    if by_interval:
        given[given > 0.0] = rates_for_gaps(1.0 / given[given > 0.0], request.hours, unit)
    # A gap of open time is at least as long by the clock.
    return given if np.ndim(least) else given[0], most * request.hours.share


def _require_known(estimate: Estimator) -> None:
    """Raise if a source's change rate is no positive number."""
    rate = estimate.change_rate_
    unknown = np.flatnonzero(~((rate > 0) & (rate < np.inf))).tolist()
    if unknown:
        why = [str(estimate.flag_[k]).replace("baseline only", "crawled only once") for k in unknown]
        each = zip(estimate.sources_[unknown].tolist(), why, strict=True)
        where = list_offenders(f"'{name}' ({flag})" for name, flag in each)
        smoothed = getattr(estimate, "smoothing", None) is not None
        remedy = "Leave smoothing out, or give" if smoothed else "Give"
        raise SourceDataError(
            f"the log alone does not tell the change rate of {where}. {remedy} more crawls of them."
        )


def at_phases_that_pay(
    log: CrawlLog, estimate: Estimator, without: Solution, request: Wishes
) -> tuple[Solution, GoodPhases | None]:
    """Return the solution at good phases, where these pay.

    Hours and appointments leave no choice of phases.
    """
    if request.hours is not None or has_appointments(request):
        return without, None
    phased = phased_problem(log, estimate, without.problem, request.load_limit)
    if phased is None:
        return without, None
    solution = solve_with_kinks(phased, TOLERANCE, PROVED)
    phases = good_phases(solution, without, sampled_sources(log))
    return (without, None) if phases is None else (solution, phases)


def learn(log: CrawlLog, request: Wishes) -> tuple[Estimator, Array, Array, Sources]:
    """Estimate change rates; return estimator, intervals and sources to plan for."""
    estimate, sources = estimated_sources(log, request)
    lower, upper = estimate.interval(request.confidence)
    return estimate, lower, upper, sources


def doubt_extremes(log: CrawlLog) -> None:
    """Warn where no crawl found a change, or each did."""
    if log.changes is not None:
        return
    observed = log.interval > 0.0
    many, found = int(np.count_nonzero(observed)), int(np.count_nonzero(log.changed & observed))
    if many < _TELLING or 0 < found < many:
        return
    if found:
        warn(
            f"each of {many:,} crawls found a change: sources may change far more often than they were "
            "crawled, or the hash covers what is new in every answer, such as a time. Hash less, or crawl "
            "some sources more often for a while.",
            of_rates=True,
        )
        return
    longest = duration(float(log.interval[observed].sum()) / -math.log(0.05), log.time_unit)
    warn(
        f"none of {many:,} crawls found a change. All that they show is that sources change less than once "
        f"in {longest} on average (at 95 %); each rate is a guess below that. Check that the log's changes, "
        "hashes or statuses can tell a change.",
        of_rates=True,
    )


def problem_asked(
    request: Wishes, sources: Sources, log: CrawlLog | None
) -> tuple[Problem, Wishes, BandwidthFor | None]:
    """Return the problem of a request, and the request with its bandwidth.

    Where it asks for a freshness the least bandwidth for that comes with them. `log` has crawls of its own.
    """
    # What a host may take at any time it takes at open hours alone.
    share, limits = 1.0 if request.hours is None else request.hours.share, request.host_limits
    limits = None if limits is None else {host: limit * share for host, limit in limits.items()}
    given, needed = (request.objective, sources, limits), None
    if request.freshness is not None:
        needed = needed_bandwidth(*given, request.freshness, log)
        request = replace(request, bandwidth=needed.bandwidth)
    constraints = constraints_for(request.constraints, sources)
    told = math.isfinite(request.bandwidth) or limits_bandwidth(request.objective, constraints)
    own = math.isnan(request.bandwidth) or not told
    if own:
        request = replace(request, bandwidth=own_bandwidth(*given, log))
    bandwidth = None if constraints and math.isinf(request.bandwidth) else request.bandwidth
    try:
        problem = Problem(request.objective, sources, bandwidth, limits, constraints)
    except InfeasibleProblemError as error:
        if own and error.conflict is None and "but bandwidth is" in str(error):
            raise InfeasibleProblemError(f"{error} {_OWN_BANDWIDTH}") from None
        raise
    return problem, request, needed


def simple_rules(problem: Problem) -> dict[str, Solution]:
    """Return the rates of simple rules at the bandwidth.

    They know nothing of signals, nor of other constraints than bandwidth, bounds and host limits.
    """
    if problem.program is not None:
        return {}
    alone = without_signals(problem)
    return {name: run_solver(rule, alone, SolveOptions(certify=False)) for name, rule in _RULES.items()}


def times_of(request: Wishes, solution: Solution, log: CrawlLog, phases: GoodPhases | None) -> Schedule:
    """Return the schedule of a plan, which begins where its log ends.

    Of crawls that follow signals it has those that are due while none comes.
    """
    sources = solution.problem.sources
    method: Method = method_of(request, solution.problem) if phases is None else phased_method(phases)
    begin = log.clock.date(log.end) if phases is None or log.origin is not None else log.end
    rates = silent_rates(solution.problem.objective, solution.rates, sources)
    check_size(rates, request.horizon, log.time_unit, PLANNED_BYTES)
    planned = solution if rates is solution.rates else replace(solution, rates=rates)
    clocked = "hours" if request.hours is not None else ""
    clocked = "promises at moments" if has_appointments(request) else clocked
    if clocked:
        moment = log.clock.date(log.end)
        if moment is None or request.host_gap > 0.0:
            raise SourceDataError(
                f"{clocked} are of the clock, and the log has numbers for times. Pass dates."
                if moment is None
                else f"{clocked} do not go with host_gap, which moves fetches. Leave one of them out."
            )
        second = seconds_of(utc_moment(moment))
        method = with_appointments(method, request.promise or (), sources, log.names, second)
        if request.hours is not None:
            method = WithinHours(method, request.hours, second, log.time_unit)
    times = schedule(planned, request.horizon, method, start=begin)
    if request.host_gap > 0.0 and sources.host is not None:
        # Kept also by what is moved: no source is refreshed sooner than 1/max_rate after its last refresh.
        times = with_host_gap(times, sources.host, request.host_gap, max_rate=sources.max_rate)
    return times.of_library(log.library)


def method_of(request: Wishes, problem: Problem | None = None) -> Periodic | PoissonArrivals:
    """Return the method of schedules that realises the objective's discipline.

    Bandwidth itself has none: that of the problem's targets is meant.
    """
    refresh = method_refresh(request) if problem is None else discipline_of(problem)
    return Periodic() if refresh is Refresh.PERIODIC else PoissonArrivals(request.seed)


def method_refresh(request: Wishes) -> Refresh:
    """Return the discipline that a request's schedule realises."""
    listed = () if callable(request.constraints) else request.constraints or ()
    return discipline_under(request.objective, listed)


def prices_of_promises(
    request: Wishes, estimate: Estimator, log: CrawlLog, *, crawled: bool
) -> tuple[PromisePrice, ...]:
    """Return what each promise costs, and all of several together."""
    bare = replace(request, promise=None)
    problem, *_ = problem_asked(bare, sources_of(estimate, log, bare), log if crawled else None)

    def alone(some: tuple[Promise, ...]) -> tuple[Array, Problem]:
        asked = replace(request, promise=some)
        least = reduce(np.maximum, least_promised(asked, estimate.change_rate_, log, np.inf))
        return least, problem.restated(sources_of(estimate, log, asked), LARGEST)

    without = solve_with_kinks(problem, TOLERANCE, PROVED)
    return promise_prices(request.promise or (), alone, without)


def schedule_value_of(times: Schedule, solution: Solution, log: CrawlLog) -> float:
    """Return the objective's expected value over the schedule's horizon.

    What good phases save is that of the long run. NaN of crawls that follow signals, whose times are open,
    and of an objective that tells no cost of age.
    """
    problem = solution.problem
    if isinstance(problem.objective, Spend):
        return total(problem.sources.refresh_cost[times.source]) / times.horizon
    if follows_signals(problem.objective):
        return math.nan
    objective = plain(problem.objective)
    own = not isinstance(objective, CurveObjective)
    if own and isinstance(gap_costs(objective, problem.sources), str):
        return math.nan
    value = expected_value(times, problem.objective, problem.sources, log.age)
    saved = total(phase_savings(problem, solution.rates))
    return value - saved if problem.objective.sense == "minimise" else value + saved


def why_no_draws(problem: Problem, crawls: int) -> str | None:
    """Return why the cost of estimation is not told, or None.

    Under other change rates than estimated targets may be missed, and a value does not tell what that costs;
    `Expected` has change rates of its own, whatever was estimated; recall and precision are learnt with them.
    What fetches use that cost what they bring is another bandwidth then, too.
    """
    if isinstance(problem.objective, Expected):
        return "the objective has change rates of its own"
    if isinstance(problem.objective, Spend) or depends_on_change_rates(problem):
        return "targets may be missed at other change rates"
    if problem.per_bandwidth is not None:
        return "fetches cost what they bring"
    if follows_signals(problem.objective):
        return "crawls follow signals"
    most = MOST_SOURCES if problem.program is None else MOST_DECLARED
    if crawls > MOST_CRAWLS:
        return f"the log has more than {MOST_CRAWLS:,} crawls, which would take long"
    return (
        f"there are more than {most:,} sources, which would take long"
        if len(problem.sources) > most
        else None
    )


def require_static(request: Wishes) -> None:
    """Raise SourceDataError if a request declares constraints beyond limits and bounds."""
    if request.constraints is not None or not math.isfinite(request.bandwidth):
        raise SourceDataError(
            "a backtest compares rates under a bandwidth and host limits, and no declared constraints. Leave "
            "them out."
        )


def problem_of(request: Wishes, sources: Sources, bandwidth: float) -> Problem:
    """Return a request's problem for other sources, at a bandwidth."""
    limits: dict[Any, float] | None = None
    if request.host_limits is not None and sources.host is not None:
        there = set(np.asarray(sources.host).tolist())
        limits = {host: limit for host, limit in request.host_limits.items() if host in there} or None
    return Problem(request.objective, sources, bandwidth, limits)
