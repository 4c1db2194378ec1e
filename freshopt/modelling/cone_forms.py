"""Well-conditioned cone forms of the cost curves.

The periodic cells are made of x·e^{−t/x}, an exponential cone. Where t is small the cone subtracts nearly
equal numbers, and where it is large it holds numbers far below a solver's tolerance; both ends have simpler
forms that are exact to more digits than a solver delivers. Here y is a relative rate, near 1 at the optimum,
and a total may miss a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError
from freshopt.modelling.objective import ConeForm
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray

# Below this t, 1−(1−e^{−t})/t loses digits in a cone; t/(2+2t/3) is off by t²/36 < 7e-5 of it.
SHORT = 0.05
# Above this t, e^{−t} is below 1e-13.
LONG = 30.0
# A typical rate so near its request rate is as good as there.
LEAST_WITHIN = 1e-4
# With stale-while-revalidate windows a source may be at its request rate, and as well far below it.
HALF_WITHIN = 0.5
# Decays below this are taken together; their slope is off by (y − 1)²·SLOW²/4 or so.
SLOW = 0.1
# Shares of the slope below this are left out.
RARE = 1e-9


def by_size(u: Array, *forms: tuple[float, Callable[[IntArray], Expression]]) -> Expression:
    """Return the sum of forms, each on its range of u.

    A form covers the sources whose u lies below its bound and not below an earlier one.

    - `u` (n,)
    - `forms` (bound, form): ``form(indices)`` returns a scalar expression; bounds ascend, the last is inf.
    """
    parts, low = [], -np.inf
    for high, form in forms:
        chosen = np.flatnonzero((u >= low) & (u < high))
        if len(chosen):
            parts.append(form(chosen))
        low = high
    return sum(parts[1:], parts[0])


def stale_total(w: Array, t: Array, y: Expression, one: Expression | None = None) -> ConeForm:
    """Return the cone form of total periodic staleness.

    It is Σ w·(1 − (1−e^{−t/y})·y/t) less Σ w, and its cones, for y near 1.
    A rational form for small t, the limit 1 − y/t for large t, an exponential cone between. An affine `one`
    near 1, if given, stands in the place of 1: the form is then its perspective, Σ w·one·(…)(y/one).
    """
    cones: list[Expression] = []

    def short(k: IntArray) -> Expression:
        if one is None:
            return (w[k] * t[k] / 2.0) @ cp.inv_pos(y[k] + t[k] / 3.0) - float(np.sum(w[k]))
        ratio, cone = square_over(one[k], y[k] + cp.multiply(t[k] / 3.0, one[k]))
        cones.append(cone)
        return (w[k] * t[k] / 2.0) @ ratio - w[k] @ one[k]

    def middle(k: IntArray) -> Expression:
        lost, cone = decayed_time(y[k], t[k] if one is None else cp.multiply(t[k], one[k]))
        cones.append(cone)
        return (w[k] / t[k]) @ (lost - y[k])

    cost = by_size(
        t,
        (SHORT, short),
        (LONG, middle),
        (np.inf, lambda k: -(w[k] / t[k]) @ y[k]),
    )
    return cost, cones


def square_over(x: Expression, base: Expression) -> tuple[Expression, Expression]:
    """Return (s, cone) with s ≥ x²/base elementwise, for base > 0."""
    s = cp.Variable(x.shape[0], nonneg=True)
    return s, square_cone(s, x, base)


def square_cone(s: Expression, x: Expression, base: Expression) -> Expression:
    """Return the second-order cone of s·base ≥ x², elementwise."""
    return cp.SOC(s + base, cp.vstack([2.0 * x, s - base]), axis=0)


def falling_total(
    y: Expression,
    slope: Array,
    mixture: tuple[Array, Array, Array],
    path: Callable[[IntArray], Expression],
    whole: tuple[Expression, Array] | None = None,
) -> ConeForm:
    """Return the cone form of costs with exponentially decaying slopes.

    It is Σ_k slope_k·f_k(y_k) up to a constant, and its cones, where −f_k' is a mixture of decays.

    −f'(y) = Σ_j share_j·e^{−decay_j·ℓ(y)}·ℓ'(y), for a concave ℓ with ℓ(1) = 0 and ℓ'(1) = 1. An exponential
    that hardly decays cancels against its constant; such ones share the form −f' = (1+h)²/(1+hy)² ·(sum of
    shares), which a second-order cone holds, with h = b/(2−b), b the mean of their bends.

    - `y` cvxpy expression (n,)
    - `slope` (n,): −dJ/dy at y = 1.
    - `mixture` (share, decay, bend), each ndarray of (n, nodes): Shares ≥ 0 sum to 1 in each row. The bend is
      −d log f'/dy at y = 1 of each.
    - `path`: ``path(indices)`` returns ℓ of these sources.
    - `whole` (one, level): An affine expression near 1 that stands in the place of 1, also in `path`, and J
      at y = 1: the form is then the perspective of J, constant included.
    """
    share, decay, bend = mixture
    one, rest = (None, slope) if whole is None else (whole[0], np.array(whole[1]))
    slow = decay < SLOW
    cost: Expression = 0.0
    cones: list[Expression] = []
    together = np.sum(share * slow, axis=1)
    k = np.flatnonzero(together > RARE)
    if len(k):
        mean_bend = np.sum(share * bend * slow, axis=1)[k] / together[k]
        h = mean_bend / (2.0 - mean_bend)
        lost, cone = square_over(y[k], (1.0 if one is None else one[k]) + cp.multiply(h, y[k]))
        if one is not None:
            rest[k] += slope[k] * together[k] * (1.0 + h)
        cones.append(cone)
        cost = -(slope[k] * together[k] * (1.0 + h) ** 2) @ (y[k] - cp.multiply(h, lost))
    source, node = np.nonzero(~slow & (share > RARE))
    if len(source):
        some, place = np.unique(source, return_inverse=True)
        own = decay[source, node]
        height, fall = slope[source] * share[source, node] / own, -cp.multiply(own, path(some)[place])
        if one is None:
            cost = cost + height @ cp.exp(fall)
        else:
            falling = cp.Variable(len(source), nonneg=True)
            cones.append(cp.ExpCone(fall, one[source], falling))
            cost = cost + height @ falling
            np.subtract.at(rest, source, height)
    return cost if one is None else cost + rest @ one, cones


def require_no_windows(sources: Sources) -> None:
    """Raise ObjectiveError if expired copies are served while they are revalidated."""
    if sources.stale_while_revalidate is not None:
        raise ObjectiveError(
            "stale-while-revalidate has a cone form for binary freshness and accumulated delay only. "
            "Solve without cones (the default solver), or drop the column stale_while_revalidate."
        )


def within_lifetime(rate: Expression, sources: Sources, *, windows: bool = False) -> Expression:
    """Return 1 − ρ/ζ, the share of requests within a lifetime.

    It takes the place of 1 in the periodic cell J(ρ), which makes it (1 − ρ/ζ)·J(ρ/(1 − ρ/ζ)). Without
    `windows` the caller has no form for those of stale-while-revalidate, which are then refused.
    """
    if not windows:
        require_no_windows(sources)
    return 1.0 - cp.multiply(1.0 / sources.asked, rate)


def relative_to_lifetime(
    y: Expression, sources: Sources, typical: Array, *, windows: bool = False
) -> tuple[Array, Array, Expression]:
    """Return what makes a periodic cone form one of refreshes on request.

    At ρ = typical·y the cell is (1 − ρ/ζ)·J(ρ/(1 − ρ/ζ)) = within·one·J(longer·y/one).

    - returns `within` (n,): 1 − typical/ζ, kept away from 0.
    - returns `longer` (n,): The typical rate over `within`.
    - returns `one` cvxpy expression, affine (n,): (1 − ρ/ζ)/within, near 1.
    """
    if not windows:
        require_no_windows(sources)
    share = typical / sources.asked
    least = LEAST_WITHIN if sources.stale_while_revalidate is None else HALF_WITHIN
    within = np.maximum(1.0 - share, least)
    return within, typical / within, 1.0 / within - cp.multiply(share / within, y)


def decayed_time(x: Expression, t: Expression = 1.0) -> tuple[Expression, Expression]:
    """Return the exponential cone of z ≥ x·e^{−t/x}, elementwise.

    The pair (z, cone) is tight where z is minimised; t is numbers, or an affine expression ≥ 0.
    With x = ρ/Δ and t = 1, x − z is then x(1 − e^{−1/x}), the periodic freshness.
    """
    n = x.shape[0]
    z = cp.Variable(n, nonneg=True)
    decay = -t if hasattr(t, "variables") else -np.broadcast_to(np.asarray(t, dtype=np.float64), (n,))
    return z, cp.ExpCone(decay, x, z)
