"""`DerivedNumerics`: an expression's derivatives in the role of a hand-written kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array, BoolArray
from freshopt.elementwise import Node
from freshopt.kernel import Index

_REACH = 1e150  # rates beyond are taken for infinity: nobody's change rate spans 300 decades
_STEPS = 200  # bisection alone needs 60 on the bracket; an outward search at most 12 more


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
        """Return the rate at which the marginal falls to the price, by a safeguarded Newton search in log ρ.

        The marginal is non-increasing, so the sign of marginal − price brackets the root; a step that leaves
        the bracket, or a jump of the marginal, falls back to bisection.
        """
        price = np.broadcast_to(price, self.scale.shape)
        low, high = self._bracket(price)
        x = np.where(np.isfinite(low), low, high)
        x = np.where(np.isfinite(low) & np.isfinite(high), 0.5 * (low + high), x)
        for _ in range(_STEPS):
            above, step = self._compare(x, price)
            low, high = np.where(above, x, low), np.where(above, high, x)
            middle = 0.5 * (low + high)
            inside = (x + step > low) & (x + step < high)
            following = np.where(inside, x + step, middle)
            wide = high - low > 4e-16 * np.maximum(1.0, np.abs(middle))
            moving = np.isfinite(middle) & wide & (np.abs(following - x) > 1e-16 * np.abs(x))
            if not bool(np.any(moving)):
                break
            x = np.where(moving, following, x)
        rate = np.exp(x)
        return np.where(high == -np.inf, 0.0, np.where(low == np.inf, np.inf, rate))

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

    def _bracket(self, price: Array) -> tuple[Array, Array]:
        """Search outwards from the scale, in log ρ; −inf or inf where the root is at 0 or beyond reach."""
        start = np.log(self.scale)
        above, _ = self._compare(start, price)
        inner, outer, width = start, start, 1.0
        pending = np.ones(start.shape, dtype=np.bool_)
        limit = float(np.log(_REACH))
        while bool(np.any(pending)) and width <= 2.0 * limit:
            trial = np.where(above, start + width, start - width)
            now, _ = self._compare(trial, price)
            inner = np.where(pending & (now == above), trial, inner)
            outer = np.where(pending & (now != above), trial, outer)
            pending &= now == above
            width *= 2.0
        outer = np.where(pending, np.where(above, np.inf, -np.inf), outer)
        inner = np.where(pending, outer, inner)
        return np.where(above, inner, outer), np.where(above, outer, inner)
