"""Change processes: Poisson processes or recorded times.

Poisson processes have constant or piecewise constant rates.

A Poisson process is followed in its own clock, the hazard ∫Δ dt, in which changes are a unit Poisson process
whatever the rate does; event j lies at E₁ + ... + E_j there and is carried back to the world's clock. So
worlds that differ in their rates alone have the same hazards, and a rate that jumps needs no resampling.

Nothing is stored of a Poisson source but its next change: 40 bytes of state per source, however long it runs.
Changes are drawn in compiled loops (`freshopt.simulation.loops`) or in NumPy, where a batch goes by rounds:
first every source's first poll, then its second, and so on. ``FRESHOPT_COMPILED=0`` selects NumPy.

Cost: 20 ns a poll and 20 ns a change, compiled, ten times that where a million sources do not fit a cache;
in NumPy a round costs 0.1 ms, so that few sources with many polls are slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.compiled import backend
from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.random_streams import exponentials
from freshopt.numerics.segments import first_beyond
from freshopt.simulation.loops import Events, PoissonState, PoissonTables, loops

State: TypeAlias = dict[str, npt.NDArray[Any]]
# Changes drawn at once: 8 GB of times, or 10 s between two polls of a source.
MOST_CHANGES = 1e9


class Changes(Protocol):
    """When the sources of a world change."""

    def __len__(self) -> int:
        """Return the number of sources."""

    def begin(self, index: IntArray) -> State:
        """Return the initial state of some sources, copies fresh."""

    def poll(self, state: State, source: IntArray, time: Array, keep: BoolArray) -> IntArray:
        """Advance the state through polls in time order.

        Return how many changes each copy had missed; it is made fresh where `keep` is false. `keep` has one
        entry per poll, or one for all.
        """

    def collect(self, state: State, index: IntArray, end: float) -> tuple[IntArray, Array]:
        """Advance the state of the sources at `index` to `end`.

        Return where each source's changes begin (shape (m+1,)) and the times of the changes passed.
        """


@frozen_value()
class PoissonChanges:
    """Poisson changes at rates that are constant between edges.

    - `edges` (E,): Where each rate begins; the first is 0.
    - `rates` (n, E)
    - `before` (n, E): Hazard at the edges.
    """

    seed: int
    edges: Array
    rates: Array
    before: Array

    @classmethod
    def of(cls, seed: int, edges: Array, rates: Array) -> PoissonChanges:
        """Add up the hazards."""
        hazards = rates[:, :-1] * np.diff(edges)
        before = np.zeros(rates.shape)
        np.cumsum(hazards, axis=1, out=before[:, 1:])
        return cls(seed, edges, rates, before)

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.rates)

    def begin(self, index: IntArray) -> State:
        """Return the state at time 0, first changes sampled."""
        m = len(index)
        state: State = {
            "missed": np.zeros(m, dtype=np.int64),
            "seen": np.zeros(m, dtype=np.int64),
            "hazard": np.zeros(m),
            "due": np.zeros(m),
            "epoch": np.zeros(m, dtype=np.int64),
        }
        self._draw(state, np.arange(m), index)
        return state

    def poll(self, state: State, source: IntArray, time: Array, keep: BoolArray) -> IntArray:
        """See `Changes.poll`."""
        if len(time):
            self.require_few(state["due"][source], source, time[-1], np.max)
        out = np.empty(len(source), dtype=np.int64)
        if backend.compiled():
            loops()["poll_poisson"](source, time, keep, self.tables(), state["missed"], _moving(state), out)
            return out
        for part in rounds(source):
            at, until = source[part], time[part]
            while True:
                late = state["due"][at] <= until
                if not late.any():
                    break
                at_late = at[late]
                state["missed"][at_late] += 1
                self._draw(state, at_late, at_late)
                # Sources that were in time stay so: only the late ones are checked again.
                at, until = at_late, until[late]
            at = source[part]
            out[part] = state["missed"][at]
            state["missed"][at[~np.broadcast_to(keep, len(source))[part]]] = 0
        return out

    def collect(self, state: State, index: IntArray, end: float) -> tuple[IntArray, Array]:
        """See `Changes.collect`."""
        self.require_few(state["due"], index, end, np.sum)
        moving = _moving(state)
        offsets = np.zeros(len(index) + 1, dtype=np.int64)
        if backend.compiled():
            loop = loops()["collect_poisson"]
            trial = _moving({name: column.copy() for name, column in state.items()})
            loop(index, end, self.tables(), trial, offsets, np.empty(0))
            times = np.empty(offsets[-1])
            if len(times):
                loop(index, end, self.tables(), moving, offsets, times)
            return offsets, times
        sources: list[IntArray] = []
        found: list[Array] = []
        at = np.arange(len(index))
        while True:
            at = at[state["due"][at] <= end]
            if not len(at):
                break
            sources.append(at)
            found.append(state["due"][at])
            self._draw(state, at, index[at])
        if not found:
            return offsets, np.empty(0)
        source, times = np.concatenate(sources), np.concatenate(found)
        np.cumsum(np.bincount(source, minlength=len(index)), out=offsets[1:])
        return offsets, times[np.argsort(source, kind="stable")]

    def require_few(
        self, due: Array, source: IntArray, end: float, together: Callable[[Array], np.float64]
    ) -> None:
        """Raise if sources have too many changes to draw."""
        with np.errstate(over="ignore"):
            fastest = self.rates[source, 0]
            for epoch in range(1, len(self.edges)):
                fastest = np.maximum(fastest, self.rates[source, epoch])
            ahead = np.maximum(end - np.minimum(due, end), 0.0) * fastest
            many = float(together(ahead)) if len(ahead) else 0.0
        if not many <= MOST_CHANGES:
            raise SourceDataError(
                f"up to time {end:g} there are about {many:.3g} changes to draw, and at most "
                f"{MOST_CHANGES:g} are. Choose an earlier end or horizon."
            )

    def tables(self) -> PoissonTables:
        """Return what compiled passes draw changes from."""
        return PoissonTables(np.uint64(self.seed), self.edges, self.rates, self.before)

    def _draw(self, state: State, at: IntArray, index: IntArray) -> None:
        """Sample the next change of the sources `index`.

        Their state is at `at`, with no source twice.
        """
        hazard = state["hazard"][at] + exponentials(self.seed, index, state["seen"][at])
        state["hazard"][at] = hazard
        state["seen"][at] += 1
        epoch = state["epoch"][at]
        while True:
            later = np.minimum(epoch + 1, len(self.edges) - 1)
            onward = (later > epoch) & (hazard > self.before[index, later])
            if not onward.any():
                break
            epoch = np.where(onward, later, epoch)
        state["epoch"][at] = epoch
        with np.errstate(divide="ignore"):  # a source that has stopped changing
            state["due"][at] = (
                self.edges[epoch] + (hazard - self.before[index, epoch]) / self.rates[index, epoch]
            )


@frozen_value()
class RecordedChanges:
    """Changes at recorded times.

    - `offsets` (n+1,): Times ``offsets[k]`` up to, not including, ``offsets[k+1]`` are those of source k.
    - `times`: Increasing within a source.
    """

    offsets: IntArray
    times: Array

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.offsets) - 1

    def begin(self, index: IntArray) -> State:
        """Return the state before the first change."""
        m = len(index)
        return {"missed": np.zeros(m, dtype=np.int64), "seen": np.zeros(m, dtype=np.int64)}

    def poll(self, state: State, source: IntArray, time: Array, keep: BoolArray) -> IntArray:
        """See `Changes.poll`."""
        out, recorded = np.empty(len(source), dtype=np.int64), Events(self.offsets, self.times)
        loops()["poll_recorded"](source, time, keep, recorded, state["missed"], state["seen"], out)
        return out

    def collect(self, state: State, index: IntArray, end: float) -> tuple[IntArray, Array]:
        """See `Changes.collect`."""
        begin, last = self.offsets[index], self.offsets[index + 1]
        passed = first_beyond(self.times, begin, last, np.full(len(index), end)) - begin
        first = begin + state["seen"]
        state["seen"] += np.maximum(passed - state["seen"], 0)
        counts = begin + state["seen"] - first
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return offsets, self.times[np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], counts)]


def _moving(state: State) -> PoissonState:
    """Return the columns of a Poisson state that drawing a change moves."""
    return PoissonState(state["seen"], state["hazard"], state["due"], state["epoch"])


def rounds(source: IntArray) -> Iterator[IntArray]:
    """Yield the positions of polls, one per source.

    First those of each source's first poll, then of its second, and so on.

    Examples
    --------
    >>> [part.tolist() for part in rounds(np.array([4, 2, 4, 4, 2]))]
    [[1, 0], [4, 2], [3]]
    """
    order = np.argsort(source, kind="stable")
    ordered = source[order]
    head = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(np.append(head, len(source)))
    for turn in range(int(sizes.max(initial=0))):
        yield order[head[sizes > turn] + turn]
