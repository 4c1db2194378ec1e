"""Mean harmonic cost of periodic attempts, as a quadrature of 20 nodes.

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

from freshopt.numerics.arrays import Array, read_only
from freshopt.numerics.special_functions import mean_stale_share

COUNT = 20
# The c above, the v from which on x is 1, and the chance of success from which on no pole is near 0.
FOLD, SETTLED, OFTEN = 6.0, 40.0, 0.75
# Where u is 0, so is the cost.
TINY = 1e-300
_points, _weights = np.polynomial.legendre.leggauss(COUNT)
NODES, WEIGHTS = read_only(0.5 * (_points + 1.0)), read_only(0.5 * _weights)


def mean_harmonic_attempts(u: Array, success: Array) -> Array:
    """Return the mean harmonic cost of attempts at u = Δ/ρ.

    Examples
    --------
    >>> mean_harmonic_attempts(np.array([1.0, 1.0]), np.array([1.0, 0.5])).round(8)
    array([0.42872016, 0.92775822])
    """
    rest = 1.0 - success
    inner = np.maximum(np.minimum(u, SETTLED), TINY)
    scale = np.minimum(inner, FOLD)
    fold = 1.0 - scale / inner
    rare = success < OFTEN
    pole = np.where(rare, -np.log1p(-np.minimum(success, OFTEN)), 1.0)
    residue = np.where(rare, success / pole * (success / pole) / np.where(rare, rest, 1.0), 0.0)
    found = residue * np.log1p(inner / pole)
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        inverse = 1.0 / (1.0 - fold * node)
        v = scale * node * inverse
        failed = -rest * np.expm1(-v)
        stale = (success * mean_stale_share(v) + failed) / (success + failed)
        found += weight * scale * inverse * inverse * (stale / v - residue / (v + pole))
    return np.where(u > SETTLED, found + np.log(u / inner) - success * (1.0 / inner - 1.0 / u), found)
