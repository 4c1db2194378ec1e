"""Measure MirrorSync's bounds on regret: Theorem 5.1, Corollary 1, adversaries, and its order in T."""

from __future__ import annotations

import numpy as np

from benchmarks.reproduce.claims import Beside, Measured, Measurements, Plan
from benchmarks.reproduce.mirrorsync_instances import EXPLORATION, KINDS, LARGEST, ROUNDS, Array, Instance, K
from benchmarks.reproduce.mirrorsync_rounds import Adversary, Batch, corollary, corollary_bound, play, stay
from freshopt.online import MirrorSync, mirror_sync_in_policy_bound

measure = Measurements()
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
        runs = plan.runs("theorem-5.1-power", "theorem-5.1-binary")
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
    batch = Batch.drawn("binary", plan.seed, plan.runs("order-long"))
    lost = [
        play(batch, rounds, *corollary(batch, rounds), plan.seed)[0] - rounds * batch.best()
        for rounds in LONGER
    ]
    yield "order-long", slopes(LONGER, np.array(lost))


@measure.of("order-averaged")
def averaged(plan: Plan) -> Measured:
    """Corollary 1's order, with freshopt's learner."""
    runs = plan.runs("order-averaged")
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
        batch = Batch.drawn(kind, plan.seed, plan.runs("gap-bound-power", "gap-bound-binary"))
        best, bound = batch.best(), 2.0 * EXPLORATION * LARGEST[kind]
        never = stay(batch, 1, EXPLORATION) - best
        yield f"gap-bound-{kind}", Beside((batch.best(EXPLORATION) - best) / bound, never / bound)


def slopes(lengths: tuple[int, ...], lost: Array) -> Array:
    """Return each run's slope of the logarithm of regret over that of T, by least squares."""
    return np.asarray(np.polyfit(np.log(lengths), np.log(lost), 1)[0])


@measure.of("least-rate", quick=10)
def least_rate(plan: Plan) -> Measured:
    """Section 5: regret as r_min falls to a sixteenth."""
    batch = Batch.drawn("binary", plan.seed, plan.runs("least-rate"))
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
