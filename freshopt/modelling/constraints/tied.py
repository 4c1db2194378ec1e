"""`Tied`: sources that are refreshed at one rate."""

from __future__ import annotations

from typing import Literal

import numpy as np

from freshopt.cvx import Expression
from freshopt.errors import one_of
from freshopt.modelling.constraints.declared_settings import checked_labels, checked_name
from freshopt.modelling.constraints.groups import Groups, Labels
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import RowBlock


@frozen_value(repr=False)
class Tied:
    """Equal rates within each bundle of sources.

    Parameters
    ----------
    bundle : array_like of labels, shape (n,), or str
        Bundle of each source; None for a source that is free. "host", or the name of a column.
    cost : {"each", "once"}
        Whether a refresh of a bundle costs what its sources cost together, or what the dearest costs: one
        request answers for all.
    name : str
        Label in messages.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0, 5.0])
    >>> tied = fo.Tied(["map", "map", None], cost="once")
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, sources, bandwidth=2.0, constraints=[tied])
    >>> fo.solve(problem).rates.round(9)
    array([1., 1., 1.])
    """

    bundle: Labels
    cost: Literal["each", "once"] = "each"
    name: str = "tied"

    def __post_init__(self) -> None:
        one_of(self.cost, ("each", "once"), "cost of Tied")
        what = f"Tied {checked_name(self.name, 'a Tied')!r}"
        object.__setattr__(self, "bundle", checked_labels(self.bundle, f"bundle of {what}"))

    def __repr__(self) -> str:
        return f"Tied(cost={self.cost!r}, name={self.name!r})"

    @property
    def label(self) -> str:
        """Label under which messages name it."""
        return self.name

    def blocks(self, sources: Sources) -> list[RowBlock]:  # noqa: ARG002
        """Return no rows: ties make one variable of several."""
        return []

    def bundles(self, sources: Sources) -> IntArray:
        """Return each source's bundle; free sources have one each."""
        groups = Groups.of(0.0, self.bundle, sources, f"Tied {self.name!r}")
        count = len(groups.keys)
        codes = groups.codes.copy()
        free = np.flatnonzero(codes == count)
        codes[free] = count + np.arange(len(free))
        return codes

    def constraints_on(self, rate: Expression, sources: Sources) -> list[Expression]:
        """Return the ties of an affine `rate` as labelled CVXPY constraints."""
        codes = self.bundles(sources)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        leader = first[inverse]
        others = np.flatnonzero(leader != np.arange(len(codes)))
        return [(rate[others] == rate[leader[others]]).set_label(self.name)] if len(others) else []
