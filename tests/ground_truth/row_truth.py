"""Planted programs with rows: multipliers are drawn, rates follow by bisection, then limits.

Nothing here imports freshopt. A program is arrays and names of functions; at the planted multipliers rates
are best responses and complementarity holds, so they are optimal by the Karush-Kuhn-Tucker conditions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tests.ground_truth.curves import cost as cost
from tests.ground_truth.curves import fall

Floats = npt.NDArray[np.float64]
# Bounds of every bisection, in log ρ.
LEAST, MOST = -90.0, 90.0


def slope(kind: str, r: Floats, d: Floats) -> Floats:
    return -fall(kind, r, d)


@dataclass(frozen=True)
class Planted:
    """min Σ w·cost(objective) subject to matrix rows (types × m × n) ≤ limits, with its optimum."""

    objective: str
    w: Floats
    d: Floats
    lower: Floats
    upper: Floats
    types: tuple[str, ...]
    matrices: tuple[Floats, ...]
    limits: Floats
    y: Floats
    rates: Floats

    def value(self, r: Floats) -> float:
        each, valued = cost(self.objective, r, self.d), self.w > 0.0
        return float(np.sum(self.w[valued] * each[valued]))

    def used(self, r: Floats) -> Floats:
        return self._added(r, self.matrices)

    def _added(self, r: Floats, matrices: tuple[Floats, ...]) -> Floats:
        """Return each row's sum; an entry of no weight adds nothing, whatever its cost."""
        with np.errstate(all="ignore"):
            parts = [
                np.sum(np.where(m != 0.0, m * cost(t, r, self.d), 0.0), axis=1)
                for t, m in zip(self.types, matrices, strict=True)
            ]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)

    def feasible(self, r: Floats, rounding: float = 1e-14) -> bool:
        size = self._added(r, tuple(np.abs(m) for m in self.matrices))
        inside = bool(np.all(r >= self.lower) and np.all(r <= self.upper))
        return inside and bool(np.all(self.used(r) <= self.limits + rounding * (np.abs(self.limits) + size)))


def best_response(planted_slope: Callable[[Floats], Floats], lower: Floats, upper: Floats) -> Floats:
    """Return where an increasing slope crosses 0, by bisection in log ρ, clipped to the bounds."""
    low, high = np.full(len(lower), LEAST), np.full(len(lower), MOST)
    for _ in range(200):
        middle = 0.5 * (low + high)
        below = planted_slope(np.exp(middle)) < 0.0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(np.clip(np.exp(low), lower, upper), dtype=np.float64)


def dual_value(p: Planted, y: Floats, upper: Floats | None = None) -> tuple[float, float]:
    """Return D(y) of the rows alone and the size of its parts, by bisection."""
    weights = [y @ matrix for matrix in p.matrices]

    def whole(r: Floats) -> Floats:
        own = [np.where(w != 0.0, w * slope(t, r, p.d), 0.0) for t, w in zip(p.types, weights, strict=True)]
        return np.asarray(np.sum(own, axis=0), dtype=np.float64)

    r = best_response(whole, p.lower, np.minimum(p.upper, 1e30) if upper is None else upper)
    with np.errstate(all="ignore"):
        each = [w * cost(t, r, p.d) for t, w in zip(p.types, weights, strict=True)]
    parts = np.array([np.where(w != 0.0, e, 0.0) for w, e in zip(weights, each, strict=True)])
    return float(np.sum(parts) - y @ p.limits), float(np.sum(np.abs(parts)) + y @ np.abs(p.limits))


def excess_proved(p: Planted, y: Floats) -> float:
    """Return D(y)/Σ y|b|: by which share of the limits the rows cannot hold together."""
    return dual_value(p, y)[0] / float(y @ np.abs(p.limits))


def coefficients(rng: np.random.Generator, m: int, n: int, ill: bool) -> Floats:
    """Return an m × n matrix of positive coefficients, zero for a third of the sources."""
    a = rng.lognormal(0.0, 1.5 if ill else 0.4, (m, n)) * (rng.random((m, n)) < 0.67)
    a[:, 0] = np.maximum(a[:, 0], 0.1)
    return a


def conflicting(
    rng: np.random.Generator, family: str, *, ill: bool, n: int, m: int, short: float
) -> tuple[Planted, Planted]:
    """Return an infeasible instance of all kinds of rows, and its feasible twin.

    At the planted rates Σ y·G is least; limits a share of |G| below it cannot all be met, limits above can.
    """
    drawn = planted(rng, family, ill=ill, n=n, m=m, weightless=True)
    room = np.abs(drawn.limits) * np.where(drawn.y > 0.0, short, rng.choice([0.05, 0.5], m))
    idle = np.where(drawn.y > 0.0, 0.0, room)
    used = drawn.used(drawn.rates)
    tight, loose = used - np.where(drawn.y > 0.0, room, -idle), used + room
    return replace(drawn, limits=tight), replace(drawn, limits=loose)


def planted(
    rng: np.random.Generator, family: str, *, ill: bool, n: int, m: int, weightless: bool = False
) -> Planted:
    """Return an instance of budgets, targets or both; `weightless` ones have no objective.

    budgets: min harmonic, binary or delay under budgets. targets: min spend under targets. mixed: min delay
    under budgets, reserves and targets; linear: the same without targets.
    """
    w = rng.lognormal(0.0, 3.0 if ill else 0.5, n)
    w[1:][rng.random(n - 1) < 0.05] = 0.0
    d = 10.0 ** rng.uniform(-5.0, 5.0, n) if ill else rng.lognormal(0.0, 0.7, n)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    typical = np.sqrt(np.maximum(w, 1e-3) * d)
    bound = rng.random(n)
    lower[bound < 0.15] = typical[bound < 0.15] * rng.lognormal(0.0, 1.0, int(np.sum(bound < 0.15)))
    upper[bound > 0.8] = typical[bound > 0.8] * rng.lognormal(1.0, 1.0, int(np.sum(bound > 0.8)))
    upper = np.maximum(upper, lower)
    y = rng.lognormal(0.0, 1.0, m) * (rng.random(m) < 0.7)
    y[0] = max(y[0], 0.5)
    a = coefficients(rng, m, n, ill)
    types: tuple[str, ...]
    matrices: tuple[Floats, ...]
    if family == "budgets":
        objective = str(rng.choice(["harmonic", "binary", "delay"]))
        upper = np.minimum(upper, 1e3 * typical + lower)
        types = ("rate",)
        matrices = (a,)
    elif family == "targets":
        objective = "rate"
        w = np.maximum(w, 1e-3)
        second = str(rng.choice(["binary", "delay"]))
        odd = (np.arange(m) % 2 == 1)[:, None]
        types, matrices = ("harmonic", second), (np.where(odd, 0.0, a * w), np.where(odd, a * w, 0.0))
        if second == "binary":
            matrices = (a * w, np.where(odd, a * w, 0.0))
    else:
        objective = "delay"
        upper = np.minimum(upper, 30.0 * typical + lower)
        kind = (np.arange(m) % (2 if family == "linear" else 3))[:, None]
        own = a * (rng.random(n) < 0.3)
        rate = np.where(kind == 0, a, np.where(kind == 1, -own, 0.0))
        types, matrices = ("rate", "harmonic"), (rate, np.where(kind == 2, a * w, 0.0))
        y = y * np.where(kind[:, 0] == 1, 0.3, 1.0)
        if family == "linear":
            types, matrices = types[:1], matrices[:1]
    scale = np.median(typical) / np.median(w[w > 0.0])
    y = y / scale if family == "budgets" else y

    def whole(r: Floats) -> Floats:
        own = np.where((w > 0.0) & (not weightless), w * slope(objective, r, d), 0.0)
        prices = [
            np.where((y @ m) != 0.0, (y @ m) * slope(t, r, d), 0.0)
            for t, m in zip(types, matrices, strict=True)
        ]
        return np.asarray(own + np.sum(prices, axis=0), dtype=np.float64)

    rates = best_response(whole, lower, upper)
    made = Planted(objective, w, d, lower, upper, types, matrices, np.zeros(m), y, rates)
    used = made.used(rates)
    room = np.abs(used) * np.where(y > 0.0, 0.0, rng.choice([0.0, 0.05, 0.5], m))
    return Planted(objective, w, d, lower, upper, types, matrices, used + room, y, rates)
