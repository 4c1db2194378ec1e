"""Atoms of users: one that CVXPY can solve and nothing here can differentiate, and one to make others of."""

from typing import Any

from cvxpy import huber
from cvxpy.atoms.elementwise.elementwise import Elementwise
from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS


class stranger(huber):  # type: ignore[misc]  # noqa: N801 - CVXPY is untyped; atoms are named like functions
    """2|x| − 1 beyond 1, x² within."""

    def __init__(self, x: Any) -> None:  # noqa: ANN401 - a CVXPY expression
        super().__init__(x, 1)


CANON_METHODS[stranger] = CANON_METHODS[huber]


class own_atom(Elementwise):  # type: ignore[misc]  # noqa: N801 - CVXPY is untyped; atoms are named like functions
    """A convex atom without curvature analysis of its own; its arguments must be affine."""

    def numeric(self, values: list[Any]) -> Any:  # noqa: ANN401
        raise NotImplementedError

    def sign_from_args(self) -> tuple[bool, bool]:
        return True, False

    def is_atom_convex(self) -> bool:
        return True

    def is_atom_concave(self) -> bool:
        return False

    def is_incr(self, idx: int) -> bool:  # noqa: ARG002
        return False

    def is_decr(self, idx: int) -> bool:  # noqa: ARG002
        return False

    def _grad(self, values: list[Any]) -> list[None]:
        return [None] * len(values)
