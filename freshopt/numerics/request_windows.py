"""Cost of serving expired copies while they are revalidated.

The rise R = ∫₀^σ e^{−ζx}(c(T + x) − c(T)) dx while a copy is expired, in forms that do not cancel, for
windows σ from 0 to infinity. With x = ζσ, y = Δσ and the first moment
M = ∫₀^σ xe^{−ζx} dx = P(2, x)/ζ²:

=========  =========================================================================
curve      R
=========  =========================================================================
delay      Δ·M
binary     e^{−ΔT}·B, B = (Δ·ζM + y·e^{−x}(1 − (1−e^{−y})/y))/(ζ + Δ)
age        (1 − e^{−ΔT})·M + e^{−ΔT}·K, K = (Δ/ζ²·P(3, x) + σe^{−x}·mean age(y))/(ζ + Δ)
harmonic   (D − e^{−x}(c(T + σ) − c(T)))/ζ, D = Q(T) − e^{−x}Q(T + σ), for x > 1
=========  =========================================================================

with Q(T) = ∫₀^∞ e^{−ζx}c'(T + x) dx = ∫₀^{ΔT} e^{−t}/(ζT + t) dt. Powers, and harmonic staleness in windows
of fewer requests, are integrated numerically.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.heavy import special
from freshopt.numerics.arrays import Array
from freshopt.numerics.special_functions import ein, gamma2, mean_age, mean_stale_share

# Nodes of the tanh-sinh rule: powers of T + x to 1e-13 at any T, to 1e-11 from the fiftieth on.
_NODES, _STEP = 64, 0.05
# Below this ΔT the integral Q is summed; there e^{−t} is nearly 1.
_FLAT, _TERMS = 0.05, 9
# The continued fraction of e^z·E₁(z) is used from this z on.
_LARGE, _FRACTION = 40.0, 16
# Logarithmic depth, in nats, of windows of few requests, and nodes across it.
_DEPTH, _FEW = 36.0, 32


def discounted(request_rate: Array, window: Array) -> Array:
    """Return ∫₀^σ e^{−ζx} dx = (1 − e^{−ζσ})/ζ.

    Examples
    --------
    >>> discounted(np.array([0.5, 1.0]), np.array([np.inf, 0.0]))
    array([2., 0.])
    """
    share: Array = -np.expm1(-request_rate * window) / request_rate
    return share


def first_moment(asked: Array, window: Array) -> Array:
    """Return ∫₀^σ xe^{−ζx} dx = P(2, ζσ)/ζ².

    Examples
    --------
    >>> first_moment(np.array([0.5, 1e-9]), np.array([np.inf, 2.0])).round(6)
    array([4., 2.])
    """
    moment: Array = gamma2(asked * window) / asked / asked
    return moment


def binary_rise(life: Array, d: Array, asked: Array, window: Array) -> Array:
    """Return R of c = 1 − e^{−Δs}."""
    return np.exp(-d * life) * _binary_from_fresh(d, asked, window)


def binary_kept(life: Array, d: Array, asked: Array, window: Array) -> Array:
    """Return the fresh part ∫₀^σ e^{−ζx}e^{−Δ(T + x)} dx."""
    kept: Array = np.exp(-d * life) * discounted(asked + d, window)
    return kept


def delay_rise(_life: Array, d: Array, asked: Array, window: Array) -> Array:
    """Return R of c = Δs."""
    return d * first_moment(asked, window)


def age_rise(life: Array, d: Array, asked: Array, window: Array) -> Array:
    """Return R of c = s − (1 − e^{−Δs})/Δ."""
    x = asked * window
    later = np.where(np.isinf(window), 0.0, window * np.exp(-x) * mean_age(d * np.minimum(window, 1e300)))
    fresh = (d / asked / asked * special.gammainc(3.0, x) + later) / (asked + d)
    return -np.expm1(-d * life) * first_moment(asked, window) + np.exp(-d * life) * fresh


def harmonic_rise(life: Array, d: Array, asked: Array, window: Array) -> Array:
    """Return R of c = Ein(Δs)."""
    x = asked * window
    end = life + window
    left = np.exp(-x)
    closed = _harmonic_bend(life, d, asked)
    with np.errstate(all="ignore"):
        rest = _harmonic_bend(end, d, asked) + ein(d * end) - ein(d * life)
        many = (closed - np.where(left > 0.0, left * rest, 0.0)) / asked
    few = np.flatnonzero(x <= 1.0)
    if len(few):
        T, delta = life[few], d[few]
        # x = τ(e^v − 1), τ = T + 1/Δ: the curve bends nowhere within a nat of v.
        scale = T + 1.0 / delta
        top = np.log1p(window[few] / scale)
        bottom = np.maximum(top - _DEPTH, 0.0)
        nodes, weights = np.polynomial.legendre.leggauss(_FEW)
        base, total = ein(delta * T), np.zeros(len(few))
        for node, weight in zip(nodes, weights, strict=True):
            late = scale * np.expm1(bottom + (top - bottom) * 0.5 * (node + 1.0))
            rise = ein(delta * (T + late)) - base
            total += weight * np.exp(-asked[few] * late) * rise * (scale + late)
        many[few] = 0.5 * (top - bottom) * total
    return many


def quadrature_rise(
    at: Callable[[Array], Array], life: Array, asked: Array, window: Array, bend: Array, far: Array
) -> Array:
    """Return R of a curve by a tanh-sinh quadrature rule.

    No power of the age disturbs it at age 0.

    - `at`: c(s) of all sources.
    - `life`, `asked`, `window` (n,): T, ζ and σ.
    - `far` (n,): Requests beyond which nothing is left of e^{−ζx}c(T + x).
    - `bend` (n,): Age from which on the curve is level, or inf.
    """
    within = np.minimum(np.maximum(bend - life, 0.0), window)
    reach = np.minimum(within, far / asked)
    steps = np.pi * np.sinh(_STEP * np.arange(-_NODES, _NODES + 1))
    base, total = at(life), np.zeros_like(life)
    for k, step in enumerate(steps):
        share = 1.0 / (1.0 + np.exp(-step))
        weight = _STEP * np.pi * np.cosh(_STEP * (k - _NODES)) * share / (1.0 + np.exp(step))
        late = reach * share
        total += weight * np.exp(-asked * late) * (at(life + late) - base)
    with np.errstate(invalid="ignore"):
        after = np.where(within < window, np.exp(-asked * within) * discounted(asked, window - within), 0.0)
        level = np.where(after > 0.0, at(np.maximum(bend, life)) - base, 0.0)
    rise: Array = reach * total + after * level
    return rise


def _binary_from_fresh(d: Array, asked: Array, window: Array) -> Array:
    """Return ∫₀^σ e^{−ζx}(1 − e^{−Δx}) dx."""
    x, y = asked * window, d * window
    left = np.exp(-x)
    late = np.where(left > 0.0, left * window * mean_stale_share(np.minimum(y, 1e300)), 0.0)
    fresh: Array = d / (asked + d) * (gamma2(x) / asked + late)
    return fresh


def _harmonic_bend(life: Array, d: Array, asked: Array) -> Array:
    """Return Q(T) = ∫₀^b e^{−t}/(a + t) dt."""
    a, b, ratio = asked * life, d * life, d / asked
    with np.errstate(all="ignore"):
        closed = _scaled_e1(a) - np.exp(-b) * _scaled_e1(a + b)
        # b < 0.05: log(1 + Δ/ζ) less moments of 1/(a + t), or, where that cancels, Gauss's rule.
        moment = np.log1p(ratio)
        many, power = moment, np.ones_like(moment)
        for k in range(1, _TERMS + 1):
            moment = 1.0 / k - moment / ratio
            power = -power * np.minimum(b, _FLAT) / k
            many = many + power * moment
        few = np.zeros_like(many)
        for node, weight in zip(*np.polynomial.legendre.leggauss(12), strict=True):
            s = 0.5 * (node + 1.0)
            few += 0.5 * weight * ratio * np.exp(-b * s) / (1.0 + ratio * s)
    return np.where(b >= _FLAT, closed, np.where(ratio > 1.0, many, few))


def _scaled_e1(z: Array) -> Array:
    """Return e^z·E₁(z)."""
    low, high = np.minimum(z, _LARGE), np.maximum(z, _LARGE)
    fraction = high + (2.0 * _FRACTION + 1.0)
    for k in range(_FRACTION, 0, -1):
        fraction = high + (2.0 * k - 1.0) - k * k / fraction
    return np.where(z < _LARGE, np.exp(low) * special.exp1(low), 1.0 / fraction)
