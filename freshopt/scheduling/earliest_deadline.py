"""`EarliestDeadline`: constant total rate, earliest deadline first.

Each source has a virtual deadline: at first 1/ρ after its last crawl, then 1/ρ after its previous deadline,
whenever the crawl really was. What one crawl is late or early does not move the next, so that in the long run
every source has its rate; with deadlines counted from the crawl itself, those that are often late would fall
behind. The crawls are then the deadlines of all sources in their order, which is what is computed: one sort,
instead of a heap operation for every slot.

Where `Carousel` chooses the phases, this method takes the copies as they are: it is for a schedule that takes
over from another. Sources whose rates are multiples of each other keep meeting at the same moments, so that
their intervals are less equal than the carousel's.
Cost: that of `Carousel`, and up to one more refresh to sort for each source.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.refresh_order import check_ages, in_slots, require_ages


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
