"""Statistical tests behind `poisson_check`.

On the sums that a trace of changes is reduced to.

Each is a test of a constant rate against an alternative with one more term. Given the number of changes,
those of a Poisson process are independent and uniform over the time watched, whatever the rate: the rate is a
nuisance parameter that conditioning removes.

* *dispersion*: counts in m bins of equal expectation, Σ(count − expected)²/expected against χ² with m − 1
  degrees of freedom and the exact conditional variance 2(m−1)(1−1/n). Two-sided: a source that changes
  periodically is no Poisson process either.
* *gaps*: Durbin's transform. The gaps between changes, sorted, C_(1) ≤ ... ≤ C_(m), have increments
  (m+1−j)(C_(j) − C_(j−1)) that are again gaps of uniform times, so that the Kolmogorov-Smirnov test of their
  sums needs no correction for an estimated rate, and has power where that of the plain one is negligible:
  against gaps that are more, or less, unequal than exponential ones.
* *cycle*: the score of a sine wave of a given period (Rayleigh's test, for any window).
* *drift*: the score of an exponential trend (Laplace's test).

Cost: a sort of each source's gaps; all else is sums.

References
----------
Durbin, "Some methods of constructing exact tests", Biometrika 48, 1961, doi:10.1093/biomet/48.1-2.41.
Lewis, "Some results on tests for Poisson processes", Biometrika 52, 1965, doi:10.1093/biomet/52.1-2.67.
Kim & Whitt, "Choosing arrival process models for service systems: tests of a nonhomogeneous Poisson process",
Naval Research Logistics 61, 2014, doi:10.1002/nav.21568.
"""

from __future__ import annotations

import numpy as np

from freshopt.heavy import special
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_sums

# Fewest changes of a tested source; at 10 every test keeps its level (test_false_alarms.py).
FEWEST = 10
# Changes expected in a bin, the usual bound for χ².
PER_BIN = 5
FEWEST_BINS = 4


def bins_of(count: Array) -> IntArray:
    """Return the number of bins for these counts of changes.

    Examples
    --------
    >>> bins_of(np.array([10.0, 20.0, 103.0])).tolist()
    [4, 4, 20]
    """
    return np.maximum(FEWEST_BINS, (count // PER_BIN).astype(np.int64))


def dispersion_test(chi_square: Array, bins: IntArray, count: Array) -> tuple[Array, Array]:
    """Return the index of dispersion and its two-sided p-value.

    `chi_square` is Σ(count − expected)²/expected over the bins of a source, `count` what its changes weigh.
    """
    mean = bins - 1.0
    variance = 2.0 * mean * (1.0 - 1.0 / count)
    shape, scale = mean**2 / variance, variance / mean
    # Of whole numbers the statistic is a multiple of 2·bins/count, and its own value belongs to either tail.
    half = bins / count
    below = special.gammainc(shape, (chi_square + half) / scale)
    above = special.gammaincc(shape, np.maximum(chi_square - half, 0.0) / scale)
    return chi_square / mean, np.minimum(1.0, 2.0 * np.minimum(below, above))


def gaps_test(gaps: Array, offsets: IntArray) -> tuple[Array, Array]:
    """Return a Kolmogorov-Smirnov test of exponential inter-change times.

    The distance of the distributions, and the p-value; NaN for a source with fewer than three gaps.

    Examples
    --------
    >>> clock, bursts = np.ones(50), np.tile([0.01, 0.01, 0.01, 10.0], 13)
    >>> distance, p = gaps_test(np.concatenate([clock, bursts]), np.array([0, 50, 102]))
    >>> bool(np.all(p < 1e-6))
    True
    """
    sizes = np.diff(offsets)
    source = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.arange(len(gaps)) - np.repeat(offsets[:-1], sizes)
    ordered = gaps[np.lexsort((gaps, source))]
    steps = np.diff(ordered, prepend=0.0)
    steps[offsets[:-1][sizes > 0]] = ordered[offsets[:-1][sizes > 0]]
    steps *= np.repeat(sizes, sizes) - rank
    sums = np.cumsum(steps, dtype=np.longdouble)  # extended: what came before a source is taken off again
    before = np.concatenate([[0.0], sums])[offsets]
    length = np.diff(before).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        at = (sums - np.repeat(before[:-1], sizes)).astype(np.float64) / np.repeat(length, sizes)
    points = sizes - 1.0  # the last sum is 1 by construction
    of_row = np.repeat(points, sizes)
    with np.errstate(invalid="ignore", divide="ignore"):
        above, below = (rank + 1) / of_row - at, at - rank / of_row
    far = np.where(rank < of_row, np.maximum(above, below), 0.0)
    distance = np.full(len(sizes), np.nan)
    some = (points >= 2) & (length > 0)
    if some.any():
        largest = np.maximum.reduceat(far, offsets[:-1][sizes > 0])
        distance[sizes > 0] = largest
        distance[~some] = np.nan
    return distance, kolmogorov_tail(distance, points)


def kolmogorov_tail(distance: Array, points: Array) -> Array:
    """Return the Kolmogorov tail probability P(D ≥ distance).

    For so many uniform points: the limit, at a distance corrected for their number.

    Within 0.003 of the exact distribution for 9 points, 0.0006 for 20, 0.0002 for 100, and on the safe side
    in the tail (tests/goodness_of_fit/test_false_alarms.py).

    References
    ----------
    Vrbik, "Small-sample corrections to Kolmogorov-Smirnov test statistic", Pioneer Journal of Theoretical and
    Applied Statistics 15, 2018.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(points)
        x = distance * root
        tail: Array = special.kolmogorov(x + 1.0 / (6.0 * root) + (x - 1.0) / (4.0 * points))
    return tail


def cycle_test(score: Array, information: Array) -> tuple[Array, Array]:
    """Return a cycle's relative amplitude and its p-value.

    The cycle is a sine wave in the rate. The amplitude is that after one step of Newton's iteration; NaN
    where the times tell too little of the cycle.
    """
    amplitude, p_value = np.full((2, len(score)), np.nan)
    known = np.flatnonzero(cycle_weight(information) >= FEWEST)
    move = np.linalg.solve(information[known], score[known, :, None])[:, :, 0]
    amplitude[known] = np.hypot(move[:, 0], move[:, 1])
    p_value[known] = np.exp(-0.5 * np.sum(move * score[known], axis=1))
    return amplitude, p_value


def cycle_weight(information: Array) -> Array:
    """Return the equivalent number of exactly timed changes.

    They would tell as much of the cycle: twice the least eigenvalue of its information.
    """
    half = 0.5 * (information[:, 0, 0] + information[:, 1, 1])
    spread = np.hypot(0.5 * (information[:, 0, 0] - information[:, 1, 1]), information[:, 0, 1])
    weight: Array = 2.0 * (half - spread)
    return weight


def drift_test(score: Array, information: Array) -> Array:
    """Return the two-sided p-value of a normal score."""
    p_value: Array = special.erfc(np.abs(score) / np.sqrt(2.0 * information))
    return p_value


def false_discovery(p_value: Array, share: float) -> BoolArray:
    """Return the rejections at a false-discovery rate.

    By the procedure of Benjamini and Hochberg (1995).

    NaN are not counted.

    Examples
    --------
    >>> false_discovery(np.array([0.03, 0.001, np.nan, 0.9, 0.02]), 0.05).tolist()
    [True, True, False, False, True]
    """
    known = np.sort(p_value[~np.isnan(p_value)])
    below = known <= share * np.arange(1, len(known) + 1) / max(len(known), 1)
    if not below.any():
        return np.zeros(len(p_value), dtype=np.bool_)
    rejected: BoolArray = p_value <= known[np.flatnonzero(below)[-1]]
    return rejected


def covariance(offsets: IntArray, weight: Array, cosine: Array, sine: Array) -> Array:
    """Return the information on (cosine, sine), shape (n, 2, 2), mean unknown."""
    total, c, s, cc, ss, cs = (
        segment_sums(weight * values, offsets)
        for values in (np.ones(len(weight)), cosine, sine, cosine**2, sine**2, cosine * sine)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = [cc - c * c / total, cs - c * s / total, cs - c * s / total, ss - s * s / total]
    return np.nan_to_num(np.stack(parts, axis=1)).reshape(-1, 2, 2)
