"""Correction of a few rates to meet the bandwidth to rounding.

What rounding leaves of the bandwidth, 1e-13 of it and in float32 some 1e-10, goes to as few of 16 384 evenly
spaced sources between their bounds as can take it. Their rates change by a millionth, which loses the square
of it. The last steps are of the last bits, of sources with ever smaller ones, so that what is left is less
than the least of these, and on the side of too little.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.cuda.device import DeviceArray
from freshopt.cuda.device_columns import DeviceColumns, gathered, is_array, scattered
from freshopt.cuda.transfers import on_host
from freshopt.numerics.arrays import Array

# Sources that may change, and of them those that take single steps.
SOURCES, STEPPING = 16_384, 64
# Largest relative change of a rate, of which the square is lost; and a change in last bits that a kind of
# numbers carries well.
MOST, BITS = 1e-6, 8.0


def meet_bandwidth(columns: DeviceColumns, rates: DeviceArray, missing: float) -> None:
    """Add a missing bandwidth to a few rates, or take it away.

    - `rates` device array (n,): Changed in place.
    """
    if missing == 0.0 or not math.isfinite(missing):
        return
    stride = max(1, columns.n // SOURCES)
    n = len(range(0, columns.n, stride))

    def few(column: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - an array on the device, or a number
        return on_host(gathered(column, n, stride)) if is_array(column) else np.full(n, column)

    cost, lower, upper = (few(columns.demand_columns[name]) for name in ("cost", "lower", "upper"))
    scattered(corrected(few(rates), cost, lower, upper, missing), stride, rates)


def corrected(
    rates: npt.NDArray[Any], cost: Array, lower: Array, upper: Array, missing: float
) -> npt.NDArray[Any]:
    """Return rates that use a missing bandwidth more, or slightly less.

    Rates at a bound stay; nothing changes by more than `MOST`, relatively, but for one step of its kind.

    Examples
    --------
    >>> rates = np.array([1.0, 2.0, 4.0], dtype=np.float32)
    >>> new = corrected(rates, np.ones(3), np.zeros(3), np.full(3, np.inf), 1e-6)
    >>> bool(0.0 <= 1e-6 - (new.astype(float).sum() - 7.0) < 1.2e-7)
    True
    """
    own = rates.astype(np.float64)
    inside = np.flatnonzero((own > lower) & (own < upper))
    rooms = np.cumsum(cost[inside] * own[inside])
    if not len(rooms) or rooms[-1] == 0.0:
        return rates
    # As few as carry it: what is missing may be less than one step of each.
    carried = BITS * float(np.finfo(rates.dtype).eps)
    last = min(int(np.searchsorted(rooms, abs(missing) / carried)), len(rooms) - 1)
    share = min(MOST, max(-MOST, missing / float(rooms[last])))
    new, some = rates.copy(), inside[: last + 1]
    new[some] = _within((own[some] * (1.0 + share)).astype(rates.dtype), lower[some], upper[some])
    taken = cost[some] * (new[some].astype(np.float64) - own[some])
    left = missing - math.fsum(taken.tolist())
    step = cost[inside] * np.spacing(new[inside]).astype(np.float64)
    order = inside[np.argsort(-step, kind="stable")]
    some = order[np.unique(np.linspace(0, len(order) - 1, STEPPING).astype(np.int64))]
    for k in some:
        left -= _stepped(new, int(k), math.trunc(left / _step(new, cost, k)), cost, lower, upper)
    # Too little is feasible, too much is not.
    for k in some[::-1]:
        if left < 0.0:
            left -= _stepped(new, int(k), math.floor(left / _step(new, cost, k)), cost, lower, upper)
    return new


def _step(rates: npt.NDArray[Any], cost: Array, k: int) -> float:
    """Return the bandwidth that one step of a rate takes."""
    return float(cost[k]) * float(np.spacing(rates[k]))


def _stepped(rates: npt.NDArray[Any], k: int, steps: int, cost: Array, lower: Array, upper: Array) -> float:
    """Change a rate by last bits; return the bandwidth taken."""
    old, quantum = float(rates[k]), float(np.spacing(rates[k]))
    most = max(1, int(MOST * old / quantum))
    value = rates.dtype.type(old + max(-most, min(most, steps)) * quantum)
    if not lower[k] < value < upper[k]:
        return 0.0
    rates[k] = value
    return float(cost[k]) * (float(value) - old)


def _within(rates: npt.NDArray[Any], lower: Array, upper: Array) -> npt.NDArray[Any]:
    """Return rates that rounding took to a bound as the next within."""
    kind = rates.dtype.type
    below, above = np.nextafter(rates, kind(0.0)), np.nextafter(rates, kind(np.inf))
    return np.where(rates >= upper, below, np.where(rates <= lower, above, rates))
