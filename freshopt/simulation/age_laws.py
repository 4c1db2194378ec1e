"""Laws of a copy's age under static rates, and their integrals.

At a moment that has nothing to do with the refreshes, the age of a copy refreshed at equal gaps I = 1/ρ and a
random phase is uniform on (0, I); refreshed as a Poisson process of rate ρ it is exponential. What a static
rate costs in known changes is therefore a sum of integrals of the survival function S(t) = P(age > t), and of
t·S(t), between differences of times: no refresh is drawn. At rate 0 the age is infinite, S = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from freshopt.modelling.objective import Refresh
from freshopt.numerics.arrays import Array

Integral: TypeAlias = Callable[[Array, Array, Array], Array]
# Below this u the closed form of the exponential law's first moment loses digits: six terms of its series
# are then right to 1e-16.
SMALL = 1e-2
# Survival probabilities below e^-60 = 9e-27 are nothing beside any cost.
NEGLIGIBLE = 60.0


@dataclass(frozen=True, slots=True)
class AgeLaw:
    """Distribution of a copy's age at a rate.

    Attributes
    ----------
    survival : callable
        ∫_a^b S(t) dt for 0 ≤ a ≤ b and rate ρ ≥ 0, vectorised as ``survival(a, b, rate)``.
    moment : callable
        ∫_a^b t·S(t) dt.
    reach : callable
        The age beyond which S is 0 or negligible, of a rate.
    """

    survival: Integral
    moment: Integral
    reach: Callable[[Array], Array]


def age_law(refresh: Refresh) -> AgeLaw:
    """Return the law of copies' ages under a refresh discipline.

    Examples
    --------
    >>> law, one = age_law(Refresh.PERIODIC), np.ones(1)
    >>> [float(integral(0.0 * one, 2.0 * one, one)[0].round(6)) for integral in (law.survival, law.moment)]
    [0.5, 0.166667]
    """
    return UNIFORM if refresh is Refresh.PERIODIC else EXPONENTIAL


def _uniform_survival(a: Array, b: Array, rate: Array) -> Array:
    a, b = _within(a, b, rate)
    return (b - a) * (1.0 - 0.5 * rate * (a + b))


def _uniform_moment(a: Array, b: Array, rate: Array) -> Array:
    a, b = _within(a, b, rate)
    return (b - a) * (0.5 * (a + b) - rate * (a * a + a * b + b * b) / 3.0)


def _uniform_reach(rate: Array) -> Array:
    # Of a rate of -0.0 too the reach is infinite.
    with np.errstate(divide="ignore"):
        return 1.0 / np.abs(rate)


def _within(a: Array, b: Array, rate: Array) -> tuple[Array, Array]:
    reach = _uniform_reach(rate)
    return np.minimum(a, reach), np.minimum(b, reach)


def _exponential_survival(a: Array, b: Array, rate: Array) -> Array:
    return np.exp(-rate * a) * _decayed(b - a, rate)


def _exponential_moment(a: Array, b: Array, rate: Array) -> Array:
    length = b - a
    u = rate * length
    near = 1.0 / 2.0 - u * (1.0 / 3.0 - u * (1.0 / 8.0 - u * (1.0 / 30.0 - u * (1.0 / 144.0 - u / 840.0))))
    with np.errstate(all="ignore"):
        far = (-np.expm1(-u) - u * np.exp(-u)) / (u * u)
    own = length * length * np.where(u < SMALL, near, far)
    return np.exp(-rate * a) * (a * _decayed(length, rate) + own)


def _exponential_reach(rate: Array) -> Array:
    with np.errstate(divide="ignore"):
        return NEGLIGIBLE / np.abs(rate)


def _decayed(length: Array, rate: Array) -> Array:
    """Return ∫₀^length e^{−ρt} dt."""
    u = rate * length
    with np.errstate(all="ignore"):
        return np.where(u > 0.0, length * (-np.expm1(-u) / u), length)


UNIFORM = AgeLaw(_uniform_survival, _uniform_moment, _uniform_reach)
EXPONENTIAL = AgeLaw(_exponential_survival, _exponential_moment, _exponential_reach)
