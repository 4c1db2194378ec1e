"""An atom that CVXPY can solve and that nothing here can differentiate: huber under another name."""

from __future__ import annotations

from typing import Any

from cvxpy import huber
from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS


class stranger(huber):  # type: ignore[misc]  # noqa: N801 - CVXPY is untyped; atoms are named like functions
    """2|x| − 1 beyond 1, x² within."""

    def __init__(self, x: Any) -> None:  # noqa: ANN401 - a CVXPY expression
        super().__init__(x, 1)


CANON_METHODS[stranger] = CANON_METHODS[huber]
