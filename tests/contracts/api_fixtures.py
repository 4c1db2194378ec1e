"""Small problems, logs and estimators, and the forms of calls that `api_calls` is made of."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import freshopt as fo
from freshopt import estimators, noisy_signals, problems, scheduling
from tests.ground_truth.named import BINARY, DELAY, HARMONIC


class Call(NamedTuple):
    """A function of keyword arguments, and some with which it succeeds."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    refuses: tuple[type[Exception], ...] = ()  # with what else than the library's errors, by its contract


def sources(**changes: Any) -> fo.Sources:  # noqa: ANN401
    return fo.Sources(
        **{"change_rate": [1.0, 2.0, 5.0], "importance": [1.0, 0.0, 2.0], "names": ["a", "b", "c"], **changes}
    )


def problem(objective: fo.Objective | None = None) -> fo.Problem:
    return fo.Problem(objective or BINARY, sources(), 2.0)


def settings(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any frozen record
    """Return the arguments that make a record."""
    if not dataclasses.is_dataclass(record):
        return {}
    return {each.name: getattr(record, each.name) for each in dataclasses.fields(record) if each.init}


SOURCES = sources()
PROBLEM = problem()
LIMITED = fo.Problem(DELAY, SOURCES, 4.0, constraints=[fo.Budget(2.0, cost=[1.0, 1.0, 5.0], name="bytes")])
SOLUTION = fo.solve(PROBLEM)
TIMES = np.array([0.0, 1.0, 2.0, 4.0, 0.0, 3.0, 0.5, 1.5])
LOG = fo.CrawlLog(["a", "a", "a", "a", "b", "b", "c", "c"], TIMES, [0, 1, 0, 1, 0, 1, 0, 0])
# Forty sources, the first half of which changes every other day.
_DAYS = np.arange(400)
FEATURED = {
    "log": fo.CrawlLog(_DAYS // 10, _DAYS % 10, (_DAYS < 200) & (_DAYS % 3 > 0)),
    "features": pl.DataFrame({"source": np.arange(40), "half": np.repeat(["first", "second"], 20)}),
}
COUNTED = fo.CrawlLog(
    ["a", "a", "b", "b", "c", "c"], [0, 1, 0, 2, 0, 3], [0, 1, 0, 1, 0, 0], changes=[0, 2, 0, 1, 0, 0]
)
WORLD = fo.World.poisson(SOURCES, 0)
FLOORED = fo.Problem(problems.SynchronizationCost(problems.BinaryCost()), sources(min_rate=0.5), 3.0)
GREEDY = noisy_signals.SignalGreedy(problem(noisy_signals.NoisySignalFreshness(0.5, 0.9)))
SCHEDULE = fo.schedule(SOLUTION, 5.0, scheduling.Periodic())


def solved(solver: Callable[..., Any], objective: fo.Objective | None = None, **arguments: Any) -> Call:  # noqa: ANN401
    return Call(lambda **given: fo.solve(problem(objective), solver(**given), throw=False), arguments)


def declared(kind: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(lambda **given: fo.solve(problem(kind(**given))), arguments)


def constrained(kind: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    """Return a call of a constraint, through a problem that is solved."""
    return Call(
        lambda **given: fo.solve(
            fo.Problem(HARMONIC, SOURCES, 3.0, constraints=[kind(**given)]), throw=False
        ),
        arguments,
    )


def curved(kind: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return declared(lambda **given: problems.SynchronizationCost(kind(**given)), **arguments)


def fitted(estimator: Callable[..., Any], log: fo.CrawlLog = LOG, **arguments: Any) -> Call:  # noqa: ANN401
    return Call(lambda **given: estimator(**given).fit(log).change_rate_, arguments)


def acted(learner: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda horizon=4.0, **given: learner(**given).run(WORLD, PROBLEM, horizon),
        {"horizon": 4.0, **arguments},
    )


def synchronized(learner: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda horizon=4.0, **given: learner(**given).run(WORLD, FLOORED, horizon),
        {"horizon": 4.0, **arguments},
    )


def scheduled(method: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda horizon=3.0, **given: fo.schedule(SOLUTION, horizon, method(**given)),
        {"horizon": 3.0, **arguments},
    )


def interval(method: Callable[..., Any], model: Any, **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda confidence=0.9, **given: model.interval(confidence, method(**given)),
        {"confidence": 0.9, **arguments},
    )


def known_rate(estimator: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda crawl_rate=1.0, **given: estimator(**given).fit(LOG, crawl_rate).change_rate_,
        {"crawl_rate": 1.0, **arguments},
    )


EVEN = fo.CrawlLog(["a"] * 5 + ["b"] * 5 + ["c"] * 5, [*range(5)] * 3, [0, 1, 0, 1, 1] * 3)
LIKELY = estimators.MaximumLikelihood().fit(LOG)
MATCHED = estimators.MomentMatching(bounds=(0.01, 10.0)).fit(EVEN)
OBSERVED = estimators.FullObservation().fit(COUNTED)


MAX = {"min_rate": 0.01, "max_rate": 5.0}
BOUNDED = fo.Problem(problems.SynchronizationCost(problems.BinaryCost()), sources(importance=1.0, **MAX), 2.0)
MIRROR_SYNC = {"problem": BOUNDED, "rounds": 100, "largest_cost": 1.0}
IN_POLICY = {**MIRROR_SYNC, "learning_rate": 0.01, "exploration": 0.1}
GROUPED = {
    "problems": DELAY,
    "sources": SOURCES,
    "offsets": [0, 1, 3],
    "bandwidths": [1.0, 2.0],
    "solver": None,
    "tolerance": 1e-6,
    "throw": True,
}
