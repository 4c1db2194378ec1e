"""`Groups`: a label of each source, as constraints are declared by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shortened
from freshopt.modelling.constraints.declared_settings import Labels as Labels
from freshopt.modelling.constraints.declared_settings import require_groups
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray, as_number
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.label_codes import label_codes


@frozen_value()
class Groups:
    """Groups of sources that have a number each.

    - `keys`: The groups' labels; (None,) where all sources are one group.
    - `values` (G,): The number declared for each group.
    - `codes` (n,): Position of each source's group in `keys`, or G for sources of none.
    """

    keys: tuple[Any, ...]
    values: Array
    codes: IntArray

    @property
    def members(self) -> IntArray:
        """Sources that belong to a group."""
        return np.flatnonzero(self.codes < len(self.keys))

    @classmethod
    def of(cls, value: Any, by: Labels | None, sources: Sources, what: str) -> Groups:  # noqa: ANN401
        """Match declared numbers to the sources' groups.

        - `value` number, or mapping of group to number: One for all groups, or one per group; groups left out
          have none.
        - `by` array_like, shape (n,), "host": Group of each source, None for sources of no group; without it
          all sources are one group.
        - `what`: The constraint, for messages.
        - raises SourceDataError if a group is unknown, a number is none, or `by` has another length.
        """
        if by is None:
            require_groups(value, by, what)
            number = as_number(value, f"the limit of {what}", "Pass a number.")
            return cls((None,), np.array([_finite(number, what)]), np.zeros(len(sources), dtype=np.int64))
        known, place = _labels(by, sources, what)
        if not isinstance(value, Mapping):
            number = as_number(value, f"the limit of {what}", "Pass a number.")
            values = np.full(len(known), _finite(number, what))
            return cls(tuple(known), values, np.where(place < 0, len(known), place))
        position = {key: k for k, key in enumerate(known)}
        require_known(what, [key for key in value if key not in position])
        numbers = [
            as_number(v, f"the limit of {what} for {key!r}", "Pass a number.") for key, v in value.items()
        ]
        # The last code is that of no group, to which the place −1 leads.
        code_of = np.full(len(known) + 1, len(value), dtype=np.int64)
        for code, key in enumerate(value):
            code_of[position[key]] = code
        return cls(tuple(value), np.array([_finite(number, what) for number in numbers]), code_of[place])


def require_known(what: str, unknown: Sequence[Any]) -> None:
    """Raise SourceDataError if there are unknown groups."""
    if unknown:
        raise SourceDataError(
            f"{what} names unknown groups {list_offenders(map(repr, unknown))}, of which there is no source. "
            "Correct the names, or leave these groups out."
        )


def require_weighed(what: str, empty: Sequence[Any]) -> None:
    """Raise SourceDataError if there are groups of no importance."""
    if empty:
        raise SourceDataError(
            f"{what} is a mean over sources of no importance: {list_offenders(map(repr, empty))}. Give them "
            "importance, or leave the group out."
        )


def labels_of(by: Labels, sources: Sources, what: str) -> npt.NDArray[Any]:
    """Return the group label of each source, shape (n,)."""
    if isinstance(by, str) and by in sources.columns:
        return sources[by]
    if isinstance(by, str):
        if by != "host" or sources.host is None:
            reason = "the sources have no host" if by == "host" else f"there is no column {shortened(by)!r}"
            raise SourceDataError(
                f"{what} is by {shortened(by)!r} but {reason}. Pass an array, a group per source."
            )
        return sources.host
    labels = np.asarray(by)
    if labels.shape != (len(sources),):
        raise SourceDataError(
            f"by of {what} has shape {labels.shape} but there are {len(sources)} sources. Pass a group per "
            "source."
        )
    return labels


def _labels(by: Labels, sources: Sources, what: str) -> tuple[list[Any], IntArray]:
    """Return the groups, and each source's group, −1 for none."""
    try:
        return label_codes(labels_of(by, sources, what))
    except TypeError:
        raise SourceDataError(
            f"groups of {what} are of mixed kinds. Give every source a label of one kind, or None."
        ) from None


def _finite(number: float, what: str) -> float:
    if not np.isfinite(number):
        raise SourceDataError(f"the limit of {what} is {number}. Pass a finite number, or leave it out.")
    return number
