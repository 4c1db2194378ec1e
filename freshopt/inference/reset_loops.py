"""Pass over crawls of sources whose rates are drawn anew.

Compiled where loops are; the mathematics is in `reset_filter`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import Array, IntArray


class CrawlRows(NamedTuple):
    """What each row of a log tells.

    Attributes
    ----------
    gap : ndarray of float, shape (rows,)
        Time during which the rate may have been drawn anew before the row; 0 for none.
    number : ndarray of float, shape (rows,)
        Changes told; −1 for one or more, −2 for a baseline, which tells nothing.
    time : ndarray of float, shape (rows,)
        In which they took place.
    """

    gap: Array
    number: Array
    time: Array


def filter_crawls(
    first: IntArray,
    end: IntArray,
    rows: CrawlRows,
    resets: Array,
    nodes: Array,
    prior: Array,
    begin: Array,
    belief: Array,
    evidence: Array,
) -> None:
    """Pass beliefs about n rates on m nodes through rows of crawls.

    Parameters
    ----------
    first, end : ndarray of int, shape (n,)
        Rows of each source.
    rows : CrawlRows
    resets : ndarray of float, shape (k,)
        Rates at which change rates are drawn anew.
    nodes, prior, begin : ndarray of float, shape (n, m)
        Change rates, what they are drawn from, and the beliefs before the rows.
    belief : ndarray of float, shape (k, n, m)
        Filled with the beliefs after the rows.
    evidence : ndarray of float, shape (k, n)
        The logarithms of the products of the predictions are added.
    """
    m = nodes.shape[1]
    told = np.empty(m)
    for source in range(len(first)):
        at, drawn = nodes[source], prior[source]
        for k in range(len(resets)):
            belief[k, source, :] = begin[source]
        for i in range(first[source], end[source]):
            shift = likelihood_of(rows.number[i], rows.time[i], at, told)
            for k in range(len(resets)):
                kept = math.exp(-resets[k] * rows.gap[i])
                own = belief[k, source]
                total = 0.0
                for j in range(m):
                    value = (kept * own[j] + (1.0 - kept) * drawn[j]) * told[j]
                    own[j] = value
                    total += value
                if not total > 1e-290:
                    # Beliefs hold these outcomes for impossible: the rate is no longer what it was.
                    total = 0.0
                    for j in range(m):
                        value = drawn[j] * told[j]
                        own[j] = value
                        total += value
                    evidence[k, source] -= 700.0
                    if not total > 0.0:
                        # And so does what rates are drawn from, to rounding: it stays.
                        total = 1.0
                        for j in range(m):
                            own[j] = drawn[j]
                scale = 1.0 / total
                for j in range(m):
                    own[j] *= scale
                evidence[k, source] += math.log(total) + shift


def likelihood_of(number: float, time: float, nodes: Array, told: Array) -> float:
    """Fill in the likelihood of a row, up to a factor.

    Returns the logarithm of the factor.
    """
    m = len(nodes)
    if number == -2.0:
        for j in range(m):
            told[j] = 1.0
        return 0.0
    if number == -1.0:
        for j in range(m):
            told[j] = -math.expm1(-nodes[j] * time)
        return 0.0
    if number == 0.0:
        for j in range(m):
            told[j] = math.exp(-(nodes[j] - nodes[0]) * time)
        return float(-nodes[0] * time)
    best = -math.inf
    for j in range(m):
        told[j] = number * math.log(nodes[j]) - nodes[j] * time
        best = max(best, told[j])
    for j in range(m):
        told[j] = math.exp(told[j] - best)
    return best
