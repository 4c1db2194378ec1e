"""`DerivedNumerics`: an expression's derivatives in the role of a hand-written kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array, BoolArray
from freshopt.elementwise import Node
from freshopt.inversion import falling_root
from freshopt.kernel import Index


@dataclass(frozen=True, slots=True, eq=False)
class DerivedNumerics:
    """Cost, marginal and inverse marginal of a compiled expression.

    Parameters
    ----------
    node : Node
        The expression, as declared.
    sign : float
        +1 if it is minimised, −1 if it is maximised.
    scale : ndarray, shape (n,)
        A typical rate of each source, where the search for an inverse starts; the change rates.
    """

    node: Node
    sign: float
    scale: Array

    def cost(self, rate: Array) -> Array:
        """Return the expression's value, negated if it is maximised."""
        with np.errstate(all="ignore"):
            return self.sign * np.broadcast_to(self.node.evaluate(rate).value, rate.shape)

    def marginal(self, rate: Array) -> Array:
        """Return the decrease of cost per unit of rate; may be negative where more refreshes harm."""
        with np.errstate(all="ignore"):
            return -self.sign * np.broadcast_to(self.node.evaluate(rate).slope, rate.shape)

    def inverse_marginal(self, price: Array) -> Array:
        """Return the rate at which the marginal falls to the price, by Newton on logarithms."""
        price = np.broadcast_to(price, self.scale.shape)
        return falling_root(lambda x: self._compare(x, price), self.scale)

    def take(self, index: Index) -> DerivedNumerics:
        """Return the numerics of some of the sources."""
        return DerivedNumerics(self.node.take(index), self.sign, self.scale[index])

    def _compare(self, x: Array, price: Array) -> tuple[BoolArray, Array]:
        """Return whether the marginal at exp(x) exceeds the price, and the Newton step in x."""
        with np.errstate(all="ignore"):
            rate = np.exp(x)
            jet = self.node.evaluate(rate)
            marginal, curvature = -self.sign * jet.slope, self.sign * jet.curvature
            ratio = np.where(price > 0.0, np.log(marginal / price), np.nan)  # Newton on logarithms
            step = ratio * marginal / (curvature * rate)
            plain = (marginal - price) / (curvature * rate)
            step = np.where(np.isfinite(step), step, plain)
        return marginal > price, np.where(np.isfinite(step), step, np.inf)
