"""Formulas of crawl likelihoods, for compiled loops and for NumPy.

With x = aΔ for each crawl interval a after which an unknown number of changes was found, and q = x/(e^x−1),

    L = Σ w ln(1 + 1/(e^x−1)) = −Σ w ln(1−e^{−x}),   S = Σ w q,   C = Σ w q(1−x−q) <= 0

are minus the log-likelihood of these crawls, and its first two derivatives in t = ln Δ. With K changes
counted in a time A and U the sum of the crawl intervals that ended without one,

    l = −L + K ln Δ − (U+A)Δ.

Without a prior the density of t is e^l √H, H = Δ²·I(Δ) = Σ w xq + AΔ, where I is the Fisher information of
the crawls and the sum is over all crawl intervals without a count: Jeffreys' prior. For equal crawl intervals
that is Beta(F+½, N−F+½) of the share of crawls that find a change, for counted changes Gamma(K+½)/A. A Gamma
prior of shape s and exposure b takes its place: s more in K, b more in A. With it a first date that is a
change or, at the rate η, a birth, brings P ln(Δ+η); its age is part of b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.numerics.scalar_source import Numbers, expm1, log, select, somewhere

# First steps to a maximum are Halley's, of third order; the others Newton's, which cannot miss. Most seen: 5.
CUBIC = 12
# Standard deviation of ln Δ, about 8 changes, up to which nodes may follow the mode.
SHARP = 0.35
# Ends and number of the nodes in standard deviations; at SHARP the left end lies below e^-14 of the mode.
NODES = (-8.0, 10.0, 14)
# e^-16 is negligible beside the levels of intervals.
FAR = 16.0
# Cell in ln Δ: the likelihood of one crawl interval changes over about 2.
CELL = 0.5
# Numbers of cells are multiples of this one, so that many sources are evaluated together.
TOGETHER = 8
# ΣaΔ below which g' is constant to that relative accuracy.
STRAIGHT = 1e-4
# e^-60 is negligible in float64.
FALL = 60.0
# Largest number and length of the steps of Newton's iteration for a mode.
STEPS, LEAP = 12, 2.0
# Stands for an information that underflows, far to the right of all crawls.
NOTHING = 1e-300


# The compiled passes maximise, split and quantiles.
Loops: TypeAlias = tuple[Callable[..., int], Callable[..., tuple[int, int]], Callable[..., int]]


class OtherTerms(NamedTuple):
    """Terms of a likelihood but for those of crawl intervals."""

    counted: Numbers
    exposure: Numbers
    possible: Numbers
    births: Numbers


class Peaks(NamedTuple):
    """Maxima of likelihoods: the rate, l there, and −d²l/d(ln Δ)²."""

    rate: Numbers
    value: Numbers
    bend: Numbers


def told_by_row(gap: Numbers, changes: Numbers, since: Numbers) -> tuple[Numbers, Numbers]:
    """Return how many changes a row tells, and in what time.

    `since` is the time since its last change, NaN where that has no date.
    """
    dated = (since == since) & (gap == gap)
    return select(dated, 1.0, changes), select(dated, since, gap)


def odds_of(x: Numbers) -> Numbers:
    """Return the odds of no change against a change, 1/(e^x−1)."""
    return 1.0 / expm1(x)


def curvature(x: Numbers, q: Numbers) -> Numbers:
    """Return dq/dt."""
    return q * (1.0 - x - q)


def turning(x: Numbers, q: Numbers) -> Numbers:
    """Return d²q/dt²."""
    fall = 1.0 - x - q
    return q * (fall * fall - x - q * fall)


def information(x: Numbers, q: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return xq and its first two derivatives in t."""
    own, push = x * q, 2.0 - x - q
    return own, own * push, own * (push * push - (x + q) * (1.0 - q))


def other_slopes(terms: OtherTerms, rate: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return three derivatives in t of all but L and the exposure."""
    slope, curve, turn = terms.counted, 0.0 * terms.counted, 0.0 * terms.counted
    if somewhere(terms.possible > 0.0):
        share = rate / (rate + terms.births)  # the probability that the first date is a change
        fall = terms.possible * share * (1.0 - share)
        slope, curve = slope + terms.possible * share, curve + fall
        turn = turn + fall * (1.0 - 2.0 * share)
    return slope, curve, turn


def log_likelihood(
    sums: tuple[Numbers, Numbers, Numbers], terms: OtherTerms, t: Numbers, rate: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Return l and two derivatives in t, given L, S, C."""
    time = terms.exposure * rate
    slope, curve, _ = other_slopes(terms, rate)
    value = terms.counted * t - time - sums[0]
    if somewhere(terms.possible > 0.0):
        value = value + terms.possible * log(rate + terms.births)
    return value, slope - time + sums[1], curve - time + sums[2]


def with_jeffreys(
    likelihood: tuple[Numbers, Numbers, Numbers], h: Numbers, first: Numbers, second: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Return l + ½ ln H with two derivatives, given theirs."""
    h = np.maximum(h, NOTHING)
    first, second = first / h, second / h
    value, slope, curve = likelihood
    return value + 0.5 * log(h), slope + 0.5 * first, curve + 0.5 * (second - first * first)


def climbing_step(
    sums: tuple[Numbers, Numbers, Numbers], terms: OtherTerms, rate: Numbers, cubic: bool
) -> Numbers:
    """Return the relative step to a maximum, given S, C and dC/dt.

    ΔS(Δ), −Δ²S'(Δ) and Δ³S''(Δ) stay within the floats whatever the clock.
    """
    slope, curve, turn = other_slopes(terms, rate)
    slope, curve, turn = slope + sums[0], curve + sums[1], turn + sums[2]
    bend, third = slope - curve, turn - 3.0 * curve + 2.0 * slope
    excess = log(slope / (terms.exposure * rate))
    move = excess * (slope / bend)
    if cubic:
        move = move / np.maximum(0.5, 1.0 - 0.5 * excess * (third * slope / (bend * bend) - 1.0))
    return np.maximum(move, -0.5)


def mode_step(slope: Numbers, curve: Numbers) -> Numbers:
    """Return Newton's step to a mode, no longer than `LEAP`."""
    step = select(curve < 0.0, -slope / curve, np.copysign(LEAP, slope))
    return np.minimum(np.maximum(step, -LEAP), LEAP)


def posterior_range(
    terms: OtherTerms, number: Numbers, span: Numbers, shortest: Numbers, jeffreys: bool
) -> tuple[Numbers, Numbers]:
    """Return the range of t that holds the posterior mass.

    Left of it the density falls exponentially, right of it it is negligible. `number` and `span` are those of
    crawl intervals in C, `shortest` is that of all.
    """
    changes = number + terms.counted + terms.possible
    if jeffreys:
        changes = changes + 0.5
    right = (FALL + 5.0 * changes) / terms.exposure  # l falls by UΔ at least
    if jeffreys:
        # Where every crawl interval ended with a change √H falls by aΔ/2, a the shortest.
        right = select(shortest < np.inf, np.minimum(right, 3.0 * FALL / shortest), right)
    left = STRAIGHT / (span + terms.exposure)
    # ln(Δ+η) is straight left of η.
    births = (terms.possible > 0.0) & (terms.births > 0.0)
    left = select(births, np.minimum(left, STRAIGHT * terms.births), left)
    return log(left), log(right)
