"""Harmonic staleness: a copy that missed m changes costs H(m).

H(m) = 1 + 1/2 + ... + 1/m.
The first missed change hurts most, later ones less and less; every source of positive importance is refreshed
sometimes. Per source of change rate Δ at refresh rate ρ, for unit importance, with u = Δ/ρ and the entire
exponential integral Ein(x) = ∫₀ˣ (1 − e^{−t})/t dt, which is E H(m) of a Poisson number m, cost and marginal:

===========  ==========================  ==============================
discipline   J(ρ)                        −dJ/dρ
===========  ==========================  ==============================
Poisson      log(1 + u)                  Δ/(ρ(ρ + Δ))
periodic     ∫₀¹ Ein(ut) dt              (u − 1 + e^{−u})/Δ
on signal    −log(ρ/Δ), ρ ≤ Δ            1/ρ
===========  ==========================  ==============================

Periodic attempts have the marginal value B/ρ, B the stale share of theirs
(`freshopt.problems.binary_freshness`); the cost is its integral (`freshopt.compiled.cells.attempt_costs`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from freshopt.compiled import cost_functions, demand_functions, proof_functions
from freshopt.compiled.cells.attempt_proofs import ATTEMPT_HARMONIC
from freshopt.compiled.cells.attempt_roots import attempt_harmonic
from freshopt.compiled.cells.counted_signals import HARMONIC_COUNTED, harmonic_counted
from freshopt.compiled.cells.request_functions import request_harmonic
from freshopt.compiled.cells.request_proofs import REQUEST_HARMONIC
from freshopt.compiled.cells.window_harmonic import window_harmonic
from freshopt.compiled.cells.window_proofs import WINDOW_HARMONIC
from freshopt.cvx import Expression, cp
from freshopt.modelling.cone_forms import (
    by_size,
    decayed_time,
    relative_to_lifetime,
    square_over,
    stale_total,
    within_lifetime,
)
from freshopt.modelling.cost_curve import Cell, Curve, CurveObjective
from freshopt.modelling.objective import Command, ConeForm, Refresh, require_discipline, require_nodes
from freshopt.modelling.request_cell import RequestForms
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.request_windows import harmonic_rise
from freshopt.numerics.special_functions import ein, inverse_harmonic_index

# Nodes with a smaller t take the common rational form, off by t²/36 < 7e-3 of their small part.
SHORT = 0.5
# Above this u, J is log u + γ − 1 + 1/u up to e^{−u}.
SETTLED = 25.0
# Below the one u and above the other there are forms off by u²/12 and 1/(2u²) of the cost.
FEW, MANY = 0.01, 1e3


@dataclass(frozen=True, slots=True)
class HarmonicStaleness(CurveObjective):
    """Minimise Σ w·E[H(number of missed changes)].

    Parameters
    ----------
    refresh : Refresh
        ``PERIODIC`` (default), ``POISSON``, or ``ON_REQUEST`` of caches, whose `Sources` have request rates.
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
    >>> fo.solve(fo.Problem(HarmonicStaleness(fo.Refresh.POISSON), sources, bandwidth=1.0)).rates.round(6)
    array([0.302776, 0.697224])
    """

    refresh: Refresh = Refresh.PERIODIC
    counts_signals: ClassVar[bool] = True
    on_request: ClassVar[bool] = True
    nodes: int = 16
    commands: ClassVar[tuple[Command, ...]] = (
        Command("harmonic", "staleness, the m-th missed change counts 1/m"),
    )

    def __post_init__(self) -> None:
        require_discipline(self)
        require_nodes(self)

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·J(ρ).

        The cells of periodic refreshes and of those on request have `nodes` exponential cones per source.
        """
        if self.refresh is Refresh.PERIODIC:
            return self._quadrature(rate, sources, 1.0)
        if self.refresh is Refresh.ON_REQUEST:
            return self._quadrature(rate, sources, within_lifetime(rate, sources))
        ratio = np.log(sources.change_rate) - cp.log(rate)
        return cp.multiply(sources.importance, cp.logistic(ratio))

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the cone form that suits each source's typical u = Δ/ρ."""
        w, one = sources.importance, None
        if self.refresh is Refresh.ON_REQUEST:
            within, typical, one = relative_to_lifetime(y, sources, typical)
            w = w * within
        u = sources.change_rate / typical
        if self.refresh is not Refresh.POISSON:
            cones: list[Expression] = []

            def quadrature(k: IntArray) -> Expression:
                cost, own = self._scaled_quadrature(y[k], w[k], u[k], None if one is None else one[k])
                cones.extend(own)
                return cost

            def settled(k: IntArray) -> Expression:
                linear = cp.multiply(1.0 / u[k], y[k])
                if one is None:
                    return w[k] @ (linear - cp.log(y[k]))
                constant = np.log(u[k]) + np.euler_gamma - 1.0
                return w[k] @ (linear + cp.rel_entr(one[k], y[k]) + cp.multiply(constant, one[k]))

            return by_size(u, (SETTLED, quadrature), (np.inf, settled)), cones
        return by_size(
            u,
            (FEW, lambda k: (w[k] * u[k]) @ cp.inv_pos(y[k] + u[k] / 2.0)),  # log(1+t) = t/(1+t/2) + t³/12
            (MANY, lambda k: w[k] @ cp.logistic(np.log(u[k]) - cp.log(y[k]))),
            (np.inf, lambda k: w[k] @ (np.log(u[k]) - cp.log(y[k]) + cp.multiply(1.0 / u[k], y[k]))),
        ), []

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the cone form −Σ w·log y, with its constant."""
        return sources.importance @ (np.log(sources.change_rate / typical) - cp.log(y)), []

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare −w·log(ρ/Δ)."""
        self.require_share_of_signals()
        return -cp.multiply(sources.importance, cp.log(cp.multiply(1.0 / sources.change_rate, rate)))

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve c(s) = Ein(Δs)."""
        return Curve.compiled(
            sources.column("change_rate"),
            _at,
            PERIODIC,
            POISSON,
            ON_SIGNAL,
            attempts=ATTEMPTS,
            on_request=RequestForms(ON_REQUEST, IN_WINDOW, harmonic_rise),
            counted=COUNTED,
        )

    def change_slope(self, changes: Array) -> Array:
        """Return f' = (1 − e^{−x})/x of f(x) = Ein(x)."""
        return np.where(changes > 0.0, -np.expm1(-changes) / np.where(changes > 0.0, changes, 1.0), 1.0)

    def convex_per_bandwidth(self, sources: Sources) -> str | None:  # noqa: ARG002
        """Return None: penalties of missed changes are convex in it."""
        return None

    def cost_of_freshness(self, fresh: Expression, sources: Sources) -> Expression:
        """Return −w·log F."""
        return -cp.multiply(sources.importance, cp.log(fresh))

    def _quadrature(
        self, rate: Expression, sources: Sources, one: Expression
    ) -> tuple[Expression, list[Expression]]:
        """Declare the periodic cell with `one` in the place of 1."""
        share = cp.multiply(1.0 / sources.change_rate, rate)
        cost, cones = 0.0, []
        for s, weight in zip(*_rule(self.nodes), strict=True):
            x = share / float(s)
            lost, cone = decayed_time(x, one)
            cost = cost + float(weight) * (one - (x - lost))
            cones.append(cone)
        return cp.multiply(sources.importance, cost), cones

    def _scaled_quadrature(
        self, y: Expression, w: Array, u: Array, one: Expression | None = None
    ) -> ConeForm:
        """Return the quadrature's total in well-conditioned cone forms.

        There is one for every pair of source and node.
        With t = us the nodes of small t of a source are taken together as (A/2)/(x + B/3A), A = Σ weight·s
        and B = Σ weight·s², which is right to second order; the others as binary staleness has them.
        """
        s, weight = _rule(self.nodes)
        t = u[:, None] * s
        short = t < SHORT
        first, second = short @ (weight * s), short @ (weight * s * s)
        cost: Expression = 0.0
        cones: list[Expression] = []
        some = np.flatnonzero(first > 0.0)
        if len(some):
            shift, scale = u[some] * second[some] / (3.0 * first[some]), w[some] * u[some] * first[some] / 2.0
            if one is None:
                cost = cost + scale @ cp.inv_pos(y[some] + shift)
            else:
                ratio, cone = square_over(one[some], y[some] + cp.multiply(shift, one[some]))
                cost = cost + scale @ ratio
                cones.append(cone)
        source, node = np.nonzero(~short)
        if len(source):
            own = w[source] * weight[node]
            stale, stale_cones = stale_total(
                own, t[source, node], y[source], None if one is None else one[source]
            )
            cost = cost + (stale if one is None else stale + own @ one[source])
            cones += stale_cones
        return cost, cones


def _rule(nodes: int) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes s and weights of ∫₀¹ f(s)/s ds in √s."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    v = (points + 1.0) / 2.0
    return v * v, weights / v


def _at(age: Array, d: Array) -> Array:
    return ein(d * age)


def _periodic_inverse(price: Array, d: Array) -> Array:
    return d / inverse_harmonic_index(price * d)


# Newton's method is right to 6e-16 of the marginal value, the table of loops to 1.3e-15.
PERIODIC = replace(
    Cell.compiled(demand_functions.harmonic_periodic, proof_functions.HARMONIC_PERIODIC),
    inverse=_periodic_inverse,
)
POISSON = Cell.compiled(
    demand_functions.harmonic_poisson, proof_functions.HARMONIC, cost_functions.harmonic_poisson_cost
)
ON_SIGNAL = Cell.compiled(
    demand_functions.reciprocal_below, proof_functions.HARMONIC_SIGNAL, cost_functions.harmonic_signal_cost
)
COUNTED = Cell.compiled(harmonic_counted, HARMONIC_COUNTED)
ON_REQUEST = Cell.compiled(request_harmonic, REQUEST_HARMONIC)
IN_WINDOW = Cell.compiled(window_harmonic, WINDOW_HARMONIC)
ATTEMPTS = Cell.compiled(attempt_harmonic, ATTEMPT_HARMONIC, whole=PERIODIC)
