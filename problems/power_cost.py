"""Power cost of age, a·s^e, with or without a cap: the synchronization costs of [1]_.

With 0 < e < 1 the first moments of staleness hurt most; e = 1 is a linear cost, e > 1 punishes long neglect.
A cap U says that a copy of age t₀ = (U/a)^{1/e} is as bad as any older one; beyond the period t₀ refreshing a
little more often then gains a constant sl = U·t₀·e/(e+1) per unit of rate, and at the price sl rates jump.

===========  ===========================================  =====================================
discipline   J(ρ)                                         −dJ/dρ
===========  ===========================================  =====================================
Poisson      a·ρ^{−e}·γ(1+e, ρt₀) + U·e^{−ρt₀}            a·e·ρ^{−e−1}·γ(1+e, ρt₀)
periodic     a·ρ^{−e}/(e+1); U − sl·ρ below ρ = 1/t₀      a·e/(e+1)·ρ^{−e−1}, at most sl
===========  ===========================================  =====================================

γ is the lower incomplete gamma function; without a cap γ(1+e, ∞) = Γ(1+e) and the second term vanishes.

.. [1] Kolobov et al., "Online Learning for Active Cache Synchronization", ICML 2020, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, IntArray, as_vector, is_scalar
from freshopt.cones import by_size
from freshopt.curve import Cell, Curve
from freshopt.cvx import Expression, cp
from freshopt.errors import SourceDataError, list_offenders
from freshopt.inversion import falling_root
from freshopt.kernel import Index
from freshopt.objective import ConeForm, Refresh
from freshopt.sources import Sources

FAR = 20.0  # a kink this many times away from a typical rate does not matter
_SHORT = 1e-5  # below, three terms of γ are right to x³/6 < 2e-16, and x^{1+e} may not be a float


@dataclass(frozen=True, slots=True, eq=False)
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

    def __repr__(self) -> str:
        """Return one line, never the arrays."""
        capped = "" if self.cap is None else f", cap={_show(self.cap)}"
        return f"PowerCost(scale={_show(self.scale)}, exponent={_show(self.exponent)}{capped})"

    def curve(self, sources: Sources) -> Curve:
        """Return the curve; parameters are a, e, t₀ and U."""
        a, e, cap = self._vectors(len(sources))
        with np.errstate(over="ignore"):
            t0 = np.where(np.isfinite(cap), (cap / a) ** (1.0 / e), np.inf)
        return Curve((a, e, t0, cap), _at, _mean, _index, _inverse_index, POISSON)

    def declare(
        self, rate: Expression, sources: Sources, refresh: Refresh
    ) -> tuple[Expression, list[Expression]]:
        """Return J(ρ) per source in CVXPY; the capped periodic cell with one auxiliary rate per source."""
        a, e, cap = self._vectors(len(sources))
        if refresh is Refresh.POISSON:
            if bool(np.any(np.isfinite(cap))):
                raise SourceDataError(
                    "a capped power cost is declared for periodic refreshes only. Drop the cap."
                )
            from scipy.special import gammaln

            return cp.exp(-cp.multiply(e, cp.log(rate)) + (np.log(a) + gammaln(1.0 + e))), []
        log_scale = np.log(a) - np.log1p(e)
        if not bool(np.any(np.isfinite(cap))):
            return cp.exp(-cp.multiply(e, cp.log(rate)) + log_scale), []
        with np.errstate(over="ignore", divide="ignore"):
            t0 = (cap / a) ** (1.0 / e)
            slope = np.where(np.isfinite(cap), cap * t0 * e / (e + 1.0), 0.0)
            least = np.where(np.isfinite(cap), 1.0 / t0, 0.0)
        v = cp.Variable(len(sources), nonneg=True)
        power = cp.exp(-cp.multiply(e, cp.log(v)) + log_scale)
        free = np.flatnonzero(~np.isfinite(cap))
        bounds = [v >= rate, v >= least, *([v[free] <= rate[free]] if len(free) else [])]
        return power + cp.multiply(slope, v - rate), bounds

    def cone_form(self, y: Expression, sources: Sources, typical: Array, refresh: Refresh) -> ConeForm | None:
        """Return the total with powers of y; the kink of a cap that is far away is left out."""
        a, e, cap = self._vectors(len(sources))
        if refresh is Refresh.POISSON:
            from scipy.special import gamma

            return (sources.importance * a * gamma(1.0 + e) * typical**-e) @ cp.exp(
                -cp.multiply(e, cp.log(y))
            ), []
        w = sources.importance
        power = w * a * typical**-e / (e + 1.0)
        with np.errstate(over="ignore", divide="ignore"):
            t0 = np.where(np.isfinite(cap), (cap / a) ** (1.0 / e), np.inf)
        kink = 1.0 / (t0 * typical)  # the rate 1/t₀ in units of the typical one
        slope = np.where(kink > 0.0, w * cap * e / (e + 1.0) / np.where(kink > 0.0, kink, 1.0), 0.0)
        bounds: list[Expression] = []

        def near(k: IntArray) -> Expression:
            v = cp.Variable(len(k), nonneg=True)
            bounds.extend([v >= y[k], v >= kink[k]])
            return power[k] @ cp.exp(-cp.multiply(e[k], cp.log(v))) + slope[k] @ (v - y[k])

        cost = by_size(
            kink,
            (1.0 / FAR, lambda k: power[k] @ cp.exp(-cp.multiply(e[k], cp.log(y[k])))),
            (FAR, near),
            (np.inf, lambda k: -slope[k] @ y[k]),
        )
        return cost, bounds

    def take(self, index: Index) -> PowerCost:
        """Return the cost of some of the sources."""
        scale, exponent = _taken(self.scale, index), _taken(self.exponent, index)
        return PowerCost(scale, exponent, None if self.cap is None else _taken(self.cap, index))

    def _vectors(self, n: int) -> tuple[Array, Array, Array]:
        """Return a, e, U as vectors, validated."""
        given = {
            "scale": self.scale,
            "exponent": self.exponent,
            "cap": np.inf if self.cap is None else self.cap,
        }
        vectors = {key: as_vector(value, n, f"PowerCost {key}") for key, value in given.items()}
        for key, vector in vectors.items():
            one = vector[:1] if is_scalar(vector) else vector
            bad = np.flatnonzero(~((one > 0.0) & ((one < np.inf) | (key == "cap"))))
            if len(bad):
                where = list_offenders(f"source {k}: {one[k]:g}" for k in bad)
                raise SourceDataError(f"PowerCost {key} must be > 0, got {where}. Correct these values.")
        return vectors["scale"], vectors["exponent"], vectors["cap"]


def _taken(value: npt.ArrayLike, index: Index) -> npt.ArrayLike:
    array = np.asarray(value)
    return value if array.ndim == 0 else array[index]


def _show(value: npt.ArrayLike) -> str:
    array = np.asarray(value)
    return f"{array:g}" if array.ndim == 0 else f"<{len(array)} values>"


def _at(age: Array, a: Array, e: Array, _t0: Array, cap: Array) -> Array:
    return np.minimum(a * age**e, cap)


def _mean(period: Array, a: Array, e: Array, t0: Array, cap: Array) -> Array:
    inner = a * np.minimum(period, t0) ** e / (e + 1.0)
    return np.where(period <= t0, inner, cap - cap * (t0 / period) * (e / (e + 1.0)))


def _index(period: Array, a: Array, e: Array, t0: Array, _cap: Array) -> Array:
    s = np.minimum(period, t0)
    return a * s**e * s * (e / (e + 1.0))


def _inverse_index(price: Array, a: Array, e: Array, t0: Array, _cap: Array) -> Array:
    period = (price / a * ((e + 1.0) / e)) ** (1.0 / (e + 1.0))
    return np.where(period <= t0, period, np.inf)


def _poisson_cost(rate: Array, a: Array, e: Array, t0: Array, cap: Array) -> Array:
    from scipy.special import gamma

    x = rate * t0
    capped = cap * (x * _lower_gamma(e, x) + np.exp(-x))
    return np.where(np.isfinite(cap), capped, a * rate**-e * gamma(1.0 + e))


def _poisson_marginal(rate: Array, a: Array, e: Array, t0: Array, cap: Array) -> Array:
    from scipy.special import gamma

    capped = cap * t0 * e * _lower_gamma(e, rate * t0)
    return np.where(np.isfinite(cap), capped, a * e * rate ** -(e + 1.0) * gamma(1.0 + e))


def _lower_gamma(e: Array, x: Array) -> Array:
    """Return γ(1+e, x)/x^{1+e} = Σ_k (−x)^k/(k!(1+e+k)), which starts at 1/(1+e)."""
    from scipy.special import gamma, gammainc

    series = 1.0 / (1.0 + e) - x / (2.0 + e) + 0.5 * x * x / (3.0 + e)
    large = np.maximum(x, _SHORT)
    return np.where(x < _SHORT, series, gamma(1.0 + e) * gammainc(1.0 + e, large) * large ** -(1.0 + e))


def _poisson_inverse(price: Array, a: Array, e: Array, t0: Array, cap: Array) -> Array:
    from scipy.special import gamma

    uncapped = (a / price * e * gamma(1.0 + e)) ** (1.0 / (1.0 + e))
    if not bool(np.any(np.isfinite(cap))):
        return uncapped

    def compare(x: Array) -> tuple[npt.NDArray[np.bool_], Array]:
        return _poisson_marginal(np.exp(x), a, e, t0, cap) > price, np.full(x.shape, np.nan)

    return falling_root(compare, np.broadcast_to(uncapped, price.shape))


POISSON = Cell(_poisson_cost, _poisson_marginal, _poisson_inverse)
