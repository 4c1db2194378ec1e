"""What all estimators share: what is refused, one row each; reprs; what comes before a fit."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest

from freshopt.errors import FreshoptError
from freshopt.estimators import (
    Exact,
    FullObservation,
    GammaPrior,
    Hoeffding,
    HostPriors,
    LawOfLargeNumbers,
    LikelihoodRatio,
    MaximumLikelihood,
    MomentMatching,
    MomentumStochasticApproximation,
    Naive,
    Posterior,
    Published,
    StochasticApproximation,
    SuccessRates,
    WeeklyProfile,
    crawl_likelihood,
    moment_matching,
    resetting_prior,
)
from freshopt.estimators.rate_distribution import RateDistribution
from freshopt.logs.crawl_log import CrawlLog
from tests.estimators.test_batches import AT_KNOWN_RATE, EDGES
from tests.ground_truth.refusals import refused

LOG = CrawlLog(["a", "a", "b"], [0, 1, 0], [0, 1, 0], changes=[0, 1, 0])
STILL = CrawlLog([1, 1, 2, 2], [0, 1, 0, 1], [0, 0, 0, 0])
ESTIMATORS: list[Any] = [MaximumLikelihood, MomentMatching, FullObservation, Naive, *AT_KNOWN_RATE]
FORGETTING: list[Any] = [MaximumLikelihood, MomentMatching, Naive, LawOfLargeNumbers, FullObservation]
NONE: list[float] = [-1.0, math.nan, math.inf]
PRIOR = GammaPrior(1, 1)
# Words of a refusal, what refuses, a setting, and values that are refused.
SETTINGS: list[tuple[str, Callable[..., Any], str, list[Any]]] = [
    ("smoothing is", MaximumLikelihood, "smoothing", NONE),
    ("smoothing is", FullObservation, "smoothing", [-1.0]),
    ("alpha is", LawOfLargeNumbers, "alpha", [0.0, *NONE]),
    (r"step is .* Pass 0\.75", StochasticApproximation, "step", [0.0, 1.1, math.nan]),
    ("omega is", MomentumStochasticApproximation, "omega", [0.0, *NONE]),
    *(("floor is", make, "floor", NONE) for make in [cast(Any, Naive), *AT_KNOWN_RATE]),
    *((r"half_life is .*in days > 0, or None", make, "half_life", [0.0, *NONE]) for make in FORGETTING),
    ("bounds are", MomentMatching, "bounds", [(-1, 1), (1, 1), (2, 1), (math.nan, 1), (0, math.nan)]),
    (r"step is .* and beta is", partial(MomentumStochasticApproximation, beta=0.75), "step", [0.5, 1.6]),
    (r"step is .* and beta is", partial(MomentumStochasticApproximation, beta=1.2), "step", [1.0]),
    (r"step is .* and beta is", MomentumStochasticApproximation, "step", [math.nan]),
    ("and prior is None", MaximumLikelihood, "reset", ["auto"]),
    ("half_life is 3.0, and reset takes", partial(MaximumLikelihood, None, PRIOR, 3.0), "reset", [0.1]),
    ("smoothing is 0.5, and reset takes", partial(MaximumLikelihood, 0.5, PRIOR), "reset", [0.1]),
    (
        "reset is .*Pass resets per day",
        partial(MaximumLikelihood, None, PRIOR),
        "reset",
        [-1.0, "often", math.nan],
    ),
    (r"reset is \[0.1\], not a number", partial(MaximumLikelihood, None, PRIOR), "reset", [[0.1]]),
    ("shape is 0", partial(GammaPrior, exposure=1.0), "shape", [0.0]),
    ("exposure is nan", partial(GammaPrior, shape=1.0), "exposure", [math.nan]),
    ("time_unit", partial(GammaPrior, 1.0, 1.0), "time_unit", ["month"]),
    ("birth_rate is", partial(GammaPrior, 1.0, 2.0, "day"), "birth_rate", NONE),
    ("g has shape", WeeklyProfile, "g", [[]]),
    ("negative or infinite", WeeklyProfile, "g", [[1.0, -1.0], [np.inf, 1.0]]),
    ("none above 0", WeeklyProfile, "g", [[0.0, 0.0]]),
    ("g must be numbers", WeeklyProfile, "g", [["x"]]),
    ("evidence is nan", partial(WeeklyProfile, [1.0, 2.0]), "evidence", [math.nan]),
    (
        "time_zone 'Europe/Nowhere' is not known",
        partial(WeeklyProfile, [1.0]),
        "time_zone",
        ["Europe/Nowhere"],
    ),
    ("needs dates", partial(WeeklyProfile, [1.0, 2.0]), "time_zone", ["Europe/Berlin"]),
    ("time_unit 'fortnight'", partial(WeeklyProfile, [1.0, 2.0]), "time_unit", ["fortnight"]),
    (
        "load_limit is",
        partial(WeeklyProfile([1.0, 2.0]).saving, [7.0]),
        "load_limit",
        [0.99, math.nan, -math.inf],
    ),
    ("nodes is", RateDistribution.of_counts(np.ones(1), np.ones(1)).nodes, "number", [1, 17, 2.5, True]),
]


@pytest.mark.parametrize(
    ("words", "make", "name", "value"),
    [(words, make, name, value) for words, make, name, values in SETTINGS for value in values],
)
def test_unusable_settings_are_refused(words: str, make: Any, name: str, value: Any) -> None:  # noqa: ANN401
    refused(words, make, **{name: value})


def refused_calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Words of a refusal, and the call that is refused."""
    naive, counting = Naive().fit(EDGES), FullObservation().fit(LOG)
    yield r"alpha\(1\) is 0.0", lambda: LawOfLargeNumbers(math.log).fit(LOG, 1.0)
    for method in (LikelihoodRatio(), Exact(), Hoeffding(), Published()):
        yield r"Naive has no interval by .*Pass Posterior\(\)", partial(naive.interval, 0.9, method)
    yield r"method is .*Pass an instance, such as Posterior\(\)", partial(naive.interval, 0.9, Posterior)  # type: ignore[arg-type]
    yield r"Published\(\) of FullObservation has no bounds", partial(counting.interval, 0.9, Published())
    for bounds in ((0.0, 1.0), (1.0, math.inf)):
        yield "a positive and a finite one", partial(counting.error_bound, bounds)
    yield r"no source changed in this log.*Pass a prior", partial(GammaPrior.from_log, STILL)
    yield "all sources had always", lambda: GammaPrior.from_log(CrawlLog([1, 1, 2], [0, 1, 0], [0, 1, 0]))
    yield "no source changed in this log", partial(resetting_prior, STILL)
    yield "reset is 'often'", partial(resetting_prior, STILL, "often")  # type: ignore[arg-type]
    yield "no source changed in this log", partial(HostPriors.from_log, STILL, ["a", "b"])
    lasting = MaximumLikelihood(prior=PRIOR, reset=0.1).fit(LOG)
    ratio = LikelihoodRatio()
    yield r"is of rates that last, and reset is 0\.1", partial(lasting.interval, 0.9, ratio)
    success = SuccessRates.from_statuses
    yield r"have shapes \(2,\), \(1,\) and \(2,\)", partial(success, ["a", "b"], [200.0], [0.0, 1.0])
    yield "shapes", partial(success, [], [], [])
    untimed = CrawlLog.from_columns({"source": [1, 1], "elapsed": [1.0, 2.0], "changed": [0, 1]})
    learn, likely = WeeklyProfile.from_log, MaximumLikelihood()
    yield "the log has no times", partial(learn, untimed, likely)
    yield "time_zone needs dates, and the log", partial(learn, LOG, likely, time_zone="Europe/Berlin")
    yield "bins is 0", partial(learn, LOG, likely, bins=0)
    yield "estimator is", partial(learn, LOG, MaximumLikelihood)  # type: ignore[arg-type]
    yield r"a gap of 5, 6\.99 days is no week", partial(WeeklyProfile([1.0]).saving, [7.0, 5.0, 6.99], 2.0)


@pytest.mark.parametrize(("words", "call"), list(refused_calls()))
def test_unusable_calls_are_refused(words: str, call: Callable[[], Any]) -> None:
    refused(words, call)


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, math.nan])
def test_unusable_confidence_is_refused(make: Any, confidence: float) -> None:  # noqa: ANN401
    model = make().fit(LOG, 1.0) if make in AT_KNOWN_RATE else make().fit(LOG)
    refused(r"confidence.*0\.95", model.interval, confidence)


ASKED: list[Callable[[Any], Any]] = [
    lambda model: model.interval(),
    lambda model: model.nodes(),
    lambda model: model.draws(1, 0),
]


@pytest.mark.parametrize(
    ("make", "ask"),
    [
        *((make, ask) for make in ESTIMATORS for ask in ASKED),
        (MomentMatching, lambda model: model.error_bound()),
    ],
)
def test_nothing_is_told_before_a_fit(make: Any, ask: Callable[[Any], Any]) -> None:  # noqa: ANN401
    refused(r"has not seen a log yet.*fit\(log\)", ask, make(), error=FreshoptError)


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
    refused("did not settle in 1 steps", model.fit, CrawlLog.from_columns(columns), error=FreshoptError)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (MaximumLikelihood(0.25), "MaximumLikelihood(smoothing=0.25)"),
        (MaximumLikelihood(half_life=2.0), "MaximumLikelihood(smoothing=None, half_life=2.0)"),
        (
            MaximumLikelihood(prior=GammaPrior(1.0, 2.0)),
            "MaximumLikelihood(prior=GammaPrior(shape=1.0, exposure=2.0, time_unit='day'))",
        ),
        (
            MaximumLikelihood(prior=PRIOR, reset=0.1),
            "MaximumLikelihood(prior=GammaPrior(shape=1, exposure=1, time_unit='day'), reset=0.1)",
        ),
        (MomentMatching((0, 2)), "MomentMatching(bounds=(0.0, 2.0))"),
        (FullObservation(0.25), "FullObservation(smoothing=0.25)"),
        (Naive(), "Naive(floor=None)"),
        (Naive(half_life=30.0), "Naive(floor=None, half_life=30.0)"),
        (LawOfLargeNumbers(2.0), "LawOfLargeNumbers(alpha=2.0, floor=None)"),
        (StochasticApproximation(floor=0.01), "StochasticApproximation(step=0.75, floor=0.01)"),
        (
            MomentumStochasticApproximation(0.8, 0.5, floor=0),
            "MomentumStochasticApproximation(step=0.8, beta=0.5, omega=1.0, floor=0)",
        ),
        (
            GammaPrior(1.0, 2.0, "day", 0.5),
            "GammaPrior(shape=1.0, exposure=2.0, time_unit='day', birth_rate=0.5)",
        ),
    ],
)
def test_reprs_tell_the_settings(made: Any, words: str) -> None:  # noqa: ANN401
    assert repr(made) == words
