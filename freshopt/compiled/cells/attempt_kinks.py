"""Periodic attempts of one source whose cost has kinks.

Parameters are those of `freshopt.compiled.cells.kink_proofs` (the level, then each kink's ρ_j and the gain
g_j below it); the last parameter is the chance of success s, and q = 1 − s. A copy is refreshed after N
attempts, N geometric, so that with the m_j = ⌊ρ/ρ_j⌋ attempts of a gap that are too early for the kink

    J(ρ) = level + Σ_j (g_j − g_{j+1})·q^{m_j}·((1 + m_j)ρ_j − ρ + q(ρ − m_jρ_j)),
    −J'(ρ) = s·Σ_j (g_j − g_{j+1})·q^{m_j}.

The marginal value falls in steps, at each kink's multiples. Next to one, a rate counts as below it: cost and
marginal value are then never less than the true ones, which beyond a step are 1/q times smaller.

**Best response.** The least ρ at which the marginal value is at most the price: a multiple of a kink. With
G_j = g_j − g_{j+1} and W = sw/λ no term WG_jq^m may exceed 1 there, so that ρ is no less than any
ρ_j·log(WG_j)/−log q; and where each of K is at most 1/K, it is at most the price. Between the two the middle
rate is tried, and the bracket ends at the next multiple on the side where the response is: the last multiple
before the middle, or the first one beyond.

**Gap.** Prices a little above and below the one paid, as far as rounding tells them apart, have the best
responses between which the best one is. Up to it the marginal value is at most that at the rate, and down to
it at least that just before the rate: what a source adds to a gap is at most the larger of both differences
times the distance, and the price times what the rate may be off a multiple.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.proof_functions import HALF_ULP, ROUNDING, TINY, Excess, ProofCell, Values
from freshopt.numerics.vector_math import fast_exp, fast_log

# Terms with q^m below e^{−DEPTH} are left out, so that a negligible cost is none.
DEPTH = 650.0
# Rates beyond are taken for it.
MOST = 1e300
# A multiple is at most this much farther than its product's rounding, and just before a rate is this little.
ABOVE, NEAR = 1.0 + 2.0**-51, 2.0**-49
# What is left for rounding of a logarithm, relatively to both sides and at 1.
SHORT, LONG, SLACK = 1.0 - 2.0**-40, 1.0 + 2.0**-40, 2.0**-44
# What rounding takes from an exponent, relatively.
EXPONENT = 12.0 * HALF_ULP


def failing_log(success: float) -> float:
    """Return log(1 − s), or next to −∞.

    Examples
    --------
    >>> round(float(failing_log(0.5)), 12), float(failing_log(1e-18))
    (-0.69314718056, -1e-18)
    """
    rest = max(1.0 - success, TINY)
    # What rounding takes from 1 − s is added to first order.
    return fast_log(rest) + ((1.0 - rest) - success if rest > TINY else 0.0) / rest


def multiple(count: float, place: float) -> float:
    """Return a rate at which so many attempts are early, never less.

    A kink and its double are no products that round.
    """
    return count * place * (ABOVE if count > 2.0 else 1.0)


def early(rate: float, place: float, log: float) -> tuple[float, float]:
    """Return m = ⌊ρ/ρ_j⌋ and q^m, of a kink at 0 nothing."""
    count = np.floor(min(rate / max(place, TINY), MOST))
    # A compiled quotient may be that by a reciprocal: products decide.
    count = count + 1.0 if multiple(count + 1.0, place) <= rate else count
    count = count - 1.0 if multiple(count, place) > rate else count
    missed = count * log
    return count, fast_exp(missed) if missed > -DEPTH and place > 0.0 else 0.0


def unmet(rate: float, log: float, kinks: tuple[float, ...]) -> float:
    """Return Σ (g_j − g_{j+1})·q^m, the marginal value over s.

    Examples
    --------
    >>> [round(float(unmet(rate, math.log(0.5), (2.0, 3.0, 0.5))), 12) for rate in (1.0, 2.0, 5.0)]
    [3.0, 1.5, 0.75]
    """
    found, beyond = 0.0, 0.0
    for j in range(len(kinks) - 3, -1, -2):
        _, left = early(rate, kinks[j], log)
        found += (kinks[j + 1] - beyond) * left
        beyond = kinks[j + 1]
    return found


def bracket(worth: float, _level: float, *kinks: float) -> tuple[float, float, float]:
    """Return rates between which the best response is, and log q.

    The second is a multiple of a kink.

    Examples
    --------
    >>> [round(float(x), 6) for x in bracket(2.0, 0.0, 2.0, 3.0, 0.5)]
    [3.169925, 8.0, -0.693147]
    """
    log, worth = failing_log(kinks[len(kinks) - 1]), min(worth * kinks[len(kinks) - 1], MOST)
    low, high, beyond = 0.0, 0.0, 0.0
    for j in range(len(kinks) - 3, -1, -2):
        gain = fast_log(min(max(worth * (kinks[j + 1] - beyond), TINY), MOST))
        least = min(max(gain * SHORT - SLACK, 0.0), DEPTH)
        most = min(max((gain + fast_log(0.5 * len(kinks))) * LONG + SLACK, 0.0), DEPTH * LONG)
        low = max(low, min(least / -log, MOST) * kinks[j])
        high = max(high, min(most / -log + 2.0, MOST) * kinks[j])
        beyond = kinks[j + 1]
    high, last = min(high, MOST), 0.0
    for j in range(len(kinks) - 3, -1, -2):
        last = max(last, multiple(early(high, kinks[j], log)[0], kinks[j]))
    return min(low, last), last, log


def halved(
    low: float, high: float, log: float, worth: float, _level: float, *kinks: float
) -> tuple[float, float]:
    """Return half of a bracket, or none that is left.

    Examples
    --------
    >>> [float(x) for x in halved(3.17, 6.0, math.log(0.5), 2.0, 0.0, 2.0, 3.0, 0.5)]
    [3.17, 4.0]
    """
    worth = min(worth * kinks[len(kinks) - 1], MOST)
    middle = 0.5 * (low + high)
    middle = middle if middle < high else low
    found, beyond, before, after = 0.0, 0.0, 0.0, high
    for j in range(len(kinks) - 3, -1, -2):
        count, left = early(middle, kinks[j], log)
        found += (kinks[j + 1] - beyond) * left
        before = max(before, multiple(count, kinks[j]))
        after = min(after, multiple(count + 1.0, kinks[j]) if kinks[j] > 0.0 else high)
        beyond = kinks[j + 1]
    more_pays = worth * found > 1.0
    return max(low, after) if more_pays else low, high if more_pays else before


def halvings(low: float, high: float, *kinks: float) -> int:
    """Return how often a bracket is halved at most.

    When it is shorter than the first kink's rate it has one multiple of each kink at most.

    Examples
    --------
    >>> halvings(3.17, 6.0, 2.0, 3.0, 0.5)
    4
    """
    first = high
    for j in range(len(kinks) - 3, -1, -2):
        first = min(first, kinks[j] if kinks[j] > 0.0 else high)
    return math.frexp((high - low) / max(first, TINY))[1] + len(kinks) // 2 + 2


def paid_attempts(high: float, worth: float, _level: float, *kinks: float) -> float:
    """Return where a bracket ended, or 0 where nothing pays."""
    every = 0.0
    for j in range(len(kinks) - 3, -1, -2):
        every = kinks[j + 1] if kinks[j] > 0.0 else every
    return high if min(worth * kinks[len(kinks) - 1], MOST) * every > 1.0 else 0.0


def attempt_kinks(worth: float, level: float, *kinks: float) -> float:
    """Return the least rate with a marginal value of at most λ/w.

    Examples
    --------
    >>> [round(float(attempt_kinks(w, 0.0, 2.0, 3.0, 0.5)), 12) for w in (0.5, 1.0, 3.0)]
    [0.0, 2.0, 6.0]
    """
    low, high, log = bracket(worth, level, *kinks)
    for _ in range(halvings(low, high, *kinks)):
        low, high = halved(low, high, log, worth, level, *kinks)
    return paid_attempts(high, worth, level, *kinks)


def kinked_attempts(rate: float, w: float, level: float, *kinks: float) -> Values:
    """Return what is not gained, and s·w·Σ (g_j − g_{j+1})·q^m.

    Examples
    --------
    >>> [float(x) for x in kinked_attempts(1.0, 2.0, 0.25, 2.0, 3.0, 1.0)[:3]]
    [3.25, 0.0, 6.0]
    """
    success = kinks[len(kinks) - 1]
    log = failing_log(success)
    cost, found, deep, beyond = 0.0, 0.0, 0.0, 0.0
    for j in range(len(kinks) - 3, -1, -2):
        count, left = early(rate, kinks[j], log)
        gain = (kinks[j + 1] - beyond) * left
        inside = min(max(rate - count * kinks[j], 0.0), kinks[j])
        cost += gain * ((kinks[j] - inside) + (1.0 - success) * inside)
        found += gain
        deep += gain * (count * -log if left > 0.0 else 0.0)
        beyond = kinks[j + 1]
    return level + cost, 0.0, (w * success) * found, ROUNDING + EXPONENT * (deep / max(found, TINY))


def share_of_attempts(rate: float, w: float, excess: Excess, level: float, *kinks: float) -> float:
    """Return the source's share of a gap over `off`.

    That is the largest |marginal value − price|, by which `proved` multiplies it.
    """
    off, paid, _, _ = excess
    log, scale = failing_log(kinks[len(kinks) - 1]), w * kinks[len(kinks) - 1]
    # Where the marginal value is the price, the mean exponent is at most the log of all gains over it.
    every = min(max(scale * unmet(0.0, log, kinks) / paid, 1.0), MOST)
    apart = 2.0 * (ROUNDING + EXPONENT * min(fast_log(every), DEPTH))
    least, most = paid * (1.0 - apart), paid * (1.0 + apart)
    here, before = scale * unmet(rate, log, kinks), scale * unmet(rate * (1.0 - NEAR), log, kinks)
    up, down = max(here * (1.0 + apart) - least, 0.0), max(most - before * (1.0 - apart), 0.0)
    # The best response itself, between the float before it and all that is beyond.
    if up + down == 0.0 and scale * unmet(rate * (1.0 - HALF_ULP), log, kinks) > most * (1.0 + apart):
        return 0.0
    low = attempt_kinks(w / most, level, *kinks)
    high = low if scale * unmet(low, log, kinks) <= least else attempt_kinks(w / least, level, *kinks)
    up, down = up * max(high - rate, 0.0), down * max(rate - low, 0.0)
    # The rate may be next to a multiple, of which it counts as below.
    beside = most * (rate * NEAR) if low < rate else 0.0
    return (max(up, down) + beside) / off


ATTEMPT_KINKS = ProofCell(kinked_attempts, share_of_attempts)
