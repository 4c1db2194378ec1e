"""Share of one source in a duality gap, in 50 digits: best responses by bisection.

Nothing here imports freshopt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import mpmath

DIGITS, HALVINGS = 50, 110
# Rates between which best responses are looked for where no bound is nearer, in logarithms.
WIDEST = 800
Number: TypeAlias = Any


@dataclass(frozen=True)
class ExactCell:
    """Unit cost and unit marginal value of ρ > 0 and parameters."""

    cost: Callable[..., Number]
    marginal: Callable[..., Number]


def _tail(u: Number) -> Number:
    """Return P(2, u); of small u its own digits are kept."""
    return -mpmath.expm1(mpmath.log1p(u) - u)


def _mean_harmonic(r: Number, d: Number) -> Number:
    u = d / r
    ein = mpmath.nsum(lambda k: -((-u) ** k) / (k * mpmath.factorial(k)), [1, mpmath.inf]) if u < 1 else None
    ein = mpmath.e1(u) + mpmath.log(u) + mpmath.euler if ein is None else ein
    return ein - 1 - mpmath.expm1(-u) / u


def _kink_cost(r: Number, level: Number, *kinks: Number) -> Number:
    """Return the highest of the lines that meet at the kinks; the last is level."""
    place, steep, height, lines = kinks[-2], 0, level, [level]
    for rate, gain in zip(kinks[-2::-2], kinks[::-2], strict=True):
        height += steep * (place - rate)
        lines.append(height + gain * (rate - r))
        place, steep = rate, gain
    return max(lines)


def _kink_marginal(r: Number, _level: Number, *kinks: Number) -> Number:
    return max((gain for rate, gain in zip(kinks[::2], kinks[1::2], strict=True) if r < rate), default=r * 0)


def _weighed(x: Number, e: Number) -> Number:
    """Return (1 + e)·∫₀¹ z^e e^{−xz} dz; beyond x = 1000 + 2e all of the gamma function to 1e-100."""
    whole = mpmath.gamma(1 + e) if x > 1000 + 2 * e else mpmath.gammainc(1 + e, 0, x)
    return (1 + e) * whole / x ** (1 + e)


CELLS: dict[str, ExactCell] = {
    "harmonic": ExactCell(lambda r, d: mpmath.log1p(d / r), lambda r, d: d / (r * (r + d))),
    "harmonic periodic": ExactCell(_mean_harmonic, lambda r, d: (d / r + mpmath.expm1(-d / r)) / d),
    "log periodic": ExactCell(
        lambda r, d: mpmath.log(d / r) - mpmath.log(-mpmath.expm1(-d / r)),
        lambda r, d: (d / r + d / r * (d / r) / -mpmath.expm1(d / r)) / d,
    ),
    "harmonic signals": ExactCell(lambda r, d: -mpmath.log(r / d), lambda r, _: 1 / r),
    "binary": ExactCell(lambda r, d: d / (r + d), lambda r, d: d / (r + d) ** 2),
    "binary periodic": ExactCell(
        lambda r, d: 1 + mpmath.expm1(-d / r) * r / d, lambda r, d: _tail(d / r) / d
    ),
    "binary signals": ExactCell(lambda r, d: 1 - r / d, lambda _, d: 1 / d),
    "delay": ExactCell(lambda r, d: d / r, lambda r, d: d / r**2),
    "delay periodic": ExactCell(lambda r, d: d / r / 2, lambda r, d: d / r**2 / 2),
    "delay signals": ExactCell(lambda r, d: d / r - 1, lambda r, d: d / r**2),
    "age": ExactCell(lambda r, d: d / (r * (r + d)), lambda r, d: d * (2 * r + d) / (r * (r + d)) ** 2),
    "age periodic": ExactCell(
        lambda r, d: (d / r / 2 - 1 - mpmath.expm1(-d / r) * r / d) / d,
        lambda r, d: ((d / r) ** 2 / 2 - _tail(d / r)) / d**2,
    ),
    "age signals": ExactCell(lambda r, d: 1 / r - 1 / d, lambda r, _: 1 / r**2),
    "later": ExactCell(lambda r, d: mpmath.exp(-d * r), lambda r, d: d * mpmath.exp(-d * r)),
    "kinks": ExactCell(_kink_cost, _kink_marginal),
    "power": ExactCell(
        lambda r, scale, e: mpmath.exp(scale) / e * r**-e,
        lambda r, scale, e: mpmath.exp(scale) * r ** (-e - 1),
    ),
    "capped power": ExactCell(
        lambda r, scale, e, kink, plateau: (
            mpmath.exp(scale) / e * max(r, kink) ** -e + plateau * max(kink - r, 0)
        ),
        lambda r, scale, e, kink, plateau: (
            plateau if r < kink else mpmath.exp(scale) * max(r, kink) ** (-e - 1)
        ),
    ),
    "capped Poisson": ExactCell(
        lambda r, _, e, kink, plateau: (
            plateau / e * (r * _weighed(r / kink, e) + (1 + e) * kink * mpmath.exp(-r / kink))
        ),
        lambda r, _, e, kink, plateau: plateau * _weighed(r / kink, e),
    ),
    "polls": ExactCell(lambda r, a: a + mpmath.expm1(-a / r) * r, lambda r, a: _tail(a / r)),
    "materials": ExactCell(
        lambda r, a: r * mpmath.expm1(-a / r) - a * mpmath.e1(a / r), lambda r, a: -mpmath.expm1(-a / r)
    ),
}


def exact_source_gap(
    cell: ExactCell, rate: float, w: float, paid: Number, bounds: tuple[float, float], parameters: list[float]
) -> Number:
    """Return max (f(x) − νx) − (f(ρ) − νρ) over x within bounds, f = −w·J, at ρ > 0."""
    own = [mpmath.mpf(value) for value in parameters]
    weight, here, nu = mpmath.mpf(w), mpmath.mpf(rate), mpmath.mpf(paid)
    if weight == 0:
        return nu * (here - mpmath.mpf(bounds[0]))
    rising = weight * cell.marginal(here, *own) > nu
    low = here if rising else max(mpmath.mpf(bounds[0]), here * mpmath.exp(-WIDEST))
    high = (min(mpmath.mpf(bounds[1]), here * mpmath.exp(WIDEST))) if rising else here
    ends = low, high
    low, high = mpmath.log(low), mpmath.log(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = weight * cell.marginal(mpmath.exp(middle), *own) > nu
        low, high = (middle, high) if above else (low, middle)
    best = min(max(mpmath.exp((low + high) / 2), ends[0]), ends[1])

    def paid_at(x: Number) -> Number:
        return weight * cell.cost(x, *own) + nu * x

    # Any x is a valid lower bound of the gap, the bisected one to a relative 1e-30.
    return paid_at(here) - paid_at(best)
