"""Dates of HTTP headers and of feeds, as ISO 8601 text.

RFC 9110 section 5.6.7 and RFC 5322 write Sat, 31 Jan 2026 06:00:00 GMT. The two obsolete forms of RFC 9110
are those of RFC 850, Saturday, 31-Jan-26 06:00:00 GMT, and of C's asctime, Sat Jan 31 06:00:00 2026. The day
of the week is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars

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
