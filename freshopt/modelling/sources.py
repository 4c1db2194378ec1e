"""`Sources`: change rates, importances and bounds of n sources.

They are validated once and frozen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import field
from functools import partial
from types import MappingProxyType
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.frames import POLARS, framed
from freshopt.heavy import polars
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    BoolArray,
    as_column,
    as_float64,
    as_vector,
    chunks,
    common_length,
    extremes,
    is_scalar,
    label_array,
    once,
    own_columns,
    read_only,
    repeated,
    require_unique,
)
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.renamed import Renamed, keywords
from freshopt.units import check_time_unit, crossed_bounds

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
# Columns that may be 0, and those that may be infinite besides.
ENDLESS = ("max_rate", "stale_while_revalidate")
ZERO = ("importance", "min_rate", "changed_cost", *ENDLESS)


@keywords(name="names")
@frozen_value(init=False, repr=False)
class Sources:
    """Sources of a problem, in the caller's order.

    Parameters
    ----------
    change_rate : array_like, scalar or shape (n,), optional
        Poisson rate of changes Δ > 0, per time unit. An objective of your own may do without.
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
    columns : mapping of str to array_like, optional
        Further columns of your own, finite numbers or text, for objectives and constraints of your own:
        ``sources["size"]``.

    Attributes
    ----------
    change_rate, importance, min_rate, max_rate, refresh_cost : ndarray of float, shape (n,)
        Read-only views; a scalar argument has stride 0. A `change_rate` or `importance` given in float32 is
        kept so, without a copy (`column`), and widened anew on each access.
    signalled : ndarray of bool, shape (n,)
    names, host : ndarray of shape (n,), or None
    request_rate, stale_while_revalidate, success, changed_cost : ndarray of float, shape (n,), or None
        Windows and costs that are all 0 are None.
    columns : mapping of str to ndarray of shape (n,)

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
    >>> Sources([0.5, 2.0], columns={"size": [10.0, 3.0]}).take(slice(1))["size"]
    array([10.])
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
    columns: Mapping[str, npt.NDArray[Any]]
    rated: bool = field(init=False)
    library: str = field(init=False)
    name = Renamed("names")

    def __init__(
        self,
        change_rate: npt.ArrayLike | None = None,
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
        columns: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        others = (request_rate, min_rate, max_rate, refresh_cost)
        several = (each for each in others if isinstance(each, Sized) and not isinstance(each, str))
        counted = columns or any(getattr(each, "ndim", 1) for each in several)
        if change_rate is importance is names is host is None and not counted:
            raise SourceDataError("there are no sources. Pass change_rate=, or columns= of your own.")
        if importance is None:
            importance = 1.0 if request_rate is None else request_rate
        if stale_while_revalidate is not None and request_rate is None:
            raise SourceDataError("stale_while_revalidate needs request rates. Pass request_rate= too.")
        optional = {
            "request_rate": request_rate,
            "stale_while_revalidate": stale_while_revalidate,
            "success": success,
        }
        numbers: dict[str, npt.ArrayLike] = {
            "change_rate": 1.0 if change_rate is None else change_rate,
            **{key: value for key, value in optional.items() if value is not None},
            "importance": importance,
            "min_rate": min_rate,
            "max_rate": max_rate,
            "refresh_cost": refresh_cost,
            "changed_cost": changed_cost,
        }
        own = columns if isinstance(columns, Mapping) else {}
        n = common_length({**numbers, "names": names, "host": host, "signalled": signalled, **own})
        labels = _labels(names, n, "names")
        store = partial(object.__setattr__, self)
        store("time_unit", check_time_unit(time_unit))
        store("library", POLARS)
        store("rated", change_rate is not None)
        store("columns", MappingProxyType(own_columns(columns, n, ("names", "time_unit", *COLUMNS))))
        store("names", labels)
        store("host", _labels(host, n, "host"))
        for key in optional:
            store(key, None)
        store("signalled", _flags(signalled, n, rated=change_rate is not None))
        for key, value in numbers.items():
            store(f"_{key}" if key in NARROW else key, as_column(value, n, key, narrow=key in NARROW))
        require_unique(labels)
        for key in numbers:
            self._require(key)
        for key in ("changed_cost", "stale_while_revalidate"):
            column = getattr(self, key)
            if column is not None and extremes(column) == (0.0, 0.0):
                store(key, None)
        self._require_open()

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self._change_rate)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return a column of your own, or another, by name."""
        found = self.columns.get(name) if name in self.columns or name not in COLUMNS else getattr(self, name)
        if found is None:
            known = ", ".join(map(repr, self.columns)) or "none of your own"
            remedy = f"Pass fo.Sources(..., columns={{{name!r}: ...}}), or fo.plan(..., source_columns=...)."
            raise SourceDataError(f"the sources have no column {name!r}, but {known}. {remedy}")
        return found

    @property
    def change_rate(self) -> Array:
        """Changes per time unit, shape (n,); SourceDataError where none were given."""
        return as_float64(self.column("change_rate"))

    @property
    def scale(self) -> Array:
        """Rates near which searches begin, shape (n,): those of changes, or 1."""
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
        if key == "change_rate" and not self.rated:
            raise SourceDataError("the sources have no change rates. Pass fo.Sources(change_rate=...).")
        column: npt.NDArray[Any] = getattr(self, f"_{key}")
        return column

    def __repr__(self) -> str:
        rates = f"change_rate={_span(self._change_rate)} per {self.time_unit}, " if self.rated else ""
        own = "".join(f", {name}" for name in self.columns)
        return f"Sources(n={len(self)}, {rates}importance={_span(self._importance)}{own})"

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
        own = {name: read_only(column[index]) for name, column in self.columns.items()}
        object.__setattr__(part, "columns", MappingProxyType(own))
        for key in ("time_unit", "library", "rated"):
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
        other = self._with(change_rate=change_rate)
        object.__setattr__(other, "rated", True)
        return other

    def with_importance(self, importance: npt.ArrayLike) -> Sources:
        """Return the same sources with other importances.

        Raises
        ------
        SourceDataError
            If an importance is out of range; names the source.
        """
        return self._with(importance=importance)

    def with_bounds(self, min_rate: npt.ArrayLike, max_rate: npt.ArrayLike) -> Sources:
        """Return the same sources with other bounds on rates, per time unit."""
        other = self._with(min_rate=min_rate, max_rate=max_rate)
        other._require_open()
        return other

    def _with(self, **columns: npt.ArrayLike) -> Sources:
        """Return the same sources with other columns."""
        other = self.take(slice(None))
        for key, value in columns.items():
            narrow = key in NARROW
            column = as_column(value, len(self), key, narrow=narrow)
            object.__setattr__(other, f"_{key}" if narrow else key, column)
            other._require(key)
        return other

    @classmethod
    def from_frame(
        cls,
        frame: Any,  # noqa: ANN401 - any dataframe library's frame
        time_unit: str = "day",
        columns: Sequence[str] = (),
    ) -> Sources:
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
        columns : sequence of str
            Columns of your own that are taken along.

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
        missing = [name for name in columns if name not in table.frame.columns]
        if missing:
            raise SourceDataError(f"the table of sources has no column {missing[0]!r}. Correct the name.")
        known = {key: key for key in COLUMNS if key in table.frame.columns}
        known.update(("names", key) for key in ("name", "source") if key in table.frame.columns)
        for column in (*known.values(), *columns):
            table.cells.require_filled(table.frame[column])
        made = cls(
            **{key: table.frame[name].to_numpy() for key, name in known.items()},
            time_unit=time_unit,
            columns={name: table.frame[name].to_numpy() for name in columns},
        )
        return made.of_library(given.library)

    @framed
    def to_frame(self) -> polars.DataFrame:
        """Return a dataframe of the columns that are set.

        Scalars at their default are left out. It is of polars, or of the library of the dataframe that the
        sources were made of.
        """
        names = np.arange(len(self)) if self.names is None else self.names
        columns: dict[str, npt.NDArray[Any]] = {"source": names}
        if self.rated:
            columns["change_rate"] = self.change_rate
        limits = {"min_rate": 0.0, "max_rate": np.inf}
        for key, value in {"importance": 1.0, "signalled": False, **limits, "refresh_cost": 1.0}.items():
            column = getattr(self, key)
            if not (is_scalar(column) and column[0] == value):
                columns[key] = column
        for key in ("host", "request_rate", "stale_while_revalidate", "success", "changed_cost"):
            if getattr(self, key) is not None:
                columns[key] = getattr(self, key)
        columns |= self.columns
        return polars.DataFrame({key: np.ascontiguousarray(column) for key, column in columns.items()})

    def _require_open(self) -> None:
        """Raise by name where bounds on the rate cross."""
        low, high = self.min_rate, self.max_rate
        if extremes(low)[1] <= extremes(high)[0]:
            return
        alike = len(self) > 1 and is_scalar(low) and is_scalar(high)
        crossed = [
            ("all sources" if alike else self.label(k), float(low[k]), float(high[k]))
            for k in np.flatnonzero(low > high)
        ]
        if crossed:
            raise SourceDataError(crossed_bounds(crossed[:1] if alike else crossed, self.time_unit))

    def _require(self, key: str) -> None:
        """Raise by name where a column breaks its rule, as NaN does."""
        column: Array = getattr(self, f"_{key}" if key in NARROW else key)
        span, rule = (SMALLEST, LARGEST), "must be 0 or more" if key in ZERO else "must be > 0"
        if key == "success":
            span, rule = (RAREST, 1.0), "must be > 0 and at most 1"

        def holds(x: Any) -> Any:  # noqa: ANN401 - a number or an array
            inside = (x >= span[0]) & (x <= span[1])
            return inside | ((x == 0.0) & (key in ZERO)) | ((x == np.inf) & (key in ENDLESS))

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


def _flags(value: npt.ArrayLike, n: int, *, rated: bool) -> BoolArray:
    """Return `signalled` as a read-only boolean vector."""
    if not rated and np.any(value):
        raise SourceDataError("signalled sources need change rates. Pass change_rate= too.")
    if type(value) is bool:
        return repeated(value, n)
    numbers = as_vector(value, n, "signalled")
    flags = once(numbers)
    if not bool(np.all((flags == 0) | (flags == 1))):
        raise SourceDataError("signalled must be true or false for each source. Pass booleans, or 0 and 1.")
    if is_scalar(numbers):
        return repeated(bool(numbers[0]), n)
    return read_only(numbers.astype(np.bool_))


def _span(values: Array) -> str:
    """Return the range of a vector for a repr."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.4g}" if low == high else f"{low:.4g}..{high:.4g}"
