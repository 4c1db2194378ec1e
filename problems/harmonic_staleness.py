"""Harmonic staleness: a copy that missed m changes costs H(m) = 1 + 1/2 + ... + 1/m.

The first missed change hurts most, later ones less and less; every source is worth refreshing sometimes. Per
source of change rate Δ at refresh rate ρ, with u = Δ/ρ:

===========  ==========================  ==============================
discipline   J(ρ)                        −dJ/dρ
===========  ==========================  ==============================
Poisson      log(1 + u)                  Δ/(ρ(ρ + Δ))
periodic     ∫₀¹ Ein(ut) dt              (u − 1 + e^{−u})/Δ
on signal    −log(ρ/Δ), ρ ≤ Δ            1/ρ
===========  ==========================  ==============================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array
from freshopt.cvx import Expression, cp
from freshopt.kernel import Kernel
from freshopt.objective import Objective, Refresh
from freshopt.problems.binary_freshness import decayed_time
from freshopt.sources import Sources
from freshopt.special import harmonic_index, inverse_harmonic_index, mean_harmonic


@dataclass(frozen=True, slots=True)
class HarmonicStaleness(Objective):
    """Minimise Σ w·E[H(number of missed changes)].

    Parameters
    ----------
    refresh : Refresh
        ``POISSON`` (default) or ``PERIODIC``.
    nodes : int
        Quadrature nodes of the *declared* periodic cell; see Notes. The numerics are exact in any case.

    Notes
    -----
    Poisson: J(ρ) = log(1+Δ/ρ) [1]_ Eq 4. On signal: J(p) = −log p with p = ρ/Δ [1]_ Eq 8. Both are declared
    exactly. The periodic cell is ∫₀¹ (binary staleness of us)/s ds; no finite cone program equals it, so it
    is declared by Gauss-Legendre quadrature in s = v². With the default nodes the quadrature error of the
    cost is below 1e-9 of it for u ≤ 30 and 1e-4 at u = 1e4.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 1.0], importance=[1.0, 3.0])
    >>> fo.solve(fo.Problem(HarmonicStaleness(), sources, bandwidth=1.0)).rates.round(6)
    array([0.302776, 0.697224])
    """

    refresh: Refresh = Refresh.POISSON
    nodes: int = 16

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·J(ρ); the periodic cell with `nodes` exponential cones per source."""
        if self.refresh is Refresh.PERIODIC:
            return self._quadrature(rate, sources)
        ratio = np.log(sources.change_rate) - cp.log(rate)
        return cp.multiply(sources.importance, cp.logistic(ratio))

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare −w·log(ρ/Δ)."""
        return -cp.multiply(sources.importance, cp.log(cp.multiply(1.0 / sources.change_rate, rate)))

    def refuses_signals(self) -> str | None:
        """Refuse signals beside periodic refreshes: following each signal is worse below p = 0.43."""
        if self.refresh is Refresh.PERIODIC:
            return "crawling on a signal is worse than periodic refreshes for p < 0.43 under this objective"
        return None

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics under the discipline."""
        parameters = (sources.change_rate,)
        if self.refresh is Refresh.PERIODIC:
            return Kernel(
                sources.importance, parameters, _periodic_cost, _periodic_marginal, _periodic_inverse
            )
        return Kernel(sources.importance, parameters, _poisson_cost, _poisson_marginal, _poisson_inverse)

    def signalled_kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics of announced changes."""
        parameters = (sources.change_rate,)
        return Kernel(sources.importance, parameters, _signal_cost, _signal_marginal, _signal_inverse)

    def _quadrature(self, rate: Expression, sources: Sources) -> tuple[Expression, list[Expression]]:
        share = cp.multiply(1.0 / sources.change_rate, rate)
        points, weights = np.polynomial.legendre.leggauss(self.nodes)
        cost, cones = 0.0, []
        for v, weight in zip((points + 1.0) / 2.0, weights / 2.0, strict=True):
            s = float(v * v)
            lost, cone = decayed_time(share, s)
            cost = cost + float(2.0 * weight / v) * (1.0 - (share - lost) / s)
            cones.append(cone)
        return cp.multiply(sources.importance, cost), cones


def _poisson_cost(rate: Array, d: Array) -> Array:
    return np.log1p(d / rate)


def _poisson_marginal(rate: Array, d: Array) -> Array:
    return d / rate / (rate + d)


def _poisson_inverse(price: Array, d: Array) -> Array:
    a = 1.0 / price
    return 2.0 * a / (1.0 + np.sqrt(1.0 + 4.0 * a / d))  # the textbook root of ρ² + Δρ = aΔ cancels


def _periodic_cost(rate: Array, d: Array) -> Array:
    return mean_harmonic(d / rate)


def _periodic_marginal(rate: Array, d: Array) -> Array:
    return harmonic_index(d / rate) / d


def _periodic_inverse(price: Array, d: Array) -> Array:
    return d / inverse_harmonic_index(price * d)


def _signal_cost(rate: Array, d: Array) -> Array:
    return -np.log(rate / d)


def _signal_marginal(rate: Array, _d: Array) -> Array:
    return 1.0 / rate


def _signal_inverse(price: Array, d: Array) -> Array:
    return np.minimum(1.0 / price, d)
