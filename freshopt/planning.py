"""`make_plan`: the main job, from a crawl log to change rates, certified refresh rates and a schedule.

Each step is a public function of its own; a `Plan` keeps what they returned, so that the result can be
inspected before `freshopt.plan_folder.write_plan` puts it into a folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array
from freshopt.errors import SourceDataError, list_offenders
from freshopt.learning.crawl_log import CrawlLog
from freshopt.learning.estimator import Estimator
from freshopt.learning.maximum_likelihood import MaximumLikelihood
from freshopt.learning.solution_spread import SolutionSpread, solution_spread
from freshopt.model import Problem
from freshopt.objective import Objective, Refresh
from freshopt.report.findings import findings
from freshopt.result import Solution
from freshopt.scheduling.expected_value import expected_value
from freshopt.scheduling.periodic import Periodic
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.schedule import Schedule, schedule
from freshopt.solvers.proportional import Proportional
from freshopt.solvers.uniform import Uniform
from freshopt.solving import solve
from freshopt.sources import Sources
from freshopt.verdict import Terms

if TYPE_CHECKING:
    pass

TOLERANCE = 1e-9  # relative gap that a plan must reach; the dual reaches 1e-14
MOST_SOURCES, MOST_CRAWLS = 30_000, 1_000_000  # with 20 draws the whole job takes about 4 s of one core
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Wishes:
    """What an operator asks of a plan.

    Parameters
    ----------
    objective : Objective
        Its discipline decides the method of the schedule: periodic gaps, or Poisson arrivals.
    bandwidth : float
        Refreshes per time unit.
    horizon : float
        Length of the schedule in time units.
    importance : callable or None
        Maps the log's sources (an array of names) to weights; None weighs all alike.
    min_rate, max_rate : float
        Bounds on each source's refresh rate.
    hosts : callable or None
        Maps the log's sources (an array of names) to the hosts that they are on.
    host_limits : mapping of host to float, or None
        Bandwidth that a host may take.
    smoothing : float
        Imaginary observation of the default estimator, in days.
    estimate : callable or None
        Fits an estimator to the log; None is ``MaximumLikelihood(smoothing).fit``.
    confidence : float
        Of the change rates' intervals.
    seed : int
        For Poisson arrivals, and for draws.
    draws : int
        Draws of the change rates that tell what their uncertainty costs, see `solution_spread`; 0 for none.
        A log with more than 30 000 sources or a million crawls goes without.
    """

    objective: Objective
    bandwidth: float
    horizon: float
    importance: Callable[[Any], Array] | None = None
    min_rate: float = 0.0
    max_rate: float = np.inf
    hosts: Callable[[Any], npt.NDArray[Any]] | None = None
    host_limits: Mapping[Any, float] | None = None
    smoothing: float = 0.5
    estimate: Callable[[CrawlLog], Estimator] | None = None
    confidence: float = 0.95
    seed: int = 0
    draws: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything that `make_plan` found.

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
        Offsets count from the end of the log.
    schedule_value : float
        The objective's expected value over the schedule's horizon, given each source's last crawl in the log.
    baselines : dict
        The long-run value of uniform and of proportional rates at the same bandwidth.
    wishes : Wishes
        What was asked.
    findings : dict
        See `freshopt.report.findings`.
    spread : SolutionSpread or None
        What the uncertainty of the change rates costs.
    seconds : dict
        Time of each step.
    """

    log: CrawlLog
    estimate: Estimator
    lower: Array
    upper: Array
    solution: Solution
    schedule: Schedule
    schedule_value: float
    baselines: dict[str, float]
    wishes: Wishes
    findings: dict[str, Any]
    spread: SolutionSpread | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def make_plan(log: CrawlLog, wishes: Wishes, report: Report = lambda _: None) -> Plan:
    """Estimate change rates, optimise refresh rates, prove them, and schedule them.

    Parameters
    ----------
    log : CrawlLog
    wishes : Wishes
    report : callable
        Told the name of each step as it begins.

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
    >>> plan = make_plan(log, Wishes(fo.problems.HarmonicStaleness(fo.Refresh.PERIODIC), 2.0, 7.0))
    >>> plan.schedule
    Schedule(14 refreshes of 2 sources in 7 days, Periodic())
    """
    seconds: dict[str, float] = {}

    def step(name: str) -> None:
        now = time.perf_counter()
        if seconds:
            latest = next(reversed(seconds))
            seconds[latest] = now - seconds[latest]
        seconds[name] = now
        report(name)

    step("change rates")
    estimate, lower, upper, sources = learn(log, wishes)
    step("refresh rates")
    problem = Problem(wishes.objective, sources, wishes.bandwidth, wishes.host_limits)
    solution = solve(problem, tolerance=TOLERANCE)
    step("baselines")
    simple = {
        type(solver).__name__.lower(): solver.solve(problem, Terms(certify=False))
        for solver in (Uniform(), Proportional())
    }
    baselines = {name: answer.value for name, answer in simple.items()}
    step("schedule")
    times = schedule(solution, wishes.horizon, method_of(wishes))
    value = expected_value(times, wishes.objective, sources, log.age)
    spread = None
    if wishes.draws and len(sources) <= MOST_SOURCES and len(log) <= MOST_CRAWLS:
        step("uncertainty")
        spread = solution_spread(problem, estimate, wishes.draws, wishes.seed)
    step("findings")
    found = findings(solution, simple)
    step("done")
    seconds.pop("done")
    return Plan(
        log, estimate, lower, upper, solution, times, value, baselines, wishes, found, spread, seconds
    )


def learn(log: CrawlLog, wishes: Wishes) -> tuple[Estimator, Array, Array, Sources]:
    """Return the change rates' estimator and intervals, and the log's sources as they are to be refreshed."""
    estimate = (wishes.estimate or MaximumLikelihood(wishes.smoothing).fit)(log)
    _require_known(estimate)
    lower, upper = estimate.interval(wishes.confidence)
    sources = Sources(
        estimate.change_rate_,
        1.0 if wishes.importance is None else wishes.importance(log.sources_),
        name=log.sources_,
        host=None if wishes.hosts is None else wishes.hosts(log.sources_),
        min_rate=wishes.min_rate,
        max_rate=wishes.max_rate,
        time_unit=log.time_unit,
    )
    return estimate, lower, upper, sources


def method_of(wishes: Wishes) -> Periodic | PoissonArrivals:
    """Return the method of schedules that realises the objective's discipline."""
    return Periodic() if wishes.objective.refresh is Refresh.PERIODIC else PoissonArrivals(wishes.seed)


def _require_known(estimate: Estimator) -> None:
    """Refuse sources whose change rate only smoothing could tell."""
    rate = estimate.change_rate_
    unknown = np.flatnonzero(~((rate > 0) & (rate < np.inf))).tolist()
    if unknown:
        where = list_offenders(f"'{estimate.sources_[k]}' ({estimate.flag_[k]})" for k in unknown)
        raise SourceDataError(
            f"the log alone does not tell the change rate of {where}. Use smoothing > 0, or drop them."
        )
