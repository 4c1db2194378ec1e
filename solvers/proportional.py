"""Proportional baseline: rates in proportion to change rates.

What crawlers do without a model; `Uniform` shares the method. The rates are the optimum of a problem of their
own, which maximises Σ shape·log ρ: its best response at the dual variable (price) λ is shape/λ, and bounds,
host limits and the bandwidth are met exactly as by water-filling. The duality gap tells what they lose. Where
fetches cost what they bring, the best response is the bandwidth that the rate shape/λ uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.modelling.fetches.conditional_fetches import (
    PerBandwidth,
    bandwidth_used,
    changed_costs,
    rates_of_bandwidth,
)
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.separable.conditional_kernel import BandwidthUsed
from freshopt.separable.kernel import Kernel
from freshopt.solvers.water_filling import fill


@dataclass(frozen=True, slots=True)
class Proportional:
    """Proportional baseline: rates proportional to change rates, within the constraints.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, Proportional()).rates.round(9)
    array([0.6, 2.4])
    """

    baseline: ClassVar[bool] = True
    conditional_fetches: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: every problem has proportional rates."""
        return None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Share the bandwidth and certify the rates."""
        return certified_solution(
            self, problem, options, lambda problem, _: share(problem, problem.sources.change_rate)
        )


def share(problem: Problem, shape: Array) -> Answer:
    """Return feasible rates proportional to `shape` that use the bandwidth.

    They are clipped to the bounds and limits. Of a problem per bandwidth used, what they use is returned.
    """
    objective = problem.objective
    if isinstance(objective, PerBandwidth):
        rule = _per_bandwidth(objective, shape)
    else:
        rule = Kernel(problem.sources.refresh_cost * shape, (), _unasked, _marginal, _inverse)
    return replace(fill(problem, rule), price=None, host_prices=None)


def shared_rates(problem: Problem, shape: Array) -> Array | None:
    """Return the rates of `share`, also where fetches cost what they bring."""
    rates = share(problem.per_bandwidth or problem, shape).rates
    return rates if rates is None or problem.per_bandwidth is None else rates_of_bandwidth(problem, rates)


def _per_bandwidth(objective: PerBandwidth, shape: Array) -> Kernel:
    """Return the rule whose best response is what the rate shape/λ uses."""
    own, fetched = objective.sources, _Fetched(bandwidth_used(objective.objective))
    columns = (shape, own.column("change_rate"), own.refresh_cost, changed_costs(own))
    return Kernel(np.ones(len(own)), columns, _unasked, fetched.marginal, fetched.inverse)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Formulas of the rule over the bandwidth that a rate uses."""

    fetches: BandwidthUsed

    def marginal(self, used: Array, shape: Array, *parameters: Array) -> Array:
        return shape / self.fetches.rate(used, *parameters)

    def inverse(self, price: Array, shape: Array, *parameters: Array) -> Array:
        return self.fetches.used(shape / price, *parameters)


def _unasked(used: Array, *_: Array) -> Array:
    # A search for the rule's price asks only whether bounds cost infinitely much, and no rule minds rate 0.
    return np.zeros(len(used))


def _marginal(rate: Array) -> Array:
    return 1.0 / rate


def _inverse(price: Array) -> Array:
    return 1.0 / price
