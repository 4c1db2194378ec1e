"""Ground truth of single sources: costs, slopes and bandwidth used, from the definitions.

A cost curve c(s) says what a copy of age s costs; a discipline turns a rate into ages. `cost_by_definition`
integrates or sums exactly that in 40 digits; `cost` has the closed forms, for speed, and the tests compare
the two. `slopes` is −J' in extended precision. Nothing here imports freshopt.

Fetches succeed with chance s: under exponential gaps, and on signal, sρ takes the place of ρ; of equal gaps
the copy has the age (j + U)/ρ, j the number of failures since the last success, P(j) = s(1 − s)^j.

On request, the first request after the lifetime T = 1/ρ − 1/ζ comes X later, X exponential of rate ζ. Within
a window σ of stale-while-revalidate it sees the copy of age T + X, beyond it waits and sees a fresh one:

    J = ρ(∫₀ᵀ c + ∫₀^σ e^{−ζx} c(T + x) dx).
"""

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
    curve: str,
    discipline: str,
    change_rate: float,
    rate: float,
    success: float = 1.0,
    asked: float = np.inf,
    window: float = 0.0,
) -> Number:
    """J(ρ): the mean of c over exponential ages, over one period, or over the geometric number of misses.

    Of a request: the mean over those at ages up to the lifetime and the one that fetches, which costs 0, or
    within the window what the copy of its age costs.
    """
    s = mp.mpf(success)
    r = mp.mpf(rate) * (1 if discipline == "periodic" else s)
    if discipline == "on request":
        zeta, life = mp.mpf(asked), 1 / r - 1 / mp.mpf(asked)
        seen = mp.quad(lambda t: age_cost(curve, change_rate, t), [0, life / 2, life])
        if window > 0.0:
            last = min(mp.mpf(window), 90 / zeta)  # e^{−90} is 1e-39
            seen += mp.quad(
                lambda x: mp.exp(-zeta * x) * age_cost(curve, change_rate, life + x),
                [0, *(last * mp.mpf(2) ** -k for k in range(8, -1, -1))],
            )
        return seen * r
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
    curve: str,
    discipline: str,
    change_rate: float,
    rate: float,
    success: float = 1.0,
    asked: float = np.inf,
    window: float = 0.0,
) -> Number:
    """J(ρ) in closed form, exact in 25 digits for ratios up to 1e±12 and well beyond."""
    with mp.workdps(80):
        d, r, s = mp.mpf(change_rate), mp.mpf(rate), mp.mpf(success)
        if r == 0:
            return mp.mpf(1) if curve == "binary" else mp.inf
        if discipline == "n-th signal":  # linear between its costs at two whole numbers of signals
            n = max(mp.floor(d / r), 1)
            counted = mp.harmonic(n) - 1 if curve == "harmonic" else (n - 1) / 2
            return counted + (d / n - r) * _fall(curve, n) / d
        if discipline == "on request":
            x = d * (1 / r - 1 / mp.mpf(asked))
            index = x + mp.expm1(-x)
            integral = {
                "binary": lambda: index,
                "count": lambda: x * x / 2,
                "harmonic": lambda: x * _ein(x) - index,
            }
            late = _within_window(curve, d, x / d, mp.mpf(asked), mp.mpf(window)) if window > 0.0 else 0
            return (integral[curve]() / d + late) * r
        if discipline == "periodic":
            return _of_attempts(curve, d / r, s)
        u = d / (s * r)
        if discipline == "on signal":
            return {"binary": 1 - 1 / u, "harmonic": mp.log(u), "count": u - 1}[curve]
        return {"binary": u / (u + 1), "harmonic": mp.log(1 + u), "count": u}[curve]


def _within_window(curve: str, d: Number, life: Number, zeta: Number, window: Number) -> Number:
    """Return ∫₀^σ e^{−ζx} c(T + x) dx."""
    kept, both = mp.exp(-zeta * window), zeta + d
    if curve == "count":
        # (1 + ζσ)e^{−ζσ} is 0 in the limit of an endless window.
        end = kept * zeta * window if kept > 0 else mp.mpf(0)
        return d * ((1 - kept) * life / zeta + (1 - kept - end) / zeta**2)
    if curve == "binary":
        return (1 - kept) / zeta - mp.exp(-d * life) * -mp.expm1(-both * window) / both
    last = kept * _ein(d * (life + window)) if kept > 0 else mp.mpf(0)
    if life == 0:
        # The limit of the difference of the two exponential integrals at 0 is a logarithm.
        near = mp.log(both / zeta)
        far = (mp.e1(zeta * window) - mp.e1(both * window)) if kept > 0 else mp.mpf(0)
        return (near - far - last) / zeta
    ends = mp.e1(zeta * life) - mp.e1(both * life)
    if kept > 0:
        ends -= mp.e1(zeta * (life + window)) - mp.e1(both * (life + window))
    return (_ein(d * life) - last + mp.exp(zeta * life) * ends) / zeta


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
    curve: str,
    discipline: str,
    change_rate: float,
    rate: float,
    success: float = 1.0,
    asked: float = np.inf,
    window: float = 0.0,
) -> Number:
    """−J'(ρ) by differentiating `cost` numerically in 80 digits; attempts that may fail are known to 30."""
    r = mp.mpf(rate)
    with mp.workdps(80):
        h = r * mp.mpf(10) ** (-20 if success == 1.0 else -9)
        own = success, asked, window
        less, more = (cost(curve, discipline, change_rate, r + k * h, *own) for k in (-1, 1))
        return (less - more) / (2 * h)


def _ein(u: Number) -> Number:
    """Ein(u): its series where that is short, the exponential integral beyond."""
    if u < 1:
        return u * mp.hyp2f2(1, 1, 2, 2, -u)  # Σ −(−u)^k/(k!·k)
    return mp.e1(u) + mp.log(u) + mp.euler


def slopes(
    curve: str, discipline: str, d: Wide, rate: Wide, success: Wide, asked: Wide, window: Wide | None = None
) -> Wide:
    """−J'(ρ) of all sources in extended precision, by cancellation-free forms.

    With a window it is T·c(T) − ∫₀ᵀ c + T·∫₀^σ e^{−ζx} c'(T + x) dx + e^{−ζσ} c(T + σ)/ζ, which is not known
    for harmonic staleness.
    """
    if discipline == "on request" and window is not None and np.any(window > 0):
        life, kept, both = np.maximum(asked - rate, 0) / asked / rate, np.exp(-asked * window), asked + d
        x = d * life
        if curve == "count":
            past, slope = (
                kept * d * (life + np.where(kept > 0, window, 0)),
                -np.expm1(-asked * window) * d / asked,
            )
            return wide(x * life / 2 + life * slope + past / asked)
        slope = {"binary": d * np.exp(-x) * -np.expm1(-both * window) / both}[curve]
        past = kept * -np.expm1(-d * (life + window))
        return wide(tail(x, curve) / d + life * slope + past / asked)
    if discipline == "on request":
        x = d * np.maximum(asked - rate, 0) / asked / rate
        value = x * x / 2 if curve == "count" else tail(x, curve)
        here = -np.expm1(-x) if curve == "binary" else x if curve == "count" else wide_ein(x)
        return wide(value / d + here / asked)
    if discipline == "periodic":
        return wide(_attempt_index(curve, wide(d / rate), success) / d)
    if discipline == "n-th signal":
        return wide(_fall(curve, np.maximum(np.floor(d / rate), 1)) / d)
    r = success * rate
    if discipline == "on signal":
        found = {"binary": 1 / d, "harmonic": 1 / r, "count": d / r / r}[curve]
    else:
        found = {"binary": d / (d + r) ** 2, "harmonic": d / r / (r + d), "count": d / r / r}[curve]
    return wide(success * found)


def _fall(curve: str, n: Any) -> Any:  # noqa: ANN401 - of NumPy or mpmath
    """Return −J'·Δ between the rates Δ/(n + 1) and Δ/n of crawls at each n-th signal."""
    return n if curve == "harmonic" else n * (n + 1) / 2


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
