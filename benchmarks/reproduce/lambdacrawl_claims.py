"""Kolobov et al., Staying up to Date with Online Content Changes (LambdaCrawl), NeurIPS 2019.

The figures and the propositions are in `lambdacrawl_figures.py`, the learners of Figure 3 here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import freshopt as fo
from benchmarks.reproduce.claims import Measured, Measurements, Plan
from benchmarks.reproduce.lambdacrawl_figures import (
    BANDWIDTH,
    BINARY,
    FLOOR,
    HARMONIC,
    SMOOTHED,
    blc,
    costs,
    deaf,
    figure_1,
    figure_2,
    floors,
    heavy_tailed,
    learnt,
    optima,
    policies,
    stand_in,
    time_averages,
)
from freshopt.online import LambdaLearnAndCrawl
from freshopt.online.rate_evaluation import achieved_rates
from freshopt.solvers import LambdaCrawlApprox

Array: TypeAlias = npt.NDArray[np.float64]
# The paper's numbers: of sources, of those that signal, and of the sources and days of a learner's run.
PAGES, PAGES_SIGNALLED, LEARNT, DAYS = 18_532_314, 741_293, 100_000, 21.0
MANY, HEAVY = 50_000, 1_000_000
# Days after which learners are compared, and where their costs stand among those of `BRIEF`: its last is the
# cost in a learner's limit.
EARLY, LATE = 5, 20
BRIEF, AFTER_EARLY, AFTER_LATE = [0, EARLY, LATE, -1], 1, 2

FIGURE_1 = (
    *("uc-harmonic", "uc-binary", "cc-harmonic", "cc-binary", "lc-axis", "lc-beats-floor", "order"),
    *("heuristics", "blc-starves", "blc-not-ahead-lc", "floor-not-ahead-lc", "none-ahead-lca"),
    *("lc-near-binary", "floor-far-harmonic", "lca-near-lc-binary", "signalled-share", "certified"),
)
FIGURE_2 = ("co-io-harmonic", "co-io-binary", "co-others", "io-par", "io-ahead")
OF_HEAVY = (
    *("lc-axis", "lc-beats-floor", "order", "none-ahead-lc", "none-ahead-lca", "lc-near-binary"),
    *("lca-near-lc-binary", "signalled-share", "co-all", "io-par", "io-ahead"),
)
OPTIMA = (
    *("eq5", "incompl-obs-optimal", "never-starves", "bracket", "narrower-bracket", "prop5"),
    *("compl-obs-optimal", "algorithms", "one-price", "prop9"),
)
AVERAGES = ("prop1-harmonic", "prop1-binary", "prop4-harmonic", "prop4-binary")
FIGURE_3 = (
    *("llc-faster-harmonic", "llc-faster-binary", "llc-closer-harmonic", "llc-closer-binary"),
    *("llca-faster", "llca-early", "llc-last", "llca-last", "llca-last-binary", "llc-near"),
    "bandwidth-kept",
)

LEARNERS = ("LLC", "LLCA", "BLLC")
LIMITS = ("llc-limit", "llca-limit", "llca-limit-binary")

measure = Measurements()


def listed(ids: tuple[str, ...], runs: int, one: Callable[[int], Mapping[str, float]]) -> Measured:
    """Yield the samples of each claim from runs that measure all of them."""
    found = [one(run) for run in range(runs)]
    for name in ids:
        yield name, [each[name] for each in found]


@measure.of(*FIGURE_1)
def _figure_1(plan: Plan) -> Measured:
    def one(run: int) -> dict[str, float]:
        return figure_1(policies(stand_in(np.random.default_rng([plan.seed, 1, run]), PAGES)))

    return listed(FIGURE_1, plan.runs(*FIGURE_1), one)


@measure.of("floor-small", "floor-large", quick=2)
def _floors(plan: Plan) -> Measured:
    ids = ("floor-small", "floor-large")
    return listed(
        ids, plan.runs(*ids), lambda run: floors(stand_in(np.random.default_rng([plan.seed, 4, run]), MANY))
    )


@measure.of(*FIGURE_2)
def _figure_2(plan: Plan) -> Measured:
    def one(run: int) -> dict[str, float]:
        return figure_2(stand_in(np.random.default_rng([plan.seed, 5, run]), PAGES_SIGNALLED, 1.0))

    return listed(FIGURE_2, plan.runs(*FIGURE_2), one)


@measure.of(*(f"heavy-{each}" for each in OF_HEAVY))
def _heavy(plan: Plan) -> Measured:
    ids = tuple(f"heavy-{each}" for each in OF_HEAVY)

    def one(run: int) -> dict[str, float]:
        sources = heavy_tailed(np.random.default_rng([plan.seed, 6, run]), HEAVY)
        found = figure_1(policies(sources)) | figure_2(sources)
        return {f"heavy-{name}": x for name, x in found.items()}

    return listed(ids, plan.runs(*ids), one)


@measure.of(*OPTIMA, quick=12)
def _optima(plan: Plan) -> Measured:
    return listed(OPTIMA, plan.runs(*OPTIMA), lambda run: optima(np.random.default_rng([plan.seed, 7, run])))


@measure.of(*AVERAGES, quick=3)
def _time_averages(plan: Plan) -> Measured:
    return listed(AVERAGES, plan.runs(*AVERAGES), lambda run: time_averages(plan.seed, run))


@measure.of("prop8", "prop8-rate")
def _convergence(plan: Plan) -> Measured:
    found = np.array([learnt(plan.seed, run) for run in range(plan.runs("prop8", "prop8-rate"))])
    yield "prop8", found[:, 0]
    yield "prop8-rate", found[:, 1]


@measure.of(*FIGURE_3)
def _figure_3(plan: Plan) -> Measured:
    whole, binary, kept = learners(plan.seed, plan.runs(*FIGURE_3))
    harmonic = {name: each[:, BRIEF] for name, each in whole.items()}
    left = {name: remaining(each) for name, each in harmonic.items()}
    yield "llc-faster-harmonic", left["LLC"] - left["BLLC"]
    yield "llc-faster-binary", remaining(binary["LLC"]) - remaining(binary["BLLC"])
    near = {name: distance(each)[:, AFTER_EARLY] for name, each in harmonic.items()}
    yield "llc-closer-harmonic", near["LLC"] - near["BLLC"]
    closer = {name: distance(each)[:, AFTER_EARLY] for name, each in binary.items()}
    yield "llc-closer-binary", closer["LLC"] - closer["BLLC"]
    yield "llca-faster", left["LLCA"] - left["LLC"]
    yield "llca-early", harmonic["LLCA"][:, AFTER_EARLY] / harmonic["LLC"][:, AFTER_EARLY]
    late = {name: each[:, AFTER_LATE] for name, each in harmonic.items()}
    yield "llc-last", late["LLC"] / late["LLCA"]
    yield "llca-last", late["LLCA"] / late["BLLC"]
    yield "llca-last-binary", binary["LLCA"][:, AFTER_LATE] / binary["BLLC"][:, AFTER_LATE]
    yield "llc-near", late["LLC"]
    yield "bandwidth-kept", kept


@measure.of(*LIMITS, quick=1)
def _limits(plan: Plan) -> Measured:
    def one(run: int) -> dict[str, float]:
        sources = stand_in(np.random.default_rng([plan.seed, 3, run]), LEARNT)
        llc, llca, bllc = (costs(seen, limit) for seen, limit in (_limit(name, sources) for name in LEARNERS))
        ahead = llca.harmonic / bllc.harmonic, llca.binary / bllc.binary
        return dict(zip(LIMITS, (llc.harmonic / llca.harmonic, *ahead), strict=True))

    return listed(LIMITS, plan.runs(*LIMITS), one)


def _limit(name: str, sources: fo.Sources) -> tuple[fo.Sources, Array]:
    """Return the sources as a learner sees them, and the rates that it has in the limit."""
    if name == "BLLC":
        silent = deaf(sources)
        return silent, blc(silent, FLOOR)
    return sources, fo.solve(_problem(sources), LambdaCrawlApprox() if name == "LLCA" else None).rates


def distance(cost: Array) -> Array:
    """Return the distances from a learner's own limit, relative to it."""
    return np.abs(cost[:, :-1] / cost[:, -1:] - 1.0)


def remaining(cost: Array) -> Array:
    """Return the distance after the early days as a share of the first one."""
    return distance(cost)[:, AFTER_EARLY] / distance(cost)[:, 0]


@cache
def learners(seed: int, runs: int) -> tuple[dict[str, Array], dict[str, Array], list[bool]]:
    """Return what learners cost, relative to LC on the same sources, and whether they keep to the bandwidth.

    J_h has a column for each epoch and, last, the learner's limit; J_b the columns `BRIEF` of these.
    """
    harmonic: dict[str, list[Array]] = {name: [] for name in LEARNERS}
    binary: dict[str, list[Array]] = {name: [] for name in LEARNERS}
    kept: list[bool] = []
    for run in range(runs):
        sources = stand_in(np.random.default_rng([seed, 3, run]), LEARNT)
        best = costs(sources, fo.solve(_problem(sources)).rates)
        within = True
        for name in harmonic:
            one, other, used = learn(name, sources, seed, run)
            within = within and abs(used - 1.0) <= 1e-9
            harmonic[name].append(one / best.harmonic)
            binary[name].append(other / best.binary)
        kept.append(within)
    return _arrays(harmonic), _arrays(binary), kept


def learn(name: str, sources: fo.Sources, seed: int, run: int) -> tuple[Array, Array, float]:
    """Return a learner's J_h, its J_b in brief, and the crawls it made over those allowed."""
    sources, limit = _limit(name, sources)
    if name == "BLLC":
        learner = LambdaLearnAndCrawl(objective=BINARY, floor=FLOOR, estimator=SMOOTHED, seed=run)
    else:
        learner = LambdaLearnAndCrawl(approximate=name == "LLCA", estimator=SMOOTHED, seed=run)
    guess = _problem(fo.Sources(1.0, sources.importance, signalled=sources.signalled))
    world = fo.World.poisson(sources, seed=seed + run)
    history = learner.run(world, guess, DAYS)
    # J_b is of the rates that are carried out: those of signalled sources follow from their estimates.
    found, truth = costs(sources, limit), _problem(sources)
    binary = []
    for epoch in BRIEF[:-1]:
        counted = np.ones(len(sources))
        if epoch and sources.signalled.any():
            offsets, _ = world.events(0.0, float(epoch))
            counted = (np.diff(offsets) + 0.5) / (epoch + 0.5)
        rates = history.rates[history.kept.tolist().index(epoch)]
        binary.append(costs(sources, achieved_rates(truth, rates, counted)).binary)
    harmonic = np.append(history.value / len(sources), found.harmonic)
    used = float(history.spent.sum() / history.allowed.sum())
    return harmonic, np.array([*binary, found.binary]), used


def _problem(sources: fo.Sources) -> fo.Problem:
    return fo.Problem(HARMONIC, sources, BANDWIDTH * len(sources))


def _arrays(found: dict[str, list[Array]]) -> dict[str, Array]:
    return {name: np.array(each) for name, each in found.items()}
