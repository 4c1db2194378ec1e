"""Theorem 1, Figures 1 and 2, and full observations of Learning to Crawl."""

import math

import numpy as np

import freshopt as fo
from benchmarks.reproduce import learning_to_crawl_estimation, learning_to_crawl_lemmas
from benchmarks.reproduce.claims import Listed, Measured, Measurements, Plan
from benchmarks.reproduce.learning_to_crawl_instances import (
    BINARY,
    BOUNDS,
    DECADES,
    HORIZONS,
    PAPER_BOUNDS,
    PHASED,
    PHASES,
    SOURCES,
    Array,
    N,
    best_lengths,
    commitments,
    explorations,
    instance,
    paper_instance,
    phases,
    slopes,
)
from benchmarks.reproduce.reproduce import of_paper
from freshopt.estimators import FullObservation, MomentMatching
from freshopt.online import ExploreThenCommit, PhasedEpsilonGreedy, best_exploration, etc_regret_bound

measure = Measurements()
# Bandwidths of Figure 1; horizons T of Figures 1b and 1c have less than a sweep at the smallest.
BANDWIDTHS = (10.0, 100.0, 1000.0, 10_000.0)
# Horizon of Figure 1a.
SHOWN = np.array([1e4])
FIGURE_1A = ("fig-1a-10", "fig-1a-more", "fig-1a-10000", "fig-1a-order-10", "fig-1a-order-1000")
FIGURE_1B = ("fig-1b-100", "fig-1b-1000", "fig-1b-10000")
FIGURE_1C = ("fig-1c-100", "fig-1c-1000", "fig-1c-10000")
CROSSING = ("fig-1b-before", "fig-1b-after")
TIGHT = ("thm-1-tight-100", "thm-1-tight-1000")


@measure.of(*FIGURE_1A)
def figure_1a(plan: Plan) -> Listed:
    """Measure whether a length between the ends is best, and how regret depends on the bandwidth."""
    runs, regrets, inside = plan.runs(), [], []
    for bandwidth in BANDWIDTHS:
        found = commitments(plan.seed, runs, bandwidth)
        best, regret = best_lengths(found, SHOWN)
        shortest, longest = found[1][0], found[1][found[1] <= SHOWN[0]][-1]
        inside.append((shortest < best[:, 0]) & (best[:, 0] < longest))
        regrets.append(regret[:, 0] / SOURCES)
    return inside[0], inside[1] & inside[2], inside[3], regrets[0] - regrets[1], regrets[2] - regrets[3]


@measure.of(*FIGURE_1B, *FIGURE_1C)
def figures_1b_1c(plan: Plan) -> Measured:
    """Measure how the best length and its regret grow with the horizon."""
    runs, horizons = plan.runs(), 10.0**DECADES
    for length, loss, bandwidth in zip(FIGURE_1B, FIGURE_1C, BANDWIDTHS[1:], strict=True):
        best, regret = best_lengths(commitments(plan.seed, runs, bandwidth), horizons)
        yield length, slopes(horizons, best)
        slope = slopes(horizons, regret / horizons)
        # The claim on the largest bandwidth is on the share of instances.
        yield loss, slope if bandwidth < BANDWIDTHS[-1] else (slope >= -0.6) & (slope <= -0.4)


@measure.of(*CROSSING)
def crossing(plan: Plan) -> Measured:
    """Measure which bandwidth explores longer, before T = 10³ and after 10⁴."""
    runs = plan.runs()
    for name, decades in zip(CROSSING, (DECADES[DECADES < 3.0], DECADES[DECADES > 4.0]), strict=True):
        one, other = (
            best_lengths(commitments(plan.seed, runs, r), 10.0**decades)[0] for r in (100.0, 1000.0)
        )
        yield name, np.mean(np.log(one / other), axis=1)


@measure.of("fig-1c-order", quick=2)
def order(plan: Plan) -> Measured:
    """Measure whether regret is lower at the larger bandwidth, at the horizon where it is least so."""
    runs, horizons = plan.runs(), 10.0**DECADES
    low, high = (best_lengths(commitments(plan.seed, runs, r), horizons)[1] for r in (100.0, 1000.0))
    yield "fig-1c-order", np.min(np.log(low / high), axis=1)


@measure.of("fig-1b-small", "fig-1c-small", "thm-1-tight-small")
def small(plan: Plan) -> Measured:
    """Measure the slopes on other rates and importances, and of the bound over the regret."""
    runs = plan.runs()
    found, times = explorations(plan.seed, runs), np.array(HORIZONS)
    yield "fig-1b-small", slopes(times, np.array([[each.length for each in row] for _, row in found]))
    regret = np.array([[each.regret for each in row] for _, row in found])
    yield "fig-1c-small", slopes(times, regret / times)
    # The bound is the trivial one at shorter horizons.
    late, rows = 10.0 ** np.array([6.0, 7.0, 8.0, 9.0]), []
    for problem, _ in found:
        sweeps = np.unique(np.geomspace(2, 3e5, 40).round()).astype(int).tolist()
        lost = [
            best_exploration(problem, t, sweeps=sweeps, bounds=BOUNDS, draws=4, seed=plan.seed).regret
            for t in late
        ]
        rows.append([etc_regret_bound(problem, t, (0.1, 1.0)) for t in late] / np.array(lost))
    yield "thm-1-tight-small", slopes(late, np.array(rows))


@measure.of(*TIGHT, quick=2)
def tight(plan: Plan) -> Measured:
    """Measure how the theorem's bound over the regret grows with the horizon."""
    runs, horizons = plan.runs(), 10.0**DECADES
    for name, bandwidth in zip(TIGHT, (100.0, 1000.0), strict=True):
        found = commitments(plan.seed, runs, bandwidth)
        regret = best_lengths(found, horizons)[1]
        bound = [[etc_regret_bound(problem, t, PAPER_BOUNDS) for t in horizons] for problem in found[0]]
        yield name, slopes(horizons, np.array(bound) / regret)


@measure.of("thm-1-says", quick=1)
def says(plan: Plan) -> Measured:
    """Compute log10 of the bound 2√(ABT), T = 10⁶, over what losing everything costs, AT."""
    (lowest, highest), bandwidth = PAPER_BOUNDS, BANDWIDTHS[-1]
    # ln of B/A, δ = 0.05.
    quotient = 2.0 * highest * SOURCES / bandwidth + math.log(
        bandwidth * math.log(2.0 * SOURCES / 0.05) / (2.0 * SOURCES * lowest**2)
    )
    share = (math.log(2.0) + 0.5 * quotient - 0.5 * math.log(1e6)) / math.log(10.0)
    yield "thm-1-says", [share] * plan.runs()


@measure.of("thm-1-holds", quick=5)
def holds(plan: Plan) -> Measured:
    """Measure whether the regret of one exploration obeys the bound, at each of 20 lengths."""
    held = []
    for run in range(plan.runs()):
        problem = instance(np.random.default_rng([plan.seed, 10, run]))
        found = best_exploration(
            problem,
            1e6,
            sweeps=np.geomspace(2, 1e5, 20).round().tolist(),
            bounds=(0.1, 1.0),
            draws=1,
            seed=run,
        )
        bounds = [etc_regret_bound(problem, 1e6, (0.1, 1.0), length) for length in found.lengths]
        held.append(bool(np.all(found.regrets[0] <= bounds)))
    yield "thm-1-holds", held


@measure.of("app-k-order-100", "app-k-order-1000")
def counted_order(plan: Plan) -> Measured:
    """Measure how regret falls with the horizon where changes are counted."""
    runs, horizons = plan.runs(), 10.0**DECADES
    for bandwidth in (100, 1000):
        found = commitments(plan.seed, runs, float(bandwidth), counted=True)
        yield f"app-k-order-{bandwidth}", slopes(horizons, best_lengths(found, horizons)[1] / horizons)


@measure.of("app-k-learner", quick=2)
def counted_learner(plan: Plan) -> Measured:
    """Measure by how much counts lower the regret of explore-then-commit in a simulated world."""
    leads = []
    for run in range(plan.runs()):
        problem = instance(np.random.default_rng([plan.seed, 11, run]), 20.0)
        guess = fo.Problem(BINARY, fo.Sources(0.5, problem.sources.importance), 20.0)
        world = fo.World.poisson(problem.sources, seed=1000 * plan.seed + run)
        counted, seen = (
            ExploreThenCommit(200.0, estimator=estimator, seed=run).run(world, guess, 1e4).regret[-1]
            for estimator in (FullObservation(), MomentMatching(BOUNDS))
        )
        leads.append((seen - counted) / N)
    yield "app-k-learner", leads


# Phases after which the two are compared: few, and as many as are run.
FEW, SWEEPS = 4, (2, 10, 50)


@measure.of(
    *(f"fig-2-{when}-{sweeps}" for sweeps in SWEEPS[:2] for when in ("behind", "ahead")),
)
def in_short_phases(plan: Plan) -> Measured:
    """Measure the lead of ε-greedy on small instances, in phases of 2 and of 10 sweeps."""
    for sweeps in SWEEPS[:2]:
        yield from leads(plan, sweeps, PHASED[0], f"fig-2-{{}}-{sweeps}")


@measure.of("fig-2-behind-50", "fig-2-ahead-50")
def long(plan: Plan) -> Measured:
    """Measure the lead of ε-greedy on small instances, in phases of 50 sweeps."""
    yield from leads(plan, 50, PHASED[0], "fig-2-{}-50")


@measure.of("fig-2-ahead-wide", "fig-2-ahead-narrow")
def more_bandwidth(plan: Plan) -> Measured:
    """Measure the lead of ε-greedy at a bandwidth of a refresh for each source and time unit."""
    for name, setting in zip(("fig-2-ahead-wide", "fig-2-ahead-narrow"), PHASED[1:], strict=True):
        regret, best = phases(plan.seed, plan.runs(name), *setting, 10.0, (PHASES,))
        yield name, (best[:, -1] - regret[:, -1]) / N


def leads(plan: Plan, sweeps: int, setting: tuple[float, float], name: str) -> Measured:
    """Yield what ε-greedy has lost less than the best ETC, after few phases and after all."""
    ids = name.format("behind"), name.format("ahead")
    regret, best = phases(plan.seed, plan.runs(*ids), *setting, float(sweeps), (FEW, PHASES))
    for k, after in enumerate((FEW, PHASES)):
        yield ids[k], (best[:, k] - regret[:, after - 1]) / N


@measure.of("fig-2-paper-behind-2", "fig-2-paper-ahead-2")
def paper_short(plan: Plan) -> Measured:
    """Measure the lead on the paper's instances at R = 1000, in phases of 2 sweeps."""
    yield from paper(plan, 2)


@measure.of("fig-2-paper-behind-10", "fig-2-paper-ahead-10")
def paper_long(plan: Plan) -> Measured:
    """Measure the lead on the paper's instances at R = 1000, in phases of 10 sweeps."""
    yield from paper(plan, 10)


def paper(plan: Plan, sweeps: int) -> Measured:
    """Yield the leads after few phases and after all."""
    ids = tuple(f"fig-2-paper-{when}-{sweeps}" for when in ("behind", "ahead"))
    rows = np.array([paper_run(plan.seed, run, sweeps) for run in range(plan.runs(*ids))])
    yield from zip(ids, rows.T, strict=True)


def paper_run(seed: int, run: int, sweeps: int) -> Array:
    """Return what ε-greedy has lost less than the best ETC, after few phases and after all."""
    bandwidth = 1000.0
    phase = sweeps * SOURCES / bandwidth
    problem = paper_instance(np.random.default_rng([seed, 12, run]), bandwidth)
    guess = fo.Problem(BINARY, fo.Sources(0.5, problem.sources.importance), bandwidth)
    learner = PhasedEpsilonGreedy(0.1, phase, MomentMatching(PAPER_BOUNDS), seed=run)
    world = fo.World.poisson(problem.sources, seed=1000 * seed + run)
    regret = learner.run(world, guess, PHASES * phase).regret
    found = [
        best_exploration(problem, k * phase, bounds=PAPER_BOUNDS, draws=3, seed=run).regret - regret[k - 1]
        for k in (FEW, PHASES)
    ]
    return np.array(found) / SOURCES


BENCH = of_paper(
    "learning_to_crawl", learning_to_crawl_lemmas.measure, learning_to_crawl_estimation.measure, measure
)
