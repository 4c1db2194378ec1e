"""Mean harmonic cost of periodic attempts, one source: 20 nodes.

With u = Δ/ρ and the stale share B(v) of attempts that succeed with chance s = 1 − q
(`freshopt.problems.binary_freshness`) the marginal value of harmonic staleness is B(u)/ρ, so that its cost is

    J = ∫₀ᵘ B(v)/v dv,    B = (s(1 − x/v) + qx)/(s + qx),    x = 1 − e^{−v}.

The integrand has simple poles at v = −λ + 2πik, λ = −log q. For rare successes the one of k = 0 is near 0:
its residue ω = s²/(qλ²) is taken from the integrand, and ω·log(1 + u/λ) is added. The others keep a distance
from v > 0, and the larger v, the more: with v = cy/(1 − by) for y in [0, 1], c = 6, all lie outside an
ellipse around [0, 1] whose half-axes add up to 1.15 at least, so that Gauss's rule errs by 2.3^−40. Beyond v
= 40, x is 1, and B is 1 − s/v. The largest relative error is 6e-15, against sums over the number of attempts.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.cells.attempt_kinks import failing_log
from freshopt.compiled.cost_functions import log_one_plus
from freshopt.compiled.proof_tables import fallen
from freshopt.numerics.arrays import read_only
from freshopt.numerics.vector_math import fast_log

COUNT = 20
# The c above, the v from which on x is 1, and the chance of success from which on no pole is near 0.
FOLD, SETTLED, OFTEN = 6.0, 40.0, 0.75
# Where u is 0, so is the cost.
TINY = 1e-300
_points, _weights = np.polynomial.legendre.leggauss(COUNT)
NODES, WEIGHTS = read_only(0.5 * (_points + 1.0)), read_only(0.5 * _weights)


def mean_harmonic_attempts(u: float, success: float) -> float:
    """Return the mean harmonic cost at u = Δ/ρ of attempts.

    Examples
    --------
    >>> round(float(mean_harmonic_attempts(1.0, 0.5)), 9)
    0.927758221
    """
    inner = min(max(u, TINY), SETTLED)
    scale = inner if inner < FOLD else FOLD
    fold = 1.0 - scale / inner
    pole, residue = pole_and_residue(success)
    rest, found = 1.0 - success, 0.0
    for k in range(COUNT):
        inverse = 1.0 / (1.0 - fold * NODES[k])
        v = scale * NODES[k] * inverse
        x, _, mean, _ = fallen(v)
        failed = rest * x
        stale = (success * mean + failed) / (success + failed)
        found += WEIGHTS[k] * (scale * inverse * inverse) * (stale / v - residue / (v + pole))
    beyond = fast_log(u / inner) - success * (1.0 / inner - 1.0 / u) if u > SETTLED else 0.0
    return residue * log_one_plus(inner / pole) + found + beyond


def pole_and_residue(success: float) -> tuple[float, float]:
    """Return the pole near 0 and its residue.

    They are λ = −log(1 − s) and ω, or 1 and 0 where there is none.
    """
    rare = success < OFTEN
    inside = success if rare else OFTEN
    pole = -failing_log(inside)
    residue = inside / pole * (inside / pole) / (1.0 - inside)
    return pole if rare else 1.0, residue if rare else 0.0
