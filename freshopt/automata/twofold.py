"""`TwofoldAutomaton`: two sources, one automaton, and its exact Markov chain.

The automaton (the TRAA of [1]_) is in a state s = 1..N and gives the share q = s/(N + 1) of the polls to its
first source, r = 1 − q to the second. A poll of the first that is rewarded moves it from s to s + 1 with
probability r, one of the second from s to s − 1 with probability q: the rarer a side is polled, the more
its reward counts. On average the state drifts by qr·(p₁ − p₂), p the probabilities of a reward. A penalty
moves it the other way with the same probability, on average qr·((1 − p₂) − (1 − p₁)): the same drift.

Where p₁ falls as the first share grows and p₂ falls as the second does, the drift vanishes at one share
alone, and the finer the automaton the closer it stays. States 0 and N + 1 would keep it there for ever and
are left out. The chain is one of births and deaths: its stationary distribution solves the equations
π_s·up_s = π_{s+1}·down_{s+1}, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from freshopt.automata.settings import Update
from freshopt.errors import SourceDataError, one_of
from freshopt.numerics.arrays import Array

Reward: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class TwofoldAutomaton:
    """Learning automaton between two sources, with known reward probabilities.

    Parameters
    ----------
    resolution : int
        N, the number of states, ≥ 1.
    update : Update

    Notes
    -----
    The chain of [1]_ Eqs 4-8 is that of reward-inaction. It takes polls for independent: sources are polled
    with probabilities q and r, and a poll is rewarded with a probability that depends on the present share
    alone. `freshopt.automata.AutomataTree` has actual poll intervals, which depend on shares of the past; the
    finer the automaton, the less that matters.

    References
    ----------
    .. [1] Granmo & Oommen, "Solving stochastic nonlinear resource allocation problems using a hierarchy of
       twofold resource allocation automata", IEEE Transactions on Computers 59(4), 2010,
       doi:10.1109/TC.2009.189.

    Examples
    --------
    >>> import numpy as np
    >>> automaton = TwofoldAutomaton(resolution=50, update=Update.REWARD_INACTION)
    >>> finds = [detection(-np.log1p(-u)) for u in (0.3, 0.1)]
    >>> round(automaton.mean_share(*finds), 5)
    0.77676
    >>> round(float(np.log(0.7) / np.log(0.7 * 0.9)), 5)  # the share at which both find news equally often
    0.77196
    """

    resolution: int = 500
    update: Update = Update.REWARD_PENALTY

    def __post_init__(self) -> None:
        one_of(self.update, tuple(Update), "update")
        check_resolution(self.resolution)

    @property
    def shares(self) -> Array:
        """The first source's share in each state, shape (N,)."""
        return np.arange(1, self.resolution + 1) / (self.resolution + 1)

    def moves(self, first: Reward, second: Reward) -> tuple[Array, Array]:
        """Return each state's transition probabilities up and down.

        Each has the shape (N,).

        Parameters
        ----------
        first, second : callable
            Probability that a poll of the source is rewarded, of an array of its shares.
        """
        q = self.shares
        r = 1.0 - q
        p1, p2 = first(q), second(r)
        up, down = np.zeros(len(q)), np.zeros(len(q))
        if self.update.on_reward:
            up += q * p1 * r
            down += r * p2 * q
        if self.update.on_penalty:
            up += r * (1.0 - p2) * q
            down += q * (1.0 - p1) * r
        up[-1], down[0] = 0.0, 0.0
        return up, down

    def matrix(self, first: Reward, second: Reward) -> Array:
        """Return the transition matrix, shape (N, N).

        Entry (s, t) is the probability of t after s.
        """
        up, down = self.moves(first, second)
        return np.diag(1.0 - up - down) + np.diag(up[:-1], 1) + np.diag(down[1:], -1)

    def stationary(self, first: Reward, second: Reward) -> Array:
        """Return the stationary distribution over the states, shape (N,).

        It is added up in logarithms, so that nothing overflows however fine the automaton is.
        """
        up, down = self.moves(first, second)
        with np.errstate(divide="ignore"):
            weight = np.concatenate([[0.0], np.cumsum(np.log(up[:-1]) - np.log(down[1:]))])
        weight = np.exp(weight - weight.max())
        found: Array = weight / weight.sum()
        return found

    def mean_share(self, first: Reward, second: Reward) -> float:
        """Return the first source's mean share in the stationary state."""
        return float(self.stationary(first, second) @ self.shares)


def detection(hazard: float) -> Reward:
    """Return d(x) = 1 − e^{−a/x}, the detection probability.

    It is the probability that a poll after an interval of 1/x finds news.

    Parameters
    ----------
    hazard : float
        a > 0, expected changes per slot: −log(1 − u) for changes with probability u.
    """

    def probability(share: Array) -> Array:
        return -np.expm1(-hazard / share)

    return probability


def check_resolution(resolution: int) -> None:
    """Raise if `resolution` is not a number of states."""
    whole = isinstance(resolution, int | np.integer) and not isinstance(resolution, bool)
    if not whole or not 1 <= resolution <= 2**40:
        raise SourceDataError(f"resolution is {resolution!r}. Pass a number of states >= 1, such as 500.")
