"""Dates as programs write them: in headers, or without separators.

RFC 9110 section 5.6.7 and RFC 5322 write Sat, 31 Jan 2026 06:00:00 GMT. The two obsolete forms of RFC 9110
are those of RFC 850, Saturday, 31-Jan-26 06:00:00 GMT, and of C's asctime, Sat Jan 31 06:00:00 2026. The day
of the week is ignored.

Archives, file names and data warehouses write the fields of a date one after another, as text or as a number.
Text with a T, a zone or twelve digits is a moment and nothing else: 10¹¹ is 3,000 years in seconds, and
nobody counts so. Shorter numbers can count time too, on the log's own clock or in seconds since 1970. The
column decides where it can: all its numbers are dates, and would be a century or more after the zero of the
clock; or they are dates in so many months that this is no chance. What remains can be both, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.formatting import count
from freshopt.numerics.arrays import Array, IntArray
from freshopt.units import SECONDS

if TYPE_CHECKING:
    import polars

# Fields without separators; a fraction without a point has 3, 6 or 9 digits, as 15 and 16 digits are no form.
_COMPACT = (
    r"^\s*(?P<year>[0-9]{4})(?P<month>[0-9]{2})(?P<day>[0-9]{2})"
    r"(?:[T _-]?(?P<hour>[0-9]{2})(?:(?P<minute>[0-9]{2})(?:(?P<second>[0-9]{2})"
    r"(?:[.,](?P<fraction>[0-9]{1,9})|(?P<digits>[0-9]{9}|[0-9]{6}|[0-9]{3}))?)?)?"
    r" ?(?P<zone>Z|[+-][0-9]{2}:?(?:[0-9]{2})?)?)?\s*$"
)
_BEGINNING = r"^\s*[0-9]{8}"
# From twelve digits on a number is a date: nobody counts so much time.
_SURELY = 1e11
_LONG = r"^[0-9]{12,}(?:\.[0-9]*)?$"
# Years in which numbers are dates; where some long ones are, others may be of any year.
_YEARS = (1970, 2100)
# Below, no number is a date, but for those of the year 2000 with two digits.
_LEAST = 1e4
# Seconds after the zero of a clock until which numbers count time on it: a century.
_COUNTED = 100.0 * 365.25 * SECONDS["day"]
# Numbers that follow each other are dates together: those of one month, day or year, without the last two or
# three digits, are one. Of plain numbers one month in eight is, and all of five in one column of 30,000.
_DECIDING = 5
_EPOCHS = (946_684_800.0, 4_102_444_800.0)  # 2000 to 2100, in seconds since 1970
_FEW = 1000
_WRITTEN = "Write dates as 2026-01-31T06:00:00Z"

RowNames: TypeAlias = Callable[[int], str]
Parse: TypeAlias = "Callable[[polars.Series], polars.Series]"


class _Form(NamedTuple):
    """Digits of a date, and what makes a full date of them."""

    name: str
    before: str = ""
    after: str = ""


_FORMS = {
    6: (_Form("YYYYMM", after="01"), _Form("YYMMDD", before="20")),
    7: (_Form("YYYYDDD"),),
    8: (_Form("YYYYMMDD"),),
    10: (_Form("YYYYMMDDHH"), _Form("YYMMDDHHMM", before="20")),
}
_TWO_DIGITS = _Form("YYMMDDHHMMSS", before="20")


def compact_as_iso(times: polars.Series) -> polars.Series:
    """Return times without separators as ISO 8601, all others as they are.

    Examples
    --------
    >>> import polars as pl
    >>> compact_as_iso(pl.Series(["20230307T092216Z", "20230307092216123", "2023-03-07"])).to_list()
    ['2023-03-07T09:22:16Z', '2023-03-07T09:22:16.123', '2023-03-07']
    """
    import polars
    from polars import col, lit

    if not times.str.contains(_BEGINNING).any():
        return times
    parts = times.str.extract_groups(_COMPACT).struct.unnest()
    day = col("year") + "-" + col("month") + "-" + col("day")
    fraction = polars.coalesce(lit(".") + col("fraction"), lit(".") + col("digits"), lit(""))
    second = polars.coalesce(lit(":") + col("second") + fraction, lit(""))
    clock = lit("T") + col("hour") + ":" + col("minute").fill_null("00") + second + col("zone").fill_null("")
    made = polars.coalesce(day + clock, day, times)
    return parts.select(made.alias("time"))["time"]


def dates_of_numbers(
    numbers: npt.NDArray[Any],
    what: str,
    row_name: RowNames,
    parse: Parse,
    time_unit: str | None,
    *,
    digits: polars.Series | None = None,
    dated: bool = False,
) -> Array | npt.NDArray[np.datetime64]:
    """Return the moments that numbers write, or numbers that count time.

    Parameters
    ----------
    numbers : ndarray of float64 or of an integer type, shape (m,)
        Those that are not finite are no moments.
    what, row_name
        As in messages.
    parse : callable
        From text to moments, null where it is no date.
    time_unit : str or None
        Of the clock on which they may count. None where that is not known yet: short numbers then count.
    digits : Series of text, shape (m,), optional
        The numbers as they were written.
    dated : bool
        Whether the other times of the log are dates, so that none of these counts.
    """
    as_they_are = numbers.astype(np.float64, copy=False)
    if float(np.fmax.reduce(as_they_are, initial=0.0)) < _LEAST:
        return as_they_are
    known = np.flatnonzero(np.isfinite(as_they_are))
    most = float(np.max(as_they_are[known], initial=0.0))
    if most < _LEAST:
        return as_they_are

    def written(rows: IntArray) -> polars.Series:
        return _digits(numbers[rows]) if digits is None else digits.gather(rows).str.replace(r"\.0*$", "")

    def named(k: int) -> str:
        return f"{what} is {written(known[k : k + 1])[0]} in {row_name(int(known[k]))}"

    if most >= _SURELY:
        read = _long_dates(written(known), parse, named)
    else:
        # Of what counts time, few numbers are looked at.
        forms = _forms_of(written(known[:_FEW]), parse) if time_unit is not None or dated else ()
        if not forms:
            return as_they_are
        shown, at = written(known), as_they_are[known]
        padded = bool(shown.str.contains("^0[0-9]").any()) and digits is not None
        counted = None if dated or padded else _counted(at, str(time_unit))
        read = _short_dates(shown, forms, parse, named, counted, at)
    if read is None:
        return as_they_are
    if numbers.dtype.kind == "f" and numbers.dtype.itemsize < as_they_are.itemsize:
        raise SourceDataError(
            f"{named(0)}, a date in {numbers.dtype}, which rounds it. Store integers, text or moments."
        )
    every = np.full(len(numbers), np.datetime64("NaT"), dtype="datetime64[us]")
    every[known] = read.to_numpy()
    return every


def _digits(numbers: npt.NDArray[Any]) -> polars.Series:
    """Return finite numbers as text."""
    import polars

    if numbers.dtype.kind != "f":
        return polars.Series(numbers).cast(polars.String)
    if bool(np.any(numbers != np.floor(numbers))) or float(np.max(np.abs(numbers))) >= 2.0**63:
        return polars.Series([f"{x:.6f}" for x in numbers.tolist()]).str.replace(r"\.0*$", "")
    return polars.Series(numbers.astype(np.int64)).cast(polars.String)


def _forms_of(few: polars.Series, parse: Parse) -> tuple[_Form, ...]:
    """Return the forms in which most of these numbers are dates."""
    width = int(few.str.len_bytes().mode()[0])
    forms = (form for form in _FORMS.get(width, ()) if 2 * _read(form, few, parse).count() > len(few))
    return tuple(forms)


def _read(form: _Form, shown: polars.Series, parse: Parse) -> polars.Series:
    """Return numbers as dates in a form, null where they are none."""
    import polars

    fitting = polars.when(shown.str.contains(f"^[0-9]{{{len(form.name)}}}$")).then(shown)
    text = polars.select((form.before + fitting + form.after).alias("text"))["text"]
    ordinal = form.name == "YYYYDDD"
    read = text.str.to_datetime("%Y%j", time_unit="us", strict=False) if ordinal else parse(text)
    modern = read.dt.year().is_between(*_YEARS).fill_null(value=False)
    return polars.select(polars.when(modern).then(read).alias("time"))["time"]


def _short_dates(
    shown: polars.Series,
    forms: tuple[_Form, ...],
    parse: Parse,
    named: Callable[[int], str],
    counted: str | None,
    numbers: Array,
) -> polars.Series | None:
    """Return the dates of a column, None where it counts time.

    They are of one of some forms.
    """
    found = {form: _read(form, shown, parse) for form in forms}
    whole = {form: read for form, read in found.items() if not read.has_nulls()}
    if not whole:
        form, read = next(iter(found.items()))
        if counted is not None or form.before:
            return None
        k = int(read.is_null().arg_true()[0])
        raise SourceDataError(f"{named(k)}, which is no date as others are ({form.name}). Correct it.")
    if counted is not None:
        if all(form.before for form in whole):
            return None  # years of two digits are rare, and counts of time are not
        months = numbers // (1000.0 if forms[0].name == "YYYYDDD" else 100.0)
        counted = counted if len(np.unique(months)) < _DECIDING else None
    (form, read), *others = whole.items()
    if not (others or form.before or counted):
        return read
    words = [
        f"a date with a year of two digits ({form.name})"
        if form.before
        else f"{read[0]:%Y-%m-%d %H:%M} ({form.name})"
        for form, read in whole.items()
    ]
    readings = " or ".join(words + ([counted] if counted else []))
    remedy = f"{_WRITTEN}, or numbers that begin near 0" if counted else _WRITTEN
    raise SourceDataError(f"{named(0)}, which can be {readings}. {remedy}.")


def _long_dates(shown: polars.Series, parse: Parse, named: Callable[[int], str]) -> polars.Series | None:
    """Return dates of a column with numbers of twelve digits."""
    import polars

    short = _read(_TWO_DIGITS, shown, parse)
    if not short.has_nulls():
        read = _read(_Form("YYYYMMDDHHMM"), shown, parse)
        either = "" if read.has_nulls() else f"{read[0]:%Y-%m-%d %H:%M} (YYYYMMDDHHMM) or "
        raise SourceDataError(
            f"{named(0)}, which can be {either}a date with a year of two digits ({_TWO_DIGITS.name}). "
            f"{_WRITTEN}."
        )
    year = shown.str.slice(0, 4).cast(polars.Int64, strict=False)
    modern = (year.is_between(*_YEARS) & shown.str.contains(_LONG)).fill_null(value=False)
    if not modern.any():
        return None
    read = parse(shown)
    if not (modern.all() or (modern & read.is_not_null()).any()):
        return None
    wrong = read.is_null().arg_true()
    if len(wrong):
        raise SourceDataError(
            f"{named(int(wrong[0]))}, which is no date as YYYYMMDDHHMMSS is. Correct it; spreadsheets round "
            "such numbers."
        )
    return read


def _counted(numbers: Array, time_unit: str) -> str | None:
    """Return what numbers may count if not dates, None if nothing."""
    first, last = float(np.min(numbers)), float(np.max(numbers))
    if _EPOCHS[0] <= first and last <= _EPOCHS[1]:
        return f"{np.datetime64(int(first), 's')} in seconds since 1970"
    if last * SECONDS[time_unit] <= _COUNTED:
        return f"{count(first, time_unit, ',.0f')} after the zero of the clock"
    return None


_CLOCK, _MONTH = r"(?P<clock>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)", r"(?P<month>[A-Za-z]{3})"
_ZONE = r"(?P<zone>GMT|UTC|Z|[+-][0-9]{4})"
_DAY, _YEAR = r"(?P<day>[0-9]{1,2})", r"(?P<year>[0-9]{4})"
_HTTP = rf"^\s*(?:[A-Za-z]{{3}}, *)?{_DAY} {_MONTH} {_YEAR} {_CLOCK} {_ZONE}\s*$"
_OBSOLETE = (
    rf"^\s*(?:[A-Za-z]+, *)?{_DAY}-{_MONTH}-(?P<year>[0-9]{{4}}|[0-9]{{2}}) {_CLOCK} {_ZONE}\s*$",
    rf"^\s*(?:[A-Za-z]{{3}} )?{_MONTH} +{_DAY} {_CLOCK} (?:(?:GMT|UTC) )?{_YEAR}(?P<zone>)\s*$",
    rf"^\s*(?:[A-Za-z]+,? *)?{_DAY} {_MONTH} {_YEAR} {_CLOCK}(?P<zone>)\s*$",
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Years of two digits from here on are of the last century, as POSIX has them.
_CENTURY = 69


def http_as_iso(times: polars.Series) -> polars.Series:
    """Return HTTP dates as ISO 8601, all others as they are.

    Examples
    --------
    >>> import polars as pl
    >>> http_as_iso(pl.Series(["Sat, 31 Jan 2026 06:00:00 GMT", "2026-02-01"])).to_list()
    ['2026-01-31T06:00:00Z', '2026-02-01']
    """
    return _as_iso(times, _HTTP)


def header_as_iso(times: polars.Series) -> polars.Series:
    """Return dates as servers send them in ISO 8601.

    All others stay as they are. Of a header without a zone GMT is meant.

    Examples
    --------
    >>> import polars as pl
    >>> header_as_iso(pl.Series(["Saturday, 31-Jan-26 06:00:00 GMT", "Sun Feb  1 06:00:00 2026"])).to_list()
    ['2026-01-31T06:00:00Z', '2026-02-01T06:00:00Z']
    """
    for form in (_HTTP, *_OBSOLETE):
        times = _as_iso(times, form)
    return times


def _as_iso(times: polars.Series, form: str) -> polars.Series:
    import polars
    from polars import col, lit

    parts = times.str.extract_groups(form).struct.unnest()
    if parts["day"].null_count() == len(parts):
        return times
    numbers = {month: f"{k:02d}" for k, month in enumerate(_MONTHS, start=1)}
    month = col("month").str.to_titlecase().replace_strict(numbers, default=None, return_dtype=polars.String)
    zone = polars.when(col("zone").is_in(["GMT", "UTC", ""])).then(lit("Z")).otherwise(col("zone"))
    short = col("year").str.len_bytes() == 2
    last = short & (col("year").cast(polars.Int64, strict=False) >= _CENTURY)
    century = polars.when(last).then(lit("19")).when(short).then(lit("20")).otherwise(lit(""))
    date = century + col("year") + "-" + month + "-" + col("day").str.zfill(2)
    clock = polars.when(col("clock").str.contains("^[0-9]:")).then("0" + col("clock")).otherwise(col("clock"))
    return parts.select(polars.coalesce(date + "T" + clock + zone, times).alias("time"))["time"]
