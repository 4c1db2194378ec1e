"""The saved measurement of coverage holds what is promised, and a row of it is what it says."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom

from freshopt.estimators.estimator import Estimator
from freshopt.inference import interval_methods
from tests.pages.measured import harness

ROWS: list[dict[str, Any]] = harness.saved("interval_coverage")["rows"]


def rows(method: str, **wanted: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    chosen = [row for row in ROWS if row["method"].startswith(method)]
    return [row for row in chosen if all(row[key] == value for key, value in wanted.items())]


def test_the_docstrings_have_the_coverage_of_few_crawls() -> None:
    words = re.sub(r"\s+", " ", Estimator.interval.__doc__ or "")
    told: dict[str, Any] = {"estimator": "MaximumLikelihood", "gaps": "equal", "confidence": 0.9}
    shown = {}
    for crawls in (5, 10):
        (row,) = rows("Posterior", crawls=crawls, **told)
        shown[crawls] = f"{row['average']:.2f}", f"between {row['lowest']:.2f} and {row['highest']:.2f}"
    assert "those of 0.9 cover {} on average and {}".format(*shown[5]) in words
    assert "after 10 they cover {} and {}".format(*shown[10]) in words
    ratio = [row for crawls in (5, 10) for row in rows("LikelihoodRatio", crawls=crawls, **told)]
    least, most = min(row["lowest"] for row in ratio), max(row["highest"] for row in ratio)
    assert f"`LikelihoodRatio` covers between {least:.2f} and {most:.2f} there" in words


def test_what_is_said_of_the_others_is_so() -> None:
    few = {
        row["confidence"]: row["average"]
        for row in rows("LikelihoodRatio", estimator="MaximumLikelihood", crawls=20)
    }
    assert few[0.8] < 0.78
    assert "after 20" in (interval_methods.__doc__ or "").replace("\n", " ")


def test_the_docstring_has_the_measured_swing() -> None:
    words = re.sub(r"\s+", " ", Estimator.interval.__doc__ or "")
    numbers = re.search(
        r"after 20 equal crawl intervals, credible intervals of 0\.8 cover between "
        r"([\d.]+) and ([\d.]+) of the time, "
        r"those of 0\.95 between ([\d.]+) and ([\d.]+); after 200 the range is "
        r"([\d.]+) to ([\d.]+) and ([\d.]+) to ([\d.]+) ",
        words,
    )
    assert numbers
    told = iter(map(float, numbers.groups()))
    for crawls in (20, 200):
        for confidence in (0.8, 0.95):
            (row,) = rows(
                "Posterior", estimator="MaximumLikelihood", gaps="equal", crawls=crawls, confidence=confidence
            )
            assert next(told) == pytest.approx(row["lowest"], abs=0.0051)
            assert next(told) == pytest.approx(row["highest"], abs=0.0051)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_a_row_is_the_sum_of_probabilities_that_it_says(confidence: float) -> None:
    """Equal gaps: Jeffreys' interval of the share, ends opened, summed over binomial outcomes."""
    found = np.arange(21)
    tail = 0.5 * (1 - confidence)
    low = np.where(found == 0, 0.0, beta.ppf(tail, found + 0.5, 20.5 - found))
    high = np.where(found == 20, 1.0, beta.ppf(1 - tail, found + 0.5, 20.5 - found))
    (row,) = rows("Posterior", estimator="MaximumLikelihood", gaps="equal", crawls=20, confidence=confidence)
    for rate, covered in row["at"].items():
        share = -np.expm1(-float(rate))
        expected = binom.pmf(found, 20, share)[(low <= share) & (share <= high)].sum()
        assert covered == pytest.approx(expected, abs=1e-9)
