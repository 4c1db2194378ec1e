"""Expected cost of a schedule with known refresh times.

In expectation over Poisson changes.

A refresh interval of length τ costs C(τ) = ∫₀^τ c(s) ds, c the objective's cost of age. So the cost of a
written schedule is a sum over its intervals, exact for the horizon it covers, including the first (which
began with the last crawl before it) and the last (which the horizon cuts off).
Cost: one evaluation of C per refresh and source.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.cost_curve import Curve, CurveObjective
from freshopt.modelling.objective import Objective
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, exact_sum
from freshopt.scheduling.initial_ages import check_ages
from freshopt.scheduling.schedule import Schedule


def expected_value(
    schedule: Schedule, objective: Objective, sources: Sources, age: npt.ArrayLike = 0.0
) -> float:
    """Return the objective's expected value, averaged over a schedule's horizon.

    Parameters
    ----------
    schedule : Schedule
        Refresh times in [0, horizon).
    objective : Objective
        One that is a cost of age, as the named ones are; its own discipline does not matter here.
    sources : Sources
        In the schedule's order; none of them signalled.
    age : array_like, scalar or shape (n,)
        Time since each copy was last refreshed when the schedule starts; 0 means fresh.

    Raises
    ------
    ObjectiveError
        If the objective has no cost curve.
    SourceDataError
        If the schedule is for another number of sources, an age is negative, or a source is signalled.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0])
    >>> twice_a_day = fo.Schedule(source=[0, 0], time=[0.0, 0.5], horizon=1.0, rates=[2.0])
    >>> expected_value(twice_a_day, fo.problems.AccumulatedDelay(), sources)
    0.25
    """
    n = len(sources)
    if len(schedule.rates) != n:
        raise SourceDataError(
            f"the schedule is for {len(schedule.rates)} sources, not {n}. Pass its own sources."
        )
    if bool(np.any(sources.signalled)):
        raise SourceDataError(
            "a signalled source has no refresh times to price. Leave signalled sources out."
        )
    ages = check_ages(age, n)
    if not isinstance(objective, CurveObjective):
        raise ObjectiveError(
            f"{objective!r} has no cost of age to price gaps by. Use an objective with a curve(sources)."
        )
    curve, weight = objective.curve(sources), sources.importance
    order = np.argsort(schedule.source, kind="stable")  # by source, then time
    source, time = schedule.source[order], schedule.time[order]
    first = np.ones(len(source), dtype=np.bool_)
    first[1:] = source[1:] != source[:-1]
    previous = np.where(first, -ages[source], np.concatenate(([0.0], time[:-1])))
    last = np.array(-ages)
    last[source] = time  # the last assignment to a source stays
    gains = objective.sense == "maximise" and curve.mean_gain is not None

    def measured(own: Curve, gap: Array) -> Array:
        return own.gap_gain(gap) if gains else own.gap_cost(gap)

    parts = (
        weight[source] * measured(curve.take(source), time - previous),
        weight * measured(curve, schedule.horizon - last),
        -weight * measured(curve, np.array(ages)),
    )
    mean = exact_sum(float(np.sum(part)) for part in parts) / schedule.horizon
    return mean if gains else objective.value_from_cost(mean, sources)
