"""Power cost of age a·s^e, optionally capped.

These are the synchronization costs of [1]_. With 0 < e < 1 the first moments of staleness hurt most; e = 1 is
a linear cost, e > 1 punishes long neglect. A cap U says that a copy of age t₀ = (U/a)^{1/e} is as bad as any
older one; beyond the period t₀ refreshing a little more often then gains a constant sl = U·t₀·e/(e+1) per
unit of rate, and at the price sl rates jump.

===========  ===========================================  =====================================
discipline   J(ρ)                                         −dJ/dρ
===========  ===========================================  =====================================
Poisson      a·ρ^{−e}·γ(1+e, ρt₀) + U·e^{−ρt₀}            a·e·ρ^{−e−1}·γ(1+e, ρt₀)
periodic     a·ρ^{−e}/(e+1); U − sl·ρ below ρ = 1/t₀      a·e/(e+1)·ρ^{−e−1}, at most sl
===========  ===========================================  =====================================

γ is the lower incomplete gamma function; without a cap γ(1+e, ∞) = Γ(1+e) and the second term vanishes.

The capped Poisson cell is U·e∫₀¹ z^{e−1}e^{−xz} dz with x = ρt₀, a mixture of decaying exponentials of the
rate. Splitting the weight by 1 = Q(8, cz) + P(8, cz), the regularised gamma functions, leaves

    J/U = Σ_{k<8} e·Γ(e+k)/k!·c^k·(x+c)^{−e−k} + e∫₀¹ z^{e−1}P(8, cz)e^{−xz} dz  (up to Q(8, c) = 9e-11 of U):

powers that carry large x, where the cap is not felt, and a smooth integral that is negligible there. All
weights are positive, so the sum is convex by CVXPY's rules, and accurate from x = 0 to infinity.

.. [1] Kolobov et al., "Online Learning for Active Cache Synchronization", ICML 2020, section 6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from freshopt.compiled.cells.capped_poisson import settled
from freshopt.cvx import Expression, cp
from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import special
from freshopt.modelling.cone_forms import by_size, falling_total, relative_to_lifetime, within_lifetime
from freshopt.modelling.cost_curve import Curve
from freshopt.modelling.curves.powers import POISSON, request_forms
from freshopt.modelling.objective import Command, ConeForm, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    BoolArray,
    Index,
    IntArray,
    as_float64,
    as_numbers,
    as_vector,
    is_scalar,
)
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.gauss_quadrature import gauss_rows, squared_legendre
from freshopt.numerics.geometric_sums import geometric_nodes
from freshopt.numerics.request_windows import quadrature_rise
from freshopt.separable.conditional_hull import concave_rates
from freshopt.separable.conditional_kernel import largest_cost_ratio

# A kink this many times away from a typical rate does not matter.
FAR = 20.0
# Above this ρt₀ the Poisson cost does not feel its cap: e^{−30} = 1e-13.
SETTLED = 30.0
# The c, the number of powers and the nodes of the declared capped Poisson cell, of which 15 count.
SHIFT, POWERS, NODES = 40.0, 8, 24
# Nodes of its conditioned form, for rates within a factor of 2.
FEW = 5
# A node whose weight, relative to the cap, is below this is left out.
NEGLIGIBLE = 1e-14
# Exponent of the command line: in the middle of the range 0..1 that the paper studies.
EXPONENT = 0.5
# Below this x three terms of γ are right to x³/6 < 2e-16, and x^{1+e} may not be a float.
_SHORT = 1e-5


@frozen_value()
class PowerCost:
    """Cost rate min(scale·s^exponent, cap) of a copy of age s.

    Parameters
    ----------
    scale : array_like, scalar or shape (n,)
        a > 0: the cost rate at age 1.
    exponent : array_like, scalar or shape (n,)
        e > 0.
    cap : array_like, optional
        U > 0: the largest cost rate; None for no cap.

    Notes
    -----
    What is declared to CVXPY is exact for periodic refreshes, capped or not, and for Poisson refreshes
    without a cap. The capped Poisson cell is a sum of 23 powers and exponentials per source, accurate for
    every rate from 0 on: the relative error of the cost is below 1e-9 for e ≤ 1, 4e-8 for e ≤ 3 and 6e-7 for
    e ≤ 5, that of its slope below 1e-8, 2e-7 and 1e-6; 3e-5 for e = 8.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.SynchronizationCost(PowerCost(scale=[1.0, 8.0], exponent=1.0))
    >>> fo.solve(fo.Problem(objective, fo.Sources([1.0, 1.0]), bandwidth=2.0)).rates.round(6)
    array([0.522408, 1.477592])
    """

    scale: npt.ArrayLike
    exponent: npt.ArrayLike
    cap: npt.ArrayLike | None = None
    commands: ClassVar[tuple[Command, ...]] = (
        Command(
            "power",
            "a power of the time since the last refresh",
            {"scale": 1.0, "exponent": EXPONENT},
            uses=("scale", "exponent", "cap"),
        ),
    )

    def __post_init__(self) -> None:
        """Raise SourceDataError unless all numbers are > 0.

        That there is one per source, `Problem` finds out.
        """
        for key, value in self._given().items():
            numbers = as_numbers(value, f"PowerCost {key}")
            if numbers.ndim > 1:
                raise SourceDataError(
                    f"PowerCost {key} has shape {numbers.shape}. Pass a scalar or one per source."
                )
            _require_positive(key, numbers)

    def __repr__(self) -> str:
        capped = "" if self.cap is None else f", cap={_show(self.cap)}"
        return f"PowerCost(scale={_show(self.scale)}, exponent={_show(self.exponent)}{capped})"

    def convex_per_bandwidth(self, sources: Sources, refresh: Refresh) -> str | None:
        """Return why the cost is not convex in bandwidth used, or None."""
        _, e, _, cap = self._parameters(len(sources))
        capped = np.flatnonzero(np.isfinite(cap))
        if len(capped):
            return f"the capped cost of {sources.label(int(capped[0]))} is not convex in the bandwidth used"
        most = largest_cost_ratio(e, periodic=refresh is Refresh.PERIODIC)
        costs = sources.refresh_cost, sources.changed_cost
        dear = np.zeros(len(e)) if costs[1] is None else costs[1] / costs[0]
        beyond = np.flatnonzero(dear > most)
        if len(beyond):
            k = int(beyond[0])
            return (
                f"with the exponent {e[k]:g} the cost of {sources.label(k)} is convex in the bandwidth used "
                f"up to changed_cost/refresh_cost = {most[k]:.4g}, and this is {dear[k]:.4g}"
            )
        return None

    def concave_per_bandwidth(self, sources: Sources, refresh: Refresh) -> tuple[Array, Array] | None:
        """Return rates between which the cost is concave in bandwidth used.

        None where there is a cap.
        """
        _, e, _, cap = self._parameters(len(sources))
        if sources.changed_cost is None or bool(np.any(np.isfinite(cap))):
            return None
        ratio, d = sources.changed_cost / sources.refresh_cost, as_float64(sources.column("change_rate"))
        return concave_rates(e, d, ratio, periodic=refresh is Refresh.PERIODIC)

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve; parameters are a, e, t₀ and U."""
        parameters = self._parameters(len(sources))
        on_request = request_forms(parameters, _rise)
        return Curve(
            parameters, _at, _mean, _index, _inverse_index, POISSON, on_request=on_request, rate_at=None
        )

    def declare(
        self, rate: Expression, sources: Sources, refresh: Refresh
    ) -> tuple[Expression, list[Expression]]:
        """Declare J(ρ) per source in CVXPY.

        The capped periodic cell has one auxiliary rate per source.
        """
        a, e, t0, cap = self._parameters(len(sources))
        free = ~np.isfinite(cap)
        if refresh is Refresh.POISSON:
            if bool(np.all(free)):
                return cp.exp(-cp.multiply(e, cp.log(rate)) + (np.log(a) + special.gammaln(1.0 + e))), []
            # Without a cap there is no t₀: with 1 for it and a for U the first power is the whole cost.
            unit, scale = np.where(free, 1.0, t0), np.where(free, a, cap)
            return _capped_poisson(cp.multiply(unit, rate), scale, e, free), []
        log_scale = np.log(a) - np.log1p(e)
        one = within_lifetime(rate, sources) if refresh is Refresh.ON_REQUEST else None
        if bool(np.all(free)) and one is not None:
            power, cone = _power_over(one, rate, e)
            return cp.multiply(np.exp(log_scale), power), [cone]
        if bool(np.all(free)):
            return cp.exp(-cp.multiply(e, cp.log(rate)) + log_scale), []
        slope = np.where(free, 0.0, cap * np.where(free, 1.0, t0) * e / (e + 1.0))
        with np.errstate(divide="ignore"):
            least = np.where(free, 0.0, 1.0 / t0)
        v = cp.Variable(len(sources), nonneg=True)
        k = np.flatnonzero(free)
        bounds = [v >= rate, *([v[k] <= rate[k]] if len(k) else [])]
        if one is None:
            power = cp.exp(-cp.multiply(e, cp.log(v)) + log_scale)
            return power + cp.multiply(slope, v - rate), [*bounds, v >= least]
        power, cone = _power_over(one, v, e)
        bounds += [v >= cp.multiply(least, one), cone]
        return cp.multiply(np.exp(log_scale), power) + cp.multiply(slope, v - rate), bounds

    def cone_form(self, y: Expression, sources: Sources, typical: Array, refresh: Refresh) -> ConeForm | None:
        """Return the cone form in powers of y.

        The kink of a cap that is far away is left out.
        Under Poisson refreshes a cap that is felt makes a mixture of exponentials, of five per source.
        """
        a, e, t0, cap = self._parameters(len(sources))
        w = sources.importance
        bounds: list[Expression] = []
        if refresh is Refresh.POISSON:
            whole = w * a * special.gamma(1.0 + e) * typical**-e
            x = np.minimum(typical * t0, LARGEST)

            def felt(k: IntArray) -> Expression:
                total, cones = _felt_cap(y[k], w[k] * cap[k], e[k], x[k])
                bounds.extend(cones)
                return total

            unfelt = (np.inf, lambda k: whole[k] @ cp.exp(-cp.multiply(e[k], cp.log(y[k]))))
            return by_size(x, (SETTLED, felt), unfelt), bounds
        one = None
        if refresh is Refresh.ON_REQUEST:
            within, typical, one = relative_to_lifetime(y, sources, typical)
            w = w * within
        power = w * a * typical**-e / (e + 1.0)
        kink = 1.0 / np.minimum(t0 * typical, LARGEST)  # the rate 1/t₀ in units of the typical one
        slope = np.where(np.isfinite(cap), w * cap * e / (e + 1.0) / kink, 0.0)

        def uncapped(k: IntArray, at: Expression) -> Expression:
            if one is None:
                return power[k] @ cp.exp(-cp.multiply(e[k], cp.log(at)))
            scaled, cone = _power_over(one[k], at, e[k])
            bounds.append(cone)
            return power[k] @ scaled

        def near(k: IntArray) -> Expression:
            v = cp.Variable(len(k), nonneg=True)
            bounds.extend([v >= y[k], v >= (kink[k] if one is None else cp.multiply(kink[k], one[k]))])
            return uncapped(k, v) + slope[k] @ (v - y[k])

        def worst(k: IntArray) -> Expression:
            return -slope[k] @ y[k] + (0.0 if one is None else (w[k] * cap[k]) @ one[k])

        cost = by_size(kink, (1.0 / FAR, lambda k: uncapped(k, y[k])), (FAR, near), (np.inf, worst))
        return cost, bounds

    def never_failing(
        self, sources: Sources, success: Array, refresh: Refresh
    ) -> tuple[PowerCost, Sources] | None:
        """Return the power whose costs are those of attempts, or None.

        Under Poisson refreshes the age grows by 1/s, cap or not. Of a gap N/ρ, N geometric, the mean cost
        without a cap is that of a gap 1/ρ times s²·E[N^{1+e}]/s, which grows as s^{−e}.
        """
        a, e, cap = self._vectors(len(sources))
        if refresh is Refresh.POISSON:
            return replace(self, scale=a * success**-e, exponent=np.array(e)), sources
        if bool(np.any(np.isfinite(cap))):
            return None
        k, weights = geometric_nodes(success)
        factor = success * np.sum(weights * k ** (1.0 + e[:, None]), axis=1)
        factor = np.where(success == 1.0, 1.0, factor)
        return replace(self, scale=a * factor, exponent=np.array(e)), sources

    def power_law(self, sources: Sources, refresh: Refresh) -> tuple[Array, Array] | None:
        """Return log C and 1/(1+e) of the power law, or None.

        The law is w·J(ρ) = (C/e)·ρ^{−e}, for compiled loops; None if there is a cap.
        """
        a, e, _, cap = self._parameters(len(sources))
        if bool(np.any(np.isfinite(cap))):
            return None
        with np.errstate(divide="ignore"):
            scale = np.log(sources.importance) + np.log(a) + np.log(e)
        share = np.broadcast_to(1.0 / (1.0 + e[:1]), e.shape) if is_scalar(e) else 1.0 / (1.0 + e)
        if refresh is Refresh.POISSON:
            return scale + special.gammaln(1.0 + e), share
        return scale - np.log1p(e), share

    def capped_power(self, sources: Sources) -> tuple[Array, Array, Array, Array] | None:
        """Return log C, e, the rate 1/t₀ and the marginal below it.

        For compiled loops; C is that of `power_law`. None where a cap is reached at once.
        """
        a, e, t0, cap = self._parameters(len(sources))
        if not bool(np.all(t0 >= SMALLEST)):
            return None
        with np.errstate(all="ignore"):
            scale = np.log(sources.importance) + np.log(a) + np.log(e) - np.log1p(e)
            plateau = sources.importance * (cap * t0 * (e / (e + 1.0)))
        # What has no cap has no plateau; what has no importance gains nothing at any rate.
        return scale, e, 1.0 / t0, np.where(sources.importance > 0.0, plateau, 0.0)

    def take(self, index: Index) -> PowerCost:
        """Return the cost of some of the sources."""
        scale, exponent = _taken(self.scale, index), _taken(self.exponent, index)
        return PowerCost(scale, exponent, None if self.cap is None else _taken(self.cap, index))

    def _parameters(self, n: int) -> tuple[Array, Array, Array, Array]:
        """Return a, e, t₀ and U, inf for caps beyond 1e308."""
        a, e, cap = self._vectors(n)
        with np.errstate(over="ignore"):
            t0 = np.where(np.isfinite(cap), (cap / a) ** (1.0 / e), np.inf)
        return a, e, t0, np.where(np.isfinite(t0), cap, np.inf)

    def _vectors(self, n: int) -> tuple[Array, Array, Array]:
        """Return a, e, U as vectors, validated."""
        vectors = {key: as_vector(value, n, f"PowerCost {key}") for key, value in self._given().items()}
        for key, vector in vectors.items():
            _require_positive(key, vector[:1] if is_scalar(vector) else vector)
        return vectors["scale"], vectors["exponent"], vectors["cap"]

    def _given(self) -> dict[str, npt.ArrayLike]:
        """Return the settings by their names; no cap is an infinite one."""
        return {
            "scale": self.scale,
            "exponent": self.exponent,
            "cap": np.inf if self.cap is None else self.cap,
        }


def _power_over(x: Expression, v: Expression, e: Array) -> tuple[Expression, Expression]:
    """Return (s, cone) with s ≥ x^{1+e}·v^{−e} elementwise."""
    s = cp.Variable(x.shape[0], nonneg=True)
    return s, cp.PowCone3D(s, v, x, 1.0 / (1.0 + np.array(e)))


def _require_positive(key: str, values: Array) -> None:
    """Raise SourceDataError unless values are > 0 and, caps excepted, finite."""
    good = (values > 0.0) & ((values < np.inf) | (key == "cap"))
    if values.ndim == 0 and not good:
        raise SourceDataError(f"PowerCost {key} must be > 0, got {values:g}. Correct it.")
    bad = np.flatnonzero(~good)
    if len(bad):
        where = list_offenders(f"source {k}: {values[k]:g}" for k in bad)
        raise SourceDataError(f"PowerCost {key} must be > 0, got {where}. Correct these values.")


def _taken(value: npt.ArrayLike, index: Index) -> npt.ArrayLike:
    array = np.asarray(value)
    return value if array.ndim == 0 else array[index]


def _show(value: npt.ArrayLike) -> str:
    array = np.asarray(value)
    return f"{array:g}" if array.ndim == 0 else f"<{len(array)} values>"


def _capped_poisson(x: Expression, scale: Array, e: Array, free: BoolArray) -> Expression:
    """Return the capped Poisson cell, split as in the module's docstring.

    It is taken at x = ρt₀; without a cap it is scale·Γ(1+e)x^{−e}.
    """
    shifted = cp.log(x + SHIFT)
    alone = cp.log(x + np.where(free, 0.0, SHIFT)) if bool(np.any(free)) else shifted
    cost = cp.exp(-cp.multiply(e, alone) + (np.log(scale) + special.gammaln(1.0 + e)))
    capped = np.where(free, 0.0, scale * e)
    for k in range(1, POWERS):
        size = special.gammaln(e + k) - special.gammaln(k + 1.0) + k * np.log(SHIFT)
        cost = cost + cp.multiply(capped, cp.exp(-cp.multiply(e + k, shifted) + size))
    z, dz = squared_legendre(NODES)
    for point, width in zip(z, dz, strict=True):
        weight = e * point ** (e - 1.0) * special.gammainc(float(POWERS), SHIFT * point) * width
        if float(np.max(weight)) > NEGLIGIBLE:
            cost = cost + cp.multiply(capped / e * weight, cp.exp(-point * x))
    return cost


def _felt_cap(y: Expression, value: Array, e: Array, x: Array) -> ConeForm:
    """Return the cone form of capped costs under Poisson refreshes.

    It is Σ value·J(xy)/U up to a constant, and its cones: Gauss quadratures of z^e e^{−xz}.
    That is the measure of the slope; five nodes get it right to (½(y−1)/(y+1))^{10} or so.
    """
    z, dz = squared_legendre(NODES)
    point, weight = gauss_rows(z, z ** e[:, None] * np.exp(-x[:, None] * z) * dz, FEW)
    share = weight / np.sum(weight, axis=1, keepdims=True)
    decay = x[:, None] * point
    slope = value * e * x * _lower_gamma(e, x)
    return falling_total(y, slope, (share, decay, decay), lambda k: y[k] - 1.0)


def _at(age: Array, a: Array, e: Array, _t0: Array, cap: Array) -> Array:
    return np.minimum(a * age**e, cap)


def _mean(period: Array, a: Array, e: Array, t0: Array, cap: Array) -> Array:
    inner = a * np.minimum(period, t0) ** e / (e + 1.0)
    return np.where(period <= t0, inner, cap - cap * (t0 / period) * (e / (e + 1.0)))


def _index(period: Array, a: Array, e: Array, t0: Array, _cap: Array) -> Array:
    s = np.minimum(period, t0)
    return a * s**e * s * (e / (e + 1.0))


def _rise(life: Array, a: Array, e: Array, t0: Array, cap: Array, asked: Array, window: Array) -> Array:
    return quadrature_rise(lambda age: _at(age, a, e, t0, cap), life, asked, window, t0, settled(e))


def _inverse_index(price: Array, a: Array, e: Array, t0: Array, _cap: Array) -> Array:
    period = (price / a * ((e + 1.0) / e)) ** (1.0 / (e + 1.0))
    return np.where(period <= t0, period, np.inf)


def _lower_gamma(e: Array, x: Array) -> Array:
    """Return the scaled lower incomplete gamma function γ(1+e, x)/x^{1+e}.

    It is Σ_k (−x)^k/(k!(1+e+k)), which starts at 1/(1+e).
    """
    series = 1.0 / (1.0 + e) - x / (2.0 + e) + 0.5 * x * x / (3.0 + e)
    large = np.maximum(x, _SHORT)
    return np.where(
        x < _SHORT, series, special.gamma(1.0 + e) * special.gammainc(1.0 + e, large) * large ** -(1.0 + e)
    )
