"""What signals bring: freshness and bandwidth, beside the same plan without them.

What classes of qualities cost a plan is bounded on a sample. Rates ρ and prices ν of a problem with rounded
qualities are feasible and known in the one with exact ones, where Σ_i φ_i(ρ_i) − min φ_i, φ_i = J_i + ν_i·x,
bounds what they lose: the duality gap of the exact problem. Its terms need exact best responses, up to
milliseconds each, so a sample tells their sum: sources drawn as often as half of what they pay and half of
their importance say, at equal steps, and `SURE` standard errors on top of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from freshopt.certificates.best_response import source_terms
from freshopt.certificates.solution import Solution
from freshopt.errors import InfeasibleProblemError
from freshopt.formatting import count, number, percent
from freshopt.heavy import polars
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.objective import Objective
from freshopt.noisy_signals.noisy_signal_freshness import NoisySignalFreshness
from freshopt.noisy_signals.pooled_signals import Kind, PooledSignals
from freshopt.noisy_signals.with_noisy_signals import WithNoisySignals
from freshopt.noisy_signals.with_signals import (
    follows_signals,
    rule_of,
    stale_with_signals,
    without_signals,
)
from freshopt.numerics.arrays import Array, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.questions.bandwidth_for import bandwidth_for, difference
from freshopt.questions.rate_changes import source_prices
from freshopt.questions.solve_with_kinks import solve_with_kinks
from freshopt.questions.todays_crawls import MOST

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
    # Classes are set on a value that was made, and a replaced one has none.
    return replace(objective)


FRESHNESS = "freshness"
# Relative duality gap of the plan without signals.
TOLERANCE = 1e-9


@frozen_value(repr=False)
class SignalsBring:
    """Signals of a plan, and what they bring.

    `fresh` and `fresh_without` are the shares of time that copies are fresh with signals, and without them at
    the same bandwidth, `mean` and `mean_without` the objective's means of a copy, by importance; None where
    no signal tells anything. `needed_without` is the bandwidth for the first mean without signals; None where
    none suffices, other constraints than bounds and host limits hold, or there are very many sources.
    `classes` is how many classes of qualities rates were found by, and `rounding` a bound on the share of all
    costs that their own qualities would save (`freshopt.questions.signals_bring`); None where by none.
    """

    learnt: PooledSignals
    fresh: float | None
    fresh_without: float | None
    needed_without: float | None
    used: float
    mean: float | None = None
    mean_without: float | None = None
    noun: str = FRESHNESS
    classes: int | None = None
    rounding: float | None = None

    def __repr__(self) -> str:
        return f"SignalsBring({self.sentence})"

    @property
    def recall(self) -> float:
        """The share of all changes that is announced."""
        return self._true / total(self.learnt.change_rate_)

    @property
    def precision(self) -> float | None:
        """The share of all signals that is true, None without one."""
        signals = total(self.learnt.signal_rate_)
        return self._true / signals if signals > 0.0 else None

    @property
    def saving(self) -> float | None:
        """Share of the fetches that signals save at equal freshness."""
        return None if self.needed_without is None else 1.0 - self.used / self.needed_without

    @property
    def dropped(self) -> list[Kind]:
        """The kinds that say nothing."""
        return [kind for kind in self.learnt.kinds_ if not kind.tells]

    @property
    def left_out(self) -> str:
        """Which kinds say nothing, in words; empty where all do."""
        names = " and ".join(f"{kind.name!r} ({count(kind.signals, 'signal')})" for kind in self.dropped)
        says, is_left = ("says", "is") if len(self.dropped) == 1 else ("say", "are")
        return f"{names} {says} nothing about changes, and {is_left} left out" if names else ""

    @property
    def sentence(self) -> str:
        """What signals tell and bring, in words, a line or two."""
        lines = []
        if self.fresh is not None and self.precision is not None and self.fresh_without is not None:
            told = f"{percent(self.recall, space=' ')} of the changes are announced, and "
            told += f"{percent(self.precision, space=' ')} of the signals are true"
            lines.append(f"{told}: {self.brought}")
        return "\n".join([*lines, *filter(None, [self.rounded, self.left_out])])

    @property
    def rounded(self) -> str:
        """What classes of qualities cost, in words; empty where there are none."""
        if self.classes is None:
            return ""
        costs = "" if self.rounding is None else f": costs ≤ {percent(self.rounding, space=' ')}"
        return f"qualities rounded to {count(self.classes, 'class', 'd')}{costs}"

    @property
    def brought(self) -> str:
        """What the plan gains by signals, in words."""
        if self.fresh is None or self.fresh_without is None or self.mean is None or self.mean_without is None:
            return ""
        own, other = (percent(share, space=" ") for share in (self.fresh, self.fresh_without))
        text, alike = f"copies are fresh {own} of the time, {other} without signals", "as fresh"
        if self.noun != FRESHNESS:
            own, other = number(self.mean), number(self.mean_without)
            text, alike = f"{self.noun} of a copy {own} on average, {other} without signals", "as low"
        if self.saving is None:
            return text
        return f"{text}, and {alike} with {difference(self.saving, 'fetches')}"

    @property
    def headline(self) -> str:
        """What the plan gains by signals, in a few words."""
        if self.fresh is None or self.fresh_without is None or self.mean is None or self.mean_without is None:
            return ""
        if self.noun == FRESHNESS:
            own, other = (percent(share, space=" ") for share in (self.fresh, self.fresh_without))
            return f"{own} of the time up to date instead of {other}"
        return f"{self.noun} {number(self.mean)} instead of {number(self.mean_without)}"

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has it."""
        return {
            "recall": self.recall,
            "precision": self.precision,
            "sources": int(np.count_nonzero(self.learnt.recall_ > 0.0)),
            "unknown": self.learnt.signals.unknown,
            "fresh": self.fresh,
            "fresh_without": self.fresh_without,
            "mean": self.mean,
            "mean_without": self.mean_without,
            "bandwidth_without": self.needed_without,
            "saving": self.saving,
            "classes": self.classes,
            "rounding": self.rounding,
            "kinds": [
                {
                    "kind": kind.name,
                    "signals": kind.signals,
                    "precision": kind.precision,
                    "gain": kind.gain,
                    "kept": kind.tells,
                }
                for kind in self.learnt.kinds_
            ],
            "left_out": self.left_out,
            "brought": self.brought,
            "headline": self.headline,
            "sentence": self.sentence,
        }

    def to_frame(self, solution: Solution, log: CrawlLog, confidence: float) -> polars.DataFrame | None:
        """Return the rule that a crawler loads, with what was learnt.

        Beside the columns of the rule's own `to_frame` it has recall and precision with their intervals, and
        ``pending``, the signals since the last crawl of the log. None where no signal tells anything.
        """
        rule = rule_of(solution.problem.objective, solution.rates, solution.problem.sources)
        if rule is None:
            return None
        columns: dict[str, Array] = {}
        for key in ("recall", "precision"):
            lower, upper = self.learnt.shares(key, confidence)
            columns |= {key: getattr(self.learnt, f"{key}_"), f"{key}_lower": lower, f"{key}_upper": upper}
        pending = self.learnt.signals_.pending(log).astype(np.int64)
        learnt = polars.DataFrame({"source": log.names.tolist(), **columns, "pending": pending})
        return rule.to_frame().join(learnt, on="source", how="left", maintain_order="left")

    @property
    def _true(self) -> float:
        return total(self.learnt.precision_ * self.learnt.signal_rate_)


def signals_bring(solution: Solution, learnt: PooledSignals, noun: str) -> SignalsBring:
    """Return what signals bring to a plan of what `noun` names."""
    problem, used = solution.problem, solution.bandwidth_used
    rounded = classes_in(problem.objective), cost_of_classes(solution)
    weight = total(problem.sources.column("importance"))
    if not follows_signals(problem.objective) or problem.program is not None or not weight > 0.0:
        return SignalsBring(learnt, None, None, None, used, None, None, noun, *rounded)
    flat = without_signals(problem)
    alone, importance = solve_with_kinks(flat, TOLERANCE), problem.sources.importance
    mean, without = solution.value / weight, alone.value / weight
    stale = stale_with_signals(problem.objective, solution.rates, problem.sources)
    kernel = BinaryFreshness().kernel(problem.sources)
    assert kernel is not None
    fresh = 1.0 - total(importance * stale) / weight
    fresh_without = 1.0 - total(kernel.cost(alone.rates)) / weight
    needed = None
    if len(problem.sources) <= MOST and 0.0 < fresh < 1.0 and np.isfinite(mean):
        try:
            needed = bandwidth_for(flat, value=solution.value).bandwidth
        except InfeasibleProblemError:
            needed = None
    return SignalsBring(learnt, fresh, fresh_without, needed, used, mean, without, noun, *rounded)
