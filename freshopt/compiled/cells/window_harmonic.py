"""Harmonic staleness on request with a stale-while-revalidate window, one source.

With u = ΔT, κ = Δ/ζ, x = ζσ, y = Δσ and g(s) = (1 − e^{−s})/s, the slope of the curve Ein, the marginal value
(`freshopt.modelling.request_cell`) is m = w·Φ(u)/Δ, and the cost (1 − ρ/ζ)·(mean cost) + (ρ/ζ)·L, with

    Φ = u − 1 + e^{−u} + κ·(u·D + e^{−x}·Ein(u + y)),     Φ' = (κ + u)·S,     S = D + e^{−x}·g(u + y),
    D = ∫₀ˣ e^{−z}g(u + κz) dz,     L = ∫₀ˣ e^{−z}Ein(u + κz) dz = Ein(u) − e^{−x}Ein(u + y) + κD.

S is the mean of g at u + κ·min(Z, x), Z exponential.

**D and L** are found by what does not cancel. D = K(u) − e^{−x}K(u + y), K being D at x = ∞: as K ≤ S, it is
right to an ulp or two of S, which is what the marginal value needs. As g(s) = ∫₀¹ e^{−st} dt,

    K(u) = ∫₀¹ e^{−ut}/(1 + κt) dt = e^{u/κ}(E₁(u/κ) − E₁(u/κ + u))/κ.

That is (F(u/κ) − e^{−u}F(u/κ + u)/(1 + κ))/u, with F(z) = ze^z·E₁(z) from a table; but for u < 1/4 and κ ≥ 1,
e^{u/κ}(log(1 + κ) − Ein(u/κ + u) + Ein(u/κ))/κ. For u and κ below 1, with t = (1 + s)/2, h = u/2 and q =
κ/(2 + κ) ≤ 1/3, it is e^{−h}(1 − q)·Σ hⁿ/n!·Nₙ with Nₙ = ½∫ (−s)ⁿ/(1 + qs) ds on [−1, 1]. All terms are
positive, Nₙ₋₁ = qNₙ + 1/n for odd n and qNₙ for even n, and Nₙ = Σ q^{2j}/(n + 1 + 2j) for even n. Beyond n =
14 nothing is left of them.

L = ∫₀ˣ e^{−z}Ein(u + κz) dz cancels in windows of few requests. For x < 1/10, it is summed by a rule of
Gauss's if y ≤ (1 + u)/8, where Ein hardly bends; for longer y, it is (1 − e^{−x})·Ein(u + y) less
∫ (1 − e^{−z})κg dz, whose moments ∫ zʲκg(u + κz) dz are xʲ/j − (u/κ)·(that of j − 1) −
∫ zʲ⁻¹e^{−u−κz} dz, with u/κ ≤ 8x.

**Best response.** Φ(u) − Φ(0) = q − Φ(0), q = Δ/a. Were S = g(u/c)/c, this were c times what it is without a
window at κ/c and u/c, whose root has a start (`harmonic_start`). With 1/(1 + s) for g, S is about
log(1 + κω/(1 + u))/κ + e^{−x}/(1 + u + y), ω = 1 − e^{−x}; c = 1/S − t fits it at the t that is the root if
S is constant. That start is right to an eighth for κ ≤ 1, and to a factor of 1.9 for any κ. On logarithms,
where Φ − Φ(0) is nearly straight, two steps of Householder's third order leave 4e-4 and then rounding. As S
falls, Φ − Φ(0) ≥ (κu + u²/2)·S, which is what is left of it where Φ(0) is much more. With S' = (S − g(u))/κ
+ e^{−x}g'(u + y), S'' = (S' − g'(u))/κ + e^{−x}g''(u + y), s = uS'/S and r = u/(κ + u), the elasticity E =
uΦ'/(Φ − Φ(0)) has the relative slope B = 1 + r + s − E in log u, and B the slope r(1 − r) + s(1 − s) +
u²S''/S − EB. Where κ is little beside 1 + u, S is (1 − e^{−x})g(u) + e^{−x}g(u + y) to as many digits.

**Reach.** S falls, so that for û < u the distance is that of `request_proofs`, with 1/S in place of 1 + h. As
(1 + s)·g(s) is between 1 and 1.3, S(t) ≥ S(u)·(1 + u)/(1.3(1 + t)) for t > u. With ε = 1.3δ/(A·S(u)(1 + u))
≤ 1, û − u ≤ (1 + u)(e^ε − 1) ≤ 2(1 + u)ε, and ρ − ρ̂ = ρ(û − u)/Â ≤ 2ρ·1.3δ/(S·A²). For S stands what it is
above, 1/(1 + u + κ(1 − e^{−x})): 1/(1 + s) is convex.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.cells.request_functions import MANY_CHANGES, SMALLEST, harmonic_start
from freshopt.compiled.cells.request_tables import EIN, index_and_ein
from freshopt.compiled.cells.window_functions import MANY_REQUESTS
from freshopt.compiled.demand_steps import MOST
from freshopt.compiled.proof_tables import HIGH, LARGEST_GAP, LOW, SMALLEST_GAP, fallen
from freshopt.numerics.arrays import Array
from freshopt.numerics.inverse_tables import OCTAVE, octave_place, octave_table, polynomial
from freshopt.numerics.special_functions import EULER_GAMMA
from freshopt.numerics.vector_math import fast_exp, fast_log

# Windows of fewer requests are momentary; so many moments sum what is served, or nodes where y is up to that
# share of 1 + u.
MOMENTARY, MOMENTS, NODES, BENT = 0.1, 11, 5, 0.125
# Up to so little u, K of rare requests is made of Ein, at up to twice as much; terms of the last N, and of h.
LITTLE, MOST_CHANGES, LAST_TERMS, TERMS = 0.25, 0.5, 9, 14
# Below so many changes per request, beside 1 + u, D is (1 − e^{−x})g to six digits, and S − g is rounding;
# below the second one so is S' − g'.
STRAIGHT, EVEN = 1e-6, 1e-4
# Changes, and changes per request, beyond these are taken for them: their products are floats.
LEAST, LARGEST = 1e-140, 1e140
# Largest (1 + s)·g(s).
BEND = 1.3
# Below, E₁ is a series, above, a continued fraction of so many terms.
_LITTLE, _SERIES = 1.25, 80

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)
INNER, INNER_WEIGHTS = 0.5 * (1.0 + _POINTS), 0.5 * _WEIGHTS


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


# F, and Ein in the rows behind it.
KERNEL = np.concatenate([octave_table(_integral_ratio, LOW, HIGH), EIN])
_BEHIND = np.int64(OCTAVE * (HIGH - LOW))


def kernel_at(z: float, rare: bool) -> float:
    """Return F(z), or for rare requests Ein(z)."""
    row, place = octave_place(min(max(z, SMALLEST_GAP), MOST_CHANGES if rare else LARGEST_GAP), LOW)
    found = polynomial(KERNEL, row + (_BEHIND if rare else 0), place)
    return found if (z < LARGEST_GAP) | rare else 1.0


def mean_slope(u: float, k: float) -> float:
    """Return K(u) = ∫₀^∞ e^{−z}g(u + κz) dz.

    Examples
    --------
    >>> [round(float(mean_slope(u, 2.0)), 9) for u in (0.0, 1.0)]
    [0.549306144, 0.37900311]
    """
    a, rare, few = u / k, (u < LITTLE) & (k >= 1.0), (u < 1.0) & (k < 1.0)
    both = a + u
    power = fast_exp(-0.5 * u if few else (a if rare else -min(u, MANY_REQUESTS)))
    level = fast_log(1.0 + k if rare else max(a, LEAST))
    here, there = kernel_at(a, rare), kernel_at(both, rare)
    # Below the tables Ein(a) is a, and F(a) is a logarithm.
    here = here if a > SMALLEST_GAP else (a if rare else -a * (EULER_GAMMA + level))
    there = there if both > SMALLEST_GAP else both
    many = (here - power * there / (1.0 + k)) / max(u, LITTLE)
    closed = power * (level - (there - here)) / k if rare else many
    return power * mean_slope_of_few(u, k) if few else closed


def mean_slope_of_few(u: float, k: float) -> float:
    """Return e^{u/2}·K(u) for u and κ below 1."""
    ratio, half = k / (2.0 + k), 0.5 * u
    square, moment = ratio * ratio, 0.0
    for j in range(LAST_TERMS):
        moment = 1.0 / (TERMS + 2.0 * (LAST_TERMS - j) - 1.0) + square * moment
    total = moment
    for j in range(TERMS // 2):
        n = TERMS - 2.0 * j
        moment = ratio * moment
        total = moment + half / n * total
        moment = 1.0 / (n - 1.0) + ratio * moment
        total = moment + half / (n - 1.0) * total
    return (1.0 - ratio) * total


def in_window(u: float, k: float, left: float, y: float) -> float:
    """Return D, the mean slope of the curve in the window.

    - `left`: e^{−x}.

    Examples
    --------
    >>> [round(float(in_window(1.0, k, math.exp(-0.5), 0.5 * k)), 9) for k in (0.5, 40.0)]
    [0.237355899, 0.061404879]
    """
    return mean_slope(u, k) - left * mean_slope(u + y, k)


def served_stale(u: float, k: float, x: float, y: float, slope: float) -> float:
    """Return L, what expired copies cost that are served.

    - `slope`: D.

    Examples
    --------
    >>> each = [(1.0, k, x, x * k) for k in (0.5, 40.0) for x in (0.01, 0.5)]
    >>> slopes = [in_window(1.0, k, math.exp(-x), y) for _, k, x, y in each]
    >>> [round(float(served_stale(*each[j], slopes[j])), 9) for j in range(4)]
    [0.007941986, 0.341030946, 0.009116224, 1.05609956]
    """
    here, there, few = index_and_ein(u)[1], index_and_ein(u + y)[1], min(x, MOMENTARY)
    late = fallen(few)[0] * there - retarded(u, k, few, y, there - here)
    momentary = rising_little(u, k, few) if y <= BENT * (1.0 + u) else late
    return momentary if x < MOMENTARY else here + k * slope - fast_exp(-x) * there


def retarded(u: float, k: float, x: float, y: float, risen: float) -> float:
    """Return ∫₀ˣ (1 − e^{−z})κg(u + κz) dz by moments.

    What e^{−u−κz} takes of them is e^{−u}κ^{−j}γ(j, y).

    - `risen`: The first moment, Ein(u + y) − Ein(u).
    """
    faded, power, part, moment, total = fast_exp(-min(y, MANY_REQUESTS)), x, 1.0, risen, 0.0
    ratio, left, often = u / k, fast_exp(-min(u, MANY_REQUESTS)), 1.0 / k
    # γ(j, y)/κʲ, from (1 − e^{−y})/κ on.
    lower = (1.0 - faded) * often
    for j in range(1, MOMENTS):
        moment = power * (1.0 / j) - left * lower - ratio * moment
        part = part * (1.0 / j)
        total = total + part * moment
        part = -part
        lower = (j * lower - power * faded) * often
        power = power * x
    return total


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


def index_and_falls(u: float) -> tuple[float, float, float, float]:
    """Return the index, Ein(u), 1 − e^{−u} and P(2, u)."""
    index, ein = index_and_ein(u)
    many = u > MANY_CHANGES
    fall = 1.0 if many else u - index
    return index, ein, fall, 1.0 if many else u * fall - index


def window_harmonic_step(u: float, k: float, left: float, y: float, first: float, load: float) -> float:
    """Return Householder's next u, of Φ(u) − Φ(0) = load.

    - `left`, `first`: e^{−x} and Φ(0)/κ.
    """
    late, whole, many = u + y, k + u, u / k
    index, _, fall, second = index_and_falls(u)
    _, ein, last_fall, last = index_and_falls(late)
    bent, share = in_window(u, k, left, y), u / late
    mean = bent + left * (last_fall / late)
    value = max(index + k * (u * bent + (left * ein - first)), u * ((k + 0.5 * u) * mean))
    elasticity = u * (whole * mean) / value
    # −ug'(u), and −ug' and u²g'' at u + y, of which e^{−x} is left.
    falls, later = second / u, left * share * (last / late)
    latest = left * share * share * (2.0 * (last / late) - (1.0 - last_fall) * late)
    bend = many * (mean - fall / u) if k > STRAIGHT * (1.0 + u) else (left - 1.0) * falls
    # uS'/S is between −1 and 0, u²S''/S between 0 and 2.
    s = min(max((bend - later) / mean, -1.0), 0.0)
    even = (1.0 - left) * (2.0 * falls - (1.0 - fall) * u)
    curve = many * (s * mean + falls) if k > EVEN * (1.0 + u) else even
    r, t = u / whole, min(max((curve + latest) / mean, 0.0), 2.0)
    first_slope = 1.0 + r + s - elasticity
    second_slope = r * (1.0 - r) + s * (1.0 - s) + t - elasticity * first_slope
    # (load/(Φ − Φ(0)))^{1/E} = e^z.
    z = fast_log(load / value) / elasticity
    below = 1.0 + z * (
        0.5 * first_slope + z * (2.0 * second_slope - first_slope * first_slope) * (1.0 / 12.0)
    )
    return u * fast_exp(min(max(z / max(below, 0.5), -3.0), 3.0))


def flat_slope(u: float, k: float, left: float, y: float) -> float:
    """Return S, about: of 1/(1 + s) in place of g."""
    rise = k * (1.0 - left) / (1.0 + u)
    above = 1.0 + rise
    return (fast_log(above) + (rise - (above - 1.0)) / above) / k + left / (1.0 + u + y)


def window_harmonic(worth: float, d: float, asked: float, window: float) -> float:
    """Return the best response of harmonic staleness, with a window.

    Examples
    --------
    >>> round(float(window_harmonic(1.0, 2.0, 1.0, 0.0)), 6), window_harmonic(1e9, 1.0, 1.0, 2.0)
    (0.662133, 1.0)
    """
    k, y = inside(d / asked), min(d * window, LARGEST)
    left = fast_exp(-min(asked * window, MANY_REQUESTS))
    first = left * index_and_ein(y)[1]
    q = min(d / worth, MOST) - k * first
    load = inside(q)
    ratio = load / flat_slope(0.0, k, left, y)
    t = 2.0 * ratio / (k + math.sqrt(k * k + 2.0 * ratio))
    scale = max(1.0 / flat_slope(t, k, left, y) - t, 1.0)
    u = scale * harmonic_start(k / scale, load / scale)
    # Steps are written out: loops in which there are loops are not vectorised.
    u = window_harmonic_step(u, k, left, y, first, load)
    u = window_harmonic_step(u, k, left, y, first, load)
    whole = k + (u if q > SMALLEST else 0.0)
    rate = d / whole
    return min(rate if whole > k else asked, asked) * (1.0 if worth > 0.0 else 0.0)
