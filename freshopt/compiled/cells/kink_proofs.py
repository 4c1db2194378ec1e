"""Cost, marginal value and gap of one source whose cost has kinks.

Parameters are the cost where no refresh gains more, and ρ_1, g_1, ρ_2, g_2, ...: the marginal value is g_1
below ρ_1, then g_2 below ρ_2, and 0 beyond the last. Kinks do not fall and gains do not rise, so that

    J(ρ) = level + Σ_j (g_j − g_{j+1})·max(0, ρ_j − ρ),

of which nothing cancels; a rate is beside a kink or on it by comparison, without rounding.

**Gap.** Between ρ and a best response the marginal value is that of whole stretches: what a source adds to a
gap is Σ |w·g_j − ν|·(length of stretch j) over those that it should have bought, or should not have. As g_j
nears ν along the way, this is never more than the |m − ν| at ρ times the distance. On a kink that is a best
response it is 0, whatever lies beyond it.

Kinks of refreshes on request are quotients (`freshopt.problems.piecewise_linear_cost`). They are rounded up,
so that next to one a rate counts as below it: cost and marginal value are never less than the true ones, and
stretches that should not have been bought may begin a little before.
"""

from __future__ import annotations

from freshopt.compiled.proof_functions import HALF_ULP, Excess, ProofCell, Values

# A gain of requests, a quotient and a sum, times an importance, and a price times a cost: half an ulp each.
APART = 6.0 * HALF_ULP
# A kink of requests is rounded by five operations, once more by this factor, and then is above the exact one
# by less than another.
ABOVE, BELOW = 1.0 + 8.0 * HALF_ULP, 1.0 - 16.0 * HALF_ULP


def kinked(rate: float, w: float, level: float, *kinks: float) -> Values:
    """Return what is not gained, and w·g beyond the rate.

    Examples
    --------
    >>> [float(x) for x in kinked(0.5, 2.0, 0.25, 0.5, 3.0, 2.0, 1.5)[:3]]
    [2.5, 0.0, 3.0]
    """
    cost, gain, beyond, apart = 0.0, 0.0, 0.0, APART
    for j in range(len(kinks) - 2, -1, -2):
        cost += (kinks[j + 1] - beyond) * max(kinks[j] - rate, 0.0)
        beyond = kinks[j + 1]
        gain = beyond if rate < kinks[j] else gain
        # Next to a kink that is rounded up it may be less, so that best responses may be on either side.
        apart = 1.0 if kinks[j] * BELOW <= rate < kinks[j] else apart
    return level + cost, 0.0, w * gain, apart


def share_per_off(rate: float, w: float, excess: Excess, _level: float, *kinks: float) -> float:
    """Return the source's share of a gap per unit of error."""
    return stretches(rate, w, excess, kinks, 1.0)


def share_beside(rate: float, w: float, excess: Excess, _level: float, *kinks: float) -> float:
    """Return the same where kinks are rounded up."""
    return stretches(rate, w, excess, kinks, BELOW)


def stretches(rate: float, w: float, excess: Excess, kinks: tuple[float, ...], least_place: float) -> float:
    """Return the share per unit of error of kinks within a factor."""
    off, paid, _, _ = excess
    least, most = paid * (1.0 - APART), paid * (1.0 + APART)
    place = up = down = 0.0
    for j in range(0, len(kinks), 2):
        gain = w * kinks[j + 1]
        up += max(gain - least, 0.0) * max(kinks[j] - max(place, rate), 0.0)
        down += max(most - gain, 0.0) * max(min(kinks[j] * least_place, rate) - place * least_place, 0.0)
        place = kinks[j]
    down += most * max(rate - place * least_place, 0.0)
    return max(up, down) / off


KINKS = ProofCell(kinked, share_per_off)
REQUEST_KINKS = ProofCell(kinked, share_beside)
