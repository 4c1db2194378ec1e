"""Expected cost of a schedule with known refresh times.

In expectation over Poisson changes.

A refresh interval of length τ costs C(τ) = ∫₀^τ c(s) ds, c the objective's cost of age. So the cost of a
written schedule is a sum over its intervals, exact for the horizon it covers, including the first (which
began with the last crawl before it) and the last (which the horizon cuts off).

Where fetches succeed with chance s, q = 1 − s, a copy made by attempt i lasts until attempt i + k with
probability s·q^{k−1}, and to the horizon if none of the m − i later ones succeeds:

    s·Σ_i (Σ_k s·q^{k−1}·C(t_{i+k} − t_i) + q^{m−i}·C(H − t_i)), and the same once of the copy at the start.

Cost: one evaluation of C per refresh and source; where fetches fail, one per pair of attempts of a source
that are at most `DEPTH`/s attempts apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.cost_curve import Curve, CurveObjective
from freshopt.modelling.fetches.gap_costs import GapCosts
from freshopt.modelling.objective import Objective
from freshopt.modelling.objective_numerics import gap_costs
from freshopt.modelling.phased_objective import plain
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray, exact_sum
from freshopt.scheduling.refresh_order import check_ages, ordinals
from freshopt.scheduling.schedule import Schedule

# Runs of failures of probability below e^{−DEPTH} are left out.
DEPTH = 50.0


def expected_value(
    schedule: Schedule, objective: Objective, sources: Sources, age: npt.ArrayLike = 0.0
) -> float:
    """Return the objective's expected value, averaged over a schedule's horizon.

    - `schedule`: Refresh times in [0, horizon).
    - `objective`: One that is a cost of age, as the named ones are; its own discipline does not matter then.
      Or one of your own under periodic refreshes, whose cost of age is derived from that of rates.
    - `sources`: In the schedule's order; none of them signalled. With `success`, what is scheduled are
      attempts.
    - `age` scalar or (n,): Time since each copy was last refreshed when the schedule starts; 0 means fresh.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0])
    >>> twice_a_day = fo.Schedule(source=[0, 0], time=[0.0, 0.5], horizon=1.0, rates=[2.0])
    >>> expected_value(twice_a_day, fo.problems.AccumulatedDelay(fo.Refresh.POISSON), sources)
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
    curve, weight = priced_gaps(objective, sources)
    order = np.argsort(schedule.source, kind="stable")  # by source, then time
    source, time = schedule.source[order], schedule.time[order]
    first = np.ones(len(source), dtype=np.bool_)
    first[1:] = source[1:] != source[:-1]
    previous = np.where(first, -ages[source], np.concatenate(([0.0], time[:-1])))
    last = np.array(-ages)
    last[source] = time  # the last assignment to a source stays
    gains = objective.sense == "maximise" and isinstance(curve, Curve) and curve.mean_gain is not None

    def measured(own: Curve | GapCosts, gap: Array) -> Array:
        return own.gap_gain(gap) if gains and isinstance(own, Curve) else own.gap_cost(gap)

    kept: Iterable[Array]
    if sources.failing is None:
        kept = (
            weight[source] * measured(curve.take(source), time - previous),
            weight * measured(curve, schedule.horizon - last),
        )
    else:
        events = _Attempts.of(source, time, ages, sources.failing)
        kept = (
            share * weight[own] * measured(curve.take(own), gap)
            for own, gap, share in events.gaps(schedule.horizon)
        )
    parts = (*kept, -weight * measured(curve, np.array(ages)))
    mean = exact_sum(float(np.sum(part)) for part in parts) / schedule.horizon
    return mean if gains else objective.value_from_cost(mean, sources)


def priced_gaps(objective: Objective, sources: Sources) -> tuple[Curve | GapCosts, Array]:
    """Return what gaps cost, and the weights of the sources.

    A cost of age is stated for unit importance; one that is derived from a cost of rates has it already.

    - raises ObjectiveError if the objective is neither.
    """
    objective = plain(objective)
    if isinstance(objective, CurveObjective):
        return objective.curve(sources), sources.importance
    found = gap_costs(objective, sources)
    if isinstance(found, str):
        raise ObjectiveError(f"{found}.")
    return found, np.ones(len(sources))


class _Attempts(NamedTuple):
    """Beginnings of copies: the start and the attempts of each source.

    - `source` (events,): Ascending.
    - `time` (events,): Ascending by source; of a start minus the age there.
    - `chance` (events,): That a copy begins there, 1 of a start.
    - `later` (events,): How many attempts of the source follow.
    - `fails` (events,): Chance that an attempt of the source fails.
    """

    source: IntArray
    time: Array
    chance: Array
    later: IntArray
    fails: Array

    @classmethod
    def of(cls, source: IntArray, time: Array, ages: Array, success: Array) -> _Attempts:
        """Return the events of attempts in order of source, then time."""
        many = np.bincount(source, minlength=len(ages))
        own, number = ordinals(many + 1)
        begins = number == 0
        clock, chance = np.empty(len(own)), success[own]
        clock[begins], clock[~begins], chance[begins] = -ages, time, 1.0
        return cls(own, clock, chance, many[own] - number, 1.0 - success[own])

    def gaps(self, horizon: float) -> Iterator[tuple[IntArray, Array, Array]]:
        """Yield sources, lengths and probabilities of what copies may last."""
        with np.errstate(divide="ignore"):
            decay = -np.log(self.fails)
        yield self.source, horizon - self.time, self.chance * self.fails**self.later
        at, lag = np.flatnonzero(self.later > 0), 1
        while len(at):
            share = self.chance[at] * (1.0 - self.fails[at]) * self.fails[at] ** (lag - 1)
            yield self.source[at], self.time[at + lag] - self.time[at], share
            lag += 1
            at = at[(self.later[at] >= lag) & ((lag - 1) * decay[at] < DEPTH)]
