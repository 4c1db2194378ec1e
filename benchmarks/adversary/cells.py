"""Named cells once more: J(ρ) and −J'(ρ) of one source of importance 1, in extended precision.

A cell says how its objective is written in Python; what stands in capital letters there are columns of the
case, one number per source. Functions of u = change rate / rate are without cancellation: all sums have
positive terms or alternate with a ratio below a half. Nothing here is shared with freshopt.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np

from tests.ground_truth.cell_truth import Wide, slopes, tail, wide, wide_ein

Function = Callable[..., Wide]  # of rate, change rate and the cell's own columns


@dataclass(frozen=True)
class Cell:
    """One objective under one discipline: how it is written, and J and −J' of (rate, change rate, columns).

    Those of signalled sources stand beside; `value` goes from (Σ w·J, Σ w, Σ w·Δ) to what the objective
    reports. Its own columns and those handed over with the sources have their smallest and largest number.
    Where `used`, of (rate, refresh cost, change rate, columns), is no product of the first two, cost and
    slope are functions of it, and know the refresh cost as COST.
    """

    text: str
    cost: Function
    slope: Function
    signal_cost: Function | None = None
    signal_slope: Function | None = None
    value: Callable[[Any, Any, Any], Any] = lambda cost, _w, _wd: cost
    columns: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    given: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    used: Callable[..., Wide] | None = None
    largest: int = 10**9  # sources, where evaluations are slow


# Below it series take the place of differences; above the other e^{−u} is nothing beside 1.
SHORT, LONG = np.longdouble(0.5), np.longdouble(100)
TERMS = 18  # 0.5^18/18! is 6e-22
_FACTORIAL = np.cumprod(np.append(np.longdouble(1), np.arange(1, 40, dtype=np.longdouble)))
EULER = np.longdouble("0.57721566490153286060651209008240243")


def series(u: Wide, coefficient: Callable[[int], int], first: int) -> Wide:
    """Return Σ coefficient(k)·u^k/(k+1)! from the first k on."""
    orders = range(first, first + TERMS)
    weights = wide([np.longdouble(coefficient(k)) / _FACTORIAL[k + 1] for k in orders])
    powers = np.minimum(u, SHORT)[..., np.newaxis] ** np.arange(first, first + TERMS)
    return np.sum(powers * weights, axis=-1)


def stale(u: Wide) -> Wide:
    """Return 1 − (1−e^{−u})/u."""
    big = np.maximum(u, SHORT)
    return np.where(u < SHORT, series(u, lambda k: (-1) ** (k + 1), 1), 1 + np.expm1(-big) / big)


def mean_age(u: Wide) -> Wide:
    """Return u/2 − 1 + (1−e^{−u})/u."""
    big = np.maximum(u, SHORT)
    return np.where(u < SHORT, series(u, lambda k: (-1) ** k, 2), big / 2 - 1 - np.expm1(-big) / big)


def age_index(u: Wide) -> Wide:
    """Return u²/2 − 1 + (1+u)e^{−u}: Σ (−1)^{k+1} (k−1)u^k/k! from k = 3 on."""
    big = np.maximum(u, SHORT)
    end = np.minimum(big, 1000)
    short = series(u, lambda k: (-1) ** (k + 1) * (k - 1) * (k + 1), 3)
    return np.where(u < SHORT, short, big * big / 2 - 1 + (1 + end) * np.exp(-end))


def lower_gamma(e: Wide, x: Wide, whole: Wide) -> Wide:
    """Return γ(1+e, x)/x^{1+e} = e^{−x}Σ x^k/((1+e)…(1+e+k)); Γ(1+e)/x^{1+e} beyond."""
    y = np.minimum(x, LONG)
    term = np.exp(-y) / (1 + e)
    total, k = term.copy(), 0
    while float(np.max(term / total, initial=0)) > 1e-22 or k < float(np.max(y, initial=0)):
        k += 1
        term = term * y / (1 + e + k)
        total = total + term
    return np.where(x <= LONG, total, whole * np.maximum(x, LONG) ** -(1 + e))


def gamma_of(e: Wide) -> Wide:
    """Return Γ(1+e), each different e once, in 30 digits."""
    distinct, place = np.unique(np.asarray(e, dtype=float), return_inverse=True)
    with mpmath.workdps(30):
        values = [np.longdouble(mpmath.nstr(mpmath.gamma(1 + mpmath.mpf(x)), 25)) for x in distinct.tolist()]
    return wide(values)[place].reshape(np.shape(e))


def _power_poisson(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    return c["SCALE"] * gamma_of(c["EXPONENT"]) * r ** -c["EXPONENT"]


def _power_poisson_slope(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    e = c["EXPONENT"]
    return c["SCALE"] * gamma_of(e) * e * r ** -(e + 1)


def _power_periodic(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    return c["SCALE"] * r ** -c["EXPONENT"] / (1 + c["EXPONENT"])


def _power_periodic_slope(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    e = c["EXPONENT"]
    return c["SCALE"] * e / (1 + e) * r ** -(e + 1)


def _capped(c: Mapping[str, Wide]) -> tuple[Wide, Wide, Wide, Wide]:
    a, e, cap = c["SCALE"], c["EXPONENT"], c["CAP"]
    return a, e, cap, (cap / a) ** (1 / e)


def _capped_periodic(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    a, e, cap, t0 = _capped(c)
    return np.where(r * t0 >= 1, a * r**-e / (1 + e), cap - cap * t0 * e / (e + 1) * r)


def _capped_periodic_slope(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    a, e, cap, t0 = _capped(c)
    return np.where(r * t0 >= 1, a * e / (1 + e) * r ** -(e + 1), cap * t0 * e / (e + 1))


def _capped_poisson(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    _, e, cap, t0 = _capped(c)
    x = r * t0
    return cap * (x * lower_gamma(e, x, gamma_of(e)) + np.exp(-x))


def _capped_poisson_slope(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    _, e, cap, t0 = _capped(c)
    return cap * t0 * e * lower_gamma(e, r * t0, gamma_of(e))


def _steps(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    """Return max(0, 1 − K·ρ, (1+H)(1) − (1+3H)K·ρ): kinks of their own for each source."""
    return np.maximum.reduce(
        [0 * r, 1 - c["KINK"] * r, (1 + c["BEND"]) - (1 + 3 * c["BEND"]) * c["KINK"] * r]
    )


def _steps_slope(r: Wide, _d: Wide, c: Mapping[str, Wide]) -> Wide:
    k, h = c["KINK"], c["BEND"]
    upper = (1 + h) - (1 + 3 * h) * k * r > np.maximum(1 - k * r, 0)
    return np.where(upper, (1 + 3 * h) * k, np.where(1 - k * r > 0, k, 0))


def _materials(r: Wide, a: Wide, _c: Mapping[str, Wide]) -> Wide:
    """Return −x(1 − E₂(z)), z = a/x, 1 − E₂ = 1 − e^{−z} + z·E₁(z)."""
    z = a / r
    e1 = np.where(z <= LONG, np.maximum(wide_ein(z) - np.log(z) - EULER, 0), 0)
    return np.where(r > 0, -r * (-np.expm1(-z) + z * e1), 0)


def _failing_stale(r: Wide, d: Wide, c: Mapping[str, Wide]) -> Wide:
    """Return 1 − (s/u)(1 − e^{−u})/(1 − (1 − s)e^{−u}), u = Δ/ρ, without cancellation."""
    u, s = d / r, c["success"]
    lost = -np.expm1(-u)
    return (s * stale(u) + (1 - s) * lost) / (s + (1 - s) * lost)


def _of_requests(curve: str) -> tuple[Function, Function]:
    """Return cost and slope of what requests see, of binary freshness or counts."""

    def cost(r: Wide, d: Wide, c: Mapping[str, Wide]) -> Wide:
        x = d * np.maximum(c["request_rate"] - r, 0) / c["request_rate"] / r
        return (x * x / 2 if curve == "count" else x * stale(x)) * r / d

    def slope(r: Wide, d: Wide, c: Mapping[str, Wide]) -> Wide:
        return slopes(curve, "on request", d, r, np.ones_like(r), c["request_rate"])

    return cost, slope


def conditional_rate(used: Wide, d: Wide, c: Mapping[str, Wide]) -> Wide:
    """Return the Poisson rate that uses so much: the root of x² + (1 + κ − m)x = m, times Δ."""
    dear, much = c["changed_cost"] / c["COST"], used / c["COST"] / d
    p, root = 1 + dear - much, np.hypot(1 + dear - much, 2 * np.sqrt(much))
    return d * np.where(p > 0, 2 * much / (p + root), (root - p) / 2)


def _conditional(cost: Callable[[Wide, Wide], Wide], slope: Callable[[Wide, Wide], Wide]) -> dict[str, Any]:
    """Return the entries of a cell of conditional fetches from J and −J' by the rate."""

    def of_used(b: Wide, d: Wide, c: Mapping[str, Wide]) -> Wide:
        return cost(conditional_rate(b, d, c), d)

    def steep(b: Wide, d: Wide, c: Mapping[str, Wide]) -> Wide:
        r = conditional_rate(b, d, c)
        return slope(r, d) / (c["COST"] + c["changed_cost"] / (1 + r / d) ** 2)

    def used(r: Wide, fetch: Wide, d: Wide, c: Mapping[str, Wide]) -> Wide:
        return fetch * r + c["changed_cost"] * np.where(r == np.inf, d, d * (r / (d + r)))

    return {"cost": of_used, "slope": steep, "used": used, "given": {"changed_cost": (1e-3, 1e3)}}


def _with(pick: Callable[[Wide, Wide], Wide]) -> Function:
    return lambda r, d, _c: pick(r, d)


P, R = "fo.Refresh.PERIODIC", "fo.Refresh.ON_REQUEST"
STALE = {"cost": _with(lambda r, d: stale(d / r)), "slope": _with(lambda r, d: tail(d / r, "binary") / d)}
POISSON_STALE = {"cost": _with(lambda r, d: d / (d + r)), "slope": _with(lambda r, d: d / (d + r) ** 2)}
FRESH: Any = {
    "signal_cost": _with(lambda r, d: np.maximum(1 - r / d, 0)),
    "signal_slope": _with(lambda r, d: 1 / d + 0 * r),
    "value": lambda cost, w, _: w - cost,
}
ATTEMPTS = {"success": (0.01, 1.0)}
ASKED = {"request_rate": (0.01, 100.0)}
SMOOTH = {"SCALE": (0.01, 100.0), "EXPONENT": (0.1, 4.0)}
CAPS = {**SMOOTH, "CAP": (0.1, 10.0)}

CELLS: dict[str, Cell] = {
    "harmonic": Cell(
        "HarmonicStaleness(fo.Refresh.POISSON)",
        _with(lambda r, d: np.log1p(d / r)),
        _with(lambda r, d: d / r / (r + d)),
        _with(lambda r, d: np.maximum(np.log(d / r), 0)),
        _with(lambda r, _: 1 / r),
    ),
    "harmonic periodic": Cell(
        f"HarmonicStaleness({P})",
        _with(lambda r, d: wide_ein(d / r) - stale(d / r)),
        _with(lambda r, d: tail(d / r, "harmonic") / d),
    ),
    "binary": Cell("BinaryFreshness(fo.Refresh.POISSON)", **POISSON_STALE, **FRESH),
    "binary periodic": Cell(f"BinaryFreshness({P})", **STALE, **FRESH),
    "binary cost": Cell("SynchronizationCost(BinaryCost())", **STALE),
    "binary cost poisson": Cell("SynchronizationCost(BinaryCost(), fo.Refresh.POISSON)", **POISSON_STALE),
    "delay": Cell(
        "AccumulatedDelay(fo.Refresh.POISSON)",
        _with(lambda r, d: d / r),
        _with(lambda r, d: d / r / r),
        _with(lambda r, d: np.maximum(d / r - 1, 0)),
        _with(lambda r, d: d / r / r),
    ),
    "delay periodic": Cell(
        f"AccumulatedDelay({P})", _with(lambda r, d: d / r / 2), _with(lambda r, d: d / r / r / 2)
    ),
    "age": Cell(
        "Age(fo.Refresh.POISSON)",
        _with(lambda r, d: d / r / (r + d)),
        _with(lambda r, d: d * (2 * r + d) / (r * (r + d)) ** 2),
        _with(lambda r, d: np.maximum(1 / r - 1 / d, 0)),
        _with(lambda r, _: 1 / r / r),
    ),
    "age periodic": Cell(
        f"Age({P})",
        _with(lambda r, d: mean_age(d / r) / d),
        _with(lambda r, d: age_index(d / r) / d / d),
    ),
    "power": Cell(
        "SynchronizationCost(PowerCost(SCALE, EXPONENT))",
        _power_periodic, _power_periodic_slope, columns=SMOOTH,
    ),
    "power poisson": Cell(
        "SynchronizationCost(PowerCost(SCALE, EXPONENT), fo.Refresh.POISSON)",
        _power_poisson, _power_poisson_slope, columns=SMOOTH,
    ),
    "capped": Cell(
        "SynchronizationCost(PowerCost(SCALE, EXPONENT, CAP))",
        _capped_periodic, _capped_periodic_slope, columns=CAPS,
    ),
    "capped poisson": Cell(
        "SynchronizationCost(PowerCost(SCALE, EXPONENT, CAP), fo.Refresh.POISSON)",
        _capped_poisson, _capped_poisson_slope, columns=CAPS, largest=60,
    ),
    "steps": Cell(
        "SynchronizationCost(PiecewiseLinearCost(np.stack([0 * KINK, 0 * KINK + 1, 1 + BEND], 1), "
        "np.stack([0 * KINK, -KINK, -(1 + 3 * BEND) * KINK], 1)))",
        _steps, _steps_slope, columns={"KINK": (0.1, 10.0), "BEND": (0.1, 2.0)},
    ),
    "polls": Cell(
        "PollingKnapsack()",
        _with(lambda r, d: d * stale(d / r)),
        _with(lambda r, d: tail(d / r, "binary")),
        value=lambda cost, _, wd: wd - cost,
    ),
    "materials": Cell(
        "PollingKnapsack('materials')",
        _materials,
        _with(lambda r, d: -np.expm1(-d / r)),
        value=lambda cost, _w, _d: -cost,
    ),
    "failing": Cell(
        "HarmonicStaleness(fo.Refresh.POISSON)",
        lambda r, d, c: np.log1p(d / (c["success"] * r)),
        lambda r, d, c: d / r / (c["success"] * r + d),
        given=ATTEMPTS,
    ),
    "failing periodic": Cell(
        f"BinaryFreshness({P})",
        _failing_stale,
        lambda r, d, c: slopes("binary", "periodic", d, r, c["success"], np.inf + 0 * r),
        value=FRESH["value"],
        given=ATTEMPTS,
    ),
    "requested": Cell(f"BinaryFreshness({R})", *_of_requests("binary"), value=FRESH["value"], given=ASKED),
    "requested delay": Cell(f"AccumulatedDelay({R})", *_of_requests("count"), given=ASKED),
    "conditional": Cell(
        "HarmonicStaleness(fo.Refresh.POISSON)",
        **_conditional(lambda r, d: np.log1p(d / r), lambda r, d: d / r / (r + d)),
    ),
    "conditional fresh": Cell(
        "BinaryFreshness(fo.Refresh.POISSON)",
        **_conditional(lambda r, d: d / (d + r), lambda r, d: d / (d + r) ** 2),
        value=FRESH["value"],
    ),
    "penalty square": Cell(
        "ExpectedPenalty(np.square)",
        _with(lambda r, d: 2 * (d / r) ** 2 + d / r),
        _with(lambda r, d: (4 * (d / r) ** 3 + (d / r) ** 2) / d),
        _with(lambda r, d: (1 - np.minimum(r / d, 1)) * (2 - r / d) * (d / r) ** 2),
        _with(lambda r, d: (4 - 3 * r / d) * (d / r) ** 3 / d),
        largest=60,
    ),
    "penalty three": Cell(
        "ExpectedPenalty(lambda m: np.minimum(m, 3.0))",
        _with(lambda r, d: sum((d / (d + r)) ** k for k in (1, 2, 3))),
        _with(lambda r, d: sum(k * (d / (d + r)) ** (k + 1) for k in (1, 2, 3)) / d),
        _with(lambda r, d: sum(np.maximum(1 - r / d, 0) ** k for k in (1, 2, 3))),
        _with(lambda r, d: sum(k * np.maximum(1 - r / d, 0) ** (k - 1) for k in (1, 2, 3)) / d),
        largest=60,
    ),
    "penalty halves": Cell(
        "ExpectedPenalty(lambda m: 1.0 - 2.0**-m)",
        _with(lambda r, d: 1 / (1 + 2 * r / d)),
        _with(lambda r, d: 2 / (1 + 2 * r / d) ** 2 / d),
        _with(lambda r, d: np.maximum(1 - r / d, 0) / (1 + r / d)),
        _with(lambda r, d: 2 / (1 + r / d) ** 2 / d),
        largest=60,
    ),
}  # fmt: skip
