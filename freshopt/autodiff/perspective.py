"""`perspective`: ρ·g(a/ρ), what g costs a period of length a/ρ, per time.

Convex in the rate ρ > 0 where g is convex, and concave where g is concave. It stands in declared objectives,
targets and budgets as CVXPY's elementwise atoms do; what is derived of it is derived of g. Cone solvers have
no form of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from cvxpy.atoms.elementwise.elementwise import Elementwise  # noqa: TID253 - a base class, loaded on use

from freshopt.autodiff.compiler import LEAST
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, shown
from freshopt.numerics.arrays import Array, as_numbers, read_only
from freshopt.renamed import keywords

Outer = Callable[[Expression], Expression]


@keywords()
def perspective(g: Outer, rate: Any, a: npt.ArrayLike = 1.0) -> Expression:  # noqa: ANN401 - a CVXPY expression
    """Perspective ρ·g(a/ρ) of a function, elementwise.

    Parameters
    ----------
    g : callable
        Takes a nonnegative CVXPY variable of shape (n,) and returns an elementwise convex or concave
        expression of it.
    rate : CVXPY expression, affine, shape (n,)
        ρ > 0; at 0 it is what is left of it for ρ → 0.
    a : array_like, scalar or shape (n,)
        > 0, such as change rates.

    Raises
    ------
    ObjectiveError
        If g is neither convex nor concave by the rules of CVXPY, returns another shape, or a is not > 0 or of
        another shape.

    Examples
    --------
    Freshness, (ρ/Δ)(1 − e^{−Δ/ρ}), which CVXPY's own atoms do not declare:

    >>> import cvxpy as cp, freshopt as fo
    >>> class Tracked(fo.Objective):
    ...     sense = "maximise"
    ...     def per_source(self, rate, sources):
    ...         share = fo.perspective(lambda t: 1 - cp.exp(-t), rate, sources.change_rate)
    ...         return cp.multiply(sources.importance / sources.change_rate, share)
    >>> sources = fo.Sources(change_rate=[1.0, 4.0], importance=[1.0, 4.0])
    >>> problem = fo.Problem(Tracked(), sources, bandwidth=3.0)
    >>> bool(abs(fo.solve(problem).value - fo.solve(problem.restated(objective="binary")).value) < 1e-12)
    True
    """
    if not callable(g) or not isinstance(rate, cp.Expression):
        raise ObjectiveError(
            f"perspective of {shown(g)} at {shown(rate)}: pass a function of an expression, and the rate."
        )
    return perspective_of_sources(rate, a, g)


class perspective_of_sources(Elementwise):  # type: ignore[misc]  # noqa: N801 - CVXPY is untyped; atoms are named like functions
    """Atom of `perspective`: g over a variable of its own, `period`."""

    def __init__(self, rate: Any, a: npt.ArrayLike, g: Outer) -> None:  # noqa: ANN401 - a CVXPY expression
        super().__init__(rate)
        self.outer = g
        scale = as_numbers(a, "a of perspective")
        if scale.shape not in {(), self.shape}:
            raise ObjectiveError(
                f"a of perspective has shape {scale.shape}, the rate {self.shape}. Pass one number, or one "
                "for each entry of the rate."
            )
        self.scale = read_only(np.broadcast_to(scale, self.shape))
        if not bool(np.all((self.scale > 0.0) & np.isfinite(self.scale))):
            raise ObjectiveError("a of perspective must be > 0 and finite. Correct it.")
        self.period = cp.Variable(self.shape, nonneg=True)
        self.inner = g(self.period)
        shape = getattr(self.inner, "shape", None)
        if shape != self.shape:
            raise ObjectiveError(
                f"g of perspective returns shape {shape} for {self.shape}. Return an expression of one entry "
                "for each."
            )
        if not (self.inner.is_convex() or self.inner.is_concave()):
            raise ObjectiveError(
                f"g of perspective, '{self.inner}', is neither convex nor concave by the rules of CVXPY. "
                "Write it with atoms that are."
            )

    def numeric(self, values: list[Array]) -> Array:
        """Return ρ·g(a/ρ)."""
        with np.errstate(all="ignore"):
            rate = np.maximum(values[0], LEAST)
            self.period.save_value(self.scale / rate)
            return np.asarray(rate * self.inner.value)

    def sign_from_args(self) -> tuple[bool, bool]:
        """Return the sign of g."""
        return self.inner.is_nonneg(), self.inner.is_nonpos()

    def is_atom_convex(self) -> bool:
        """Return whether g is convex."""
        return bool(self.inner.is_convex())

    def is_atom_concave(self) -> bool:
        """Return whether g is concave."""
        return bool(self.inner.is_concave())

    def is_incr(self, idx: int) -> bool:  # noqa: ARG002 - of one argument
        """Return that nothing is known: rates are affine."""
        return False

    def is_decr(self, idx: int) -> bool:  # noqa: ARG002 - of one argument
        """Return that nothing is known: rates are affine."""
        return False

    def get_data(self) -> list[Any]:
        """Return scale and function, for copies."""
        return [self.scale, self.outer]

    def _domain(self) -> list[Any]:
        return [self.args[0] >= 0.0]

    def _grad(self, values: list[Array]) -> list[Any]:  # noqa: ARG002 - no smooth solver of CVXPY takes it
        return [None]
