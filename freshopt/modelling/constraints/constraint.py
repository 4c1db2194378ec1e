"""`Constraint`: what a modeller may declare beside an objective.

A constraint is a frozen record of its settings. From the sources it yields its rows, which solvers and
certificates take, and the same as labelled CVXPY constraints.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from freshopt.cvx import Expression
from freshopt.modelling.sources import Sources
from freshopt.separable.rows import RowBlock


@runtime_checkable
class Constraint(Protocol):
    """Protocol of declared constraints."""

    @property
    def label(self) -> str:
        """Label under which prices and messages name it."""

    def blocks(self, sources: Sources) -> list[RowBlock]:
        """Return the constraint's rows; raise SourceDataError for unusable settings."""

    def constraints_on(self, rate: Expression, sources: Sources) -> list[Expression]:
        """Return the constraint on an affine `rate` as labelled CVXPY constraints."""
