"""Who converges to Δ for crawl gaps of which kind, and what an observation costs: online updates and MLE."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.reproduce.claims import Measured, Measurements, Plan
from benchmarks.reproduce.estimator_runs import GAPS, Array, log_of, models, sampled

measure = Measurements()
CHANGE_RATE, CRAWL_RATE, CRAWLS = 5.0, 3.0, 20_000
OURS, OFFLINE = ("LLN", "SA", "SAM"), ("MLE", "MM")
PAGES, SHORT, LONG = 200, 100, 10_000  # of the timings, and the crawls that each page has behind it
REPEATS = 3  # of which the least time counts: the others were disturbed


def distances(found: dict[str, Array], names: tuple[str, ...]) -> Array:
    """Return |estimate/Δ − 1|, shape (estimators, pages)."""
    return np.array([np.abs(found[name] / CHANGE_RATE - 1) for name in names])


@measure.of("thm-1-3-consistent", quick=4)
def consistency(plan: Plan) -> Measured:
    """Estimate from very many crawls with exponential gaps."""
    rng, pages = np.random.default_rng([plan.seed, 8]), plan.runs("thm-1-3-consistent")
    given = {name: model for name, model in models(0.75, (1.3, 0.75)).items() if name in OURS}
    found = sampled(rng, pages, CRAWLS, (CHANGE_RATE, CRAWL_RATE), given)
    yield "thm-1-3-consistent", distances(found, OURS).max(axis=0)


@measure.of("naive-limit", quick=200)
def naive(plan: Plan) -> Measured:
    """Estimate as if each change found were the only one."""
    rng, pages = np.random.default_rng([plan.seed, 11]), plan.runs("naive-limit")
    found = sampled(
        rng, pages, 1000, (CHANGE_RATE, CRAWL_RATE), {"Naive": models(0.75, (1.3, 0.75))["Naive"]}
    )
    yield "naive-limit", found["Naive"] * (CHANGE_RATE + CRAWL_RATE) / (CRAWL_RATE * CHANGE_RATE)


@measure.of("gaps-online", "gaps-offline", "gaps-limit", quick=2)
def other_gaps(plan: Plan) -> Measured:
    """Estimate from as many crawls with gaps of three other kinds."""
    ids = ("gaps-online", "gaps-offline", "gaps-limit")
    rng, pages = np.random.default_rng([plan.seed, 9]), plan.runs(*ids)
    given = models(0.75, (1.3, 0.75))
    rates, kinds = (CHANGE_RATE, CRAWL_RATE), tuple(kind for kind in GAPS if kind != "exponential")
    found = {kind: sampled(rng, pages, CRAWLS, rates, given, kind) for kind in kinds}
    yield ids[0], np.vstack([distances(found[kind], OURS) for kind in kinds]).min(axis=0)
    yield ids[1], np.vstack([distances(found[kind], OFFLINE) for kind in kinds]).max(axis=0)
    limit = CRAWL_RATE * np.expm1(CHANGE_RATE / CRAWL_RATE)
    yield ids[2], np.max([np.abs(found["fixed"][name] / limit - 1) for name in OURS], axis=0)


def seconds(task: Callable[[], Any]) -> float:
    """Return the least processor time of a few repetitions of a task."""
    least = np.inf
    for _ in range(REPEATS):
        start = time.process_time()
        task()
        least = min(least, time.process_time() - start)
    return least


@measure.of("cost-of-an-observation", "cost-grows", "cost-constant")
def costs(plan: Plan) -> Measured:
    """Time one more crawl of each page, online and by MLE, with few and with many crawls behind it."""
    ids = ("cost-of-an-observation", "cost-grows", "cost-constant")
    rng, given, rounds = np.random.default_rng([plan.seed, 10]), models(0.75, (1.3, 0.75)), plan.runs(*ids)
    gaps = rng.exponential(1 / CRAWL_RATE, (PAGES, LONG + 1))
    changed = rng.random(gaps.shape) < -np.expm1(-CHANGE_RATE * gaps)
    tasks: dict[tuple[str, int], Callable[[], Any]] = {}
    for behind in (SHORT, LONG):
        history = log_of(gaps[:, : behind + 1], changed[:, : behind + 1])
        tasks["MLE", behind] = partial(given["MLE"].fit, history)
        one = log_of(gaps[:, behind : behind + 1], changed[:, behind : behind + 1])
        for name in OURS:
            model = models(0.75, (1.3, 0.75))[name]
            model.fit(log_of(gaps[:, :behind], changed[:, :behind]), CRAWL_RATE)
            tasks[name, behind] = partial(model.partial_fit, one, CRAWL_RATE)
    for task in tasks.values():  # what is compiled or cached is so before the rounds
        task()
    found = [{key: seconds(task) for key, task in tasks.items()} for _ in range(rounds)]
    dearest = [{k: max(each[name, k] for name in OURS) for k in (SHORT, LONG)} for each in found]
    yield ids[0], [each["MLE", LONG] / online[LONG] for each, online in zip(found, dearest, strict=True)]
    yield ids[1], [each["MLE", LONG] / each["MLE", SHORT] for each in found]
    yield ids[2], [online[LONG] / online[SHORT] for online in dearest]
