"""Measure MirrorSync's claims (Kolobov, Bubeck, Zimmert, ICML 2020): what its learners do.

The theorems are in `mirrorsync_theorems.py`.
"""

from itertools import product

import numpy as np
import numpy.typing as npt

from benchmarks.reproduce import mirrorsync_instances as instances
from benchmarks.reproduce import mirrorsync_theorems
from benchmarks.reproduce.claims import Listed, Measured, Measurements, Plan
from benchmarks.reproduce.mirrorsync_instances import Array
from benchmarks.reproduce.mirrorsync_rounds import Batch, play
from benchmarks.reproduce.reproduce import of_paper
from freshopt.online import AsyncMirrorSync, AsyncProjectedGradientSync, MirrorSync
from freshopt.online.rate_evaluation import value_of
from freshopt.solvers.mirror_descent import MirrorDescent
from freshopt.solvers.projected_gradient import ProjectedGradient

measure = Measurements()
# A quarter of the run, in which the learners are to be told apart.
EARLY = 60
# Share of the gap at which speeds are compared: every learner closes it.
HALF = 0.5
# Factors on the published η with which Algorithm 1, whose samples are noisier, is given its own best.
SLOWER = (1.0, 0.5, 0.25, 0.125, 0.0625)
# Instances on which the best cell of a grid is chosen; others judge it.
CHOOSING = 2


OF_CURVES = (
    *("converged", "identical", "same-rate", "early", "much-faster", "regret-psgd", "similar-end"),
    *("bandwidth", "bandwidth-resets", "bandwidth-async", "first-sample", "first-sample-tuned"),
)


@measure.of(*(f"{name}-power" for name in OF_CURVES))
def power(plan: Plan) -> Measured:
    """Figures 1 and 2, the bandwidth, and Algorithm 1's first samples."""
    yield from figures(plan, "power")


@measure.of(*(f"{name}-binary" for name in OF_CURVES))
def binary(plan: Plan) -> Measured:
    """Figures 3 and 4, and what goes with them."""
    yield from figures(plan, "binary")


def figures(plan: Plan, kind: str) -> Measured:
    """Measure what the three learners' curves of a kind show."""
    found = instances.curves(kind, plan.runs(), instances.ROUNDS, plan.seed)
    closed = [found.closed(each) for each in (instances.MIRROR, instances.ASYNC, instances.PSGD)]
    to_half = [found.rounds_to(each, HALF) for each in (instances.MIRROR, instances.ASYNC, instances.PSGD)]
    yield f"converged-{kind}", closed[instances.MIRROR][:, -1]
    yield f"identical-{kind}", where_they_differ_most(closed[instances.MIRROR] - closed[instances.ASYNC])
    yield f"same-rate-{kind}", np.log(to_half[instances.ASYNC] / to_half[instances.MIRROR])
    apart = closed[instances.PSGD] - closed[instances.ASYNC]
    yield f"early-{kind}", apart[:, 1 : EARLY + 1].mean(axis=1)
    yield f"much-faster-{kind}", np.log(to_half[instances.PSGD] / to_half[instances.ASYNC])
    yield f"regret-psgd-{kind}", apart[:, :-1].mean(axis=1)
    yield f"similar-end-{kind}", apart[:, -1]
    yield f"bandwidth-{kind}", found.spent[instances.MIRROR] - 1.0
    yield f"bandwidth-resets-{kind}", found.spent[instances.MIRROR] + found.resets[instances.MIRROR] - 1.0
    yield f"bandwidth-async-{kind}", found.spent[instances.ASYNC] - 1.0
    yield from first_samples(plan, kind, found)


def where_they_differ_most(apart: Array) -> Array:
    """Return each run's difference at the round where the mean of the other half of the runs is largest."""
    answer = np.empty(len(apart))
    for half in (0, 1):
        other = apart[1 - half :: 2] if len(apart) > 1 else apart
        answer[half::2] = apart[half::2, int(np.argmax(np.abs(other.mean(axis=0))))]
    return answer


def first_samples(plan: Plan, kind: str, found: instances.Curves) -> Measured:
    """Measure what Algorithm 1 loses that takes the first sample of a round only."""
    batch = Batch.drawn(kind, plan.seed, len(found.gap))
    published, ends = instances.LEARNERS[kind][instances.MIRROR].learning_rate, []
    for factor in SLOWER:
        _, rates = play(batch, instances.ROUNDS, factor * published, instances.EXPLORATION, plan.seed)
        ends.append((batch.cost(rates).mean(axis=1) - found.learnt[instances.MIRROR, :, -1]) / found.gap)
    yield f"first-sample-{kind}", ends[0]
    tuned = np.empty(len(batch))
    for half in (0, 1):
        chosen = int(np.argmin([np.mean(end[1 - half :: 2] if len(end) > 1 else end) for end in ends]))
        tuned[half::2] = ends[chosen][half::2]
    yield f"first-sample-tuned-{kind}", tuned


class Withering:
    """A mirror step under the local constraint as printed: Σ r/(1+ε) of what was Σ r."""

    def step(
        self,
        rates: npt.ArrayLike,
        gradient: npt.ArrayLike,
        bandwidth: float,  # noqa: ARG002
        min_rate: npt.ArrayLike,
        max_rate: npt.ArrayLike,
        learning_rate: float,
    ) -> Array:
        """Return where the step leads."""
        budget = max(float(np.sum(rates)) / (1.0 + instances.EXPLORATION), float(np.sum(min_rate)))
        return MirrorDescent.step(rates, gradient, budget, min_rate, max_rate, learning_rate)


@measure.of("line-35-printed", "line-35-printed-sum", "line-35-kept", "line-35-kept-sum", quick=2)
def line_35(plan: Plan) -> Listed:
    """Measure Algorithm 2's local constraint as printed and as the text has it."""
    runs = plan.runs()
    rows: list[list[float]] = []
    learner = instances.LEARNERS["power"][instances.ASYNC]
    assert isinstance(learner, AsyncMirrorSync)
    for run in range(runs):
        instance = instances.Instance.drawn("power", plan.seed, run)
        row: list[float] = []
        for descent in (Withering(), MirrorDescent()):
            history = instance.run_by(descent, learner, EARLY)
            row.append(value_of(instance.problem, history.final) - float(history.value[0]))
            row.append(float(history.final.sum()) * (1.0 + instances.EXPLORATION) / instances.BANDWIDTH)
        rows.append(row)
    return list(np.array(rows).T)


@measure.of("start-uniform", "mirror-step", "projected-step", quick=20)
def steps(plan: Plan) -> Listed:
    """Measure Algorithm 1's start, and the library's steps against bisection."""
    start = instances.BANDWIDTH / (instances.K * (1.0 + instances.EXPLORATION))
    rows = []
    for run in range(plan.runs()):
        instance, rng = (
            instances.Instance.drawn("power", plan.seed, run),
            np.random.default_rng([plan.seed, run]),
        )
        history = instance.run(MirrorSync(1.0), 1)
        row = [bool(np.max(np.abs(history.rates[0] - start)) < 1e-12)]
        ends = instances.LEAST, instances.MOST["power"] / (1.0 + instances.EXPLORATION)
        rates = np.clip(start * np.exp(rng.normal(size=instances.K)), *ends)
        gradient = -(10.0 ** rng.uniform(-3.0, 0.0)) * rng.exponential(size=instances.K) / rates
        for ours, mirrored in ((MirrorDescent(), True), (ProjectedGradient(), False)):
            both = [
                each.step(rates, gradient, rates.sum(), *ends, 0.5)
                for each in (ours, instances.Bisection(mirrored))
            ]
            row.append(bool(np.max(np.abs(both[0] - both[1])) < 1e-9))
        rows.append(row)
    return list(np.array(rows).T)


@measure.of("grid-mirror-power", "grid-mirror-binary")
def grid_mirror(plan: Plan) -> Measured:
    """Measure MirrorSync's published learning rate against its multiples."""
    for kind in instances.LEARNERS:
        published = instances.LEARNERS[kind][instances.MIRROR].learning_rate
        cells: list[instances.Learner] = [
            MirrorSync(factor * published) for factor in (1.0, 0.25, 0.5, 2.0, 4.0)
        ]
        yield f"grid-mirror-{kind}", judged(plan, f"grid-mirror-{kind}", kind, cells)


@measure.of("grid-async-power", "grid-async-binary", "grid-psgd-power", "grid-psgd-binary")
def grid_cyclic(plan: Plan) -> Measured:
    """Measure the published learning rates and cycles against a grid around them."""
    factors = [(1.0, 1.0), *(each for each in product((0.5, 1.0, 2.0), repeat=2) if each != (1.0, 1.0))]
    for name, which in (("async", instances.ASYNC), ("psgd", instances.PSGD)):
        for kind in instances.LEARNERS:
            learner = instances.LEARNERS[kind][which]
            assert isinstance(learner, AsyncMirrorSync | AsyncProjectedGradientSync)
            cells: list[instances.Learner] = [
                type(learner)(a * learner.learning_rate, b * learner.cycle) for a, b in factors
            ]
            yield f"grid-{name}-{kind}", judged(plan, f"grid-{name}-{kind}", kind, cells)


def judged(plan: Plan, name: str, kind: str, cells: list[instances.Learner]) -> Array:
    """Return the mean cost of the published cell, the first, above that of the best, as a share of the gap.

    The best is that of a few instances; others judge it.
    """
    runs = plan.runs(name)
    paid = np.empty((len(cells), CHOOSING + runs))
    for run in range(CHOOSING + runs):
        # Instances of their own, of which no curve is drawn.
        instance = instances.Instance.drawn(kind, plan.seed + 1, run)
        history = [instance.run(each, instances.ROUNDS) for each in cells]
        gap = float(history[0].value[0]) - instance.explored()
        paid[:, run] = [each.value.mean() / gap for each in history]
    chosen = int(np.argmin(paid[:, :CHOOSING].mean(axis=1)))
    return np.asarray(paid[0, CHOOSING:] - paid[chosen, CHOOSING:])


BENCH = of_paper("mirrorsync", mirrorsync_theorems.measure, measure)
