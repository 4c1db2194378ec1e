"""Costs and marginal values of fetches on request and of attempts that fail, in many digits.

Nothing here imports freshopt. Parameters are the change rate and the request rate, with a window of
stale-while-revalidate or without, or the chance of success; of a power its level and exponent come first.
"""

from collections.abc import Callable

import mpmath

from tests.ground_truth.source_gaps import DIGITS, ExactCell, Number


def _ein(u: Number) -> Number:
    if u > 1:
        return mpmath.e1(u) + mpmath.log(u) + mpmath.euler
    term, total, k = mpmath.mpf(1), mpmath.mpf(0), 0
    while k < 4 or abs(term) > mpmath.mpf(10) ** (-DIGITS - 30) * abs(total):
        k += 1
        term = -term * u / k
        total -= term / k
    return total


def _index(u: Number) -> Number:
    """Return u − 1 + e^{−u} with its own digits where u is small."""
    return u + mpmath.expm1(-u) if u > 1 else mpmath.nsum(lambda k: (-u) ** k / mpmath.factorial(k), [2, 60])


def _age_index(u: Number) -> Number:
    """Return u²/2 − 1 + (1 + u)e^{−u}, with its own digits where u is small."""
    if u > 1:
        return u**2 / 2 - 1 + (1 + u) * mpmath.exp(-u)
    return -mpmath.nsum(lambda k: (-u) ** k * (k - 1) / mpmath.factorial(k), [3, 60])


def _life(r: Number, asked: Number) -> Number:
    return 1 / r - 1 / asked


REQUESTS = {
    "delay": ExactCell(
        lambda r, d, z: r * d * _life(r, z) ** 2 / 2,
        lambda r, d, z: d * (_life(r, z) ** 2 / 2 + _life(r, z) / z),
    ),
    "harmonic": ExactCell(
        lambda r, d, z: r / d * (d * _life(r, z) * _ein(d * _life(r, z)) - _index(d * _life(r, z))),
        lambda r, d, z: _index(d * _life(r, z)) / d + _ein(d * _life(r, z)) / z,
    ),
    "binary": ExactCell(
        lambda r, d, z: r / d * _index(d * _life(r, z)),
        lambda r, d, z: (
            -mpmath.expm1(mpmath.log1p(d * _life(r, z)) - d * _life(r, z)) / d
            - mpmath.expm1(-d * _life(r, z)) / z
        ),
    ),
}
REQUESTS["age"] = ExactCell(
    lambda r, d, z: r / d**2 * (_index(d * _life(r, z)) * d * _life(r, z) - _age_index(d * _life(r, z))),
    lambda r, d, z: (_age_index(d * _life(r, z)) + d / z * _index(d * _life(r, z))) / d**2,
)


def _expired(z: Number, s: Number) -> Number:
    """Return ∫₀^σ e^{−ζx} dx."""
    return -mpmath.expm1(-z * s) / z


def _delay(t: Number, d: Number, z: Number, s: Number) -> tuple[Number, Number]:
    """Return G(T) = ∫₀ᵀ c + ∫₀^σ e^{−ζx}c(T + x) dx of c = Δs, and G'."""
    moment = (1 - (1 + z * s) * mpmath.exp(-z * s)) / z**2
    return d * (t**2 / 2 + t * _expired(z, s) + moment), d * (t + _expired(z, s))


def _binary(t: Number, d: Number, z: Number, s: Number) -> tuple[Number, Number]:
    """Return the same of c = 1 − e^{−Δs}."""
    fresh = mpmath.exp(-d * t)
    both = _expired(z + d, s)
    return t + mpmath.expm1(-d * t) / d + _expired(z, s) - fresh * both, 1 - fresh + d * fresh * both


def _exact(of_lifetime: Callable[..., tuple[Number, Number]]) -> ExactCell:
    """Return J = ρG(T) and −J' = (T + 1/ζ)G' − G."""

    def cost(r: Number, d: Number, z: Number, s: Number) -> Number:
        return r * of_lifetime(1 / r - 1 / z, d, z, s)[0]

    def marginal(r: Number, d: Number, z: Number, s: Number) -> Number:
        whole, slope = of_lifetime(1 / r - 1 / z, d, z, s)
        return slope / r - whole

    return ExactCell(cost, marginal)


def _harmonic(t: Number, d: Number, z: Number, s: Number) -> tuple[Number, Number]:
    """Return the same of c = Ein(Δs): by parts, with ∫ e^{−ζx}(1 − e^{−Δ(T + x)})/(T + x) dx in E₁."""

    def bend(a: Number) -> Number:
        return mpmath.exp(z * a) * (mpmath.e1(z * a) - mpmath.e1((z + d) * a)) if a else mpmath.log1p(d / z)

    faded, here, there = mpmath.exp(-z * s), _ein(d * t) if t else t, _ein(d * (t + s)) if t + s else t
    slope = bend(t) - faded * bend(t + s)
    return (t * here - _index(d * t) / d if t else t) + (here + slope - faded * there) / z, here + slope


def _age(t: Number, d: Number, z: Number, s: Number) -> tuple[Number, Number]:
    """Return the same of c = s − (1 − e^{−Δs})/Δ, which is that of Δs less that of 1 − e^{−Δs}, over Δ."""
    return tuple((one - two) / d for one, two in zip(_delay(t, d, z, s), _binary(t, d, z, s), strict=True))


WINDOWS = {
    "delay": _exact(_delay),
    "binary": _exact(_binary),
    "harmonic": _exact(_harmonic),
    "age": _exact(_age),
}


def _fresh(r: Number, d: Number, s: Number) -> Number:
    """Return (s/u)(1 − e^{−u})/(1 − (1 − s)e^{−u})."""
    u = d / r
    return -s / u * mpmath.expm1(-u) / (s - (1 - s) * mpmath.expm1(-u))


def harmonic_marginal(r: Number, d: Number, s: Number) -> Number:
    """Return s²·Σ q^{k−1}(ku − 1 + e^{−ku})/Δ."""
    v = mpmath.exp(-d / r)
    return (d / r - s + s**2 * v / (1 - (1 - s) * v)) / d


def stale_over(v: Number, s: Number) -> Number:
    """Return the stale share of attempts over v = Δ/ρ; v − 1 + e^{−v} is v²/2·₁F₁(1; 3; −v)."""
    failed = -(1 - s) * mpmath.expm1(-v)
    return (s * v / 2 * mpmath.hyp1f1(1, 3, -v) + failed) / (s + failed) / v


def harmonic_cost(r: Number, d: Number, s: Number) -> Number:
    """Return the integral of the marginal value, the stale share over ρ, from ρ on."""
    with mpmath.workdps(45):
        u = d / r
        edges = [mpmath.mpf(0), *(s * mpmath.mpf(10) ** k for k in range(-1, 30))]
        return mpmath.quad(lambda v: stale_over(v, s), [*(x for x in edges if x < u), u])


def age_cost(r: Number, d: Number, s: Number) -> Number:
    """Return sρ·E C(N/ρ), C(τ) = τ²/2 − τ/Δ + (1 − e^{−Δτ})/Δ², N geometric."""
    v = mpmath.exp(-d / r)
    stale = 1 - s * v / (1 - (1 - s) * v)
    return s * r * ((2 - s) / s**2 / (2 * r**2) - 1 / (s * r * d) + stale / d**2)


def age_marginal(r: Number, d: Number, s: Number) -> Number:
    """Return s²·Σ q^{k−1}((ku)²/2 − 1 + (1 + ku)e^{−ku})/Δ²."""
    u, q = d / r, 1 - s
    v = mpmath.exp(-u)
    own = u**2 * (1 + q) / (2 * s**3) - 1 / s + v / (1 - q * v) + u * v / (1 - q * v) ** 2
    return s**2 * own / d**2


ATTEMPTS = {
    "binary": ExactCell(
        lambda r, d, s: 1 - _fresh(r, d, s),
        lambda r, d, s: mpmath.diff(
            lambda x: _fresh(x, d, s), r, h=r * mpmath.mpf(10) ** -DIGITS, relative=False
        ),
    ),
    "harmonic": ExactCell(harmonic_cost, harmonic_marginal),
    "age": ExactCell(age_cost, age_marginal),
}


def _power(r: Number, level: Number, e: Number, asked: Number) -> Number:
    """Return ρ·C(T) of the cost e^level·ζ^{1+e}·s^e of age."""
    life = 1 / r - 1 / asked
    return r * mpmath.exp(level) * (asked * life) ** (1 + e) / (1 + e) if life > 0 else mpmath.mpf(0)


def _power_marginal(r: Number, level: Number, e: Number, asked: Number) -> Number:
    """Return T·c(T) − C(T) + c(T)/ζ of the same."""
    life = asked / r - 1
    return mpmath.exp(level) * life**e * (e / (1 + e) * life + 1) if life > 0 else mpmath.mpf(0)


POWER = ExactCell(_power, _power_marginal)


def _capped(r: Number, level: Number, e: Number, asked: Number, kink: Number, plateau: Number) -> Number:
    """Return the same with a level marginal value below a rate."""
    return _power(max(r, kink), level, e, asked) + plateau * max(kink - r, 0)


def _capped_marginal(
    r: Number, level: Number, e: Number, asked: Number, kink: Number, plateau: Number
) -> Number:
    return plateau if r < kink else _power_marginal(r, level, e, asked)


CAPPED_POWER = ExactCell(_capped, _capped_marginal)


def power_in_window(life: Number, window: Number, e: Number) -> tuple[Number, Number]:
    """Return I = ∫₀ˣ e^{−z}(τ + z)^e dz and e^{−x}(τ + x)^e, of requests."""
    left, end = (mpmath.gammainc(1 + e, age) for age in (life, life + window))
    return mpmath.exp(life) * (left - end), mpmath.exp(-window) * (life + window) ** e


def _windowed(r: Number, level: Number, e: Number, asked: Number, window: Number) -> Number:
    """Return ρ·G(T) of the cost e^level·ζ^{1+e}·s^e of age."""
    life = asked / r - 1
    mean, _ = power_in_window(life, asked * window, e)
    return r * mpmath.exp(level) * (life ** (1 + e) / (1 + e) + mean)


def _windowed_marginal(r: Number, level: Number, e: Number, asked: Number, window: Number) -> Number:
    """Return (T + 1/ζ)G'(T) − G(T), G' the mean cost at T + min(Z, σ)."""
    life = max(asked / r - 1, 0)
    mean, end = power_in_window(life, asked * window, e)
    return mpmath.exp(level) * ((life + 1) * (mean + end) - life ** (1 + e) / (1 + e) - mean)


WINDOW_POWER = ExactCell(_windowed, _windowed_marginal)
