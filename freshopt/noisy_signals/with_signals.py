"""The objective of a plan with signals, and what its schedule is.

`with_signals` alone chooses the objective; all else asks what it returns. Tables find the rates of classes of
recall and precision: learnt qualities differ from source to source, and are right to no more than their
posterior's spread: after a few signals 90 % of it is half of all shares. Halving the set with the largest sum
of squares again and again, on the scale on which a share's spread is everywhere alike (asin √x), gives
classes that are narrow beside that. Each has the mean of its members, so that errors cancel in its sums. What
this costs in rates is of second order in a class's width; what it costs a plan,
`freshopt.questions.signals_bring` bounds.

Cost: a pass over a set for each class.
"""

from __future__ import annotations

from collections.abc import Callable
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
from freshopt.noisy_signals.quality_tables import SHARED
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
from freshopt.numerics.arrays import Array, total
from freshopt.problems.age import Age
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.log_freshness import LogFreshness

# Sources with noisy signals below which each keeps its own quality: their kernels take as long as tables do.
FEW = 2048
# Classes at most, and sources of each on average: 6 classes of shares from 0 to 1 cost up to .3 % (a test).
MOST, MEMBERS = 32, 512
# Nodes of a curve along the logarithm of rates: 1e-3 of a share of time at worst, 1e-5 in the mean (a test).
NODES = 256


def classes_of(recall: Array, precision: Array) -> tuple[Array, Array] | None:
    """Return each source's class, None where its own quality is to stay."""
    noisy = np.flatnonzero((recall > 0.0) & ~((recall == 1.0) & (precision == 1.0)))
    if len(noisy) < FEW:
        return None
    scaled = np.arcsin(np.sqrt(np.stack([recall[noisy], precision[noisy]])))
    cells, spreads = [np.arange(len(noisy))], [_spread(scaled)]
    while len(cells) < min(MOST, len(noisy) // MEMBERS):
        k = int(np.argmax([float(np.max(own)) for own in spreads]))
        cell, own = cells[k], scaled[int(np.argmax(spreads[k])), cells[k]]
        if not np.max(spreads[k]) > 0.0:
            break
        # At the mean, but for the least number that a table pays for.
        order = np.argsort(own, kind="stable")
        below = int(np.count_nonzero(own <= total(own) / len(own)))
        at = min(max(below, SHARED), len(cell) - SHARED)
        halves = cell[order[:at]], cell[order[at:]]
        cells[k : k + 1] = halves
        spreads[k : k + 1] = [_spread(scaled[:, half]) for half in halves]
    found = recall.copy(), precision.copy()
    for cell in cells:
        for own, given in zip(found, (recall, precision), strict=True):
            members = given[noisy[cell]]
            own[noisy[cell]] = np.clip(total(members) / len(cell), np.min(members), np.max(members))
    return found if np.any(found[0] != recall) or np.any(found[1] != precision) else None


def _spread(scaled: Array) -> Array:
    """Return the sums of squares along each axis, 0 of small sets."""
    size = scaled.shape[1]
    return np.var(scaled, axis=1) * size if size >= 2 * SHARED else np.zeros(2)


def by_class(
    curve: Callable[[Array, Array, Array], Array], recall: Array, precision: Array, rate: Array
) -> Array:
    """Return a curve of rates per change.

    Between nodes where many sources share recall and precision.
    """
    code, many = np.unique(np.stack([recall, precision]), axis=1, return_inverse=True, return_counts=True)[1:]
    code = np.where((rate > 0.0) & (many[code] > 2 * NODES), code, -1)
    shared = [np.flatnonzero(code == k) for k in np.unique(code[code >= 0])]
    rest, ends = np.flatnonzero(code < 0), [np.log([np.min(rate[own]), np.max(rate[own])]) for own in shared]
    at = [np.linspace(low, high if high > low else low + 1.0, NODES) for low, high in ends]
    first = np.array([own[0] for own in shared], dtype=np.int64).repeat(NODES)
    asked = np.append(rest, first), np.concatenate([rate[rest], *map(np.exp, at)])
    given = curve(recall[asked[0]], precision[asked[0]], asked[1])
    found = np.empty(len(rate))
    found[rest] = given[: len(rest)]
    for k, own in enumerate(shared):
        values = given[len(rest) + k * NODES :][:NODES]
        found[own] = np.interp(np.log(rate[own]), at[k], values)
    return found


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
