"""Dates as programs and people write them, in ISO 8601 and otherwise.

Headers have Sat, 31 Jan 2026 06:00:00 GMT (RFC 9110, section 5.6.7) and two obsolete forms, databases and
logs have forms of their own, and spreadsheets those of a country. Each is a row of `_FORMS`: an expression
whose groups name the fields. Whether 03/01/2026 is in January or in March the column tells, if a day in it is
beyond the 12th; with dots it is day.month.year. A year of two digits may come first as well: of the orders
that are dates throughout, those count whose years are the fewest. The day of the week is ignored.

Archives, file names and data warehouses write the fields of a date one after another, as text or as a number.
Text with a T, a zone or twelve digits is a moment and nothing else: 10¹¹ is 3,000 years in seconds, and
nobody counts so. Shorter numbers can count time too, on the log's own clock or in seconds since 1970. The
column decides where it can: all its numbers are dates, and would be a century or more after the zero of the
clock; or they are dates in so many months that this is no chance. What remains can be both, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.numerics.arrays import Array, IntArray
from freshopt.units import SECONDS

# Digits are 0 to 9: those of other scripts are no numbers to polars.
_ISO = (
    r"^\s*(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<clock>[0-9]{2}:[0-9]{2})(?P<second>:[0-9]{2})?(?P<fraction>\.[0-9]{1,9})?"
    r"(?P<zone>Z|(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2})?)?)?\s*$"
)
# The form of Last-Modified, which is read at once; rows that tell whether it is that of a column.
_HTTP, _SOME = "%a, %d %b %Y %H:%M:%S GMT", 1000
_HOUR = (
    r"(?P<hour>[0-9]{1,2})[:.](?P<minute>[0-9]{2})"
    r"(?:[:.](?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
)
_HALF = r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?"
# An offset goes before the name of a zone, of which only UTC's are known; Java and JavaScript repeat it.
_REPEATED = r"(?: ?\[[^\]]*\]| \([^)]*\))?"
_ZONE = (
    rf"(?: ?(?P<zone>Z|UTC|GMT){_REPEATED})?"
    rf"(?: ?(?P<offset>[+-][0-9]{{2}}:?(?:[0-9]{{2}})?)(?: [A-Z]{{3,4}})?{_REPEATED})?"
    r"(?: ?[\[(](?:Etc/)?(?:UTC|GMT)[\])])?"
)
_CLOCK = rf"(?:(?:T|,? +){_HOUR}{_HALF}{_ZONE})?"
_DAY, _MONTH, _YEAR = r"(?P<day>[0-9]{1,2})", r"(?P<month>[A-Za-z]{3})[a-z]*\.?", r"(?P<year>[0-9]{4})"
# 5/1/2026 or 5/1/26: the day, the month or a short year is first.
_BY_COUNTRY = (
    r"^\s*(?P<first>[0-9]{1,2})(?P<sign>[./-])(?P<next>[0-9]{1,2})[./-](?P<last>[0-9]{4}|[0-9]{2})"
    rf"{_CLOCK}\s*$"
)
# Which of its fields are the day, the month and the year.
_ORDERS = (("first", "next", "last"), ("next", "first", "last"), ("last", "next", "first"))
_FORMS = (
    # 2026-01-31 06:00:00,123 +0100, of git, loggers and databases; 2026/01/31.
    rf"^\s*{_YEAR}[-/.](?P<month>[0-9]{{1,2}})[-/.]{_DAY}{_CLOCK}\s*$",
    # 20260131T060000Z; a fraction without a point has 3, 6 or 9 digits, as 15 and 16 digits are no form.
    rf"^\s*{_YEAR}(?P<month>[0-9]{{2}})(?P<day>[0-9]{{2}})"
    r"(?:[T _-]?(?P<hour>[0-9]{2})(?:(?P<minute>[0-9]{2})(?:(?P<second>[0-9]{2})"
    r"(?:[.,](?P<fraction>[0-9]{1,9})|(?P<digits>[0-9]{9}|[0-9]{6}|[0-9]{3}))?)?)?"
    r" ?(?P<zone>Z)?(?P<offset>[+-][0-9]{2}:?(?:[0-9]{2})?)?)?\s*$",
    # Sat, 31 Jan 2026 06:00:00 GMT; Saturday, 31-Jan-26 06:00:00 GMT; 31-JAN-26 06.00.00.0 AM.
    rf"^\s*(?:[A-Za-z]+,? *)?{_DAY}[ -]{_MONTH}[ -](?P<year>[0-9]{{4}}|[0-9]{{2}}){_CLOCK}\s*$",
    # 31/Jan/2026:06:00:00 +0100, of web servers.
    rf"^\s*\[?{_DAY}/{_MONTH}/{_YEAR}:{_HOUR}{_ZONE}\]?\s*$",
    # Sat Jan 31 06:00:00 2026, with a zone anywhere behind the clock.
    rf"^\s*(?:[A-Za-z]{{3}},? )?{_MONTH} +{_DAY} {_HOUR}{_ZONE} {_YEAR}(?: (?P<behind>[+-][0-9]{{4}}))?\s*$",
    # January 31, 2026, 6:00 AM; Sat Jan 31 2026 06:00:00 GMT+0100 (Central European Standard Time).
    rf"^\s*(?:[A-Za-z]+,? )?{_MONTH} +{_DAY},? {_YEAR}{_CLOCK}\s*$",
    _BY_COUNTRY,
)
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

RowName: TypeAlias = Callable[[int], str]


class _Form(NamedTuple):
    """Digits of a date, and what makes a full date of them."""

    name: str
    before: str = ""
    after: str = ""


_DIGITS = {
    6: (_Form("YYYYMM", after="01"), _Form("YYMMDD", before="20")),
    7: (_Form("YYYYDDD"),),
    8: (_Form("YYYYMMDD"),),
    10: (_Form("YYYYMMDDHH"), _Form("YYMMDDHHMM", before="20")),
}
_TWO_DIGITS = _Form("YYMMDDHHMMSS", before="20")


def dates_of_numbers(
    numbers: npt.NDArray[Any],
    what: str,
    row_name: RowName,
    time_unit: str | None,
    *,
    digits: polars.Series | None = None,
    dated: bool = False,
) -> Array | npt.NDArray[np.datetime64]:
    """Return the moments that numbers write, or numbers that count time.

    - `numbers` ndarray of float64 or of an integer type (m,): Those that are not finite are no moments.
    - `what`, `row_name`: As in messages.
    - `time_unit`: Of the clock on which they may count. None where that is not known yet: short numbers then
      count.
    - `digits` Series of text (m,): The numbers as they were written.
    - `dated`: Whether the other times of the log are dates, so that none of these counts.
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
        read = _long_dates(written(known), named)
    else:
        # Of what counts time, few numbers are looked at.
        forms = _forms_of(written(known[:_FEW])) if time_unit is not None or dated else ()
        if not forms:
            return as_they_are
        shown, at = written(known), as_they_are[known]
        padded = bool(shown.str.contains("^0[0-9]").any()) and digits is not None
        counted = None if dated or padded else _counted(at, str(time_unit))
        read = _short_dates(shown, forms, named, counted, at)
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
    if numbers.dtype.kind != "f":
        return polars.Series(numbers).cast(polars.String)
    if bool(np.any(numbers != np.floor(numbers))) or float(np.max(np.abs(numbers))) >= 2.0**63:
        return polars.Series([f"{x:.6f}" for x in numbers.tolist()]).str.replace(r"\.0*$", "")
    return polars.Series(numbers.astype(np.int64)).cast(polars.String)


def _forms_of(few: polars.Series) -> tuple[_Form, ...]:
    """Return the forms in which most of these numbers are dates."""
    width = int(few.str.len_bytes().mode()[0])
    forms = (form for form in _DIGITS.get(width, ()) if 2 * _read(form, few).count() > len(few))
    return tuple(forms)


def _read(form: _Form, shown: polars.Series) -> polars.Series:
    """Return numbers as dates in a form, null where they are none."""
    fitting = polars.when(shown.str.contains(f"^[0-9]{{{len(form.name)}}}$")).then(shown)
    text = polars.select((form.before + fitting + form.after).alias("text"))["text"]
    ordinal = form.name == "YYYYDDD"
    read = text.str.to_datetime("%Y%j", time_unit="us", strict=False) if ordinal else parse_dates(text)[0]
    modern = read.dt.year().is_between(*_YEARS).fill_null(value=False)
    return polars.select(polars.when(modern).then(read).alias("time"))["time"]


def _short_dates(
    shown: polars.Series,
    forms: tuple[_Form, ...],
    named: Callable[[int], str],
    counted: str | None,
    numbers: Array,
) -> polars.Series | None:
    """Return a column's dates of one form, None where it counts time."""
    found = {form: _read(form, shown) for form in forms}
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


def _long_dates(shown: polars.Series, named: Callable[[int], str]) -> polars.Series | None:
    """Return dates of a column with numbers of twelve digits."""
    short = _read(_TWO_DIGITS, shown)
    if not short.has_nulls():
        read = _read(_Form("YYYYMMDDHHMM"), shown)
        either = "" if read.has_nulls() else f"{read[0]:%Y-%m-%d %H:%M} (YYYYMMDDHHMM) or "
        raise SourceDataError(
            f"{named(0)}, which can be {either}a date with a year of two digits ({_TWO_DIGITS.name}). "
            f"{_WRITTEN}."
        )
    year = shown.str.slice(0, 4).cast(polars.Int64, strict=False)
    modern = (year.is_between(*_YEARS) & shown.str.contains(_LONG)).fill_null(value=False)
    if not modern.any():
        return None
    read = parse_dates(shown)[0]
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


def parse_dates(times: polars.Series) -> tuple[polars.Series, polars.Series]:
    """Parse dates and times as people and programs write them.

    They may have seconds, a fraction and an offset or not, mixed as they come. Returned are the moments, and
    which times have an offset.
    """
    read = _parse_iso(times)
    for parse in (_parse_http, lambda rest: _parse_iso(as_iso(rest))):
        left = (read["time"].is_null() & times.is_not_null()).arg_true()
        if len(left):
            more = parse(times.gather(left))
            read = polars.DataFrame([read[name].scatter(left, more[name]) for name in read.columns])
    return read["time"], read["zoned"]


def _parse_http(times: polars.Series) -> polars.DataFrame:
    """Return the columns time and zoned of HTTP dates."""
    some = times.head(_SOME).str.to_datetime(_HTTP, time_unit="us", strict=False)
    if some.is_null().all():
        time = polars.Series("time", [None], dtype=some.dtype).new_from_index(0, len(times))
    else:
        time = times.str.to_datetime(_HTTP, time_unit="us", strict=False)
    return polars.DataFrame({"time": time, "zoned": time.is_not_null()})


def _parse_iso(times: polars.Series) -> polars.DataFrame:
    """Return the columns time and zoned of ISO 8601."""
    parts = times.str.extract_groups(_ISO).struct.unnest()
    clock = polars.col("clock").fill_null("00:00") + polars.col("second").fill_null(":00")
    text = polars.col("day") + "T" + clock + polars.col("fraction").fill_null("")
    local = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    hours, minutes = (polars.col(key).cast(polars.Int64).fill_null(0) for key in ("hours", "minutes"))
    east = (60 * hours + minutes) * polars.when(polars.col("sign") == "-").then(-1).otherwise(1)
    return parts.select(
        (local - polars.duration(minutes=east)).alias("time"), polars.col("zone").is_not_null().alias("zoned")
    )


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# Years of two digits from here on are of the last century, as POSIX has them.
_CENTURY = 69


def as_iso(times: polars.Series) -> polars.Series:
    """Return dates in ISO 8601, null where a text is none.

    Examples
    --------
    >>> import polars as pl
    >>> as_iso(pl.Series(["Sat, 31 Jan 2026 06:00:00 GMT", "20260131T0600Z", "31.1.2026", "-"])).to_list()
    ['2026-01-31T06:00:00Z', '2026-01-31T06:00Z', '2026-01-31', None]
    """
    found = polars.Series(times.name, [None], dtype=polars.String).new_from_index(0, len(times))
    for form in _FORMS:
        left = (found.is_null() & times.is_not_null()).arg_true()
        if len(left) == 0:
            break
        parts = times.gather(left).str.extract_groups(form).struct.unnest()
        if parts[parts.columns[0]].null_count() < len(parts):
            found = found.scatter(left, _joined(parts))
    return found


def undecided(text: str) -> bool:
    """Return whether the day, the month or the year may come first.

    Examples
    --------
    >>> undecided("3/1/2026 10:00"), undecided("2026-01-03")
    (True, False)
    """
    return re.match(_BY_COUNTRY, text) is not None


def impossible(text: str) -> bool:
    """Return whether a text is a date that no calendar has.

    Examples
    --------
    >>> impossible("2026-02-30 06:00"), impossible("31.02.2026"), impossible("31.01.2026"), impossible("soon")
    (True, True, False, False)
    """
    found = re.match(_BY_COUNTRY, text)
    iso = re.match(r"\s*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?![0-9])", text)
    if found is not None:
        ways = [tuple(int(found[name]) for name in order) for order in _ORDERS]
    else:
        ways = [] if iso is None else [(int(iso[3]), int(iso[2]), int(iso[1]))]
    return bool(ways) and not any(_in_calendar(*way) for way in ways)


def _in_calendar(day: int, month: int, year: int) -> bool:
    """Return whether there is such a day."""
    try:
        date(year or 2000, month, day)
    except ValueError:
        return False
    return True


def _joined(parts: polars.DataFrame) -> polars.Series:
    """Return the fields of dates as ISO 8601."""
    if "first" in parts.columns:
        parts = parts.with_columns(**_by_country(parts))
    known = set(parts.columns)
    month, year, hour = polars.col("month").str.to_lowercase(), polars.col("year"), polars.col("hour")
    numbers = {name: f"{k:02d}" for k, name in enumerate(_MONTHS, start=1)}
    named = month.replace_strict(numbers, default=None, return_dtype=polars.String)
    month = polars.when(month.str.contains("^[0-9]")).then(month.str.zfill(2)).otherwise(named)
    last = year.cast(polars.Int64, strict=False) >= _CENTURY
    century = (
        polars.when(year.str.len_bytes() == 4)
        .then(polars.lit(""))
        .when(last)
        .then(polars.lit("19"))
        .otherwise(polars.lit("20"))
    )
    if "half" in known:
        later = polars.when(polars.col("half").str.to_lowercase() == "p").then(12).otherwise(0)
        noon = (hour.cast(polars.Int64, strict=False) % 12 + later).cast(polars.String)
        hour = polars.when(polars.col("half").is_null()).then(hour).otherwise(noon)
    fractions = [polars.lit(".") + polars.col(name) for name in ("fraction", "digits") if name in known]
    second = polars.coalesce(
        polars.lit(":") + polars.col("second") + polars.coalesce(*fractions, polars.lit("")), polars.lit("")
    )
    offsets = [polars.col(name) for name in ("offset", "behind") if name in known]
    zone = polars.coalesce(
        *offsets, polars.when(polars.col("zone").is_not_null()).then(polars.lit("Z")), polars.lit("")
    )
    clock = polars.lit("T") + hour.str.zfill(2) + ":" + polars.col("minute").fill_null("00") + second + zone
    date = century + year + "-" + month + "-" + polars.col("day").str.zfill(2)
    return parts.select((date + clock.fill_null("")).alias("time"))["time"]


def _by_country(parts: polars.DataFrame) -> dict[str, polars.Expr]:
    """Return day, month and year of 5/1/2026; null where it is undecided."""
    number = {name: parts[name].cast(polars.Int64) for name in _ORDERS[0]}
    short = bool((parts["last"].str.len_bytes() == 2).all())
    found = {}
    for order in _ORDERS if short else _ORDERS[:2]:
        day, month, year = (number[name] for name in order)
        dates = day.is_between(1, 31) & month.is_between(1, len(_MONTHS))
        years = (year + 100 * (year < _CENTURY).cast(polars.Int64)).filter(dates).to_numpy()
        # Most dates first, then the fewest years.
        found[order] = (-int(dates.sum()), int(np.ptp(years)) if len(years) else 0)
    likely = [order for order, rank in found.items() if rank == min(found.values())]
    if len(likely) > 1 and likely[0] == _ORDERS[0] and bool((parts["sign"] == ".").all()):
        likely = likely[:1]
    fields = [polars.col(name) if len(likely) == 1 else polars.lit(None, polars.String) for name in likely[0]]
    return dict(zip(("day", "month", "year"), fields, strict=True))
