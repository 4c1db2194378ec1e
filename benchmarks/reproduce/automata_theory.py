"""What H-TRAA's text states of its problem and of a single automaton, computed."""

import math

import numpy as np

import freshopt as fo
from benchmarks.reproduce.automata_runs import CASES, Floats, best, hazards, proportional, reward, uniform
from benchmarks.reproduce.claims import Listed, Measured, Measurements, Plan
from freshopt.automata import AutomataTree, TwofoldAutomaton, Update, detection
from freshopt.problems import PollingKnapsack

measure = Measurements()
# Update probabilities of two pages: as the paper's first ranks, alike and far apart, and either one first.
PAIRS = ((0.3, 0.1), (0.9, 0.3), (0.1, 0.5), (0.9, 0.05))
FINER = (100, 1000, 10_000, 100_000)
# Share where a page that changes once in a thousand slots settles beside one that does in a tenth of them.
RARE = (0.001, 0.1)


def chain(pair: tuple[float, float], resolution: int) -> tuple[Floats, Floats, float]:
    """Return the shares of a single automaton, their stationary distribution, and the optimal share."""
    hazard = -np.log1p(-np.array(pair))
    automaton = TwofoldAutomaton(resolution, Update.REWARD_INACTION)
    finds = [detection(float(a)) for a in hazard]
    return automaton.shares, automaton.stationary(*finds), float(hazard[0] / hazard.sum())


def bent(pair: tuple[float, float], resolution: int, power: float) -> tuple[float, float]:
    """Return the mean, and the deviation from the optimal share, where the shares are (s/(N + 1))^λ.

    The chain is that of Eqs 4-8 with these shares.
    """
    hazard = -np.log1p(-np.array(pair))
    q = (np.arange(1, resolution + 1) / (resolution + 1)) ** power
    up = q * (1.0 - q) * -np.expm1(-hazard[0] / q)
    down = q * (1.0 - q) * -np.expm1(-hazard[1] / (1.0 - q))
    weight = np.concatenate([[0.0], np.cumsum(np.log(up[:-1]) - np.log(down[1:]))])
    chance = np.exp(weight - weight.max())
    chance /= chance.sum()
    optimum = float(hazard[0] / hazard.sum())
    return float(chance @ q), math.sqrt(float(chance @ (q - optimum) ** 2))


def bound(pair: tuple[float, float], resolution: int) -> float:
    """Return M of Eq 17."""
    hazard = -np.log1p(-np.array(pair))
    finds = [detection(float(a)) for a in hazard]
    up, down = TwofoldAutomaton(resolution, Update.REWARD_INACTION).moves(*finds)
    z = int(hazard[0] / hazard.sum() * (resolution + 1))
    below, above = down[1:z] / up[: z - 1], up[z:-1] / down[z + 1 :]
    return float(max(below.max(initial=0.0), above.max(initial=0.0)))


def local_solutions(hazard: Floats, sweeps: int = 10) -> Floats:
    """Return rates at which each automaton of a tree has found its local solution.

    The automata of a level solve theirs at once, with what is below kept in proportion; so does each level,
    from the leaves to the root, over and over.
    """
    rates = np.full(len(hazard), 1.0 / len(hazard))
    for _ in range(sweeps):
        width = 1
        while width < len(hazard):
            pairs = rates.reshape(-1, 2, width)
            parts = pairs / pairs.sum(axis=2, keepdims=True)
            mass, a = pairs.sum(axis=(1, 2)), hazard.reshape(pairs.shape)
            low, high = np.zeros(len(mass)), np.ones(len(mass))
            for _ in range(60):
                q = 0.5 * (low + high)
                held = parts * np.stack([q, 1.0 - q], axis=1)[:, :, None] * mass[:, None, None]
                news = np.sum(parts * -np.expm1(-a / held), axis=2)
                low, high = (
                    np.where(news[:, 0] > news[:, 1], q, low),
                    np.where(news[:, 0] > news[:, 1], high, q),
                )
            rates, width = held.reshape(-1), 2 * width
    return rates


@measure.of("examples", quick=1)
def examples(_plan: Plan) -> Measured:
    """Yield what polls of Sec 1's page find."""
    found = detection(math.log(2.0))(np.array([1.0 / 3.0, 0.5]))
    yield "examples", [float(np.max(np.abs(found - [0.875, 0.75])))]


@measure.of("updates-skewed", "updates-flat", "updates-hard", quick=1)
def updates(_plan: Plan) -> Measured:
    """Yield the updates per step."""
    for name, case in zip(("skewed", "flat", "hard"), CASES, strict=True):
        yield f"updates-{name}", [float(np.sum(-np.expm1(-hazards(*case))))]


@measure.of("equal-chances", "weighted-chances", quick=1)
def conditions(_plan: Plan) -> Listed:
    """Yield the optimality condition, without weights and with them."""
    apart, lost = [], []
    for case in CASES:
        hazard = hazards(*case)
        rates = fo.solve(fo.Problem(PollingKnapsack(), fo.Sources(hazard), 1.0)).rates
        finds = -np.expm1(-hazard / rates)
        apart.append(float(np.ptp(finds) / finds.max()))
        weight, values = 1.0 / np.arange(1.0, len(hazard) + 1.0), []
        for form in ("polls", "materials"):
            x = fo.solve(fo.Problem(PollingKnapsack(form), fo.Sources(hazard, weight), 5.0)).rates
            values.append(float(np.sum(weight * x * -np.expm1(-hazard / np.maximum(x, 1e-280)))))
        lost.append(1.0 - values[1] / values[0])
    return [max(apart)], [min(lost)]


@measure.of("finer-closer", "mean-finest", "bound-below-one", "width-slope", quick=1)
def single(_plan: Plan) -> Measured:
    """Yield Theorem 1 and the steps of its proof."""
    distance, error, width = [], [], []
    for pair in PAIRS:
        found = [chain(pair, resolution) for resolution in FINER]
        distance.append([abs(float(chance @ q) - x) for q, chance, x in found])
        error.append([math.sqrt(float(chance @ (q - x) ** 2)) for q, chance, x in found])
        width.append([math.sqrt(float(chance @ (q - chance @ q) ** 2)) for q, chance, _ in found])
    errors = np.array(error)
    yield "finer-closer", [float(np.max(errors[:, 1:] / errors[:, :-1]))]
    yield "mean-finest", [max(each[-1] for each in distance)]
    yield "bound-below-one", [max(bound(pair, FINER[-1]) for pair in PAIRS)]
    slopes = np.log10(np.array(width)[:, -1] / np.array(width)[:, -2])
    yield "width-slope", [float(slopes[np.argmax(np.abs(slopes + 0.5))])]


@measure.of("bent-limit", "bent-accuracy", quick=1)
def bends(_plan: Plan) -> Listed:
    """Yield material spaces (s/(N + 1))^λ."""
    hazard = -np.log1p(-np.array(RARE))
    optimum = float(hazard[0] / hazard.sum())
    limits = [abs(bent(RARE, FINER[-1], power)[0] / optimum - 1.0) for power in (0.5, 2.0)]
    return [max(limits)], [bent(RARE, 500, 2.0)[1] / bent(RARE, 500, 1.0)[1]]


@measure.of("local-is-global", quick=1)
def hierarchy(_plan: Plan) -> Measured:
    """Yield Theorem 2."""
    lost = []
    for case in CASES:
        hazard = hazards(*case, 64)
        lost.append(1.0 - reward(hazard, local_solutions(hazard)) / best(hazard))
    yield "local-is-global", [max(lost)]


@measure.of("example-path", quick=1)
def path(plan: Plan) -> Measured:
    """Yield Example I: which automata a poll of material 3 moves."""
    reached = []
    for seed in range(plan.runs()):
        tree = AutomataTree(4, update=Update.REWARD_INACTION, seed=seed)
        tree.learn([2] * 100, [1.0] * 100)
        moved = {each["node"] for each in tree.automata() if each["state"] != 250}
        reached.append({1, 2} <= moved)
    yield "example-path", reached


@measure.of("proportional-skewed", "proportional-hard", "uniform-flat", quick=1)
def policies(_plan: Plan) -> Measured:
    """Yield the policies that learn nothing."""
    skewed, flat, hard = (hazards(*case) for case in CASES)
    yield "proportional-skewed", [1.0 - proportional(skewed) / best(skewed)]
    yield "proportional-hard", [1.0 - proportional(hard) / best(hard)]
    yield "uniform-flat", [uniform(flat) / best(flat) - uniform(skewed) / best(skewed)]
