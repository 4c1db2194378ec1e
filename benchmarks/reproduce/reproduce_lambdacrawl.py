"""Kolobov et al., Staying up to Date with Online Content Changes (LambdaCrawl), NeurIPS 2019.

The figures and the propositions are in `lambdacrawl_figures.py`, the learners of Figure 3 here.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import freshopt as fo
from benchmarks.reproduce import lambdacrawl_figures as figures
from benchmarks.reproduce.claims import Listed, Measured, Measurements, Plan
from benchmarks.reproduce.reproduce import of_paper
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


def named(plan: Plan, one: Callable[[int], Mapping[str, float]]) -> Listed:
    """Return the samples of each claim from runs that measure all of them, by name."""
    found = [one(run) for run in range(plan.runs())]
    return [[each[name] for each in found] for name in plan.group]


@measure.of(*FIGURE_1)
def _figure_1(plan: Plan) -> Listed:
    return named(
        plan, lambda run: figures.figure_1(figures.policies(figures.stand_in(plan.rng(1, run), PAGES)))
    )


@measure.of("floor-small", "floor-large", quick=2)
def _floors(plan: Plan) -> Listed:
    return named(plan, lambda run: figures.floors(figures.stand_in(plan.rng(4, run), MANY)))


@measure.of(*FIGURE_2)
def _figure_2(plan: Plan) -> Listed:
    return named(plan, lambda run: figures.figure_2(figures.stand_in(plan.rng(5, run), PAGES_SIGNALLED, 1.0)))


@measure.of(*(f"heavy-{each}" for each in OF_HEAVY))
def _heavy(plan: Plan) -> Listed:
    def one(run: int) -> dict[str, float]:
        sources = figures.heavy_tailed(plan.rng(6, run), HEAVY)
        found = figures.figure_1(figures.policies(sources)) | figures.figure_2(sources)
        return {f"heavy-{name}": x for name, x in found.items()}

    return named(plan, one)


@measure.of(*OPTIMA, quick=12)
def _optima(plan: Plan) -> Listed:
    return named(plan, lambda run: figures.optima(plan.rng(7, run)))


@measure.of(*AVERAGES, quick=3)
def _time_averages(plan: Plan) -> Listed:
    return named(plan, lambda run: figures.time_averages(plan.seed, run))


@measure.of("prop8", "prop8-rate")
def _convergence(plan: Plan) -> Listed:
    return plan.columns(lambda run: figures.learnt(plan.seed, run))


@measure.of(*FIGURE_3)
def _figure_3(plan: Plan) -> Measured:
    whole, binary, kept = learners(plan.seed, plan.runs())
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
def _limits(plan: Plan) -> Listed:
    def one(run: int) -> tuple[float, ...]:
        sources = figures.stand_in(plan.rng(3, run), LEARNT)
        llc, llca, bllc = (
            figures.costs(seen, limit) for seen, limit in (_limit(name, sources) for name in LEARNERS)
        )
        return llc.harmonic / llca.harmonic, llca.harmonic / bllc.harmonic, llca.binary / bllc.binary

    return plan.columns(one)


def _limit(name: str, sources: fo.Sources) -> tuple[fo.Sources, Array]:
    """Return the sources as a learner sees them, and the rates that it has in the limit."""
    if name == "BLLC":
        silent = figures.deaf(sources)
        return silent, figures.blc(silent, figures.FLOOR)
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
        sources = figures.stand_in(np.random.default_rng([seed, 3, run]), LEARNT)
        best = figures.costs(sources, fo.solve(_problem(sources)).rates)
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
        learner = LambdaLearnAndCrawl(
            objective=figures.BINARY, floor=figures.FLOOR, estimator=figures.SMOOTHED, seed=run
        )
    else:
        learner = LambdaLearnAndCrawl(approximate=name == "LLCA", estimator=figures.SMOOTHED, seed=run)
    guess = _problem(fo.Sources(1.0, sources.importance, signalled=sources.signalled))
    world = fo.World.poisson(sources, seed=seed + run)
    history = learner.run(world, guess, DAYS)
    # J_b is of the rates that are carried out: those of signalled sources follow from their estimates.
    found, truth = figures.costs(sources, limit), _problem(sources)
    binary = []
    for epoch in BRIEF[:-1]:
        counted = np.ones(len(sources))
        if epoch and sources.signalled.any():
            offsets, _ = world.events(0.0, float(epoch))
            counted = (np.diff(offsets) + 0.5) / (epoch + 0.5)
        rates = history.rates[history.kept.tolist().index(epoch)]
        binary.append(figures.costs(sources, achieved_rates(truth, rates, counted)).binary)
    harmonic = np.append(history.value / len(sources), found.harmonic)
    used = float(history.spent.sum() / history.allowed.sum())
    return harmonic, np.array([*binary, found.binary]), used


def _problem(sources: fo.Sources) -> fo.Problem:
    return fo.Problem(figures.HARMONIC, sources, figures.BANDWIDTH * len(sources))


def _arrays(found: dict[str, list[Array]]) -> dict[str, Array]:
    return {name: np.array(each) for name, each in found.items()}


BENCH = of_paper("lambdacrawl", measure)
