"""The cycle between two crawls of a source whose change signals are noisy.

Of its changes (rate Δ) a share l, the recall, is announced; of the announcements a share p, the precision, is
true. So signals come at the rate g = lΔ/p, false ones at v = g − lΔ, and changes without a signal at
a = (1−l)Δ. If n signals came within s of the last crawl the copy is fresh with probability
e^{−as}(v/g)^n = e^{−a(s+bn)}, b = ln(g/v)/a: a signal is worth a time b without one. The best policy crawls
when that effective time s + bn reaches a threshold i. Its cycle has the length ψ(i) and is fresh for w(i):

    ψ(i) = Σ_k R_k(g(i−kb))/g,   w(i) = Σ_k v^k/(Δ+v)^{k+1} R_k((Δ+v)(i−kb)),   R_k(x) = P(Poisson(x) > k),

k = 0, ..., ⌈i/b⌉−1. At a rate 1/ψ(i) freshness is w/ψ, and one more crawl per time is worth
V(i) = w(i) − e^{−ai}ψ(i) = ∫₀ⁱ a e^{−at}ψ(t) dt, which rises from 0 to 1/Δ.

All functions here measure time in units of 1/Δ: Δ = 1, c = 1 + v = a + g. For small thresholds the
differences are integrals whose terms do not cancel; a precision below 1e-4 costs digits of V all the same.
Cost: two incomplete gamma functions per source and signal that fits below its threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from freshopt.arrays import Array, BoolArray
from freshopt.inversion import falling_root

SMALL = 1.0  # c·i below which integrals take the place of differences; 12 nodes are then exact to rounding
NODES, WEIGHTS = (values for values in np.polynomial.legendre.leggauss(12))
NEGLIGIBLE = 1e-18
SURE = 10.0  # standard deviations below its mean, where a Poisson number never is
FAR = 40.0  # a·i beyond which V is 1 to rounding
MOST_SIGNALS = 100_000  # whose number is in doubt


class Cycle(NamedTuple):
    """What one cycle is, each of shape (n,), in units of 1/Δ.

    Attributes
    ----------
    length : ndarray
        ψ(i).
    stale : ndarray
        ψ(i) − w(i).
    worth : ndarray
        V(i).
    survival : ndarray
        ψ'(i), the probability that effective time passes i by without jumping over it.
    """

    length: Array
    stale: Array
    worth: Array
    survival: Array


def cycle(threshold: Array, recall: Array, precision: Array) -> Cycle:
    """Return the cycle of each source.

    Parameters
    ----------
    threshold : ndarray, shape (n,)
        i > 0, finite.
    recall, precision : ndarray, shape (n,)
        0 ≤ l < 1 and 0 < p ≤ 1.

    Examples
    --------
    Without signals a cycle is a period: ψ = i, and V is the index of binary freshness, P(2, i).

    >>> one = cycle(np.array([2.0]), np.array([0.0]), np.array([1.0]))
    >>> [float(part[0].round(12)) for part in (one.length, one.worth)]
    [2.0, 0.59399415029]
    """
    from scipy.special import gammainc, gammaln

    x, a, g, b = _rates(threshold, recall, precision)
    v, c = g - recall, g + a
    with np.errstate(all="ignore"):
        length, fresh = x * _mean_decay(g * x), x * _mean_decay(c * x)
        at_end = np.exp(-a * x)
        stale, index = length - fresh, fresh - at_end * length
        short = np.flatnonzero(c * x < SMALL)
        stale[short], index[short] = _small(x[short], a[short], g[short])
        survival = np.exp(-g * x)
        left = np.flatnonzero((g > 0.0) & (x > b))
        k = np.ones(len(left))
        # As long as k is far below its Poisson mean, R_k is 1 and the terms have closed sums.
        mean = g[left] * x[left]
        sure = np.floor((mean - SURE * np.sqrt(mean) - SURE) / (1.0 + g[left] * b[left]))
        many = sure > 1.0
        rows, number = left[many], sure[many] - 1.0  # of terms, from k = 1 on
        q = v[rows] / c[rows]
        passed, fresh = number / g[rows], -np.expm1(number * np.log(q)) * q
        length[rows] += passed
        stale[rows] += passed - fresh
        index[rows] += fresh - at_end[rows] * passed
        k[many] = sure[many]
        for _ in range(MOST_SIGNALS):
            y, rate, beyond = x[left] - k * b[left], g[left], c[left]
            open_ = y > 0.0
            left, k, y, rate, beyond = left[open_], k[open_], y[open_], rate[open_], beyond[open_]
            if not len(left):
                break
            share = np.exp(k * np.log(v[left] / beyond)) / beyond
            passed, fresh = gammainc(k + 1.0, rate * y) / rate, share * gammainc(k + 1.0, beyond * y)
            length[left] += passed
            stale[left] += passed - fresh
            index[left] += fresh - at_end[left] * passed
            survival[left] += np.exp(k * np.log(rate * y) - rate * y - gammaln(k + 1.0))
            more = passed > NEGLIGIBLE * length[left]
            left, k = left[more], k[more] + 1.0
    return Cycle(length, stale, index, survival)


def threshold_of_index(index: Array, recall: Array, precision: Array) -> Array:
    """Return i with V(i) = index, 0 < index < 1."""
    a = 1.0 - recall

    def wanted(now: Cycle, x: Array) -> tuple[Array, Array]:
        return index - now.worth, a * np.exp(-a * x) * now.length * x

    with np.errstate(all="ignore"):
        return _root(wanted, np.sqrt(2.0 * index / a), FAR / a, recall, precision)


def threshold_of_length(length: Array, recall: Array, precision: Array) -> Array:
    """Return i with ψ(i) = length; NaN where no cycle is as long (precision 1)."""
    _, a, g, b = _rates(length, recall, precision)
    jump = np.where(np.isfinite(b), b, 0.0)
    most = (length + jump) * (1.0 + g * jump)  # effective time runs no faster than this on average

    def wanted(now: Cycle, x: Array) -> tuple[Array, Array]:
        return length - now.length, now.survival * x

    with np.errstate(all="ignore"):
        true = -np.log1p(-g * length) / g  # R_0 alone
        found = _root(wanted, length, np.maximum(most, FAR / a), recall, precision)
    return np.where((precision == 1.0) & (g > 0.0), true, found)


def _root(
    wanted: Callable[[Cycle, Array], tuple[Array, Array]],
    start: Array,
    highest: Array,
    recall: Array,
    precision: Array,
) -> Array:
    """Return the threshold below `highest` at which a cycle is as wanted.

    `wanted` returns how much is missing of what rises with the threshold x, and its slope in log x.
    """
    farthest = np.log(highest)

    def compare(y: Array) -> tuple[BoolArray, Array]:
        x = np.exp(np.clip(y, -300.0, farthest))
        with np.errstate(all="ignore"):
            missing, slope = wanted(cycle(x, recall, precision), x)
            step = np.where(y > farthest, farthest - y, missing / slope)
        return (missing > 0.0) & (y < farthest), np.where(np.isfinite(step), step, np.inf)

    return falling_root(compare, np.minimum(start, 0.5 * highest))


def _rates(threshold: Array, recall: Array, precision: Array) -> tuple[Array, Array, Array, Array]:
    """Return i, a, g and b, in units of Δ."""
    unsignalled, signals = 1.0 - recall, recall / precision
    with np.errstate(divide="ignore"):
        worth = np.where(recall > 0.0, -np.log1p(-precision) / unsignalled, np.inf)
    return np.asarray(threshold, dtype=np.float64), unsignalled, signals, worth


def _mean_decay(z: Array) -> Array:
    """Return (1 − e^{−z})/z."""
    return np.where(z > 0.0, -np.expm1(-z) / np.where(z > 0.0, z, 1.0), 1.0)


def _small(x: Array, a: Array, g: Array) -> tuple[Array, Array]:
    """Return the first terms of stale time and index as integrals over the cycle."""
    half = 0.5 * x[:, None]
    t, weight = half * (NODES + 1.0), half * WEIGHTS
    rate, signals = a[:, None], g[:, None]
    stale = np.sum(weight * np.exp(-signals * t) * -np.expm1(-rate * t), axis=1)
    index = np.sum(weight * rate * np.exp(-rate * t) * t * _mean_decay(signals * t), axis=1)
    return stale, index
