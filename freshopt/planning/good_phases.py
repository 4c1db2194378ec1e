"""Good phases of the week in a plan, and what they save.

The weekly profile is learnt from the plan's own log with the plan's own change rates. Where its evidence is
too small, where the discipline or the objective knows no phases, or where nothing is saved, the plan is that
without a profile, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.dual_search.segment_ends import hull_of
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.weekly_learning import learnt_shape
from freshopt.estimators.weekly_profile import WeeklyProfile, peak_hours
from freshopt.formatting import count, percent
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.cost_curve import CurveObjective
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import PhasedObjective, why_no_phases
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray, total
from freshopt.scheduling.periodic import Periodic

# Bins of the week that is learnt, of three hours each.
BINS = 56
# Crawls that the week is learnt from; of a longer log those of every so many sources. Two bins of a week then
# differ by 2 % by chance, which costs of good phases do not show.
MOST_CRAWLS = 500_000
# Savings below this share of the cost do not justify a load that is not flat.
WORTHWHILE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class GoodPhases:
    """What crawling at good hours of the week brings to a plan.

    - `profile`: Learnt from the plan's log.
    - `load_limit`: Largest load of an hour over the mean.
    - `value_without`: The optimal value without a profile.
    - `saved`: Share of the cost that the profile saves; of a freshness the cost is the stale part.
    - `sources`: Sources at gaps of the week.
    - `sampled`: Sources that the profile was learnt from, if not all.
    - `fresh_without`: Share of time that copies are fresh without a profile, by importance, if known.
    """

    profile: WeeklyProfile
    load_limit: float
    value_without: float
    saved: float
    sources: int
    sampled: int | None = None
    fresh_without: float | None = None

    @property
    def sentence(self) -> str:
        """When changes peak, and the saving.

        Where the log has plain numbers for times, with what they are taken for.
        """
        limit = self.load_limit
        load = "twice the mean load" if limit == 2.0 else f"{limit:g} times the mean load"
        saved = percent(self.saved, space=" ")
        monday = "" if self.profile.origin is not None else ", taking day 0 for a Monday"
        peak = f"{peak_hours(self.profile)}{monday}"
        some = "" if self.sampled is None else f" (learnt from {count(self.sampled, 'source')})"
        return f"{peak}{some}: crawling after the peaks saves {saved} of the cost at {load}"

    def facts(self) -> dict[str, Any]:
        """Return the numbers, ready for JSON."""
        return {
            "peak": peak_hours(self.profile),
            "evidence": self.profile.evidence,
            "daily_evidence": self.profile.daily_evidence,
            "load_limit": self.load_limit,
            "value_without": self.value_without,
            "fresh_without": self.fresh_without,
            "saved": self.saved,
            "sources": self.sources,
            **({} if self.sampled is None else {"sampled_sources": self.sampled}),
            "sentence": self.sentence,
        }


def phased_problem(log: CrawlLog, estimate: Estimator, problem: Problem, load_limit: float) -> Problem | None:
    """Return a plan's problem with the profile of its log, or None.

    None where the log, the objective, its discipline or the constraints have no good phases, or fetches fail
    or cost what they bring.
    """
    if load_limit <= 1.0 or not log.timed or problem.constraints or why_no_phases(problem.objective):
        return None
    if problem.sources.failing is not None or problem.per_bandwidth is not None:
        return None
    shape = learnt_shape(log, estimate.change_rate_, BINS, None, sampled_sources(log))
    profile = WeeklyProfile(*shape, log.time_unit, log.origin)
    if not profile.active:
        return None
    phased = Problem(
        problem.objective,
        problem.sources,
        problem.bandwidth,
        problem.host_limits or None,
        profile=profile,
        load_limit=load_limit,
    )
    return phased if isinstance(phased.objective, PhasedObjective) else None


def sampled_sources(log: CrawlLog) -> IntArray | None:
    """Return positions of sources to learn the week from, or None."""
    n = len(log.names)
    some = max(1, n * MOST_CRAWLS // len(log))
    return None if some >= n else np.linspace(0, n - 1, some).astype(np.int64)


def good_phases(solution: Solution, without: Solution, sample: IntArray | None = None) -> GoodPhases | None:
    """Return what a profile of `sample` saves, or None if negligible."""
    objective, hull = solution.problem.objective, hull_of(solution.problem.numerics)
    if not isinstance(objective, PhasedObjective) or hull is None:
        return None
    saved = 1.0 - _cost(solution) / _cost(without)
    profile = objective.profile
    if not saved >= WORTHWHILE or not isinstance(profile, WeeklyProfile):
        return None
    return GoodPhases(
        profile,
        objective.load_limit,
        without.value,
        saved,
        int(np.sum(at_good_phases(solution.problem, solution.rates))),
        None if sample is None else len(sample),
    )


def at_good_phases(problem: Problem, rates: Array) -> BoolArray:
    """Return which sources rest at points of their hull."""
    hull = hull_of(problem.numerics)
    if hull is None:
        return np.zeros(len(rates), dtype=np.bool_)
    return np.asarray(hull.corner(rates) & ~problem.sources.signalled, dtype=np.bool_)


def phase_savings(
    problem: Problem,
    rates: Array,
    sources: Sources | None = None,
    objective: CurveObjective | None = None,
) -> Array:
    """Return by how much each source costs less than at random phases.

    Weighted; 0 where a source is not at a good phase of the problem. Sources may have other change rates, and
    the objective be another whose cost is meant, such as freshness.
    """
    found, phased = np.zeros(len(rates)), problem.objective
    chosen = np.flatnonzero(at_good_phases(problem, rates))
    if not isinstance(phased, PhasedObjective) or not len(chosen):
        return found
    if objective is not None:
        phased = PhasedObjective(objective, phased.profile, phased.load_limit)
    own, numerics = (problem.sources if sources is None else sources).take(chosen), None
    if not isinstance(phased.objective, CurveObjective):
        numerics = numerics_of(phased.objective.take(chosen), own)[0]
    gaps, savings = phased.points(own, numerics)
    found[chosen] = np.sum(np.where(rates[chosen] == gaps[:, None], savings, 0.0), axis=0)
    return found


def phased_method(phases: GoodPhases) -> Periodic:
    """Return the schedule's method that keeps to the good phases."""
    return Periodic(phases.profile, phases.load_limit)


def _cost(solution: Solution) -> float:
    numerics = solution.problem.numerics
    return np.nan if numerics is None else total(numerics.cost(solution.rates))
