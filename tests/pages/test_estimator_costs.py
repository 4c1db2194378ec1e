"""The saved measurement of what learning costs holds what is promised."""

from __future__ import annotations

import json
from pathlib import Path

SAVED = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "results" / "estimators_speed.json").read_text()
)


def test_maximum_likelihood_costs_a_few_copies() -> None:
    assert set(SAVED["fits"]) == {"0.1", "0.5", "0.9"}
    for row in SAVED["fits"].values():
        assert row["copies"]["maximum likelihood"] <= SAVED["held"]["maximum likelihood, copies"] == 25.0
        assert row["copies"]["naive"] < row["copies"]["moment matching"]


def test_a_hundred_million_observations_fit() -> None:
    assert SAVED["memory"]["rows"] == 10**8
    assert SAVED["memory"]["peak_gib"] <= SAVED["held"]["memory, GiB"] == 10.0


def test_logs_of_ten_million_rows_are_built_in_seconds() -> None:
    assert max(SAVED["builds"].values()) < 10.0
