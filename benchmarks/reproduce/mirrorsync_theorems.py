"""Measure MirrorSync's lemmas on costs, schedules and gradients."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize

import freshopt as fo
from benchmarks.reproduce.claims import Measured, Measurements, Plan
from benchmarks.reproduce.mirrorsync_instances import BANDWIDTH, KINDS, LEAST, MOST, Array, Instance, K
from benchmarks.reproduce.mirrorsync_rounds import Batch
from freshopt.online.gradient_probes import Synchronization
from freshopt.separable.kernel import Numerics
from freshopt.simulation import Crawler, SimulatedCrawler

measure = Measurements()
# Pairs of rates of each source at which convexity is tried.
PAIRS = 50
# Refreshes in a cycle, of all K sources together: 100 of each on average.
CYCLE = 10_000
# Intervals of each source whose gradient estimates are averaged, at a share ε of probes.
INTERVALS, PROBED = 2000, 0.5


@measure.of("lemma-1", quick=5)
def convex(plan: Plan) -> Measured:
    """Lemma 1: J is convex and decreasing."""
    answer = []
    for run in range(plan.runs("lemma-1")):
        kind = KINDS[run % 2]
        numerics = numerics_of(Instance.drawn(kind, plan.seed, run))
        rng, good = np.random.default_rng([plan.seed, run]), True
        for _ in range(PAIRS):
            low, high = np.sort(np.exp(rng.uniform(np.log(LEAST), np.log(MOST[kind]), (2, K))), axis=0)
            ends = numerics.cost(low), numerics.cost(high)
            middle = numerics.cost(0.5 * (low + high))
            slack = 1e-13 * ends[0]
            good &= bool(np.all(ends[1] <= ends[0] + slack))
            good &= bool(np.all(middle <= 0.5 * (ends[0] + ends[1]) + slack))
        answer.append(good)
    yield "lemma-1", answer


def numerics_of(instance: Instance) -> Numerics:
    """Return the costs of single sources, which are known of both kinds."""
    if instance.problem.numerics is None:
        raise TypeError("an instance has costs that cannot be evaluated")
    return instance.problem.numerics


@measure.of("prop-1-gaps", "prop-1-cost", quick=5)
def open_loop(plan: Plan) -> Measured:
    """Proposition 1: schedules with unequal gaps are not cheaper."""
    cheaper, excess = [], []
    for run in range(plan.runs("prop-1-gaps", "prop-1-cost")):
        kind = KINDS[run % 2]
        batch = Batch.drawn(kind, plan.seed, run + 1).one(run)
        cheaper.append(by_descent(batch, np.random.default_rng([plan.seed, run])) <= 1e-9)
        excess.append(best_cycle(batch, Instance.drawn(kind, plan.seed, run)))
    yield "prop-1-gaps", cheaper
    yield "prop-1-cost", excess


def by_descent(batch: Batch, rng: np.random.Generator) -> float:
    """Return by which share a general optimiser over a source's gaps beats equal gaps."""
    source, refreshes = batch.one(0, int(rng.integers(K))), int(rng.integers(2, 8))
    horizon = refreshes * float(np.exp(rng.uniform(np.log(0.3), np.log(20.0))))

    def cost(gaps: Array) -> float:
        return float(source.cost(1.0 / gaps[None])[0] @ gaps) / horizon

    found = minimize(  # type: ignore[call-overload]
        cost,
        rng.dirichlet(np.ones(refreshes)) * horizon,
        method="SLSQP",
        bounds=[(1e-6 * horizon, horizon)] * refreshes,
        constraints=[{"type": "eq", "fun": lambda gaps: gaps.sum() - horizon}],
    )
    equal = cost(np.full(refreshes, horizon / refreshes))
    # Where the optimiser has missed the horizon by rounding, its gaps are scaled to it.
    return (equal - cost(found.x * horizon / found.x.sum())) / equal


def best_cycle(batch: Batch, instance: Instance) -> float:
    """Return by which share the best cycle of whole numbers of refreshes costs more than the best rates."""
    horizon = CYCLE / BANDWIDTH
    lowest, highest = math.ceil(LEAST * horizon), math.floor(MOST[batch.kind] * horizon)
    # The cost of n refreshes is convex in n, so that the largest savings are the best ones.
    each = batch.cost(np.arange(lowest, highest + 1)[:, None] / horizon * np.ones(K))
    savings = np.sort((each[:-1] - each[1:]).ravel())[::-1]
    value = float(each[0].sum() - savings[: CYCLE - K * lowest].sum()) / K
    return value / fo.solve(instance.problem).value - 1.0


@measure.of("lemma-2-power", "lemma-2-binary", quick=2)
def unbiased(plan: Plan) -> Measured:
    """Lemma 2: gradient estimates have the gradient as their mean."""
    for kind in KINDS:
        runs = plan.runs("lemma-2-power", "lemma-2-binary")
        yield f"lemma-2-{kind}", [slope_error(Instance.drawn(kind, plan.seed, run)) for run in range(runs)]


def slope_error(instance: Instance) -> float:
    """Return by how much gradient estimates at random rates are off in sum, relative to the gradient."""
    problem = instance.problem
    terms = Synchronization.of(problem, "benchmark", PROBED, seed=instance.seed)
    rng = np.random.default_rng(instance.seed)
    rates = np.exp(rng.uniform(np.log(LEAST), np.log(terms.upper)))
    source, number = np.repeat(np.arange(K), INTERVALS), np.tile(np.arange(INTERVALS), K)
    gap = 1.0 / rates[source]
    at = (number + terms.probe_point(source, number)) * gap
    probe = np.where(terms.is_probed(source, number), at, np.nan)
    world = instance.world()
    crawler: Crawler = SimulatedCrawler(world) if isinstance(world, fo.World) else world
    polled = terms.play(crawler, source, probe, (number + 1) * gap)
    estimate = terms.samples(polled, gap).reshape(K, INTERVALS).mean(axis=1)
    # The true slope is that of J, K times the problem's cost of each source, by differences.
    h = 1e-6 * rates
    numerics = numerics_of(instance)
    slope = K * (numerics.cost(rates + h) - numerics.cost(rates - h)) / (2.0 * h)
    return float(np.sum(rates * (estimate - slope)) / np.sum(rates * np.abs(slope)))
