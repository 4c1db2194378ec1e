"""Periodic attempts of one source whose cost has kinks.

Parameters are those of `freshopt.compiled.cells.kink_proofs` (the level, then each kink's ρ_j and the gain
g_j below it); the last parameter is the chance of success s, and q = 1 − s. A copy is refreshed after N
attempts, N geometric, so that with the m_j = ⌊ρ/ρ_j⌋ attempts of a gap that are too early for the kink

    J(ρ) = level + Σ_j (g_j − g_{j+1})·q^{m_j}·((1 + m_j)ρ_j − ρ + q(ρ − m_jρ_j)),
    −J'(ρ) = s·Σ_j (g_j − g_{j+1})·q^{m_j}.

The marginal value falls in steps, at each kink's multiples. Next to one, a rate counts as below it: cost and
marginal value are then never less than the true ones, which beyond a step are 1/q times smaller.

**Best response.** The least ρ at which the marginal value is at most the price. It is no less than the
multiple of the last kink up to which that kink's gain alone exceeds the price, and no more than the one from
which g_1·q^m does not. Between them the multiples of each kink are searched by bisection, those of the last
one first: the others have few between two of its.

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


def halvings(count: float) -> int:
    """Return how often so many are halved until one is left.

    Examples
    --------
    >>> [halvings(count) for count in (1.0, 2.0, 5.0)]
    [0, 1, 3]
    """
    return math.frexp(count - 1.0)[1]


def attempt_kinks(worth: float, _level: float, *kinks: float) -> float:
    """Return the least rate with a marginal value of at most λ/w.

    Examples
    --------
    >>> [round(float(attempt_kinks(w, 0.0, 2.0, 3.0, 0.5)), 12) for w in (0.5, 1.0, 3.0)]
    [0.0, 2.0, 6.0]
    """
    log = failing_log(kinks[len(kinks) - 1])
    worth = min(worth * kinks[len(kinks) - 1], MOST)
    last, every = max(kinks[len(kinks) - 3], TINY), 0.0
    for j in range(len(kinks) - 3, -1, -2):
        every = kinks[j + 1] if kinks[j] > 0.0 else every
    # The last gain alone still pays before one multiple; all gains together do not after another.
    pays = min(fast_log(min(max(worth * kinks[len(kinks) - 2], TINY), MOST)), DEPTH) / -log
    pay = min(fast_log(min(max(worth * every, 1.0), MOST)), DEPTH) / -log
    high = min((np.floor(pay) + 2.0) * last, MOST)
    low = min(max(np.floor(pays) - 1.0, 0.0) * last, high)
    for j in range(len(kinks) - 3, -1, -2):
        place = kinks[j] if kinks[j] > 0.0 else last
        less, more = early(low, place, log)[0], early(high, place, log)[0] + 1.0
        for _ in range(halvings(more - less)):
            middle = np.floor(0.5 * (less + more))
            more_pays = worth * unmet(multiple(middle, place), log, kinks) > 1.0
            less, more = middle if more_pays else less, more if more_pays else middle
        low, high = max(low, multiple(less, place)), min(high, multiple(more, place))
    return high if worth * every > 1.0 else 0.0


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
    low = attempt_kinks(w / most, level, *kinks)
    high = low if scale * unmet(low, log, kinks) <= least else attempt_kinks(w / least, level, *kinks)
    here, before = scale * unmet(rate, log, kinks), scale * unmet(rate * (1.0 - NEAR), log, kinks)
    up = max(here * (1.0 + apart) - least, 0.0) * max(high - rate, 0.0)
    down = max(most - before * (1.0 - apart), 0.0) * max(rate - low, 0.0)
    # The rate may be next to a multiple, of which it counts as below.
    beside = most * (rate * NEAR) if low < rate else 0.0
    return (max(up, down) + beside) / off


ATTEMPT_KINKS = ProofCell(kinked_attempts, share_of_attempts)
