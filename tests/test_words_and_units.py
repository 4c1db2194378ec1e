"""Numbers as text, and units of time."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt import units
from freshopt.formatting import WIDTH, percent, table
from tests.ground_truth.refusals import refused, refusing

HEADS = ("", "refreshes per day", "predicted", "staleness (lower is better)", "± error", "time fresh")
ROWS = [
    ("planned rates at good phases of the week", "24.01", "13.47", "14.4", "0.7573", "96.0 %"),
    ("equal rates", "24", "20.37", "17.69", "1.409", "95.2 %"),
]


@pytest.mark.parametrize("width", [72, 80, WIDTH, 200])
def test_a_table_is_as_wide_as_it_may_and_keeps_every_word(width: int) -> None:
    shown = table([HEADS, *ROWS], width)
    assert max(map(len, shown.splitlines())) <= width
    for row in (HEADS, *ROWS):
        assert all(word in shown.split() for cell in row for word in cell.split())
    assert len(shown.splitlines()) == 3 or width < WIDTH + 20
    for cell in ("96.0 %", "95.2 %"):  # a number stays with its sign, and the rows stay aligned
        (line,) = [line for line in shown.splitlines() if line.endswith(cell)]
        assert line.index(cell) == max(map(len, shown.splitlines())) - len(cell)


def test_names_longer_than_the_console_are_kept_whole() -> None:
    name = f"https://example.org/{'long' * 40}"
    assert name in table([("", "old interval"), (name, "3 days")], 80)


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.999999, "99.9999 %"),
        (0.99999951, "99.99995 %"),
        (0.9999949, "99.999 %"),
        (1.0 - 2.0**-52, "100 %"),
        (1.0, "100 %"),
        (1e-9, "1e-07 %"),
    ],
)
def test_what_is_near_100_percent_is_not_100_percent(share: float, shown: str) -> None:
    assert percent(share, space=" ") == shown


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
        ("30m", "hour", 0.5),
        ("every 30 min", "hour", 0.5),
        ("daily", "hour", 24.0),
        ("12 months", "day", 365.25),
        ("1y", "day", 365.25),
        ("2 months", "day", 60.875),
        ("1 year", "day", 365.25),
    ],
)
def test_durations(text: str, unit: str, expected: float) -> None:
    assert abs(units.parse_duration(text, unit) - expected) <= 1e-15 * expected


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("200/day", "day", 200.0),
        ("1/hour", "day", 24.0),
        ("4/h", "week", 672.0),
        ("5", "day", 5.0),
        ("7 / week", "day", 1.0),
        ("1/20d", "day", 0.05),
        ("3/12h", "day", 6.0),
        ("4 per day", "week", 28.0),
        ("1 a day", "day", 1.0),
        ("/h", "day", 24.0),
        ("hourly", "day", 24.0),
        ("every 2 days", "day", 0.5),
        ("Every 2 days", "day", 0.5),
        ("4 per day", "day", 4.0),
        ("1/30d", "day", 1.0 / 30.0),
        ("3 per 2 weeks", "week", 1.5),
        ("1/month", "day", 12.0 / 365.25),
        ("1/0.5h", "day", 48.0),
    ],
)
def test_rates(text: str, unit: str, expected: float) -> None:
    assert abs(units.parse_rate(text, unit) - expected) <= 1e-15 * expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "d",
        "seven days",
        "1.2.3d",
        "nan",
        "inf d",
        "7 moons",
        "7d/2",
        "7/",
        "4 perday",
        "1/0d",
        "every",
        "every 0 d",
    ],
)
def test_what_cannot_be_read_is_shown(text: str) -> None:
    for parse, example in ((units.parse_duration, "7d"), (units.parse_rate, "200/day")):
        with pytest.raises(fo.SourceDataError) as caught:
            parse(text, "day")
        assert repr(text) in str(caught.value)
        assert example in str(caught.value) or "Use second" in str(caught.value)


def test_times_are_timedeltas_too_and_rates_are_not() -> None:
    assert units.duration_of("horizon", timedelta(hours=36), "day") == 1.5
    assert units.gap_of("gap", timedelta(0), "day") == 0.0
    refused("horizon is -1", units.duration_of, "horizon", timedelta(days=-1), "day")
    refused(r"a time\. Pass a rate such as 200/day", units.rate_of, "bandwidth", timedelta(days=1), "day")


SOURCES = fo.Sources([1.0, 2.0], names=["a", "b"], host=["x", "y"], time_unit="hour")
PROBLEM = fo.Problem("harmonic", SOURCES, 2.0, {"x": 0.5})


@pytest.mark.parametrize(
    ("given", "text", "number"),
    [
        (lambda rate: fo.Problem("harmonic", SOURCES, rate).bandwidth, "48/day", 2.0),
        (lambda rate: fo.Problem("harmonic", SOURCES, 2.0, {"x": rate}).host_limits["x"], "12/day", 0.5),
        (lambda rate: PROBLEM.with_bandwidth(rate).bandwidth, "72/day", 3.0),
        (lambda rate: fo.frontier(PROBLEM, [rate]).limits[0], "72/day", 3.0),
        (
            lambda rate: (
                fo.solve_many(
                    fo.problems.HarmonicStaleness(), SOURCES, offsets=[0, 1, 2], bandwidths=[rate, rate]
                )
                .problems[1]
                .bandwidth
            ),
            "1/min",
            60.0,
        ),
        (lambda time: fo.schedule({"a": 1.0}, time).horizon, "2w", 14.0),
        (lambda time: fo.schedule({"a": 1.0}, time).horizon, timedelta(days=2), 2.0),
        (lambda time: fo.Schedule([0], [0.5], time, [1.0]).horizon, "36h", 1.5),
        (lambda time: fo.scheduling.crawl_counts(fo.Problem("age", SOURCES, 2.0), time).sum(), "1d", 48),
        (
            lambda time: (
                np.diff(
                    fo.scheduling.with_host_gap(fo.schedule({"a": 1.0, "b": 1.0}, 2.0), [0, 0], time).time
                ).min()
                >= 0.1
            ),
            "2.4h",
            True,
        ),
        (
            lambda share: (
                fo.bandwidth_for(PROBLEM, freshness=share).bandwidth
                / fo.bandwidth_for(PROBLEM, freshness=0.6).bandwidth
            ),
            "60%",
            1.0,
        ),
    ],
    ids=(
        *("Problem", "host limit", "with_bandwidth", "frontier", "solve_many", "schedule", "timedelta"),
        *("Schedule", "crawl_counts", "with_host_gap", "bandwidth_for"),
    ),
)
def test_python_reads_text_as_the_command_line_does(
    given: Callable[[Any], float], text: str | timedelta, number: float
) -> None:
    assert given(text) == pytest.approx(number, rel=1e-15)
    with refusing("such as" if isinstance(text, str) else "horizon"):
        given("often" if isinstance(text, str) else timedelta(0))


def test_a_rate_is_no_duration_and_a_duration_no_rate() -> None:
    refused(r"'7/day' is a rate, not a duration. Write it such as 7d", units.parse_duration, "7/day", "day")
    refused(r"'7d' is a duration, not a rate. Write it such as 200/day", units.parse_rate, "7d", "day")


@pytest.mark.parametrize("text", ["-3d", "-3"])
def test_negative_quantities_are_refused(text: str) -> None:
    refused("negative", units.parse_duration, text, "day")


@pytest.mark.parametrize("unit", units.SECONDS)
def test_units_convert_there_and_back(unit: str) -> None:
    assert units.check_time_unit(unit) == unit
    assert abs(units.convert_time(units.convert_time(3.0, unit, "day"), "day", unit) - 3.0) <= 1e-15


def test_an_unknown_unit_is_named() -> None:
    refused(r"'month' is not known. Use one of second, minute", units.check_time_unit, "month")
    refused(r"'dya' is not known. Did you mean 'day'\? Use one of second", units.check_time_unit, "dya")
