"""Per-source numerics: cost, marginal and inverse marginal, the three functions that every solver is made of.

Everything downstream works with *costs* to be minimised: J(ρ) weighted by importance, convex and, for the
named objectives, decreasing. The marginal is −dJ/dρ, what one more refresh per time unit is worth; the
inverse marginal turns a price back into a rate. A maximised objective is its loss here
(`Objective.value_from_cost` converts).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, BoolArray, wide
from freshopt.demands import Demand
from freshopt.sources import LARGEST

Formula: TypeAlias = Callable[..., Array]
Index: TypeAlias = slice | npt.NDArray[Any]


NEXT_TO_NOTHING = 1e-300  # the price 0, for formulas that divide by it


class Numerics(Protocol):
    """What solvers and certificates ask of an objective, vectorised over sources."""

    def cost(self, rate: Array) -> Array:
        """Return each source's weighted cost at its rate, shape (n,)."""

    def marginal(self, rate: Array) -> Array:
        """Return each source's decrease of cost per unit of rate, shape (n,)."""

    def inverse_marginal(self, price: Array) -> Array:
        """Return each source's rate ≥ 0 (or inf) at which the marginal falls to the price, shape (n,)."""

    def take(self, index: Index) -> Numerics:
        """Return the numerics of some of the sources."""


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """Hand-written numerics of one cell of the model: a cost curve under a refresh discipline.

    Parameters
    ----------
    importance : ndarray, shape (n,)
        Weight w ≥ 0, float64 or float32; the formulas below are for w = 1.
    parameters : tuple of ndarray, each of shape (n,)
        What the formulas take besides the rate, usually ``(change_rate,)``, and take in float64.
    unit_cost, unit_marginal : callable
        ``f(rate, *parameters)``: J(ρ), and −J'(ρ).
    unit_inverse : callable
        ``f(price, *parameters)`` for 1e-300 ≤ price < inf: the ρ ≥ 0 with −J'(ρ) = price, 0 if there is none.
    unit_demand : callable, optional
        ``f(worth, *parameters)`` of `freshopt.demands`: the inverse at price 1/worth for one source, from
        which loops over many sources are compiled.
    demand_parameters : tuple of ndarray, optional
        What the demand takes besides the worth, importance included: its worth is then 1/price. `parameters`
        and worth = importance/price if None.
    """

    importance: Array
    parameters: tuple[Array, ...]
    unit_cost: Formula
    unit_marginal: Formula
    unit_inverse: Formula
    unit_demand: Demand | None = None
    demand_parameters: tuple[Array, ...] | None = None

    def cost(self, rate: Array) -> Array:
        """Return w·J(ρ); a source of no importance costs nothing, even at rate 0."""
        with np.errstate(all="ignore"):
            unit = self.unit_cost(rate, *map(wide, self.parameters))
            return np.where(self.importance > 0.0, wide(self.importance) * unit, 0.0)

    def marginal(self, rate: Array) -> Array:
        """Return −w·J'(ρ)."""
        with np.errstate(all="ignore"):
            unit = self.unit_marginal(rate, *map(wide, self.parameters))
            return np.where(self.importance > 0.0, wide(self.importance) * unit, 0.0)

    def inverse_marginal(self, price: Array) -> Array:
        """Return the ρ with −w·J'(ρ) = price, 0 for a source of no importance.

        At price 0 that is the rate beyond which nothing is gained, inf where there always is something.
        """
        with np.errstate(all="ignore"):
            unit_price = np.where(self.importance > 0.0, price / wide(self.importance), np.inf)
            rate = self.unit_inverse(np.maximum(unit_price, NEXT_TO_NOTHING), *map(wide, self.parameters))
            endless = (unit_price <= 0.0) & (rate > LARGEST)
            return np.where(endless, np.inf, np.where(unit_price == np.inf, 0.0, rate))

    def take(self, index: Index) -> Kernel:
        """Return the kernel of some of the sources."""
        own = self.demand_parameters
        return replace(
            self,
            importance=self.importance[index],
            parameters=tuple(parameter[index] for parameter in self.parameters),
            demand_parameters=None if own is None else tuple(parameter[index] for parameter in own),
        )


@dataclass(frozen=True, slots=True, eq=False)
class MixedNumerics:
    """Two kinds of sources in one problem: those that announce their changes and those that do not."""

    signalled: BoolArray
    silent_sources: Numerics
    signalled_sources: Numerics

    def cost(self, rate: Array) -> Array:
        """Return each source's cost from its own kind's numerics."""
        return self._select(lambda numerics: numerics.cost(rate))

    def marginal(self, rate: Array) -> Array:
        """Return each source's marginal from its own kind's numerics."""
        return self._select(lambda numerics: numerics.marginal(rate))

    def inverse_marginal(self, price: Array) -> Array:
        """Return each source's inverse marginal from its own kind's numerics."""
        return self._select(lambda numerics: numerics.inverse_marginal(price))

    def take(self, index: Index) -> Numerics:
        """Return the numerics of some of the sources; of one kind alone where they are of one kind."""
        signalled = self.signalled[index]
        if bool(np.all(signalled)):
            return self.signalled_sources.take(index)
        if not bool(np.any(signalled)):
            return self.silent_sources.take(index)
        return MixedNumerics(signalled, self.silent_sources.take(index), self.signalled_sources.take(index))

    def _select(self, evaluate: Callable[[Numerics], Array]) -> Array:
        return np.where(self.signalled, evaluate(self.signalled_sources), evaluate(self.silent_sources))
