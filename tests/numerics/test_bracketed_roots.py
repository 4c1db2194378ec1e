from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from freshopt.numerics.bracketed_roots import bracketed_roots

Floats = np.typing.NDArray[np.float64]


@dataclass
class Cubes:
    """a − x³, or a jump at a."""

    a: Floats
    jump: np.typing.NDArray[np.bool_]
    asked: list[int]

    def excess(self, x: Floats) -> Floats:
        self.asked.append(len(x))
        return np.where(self.jump, np.where(x < self.a, 1.0, -2.0), self.a - x**3)

    def take(self, chosen: np.typing.NDArray[np.bool_]) -> Self:
        return type(self)(self.a[chosen], self.jump[chosen], self.asked)


def test_roots_and_jumps_are_found_and_the_found_not_asked_again() -> None:
    a = np.linspace(1.0, 2.0, 50)
    functions = Cubes(a, np.arange(50) % 5 == 0, [])
    low, high = np.full(50, 0.5), np.full(50, 3.0)
    found, evaluations = bracketed_roots(functions, low, high, functions.excess(low), functions.excess(high))
    np.testing.assert_allclose(found, np.where(functions.jump, a, np.cbrt(a)), rtol=4e-15)
    assert sum(functions.asked[2:]) == int(evaluations.sum())
    assert evaluations[~functions.jump].max() < 15
    assert np.all(found[functions.jump] >= a[functions.jump])


def test_neighbouring_floats_are_a_last_bracket_at_any_size() -> None:
    """From 64 to 66 two floats are apart by more than 2e-16 of them, which once was no end of the search."""
    a = np.concatenate([-(2.0**k) * np.linspace(1.0, 1.99, 40) for k in range(-3, 10)])
    functions = Cubes(np.nextafter(a, 0.0), np.ones(len(a), dtype=bool), [])
    low, high = a, np.zeros(len(a))
    found, evaluations = bracketed_roots(functions, low, high, functions.excess(low), functions.excess(high))
    assert np.all(np.abs(found - a) <= 1e-15 + 4.5e-16 * np.abs(a))
    assert evaluations.max() < 130
