"""How old the copies are when a schedule begins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, as_vector
from freshopt.errors import SourceDataError


def check_ages(age: npt.ArrayLike, n: int) -> Array:
    """Return the ages of n copies, finite and ≥ 0.

    Raises
    ------
    SourceDataError
        If an age is negative or not a number, or there is not one for each source.
    """
    ages = as_vector(age, n, "age")
    if not bool(np.all((ages >= 0.0) & np.isfinite(ages))):
        raise SourceDataError("age must be numbers >= 0. Pass the time since each source's last crawl.")
    return ages
