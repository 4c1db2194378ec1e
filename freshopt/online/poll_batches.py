"""Batches of polls of a tree of automata, with feedback.

The tree chooses one source after the other; a crawler is asked in batches. While a batch is under way nothing
is learnt; that costs little as long as it is short beside the automata's resolution, as each poll moves each
automaton by a state at most. Which feedback means what is derived in `freshopt.automata.settings`; here
intervals between polls are followed across batches: what the poll before had found, and for `Feedback.PROBE`
when the next probe is due and what it saw.

Cost: 0.2 ms per batch, and 0.5 µs per poll.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from freshopt.automata import AutomataTree, Feedback, Polling
from freshopt.automata.polls import REACH
from freshopt.automata.settings import weights_of
from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.online.runs import State
from freshopt.simulation import Crawler
from freshopt.simulation.crawler import poll

# Position of the last poll or probe of a source without any.
NEVER = -1


class Intervals(NamedTuple):
    """Of each source, the interval that is under way.

    ``bit``: whether the poll that began it found news, or NEVER. ``plan`` and ``reach``: when its probe is
    due (inf for none) and from which span that was drawn. ``seen``: whether the probe found the copy stale,
    or NEVER.
    """

    bit: IntArray
    plan: Array
    reach: Array
    seen: IntArray

    @classmethod
    def first(cls, n: int) -> Intervals:
        """Return the intervals before the first polls, not probed."""
        return cls(np.full(n, NEVER), np.full(n, np.inf), np.zeros(n), np.full(n, NEVER))

    @classmethod
    def of(cls, state: State) -> Intervals:
        """Return copies of those in a state."""
        return cls(*(state[key].copy() for key in cls._fields))


class Batch(NamedTuple):
    """Feedback of a batch of polls: sources, news, feedback, probes."""

    source: IntArray
    news: BoolArray
    value: Array
    probes: int


@dataclass(frozen=True, slots=True, eq=False)
class TreePolls:
    """Feedback rule of the polls of a tree.

    Attributes
    ----------
    importance, weight : ndarray, shape (n,)
    gain, probing : float
        As in `AutomataTree.simulate`.
    slot : float
        Mean time between two polls.
    """

    crawler: Crawler
    tree: AutomataTree
    importance: Array
    feedback: Feedback
    gain: float
    probing: float
    slot: float
    weight: Array = field(init=False)

    def __post_init__(self) -> None:
        """Make weights of the importances."""
        object.__setattr__(self, "weight", weights_of(self.importance, self.feedback, self.tree.update))

    def times(self, begin: float, end: float, polls: int, rng: np.random.Generator) -> Array:
        """Return a round's times: slots, or those of a Poisson process."""
        if self.tree.polling is Polling.RANDOM:
            return np.sort(rng.uniform(begin, end, polls))
        return np.linspace(begin, end, polls + 1)[1:]

    def play(self, intervals: Intervals, time: Array, rng: np.random.Generator) -> Batch:
        """Poll at the given times, without learning, and return the feedback."""
        source = self.tree.choose(len(time))
        order = np.argsort(source, kind="stable")  # by source, then time
        at = source[order]
        first = np.append(True, at[1:] != at[:-1])
        last = np.append(first[1:], True)
        if self.feedback is Feedback.PROBE:
            return self._play_probed(intervals, source, time, order, first, last, rng)
        news = np.asarray(poll(self.crawler, source, time, np.zeros(1, dtype=np.bool_)), dtype=np.bool_)
        found = news[order]
        before = np.where(first, intervals.bit[at], np.roll(found, 1).astype(np.int64))
        intervals.bit[at[last]] = found[last]
        value = np.empty(len(time))
        value[order] = self._value(at, found, before, rng)
        return Batch(source, news, value, 0)

    def _value(self, at: IntArray, found: BoolArray, before: IntArray, rng: np.random.Generator) -> Array:
        """Return the feedback of polls of sources `at`, in `order`."""
        if self.feedback is Feedback.NEWS_THEN_NONE:
            share = self.tree.shares()[at]
            return np.where((before == 1) & ~found, self.gain / self.tree.n * self.weight[at] / share, 0.0)
        match self.feedback:
            case Feedback.NEWS:
                hit = found
            case Feedback.NEWS_TWICE:
                hit = found & (before == 1)
            case other:
                raise SourceDataError(
                    f"feedback is {other!r}, which batches of polls do not give. Pass NEWS."
                )
        if self.tree.update.on_penalty:
            return (hit & (rng.random(len(at)) < self.weight[at])).astype(np.float64)
        return np.where(hit, self.gain * self.weight[at], 0.0)

    def _play_probed(
        self,
        intervals: Intervals,
        source: IntArray,
        time: Array,
        order: IntArray,
        first: BoolArray,
        last: BoolArray,
        rng: np.random.Generator,
    ) -> Batch:
        at, when, m = source[order], time[order], len(time)
        reach = REACH * self.slot / self.tree.shares()[at]
        plan = np.where(rng.random(m) < self.probing, when + reach * rng.random(m), np.inf)
        # Of the interval that each poll ends: it began with the poll before, in this batch or an earlier one.
        ends_plan = np.where(first, intervals.plan[at], np.roll(plan, 1))
        ends_reach = np.where(first, intervals.reach[at], np.roll(reach, 1))
        ends_seen = np.where(first, intervals.seen[at], NEVER)
        inside = np.flatnonzero((ends_plan < when) & (ends_seen == NEVER))
        intervals.plan[at[last]], intervals.reach[at[last]] = plan[last], reach[last]
        intervals.seen[at[last]] = NEVER
        after = np.flatnonzero((intervals.plan <= time[-1]) & (intervals.seen == NEVER))
        who = np.concatenate([at[inside], after, source])
        moment = np.concatenate([ends_plan[inside], intervals.plan[after], time])
        keep = np.arange(len(who)) < len(inside) + len(after)
        turn = np.argsort(moment, kind="stable")
        answer = np.empty(len(who), dtype=np.bool_)
        answer[turn] = poll(self.crawler, who[turn], moment[turn], keep[turn])
        ends_seen[inside] = answer[: len(inside)]
        intervals.seen[after] = answer[len(inside) : len(inside) + len(after)]
        news = answer[len(inside) + len(after) :]
        found, value = news[order], np.empty(m)
        intervals.bit[at[last]] = found[last]
        worth = self.gain / self.tree.n * self.weight[at] * ends_reach / self.slot
        value[order] = np.where((ends_seen == 0) & found, worth, 0.0)
        return Batch(source, news, value, int(np.count_nonzero(keep)))
