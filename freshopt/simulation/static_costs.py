"""Costs of static rates in known changes, exactly, without drawing a refresh.

At time x a copy has missed k changes or more where its age exceeds x − x_k, x_k being the k-th last change
before x. Its expected penalty is Σ_k (C(k) − C(k−1))·P(age > x − x_k), and change i is the k-th last from
change i+k−1 to change i+k: the cost of a window is a sum over changes of integrals of the survival function
of the age (`AgeLaw`), which are closed. That is the mean of a replay over all phases of
equal gaps, or over all Poisson refresh times, without their noise.

Binary freshness has one term a change (k = 1), and so has accumulated delay, Σ_i P(age > x − t_i) over all
later times. Age is Σ_i P(age > x − t_i)·(min(t_{i+1}, x) − t_i): what change i adds once it is missed. Other
penalties take a term for each pair of changes that a copy can miss together. A copy older than the record is
taken to have been made when the record of its source begins.

Cost: O(changes) a policy, for other penalties times the number of changes that are missed at once.

Laws of a copy's age under static rates, and their integrals. At a moment that has nothing to do with the
refreshes, the age of a copy refreshed at equal gaps I = 1/ρ and a random phase is uniform on (0, I);
refreshed as a Poisson process of rate ρ it is exponential. What a static rate costs in known changes is
therefore a sum of integrals of the survival function S(t) = P(age > t), and of t·S(t), between differences of
times: no refresh is drawn. At rate 0 the age is infinite, S = 1.

An objective that is declared by rates says what a rate costs a source of some change rate, and not what each
missed change does. Held out, it is therefore expected (`ExpectedCosts`): under the posterior of the change
rates given the whole log, of whatever rates or crawls a policy has. Under the model no policy is favoured by
that, however its rates were found: the posterior has all that the log tells. A drift within the log is
averaged.

Cost: for each Gauss node of the posteriors one evaluation, of rates or of all gaps; then one for each end of
a window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import FreshoptError, ObjectiveError
from freshopt.modelling.cost_curve import Curve
from freshopt.modelling.fetches.gap_costs import GapCosts
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.segments import first_beyond
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.age import Age
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.expected_penalty import ExpectedPenalty
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.scheduling.expected_cost import priced_gaps
from freshopt.separable.kernel import Numerics
from freshopt.simulation.staleness_integrals import Refreshes
from freshopt.simulation.world import World

Integral: TypeAlias = Callable[[Array, Array, Array], Array]
# Below this u the closed form of the exponential law's first moment loses digits: six terms of its series
# are then right to 1e-16.
SMALL = 1e-2
# Survival probabilities below e^-60 = 9e-27 are nothing beside any cost.
NEGLIGIBLE = 60.0


@dataclass(frozen=True, slots=True)
class AgeLaw:
    """Distribution of a copy's age at a rate.

    - `survival`: ∫_a^b S(t) dt for 0 ≤ a ≤ b and rate ρ ≥ 0, vectorised as ``survival(a, b, rate)``.
    - `moment`: ∫_a^b t·S(t) dt.
    - `reach`: The age beyond which S is 0 or negligible, of a rate.
    """

    survival: Integral
    moment: Integral
    reach: Callable[[Array], Array]


def age_law(refresh: Refresh) -> AgeLaw:
    """Return the law of copies' ages under a refresh discipline.

    Examples
    --------
    >>> law, one = age_law(Refresh.PERIODIC), np.ones(1)
    >>> [float(integral(0.0 * one, 2.0 * one, one)[0].round(6)) for integral in (law.survival, law.moment)]
    [0.5, 0.166667]
    """
    return UNIFORM if refresh is Refresh.PERIODIC else EXPONENTIAL


def _uniform_survival(a: Array, b: Array, rate: Array) -> Array:
    a, b = _within(a, b, rate)
    return (b - a) * (1.0 - 0.5 * rate * (a + b))


def _uniform_moment(a: Array, b: Array, rate: Array) -> Array:
    a, b = _within(a, b, rate)
    return (b - a) * (0.5 * (a + b) - rate * (a * a + a * b + b * b) / 3.0)


def _uniform_reach(rate: Array) -> Array:
    # Of a rate of -0.0 too the reach is infinite.
    with np.errstate(divide="ignore"):
        return 1.0 / np.abs(rate)


def _within(a: Array, b: Array, rate: Array) -> tuple[Array, Array]:
    reach = _uniform_reach(rate)
    return np.minimum(a, reach), np.minimum(b, reach)


def _exponential_survival(a: Array, b: Array, rate: Array) -> Array:
    return np.exp(-rate * a) * _decayed(b - a, rate)


def _exponential_moment(a: Array, b: Array, rate: Array) -> Array:
    length = b - a
    u = rate * length
    near = 1.0 / 2.0 - u * (1.0 / 3.0 - u * (1.0 / 8.0 - u * (1.0 / 30.0 - u * (1.0 / 144.0 - u / 840.0))))
    with np.errstate(all="ignore"):
        far = (-np.expm1(-u) - u * np.exp(-u)) / (u * u)
    own = length * length * np.where(u < SMALL, near, far)
    return np.exp(-rate * a) * (a * _decayed(length, rate) + own)


def _exponential_reach(rate: Array) -> Array:
    with np.errstate(divide="ignore"):
        return NEGLIGIBLE / np.abs(rate)


def _decayed(length: Array, rate: Array) -> Array:
    """Return ∫₀^length e^{−ρt} dt."""
    u = rate * length
    with np.errstate(all="ignore"):
        return np.where(u > 0.0, length * (-np.expm1(-u) / u), length)


UNIFORM = AgeLaw(_uniform_survival, _uniform_moment, _uniform_reach)
EXPONENTIAL = AgeLaw(_exponential_survival, _exponential_moment, _exponential_reach)


MEASURED = (BinaryFreshness, HarmonicStaleness, AccumulatedDelay, Age, ExpectedPenalty)


@frozen_value(repr=False)
class ChangeWindow:
    """Changes of some sources around the time in which costs count.

    - `source` (m,): Which source changed, non-decreasing.
    - `time`, `following` (m,): Each change and the next of its source; the end of its window after the last.
    - `position` (m,): How many changes of its source come before.
    - `first`, `until` (n,): The window of each source.
    """

    source: IntArray
    time: Array
    following: Array
    position: IntArray
    first: Array
    until: Array

    @classmethod
    def of(cls, world: World, first: npt.ArrayLike, until: npt.ArrayLike) -> ChangeWindow:
        """Return a world's changes up to the end of each source's window.

        Examples
        --------
        >>> world = World.from_events({"source": [0, 0, 1], "time": [1.0, 3.0, 2.0]}, horizon=4.0)
        >>> ChangeWindow.of(world, 2.0, 4.0).following.tolist()
        [3.0, 4.0, 4.0]
        """
        n = len(world)
        begin = np.maximum(np.broadcast_to(np.asarray(first, dtype=np.float64), (n,)), world.start)
        end = np.maximum(np.broadcast_to(np.asarray(until, dtype=np.float64), (n,)), begin)
        offsets, time = world.events(-np.inf, float(np.max(end)))
        source = np.repeat(np.arange(n), np.diff(offsets))
        known = time < end[source]
        source, time = source[known], time[known]
        counts = np.bincount(source, minlength=n)
        place = np.arange(len(time)) - np.repeat(np.cumsum(counts) - counts, counts)
        following = end[source]
        same = np.flatnonzero(source[1:] == source[:-1])
        following[same] = time[same + 1]
        return cls(source, time, following, place, begin, end)

    @property
    def span(self) -> Array:
        """Length of each source's window, shape (n,)."""
        return self.until - self.first


def has_static_cost(objective: Objective) -> bool:
    """Return whether `static_costs` knows an objective's cost."""
    return type(objective) in MEASURED


def static_costs(window: ChangeWindow, rates: Array, objective: Objective) -> Array:
    """Return each source's cost integrated over its window, in expectation.

    For unit importance; refreshes are equal gaps at a random phase, or a Poisson process.

    Examples
    --------
    One change in the middle of a window of 2 days, daily refreshes: it is stale for half a day on average.

    >>> from freshopt.modelling.objective import Refresh
    >>> world = World.from_events({"source": [0], "time": [1.0]}, horizon=2.0)
    >>> static_costs(ChangeWindow.of(world, 0.0, 2.0), np.ones(1), BinaryFreshness(Refresh.PERIODIC))
    array([0.5])
    """
    if not has_static_cost(objective):
        raise ObjectiveError(
            f"{objective!r} has no exact cost of static rates in known changes. Replay a schedule instead."
        )
    law, own = age_law(objective.refresh), rates[window.source]
    begin = np.maximum(window.time, window.first[window.source])
    shown = np.flatnonzero(window.until[window.source] > begin)
    if isinstance(objective, Age):
        each = _of_age(window, law, own, begin)
    elif isinstance(objective, AccumulatedDelay):
        age = window.until[window.source] - window.time
        each = law.survival(begin - window.time, age, own)
    else:
        return _of_number(
            window, law, own, begin, _increments(objective, int(window.position.max(initial=0)))
        )
    return np.bincount(window.source[shown], each[shown], len(window.first)).astype(np.float64)


def _of_age(window: ChangeWindow, law: AgeLaw, rate: Array, begin: Array) -> Array:
    """Return what each change adds to the age.

    It is ∫ P(age > x − t_i)·(min(t_{i+1}, x) − t_i) dx.
    """
    time, after, until = window.time, window.following, window.until[window.source]
    later = np.maximum(after, begin)
    own = law.moment(begin - time, later - time, rate)
    return own + (after - time) * law.survival(later - time, np.maximum(until, later) - time, rate)


def _increments(objective: Objective, most: int) -> Array:
    """Return the penalty's increments C(k) − C(k−1), k = 1..most + 1."""
    if isinstance(objective, ExpectedPenalty):
        return np.diff(np.asarray(objective.penalty(np.arange(most + 2.0)), dtype=np.float64))
    if isinstance(objective, HarmonicStaleness):
        return 1.0 / np.arange(1.0, most + 2.0)
    return np.ones(1)


def _of_number(window: ChangeWindow, law: AgeLaw, rate: Array, begin: Array, increments: Array) -> Array:
    """Return the cost of a penalty on the number of missed changes.

    The k-th pass takes each change as the latest and that k−1 before it as the one that was missed.
    """
    total = np.zeros(len(window.first))
    latest = np.flatnonzero(window.following > begin)
    reach = law.reach(rate)
    for k, increment in enumerate(increments.tolist()):
        missed = window.time[latest - k]
        own = rate[latest]
        if increment:
            each = law.survival(begin[latest] - missed, window.following[latest] - missed, own)
            total += np.bincount(window.source[latest], increment * each, len(total))
        latest = latest[(begin[latest] - missed < reach[latest]) & (window.position[latest] > k)]
        if not len(latest):
            break
    return total


@dataclass(frozen=True, eq=False)
class ExpectedCosts:
    """Expected costs of n sources, by importance.

    - `sources`: The same with the change rates of each node.
    - `shares` (n, nodes): Probabilities of the nodes.
    """

    objective: Objective
    sources: tuple[Sources, ...]
    shares: Array
    _elapsed: list[tuple[Refreshes, Array, Array]] = field(default_factory=list)

    def of_rates(self, rates: Array) -> Array:
        """Return the cost per time unit of each source at its rate."""
        each = []
        for numerics in self._numerics:
            if numerics is None:
                raise ObjectiveError(
                    f"{self.objective!r} has an atom without derivatives, and no numerics to price rates by. "
                    "Register the atom."
                )
            with np.errstate(all="ignore"):
                each.append(numerics.cost(rates))
        return self._mean(each)

    @cached_property
    def _numerics(self) -> list[Numerics | None]:
        return [numerics_of(self.objective, own)[0] for own in self.sources]

    @cached_property
    def _gaps(self) -> list[tuple[Curve | GapCosts, Array]]:
        return [priced_gaps(self.objective, own) for own in self.sources]

    def refuses_crawls(self) -> str | None:
        """Return why crawls have no cost, or None."""
        try:
            priced_gaps(self.objective, self.sources[0])
        except FreshoptError as error:
            return str(error)
        return None

    def of_crawls(self, start: Array, refreshes: Refreshes, first: Array, until: Array) -> Array:
        """Return the cost of each source from `first` to `until`.

        Its copy is fresh at the start. Crawls are given source by source, in order of time.
        """
        known = next((one for one in self._elapsed if one[0] is refreshes), None)
        if known is None:
            known = (refreshes, *self._until_each(start, refreshes))
            self._elapsed.append(known)
        source, time = refreshes
        _, last, spent = known
        ends = np.searchsorted(source, np.arange(len(start) + 1))

        def spent_until(moment: Array) -> Array:
            # The start comes before all crawls of a source.
            at = first_beyond(time, ends[:-1], ends[1:], moment) + np.arange(len(start))
            gap = np.maximum(moment - last[at], 0.0)
            return np.asarray(spent[at] + self._of_gaps(np.arange(len(start)), gap))

        return spent_until(until) - spent_until(first)

    def _until_each(self, start: Array, refreshes: Refreshes) -> tuple[Array, Array]:
        """Return start and crawls of each source, and costs until then."""
        source, time = refreshes
        n = len(start)
        own = np.concatenate([np.arange(n), source])
        order = np.argsort(own, kind="stable")
        own, moment = own[order], np.concatenate([start, np.maximum(time, start[source])])[order]
        gap = np.zeros(len(own))
        gap[1:] = np.where(own[1:] == own[:-1], moment[1:] - moment[:-1], 0.0)
        begins = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
        cost = self._of_gaps(own, gap)
        cost[begins] = 0.0
        total = np.cumsum(cost)
        return moment, total - total[begins][own]

    def _of_gaps(self, source: IntArray, gap: Array) -> Array:
        """Return what gaps of these sources cost."""
        each = [weight[source] * curve.take(source).gap_cost(gap) for curve, weight in self._gaps]
        return self._mean(each, self.shares[source])

    def _mean(self, each: list[Array], shares: Array | None = None) -> Array:
        known = self.shares if shares is None else shares
        return np.asarray(sum(share * cost for share, cost in zip(known.T, each, strict=True)))
