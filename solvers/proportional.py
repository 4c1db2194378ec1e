"""Baselines: the same rate for everyone, or rates in proportion to the change rates.

What crawlers do without a model. They are solved here as markets of their own, in which a source is worth
shape·log ρ: its demand at price λ is shape/λ, and bounds, host limits and the bandwidth are met exactly as by
water-filling. Their certificate tells what they lose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from freshopt.arrays import Array
from freshopt.kernel import Kernel
from freshopt.model import Problem
from freshopt.result import Answer, Solution
from freshopt.solvers.water_filling import fill
from freshopt.verdict import DEFAULT, Terms, conclude


@dataclass(frozen=True, slots=True)
class Proportional:
    """Baseline: rates proportional to change rates, within the constraints.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, Proportional()).rates.round(9)
    array([0.6, 2.4])
    """

    baseline: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Every problem has proportional rates."""
        return None

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Share the bandwidth and certify what that is worth."""
        return conclude(self, problem, terms, lambda problem, _: share(problem, problem.sources.change_rate))


def share(problem: Problem, shape: Array) -> Answer:
    """Return rates proportional to `shape`, clipped to the bounds and limits, that use the bandwidth."""
    worth = Kernel(problem.sources.cost * shape, (), _cost, _marginal, _inverse)
    answer = fill(problem, worth)
    return replace(answer, price=None, host_prices=None)


def _cost(rate: Array) -> Array:
    return -np.log(rate)


def _marginal(rate: Array) -> Array:
    return 1.0 / rate


def _inverse(price: Array) -> Array:
    return 1.0 / price
