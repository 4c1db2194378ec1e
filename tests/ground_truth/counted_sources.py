"""Compiled expressions that count for how many sources they are evaluated."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.separable.derived_kernel import DerivedNumerics

Array = np.ndarray[Any, np.dtype[np.float64]]


class Counted:
    """A node that counts how many sources it was evaluated for."""

    def __init__(self, node: Any, seen: list[int]) -> None:  # noqa: ANN401
        self.node, self.seen = node, seen

    def evaluate(self, rate: Array, *args: Any) -> Any:  # noqa: ANN401
        self.seen[0] += len(rate)
        return self.node.evaluate(rate, *args)

    def take(self, index: Any) -> Counted:  # noqa: ANN401
        return Counted(self.node.take(index), self.seen)


def counted(problem: fo.Problem) -> list[int]:
    """Make a problem's derived numerics count, and return where."""
    seen = [0]
    numerics = problem.numerics
    assert isinstance(numerics, DerivedNumerics)
    counting = dataclasses.replace(numerics, node=Counted(numerics.node, seen))
    object.__setattr__(problem, "numerics", counting)
    return seen
