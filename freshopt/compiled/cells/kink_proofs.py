"""Cost, marginal value and gap of one source whose cost has kinks.

Parameters are the cost where no refresh gains more, and ρ_1, g_1, ρ_2, g_2, ...: the marginal value is g_1
below ρ_1, then g_2 below ρ_2, and 0 beyond the last. Kinks do not fall and gains do not rise, so that

    J(ρ) = level + Σ_j (g_j − g_{j+1})·max(0, ρ_j − ρ),

of which nothing cancels; a rate is beside a kink or on it by comparison, without rounding.

**Gap.** Between ρ and a best response the marginal value is that of whole stretches: what a source adds to a
gap is Σ |w·g_j − ν|·(length of stretch j) over those that it should have bought, or should not have. As g_j
nears ν along the way, this is never more than the |m − ν| at ρ times the distance. On a kink that is a best
response it is 0, whatever lies beyond it.
"""

from __future__ import annotations

from freshopt.compiled.proof_functions import HALF_ULP, Excess, ProofCell, Values

# A gain times an importance, and a price times a cost, are off by half an ulp each.
APART = 4.0 * HALF_ULP


def kinked(rate: float, w: float, level: float, *kinks: float) -> Values:
    """Return what is not gained, and w·g beyond the rate.

    Examples
    --------
    >>> [float(x) for x in kinked(0.5, 2.0, 0.25, 0.5, 3.0, 2.0, 1.5)[:3]]
    [2.5, 0.0, 3.0]
    """
    cost, gain, beyond = 0.0, 0.0, 0.0
    for j in range(len(kinks) - 2, -1, -2):
        cost += (kinks[j + 1] - beyond) * max(kinks[j] - rate, 0.0)
        beyond = kinks[j + 1]
        gain = beyond if rate < kinks[j] else gain
    return level + cost, 0.0, w * gain, APART


def share_per_off(rate: float, w: float, excess: Excess, _level: float, *kinks: float) -> float:
    """Return the source's share of a gap per unit of error."""
    off, paid, _, _ = excess
    least, most = paid * (1.0 - APART), paid * (1.0 + APART)
    place = up = down = 0.0
    for j in range(0, len(kinks), 2):
        gain = w * kinks[j + 1]
        up += max(gain - least, 0.0) * max(kinks[j] - max(place, rate), 0.0)
        down += max(most - gain, 0.0) * max(min(kinks[j], rate) - place, 0.0)
        place = kinks[j]
    down += most * max(rate - place, 0.0)
    return max(up, down) / off


KINKS = ProofCell(kinked, share_per_off)
