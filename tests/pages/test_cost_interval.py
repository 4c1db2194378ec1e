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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["kind"])
def test_the_interval_holds_what_it_says(row: dict[str, Any]) -> None:
    assert row["worlds"] == 200
    assert row["held"] >= 0.85
    assert max(row["below"], row["above"]) <= 0.12


def test_the_page_names_what_is_wider_than_the_band() -> None:
    page = " ".join((ROOT / "docs" / "uncertainty.md").read_text(encoding="utf-8").split())
    told = [row for row in ROWS if row["high/low"] is not None and row["kind"] not in NO_WIDTH]
    wide = [row for row in told if row["high/low"] > 1.5 * row["oracle"]]
    words = [f"{row['kind']}, {row['high/low'] / row['oracle']:.2f} times the oracle's" for row in wide]
    assert "Outside the band: the width of " + "; ".join(words) + "." in page


def test_the_page_has_the_measurement() -> None:
    page = (ROOT / "docs" / "uncertainty.md").read_text(encoding="utf-8")
    for row in ROWS:
        assert f"| {row['kind']} | {row['held']:.2f} | {row['below']:.2f} | {row['above']:.2f} |" in page
