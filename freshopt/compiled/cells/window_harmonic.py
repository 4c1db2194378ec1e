"""Harmonic staleness on request with a stale-while-revalidate window, one source.

With u = ΔT, κ = Δ/ζ, x = ζσ, y = Δσ and g(s) = (1 − e^{−s})/s, the slope of the curve Ein, the marginal value
(`freshopt.modelling.request_cell`) is m = w·Φ(u)/Δ, and the cost (1 − ρ/ζ)·(mean cost) + (ρ/ζ)·L, with

    Φ = u − 1 + e^{−u} + κ·(u·D + e^{−x}·Ein(u + y)),     Φ' = (κ + u)·S,     S = D + e^{−x}·g(u + y),
    D = ∫₀ˣ e^{−z}g(u + κz) dz,     L = ∫₀ˣ e^{−z}Ein(u + κz) dz = Ein(u) − e^{−x}Ein(u + y) + κD.

S is the mean of g at u + κ·min(Z, x), Z exponential.

**D and L** are found by what does not cancel. As g(s) = ∫₀¹ e^{−st} dt,

    D = ∫₀¹ e^{−ut}(1 − e^{−x−yt})/(1 + κt) dt,

for κ ≤ 1 and u ≤ 4 by Gauss's rule. Otherwise D = K(u) − e^{−x}K(u + y), K being D at x = ∞:
(F(u/κ) − e^{−u}F(u/κ + u)/(1 + κ))/u for u ≥ 1, with F(z) = ze^z·E₁(z) from a table, and for u < 1 < κ
e^{u/κ}(log(1 + κ) − Ein(u/κ + u) + Ein(u/κ))/κ. As K ≤ S, either is right to an ulp or two of S, which is
what the marginal value needs. Gauss's rule also gives L of x < 1 and y ≤ 1 + u, where Ein does not bend
within the window. For x < 1/10 and longer y, L is (1 − e^{−x})·Ein(u + y) less ∫ (1 − e^{−z})κg dz, whose
moments ∫ zʲκg(u + κz) dz are xʲ/j − (u/κ)·(that of j − 1) − ∫ zʲ⁻¹e^{−u−κz} dz.

**Best response.** Φ(u) = Δ/a. Φ − Φ(0) is nearly straight on logarithms, and below Φ without a window and
S(0)·(κu + u²/2), where S(0) is about g(κ(1 − e^{−x})). The larger of both roots is right to a tenth for κ ≤
3/10, and off by a factor for large κ. Halley's method on logarithms triples the digits, with S' =
(S − g(u))/κ + e^{−x}g'(u + y).

**Reach.** S falls, so that for û < u the distance is that of `request_proofs`, with 1/S in place of 1 + h. As
(1 + s)·g(s) is between 1 and 1.3, S(t) ≥ S(u)·(1 + u)/(1.3(1 + t)) for t > u. With ε = 1.3δ/(A·S(u)(1 + u))
≤ 1, û − u ≤ (1 + u)(e^ε − 1) ≤ 2(1 + u)ε, and ρ − ρ̂ = ρ(û − u)/Â ≤ 2ρ·1.3δ/(S·A²). For S stands what it is
above, 1/(1 + u + κ(1 − e^{−x})): 1/(1 + s) is convex.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.cells.request_functions import SMALLEST, harmonic_start
from freshopt.compiled.cells.request_tables import index_and_ein
from freshopt.compiled.cells.window_functions import FADED, MANY_REQUESTS
from freshopt.compiled.demand_steps import MOST
from freshopt.compiled.proof_tables import HIGH, LARGEST_GAP, LOW, SMALLEST_GAP, fallen, ratio_at
from freshopt.numerics.arrays import Array
from freshopt.numerics.inverse_tables import octave_table
from freshopt.numerics.special_functions import EULER_GAMMA
from freshopt.numerics.vector_math import fast_exp, fast_log

# Windows of fewer requests are short; of still fewer, what is integrated is summed by its moments.
SHORT, MOMENTARY = 1.0, 0.1
MOMENTS, NODES = 11, 10
# Up to so many changes per request and in all a rule of so many nodes gives D.
OFTEN, FEW, MORE_NODES = 1.0, 4.0, 16
# Below so many changes per request, beside 1 + u, D is (1 − e^{−x})g to six digits, and S − g is rounding.
STRAIGHT = 1e-6
# Changes, and changes per request, beyond these are taken for them: their products are floats.
LEAST, LARGEST = 1e-140, 1e140
# Largest (1 + s)·g(s).
BEND = 1.3
# Below, E₁ is a series, above, a continued fraction of so many terms.
_LITTLE, _SERIES = 1.25, 80

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)
INNER, INNER_WEIGHTS = 0.5 * (1.0 + _POINTS), 0.5 * _WEIGHTS
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(MORE_NODES)
PLACES, PLACE_WEIGHTS = 0.5 * (1.0 + _POINTS), 0.5 * _WEIGHTS


def _integral_ratio(z: Array) -> Array:
    fraction = z + (2.0 * _SERIES + 1.0)
    for k in range(_SERIES, 0, -1):
        fraction = z + (2.0 * k - 1.0) - k * k / fraction
    low = np.minimum(z, _LITTLE)
    term, series = np.ones_like(low), np.zeros_like(low)
    for k in range(1, 25):
        term = -term * low / k
        series = series - term / k
    return np.where(z < _LITTLE, low * np.exp(low) * (series - np.log(low) - EULER_GAMMA), z / fraction)


INTEGRAL = octave_table(_integral_ratio, LOW, HIGH)


def scaled_integral(z: float) -> float:
    """Return z·e^z·E₁(z).

    Examples
    --------
    >>> round(float(scaled_integral(1.0)), 9), scaled_integral(1e100)
    (0.596347362, 1.0)
    """
    if z < SMALLEST_GAP:
        return scaled_integral_near_0(max(z, LEAST))
    found = ratio_at(INTEGRAL, min(max(z, SMALLEST_GAP), LARGEST_GAP))
    return found if z < LARGEST_GAP else 1.0


def scaled_integral_near_0(z: float) -> float:
    """Return z·e^z·E₁(z) for small z."""
    return z * (-EULER_GAMMA - fast_log(z))


def mean_slope(u: float, k: float) -> float:
    """Return K(u) = ∫₀^∞ e^{−z}g(u + κz) dz.

    u or κ is at least 1.

    Examples
    --------
    >>> [round(float(mean_slope(u, 2.0)), 9) for u in (0.0, 1.0)]
    [0.549306144, 0.37900311]
    """
    if u >= 1.0:
        return mean_slope_from_one(u, k)
    return mean_slope_of_rare_requests(u, k)


def mean_slope_from_one(u: float, k: float) -> float:
    """Return K(u) for u ≥ 1."""
    a = u / k
    if u > FADED:
        return scaled_integral(a) / u
    return (scaled_integral(a) - fast_exp(-u) * scaled_integral(a + u) / (1.0 + k)) / u


def mean_slope_of_rare_requests(u: float, k: float) -> float:
    """Return K(u) for u ≤ 1 ≤ κ."""
    a = u / k
    between = index_and_ein(a + u)[1] - index_and_ein(a)[1]
    return fast_exp(a) * (fast_log(1.0 + k) - between) / k


def in_window(u: float, k: float, x: float, y: float) -> float:
    """Return D, the mean slope of the curve in the window.

    Examples
    --------
    >>> [round(float(in_window(1.0, k, 0.5, 0.5 * k)), 9) for k in (0.5, 40.0)]
    [0.237355899, 0.061404879]
    """
    if (k <= OFTEN) & (u <= FEW):
        return in_window_by_rule(u, k, x, y)
    if x > FADED:
        return mean_slope(u, k)
    return mean_slope(u, k) - fast_exp(-x) * mean_slope(u + y, k)


def in_window_by_rule(u: float, k: float, x: float, y: float) -> float:
    """Return D for u ≤ 4 and κ ≤ 1."""
    total = 0.0
    for j in range(MORE_NODES):
        t = PLACES[j]
        total += PLACE_WEIGHTS[j] * fast_exp(-(u * t)) * (1.0 - fast_exp(-(x + y * t))) / (1.0 + k * t)
    return total


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


def served_stale(u: float, k: float, x: float, y: float, slope: float) -> float:
    """Return L, what expired copies cost that are served.

    - `slope`: D.

    Examples
    --------
    >>> each = [(1.0, k, 0.5, 0.5 * k) for k in (0.5, 40.0)]
    >>> [round(float(served_stale(*given, in_window(*given))), 9) for given in each]
    [0.341030946, 1.05609956]
    """
    here, there, left = index_and_ein(u)[1], index_and_ein(u + y)[1], fast_exp(-x)
    if (x < SHORT) & (y <= 1.0 + u):
        return rising_little(u, k, x)
    if x < MOMENTARY:
        return fallen(x)[0] * there - retarded(u, k, x, y)
    return here + k * slope - left * there


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


def steps(k: float) -> np.int64:
    """Return how many of Halley's steps leave rounding alone."""
    return np.int64(2.0 + (k > 0.3) + (k > 4.0) + (k > 30.0) + (k > 1e3))


def step(u: float, k: float, x: float, y: float, first: float, load: float) -> float:
    """Return Halley's step in log u, to Φ(u) − Φ(0) = load.

    - `first`: Φ(0)/κ.
    """
    index, _ = index_and_ein(u)
    _, second, _, slope = fallen(u)
    late, whole, left = u + y, k + u, fast_exp(-x)
    _, later, _, last = fallen(late)
    bent = in_window(u, k, x, y)
    mean = bent + left * last
    value = index + k * (u * bent + (left * index_and_ein(late)[1] - first))
    elasticity = u * (whole * mean) / value
    # uS'/S is between −1 and 0.
    ahead = (u / k) * (mean - slope) if k > STRAIGHT * (1.0 + u) else (left - 1.0) * (second / u)
    bend = min(max((ahead - left * (later / late) * (u / late)) / mean, -1.0), 0.0)
    # (load/Φ)^{1/E} = e^z, z = log(load/Φ)/E.
    z = fast_log(load / value) / elasticity
    return z / max(1.0 + 0.5 * z * (1.0 + u / whole + bend - elasticity), 0.5)


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
    first = left * index_and_ein(y)[1]
    q = min(d / worth, MOST) - k * first
    load = inside(q)
    slope = fallen(k * fallen(x)[0])[3]
    # g(κ(1 − e^{−x}))·(κu + u²/2) = q.
    ratio = load / slope
    u = max(2.0 * ratio / (k + math.sqrt(k * k + 2.0 * ratio)), harmonic_start(k, load))
    for _ in range(steps(k)):
        u = u * fast_exp(min(max(step(u, k, x, y, first, load), -3.0), 3.0))
    whole = k + (u if q > SMALLEST else 0.0)
    rate = d / whole
    return min(rate if whole > k else asked, asked) * (1.0 if worth > 0.0 else 0.0)
