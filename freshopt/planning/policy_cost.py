"""Costs of policies: sums over rows of the measured table.

Policies meet the same changes, and their costs are compared source by source: the error of a difference is
that of the sources' differences, far smaller than that of a cost where a few sources decide both. Errors are
those of a mean over sources that are a sample of more such ones. A source is one observation, in however many
windows it was replayed: its residuals are averaged over the windows first.

What crawls hid rests on the model: changes may come in bursts, and how fast a source is that changed at every
crawl no log tells. That part of a cost, or of a difference, counts as known to a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from freshopt.formatting import finite
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.planning.measured import Measured, per_time
from freshopt.report.held_out import MOST_HIDDEN

# Standard error of what crawls hid, as a share of it.
UNSURE = 0.5


@frozen_value(repr=False)
class Measurement:
    """A weighted mean cost with each source's share in its error.

    - `value`: Σw·(∫cost)/(∫ of all importances), as a replay has it.
    - `residual` (N,): Of each source of the log; 0 of those that were not replayed. They add up to 0.
    - `there` (N,): Which sources were replayed.
    - `hidden`: The part of the value that crawls hid: what it is above that of the changes as they were
      found.
    """

    value: float
    residual: Array
    there: BoolArray
    hidden: float = 0.0

    @classmethod
    def of(cls, weight: Array, cost: Array, span: Array, index: IntArray, total: int) -> Measurement:
        """Return the measurement of costs integrated over sources' windows.

        `index` are the sources' positions among `total`.

        Examples
        --------
        >>> one = np.ones(2)
        >>> found = Measurement.of(one, np.array([1.0, 3.0]), one, np.arange(2), 2)
        >>> found.value, found.error
        (4.0, 2.0)
        """
        inside = span > 0.0
        everything = float(weight @ span)
        with np.errstate(invalid="ignore"):
            mean = np.divide(float(weight[inside] @ cost[inside]), everything)
            scale = np.divide(float(np.sum(weight[inside])), everything)
        residual, there = np.zeros(total), np.zeros(total, dtype=np.bool_)
        residual[index[inside]] = scale * (weight * (cost - mean * span))[inside]
        there[index[inside]] = True
        return cls(float(np.sum(weight[inside])) * float(mean), residual, there)

    @classmethod
    def mean(cls, found: Sequence[Measurement]) -> Measurement:
        """Return the mean over windows."""
        return cls(
            float(np.mean([one.value for one in found])),
            np.mean([one.residual for one in found], axis=0),
            np.any([one.there for one in found], axis=0),
            float(np.mean([one.hidden for one in found])),
        )

    def saved_by(self, other: Measurement) -> Measurement:
        """Return the share of this cost that another policy saves.

        The error is that of the paired difference; this cost counts as known. A ratio's own error would be 0
        where a single source has all the cost. Where crawls hid most of this cost, it has no bound.
        """
        with np.errstate(all="ignore"):
            ratio = np.divide(other.value, self.value)
            residual = np.divide(self.residual - other.residual, self.value)
            hidden = np.divide(self.hidden - other.hidden, self.value)
        if self.hidden > MOST_HIDDEN * abs(self.value):
            hidden = np.inf
        # A gain is a negative cost, of which less is more.
        sign = -1.0 if self.value < 0.0 else 1.0
        return Measurement(
            float(sign * (1.0 - ratio)), sign * residual, self.there | other.there, float(hidden)
        )

    def scaled(self, value: float, factor: float) -> Measurement:
        """Return another value, which differs by a factor where this does."""
        return Measurement(value, factor * self.residual, self.there, factor * self.hidden)

    @property
    def sources(self) -> int:
        """The number of sources that were replayed."""
        return int(np.count_nonzero(self.there))

    @property
    def effective(self) -> float:
        """Sources that decide the error, (Σr²)²/Σr⁴ of their residuals r."""
        squares = self.residual**2
        fourth = float(np.sum(squares**2))
        return float(np.sum(squares)) ** 2 / fourth if fourth > 0.0 else 0.0

    @property
    def error(self) -> float:
        """The standard error; NaN for a single source.

        Half of what crawls hid counts as one: two of them reach from none of it to twice as much.
        """
        n = self.sources
        if n < 2:
            return float("nan")
        sampled = float(np.sqrt(n / (n - 1) * np.sum(self.residual**2)))
        return math.hypot(sampled, UNSURE * self.hidden)


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """What a policy cost in a window, or on average over several.

    - `begin`, `end`: On the log's clock.
    - `bandwidth`: Per time unit, as it was asked for; of the log's own crawls what they used.
    - `predicted`: The objective's expected value under the posterior of the change rates before the windows;
      None where nothing predicts it.
    - `realised`, `error`: Its value in the changes that came, with its standard error.
    - `hidden`: Share of the realised cost that crawls hid: 0 where all changes are known.
    - `refreshes`: Per time unit, of the sources that are there: the mean rate while a source is, times their
      number.
    - `fresh`: Share of the time that copies were fresh, weighted by importance.
    - `saving`, `saving_error`: Share of the cost of the plan at this bandwidth that the policy saves, with
      its paired standard error.
    """

    policy: str
    begin: float
    end: float
    bandwidth: float
    predicted: float | None
    realised: float
    error: float
    refreshes: float
    fresh: float
    saving: float | None
    saving_error: float | None
    hidden: float = 0.0

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has them."""
        told = {key: getattr(self, key) for key in PolicyCost.__slots__}
        return {key: finite(value) if isinstance(value, float) else value for key, value in told.items()}


def cost_of(rows: Sequence[Measured]) -> Measurement:
    """Return the mean cost of a policy over windows."""
    found = []
    for one in rows:
        cost = Measurement.of(one.weight, one.cost, one.span, one.source, one.total)
        if one.shown is not None:
            hidden = cost.value - per_time(one.weight * one.shown, one.span, one.weight)
            cost = replace(cost, hidden=hidden)
        found.append(cost)
    return Measurement.mean(found)


def saving(found: Sequence[Measured], plan: Sequence[Measured]) -> Measurement:
    """Return the share of the plan's cost that a policy saves."""
    return cost_of(plan).saved_by(cost_of(found))


def mean_row(found: Sequence[Measured], plan: Sequence[Measured] | None, *, maximised: bool) -> PolicyCost:
    """Return the mean of a policy over windows, in the objective's sense."""
    cost = cost_of(found)
    saved = None if plan is None else saving(found, plan)
    whole = float(np.mean([one.whole for one in found]))
    predicted, realised = _predicted(found), cost.value
    if maximised:
        predicted, realised = None if predicted is None else whole - predicted, whole - realised
    return PolicyCost(
        found[0].policy,
        found[0].begin,
        found[-1].end,
        float(np.mean([one.bandwidth for one in found])),
        predicted,
        realised,
        cost.error,
        float(np.mean([per_time(one.used, one.span) for one in found])),
        float(1.0 - np.mean([_stale(one) for one in found])),
        None if saved is None else finite(saved.value),
        None if saved is None else finite(saved.error),
        float(np.divide(cost.hidden, cost.value)) if cost.value else 0.0,
    )


def _predicted(rows: Sequence[Measured]) -> float | None:
    """Return the mean cost that was expected, if of all windows."""
    known = [per_time(one.predicted, one.span, one.weight) for one in rows if one.predicted is not None]
    return float(np.mean(known)) if len(known) == len(rows) and np.all(np.isfinite(known)) else None


def _stale(rows: Measured) -> float:
    """Return the share of the time that copies were stale, by importance."""
    there, weight = rows.span > 0.0, rows.weight if rows.importance is None else rows.importance
    whole = float(weight[there] @ rows.span[there])
    return float(weight[there] @ rows.stale[there]) / whole if whole else float("nan")
