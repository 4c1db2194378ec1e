"""`Worst`: the fairest split, by minimax or leximin."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, list_offenders, one_of, shown
from freshopt.modelling.constraints.declared_settings import checked_labels, checked_number
from freshopt.modelling.constraints.groups import Labels
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.declaration import declared_entries
from freshopt.modelling.objective import Objective, Refresh, as_objective, require_sense
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, Index
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import RowBlock


@frozen_value(repr=False)
class Worst(Objective):
    """Minimise the largest group mean of an objective (minimax).

    Of a maximised objective, maximise the smallest mean.

    Parameters
    ----------
    objective : Objective or str
        Its importance-weighted mean over each group is compared. A group of one source has that source's
        cost, whatever its importance: max_k w_k·J_k is said with `weights`.
    by : array_like of labels, shape (n,), or str
        Group of each source; None for a source of no group. "host", or the name of a column.
    then : {"stop", "next"}
        Whether groups that are not worst share what is left so that the next worst is as well off as it can
        be, and so on: the leximin solution.
    weights : mapping of group to float, optional
        The means are multiplied by these, all > 0, before they are compared; None leaves them as they are.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 3.0])
    >>> fairest = fo.Worst(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), by=["eu", "us"])
    >>> fo.solve(fo.Problem(fairest, sources, bandwidth=2.0)).rates.round(9)
    array([0.5, 1.5])

    A copy of "us" may be three times as late as one of "eu":

    >>> late = fo.Worst("delay", by=["eu", "us"], weights={"eu": 3.0, "us": 1.0})
    >>> fo.solve(fo.Problem(late, sources, bandwidth=2.0)).rates.round(9)
    array([1., 1.])
    """

    objective: Objective
    by: Labels
    then: Literal["stop", "next"] = "stop"
    weights: Mapping[Any, float] | None = None

    if TYPE_CHECKING:
        # The objective is given by name, too.
        def __init__(
            self,
            objective: Objective | str,
            by: Labels,
            then: Literal["stop", "next"] = "stop",
            weights: Mapping[Any, float] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", as_objective(self.objective))
        if isinstance(self.objective, Worst):
            raise ObjectiveError(f"the objective of Worst is {shown(self.objective)}. Pass another instance.")
        require_sense(self.objective)
        one_of(self.then, ("stop", "next"), "then of Worst", ObjectiveError)
        if self.by is not None:
            object.__setattr__(self, "by", checked_labels(self.by, "by of Worst"))
        if self.weights is not None:
            if not isinstance(self.weights, Mapping):
                raise ObjectiveError(f"weights of Worst are {shown(self.weights)}. Pass {{group: weight}}.")
            weights = {
                key: checked_number(each, f"the weight of {shown(key)} in Worst", positive=True)
                for key, each in self.weights.items()
            }
            object.__setattr__(self, "weights", weights)
            if not isinstance(self.by, str):
                labels = dict.fromkeys(() if self.by is None else np.asarray(self.by).tolist())
                self._weights_of([each for each in labels if each is not None] if labels else [None])

    @property
    def sense(self) -> Literal["minimise", "maximise"]:  # type: ignore[override]
        """Whether the worst mean is to be small or large."""
        return self.objective.sense

    @property
    def refresh(self) -> Refresh:  # type: ignore[override]
        """Refresh discipline of the objective."""
        return self.objective.refresh

    def __repr__(self) -> str:
        return f"Worst({self.objective!r}, then={self.then!r})"

    def take(self, index: Index) -> Worst:
        """Return the same for some of the sources."""
        by = self.by[index] if isinstance(self.by, np.ndarray) else self.by
        return replace(self, objective=self.objective.take(index), by=by)

    def target(self) -> Target:
        """Return the target that every group meets at level 0."""
        if self.sense == "maximise":
            return Target(self.objective, at_least=0.0, by=self.by, name="worst")
        return Target(self.objective, at_most=0.0, by=self.by, name="worst")

    def declared_level(self, rate: Expression, sources: Sources) -> tuple[Expression, list[Expression]]:
        """Return the worst mean as a CVXPY expression, with constraints."""
        level = cp.Variable(name="worst")
        target = self.target()
        (block,) = target.blocks(sources)
        entries, auxiliary = declared_entries(self.objective, rate, sources)
        means, units = [], self.units(block)
        for j in range(len(block)):
            own = block.row == j
            means.append(block.coefficient[own] @ entries[block.source[own]] / units[j])
        if self.sense == "maximise":
            return level, [*auxiliary, *(mean >= level for mean in means)]
        return level, [*auxiliary, *(mean <= level for mean in means)]

    def units(self, block: RowBlock) -> Array:
        """Return 1 over the weight of each group's mean."""
        if self.weights is None:
            return np.ones(len(block))
        return 1.0 / np.array(self._weights_of(block.keys))

    def _weights_of(self, groups: Collection[Any]) -> list[float]:
        """Return the weight of each group; raise ObjectiveError if one has none."""
        assert self.weights is not None
        missing = [key for key in groups if key not in self.weights]
        if missing:
            raise ObjectiveError(
                f"weights of Worst lack {list_offenders(map(repr, missing))}. Pass a weight for each group."
            )
        return [self.weights[key] for key in groups]

    def blocks(self, sources: Sources) -> list[RowBlock]:
        """Return a row per group, its mean at most t = 0.

        A minimised mean is ≤ t, a maximised one ≥ −t, in `units`.
        """
        return self.target().blocks(sources)
