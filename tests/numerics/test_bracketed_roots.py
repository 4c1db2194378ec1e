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
