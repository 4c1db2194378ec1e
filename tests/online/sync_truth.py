"""The algorithms of Kolobov, Bubeck and Zimmert (ICML 2020) again, a poll at a time, in plain loops.

For K = 100 sources at bandwidth 40, rates .025..6, ε = .05, where each probe costs 3 and each refresh 5.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.solvers.mirror_descent import MirrorDescent
from tests.simulation.test_world import uniform

Floats: TypeAlias = npt.NDArray[np.float64]

K = 100
Poll: TypeAlias = tuple[float, int, bool]


def rounds_by_hand(seed: int, learning_rate: float, rounds: int) -> tuple[list[Poll], Floats]:
    """[MS] Algorithm 1 a poll at a time, for costs 3 and 5; polls in time order and the last rates."""
    rates, polls, done = np.full(K, 40.0 / 105.0), [], [0] * K
    for turn in range(rounds):
        gradient = np.zeros(K)
        for k in range(K):
            gap, now, samples = 1.0 / rates[k], turn * 40.0, []
            polls.append((now, k, False))
            while now + gap <= (turn + 1) * 40.0 + 1e-6:
                draw = 3 * done[k]
                samples.append(0.0)
                if uniform(seed, k, draw) < 0.05:
                    polls.append((now + gap * uniform(seed, k, draw + 1), k, True))
                    samples[-1] = (3.0 - 5.0) / (0.05 * rates[k])
                now += gap
                polls.append((now, k, False))
                done[k] += 1
            gradient[k] = np.mean(samples) / K
        rates = MirrorDescent.step(rates, gradient, 40.0 / 1.05, 0.025, 6.0 / 1.05, learning_rate)
    return sorted(polls), rates


def cycles_by_hand(seed: int, learning_rate: float, cycle: float, cycles: int) -> tuple[list[Poll], Floats]:
    """[MS] Algorithm 2 a poll at a time, updated sources keeping the sum of their rates."""
    rates: Floats = np.full(K, 40.0 / 105.0)
    polls: list[Poll] = []
    begin, length, number, whole = [0.0] * K, [105.0 / 40.0] * K, [0] * K, [True] * K

    def probe_of(k: int) -> float:
        """When the interval under way is probed; never if an update touched it or no chance came up."""
        if not whole[k] or uniform(seed, k, 3 * number[k]) >= 0.05:
            return math.inf
        return begin[k] + length[k] * uniform(seed, k, 3 * number[k] + 1)

    for turn in range(cycles):
        start, end = turn * cycle, (turn + 1) * cycle
        samples: list[list[float]] = [[] for _ in range(K)]
        for k in range(K):
            while begin[k] + length[k] <= end:
                probe = probe_of(k)
                if start < probe < math.inf:
                    polls.append((probe, k, True))
                if whole[k]:
                    samples[k].append((3.0 - 5.0) * length[k] / 0.05 if probe < math.inf else 0.0)
                begin[k] += length[k]
                polls.append((begin[k], k, False))
                length[k], whole[k], number[k] = 1.0 / rates[k], True, number[k] + 1
            if start < probe_of(k) <= end:
                polls.append((probe_of(k), k, True))
        updated = [k for k in range(K) if samples[k]]
        if not updated:
            continue
        gradient = [float(np.mean(samples[k])) / len(updated) for k in updated]
        own, rates = rates[updated], rates.copy()
        rates[updated] = MirrorDescent.step(own, gradient, own.sum(), 0.025, 6.0 / 1.05, learning_rate)
        for k in updated:
            whole[k] = uniform(seed, k, 3 * number[k] + 2) < 0.05
            if whole[k]:
                begin[k], length[k] = end, 1.0 / rates[k]
                polls.append((end, k, False))
            else:
                length[k] = max(begin[k] + 1.0 / rates[k], end) - begin[k]
            number[k] += 1
    return sorted(polls), rates
