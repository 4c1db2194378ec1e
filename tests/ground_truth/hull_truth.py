"""Lower hulls by brute force: own formulas of the costs, a fine grid, and Andrew's monotone chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.ground_truth.curves import mean_penalty

Floats = np.typing.NDArray[np.float64]
NAMES = ("delay", "binary", "harmonic")


def slope(name: str, x: float) -> float:
    """f'(x): what one more change in the mean costs."""
    return {"delay": 1.0, "binary": float(np.exp(-x)), "harmonic": float(-np.expm1(-x) / x)}[name]


@dataclass(frozen=True)
class Savings:
    """Stand-in for a profile: a saving for each gap, a share of the shorter of gap and week."""

    share: float = 0.1
    time_unit: str = "day"

    def saving(self, gaps: Floats, load_limit: float) -> Floats:
        """A share of the gap, less of long gaps and little of uneven fractions of a week."""
        week = {"day": 7.0, "hour": 168.0}[self.time_unit]
        parts = week / np.asarray(gaps, dtype=np.float64)
        uneven = np.where((parts > 1.5) & (parts < 6.5), 0.3, 1.0)
        return self.share * (1.0 - 1.0 / load_limit) * 2.0 * uneven * np.minimum(gaps, week)


def lower_chain(x: Floats, y: Floats) -> Floats:
    """Lower convex hull of points with increasing x, at the same x; never rising."""
    kept: list[int] = []
    for k in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2:]
            if (y[b] - y[a]) * (x[k] - x[a]) < (y[k] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(k)
    hull = np.interp(x, x[kept], y[kept])
    return np.minimum.accumulate(hull)


@dataclass(frozen=True)
class Grid:
    """Costs of one source on a grid of rates that holds the points exactly."""

    rate: Floats
    cost: Floats

    @classmethod
    def of(
        cls, name: str, change: float, weight: float, gaps: Floats, shorter: Floats, low: float, high: float
    ) -> Grid:
        """Costs w·J, less w·Δ·δ·f'(u/2) at commensurate gaps."""
        points = 1.0 / gaps
        ends = [x for x in (low, high) if 0.0 < x < np.inf]
        rate = np.unique(np.concatenate([np.geomspace(1e-6, 1e2, 8_001), points, ends]))
        rate = rate[(rate >= low) & (rate <= high)]
        cost = weight * mean_penalty(name, change / rate)
        for point, gap, less in zip(points, gaps, shorter, strict=True):
            cost[rate == point] -= weight * change * less * slope(name, change * gap / 2.0)
        return cls(rate, cost)

    def hull(self) -> Floats:
        """Its lower hull, on the grid."""
        return lower_chain(self.rate, self.cost)

    def lagrangian(self, price: Floats) -> Floats:
        """min over the grid of cost + price·rate, for each price."""
        return np.array([float(np.min(self.cost + one * self.rate)) for one in price])
