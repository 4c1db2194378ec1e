"""`Scale`: linear and logarithmic axes with round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.formatting import number
from freshopt.numerics.arrays import Array

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Scale:
    """Map from numbers to pixels along an axis."""

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: npt.ArrayLike) -> Array:
        """Return places in pixels, clipped to the axis."""
        inside = np.clip(np.asarray(value, dtype=np.float64), self.low, self.high)
        share = (self._along(inside) - self._along(self.low)) / (
            self._along(self.high) - self._along(self.low)
        )
        return np.asarray(np.round(self.begin + share * (self.end - self.begin), 1))

    def ticks(self, most: int = 6) -> list[float]:
        """Return at most `most` round numbers.

        On a short logarithmic axis there may be a few more.

        Examples
        --------
        >>> Scale(0.0, 93.0, 0, 100).ticks(), Scale(0.004, 30.0, 0, 100, logarithmic=True).ticks()
        ([0.0, 20.0, 40.0, 60.0, 80.0], [0.01, 0.1, 1.0, 10.0])
        """
        if not self.logarithmic:
            step = nice(self.high - self.low, most)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [float(f"{k * step:.12g}") for k in range(first, last + 1)]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        between = (1, 2, 5) if last - first <= 3 else (1,)
        stride = max(1, -(-(last - first) // most))
        found = [float(f"{digit}e{k}") for k in range(first, last + 1) for digit in between]
        found = [tick for tick in found if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]
        return (
            found
            if len(between) > 1 or stride == 1
            else [tick for tick in found if round(math.log10(tick)) % stride == 0]
        )

    def _along(self, value: npt.ArrayLike) -> Array:
        return np.log10(value) if self.logarithmic else np.asarray(value, dtype=np.float64)


def covering(values: Array, begin: float, end: float) -> Scale:
    """Return a logarithmic scale around the positive finite values."""
    useful = values[(values > 0.0) & np.isfinite(values)]
    low, high = (float(np.min(useful)), float(np.max(useful))) if len(useful) else (1.0, 1.0)
    room = max(1.15, (high / low) ** 0.04)
    if high / low < 10.0:
        # Over a narrower range negligible differences would look large.
        room = max(room, math.sqrt(10.0 * low / high))
    return Scale(max(low / room, 1e-300), min(high * room, 1e300), begin, end, logarithmic=True)


def nice(span: float, most: int) -> float:
    """Return the least 1, 2 or 5 × 10^k for `most` parts."""
    if not span > 0.0:
        return 1.0
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    return float(next(digit * power for digit in (1, 2, 5, 10) if digit * power >= raw * (1 - 1e-9)))


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Return an axis' labels, all plain or all powers of ten.

    Examples
    --------
    >>> tick_texts([1e-4, 0.01, 20000.0]), tick_texts([1e-7, 0.01, 1.0]), tick_texts([0.0, 5e9])
    (['0.0001', '0.01', '20,000'], ['10⁻⁷', '10⁻²', '1'], ['0', '5·10⁹'])
    """
    if all(tick == 0.0 or 1e-4 <= abs(tick) < 1e6 for tick in ticks):
        return [number(tick) for tick in ticks]
    return [_power(tick) for tick in ticks]


def _power(value: float) -> str:
    """Return a number as a multiple of a power of ten."""
    if value in (0.0, 1.0):
        return number(value)
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    digits = f"{value / 10.0**exponent:.3g}"
    power = f"10{str(exponent).translate(_SUPERSCRIPT)}"
    return power if digits == "1" else f"{digits}·{power}"
