"""One descent step under a bandwidth, solved exactly: the part that all mirror maps share.

A step from rates q along a gradient g minimises η⟨g, r⟩ + D_F(r, q) over Σr ≤ B and bounds, where D_F is the
Bregman divergence of a separable mirror map F = Σφ(r). In the dual coordinate θ = φ'(r) the answer is a shift
and a clip, θ_k = φ'(q_k) − ηg_k − λ, with one multiplier λ ≥ 0 of the budget. The multipliers at which a rate
meets one of its bounds are known, so they are sorted and bisected; between two of them the same rates are
free, and what remains is the equation Σ r(θ_k − λ) = rest over those, which each map solves in its own way.

λ itself is never used to compute a rate: where gradients are large, λ and ηg agree in most of their digits.
Shifts are differences from one of the sources instead, of gradients and of duals apart, so that a common
part of all gradients, which a binding budget makes irrelevant, cancels before anything is rounded. A step
costs one sort and about log₂ 2n + 5 passes.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, as_vector, total
from freshopt.errors import InfeasibleProblemError, SourceDataError, list_offenders
from freshopt.model import FEW_ULP

CANCELLED = 1e-3  # share of the bandwidth below which the rest of it is summed without rounding


class Geometry(Protocol):
    """A separable mirror map F = Σφ(r)."""

    @property
    def positive(self) -> bool:
        """Whether φ is finite for r > 0 only."""

    def dual(self, rates: Array) -> Array:
        """Return φ'(r), increasing in r, shape (n,)."""

    def primal(self, dual: Array) -> Array:
        """Return the r with φ'(r) = dual; inf beyond the largest dual, shape (n,)."""

    def level(self, behind: Array, target: float) -> float:
        """Return the shift c with Σ primal(c − behind) = target, for behind ≥ 0 with a 0 in it."""


class Step(NamedTuple):
    """Where a step leads, and the multiplier of the budget (in units of learning rate × gradient)."""

    rates: Array
    multiplier: float


def checked_step(
    geometry: Geometry,
    rates: npt.ArrayLike,
    gradient: npt.ArrayLike,
    bandwidth: float,
    min_rate: npt.ArrayLike,
    max_rate: npt.ArrayLike,
    learning_rate: float,
) -> Array:
    """Check a caller's arguments and return the rates that the step leads to, shape (n,).

    Raises
    ------
    SourceDataError
        If an argument is not a number, of the wrong length or outside its range.
    InfeasibleProblemError
        If min_rate alone needs more than the bandwidth.
    """
    n = np.size(rates)
    q, g = as_vector(rates, n, "rates"), as_vector(gradient, n, "gradient")
    lower, upper = as_vector(min_rate, n, "min_rate"), as_vector(max_rate, n, "max_rate")
    _require(np.isfinite(g), "gradient", g, "a finite number", "Replace it, by 0 if there was no sample.")
    _require((lower >= 0.0) & (lower < np.inf), "min_rate", lower, "finite and >= 0", "Correct it.")
    _require(upper >= lower, "max_rate", upper, "at least min_rate", "Correct one of them.")
    good = np.isfinite(q) & (q >= 0.0)
    if geometry.positive:
        good &= (q > 0.0) | (upper == 0.0)
    wanted = "finite and > 0, for this mirror map" if geometry.positive else "finite and >= 0"
    _require(good, "rates", q, wanted, "Start from positive rates.")
    budget, eta = float(bandwidth), float(learning_rate)
    if not 0.0 < budget < np.inf:
        raise SourceDataError(f"bandwidth is {budget:g}. It must be a number > 0.")
    if not 0.0 <= eta < np.inf:
        raise SourceDataError(f"learning_rate is {eta:g}. It must be a number >= 0.")
    needed = total(lower)
    if needed > budget * (1.0 + FEW_ULP):
        raise InfeasibleProblemError(
            f"min_rate needs {needed:.6g} but bandwidth is {budget:.6g} (short by {needed - budget:.3g}). "
            f"Raise it or lower min_rate."
        )
    return bregman_step(geometry, q, g, budget, lower, upper, eta).rates


def bregman_step(
    geometry: Geometry,
    rates: Array,
    gradient: Array,
    bandwidth: float,
    lower: Array,
    upper: Array,
    learning_rate: float,
) -> Step:
    """Solve the step for arguments already known to be good; see `checked_step`."""
    # Letters: q the rates before, θ their duals, η the learning rate, λ the multiplier of the budget.
    at_q = geometry.dual(rates)
    push = learning_rate * gradient
    wish = np.clip(geometry.primal(at_q - push), lower, upper)
    if total(wish) <= bandwidth:
        return Step(wish, 0.0)
    low, high = geometry.dual(lower), geometry.dual(upper)
    unpriced = at_q - push
    with np.errstate(invalid="ignore"):  # a source held at 0 under φ' = −1/r: −inf on both sides, no event
        leaves_cap, meets_floor = unpriced - high, unpriced - low

    def behind(k: int) -> Array:
        """Return θ_k − θ for all sources: how far each is behind source k, whatever λ."""
        distance: Array = learning_rate * (gradient - gradient[k]) - (at_q - at_q[k])
        return distance

    def demand(event: int) -> float:
        """Return Σr at the multiplier where source k leaves its cap (event k) or meets its floor (n + k)."""
        k, edge = (event, high) if event < n else (event - n, low)
        return total(np.clip(geometry.primal(edge[k] - behind(k)), lower, upper))

    n = len(rates)
    multipliers = np.concatenate([leaves_cap, meets_floor])
    events = np.flatnonzero((multipliers > 0.0) & np.isfinite(multipliers))
    events = events[np.argsort(multipliers[events], kind="stable")]
    first, last = -1, len(events)  # demand ≥ bandwidth at `first`, < bandwidth at `last`
    while last - first > 1:
        middle = (first + last) // 2
        if demand(int(events[middle])) >= bandwidth:
            first = middle
        else:
            last = middle
    before = multipliers[events[first]] if first >= 0 else 0.0
    after = multipliers[events[last]] if last < len(events) else np.inf
    capped = leaves_cap >= after
    free = np.flatnonzero(~capped & (meets_floor > before))
    answer = np.where(capped, upper, lower)
    if not len(free):
        return Step(answer, float(before))
    answer[free] = 0.0
    rest = bandwidth - total(answer)
    if rest < CANCELLED * bandwidth:
        exact = math.fsum([bandwidth, *(-answer).tolist()])
        rest = exact if exact > 0.0 else np.finfo(float).eps * bandwidth  # bounds fill it: one ulp is left
    leader = int(free[np.argmax(unpriced[free])])
    distance = behind(leader)[free]
    distance -= distance.min()  # rounding may have left another source ahead
    shift = geometry.level(distance, rest)
    answer[free] = np.clip(geometry.primal(shift - distance), lower[free], upper[free])
    return Step(answer, max(0.0, float(unpriced[leader]) - shift))


def _require(good: npt.NDArray[np.bool_], what: str, values: Array, wanted: str, remedy: str) -> None:
    bad = np.flatnonzero(~good)
    if len(bad):
        where = list_offenders(f"[{k}] = {values[k]:g}" for k in bad)
        raise SourceDataError(f"{what} {where} must be {wanted}. {remedy}")
