"""Relative duality gap: compared with what is at stake; what is rounding.

With prices λ and μ_h, lower bounds l (min_rate) and F = Σ f_k, at stake are

    P = λ(B − Σ cost·l) + Σ_h μ_h(L_h − Σ_{k∈h} cost·l),   the price of what min_rate leaves free, and
    H = F(ρ) − F(ρ/2),   what halving all rates would lose, but for sources whose bounds meet.

A gap G is relative to P + min(|cost|, H), in which neither a price nor a constant of the cost can hide a
loss. For the rates (ρ + l)/2 lose H at most, where refreshes do no harm, and use at most half of what is
free: the Lagrangian there is at least F(ρ) − H + P/2. Its maximum is at most F(ρ) + G, whatever the prices.
Hence P ≤ 2(G + H), and rates that lose δ·H have a relative gap of at least δ/(3 + 2δ). H takes an evaluation
of the cost, which is made only where float64 resolves G in P + |cost|; smaller gaps are relative to that.

A cost and a gap that are nothing beside the cost without refreshes have a relative gap of 0
(`freshopt.certificates.vanishing_cost`). Where refreshes save all but 1e-9 of that and the gap is a few ulp
of what they save, it is relative to what they save: slopes and costs that are differences of terms as large
tell no less apart.

Limits are met to a few ulp, which have a price too. Where min_rate nearly fills a limit and rates above it
matter much, as those of sources that would have none, that is no small part of the scale. Then a gap of the
limit's sources up to that price is rounding, and nothing finer can be proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from freshopt.certificates.duality_gap import Gap
from freshopt.certificates.vanishing_cost import FAR, cost_without_refreshes, vanishes
from freshopt.errors import list_offenders
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import Array, BoolArray, exact_sum, is_scalar, total

# Rounding that is a smaller share of the scale is not mentioned.
MENTIONED = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class PricedLimits:
    """Limits with their prices: the bandwidth first, then the hosts.

    - `names`: Of the hosts.
    - `amounts`, `prices`, `free` (1+H,): B and L_h; λ and μ_h; what min_rate leaves of B and L_h.
    """

    names: tuple[object, ...]
    amounts: Array
    prices: Array
    free: Array

    @property
    def at_stake(self) -> float:
        """Price P of all that min_rate leaves free."""
        if len(self.prices) == 1:
            return float(self.prices[0] * self.free[0]) if self.prices[0] > 0.0 else 0.0
        return total((self.prices * self.free)[self.prices > 0.0])

    @property
    def rounding(self) -> Array:
        """Price R of a few ulp of each limit, shape (1+H,)."""
        return FEW_ULP * self.prices * self.amounts


@dataclass(frozen=True, slots=True)
class RelativeGap:
    """Duality gap relative to what is at stake.

    - `relative`: Gap over scale; where rounding is no small part of the scale, at least that part.
    - `beyond_rounding`: The same without what rounding explains.
    - `reason`: Which limits leave only rounding to prove with, or empty.
    - `vanishing`: Whether cost and gap are nothing beside the cost without refreshes; the gaps are then 0.
    """

    relative: float
    beyond_rounding: float
    reason: str
    vanishing: bool = False

    def unless_nothing(self, cost: float, gap_bound: float, unrefreshed: Callable[[], float]) -> RelativeGap:
        """Return the gaps of costs that all but vanish, else these.

        They are 0 where cost and gap are nothing, or beside what refreshes save.
        """
        if cost < 0.0 or (self.beyond_rounding <= MENTIONED and cost > gap_bound):
            return self
        whole = unrefreshed() if cost + gap_bound > 0.0 else 0.0
        if vanishes(cost, gap_bound, whole):
            return VANISHING
        if not (cost <= FAR * whole and gap_bound <= FEW_ULP * whole):
            return self
        beside = gap_bound / (whole - cost)
        return RelativeGap(beside, beside, f"refreshes leave {cost / whole:.1g} of the cost: {_BESIDE}")


_BESIDE = "the gap is beside what they save, of which it is rounding."
VANISHING = RelativeGap(0.0, 0.0, "", vanishing=True)
# Of rates whose cost or bound is infinite.
NOTHING = RelativeGap(math.inf, math.inf, "the cost or the bound is infinite at these rates.")


def free_limits(problem: Problem) -> tuple[Array, Array]:
    """Return limits, bandwidth first, and what min_rate leaves, shapes (1+H,)."""
    amounts, lower, cost = np.concatenate(((problem.bandwidth,), problem.hosts.limits)), problem.lower, None
    if not (is_scalar(lower) and lower[0] == 0.0) and bool(lower.any()):
        cost = problem.sources.refresh_cost * lower
    needed = 0.0 if cost is None else np.append(total(cost), problem.hosts.totals(cost))
    return amounts, amounts if cost is None else np.maximum(0.0, amounts - needed)


def priced_limits(gap: Gap, price: float, host_prices: Array) -> PricedLimits:
    """Return a problem's limits at given prices, the hosts' on top."""
    amounts, free = free_limits(gap.problem)
    return PricedLimits(gap.problem.hosts.names, amounts, np.concatenate(((price,), host_prices)), free)


def scale_of(cost: float, gap_bound: float, at_stake: float, halving: Callable[[], float]) -> float:
    """Return what a gap is relative to.

    - `gap_bound`: The gap.
    - `at_stake`: P, the price of what min_rate leaves free.
    - `halving`: Returns H, what halving all rates loses; called only where it matters.
    """
    if gap_bound <= FEW_ULP * (abs(cost) + at_stake):
        return abs(cost) + at_stake
    lost = halving()
    return at_stake + (abs(cost) if math.isnan(lost) else min(abs(cost), max(0.0, lost)))


def scale_at(gap: Gap, price: float, host_prices: Array, gap_bound: float) -> float:
    """Return what a gap at given prices is relative to."""
    return scale_of(gap.cost, gap_bound, priced_limits(gap, price, host_prices).at_stake, gap.halving_loss)


def relative_gap(
    gap: Gap, price: float, host_prices: Array, gap_bound: float, known: PricedLimits | None = None
) -> RelativeGap:
    """Return a finite gap relative to what is at stake.

    - `host_prices` (H,): On top of `price`.
    - `gap_bound`: The gap at these prices.
    - `known`: The limits at these prices, if they are at hand.
    """
    limits = priced_limits(gap, price, host_prices) if known is None else known
    scale = scale_of(gap.cost, gap_bound, limits.at_stake, gap.halving_loss)
    found = resolved(gap.cost, gap_bound, scale, limits, lambda: gap.host_gaps(price, host_prices))

    def unrefreshed() -> float:
        return cost_without_refreshes(gap.numerics, gap.rates, gap.cost)

    return found.unless_nothing(gap.cost, gap_bound, unrefreshed)


def resolved(
    cost: float, gap_bound: float, scale: float, limits: PricedLimits, host_gaps: Callable[[], Array]
) -> RelativeGap:
    """Return the relative gap, and what of it rounding explains.

    Rounding of a host's limit explains a gap of its own sources alone. A gap beyond the cost is no rounding.

    - `host_gaps`: Returns the limited hosts' parts of the gap, shape (H,); called only where rounding
      matters.
    """
    rounding = limits.rounding
    mentioned = rounding > MENTIONED * scale
    if not mentioned.any():
        return RelativeGap(ratio(gap_bound, scale), ratio(gap_bound, scale), "")
    explained = exact_sum(np.minimum(host_gaps(), rounding[1:])[mentioned[1:]])
    if mentioned[0]:
        explained += min(max(0.0, gap_bound - explained), float(rounding[0]))
    beyond = max(0.0, gap_bound - explained) if explained <= abs(cost) else gap_bound
    least = exact_sum(rounding[mentioned])
    return RelativeGap(
        ratio(max(gap_bound, least), scale), ratio(beyond, scale), _sentence(limits, mentioned)
    )


def ratio(gap_bound: float, scale: float) -> float:
    """Return a gap over a scale, inf of no scale."""
    if gap_bound == 0.0:
        return 0.0
    return gap_bound / scale if 0.0 < scale < math.inf else math.inf


def _sentence(limits: PricedLimits, mentioned: BoolArray) -> str:
    """Name the limits that min_rate nearly fills, and by how much."""
    names = ["the bandwidth", *(f"the limit of host {name!r}" for name in limits.names)]
    share = limits.free / limits.amounts
    filled = list_offenders(f"{share[k]:.1g} of {names[k]}" for k in np.flatnonzero(mentioned))
    return (
        f"min_rate leaves free {filled}: there a gap is rounding of the limit, nothing finer can be proved."
    )
