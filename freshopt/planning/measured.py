"""One measured table: what each source cost under each policy.

A policy says what it does in a window (`Conduct`): static rates, which are measured exactly
(`freshopt.simulation.static_costs`: no phase is drawn, and copies have the ages that the rates give them), or
crawls, which are replayed. `measure` is the only road from there to the rows of the table; costs, standard
errors, freshness and what was predicted are sums over rows (`freshopt.planning.policy_cost`).

Where crawls hid changes, a policy is measured in each sample of them (`HeldOutWindow.drawn`), and its cost is
the mean; beside it stands what the changes as they were found would have cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from freshopt.formatting import finite
from freshopt.heavy import polars
from freshopt.modelling.objective import Objective
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.simulation.replay_result import NAMED
from freshopt.simulation.staleness_integrals import Refreshes, Window, integrals
from freshopt.simulation.static_costs import ChangeWindow, ExpectedCosts, static_costs

# Parts of each window; their costs together cost about as much time as those of the windows.
PARTS = 8
# Columns of the table that are numbers.
COLUMNS = ("weight", "span", "cost", "shown", "stale", "used", "predicted")


class RuleFacts(NamedTuple):
    """What else is known of a rule of crawlers.

    After how many fetches of a source its intervals settle, how many came before the window (medians), and
    the bandwidth with which a plan costs as much; NaN where that is not known.
    """

    settled: float
    before: float
    needed: float = float("nan")


class Conduct(NamedTuple):
    """What a policy does in a window, of n sources.

    - `bandwidth`: Per time unit, as it was asked for; of a log's own crawls what they used.
    - `used` (n,): Refreshes of each source while it was there.
    - `rates` (n,): Static rates, under the objective's discipline.
    - `runs` sequence of sequence of (source, time): For each of the window's worlds crawls that succeed,
      source by source; of several runs the mean.
    - `placed` (n,): Of rates and runs: which sources have crawls, the others a random phase.
    - `predicted` (n,): Cost that was expected of each source, by importance; None where nothing predicts it.
    - `begin`: All copies are fresh then; by default when their record begins.
    - `in_parts`: Whether costs are measured in the window's parts, too.
    - `rule`: Of a rule of crawlers.
    """

    bandwidth: float
    used: Array
    rates: Array | None = None
    runs: Sequence[Sequence[Refreshes]] | None = None
    placed: BoolArray | None = None
    predicted: Array | None = None
    begin: float | None = None
    in_parts: bool = True
    rule: RuleFacts | None = None


@frozen_value(repr=False)
class Measured:
    """Rows of the table: one policy in one window.

    - `begin`, `end`: The window, on the log's clock.
    - `total`: The number of the log's sources.
    - `source` (n,): Positions among these.
    - `weight`, `span` (n,): Importance, and how long each source was there.
    - `cost`, `stale` (n,): Integrals over that time, for unit importance.
    - `shown` (n,): Cost of the changes as crawls found them; None where all are known.
    - `used`, `predicted` (n,): As in `Conduct`.
    - `over_time` (parts,): Cost in each part of the window, of the sources that are there; NaN where it is
      not measured.
    - `rule`: As in `Conduct`.
    - `importance` (n,): Where costs are expected ones, by importance: weights are 1 then. None where they are
      measured.
    """

    policy: str
    bandwidth: float
    begin: float
    end: float
    total: int
    source: IntArray
    weight: Array
    span: Array
    cost: Array
    shown: Array | None
    stale: Array
    used: Array
    predicted: Array | None
    over_time: Array
    rule: RuleFacts | None = None
    importance: Array | None = None

    @property
    def whole(self) -> float:
        """What a maximised objective is at no cost."""
        return float(np.sum(self.weight[self.span > 0.0])) if self.importance is None else 0.0


def measure(
    policy: str, window: HeldOutWindow, objective: Objective, weight: Array, conduct: Conduct
) -> Measured:
    """Return what each source of a window costs under a policy."""
    # The changes as they were found come first; of all that are known there is nothing else.
    worlds = list(enumerate(window.worlds))
    drawn = worlds[1:] or worlds
    both = (objective, BinaryFreshness(objective.refresh))
    importance, weight = (None, weight) if window.expected is None else (weight, np.ones(len(weight)))
    cost, stale = np.mean([_costs(window, conduct, both, k, one.changes) for k, one in drawn], axis=0)
    shown = _costs(window, conduct, both[:1], 0, window.changes)[0] if window.drawn else None
    shown = shown if importance is None else None
    over_time = np.full(len(window.parts), np.nan)
    for number, part in enumerate(window.parts if conduct.in_parts else ()):
        each = [_costs(window, conduct, both[:1], k, one.parts[number])[0] for k, one in drawn]
        over_time[number] = per_time(weight * np.mean(each, axis=0), part.span, weight)
    return Measured(
        policy,
        conduct.bandwidth,
        window.begin,
        window.end,
        window.total,
        window.index,
        np.array(weight),
        window.span,
        cost,
        shown,
        stale,
        conduct.used,
        conduct.predicted,
        over_time,
        conduct.rule,
        importance,
    )


def per_time(amount: Array, span: Array, weight: Array | float = 1.0) -> float:
    """Return what the sources that are there have per time unit.

    Of amounts over their windows it is the mean while a source is there, Σ amount/Σ w·span, times the sum of
    the weights: sources that are there in part count as those that stay.
    """
    there = span > 0.0
    share = np.broadcast_to(np.asarray(weight, dtype=np.float64), there.shape)[there]
    with np.errstate(all="ignore"):
        mean = np.divide(np.sum(amount[there]), share @ span[there])
    return float(np.sum(share) * mean)


def _costs(
    window: HeldOutWindow, conduct: Conduct, kinds: Sequence[Objective], world: int, changes: ChangeWindow
) -> list[Array]:
    """Return the costs of each source in a world, or a part."""
    if window.expected is not None and kinds[0] is window.expected.objective:
        own = _expected(window, conduct, world, changes, window.expected)
        return [own, *(_costs(window, conduct, kinds[1:], world, changes) if kinds[1:] else ())]
    rates, runs = conduct.rates, conduct.runs
    if runs is None:
        assert rates is not None, "rates or crawls"
        return [static_costs(changes, rates, kind) for kind in kinds]
    begin = float(np.min(window.world.start)) if conduct.begin is None else conduct.begin
    within = Window(begin, changes.first, changes.until)
    other = None if type(kinds[0]) in NAMED else kinds[0]
    found = [integrals(window.worlds[world].world, each, within, other) for each in runs[world]]
    names = [NAMED.get(type(kind), repr(kind)) for kind in kinds]
    costs = [np.asarray(np.mean([one[name] for one in found], axis=0)) for name in names]
    if rates is None or conduct.placed is None:
        return costs
    return [
        np.where(conduct.placed, each, static_costs(changes, rates, kind))
        for each, kind in zip(costs, kinds, strict=True)
    ]


def _expected(
    window: HeldOutWindow, conduct: Conduct, world: int, changes: ChangeWindow, costs: ExpectedCosts
) -> Array:
    """Return what is expected of each source, by importance."""
    if conduct.rates is not None:
        return costs.of_rates(conduct.rates) * changes.span
    assert conduct.runs is not None, "rates or crawls"
    given = (
        costs.of_crawls(window.world.start, each, changes.first, changes.until)
        for each in conduct.runs[world]
    )
    return np.asarray(np.mean([*given], axis=0))


@frozen_value(repr=False)
class MeasuredTable:
    """Measured costs of policies in all windows of a back-test.

    - `names` (N,): The log's sources.
    - `windows` tuple of tuple of Measured: Of each window the policies.
    - `maximised`: Whether values are what a cost leaves of everything.
    """

    names: Any
    windows: tuple[tuple[Measured, ...], ...]
    maximised: bool

    @property
    def edges(self) -> Array:
        """Ends of the windows' parts on the log's clock."""
        first = [rows[0] for rows in self.windows]
        ends = [np.linspace(one.begin, one.end, len(one.over_time) + 1) for one in first]
        return np.concatenate([each[:-1] for each in ends] + [ends[-1][-1:]])

    @property
    def over_time(self) -> dict[str, Array]:
        """The objective's value in each part, by policy.

        Of the sources that are there; NaN where none is or where it is not measured. Of several bandwidths
        the first counts.
        """
        found = {}
        for policy, rows in self._policies().items():
            parts = []
            for one in rows:
                parts.append(one.whole - one.over_time if self.maximised else one.over_time)
            found[policy] = np.concatenate(parts)
        return found

    @property
    def per_source(self) -> dict[str, Array]:
        """Mean cost of each source while it was there, by policy.

        By importance, shape (N,); NaN where it was not.
        """
        found = {}
        for policy, rows in self._policies().items():
            cost, span = np.zeros(len(self.names)), np.zeros(len(self.names))
            for one in rows:
                cost[one.source] += one.weight * one.cost
                span[one.source] += one.span
            found[policy] = np.divide(cost, span, out=np.full(len(cost), np.nan), where=span > 0.0)
        return found

    def facts(self) -> dict[str, Any]:
        """Return the values over time, as `summary.json` has them."""
        told = {policy: [*map(finite, values.tolist())] for policy, values in self.over_time.items()}
        return {"edges": self.edges.tolist(), "policies": told}

    def to_frame(self) -> polars.DataFrame:
        """Return the table of the sources' mean costs.

        Columns are source and each policy; a cost is null where a source was not replayed.
        """
        columns = {policy: polars.Series(cost).fill_nan(None) for policy, cost in self.per_source.items()}
        return polars.DataFrame({"source": self.names.tolist(), **columns})

    def rows(self) -> polars.DataFrame:
        """Return the long table of sources that are there.

        Columns policy, bandwidth, window, source, weight, span, cost, shown, stale, used and predicted, as in
        `Measured`; null where there is none.
        """
        found = []
        for number, rows in enumerate(self.windows):
            for one in rows:
                blank = np.full(len(one.span), np.nan)
                columns = {key: getattr(one, key) for key in COLUMNS}
                columns = {key: blank if column is None else column for key, column in columns.items()}
                frame = polars.DataFrame(columns).with_columns(
                    polars.Series("source", self.names[one.source].tolist()),
                    polars.lit(one.policy).alias("policy"),
                    polars.lit(one.bandwidth).alias("bandwidth"),
                    polars.lit(number).alias("window"),
                    polars.col("shown", "predicted").fill_nan(None),
                )
                found.append(frame.filter(polars.col("span") > 0.0))
        head = ["policy", "bandwidth", "window", "source"]
        return polars.concat(found).select(*head, polars.exclude(head))

    def _policies(self) -> dict[str, list[Measured]]:
        """Return the rows of policies in all windows, at their first bandwidth."""
        first = [{one.policy: one for one in reversed(rows)} for rows in self.windows]
        names = dict.fromkeys(one.policy for one in self.windows[0])
        return {name: [own[name] for own in first] for name in names if all(name in own for own in first)}
