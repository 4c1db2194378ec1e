"""`Nested`: limits and reserves on a hierarchy of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.cvx import Expression
from freshopt.errors import SourceDataError, shown
from freshopt.modelling.constraints.declared_settings import checked_labels, checked_limit, checked_name
from freshopt.modelling.constraints.groups import Labels, labels_of, require_known
from freshopt.modelling.constraints.written_rows import written
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import RowBlock


@frozen_value(repr=False)
class Nested:
    """Limits and reserves on nested groups, in units of `refresh_cost`.

    Parameters
    ----------
    levels : sequence of array_like of labels, each of shape (n,), or str
        Groups of each source, innermost first: its host, its domain, its organisation. None for no group.
        "host", or names of columns.
    at_most : mapping of group to float, optional
        Bandwidth that a group may take, of any level.
    at_least : mapping of group to float, optional
        Bandwidth that is reserved for a group.
    name : str
        Label in prices and messages; the rows are ``name[group]``, reserves ``name reserve[group]``.

    Raises
    ------
    SourceDataError
        If a number is none; when a problem is made of it, if groups are not nested, unknown or in two levels.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 1.0, 1.0, 1.0])
    >>> tree = fo.Nested([["a", "b", "c", "c"], ["x", "x", "y", "y"]], at_most={"x": 1.0, "b": 0.25})
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, sources, 4.0, constraints=[tree])
    >>> fo.solve(problem).rates.round(9)
    array([0.75, 0.25, 1.5 , 1.5 ])
    """

    levels: Sequence[Labels]
    at_most: Mapping[Any, float] | None = None
    at_least: Mapping[Any, float] | None = None
    name: str = "nested"

    def __post_init__(self) -> None:
        what = f"Nested {checked_name(self.name, 'a Nested')!r}"
        if isinstance(self.levels, str) or not isinstance(self.levels, Sequence | np.ndarray):
            raise SourceDataError(f"levels of {what} are {shown(self.levels)}. Pass a list of levels.")
        levels = tuple(checked_labels(level, f"a level of {what}") for level in self.levels)
        object.__setattr__(self, "levels", levels)
        for side in ("at_most", "at_least"):
            given = getattr(self, side)
            if given is None:
                continue
            if not isinstance(given, Mapping):
                raise SourceDataError(
                    f"{side} of {what} is {shown(given)}. Pass a mapping of groups to numbers."
                )
            object.__setattr__(self, side, checked_limit(given, what, positive=True))
        if not self.at_most and not self.at_least:
            raise SourceDataError(f"{what} has neither limits nor reserves. Pass at_most= or at_least=.")

    def __repr__(self) -> str:
        limits, reserves = len(self.at_most or {}), len(self.at_least or {})
        return f"Nested({len(self.levels)} levels, {limits} limits, {reserves} reserves, name={self.label!r})"

    @property
    def label(self) -> str:
        """Label under which prices and messages name it."""
        return self.name

    def blocks(self, sources: Sources) -> list[RowBlock]:
        """Return a row per limit, then one per reserve."""
        what = f"Nested {self.name!r}"
        levels = [labels_of(level, sources, what) for level in self.levels]
        _check_nested(levels, what)
        level_of: dict[Any, int] = {}
        for depth, labels in enumerate(levels):
            for key in _known(labels):
                if key in level_of:
                    raise SourceDataError(
                        f"{what} has the group {key!r} in two levels. Give the groups of one of them other "
                        "names."
                    )
                level_of[key] = depth
        found = []
        for given, at_least in ((self.at_most, False), (self.at_least, True)):
            if given:
                found.append(self._block(given, levels, level_of, sources, at_least=at_least))
        return found

    def constraints_on(self, rate: Expression, sources: Sources) -> list[Expression]:
        """Return the limits on an affine `rate` as labelled CVXPY constraints."""
        return [constraint for block in self.blocks(sources) for constraint in written(block, rate)]

    def _block(
        self,
        given: Mapping[Any, float],
        levels: list[npt.NDArray[Any]],
        level_of: dict[Any, int],
        sources: Sources,
        *,
        at_least: bool,
    ) -> RowBlock:
        """Return the rows of limits, or of reserves, level by level."""
        what = f"Nested {self.name!r}"
        require_known(what, [key for key in given if key not in level_of])
        numbers = np.array(list(given.values()))
        place = {key: k for k, key in enumerate(given)}
        source, row = [], []
        for labels in levels:
            own = _positions(labels, place)
            members = np.flatnonzero(own >= 0)
            source.append(members)
            row.append(own[members])
        entries = np.concatenate(source)
        name = f"{self.name} reserve" if at_least else self.name
        return RowBlock.linear(
            name,
            tuple(given),
            entries,
            np.concatenate(row),
            sources.refresh_cost[entries],
            numbers,
            at_least=at_least,
        )


def _known(labels: npt.NDArray[Any]) -> list[Any]:
    """Return the groups of a level."""
    if labels.dtype == object:
        return list(dict.fromkeys(label for label in labels.tolist() if label is not None))
    known: list[Any] = np.unique(labels).tolist()
    return known


def _positions(labels: npt.NDArray[Any], place: Mapping[Any, int]) -> IntArray:
    """Return the place of each source's group, −1 of groups without one."""
    if labels.dtype == object:
        return np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    known, inverse = np.unique(labels, return_inverse=True)
    codes = np.array([place.get(key, -1) for key in known.tolist()], dtype=np.int64)
    positions: IntArray = codes[inverse]
    return positions


def _check_nested(levels: list[npt.NDArray[Any]], what: str) -> None:
    """Raise SourceDataError unless each group lies within one of the next level."""
    for inner, outer in pairwise(levels):
        parents: dict[Any, Any] = {}
        for child, parent in dict.fromkeys(zip(inner.tolist(), outer.tolist(), strict=True)):
            if child is None:
                continue
            if parents.setdefault(child, parent) != parent:
                raise SourceDataError(
                    f"{what}: group {child!r} is in {parents[child]!r} and in {parent!r}. Groups must be "
                    "nested; correct the labels, or declare two Budgets."
                )
