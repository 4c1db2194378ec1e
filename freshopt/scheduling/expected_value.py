"""What a schedule with known refresh times will cost, in expectation over Poisson changes.

Under periodic refreshes a gap of length τ costs C(τ) = ∫₀^τ c(s) ds = τ·J(1/τ), J the periodic cell: the same
function prices any sequence of gaps. So the cost of a written schedule is a sum over its gaps, exact for the
horizon it covers, including the first gap (which began with the last crawl before it) and the last (which the
horizon cuts off). Cost: one evaluation of the cell per refresh and source.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, as_vector, exact_sum
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.kernel import Numerics
from freshopt.objective import Objective, Refresh
from freshopt.scheduling.schedule import Schedule
from freshopt.sources import Sources


def expected_value(
    schedule: Schedule, objective: Objective, sources: Sources, age: npt.ArrayLike = 0.0
) -> float:
    """Return the objective's expected value, averaged over a schedule's horizon.

    Parameters
    ----------
    schedule : Schedule
        Refresh times in [0, horizon).
    objective : Objective
        A named objective that has a periodic cell; its own discipline does not matter here.
    sources : Sources
        In the schedule's order; none of them signalled.
    age : array_like, scalar or shape (n,)
        Time since each copy was last refreshed when the schedule starts; 0 means fresh.

    Raises
    ------
    ObjectiveError
        If the objective has no periodic cell with a kernel.
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
    ages = as_vector(age, n, "age")
    if not bool(np.all((ages >= 0.0) & np.isfinite(ages))):
        raise SourceDataError("age must be numbers >= 0. Pass the time since each source's last crawl.")
    numerics = periodic_numerics(objective, sources)
    order = np.argsort(schedule.source, kind="stable")  # by source, then time
    source, time = schedule.source[order], schedule.time[order]
    first = np.ones(len(source), dtype=np.bool_)
    first[1:] = source[1:] != source[:-1]
    previous = np.where(first, -ages[source], np.concatenate(([0.0], time[:-1])))
    last = np.array(-ages)
    last[source] = time  # the last assignment to a source stays
    parts = (
        gap_costs(numerics.take(source), time - previous),
        gap_costs(numerics, schedule.horizon - last),
        -gap_costs(numerics, np.array(ages)),
    )
    cost = exact_sum(float(np.sum(part)) for part in parts)
    return objective.value_from_cost(cost / schedule.horizon, sources)


def periodic_numerics(objective: Objective, sources: Sources) -> Numerics:
    """Return the kernel of the objective's periodic cell."""
    changed: dict[str, Any] = {"refresh": Refresh.PERIODIC}
    if "refresh" not in getattr(objective, "__dataclass_fields__", {}):
        raise ObjectiveError(
            f"{objective!r} has no periodic cell. Use an objective with refresh=Refresh.PERIODIC."
        )
    periodic: Objective = replace(objective, **changed)  # type: ignore[type-var]
    kernel = periodic.kernel(sources)
    if kernel is None:
        raise ObjectiveError(
            f"{periodic!r} has no kernel, so gaps cannot be priced. Write its kernel(sources)."
        )
    return kernel


def gap_costs(numerics: Numerics, gap: Array) -> Array:
    """Return C(τ) = τ·J(1/τ) of gaps τ ≥ 0 without a refresh, weighted by importance."""
    rate = 1.0 / np.where(gap > 0.0, gap, 1.0)
    return np.where(gap > 0.0, gap * numerics.cost(rate), 0.0)
