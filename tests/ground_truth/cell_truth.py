"""Ground truth of single sources: costs, slopes and bandwidth used, from the definitions.

A cost curve c(s) says what a copy of age s costs; a discipline turns a rate into ages. `cost_by_definition`
integrates or sums exactly that in 40 digits; `cost` has the closed forms, for speed, and the tests compare
the two. `slopes` is −J' in extended precision. Nothing here imports freshopt.

Fetches succeed with chance s: under exponential gaps, and on signal, sρ takes the place of ρ; of equal gaps
the copy has the age (j + U)/ρ, j the number of failures since the last success, P(j) = s(1 − s)^j.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

Wide = npt.NDArray[np.longdouble]
Number = Any  # of mpmath

CURVES = ("binary", "harmonic", "count")
DISCIPLINES = ("poisson", "periodic", "on signal")

mp = mpmath.MPContext()
mp.dps = 40
# So large is 1/y of the integrand below to 30 digits.
_LEVEL = 75


def age_cost(curve: str, change_rate: float, age: Number) -> Number:
    """c(s) = E C(N), N Poisson of mean Δs: C(N) is [N ≥ 1], the harmonic number of N, or N."""
    mean = mp.mpf(change_rate) * age
    if curve == "binary":
        return -mp.expm1(-mean)
    if curve == "count":
        return mean
    return _ein(mean)  # = E H(N), as the tests show by summing that


def cost_by_definition(
    curve: str, discipline: str, change_rate: float, rate: float, success: float = 1.0, asked: float = np.inf
) -> Number:
    """J(ρ): the mean of c over exponential ages, over one period, or over the geometric number of misses.

    Of a request: the mean over those at ages up to the lifetime and the one that fetches, which costs 0.
    """
    s = mp.mpf(success)
    r = mp.mpf(rate) * (1 if discipline == "periodic" else s)
    if discipline == "on request":
        life = 1 / r - 1 / mp.mpf(asked)
        return mp.quad(lambda t: age_cost(curve, change_rate, t), [0, life / 2, life]) / (
            life + 1 / mp.mpf(asked)
        )
    if discipline == "poisson":
        return mp.quad(lambda t: mp.exp(-t) * age_cost(curve, change_rate, t / r), [0, 1, 4, 16, 40, 100])
    if discipline == "periodic":
        later = int(mp.log(mp.mpf("1e-30")) / mp.log1p(-s)) if s < 1 else 0
        parts = (
            mp.quad(lambda t: age_cost(curve, change_rate, t / r), [j, j + mp.mpf("0.5"), j + 1])
            for j in range(later + 1)
        )
        return mp.fsum(s * (1 - s) ** j * part for j, part in enumerate(parts))
    p = r / mp.mpf(change_rate)
    of_missed = {"binary": lambda _: 1, "harmonic": mp.harmonic, "count": lambda m: m}[curve]
    return mp.nsum(lambda m: p * (1 - p) ** m * of_missed(m), [1, mp.inf])


def cost(
    curve: str, discipline: str, change_rate: float, rate: float, success: float = 1.0, asked: float = np.inf
) -> Number:
    """J(ρ) in closed form, exact in 25 digits for ratios up to 1e±12 and well beyond."""
    with mp.workdps(80):
        d, r, s = mp.mpf(change_rate), mp.mpf(rate), mp.mpf(success)
        if r == 0:
            return mp.mpf(1) if curve == "binary" else mp.inf
        if discipline == "on request":
            x = d * (1 / r - 1 / mp.mpf(asked))
            index = x + mp.expm1(-x)
            integral = {
                "binary": lambda: index,
                "count": lambda: x * x / 2,
                "harmonic": lambda: x * _ein(x) - index,
            }
            return integral[curve]() * r / d
        if discipline == "periodic":
            return _of_attempts(curve, d / r, s)
        u = d / (s * r)
        if discipline == "on signal":
            return {"binary": 1 - 1 / u, "harmonic": mp.log(u), "count": u - 1}[curve]
        return {"binary": u / (u + 1), "harmonic": mp.log(1 + u), "count": u}[curve]


def _of_attempts(curve: str, u: Number, s: Number) -> Number:
    """Return the cost of periodic attempts.

    With C the integral of c it is sρ·E C(N/ρ), P(N = k) = s(1 − s)^{k−1}, a sum of geometric series.
    """
    q = 1 - s
    if curve == "count":
        return u * (2 - s) / (2 * s)
    stale = 1 + s * mp.expm1(-u) / (u * (1 - q * mp.exp(-u)))
    if curve == "binary":
        return stale
    if s == 1:
        return _ein(u) - stale
    # Σ s²k·q^{k−1}·Ein(uk), the integral of (1 − e^{−yk})/y from 0 to u summed under the integral sign.

    def summed(y: Number) -> Number:
        lost = -mp.expm1(-y)
        return lost * (2 * s * q + q * q * lost + s * s) / (y * (s + q * lost) ** 2)

    with mp.workdps(30):
        ends = [mp.mpf(0), *(mp.mpf(2) ** k for k in range(-2, 7) if mp.mpf(2) ** k < min(u, _LEVEL))]
        integral = mp.quad(summed, [*ends, min(u, _LEVEL)], method="gauss-legendre")
        return integral + mp.log(max(u, _LEVEL) / _LEVEL) - stale


def marginal(
    curve: str, discipline: str, change_rate: float, rate: float, success: float = 1.0, asked: float = np.inf
) -> Number:
    """−J'(ρ) by differentiating `cost` numerically in 80 digits; attempts that may fail are known to 30."""
    r = mp.mpf(rate)
    with mp.workdps(80):
        h = r * mp.mpf(10) ** (-20 if success == 1.0 else -9)
        less, more = (cost(curve, discipline, change_rate, r + k * h, success, asked) for k in (-1, 1))
        return (less - more) / (2 * h)


def _ein(u: Number) -> Number:
    """Ein(u): its series where that is short, the exponential integral beyond."""
    if u < 1:
        return u * mp.hyp2f2(1, 1, 2, 2, -u)  # Σ −(−u)^k/(k!·k)
    return mp.e1(u) + mp.log(u) + mp.euler


def slopes(curve: str, discipline: str, d: Wide, rate: Wide, success: Wide, asked: Wide) -> Wide:
    """−J'(ρ) of all sources in extended precision, by cancellation-free forms."""
    if discipline == "on request":
        x = d * np.maximum(asked - rate, 0) / asked / rate
        value = x * x / 2 if curve == "count" else tail(x, curve)
        here = -np.expm1(-x) if curve == "binary" else x if curve == "count" else wide_ein(x)
        return wide(value / d + here / asked)
    if discipline == "periodic":
        return wide(_attempt_index(curve, wide(d / rate), success) / d)
    r = success * rate
    if discipline == "on signal":
        found = {"binary": 1 / d, "harmonic": 1 / r, "count": d / r / r}[curve]
    else:
        found = {"binary": d / (d + r) ** 2, "harmonic": d / r / (r + d), "count": d / r / r}[curve]
    return wide(success * found)


def wide(values: Any) -> Wide:  # noqa: ANN401 - whatever NumPy takes
    """Return numbers in extended precision."""
    return np.asarray(values, dtype=np.longdouble)


def _attempt_index(curve: str, u: Wide, s: Wide) -> Wide:
    """Return −J'·Δ of periodic attempts, of which the plain ones are s = 1.

    With E = e^u − 1 it is s(E(E + s) − s·u·e^u)/(E + s)², or (u·E − s(E − u))/(E + s).
    """
    if curve == "count":
        return wide(u * u * (2 - s) / s / 2)
    q, x, e = 1 - s, np.minimum(u, np.longdouble(0.5)), np.exp(-u)
    powers = np.cumprod(np.broadcast_to(x, (len(_REST) + 1, *x.shape)), axis=0)[1:]
    rise = np.expm1(x)
    if curve == "binary":
        bend = np.sum((_SERIES["harmonic"])[:, np.newaxis] * powers, axis=0)  # u·e^u − E
        small = s * (rise * rise - s * bend) / (rise + s) ** 2
        large = s * ((1 - e) * (1 - q * e) - s * u * e) / (1 - q * e) ** 2
        return wide(np.where(u <= 0.5, small, large))
    rest = np.sum(_REST[:, np.newaxis] * powers, axis=0)  # E − u
    small = (x * rise - s * rest) / (rise + s)
    return wide(np.where(u <= 0.5, small, (u * (1 - e) - s * (1 - e - u * e)) / (1 - q * e)))


# 1/k! and (k−1)/k! from k = 2 on; 0.5^18/18! is 1e-21, where the sums end.
_ORDERS = np.arange(2, 18, dtype=np.longdouble)
_REST = 1 / np.cumprod(_ORDERS)
_SERIES = {"binary": _REST, "harmonic": (_ORDERS - 1) * _REST}


def tail(u: Wide, curve: str) -> Wide:
    """1−(1+u)e^{−u} = e^{−u}Σ_{k≥2} u^k/k!, and u−1+e^{−u} = e^{−u}Σ_{k≥2} (k−1)u^k/k!: no cancellation."""
    x = np.minimum(u, np.longdouble(0.5))
    powers = np.cumprod(np.broadcast_to(x, (len(_SERIES[curve]) + 1, *x.shape)), axis=0)[1:]
    series = np.sum(_SERIES[curve][:, np.newaxis] * powers, axis=0)
    large = 1 - (1 + u) * np.exp(-u) if curve == "binary" else u - 1 + np.exp(-u)
    return np.where(u <= 0.5, np.exp(-x) * series, large)


# Beyond it E₁ is 4e-24; up to it e^{−u}Σ H_k·u^k/k! has so many terms.
_LONG, _TERMS = np.longdouble(50), np.arange(1, 170, dtype=np.longdouble)
_NUMBERS = np.cumsum(1 / _TERMS)
_EULER = np.longdouble("0.57721566490153286060651209008240243")


def wide_ein(u: Wide) -> Wide:
    """Return Ein(u) = e^{−u}Σ H_k·u^k/k!, and log u + γ beyond."""
    x = np.minimum(u, _LONG)
    powers = np.cumprod(x / _TERMS[:, np.newaxis], axis=0)
    near = np.exp(-x) * np.sum(_NUMBERS[:, np.newaxis] * powers, axis=0)
    return np.where(u <= _LONG, near, np.log(np.maximum(u, _LONG)) + _EULER)


def changes_found(discipline: str, d: Any, rate: Any, library: Any) -> Any:  # noqa: ANN401 - of NumPy or mpmath
    """Return how many fetches find a change, per time: ρ times the chance of a change in a gap."""
    if discipline == "periodic":
        return -rate * library.expm1(-d / rate)
    return d / (1 + d / rate)


def changes_found_slope(discipline: str, d: Wide, rate: Wide) -> Wide:
    """Return the derivative of `changes_found` by the rate."""
    return tail(wide(d / rate), "binary") if discipline == "periodic" else wide(1 / (1 + rate / d) ** 2)
