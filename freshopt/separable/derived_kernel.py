"""`DerivedNumerics`: cost, marginal and curvature derived from an expression.

They take the place of a hand-written kernel. Everything is evaluated in pieces of 16 384 sources, whose
temporaries (128 KiB each) stay in the cache whatever the length of the whole, and only to the order needed: a
cost costs no derivatives. For many sources the expression is compiled
(`freshopt.compiled.tapes.tape_passes`), with the same results to a few ulp; rules that users registered stay
in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np

from freshopt.autodiff.compiler import Node
from freshopt.autodiff.jets import NOT_COMPUTED, Jet
from freshopt.autodiff.kinked_atoms import RIGHT
from freshopt.autodiff.tape import Tape
from freshopt.autodiff.tape_description import describe
from freshopt.compiled import backend
from freshopt.compiled.tapes.tape_passes import TapePasses, enabled
from freshopt.numerics.arrays import Array, Index, chunks
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.root_finding import decreasing_root
from freshopt.separable.kernel import Kernel, Numerics, log_newton

# Sources of a piece; 8192 take 3 to 15 % longer, 65 536 10 % (a tape of three atoms, 1e6 sources).
PIECE = 16_384
# A root in log ρ may be off by so many ulp of the rate, at |log ρ| = 60 and more.
JUMPED = 64
# A marginal above this multiple of the price, at the root, jumps there.
BESIDE = 1.000001


class CostJet(NamedTuple):
    """Cost, marginal and curvature of each source, shape (n,).

    Solvers by Newton's method ask for these. They may be read-only views.

    - `cost`: J(ρ), weighted, of an objective to be minimised.
    - `marginal`: −dJ/dρ.
    - `curvature`: d²J/dρ² ≥ 0; the slope of log(marginal) in log(rate) is −curvature·rate/marginal.
    """

    cost: Array
    marginal: Array
    curvature: Array


@frozen_value()
class DerivedNumerics:
    """Cost, marginal and inverse marginal of a compiled expression.

    - `node`: The expression, as declared.
    - `sign`: +1 if it is minimised, −1 if it is maximised.
    - `scale` (n,): A typical rate of each source, where the search for an inverse starts; the change rates.
    - `passes`: Compiled passes, if these are the numerics of many sources, or of some of them.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.cvx import cp
    >>> from freshopt.autodiff.compiler import compile_expression
    >>> rate = cp.Variable(2, nonneg=True)
    >>> numerics = DerivedNumerics(compile_expression(cp.inv_pos(rate), rate), 1.0, np.ones(2))
    >>> numerics.jet(np.array([1.0, 2.0])).marginal
    array([1.  , 0.25])
    >>> numerics.inverse_marginal(np.array([1.0, 0.25])).round(12)
    array([1., 2.])
    """

    node: Node
    sign: float
    scale: Array
    passes: TapePasses | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        """Look for compiled passes."""
        description = describe(self.node) if enabled(len(self.scale)) else None
        if description is not None:
            passes = TapePasses.of(description, len(self.scale), maximised=self.sign < 0.0)
            object.__setattr__(self, "passes", passes)

    def jet(self, rate: Array, order: int = 2, side: int = RIGHT) -> CostJet:
        """Return cost, marginal and curvature at the rates.

        They come from one walk over the expression.

        - `rate` (n,)
        - `order` {0, 1, 2}: The highest derivative wanted; those beyond it are nan.
        - `side` {+1, -1}: Which marginal is meant at a kink: of a little more rate, or of the last bit of it.
        """
        compiled = self.compiled()
        if compiled is not None and compiled[0].evaluates:
            passes, constants = compiled
            found = passes.jets(constants, rate, side)
            return CostJet(*found)
        value, slope, curvature = self._evaluate(rate, order, side)
        if self.sign < 0.0:
            return CostJet(-value, slope, 0.0 - curvature)  # not −0 on a linear piece: its sign counts
        return CostJet(value, -slope, curvature)

    def cost(self, rate: Array) -> Array:
        """Return the expression's value, negated if it is maximised."""
        return self.jet(rate, order=0).cost

    def gain(self, rate: Array) -> None:
        """Return None: an expression's gain is its cost, negated."""

    def marginal(self, rate: Array, side: int = RIGHT) -> Array:
        """Return the marginal value: decrease of cost per unit of rate."""
        return self.jet(rate, 1, side).marginal

    def curvature(self, rate: Array) -> Array:
        """Return the curvature of the cost, ≥ 0."""
        return self.jet(rate).curvature

    def inverse_marginal(self, price: Array) -> Array:
        """Return the best response to a price, by Newton on logarithms."""
        price = np.broadcast_to(price, self.scale.shape)
        compiled = self.compiled()
        if compiled is not None:
            passes, constants = compiled
            return passes.inverse_marginal(constants, price, self.scale)
        rate = np.empty(self.scale.shape)
        for part in chunks(len(rate), PIECE):
            whole = len(rate) <= PIECE
            rate[part] = (self if whole else self.take(part))._inverse(price[part])
        return rate

    def take(self, index: Index) -> DerivedNumerics:
        """Return the numerics of some of the sources."""
        some = DerivedNumerics(self.node.take(index), self.sign, self.scale[index])
        object.__setattr__(some, "passes", self.passes)
        return some

    def compiled(self) -> tuple[TapePasses, Sequence[Array]] | None:
        """Return compiled passes and the constants that they take, or None."""
        if self.passes is None or not isinstance(self.node, Tape) or not backend.compiled():
            return None
        return self.passes, self.node.constants

    def _evaluate(self, rate: Array, order: int, side: int) -> Jet:
        with np.errstate(all="ignore"):
            if len(rate) <= PIECE:
                return self.node.evaluate(rate, order, side)
            found = Jet(*(np.empty(rate.shape) if k <= order else NOT_COMPUTED for k in range(3)))
            for part in chunks(len(rate), PIECE):
                piece = self.node.take(part).evaluate(rate[part], order, side)
                for k in range(order + 1):
                    found[k][part] = piece[k]
            return Jet(*(np.broadcast_to(entry, rate.shape) for entry in found))

    def _inverse(self, price: Array) -> Array:
        root = decreasing_root(log_newton(price, lambda rate: self.jet(rate)[1:]), self.scale)
        return self._onto_kinks(self._off_zero(root, price), price)

    def _off_zero(self, rate: Array, price: Array) -> Array:
        """Return the rates, none 0 where the marginal exceeds the price.

        Where the marginal is infinite at 0 and the cost is not, as that of entropy, a root below all floats
        is still none at 0, where nothing bounds the gap.
        """
        zero = np.flatnonzero(rate == 0.0)
        if len(zero):
            above = self.take(zero).marginal(np.zeros(len(zero))) > price[zero]
            rate[zero[above]] = np.finfo(float).tiny
        return rate

    def _onto_kinks(self, rate: Array, price: Array) -> Array:
        """Return the rates, moved onto a jump of the marginal.

        Those a few ulp below such a jump are moved.
        There the marginal value of one more ulp of rate may exceed all that the price asks for the rest.
        """
        found, short = rate.copy(), np.arange(len(rate))
        for _ in range(JUMPED):
            with np.errstate(all="ignore"):
                above = self.take(short).marginal(found[short]) > BESIDE * price[short]
            short = short[above & np.isfinite(found[short]) & (found[short] > 0.0)]
            if not len(short):
                return found
            found[short] = np.nextafter(found[short], np.inf)
        found[short] = rate[short]  # steep, but no jump
        return found


def same_numerics(a: Numerics, b: Numerics) -> bool:
    """Return whether two numerics are known to be equal."""
    if a is b:
        return True
    if isinstance(a, Kernel) and isinstance(b, Kernel):
        return same_family(a, b) and np.array_equal(a.importance, b.importance)
    if not isinstance(a, DerivedNumerics) or not isinstance(b, DerivedNumerics) or a.sign != b.sign:
        return False
    one, other = a.node, b.node
    if not isinstance(one, Tape) or not isinstance(other, Tape) or one.steps != other.steps:
        return False
    return all(np.array_equal(x, y) for x, y in zip(one.constants, other.constants, strict=True))


def same_family(a: Kernel, b: Kernel) -> bool:
    """Return whether two kernels differ in importance alone."""
    named = a.unit_demand is not None and a.unit_demand is b.unit_demand and a.demand_parameters is None
    same = named or (a.unit_cost == b.unit_cost and a.unit_marginal == b.unit_marginal)
    if not same or len(a.parameters) != len(b.parameters) or b.demand_parameters is not None:
        return False
    return all(x is y or np.array_equal(x, y) for x, y in zip(a.parameters, b.parameters, strict=True))
