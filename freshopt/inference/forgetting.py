"""`Forgetting`: exponential weights of old crawls, for rates that drift.

A crawl weighs 2^{−age/half-life}, its age counted back from the newest crawl of all. The weighted sums of a
batch can be carried over to a later one by one factor per batch, which keeps learning in batches as cheap as
it was. With weights w, estimates have the spread of those from (Σw)²/Σw² crawls that weigh alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray, as_number
from freshopt.units import SECONDS, convert_time

# log₂ of the smallest weight: products of two such weights stay above 0.
FAINTEST = -1000.0


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Weights of crawls by their age.

    Examples
    --------
    >>> Forgetting(2.0).factor(4.0, "day")
    0.25
    """

    half_life: float | None

    def __post_init__(self) -> None:
        """Check the half-life."""
        remedy = "Pass a length in days > 0, or None to forget nothing."
        length = None if self.half_life is None else as_number(self.half_life, "half_life", remedy)
        if length is not None and not SMALLEST <= length <= LARGEST:
            raise SourceDataError(f"half_life is {length}. {remedy}")

    @property
    def setting(self) -> str:
        """Text of the setting in an estimator's repr."""
        return "" if self.half_life is None else f", half_life={self.half_life}"

    def factor(self, age: float, time_unit: str) -> float:
        """Return the weight of an observation by its age.

        The age is in time units; 1 for ages of 0 and below.
        """
        if self.half_life is None or not age > 0:
            return 1.0
        return float(np.exp2(max(-age / convert_time(self.half_life, "day", time_unit), 0.5 * FAINTEST)))

    def weights(self, log: CrawlLog, row: IntArray | slice, newest: float) -> Array | None:
        """Return the weights of rows of a log.

        None where nothing is forgotten.
        """
        if self.half_life is None:
            return None
        if not log.timed:
            raise SourceDataError(
                "half_life needs to know how old crawls are, and the log has the gaps between them only "
                "(elapsed). Add the column time, or leave half_life out."
            )
        unit = convert_time(self.half_life, "day", log.time_unit)
        weights: Array = np.exp2(
            np.maximum((log.time[row] - (newest - moment_of(log, 0.0))) / unit, 0.5 * FAINTEST)
        )
        return weights


def moment_of(log: CrawlLog, time: float) -> float:
    """Return a log's time on a common clock.

    In time units: since 1970 if the log has dates.
    """
    return time + log.clock.epoch() / SECONDS[log.time_unit]
