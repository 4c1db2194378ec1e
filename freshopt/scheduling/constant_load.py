"""`Carousel`, `EarliestDeadline`: refreshes at an exactly constant total rate.

A crawler that fetches one page after the other has a rate of its own: the schedule only says whose turn it
is. Both methods take points (φ + j)/ρ of equal intervals, and assign the slots to them in their order.

The carousel chooses the phases φ, so that the intervals of each source are as equal as a constant rate
allows. A source's turn is off its point by as many slots as the load of the points is off its straight line:
with golden-ratio phases 71 of a million for 10⁵ sources with lognormal rates, ten refreshes each on average,
against 320 with that sequence assigned by position and 360 with random phases. The cost of unequal intervals
is then negligible; the load is one refresh per slot, always.

Earliest deadline first takes the copies as they are: it is for a schedule that takes over from another. Each
source has a virtual deadline: at first 1/ρ after its last crawl, then 1/ρ after its previous deadline,
whenever the crawl really was. What one crawl is late or early does not move the next, so that in the long run
every source has its rate; with deadlines counted from the crawl itself, those that are often late would fall
behind. The crawls are then the deadlines of all sources in their order, which is what is computed: one sort,
instead of a heap operation for every slot. Sources whose rates are multiples of each other keep meeting at
the same moments, so that their intervals are less equal than the carousel's.

Cost: that of `Periodic`, and up to one more refresh to sort for each source.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.refresh_order import check_ages, in_slots, require_ages, spread_phases


@dataclass(frozen=True, slots=True)
class Carousel:
    """Constant-rate schedule in the order of the sources' points.

    One refresh is in the middle of every slot of length 1/Σρ, of the source whose point is next.

    Examples
    --------
    >>> import numpy as np
    >>> source, time = Carousel().times(np.array([1.0, 3.0]), 2.0)
    >>> source.tolist(), time.tolist()
    ([1, 1, 0, 1, 1, 1, 0, 1], [0.125, 0.375, 0.625, 0.875, 1.125, 1.375, 1.625, 1.875])
    """

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        return in_slots(rates, spread_phases(rates), horizon)


@dataclass(frozen=True, slots=True, eq=False)
class EarliestDeadline:
    """Constant-rate schedule by earliest deadline first.

    One refresh is in the middle of every slot of length 1/Σρ, of the source with the earliest deadline.

    Parameters
    ----------
    age : array_like, scalar or shape (n,)
        Time since each copy was refreshed when the schedule begins; 0 means fresh. A source that is
        overdue is due at once.

    Notes
    -----
    Slots are never left empty: while nothing is due yet, the next deadlines are served ahead of time. With
    all copies fresh at first the crawls run ahead of their deadlines by half an interval on average.

    Examples
    --------
    >>> source, time = EarliestDeadline(age=[0.0, 1.0]).times(np.array([1.0, 1.0]), 2.0)
    >>> source.tolist(), time.tolist()
    ([1, 0, 1, 0], [0.25, 0.75, 1.25, 1.75])
    """

    age: npt.ArrayLike = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        """Raise SourceDataError unless the initial ages are valid.

        That there is one per source, `times` finds out.
        """
        require_ages(self.age)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`.

        Raises
        ------
        SourceDataError
            If an age is negative or not a number, or there is not one per source.
        """
        ages = check_ages(self.age, len(rates))
        with np.errstate(over="ignore"):  # long overdue
            phase = np.maximum(1.0 - rates * ages, 0.0)
        return in_slots(rates, phase, horizon)
