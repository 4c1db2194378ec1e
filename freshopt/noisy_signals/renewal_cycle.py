"""Renewal cycle between two crawls of a signalled source.

Its change signals are noisy.

Of its changes (rate Δ) a share l, the recall, is announced; of the announcements a share p, the precision, is
true. So signals come at the rate g = lΔ/p, false ones at v = g − lΔ, and changes without a signal at a =
(1−l)Δ. If n signals came within s of the last crawl the copy is fresh with probability e^{−as}(v/g)^n =
e^{−a(s+bn)}, b = ln(g/v)/a: a signal counts as a time b without one. The optimal policy crawls when that
effective time s + bn reaches a threshold i. Its cycle has the length ψ(i) and is fresh for w(i):

    ψ(i) = Σ_k R_k(g(i−kb))/g,   w(i) = Σ_k v^k/(Δ+v)^{k+1} R_k((Δ+v)(i−kb)),   R_k(x) = P(Poisson(x) > k),

k = 0, ..., ⌈i/b⌉−1. At a rate 1/ψ(i) freshness is w/ψ, and the marginal value of a crawl rate is
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
ai·(1 + O(p))). Only what is below rounding is neglected: recalls below 1e-30 count as 0, precisions below
1e-30 as 1e-30, and to a threshold of more than 10¹⁵ signals a single one is negligible.

Differences of nearly equal numbers are avoided: the stale time ψ − w is a sum of positive terms, as closed
sums, series or 24-point integrals, and V = (1 − e^{−ai})ψ − (ψ − w). Against sums of 60 digits lengths, stale
times and marginal values are right to 1e-13, relatively, for precisions from 1e-12 to 1 − 1e-12 and recalls
from 0 to 1 − 1e-12 (a test).

All functions here measure time in units of 1/Δ. Thresholds are pairs (n, x), i = nb + x with 0 ≤ x < b: a
crawl is due at time s with k signals once s ≥ x + (n−k)b, a rule that stays exact where b is 10¹² or
unbounded (l = 1 or p = 1). A pass is compiled, or runs the same steps in Python where FRESHOPT_COMPILED=0.
Cost: compiled, 2 μs a source and price, 10-50 μs where recalls are beyond 0.999; in Python some 0.1 ms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.compiled.backend import plain_or_compiled
from freshopt.compiled.columns import run_chunks_in_threads
from freshopt.noisy_signals import cycle_terms, signal_rates, threshold_search
from freshopt.noisy_signals.signal_rates import LEAST
from freshopt.numerics.arrays import Array, IntArray, read_only

# Sources: half a millisecond, below which a thread costs more than it saves.
PIECE = 256
loops = plain_or_compiled(
    (
        threshold_search.inverse,
        threshold_search.evaluate,
        threshold_search.thresholds,
        threshold_search.indices,
    ),
    (signal_rates, cycle_terms, threshold_search),
)


def bonus(recall: Array, precision: Array) -> Array:
    """Return the bonus b = −ln(1−p)/(1−l) of a signal.

    In units of 1/Δ: inf where a signal is certain, 0 where there are none.

    Examples
    --------
    >>> bonus(np.array([0.5, 0.5, 0.0]), np.array([0.5, 1.0, 0.5])).round(6)
    array([1.386294,      inf, 0.      ])
    """
    with np.errstate(divide="ignore"):
        return np.where(recall >= LEAST, -np.log1p(-np.maximum(precision, LEAST)) / (1.0 - recall), 0.0)


def index(number: Array, wait: Array, recall: Array, precision: Array) -> Array:
    """Return the index V(i) at effective times (n, x).

    Those reached so far, x ≥ 0 without bound; 0 where both are 0.

    Examples
    --------
    >>> index(np.array([0.0, 3.0]), np.array([1.0, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 0.5])).round(6)
    array([0.264241, 0.6875  ])
    """
    (value,) = _columns("indices", number, wait, recall, precision)
    return value


def rate_at_index(value: Array, recall: Array, precision: Array) -> Array:
    """Return the rate 1/ψ(i) with index V(i) = value.

    For value > 0; 0 from a value of 1 on.
    """
    (rate,) = _columns("inverse", value, recall, precision)
    return rate


def stale_and_index(rate: Array, recall: Array, precision: Array) -> tuple[Array, Array]:
    """Return staleness 1 − w/ψ and V at given rates.

    Rates are 1/ψ ≥ 0; those below l are mixed with none where p = 1.
    """
    stale, value = _columns("evaluate", rate, recall, precision, many=2)
    return stale, value


def threshold_of_length(length: Array, recall: Array, precision: Array) -> tuple[Array, Array]:
    """Return the (n, x) with ψ = length.

    (0, inf) where no cycle is as long (a precision of 1).
    """
    number, wait = _columns("thresholds", length, recall, precision, many=2)
    return number, wait


def _columns(name: str, *given: Array, many: int = 1) -> tuple[Array, ...]:
    """Return the columns that a pass over columns writes."""
    found = tuple(np.empty(len(given[0])) for _ in range(many))
    run_pass(loops()[name], tuple(map(ready, given)), found, PIECE)
    return found


def run_pass(
    one: Callable[..., None], given: tuple[object, ...], written: tuple[Array | IntArray, ...], piece: int
) -> None:
    """Run a pass, in threads that take `piece` sources each at least."""
    run_chunks_in_threads(lambda begin, end: one(begin, end, *given, *written), len(written[0]), piece)


def ready(column: Array) -> Array:
    """Return a column as passes take it.

    All are read-only, so that one pass is compiled and not one for each mixture.
    """
    return read_only(np.ascontiguousarray(column, dtype=np.float64))
