"""Ages of the copies at the start of a schedule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, as_numbers, as_vector


def check_ages(age: npt.ArrayLike, n: int) -> Array:
    """Return the ages of n copies, finite and ≥ 0.

    Raises
    ------
    SourceDataError
        If an age is negative or not a number, or there is not one for each source.
    """
    ages = as_vector(age, n, "age")
    require_ages(ages)
    return ages


def require_ages(age: npt.ArrayLike) -> None:
    """Raise SourceDataError unless ages are numbers, finite and ≥ 0, however many."""
    ages = as_numbers(age, "age")
    if not bool(np.all((ages >= 0.0) & np.isfinite(ages))):
        raise SourceDataError("age must be numbers >= 0. Pass the time since each source's last crawl.")
