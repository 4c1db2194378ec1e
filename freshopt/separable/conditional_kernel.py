"""Cost, marginal and inverse marginal of conditional fetches, per bandwidth used.

A fetch uses bandwidth c₀, and c₁ besides if the source has changed since the last one. At rate ρ a source of
change rate Δ is found changed Δ·F(ρ) times per time unit, with F the share of time that its copy is fresh
(between two refreshes a gap apart there is one change that is found exactly where there is a first one), so
that it uses

    b = g(ρ) = c₀ρ + c₁Δ·F(ρ),    F = ρ/(ρ + Δ) (Poisson),    (ρ/Δ)(1 − e^{−Δ/ρ}) (periodic).

g is concave: a budget of it is no convex set of rates. But b is as good a variable as ρ, and J(g^{-1}(b)) is
convex in b if its slope, the marginal value per bandwidth −J'/g' = −J'/(c₀ + c₁ΔF'), falls in ρ. Since
1/(−J'/g') = c₀/(−J') + c₁Δ·F'/(−J'), it falls for all c₀ and c₁ if −J' and −J'/F' fall. Both do for

- **a penalty C(m) of the number m of missed changes**, with increments a_m = C(m+1) − C(m) ≥ 0. Poisson: with
  q = 1 − F = Δ/(ρ + Δ), P(more than m are missed) = q^{m+1}, so J = Σ a_m·q^{m+1} and −J'/F' = dJ/dq =
  Σ (m+1)·a_m·q^m, which rises in q. Periodic: with the cost c(s) = E C(N) of age, N Poisson of mean Δs, and
  s = 1/ρ, −J' = ∫₀ˢ t·c'(t) dt and ΔF' = ∫₀ˢ t·Δ²e^{−Δt} dt; the ratio of the integrands is c'·e^{Δt}/Δ² =
  Σ a_m·(Δt)^m/m!/Δ, which rises in t, and hence so does the ratio of the integrals (monotone l'Hôpital).
  Binary freshness, harmonic staleness and accumulated delay are C = [m ≥ 1], H(m) and m;
- **age**: periodic, c' = 1 − e^{−Δt} rises; Poisson, J = (1 − F)²/(ΔF), and −dJ/dF = (1/F² − 1)/Δ falls;
- **powers** s^e of age with e ≥ 1: c' rises, and Poisson −J'/F' ∝ (1 + x)²/x^{1+e}, x = ρ/Δ, which falls.

For e < 1, J ∝ ρ^{−e} is convex in b as long as c₁/c₀ is at most (`largest_cost_ratio`)

    Poisson     27(1 + e)/(1 − e)³                                        (63.3 at e = 0.2)
    periodic    (1 + e)/(z²e^{−z} − (1 + e)(1 − (1 + z)e^{−z})), z = 1 − e    (20.6 at e = 0.2),

the least κ = c₁/c₀ at which −J'/g' is level somewhere: with x = ρ/Δ, (1 + e)(1 + x)³ = κ((1 − e)x − 1 − e),
whose root is double at x = (2 + e)/(1 − e); with u = Δ/ρ, u²e^{−u} − (1 + e)P(2, u) is largest at u = 1 − e.
`freshopt.separable.conditional_hull` is for what is beyond.

Cost: g^{-1} is a square root (Poisson) or some five Newton steps (periodic). Best responses of binary
freshness have a form without a search, that of harmonic staleness under Poisson refreshes is the root of a
cubic; others take two of the kernel's own and about eight evaluations of the marginal between them. Those of
many sources are compiled (`freshopt.compiled.cells.conditional_functions`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.compiled import demand_functions
from freshopt.compiled.cells import conditional_functions
from freshopt.compiled.cells.array_edition import OfPrice
from freshopt.compiled.demand_functions import Demand
from freshopt.numerics.arrays import Array, Formula
from freshopt.numerics.bracketed_roots import FallingRatio
from freshopt.numerics.special_functions import gamma2
from freshopt.separable.kernel import SMALLEST_PRICE, Kernel

# Rates beyond, in any time unit, are taken for infinite.
_FASTEST = 1e250
# u beyond which e^{−u} is 0.
_STEEP = 1e4
# Newton steps at most, from a start that is off by a factor of 2 at worst: five suffice.
_NEWTON = 20
# Those of the cubic: five or so, more where both of its terms matter.
_STEPS = 60
# Squares and fourfolds of its right-hand side are floats.
_MOST = 1e150
# After a step so small, Newton's error is below an ulp; rounding may keep steps from ever being one.
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class BandwidthUsed:
    """b = g(ρ) = c₀ρ + c₁Δ·F(ρ) under a discipline.

    - `periodic`: Whether gaps are equal, or else exponential.
    """

    periodic: bool

    def fresh(self, rate: Array, d: Array) -> Array:
        """Return F(ρ), the share of time that a copy is fresh."""
        with np.errstate(all="ignore"):
            u = d / np.abs(rate)  # of −0 as of 0
            if not self.periodic:
                return 1.0 / (1.0 + u)
            return np.where(u > 0.0, -np.expm1(-u) / np.where(u > 0.0, u, 1.0), 1.0)

    def used(self, rate: Array, d: Array, fetch: Array, change: Array) -> Array:
        """Return the bandwidth that a rate uses.

        Examples
        --------
        >>> ten = np.array([10.0])
        >>> BandwidthUsed(periodic=False).used(ten, np.array([10.0]), np.array([1.0]), np.array([4.0]))
        array([30.])
        """
        return fetch * rate + change * (d * self.fresh(rate, d))

    def slope(self, rate: Array, d: Array, fetch: Array, change: Array) -> Array:
        """Return the slope g'(ρ) = c₀ + c₁Δ·F'(ρ)."""
        with np.errstate(all="ignore"):
            if self.periodic:
                return fetch + change * gamma2(d / rate)
            return fetch + change / (1.0 + rate / d) ** 2

    def rate(self, used: Array, d: Array, fetch: Array, change: Array) -> Array:
        """Return the rate g^{-1}(b) that uses so much."""
        with np.errstate(all="ignore"):
            dear, much = change / fetch, used / fetch / d
            if not self.periodic:
                return d * _root(1.0 + dear - much, much)
            # (1 − e^{−u})/u ≤ 1/(1 + u/2): where the latter uses b is a rate too small, by half at most.
            x = np.fmax(_root(0.5 + dear - much, 0.5 * much), much / (1.0 + dear))
            zero, inf = much == 0.0, much == np.inf
            x = np.where(zero | inf, 1.0, x)
            for _ in range(_NEWTON):
                # g is concave: from the left, tangents never lead beyond the root.
                u = 1.0 / x
                fall = -np.expm1(-u)
                # P(2, u), whose small values are lost in rounding beside 1.
                slope = 1.0 + dear * (fall - np.fmin(u, _STEEP) * (1.0 - fall))
                step = (much - x - dear * x * fall) / slope
                step = np.where(zero | inf, 0.0, step)
                x = x + step
                if bool(np.all(np.abs(step) <= _CLOSE * x)):
                    break
            return np.where(zero, 0.0, np.where(inf, np.inf, d * x))


def _root(p: Array, q: Array) -> Array:
    """Return the root x ≥ 0 of x² + px = q."""
    root = np.hypot(p, 2.0 * np.sqrt(q))
    return np.where(p > 0.0, 2.0 * q / (p + root), 0.5 * (root - p))


@dataclass(frozen=True, slots=True)
class _OfBandwidth:
    """A formula of the rate, at the rate that uses b."""

    formula: Formula
    fetches: BandwidthUsed

    def __call__(self, used: Array, *parameters: Array) -> Array:
        *own, d, fetch, change = parameters
        return self.formula(self.fetches.rate(used, d, fetch, change), *own)


@dataclass(frozen=True, slots=True)
class _Marginal:
    """−J'/g' at the rate that uses b."""

    marginal: Formula
    fetches: BandwidthUsed

    def __call__(self, used: Array, *parameters: Array) -> Array:
        return self.of_rate(self.fetches.rate(used, *parameters[-3:]), parameters)

    def of_rate(self, rate: Array, parameters: tuple[Array, ...]) -> Array:
        return self.marginal(rate, *parameters[:-3]) / self.fetches.slope(rate, *parameters[-3:])


@dataclass(frozen=True, slots=True)
class RootInverse:
    """Bandwidth used at which the marginal is the price, or 0.

    Since g' lies between c₀ and c₀ + c₁, the rate lies between the kernel's own responses to the price times
    these. It is searched in its logarithm.
    """

    marginal: Formula
    inverse: Formula
    fetches: BandwidthUsed

    def __call__(self, price: Array, *parameters: Array) -> Array:
        """Return the best response in bandwidth used."""
        return self.fetches.used(self.response(price, parameters), *parameters[-3:])

    def response(
        self,
        price: Array,
        parameters: tuple[Array, ...],
        least: Array | float = 0.0,
        most: Array | float = np.inf,
    ) -> Array:
        """Return the best response, where the marginal falls, as a rate."""
        *own, d, fetch, change = parameters
        price = np.broadcast_to(price, np.shape(d))
        with np.errstate(all="ignore"):
            high = self.inverse(np.maximum(price * fetch, SMALLEST_PRICE), *own)
            low = self.inverse(np.maximum(price * (fetch + change), SMALLEST_PRICE), *own)
            low, high = np.clip(low, least, most), np.clip(high, least, most)
            rate = np.where(low > 0.0, high, 0.0)
            within = np.flatnonzero((low > 0.0) & (low < high) & (low < _FASTEST))
        if not len(within):
            return rate
        top = np.minimum(high[within], _FASTEST)
        marginal = _Marginal(self.marginal, self.fetches)
        some = tuple(np.broadcast_to(one, np.shape(d))[within] for one in parameters)

        def ratio(rate: Array, price: Array, *parameters: Array) -> Array:
            return marginal.of_rate(rate, parameters) / price

        left = np.log(low[within] / top)
        found = FallingRatio(ratio, top, (price[within], *some)).within(left, np.zeros(len(within)))
        rate[within] = top * np.exp(found)
        return rate


@dataclass(frozen=True, slots=True)
class _ClosedInverse:
    """Best response in bandwidth used, by a formula of the rate."""

    response: Formula
    fetches: BandwidthUsed

    def __call__(self, price: Array, *parameters: Array) -> Array:
        own = parameters[-3:]
        with np.errstate(all="ignore"):
            return self.fetches.used(self.response(price, *own), *own)


def _harmonic_response(price: Array, d: Array, fetch: Array, change: Array) -> Array:
    """Return the rate of harmonic staleness, Poisson.

    ρ = Δx with x(1 + x) + (c₁/c₀)x/(1 + x) = 1/(pc₀Δ). Times 1 + x it is a cubic with one root > 0, right
    of which it is convex: Newton's method comes down to it from where either term alone is as large.
    """
    dear, worth = change / fetch, np.minimum(1.0 / price / fetch / d, _MOST)
    alone = 2.0 * worth / (1.0 + np.sqrt(1.0 + 4.0 * worth))
    x = np.where(dear > worth, np.minimum(alone, worth / np.where(dear > worth, dear - worth, 1.0)), alone)
    for _ in range(_STEPS):
        more = 1.0 + x
        excess = x * more + dear * (x / more) - worth
        step = excess / (1.0 + 2.0 * x + dear / (more * more) + excess / more)
        step = np.where(np.isfinite(step), step, 0.0)
        x = x - step
        if bool(np.all(np.abs(step) <= _CLOSE * x)):
            break
    return d * np.maximum(x, 0.0)


# Compiled ones, of bandwidth used, by those of rates.
_DEMANDS: dict[Demand, Demand] = {
    demand_functions.binary_periodic: conditional_functions.binary_changed,
    demand_functions.harmonic_periodic: conditional_functions.harmonic_changed,
    demand_functions.delay_periodic: conditional_functions.delay_changed,
    demand_functions.age_periodic: conditional_functions.age_changed,
    demand_functions.binary_poisson: conditional_functions.binary_changed_poisson,
    demand_functions.harmonic_poisson: conditional_functions.harmonic_changed_poisson,
    demand_functions.delay: conditional_functions.delay_changed_poisson,
    demand_functions.age_poisson: conditional_functions.age_changed_poisson,
}
# Those without a search, which arrays have too.
_SEARCHLESS = (conditional_functions.binary_changed, conditional_functions.binary_changed_poisson)


def per_bandwidth(kernel: Kernel, fetches: BandwidthUsed, d: Array, fetch: Array, change: Array) -> Kernel:
    """Return a kernel over the bandwidth that each source uses.

    - `kernel`: Over rates.
    - `d`, `fetch`, `change` (n,): Δ, c₀ > 0 and c₁ ≥ 0.
    """
    gain, demand = kernel.unit_gain, None
    if kernel.unit_demand is not None and kernel.demand_parameters is None:
        demand = _DEMANDS.get(kernel.unit_demand)
    inverse: Formula = RootInverse(kernel.unit_marginal, kernel.unit_inverse, fetches)
    if demand is not None and demand in _SEARCHLESS:
        inverse = OfPrice(demand)
    elif demand is conditional_functions.harmonic_changed_poisson:
        inverse = _ClosedInverse(_harmonic_response, fetches)
    return Kernel(
        kernel.importance,
        (*kernel.parameters, d, fetch, change),
        _OfBandwidth(kernel.unit_cost, fetches),
        _Marginal(kernel.unit_marginal, fetches),
        inverse,
        demand,
        unit_gain=None if gain is None else _OfBandwidth(gain, fetches),
    )


def largest_cost_ratio(exponent: Array, *, periodic: bool) -> Array:
    """Return the largest c₁/c₀ at which ρ^{−e} is convex.

    In the bandwidth used.

    Examples
    --------
    >>> some = np.array([0.2, 0.5, 1.0])
    >>> largest_cost_ratio(some, periodic=False).round(1), largest_cost_ratio(some, periodic=True).round(1)
    (array([ 63.3, 324. ,   inf]), array([20.6, 91.9,  inf]))
    """
    e = np.asarray(exponent, dtype=np.float64)
    z = np.maximum(1.0 - e, 0.0)
    with np.errstate(all="ignore"):
        excess = z * z * np.exp(-z) - (1.0 + e) * gamma2(z) if periodic else z**3 / 27.0
        return np.where(excess > 0.0, (1.0 + e) / np.where(excess > 0.0, excess, 1.0), np.inf)
