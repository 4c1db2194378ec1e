"""Instances under several rows whose optimum is known, since it was drawn first.

Multipliers y* are drawn, every source's best response to them is found by bisection, and the limits are set
to what those use: rates and multipliers then satisfy the KKT conditions, so that both are optimal. Of the
rows 60 % bind; of the others some bind without being paid for. Some bounds just touch the optimal rate.
The bisection is this file's own.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tests.ground_truth.curves import POWER as POWER
from tests.ground_truth.curves import cost as cost
from tests.ground_truth.curves import fall as fall

Array = npt.NDArray[np.float64]
Formula = Literal["rate", "harmonic", "delay", "binary", "power", "tail"]


@dataclass(frozen=True)
class Planted:
    """minimise Σ w·T(ρ) + t subject to Σ a_jk T_j(ρ_k) ≤ b_j + level_j·t and bounds, with the optimum."""

    objective: Formula
    weight: Array
    d: Array
    formulas: tuple[Formula, ...]
    coefficients: Array
    limits: Array
    lower: Array
    upper: Array
    rates: Array
    multipliers: Array
    level: Array
    t: float = 0.0

    def used(self, rates: Array) -> Array:
        """Return Σ_k a_jk T_j(ρ_k) of every row."""
        values = np.stack([cost(t, rates, self.d) for t in self.formulas])
        return np.array(
            [float(np.sum(a[a != 0.0] * v[a != 0.0])) for a, v in zip(self.coefficients, values, strict=True)]
        )

    def value(self, rates: Array) -> float:
        """Return the objective, t at the least level that the rates meet."""
        moves = self.level > 0.0
        over = (self.used(rates) - self.limits)[moves] / self.level[moves]
        return float(np.sum(self.weight * cost(self.objective, rates, self.d))) + float(
            over.max(initial=-np.inf) if moves.any() else 0.0
        )

    @property
    def size(self) -> float:
        """What differences of values are measured by."""
        return abs(self.value(self.rates)) + float(np.sum(self.multipliers * np.abs(self.limits)))


def planted(
    seed: int,
    objective: Formula,
    rows: tuple[Formula, ...],
    n: int,
    *,
    ill: bool,
    density: float = 0.5,
    fair: bool = False,
) -> Planted:
    """Draw an instance with rows of the given formulas.

    Every source pays for its rate somewhere, or the objective does it. Where `fair`, the objective is the
    level of the rows that are targets, the first two rows a budget and a target.
    """
    random = np.random.default_rng(seed)
    m = len(rows)
    if ill:
        w, d = np.exp(random.normal(0.0, 3.0, n)), 10.0 ** random.uniform(-5.0, 5.0, n)
    else:
        w, d = random.uniform(0.5, 2.0, n), 10.0 ** random.uniform(-1.0, 1.0, n)
    a = np.exp(random.normal(0.0, 1.5 if ill else 0.3, (m, n))) * (random.random((m, n)) < density)
    binding = random.random(m) < 0.6
    binding[0] = True
    y = np.where(binding, np.exp(random.normal(0.0, 1.0, m)), 0.0)
    falling = [k for k, t in enumerate(rows) if t != "rate"]
    # The first row has every source: no rate is free, and no target infinite.
    a[0] = np.exp(random.normal(0.0, 1.5 if ill else 0.3, n))
    y[0] = 1.0
    if objective == "rate" or ill:
        # Targets weigh sources as the objective would.
        a[falling] *= w
    level, t = np.zeros(m), 0.0
    if fair:
        a[1], y[1], w = w * np.exp(random.normal(0.0, 0.3, n)), 1.0, np.zeros(n)
        level[falling], t = random.uniform(0.5, 2.0, len(falling)), float(random.uniform(-2.0, 2.0))
        y /= level @ y
    rates = _best_responses(objective, w, d, rows, a, y)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    kind = random.integers(0, 8, n)
    lower[kind == 0], upper[kind == 1] = rates[kind == 0] * 2.0, rates[kind == 1] * 0.5
    # Bounds that just touch.
    lower[kind == 2], upper[kind == 3] = rates[kind == 2], rates[kind == 3]
    upper[(kind == 0) | (kind == 2)] = 10.0 * np.maximum(lower, 1e-6 * d)[(kind == 0) | (kind == 2)]
    rates = np.clip(rates, lower, upper)
    drawn = Planted(objective, w, d, rows, a, np.zeros(m), lower, upper, rates, y, level)
    used = drawn.used(rates)
    degenerate = random.random(m) < 0.1
    slack = np.where((y > 0.0) | degenerate, 0.0, 10.0 ** random.uniform(-3.0, 1.0, m))
    t *= float(np.max(used[level > 0.0], initial=0.0))
    limits = used * (1.0 + slack) - level * t
    return Planted(objective, w, d, rows, a, limits, lower, upper, rates, y, level, t)


def _best_responses(
    objective: Formula, w: Array, d: Array, rows: tuple[Formula, ...], a: Array, y: Array
) -> Array:
    """Return the zeros of the Lagrangian's slope, by bisection in the logarithm."""

    def falls(rate: Array) -> npt.NDArray[np.bool_]:
        total = w * fall(objective, rate, d)
        for row, t in enumerate(rows):
            if y[row] > 0.0:
                total = total + y[row] * a[row] * fall(t, rate, d)
        return total > 0.0

    low, high = np.full(len(d), -300.0), np.full(len(d), 300.0)
    for _ in range(200):
        middle = 0.5 * (low + high)
        above = falls(np.exp(middle))
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    rate = np.exp(0.5 * (low + high))
    # A source without a target takes no rate that it would pay for.
    return np.where(low == -300.0, 0.0, rate)


def repeated(formula: Formula, m: int) -> tuple[Formula, ...]:
    return tuple(formula for _ in range(m))


def stratum(name: str, seed: int) -> Planted:
    """Return one of the instances of a stratum: budgets, targets, mixed or minimax."""
    random = np.random.default_rng([seed, 77])
    m, ill, n = int(random.integers(2, 61)), bool(seed % 2), 300
    if name == "budgets":
        kinds: tuple[Formula, ...] = ("harmonic", "delay", "binary", "power")
        return planted(seed, kinds[seed // 2 % 4], repeated("rate", m), n, ill=ill)
    if name == "minimax":
        two: tuple[Formula, ...] = ("rate", "harmonic", "binary" if seed // 2 % 2 else "harmonic")
        return planted(seed, "rate", tuple(two[k % 3] for k in range(m)), n, ill=ill, fair=True)
    if name == "targets":
        mixed: tuple[Formula, ...] = ("harmonic", "binary", "tail")
        rows = tuple(mixed[k % 3] for k in range(m)) if seed // 2 % 2 else repeated("harmonic", m)
        return planted(seed, "rate", rows, n, ill=ill)
    costs: tuple[Formula, ...] = ("rate", "delay", "binary", "harmonic")
    return planted(seed, "harmonic", tuple(costs[k % 4] for k in range(m)), n, ill=ill)
