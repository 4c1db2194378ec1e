"""Measure MirrorSync's lemmas on costs, schedules and gradients."""

import math

import numpy as np
from scipy.optimize import minimize

import freshopt as fo
from benchmarks.reproduce.claims import Beside, Listed, Measured, Measurements, Plan
from benchmarks.reproduce.mirrorsync_instances import (
    BANDWIDTH,
    EXPLORATION,
    KINDS,
    LARGEST,
    LEAST,
    MOST,
    ROUNDS,
    Array,
    Instance,
    K,
)
from benchmarks.reproduce.mirrorsync_rounds import Adversary, Batch, corollary, corollary_bound, play, stay
from freshopt.online import MirrorSync, mirror_sync_in_policy_bound
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
    for run in range(plan.runs()):
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
def open_loop(plan: Plan) -> Listed:
    """Proposition 1: schedules with unequal gaps are not cheaper."""
    cheaper, excess = [], []
    for run in range(plan.runs()):
        kind = KINDS[run % 2]
        batch = Batch.drawn(kind, plan.seed, run + 1).one(run)
        cheaper.append(by_descent(batch, np.random.default_rng([plan.seed, run])) <= 1e-9)
        excess.append(best_cycle(batch, Instance.drawn(kind, plan.seed, run)))
    return cheaper, excess


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
        runs = plan.runs()
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


# Rounds over which the order of the regret is fitted; the shortest is the paper's.
LENGTHS = (240, 480, 960, 1920, 3840, 7680)
LONGER = (7_680, 30_720)
# Shorter with freshopt's learner, which takes a second for 500 rounds.
FEWER = (60, 120, 240, 480)
# Learning rates as shares of the largest that Theorem 5.1 allows.
ALLOWED = (0.1, 0.3, 0.99)
SHORT, LONG = 240, 3840
ADVERSARIES = ("alternating", "switching", "random")


@measure.of("theorem-5.1-power", "theorem-5.1-binary", quick=10)
def in_policy(plan: Plan) -> Measured:
    """Theorem 5.1: regret against the best that exploration leaves, at three learning rates."""
    for kind in KINDS:
        runs = plan.runs()
        batch = Batch.drawn(kind, plan.seed, runs)
        best, (problem, *_) = batch.best(EXPLORATION), batch.problems()
        ratios, never = [], []
        for share in ALLOWED:
            rate = share * K * EXPLORATION / (2.0 * LARGEST[kind])
            bound = mirror_sync_in_policy_bound(
                problem, ROUNDS, LARGEST[kind], learning_rate=rate, exploration=EXPLORATION
            )
            paid, _ = play(batch, ROUNDS, rate, EXPLORATION, plan.seed)
            ratios.append((paid - ROUNDS * best) / bound)
            never.append((stay(batch, ROUNDS, EXPLORATION) - ROUNDS * best) / bound)
        yield f"theorem-5.1-{kind}", Beside(np.max(ratios, axis=0), np.max(never, axis=0))


@measure.of("corollary-1-power", "corollary-1-binary", "order-power", "order-binary")
def order(plan: Plan) -> Measured:
    """Corollary 1: regret at its settings, and how it grows with T."""
    for kind in KINDS:
        batch = Batch.drawn(kind, plan.seed, plan.runs(f"corollary-1-{kind}", f"order-{kind}"))
        best, lost = batch.best(), []
        for rounds in LENGTHS:
            paid, _ = play(batch, rounds, *corollary(batch, rounds), plan.seed)
            lost.append(paid - rounds * best)
        never = stay(batch, ROUNDS, corollary(batch, ROUNDS)[1]) - ROUNDS * best
        bound = corollary_bound(batch, ROUNDS)
        yield f"corollary-1-{kind}", Beside(lost[0] / bound, never / bound)
        yield f"order-{kind}", slopes(LENGTHS, np.array(lost))


@measure.of("order-long")
def order_at_length(plan: Plan) -> Measured:
    """Corollary 1's order at many more rounds than the paper's."""
    batch = Batch.drawn("binary", plan.seed, plan.runs())
    lost = [
        play(batch, rounds, *corollary(batch, rounds), plan.seed)[0] - rounds * batch.best()
        for rounds in LONGER
    ]
    yield "order-long", slopes(LONGER, np.array(lost))


@measure.of("order-averaged")
def averaged(plan: Plan) -> Measured:
    """Corollary 1's order, with freshopt's learner."""
    runs = plan.runs()
    batch = Batch.drawn("binary", plan.seed, runs)
    lost = np.empty((len(FEWER), runs))
    for run in range(runs):
        instance = Instance.drawn("binary", plan.seed, run)
        for k, rounds in enumerate(FEWER):
            history = instance.run(MirrorSync(*corollary(batch, rounds)), rounds)
            lost[k, run] = np.sum(history.shortfall)
    yield "order-averaged", slopes(FEWER, lost)


@measure.of("gap-bound-power", "gap-bound-binary", quick=2)
def exploration_gap(plan: Plan) -> Measured:
    """Lemma 3: what exploration costs, beside equal rates, which a learner begins with."""
    for kind in KINDS:
        batch = Batch.drawn(kind, plan.seed, plan.runs())
        best, bound = batch.best(), 2.0 * EXPLORATION * LARGEST[kind]
        never = stay(batch, 1, EXPLORATION) - best
        yield f"gap-bound-{kind}", Beside((batch.best(EXPLORATION) - best) / bound, never / bound)


def slopes(lengths: tuple[int, ...], lost: Array) -> Array:
    """Return each run's slope of the logarithm of regret over that of T, by least squares."""
    return np.asarray(np.polyfit(np.log(lengths), np.log(lost), 1)[0])


@measure.of("least-rate", quick=10)
def least_rate(plan: Plan) -> Measured:
    """Section 5: regret as r_min falls to a sixteenth."""
    batch = Batch.drawn("binary", plan.seed, plan.runs())
    lost, never = [], []
    for least in (0.1, 0.00625):
        here = batch.with_least(least)
        rate, exploration = corollary(here, ROUNDS)
        paid, _ = play(here, ROUNDS, rate, exploration, plan.seed)
        lost.append(paid - ROUNDS * here.best())
        never.append(stay(here, ROUNDS, exploration) - ROUNDS * here.best())
    yield "least-rate", Beside(lost[1] / lost[0], never[1] / never[0])


@measure.of("adversary-bound", "adversary-sublinear", *(f"adversary-{name}" for name in ADVERSARIES))
def adversarial(plan: Plan) -> Measured:
    """Section 5: costs that an oblivious adversary changes by round."""
    ids = [f"adversary-{name}" for name in ADVERSARIES]
    batch = Batch.drawn("binary", plan.seed, plan.runs("adversary-bound", "adversary-sublinear", *ids))
    ratios, falls, never, stays = [], [], [], []
    for k, name in enumerate(ADVERSARIES):
        lost, kept = [], []
        for rounds in (SHORT, LONG):
            factors, weight = adversary(name, len(batch), rounds, plan.seed + k)
            rate, exploration = corollary(batch, rounds)
            paid, _ = play(batch, rounds, rate, exploration, plan.seed, factors)
            best = rounds * batch.best(weight=weight)
            lost.append(paid - best)
            kept.append(stay(batch, rounds, exploration, weight) - best)
            ratios.append(lost[-1] / corollary_bound(batch, rounds))
            never.append(kept[-1] / corollary_bound(batch, rounds))
        falls.append(lost[1] / LONG < lost[0] / SHORT)
        stays.append(kept[1] / LONG < kept[0] / SHORT)
        yield f"adversary-{name}", (lost[1] - lost[0] * (LONG / SHORT) ** (2.0 / 3.0)) / rounds
    yield "adversary-bound", Beside(np.max(ratios, axis=0), np.max(never, axis=0))
    yield "adversary-sublinear", Beside(np.all(falls, axis=0), np.all(stays, axis=0))


def adversary(name: str, runs: int, rounds: int, seed: int) -> tuple[Adversary, Array]:
    """Return the factors of a round, and each source's mean factor.

    Half of the sources cost something in a round: one half and the other in turn, one half up to the middle
    and then the other, or halves drawn anew.
    """

    def half(number: int) -> Array:
        order = np.random.default_rng([seed, number]).random((runs, K)).argsort(axis=1)
        return (order < K // 2).astype(np.float64)

    if name == "random":
        mean = np.mean([half(number) for number in range(rounds)], axis=0)
        return half, np.asarray(mean)
    first, length = half(0), 1 if name == "alternating" else (rounds + 1) // 2

    def in_turn(number: int) -> Array:
        return first if number // length % 2 == 0 else 1.0 - first

    return in_turn, np.full((runs, K), 0.5)
