"""`Sources`: change rates, importances and bounds of n sources.

They are validated once and frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shortened
from freshopt.frames import POLARS, framed
from freshopt.moved import Renamed, keywords
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    BoolArray,
    as_column,
    as_float64,
    as_objects,
    as_vector,
    chunks,
    extremes,
    is_listed_text,
    is_scalar,
    label_array,
    once,
    read_only,
    repeated,
)
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.units import check_time_unit, crossed_bounds

if TYPE_CHECKING:
    import polars


# Columns beside the names.
COLUMNS = (
    "change_rate",
    "importance",
    "host",
    "signalled",
    "min_rate",
    "max_rate",
    "refresh_cost",
    "request_rate",
    "stale_while_revalidate",
    "success",
    "changed_cost",
)
# These columns are kept in float32 if given so.
NARROW = ("change_rate", "importance")
# A source whose fetches succeed less often is as good as gone.
RAREST = 1e-9


@keywords(name="names")
@frozen_value(init=False, repr=False)
class Sources:
    """Sources of a problem, in the caller's order.

    Parameters
    ----------
    change_rate : array_like, scalar or shape (n,)
        Poisson rate of changes Δ > 0, per time unit.
    importance : array_like, optional
        Weight w ≥ 0 of a source in the objective. Default: `request_rate` if that is given, else 1.
    names : sequence of str, optional
        Unique names, used in messages and tables. Default: the position.
    host : sequence, optional
        Group label of each source, for limits on a host's total rate.
    signalled : array_like of bool, optional
        Whether the source announces each of its changes.
    min_rate, max_rate : array_like, optional
        Bounds on the refresh rate, per time unit: 0 ≤ min_rate ≤ max_rate ≤ inf.
    refresh_cost : array_like, optional
        Bandwidth that one refresh uses, > 0. Default 1.
    time_unit : str
        The clock of every rate here: "second", "minute", "hour", "day" or "week".
    request_rate : array_like, optional
        Poisson rate of requests ζ > 0, per time unit, of copies that are refreshed on request
        (`Refresh.ON_REQUEST`).
    stale_while_revalidate : array_like, optional
        Window σ ≥ 0 of such copies, in time units, or inf: a request that finds its copy expired by at most σ
        is served it as it is and has it fetched; later ones wait for the fetch. Default: none.
    success : array_like, optional
        Chance s that a fetch succeeds, in (0, 1], independently of all others. Rates are then attempts, those
        that fail included, and so are bounds and bandwidth.
    changed_cost : array_like, optional
        Bandwidth that a fetch uses besides `refresh_cost` if the source has changed, ≥ 0. Default 0.

    Attributes
    ----------
    change_rate, importance, min_rate, max_rate, refresh_cost : ndarray of float, shape (n,)
        Read-only views; a scalar argument has stride 0. A `change_rate` or `importance` given in float32 is
        kept so, without a copy (`column`), and widened anew on each access.
    signalled : ndarray of bool, shape (n,)
    names, host : ndarray of shape (n,), or None
    request_rate, stale_while_revalidate, success, changed_cost : ndarray of float, shape (n,), or None
        Windows and costs that are all 0 are None.

    Raises
    ------
    SourceDataError
        If a value is not a number, outside 0 or 1e-100..1e100, or the lengths differ; names the source.

    Notes
    -----
    The model of [1]_ section 3 and [2]_ section 3: changes are a Poisson process of rate Δ per source.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019.
    .. [2] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6067.

    Examples
    --------
    >>> sources = Sources(change_rate=[0.5, 2.0], importance=[1.0, 3.0], names=["a", "b"])
    >>> sources
    Sources(n=2, change_rate=0.5..2 per day, importance=1..3)
    """

    _change_rate: npt.NDArray[Any]
    _importance: npt.NDArray[Any]
    names: npt.NDArray[Any] | None
    host: npt.NDArray[Any] | None
    signalled: BoolArray
    min_rate: Array
    max_rate: Array
    refresh_cost: Array
    time_unit: str
    request_rate: Array | None
    stale_while_revalidate: Array | None
    success: Array | None
    changed_cost: Array | None
    library: str = field(init=False)
    name = Renamed("names")

    def __init__(
        self,
        change_rate: npt.ArrayLike,
        importance: npt.ArrayLike | None = None,
        names: npt.ArrayLike | None = None,
        host: npt.ArrayLike | None = None,
        signalled: npt.ArrayLike = False,
        min_rate: npt.ArrayLike = 0.0,
        max_rate: npt.ArrayLike = np.inf,
        refresh_cost: npt.ArrayLike = 1.0,
        time_unit: str = "day",
        request_rate: npt.ArrayLike | None = None,
        stale_while_revalidate: npt.ArrayLike | None = None,
        success: npt.ArrayLike | None = None,
        changed_cost: npt.ArrayLike = 0.0,
    ) -> None:
        if importance is None:
            importance = 1.0 if request_rate is None else request_rate
        if stale_while_revalidate is not None and request_rate is None:
            raise SourceDataError("stale_while_revalidate needs request rates. Pass request_rate= too.")
        optional = {
            "request_rate": request_rate,
            "stale_while_revalidate": stale_while_revalidate,
            "success": success,
        }
        asked = {key: value for key, value in optional.items() if value is not None}
        numbers: dict[str, npt.ArrayLike] = {
            "change_rate": change_rate,
            **asked,
            "importance": importance,
            "min_rate": min_rate,
            "max_rate": max_rate,
            "refresh_cost": refresh_cost,
            "changed_cost": changed_cost,
        }
        n = _length({**numbers, "names": names, "host": host, "signalled": signalled})
        labels = _labels(names, n, "names")
        store = partial(object.__setattr__, self)
        store("time_unit", check_time_unit(time_unit))
        store("library", POLARS)
        store("names", labels)
        store("host", _labels(host, n, "host"))
        for key in optional:
            store(key, None)
        store("signalled", _flags(signalled, n))
        for key, value in numbers.items():
            store(f"_{key}" if key in NARROW else key, as_column(value, n, key, narrow=key in NARROW))
        _require_unique(labels)
        for key in ("change_rate", "refresh_cost", *(["request_rate"] if request_rate is not None else [])):
            self._require(key, lambda x: (x >= SMALLEST) & (x <= LARGEST), "must be > 0")
        if self.success is not None:
            span = (RAREST, 1.0)
            self._require("success", lambda x: (x >= RAREST) & (x <= 1.0), "must be > 0 and at most 1", span)
        for key in ("importance", "min_rate", "changed_cost"):
            self._require(key, lambda x: (x == 0) | ((x >= SMALLEST) & (x <= LARGEST)), "must be 0 or more")
        endless = ["max_rate"] if stale_while_revalidate is None else ["stale_while_revalidate", "max_rate"]
        for key in endless:
            self._require(
                key,
                lambda x: (x == 0) | ((x >= SMALLEST) & (x <= LARGEST)) | (x == np.inf),
                "must be 0 or more",
            )
        for key in ("changed_cost", *endless[:-1]):
            if extremes(getattr(self, key)) == (0.0, 0.0):
                store(key, None)
        if extremes(self.min_rate)[1] <= extremes(self.max_rate)[0]:
            return
        alike = n > 1 and is_scalar(self.min_rate) and is_scalar(self.max_rate)
        crossed = [
            ("all sources" if alike else self.label(k), float(self.min_rate[k]), float(self.max_rate[k]))
            for k in np.flatnonzero(self.min_rate > self.max_rate)
        ]
        if crossed:
            raise SourceDataError(crossed_bounds(crossed[:1] if alike else crossed, time_unit))

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self._change_rate)

    @property
    def change_rate(self) -> Array:
        """Changes per time unit, shape (n,)."""
        return as_float64(self._change_rate)

    @property
    def importance(self) -> Array:
        """Weights, shape (n,)."""
        return as_float64(self._importance)

    @property
    def asked(self) -> Array:
        """Request rates, which must be given."""
        if self.request_rate is None:
            raise SourceDataError(
                "the sources have no request rates. Pass fo.Sources(..., request_rate=...)."
            )
        return self.request_rate

    @property
    def failing(self) -> Array | None:
        """The chances of success, or None where every fetch succeeds."""
        success = self.success
        if success is None:
            return None
        whole = success[0] == 1.0 if is_scalar(success) else bool(np.all(success == 1.0))
        return None if whole else success

    def never_failing(self) -> Sources:
        """Return the same sources without chances of success."""
        if self.success is None:
            return self
        other = self.take(slice(None))
        object.__setattr__(other, "success", None)
        return other

    def column(self, key: str) -> npt.NDArray[Any]:
        """Return "change_rate" or "importance" as given.

        float32 stays float32, and costs no memory.
        """
        column: npt.NDArray[Any] = getattr(self, f"_{key}")
        return column

    def __repr__(self) -> str:
        """Return the size and the ranges, never the arrays."""
        rates = f"{_span(self._change_rate)} per {self.time_unit}"
        return f"Sources(n={len(self)}, change_rate={rates}, importance={_span(self._importance)})"

    def label(self, k: SupportsIndex) -> str:
        """Return source k's name in messages.

        It is its quoted name, or its position.
        """
        return f"source {int(k)}" if self.names is None else f"'{self.names[k]}'"

    def take(self, index: slice | npt.NDArray[Any]) -> Sources:
        """Return the sources at a slice, mask or integer index."""
        part = object.__new__(Sources)
        for key in ("names", *(f"_{key}" if key in NARROW else key for key in COLUMNS)):
            column = getattr(self, key)
            object.__setattr__(part, key, None if column is None else read_only(column[index]))
        for key in ("time_unit", "library"):
            object.__setattr__(part, key, getattr(self, key))
        return part

    def of_library(self, library: str) -> Sources:
        """Return them with tables of a library."""
        same = self.take(slice(None))
        object.__setattr__(same, "library", library)
        return same

    def with_change_rate(self, change_rate: npt.ArrayLike) -> Sources:
        """Return the same sources with other change rates, per time unit.

        Raises
        ------
        SourceDataError
            If a rate is out of range; names the source.
        """
        other = self.take(slice(None))
        object.__setattr__(
            other, "_change_rate", as_column(change_rate, len(self), "change_rate", narrow=True)
        )
        other._require("change_rate", lambda x: (x >= SMALLEST) & (x <= LARGEST), "must be > 0")
        return other

    def with_importance(self, importance: npt.ArrayLike) -> Sources:
        """Return the same sources with other importances.

        Raises
        ------
        SourceDataError
            If an importance is out of range; names the source.
        """
        other = self.take(slice(None))
        object.__setattr__(other, "_importance", as_column(importance, len(self), "importance", narrow=True))
        other._require(
            "importance", lambda x: (x == 0) | ((x >= SMALLEST) & (x <= LARGEST)), "must be 0 or more"
        )
        return other

    @classmethod
    def from_frame(cls, frame: Any, time_unit: str = "day") -> Sources:  # noqa: ANN401 - any dataframe library's frame
        """Build from a dataframe of any library, a row per source.

        Parameters
        ----------
        frame : dataframe
            Column ``change_rate`` is required; ``source`` (or ``name``), ``importance``, ``host``,
            ``signalled``, ``min_rate``, ``max_rate``, ``refresh_cost``, ``request_rate``,
            ``stale_while_revalidate``, ``success`` and ``changed_cost`` are used where present, others
            ignored.
        time_unit : str
            The unit of the rates.

        Raises
        ------
        SourceDataError
            If ``change_rate`` is missing, a value is null, or a value is out of range.

        Examples
        --------
        >>> import polars as pl
        >>> Sources.from_frame(pl.DataFrame({"source": ["a", "b"], "change_rate": [1.0, 2.0]}))
        Sources(n=2, change_rate=1..2 per day, importance=1)
        """
        from freshopt.logs.file_kinds import Frame  # noqa: PLC0415 - readers load only if needed
        from freshopt.logs.schema import CHANGE_RATE_COLUMNS, Table  # noqa: PLC0415

        given = Frame.of(frame, "the table of sources")
        table = Table.read(given, CHANGE_RATE_COLUMNS)
        columns = {key: key for key in COLUMNS if key in table.frame.columns}
        for key in ("name", "source"):
            if key in table.frame.columns:
                columns["names"] = key
        for column in columns.values():
            table.cells.require_filled(table.frame[column])
        made = cls(
            **{key: table.frame[name].to_numpy() for key, name in columns.items()}, time_unit=time_unit
        )
        return made.of_library(given.library)

    @framed
    def to_frame(self) -> polars.DataFrame:
        """Return a dataframe of the columns that are set.

        Scalars at their default are left out. It is of polars, or of the library of the dataframe that the
        sources were made of.
        """
        import polars

        names = np.arange(len(self)) if self.names is None else self.names
        columns: dict[str, npt.NDArray[Any]] = {"source": names, "change_rate": self.change_rate}
        limits = {"min_rate": 0.0, "max_rate": np.inf}
        for key, value in {"importance": 1.0, "signalled": False, **limits, "refresh_cost": 1.0}.items():
            column = getattr(self, key)
            if not (is_scalar(column) and column[0] == value):
                columns[key] = column
        for key in ("host", "request_rate", "stale_while_revalidate", "success", "changed_cost"):
            if getattr(self, key) is not None:
                columns[key] = getattr(self, key)
        return polars.DataFrame({key: np.ascontiguousarray(column) for key, column in columns.items()})

    def _require(
        self,
        key: str,
        holds: Callable[[Any], Any],
        rule: str,
        span: tuple[float, float] = (SMALLEST, LARGEST),
    ) -> None:
        """Raise by name where a rule does not hold; NaN never does."""
        column: Array = getattr(self, f"_{key}" if key in NARROW else key)
        # What lies within the span fulfils every rule; a number for all sources is asked itself.
        low, high = extremes(column)
        if span[0] <= low <= high <= span[1] or (low == high and holds(low)):
            return
        column = once(column)
        bad = [
            int(k)
            for part in chunks(len(column))
            for k in part.start + np.flatnonzero(~holds(as_float64(column[part])))
        ]
        if bad:
            where = list_offenders(f"{self.label(k)}: {column[k]:g}" for k in bad)
            raise SourceDataError(
                f"{key} out of range for {where}. It {rule}, within {span[0]:g}..{span[1]:g}. "
                "Correct or drop these sources."
            )


def _length(arguments: dict[str, npt.ArrayLike | None]) -> int:
    """Return the common length of the array arguments.

    Scalars have none.
    """
    lengths: dict[str, int] = {}
    for key, value in arguments.items():
        if value is None or type(value) in (float, bool, int):
            continue
        try:
            shape = as_objects(value).shape if is_listed_text(value) else np.shape(value)
        except ValueError:
            raise SourceDataError(f"{key} has entries of different lengths. Give one per source.") from None
        if shape:
            lengths[key] = int(shape[0])
    if not lengths:
        return 1
    key, n = max(lengths.items(), key=lambda item: item[1])
    if n == 0:
        raise SourceDataError("there are no sources (length 0). Pass at least one.")
    for other, length in lengths.items():
        if length != n:
            raise SourceDataError(
                f"{other} has length {length} but {key} has {n}. Give one entry per source."
            )
    return n


def _labels(value: npt.ArrayLike | None, n: int, what: str) -> npt.NDArray[Any] | None:
    """Return names or hosts as a read-only vector of n labels."""
    if value is None:
        return None
    labels = label_array(value)
    if labels.ndim == 0:
        labels = np.broadcast_to(labels, (n,))
    if labels.shape != (n,):
        raise SourceDataError(
            f"{what} has shape {labels.shape} but there are {n} sources. Give one label each."
        )
    return read_only(labels)


def _flags(value: npt.ArrayLike, n: int) -> BoolArray:
    """Return `signalled` as a read-only boolean vector."""
    if type(value) is bool:
        return repeated(value, n)
    numbers = as_vector(value, n, "signalled")
    flags = once(numbers)
    if not bool(np.all((flags == 0) | (flags == 1))):
        raise SourceDataError("signalled must be true or false for each source. Pass booleans, or 0 and 1.")
    if is_scalar(numbers):
        return repeated(bool(numbers[0]), n)
    return read_only(numbers.astype(np.bool_))


def _require_unique(names: npt.NDArray[Any] | None) -> None:
    """Raise SourceDataError if a name, which results match, occurs twice."""
    # Names of a log are sorted: no two that stand side by side are equal then, and no others.
    if names is None:
        return
    alike = names.dtype.kind in "iuU" or all(isinstance(name, str) for name in names.tolist())
    if alike and bool(np.all(names[1:] > names[:-1])):
        return
    seen: set[object] = set()
    twice: list[str] = []
    for name in names.tolist():
        if isinstance(name, list | dict | set | np.ndarray):
            raise SourceDataError(f"a name is {shortened(repr(name))}. Names are text or integers.")
        if name in seen:
            twice.append(repr(name))
        seen.add(name)
    if twice:
        raise SourceDataError(f"a name occurs more than once: {list_offenders(twice)}. Names must be unique.")


def _span(values: Array) -> str:
    """Return the range of a vector for a repr."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.4g}" if low == high else f"{low:.4g}..{high:.4g}"
