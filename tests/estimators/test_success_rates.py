"""Chances of success: statuses, the prior of all sources, sources that ended."""

import math
from pathlib import Path

import numpy as np
import pytest

from freshopt.estimators.success_rates import SuccessRates
from freshopt.logs.read_crawls import fetch_statuses


def test_statuses_are_successes_failures_or_ends() -> None:
    statuses = [200.0, 304.0, 503.0, 429.0, math.nan, 0.0, 404.0, 301.0]
    found = SuccessRates.from_statuses(["a"] * 8, statuses, np.arange(8.0))
    assert found.attempts.tolist() == [6.0]  # an empty status says nothing
    assert found.successes.tolist() == [3.0]
    assert not found.ended[0]
    gone = SuccessRates.from_statuses(["b", "a", "b"], [410.0, 200.0, 200.0], [5.0, 1.0, 2.0])
    assert gone.sources_.tolist() == ["a", "b"]
    assert gone.ended.tolist() == [False, True]


def test_the_prior_is_that_of_the_sources() -> None:
    """2000 sources with chances from Beta(6, 2): the prior is found, and shrinking halves the error."""
    rng = np.random.default_rng(5)
    chance = rng.beta(6.0, 2.0, 2000)
    source = np.repeat(np.arange(2000), rng.integers(1, 12, 2000))
    status = np.where(rng.random(len(source)) < chance[source], 200.0, 503.0)
    found = SuccessRates.from_statuses(source, status, np.arange(float(len(source))))
    a, b = found.prior
    assert a / (a + b) == pytest.approx(0.75, abs=0.02)
    assert 5.0 < a + b < 12.0
    own = found.successes / found.attempts
    assert np.mean((found.success - chance) ** 2) < 0.5 * np.mean((own - chance) ** 2)
    assert np.all((found.success > 0.0) & (found.success < 1.0))


def test_logs_without_failures_or_successes_have_chances_inside() -> None:
    for status in (200.0, 503.0):
        found = SuccessRates.from_statuses(["a", "a", "b"], [status] * 3, [0.0, 1.0, 2.0])
        assert np.all((found.success > 0.0) & (found.success < 1.0))
        assert np.all((found.success > 0.5) == (status == 200.0))


def test_a_log_file_tells_its_outcomes(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    rows = ["a,2024-01-01,200", "a,2024-01-03,404", "b,2024-01-02,503", "b,2024-01-01,200", "b,2024-01-03,"]
    file.write_text("\n".join(["source,time,status", *rows]))
    told = fetch_statuses(file)
    assert told is not None
    found = SuccessRates.from_statuses(told.source, told.status, told.time.astype(np.float64))
    assert found.words == "3 attempts of 2 sources, 66.7 % succeed, 1 source ended ('a')"
    assert found.ended.tolist() == [True, False]
    file.write_text("source,time,changed\na,1,0\n")
    assert fetch_statuses(file) is None
