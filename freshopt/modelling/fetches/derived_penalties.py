"""Costs that follow from what a declared cost penalises.

A formula J(ρ) alone does not tell them: Δ/(ρ(ρ + Δ)) under Poisson refreshes is the age of the oldest missed
change, and as well 1/Δ for each missed change after the first. `Objective.penalty_of` says which.

- **"changes"**: J = E C(m), m the number of missed changes, C non-decreasing. Under Poisson refreshes, and
  where each announced change is followed with probability ρ/Δ, m is geometric: P(m ≥ k) = q^k with q =
  Δ/(ρ + Δ) and q = 1 − ρ/Δ. So announced changes cost J(ρΔ/(Δ − ρ)).
- **"age"**: J = E g(A), A the age of the oldest missed change, g non-decreasing, 0 of a fresh copy. In both
  cases copies become stale at the rate qρ, and stale ones are refreshed at the rate ρ: J = q·K(ρ), with the
  same K(ρ) = ∫ρe^{−ρa}g(a)da. Announced changes cost (1 − (ρ/Δ)²)·J(ρ).

Both are convex in ρ. J is convex in the bandwidth that fetches use which cost what they bring, too: of
changes `freshopt.separable.conditional_kernel` proves it; of ages −J'/F' = K − (ρ + Δ)K' falls (Poisson), as
K'' ≥ 0, and c'(t)e^{Δt} = Δg(0+) + Δ∫₀ᵗ g'(r)e^{Δr}dr rises (periodic). Under periodic refreshes a penalty of
changes has the cost of age c(s) = E C(N), N Poisson of mean Δs, whose slope c'(s) = ρ³J''(ρ) at ρ = 1/s tells
what good phases of the week save.

The algebra ends where J is not enough: random gaps cost an integral over those of a cost of equal ones, a
rule that counts signals needs C(m), the m-th derivative of J, and n signals of uncertain quality need n of
them. No rounded values of J have these, so that such objectives declare what they cost.

What is claimed of a cost is compared with it at rates from Δ/10⁴ to 10⁴Δ; certificates take it as declared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from freshopt.errors import ObjectiveError
from freshopt.modelling.cost_curve import slowed_kernel
from freshopt.modelling.objective import Objective
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.numerics.root_finding import decreasing_root
from freshopt.numerics.special_functions import gamma2
from freshopt.separable.kernel import Kernel, Numerics

# What is left of a share of unfollowed changes that rounds to none; rates beyond its inverse are infinite.
LEAST = 2.0**-60
# Multiples of the change rate at which claims are compared with costs; rounding may break them by so much.
MULTIPLES, ROUNDED = np.geomspace(1e-4, 1e4, 65), 1e-6
# Of the quadrature over random gaps: right to 1e-8 of analytic costs, to 1e-4 of those with kinks.
NODES, TINY, APART = 64, 1e-30, 1e-3


def signals_follow_from(objective: Objective) -> Objective | None:
    """Return the objective from which costs of announced changes follow, or None."""
    own, usual = type(objective), Objective
    written = own.signalled_per_source is not usual.signalled_per_source
    written |= own.signalled_kernel is not usual.signalled_kernel
    return None if written or objective.penalty_of is None else objective.poisson_twin()


def announced_kernel(objective: Objective, numerics: Numerics, sources: Sources) -> Kernel:
    """Return the numerics of announced changes, followed by shares.

    - `objective`: With a `penalty_of`.
    - `numerics`: Its cost of Poisson refreshes that never fail.
    - raises ObjectiveError if the cost contradicts what it is declared to be the penalty of.
    """
    require_penalty(objective, numerics, sources, periodic=False)
    n, of_age = len(sources), objective.penalty_of == "age"
    place, rate = np.arange(float(n)), sources.column("change_rate")
    limit = numerics.cost(rate / LEAST) if of_age else np.zeros(n)
    cost, marginal = _Announced(numerics, of_age, "cost"), _Announced(numerics, of_age, "marginal")
    inverse = _Announced(numerics, of_age, "inverse")
    kernel = Kernel(np.ones(n), (place, rate, limit), cost, marginal, inverse)
    return kernel if sources.success is None else slowed_kernel(kernel, sources.success)


def require_penalty(objective: Objective, numerics: Numerics, sources: Sources, *, periodic: bool) -> None:
    """Raise ObjectiveError where a cost contradicts what it is the penalty of.

    Its marginal must be ≥ 0, and fall at least as fast as that of the fresh share does.
    """
    change, some = np.asarray(sources.column("change_rate")), np.flatnonzero(sources.importance > 0.0)
    if not len(some):
        return
    ends = np.argmin(change[some]), np.argmax(change[some])
    some = some[np.unique([0, len(some) // 2, len(some) - 1, *ends])]
    own = numerics.take(some)
    with np.errstate(all="ignore"):
        marginal = np.stack([own.marginal(each * change[some]) for each in MULTIPLES])
        fresh = gamma2(1.0 / MULTIPLES) if periodic else (1.0 + MULTIPLES) ** -2.0
        ratio = marginal / fresh[:, None]
        rises = ~(ratio[1:] <= ratio[:-1] * (1.0 + ROUNDED))
        wrong = np.argwhere(np.vstack([rises, np.zeros(len(some), dtype=np.bool_)]) | ~(marginal >= 0.0))
    if len(wrong):
        row, k = map(int, wrong[0])
        raise ObjectiveError(
            f"{type(objective).__name__} is no penalty of {objective.penalty_of!r}, whose marginal is 0 or "
            "more and falls at least as fast as that of the fresh share: its own does not near the rate "
            f"{MULTIPLES[row] * change[some[k]]:.3g} of {sources.label(int(some[k]))}. Correct the cost or "
            "penalty_of."
        )


def require_twin(objective: Objective, periodic: Numerics, poisson: Numerics, sources: Sources) -> None:
    """Raise ObjectiveError unless costs of random gaps are those of equal ones.

    With C(τ) = τJ(1/τ) of equal gaps, random ones cost ∫ρ²e^{−ρτ}C(τ)dτ = ∫ze^{−z}J(ρ/z)dz.
    """
    rate = np.asarray(sources.column("change_rate"))
    nodes, weights = np.polynomial.laguerre.laggauss(NODES)
    with np.errstate(all="ignore"):
        parts = [w * z * periodic.cost(rate / z) for z, w in zip(nodes, weights, strict=True) if w > TINY]
        mixed = np.sum(parts, axis=0)
        other = poisson.cost(rate)
        wrong = np.flatnonzero(np.abs(mixed - other) > APART * np.abs(other))
    if len(wrong):
        k = int(wrong[0])
        raise ObjectiveError(
            f"{type(objective).__name__} at random gaps costs {other[k]:.6g} of {sources.label(k)} at the "
            f"rate {rate[k]:.6g}, but its cost of equal gaps makes {mixed[k]:.6g} of them. Correct "
            "per_source under one of its disciplines."
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Announced:
    """Formula of announced changes: place, Δ, cost without any missed."""

    numerics: Numerics
    of_age: bool
    part: Literal["cost", "marginal", "inverse"]

    def __call__(self, at: Array, place: Array, change: Array, limit: Array) -> Array:
        """Return cost or marginal at rates, or rates at prices."""
        at, change = np.broadcast_to(at, place.shape), np.asarray(change, dtype=np.float64)
        own = self.numerics.take(place.astype(np.int64))
        if self.part == "inverse":
            rate = decreasing_root(lambda x: self._compared(own, np.exp(x), at, change, limit), change)
            if self.of_age:  # an ulp below Δ would lose what all of it brings
                return np.where(
                    _of_age(own, change, change, limit)[1] >= at, change, np.minimum(rate, change)
                )
            # Searched in the rate of Poisson refreshes, each ≥ 0 of which is one.
            return change / (1.0 + change / rate)
        if self.of_age:
            return _of_age(own, at, change, limit)[self.part == "marginal"]
        unfollowed = np.maximum((change - at) / change, LEAST)
        poisson = at / unfollowed
        if self.part == "cost":
            return own.cost(poisson)
        return np.where(at > change, 0.0, own.marginal(poisson) / unfollowed**2)

    def _compared(
        self, own: Numerics, rate: Array, price: Array, change: Array, limit: Array
    ) -> tuple[BoolArray, Array]:
        """Return whether marginals exceed prices, and Newton's step in log rate."""
        if self.of_age:
            _, marginal, bend = _of_age(own, rate, change, limit)
        else:
            rate = np.minimum(rate, change / LEAST)
            more, plain = 1.0 + rate / change, own.marginal(rate)
            marginal, bend = plain * more**2, own.curvature(rate) * more**2 - 2.0 * plain * more / change
        step = np.log(marginal / price) * marginal / (bend * rate)
        return marginal > price, np.where(np.isfinite(step), step, np.inf)


def _of_age(own: Numerics, rate: Array, change: Array, limit: Array) -> tuple[Array, Array, Array]:
    """Return cost, marginal and curvature of ages of announced changes."""
    x, loss = rate / change, own.cost(rate) - limit
    left = np.maximum((1.0 - x) * (1.0 + x), 0.0)
    plain, within = own.marginal(rate), x <= 1.0
    # Nothing is lost at rates without end; a loss without end is that of the rate 0.
    marginal = np.where(x > 0.0, left * plain + 2.0 * x / change * loss, plain)
    bend = left * own.curvature(rate) + (4.0 * x * plain - 2.0 * loss / change) / change
    return limit + left * loss, np.where(within, marginal, 0.0), np.where(within, bend, 0.0)
