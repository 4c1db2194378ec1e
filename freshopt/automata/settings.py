"""How automata poll, what they take as feedback, and when they move: `Polling`, `Feedback`, `Update`.

An automaton settles where a poll on its left brings as much feedback, on average, as one on its right. So the
feedback decides what is optimised: where the mean feedback of a poll of source i is the derivative of its
gain, the tree settles at equal derivatives, which is the optimum. Let a be a source's changes per slot, w its
weight, x its share of the polls, u = a/x, and d the probability that a poll finds news.

News under periodic polling
    A gap of 1/x has d = 1 − e^{−u}. Equal w·d is the optimum of Σ w·∫₀ˣ d, the "materials" form of the
    polling knapsack. The number of news Σ w·x·d has the derivative w(1 − (1 + u)e^{−u}) instead, and the two
    optima are the same only without weights.
News twice in a row, under random polling
    Gaps are independent, so that a poll and the one before both find news with probability d². With
    q = e^{−a} a geometric gap has d = (1 − q)/(1 − q + xq), and Σ w·x·d has exactly the derivative w·d².
    Weights count as the probability that the feedback is passed on.
News and then none, under random polling
    For gaps that are exponential rather than geometric (a ≪ 1), d = a/(a + x) and freshness is x/(a + x), of
    derivative a/(a + x)² = d(1 − d)/x: the probability of news and then none, over the share. In slots of
    which the polls are a share x this is low by the factor (a e^{−a})/(1 − e^{−a}) ≈ 1 − a/2.
A probe, under any polling
    Let C(s) = ∫₀ˢ c be the expected cost of a gap s, here c(s) = w(1 − e^{−as}), the weighted probability of
    being stale. Polled at gaps s/x, where the lengths s have a fixed law of mean 1, a source costs
    J(x) = x·E C(s/x) and

        −J'(x) = E[T c(T) − C(T)] = E ∫₀ᵀ (c(T) − c(t)) dt,   T = s/x.

    For t uniform in [0, T] the integral is T·E[c(T) − c(t)], which [1]_ Lemma 2 estimates by costs seen at t
    and at T. Being stale lasts until the next poll, so the difference of the two bits is 1 where the copy is
    fresh at t and stale at T, and 0 otherwise: no feedback is negative. T is not known when t is drawn; but
    if t is uniform in [0, R], R ≥ T, and the probe is dropped where the poll comes first, then

        R·1{t < T, fresh at t, stale at T}   has the mean   ∫₀ᵀ (e^{−at} − e^{−aT}) dt = (1 − (1 + u)e^{−u})/a

    all the same (the last for T = 1/x), which times w is exactly the derivative of weighted periodic
    freshness; times w·a it is that of the weighted number of news. The probe must leave the copy as it is, so
    that the poll tells whether it was stale; it costs a poll and ends no gap. With R = 2/x, polling by
    deadlines has gaps up to R and one slot; credits have a few that are longer, of which what lies beyond R
    is lost.

References
----------
.. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020.
"""

from __future__ import annotations

import enum

import numpy as np

from freshopt.arrays import Array
from freshopt.automata import steps
from freshopt.errors import SourceDataError


class Polling(enum.Enum):
    """How shares become polls.

    ``CREDIT``: each automaton sends polls left and right in turn, as evenly as its state allows; O(log n).
    ``EARLIEST_DEADLINE``: virtual deadlines 1/share apart, on two heaps; gaps are the most even, and no
    source is ever a whole poll ahead or behind, but a changed share shows only at the source's next poll.
    ``RANDOM``: each automaton draws, and gaps are geometric.
    """

    CREDIT = "credit"
    EARLIEST_DEADLINE = "earliest deadline"
    RANDOM = "random"

    def __repr__(self) -> str:
        """Return the name as it is written in code."""
        return f"Polling.{self.name}"

    @property
    def code(self) -> int:
        """The number by which `steps` knows it."""
        return {"CREDIT": steps.CREDIT, "EARLIEST_DEADLINE": steps.DEADLINE, "RANDOM": steps.RANDOM}[
            self.name
        ]


class Feedback(enum.Enum):
    """What a poll tells the automata above its source; see the module for what that makes them optimise.

    ``NEWS``: whether it found news, as published. ``NEWS_TWICE``: whether it and the poll before found news.
    ``NEWS_THEN_NONE``: w/x where the poll before found news and this one none. ``PROBE``: w·R where a probe
    in between found the copy fresh and the poll finds it stale.
    """

    NEWS = "news"
    NEWS_TWICE = "news twice"
    NEWS_THEN_NONE = "news then none"
    PROBE = "probe"

    def __repr__(self) -> str:
        """Return the name as it is written in code."""
        return f"Feedback.{self.name}"

    @property
    def code(self) -> int:
        """The number by which `steps` knows it."""
        return {
            "NEWS": steps.NEWS,
            "NEWS_TWICE": steps.NEWS_TWICE,
            "NEWS_THEN_NONE": steps.NEWS_THEN_NONE,
            "PROBE": steps.PROBE,
        }[self.name]

    @property
    def is_bit(self) -> bool:
        """Whether it is 0 or 1, so that a 0 can be a penalty; otherwise a value that only rewards."""
        return self in (Feedback.NEWS, Feedback.NEWS_TWICE)


class Update(enum.Enum):
    """On which feedback automata move.

    ``REWARD_INACTION``: a 1 moves them towards the polled source. ``INACTION_PENALTY``: a 0 moves them away
    from it, with the same probability. ``REWARD_PENALTY``: both, which is the fastest.
    """

    REWARD_PENALTY = "reward-penalty"
    INACTION_PENALTY = "inaction-penalty"
    REWARD_INACTION = "reward-inaction"

    def __repr__(self) -> str:
        """Return the name as it is written in code."""
        return f"Update.{self.name}"

    @property
    def on_reward(self) -> bool:
        """Whether a 1 moves an automaton."""
        return self is not Update.INACTION_PENALTY

    @property
    def on_penalty(self) -> bool:
        """Whether a 0 moves an automaton."""
        return self is not Update.REWARD_INACTION


def check_together(feedback: Feedback, update: Update) -> None:
    """Refuse penalties where the feedback has none.

    Raises
    ------
    SourceDataError
    """
    if update.on_penalty and not feedback.is_bit:
        raise SourceDataError(
            f"update is {update!r}, but {feedback!r} is a value whose zeros are no penalties. "
            "Pass Update.REWARD_INACTION."
        )


def weights_of(importance: Array, feedback: Feedback) -> Array:
    """Return the weights as a feedback takes them: bits are passed on with probability w/max w.

    Raises
    ------
    SourceDataError
        If no source is of importance.
    """
    largest = float(np.max(importance))
    if largest <= 0.0:
        raise SourceDataError("importance is 0 for all sources. Give one of them a positive importance.")
    return importance / (largest if feedback.is_bit else float(np.mean(importance)))
