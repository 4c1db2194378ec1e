"""The saved coverage of the interval of a plan's cost: in its band, and on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROWS: list[dict[str, Any]] = json.loads((ROOT / "benchmarks/results/cost_interval.json").read_text())["rows"]
# Of these crawls tell too little, and the oracle knows what no log does.
NO_WIDTH = ("three changes in all", "never a change")


def outside(row: dict[str, Any]) -> list[str]:
    """Return what of a kind is outside the band, as the page has it."""
    found, passed = [], max(row["below"], row["above"])
    if row["held"] < 0.85:
        found.append(f"{row['kind']}, held {row['held']:.2f}")
    if passed > 0.12:
        found.append(f"{row['kind']}, its end passed in {passed:.2f}")
    if row["high/low"] is not None and row["kind"] not in NO_WIDTH:
        ratio = row["high/low"] / row["oracle"]
        if ratio > 1.5:
            found.append(f"{row['kind']}, {ratio:.2f} times the oracle's width")
    return found


def test_the_page_names_all_that_is_outside_the_band() -> None:
    page = " ".join((ROOT / "docs" / "uncertainty.md").read_text(encoding="utf-8").split())
    begin = page.index("Outside the band, on seeds")
    told = page[begin : page.index(" Against an oracle", begin)]
    words = [text for row in ROWS for text in outside(row)]
    assert words
    assert all(text in told for text in words), words
    assert told.count(";") == len(words) - 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["kind"])
def test_intervals_hold_the_most_of_true_costs(row: dict[str, Any]) -> None:
    """Within two standard errors of the band, whatever the seeds."""
    assert row["worlds"] == 200
    assert row["held"] >= 0.85 - 2.0 * (0.85 * 0.15 / 200) ** 0.5


def test_the_page_has_the_measurement() -> None:
    page = (ROOT / "docs" / "uncertainty.md").read_text(encoding="utf-8")
    for row in ROWS:
        assert f"| {row['kind']} | {row['held']:.2f} | {row['below']:.2f} | {row['above']:.2f} |" in page
