"""Numbers, counts and durations as people read them, the same on the terminal and on pages."""

from __future__ import annotations

from freshopt.units import SECONDS

_STEPS = (("second", 1.0), ("minute", 60.0), ("hour", 3600.0), ("day", 86400.0))  # as people measure gaps
_YEAR = 365.25 * 86400.0


def number(value: float) -> str:
    """Return a number as people read it.

    Examples
    --------
    >>> number(82.6371), number(2160.0), number(12345.67), number(1e12)
    ('82.64', '2,160', '12,345.7', '1e+12')
    """
    if 1e3 <= abs(value) < 1e9:
        return f"{value:,.1f}".removesuffix(".0")
    return f"{value:.4g}"


def count(value: float, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not 1.

    Examples
    --------
    >>> count(1, "crawl"), count(1306, "day"), count(0.5, "day")
    ('1 crawl', '1,306 days', '0.5 days')
    """
    text = f"{value:,}" if isinstance(value, int) else number(value)
    ending = "" if value == 1 else "es" if noun.endswith("sh") else "s"
    return f"{text} {noun}{ending}"


def percent(share: float, *, even: bool = False) -> str:
    r"""Return a share in percent, with a space that no line breaks at, never 0 or 100 for what only is near.

    Parameters
    ----------
    share : float
    even : bool
        Keep a final 0, as in a column of a table.

    Examples
    --------
    >>> percent(0.12759), percent(0.0003), percent(0.99999), percent(0.4), percent(19.1133)
    ('12.8\xa0%', '0.03\xa0%', '99.999\xa0%', '40\xa0%', '1,911\xa0%')
    >>> percent(0.4, even=True)
    '40.0\xa0%'
    """
    value = 100.0 * share
    if abs(value) >= 1000.0:
        return f"{value:,.0f}\xa0%"
    digits = 1 if 1.0 <= abs(value) <= 99.9 or abs(value) >= 100.0 else 3
    text = f"{value:.{digits}f}" if abs(value) >= 0.001 or value == 0.0 else f"{value:.1g}"
    text = (
        text.rstrip("0").rstrip(".")
        if "." in text and "e" not in text and not (even and digits == 1)
        else text
    )
    return f"{text}\xa0%"


def duration(value: float, time_unit: str) -> str:
    """Return a time in the unit in which people would say it.

    Examples
    --------
    >>> duration(92.57, "day"), duration(0.25, "day"), duration(0.01, "hour"), duration(3000.0, "day")
    ('92.6 days', '6 hours', '36 seconds', '8.21 years')
    """
    seconds = value * SECONDS[time_unit]
    unit, size = next(((name, size) for name, size in reversed(_STEPS) if seconds >= size), ("second", 1.0))
    if seconds >= 2.0 * _YEAR:
        unit, size = "year", _YEAR
    amount = float(f"{seconds / size:.3g}")
    return count(int(amount) if amount.is_integer() and amount < 1e9 else amount, unit)
