"""`RateTable`, `LifetimeTable`: from a solution, a mapping or a dataframe.

They are read into one checked record: rates for schedules, lifetimes for caches whose copies are refreshed on
request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.formatting import count
from freshopt.frames import POLARS
from freshopt.heavy import polars
from freshopt.logs.file_kinds import Frame, is_frame
from freshopt.modelling.objective import Refresh
from freshopt.numerics.arrays import Array, BoolArray, as_vector, label_array
from freshopt.units import check_time_unit

if TYPE_CHECKING:
    from freshopt.certificates.solution import Solution

# A signalled rate above its change rate by less is rounding, and becomes probability 1.
SLACK = 1e-9
_ON_REQUEST = (
    "copies that are refreshed on request have no refresh times: the first request after a lifetime "
    "refreshes. Use solution.lifetimes, or a format of caches, such as --format cache-control."
)
_AFTER_SIGNALS = (
    "signalled sources are crawled a time 1/rate - 1/change_rate after the first signal missed, and a "
    "schedule has shares of signals only. Follow WithNoisySignals(objective, recall=signalled, precision=1)"
    ".rule(rates, sources), which tells when each is due."
)


@dataclass(frozen=True, slots=True, eq=False)
class RateTable:
    """Rates with the attributes of sources that schedules need.

    - `rates` (n,): Refreshes per time unit; of a signalled source, crawled signals per time unit.
    - `names` (n,)
    - `signalled` (n,)
    - `crawl_probability` (n,): ρ/Δ for signalled sources, NaN for the others; None if none is signalled.
    - `importance` (n,): Weights of the sources, where a solution or a column tells them.
    - `change_rate` (n,): Changes per time unit, where a solution or a complete column tells them.
    - `success` (n,): Chances that fetches succeed, of rates that are attempts.
    - `library`: Of dataframes made from it.
    """

    rates: Array
    names: npt.NDArray[Any] | None
    time_unit: str
    signalled: BoolArray | None
    crawl_probability: Array | None
    importance: Array | None = None
    change_rate: Array | None = None
    success: Array | None = None
    library: str = POLARS

    def of_successes(self) -> RateTable:
        """Return the rates sρ of fetches that are retried at once.

        They take as many attempts.

        Examples
        --------
        >>> import polars
        >>> rates = read_rates(polars.DataFrame({"source": ["a"], "rate": [4.0], "success": [0.5]}))
        >>> rates.of_successes().rates
        array([2.])
        """
        if self.success is None:
            raise SourceDataError(
                "the rates have no column 'success': no fetch fails, or they are of successes already. Leave "
                "retry_at_once (--retry-at-once) out."
            )
        return replace(self, rates=self.rates * self.success, success=None)

    @property
    def weight(self) -> Array | None:
        """Importance times change rate, None without a change rate."""
        if self.change_rate is None or self.importance is None:
            return self.change_rate
        return self.importance * self.change_rate


@dataclass(frozen=True, slots=True, eq=False)
class LifetimeTable:
    """Lifetimes with the attributes of sources that caches need.

    - `lifetime` (n,): T ≥ 0 in time units; infinite where a copy is never fetched again.
    - `idle` (n,): 1/ζ, the mean time between requests, where it is known.
    - `stale` (n,): Windows of stale-while-revalidate, in time units.
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


def read_rates(rates: Solution | Mapping[Any, float] | Any, time_unit: str | None = None) -> RateTable:  # noqa: ANN401 - any dataframe library's frame
    """Return rates of any accepted form, checked.

    They come from a solution, a mapping or a dataframe.

    Examples
    --------
    >>> read_rates({"a": 2.0, "b": 0.5}).rates
    array([2. , 0.5])
    """
    if time_unit is not None:
        check_time_unit(time_unit)
    if isinstance(rates, Mapping):
        # NumPy would drop zero bytes at the end of a text, and two names could become one.
        zeros = [repr(name) for name in rates if isinstance(name, str) and name.endswith("\0")]
        if zeros:
            raise SourceDataError(
                f"source {list_offenders(zeros)} ends in a zero byte. Leave the zero bytes out."
            )
        return _checked_rates(list(rates), list(rates.values()), time_unit or "day")
    if not hasattr(rates, "problem"):
        return _rates_of_frame(rates, time_unit or "day")
    sources = rates.problem.sources
    # What has rates and a problem need not be a solution of ours.
    own: Any = getattr(rates.problem, "objective", None)
    if getattr(own, "refresh", None) is Refresh.ON_REQUEST:
        raise SourceDataError(_ON_REQUEST)
    waits = getattr(own, "waits_after_signals", False) and own.refresh is Refresh.PERIODIC
    if waits and bool(np.any(sources.signalled)):
        raise SourceDataError(_AFTER_SIGNALS)
    _require_unit(time_unit, sources.time_unit, "solution's rates are")
    changes = sources.change_rate if sources.rated else None
    return replace(
        _checked_rates(sources.names, rates.rates, sources.time_unit, sources.signalled, changes),
        importance=sources.importance,
        change_rate=changes,
        success=sources.failing,
        library=getattr(sources, "library", POLARS),
    )


def read_lifetimes(
    lifetimes: Solution | Mapping[Any, float] | Any,  # noqa: ANN401 - any dataframe library's frame
    time_unit: str | None = None,
) -> LifetimeTable:
    """Return lifetimes of any accepted form, checked.

    - `lifetimes` Solution, mapping or dataframe: A solution of copies that are refreshed on request;
      lifetimes by name; or a table with the columns source and lifetime (empty: infinite) and, where known,
      interval (1/rate) and stale_while_revalidate.
    - `time_unit`: The unit of the lifetimes; a solution brings its own.

    Examples
    --------
    >>> read_lifetimes({"a": 2.0, "b": float("inf")}, "hour").lifetime
    array([ 2., inf])
    """
    if time_unit is not None:
        check_time_unit(time_unit)
    if isinstance(lifetimes, Mapping):
        return _checked_lifetimes(list(lifetimes), list(lifetimes.values()), time_unit or "day", None, None)
    if not hasattr(lifetimes, "problem"):
        return _lifetimes_of_frame(lifetimes, time_unit or "day")
    sources = lifetimes.problem.sources
    _require_unit(time_unit, sources.time_unit, "solution is")
    names = range(len(sources)) if sources.names is None else sources.names.tolist()
    life = lifetimes.lifetimes
    return _checked_lifetimes(
        list(names), life, sources.time_unit, 1.0 / sources.asked, sources.stale_while_revalidate
    )


def _opened(frame: Any, what: str) -> tuple[polars.DataFrame, str]:  # noqa: ANN401 - any dataframe library's frame
    """Return a dataframe as polars has it, and its library."""
    if not is_frame(frame):
        raise SourceDataError(
            f"{what} are a {type(frame).__name__}. Pass a solution, a mapping of names or a dataframe."
        )
    given = Frame.of(frame, f"the table of {what}")
    return given.read(given.names), given.library


def _require_unit(given: str | None, own: str, words: str) -> None:
    """Raise if a time unit is not that of the solution."""
    if given not in (None, own):
        raise SourceDataError(f"time_unit is {given!r} but the {words} per {own}. Leave it out.")


def _rates_of_frame(frame: Any, time_unit: str) -> RateTable:  # noqa: ANN401 - any dataframe library's frame
    """Read the columns of a dataframe of rates."""
    table, library = _opened(frame, "rates")
    if "lifetime" in table.columns:
        raise SourceDataError(_ON_REQUEST)
    wanted = ["source", "rate"]
    if "signalled" in table.columns and bool(table["signalled"].any()):
        wanted += ["signalled", "change_rate"]
    _require_columns(table, wanted, "the table of rates", "Add or rename it.")
    for column in wanted:
        nulls = int(table[column].null_count())
        if nulls:
            raise SourceDataError(
                f"column {column!r} has {count(nulls, 'empty cell')}. Fill them or drop the rows."
            )
    twice = table["source"].filter(table["source"].is_duplicated()).unique(maintain_order=True).to_list()
    if twice:
        raise SourceDataError(
            f"more than one rate for {list_offenders(map(repr, twice))}. Give one row per source."
        )
    cells = [table[column].to_numpy() for column in wanted]
    found = replace(_checked_rates(cells[0], cells[1], time_unit, *cells[2:]), library=library)
    n, columns = len(found.rates), table.columns
    changes = table["change_rate"] if "change_rate" in columns else None
    if changes is not None and changes.dtype.is_numeric() and not int(changes.null_count()):
        found = replace(found, change_rate=as_vector(changes.to_numpy(), n, "change_rate"))
    if "success" in columns:
        chance = as_vector(table["success"].to_numpy(), n, "success")
        _require((chance > 0.0) & (chance <= 1.0), found.names, chance, "success", "It is in (0, 1].")
        found = replace(found, success=chance)
    if "importance" not in columns:
        return found
    return replace(found, importance=as_vector(table["importance"].to_numpy(), n, "importance"))


def _checked_rates(
    names: npt.ArrayLike | None,
    values: npt.ArrayLike,
    time_unit: str,
    signalled: npt.NDArray[Any] | None = None,
    change_rate: npt.NDArray[Any] | None = None,
) -> RateTable:
    """Check rates by name and work out the crawl probabilities."""
    labels = None if names is None else label_array(names)
    n = int(np.size(values)) if labels is None else len(labels)
    if n == 0:
        raise SourceDataError("there are no rates (length 0). Pass at least one source.")
    rates = as_vector(values, n, "rates")
    _require((rates >= 0) & (rates < np.inf), labels, rates, "rate", "A rate is a number ≥ 0.")
    flags = None if signalled is None or not signalled.any() else signalled.astype(np.bool_)
    check_time_unit(time_unit)
    if flags is None or change_rate is None:
        return RateTable(rates, labels, time_unit, flags, None)
    wrong = np.flatnonzero(flags & ~((change_rate > 0) & (change_rate < np.inf))).tolist()
    if wrong:
        where = list_offenders(f"{_label(labels, k)}: {change_rate[k]:g}" for k in wrong)
        raise SourceDataError(
            f"change_rate of a signalled source is no number > 0: {where}. Correct or drop these sources."
        )
    probability = np.full(n, np.nan)
    np.divide(rates, change_rate, out=probability, where=flags)
    over = np.flatnonzero(probability > 1 + SLACK).tolist()
    if over:
        where = list_offenders(f"{_label(labels, k)}: {rates[k]:g} > {change_rate[k]:g}" for k in over)
        raise SourceDataError(
            f"crawled more often than signalled: {where}. Lower the rate to the change rate or less."
        )
    return RateTable(rates, labels, time_unit, flags, np.minimum(probability, 1.0))


def _require(good: BoolArray, names: npt.NDArray[Any] | None, values: Array, what: str, rule: str) -> None:
    """Raise if values of some sources are out of range."""
    bad = np.flatnonzero(~good).tolist()
    if bad:
        where = list_offenders(f"{_label(names, k)}: {values[k]:g}" for k in bad)
        raise SourceDataError(f"{what} out of range for {where}. {rule} Correct or drop them.")


def _require_columns(table: polars.DataFrame, wanted: Sequence[str], what: str, remedy: str) -> None:
    """Raise if a table lacks columns."""
    missing = [column for column in wanted if column not in table.columns]
    if missing:
        raise SourceDataError(
            f"{what} has no column {list_offenders(map(repr, missing))}, it has "
            f"{list_offenders(map(repr, table.columns))}. {remedy}"
        )


def _label(names: npt.NDArray[Any] | None, k: int) -> str:
    return f"source {k}" if names is None else f"'{names[k]}'"


def _lifetimes_of_frame(frame: Any, time_unit: str) -> LifetimeTable:  # noqa: ANN401 - any dataframe library's frame
    """Read the columns of a dataframe of lifetimes."""
    table, _ = _opened(frame, "lifetimes")
    _require_columns(table, ("source", "lifetime"), "the table", "solve --refresh on-request writes them.")
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
    return _checked_lifetimes(names, life, time_unit, idle, column("stale_while_revalidate", 0.0))


def _checked_lifetimes(
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
    twice = [name for name, rows in Counter(texts).items() if rows > 1]
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
