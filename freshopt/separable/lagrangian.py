"""`Lagrangian`: each source's part of the Lagrangian at given multipliers.

At multipliers y ≥ 0 of the rows, source k minimises φ_k(ρ) = f_k(ρ) + Σ_j y_j g_jk(ρ) on its own: convex, in
one variable. Its slope, its curvature and its minimiser (the best response ρ̂_k) are all that a dual solver
and a certificate need.

Where objective and curves are one family of costs, as harmonic staleness under a target of harmonic
staleness, φ_k is a member of that family plus a linear price, and the best response has its closed form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.compiled.tapes.tape_passes import RowResponse, row_response
from freshopt.numerics.arrays import Array, Index, as_float64
from freshopt.numerics.root_finding import decreasing_root
from freshopt.separable.derived_kernel import DerivedNumerics, same_family
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics, log_newton, weighted
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program

# Of typical rates: warm starts beyond this multiple are not used. The search's reach is e^512.
_NEAR = 1e100


@dataclass(frozen=True, slots=True, eq=False)
class Lagrangian:
    """φ_k of every source at given multipliers.

    - `price` (n,): θ_0, what a source pays per unit of rate, of any sign; an objective that is linear in it
      included.
    - `parts` tuple of (ndarray of (n,), Numerics): What else is added up, each with its weights θ_t; None
      stands for 1, the objective's.
    - `family`: Their sum as one, where they are one family, or the objective alone by kernels.
    """

    program: Program
    price: Array
    parts: tuple[tuple[Array | None, Numerics], ...]
    family: Numerics | None

    @classmethod
    def at(cls, program: Program, multipliers: Array) -> Lagrangian:
        """Return the Lagrangian at multipliers y ≥ 0, shape (m,)."""
        prices = program.rows.prices(multipliers)
        price, own = prices[0], list[tuple[Array | None, Numerics]]()
        if isinstance(program.numerics, LinearCost):
            price = price + program.numerics.unit
        elif program.numerics is not None:
            own.append((None, program.numerics))
        own += [(prices[t], curve) for t, curve in enumerate(program.rows.curves, start=1)]
        return cls(program, price, tuple(own), _family(own, len(program)))

    def take(self, index: Index) -> Lagrangian:
        """Return the Lagrangian of some of the sources."""
        parts = tuple((None if w is None else w[index], numerics.take(index)) for w, numerics in self.parts)
        family = None if self.family is None else self.family.take(index)
        return Lagrangian(self.program.take(index), self.price[index], parts, family)

    def cost(self, rates: Array) -> Array:
        """Return φ(ρ) − θ_0·ρ, shape (n,)."""
        if self.family is not None:
            return self.family.cost(rates)
        return self._sum(rates, "cost")

    def marginal(self, rates: Array) -> Array:
        """Return the marginal value θ_0 − φ'(ρ), shape (n,)."""
        if self.family is not None:
            return self.family.marginal(rates)
        return self._sum(rates, "marginal")

    def marginal_size(self, rates: Array) -> Array:
        """Return Σ of the parts' absolute marginals, the size of rounding, (n,)."""
        if self.family is not None:
            return np.abs(self.family.marginal(rates))
        return self._sum(rates, "marginal", size=True)

    def slope(self, rates: Array) -> Array:
        """Return φ'(ρ), shape (n,)."""
        return self.price - self.marginal(rates)

    def curvature(self, rates: Array) -> Array:
        """Return φ''(ρ) ≥ 0, shape (n,)."""
        if self.family is not None:
            return self.family.curvature(rates)
        return self._sum(rates, "curvature")

    def inverse_marginal(self, price: Array) -> Array:
        """Return the rates at which the marginal falls to a price.

        They are 0 or inf where it never does.

        With this, `cost`, `marginal` and `take` certificates see the Lagrangian as one more `Numerics`.
        """
        if self.family is not None:
            return self.family.inverse_marginal(price)
        if not self.parts:
            return np.where(price > 0.0, 0.0, np.inf)
        return decreasing_root(log_newton(price, self._derivatives), self.program.typical)

    def best_response(self, start: Array | None = None) -> Array:
        """Return the minimisers of φ over the bounds, shape (n,).

        - `start` (n,): Rates near them; else the program's typical rates.
        """
        lower, upper = self.program.lower, self.program.upper
        if self.family is not None or not self.parts:
            # Costs of kernels never rise: a source that is paid for its rate takes all there is.
            rates = np.where(self.price < 0.0, np.inf, self.inverse_marginal(self.price))
        else:
            near = (
                self.program.typical if start is None else np.where(start > 0.0, start, self.program.typical)
            )
            compiled = self._compiled_response(near)
            if compiled is not None:
                return compiled.rates
            rates = decreasing_root(log_newton(self.price, self._derivatives), near)
        # Where nothing is gained and nothing is paid, any rate is a minimiser; the least is taken.
        idle = np.isnan(rates) | ((self.price == 0.0) & (self.marginal(lower) == 0.0))
        return np.clip(np.where(idle, lower, rates), lower, upper)

    def _compiled_response(self, near: Array) -> RowResponse | None:
        """Return best responses by compiled loops, None if a part has none."""
        passes, weights = [], [self.price]
        for own, numerics in self.parts:
            compiled = numerics.compiled() if isinstance(numerics, DerivedNumerics) else None
            if compiled is None:
                return None
            passes.append(compiled)
            weights += [] if own is None else [own]
        objective = passes[0] if self.parts[0][0] is None else None
        curves = passes if objective is None else passes[1:]
        lower, upper, typical = self.program.lower, self.program.upper, self.program.typical
        # The search reaches so far from its start: a start far off, or infinite, would hide the root.
        usable = (near > typical / _NEAR) & (near < typical * _NEAR)
        start = np.where(usable, near, typical)
        return row_response(objective, curves, np.stack(weights), start, lower, upper)

    def _sum(self, rates: Array, what: str, *, size: bool = False) -> Array:
        added = np.zeros(len(rates))
        for weights, numerics in self.parts:
            each = getattr(numerics, what)(rates)
            each = np.abs(each) if size else each
            added += each if weights is None else weighted(weights, each)
        return added

    def _derivatives(self, rates: Array) -> tuple[Array, Array]:
        """Return marginal value and curvature."""
        return self.marginal(rates), self.curvature(rates)


def _family(parts: list[tuple[Array | None, Numerics]], n: int) -> Numerics | None:
    """Return the weighted sum of kernels of one family, or None."""
    # Signalled and silent sources have a closed form each, which a search over both would lose.
    if len(parts) == 1 and parts[0][0] is None and isinstance(parts[0][1], MixedNumerics):
        return parts[0][1]
    kernels = [numerics for _, numerics in parts if isinstance(numerics, Kernel)]
    if not kernels or len(kernels) < len(parts):
        return None
    first = kernels[0]
    if any(not same_family(first, other) for other in kernels[1:]):
        return None
    if len(parts) == 1 and parts[0][0] is None:
        return first
    importance = np.zeros(n)
    for (weights, _), kernel in zip(parts, kernels, strict=True):
        own = as_float64(kernel.importance)
        importance = importance + (own if weights is None else weights * own)
    if first.demand_parameters is None:
        return replace(first, importance=importance)
    # A demand with parameters of its own holds the importance in them, and so does its proof.
    bare = replace(first, unit_demand=None, demand_parameters=None, unit_proof=None, proof_parameters=None)
    return replace(bare, importance=importance)
