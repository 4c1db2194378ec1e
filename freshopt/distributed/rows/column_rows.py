"""`ColumnRows`: a declared constraint whose costs and groups are columns.

Over partitioned data, ``fo.Budget``, ``fo.Target`` and ``fo.Nested`` name the columns that hold the cost of a
refresh and the groups of each source. Every partition then makes its own part of the same rows, whichever
partitions the sources of a group are in. Of ``fo.Nested`` every level's limits, and its reserves, are rows by
themselves, so that a source is in one group of them at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from freshopt.errors import ObjectiveError, SolverRefusedError, SourceDataError, list_offenders
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.constraints.declared_settings import Limit
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.declared_constraints import Written
from freshopt.modelling.objective import Objective
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.short_form import NAMES
from freshopt.modelling.sources import Sources
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, IntArray
from freshopt.separable.rows import RowBlock


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRows:
    """Rows of one declared constraint over partitioned sources.

    Attributes
    ----------
    name : str
        The constraint's label.
    objective : Objective or None
        Of a target; None of a budget.
    cost : str, float or None
        Column of a budget's cost, or one cost for all; None for ``refresh_cost``.
    by : str or None
        Column of the groups; None where all sources are one group.
    declared : float or dict
        One number for all groups, or a number per group.
    keys : tuple or None
        The groups; None before they are known.
    weight : ndarray, shape (groups,)
        Σw of each group of a target.
    best : ndarray, shape (groups,)
        Mean of each group that a maximised target has without any loss, else 0.
    at_least : bool
        Whether the numbers are reserves.
    nested : str
        Label of the `fo.Nested` of which it is a level, else empty. `declared` is then of all levels.
    level : int
        Which level of it, 0 the innermost.
    """

    name: str
    objective: Objective | None
    cost: str | float | None
    by: str | None
    declared: float | dict[Any, float]
    keys: tuple[Any, ...] | None
    weight: Array
    best: Array
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
    def columns(self) -> tuple[str, ...]:
        """Columns that the rows read beside those of the sources."""
        return tuple(name for name in (self.cost, self.by) if isinstance(name, str))

    @property
    def values(self) -> Array:
        """Number declared for each group, shape (groups,)."""
        declared = self.declared
        if isinstance(declared, dict):
            return np.array([declared[key] for key in self.groups])
        return np.full(len(self), declared)

    @property
    def falling(self) -> bool:
        """Whether rows are bounded from below: reserves, maximised targets."""
        return self.at_least or (self.objective is not None and self.objective.sense == "maximise")

    @property
    def plain(self) -> bool:
        """Whether the rows limit or reserve bandwidth."""
        return self.objective is None and self.cost is None

    def block(
        self, sources: Sources, codes: IntArray, cost: Array | None, objective: Objective | None
    ) -> RowBlock:
        """Return the rows' entries of a partition's sources.

        Parameters
        ----------
        codes : ndarray of int, shape (n,)
            Position of each source's group, G for none.
        cost : ndarray, shape (n,), or None
            Of a budget.
        objective : Objective or None
            The partition's own share of a target's.
        """
        members = np.flatnonzero(codes < len(self))
        found = self.without_entries()
        if not len(members):
            return found
        row = codes[members]
        if objective is None:
            own = (sources.refresh_cost if cost is None else cost)[members]
            size = -own if self.at_least else own
            return replace(found, source=members, row=row, kind=np.zeros_like(members), coefficient=size)
        numerics, unknown = numerics_of(objective, sources)
        if numerics is None:
            raise ObjectiveError(f"Target {self.name!r}: {unknown}")
        return replace(
            found,
            source=members,
            row=row,
            kind=np.ones_like(members),
            coefficient=(1.0 / self.weight)[row],
            curves=(numerics,),
        )

    def without_entries(self) -> RowBlock:
        """Return the rows without entries: limits, labels and how they were declared."""
        values, none = self.values, np.zeros(0, dtype=np.int64)
        limits = self.best - values if self.falling else values
        direction = np.full(len(self), -1.0 if self.falling else 1.0)
        return RowBlock(
            self.name, self.groups, none, none, none, np.zeros(0), (), limits, direction, self.best
        )


def column_rows(
    constraints: Sequence[Constraint | Written], bandwidth: float | None, host_limits: Mapping[Any, float]
) -> tuple[ColumnRows, ...]:
    """Return the rows of bandwidth, host limits and declared constraints.

    Raises
    ------
    SolverRefusedError
        If a constraint is no budget, target or nested limit, or holds arrays.
    SourceDataError
        If a limit is no number, or two constraints have one label.
    """
    found: list[ColumnRows] = []
    if bandwidth is not None:
        found.append(_rows(NAMES[0], None, None, None, bandwidth))
    if host_limits:
        found.append(_rows(NAMES[1], None, None, "host", dict(host_limits)))
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


def _of(constraint: Constraint | Written) -> list[ColumnRows]:
    """Return one constraint's rows."""
    if isinstance(constraint, Budget):
        what = f"Budget {constraint.label!r}"
        cost = constraint.cost
        if not (cost is None or isinstance(cost, str | float)):
            raise _array("cost", what)
        if constraint.limit is None or constraint.at_least is not None:
            raise SourceDataError(
                f"{what} is no limit alone: over partitions use must not be met. Pass limit=."
            )
        return [_rows(constraint.label, None, cost, _column(constraint.by, what), constraint.limit)]
    if isinstance(constraint, Nested):
        return _levels(constraint)
    if isinstance(constraint, Target) and not isinstance(constraint.objective, Worst):
        what = f"Target {constraint.label!r}"
        given = constraint.at_most if constraint.at_least is None else constraint.at_least
        assert given is not None
        return [_rows(constraint.label, constraint.objective, None, _column(constraint.by, what), given)]
    label = f" {constraint.label!r}" if isinstance(constraint, Constraint) else ""
    kind = type(constraint).__name__ if isinstance(constraint, Constraint) else "a function of the rate"
    raise SolverRefusedError(
        f"{kind}{label} is not solved for over partitions. Budgets, targets and nested limits by columns "
        "are. Leave it out, or solve in memory with fo.solve."
    )


def _levels(constraint: Nested) -> list[ColumnRows]:
    """Return limits, then reserves, level by level."""
    label, found = constraint.label, []
    what = f"Nested {label!r}"
    sides = ((constraint.at_most, label, False), (constraint.at_least, f"{label} reserve", True))
    for given, name, at_least in sides:
        if not given:
            continue
        for level, labels in enumerate(constraint.levels):
            column = _column(labels, what, "a level")
            own = _rows(name, None, None, column, given)
            found.append(replace(own, keys=None, at_least=at_least, nested=label, level=level))
    return found


def _rows(
    name: str,
    objective: Objective | None,
    cost: str | float | None,
    by: str | None,
    limits: Limit,
) -> ColumnRows:
    declared = dict(limits) if isinstance(limits, Mapping) else limits
    keys = (None,) if by is None else tuple(declared) if isinstance(declared, dict) else None
    count = 0 if keys is None else len(keys)
    return ColumnRows(name, objective, cost, by, declared, keys, np.zeros(count), np.zeros(count))


def _column(by: object, what: str, setting: str = "by") -> str | None:
    """Return the name of the groups' column."""
    if by is not None and not isinstance(by, str):
        raise _array(setting, what)
    return by


def _array(setting: str, what: str) -> SolverRefusedError:
    return SolverRefusedError(
        f"{setting} of {what} is an array, and no machine need hold all sources. Pass the name of a column."
    )
