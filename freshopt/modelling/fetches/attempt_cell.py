"""Cells of fetches that fail: cost, marginal and inverse marginal of attempts.

A fetch succeeds with chance s, independently of all others, and the rate ρ counts attempts.

**Poisson** attempts that succeed are Poisson too, at rate sρ: the cost is J(sρ), its marginal value −sJ'(sρ).
A share sρ/Δ of the announced changes is followed.

**Periodic** attempts succeed after gaps N/ρ, N geometric: P(N = k) = s·q^{k−1}, q = 1 − s. With C(τ) = ∫₀^τ c
and the periodic cell J₁ (the mean C(τ)/τ at τ = 1/ρ),

    J(ρ) = sρ·E C(N/ρ) = Σ_k s²k·q^{k−1}·J₁(ρ/k),    −J'(ρ) = Σ_k s²k·q^{k−1}·(−J₁'(ρ/k))/k.

It is a mixture over k of the periodic cell slowed k times, with probabilities s²k·q^{k−1}, hence convex, and
*not* the periodic cell at sρ, which is less. `freshopt.numerics.geometric_sums` has the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from freshopt.errors import ObjectiveError
from freshopt.numerics.arrays import Array, Formula
from freshopt.numerics.geometric_sums import geometric_nodes
from freshopt.separable.kernel import Kernel

if TYPE_CHECKING:
    from freshopt.modelling.cost_curve import Cell, Curve

# Sums of a curve with kinks may take so many terms at once, some 0.3 GB.
MOST_TERMS = 10_000_000


@dataclass(frozen=True, slots=True)
class Slowed:
    """Formula of a rate of which a share counts.

    The share is the last parameter.

    - `part` {"value", "marginal", "inverse"}: What it is: a cost or gain of a rate, a marginal, or a best
      response to a price.

    Examples
    --------
    >>> Slowed(lambda rate, d: d / rate**2, "marginal")(np.array([4.0]), np.array([8.0]), np.array([0.5]))
    array([1.])
    """

    formula: Formula
    part: Literal["value", "marginal", "inverse"] = "value"

    def __call__(self, at: Array, *parameters: Array) -> Array:
        """Return the formula of what counts."""
        *own, share = parameters
        if self.part == "inverse":
            return self.formula(at / share, *own) / share
        value = self.formula(at * share, *own)
        return share * value if self.part == "marginal" else value


def attempt_kernel(importance: Array, curve: Curve, cell: Cell, success: Array) -> Kernel:
    """Return the kernel of periodic attempts by the curve's periodic `cell`."""
    if curve.attempts is not None:
        return curve.attempts.kernel(importance, (*curve.parameters, success))
    k, weights = geometric_nodes(success, smooth=curve.smooth)
    n, many = weights.shape
    if not curve.smooth and n * many > MOST_TERMS:
        raise ObjectiveError(
            f"a cost of age with kinks sums {many} periodic attempts for each of {n} sources, as the least "
            f"chance of success is {float(np.min(success)):g}. Use Refresh.POISSON, or drop the sources that "
            "rarely answer."
        )
    every = tuple(
        np.broadcast_to(own[:, None], (n, many, *own.shape[1:])) for own in map(np.asarray, curve.parameters)
    )
    shares = np.broadcast_to(1.0 / k, (n, many))
    return cell.slowed().expected().kernel(importance, (*every, shares, success[:, None] * k * weights))
