"""Web polling by a hierarchy of learning automata: Granmo and Oommen, H-TRAA.

The claims are in claims/automata.toml; here is what measures those of static pages, of pages that swap ranks,
and of trees of all sizes: Figures 5 to 10 and 12. `automata_theory` has the theorems and what is computed.
"""

import numpy as np

import freshopt as fo
from benchmarks.reproduce import automata_theory
from benchmarks.reproduce.automata_runs import (
    CASES,
    HARD,
    LEARNT,
    MANY,
    OFTEN,
    SELDOM,
    SETTLED,
    Floats,
    N,
    best,
    estimated,
    estimated_while_moving,
    followed,
    hazards,
    learnt,
    perturbed,
    polls_to,
    proportional,
    realised,
    relearning,
    replied,
    seeds,
)
from benchmarks.reproduce.claims import Listed, Measured, Measurements, Plan
from benchmarks.reproduce.reproduce import of_paper
from freshopt import online
from freshopt.automata import (
    AutomataTree,
    Feedback,
    Polling,
    SimulatedSources,
    TwofoldAutomaton,
    Update,
    detection,
    doubled,
)
from freshopt.problems import PollingKnapsack

measure = Measurements()
# Windows of realised rewards; so many make up the time between two swaps of Fig 9.
WINDOW = 20_000
BETWEEN = SELDOM // WINDOW
# Numbers of pages between those of Fig 8 and of Fig 12.
SIZES = (N, 2048, 8192, MANY)
# Lengths of the Estimator's phase.
PHASES = (1000, 10_000, 100_000, 500_000)
# How near to its optimal share an automaton has settled.
NEAR = 0.05


def settling(seed: int, step: int = 50) -> Floats:
    """Return after how many polls each automaton above page 1 has first come near its optimal share."""
    hazard = hazards(*HARD)
    tree, sources = AutomataTree(N, seed=seed), SimulatedSources(hazard)
    widths = 2 ** np.arange(tree.depth)
    optimal = np.array([hazard[:k].sum() / hazard[: 2 * k].sum() for k in widths])
    first = np.zeros(len(widths))
    while not first.all():
        tree.simulate(sources, step)
        shares = np.cumsum(tree.shares())
        near = np.abs(shares[widths - 1] / shares[2 * widths - 1] - optimal) < NEAR
        first = np.where((first == 0.0) & near, tree.polls, first)
    return first


@measure.of("levels-together", quick=3)
def levels(plan: Plan) -> Measured:
    """Yield whether the automata of all depths settle together."""
    found = [settling(seed) for seed in seeds(plan)]
    yield "levels-together", [float(each.max() / each.min()) for each in found]


@measure.of("recovers", "adaptation")
def recovery(plan: Plan) -> Listed:
    """Yield how long trees take to learn, and to learn anew when the first two ranks swap."""
    drawn = seeds(plan)
    small, large = ([relearning(n, seed) for seed in drawn] for n in (N, MANY))
    return small, (np.log2(large), np.log2(small))


FIGURES = (
    "swaps-ends",
    "swaps-at-random",
    "swaps-seldom-better",
    "often-steady",
    "often-short",
    "often-estimator",
)


@measure.of(*FIGURES)
def swaps(plan: Plan) -> Measured:
    """Yield Figures 9 and 10."""
    hazard, drawn = hazards(*HARD), seeds(plan)
    seldom = [followed(SELDOM, seed, WINDOW) for seed in drawn]
    often = [followed(OFTEN, seed, WINDOW) for seed in drawn]
    ends = np.array([expected[BETWEEN - 1 :: BETWEEN] for _, expected in seldom])
    yield "swaps-ends", ends.mean(axis=1) - proportional(hazard)
    means = [np.array([found.mean() for found, _ in some]) for some in (seldom, often)]
    random = [followed(SELDOM, seed, WINDOW, regular=False)[0].mean() for seed in drawn]
    yield "swaps-at-random", np.array(random) - means[0]
    yield "swaps-seldom-better", means[0] - means[1]
    rewards = np.array([expected for _, expected in often])
    half = rewards.shape[1] // 2
    yield "often-steady", (rewards[:, half:].mean(axis=1) - rewards[:, 1:half].mean(axis=1)) / best(hazard)
    yield "often-short", rewards.mean(axis=1) - proportional(hazard)
    rivals = [max(estimated_while_moving(OFTEN, seed, phase) for phase in PHASES) for seed in drawn]
    yield "often-estimator", rewards.mean(axis=1) - rivals


@measure.of("sub-linear", "logarithmic")
def sizes(plan: Plan) -> Measured:
    """Yield Figure 12: how the time to learn grows with the number of pages."""
    rows = [[polls_to(LEARNT, hazards(*HARD, n), seed, 100) for n in SIZES] for seed in seeds(plan)]
    slopes = np.polyfit(np.log(SIZES), np.log(rows).T, 1)[0]
    yield "sub-linear", slopes
    times = np.array(rows, dtype=np.float64)
    yield "logarithmic", times[:, -1] / times[:, 0] - np.log(MANY) / np.log(N)


NAMES = dict(zip(("skewed", "flat", "hard"), CASES, strict=True))
# Polls after which a tree and the Estimator are compared, and perturbations of Sec 4.3.1.
COMPARED = (1000, 10_000, 100_000, 1_000_000)
PERTURBATIONS = (0, 1000, 10_000, 100_000, 1_000_000)
# When rewards of a run are averaged: its first 100,000 polls; the settled half of one with deep resolutions.
EARLY = tuple(range(2000, 100_001, 2000))
DEEP = tuple(range(1_010_000, 2_000_001, 10_000))


def all_of(text: str) -> tuple[str, ...]:
    """Return an id for each environment."""
    return tuple(f"{text}-{name}" for name in NAMES)


def mean(hazard: Floats, seed: int, polls: tuple[int, ...], **settings: object) -> float:
    """Return a tree's reward, averaged over looks after numbers of polls."""
    return float(np.mean(learnt(hazard, seed, polls, **settings)))


RIVALS = (*all_of("ahead-at-once"), "ahead", "estimator-steady", "estimator-flat")


@measure.of(*RIVALS)
def against_the_estimator(plan: Plan) -> Measured:
    """Yield Figures 6-8: trees against the Estimator."""
    drawn = seeds(plan)
    early, later, steady = {}, [], []
    for name, case in NAMES.items():
        hazard = hazards(*case)
        trees = np.array([learnt(hazard, seed, COMPARED) for seed in drawn])
        rivals = np.array([estimated(hazard, COMPARED, seed) for seed in drawn])
        yield f"ahead-at-once-{name}", trees[:, 0] - rivals[:, 0]
        later.append(np.min(trees[:, 1:] - rivals[:, 1:], axis=1))
        steady.append(np.all(np.diff(rivals, axis=1) > 0.0, axis=1))
        early[name] = rivals[:, 1] / best(hazard)
    yield "ahead", np.min(later, axis=0)
    yield "estimator-steady", np.all(steady, axis=0)
    yield "estimator-flat", early["flat"] - early["skewed"]


@measure.of(*all_of("settled"), "breach")
def settled(plan: Plan) -> Measured:
    """Yield what settled trees reach by credits."""
    for name, case in NAMES.items():
        hazard = hazards(*case)
        found = np.array([mean(hazard, seed, SETTLED) for seed in seeds(plan, f"settled-{name}")])
        yield f"settled-{name}", 1.0 - found / best(hazard)
        if case == HARD:
            yield "breach", found[: plan.runs("breach")] - proportional(hazard)


@measure.of(*all_of("deadlines"), "deadlines-breach")
def by_deadlines(plan: Plan) -> Measured:
    """Yield what settled trees reach by earliest deadline."""
    for name, case in NAMES.items():
        hazard = hazards(*case)
        drawn = seeds(plan, f"deadlines-{name}")
        found = np.array([mean(hazard, seed, SETTLED, polling=Polling.EARLIEST_DEADLINE) for seed in drawn])
        yield f"deadlines-{name}", 1.0 - found / best(hazard)
        if case == HARD:
            yield "deadlines-breach", found[: plan.runs("deadlines-breach")] - proportional(hazard)


@measure.of("replies-credits", "replies-deadlines")
def by_replies(plan: Plan) -> Measured:
    """Yield trees to which an environment replies with chance d(x)."""
    hazard, looks = hazards(*HARD), range(110_000, 200_001, 10_000)
    for name, polling in (("credits", Polling.CREDIT), ("deadlines", Polling.EARLIEST_DEADLINE)):
        drawn = seeds(plan, f"replies-{name}")
        found = np.array([replied(hazard, seed, looks, polling) for seed in drawn])
        yield f"replies-{name}", found - proportional(hazard)


@measure.of("realised")
def by_best_rates(plan: Plan) -> Measured:
    """Yield what the best rates do not realise of what they are expected to."""
    found = []
    for case in CASES:
        hazard = hazards(*case)
        each = [realised(hazard, Polling.EARLIEST_DEADLINE, k, 200_000) for k in seeds(plan)]
        found.append(1.0 - np.array(each) / best(hazard))
    yield "realised", np.max(found, axis=0)


FIGURE_5 = ("penalty-most-accurate", "inaction-inferior", "updates-alike", "both-fastest")


@measure.of(*FIGURE_5)
def updating(plan: Plan) -> Measured:
    """Yield Figure 5: the three ways to update."""
    hazard, drawn = hazards(*HARD), seeds(plan)
    ways = (Update.REWARD_PENALTY, Update.INACTION_PENALTY, Update.REWARD_INACTION)
    found = np.array([[learnt(hazard, k, (10_000, *SETTLED), update=way) for k in drawn] for way in ways])
    early, (both, penalty, inaction) = found[:, :, 0], found[:, :, 1:].mean(axis=2)
    yield "penalty-most-accurate", penalty - np.maximum(both, inaction)
    yield "inaction-inferior", inaction - np.minimum(both, penalty)
    yield "updates-alike", np.ptp([both, penalty, inaction], axis=0) / best(hazard)
    yield "both-fastest", early[0] - early[1:].max(axis=0)


@measure.of(*all_of("perturbed"), "perturbed-little")
def perturbations(plan: Plan) -> Measured:
    """Yield what perturbations cost in the first 100,000 polls."""
    drawn = seeds(plan)
    first = []
    for name, case in NAMES.items():
        hazard = hazards(*case)
        rows = [[mean(perturbed(hazard, swaps, k), k, EARLY) for swaps in PERTURBATIONS] for k in drawn]
        found = np.array(rows)
        yield f"perturbed-{name}", np.polyfit(np.log10(PERTURBATIONS[1:]), found[:, 1:].T, 1)[0]
        first.append(found[:, 1] - found[:, 0])
    yield "perturbed-little", np.mean(first, axis=0)


@measure.of(*all_of("doubled"), "doubled-slower", "order-free")
def resolutions(plan: Plan) -> Measured:
    """Yield what resolutions doubled towards the root do on perturbed pages and on less perturbed ones."""
    ways, slower = (500, doubled(N)), []
    for name, case in NAMES.items():
        hazard, rows, early = hazards(*case), [], []
        for seed in seeds(plan, f"doubled-{name}"):
            rough = perturbed(hazard, PERTURBATIONS[-1], seed)
            rows.append([mean(rough, seed, DEEP, resolution=way) for way in ways])
        plain, deep = np.array(rows).T
        yield f"doubled-{name}", deep - plain
        for seed in seeds(plan, "doubled-slower"):
            rough = perturbed(hazard, PERTURBATIONS[1], seed)
            early.append([mean(rough, seed, EARLY, resolution=way) for way in ways])
        slower.append(np.diff(early, axis=1)[:, 0])
        if case == HARD:
            ordered = [mean(hazard, seed, DEEP) for seed in seeds(plan, "order-free")]
            yield "order-free", (ordered, plain)
    yield "doubled-slower", np.max(slower, axis=0)


@measure.of("chain-near", "chain-far")
def as_the_chain_has_it(plan: Plan) -> Measured:
    """Yield how far an automaton polled by deadlines is from the chain of Eqs 4-8."""
    for name, pair in (("chain-near", (0.3, 0.1)), ("chain-far", (0.9, 0.3))):
        hazard, found = -np.log1p(-np.array(pair)), []
        finds = [detection(float(a)) for a in hazard]
        expected = TwofoldAutomaton(500, Update.REWARD_INACTION).mean_share(*finds)
        for seed in seeds(plan, name):
            tree = AutomataTree(
                2, 500, polling=Polling.EARLIEST_DEADLINE, update=Update.REWARD_INACTION, seed=seed
            )
            sources, shares = SimulatedSources(hazard), []
            tree.simulate(sources, 50_000)
            for _ in range(1000):
                tree.simulate(sources, 200)
                shares.append(tree.shares()[0])
            found.append(np.mean(shares) - expected)
        yield name, found


@measure.of("limit", "limit-nears")
def finer_trees(plan: Plan) -> Listed:
    """Yield what a tree of 16 pages loses, by resolution."""
    hazard, looks = hazards(*HARD, 16), tuple(range(210_000, 400_001, 10_000))
    lost = {
        states: np.array(
            [1.0 - mean(hazard, k, looks, resolution=states) / best(hazard) for k in seeds(plan, "limit")]
        )
        for states in (100, 1000, 10_000)
    }
    return lost[10_000], np.min([lost[100] - lost[1000], lost[1000] - lost[10_000]], axis=0)


@measure.of("probes-lost")
def weighted(plan: Plan) -> Measured:
    """Yield the share of the best weighted news that a tree told by probes forgoes."""
    n, hazard, lost = 64, hazards(*HARD, 64), []
    for seed in seeds(plan):
        weight = np.random.default_rng([seed, 3]).lognormal(0.0, 1.0, n)
        top = fo.solve(fo.Problem(PollingKnapsack(), fo.Sources(hazard, weight), 1.0)).value
        tree = AutomataTree(n, polling=Polling.EARLIEST_DEADLINE, update=Update.REWARD_INACTION, seed=seed)
        sources, shares = SimulatedSources(hazard, weight * hazard), np.zeros(n)
        tree.simulate(sources, 400_000, Feedback.PROBE)
        for _ in range(200):
            tree.simulate(sources, 2000, Feedback.PROBE)
            shares += tree.shares() / 200
        lost.append(1.0 - float(np.sum(weight * shares * -np.expm1(-hazard / shares))) / top)
    yield "probes-lost", lost


@measure.of("in-batches")
def in_a_world(plan: Plan) -> Measured:
    """Yield the tree in a world that it polls in batches, less one poll at a time."""
    hazard = hazards(*HARD)
    problem = fo.Problem(PollingKnapsack(), fo.Sources(hazard), bandwidth=1.0)
    batches, single = [], []
    for seed in seeds(plan):
        world = fo.World.poisson(problem.sources, seed)
        history = online.AutomataTree(rounds=20, seed=seed).run(world, problem, 100_000.0)
        batches.append(float(np.mean(history.value[10:])))
        single.append(mean(hazard, seed, tuple(range(55_000, 100_001, 5000))))
    yield "in-batches", (batches, single)


BENCH = of_paper("automata", automata_theory.measure, measure)
