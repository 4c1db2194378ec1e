"""`Declared`: rows, bounds and ties of declared constraints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from freshopt.cvx import Expression, cp, quiet
from freshopt.errors import ObjectiveError, SourceDataError, list_offenders, shortened
from freshopt.modelling.constraints.charged_once import as_charged
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.constraints.priced import Priced
from freshopt.modelling.constraints.tied import Tied
from freshopt.modelling.constraints.usages import Usage
from freshopt.modelling.declaration import refuse_array
from freshopt.modelling.row_recognition import UnknownCouplingError, recognise
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.separable.bundles import Bundles
from freshopt.separable.rows import RATE, RowBlock

Written: TypeAlias = Callable[[Expression], Sequence[Expression]]


@dataclass(frozen=True, slots=True, eq=False)
class Declared:
    """Rows, bounds and ties of declared constraints.

    - `origins`: The constraint of each block, by position.
    - `lower`, `upper` (n,): Bounds that rows of a single source are.
    - `once`: Whether a bundle's refresh costs what its dearest source's does.
    - `couplings`: Why constraints have no rows, one sentence each.
    - `usages`: What is priced.
    """

    blocks: tuple[RowBlock, ...]
    origins: tuple[int, ...]
    lower: Array
    upper: Array
    bundles: Bundles | None
    once: bool
    couplings: tuple[str, ...]
    usages: tuple[Usage, ...]

    @property
    def bounded(self) -> bool:
        """Whether there are bounds among the constraints."""
        return bool(np.any(self.lower > 0.0) or np.any(np.isfinite(self.upper)))


def as_constraints(given: object) -> tuple[Constraint | Written, ...]:
    """Return declared constraints as a tuple; raise TypeError for what is none."""
    if given is None or (isinstance(given, tuple) and not given):
        return ()
    many = (given,) if callable(given) or isinstance(given, Constraint) else given
    if isinstance(many, str) or not isinstance(many, Iterable):
        raise TypeError(
            f"constraints are {shortened(repr(given))}. Pass a list of them, or a function of the rate."
        )
    constraints = tuple(many)
    for one in constraints:
        if isinstance(one, type) or not (isinstance(one, Constraint) or callable(one)):
            raise TypeError(
                f"{shortened(repr(one))} is no constraint. Pass fo.Budget(...), fo.Target(...) and the like, "
                "or a function of the rate that returns CVXPY constraints."
            )
    return constraints


def declared(constraints: tuple[Constraint | Written, ...], sources: Sources) -> Declared:
    """Return the rows, bounds and ties of constraints.

    - raises SourceDataError if two constraints have one label, or settings do not fit the sources.
    - raises ObjectiveError if a constraint is not convex, or ties are declared twice.
    """
    blocks: list[RowBlock] = []
    origins: list[int] = []
    couplings: list[str] = []
    lower, upper = np.zeros(len(sources)), np.full(len(sources), np.inf)
    ties = [one for one in constraints if isinstance(one, Tied)]
    if len(ties) > 1:
        raise ObjectiveError("ties are declared twice. Pass one fo.Tied with all bundles.")
    written = 0
    for place, one in enumerate(constraints):
        if isinstance(one, Constraint):
            found = one.blocks(sources)
        else:
            found = []
            rate = cp.Variable(len(sources), nonneg=True, name="rate")
            made = labelled(one, rate, written)
            written += len(made)
            for block in _recognised(made, rate, sources, couplings):
                single, rest = _single_sources(block)
                if len(single.keys):
                    _tighten(single, lower, upper)
                if len(rest.keys):
                    found.append(rest)
        blocks += found
        origins += [place] * len(found)
    usages = tuple(one.usage(sources) for one in as_charged(constraints, sources) if isinstance(one, Priced))
    require_labels([*(block.name for block in blocks), *(own.name for own in usages)])
    bundles = Bundles.of(ties[0].bundles(sources)) if ties else None
    once = bool(ties) and ties[0].cost == "once"
    if usages and couplings:
        raise ObjectiveError(
            f"{usages[0].name} is not solved beside rows that are no sums: {couplings[0]} Drop one of them."
        )
    return Declared(tuple(blocks), tuple(origins), lower, upper, bundles, once, tuple(couplings), usages)


def require_labels(labels: Sequence[str]) -> None:
    """Raise SourceDataError if two constraints, or rows, have one label."""
    if len(set(labels)) == len(labels):
        return
    counts = Counter(labels)
    twice = sorted({label for label in labels if counts[label] > 1})
    raise SourceDataError(
        f"two constraints are named {list_offenders(map(repr, twice))}. Pass name= to one, or set_label in a "
        "function of the rate."
    )


def labelled(function: Written, rate: Expression, before: int = 0) -> list[Expression]:
    """Return the labelled CVXPY constraints of a function of the rate.

    Those without a label have numbers, which go on from the constraints `before` of other functions.
    """
    with quiet:
        try:
            made = function(rate)
        except TypeError as error:
            refuse_array(error, "constraints(rate)")
            raise
    if isinstance(made, cp.constraints.constraint.Constraint):
        made = [made]
    if isinstance(made, str) or not isinstance(made, Iterable):
        raise ObjectiveError(f"constraints(rate) returned {made!r}. Return a list of CVXPY constraints.")
    found = []
    for k, constraint in enumerate(made, start=before + 1):
        if not isinstance(constraint, cp.constraints.constraint.Constraint):
            raise ObjectiveError(
                f"constraints(rate) returned {constraint!r}, which is no CVXPY constraint. Drop it."
            )
        found.append(constraint if constraint.label else constraint.set_label(f"constraint {k}"))
    return found


def _recognised(
    made: list[Expression], rate: Expression, sources: Sources, couplings: list[str]
) -> list[RowBlock]:
    """Return the rows of CVXPY constraints on the rate; extend `couplings`."""
    blocks: list[RowBlock] = []
    for constraint in made:
        try:
            blocks += recognise(constraint, rate, sources, constraint.label)
        except UnknownCouplingError as error:
            couplings.append(str(error))
    return blocks


def _single_sources(block: RowBlock) -> tuple[RowBlock, RowBlock]:
    """Return the rows that bound a single source's rate, and the others."""
    counts = np.bincount(block.row, minlength=len(block))
    curved = np.bincount(block.row, weights=block.kind != RATE, minlength=len(block)) > 0.0
    single: IntArray = np.flatnonzero((counts == 1) & ~curved)
    return block.take(single), block.take(np.setdiff1d(np.arange(len(block)), single))


def _tighten(block: RowBlock, lower: Array, upper: Array) -> None:
    """Tighten bounds, in place, by rows of single sources."""
    bound = block.limits[block.row] / block.coefficient
    above = block.coefficient > 0.0
    np.minimum.at(upper, block.source[above], bound[above])
    np.maximum.at(lower, block.source[~above], bound[~above])
