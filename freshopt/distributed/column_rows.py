"""`ColumnRows`: limits or reserves of bandwidth whose groups are a column.

Over partitioned data, ``fo.Budget`` and ``fo.Nested`` name the columns that hold the groups of each source.
Of ``fo.Nested`` every level's limits, and its reserves, are rows by themselves, so that a source is in one
group of them at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from freshopt.errors import SolverRefusedError, SourceDataError, list_offenders
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.constraints.declared_settings import Limit
from freshopt.modelling.constraints.groups import require_known
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.declared_constraints import Written
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.short_form import NAMES
from freshopt.modelling.spend import Spend
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, IntArray
from freshopt.separable.rows import RowBlock

_REMEDY = (
    "Limits and reserves of bandwidth are, by groups that are nested or disjoint. Leave it out, or solve in "
    "memory with fo.solve."
)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRows:
    """Limits or reserves of one declared constraint, over partitioned sources.

    - `name`: The constraint's label.
    - `by`: Column of the groups; None where all sources are one group.
    - `declared`: One number for all groups, or a number per group.
    - `keys`: The groups; None before they are known.
    - `at_least`: Whether the numbers are reserves.
    - `nested`: Label of the `fo.Nested` of which it is a level, else empty. `declared` is then of all levels.
    - `level`: Which level of it, 0 the innermost.
    """

    name: str
    by: str | None
    declared: float | dict[Any, float]
    keys: tuple[Any, ...] | None
    at_least: bool = False
    nested: str = ""
    level: int = 0

    def __len__(self) -> int:
        """Return the number of rows, once the groups are known."""
        return len(self.groups)

    @property
    def groups(self) -> tuple[Any, ...]:
        """Groups, once they are known."""
        if self.keys is None:
            raise ValueError(f"the groups of {self.name!r} are not known yet. Add them up first.")
        return self.keys

    @property
    def values(self) -> Array:
        """Number declared for each group, shape (groups,)."""
        declared = self.declared
        if isinstance(declared, dict):
            return np.array([declared[key] for key in self.groups])
        return np.full(len(self), declared)

    @property
    def of_hosts(self) -> bool:
        """Whether these are the limits of hosts."""
        return self.name == NAMES[1] and self.by == "host" and not self.nested

    def with_keys(self, present: Iterable[Any]) -> ColumnRows:
        """Return the rows with their groups, given those that a column has."""
        if self.keys is not None:
            return self
        known = set(present)
        if self.nested and isinstance(self.declared, dict):
            return replace(self, keys=tuple(key for key in self.declared if key in known))
        return replace(self, keys=tuple(sorted(known)))

    def block(self, codes: IntArray) -> RowBlock:
        """Return the rows over cells, ±1 where one is in.

        - `codes` (cells,): Position of each cell's group, G for none.
        """
        members = np.flatnonzero(codes < len(self))
        own, ones = codes[members], np.ones(len(members))
        return RowBlock.linear(
            self.name, self.groups, members, own, ones, self.values, at_least=self.at_least
        )


def require_objective(objective: Objective) -> None:
    """Raise SolverRefusedError for an objective that partitions cannot be solved for."""
    if objective.refresh is Refresh.ON_REQUEST:
        raise SolverRefusedError(
            f"{objective!r} is not solved for over partitions, which know no requests. Use fo.solve."
        )
    if isinstance(objective, Spend | Worst):
        raise SolverRefusedError(
            f"{objective!r} is not solved for over partitions. Pass another objective, or solve in memory "
            "with fo.solve."
        )


def column_rows(
    constraints: Sequence[Constraint | Written], bandwidth: float | None, host_limits: Mapping[Any, float]
) -> tuple[ColumnRows, ...]:
    """Return the rows of bandwidth, host limits and declared constraints.

    - raises SolverRefusedError if a constraint is no limit or reserve of bandwidth, or holds arrays.
    - raises SourceDataError if a limit is no number, or two constraints have one label.
    """
    found: list[ColumnRows] = []
    if bandwidth is not None:
        found.append(_rows(NAMES[0], None, bandwidth))
    if host_limits:
        found.append(_rows(NAMES[1], "host", dict(host_limits)))
    names = [one.name for one in found]
    for constraint in constraints:
        own = _of(constraint)
        names += dict.fromkeys(one.name for one in own)
        found += own
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceDataError(
            f"two constraints are named {list_offenders(map(repr, twice))}. Pass name= to one."
        )
    return tuple(found)


def resolved(
    constraints: Sequence[ColumnRows], present: Sequence[Sequence[Iterable[Any]]]
) -> tuple[ColumnRows, ...]:
    """Return the constraints with their groups; levels may have none.

    - `present` sequence of sequence of iterable: The groups that each partition has, constraint by
      constraint.
    - raises SourceDataError if a group is unknown or in two levels, or a column has no values.
    """
    found = []
    for k, one in enumerate(constraints):
        known = {key for part in present for key in part[k]}
        if not known and one.keys is None and not one.nested:
            raise SourceDataError(f"Budget {one.name!r} is by {one.by!r}, a column without values. Fill it.")
        complete = one.with_keys(known)
        absent = [key for key in complete.groups if key not in known]
        if absent and one.of_hosts:
            unknown = list_offenders(map(repr, absent))
            raise SourceDataError(f"host_limits name unknown hosts {unknown}. Correct the names.")
        require_known(f"Budget {one.name!r}", absent)
        found.append(complete)
    for name in dict.fromkeys(one.name for one in found if one.nested):
        _require_levels([one for one in found if one.name == name])
    return tuple(found)


def declared_order(constraints: Sequence[ColumnRows]) -> IntArray:
    """Return the rows of all levels in order of declaration, shape (m,)."""
    found: list[IntArray] = []
    first = 0
    for _, same in groupby(constraints, key=lambda one: (one.nested, one.name)):
        parts = list(same)
        keys = [key for one in parts for key in one.groups]
        places = np.arange(first, first + len(keys))
        if parts[0].nested and isinstance(parts[0].declared, dict):
            position = {key: k for k, key in enumerate(parts[0].declared)}
            places = places[np.argsort([position[key] for key in keys], kind="stable")]
        found.append(places)
        first += len(keys)
    return np.concatenate(found)


def _require_levels(levels: list[ColumnRows]) -> None:
    """Raise SourceDataError unless each declared group is in one level."""
    what, declared = f"Nested {levels[0].nested!r}", levels[0].declared
    assert isinstance(declared, dict)
    times = Counter(key for one in levels for key in one.groups)
    require_known(what, [key for key in declared if key not in times])
    twice = [key for key in declared if times[key] > 1]
    if twice:
        raise SourceDataError(
            f"{what} has the group {twice[0]!r} in two levels. Give the groups of one of them other names."
        )


def _of(constraint: Constraint | Written) -> list[ColumnRows]:
    """Return one constraint's rows."""
    if isinstance(constraint, Nested):
        return _levels(constraint)
    label = f" {constraint.label!r}" if isinstance(constraint, Constraint) else ""
    kind = type(constraint).__name__ if isinstance(constraint, Constraint) else "a function of the rate"
    if not isinstance(constraint, Budget) or constraint.cost is not None:
        own = " with a cost of its own" if isinstance(constraint, Budget) else ""
        raise SolverRefusedError(f"{kind}{label}{own} is not solved for over partitions. {_REMEDY}")
    what = f"Budget {constraint.label!r}"
    if constraint.limit is None or constraint.at_least is not None:
        raise SourceDataError(f"{what} is no limit alone: over partitions use must not be met. Pass limit=.")
    return [_rows(constraint.label, _column(constraint.by, what), constraint.limit)]


def _levels(constraint: Nested) -> list[ColumnRows]:
    """Return limits, then reserves, level by level."""
    label, found = constraint.label, []
    what = f"Nested {label!r}"
    sides = ((constraint.at_most, label, False), (constraint.at_least, f"{label} reserve", True))
    for given, name, at_least in sides:
        if not given:
            continue
        for level, labels in enumerate(constraint.levels):
            own = _rows(name, _column(labels, what, "a level"), given)
            found.append(replace(own, keys=None, at_least=at_least, nested=label, level=level))
    return found


def _rows(name: str, by: str | None, limits: Limit) -> ColumnRows:
    declared = dict(limits) if isinstance(limits, Mapping) else limits
    keys = (None,) if by is None else tuple(declared) if isinstance(declared, dict) else None
    return ColumnRows(name, by, declared, keys)


def _column(by: object, what: str, setting: str = "by") -> str | None:
    """Return the name of the groups' column."""
    if by is not None and not isinstance(by, str):
        raise SolverRefusedError(
            f"{setting} of {what} is an array, and no machine need hold all sources. "
            "Pass the name of a column."
        )
    return by
