"""`Budget`: limit on the total cost of refreshes, in any unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from freshopt.cvx import Expression
from freshopt.errors import SourceDataError, shortened
from freshopt.modelling.constraints.declared_settings import (
    checked_costs,
    checked_labels,
    checked_limit,
    checked_name,
    require_groups,
)
from freshopt.modelling.constraints.groups import Groups, Labels
from freshopt.modelling.constraints.written_rows import written
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, as_vector
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import RowBlock


@frozen_value(repr=False)
class Budget:
    """Limit on the total cost of refreshes, Σ cost·ρ ≤ limit.

    Parameters
    ----------
    limit : float, or mapping of group to float
        Per time unit, > 0. One number with `by` holds for each group on its own.
    cost : array_like, scalar or shape (n,), optional
        What one refresh uses, ≥ 0, in the budget's own unit. Default: the sources' `refresh_cost`.
        The name of a column where `freshopt.distributed.solve` takes the budget.
    by : array_like of labels, shape (n,), or "host", optional
        Group of each source; None for a source of no group. The name of a column there.
    name : str, optional
        Label in prices and messages; "bandwidth" without `cost`, else "budget".

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 1.0])
    >>> pages = fo.Budget(2.0)
    >>> kilobytes = fo.Budget(8.0, cost=[1.0, 9.0], name="kB")
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, sources, constraints=[pages, kilobytes])
    >>> fo.solve(problem).rates.round(6)
    array([1.25, 0.75])
    """

    limit: float | Mapping[Any, float]
    cost: npt.ArrayLike | None = None
    by: Labels | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Raise SourceDataError or TypeError for unusable settings."""
        if self.name is not None:
            checked_name(self.name, "a Budget")
        what = f"Budget {self.label!r}"
        object.__setattr__(self, "limit", checked_limit(self.limit, what, positive=True))
        if self.cost is not None:
            object.__setattr__(self, "cost", checked_costs(self.cost, f"cost of {what}"))
        if self.by is not None:
            object.__setattr__(self, "by", checked_labels(self.by, f"by of {what}", columns=True))
        require_groups(self.limit, self.by, what)

    def __repr__(self) -> str:
        """Return the limit and the label."""
        limit = f"{len(self.limit)} limits" if isinstance(self.limit, Mapping) else f"{self.limit:g}"
        return f"Budget({limit}, name={self.label!r})"

    @property
    def label(self) -> str:
        """Label under which prices and messages name it."""
        return self.name or ("bandwidth" if self.cost is None else "budget")

    def blocks(self, sources: Sources) -> list[RowBlock]:
        """Return one row per group."""
        groups = Groups.of(self.limit, self.by, sources, f"Budget {self.label!r}")
        members = groups.members
        return [
            RowBlock.linear(
                self.label,
                groups.keys,
                members,
                groups.codes[members],
                self._cost(sources)[members],
                groups.values,
            )
        ]

    def constraints_on(self, rate: Expression, sources: Sources) -> list[Expression]:
        """Return the budget on an affine `rate` as labelled CVXPY constraints."""
        return [constraint for block in self.blocks(sources) for constraint in written(block, rate)]

    def _cost(self, sources: Sources) -> Array:
        if self.cost is None:
            return sources.refresh_cost
        if isinstance(self.cost, str):
            raise SourceDataError(
                f"cost of Budget {self.label!r} is the column {shortened(self.cost)!r}, and there are no "
                "columns in memory. Pass an array, or solve partitions with freshopt.distributed.solve."
            )
        return as_vector(self.cost, len(sources), f"cost of Budget {self.label!r}")
