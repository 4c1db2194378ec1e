"""Mean harmonic cost of periodic attempts, one source.

`freshopt.numerics.attempt_means` derives it.
"""

from __future__ import annotations

from freshopt.compiled.cost_functions import log_one_plus
from freshopt.compiled.proof_tables import fallen
from freshopt.numerics.attempt_means import COUNT, FOLD, NODES, OFTEN, SETTLED, TINY, WEIGHTS
from freshopt.numerics.vector_math import fast_log


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
    rest = 1.0 - inside
    # What rounding takes from 1 − s is added to the logarithm to first order.
    pole = (inside - (1.0 - rest)) / rest - fast_log(rest)
    residue = inside / pole * (inside / pole) / rest
    return pole if rare else 1.0, residue if rare else 0.0
