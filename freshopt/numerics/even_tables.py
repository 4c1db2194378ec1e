"""`interpolated`: cubic interpolation in tables with even knots.

A table has a row of values per function, all at the same knots, such that the place of an argument is found
once for all rows. Four knots around it decide the value, so that a NaN spoils its neighbours only.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array, chunks


def interpolated(x: Array, knots: Array, rows: Array) -> Array:
    """Return cubic interpolants of several functions at x.

    - `x` (n,): Within the knots.
    - `knots` (m,): Evenly spaced, m ≥ 4.
    - `rows` (K, m): Values of K functions at the knots.
    - returns (K, n)

    Examples
    --------
    >>> knots = np.linspace(0.0, 1.0, 101)
    >>> found = interpolated(np.array([0.123]), knots, np.stack([np.sin(knots), knots**3]))
    >>> np.abs(found[:, 0] - [np.sin(0.123), 0.123**3]).max() < 1e-9
    np.True_
    """
    found = np.empty((len(rows), len(x)))
    step = (knots[-1] - knots[0]) / (len(knots) - 1)
    for part in chunks(len(x)):
        place = (x[part] - knots[0]) / step
        first = np.clip(np.floor(place).astype(np.int64) - 1, 0, len(knots) - 4)
        t = place - first
        # Lagrange's polynomials of the knots 0, 1, 2 and 3.
        weights = (
            -(t - 1.0) * (t - 2.0) * (t - 3.0) / 6.0,
            t * (t - 2.0) * (t - 3.0) / 2.0,
            -t * (t - 1.0) * (t - 3.0) / 2.0,
            t * (t - 1.0) * (t - 2.0) / 6.0,
        )
        for k, row in enumerate(rows):
            found[k, part] = sum(weight * row[first + j] for j, weight in enumerate(weights))
    return found
