"""Polling, feedback and update rules of learning automata.

An automaton converges to where a poll on its left brings as much feedback, on average, as one on its right.
So the feedback decides what is optimised: where the mean feedback of a poll of source i is the derivative of
its gain, the tree converges to equal derivatives, the first-order optimality condition. Let a be a source's
changes per slot, w its weight, x its share of the polls, u = a/x, and d the probability that a poll finds
news.

News under periodic polling
    A poll interval of 1/x has d = 1 − e^{−u}. Equal w·d is the optimum of Σ w·∫₀ˣ d, the "materials" form of
    the polling knapsack. The number of news Σ w·x·d has the derivative w(1 − (1 + u)e^{−u}) instead, and the
    two optima are the same only without weights.
News twice in a row, under random polling
    Poll intervals are exponential of mean 1/x and independent, so that a poll finds news with d = a/(a + x),
    and it and the one before both do with d². The number of news Σ w·x·d has the derivative w·(a/(a + x))² =
    w·d².
News and then none, under random polling
    Freshness is x/(a + x), of derivative a/(a + x)² = d(1 − d)/x: news and then none, over the share.
A probe, under periodic polling
    A source that costs c(s) at age s costs J(x) = x·C(1/x), C(s) = ∫₀ˢ c, at intervals T = 1/x, and so

        −J'(x) = T c(T) − C(T) = ∫₀ᵀ (c(T) − c(t)) dt = T·E[c(T) − c(t)],   t uniform in [0, T],

    which [1]_ Lemma 2 estimates by costs seen at t and at T. Here the cost is 1 while the copy is stale,
    c(s) = 1 − e^{−as}. Being stale lasts until the poll, so the difference of the two bits is 1 where the
    copy is fresh at t and stale at T, and 0 otherwise: it is never negative, and its mean gives

        −J'(x) = T·P(fresh at t, stale at T) = ∫₀ᵀ (e^{−at} − e^{−aT}) dt = (1 − (1 + u)e^{−u})/a.

    T is not known when t is drawn. If t is uniform in [0, R] with R ≥ T, and the probe is dropped where the
    poll comes first, then R·1{t < T, fresh at t, stale at T} has the mean ∫₀ᵀ (e^{−at} − e^{−aT}) dt as well,
    whatever T. Times w it is exactly the derivative of weighted periodic freshness, and with weights w·a that
    of the weighted number of news. The probe must leave the copy as it is, so that the poll shows whether it
    was stale; it costs a poll and ends no interval. With R = 2/x, deadlines have intervals up to R and a
    slot; credits have a few that are longer, and what lies beyond R of those is lost.
A cost, under either polling
    The identity needs neither bits nor equal intervals. If intervals only scale with the rate, T = Z/x with a
    Z of mean 1, the cost is J(x) = x·E C(Z/x), and so

        −J'(x) = E[T c(T) − C(T)] = E ∫₀ᵀ (c(T) − c(t)) dt,

    for Z = 1, periodic, and for an exponential Z, Poisson refreshes, alike. With a probe at a random moment t
    of density g on t > 0, 1{t < T}·(c(T) − c(t))/g(t) has that mean: t = R·U⁴, with R = 2/x and U uniform
    where intervals are shorter than R, exponential where they are: early moments are likelier, in which most
    costs grow, so that no single value is large. A poll and a probe that see how many changes were missed,
    for how long, or how old the copy is, see samples of c, such as H(m) for harmonic staleness (`Cost`).
    Values have no bound, so that they are counted in units of their mean over the last eight polls per
    source, which all units of cost, time and importance leave as they are; until there have been so many,
    nothing is learnt. Nor does one value take more than an eighth off a share: a larger one counts less, a
    bias against rewards of more than an eighth of the states in steps.

References
----------
.. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020.
"""

from __future__ import annotations

import enum
import math

import numpy as np

from freshopt.errors import SourceDataError, one_of
from freshopt.numerics.arrays import Array, as_number


class Coded(enum.Enum):
    """Setting that loops know by its position."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    @property
    def code(self) -> int:
        """Integer code of the member in the loops."""
        return list(type(self)).index(self)


class Polling(Coded):
    """Scheduling rule that turns shares into polls.

    ``CREDIT``: each automaton sends polls left and right in turn, as evenly as its state allows; O(log n).
    ``EARLIEST_DEADLINE``: virtual deadlines 1/share apart, on two heaps; no source is ever a whole poll ahead
    or behind. A share that has grown since the source's last poll is noticed within n polls, one that has
    shrunk only with the next poll: where nearly all feedback is a penalty, that is too late, and credits are
    to be preferred. ``RANDOM``: each automaton samples, and slots are exponential, so that poll intervals
    are.
    """

    CREDIT = "credit"
    EARLIEST_DEADLINE = "earliest deadline"
    RANDOM = "random"


class Feedback(Coded):
    """Feedback of a poll to the automata above its source.

    The module describes which optimum each kind of feedback leads to.

    ``NEWS``: whether it found news, as published. ``NEWS_TWICE``: whether it and the poll before found news.
    ``NEWS_THEN_NONE``: w/x where the poll before found news and this one none. ``PROBE``: w·R where a probe
    in between found the copy fresh and the poll finds it stale.
    ``COST``: w times what the cost has grown by from a probe to the poll, over the density of the probe's
    moment, and that over the running mean of such feedback.
    """

    NEWS = "news"
    NEWS_TWICE = "news twice"
    NEWS_THEN_NONE = "news then none"
    PROBE = "probe"
    COST = "cost"

    @property
    def is_bit(self) -> bool:
        """Whether the feedback is binary: 0 is a penalty.

        Otherwise it is a value that only rewards.
        """
        return self in (Feedback.NEWS, Feedback.NEWS_TWICE)


class Update(Coded):
    """On which feedback automata move.

    ``REWARD_INACTION``: a 1 moves them towards the polled source. ``INACTION_PENALTY``: a 0 moves them away
    from it, with the same probability. ``REWARD_PENALTY``: both, which is the fastest.
    """

    REWARD_PENALTY = "reward-penalty"
    INACTION_PENALTY = "inaction-penalty"
    REWARD_INACTION = "reward-inaction"

    @property
    def on_reward(self) -> bool:
        """Whether a 1 moves an automaton."""
        return self is not Update.INACTION_PENALTY

    @property
    def on_penalty(self) -> bool:
        """Whether a 0 moves an automaton."""
        return self is not Update.REWARD_INACTION


class Cost(Coded):
    """What a poll observes of a copy.

    ``STALE``: 1 if it has missed a change. ``HARMONIC``: H(m) of m missed changes. ``MISSED``: m. ``AGE``:
    slots since the oldest missed change. ``POWER``: min(s, t)^e of its age s in slots; parameters e and t.
    ``PIECES``: the slope at s of a convex piecewise linear cost; parameters the slopes, then the intercepts.
    """

    STALE = "stale"
    HARMONIC = "harmonic"
    MISSED = "missed"
    AGE = "age"
    POWER = "power"
    PIECES = "pieces"


def check_together(feedback: Feedback, update: Update) -> None:
    """Raise if the feedback cannot penalise but the update does."""
    one_of(feedback, tuple(Feedback), "feedback")
    one_of(update, tuple(Update), "update")
    if update.on_penalty and not feedback.is_bit:
        raise SourceDataError(
            f"update is {update!r}, but {feedback!r} is a value whose zeros are no penalties. "
            "Pass Update.REWARD_INACTION."
        )


def check_gain(gain: float, probing: float) -> None:
    """Raise unless a gain is positive and probing a share."""
    if not 0.0 < as_number(gain, "gain", "Pass a number > 0.") < math.inf:
        raise SourceDataError(f"gain is {gain}. Pass a number > 0.")
    if not 0.0 <= as_number(probing, "probing", "Pass a share in 0..1.") <= 1.0:
        raise SourceDataError(f"probing is {probing}. Pass a share in 0..1.")


def weights_of(importance: Array, feedback: Feedback, update: Update) -> Array:
    """Return the importances of sources as reward weights.

    A reward counts w times; where zeros are penalties, it is passed on with probability w/max w instead.
    """
    largest = float(np.max(importance))
    if largest <= 0.0:
        raise SourceDataError("importance is 0 for all sources. Give one of them a positive importance.")
    passed_on = feedback.is_bit and update.on_penalty
    return importance / (largest if passed_on else float(np.mean(importance)))
