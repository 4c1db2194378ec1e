"""Age of the oldest missed change of each copy.

It says for how long a copy has been wrong. Unlike the number of missed changes it grows at the pace of the
clock, so fast sources do not dominate. A copy refreshed s ago has E = s − (1 − e^{−Δs})/Δ. Per source of
change rate Δ at refresh rate ρ, with u = Δ/ρ, cost and marginal value:

===========  ==================================  ===================================
discipline   J(ρ)                                −dJ/dρ
===========  ==================================  ===================================
Poisson      Δ/(ρ(ρ + Δ))                        Δ(2ρ + Δ)/(ρ(ρ + Δ))²
periodic     (u/2 − 1 + (1 − e^{−u})/u)/Δ        (u²/2 − 1 + (1 + u)e^{−u})/Δ²
on signal    1/ρ − 1/Δ, ρ ≤ Δ                    1/ρ²
waiting      (1 − ρ/Δ)²/(2ρ), ρ ≤ Δ              (1/ρ² − 1/Δ²)/2
===========  ==================================  ===================================

"On signal" a share of the signals is followed, beside Poisson refreshes. Beside periodic ones signalled
sources are refreshed once a time 1/ρ − 1/Δ has passed since the first change missed, which costs less than
half of that (`freshopt.compiled.cells.counted_signals`).

Periodic attempts that succeed with chance s = 1 − q are a sum of these. With x = 1 − e^{−u}, D = s + qx,
m = 1 − x/u, a = u/2 − m and A = u²/2 − 1 + (1 + u)e^{−u}, no term of which cancels another:

    J = (s·a + q·u·m + q(2−s)·u·x/(2s))/(DΔ)
    −dJ/dρ = (s²A + sq·u·m(u + x) + (2−s)q·u²x(1 + qx/(2s)))/(DΔ)²
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from freshopt.compiled import age_tables, cost_functions, demand_functions, proof_functions
from freshopt.compiled.cells.attempt_proofs import ATTEMPT_AGE
from freshopt.compiled.cells.attempt_roots import attempt_age
from freshopt.compiled.cells.counted_signals import AGE_COUNTED, age_counted
from freshopt.compiled.cells.request_age import request_age
from freshopt.compiled.cells.request_proofs import REQUEST_AGE
from freshopt.compiled.cells.window_age import window_age
from freshopt.compiled.cells.window_proofs import WINDOW_AGE
from freshopt.cvx import Expression, cp
from freshopt.heavy import special
from freshopt.modelling.cone_forms import (
    by_size,
    falling_total,
    relative_to_lifetime,
    square_cone,
    square_over,
    within_lifetime,
)
from freshopt.modelling.cost_curve import NOT_POISSON, Cell, Curve, CurveObjective
from freshopt.modelling.curves.change_shape import ChangeShape, require_changes
from freshopt.modelling.objective import (
    Command,
    ConeForm,
    Objective,
    Refresh,
    require_discipline,
    require_nodes,
)
from freshopt.modelling.request_cell import RequestForms
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.numerics.gauss_quadrature import gauss_rows
from freshopt.numerics.request_windows import age_rise
from freshopt.numerics.special_functions import age_index, harmonic_index, mean_age

# Below the one u and above the other the periodic cell has simpler forms.
SMALL, LARGE = 0.05, 40.0
# Below the one u and above the other the Poisson cell has simpler forms, off by 1e-4 and 2/u³.
FEW_CHANGES, MANY_CHANGES = 0.02, 30.0
# Nodes of the conditioned periodic cell, for rates within a factor of 2.
FEW = 5
# Points of √t up to 7, where e^{−49} = 5e-22; J₂ has 14 periods there for u = 40.
_POINTS, _REACH = 48, 7.0


@frozen_arrays
@dataclass(frozen=True, slots=True)
class Age(CurveObjective):
    """Minimise Σ w·E[age of the oldest missed change].

    Parameters
    ----------
    refresh : Refresh
        ``PERIODIC`` (default), ``POISSON``, or ``ON_REQUEST`` of caches, whose `Sources` have request rates.
    nodes : int
        Quadrature nodes of the *declared* periodic cell; see Notes. The numerics are exact in any case.
    changes : ChangeShape, optional
        As of `BinaryFreshness`, without signals.

    Notes
    -----
    The Poisson and on-signal cells are declared exactly. The periodic cell is the mixture
    ∫₀^∞ Δe^{−Δσ}·max(0, 1−σρ)²/(2ρ) dσ of costs that start at age σ; no finite cone program equals it. It is
    declared by quadrature in z = Δσ on 18 panels that halve towards 0, with `nodes` nodes on each; for
    1e-3 ≤ u ≤ 1e3 the cost's relative error is below 8e-3 with 2 nodes and 9e-4 with 4.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 10.0])
    >>> fo.solve(fo.Problem(Age(fo.Refresh.POISSON), sources, bandwidth=2.0)).rates.round(6)
    array([0.664759, 1.335241])
    """

    refresh: Refresh = Refresh.PERIODIC
    counts_signals: ClassVar[bool] = True
    waits_after_signals: ClassVar[bool] = True
    on_request: ClassVar[bool] = True
    nodes: int = 2
    changes: ChangeShape | None = field(default=None, repr=False)
    commands: ClassVar[tuple[Command, ...]] = (Command("age", "time since the oldest missed change"),)

    def __post_init__(self) -> None:
        require_discipline(self)
        require_nodes(self)
        require_changes(self.changes)

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·J(ρ).

        The cells of periodic refreshes and of those on request have a second-order cone per source and node.
        """
        w, d = sources.importance, sources.change_rate
        if self.refresh is not Refresh.POISSON:
            x = cp.multiply(1.0 / d, rate)
            on_request = self.refresh is Refresh.ON_REQUEST
            within = within_lifetime(rate, sources) if on_request else 1.0
            cost: Expression = 0.0
            cones = []
            for z, weight in zip(*_mixture(self.nodes), strict=True):
                hinge, cone = squared_hinge(x, np.full(len(sources), z), within)
                cost = cost + 0.5 * weight * hinge
                cones.extend(cone)
            return cp.multiply(w / d, cost), cones
        return cp.multiply(w, cp.exp(np.log(d) - cp.log(rate) - cp.log(rate + d)))

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·(1/ρ − 1/Δ)."""
        self.require_share_of_signals()
        return cp.multiply(sources.importance, cp.inv_pos(rate) - 1.0 / sources.change_rate)

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return a cone form with every logarithm near 0.

        The form of the periodic cell depends on the size of u = Δ/ρ.
        """
        if self.refresh is Refresh.ON_REQUEST:
            within, longer, one = relative_to_lifetime(y, sources, typical)
            w = sources.importance * within / sources.change_rate
            return _periodic_total(w, sources.change_rate / longer, y, one)
        u = sources.change_rate / typical
        if self.refresh is Refresh.PERIODIC:
            return _periodic_total(sources.importance / sources.change_rate, u, y)
        return _poisson_total(sources.importance / typical, u, y), []

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return the cone form Σ w/ρ, up to a constant."""
        return (sources.importance / typical) @ cp.inv_pos(y), []

    def convex_per_bandwidth(self, sources: Sources) -> str | None:  # noqa: ARG002
        """Return None: age is convex in the bandwidth used."""
        return None if self.changes is None else NOT_POISSON

    def cost_of_freshness(self, fresh: Expression, sources: Sources) -> Expression:
        """Return w·(1 − F)²/(ΔF)."""
        return cp.multiply(sources.importance / sources.change_rate, cp.inv_pos(fresh) - 2.0 + fresh)

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve c(s) = s − (1 − e^{−Δs})/Δ."""
        if self.changes is not None:
            return self.changes.curve(sources.column("change_rate"), 1)
        return Curve.compiled(
            sources.column("change_rate"),
            _at,
            PERIODIC,
            POISSON,
            ON_SIGNAL,
            attempts=ATTEMPTS,
            on_request=RequestForms(ON_REQUEST, IN_WINDOW, age_rise),
            counted=COUNTED,
        )

    def never_failing(
        self, sources: Sources, success: Array, refresh: Refresh
    ) -> tuple[Objective, Sources] | None:
        """Return the same with Δ/s for Δ, of 1/s times the importance.

        It is the age on a clock that goes 1/s times as fast. Periodic attempts have no such form.
        """
        if refresh is Refresh.PERIODIC:
            return None
        faster = sources.with_change_rate(sources.change_rate / success)
        return self, faster.with_importance(sources.importance / success)


def _poisson_total(w: Array, u: Array, y: Expression) -> Expression:
    """Return Σ w·u/(y(y+u)) up to a constant, for y near 1.

    For small u it is u/(y+u/2)², off by u²/4 of it; for large u it is 1/y − 1/(y+u) with the second term, u²
    times smaller in its slope, taken straight. Both ends avoid logarithms that barely move.
    """

    def product(k: IntArray) -> Expression:
        shifted = cp.multiply(1.0 / (1.0 + u[k]), y[k] + u[k])
        return (w[k] * u[k] / (1.0 + u[k])) @ cp.exp(-cp.log(y[k]) - cp.log(shifted))

    return by_size(
        u,
        (FEW_CHANGES, lambda k: (w[k] * u[k]) @ cp.power(y[k] + u[k] / 2.0, -2)),
        (MANY_CHANGES, product),
        (np.inf, lambda k: w[k] @ (cp.inv_pos(y[k]) + cp.multiply((1.0 + u[k]) ** -2, y[k]))),
    )


def _periodic_total(w: Array, u: Array, y: Expression, one: Expression | None = None) -> ConeForm:
    """Return the cone form of the total periodic age.

    It is Σ w·(u/(2y) − 1 + (1−e^{−u/y})·y/u) up to a constant, and its cones, for y near 1.

    For small u it is u²/(6y(y+u/4)), off by u²/80 of it; for large u the exponential vanishes. Between, the
    curvature (u/y³)(1 − e^{−u/y}) is u∫₀^∞ D(t)e^{−yt} dt with D(t) = t²/2 − (t/u)·J₂(2√(ut)) ≥ 0, by Laplace
    transforms that tables have, so that the cost is a mixture of decaying exponentials: D(t)/t weighs the
    slope. Five nodes of it get the slope right to 2e-6 within 40 % of the typical rate.
    """
    cones: list[Expression] = []

    def rational(k: IntArray) -> Expression:
        scale = w[k] * u[k] * u[k] / (6.0 + 1.5 * u[k])
        if one is None:
            shifted = cp.multiply(1.0 / (1.0 + u[k] / 4.0), y[k] + u[k] / 4.0)
            return scale @ cp.exp(-cp.log(y[k]) - cp.log(shifted))
        shifted = cp.multiply(1.0 / (1.0 + u[k] / 4.0), y[k] + cp.multiply(u[k] / 4.0, one[k]))
        cube, own = _cube_over(one[k], y[k], shifted)
        cones.extend(own)
        return scale @ cube

    def mixture(k: IntArray) -> Expression:
        decay, share = _slope_nodes(u[k])
        slope = w[k] * age_index(u[k]) / u[k]
        whole = None if one is None else (one[k], w[k] * mean_age(u[k]))
        middle = np.ones(len(u)) if one is None else one
        cost, own = falling_total(
            y[k], slope, (share, decay, decay), lambda source: y[k[source]] - middle[k[source]], whole
        )
        cones.extend(own)
        return cost

    def large(k: IntArray) -> Expression:
        if one is None:
            return (w[k] * u[k] / 2.0) @ cp.inv_pos(y[k]) + (w[k] / u[k]) @ y[k]
        ratio, own = square_over(one[k], y[k])
        cones.append(own)
        return (w[k] * u[k] / 2.0) @ ratio + (w[k] / u[k]) @ y[k] - w[k] @ one[k]

    return by_size(u, (SMALL, rational), (LARGE, mixture), (np.inf, large)), cones


def _cube_over(x: Expression, a: Expression, b: Expression) -> tuple[Expression, list[Expression]]:
    """Return (s, cones) with s ≥ x³/(a·b) elementwise."""
    s, mean = cp.Variable(x.shape[0], nonneg=True), cp.Variable(x.shape[0], nonneg=True)
    return s, [
        cp.PowCone3D(s, mean, x, 1.0 / 3.0),
        square_cone(a, mean, b),
    ]


def _slope_nodes(u: Array) -> tuple[Array, Array]:
    """Return quadrature nodes and shares of the slope's measure.

    The measure is e^{−t}D(t)/t dt of each u; nodes t and shares are both of shape (n, FEW).

    D(t) = t²/2·(1 − ₀F₁(3; −ut)); summed in v = √t, in which the Bessel function swings evenly.
    """
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    v = 0.5 * _REACH * (points + 1.0)
    t = v * v
    density = 0.5 * t * np.maximum(1.0 - special.hyp0f1(3.0, -u[:, None] * t), 0.0)
    nodes, mass = gauss_rows(t, density * np.exp(-t) * v * weights, FEW)
    return nodes, mass / np.sum(mass, axis=1, keepdims=True)


def squared_hinge(x: Expression, z: Array, one: Expression = 1.0) -> tuple[Expression, list[Any]]:
    """Return t ≥ max(0, 1 − z·x)²/x elementwise, and its cones.

    `one` stands in the place of 1.

    It is tight where t is minimised.
    """
    n = x.shape[0]
    t, v = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
    return t, [square_cone(t, v, x), v >= one - cp.multiply(z, x)]


def _mixture(nodes: int) -> tuple[Array, Array]:
    """Return nodes and weights of ∫₀^∞ e^{−z} f(z) dz, on halving panels."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    edges = np.concatenate(([0.0], 2.0 ** np.arange(-12, 6)))
    half, middle = np.diff(edges) / 2.0, (edges[1:] + edges[:-1]) / 2.0
    z = (middle[:, None] + half[:, None] * points).ravel()
    return z, (half[:, None] * weights).ravel() * np.exp(-z)


def _at(age: Array, d: Array) -> Array:
    return harmonic_index(d * age) / d


def _periodic_inverse(price: Array, d: Array) -> Array:
    return age_tables.rates_without_loops(age_tables.PERIODIC, price, d)


def _poisson_inverse(price: Array, d: Array) -> Array:
    return age_tables.rates_without_loops(age_tables.POISSON, price, d)


# Their best responses are written for arrays: those of loops take cube roots apart, for all sources, which
# NumPy need not do where none is that frequent. It takes 2.5 to 6 times as long.
PERIODIC = replace(
    Cell.compiled(demand_functions.age_periodic, proof_functions.AGE_PERIODIC), inverse=_periodic_inverse
)
POISSON = replace(
    Cell.compiled(demand_functions.age_poisson, proof_functions.AGE, cost_functions.age_poisson_cost),
    inverse=_poisson_inverse,
)
ON_SIGNAL = Cell.compiled(demand_functions.reciprocal_root_below, proof_functions.AGE_SIGNAL)
COUNTED = Cell.compiled(age_counted, AGE_COUNTED)
ON_REQUEST = Cell.compiled(request_age, REQUEST_AGE)
IN_WINDOW = Cell.compiled(window_age, WINDOW_AGE)
ATTEMPTS = Cell.compiled(attempt_age, ATTEMPT_AGE, whole=PERIODIC)
