"""Mirror and projected steps by compiled bisection, row by row.

A run of the paper's length takes hundreds of them, and half of its time with the library's general step,
which also knows hosts. That both are the same step is a claim of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

Array: TypeAlias = npt.NDArray[np.float64]
# Halvings of the multiplier's bracket, which is at most some 10⁵ wide: to rounding.
HALVINGS = 64


@dataclass(frozen=True)
class Bisection:
    """A step of descent: argmin η⟨g, r⟩ + D(r, q) with a given Σ r, D of −Σ log r or ½Σ r²."""

    mirrored: bool

    def step(
        self,
        rates: npt.ArrayLike,
        gradient: npt.ArrayLike,
        bandwidth: float,
        min_rate: npt.ArrayLike,
        max_rate: npt.ArrayLike,
        learning_rate: float,
    ) -> Array:
        """Return the rates after a step; the bounds are those of all sources."""
        row = np.array(rates, dtype=np.float64)[None]
        push = learning_rate * np.asarray(gradient, dtype=np.float64)[None]
        ends = float(np.min(min_rate)), float(np.min(max_rate))
        return np.asarray(stepped(row, push, bandwidth, *ends, mirrored=self.mirrored)[0])


def stepped(
    rates: Array, push: Array, total: float, least: float, most: float, *, mirrored: bool = True
) -> Array:
    """Return r with φ'(r) = φ'(q) − ηg − λ, clipped to its bounds, whose sum is the total, row by row."""
    answer: Array = _loop()(rates, push, float(total), float(least), float(most), mirrored)
    return answer


@cache
def _loop() -> Callable[..., Any]:
    @njit(cache=True)  # type: ignore[untyped-decorator]
    def loop(rates, push, total, least, most, mirrored):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        answer = np.empty_like(rates)
        low_end, high_end = (1.0 / most, 1.0 / least) if mirrored else (least, most)
        for row in range(rates.shape[0]):
            # The multiplier moves gaps up (mirrored) or rates down; all are at an end at its bounds.
            at = 1.0 / rates[row] + push[row] if mirrored else rates[row] - push[row]
            sign = 1.0 if mirrored else -1.0
            low = low_end - at.max() if mirrored else at.min() - high_end
            high = high_end - at.min() if mirrored else at.max() - low_end
            for _ in range(HALVINGS):
                middle = 0.5 * (low + high)
                found = 0.0
                for k in range(at.size):
                    value = min(max(at[k] + sign * middle, low_end), high_end)
                    found += 1.0 / value if mirrored else value
                if found > total:
                    low = middle
                else:
                    high = middle
            for k in range(at.size):
                value = min(max(at[k] + sign * high, low_end), high_end)
                answer[row, k] = 1.0 / value if mirrored else value
        return answer

    return loop
