"""Intervals that assume Poisson crawls are refused for a log of other crawls, and for no log of those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshopt import CrawlLog
from freshopt.errors import SourceDataError
from freshopt.estimators import (
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentumStochasticApproximation,
    StochasticApproximation,
)
from tests.ground_truth import estimator_truth as truth

MODELS: list[Any] = [
    LawOfLargeNumbers(),
    LawOfLargeNumbers(half_life=300.0),
    StochasticApproximation(),
    MomentumStochasticApproximation(),
]


def crawl(kind: str, sources: int, crawls: int, rates: Any, seed: int = 1) -> tuple[CrawlLog, Any]:  # noqa: ANN401
    rng = np.random.default_rng([seed, sources, crawls])
    gaps = truth.gaps_of(kind, rng, (sources, crawls)) / rates[:, None]
    columns = {
        "source": np.repeat(np.arange(sources), crawls),
        "time": np.cumsum(gaps, axis=1).ravel(),
        "elapsed": gaps.ravel(),
        "changed": (rng.random(gaps.shape) < 0.5).ravel(),
    }
    return CrawlLog.from_columns(columns), rates


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize(
    ("kind", "words"), [("fixed", "regular"), ("uniform", "regular"), ("gamma", "irreg")]
)
@pytest.mark.parametrize(("sources", "crawls"), [(1, 400), (40, 20), (400, 5)])
def test_other_crawls_are_refused_in_one_line(
    model: Any,  # noqa: ANN401
    kind: str,
    words: str,
    sources: int,
    crawls: int,
) -> None:
    log, rates = crawl(kind, sources, crawls, np.geomspace(0.5, 2.0, sources))
    model.fit(log, rates)
    for ask in (model.interval, lambda: model.draws(2, 0)):
        with pytest.raises(SourceDataError, match=rf"more {words}.*Use MaximumLikelihood") as refused:
            ask()
        assert "\n" not in str(refused.value)
    lower, upper = MaximumLikelihood().fit(log).interval()
    assert np.all(lower < upper)


@pytest.mark.parametrize(("sources", "crawls"), [(1, 1), (1, 3), (7, 2), (3, 40), (200, 5)])
def test_poisson_crawls_are_served(sources: int, crawls: int) -> None:
    for seed in range(60):
        log, rates = crawl("exponential", sources, crawls, np.geomspace(1e-2, 1e4, sources), seed)
        LawOfLargeNumbers().fit(log, rates).interval()


def test_batches_are_judged_together() -> None:
    log, rates = crawl("fixed", 1, 200, np.ones(1))
    model = LawOfLargeNumbers()
    for part in np.array_split(np.arange(200), 5):
        columns = {
            "source": log.source_index,
            "time": log.time,
            "elapsed": log.interval,
            "changed": log.changed,
        }
        model.partial_fit(CrawlLog.from_columns({key: value[part] for key, value in columns.items()}), rates)
    with pytest.raises(SourceDataError, match="more regular"):
        model.interval()
