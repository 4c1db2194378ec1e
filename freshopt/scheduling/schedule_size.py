"""`check_size`: whether a schedule fits in the memory that is free."""

from __future__ import annotations

import math

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, total
from freshopt.numerics.memory import free_memory

# Bytes per refresh until a schedule is written: 16 stay, the rest is for sorting (measured: 44 in NumPy, 28
# compiled), and then for its table with timestamps (measured: 63).
PEAK_BYTES = 64
# The same of a whole plan, whose costs and page are found from its schedule (measured: 155).
PLANNED_BYTES = 160
# Where nobody knows what is free: 268 million refreshes, more than a crawler loads at once.
MOST_BYTES = 16 * 2**30


def check_size(rates: Array, horizon: float, time_unit: str, each: int = PEAK_BYTES) -> None:
    """Raise if a schedule would not fit in memory.

    Before making it, at `each` so many bytes a refresh. A horizon that is no finite number is refused by the
    schedule itself.
    """
    load, free = total(rates), free_memory()
    limit = MOST_BYTES if free is None else free
    if horizon < math.inf and load * horizon * each > limit:
        longest = limit / each / load
        room = (
            f"{limit / 2**30:.3g} GiB are free" if free is not None else f"the limit is {limit / 2**30:g} GiB"
        )
        raise SourceDataError(
            f"{load:.4g} refreshes per {time_unit} for {horizon:g} {time_unit}s need about "
            f"{load * horizon * each / 2**30:.3g} GiB until they are written, and {room}. "
            f"Choose a horizon of at most {longest:.3g} {time_unit}s and schedule again after it."
        )
