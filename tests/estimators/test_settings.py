"""What all estimators share: settings and confidences that are refused, reprs, what comes before a fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.estimators import (
    FullObservation,
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentMatching,
    MomentumStochasticApproximation,
    Naive,
    StochasticApproximation,
    moment_matching,
)
from freshopt.inference import crawl_likelihood
from freshopt.logs.crawl_log import CrawlLog

LOG = CrawlLog(["a", "a", "b"], [0, 1, 0], [0, 1, 0], changes=[0, 1, 0])
AT_KNOWN_RATE = (LawOfLargeNumbers, StochasticApproximation, MomentumStochasticApproximation)
ESTIMATORS: list[Any] = [MaximumLikelihood, MomentMatching, FullObservation, Naive, *AT_KNOWN_RATE]

# An estimator, a setting, its values, and words that name it.
REFUSED: list[tuple[Any, str, list[Any], str]] = [
    (MaximumLikelihood, "smoothing", [-1.0, math.nan, math.inf], "smoothing"),
    (
        MomentMatching,
        "bounds",
        [(-1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.nan)],
        "bounds are",
    ),
    (FullObservation, "smoothing", [-1.0], "smoothing"),
    (LawOfLargeNumbers, "alpha", [0.0, -1.0, math.nan, math.inf], "alpha is"),
    (StochasticApproximation, "step", [0.0, 1.1, math.nan], r"step is .* Pass 0\.75"),
    (MomentumStochasticApproximation, "omega", [0.0, -1.0, math.inf, math.nan], "omega is"),
    *((make, "floor", [-1.0, math.nan, math.inf], "floor is") for make in (Naive, *AT_KNOWN_RATE)),
]


@pytest.mark.parametrize(
    ("make", "name", "value", "words"),
    [(make, name, value, words) for make, name, values, words in REFUSED for value in values],
)
def test_unusable_settings_are_refused(make: Any, name: str, value: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(SourceDataError, match=words):
        make(**{name: value})


@pytest.mark.parametrize(("step", "beta"), [(0.5, 0.75), (1.6, 0.75), (1.0, 1.2), (math.nan, 0.75)])
def test_exponents_that_do_not_go_together_are_refused(step: float, beta: float) -> None:
    with pytest.raises(SourceDataError, match=r"step is .* and beta is"):
        MomentumStochasticApproximation(step, beta)


def test_an_alpha_that_is_none_for_one_crawl_is_refused() -> None:
    with pytest.raises(SourceDataError, match=r"alpha\(1\) is 0.0"):
        LawOfLargeNumbers(math.log).fit(LOG, 1.0)


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, math.nan])
def test_unusable_confidence_is_refused(make: Any, confidence: float) -> None:  # noqa: ANN401
    model = make().fit(LOG, 1.0) if make in AT_KNOWN_RATE else make().fit(LOG)
    with pytest.raises(SourceDataError, match=r"confidence.*0\.95"):
        model.interval(confidence)


ASKED: list[Callable[[Any], Any]] = [lambda model: model.interval(), lambda model: model.nodes()]


@pytest.mark.parametrize(
    ("make", "ask"),
    [
        *((make, ask) for make in ESTIMATORS for ask in ASKED),
        (MomentMatching, lambda model: model.error_bound()),
    ],
)
def test_nothing_is_told_before_a_fit(make: Any, ask: Callable[[Any], Any]) -> None:  # noqa: ANN401
    with pytest.raises(FreshoptError, match=r"fit\(log\)"):
        ask(make())


@pytest.mark.parametrize(
    ("module", "model"), [(crawl_likelihood, MaximumLikelihood(0.5)), (moment_matching, MomentMatching())]
)
def test_an_iteration_that_does_not_settle_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    model: Any,  # noqa: ANN401
) -> None:
    rng = np.random.default_rng(44)
    columns = {
        "source": np.repeat(np.arange(20), 20),
        "elapsed": np.exp(2.0 * rng.standard_normal(400)),
        "changed": rng.random(400) < 0.5,
    }
    monkeypatch.setattr(module, "STEPS", 1)
    with pytest.raises(FreshoptError, match="did not settle in 1 steps"):
        model.fit(CrawlLog.from_columns(columns))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (MaximumLikelihood(0.25), "MaximumLikelihood(smoothing=0.25)"),
        (MomentMatching((0, 2)), "MomentMatching(bounds=(0.0, 2.0))"),
        (FullObservation(0.25), "FullObservation(smoothing=0.25)"),
        (Naive(), "Naive(floor=None)"),
        (LawOfLargeNumbers(2.0), "LawOfLargeNumbers(alpha=2.0, floor=None)"),
        (StochasticApproximation(floor=0.01), "StochasticApproximation(step=0.75, floor=0.01)"),
        (
            MomentumStochasticApproximation(0.8, 0.5, floor=0),
            "MomentumStochasticApproximation(step=0.8, beta=0.5, omega=1.0, floor=0)",
        ),
    ],
)
def test_reprs_tell_the_settings(model: Any, words: str) -> None:  # noqa: ANN401
    assert repr(model) == words
