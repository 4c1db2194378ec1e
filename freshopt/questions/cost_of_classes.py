"""What classes of qualities cost a plan, bounded on a sample.

Rates ρ and prices ν of a problem with rounded qualities are feasible and known in the one with exact ones,
where Σ_i φ_i(ρ_i) − min φ_i, φ_i = J_i + ν_i·x, bounds what they lose: the duality gap of the exact problem.
Its terms need exact best responses, up to milliseconds each, so a sample tells their sum: sources drawn as
often as half of what they pay and half of their importance say, at equal steps, and `SURE` standard errors on
top of it.
"""

from __future__ import annotations

import numpy as np

from freshopt.certificates.best_response import source_terms
from freshopt.certificates.solution import Solution
from freshopt.modelling.objective import Objective
from freshopt.noisy_signals.noisy_signal_freshness import NoisySignalFreshness
from freshopt.noisy_signals.with_noisy_signals import WithNoisySignals
from freshopt.numerics.arrays import Array, total

# Sources drawn: .3 s of harmonic staleness; and standard errors, of which one-sided 3 are 99.9 %.
DRAWN, SURE = 512, 3.0


def classes_in(objective: Objective) -> int | None:
    """Return how many classes rates are found by, None without."""
    if not isinstance(objective, NoisySignalFreshness | WithNoisySignals) or objective.classes is None:
        return None
    quality = np.stack(objective.classes)
    return int(np.unique(quality[:, quality[0] > 0.0], axis=1).shape[1])


def cost_of_classes(solution: Solution) -> float | None:
    """Return a bound on the share of costs that exact qualities save.

    None without classes, where other constraints than bounds and host limits hold, or fetches cost what they
    bring.
    """
    problem, objective, rates = solution.problem, solution.problem.objective, solution.rates
    if not isinstance(objective, NoisySignalFreshness | WithNoisySignals) or objective.classes is None:
        return None
    if problem.program is not None or problem.per_bandwidth is not None:
        return None
    sources = problem.sources
    exact = unrounded(objective).kernel(sources)
    weight = np.asarray(exact.importance, dtype=np.float64)
    paid = source_prices(solution) * sources.refresh_cost
    used, tiny = paid * rates, np.finfo(np.float64).tiny
    chance: Array = used / max(total(used), tiny) + weight / max(total(weight), tiny)
    chance /= total(chance)
    ends = np.cumsum(chance)
    drawn = np.minimum(np.searchsorted(ends, (np.arange(DRAWN) + 0.5) / DRAWN * ends[-1]), len(rates) - 1)
    few, own = exact.take(drawn), rates[drawn]
    with np.errstate(all="ignore"):
        given = problem.lower[drawn], problem.upper[drawn], sources.scale[drawn]
        gaps = source_terms(few, own, few.marginal(own), paid[drawn], paid[drawn], *given)
        lost, cost = gaps / chance[drawn], few.cost(own) / chance[drawn]
    beside = SURE * float(np.std(lost, ddof=1)) / np.sqrt(DRAWN)
    whole = float(np.mean(cost))
    return float((np.mean(lost) + beside) / whole) if whole > 0.0 else 0.0


def unrounded(objective: NoisySignalFreshness | WithNoisySignals) -> NoisySignalFreshness | WithNoisySignals:
    """Return the objective by each source's own quality."""
    if isinstance(objective, NoisySignalFreshness):
        return NoisySignalFreshness(objective.recall, objective.precision)
    return WithNoisySignals(objective.objective, objective.recall, objective.precision)


def source_prices(solution: Solution) -> Array:
    """Return each source's dual price, the bandwidth's and its host's."""
    hosts = solution.problem.hosts
    if not len(hosts):
        return np.full(len(solution.rates), solution.price)
    on_top = np.array([solution.host_prices[host] for host in hosts.names])
    return solution.price + hosts.broadcast_to_sources(on_top)
