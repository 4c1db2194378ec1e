"""The cycle between two crawls of a source whose change signals are noisy.

Of its changes (rate Δ) a share l, the recall, is announced; of the announcements a share p, the precision, is
true. So signals come at the rate g = lΔ/p, false ones at v = g − lΔ, and changes without a signal at
a = (1−l)Δ. If n signals came within s of the last crawl the copy is fresh with probability
e^{−as}(v/g)^n = e^{−a(s+bn)}, b = ln(g/v)/a: a signal is worth a time b without one. The best policy crawls
when that effective time s + bn reaches a threshold i. Its cycle has the length ψ(i) and is fresh for w(i):

    ψ(i) = Σ_k R_k(g(i−kb))/g,   w(i) = Σ_k v^k/(Δ+v)^{k+1} R_k((Δ+v)(i−kb)),   R_k(x) = P(Poisson(x) > k),

k = 0, ..., ⌈i/b⌉−1. At a rate 1/ψ(i) freshness is w/ψ, and one more crawl per time is worth
V(i) = w(i) − e^{−ai}ψ(i) = ∫₀ⁱ a e^{−at}ψ(t) dt, which rises from 0 to 1/Δ.

Why a few terms are enough, whatever the qualities. Conditioning on the first moment of a cycle,

    ψ'(i) = 1 − g(ψ(i) − ψ(i−b)),     w'(i) = 1 − (Δ+v)w(i) + v·w(i−b),

linear equations with a delay, whose solutions are sums of exponentials. In units of b, with m = i/b, κ = gb
and y_j the roots of y + κ(1 − e^{−y}) = 0 above the real axis (all have a negative real part),

    ψ(i)/b = m/(1+κ) + κ/(2(1+κ)²) + 2 Re Σ_j e^{y_j m}/(y_j(1+κ+y_j)),

and w likewise with e^{−ai} before the sum and y_j − ab in place of y_j in the denominator. Terms of the first
sum matter only where R_k is neither 0 nor 1 to rounding, some 18√m/(1+κ) of them, the others have closed
sums; those of the second fall like e^{−2π²j²m/κ²} for large κ. Where the one is long the other is short: up
to m = 12 + 0.3(1+κ)² the first is used, with 20 terms at most (most sources have 1 to 5), beyond it the
second, with 5 roots at most. So there is no limit to approach: a precision of 1e-15 has 10¹⁵ signals a cycle
and one exponential, within 1e-15 of a clock that signals do not move (a periodic crawl, since aψ(i) is then
ai·(1 + O(p))). Only what is below rounding is left out: recalls below 1e-30 are none, precisions below 1e-30
are that, and a threshold of more than 10¹⁵ signals does not see a single one.

Differences of nearly equal numbers are avoided: the stale time ψ − w is a sum of positive terms, as closed
sums, series or 24-point integrals, and V = (1 − e^{−ai})ψ − (ψ − w). Against sums of 60 digits lengths,
stale times and worths are right to 1e-13, relatively, for precisions from 1e-12 to 1 − 1e-12 and recalls from
0 to 1 − 1e-12 (a test).

All functions here measure time in units of 1/Δ. Thresholds are pairs (n, x), i = nb + x with 0 ≤ x < b: a
crawl is due at time s with k signals once s ≥ x + (n−k)b, a rule that stays exact where b is 10¹² or
unbounded (l = 1 or p = 1). A pass is compiled, or runs the same steps in Python where FRESHOPT_COMPILED=0.
Cost: compiled, 2 μs a source and price, 10-50 μs where recalls are beyond 0.999; in Python some 0.1 ms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from freshopt import signal_search
from freshopt.arrays import Array, read_only
from freshopt.compiled import share_out
from freshopt.signal_terms import LEAST

PIECE = 256  # sources: half a millisecond, which a thread is worth


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


def bonus(recall: Array, precision: Array) -> Array:
    """Return b = −ln(1−p)/(1−l) in units of 1/Δ: inf where a signal is certain, 0 where there are none.

    Examples
    --------
    >>> bonus(np.array([0.5, 0.5, 0.0]), np.array([0.5, 1.0, 0.5])).round(6)
    array([1.386294,      inf, 0.      ])
    """
    with np.errstate(divide="ignore"):
        return np.where(recall >= LEAST, -np.log1p(-np.maximum(precision, LEAST)) / (1.0 - recall), 0.0)


def split(threshold: Array, recall: Array, precision: Array) -> tuple[Array, Array]:
    """Return the (n, x) of thresholds i ≥ 0 in units of 1/Δ."""
    jump = bonus(recall, precision)
    jumps = (jump > 0.0) & np.isfinite(jump)
    number = np.floor(np.divide(threshold, jump, out=np.zeros(len(threshold)), where=jumps))
    return number, np.maximum(threshold - np.where(jumps, number * np.where(jumps, jump, 0.0), 0.0), 0.0)


def cycle(number: Array, wait: Array, recall: Array, precision: Array) -> Cycle:
    """Return the cycle of each source.

    Parameters
    ----------
    number, wait : ndarray, shape (n,)
        The threshold: n signals and a time x ≥ 0 more, not both 0.
    recall, precision : ndarray, shape (n,)
        0 ≤ l ≤ 1 and 0 < p ≤ 1.

    Examples
    --------
    Without signals a cycle is a period: ψ = x, and V is the index of binary freshness, P(2, x).

    >>> one = cycle(np.array([0.0]), np.array([2.0]), np.array([0.0]), np.array([1.0]))
    >>> [float(part[0].round(12)) for part in (one.length, one.worth)]
    [2.0, 0.59399415029]
    """
    found = Cycle(*(np.empty(len(number)) for _ in range(4)))
    _run("cycles", (number, wait, recall, precision), found)
    return found


def index(number: Array, wait: Array, recall: Array, precision: Array) -> Array:
    """Return V(i) at effective times (n, x) reached so far, x ≥ 0 without bound, 0 where both are 0.

    Examples
    --------
    >>> index(np.array([0.0, 3.0]), np.array([1.0, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 0.5])).round(6)
    array([0.264241, 0.6875  ])
    """
    worth = np.empty(len(number))
    _run("indices", (number, wait, recall, precision), (worth,))
    return worth


def rate_of_worth(worth: Array, recall: Array, precision: Array) -> Array:
    """Return 1/ψ(i) with V(i) = worth, for worth > 0; 0 from a worth of 1 on."""
    rate = np.empty(len(worth))
    _run("inverse", (worth, recall, precision), (rate,))
    return rate


def stale_and_worth(rate: Array, recall: Array, precision: Array) -> tuple[Array, Array]:
    """Return 1 − w/ψ and V at rates 1/ψ ≥ 0, which below l are mixed with none where p = 1."""
    stale, worth = np.empty(len(rate)), np.empty(len(rate))
    _run("evaluate", (rate, recall, precision), (stale, worth))
    return stale, worth


def threshold_of_length(length: Array, recall: Array, precision: Array) -> tuple[Array, Array]:
    """Return the (n, x) with ψ = length; (0, inf) where no cycle is as long (a precision of 1)."""
    number, wait = np.empty(len(length)), np.empty(len(length))
    _run("thresholds", (length, recall, precision), (number, wait))
    return number, wait


def _run(name: str, given: tuple[Array, ...], written: tuple[Array, ...]) -> None:
    """Run a pass over columns."""
    one = loops()[name]
    # All read-only, so that one pass is compiled and not one for each mixture.
    ready = [read_only(np.ascontiguousarray(column, dtype=np.float64)) for column in given]
    share_out(lambda begin, end: one(begin, end, *ready, *written), len(written[0]), PIECE)


def loops() -> Mapping[str, Callable[..., None]]:
    """Return the passes of `freshopt.signal_search` by name."""
    return _compiled() if os.environ.get("FRESHOPT_COMPILED", "1") != "0" else _PLAIN


_PLAIN: Mapping[str, Callable[..., None]] = {
    "inverse": signal_search.inverse,
    "evaluate": signal_search.evaluate,
    "thresholds": signal_search.thresholds,
    "cycles": signal_search.cycles,
    "indices": signal_search.indices,
}


@cache
def _compiled() -> Mapping[str, Callable[..., None]]:
    from freshopt.signal_loops import build  # noqa: PLC0415 - numba loads only if needed

    try:
        return build(cache=True)
    except RuntimeError:  # numba's word for: no folder to cache in can be written
        return build(cache=False)
