"""`Worst`: the fairest split, by minimax or leximin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, one_of, shown
from freshopt.modelling.constraints.declared_settings import checked_labels
from freshopt.modelling.constraints.groups import Labels
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.declaration import declared_entries
from freshopt.modelling.objective import Objective, Refresh, as_objective, require_sense
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Index
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
        cost, whatever its importance: for max_k w_k·J_k the objective has w_k in its own formula.
    by : array_like of labels, shape (n,), or "host"
        Group of each source; None for a source of no group.
    then : {"stop", "next"}
        Whether groups that are not worst share what is left so that the next worst is as well off as it can
        be, and so on: the leximin solution.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 3.0])
    >>> fairest = fo.Worst(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), by=["eu", "us"])
    >>> fo.solve(fo.Problem(fairest, sources, bandwidth=2.0)).rates.round(9)
    array([0.5, 1.5])
    """

    objective: Objective
    by: Labels
    then: Literal["stop", "next"] = "stop"

    if TYPE_CHECKING:
        # The objective is given by name, too.
        def __init__(
            self, objective: Objective | str, by: Labels, then: Literal["stop", "next"] = "stop"
        ) -> None: ...

    def __post_init__(self) -> None:
        """Raise ObjectiveError unless the settings are of their kinds."""
        object.__setattr__(self, "objective", as_objective(self.objective))
        if isinstance(self.objective, Worst):
            raise ObjectiveError(f"the objective of Worst is {shown(self.objective)}. Pass another instance.")
        require_sense(self.objective)
        one_of(self.then, ("stop", "next"), "then of Worst", ObjectiveError)
        if self.by is not None:
            object.__setattr__(self, "by", checked_labels(self.by, "by of Worst"))

    @property
    def sense(self) -> Literal["minimise", "maximise"]:  # type: ignore[override]
        """Whether the worst mean is to be small or large."""
        return self.objective.sense

    @property
    def refresh(self) -> Refresh:  # type: ignore[override]
        """Refresh discipline of the objective."""
        return self.objective.refresh

    def __repr__(self) -> str:
        """Return the objective and what follows the worst."""
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
        means = []
        for j in range(len(block)):
            own = block.row == j
            means.append(block.coefficient[own] @ entries[block.source[own]])
        if self.sense == "maximise":
            return level, [*auxiliary, *(mean >= level for mean in means)]
        return level, [*auxiliary, *(mean <= level for mean in means)]

    def blocks(self, sources: Sources) -> list[RowBlock]:
        """Return a row per group, its mean at most t = 0.

        A minimised mean is ≤ t, a maximised one ≥ −t.
        """
        return self.target().blocks(sources)
