"""The gap F(ρ) − d(y) of planted programs in 60 digits, at rates and multipliers as they are stored.

Best responses by bisection. Nothing here imports freshopt.
"""

import mpmath
import numpy as np

from tests.ground_truth.row_truth import Floats, Planted
from tests.ground_truth.source_gaps import CELLS, ExactCell, Number

DIGITS, HALVINGS = 60, 220
# Rates between which best responses are looked for where no bound is nearer, in logarithms.
WIDEST = 460

OWN = {**CELLS, "rate": ExactCell(lambda r, _: r, lambda _, __: mpmath.mpf(-1))}


def exact_gap(p: Planted, upper: Floats, rates: Floats, y: Floats) -> Number:
    """Return F(ρ) − d(y) at rates > 0, best responses within lower bounds and these upper ones."""
    with mpmath.workdps(DIGITS):
        number = np.vectorize(mpmath.mpf, otypes=[object])
        total = mpmath.mpf(0)
        for k, rate in enumerate(number(rates)):
            change, parts = mpmath.mpf(p.d[k]), [(p.objective, mpmath.mpf(p.w[k]))]
            for kind, matrix in zip(p.types, p.matrices, strict=True):
                column = number(matrix[:, k])
                parts.append((kind, mpmath.fdot(number(y), column)))
                total -= mpmath.fdot(
                    number(y), [a * OWN[kind].cost(rate, change) if a else mpmath.mpf(0) for a in column]
                )
            priced = [(kind, weight) for kind, weight in parts if weight]
            best = _best_response(priced, change, (p.lower[k], upper[k]))
            for kind, weight in priced:
                total += weight * (OWN[kind].cost(rate, change) - OWN[kind].cost(best, change))
        return total + mpmath.fdot(number(y), number(p.limits))


def _best_response(parts: list[tuple[str, Number]], change: Number, bounds: tuple[float, float]) -> Number:
    low = mpmath.log(bounds[0]) if bounds[0] > 0.0 else mpmath.mpf(-WIDEST)
    high = mpmath.log(bounds[1]) if np.isfinite(bounds[1]) else mpmath.mpf(WIDEST)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        rate = mpmath.exp(middle)
        falling = mpmath.fsum(weight * OWN[kind].marginal(rate, change) for kind, weight in parts) > 0
        low, high = (middle, high) if falling else (low, middle)
    return mpmath.exp(high)
