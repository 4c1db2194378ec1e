"""`LifetimeTable`: lifetimes from a solution, a mapping or a dataframe.

They are read into one checked record, for caches whose copies are refreshed on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.numerics.arrays import Array, as_vector
from freshopt.units import check_time_unit

if TYPE_CHECKING:
    from freshopt.certificates.solution import Solution


@dataclass(frozen=True, slots=True, eq=False)
class LifetimeTable:
    """Lifetimes with the attributes of sources that caches need.

    Attributes
    ----------
    lifetime : ndarray of float, shape (n,)
        T ≥ 0 in time units; infinite where a copy is never fetched again.
    names : list of str
    time_unit : str
    idle : ndarray of float, shape (n,), or None
        1/ζ, the mean time between requests, where it is known.
    stale : ndarray of float, shape (n,), or None
        Windows of stale-while-revalidate, in time units.
    """

    lifetime: Array
    names: list[str]
    time_unit: str
    idle: Array | None = None
    stale: Array | None = None

    def of_successes(self) -> LifetimeTable:
        """Raise SourceDataError: fetches on request have no chances of success."""
        raise SourceDataError(
            "lifetimes are of fetches that succeed. Leave retry_at_once (--retry-at-once) out."
        )

    def rates(self, lifetime: Array) -> Array | None:
        """Return the refreshes per time unit, 1/(T + 1/ζ), at other lifetimes."""
        if self.idle is None:
            return None
        with np.errstate(divide="ignore"):
            return 1.0 / (lifetime + self.idle)


def read_lifetimes(
    lifetimes: Solution | Mapping[Any, float] | Any,  # noqa: ANN401 - any dataframe library's frame
    time_unit: str | None = None,
) -> LifetimeTable:
    """Return lifetimes of any accepted form, checked.

    Parameters
    ----------
    lifetimes : Solution, mapping or dataframe
        A solution of copies that are refreshed on request; lifetimes by name; or a table with the columns
        source and lifetime (empty: infinite) and, where known, interval (1/rate) and stale_while_revalidate.
    time_unit : str, optional
        The unit of the lifetimes; a solution brings its own.

    Raises
    ------
    SourceDataError
        If a lifetime is negative or not a number (named), a name occurs twice, or a column is missing.
    ObjectiveError
        If the solution's copies are not refreshed on request.

    Examples
    --------
    >>> read_lifetimes({"a": 2.0, "b": float("inf")}, "hour").lifetime
    array([ 2., inf])
    """
    if time_unit is not None:
        check_time_unit(time_unit)
    if isinstance(lifetimes, Mapping):
        return _checked(list(lifetimes), list(lifetimes.values()), time_unit or "day", None, None)
    if not hasattr(lifetimes, "problem"):
        return _from_frame(lifetimes, time_unit or "day")
    sources = lifetimes.problem.sources
    if time_unit not in (None, sources.time_unit):
        raise SourceDataError(
            f"time_unit is {time_unit!r} but the solution is per {sources.time_unit}. Leave it out."
        )
    names = range(len(sources)) if sources.name is None else sources.name.tolist()
    life = lifetimes.lifetimes
    return _checked(list(names), life, sources.time_unit, 1.0 / sources.asked, sources.stale_while_revalidate)


def _from_frame(frame: Any, time_unit: str) -> LifetimeTable:  # noqa: ANN401 - any dataframe library's frame
    """Read the columns of a dataframe."""
    import narwhals

    try:
        table = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        raise SourceDataError(
            f"lifetimes are a {type(frame).__name__}. Pass a solution, a mapping of names or a dataframe."
        ) from None
    missing = [column for column in ("source", "lifetime") if column not in table.columns]
    if missing:
        raise SourceDataError(
            f"the table has no column {list_offenders(map(repr, missing))}, it has "
            f"{list_offenders(map(repr, table.columns))}. solve --refresh on-request writes them."
        )
    if int(table["source"].null_count()):
        raise SourceDataError("column 'source' has empty cells. Fill them or drop the rows.")

    def column(key: str, empty: float) -> npt.NDArray[Any] | None:
        return table[key].fill_null(empty).to_numpy() if key in table.columns else None

    names, life = table["source"].to_list(), column("lifetime", np.inf)
    interval = column("interval", np.inf)
    idle = None
    if interval is not None and life is not None:
        shown, every = as_vector(life, len(names), "lifetime"), as_vector(interval, len(names), "interval")
        with np.errstate(invalid="ignore"):
            idle = np.where(np.isfinite(shown), every - shown, np.inf)
    return _checked(names, life, time_unit, idle, column("stale_while_revalidate", 0.0))


def _checked(
    names: list[Any],
    values: npt.ArrayLike | None,
    time_unit: str,
    idle: Array | None,
    stale: npt.ArrayLike | None,
) -> LifetimeTable:
    """Check lifetimes by name."""
    n = len(names)
    if n == 0:
        raise SourceDataError("there are no lifetimes (length 0). Pass at least one source.")
    texts = [str(name) for name in names]
    twice = (
        list(dict.fromkeys(name for name in texts if texts.count(name) > 1)) if len(set(texts)) < n else []
    )
    if twice:
        raise SourceDataError(
            f"more than one lifetime for {list_offenders(map(repr, twice))}. Give one row per source."
        )
    life = as_vector([] if values is None else values, n, "lifetime")
    window = None if stale is None else as_vector(stale, n, "stale_while_revalidate")
    for what, column in (("lifetime", life), ("stale_while_revalidate", window)):
        bad = [] if column is None else np.flatnonzero(~(column >= 0.0)).tolist()
        if bad and column is not None:
            where = list_offenders(f"{texts[k]!r}: {column[k]:g}" for k in bad)
            raise SourceDataError(
                f"{what} out of range for {where}. It is a number ≥ 0. Correct or drop them."
            )
    waits = None if idle is None else np.maximum(idle, 0.0)
    return LifetimeTable(life, texts, check_time_unit(time_unit), waits, window)
