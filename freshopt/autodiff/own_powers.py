"""`power`: powers with an exponent of each source's own.

It stands in declared objectives, targets and budgets as CVXPY's atoms do, with derivatives and cones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from cvxpy.atoms import POWCONE_ATOMS  # noqa: TID253 - its classes are bases here, and this module loads on use
from cvxpy.atoms.elementwise.elementwise import Elementwise  # noqa: TID253
from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS  # noqa: TID253

from freshopt.autodiff.compiler import register
from freshopt.autodiff.smooth_atoms import SMOOTH, powers
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, shown
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_numbers, read_only
from freshopt.renamed import keywords


@keywords()
def power(x: Any, exponents: npt.ArrayLike) -> Expression:  # noqa: ANN401 - a CVXPY expression
    """Powers x^p, each source with an exponent of its own.

    ``cvxpy.power`` takes one exponent for all. The domain is x ≥ 0, and x > 0 where an exponent is negative.

    Parameters
    ----------
    x : CVXPY expression, shape (n,)
    exponents : array_like, shape (n,)
        All of them ≤ 0 or ≥ 1, for a convex function; or all from 0 to 1, for a concave one.

    Raises
    ------
    ObjectiveError
        If x is no expression, there is not one finite exponent for each entry of it, or x^p is neither
        convex nor concave.

    Examples
    --------
    Costs that fall with different powers of the rate:

    >>> import cvxpy as cp, freshopt as fo
    >>> class Falling(fo.Objective):
    ...     def per_source(self, rate, sources):
    ...         return cp.multiply(sources.importance, fo.power(rate, -sources.change_rate))
    >>> sources = fo.Sources(change_rate=[1.0, 2.0], importance=[4.0, 0.5])
    >>> fo.solve(fo.Problem(Falling(), sources, bandwidth=3.0)).rates.round(9)
    array([2., 1.])
    """
    if not isinstance(x, cp.Expression):
        raise ObjectiveError(f"x of power is {shown(x)}. Pass a CVXPY expression, such as the rate.")
    return powers_of_sources(x, exponents)


class powers_of_sources(Elementwise):  # type: ignore[misc]  # noqa: N801 - CVXPY is untyped; atoms are named like functions
    """Atom of `power`."""

    def __init__(self, x: Any, exponents: npt.ArrayLike) -> None:  # noqa: ANN401 - a CVXPY expression
        self.exponents = read_only(np.array(as_numbers(exponents, "exponents of power")))
        super().__init__(x)
        if self.exponents.shape != self.shape:
            raise ObjectiveError(
                f"exponents of power have shape {self.exponents.shape}, and what is raised to them has shape "
                f"{self.shape}. Pass one exponent for each source."
            )
        if not bool(np.all(np.isfinite(self.exponents))):
            raise ObjectiveError("exponents of power must be finite. Correct or leave out the others.")
        if not (self.is_atom_convex() or self.is_atom_concave()):
            raise ObjectiveError(
                "some exponents of power are between 0 and 1, where x^p is concave, and others not, where "
                "it is convex. Pass exponents that are all <= 0 or >= 1, or all from 0 to 1."
            )

    def numeric(self, values: list[Array]) -> Array:
        """Return x^p."""
        with np.errstate(all="ignore"):
            return powers(values[0], 0, self.exponents)[0]

    def sign_from_args(self) -> tuple[bool, bool]:
        """Return that it is never negative."""
        return True, False

    def is_atom_convex(self) -> bool:
        """Return whether no exponent is between 0 and 1."""
        return bool(np.all((self.exponents <= 0.0) | (self.exponents >= 1.0)))

    def is_atom_concave(self) -> bool:
        """Return whether all exponents are from 0 to 1."""
        return bool(np.all((self.exponents >= 0.0) & (self.exponents <= 1.0)))

    def is_incr(self, idx: int) -> bool:  # noqa: ARG002 - of one argument
        """Return whether no exponent is negative."""
        return bool(np.all(self.exponents >= 0.0))

    def is_decr(self, idx: int) -> bool:  # noqa: ARG002 - of one argument
        """Return whether no exponent is positive."""
        return bool(np.all(self.exponents <= 0.0))

    def get_data(self) -> list[Array]:
        """Return the exponents, for copies."""
        return [self.exponents]

    def _domain(self) -> list[Any]:
        return [self.args[0] >= 0.0]

    def _grad(self, values: list[Array]) -> list[Any]:
        slope = self.exponents * np.power(values[0], self.exponents - 1.0)
        return [type(self).elemwise_grad_to_diag(slope, self.args[0].size, self.size)]


def _cones(atom: powers_of_sources, arguments: list[Expression], solver_context: object = None) -> Any:  # noqa: ANN401, ARG001
    """Return a variable and the power cones that make it x^p."""
    (x,), p, t = arguments, atom.exponents, cp.Variable(atom.shape)
    forms: tuple[tuple[BoolArray, Callable[[IntArray], Any]], ...] = (
        (p == 0.0, lambda k: t[k] == 1.0),
        (p == 1.0, lambda k: t[k] == x[k]),
        (p < 0.0, lambda k: cp.PowCone3D(x[k], t[k], np.ones(len(k)), -p[k] / (1.0 - p[k]))),
        (p > 1.0, lambda k: cp.PowCone3D(t[k], np.ones(len(k)), x[k], 1.0 / p[k])),
        ((p > 0.0) & (p < 1.0), lambda k: cp.PowCone3D(x[k], np.ones(len(k)), t[k], p[k])),
    )
    constraints = [x >= 0.0]
    for chosen, cone in forms:
        places = np.flatnonzero(chosen)
        if len(places):
            constraints.append(cone(places))
    return t, constraints


CANON_METHODS[powers_of_sources] = _cones
POWCONE_ATOMS.append(powers_of_sources)
register(powers_of_sources, SMOOTH["powers"], lambda atom: (atom.exponents,))
