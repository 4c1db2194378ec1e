"""Well-conditioned cone forms of the cost curves.

The periodic cells are made of x·e^{−t/x}, an exponential cone. Where t is small the cone subtracts nearly
equal numbers, and where it is large it holds numbers far below a solver's tolerance; both ends have simpler
forms that are exact to more digits than a solver delivers. Here y is a relative rate, near 1 at the optimum,
and a total may miss a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from freshopt.cvx import Expression, cp
from freshopt.modelling.objective import ConeForm
from freshopt.numerics.arrays import Array, IntArray

# Below this t, 1−(1−e^{−t})/t loses digits in a cone; t/(2+2t/3) is off by t²/36 < 7e-5 of it.
SHORT = 0.05
# Above this t, e^{−t} is below 1e-13.
LONG = 30.0
# Decays below this are taken together; their slope is off by (y − 1)²·SLOW²/4 or so.
SLOW = 0.1
# Shares of the slope below this are left out.
RARE = 1e-9


def by_size(u: Array, *forms: tuple[float, Callable[[IntArray], Expression]]) -> Expression:
    """Return the sum of forms, each on its range of u.

    A form covers the sources whose u lies below its bound and not below an earlier one.

    Parameters
    ----------
    u : ndarray, shape (n,)
    forms : (bound, form)
        ``form(indices)`` returns a scalar expression; bounds ascend, the last is inf.
    """
    parts, low = [], -np.inf
    for high, form in forms:
        chosen = np.flatnonzero((u >= low) & (u < high))
        if len(chosen):
            parts.append(form(chosen))
        low = high
    return sum(parts[1:], parts[0])


def stale_total(w: Array, t: Array, y: Expression) -> ConeForm:
    """Return the cone form of total periodic staleness.

    It is Σ w·(1 − (1−e^{−t/y})·y/t) up to a constant, and its cones, for y near 1.
    A rational form for small t, the limit 1 − y/t for large t, an exponential cone between.
    """
    cones: list[Expression] = []

    def middle(k: IntArray) -> Expression:
        lost, cone = decayed_time(y[k], t[k])
        cones.append(cone)
        return (w[k] / t[k]) @ (lost - y[k])

    cost = by_size(
        t,
        (SHORT, lambda k: (w[k] * t[k] / 2.0) @ cp.inv_pos(y[k] + t[k] / 3.0) - float(np.sum(w[k]))),
        (LONG, middle),
        (np.inf, lambda k: -(w[k] / t[k]) @ y[k]),
    )
    return cost, cones


def squared_over(y: Expression, u: Array) -> ConeForm:
    """Return s ≥ y²/(1 + y/u) and its second-order cones.

    For the sources with u ≥ 1; s = 0 for the others.
    """
    lost = cp.Variable(len(u), nonneg=True)
    k = np.flatnonzero(u >= 1.0)
    if not len(k):
        return lost, [lost == 0.0]
    rest = np.flatnonzero(u < 1.0)
    cone = _above_square(lost[k], y[k], 1.0 / u[k])
    return lost, [cone, *([lost[rest] == 0.0] if len(rest) else [])]


def bent_square(x: Expression, bend: Array) -> tuple[Expression, Expression]:
    """Return (s, cone) with s ≥ x²/(1 + bend·x) elementwise.

    x may have either sign.
    """
    s = cp.Variable(len(bend), nonneg=True)
    return s, _above_square(s, x, bend)


def _above_square(s: Expression, x: Expression, bend: Array) -> Expression:
    """Return the second-order cone of s·(1 + bend·x) ≥ x²."""
    base = 1.0 + cp.multiply(bend, x)
    return cp.SOC(s + base, cp.vstack([2.0 * x, s - base]), axis=0)


def falling_total(
    y: Expression,
    slope: Array,
    mixture: tuple[Array, Array, Array],
    path: Callable[[IntArray], Expression],
) -> ConeForm:
    """Return the cone form of costs with exponentially decaying slopes.

    It is Σ_k slope_k·f_k(y_k) up to a constant, and its cones, where −f_k' is a mixture of decays.

    −f'(y) = Σ_j share_j·e^{−decay_j·ℓ(y)}·ℓ'(y), for a concave ℓ with ℓ(1) = 0 and ℓ'(1) = 1. An exponential
    that hardly decays cancels against its constant; such ones share the form −f' = (1+h)²/(1+hy)² ·(sum of
    shares), which a second-order cone holds, with h = b/(2−b), b the mean of their bends.

    Parameters
    ----------
    y : cvxpy expression, shape (n,)
    slope : ndarray, shape (n,)
        −dJ/dy at y = 1.
    mixture : (share, decay, bend), each ndarray of shape (n, nodes)
        Shares ≥ 0 sum to 1 in each row. The bend is −d log f'/dy at y = 1 of each.
    path : callable
        ``path(indices)`` returns ℓ of these sources.
    """
    share, decay, bend = mixture
    slow = decay < SLOW
    cost: Expression = 0.0
    cones: list[Expression] = []
    together = np.sum(share * slow, axis=1)
    k = np.flatnonzero(together > RARE)
    if len(k):
        mean_bend = np.sum(share * bend * slow, axis=1)[k] / together[k]
        h = mean_bend / (2.0 - mean_bend)
        lost, cone = bent_square(y[k], h)
        cones.append(cone)
        cost = -(slope[k] * together[k] * (1.0 + h) ** 2) @ (y[k] - cp.multiply(h, lost))
    source, node = np.nonzero(~slow & (share > RARE))
    if len(source):
        some, place = np.unique(source, return_inverse=True)
        own = decay[source, node]
        cost = cost + (slope[source] * share[source, node] / own) @ cp.exp(
            -cp.multiply(own, path(some)[place])
        )
    return cost, cones


def decayed_time(x: Expression, t: npt.ArrayLike = 1.0) -> tuple[Expression, Expression]:
    """Return the exponential cone of z ≥ x·e^{−t/x}, elementwise.

    The pair (z, cone) is tight where z is minimised.
    With x = ρ/Δ and t = 1, x − z is then x(1 − e^{−1/x}), the periodic freshness.
    """
    n = x.shape[0]
    z = cp.Variable(n, nonneg=True)
    return z, cp.ExpCone(-np.broadcast_to(np.asarray(t, dtype=np.float64), (n,)), x, z)
