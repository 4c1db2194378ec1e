"""`UsageCosts`: costs of sources, then of what groups use.

A convex cost φ of a sum, Σ f_k(ρ_k) + φ(Σ c_k ρ_k), is separable once the sum is a variable t of its own:
the row Σ c_k ρ_k − t ≤ 0 for a φ that rises, t − Σ c_k ρ_k ≤ 0 for one that falls. Its dual variable is the
price φ'(t), and t answers a price as sources do, by the inverse marginal of φ. A row's part of a duality gap
is then that of Fenchel and Young, φ(t) + φ*(y) − y·t, whether φ is smooth, has steps or ends at a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np

from freshopt.autodiff.kinked_atoms import RIGHT
from freshopt.numerics.arrays import Array, BoolArray, Index, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Numerics


@frozen_value()
class UsageCosts:
    """Costs of sources and usages, as `Numerics`.

    - `usage` (N,): Which variables are usages.
    - `sources`, `usages`: Of the others, and of these alone, each in their order.
    """

    usage: BoolArray
    sources: Numerics
    usages: Numerics
    place_: IntArray = field(init=False)

    def __post_init__(self) -> None:
        """Find each variable's place among its kind."""
        counts = np.cumsum(self.usage)
        place = np.where(self.usage, counts - 1, np.arange(len(counts)) - counts)
        object.__setattr__(self, "place_", place)

    def cost(self, rate: Array) -> Array:
        """Return each variable's cost."""
        return self._select(lambda numerics, own: numerics.cost(own), rate)

    def marginal(self, rate: Array, side: int = RIGHT) -> Array:
        """Return each variable's decrease of cost per unit, at kinks sideways."""

        def of(numerics: Numerics, own: Array) -> Array:
            if isinstance(numerics, DerivedNumerics | UsageCosts):
                return numerics.marginal(own, side)
            return numerics.marginal(own)

        return self._select(of, rate)

    def curvature(self, rate: Array) -> Array:
        """Return each variable's curvature."""
        return self._select(lambda numerics, own: numerics.curvature(own), rate)

    def inverse_marginal(self, price: Array) -> Array:
        """Return each variable's best response to its price."""
        return self._select(lambda numerics, own: numerics.inverse_marginal(own), price)

    def gain(self, rate: Array) -> Array | None:  # noqa: ARG002
        """Return None: usages have costs alone."""
        return None

    def take(self, index: Index) -> Numerics:
        """Return the costs of some variables, of one kind if they are."""
        usage, place = self.usage[index], self.place_[index]
        if not bool(np.any(usage)):
            return self.sources.take(index if self._leads(index) else place)
        if bool(np.all(usage)):
            return self.usages.take(place)
        return UsageCosts(usage, self.sources.take(place[~usage]), self.usages.take(place[usage]))

    def _leads(self, index: Index) -> bool:
        """Return whether an index is a slice of sources before all usages."""
        return isinstance(index, slice) and not bool(np.any(self.usage[: index.stop]))

    def _select(self, evaluate: Callable[[Numerics, Array], Array], at: Array) -> Array:
        values = np.empty(len(self.usage))
        at = np.broadcast_to(at, values.shape)
        values[~self.usage] = evaluate(self.sources, at[~self.usage])
        values[self.usage] = evaluate(self.usages, at[self.usage])
        return values
