"""Quantities as people write them."""

from __future__ import annotations

import pytest

import freshopt as fo
from freshopt.units import SECONDS, check_time_unit, convert_time, parse_duration, parse_rate


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("7d", "day", 7.0),
        ("12 h", "day", 0.5),
        ("2 weeks", "day", 14.0),
        ("90min", "hour", 1.5),
        ("3600s", "hour", 1.0),
        ("3.5", "week", 3.5),
        ("1e-3 day", "second", 86.4),
        ("2W", "day", 14.0),
    ],
)
def test_durations(text: str, unit: str, expected: float) -> None:
    assert abs(parse_duration(text, unit) - expected) <= 1e-15 * expected


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("200/day", "day", 200.0),
        ("1/hour", "day", 24.0),
        ("4/h", "week", 672.0),
        ("5", "day", 5.0),
        ("7 / week", "day", 1.0),
    ],
)
def test_rates(text: str, unit: str, expected: float) -> None:
    assert abs(parse_rate(text, unit) - expected) <= 1e-15 * expected


@pytest.mark.parametrize("text", ["", "d", "seven days", "1.2.3d", "nan", "inf d", "7 moons", "7d/2"])
def test_what_cannot_be_read_is_shown(text: str) -> None:
    for parse, example in ((parse_duration, "7d"), (parse_rate, "200/day")):
        with pytest.raises(fo.SourceDataError) as caught:
            parse(text, "day")
        assert repr(text) in str(caught.value)
        assert example in str(caught.value) or "Use second" in str(caught.value)


def test_a_rate_is_no_duration_and_a_duration_no_rate() -> None:
    with pytest.raises(fo.SourceDataError, match=r"'7/day' is a rate, not a duration. Write it such as 7d"):
        parse_duration("7/day", "day")
    with pytest.raises(fo.SourceDataError, match=r"'7d' is a duration, not a rate. Write it such as 200/day"):
        parse_rate("7d", "day")


@pytest.mark.parametrize("text", ["-3d", "-3"])
def test_negative_quantities_are_refused(text: str) -> None:
    with pytest.raises(fo.SourceDataError, match="negative"):
        parse_duration(text, "day")


@pytest.mark.parametrize("unit", SECONDS)
def test_units_convert_there_and_back(unit: str) -> None:
    assert check_time_unit(unit) == unit
    assert abs(convert_time(convert_time(3.0, unit, "day"), "day", unit) - 3.0) <= 1e-15


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(fo.SourceDataError, match=r"'month' is not known. Use one of second, minute"):
        check_time_unit("month")
