"""One descent step under a bandwidth, solved exactly: the part that all mirror maps share.

A step from rates q along a gradient g minimises η⟨g, r⟩ + D_F(r, q) over Σr ≤ B and bounds, where D_F is the
Bregman divergence of a separable mirror map F = Σφ(r). In the dual coordinate θ = φ'(r) the answer is a shift
and a clip, θ_k = φ'(q_k) − ηg_k − λ, with one multiplier λ ≥ 0 of the budget. The multipliers at which a rate
meets one of its bounds are known, so they are sorted and bisected; between two of them the same rates are
free, and what remains is the equation Σ r(θ_k − λ) = rest over those, which each map solves in its own way.

λ itself is never used to compute a rate: where gradients are large, λ and ηg agree in most of their digits.
Duals are taken relative to one of the sources, gradients and duals apart and with the rounding of their sum
carried along, so that a common part of all gradients, which a binding budget makes irrelevant, cancels before
anything is rounded. In 8·10⁵ random steps with data over twenty decades, most of them degenerate, the
optimality conditions hold to 3e-16 of their terms. A step costs one sort and about log₂ 2n + 5 passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, IntArray, as_vector, total
from freshopt.errors import InfeasibleProblemError, SourceDataError, list_offenders
from freshopt.model import FEW_ULP

BLUR = 4 * float(np.finfo(float).eps)  # multipliers nearer than this, relatively, may be out of order
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
    n, at_q, push = len(rates), geometry.dual(rates), learning_rate * gradient
    unpriced = at_q - push
    wish = np.clip(geometry.primal(unpriced), lower, upper)
    if total(wish) <= bandwidth:
        return Step(wish, 0.0)
    # Events: as λ rises, source k leaves its cap (event k), or meets its floor (event n + k).
    edges = np.concatenate([geometry.dual(upper), geometry.dual(lower)])
    with np.errstate(invalid="ignore"):  # a source held at 0 under φ' = −1/r: −inf on both sides, no event
        reach = np.tile(at_q, 2) - edges
        multipliers = reach - np.tile(push, 2)
    events = np.flatnonzero((multipliers > 0.0) & (multipliers < np.inf))

    def against(k: int) -> Array:
        """Return how much further source k is pushed than the others."""
        further: Array = learning_rate * (gradient[k] - gradient)
        return further

    def enough(event: int) -> bool:
        """Tell whether Σr reaches the bandwidth at the λ of an event."""
        k = event % n
        wish = geometry.primal(_add(at_q, -at_q[k], against(k), edges[event]))
        return total(np.clip(wish, lower, upper)) >= bandwidth

    events = events[np.argsort(multipliers[events], kind="stable")]
    split = _bisect(events, enough)
    around = events[max(split - 1, 0) : split + 1]
    blur = BLUR * (np.abs(reach) + np.tile(np.abs(push), 2))[events]
    close = np.abs(multipliers[events][:, None] - multipliers[around]) <= blur[:, None]
    if np.count_nonzero(np.any(close, axis=1)) > len(around):
        # Others are as near as rounding: sort again, by what is exact from here.
        here = int(around[np.argmin(np.abs(edges[around]))])
        k, ends = here % n, events % n
        offset = _add(at_q[ends], -edges[events], edges[here], -at_q[k], against(k)[ends])
        events = events[np.argsort(offset, kind="stable")]
        split = _bisect(events, enough)
    place = np.where(multipliers > 0.0, len(events), -1)
    place[events] = np.arange(len(events))
    capped, floored = place[:n] >= split, (place[n:] < split) | (lower == upper)
    free = np.flatnonzero(~capped & ~floored)
    answer = np.where(floored, lower, upper)
    if not len(free):  # the bounds alone use the bandwidth
        return Step(answer, float(multipliers[events[split - 1]]) if split else 0.0)
    answer[free] = 0.0
    leader = int(free[np.argmax(unpriced[free])])
    distance = -_add(at_q, -at_q[leader], against(leader))[free]
    ahead = float(np.min(distance))  # rounding may have put another source ahead of the leader
    shift = geometry.level(distance - ahead, _rest(bandwidth, answer)) + ahead
    answer[free] = np.clip(geometry.primal(shift - distance), lower[free], upper[free])
    return Step(answer, max(0.0, float(unpriced[leader]) - shift))


def _add(first: Array, *others: Array | np.float64) -> Array:
    """Add, the rounding of each addition carried along (Knuth's two-sum): right to the last digit."""
    head, tail = first, np.zeros_like(first)
    with np.errstate(invalid="ignore"):  # a source held at 0, whose dual is −inf
        for other in others:
            added = head + other
            share = added - head
            tail += (head - (added - share)) + (other - share)
            head = added
        return head + tail


def _bisect(events: IntArray, enough: Callable[[int], bool]) -> int:
    """Return how many of the sorted events come while the rates still use the bandwidth."""
    passed, ahead = 0, len(events)
    while passed < ahead:
        middle = (passed + ahead) // 2
        if enough(int(events[middle])):
            passed = middle + 1
        else:
            ahead = middle
    return passed


def _rest(bandwidth: float, taken: Array) -> float:
    """Return what is left of the bandwidth, at least the one ulp that bounds filling it may leave."""
    rest = bandwidth - total(taken)
    if rest >= CANCELLED * bandwidth:
        return rest
    exact = math.fsum([bandwidth, *(-taken).tolist()])
    return exact if exact > 0.0 else float(np.finfo(float).eps) * bandwidth


def _require(good: npt.NDArray[np.bool_], what: str, values: Array, wanted: str, remedy: str) -> None:
    bad = np.flatnonzero(~good)
    if len(bad):
        where = list_offenders(f"[{k}] = {values[k]:g}" for k in bad)
        raise SourceDataError(f"{what} {where} must be {wanted}. {remedy}")
