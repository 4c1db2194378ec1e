"""`AutomataTree`: balanced binary tree of twofold resource allocation automata.

It allocates polls among any number of sources. Every automaton splits its polls between its left and its
right half of the sources. A poll of a source is feedback to all automata above it, log₂ n of them, so that
feedback of one source informs the shares of all its neighbours: the tree finds a group of busy sources in few
polls, however many sources there are [1]_.

The tree is that of the next power of two. Leaves that are no sources come last; where the right half has no
source there is no automaton, and all goes left. A fresh tree gives each source the same share. Groups of
sources that are limited together have a subtree each.

Cost: 100 bytes per source. A poll goes down and up log₂ n automata: compiled 0.4-0.5 µs at 512 sources and at
32 768 by credits or at random, 1-1.3 µs by deadlines.

References
----------
.. [1] Granmo & Oommen, "Solving stochastic nonlinear resource allocation problems using a hierarchy of
   twofold resource allocation automata", IEEE Transactions on Computers 59(4), 2010,
   doi:10.1109/TC.2009.189.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.automata import polls as polling_loops
from freshopt.automata import random_numbers, transitions
from freshopt.automata.polls import Rule, Slots
from freshopt.automata.settings import Feedback, Polling, Update, check_gain, check_together
from freshopt.automata.share_bounds import MOST_SOURCES, ShareBounds, fresh_tree, per_depth, positions
from freshopt.automata.simulated_sources import SimulatedSources
from freshopt.compiled.backend import plain_or_compiled
from freshopt.errors import SourceDataError, check_seed, expect, one_of
from freshopt.numerics.arrays import Array, IntArray, as_whole

# Resolution of automata that stand still: shares are kept to 1e-12.
FINE = 2**40
# Polls are counted in 64 bits, over all runs of a tree.
MOST_POLLS = 2**62
loops = plain_or_compiled(
    (polling_loops.simulate, polling_loops.observe, transitions.choose_many, transitions.learn_many),
    (random_numbers, transitions, polling_loops),
)


class AutomataTree:
    """Tree of learning automata with its state.

    Parameters
    ----------
    n : int
        Number of sources, ≥ 1.
    resolution : int or sequence of int
        States N of each automaton, or of those at each depth, root first (`doubled` makes one).
    polling : Polling
    update : Update
    seed : int
        Of the automata's steps, of random polling and of simulated changes.
    bounds : ShareBounds, optional
        Smallest and largest shares. They want deadlines or random polling, and rewards alone.

    Attributes
    ----------
    n, depth : int
        Sources, and automata between the root and a source.
    resolution : tuple of int
        Of each depth.

    Raises
    ------
    SourceDataError

    Examples
    --------
    >>> import numpy as np
    >>> from freshopt.automata import AutomataTree, SimulatedSources
    >>> tree = AutomataTree(3, seed=1)
    >>> tree.shares().round(2)
    array([0.33, 0.33, 0.33])
    >>> sources = SimulatedSources(hazard=[0.05, 0.1, 0.35])
    >>> tree.simulate(sources, polls=20_000)
    >>> bool(np.all(np.abs(tree.shares() - [0.1, 0.2, 0.7]) < 0.1))
    True
    """

    def __init__(
        self,
        n: int,
        resolution: int | Sequence[int] = 500,
        *,
        polling: Polling = Polling.CREDIT,
        update: Update = Update.REWARD_PENALTY,
        seed: int = 0,
        bounds: ShareBounds | None = None,
    ) -> None:
        n, seed = as_whole(n, "the number of sources", 1, MOST_SOURCES), check_seed(seed)
        one_of(polling, tuple(Polling), "polling")
        one_of(update, tuple(Update), "update")
        if bounds is not None:
            expect(bounds, ShareBounds, "bounds", "Pass a freshopt.automata.ShareBounds")
        if bounds is not None and (polling is Polling.CREDIT or update is not Update.REWARD_INACTION):
            raise SourceDataError(
                f"bounds are given with {polling!r} and {update!r}. Pass Polling.EARLIEST_DEADLINE or "
                "RANDOM, and Update.REWARD_INACTION."
            )
        if bounds is not None and len(bounds.floor) != n:
            raise SourceDataError(f"{len(bounds.floor)} bounds for {n} sources. Pass one for each.")
        self.n, (self.depth, position) = int(n), positions(int(n), bounds)
        self.resolution = per_depth(resolution, self.depth)
        self.polling, self.update = polling, update
        self._tree = fresh_tree(position, self.resolution, int(seed), bounds)
        self._start_deadlines()

    @classmethod
    def from_shares(
        cls, shares: npt.ArrayLike, *, polling: Polling = Polling.CREDIT, seed: int = 0
    ) -> AutomataTree:
        """Return a tree that polls by given shares.

        It keeps to them for as long as it does not learn.

        Parameters
        ----------
        shares : array_like, shape (n,)
            ≥ 0; divided by their sum. A share of 0 is raised to 1e-12 of its neighbours'.

        Raises
        ------
        SourceDataError
            If a share is negative or not finite, or all are 0.
        """
        wanted = np.asarray(shares, dtype=np.float64)
        if wanted.ndim != 1 or not np.all(wanted >= 0.0) or not 0.0 < float(np.sum(wanted)) < np.inf:
            raise SourceDataError("shares must be numbers >= 0, one per source, not all 0. Mend them.")
        tree = cls(len(wanted), FINE, polling=polling, seed=seed)
        mass = tree._sums(wanted)
        state, span = tree._tree.state, tree._tree.span
        for node in np.flatnonzero(span):
            total = mass[node]
            part = mass[2 * node] / total if total > 0.0 else 0.5
            state[node] = min(max(round(part * int(span[node])), 1), int(span[node]) - 1)
        tree._start_deadlines()
        return tree

    @property
    def polls(self) -> int:
        """Number of polls chosen so far."""
        return int(self._tree.clock[0])

    def shares(self) -> Array:
        """Return each source's share of the polls, shape (n,)."""
        learnt = self._learnt()
        if not len(self._tree.floor):
            return learnt
        every: Array = self._tree.floor + (1.0 - self._tree.floors[-1]) * learnt
        return every

    def _learnt(self) -> Array:
        """Return each source's share of what the automata hand out."""
        state, span = self._tree.state, self._tree.span
        share = np.ones(1)
        for depth in range(self.depth):
            nodes = slice(2**depth, 2 ** (depth + 1))
            whole = np.where(span[nodes] > 0, span[nodes], 1)
            left = np.where(span[nodes] > 0, state[nodes], 1) / whole
            share = np.stack([share * left, share * (1.0 - left)], axis=1).reshape(-1)
        own: Array = share[self._tree.node - 2**self.depth]
        return own

    def source_at(self, leaf: int) -> int:
        """Return the source at a leaf, or -1."""
        return int(self._tree.at[leaf])

    def choose(self, count: int) -> IntArray:
        """Return the next `count` sources to poll, without learning."""
        chosen = np.empty(count, dtype=np.int64)
        loops()["choose_many"](self._tree, self.polling.code, chosen)
        return chosen

    def learn(self, leaves: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Update the automata with the feedback of polls, in order.

        Parameters
        ----------
        leaves : array_like of int, shape (m,)
            The sources polled.
        values : array_like, shape (m,)
            1 or 0 for a reward or none; a value moves the automata by so many times as much. NaN is no
            feedback.

        Raises
        ------
        SourceDataError
            If a source is not one of the tree's, or a value is negative.
        """
        at = np.ascontiguousarray(leaves, dtype=np.int64)
        value = np.broadcast_to(np.asarray(values, dtype=np.float64), at.shape)
        if at.size and not (int(at.min()) >= 0 and int(at.max()) < self.n):
            raise SourceDataError(f"feedback for source {int(at.max())} of {self.n}. Pass positions 0..n-1.")
        if bool(np.any(value < 0.0)):
            raise SourceDataError(f"feedback {float(np.nanmin(value))} is negative. Pass values >= 0.")
        on = self.update.on_reward, self.update.on_penalty
        loops()["learn_many"](self._tree, at, np.ascontiguousarray(value), *on)

    def simulate(
        self,
        sources: SimulatedSources,
        polls: int,
        feedback: Feedback | None = Feedback.NEWS,
        *,
        gain: float = 1.0,
        probing: float = 1.0,
    ) -> None:
        """Poll simulated sources and learn from each poll.

        Both the tree and the sources keep their state for the next call.

        Parameters
        ----------
        sources : SimulatedSources
        polls : int
        feedback : Feedback or None
            None polls without learning.
        gain : float
            How far a reward of mean importance at a mean share, or a mean cost, moves an automaton, in steps;
            without effect on penalties, and on rewards where there are penalties.
        probing : float
            Share of the poll intervals in which a probe is planned.

        Raises
        ------
        SourceDataError
            If the numbers of sources differ, the feedback has no penalties to learn from, or a number is out
            of range.
        """
        polls = as_whole(polls, "polls", 0, MOST_POLLS)
        kind = Feedback.NEWS if feedback is None else feedback
        slots, rule = self._arranged(sources, kind, gain, probing, learning=True)
        if feedback is None:
            rule = rule._replace(reward=False, penalty=False)
        loops()["simulate"](self._tree, slots, polls, rule)

    def observe(
        self,
        sources: SimulatedSources,
        polls: int,
        feedback: Feedback = Feedback.NEWS,
        *,
        gain: float = 1.0,
        probing: float = 1.0,
    ) -> tuple[IntArray, Array]:
        """Poll simulated sources and return the feedback, without learning.

        Returns
        -------
        source : ndarray of int, shape (polls,)
        value : ndarray, shape (polls,)
        """
        polls = as_whole(polls, "polls", 0, MOST_POLLS)
        slots, rule = self._arranged(sources, feedback, gain, probing)
        polled, value = np.empty(polls, dtype=np.int64), np.empty(polls)
        loops()["observe"](self._tree, slots, polled, value, rule)
        return polled, value

    def checkpoint(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the arrays that hold the state."""
        return {key: column.copy() for key, column in self._tree._asdict().items()}

    def restore(self, state: Mapping[str, npt.ArrayLike]) -> None:
        """Restore a state that `checkpoint` of an equal tree returned.

        Raises
        ------
        SourceDataError
            If it is that of another tree.
        """
        own = self._tree._asdict()
        if set(state) != set(own) or any(np.shape(state[key]) != own[key].shape for key in own):
            raise SourceDataError("the checkpoint is not of a tree of this shape. Make the same tree anew.")
        if not np.array_equal(state["span"], own["span"]):
            raise SourceDataError("the checkpoint has other resolutions. Make the same tree anew.")
        if not all(np.array_equal(state[key], own[key]) for key in ("node", "floor", "cap")):
            raise SourceDataError("the checkpoint has other bounds. Make the same tree anew.")
        for key, column in own.items():
            column[:] = state[key]

    def automata(self) -> list[dict[str, Any]]:
        """Return a record of each automaton.

        It holds node, depth, state, resolution, share, and its leaves ``first`` to ``last``.

        A share is what all automata above it leave to it. Without groups, leaves are the sources in order.
        """
        mass = self._sums(self._learnt())
        found, used = [], int(self._tree.node.max()) - 2**self.depth + 1
        for node in np.flatnonzero(self._tree.span).tolist():
            depth = node.bit_length() - 1
            width = 2 ** (self.depth - depth)
            first = (node - 2**depth) * width
            found.append(
                {
                    "node": node,
                    "depth": depth,
                    "state": int(self._tree.state[node]),
                    "resolution": int(self._tree.span[node]) - 1,
                    "share": float(mass[node]),
                    "first": first,
                    "last": min(first + width, used) - 1,
                }
            )
        return found

    def __repr__(self) -> str:
        states = str(self.resolution[0]) if len(set(self.resolution)) == 1 else str(self.resolution)
        kind = f"resolution={states}, polling={self.polling!r}, update={self.update!r}"
        return f"AutomataTree(n={self.n}, {kind}, polls={self.polls})"

    def _arranged(
        self,
        sources: SimulatedSources,
        feedback: Feedback,
        gain: float,
        probing: float,
        *,
        learning: bool = False,
    ) -> tuple[Slots, Rule]:
        """Return the arrays of the sources, and the rule for the loops."""
        expect(sources, SimulatedSources, "sources", "Pass a freshopt.automata.SimulatedSources")
        check_gain(gain, probing)
        if len(sources) != self.n:
            raise SourceDataError(f"{len(sources)} sources under a tree for {self.n}. Make one of that size.")
        check_together(feedback, self.update)
        # A typical value is 1/share, of a bit 1; costs are learnt from in units of their mean.
        whole = feedback.is_bit or (feedback is Feedback.COST and learning)
        on = self.update.on_reward, self.update.on_penalty
        step = float(gain) if whole else gain / self.n
        rule = Rule(self.polling.code, feedback.code, *on, step, float(probing))
        return sources.slots(feedback, self.update), rule

    def _sums(self, leaves: Array) -> Array:
        """Sum a column over the sources below each node."""
        width = 2**self.depth
        mass = np.zeros(2 * width)
        mass[self._tree.node] = leaves
        for depth in range(self.depth - 1, -1, -1):
            nodes = slice(2**depth, 2 ** (depth + 1))
            mass[nodes] = mass[2 ** (depth + 1) : 2 ** (depth + 2)].reshape(-1, 2).sum(axis=1)
        return mass

    def _start_deadlines(self) -> None:
        """Release every source's first poll now, due after a mean interval."""
        tree = self._tree
        tree.begun[:], tree.release[:] = tree.clock[0], tree.clock[0]
        tree.deadline[:] = tree.clock[0] + 1.0 / self.shares()
        tree.waiting[:], tree.sizes[:] = np.arange(self.n), (0, self.n)
        tree.place[:], tree.released[:] = np.arange(self.n), 0
