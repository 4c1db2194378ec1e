"""`Greedy`: constant-rate schedule by the greatest index.

Each refresh is where its marginal value is largest at that moment.

With cost of age c, the index V(s) = s·c(s) − ∫₀ˢc of a copy of age s is the marginal value of refreshing it
now rather than a little later; at the optimum it equals the price (dual variable) for every source. Giving
each slot to the source with the largest w·V(age) therefore converges to the optimal rates by itself, and from
whatever ages the copies have at first.

Who is first changes with time, as indices grow at different paces, but they only grow. Take m slots in a row
and the m sources that are ahead at the first of them: before every pick one of these is left, so that whoever
is picked is at least as far as the last of them was then. Only contenders matter, sources that reach that
mark by the last slot; and among them the same holds for a part of the slots. Eight parts at a time, down to a
table of slots and contenders that is evaluated at once, a slot asks for some hundred indices instead of n.
What is found is exact, whatever the objective.

Copies that are alike, with one age, are picked in the order of their positions: those further back than there
are slots do not contend. Without that rule equal sources, all fresh, would all contend for every slot.
Cost: 20-40 μs a refresh, of 10⁴ as of 10⁶ sources, whatever the curve.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, SourceDataError, expect
from freshopt.modelling.cost_curve import Curve, CurveObjective
from freshopt.modelling.fetches.conditional_fetches import require_fixed_costs
from freshopt.modelling.phased_objective import plain
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, IntArray, as_float64, total
from freshopt.scheduling.refresh_order import check_ages, slots

PARTS = 8
# Indices that are evaluated at once: below, calls of NumPy cost more than what they compute.
TABLE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Greedy:
    """Greedy index policy at a constant total rate.

    One refresh is in the middle of every slot of length 1/Σρ, of the source with the largest w·V(age).

    Of the rates only their sum is used, and where they are 0 for signalled sources.

    Parameters
    ----------
    problem : Problem
        Its objective has a curve; its sources have equal costs and no bounds or host limits, which greedy
        picks would violate.
    age : array_like, scalar or shape (n,)
        Time since each copy was refreshed when the schedule begins; 0 means fresh.

    Raises
    ------
    ObjectiveError
        If the objective has no cost of age.
    SourceDataError
        If the problem has bounds, host limits or unequal costs.

    Notes
    -----
    Of equal indices the first position wins. Binary freshness leaves sources with w/Δ below the price to
    themselves, as the optimum does.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 1.0], importance=[1.0, 8.0])
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), sources, bandwidth=4.0)
    >>> Greedy(problem).times(np.array([1.0, 3.0]), 2.0)[0].tolist()
    [1, 1, 1, 0, 1, 1, 0, 1]
    """

    problem: Problem
    age: npt.ArrayLike = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        expect(self.problem, Problem, "problem", "Pass a freshopt.Problem")
        check_ages(self.age, len(self.problem.sources))
        problem, sources = self.problem, self.problem.sources
        if not isinstance(plain(problem.objective), CurveObjective):
            raise ObjectiveError(
                f"{problem.objective!r} has no cost of age, hence no index. Use another method."
            )
        if sources.failing is not None:
            raise SourceDataError(
                "fetches of the sources may fail, which greedy picks do not know. Use Periodic() or "
                "Carousel()."
            )
        bounds = (np.any(problem.sources.min_rate > 0.0), np.any(np.isfinite(sources.max_rate)))
        for what, found in zip(("min_rate", "max_rate"), bounds, strict=True):
            if found:
                raise SourceDataError(
                    f"the problem has a {what}, which greedy picks do not keep to. "
                    "Use Periodic() or Carousel()."
                )
        require_fixed_costs(sources, "a greedy schedule")
        if len(problem.hosts) or bool(np.any(sources.refresh_cost != sources.refresh_cost[0])):
            raise SourceDataError(
                "the problem has host limits or unequal costs, which greedy picks do not keep to. "
                "Use Periodic() or Carousel()."
            )

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`.

        Raises
        ------
        SourceDataError
            If the rates are of other sources than the problem's, or an age cannot be used.
        """
        sources, objective = self.problem.sources, plain(self.problem.objective)
        n = len(sources)
        if len(rates) != n:
            raise SourceDataError(f"there are {len(rates)} rates for {n} sources. Pass the problem's own.")
        ages = check_ages(self.age, n)
        time = slots(total(rates), horizon)
        silent = np.flatnonzero(~sources.signalled)
        if not len(time) or not len(silent) or not isinstance(objective, CurveObjective):
            return np.empty(0, dtype=np.int64), np.empty(0)
        curve = objective.curve(sources).take(silent)
        race = _Race(sources.importance[silent], curve, -ages[silent], time)
        race.run(np.arange(len(silent)), 0, len(time))
        return silent[race.picked], time


class _Race:
    """State of the greedy picks: slots and sources so far."""

    def __init__(self, importance: Array, curve: Curve, last: Array, time: Array) -> None:
        self.weight, self.last, self.time = importance, np.array(last), time
        self.parameters = tuple(np.ascontiguousarray(as_float64(own)) for own in curve.parameters)
        self.formula = curve.index
        self.picked = np.zeros(len(time), dtype=np.int64)
        alike, self.turn = _alike(importance, self.parameters, self.last)
        self.queue = np.where(np.bincount(alike)[alike] > 1, alike, -1)  # −1: like no other
        self.gone = np.zeros(len(alike), dtype=np.int64)  # how many of a queue have been picked
        self.began = np.array(self.last)

    def index(self, who: IntArray, age: Array) -> Array:
        """Return w·V(age) of sources."""
        with np.errstate(all="ignore"):
            value = self.formula(np.where(age > 0.0, age, 1.0), *(own[who] for own in self.parameters))
            return np.where((age > 0.0) & (self.weight[who] > 0.0), self.weight[who] * value, 0.0)

    def run(self, who: IntArray, begin: int, end: int) -> None:
        """Fill the slots from `begin` to `end` among `who`."""
        many = end - begin
        if many == 1 or (many <= 64 and many * len(who) <= TABLE):
            self.fill(who, begin, end)
            return
        size = -(-many // PARTS)
        for first in range(begin, end, size):
            last = min(first + size, end)
            self.run(self.contenders(who, first, last), first, last)

    def contenders(self, who: IntArray, begin: int, end: int) -> IntArray:
        """Return which of `who` can have the largest index within slots."""
        many = end - begin
        queue = self.queue[who]
        waiting = (queue >= 0) & (self.last[who] == self.began[who])
        if waiting.any():
            who = who[~(waiting & (self.turn[who] >= self.gone[queue] + many))]
        if len(who) <= many:
            return who
        now = self.index(who, self.time[begin] - self.last[who])
        mark = np.partition(now, len(who) - many)[len(who) - many]
        then = self.index(who, self.time[end - 1] - self.last[who])
        return np.asarray(who[then >= mark])

    def fill(self, who: IntArray, begin: int, end: int) -> None:
        """Pick for each slot the source of largest index in a table."""
        time, many = self.time[begin:end], end - begin
        age = time[:, None] - self.last[who]
        table = self.index(np.tile(who, many), age.ravel()).reshape(many, len(who))
        # Who is picked comes back only if its index, from 0, passes the mark by the last slot.
        mark = np.partition(table[0], len(who) - many)[len(who) - many] if len(who) > many else -np.inf
        back = self.index(who, np.full(len(who), time[-1] - time[0])) >= mark
        for row in range(many):
            column = int(np.argmax(table[row]))
            k = who[column]
            self.picked[begin + row] = k
            if self.queue[k] >= 0 and self.last[k] == self.began[k]:
                self.gone[self.queue[k]] += 1
            self.last[k] = time[row]
            if row + 1 < many:
                again = np.full(many - row - 1, k)
                table[row + 1 :, column] = (
                    self.index(again, time[row + 1 :] - time[row]) if back[column] else -np.inf
                )


def _alike(importance: Array, parameters: tuple[Array, ...], last: Array) -> tuple[IntArray, IntArray]:
    """Return each source's class of identical ones, and its rank there."""
    n = len(importance)
    columns = [importance, last, *(column for own in parameters for column in own.reshape(n, -1).T)]
    order = np.lexsort(columns)  # stable, so that turns go by position
    differs = np.zeros(n, dtype=np.bool_)
    for column in columns:
        differs[1:] |= column[order][1:] != column[order][:-1]
    number = np.cumsum(differs)
    first = np.flatnonzero(np.concatenate([[True], differs[1:]]))
    alike, turn = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    alike[order], turn[order] = number, np.arange(n) - first[number]
    return alike, turn
