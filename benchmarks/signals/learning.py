"""What a plan learns from a log and signals, and what its rule costs under the true rates and qualities.

`learnt` takes the steps of `fo.plan` up to its rates and leaves out what a page tells of them (a frontier, a
curve), which takes ten times as long; `signal_regret` and `lambdacrawl_plans` hold the rates to those of
`fo.plan` itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

import freshopt as fo
from freshopt.noisy_signals import SignalWaits
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.noisy_signals.signal_table import SignalTable
from freshopt.noisy_signals.with_signals import follows_signals, learnt_signals, rule_of, with_signals
from freshopt.planning.plan_steps import TOLERANCE
from freshopt.planning.request import default_estimate
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness, LogFreshness
from freshopt.questions.solve_with_kinks import solve_with_kinks
from tests.ground_truth.signal_cycles import Cycles, cycles

Floats = npt.NDArray[np.float64]
# Signals of a rule before a crawl at most.
MOST = 10_000


class Measured(NamedTuple):
    """An objective, and what a copy costs on average, given its cycles from crawl to crawl."""

    objective: fo.Objective
    cost: Callable[[Cycles], Floats]


# Another objective is another row here; its name is that of `fo.plan`.
OBJECTIVES = {
    "harmonic": Measured(HarmonicStaleness(), lambda c: c.harmonic / c.length),
    "delay": Measured(AccumulatedDelay(), lambda c: c.missed / c.length),
    "binary": Measured(BinaryFreshness(), lambda c: 1.0 - c.fresh / c.length),
    "log-freshness": Measured(LogFreshness(), lambda c: -np.log(c.fresh / c.length)),
}
# Rules by age depend on when signals came, and are drawn (`tests.ground_truth.signal_cycles.age_cycles`).
SOLVED = {name: one.objective for name, one in OBJECTIVES.items()} | {"age": Age()}


class Truth(NamedTuple):
    """How sources really change, and what their signals are worth."""

    sources: fo.Sources
    recall: Floats
    precision: Floats

    def best(self, name: str, bandwidth: float, *, heard: bool = True) -> float:
        """Return the least cost that knows all this; with `heard` false no rule hears a signal."""
        objective = SOLVED[name]
        if heard:
            objective = with_signals(objective, self.recall, self.precision)
        solution = solve_with_kinks(fo.Problem(objective, self.sources, bandwidth), TOLERANCE)
        kernel = objective.kernel(self.sources)
        assert kernel is not None
        return float(np.sum(kernel.cost(solution.rates)))

    def of(self, name: str, solution: fo.Solution) -> tuple[float, float]:
        """Return what the rule of a solution costs here, and its crawls a day."""
        d, w = (np.asarray(each) for each in (self.sources.change_rate, self.sources.importance))
        crawled = np.flatnonzero(solution.rates > 0.0)
        recall = self.recall if follows_signals(solution.problem.objective) else np.zeros(len(d))
        found = cycles(waits_of(solution)[crawled], d[crawled], recall[crawled], self.precision[crawled])
        each = np.ones(len(d)) if name == "binary" else np.full(len(d), np.inf)
        each[crawled] = OBJECTIVES[name].cost(found)
        return float(w @ each), float(np.sum(1.0 / found.length))


def waits_of(solution: fo.Solution) -> Floats:
    """Return how long copies wait with 0, 1, ... signals, shape (n, K)."""
    problem = solution.problem
    rule = rule_of(problem.objective, solution.rates, problem.sources)
    if rule is None:
        with np.errstate(divide="ignore"):
            return 1.0 / solution.rates[:, None]
    if isinstance(rule, SignalWaits):
        columns, shares = list(rule.waits.T), rule.share
    else:
        columns, shares = [rule.waiting(0)], rule.crawl_probability
        # A source that is never crawled waits for ever, however many signals come.
        while np.any(np.isfinite(columns[-1]) & (columns[-1] > 0.0)) and len(columns) < MOST:
            columns.append(rule.waiting(len(columns)))
    assert np.all((shares == 1.0) | (solution.rates == 0.0)), "what is learnt is never perfect"
    return np.stack(columns, axis=1)


class Learnt(NamedTuple):
    """What a log and its signals tell; silent rates are those that a plan without signals learns."""

    heard: PooledSignals | None
    silent: Floats

    def solution(self, name: str, importance: Floats, bandwidth: float) -> fo.Solution:
        """Return the plan's solution for an objective."""
        objective, rates = SOLVED[name], self.silent
        if self.heard is not None:
            objective = with_signals(objective, self.heard.recall_, self.heard.precision_)
            if follows_signals(objective):
                rates = np.asarray(self.heard.change_rate_)
        problem = fo.Problem(objective, fo.Sources(rates, importance), bandwidth)
        return solve_with_kinks(problem, TOLERANCE)


def learnt(log: fo.CrawlLog, signals: pl.DataFrame | None = None) -> Learnt:
    """Return what a plan learns."""
    heard = None
    if signals is not None and len(signals):
        heard = learnt_signals(log, SignalTable.of(log, signals), None)
    return Learnt(heard, np.asarray(default_estimate(log).change_rate_))
