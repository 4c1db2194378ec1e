"""Dates of HTTP headers and of feeds, as ISO 8601 text.

RFC 9110 section 5.6.7 and RFC 5322 write Sat, 31 Jan 2026 06:00:00 GMT. The day of the week is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars

_HTTP = (
    r"^\s*(?:[A-Za-z]{3}, *)?(?P<day>[0-9]{1,2}) (?P<month>[A-Za-z]{3}) (?P<year>[0-9]{4}) "
    r"(?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?) (?P<zone>GMT|UTC|Z|[+-][0-9]{4})\s*$"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_as_iso(times: polars.Series) -> polars.Series:
    """Return HTTP dates as ISO 8601, all others as they are.

    Examples
    --------
    >>> import polars as pl
    >>> http_as_iso(pl.Series(["Sat, 31 Jan 2026 06:00:00 GMT", "2026-02-01"])).to_list()
    ['2026-01-31T06:00:00Z', '2026-02-01']
    """
    import polars
    from polars import col, lit

    parts = times.str.extract_groups(_HTTP).struct.unnest()
    if parts["day"].null_count() == len(parts):
        return times
    numbers = {month: f"{k:02d}" for k, month in enumerate(_MONTHS, start=1)}
    month = col("month").str.to_titlecase().replace_strict(numbers, default=None, return_dtype=polars.String)
    zone = polars.when(col("zone").is_in(["GMT", "UTC"])).then(lit("Z")).otherwise(col("zone"))
    date = col("year") + "-" + month + "-" + col("day").str.zfill(2)
    return parts.select(polars.coalesce(date + "T" + col("clock") + zone, times).alias("time"))["time"]
