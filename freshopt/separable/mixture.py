"""Mixtures of formulas: expectations over uncertain change rates.

A formula of a source holds for a known change rate. Where that is one of K nodes with probabilities p, cost,
gain and marginal are weighted sums Σ p_j f_j: convex and decreasing where every f_j is. The inverse has no
closed form; it lies between the least and the largest inverse of the nodes, and is searched for there in
logarithms, in which marginals are nearly straight. It also lies on this side of the inverse that a node has
of the value over p_j, which brings the ends together.

Parameters of a mixture have the shape (n, K, ...) and are followed by the probabilities, shape (n, K). The
sums are taken above the least term, so that a mixture of equal nodes is the formula itself, bit by bit.

Cost: K evaluations of the formula; of the inverse some 6 K of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, Formula, as_numbers, read_only
from freshopt.numerics.bracketed_roots import FallingRatio

# Probabilities may miss 1 by so much, which is rounding; what they miss then belongs to the least term.
NORMALISED = 1e-9
# Stand for 0 and infinity in a search, with room for a product.
NEAREST, FARTHEST = 1e-280, 1e280


@dataclass(frozen=True, slots=True)
class Mixed:
    """Weighted sum Σ p_j f_j of a formula over the nodes.

    - `last`: How many parameters, after the weights, are one per source.

    Examples
    --------
    >>> nodes, weights, shift = np.array([[1.0, 3.0]]), np.array([[0.5, 0.5]]), np.array([1.0])
    >>> Mixed(lambda rate, d: d / rate)(np.array([2.0]), nodes, weights)
    array([1.])
    >>> Mixed(lambda rate, d, shift: d / rate + shift, 1)(np.array([2.0]), nodes, weights, shift)
    array([2.])
    """

    formula: Formula
    last: int = 0

    def __call__(self, at: Array, *parameters: Array) -> Array:
        """Return the sum at one argument per source, shape (n,)."""
        count = len(parameters) - self.last
        *own, weights = parameters[:count]
        every = (np.repeat(each[:, None], weights.shape[1], axis=1) for each in parameters[count:])
        return weighted_mean(at_nodes(self.formula, at, [*own, *every], weights), weights)


@dataclass(frozen=True, slots=True)
class MixedInverse:
    """Inverse of a weighted sum of monotone formulas.

    - `forward`, `inverse`: The formula of one node and its inverse, > 0.
    - `rising`: Whether the formula rises.

    Examples
    --------
    >>> nodes, weights = np.array([[1.0, 4.0]]), np.array([[0.5, 0.5]])
    >>> square = MixedInverse(lambda s, d: d * s * s, lambda v, d: np.sqrt(v / d), rising=True)
    >>> square(np.array([10.0]), nodes, weights).round(12)  # 2.5 s² = 10
    array([2.])
    """

    forward: Formula
    inverse: Formula
    rising: bool

    def __call__(self, value: Array, *parameters: Array) -> Array:
        """Return the argument at which the sum has a value, shape (n,)."""
        low, high = self._ends(value, *parameters)
        found = np.array(low)
        # Logarithms are counted from the end that is a number: the last digits of the result are theirs.
        start = low if self.rising else high
        open_ = np.flatnonzero((low < high) & (start > 0.0) & (start < np.inf))
        if len(open_) == 0:
            return found
        at = np.broadcast_to(value, low.shape)[open_]
        mixed = Mixed(self.forward)

        def ratio(argument: Array, value: Array, *parameters: Array) -> Array:
            own = mixed(argument, *parameters)
            return value / own if self.rising else own / value

        sought = FallingRatio(ratio, start[open_], (at, *(each[open_] for each in parameters)))
        with np.errstate(over="ignore"):
            left, right = (
                np.log(np.clip(end[open_] / start[open_], NEAREST, FARTHEST)) for end in (low, high)
            )
        x = sought.within(left, right)
        found[open_] = np.where(
            x == left, low[open_], np.where(x == right, high[open_], start[open_] * np.exp(x))
        )
        return found

    def _ends(self, value: Array, *parameters: Array) -> tuple[Array, Array]:
        """Return arguments between which the sum has its value.

        The sum lies between the least and the largest term, and above each p_j f_j.
        """
        *own, weights = parameters
        counted = weights > 0.0
        ends = np.where(counted, at_nodes(self.inverse, value, own, weights), np.nan)
        low, high = np.nanmin(ends, axis=1), np.nanmax(ends, axis=1)
        with np.errstate(all="ignore"):
            alone = np.minimum(np.reshape(value, (-1, 1)) / np.where(counted, weights, 1.0), FARTHEST)
        ends = np.where(counted, at_nodes(self.inverse, alone.ravel(), own, weights), np.nan)
        if self.rising:
            return low, np.maximum(low, np.minimum(high, np.nanmin(ends, axis=1)))
        return np.minimum(high, np.maximum(low, np.nanmax(ends, axis=1))), high


@dataclass(frozen=True, slots=True)
class UpTo:
    """Formula of a rate that is used up to a cap alone.

    A source that announces its changes is refreshed no more often than it changes: what a rate has beyond the
    change rate is not used.

    - `cap`: Position of the change rate among the parameters.
    - `part` {"value", "marginal", "inverse"}: What it is: a cost or gain of a rate, a marginal, which is 0
      beyond the cap, or a best response to a price, which is no more than the cap.
    """

    formula: Formula
    cap: int
    part: Literal["value", "marginal", "inverse"] = "value"

    def __call__(self, at: Array, *parameters: Array) -> Array:
        """Return the formula of the rate that is used."""
        cap = parameters[self.cap]
        if self.part == "inverse":
            return np.minimum(self.formula(at, *parameters), cap)
        value = self.formula(np.minimum(at, cap), *parameters)
        return np.where(at <= cap, value, 0.0) if self.part == "marginal" else value


def at_nodes(formula: Formula, at: Array, own: list[Array], weights: Array) -> Array:
    """Return a formula at every node, shape (n, K).

    The argument is one for each source, or one for each node, n·K in turn.
    """
    n, nodes = weights.shape
    flat = (each.reshape(n * nodes, *each.shape[2:]) for each in own)
    every = at if np.size(at) == n * nodes else np.repeat(np.broadcast_to(at, (n,)), nodes)
    with np.errstate(all="ignore"):
        values: Array = formula(every, *flat)
    return values.reshape(n, nodes)


def weighted_mean(values: Array, weights: Array) -> Array:
    """Return Σ p_j v_j by rows.

    Equal values come out as they are.

    Examples
    --------
    >>> weighted_mean(np.array([[0.1, 0.1, 0.1], [0.0, 1.0, np.inf]]),
    ...               np.array([[0.3, 0.3, 0.4], [0.5, 0.5, 0.0]])).tolist()
    [0.1, 0.5]
    """
    counted = weights > 0.0
    least = np.min(np.where(counted, values, np.inf), axis=1)
    with np.errstate(invalid="ignore"):
        more = np.where(counted & (values > least[:, None]), weights * (values - least[:, None]), 0.0)
    mean: Array = np.where(np.any(counted & np.isnan(values), axis=1), np.nan, least + np.sum(more, axis=1))
    return mean


def checked_nodes(nodes: npt.ArrayLike, weights: npt.ArrayLike, n: int) -> tuple[Array, Array]:
    """Return checked nodes and weights, both of shape (n, K).

    - raises SourceDataError if they have other shapes, a node is no positive number, or weights are no
      probabilities.

    Examples
    --------
    >>> checked_nodes([[1.0, 2.0]], [0.5, 0.5], 1)
    (array([[1., 2.]]), array([[0.5, 0.5]]))
    >>> checked_nodes([[1.0, 2.0]], [0.5, 0.6], 1)
    Traceback (most recent call last):
    freshopt.errors.SourceDataError: weights add up to 1.1 in row 0. Pass probabilities, 1 in each row.
    """
    rates, shares = as_numbers(nodes, "nodes"), as_numbers(weights, "weights")
    if rates.ndim != 2 or len(rates) != n or rates.shape[1] == 0:
        raise SourceDataError(f"nodes have shape {rates.shape}. Pass {n} rows of change rates, one a source.")
    if shares.shape not in (rates.shape, rates.shape[1:]):
        raise SourceDataError(
            f"weights have shape {shares.shape} but nodes {rates.shape}. Pass as many, or one row for all."
        )
    shares = np.broadcast_to(shares, rates.shape)
    wrong = np.flatnonzero(~np.all((rates >= SMALLEST) & (rates <= LARGEST), axis=1))
    if len(wrong):
        raise SourceDataError(f"a node of row {wrong[0]} is no change rate. Pass numbers > 0.")
    sums = np.sum(shares, axis=1)
    wrong = np.flatnonzero(~(np.all(shares >= 0.0, axis=1) & (np.abs(sums - 1.0) <= NORMALISED)))
    if len(wrong):
        raise SourceDataError(
            f"weights add up to {sums[wrong[0]]:g} in row {wrong[0]}. Pass probabilities, 1 in each row."
        )
    return read_only(rates), read_only(shares)
