"""Exact Bregman steps under bandwidth and host limits.

All mirror maps share them. A step from rates q along a gradient g minimises η⟨g, r⟩ + D_F(r, q) over Σr ≤ B
and bounds, where D_F is the Bregman divergence of a separable mirror map F = Σφ(r). In the dual coordinate θ
= φ'(r) the answer is a shift and a clip, θ_k = φ'(q_k) − ηg_k − λ, with one multiplier (dual variable) λ ≥ 0
of the budget. The multipliers at which a rate meets one of its bounds are known, so they are sorted and
bisected; between two of them the same rates are free, and what remains is the equation Σ r(θ_k − λ) = rest
over those, which each map solves in its own way.

A limited host has the multiplier λ_h of its own limit L_h, as if there were no bandwidth. Rates fall as
multipliers rise, so that a host at λ ≥ λ_h is within its limit, and at λ < λ_h it is at its limit with the
multiplier λ_h − λ on top: its sources pay max(λ, λ_h), and r(max(λ, λ_h)) = min(r(λ), r(λ_h)). So the hosts
that would exceed their limits are met first, all at once, and their rates are caps of the step that follows.

λ itself is never used to compute a rate: where gradients are large, λ and ηg agree in most of their digits.
Duals are taken relative to one of the sources, gradients and duals apart and with the rounding of their sum
carried along, so that a common part of all gradients, which a binding budget makes irrelevant, cancels before
anything is rounded. Multipliers nearer to one another than their rounding, as those at which a host's sources
leave their caps, are sorted by their differences. In 63 000 random steps, data over up to twenty decades,
three quarters of them with hosts, the optimality conditions hold to 1.6e-15 of their terms. A step costs one
sort and about log₂ 2n + 5 passes, and as much again over the sources of hosts that exceed their limits,
where n is then the largest host.

`Crossings`: breakpoints of rates as functions of budget multipliers.

There rates leave their caps and meet their floors as the multipliers (dual variables) of their budgets rise.
Each source has two events, numbered k (it leaves its cap) and n + k (it meets its floor). Between two events
of a budget the same rates are free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from freshopt.errors import InfeasibleProblemError, SourceDataError, list_offenders
from freshopt.first_order.budget_groups import Budgets, HostBudgets
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_vector, total


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Breakpoints at positive multipliers, sorted within each group.

    - `events` (E,): Numbers of the events.
    - `groups` (E,): The group of each.
    - `first`, `counts` (G,): Where each group's events begin, and how many they are.
    """

    events: IntArray
    groups: IntArray
    first: IntArray
    counts: IntArray

    @classmethod
    def of(cls, multipliers: Array, budgets: Budgets) -> Crossings:
        """Sort the breakpoints of n sources by multipliers, shape (2n,)."""
        events = np.flatnonzero((multipliers > 0.0) & (multipliers < np.inf))
        if len(budgets) > 1:
            groups = budgets.groups[events % len(budgets.groups)]
            order = np.lexsort((multipliers[events], groups))
            groups, counts = groups[order], np.bincount(groups, minlength=len(budgets))
        else:
            order = np.argsort(multipliers[events], kind="stable")
            groups, counts = np.zeros_like(events), np.array([len(events)])
        return cls(events[order], groups, np.cumsum(counts) - counts, counts)

    def broadcast_to_sources(self, values: Array) -> Array:
        """Return each event's value of its group, a single one's broadcast."""
        return values if len(self.counts) == 1 else values[self.groups]

    def at(self, position: IntArray) -> IntArray:
        """Return each group's event at a position, shape (G,), any without."""
        if not len(self.events):
            return np.zeros(len(self.counts), dtype=np.int64)
        at: IntArray = self.events[np.minimum(self.first + position, len(self.events) - 1)]
        return at

    def split(self, enough: Callable[[IntArray], BoolArray]) -> IntArray:
        """Return how many events precede each group's multiplier, shape (G,).

        At these events its rates still use up the budget.
        `enough` tells this of one event per group, all groups at once.
        """
        passed, ahead = np.zeros_like(self.counts), self.counts
        while bool(np.any(searched := passed < ahead)):
            middle = (passed + ahead) // 2
            spends = enough(self.at(middle))
            passed = np.where(searched & spends, middle + 1, passed)
            ahead = np.where(searched & ~spends, middle, ahead)
        return passed

    def around(self, split: IntArray) -> tuple[IntArray, IntArray]:
        """Return the events before and after a split, shapes (G,)."""
        return self.at(np.maximum(split - 1, 0)), self.at(np.minimum(split, np.maximum(self.counts - 1, 0)))

    def crowds(self, split: IntArray, multipliers: Array, blur: Array) -> tuple[IntArray, IntArray]:
        """Return positions and crowds of events in unclear order.

        The positions are in `events`, the order is that beside a split.
        A crowd holds the events nearer than rounding to the one before the split, or to the one after it, and
        all between them; one crowd if the two overlap. Numbers of crowds ascend with positions.
        """
        here, width, place = multipliers[self.events], blur[self.events], np.arange(len(self.events))
        reach = []
        for anchors in self.around(split):
            apart = np.abs(here - self.broadcast_to_sources(multipliers[anchors]))
            near = np.flatnonzero(apart <= width + self.broadcast_to_sources(blur[anchors]))
            low, high = np.full(len(split), len(place)), np.full(len(split), -1)
            np.minimum.at(low, self.groups[near], near)
            np.maximum.at(high, self.groups[near], near)
            reach.append((low, high))
        (low, middle), (start, high) = reach
        apart_at = np.where(middle < start, start, high + 1)  # where the second crowd begins
        low, middle = np.minimum(low, start), np.where(middle < start, middle, np.maximum(middle, high))
        first = (place >= low[self.groups]) & (place <= middle[self.groups])
        second = (place >= apart_at[self.groups]) & (place <= high[self.groups])
        positions = np.flatnonzero(first | second)
        return positions, 2 * self.groups[positions] + second[positions]

    def finest(self, positions: IntArray, crowds: IntArray, edges: Array) -> IntArray:
        """Return each position's event of smallest edge in its crowd."""
        order = np.lexsort((np.abs(edges[self.events[positions]]), crowds))
        finest: IntArray = self.events[positions[order]][np.searchsorted(crowds, crowds)]
        return finest

    def reordered(self, positions: IntArray, crowds: IntArray, key: Array) -> Crossings:
        """Return the same events, each crowd in a key's order."""
        events = self.events.copy()
        events[positions] = events[positions[np.lexsort((key, crowds))]]
        return replace(self, events=events)

    def places(self, multipliers: Array) -> IntArray:
        """Return every event's position in its group, shape (2n,).

        Events at multipliers that are not positive come before all others, those at none after them.
        """
        place = np.where(multipliers > 0.0, len(multipliers), -1)
        place[self.events] = np.arange(len(self.events)) - np.repeat(self.first, self.counts)
        return place


# Multipliers nearer than this, relatively, may be out of order.
BLUR = 4 * float(np.finfo(float).eps)
# Rounds of sorting anew, each around the split that the one before led to.
ROUNDS = 4
# Relative excess that is the rounding of hosts which fill the bandwidth.
MET = 4 * float(np.finfo(float).eps)


class Geometry(Protocol):
    """Protocol of separable mirror maps F = Σφ(r)."""

    @property
    def positive(self) -> bool:
        """Whether φ is finite for r > 0 only."""

    def take(self, sources: IntArray, /) -> Geometry:
        """Return the mirror map of some of the sources."""

    def dual(self, rates: Array) -> Array:
        """Return the dual coordinate φ'(r), increasing in r, shape (n,)."""

    def primal(self, dual: Array) -> Array:
        """Return the primal r with φ'(r) = dual, or inf, shape (n,)."""

    def levels(self, behind: Array, budgets: Budgets) -> Array:
        """Return per group the c with Σ primal(c − behind) = amount.

        Shape (G,).
        `behind`, shape (n,), is ≥ 0 and has a 0 in every group.
        """


class Step(NamedTuple):
    """Primal rates and dual multipliers of a step.

    Multipliers are in units of learning rate × gradient.
    `multiplier` is λ; `host_multipliers`, shape (H,), are the λ_h of each host's limit alone: a source pays
    the larger of the two.
    """

    rates: Array
    multiplier: float
    host_multipliers: Array


def checked_step(
    geometry: Geometry,
    rates: npt.ArrayLike,
    gradient: npt.ArrayLike,
    bandwidth: float,
    min_rate: npt.ArrayLike,
    max_rate: npt.ArrayLike,
    learning_rate: float,
    host: npt.ArrayLike | None = None,
    host_limits: npt.ArrayLike | None = None,
) -> Array:
    """Return the rates of a step, arguments checked, shape (n,).

    - raises SourceDataError if an argument is not a number, of the wrong length or outside its range.
    - raises InfeasibleProblemError if min_rate alone needs more than the bandwidth or a host's limit.
    """
    n = np.size(rates)
    q, g = as_vector(rates, n, "rates"), as_vector(gradient, n, "gradient")
    lower, upper = as_vector(min_rate, n, "min_rate"), as_vector(max_rate, n, "max_rate")
    _require(np.isfinite(g), "gradient", g, "a finite number", "Replace it, by 0 if there was no sample.")
    _require((lower >= 0.0) & (lower < np.inf), "min_rate", lower, "finite and >= 0", "Correct it.")
    _require(upper >= lower, "max_rate", upper, "at least min_rate", "Correct one of them.")
    good = np.isfinite(q) & (q >= 0.0)
    if geometry.positive:
        good &= (q > 0.0) | (upper == 0.0)
    wanted = "finite and > 0, for this mirror map" if geometry.positive else "finite and >= 0"
    _require(good, "rates", q, wanted, "Start from positive rates.")
    budget, eta = float(bandwidth), float(learning_rate)
    if not 0.0 < budget < np.inf:
        raise SourceDataError(f"bandwidth is {budget:g}. It must be a number > 0.")
    if not 0.0 <= eta < np.inf:
        raise SourceDataError(f"learning_rate is {eta:g}. It must be a number >= 0.")
    needed = total(lower)
    if needed > budget * (1.0 + FEW_ULP):
        raise InfeasibleProblemError(
            f"min_rate needs {needed:.6g} but bandwidth is {budget:.6g} (short by {needed - budget:.3g}). "
            f"Raise it or lower min_rate."
        )
    hosts = _checked_hosts(host, host_limits, lower)
    return bregman_step(geometry, q, g, budget, lower, upper, eta, hosts).rates


def _checked_hosts(
    host: npt.ArrayLike | None, host_limits: npt.ArrayLike | None, lower: Array
) -> HostBudgets | None:
    """Return a caller's host budgets, checked; None without hosts."""
    if (host is None) != (host_limits is None):
        raise SourceDataError("host and host_limits belong together. Pass both or neither.")
    if host is None or host_limits is None or not np.size(host_limits):
        return None
    limits = as_vector(host_limits, np.size(host_limits), "host_limits")
    _require(
        (limits > 0.0) & (limits < np.inf), "host_limits", limits, "numbers > 0", "Leave such hosts out."
    )
    given = as_vector(host, len(lower), "host")
    known = (given == np.floor(given)) & (given >= 0.0) & (given <= len(limits))
    wanted = f"whole numbers, positions in host_limits or {len(limits)} for no limit"
    _require(known, "host", given, wanted, "Correct them.")
    filled, codes = np.unique(np.append(given, len(limits)).astype(np.int64), return_inverse=True)
    hosts = HostBudgets.of(codes[:-1], limits[filled[:-1]])  # hosts without sources are left out
    needed = hosts.budgets.totals(lower[hosts.members]) if len(hosts.budgets) else np.empty(0)
    over = np.flatnonzero(needed > hosts.budgets.amounts * (1.0 + FEW_ULP))
    if len(over):
        short = (f"[{filled[k]}] = {hosts.budgets.amounts[k]:g}, {needed[k]:g}" for k in over)
        raise InfeasibleProblemError(
            f"min_rate needs more than host_limits {list_offenders(short)}. Raise them or lower min_rate."
        )
    return hosts if len(hosts.budgets) else None


def bregman_step(
    geometry: Geometry,
    rates: Array,
    gradient: Array,
    bandwidth: float,
    lower: Array,
    upper: Array,
    learning_rate: float,
    hosts: HostBudgets | None = None,
) -> Step:
    """Return the step for valid arguments; see `checked_step`."""
    # Letters: q the rates before, η the learning rate, g the gradient, λ the multiplier of the budget.
    at_q = geometry.dual(rates)
    unconstrained = np.clip(geometry.primal(at_q - learning_rate * gradient), lower, upper)
    own, most = np.zeros(0 if hosts is None else len(hosts.budgets)), bandwidth
    if hosts is not None:
        over, members, budgets = hosts.over(unconstrained)
        if len(over):
            capped, own[over] = _meet(
                geometry.take(members),
                at_q[members],
                gradient[members],
                learning_rate,
                lower[members],
                upper[members],
                budgets,
            )
            upper, unconstrained = np.array(upper), np.array(unconstrained)
            upper[members] = unconstrained[members] = capped
            most *= 1.0 + MET
    if total(unconstrained) <= most:
        return Step(unconstrained, 0.0, own)
    everyone = Budgets.single(bandwidth, len(rates))
    answer, multipliers = _meet(geometry, at_q, gradient, learning_rate, lower, upper, everyone)
    return Step(answer, float(multipliers[0]), own)


def _meet(
    geometry: Geometry,
    at_q: Array,
    gradient: Array,
    learning_rate: float,
    lower: Array,
    upper: Array,
    budgets: Budgets,
) -> tuple[Array, Array]:
    """Return rates, (n,), that use up every budget, and multipliers, (G,)."""
    push = learning_rate * gradient
    unpriced, spread, n = at_q - push, budgets.broadcast_to_sources, len(at_q)
    # Events: as λ rises, source k leaves its cap (event k), or meets its floor (event n + k).
    edges = np.concatenate([geometry.dual(upper), geometry.dual(lower)])
    with np.errstate(invalid="ignore"):  # a source held at 0 under φ' = −1/r: −inf on both sides, no event
        reach = np.tile(at_q, 2) - edges
        multipliers = reach - np.tile(push, 2)

    def against(k: IntArray) -> Array:
        """Return how much further each group's source k is pushed than others."""
        return learning_rate * (spread(gradient[k]) - gradient)

    def enough(chosen: IntArray) -> BoolArray:
        """Return which groups use up their budget at their event's λ."""
        k = chosen % n
        unconstrained = geometry.primal(_add(at_q, spread(-at_q[k]), against(k), spread(edges[chosen])))
        return budgets.totals(np.clip(unconstrained, lower, upper)) >= budgets.amounts

    crossings = Crossings.of(multipliers, budgets)
    split = crossings.split(enough)
    blur = BLUR * (np.abs(reach) + np.tile(np.abs(push), 2))
    for _ in range(ROUNDS):
        # Events nearer to one another than rounding are sorted again, by what is exact from there.
        unclear, crowds = crossings.crowds(split, multipliers, blur)
        ends, here = crossings.events[unclear], crossings.finest(unclear, crowds, edges)
        e, k = ends % n, here % n
        further = learning_rate * (gradient[k] - gradient[e])
        offset = _add(at_q[e], -edges[ends], edges[here], -at_q[k], further)
        sorted_again = crossings.reordered(unclear, crowds, offset)
        if np.array_equal(sorted_again.events, crossings.events):
            break
        crossings, split = sorted_again, sorted_again.split(enough)
    place = crossings.places(multipliers)
    capped, floored = place[:n] >= spread(split), (place[n:] < spread(split)) | (lower == upper)
    free = np.flatnonzero(~capped & ~floored)
    answer = np.where(floored, lower, upper)
    # Where bounds alone use up the budget, the multiplier is that of the last event before.
    found = np.where(split > 0, multipliers[crossings.at(np.maximum(split - 1, 0))], 0.0)
    if len(free):
        answer[free] = 0.0
        present, rest = budgets.some(free)
        rest = replace(rest, amounts=budgets.left(answer, present))
        highest = np.maximum.reduceat(unpriced[free], rest.starts)
        leads = np.flatnonzero(unpriced[free] == rest.broadcast_to_sources(highest))
        leader = np.zeros(len(budgets), dtype=np.int64)
        leader[present] = free[leads[np.searchsorted(rest.groups[leads], np.arange(len(rest)))]]
        distance = -_add(at_q, spread(-at_q[leader]), against(leader))[free]
        ahead = np.minimum.reduceat(distance, rest.starts)  # rounding may have put another source ahead
        part = geometry.take(free)
        shift = part.levels(distance - rest.broadcast_to_sources(ahead), rest) + ahead
        answer[free] = np.clip(
            part.primal(rest.broadcast_to_sources(shift) - distance), lower[free], upper[free]
        )
        found[present] = np.maximum(0.0, unpriced[leader[present]] - shift)
    return answer, found


def _add(first: Array, *others: Array | np.float64) -> Array:
    """Return the sum with the rounding carried along (Knuth's two-sum)."""
    head, tail = first, np.zeros_like(first)
    with np.errstate(invalid="ignore"):  # a source held at 0, whose dual is −inf
        for other in others:
            added = head + other
            share = added - head
            tail += (head - (added - share)) + (other - share)
            head = added
        return head + tail


def _require(good: npt.NDArray[np.bool_], what: str, values: Array, wanted: str, remedy: str) -> None:
    bad = np.flatnonzero(~good)
    if len(bad):
        where = list_offenders(f"[{k}] = {values[k]:g}" for k in bad)
        raise SourceDataError(f"{what} {where} must be {wanted}. {remedy}")
