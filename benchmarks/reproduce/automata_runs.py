"""Runs of trees of automata on Zipf-like pages, for the claims and the curves of H-TRAA.

The page of rank k has an update in a slot with probability α/k^β, and one page is polled in a slot. The
reward of rates x is Σ x·(1 − (1 − u)^{1/x}), the expected share of polls that find an update; where it says
realised, it is what simulated polls have found.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.reproduce.claims import Plan
from freshopt import automata
from freshopt.automata import Polling, SimulatedSources

Floats = npt.NDArray[np.float64]
# Pages and environments (α, β) of Sec 4.3.1; the last is the most challenging one.
N = 512
CASES = ((0.3, 1.5), (0.3, 1.0), (0.9, 1.5))
HARD = (0.9, 1.5)
# Pages of the largest tree (Sec 1.2), and polls between two swaps of Fig 9 and 10.
MANY = 32_768
SELDOM, OFTEN = 80_000, 1000
# Runs of a curve.
RUNS = 12
POLLS = 1_000_000
# When a settled tree is looked at: its shares wander, and one look has their whole noise.
SETTLED = tuple(range(510_000, POLLS + 1, 10_000))
# Share of the optimum that counts as learnt: it lies below what proportional rates reach in the hardest
# environment, 0.967, and above all that is untaught.
LEARNT = 0.95


def seeds(plan: Plan, *ids: str) -> list[int]:
    """Return a seed for each run of claims that share them."""
    return [100 * plan.seed + k for k in range(plan.runs(*ids))]


def hazards(alpha: float, beta: float, n: int = N) -> Floats:
    """Return −log(1 − u) by rank."""
    return -np.log1p(-alpha / np.arange(1.0, n + 1.0) ** beta)


def reward(hazard: Floats, rates: Floats) -> float:
    """Return Σ x·d(x)."""
    return float(np.sum(rates * -np.expm1(-hazard / rates)))


def best(hazard: Floats) -> float:
    """Return the reward of the best rates, which are proportional to the hazards."""
    return float(-np.expm1(-np.sum(hazard)))


def proportional(hazard: Floats) -> float:
    """Return the reward of rates proportional to the update probabilities."""
    u = -np.expm1(-hazard)
    return reward(hazard, u / u.sum())


def uniform(hazard: Floats) -> float:
    """Return the reward of equal rates."""
    return reward(hazard, np.full(len(hazard), 1.0 / len(hazard)))


def learnt(hazard: Floats, seed: int, polls: Iterable[int], **settings: Any) -> list[float]:
    """Return a tree's reward after numbers of polls; settings are those of the tree."""
    tree, sources = automata.AutomataTree(len(hazard), seed=seed, **settings), SimulatedSources(hazard)
    found = []
    for count in polls:
        tree.simulate(sources, count - tree.polls)
        found.append(reward(hazard, tree.shares()))
    return found


def replied(hazard: Floats, seed: int, polls: Sequence[int], polling: Polling, batch: int = 16) -> float:
    """Return the mean reward of a tree whose environment replies with chance d(x) of the present share.

    It is the environment of Sec 3.1: no page changes, and no interval counts.
    """
    tree, rng = automata.AutomataTree(len(hazard), polling=polling, seed=seed), np.random.default_rng(seed)
    found, due = [], list(polls)
    while due:
        share = tree.shares()
        polled = tree.choose(batch)
        tree.learn(polled, rng.random(batch) < -np.expm1(-hazard[polled] / share[polled]))
        while due and tree.polls >= due[0]:
            found.append(reward(hazard, tree.shares()))
            due.pop(0)
    return float(np.mean(found))


def perturbed(hazard: Floats, swaps: int, seed: int) -> Floats:
    """Return hazards of which random neighbours have been swapped, one after the other."""
    order = hazard.tolist()
    for k in np.random.default_rng([seed, 1]).integers(0, len(order) - 1, swaps).tolist():
        order[k], order[k + 1] = order[k + 1], order[k]
    return np.array(order)


def polls_to(share: float, hazard: Floats, seed: int, step: int, **settings: Any) -> int:
    """Return after how many polls the reward has reached a share of the best."""
    tree, sources = automata.AutomataTree(len(hazard), seed=seed, **settings), SimulatedSources(hazard)
    goal = share * best(hazard)
    while reward(hazard, tree.shares()) < goal:
        tree.simulate(sources, step)
    return tree.polls


def relearning(n: int, seed: int, step: int = 100) -> int:
    """Return the polls back to 95 % of the optimum when the two first ranks swap after 80,000 polls."""
    hazard = hazards(*HARD, n)
    tree, sources = automata.AutomataTree(n, seed=seed), SimulatedSources(hazard)
    tree.simulate(sources, SELDOM)
    sources.swap(0, 1)
    hazard[[0, 1]] = hazard[[1, 0]]
    goal = LEARNT * best(hazard)
    while reward(hazard, tree.shares()) < goal:
        tree.simulate(sources, step)
    return tree.polls - SELDOM


class Swapping:
    """Pages of the hardest environment, of which one and the next in rank swap from time to time.

    Which one is drawn from the Zipf distribution (Sec 4.3.4).
    """

    def __init__(self, seed: int) -> None:
        self.hazard = hazards(*HARD)
        self.sources = SimulatedSources(self.hazard)
        self.ranked, self.rng = np.arange(N), np.random.default_rng([seed, 2])
        self.chance = np.cumsum(np.arange(1.0, N + 1.0) ** -HARD[1])

    def swap(self) -> None:
        """Swap a page with the next in rank."""
        rank = int(np.searchsorted(self.chance, self.rng.random() * self.chance[-1]))
        if rank + 1 < N:
            pair = self.ranked[[rank, rank + 1]]
            self.sources.swap(int(pair[0]), int(pair[1]))
            self.hazard[pair] = self.hazard[pair[::-1]]
            self.ranked[[rank, rank + 1]] = pair[::-1]


def followed(
    every: int, seed: int, window: int, polls: int = POLLS, *, regular: bool = True
) -> tuple[Floats, Floats]:
    """Return by windows the reward realised, and that of the shares before the swap that may follow.

    Ranks swap every so many polls, or after as many on average, at random.
    """
    tree, pages = automata.AutomataTree(N, seed=seed), Swapping(seed)
    gaps = np.random.default_rng([seed, 4])
    found, expected = [0], []
    due = every if regular else 1 + int(gaps.exponential(every))
    while tree.polls < polls:
        until = min(due, (tree.polls // window + 1) * window, polls)
        tree.simulate(pages.sources, until - tree.polls)
        if tree.polls % window == 0:
            found.append(pages.sources.found)
            expected.append(reward(pages.hazard, tree.shares()))
        if tree.polls == due and tree.polls < polls:
            pages.swap()
            due += every if regular else 1 + int(gaps.exponential(every))
    return np.diff(found) / window, np.array(expected)


def moved(every: int, seed: int, window: int, polls: int = POLLS) -> list[float]:
    """Return the rewards realised in windows while ranks swap every so many polls."""
    realised: list[float] = followed(every, seed, window, polls)[0].tolist()
    return realised


def realised(hazard: Floats, polling: Polling, seed: int, polls: int = POLLS) -> float:
    """Return the reward that the best rates realise."""
    sources = SimulatedSources(hazard)
    automata.AutomataTree.from_shares(hazard, polling=polling, seed=seed).simulate(sources, polls, None)
    return sources.found / polls


def chances(sources: SimulatedSources) -> Floats:
    """Return rates proportional to the update probabilities estimated from polls at equal rates.

    A page that always had news is taken for one that lacked it in half a poll.
    """
    found = np.minimum(sources.news / sources.polls, 1.0 - 0.5 / sources.polls)
    chance = np.maximum(-np.expm1(np.log1p(-found) / len(found)), 1e-9)
    return chance / chance.sum()  # type: ignore[no-any-return]


def estimated(hazard: Floats, phases: Iterable[int], seed: int) -> list[float]:
    """Return the reward of the Estimator's rates after estimation phases of some lengths."""
    sources = SimulatedSources(hazard)
    tree = automata.AutomataTree.from_shares(
        np.ones(len(hazard)), polling=Polling.EARLIEST_DEADLINE, seed=seed
    )
    found = []
    for polls in phases:
        tree.simulate(sources, polls - tree.polls, None)
        found.append(reward(hazard, chances(sources)))
    return found


def estimated_while_moving(every: int, seed: int, phase: int, polls: int = POLLS) -> float:
    """Return the mean reward of the Estimator's rates, from its estimation phase to the end.

    Ranks swap every so many polls, and it estimates once.
    """
    tree, pages = (
        automata.AutomataTree.from_shares(np.ones(N), polling=Polling.EARLIEST_DEADLINE),
        Swapping(seed),
    )
    for _ in range(phase // every):
        tree.simulate(pages.sources, every, None)
        pages.swap()
    rates, found = chances(pages.sources), []
    for _ in range((polls - phase) // every):
        found.append(reward(pages.hazard, rates))
        pages.swap()
    return float(np.mean(found))
