"""The objective of a plan with signals, and what its schedule is.

`with_signals` alone chooses the objective; all else asks what it returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError
from freshopt.estimators.features.feature_priors import FeaturePriors
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.source_index import known_hosts
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.noisy_signals.age_thresholds import AgeThresholds
from freshopt.noisy_signals.noisy_signal_freshness import NoisySignalFreshness, classed
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.noisy_signals.quality_classes import by_class, classes_of
from freshopt.noisy_signals.renewal_cycle import stale_and_index
from freshopt.noisy_signals.signal_table import SignalTable
from freshopt.noisy_signals.signal_thresholds import SignalThresholds
from freshopt.noisy_signals.signal_waits import SignalWaits, stale_between
from freshopt.noisy_signals.with_noisy_signals import (
    COSTS,
    SHARES,
    WithNoisySignals,
    least_precision,
)
from freshopt.numerics.arrays import Array
from freshopt.problems.age import Age
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.log_freshness import LogFreshness


def with_signals(objective: Objective, recall: Array, precision: Array) -> Objective:
    """Return the objective of crawls that follow signals of this quality.

    Itself where no signal tells anything. Rates of many sources are found by classes of quality.
    """
    require_signals(objective)
    if type(objective) in COSTS:
        # Signals so false are negligible, and left out.
        recall = np.where(precision < least_precision(objective), 0.0, recall)
    if not np.any(recall > 0.0):
        return objective
    classes = None if isinstance(objective, Age | LogFreshness) else classes_of(recall, precision)
    if isinstance(objective, BinaryFreshness):
        return classed(NoisySignalFreshness(recall, precision), classes)
    return classed(WithNoisySignals(objective, recall, precision), classes)


def require_signals(objective: Objective) -> None:
    """Raise unless an objective is planned for with signals."""
    if type(objective) not in (*COSTS, *SHARES) or objective.refresh is not Refresh.PERIODIC:
        raise ObjectiveError(
            f"{objective!r} is not planned for with signals, as a cost of rates does not tell what each "
            "number of them costs. Leave it out, or pass "
            'objective="harmonic", "delay", "age", "binary" or "log-freshness", at equal intervals.'
        )


def follows_signals(objective: Objective) -> bool:
    """Return whether an objective is of crawls that signals bring forward."""
    return isinstance(objective, NoisySignalFreshness | WithNoisySignals)


def called(objective: Objective) -> Objective:
    """Return the objective that names and words are of."""
    return objective.objective if isinstance(objective, WithNoisySignals) else objective


def freshness_with_signals(objective: Objective) -> Objective:
    """Return the freshness of crawls that follow the signals of an objective."""
    if isinstance(objective, WithNoisySignals):
        return classed(NoisySignalFreshness(objective.recall, objective.precision), objective.classes)
    return objective


def without_signals(problem: Problem) -> Problem:
    """Return the problem of crawls that follow no signals."""
    own = problem.objective
    if not follows_signals(own):
        return problem
    flat = BinaryFreshness(Refresh.PERIODIC) if isinstance(own, NoisySignalFreshness) else called(own)
    return problem.restated(objective=flat)


def rule_of(
    objective: Objective, rates: Array, sources: Sources
) -> SignalThresholds | SignalWaits | AgeThresholds | None:
    """Return when a plan's sources are crawled, None without signals."""
    if isinstance(objective, NoisySignalFreshness):
        return objective.thresholds(rates, sources)
    return objective.rule(rates, sources) if isinstance(objective, WithNoisySignals) else None


def quality_of(objective: Objective) -> tuple[Array, Array]:
    """Return recall and precision of an objective that follows signals."""
    assert isinstance(objective, NoisySignalFreshness | WithNoisySignals)
    return np.asarray(objective.recall), np.asarray(objective.precision)


def stale_with_signals(objective: Objective, rates: Array, sources: Sources) -> Array:
    """Return each copy's stale share of time under the objective's rule.

    Where rates were found by classes it is that of these, between nodes.
    """
    d, (recall, precision) = np.asarray(sources.change_rate), quality_of(objective)
    if isinstance(objective, WithNoisySignals) and objective.classes is not None:
        own = objective.objective

        def stale(recall: Array, precision: Array, rate: Array) -> Array:
            known = WithNoisySignals(own, recall, precision)
            return stale_with_signals(known, rate, Sources(np.ones(len(rate))))

        return np.clip(by_class(stale, *objective.classes, rates / d), 0.0, 1.0)
    rule = rule_of(objective, rates, sources)
    if isinstance(rule, AgeThresholds):  # the age grows while the copy is stale
        return np.clip(np.where(rates > 0.0, rates * rule.threshold, 1.0), 0.0, 1.0)
    if isinstance(rule, SignalWaits):
        return stale_between(rule, rates, d, recall, precision)
    return np.asarray(stale_and_index(rates / d, recall, precision)[0])


def silent_rates(objective: Objective, rates: Array, sources: Sources) -> Array:
    """Return how often sources are crawled while no signal comes.

    The schedule is of these: what signals bring forward has no times yet.
    """
    rule = rule_of(objective, rates, sources)
    if rule is None:
        return rates
    whole = rule.waiting(0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(rates, np.where(whole > 0.0, 1.0 / whole, rates)))


def learnt_signals(
    log: CrawlLog,
    signals: SignalTable,
    hosts: npt.NDArray[Any] | None,
    prior: FeaturePriors | None = None,
) -> PooledSignals:
    """Return what a log and its signals tell, pooled by host.

    Hosts are those of the sources' URLs unless given, the prior is the log's own.
    """
    if hosts is None:
        hosts = known_hosts(log.names)
    return PooledSignals(signals, hosts, prior).fit(log)
