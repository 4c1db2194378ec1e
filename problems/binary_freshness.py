"""Binary freshness: share of time that a copy is fresh, maximised.

A copy is fresh until the first change after its refresh, then stale: the objective of a crawler whose users
either see the current version or do not. Sources that change much faster than they can be refreshed get no
bandwidth: at price λ, its dual variable, the best response of a source with w ≤ λΔ is 0. Per source of change
rate Δ at refresh rate ρ, with u = Δ/ρ, the stale share and its marginal value:

===========  ==========================  ==============================
discipline   J(ρ) = 1 − freshness        −dJ/dρ
===========  ==========================  ==============================
Poisson      Δ/(Δ + ρ)                   Δ/(Δ + ρ)²
periodic     1 − (1 − e^{−u})/u          (1 − (1 + u)e^{−u})/Δ
on signal    1 − ρ/Δ, ρ ≤ Δ              1/Δ
===========  ==========================  ==============================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from freshopt.compiled import cost_functions, demand_functions, proof_functions
from freshopt.cvx import Expression, cp
from freshopt.modelling.cone_forms import by_size, decayed_time, squared_over, stale_total
from freshopt.modelling.cost_curve import Cell, Curve, CurveObjective
from freshopt.modelling.objective import Command, ConeForm, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, total
from freshopt.numerics.special_functions import gamma2, inverse_gamma2, mean_stale_share


@dataclass(frozen=True, slots=True)
class BinaryFreshness(CurveObjective):
    """Maximise Σ w·(share of time that the copy is fresh).

    Parameters
    ----------
    refresh : Refresh
        ``POISSON`` (default) or ``PERIODIC``.

    Notes
    -----
    Poisson: F(ρ) = ρ/(Δ+ρ) [1]_ Eq 5. Periodic: F(ρ) = (1−e^{−u})/u with u = Δ/ρ [2]_ section 4.
    On signal: F(ρ) = ρ/Δ, a linear cell. The certificate's duality gap is computed on the stale part Σ
    w·(1−F), so that it means something when nearly everything is fresh.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6075.
    .. [2] Cho & Garcia-Molina, "Effective Page Refresh Policies for Web Crawlers", ACM TODS 28(4), 2003,
       doi:10.1145/958942.958945.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 100.0])
    >>> fo.solve(fo.Problem(BinaryFreshness(), sources, bandwidth=1.0)).rates.round(6)
    array([0.404531, 0.595469, 0.      ])
    """

    refresh: Refresh = Refresh.POISSON
    sense: ClassVar[Literal["minimise", "maximise"]] = "maximise"
    commands: ClassVar[tuple[Command, ...]] = (Command("binary", "share of time that copies are fresh"),)

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·F(ρ).

        The periodic cell has one exponential cone per source.
        """
        share = cp.multiply(1.0 / sources.change_rate, rate)
        if self.refresh is Refresh.PERIODIC:
            lost, cone = decayed_time(share)
            return cp.multiply(sources.importance, share - lost), [cone]
        return cp.multiply(sources.importance, 1.0 - cp.inv_pos(1.0 + share))

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the cone form of the freshness, up to a constant.

        Its form suits each source's typical u = Δ/ρ.
        """
        w, u = sources.importance, sources.change_rate / typical
        if self.refresh is Refresh.PERIODIC:
            stale, cones = stale_total(w, u, y)
            return -stale, cones
        lost, cone = squared_over(y, u)  # y²/(1 + y/u): freshness is (y − y²/(u + y))/u
        fresh = by_size(
            u,
            (1.0, lambda k: -(w[k] * u[k]) @ cp.inv_pos(y[k] + u[k])),
            (np.inf, lambda k: (w[k] / u[k]) @ (y[k] - cp.multiply(1.0 / u[k], lost[k]))),
        )
        return fresh, cone

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the linear total."""
        return (sources.importance * typical / sources.change_rate) @ y, []

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·ρ/Δ."""
        return cp.multiply(sources.importance / sources.change_rate, rate)

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve c(s) = 1 − e^{−Δs}, the stale part."""
        return binary_curve(sources.column("change_rate"))

    def change_slope(self, changes: Array) -> Array:
        """Return f' = e^{−x} of f(x) = 1 − e^{−x}."""
        return np.exp(-changes)

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return the freshness Σw − (stale part)."""
        return total(sources.column("importance")) - cost


def binary_curve(change_rate: Array) -> Curve:
    """Return the cost curve of a copy that costs 1 while stale."""
    return Curve(
        (change_rate,),
        _at,
        _mean,
        _index,
        _inverse_index,
        POISSON,
        ON_SIGNAL,
        demand_functions.binary_periodic,
        _mean_gain,
        periodic_proof=proof_functions.BINARY_PERIODIC,
    )


def _at(age: Array, d: Array) -> Array:
    return -np.expm1(-d * age)


def _mean(period: Array, d: Array) -> Array:
    return mean_stale_share(d * period)


def _mean_gain(period: Array, d: Array) -> Array:
    u = d * period
    return np.where(u > 1e-30, -np.expm1(-u) / u, 1.0)


def _index(period: Array, d: Array) -> Array:
    return gamma2(d * period) / d


def _inverse_index(price: Array, d: Array) -> Array:
    return inverse_gamma2(price * d) / d


def _poisson_cost(rate: Array, d: Array) -> Array:
    return d / (d + rate)


def _poisson_gain(rate: Array, d: Array) -> Array:
    return rate / (d + rate)


def _poisson_marginal(rate: Array, d: Array) -> Array:
    return d / (d + rate) / (d + rate)


def _poisson_inverse(price: Array, d: Array) -> Array:
    # The price relative to 1/Δ, the marginal at rate 0, at which the source starves.
    relative = price * d
    return np.where(relative >= 1.0, 0.0, d * (1.0 - relative) / (relative + np.sqrt(relative)))


def _signal_cost(rate: Array, d: Array) -> Array:
    return np.maximum(1.0 - rate / d, 0.0)


def _signal_gain(rate: Array, d: Array) -> Array:
    return np.minimum(rate / d, 1.0)


def _signal_marginal(rate: Array, d: Array) -> Array:
    return np.ones_like(rate) / d


def _signal_inverse(price: Array, d: Array) -> Array:
    return np.where(price * d <= 1.0, d, 0.0)


POISSON = Cell(
    _poisson_cost,
    _poisson_marginal,
    _poisson_inverse,
    demand_functions.binary_poisson,
    _poisson_gain,
    value=cost_functions.binary_poisson_cost,
    proof=proof_functions.BINARY,
)
ON_SIGNAL = Cell(
    _signal_cost,
    _signal_marginal,
    _signal_inverse,
    demand_functions.all_or_nothing,
    _signal_gain,
    proof=proof_functions.BINARY_SIGNAL,
)
