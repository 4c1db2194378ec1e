"""Optima of small problems in 30 digits, and how they change: the KKT equations solved at nearby parameters.

An instance is drawn with its multipliers; rates are found by bisection, limits are what those use. Newton's
method on the KKT equations then gives the optimum at any nearby parameters, and the signs of slacks, bounds
and multipliers are checked, which proves it. Nothing here imports freshopt.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Loss = Callable[[Any, Any], Any]

mp = mpmath.MPContext()
mp.dps = 30


def _ein(u: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    return mp.euler + mp.log(u) + mp.e1(u)


# Loss of one source of weight 1 at rate r and change rate d; minus the gain where that is maximised.
LOSSES: dict[str, Loss] = {
    "spend": lambda r, _d: r,
    "harmonic": lambda r, d: mp.log1p(d / r),
    "harmonic periodic": lambda r, d: _ein(d / r) - 1 - mp.expm1(-d / r) * r / d,
    "delay": lambda r, d: d / r,
    "delay periodic": lambda r, d: d / r / 2,
    "binary": lambda r, d: -r / (d + r),
    "binary periodic": lambda r, d: mp.expm1(-d / r) * r / d,
    "age": lambda r, d: 1 / r - 1 / (d + r),
    "polls": lambda r, d: r * mp.expm1(-d / r),
    "later": lambda r, _d: mp.exp(-r / 2),
    "harmonic on signal": lambda r, d: -mp.log(r / d),
}


@dataclass(frozen=True, eq=False)
class Row:
    """Σ cost·ρ ≤ limit (≥ where it is a reserve), or a mean loss over members ≤ limit, or ≤ the level."""

    label: str
    members: tuple[int, ...]
    cost: tuple[float, ...] = ()
    loss: str = ""
    fair: bool = False
    sign: float = 1.0  # −1 where what is declared is a gain, or a reserve


@dataclass(frozen=True, eq=False)
class Optimum:
    """Rates of bundles, multipliers and level, value as a loss."""

    rates: list[Any]
    prices: list[Any]
    level: Any
    value: Any


@dataclass(frozen=True, eq=False)
class Instance:
    """Minimise Σ w·loss (or the level of fair rows) under rows and bounds."""

    losses: tuple[str, ...]
    rows: tuple[Row, ...]
    w: Floats
    d: Floats
    limits: Floats
    lower: Floats
    upper: Floats
    start: Optimum
    codes: tuple[int, ...]
    capped: tuple[int, ...] = ()
    free: tuple[int, ...] = field(default=())

    def bundle(self, b: int) -> list[int]:
        return [k for k, code in enumerate(self.codes) if code == b]

    def weight(self, k: int, w: Sequence[Any]) -> Any:  # noqa: ANN401
        """Importance in the objective; bandwidth itself has none."""
        return 1 if self.losses[k] == "spend" else w[k]

    def used(self, j: int, w: Sequence[Any], d: Sequence[Any], rates: Sequence[Any]) -> Any:  # noqa: ANN401
        row = self.rows[j]
        if not row.loss:
            return row.sign * mp.fsum(
                c * rates[self.codes[k]] for k, c in zip(row.members, row.cost, strict=True)
            )
        total = mp.fsum(w[k] for k in row.members)
        return mp.fsum(w[k] * LOSSES[row.loss](rates[self.codes[k]], d[k]) for k in row.members) / total

    def source(self, k: int, w: Sequence[Any], d: Sequence[Any]) -> dict[int, Callable[[Any], Any]]:
        """What source k's rate adds to the objective (−1) and to every row."""
        parts: dict[int, Callable[[Any], Any]] = {}
        if not any(row.fair for row in self.rows):
            parts[-1] = lambda r: self.weight(k, w) * LOSSES[self.losses[k]](r, d[k])
        for j, row in enumerate(self.rows):
            if k not in row.members:
                continue
            if row.loss:
                total = mp.fsum(w[i] for i in row.members)
                parts[j] = lambda r, row=row, total=total: w[k] / total * LOSSES[row.loss](r, d[k])  # type: ignore[misc]
            else:
                cost = row.sign * row.cost[row.members.index(k)]
                parts[j] = lambda r, cost=cost: cost * r  # type: ignore[misc]
        return parts

    def slopes(self, b: int, w: Sequence[Any], d: Sequence[Any], rate: Any) -> dict[int, tuple[Any, Any]]:  # noqa: ANN401
        """First and second derivative of what a bundle adds to the objective and to every row."""
        found: dict[int, tuple[Any, Any]] = {}
        for k in self.bundle(b):
            for j, part in self.source(k, w, d).items():
                _, first, second = mp.taylor(part, rate, 2)
                old = found.get(j, (0, 0))
                found[j] = old[0] + first, old[1] + 2 * second
        return found

    def value(self, w: Sequence[Any], d: Sequence[Any], rates: Sequence[Any]) -> Any:  # noqa: ANN401
        return mp.fsum(
            self.weight(k, w) * LOSSES[self.losses[k]](rates[c], d[k]) for k, c in enumerate(self.codes)
        )

    def solve(self, w: Sequence[Any], d: Sequence[Any], limits: Sequence[Any]) -> Optimum:
        """Return the optimum near the planted one; raise AssertionError where the active set differs."""
        rates, prices, level = list(self.start.rates), list(self.start.prices), self.start.level
        fair = [j for j, row in enumerate(self.rows) if row.fair]
        for k in self.capped:
            rates[self.codes[k]] = d[k]
        binding = [j for j, price in enumerate(prices) if price > 0]
        size = len(self.free) + len(binding) + (1 if fair else 0)
        for _ in range(12):
            matrix, right = mp.zeros(size), mp.zeros(size, 1)
            for p, b in enumerate(self.free):
                found = self.slopes(b, w, d, rates[b])
                for j, (first, second) in found.items():
                    price = 1 if j < 0 else prices[j]
                    right[p] -= price * first
                    matrix[p, p] += price * second
                    if j in binding:
                        q = len(self.free) + binding.index(j)
                        matrix[p, q] = matrix[q, p] = first
            for q, j in enumerate(binding, start=len(self.free)):
                right[q] = limits[j] - self.used(j, w, d, rates)
                if self.rows[j].fair:
                    right[q] += level
                    matrix[q, size - 1] = matrix[size - 1, q] = -1
            if fair:
                right[size - 1] = mp.fsum(prices[j] for j in fair) - 1
            step = mp.lu_solve(matrix, right)
            for p, b in enumerate(self.free):
                rates[b] += step[p]
            for q, j in enumerate(binding, start=len(self.free)):
                prices[j] += step[q]
            if fair:
                level += step[size - 1]
            if mp.norm(step) < mp.mpf(10) ** -24:
                break
        else:
            raise AssertionError("Newton's method did not converge")
        self._prove(w, d, limits, Optimum(rates, prices, level, 0))
        return Optimum(rates, prices, level, level if fair else self.value(w, d, rates))

    def _prove(self, w: Sequence[Any], d: Sequence[Any], limits: Sequence[Any], found: Optimum) -> None:
        """Assert feasibility and the signs of all multipliers."""
        for b in range(max(self.codes) + 1):
            rate = found.rates[b]
            slopes = self.slopes(b, w, d, rate)
            slope = mp.fsum((1 if j < 0 else found.prices[j]) * first for j, (first, _) in slopes.items())
            at_upper = rate == self.upper[b] or any(self.codes[k] == b for k in self.capped)
            if b in self.free:
                assert self.lower[b] < rate < self.upper[b]
                assert abs(slope) < mp.mpf(10) ** -20
            else:
                assert slope < 0 if at_upper else slope > 0
        for j, price in enumerate(found.prices):
            slack = limits[j] - self.used(j, w, d, found.rates) + (found.level if self.rows[j].fair else 0)
            assert (price > 0 and abs(slack) < mp.mpf(10) ** -20) or (price == 0 and slack > 0)

    def direction(self, dw: Floats, dd: Floats, dlimits: Floats) -> tuple[Floats, Floats, float]:
        """Return the derivative of rates, multipliers and value by central differences of 1e-12."""
        step = mp.mpf(10) ** -12

        def moved(sign: int) -> Optimum:
            def along(x: Floats, dx: Floats) -> list[Any]:
                return [
                    mp.mpf(a) + sign * step * mp.mpf(b) for a, b in zip(x.tolist(), dx.tolist(), strict=True)
                ]

            internal = [row.sign * limit for row, limit in zip(self.rows, dlimits, strict=True)]
            return self.solve(along(self.w, dw), along(self.d, dd), along(self.limits, np.array(internal)))

        up, down = moved(1), moved(-1)

        def quotient(a: list[Any], b: list[Any]) -> Floats:
            return np.array([float((x - y) / (2 * step)) for x, y in zip(a, b, strict=True)])

        rates = quotient(up.rates, down.rates)[list(self.codes)]
        return rates, quotient(up.prices, down.prices), float((up.value - down.value) / (2 * step))


def planted(
    losses: Sequence[str],
    rows: Sequence[Row],
    prices: Sequence[float],
    seed: int,
    *,
    held: Sequence[int] = (),
    signalled: Sequence[int] = (),
    codes: Sequence[int] = (),
    ill: bool = False,
) -> Instance:
    """Draw an instance whose multipliers are given.

    Bundles in `held` get bounds that hold them, lower and upper in turn; `signalled` sources are refreshed at
    every change.
    """
    random = np.random.default_rng(seed)
    n = len(losses)
    w = np.exp(random.normal(0.0, 1.5 if ill else 0.5, n))
    d = 10.0 ** (random.uniform(-4.0, 4.0, n) if ill else random.uniform(-0.5, 0.5, n))
    own = tuple(codes) or tuple(range(n))
    bundles = max(own) + 1
    rates = [mp.mpf(1)] * bundles
    multipliers = [mp.mpf(price) for price in prices]
    lower, upper = np.zeros(bundles), np.full(bundles, np.inf)
    start = Optimum(rates, multipliers, mp.mpf(0), mp.mpf(0))
    draft = Instance(tuple(losses), tuple(rows), w, d, np.zeros(len(rows)), lower, upper, start, own)
    ws, ds = [mp.mpf(x) for x in w.tolist()], [mp.mpf(x) for x in d.tolist()]
    still = {own[k] for k in signalled} | set(held)

    def falls(b: int, rate: Any) -> bool:  # noqa: ANN401
        parts = [draft.source(k, ws, ds) for k in draft.bundle(b)]
        slopes = [
            (1 if j < 0 else multipliers[j]) * mp.diff(f, rate) for own in parts for j, f in own.items()
        ]
        return bool(mp.fsum(slopes) < 0)

    for b in range(bundles):
        members = draft.bundle(b)
        low, high = np.log(d[members[0]]) - 30.0, np.log(d[members[0]]) + 30.0
        # Near enough for Newton's method: limits are what these rates use.
        for _ in range(30):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if falls(b, mp.exp(middle)) else (low, middle)
        rate = float(mp.exp(low))
        if rate < 1e-10 * d[members[0]]:  # starves
            rate = 0.0
            still.add(b)
        if any(k in signalled for k in members):
            rate = float(d[members].min())
        elif b in held:
            rate *= 2.0 if list(held).index(b) % 2 == 0 else 0.5
            (lower if list(held).index(b) % 2 == 0 else upper)[b] = rate
        rates[b] = mp.mpf(rate)
    limits = np.zeros(len(rows))
    used = [draft.used(j, ws, ds, rates) for j in range(len(rows))]
    level = max((used[j] for j, row in enumerate(rows) if row.fair), default=mp.mpf(0))
    for j, row in enumerate(rows):
        slack = 0.0 if prices[j] > 0.0 else 0.25 * abs(float(used[j]))
        limits[j] = 0.0 if row.fair else float(used[j]) + slack
    instance = replace(
        draft,
        limits=limits,
        start=Optimum(rates, multipliers, level, mp.mpf(0)),
        capped=tuple(k for k in signalled if d[k] == min(d[draft.bundle(own[k])])),
        free=tuple(b for b in range(bundles) if b not in still),
    )
    return replace(instance, start=instance.solve(ws, ds, [mp.mpf(x) for x in limits.tolist()]))
