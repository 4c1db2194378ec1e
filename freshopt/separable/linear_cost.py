"""`LinearCost`: numerics of a cost per unit of rate.

Its marginal value is the constant −c. A Lagrangian adds c to what a source pays and asks its other parts for
the best response, which then keeps their closed form.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array, Index
from freshopt.numerics.frozen_arrays import frozen_value


@frozen_value()
class LinearCost:
    """Cost Σ c·ρ, as `Numerics`.

    - `unit` (n,): c, of any sign.

    Examples
    --------
    >>> LinearCost(np.array([2.0, 0.5])).cost(np.array([1.0, 4.0]))
    array([2., 2.])
    """

    unit: Array

    def cost(self, rate: Array) -> Array:
        """Return c·ρ."""
        return np.where(self.unit == 0.0, 0.0, self.unit * rate)

    def marginal(self, rate: Array) -> Array:  # noqa: ARG002
        """Return −c."""
        return -self.unit

    def curvature(self, rate: Array) -> Array:
        """Return 0."""
        return np.zeros(len(rate))

    def inverse_marginal(self, price: Array) -> Array:
        """Return 0 where −c is no more than the price, else inf."""
        return np.where(-self.unit <= price, 0.0, np.inf)

    def gain(self, rate: Array) -> Array | None:  # noqa: ARG002
        """Return None: the cost says it all."""
        return None

    def take(self, index: Index) -> LinearCost:
        """Return the costs of some of the sources."""
        return LinearCost(self.unit[index])
