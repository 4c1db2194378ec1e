"""Expected penalty C(m) of m missed changes.

C is any non-decreasing function with C(0) = 0. Binary freshness, harmonic staleness and accumulated delay are
C(m) = [m ≥ 1], H(m) and m. With the increments d_m = C(m) − C(m−1) ≥ 0, at refresh rate ρ of a source of
change rate Δ:

===========  ==========================================  ====================================
discipline   J(ρ)                                        −dJ/dρ
===========  ==========================================  ====================================
Poisson      Σ_{m≥1} d_m (1 + x)^{−m}, x = ρ/Δ           Σ_{m≥1} m d_m (1 + x)^{−m−1}/Δ
on signal    Σ_{m≥1} d_m (1 − p)^m, p = ρ/Δ ≤ 1          Σ_{m≥1} m d_m (1 − p)^{m−1}/Δ
===========  ==========================================  ====================================

A source with x = 1e-6 needs forty million terms. `freshopt.numerics.exponential_sums` compresses them to a
few hundred positive weights at nodes m_j that serve all sources, so that the sum stays convex, decreasing and
DCP; an evaluation costs about a hundred exponentials per source, for any x.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from freshopt.compiled.penalty_tables import (
    ANNOUNCED_PENALTIES,
    LEAST_SOURCES,
    PENALTIES,
    PenaltyTables,
    penalty_tables,
    with_announced,
)
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, expect_settings, list_offenders
from freshopt.modelling.cone_forms import RARE, SLOW, falling_total, square_over
from freshopt.modelling.objective import Command, ConeForm, Objective, Refresh, require_discipline
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.exponential_sums import LARGEST, ExponentialSums, Penalty, PenaltyIncrements
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.octave_cache import OctaveCache
from freshopt.separable.kernel import Kernel

# Nodes of the conditioned forms, for rates within a factor of 2.
FEW = 5
# Below so many refreshes per change missed changes decay with the rate itself, off by so much.
STRAIGHT = 1e-3
# Below this x, log(1+x) and such are taken as rational, off by x²/4 of the slope at twice the rate.
BENT = 0.1
# Largest shares of signals followed that are a scale for the powers.
FULL, ALL_BUT_FULL = 0.9, 1.0 - 1e-6


@frozen_value(repr=False)
class ExpectedPenalty(Objective):
    """Minimise Σ w·E[C(number of missed changes)].

    Parameters
    ----------
    penalty : callable
        C: an array of whole numbers m ≥ 0 (float64, up to 2^62) to their penalties, the same shape. C(0) = 0,
        non-decreasing, and growing no faster than a power.
    refresh : Refresh
        ``POISSON``; signalled sources use the on-signal cell. There is no periodic cell.
    nodes : int
        Nodes per octave of the *declared* form; see Notes.
    smallest_ratio : float
        The smallest ρ/Δ for which the declared form is accurate.

    Raises
    ------
    ObjectiveError
        For another discipline, or if C(0) ≠ 0, C decreases or is not a number; in a solve, if C
        grows too fast for a source's rate, or has too many irregular steps to be summed at that rate.

    Notes
    -----
    Up to 2^16 missed changes every term is used; beyond, C is sampled on 2048 cells per octave, cells where C
    is no quartic to 1e-9 are divided further, and term by term in the end. Smooth penalties and those with
    thousands of steps are thus summed to 1e-12 down to ρ/Δ = 1e-17; one that is irregular everywhere, such as
    ``m // 10``, down to ρ/Δ = 1e-5, below which sources are refused by name unless `min_rate` keeps them
    above. C is bounded if it no longer grows at 2^62; then J(0) = C(∞).

    The declared form is Σ_j W_j·exp(−m_j·log(1 + ρ/Δ)) with fewer nodes, 61 by default. Its relative error is
    4e-8 for C up to m, 4e-7 for m² and 1e-5 for m⁴, for ρ/Δ ≥ `smallest_ratio`; below, it is too low.

    Examples
    --------
    >>> import freshopt as fo
    >>> import numpy as np
    >>> sources = fo.Sources(change_rate=[1.0, 100.0])
    >>> fo.solve(fo.Problem(ExpectedPenalty(np.sqrt), sources, bandwidth=10.0)).rates.round(6)
    array([1.787819, 8.212181])
    >>> deadline = lambda m: np.maximum(m - 2, 0)  # two missed changes are forgiven
    >>> fo.solve(fo.Problem(ExpectedPenalty(deadline), sources, bandwidth=10.0)).rates.round(6)
    array([0.733752, 9.266248])
    """

    penalty: Penalty
    refresh: Refresh = Refresh.POISSON
    nodes: int = 5
    smallest_ratio: float = 1e-2
    disciplines: ClassVar[tuple[Refresh, ...]] = (Refresh.POISSON,)
    commands: ClassVar[tuple[Command, ...]] = (
        Command("penalty-sqrt", "square root of the number of missed changes", {"penalty": np.sqrt}),
        Command("penalty-log", "its logarithm, log(1+m)", {"penalty": np.log1p}),
        Command("penalty-square", "its square", {"penalty": np.square}),
    )
    _increments: PenaltyIncrements = field(init=False)
    _tables: _Tables = field(init=False)
    _silent: _UnitCell = field(init=False)
    _signalled: _UnitCell = field(init=False)

    def __post_init__(self) -> None:
        require_discipline(self)
        expect_settings(self)
        if not callable(self.penalty):
            raise ObjectiveError(
                f"the penalty {self.penalty!r} is not a function of m. Pass one, as np.sqrt."
            )
        if not self.nodes >= 1 or not 0.0 < self.smallest_ratio < math.inf:
            raise ObjectiveError(
                f"nodes={self.nodes!r} and smallest_ratio={self.smallest_ratio!r} must be > 0. Correct them."
            )
        increments = PenaltyIncrements(self.penalty)
        object.__setattr__(self, "_increments", increments)
        object.__setattr__(self, "_tables", _Tables(self.penalty, increments))
        object.__setattr__(self, "_silent", _UnitCell(increments, signalled=False))
        object.__setattr__(self, "_signalled", _UnitCell(increments, signalled=True))

    def __repr__(self) -> str:
        name = getattr(self.penalty, "__name__", type(self.penalty).__name__)
        return f"ExpectedPenalty({name}, refresh={self.refresh!r})"

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·Σ_j W_j (1+x)^{−m_j}.

        It is accurate for x from `smallest_ratio` or the sources' own least on.
        """
        least = max(float(np.min(sources.min_rate / sources.change_rate)), self.smallest_ratio)
        logarithm = cp.log(1.0 + cp.multiply(1.0 / sources.change_rate, rate))
        terms = [weight * cp.exp(-m * logarithm) for m, weight in self._declared(math.log1p(least))]
        return cp.multiply(sources.importance, sum(terms[1:], terms[0]))

    def signalled_per_source(self, rate: Expression, sources: Sources) -> tuple[Expression, list[Expression]]:
        """Declare w·Σ_j W_j (1−p)^{m_j}.

        There is an exponential cone per source and node.
        t ≥ v^m for v = 1−p is v·log(t/v) ≥ (m−1)·e for some e ≥ v·log v.
        """
        n = len(sources)
        least = max(float(np.min(sources.min_rate / sources.change_rate)), self.smallest_ratio)
        v, e = cp.Variable(n, nonneg=True), cp.Variable(n)
        cones = [v >= 1.0 - cp.multiply(1.0 / sources.change_rate, rate), cp.ExpCone(-e, v, np.ones(n))]
        cost: Expression = 0.0
        for m, weight in self._declared(-math.log1p(-min(least, 0.9))):
            t = cp.Variable(n, nonneg=True)
            cones.append(cp.ExpCone((m - 1.0) * e, v, t))
            cost = cost + weight * t
        return cp.multiply(sources.importance, cost), cones

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return a cone form with five exponentials per source.

        They are chosen for its typical x; see `falling_total`.
        They decay with ℓ = log((1+xy)/(1+x))·(1+x)/x, near y − 1 where x is small.
        """
        x = typical / sources.change_rate
        m, share = self._increments.slopes(np.minimum(np.log1p(x), LARGEST), FEW)
        slope = self.kernel(sources).marginal(typical) * typical
        elasticity = x / (1.0 + x)  # of 1 + x
        cones: list[Expression] = []

        def path(k: IntArray) -> Expression:
            order = np.argsort(x[k], kind="stable")
            straight, bent, far = (k[order[part]] for part in _split(x[k][order], STRAIGHT, BENT))
            pieces = [y[straight] - 1.0] if len(straight) else []  # CVXPY 1.7 has no empty expressions
            if len(bent):
                s = y[bent] - 1.0
                square, cone = square_over(s, 1.0 + cp.multiply(elasticity[bent] / 2.0, s))
                cones.append(cone)
                pieces.append(s - cp.multiply(elasticity[bent] / 2.0, square))
            if len(far):
                log = cp.log(1.0 + cp.multiply(elasticity[far], y[far] - 1.0))
                pieces.append(cp.multiply(1.0 / elasticity[far], log))
            return cp.hstack(pieces)[np.argsort(order, kind="stable")]

        decay = m * elasticity[:, None]
        cost, own = falling_total(y, slope, (share, decay, decay + elasticity[:, None]), path)
        return cost, [*own, *cones]

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm:
        """Return a cone form with five powers of 1−p per source.

        They are exponentials where p is small.
        """
        # Where one missed change costs something, the cost is nearly straight beyond FULL; where it is free,
        # 1−p is small at the optimum and its own scale.
        most = FULL if self._increments.shift == 0.0 else ALL_BUT_FULL
        p = np.minimum(typical / sources.change_rate, most)
        # Per relative rate 1−p falls by `fall` of itself, from `centre` on.
        fall, centre = typical / sources.change_rate / (1.0 - p), p * sources.change_rate / typical
        m, share = self._increments.slopes(-np.log1p(-p), FEW)
        slope = self.signalled_kernel(sources).marginal(p * sources.change_rate) * typical
        decay = m * fall[:, None]
        powers = (p >= STRAIGHT)[:, None] & (decay >= SLOW)
        mixture = (np.where(powers, 0.0, share), decay, decay - fall[:, None])
        cost, cones = falling_total(y, slope, mixture, lambda k: y[k] - 1.0)
        for some in (np.flatnonzero(p < BENT), np.flatnonzero(p >= BENT)):
            source, node = np.nonzero(powers[some] & (share[some] > RARE))
            if len(source):
                high, own = _powers(y[some] - centre[some], fall[some], source, m[some][source, node])
                each = (slope[some][source] * share[some][source, node]) / decay[some][source, node]
                cost = cost + each @ high
                cones = [*cones, *own]
        return cost, cones

    def convex_per_bandwidth(self, sources: Sources) -> str | None:  # noqa: ARG002
        """Return None: penalties of missed changes are convex in it."""
        return None

    def never_failing(
        self,
        sources: Sources,
        success: Array,
        refresh: Refresh,  # noqa: ARG002
    ) -> tuple[Objective, Sources] | None:
        """Return the costs of attempts by sources of rates Δ/s."""
        return self, sources.with_change_rate(sources.change_rate / success)

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics."""
        return self._kernel(sources, signalled=False)

    def signalled_kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics of announced changes."""
        return self._kernel(sources, signalled=True)

    def _kernel(self, sources: Sources, *, signalled: bool) -> Kernel:
        cell = _Cell(self._increments, self._signalled if signalled else self._silent, sources)
        position = np.where(sources.importance > 0.0, np.arange(float(len(sources))), -1.0)
        parameters = (sources.change_rate, position)
        return Kernel(
            sources.importance,
            parameters,
            cell.cost,
            cell.marginal,
            cell.inverse,
            tables_of=self._tables.of_both if signalled else self._tables.of_silent,
            table_cell=ANNOUNCED_PENALTIES if signalled else PENALTIES,
        )

    def _declared(self, theta: float) -> list[tuple[float, float]]:
        """Return the declared form's nodes m_j and weights from this θ."""
        increments = self._increments
        nodes, weights = increments.quadrature(increments.octave(theta), number=self.nodes)
        return list(zip((increments.shift + nodes).tolist(), weights.tolist(), strict=True))


def _split(values: Array, *bounds: float) -> list[slice]:
    """Return the slices of ascending values between ascending bounds."""
    edges = [0, *np.searchsorted(values, bounds).tolist(), len(values)]
    return [slice(low, high) for low, high in itertools.pairwise(edges)]


def _powers(s: Expression, fall: Array, place: IntArray, m: Array) -> tuple[Expression, list[Expression]]:
    """Return t ≥ max(v, 0)^m and its cones.

    With v = (1 − fall·s)[place] and m ≥ 1.
    t ≥ v^m is v·log(t/v) ≥ −(m−1)·fall·f for some f ≤ −v·log(v)/fall, which is s − fall/2·s²/(1 − fall·s/3)
    up to fall³s⁴/36 where the fall is small.
    """
    v, t = cp.Variable(len(fall), nonneg=True), cp.Variable(len(m), nonneg=True)
    cones = [v >= 1.0 - cp.multiply(fall, s)]
    if float(np.max(fall)) < 2.0 * BENT:
        square, cone = square_over(s, 1.0 - cp.multiply(fall / 3.0, s))
        f = s - cp.multiply(fall / 2.0, square)
        cones.append(cone)
    else:
        f = cp.Variable(len(fall))
        cones.append(cp.ExpCone(cp.multiply(fall, f), v, np.ones(len(fall))))
    return t, [*cones, cp.ExpCone(-cp.multiply((m - 1.0) * fall[place], f[place]), v[place], t)]


class _Tables:
    """Tables for compiled passes, made once many sources have asked for them.

    There are none of bounded penalties.
    """

    __slots__ = ("_asked", "_increments", "_made", "_penalty")

    def __init__(self, penalty: Penalty, increments: PenaltyIncrements) -> None:
        self._penalty, self._increments = penalty, increments
        self._asked = 0
        self._made: dict[str, PenaltyTables | None] = {}

    def __reduce__(self) -> tuple[type[_Tables], tuple[Penalty, PenaltyIncrements]]:
        """Leave tables behind: a copy makes its own."""
        return _Tables, (self._penalty, self._increments)

    def of_silent(self, n: int) -> PenaltyTables | None:
        """Return the tables of silent changes to so many more sources."""
        return self._once("silent", n, self._silent)

    def of_both(self, n: int) -> PenaltyTables | None:
        """Return the tables of silent and of announced changes."""
        return self._once("both", n, self._both)

    def _once(self, kind: str, n: int, make: Callable[[], PenaltyTables | None]) -> PenaltyTables | None:
        self._asked += n
        if kind not in self._made and self._asked >= LEAST_SOURCES:
            self._made[kind] = None if self._increments.bounded else make()
        return self._made.get(kind)

    def _silent(self) -> PenaltyTables | None:
        shift = self._increments.shift

        def sums(ratio: Array) -> tuple[Array, Array]:
            theta = np.log1p(ratio)
            found = self._increments.sums(theta)
            cost, marginal = found.zeroth, found.first
            known = np.where(found.known, 1.0, np.nan)
            return known * np.exp(-(shift + 1.0) * theta) * cost, known * np.exp(
                -(shift + 2.0) * theta
            ) * marginal

        return penalty_tables(sums, int(shift) + 1)

    def _both(self) -> PenaltyTables | None:
        silent, first = self.of_silent(0), float(self._penalty(np.ones(1))[0])
        if silent is None:
            return None
        try:
            later = PenaltyIncrements(lambda m: np.maximum(self._penalty(m) - first, 0.0))
        except ObjectiveError:  # a first change so dear that the others are rounding
            return None

        def sums(ratio: Array) -> Array:
            theta = np.log1p(ratio)
            found = later.sums(theta)
            return np.where(found.known, np.exp(-later.shift * theta) * found.first, np.nan)

        return with_announced(silent, sums, first, int(later.shift) + 1)


class _UnitCell:
    """Cost, marginal and inverse of one discipline as functions of one number.

    That is the ratio ρ/Δ, and for the inverse the price times Δ. Each has a table for many sources, which
    holds where it is right to rounding; elsewhere exponentials are summed.
    The variable of the sums is θ with e^{−θ} = 1/(1+x), or 1−p.
    """

    __slots__ = ("_increments", "_signalled", "cost", "inverse", "marginal")

    def __init__(self, increments: PenaltyIncrements, *, signalled: bool) -> None:
        self._increments, self._signalled = increments, signalled
        # Costs of √m fall as 1/√x at small x, those of few changes as 1/x at large ones; marginals as their
        # slopes.
        self.cost = OctaveCache(self._cost, fall=1)
        self.marginal = OctaveCache(self._marginal, fall=2)
        self.inverse = OctaveCache(self._inverse)

    def __reduce__(self) -> tuple[Callable[[PenaltyIncrements], _UnitCell], tuple[PenaltyIncrements]]:
        """Leave tables behind: a copy makes its own."""
        return functools.partial(_UnitCell, signalled=self._signalled), (self._increments,)

    def _cost(self, ratio: Array) -> Array:
        """Return the cost Σ d_m e^{−mθ}; NaN where it is not known."""
        theta, sums = self._sums(ratio)
        return self._known(np.exp(-(self._increments.shift + 1.0) * theta) * sums.zeroth, ratio, sums)

    def _marginal(self, ratio: Array) -> Array:
        """Return the marginal Σ m d_m e^{−(m+1)θ}, or NaN.

        On signals the exponent is −(m−1)θ.
        """
        theta, sums = self._sums(ratio)
        decay = self._increments.shift + self._decay()
        return self._known(np.exp(-decay * theta) * sums.first, ratio, sums)

    def _inverse(self, price: Array) -> Array:
        """Return the ratio with that marginal."""
        theta = self._increments.theta_of(np.log(price), self._decay())
        return -np.expm1(-theta) if self._signalled else np.expm1(theta)

    def _sums(self, ratio: Array) -> tuple[Array, ExponentialSums]:
        theta = -np.log1p(-np.minimum(ratio, 1.0)) if self._signalled else np.log1p(ratio)
        theta = np.minimum(theta, LARGEST)
        return theta, self._increments.sums(theta)

    def _known(self, value: Array, ratio: Array, sums: ExponentialSums) -> Array:
        if self._increments.bounded:
            return np.where(sums.known, value, np.nan)
        return np.where(ratio == 0.0, np.inf, np.where(sums.known, value, np.nan))

    def _decay(self) -> float:
        return 0.0 if self._signalled else 2.0


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """Cost, marginal and inverse marginal of sources under one discipline."""

    increments: PenaltyIncrements
    unit: _UnitCell
    sources: Sources

    def cost(self, rate: Array, d: Array, position: Array) -> Array:
        """Return the cost of each source."""
        return self._checked(self.unit.cost(rate / d), rate / d, position)

    def marginal(self, rate: Array, d: Array, position: Array) -> Array:
        """Return the marginal of each source."""
        return self._checked(self.unit.marginal(rate / d), rate / d, position) / d

    def inverse(self, price: Array, d: Array, _position: Array) -> Array:
        """Return the rate with that marginal."""
        return d * self.unit.inverse(price * d)

    def _checked(self, value: Array, ratio: Array, position: Array) -> Array:
        """Return the values; raise where they are unknown and matter."""
        nowhere = np.flatnonzero(np.isnan(value) & ~np.isnan(ratio) & (position >= 0.0))
        if len(nowhere):
            where = list_offenders(f"{self.sources.label(int(position[k]))}: {ratio[k]:.3g}" for k in nowhere)
            raise ObjectiveError(
                f"the penalty cannot be summed at the refreshes per change of {where}. "
                f"{self.increments.reason()} Raise min_rate of these sources, or choose a penalty that is "
                f"bounded, smooth or slower."
            )
        return value
