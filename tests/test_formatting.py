"""Numbers and tables for people."""

from __future__ import annotations

import pytest

from freshopt.formatting import WIDTH, percent, table

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
