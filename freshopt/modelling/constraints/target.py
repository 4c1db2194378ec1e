"""`Target`: a bound on a declared objective's mean over groups of sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.cvx import Expression
from freshopt.errors import ObjectiveError
from freshopt.modelling.constraints.declared_settings import (
    checked_labels,
    checked_limit,
    checked_name,
    require_groups,
)
from freshopt.modelling.constraints.groups import Groups, Labels, require_weighed
from freshopt.modelling.constraints.written_rows import written
from freshopt.modelling.declaration import declared_entries
from freshopt.modelling.objective import Objective, as_objective, require_sense
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, as_float64
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import RowBlock


@frozen_value(repr=False)
class Target:
    """Bound on an objective's importance-weighted mean over a group.

    Parameters
    ----------
    objective : Objective or str
        Any declared one; it is the mean Σ w_k(·)/Σ w_k that is bounded.
    at_least : float, or mapping of group to float, optional
        For a maximised objective, such as `BinaryFreshness`: the least mean.
    at_most : float, or mapping of group to float, optional
        For a minimised objective, such as `HarmonicStaleness`: the largest mean.
    by : array_like of labels, shape (n,), or str, optional
        Group of each source; None for a source of no group. "host", or the name of a column.
    name : str, optional
        Label in prices and messages; the objective's class by default.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> fresh = fo.Target(fo.problems.BinaryFreshness(fo.Refresh.POISSON), at_least=0.5)
    >>> cheapest = fo.solve(fo.Problem(fo.Spend(), sources, constraints=[fresh]))
    >>> round(cheapest.value, 9)
    4.0
    """

    objective: Objective
    at_least: float | Mapping[Any, float] | None = None
    at_most: float | Mapping[Any, float] | None = None
    by: Labels | None = None
    name: str | None = None

    if TYPE_CHECKING:
        # The objective is given by name, too.
        def __init__(
            self,
            objective: Objective | str,
            at_least: float | Mapping[Any, float] | None = None,
            at_most: float | Mapping[Any, float] | None = None,
            by: Labels | None = None,
            name: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", as_objective(self.objective))
        require_sense(self.objective)
        maximised = self.objective.sense == "maximise"
        given, other = (self.at_least, self.at_most) if maximised else (self.at_most, self.at_least)
        if given is None or other is not None:
            right = "at_least" if maximised else "at_most"
            raise ObjectiveError(
                f"Target of {self.objective!r}, which is {self.objective.sense}d, takes {right}=: the other "
                f"side is not convex. Pass {right}=."
            )
        if self.name is not None:
            checked_name(self.name, "a Target")
        what = f"Target {self.label!r}"
        side = "at_least" if maximised else "at_most"
        object.__setattr__(self, side, checked_limit(given, what, positive=False))
        if self.by is not None:
            object.__setattr__(self, "by", checked_labels(self.by, f"by of {what}"))
        require_groups(given, self.by, what)

    def __repr__(self) -> str:
        side = "at_least" if self.at_most is None else "at_most"
        value = getattr(self, side)
        shown = f"{len(value)} limits" if isinstance(value, Mapping) else f"{value!r}"
        return f"Target({self.objective!r}, {side}={shown}, name={self.label!r})"

    @property
    def label(self) -> str:
        """Label under which prices and messages name it."""
        return self.name or type(self.objective).__name__

    def blocks(self, sources: Sources) -> list[RowBlock]:
        """Return one row per group, a limit on its mean loss."""
        groups, coefficient, offset = self._means(sources)
        numerics, unknown = numerics_of(self.objective, sources)
        if numerics is None:
            raise ObjectiveError(f"Target {self.label!r}: {unknown}")
        maximised = self.objective.sense == "maximise"
        direction = np.full(len(groups.keys), -1.0 if maximised else 1.0)
        limits = offset - groups.values if maximised else groups.values
        members = groups.members
        codes = groups.codes[members]
        kind, weight = np.ones(len(members), dtype=np.int64), coefficient[codes]
        return [
            RowBlock(
                self.label, groups.keys, members, codes, kind, weight, (numerics,), limits, direction, offset
            )
        ]

    def constraints_on(self, rate: Expression, sources: Sources) -> list[Expression]:
        """Return the target on an affine `rate` as labelled CVXPY constraints."""
        groups, coefficient, _ = self._means(sources)
        entries, auxiliary = declared_entries(self.objective, rate, sources)
        members = groups.members
        codes = groups.codes[members]
        at_least = self.objective.sense == "maximise"
        block = RowBlock.linear(
            self.label, groups.keys, members, codes, coefficient[codes], groups.values, at_least=at_least
        )
        return [*auxiliary, *written(block, rate, entries)]

    def _means(self, sources: Sources) -> tuple[Groups, Array, Array]:
        """Return the groups, 1/Σw of each, and its lossless mean."""
        value = self.at_most if self.at_least is None else self.at_least
        groups = Groups.of(value, self.by, sources, f"Target {self.label!r}")
        count = len(groups.keys)
        weight = np.bincount(
            groups.codes, weights=as_float64(sources.column("importance")), minlength=count + 1
        )
        empty = [groups.keys[k] for k in np.flatnonzero(weight[:count] == 0.0)]
        require_weighed(f"Target {self.label!r}", empty)
        offset = np.zeros(count)
        if self.objective.sense == "maximise":
            order = np.argsort(groups.codes, kind="stable")
            first = np.searchsorted(groups.codes[order], np.arange(count + 1))
            for k in range(count):
                own = sources.take(order[first[k] : first[k + 1]])
                offset[k] = self.objective.value_from_cost(0.0, own) / weight[k]
        return groups, 1.0 / weight[:count], offset
