"""`Budget`: bounds on the total cost of refreshes, in any unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.cvx import Expression
from freshopt.errors import SourceDataError
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

# Ways to bound the use.
_SIDES = ("limit", "at_least", "exactly")


@frozen_value(repr=False)
class Budget:
    """Limit on the total cost of refreshes, Σ cost·ρ ≤ limit.

    Parameters
    ----------
    limit : float, or mapping of group to float, optional
        Per time unit, > 0. One number with `by` holds for each group on its own.
    cost : array_like, scalar or shape (n,), or str, optional
        What one refresh uses, ≥ 0, in the budget's own unit; the name of a column that has it. Default: the
        sources' `refresh_cost`.
    by : array_like of labels, shape (n,), or str, optional
        Group of each source; None for a source of no group. "host", or the name of a column.
    name : str, optional
        Label in prices and messages; "bandwidth" without `cost`, else "budget".
    at_least : float, or mapping of group to float, optional
        What must be used, > 0; labelled "name reserve".
    exactly : float, or mapping of group to float, optional
        Both in one.

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

    limit: float | Mapping[Any, float] | None = None
    cost: npt.ArrayLike | None = None
    by: Labels | None = None
    name: str | None = None
    at_least: float | Mapping[Any, float] | None = None
    exactly: float | Mapping[Any, float] | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            checked_name(self.name, "a Budget")
        what = f"Budget {self.label!r}"
        for side in _SIDES:
            if getattr(self, side) is not None:
                object.__setattr__(self, side, checked_limit(getattr(self, side), what, positive=True))
        if self.exactly is not None and (self.limit is not None or self.at_least is not None):
            raise SourceDataError(f"{what} has exactly= and another bound. Pass exactly= alone.")
        if self.cost is not None:
            object.__setattr__(self, "cost", checked_costs(self.cost, f"cost of {what}"))
        if self.by is not None:
            object.__setattr__(self, "by", checked_labels(self.by, f"by of {what}"))
        for side in _SIDES:
            require_groups(getattr(self, side), self.by, what)

    def __repr__(self) -> str:
        given = ((side, getattr(self, side)) for side in _SIDES)
        sides = [
            ("" if side == "limit" else f"{side}=")
            + (f"{len(v)} limits" if isinstance(v, Mapping) else f"{v:g}")
            for side, v in given
            if v is not None
        ]
        return f"Budget({', '.join([*sides, f'name={self.label!r}'])})"

    @property
    def label(self) -> str:
        """Label under which prices and messages name it."""
        return self.name or ("bandwidth" if self.cost is None else "budget")

    @property
    def bounded(self) -> bool:
        """Whether there is any bound."""
        return any(getattr(self, side) is not None for side in _SIDES)

    def blocks(self, sources: Sources) -> list[RowBlock]:
        """Return one row per group and bound."""
        if not self.bounded:
            raise SourceDataError(f"{self._what} bounds nothing. Pass limit=, or price it with fo.Priced.")
        found = []
        for value, name, reserve in (
            (self.limit if self.exactly is None else self.exactly, self.label, False),
            (self.at_least if self.exactly is None else self.exactly, f"{self.label} reserve", True),
        ):
            if value is not None:
                found.append(
                    self._block(
                        Groups.of(value, self.by, sources, self._what), name, sources, reserve=reserve
                    )
                )
        return found

    def used(self, sources: Sources) -> RowBlock:
        """Return what each group uses, as rows without a limit."""
        return self._block(Groups.of(0.0, self.by, sources, self._what), self.label, sources, reserve=False)

    def bounds(self, keys: Sequence[Any]) -> tuple[Array, Array]:
        """Return the least and the most that groups may use."""
        found = []
        for value, none in ((self.at_least, 0.0), (self.limit, np.inf)):
            if isinstance(value, Mapping):
                found.append(np.array([float(value.get(key, none)) for key in keys]))
            else:
                found.append(np.full(len(keys), none if value is None else value))
        return found[0], found[1]

    def constraints_on(self, rate: Expression, sources: Sources) -> list[Expression]:
        """Return the budget on an affine `rate` as labelled CVXPY constraints."""
        return [constraint for block in self.blocks(sources) for constraint in written(block, rate)]

    @property
    def _what(self) -> str:
        return f"Budget {self.label!r}"

    def _block(self, groups: Groups, name: str, sources: Sources, *, reserve: bool) -> RowBlock:
        members = groups.members
        codes, cost = groups.codes[members], self._cost(sources)[members]
        return RowBlock.linear(name, groups.keys, members, codes, cost, groups.values, at_least=reserve)

    def _cost(self, sources: Sources) -> Array:
        if self.cost is None:
            return sources.refresh_cost
        given = sources[self.cost] if isinstance(self.cost, str) else self.cost
        return as_vector(given, len(sources), f"cost of Budget {self.label!r}")
