"""Shape of the change rate over the day, in two harmonics.

The shape is that of maximum likelihood.

Crawl intervals are often longer than a day, and tell little about hours: smoothed bins would be lost in
noise. Four coefficients θ are not. With φ the cosines and sines of one and two turns a day g = 1 + φ·θ, and
Λ = Δ(length + B·θ), B = ∫φ over the span, is linear in θ: the likelihood is concave, and Newton's iteration
finds its maximum. A weak prior, θ ~ N(0, 1), decides where hours leave no trace, as in gaps of whole days.

Cost: four sines and cosines of each span, then some five Newton steps over those in which changes were found.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.weekly.observed_spans import ObservedSpans
from freshopt.weekly.shape_likelihood import scaled

DAY = 86_400.0
# Newton steps, far more than the concave likelihood needs (most seen: 5), and halvings of one.
STEPS, HALVINGS = 30, 30
# Changes on average from which on finding one is no news.
CERTAIN = 700.0
# Gain in nats below which it has settled.
SETTLED = 1e-9


def daily_shape(rows: ObservedSpans, bins: int) -> Array:
    """Return the most likely shape of two harmonics over the day.

    Parameters
    ----------
    rows : ObservedSpans
    bins : int
        Of the day.

    Returns
    -------
    ndarray of float, shape (bins,)
        Means over the bins, ≥ 0, with mean 1.
    """
    begin, length, rate = rows.begin / DAY, rows.length / DAY, rows.rate * DAY
    waves = _integrals(begin, length)
    some, known = np.isnan(rows.changes), rows.changes > 0.0
    none = -(np.where(some, 0.0, rate) @ waves)
    # Counted changes contribute k ln(length + B·θ), dated ones ln(1 + φ·θ).
    number = np.concatenate((rows.changes[known], np.ones(np.count_nonzero(rows.dated))))
    base = np.concatenate((length[known], np.ones(np.count_nonzero(rows.dated))))
    point = np.concatenate((waves[known], _waves(begin[rows.dated])))
    rate, length, waves = rate[some], length[some], waves[some]

    def value(theta: Array) -> float:
        time, at = length + waves @ theta, base + point @ theta
        if min(np.min(time, initial=1.0), np.min(at, initial=1.0)) <= 0.0:
            return -np.inf
        found = np.sum(np.log(-np.expm1(-rate * time))) + number @ np.log(at)
        return float(none @ theta + found - 0.5 * theta @ theta)

    theta = np.zeros(4)
    best = value(theta)
    for _ in range(STEPS):
        x, at = rate * (length + waves @ theta), base + point @ theta
        odds = 1.0 / np.expm1(np.minimum(x, CERTAIN))
        slope = none + (rate * odds) @ waves + (number / at) @ point - theta
        curve = (waves.T * (rate * rate * odds * (1.0 + odds))) @ waves + (point.T * (number / at**2)) @ point
        step = np.linalg.solve(curve + np.eye(4), slope)
        for _ in range(HALVINGS):
            if value(theta + step) >= best:
                break
            step = 0.5 * step
        now = value(theta + step)
        if not now > best + SETTLED:
            break
        theta, best = theta + step, now
    edge = np.arange(bins) / bins
    return scaled(np.maximum(1.0 + _integrals(edge, np.full(bins, 1.0 / bins)) @ theta * bins, 0.0))


def with_hours(g: Array, hours: Array) -> Array:
    """Return a weekly shape with the daily one as its mean.

    Parameters
    ----------
    g : ndarray of float, shape (bins,)
    hours : ndarray of float, shape (bins/7,)

    Examples
    --------
    >>> with_hours(np.ones(14), np.array([0.5, 1.5]))[:4]
    array([0.5, 1.5, 0.5, 1.5])
    """
    days = g.reshape(7, len(hours))
    own = days.mean(axis=0)
    ratio = np.divide(hours, own, out=np.ones(len(hours)), where=own > 0.0)
    return scaled((days * ratio).reshape(-1))


def _waves(time: Array) -> Array:
    """Return cosines and sines of times in days, shape (m, 4).

    Of one and two turns a day.
    """
    turn = time % 1.0 * (2.0 * np.pi)
    cos, sin = np.cos(turn), np.sin(turn)
    return np.stack((cos, 2.0 * cos * cos - 1.0, sin, 2.0 * cos * sin), axis=1)


def _integrals(begin: Array, length: Array) -> Array:
    """Return the integrals of `_waves` over spans in days, shape (m, 4)."""
    # sin(b + l) − sin(b) = 2 cos(b + l/2) sin(l/2) keeps its digits for short spans.
    half = np.pi * length
    sin = np.sin(half)
    once, twice = sin / np.pi, sin * np.cos(half) / np.pi
    return _waves(begin + 0.5 * length) * np.stack((once, twice, once, twice), axis=1)
