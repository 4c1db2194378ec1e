"""Per-source numerics: cost, marginal value and inverse marginal.

Every solver is made of these three functions. Everything downstream works with *costs* to be minimised: J(ρ)
weighted by importance, convex and, for the named objectives, decreasing. The marginal is −dJ/dρ, the marginal
value of one more refresh per time unit; the inverse marginal is the best response of a rate to a price, the
dual variable of a constraint. A maximised objective is its loss here; what it gains is computed beside the
loss where the difference of the two would lose digits
(`freshopt.modelling.objective.value_at`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from freshopt.compiled.cost_functions import Value
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.penalty_tables import PENALTIES, TableCell, TablesOf
from freshopt.compiled.proof_functions import ProofCell
from freshopt.numerics.arrays import LARGEST, Array, BoolArray, Formula, Index, as_float64
from freshopt.numerics.frozen_arrays import altered, frozen_value
from freshopt.numerics.root_finding import Compare

# Stands for the price 0, for formulas that divide by it.
SMALLEST_PRICE = 1e-300
# Relative step of a central difference: off by its square, and by rounding over it.
DIFFERENCE = 1e-5


class Numerics(Protocol):
    """Protocol of per-source costs and derivatives, vectorised over sources."""

    def cost(self, rate: Array) -> Array:
        """Return each source's weighted cost at its rate, shape (n,)."""

    def marginal(self, rate: Array) -> Array:
        """Return each source's decrease of cost per unit of rate, (n,)."""

    def inverse_marginal(self, price: Array) -> Array:
        """Return each source's best response to its price, shape (n,).

        It is the rate ≥ 0 (or inf) at which the marginal falls to the price.
        """

    def curvature(self, rate: Array) -> Array:
        """Return each source's curvature d²J/dρ² ≥ 0, shape (n,)."""

    def gain(self, rate: Array) -> Array | None:
        """Return each source's weighted gain at its rate, or None.

        It is what a maximised objective adds up; None where the cost alone says it.
        """

    def take(self, index: Index) -> Numerics:
        """Return the numerics of some of the sources."""


def weighted(weights: Array, values: Array) -> Array:
    """Return products, 0 where the weight is, be the value infinite."""
    return np.multiply(weights, values, out=np.zeros(np.shape(values)), where=weights != 0.0)


def log_newton(price: Array, derivatives: Callable[[Array], tuple[Array, Array]]) -> Compare:
    """Return Newton's steps on logarithms to where marginals are prices.

    `derivatives` returns marginal value and curvature at rates.
    """

    def compare(x: Array) -> tuple[BoolArray, Array]:
        with np.errstate(all="ignore"):
            rate = np.exp(x)
            marginal, curvature = derivatives(rate)
            bend = curvature * rate
            step = np.log(marginal / price) * marginal / bend
            step = np.where(np.isfinite(step), step, (marginal - price) / bend)
        return marginal > price, np.where(np.isfinite(step), step, np.inf)

    return compare


class Quick(Protocol):
    """Protocol of a kernel's approximate best responses, and proofs of rates."""

    def cover(self, paid: Array, beyond: float = ...) -> None:
        """Prepare for prices about these, or `beyond` times as much."""

    def respond(self, paid: Array, index: Index) -> Array:
        """Return the best responses of some sources to what they pay."""

    def fill(self, price: float, cost: Array, lower: Array, upper: Array, rates: Array) -> float:
        """Write all best responses within bounds; return the bandwidth they use."""

    def prove(self, rates: Array, paid: Array, lower: Array, upper: Array) -> Array:
        """Return bounds on cost, gap, and what half the rate loses.

        Shape (3, n); NaN where the formulas have to tell.
        """


@frozen_value()
class Kernel:
    """Hand-written numerics of a cost curve under a refresh discipline.

    J is what is *minimised*, whatever the objective's sense: of a maximised objective it is minus what
    `per_source` declares. Its loss, such as 1 − freshness, will do where `unit_gain` says what is gained, or
    the objective's `value_from_cost` says what loss becomes of which value. `Problem` compares a kernel with
    the declaration at a few rates and refuses one that differs.

    - `importance` (n,): Weight w ≥ 0, float64 or float32; the formulas below are for w = 1.
    - `parameters` tuple of ndarray, each of (n,): What the formulas take besides the rate, usually
      ``(change_rate,)``, and take in float64.
    - `unit_cost`, `unit_marginal`: ``f(rate, *parameters)``: J(ρ), and −J'(ρ), which is positive where a
      refresh more lowers the cost.
    - `unit_inverse`: ``f(price, *parameters)`` for 1e-300 ≤ price < inf: the ρ ≥ 0 with −J'(ρ) = price, 0 if
      there is none.
    - `unit_demand`: ``f(a, *parameters)`` of `freshopt.compiled.demand_functions`: the best response of one
      source to the price 1/a, from which loops over many sources are compiled.
    - `demand_parameters`: What the demand takes besides a, importance included: a is then 1/price.
      `parameters` and a = importance/price if None.
    - `unit_gain`: ``f(rate, *parameters)``: what a maximised objective gains, such as the fresh share 1 −
      J(ρ), in a form that does not cancel. Without it the value is minus the cost.
    - `unit_value`: ``f(rate, *parameters)`` of `freshopt.compiled.cost_functions`: `unit_cost` of one source.
    - `unit_proof`: Of `freshopt.compiled.proof_functions`: cost, marginal and reach of one source, from which
      compiled proofs of many sources are made.
    - `proof_parameters`: What the proof takes besides rate and importance; `parameters` if None.
    - `tables_of`: Returns the tables of `freshopt.compiled.penalty_tables`, by which compiled passes evaluate
      many sources whose kernel has no formulas for them.
    - `quick`: Of many sources whose formulas are dear: a search asks it for most best responses, a proof for
      sums.
    - `table_cell`: The formulas that look into these tables.
    """

    importance: Array
    parameters: tuple[Array, ...]
    unit_cost: Formula
    unit_marginal: Formula
    unit_inverse: Formula
    unit_demand: Demand | None = None
    demand_parameters: tuple[Array, ...] | None = None
    unit_gain: Formula | None = None
    unit_value: Value | None = None
    unit_proof: ProofCell | None = None
    proof_parameters: tuple[Array, ...] | None = None
    tables_of: TablesOf | None = None
    quick: Quick | None = None
    table_cell: TableCell = PENALTIES

    def cost(self, rate: Array) -> Array:
        """Return w·J(ρ); 0 where the importance is 0, even at rate 0."""
        return self._weighted(self.unit_cost, rate)

    def marginal(self, rate: Array) -> Array:
        """Return the marginal value −w·J'(ρ)."""
        return self._weighted(self.unit_marginal, rate)

    def curvature(self, rate: Array) -> Array:
        """Return the curvature by a central difference of the marginal.

        It is right to 1e-9: enough for Newton's method, whose steps it scales.
        """
        with np.errstate(all="ignore"):
            fall = self.marginal(rate * (1.0 - DIFFERENCE)) - self.marginal(rate * (1.0 + DIFFERENCE))
            return np.maximum(0.0, fall / (2.0 * DIFFERENCE * rate))

    def gain(self, rate: Array) -> Array | None:
        """Return the weighted gain, or None where there is no formula."""
        return None if self.unit_gain is None else self._weighted(self.unit_gain, rate)

    def _weighted(self, formula: Formula, rate: Array) -> Array:
        with np.errstate(all="ignore"):
            unit = formula(rate, *map(as_float64, self.parameters))
            return np.where(self.importance > 0.0, as_float64(self.importance) * unit, 0.0)

    def inverse_marginal(self, price: Array) -> Array:
        """Return the best response: the ρ with −w·J'(ρ) = price.

        It is 0 for a source of no importance.
        At price 0 it is the rate beyond which nothing is gained, inf where there always is something.
        """
        with np.errstate(all="ignore"):
            unit_price = np.where(self.importance > 0.0, price / as_float64(self.importance), np.inf)
            rate = self.unit_inverse(
                np.maximum(unit_price, SMALLEST_PRICE), *map(as_float64, self.parameters)
            )
            unbounded = (unit_price <= 0.0) & (rate > LARGEST)
            return np.where(unbounded, np.inf, np.where(unit_price == np.inf, 0.0, rate))

    def take(self, index: Index) -> Kernel:
        """Return the kernel of some of the sources."""

        def taken(own: tuple[Array, ...] | None) -> tuple[Array, ...] | None:
            return None if own is None else tuple(parameter[index] for parameter in own)

        return altered(
            self,
            importance=self.importance[index],
            parameters=tuple(parameter[index] for parameter in self.parameters),
            demand_parameters=taken(self.demand_parameters),
            proof_parameters=taken(self.proof_parameters),
            quick=None,
        )


@frozen_value()
class MixedNumerics:
    """Numerics of a problem with silent and signalled sources."""

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

    def curvature(self, rate: Array) -> Array:
        """Return each source's curvature from its own kind's numerics."""
        return self._select(lambda numerics: numerics.curvature(rate))

    def gain(self, rate: Array) -> Array | None:
        """Return each source's gain from its own kind's numerics."""
        silent, announced = self.silent_sources.gain(rate), self.signalled_sources.gain(rate)
        return None if silent is None or announced is None else np.where(self.signalled, announced, silent)

    def take(self, index: Index) -> Numerics:
        """Return the numerics, of one kind if they are, of some sources."""
        signalled = self.signalled[index]
        if bool(np.all(signalled)):
            return self.signalled_sources.take(index)
        if not bool(np.any(signalled)):
            return self.silent_sources.take(index)
        return MixedNumerics(signalled, self.silent_sources.take(index), self.signalled_sources.take(index))

    def _select(self, evaluate: Callable[[Numerics], Array]) -> Array:
        return np.where(self.signalled, evaluate(self.signalled_sources), evaluate(self.silent_sources))
