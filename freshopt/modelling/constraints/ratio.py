"""`Ratio`: rates of sources that are at most multiples of others'."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.cvx import Expression
from freshopt.errors import SourceDataError, list_offenders, shown
from freshopt.modelling.constraints.declared_settings import checked_name
from freshopt.modelling.constraints.written_rows import written
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray, as_vector, read_only, shape_of
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import RowBlock


@frozen_value(repr=False)
class Ratio:
    """Limit on a source's rate relative to another source's.

    ρ_k ≤ at_most_k·ρ_parent(k).

    Parameters
    ----------
    of : array_like of int, shape (n,)
        Position of the source that each is compared with; −1 for none.
    at_most : array_like, scalar or shape (n,)
        Largest ratio, > 0.
    name : str
        Label in prices and messages; the rows are ``name[source]``.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> calm = fo.Ratio(of=[-1, 0], at_most=1.0)
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, sources, bandwidth=3.0, constraints=[calm])
    >>> fo.solve(problem).rates.round(9)
    array([1.5, 1.5])
    """

    of: npt.ArrayLike
    at_most: npt.ArrayLike = 1.0
    name: str = "ratio"

    def __post_init__(self) -> None:
        what = f"Ratio {checked_name(self.name, 'a Ratio')!r}"
        if len(shape_of(self.of, f"of in {what}")) != 1 or np.asarray(self.of).dtype.kind not in "iu":
            raise SourceDataError(
                f"of in {what} is {shown(self.of)}. Pass whole numbers: the position of a source "
                "for each, -1 for none."
            )
        object.__setattr__(self, "of", read_only(np.asarray(self.of)))
        shape = shape_of(self.at_most, f"at_most of {what}")
        ratios = as_vector(self.at_most, shape[0] if shape else 1, f"at_most of {what}")
        bad = np.flatnonzero(~((ratios >= SMALLEST) & (ratios <= LARGEST))) if not shape else ()
        if len(bad):
            raise SourceDataError(f"at_most of {what} is {ratios[0]:g}. Pass a number > 0.")
        object.__setattr__(self, "at_most", ratios if shape else float(ratios[0]))

    def __repr__(self) -> str:
        return f"Ratio(name={self.name!r})"

    @property
    def label(self) -> str:
        """Label under which prices and messages name it."""
        return self.name

    def parents(self, sources: Sources) -> tuple[IntArray, Array]:
        """Return each source's parent, −1 for none, and the largest ratio."""
        n, what = len(sources), f"Ratio {self.name!r}"
        given = np.asarray(self.of)
        if given.shape != (n,) or given.dtype.kind not in "iu":
            raise SourceDataError(
                f"of in {what} must be {n} whole numbers, a position per source. Pass -1 for sources without "
                "a parent."
            )
        parent = given.astype(np.int64)
        bad = np.flatnonzero((parent < -1) | (parent >= n) | (parent == np.arange(n)))
        if len(bad):
            where = list_offenders(f"{sources.label(k)}: {parent[k]}" for k in bad)
            raise SourceDataError(
                f"{what} compares sources with positions that are none or their own: {where}. Pass "
                "those of other sources, -1 for none."
            )
        ratio = as_vector(self.at_most, n, f"at_most of {what}")
        own = np.flatnonzero((parent >= 0) & ~((ratio >= SMALLEST) & (ratio <= LARGEST)))
        if len(own):
            where = list_offenders(f"{sources.label(k)}: {ratio[k]:g}" for k in own)
            raise SourceDataError(f"at_most of {what} must be numbers > 0, got {where}. Correct them.")
        return parent, ratio

    def blocks(self, sources: Sources) -> list[RowBlock]:
        """Return one row per source with a parent."""
        parent, ratio = self.parents(sources)
        child = np.flatnonzero(parent >= 0)
        rows = np.arange(len(child))
        return [
            RowBlock.linear(
                self.name,
                tuple(sources.label(k) for k in child),
                np.concatenate((child, parent[child])),
                np.concatenate((rows, rows)),
                np.concatenate((np.ones(len(child)), -ratio[child])),
                np.zeros(len(child)),
            )
        ]

    def constraints_on(self, rate: Expression, sources: Sources) -> list[Expression]:
        """Return the ratios of an affine `rate` as labelled CVXPY constraints."""
        return [constraint for block in self.blocks(sources) for constraint in written(block, rate)]
