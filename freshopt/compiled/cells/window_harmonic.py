"""Harmonic staleness on request with a stale-while-revalidate window, one source.

With u = ΔT, κ = Δ/ζ, x = ζσ, y = Δσ and g(s) = (1 − e^{−s})/s, the slope of the curve Ein, the marginal value
(`freshopt.modelling.request_cell`) is m = w·Φ(u)/Δ, and the cost (1 − ρ/ζ)·(mean cost) + (ρ/ζ)·L, with

    Φ = u − 1 + e^{−u} + κ·(u·D + e^{−x}·Ein(u + y)),     Φ' = (κ + u)·S,     S = D + e^{−x}·g(u + y),
    D = ∫₀ˣ e^{−z}g(u + κz) dz,     L = ∫₀ˣ e^{−z}Ein(u + κz) dz = Ein(u) − e^{−x}Ein(u + y) + κD.

S is the mean of g at u + κ·min(Z, x), Z exponential.

**D and L** are found by what does not cancel. For x < 1 and y ≤ 1 + u, where no curve bends within the
window, by Gauss's rule. For x < 1/10 and longer y, L is (1 − e^{−x})·Ein(u + y) less ∫ (1 − e^{−z})κg dz,
whose moments ∫ zʲκg(u + κz) dz are xʲ/j − (u/κ)·(that of j − 1) − ∫ zʲ⁻¹e^{−u−κz} dz. Otherwise D = K(u) −
e^{−x}K(u + y), K being D at x = ∞: (F(u/κ) − e^{−u}F(u/κ + u)/(1 + κ))/u for u ≥ 1, with F(z) = ze^z·E₁(z)
from a table; e^{u/κ}(log(1 + κ) − Ein(u/κ + u) + Ein(u/κ))/κ for u < 1 < κ; and for both below 1
Gauss-Laguerre's rule for e^{−κtz}, which is right to an ulp for all t from 0 to 1.

**Best response.** Φ(u) = Δ/a. Φ − Φ(0) is nearly straight on logarithms; S(0)·(κu + u²/2), and Φ without a
window, are above it. From the larger of both roots Newton's method on logarithms doubles the digits.

**Reach.** S falls, so that for û < u the distance is that of `request_proofs`, with 1/S in place of 1 + h. As
(1 + s)·g(s) is between 1 and 1.3, S(t) ≥ S(u)·(1 + u)/(1.3(1 + t)) for t > u. With ε = 1.3δ/(A·S(u)(1 + u))
≤ 1, û − u ≤ (1 + u)(e^ε − 1) ≤ 2(1 + u)ε, and ρ − ρ̂ = ρ(û − u)/Â ≤ 2ρ·1.3δ/(S·A²).
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.cells.request_functions import SMALLEST, harmonic_start
from freshopt.compiled.cells.request_tables import index_and_ein
from freshopt.compiled.cells.window_functions import MANY_REQUESTS
from freshopt.compiled.demand_steps import MOST
from freshopt.compiled.proof_tables import HIGH, LARGEST_GAP, LOW, SMALLEST_GAP, fallen, ratio_at
from freshopt.numerics.arrays import Array
from freshopt.numerics.inverse_tables import octave_table
from freshopt.numerics.special_functions import EULER_GAMMA
from freshopt.numerics.vector_math import fast_exp, fast_log

# Windows of fewer requests are short; of still fewer, what is integrated is summed by its moments.
SHORT, MOMENTARY = 1.0, 0.1
MOMENTS, NODES, STEPS = 11, 10, 5
# Changes, and changes per request, beyond these are taken for them: their products are floats.
LEAST, LARGEST = 1e-140, 1e140
# Largest (1 + s)·g(s).
BEND = 1.3
# Below, E₁ is a series, above, a continued fraction of so many terms.
_FEW, _SERIES = 1.25, 80

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)
INNER, INNER_WEIGHTS = 0.5 * (1.0 + _POINTS), 0.5 * _WEIGHTS
# For e^{−z}f(z) with f between 1 and e^{−z}, of which a third is taken to the weight e^{−z}.
FAR_NODES, _SHIFT = 12, 1.0 / 3.0
_POINTS, _WEIGHTS = np.polynomial.laguerre.laggauss(FAR_NODES)
OUTER = _POINTS / (1.0 + _SHIFT)
OUTER_WEIGHTS = _WEIGHTS * np.exp(_SHIFT * OUTER) / (1.0 + _SHIFT)


def _integral_ratio(z: Array) -> Array:
    fraction = z + (2.0 * _SERIES + 1.0)
    for k in range(_SERIES, 0, -1):
        fraction = z + (2.0 * k - 1.0) - k * k / fraction
    low = np.minimum(z, _FEW)
    term, series = np.ones_like(low), np.zeros_like(low)
    for k in range(1, 25):
        term = -term * low / k
        series = series - term / k
    return np.where(z < _FEW, low * np.exp(low) * (series - np.log(low) - EULER_GAMMA), z / fraction)


INTEGRAL = octave_table(_integral_ratio, LOW, HIGH)


def scaled_integral(z: float) -> float:
    """Return z·e^z·E₁(z).

    Examples
    --------
    >>> round(float(scaled_integral(1.0)), 9), scaled_integral(1e100)
    (0.596347362, 1.0)
    """
    within = min(max(z, SMALLEST_GAP), LARGEST_GAP)
    small = z if z > LEAST else LEAST
    few = small * (-EULER_GAMMA - fast_log(small))
    found = ratio_at(INTEGRAL, within)
    found = found if z < LARGEST_GAP else 1.0
    return found if z > SMALLEST_GAP else few


def mean_slope(u: float, k: float) -> float:
    """Return K(u) = ∫₀^∞ e^{−z}g(u + κz) dz.

    Examples
    --------
    >>> [round(float(mean_slope(u, 2.0)), 9) for u in (0.0, 1.0)]
    [0.549306144, 0.37900311]
    """
    if u >= 1.0:
        return mean_slope_from_one(u, k)
    if k > 1.0:
        return mean_slope_of_rare_requests(u, k)
    return mean_slope_by_rule(u, k)


def mean_slope_from_one(u: float, k: float) -> float:
    """Return K(u) for u ≥ 1."""
    a = u / k
    return (scaled_integral(a) - fast_exp(-u) * scaled_integral(a + u) / (1.0 + k)) / u


def mean_slope_of_rare_requests(u: float, k: float) -> float:
    """Return K(u) for u ≤ 1 ≤ κ."""
    a = u / k
    between = index_and_ein(a + u)[1] - index_and_ein(a)[1]
    return fast_exp(a) * (fast_log(1.0 + k) - between) / k


def mean_slope_by_rule(u: float, k: float) -> float:
    """Return K(u) for u ≤ 1 and κ ≤ 1."""
    total = 0.0
    for j in range(FAR_NODES):
        total += OUTER_WEIGHTS[j] * fallen(u + k * OUTER[j])[3]
    return total


def in_window(u: float, k: float, x: float, y: float) -> float:
    """Return D, the mean slope of the curve in the window.

    Examples
    --------
    >>> [round(float(in_window(1.0, k, 0.5, 0.5 * k)), 9) for k in (0.5, 40.0)]
    [0.237355899, 0.061404879]
    """
    if (x < SHORT) & (y <= 1.0 + u):
        return bent_little(u, k, x)
    if x < MOMENTARY:
        return (index_and_ein(u + y)[1] - index_and_ein(u)[1] - retarded(u, k, x, y)) / k
    return mean_slope(u, k) - fast_exp(-x) * mean_slope(u + y, k)


def bent_little(u: float, k: float, x: float) -> float:
    """Return D of a window in which g hardly bends."""
    total = 0.0
    for j in range(NODES):
        z = x * INNER[j]
        total += INNER_WEIGHTS[j] * fast_exp(-z) * fallen(u + k * z)[3]
    return x * total


def retarded(u: float, k: float, x: float, y: float) -> float:
    """Return ∫₀ˣ (1 − e^{−z})κg(u + κz) dz by moments.

    What e^{−u−κz} takes of them is e^{−u}κ^{−j}γ(j, y).
    """
    change, power, sign, part = fallen(y)[0], x, 1.0, 1.0
    moment, total = index_and_ein(u + y)[1] - index_and_ein(u)[1], 0.0
    ratio, left, faded = u / k, fast_exp(-u), fast_exp(-y)
    # γ(j, y)/κʲ, from (1 − e^{−y})/κ on.
    lower = change / k
    for j in range(1, MOMENTS):
        moment = power / j - left * lower - ratio * moment
        part = part / j
        total += sign * part * moment
        lower = (j * lower - power * faded) / k
        power = power * x
        sign = -sign
    return total


def served_stale(u: float, k: float, x: float, y: float) -> float:
    """Return L, what expired copies cost that are served.

    Examples
    --------
    >>> [round(float(served_stale(1.0, k, 0.5, 0.5 * k)), 9) for k in (0.5, 40.0)]
    [0.341030946, 1.05609956]
    """
    here, there, left = index_and_ein(u)[1], index_and_ein(u + y)[1], fast_exp(-x)
    if (x < SHORT) & (y <= 1.0 + u):
        return rising_little(u, k, x)
    if x < MOMENTARY:
        return fallen(x)[0] * there - retarded(u, k, x, y)
    return here + k * in_window(u, k, x, y) - left * there


def rising_little(u: float, k: float, x: float) -> float:
    """Return L of a window in which Ein hardly bends."""
    total = 0.0
    for j in range(NODES):
        z = x * INNER[j]
        total += INNER_WEIGHTS[j] * fast_exp(-z) * index_and_ein(u + k * z)[1]
    return x * total


def inside(number: float) -> float:
    """Return a number, not beyond what products of two allow."""
    return min(max(number, LEAST), LARGEST)


def window_harmonic(worth: float, d: float, asked: float, window: float) -> float:
    """Return the best response of harmonic staleness, with a window.

    Examples
    --------
    >>> round(float(window_harmonic(1.0, 2.0, 1.0, 0.0)), 6), window_harmonic(1e9, 1.0, 1.0, 2.0)
    (0.662133, 1.0)
    """
    k = inside(d / asked)
    x = min(asked * window, MANY_REQUESTS)
    y = min(d * window, LARGEST)
    left = fast_exp(-x)
    start = k * (left * index_and_ein(y)[1])
    q = min(d / worth, MOST) - start
    load = inside(q)
    slope = in_window(0.0, k, x, y) + left * fallen(y)[3]
    # S(0)·(κu + u²/2) = q.
    ratio = load / slope
    u = max(2.0 * ratio / (k + math.sqrt(k * k + 2.0 * ratio)), harmonic_start(k, load))
    for _ in range(STEPS):
        index, _ = index_and_ein(u)
        bent, late = in_window(u, k, x, y), u + y
        rise = left * (index_and_ein(late)[1] - index_and_ein(y)[1])
        value = index + k * (u * bent + rise)
        log_slope = u * ((k + u) * (bent + left * fallen(late)[3]))
        # (q/Φ)^{1/E} = e^z, z = log(q/Φ)/E.
        z = fast_log(load / value) * value / log_slope
        u = u * fast_exp(min(max(z, -3.0), 3.0))
    whole = k + (u if q > SMALLEST else 0.0)
    rate = d / whole
    return (rate if whole > k else asked) * (1.0 if worth > 0.0 else 0.0)
