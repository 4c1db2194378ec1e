"""The objective of a plan with signals, and what its schedule is.

`with_signals` alone chooses the objective; all else asks what it returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.source_index import known_hosts
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.noisy_signals.noisy_signal_freshness import NoisySignalFreshness
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.noisy_signals.signal_table import SignalTable
from freshopt.noisy_signals.signal_thresholds import SignalThresholds
from freshopt.numerics.arrays import Array
from freshopt.problems.binary_freshness import BinaryFreshness


def with_signals(objective: Objective, recall: Array, precision: Array) -> Objective:
    """Return the objective under thresholds that follow signals of this quality.

    Itself where no signal tells anything.
    """
    require_signals(objective)
    return NoisySignalFreshness(recall, precision) if np.any(recall > 0.0) else objective


def require_signals(objective: Objective) -> None:
    """Raise unless an objective is planned for with signals."""
    if not (isinstance(objective, BinaryFreshness) and objective.refresh is Refresh.PERIODIC):
        raise ObjectiveError(
            f"{objective!r} is not planned for with signals. Leave it out, or pass "
            'objective="binary", the share of time that copies are fresh.'
        )


def follows_signals(objective: Objective) -> bool:
    """Return whether an objective is of crawls that signals bring forward."""
    return isinstance(objective, NoisySignalFreshness)


def without_signals(problem: Problem) -> Problem:
    """Return the problem of crawls that follow no signals."""
    if not follows_signals(problem.objective):
        return problem
    return problem.restated(objective=BinaryFreshness(Refresh.PERIODIC))


def thresholds_of(objective: Objective, rates: Array, sources: Sources) -> SignalThresholds | None:
    """Return the thresholds of a plan's rates, None without signals."""
    return objective.thresholds(rates, sources) if isinstance(objective, NoisySignalFreshness) else None


def silent_rates(objective: Objective, rates: Array, sources: Sources) -> Array:
    """Return how often sources are crawled while no signal comes.

    The schedule is of these: what signals bring forward has no times yet.
    """
    rule = thresholds_of(objective, rates, sources)
    if rule is None:
        return rates
    whole = np.where(rule.crawl_probability > 0.0, rule.threshold, np.inf)
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(rates, np.where(whole > 0.0, 1.0 / whole, rates)))


def learnt_signals(log: CrawlLog, signals: SignalTable, hosts: npt.NDArray[Any] | None) -> PooledSignals:
    """Return what a log and its signals tell, pooled by host.

    Hosts are those of the sources' URLs unless given.
    """
    if hosts is None:
        hosts = known_hosts(log.names)
    return PooledSignals(signals, hosts).fit(log)
