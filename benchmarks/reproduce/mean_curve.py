"""Curves that a paper draws, as means over runs with their 95 % intervals: `Curve` and its constructors.

How to use it. A module ``curves_<paper>.py`` has a function ``curves(runs, quick, seed)`` that yields curves.
1. Pass one row per independent run, thinned to what can be seen in a figure: some 60 points.
2. `averaged` has the interval of the mean at each point by itself, as the statements have; `exactly` is for
   what is computed. A curve of differences of runs that share their random numbers has a narrower interval
   than its two curves: save it too, where the difference is the point.
3. ``figure``, ``panel`` and ``name`` tell curves apart; units belong into ``x_label`` and ``y_label``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from claims import mean_interval

Array = npt.NDArray[np.float64]
DIGITS = 6  # of what is kept; a figure shows three


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One curve of a figure.

    Attributes
    ----------
    figure, panel, name : str
        "Fig 2", "error", "SAM".
    x_label, y_label : str
    x, mean, low, high : ndarray, shape (points,)
        low = mean = high where nothing is random.
    runs : int
    """

    figure: str
    panel: str
    name: str
    x_label: str
    y_label: str
    x: Array
    mean: Array
    low: Array
    high: Array
    runs: int

    def record(self) -> dict[str, Any]:
        """Return what is saved."""
        return {key: _kept(value) if isinstance(value, np.ndarray) else value for key, value in self._items()}

    def _items(self) -> list[tuple[str, Any]]:
        return list(asdict(self).items())


Axis = tuple[str, str, str, str]  # figure, panel, and what is along x and y


def averaged(axis: Axis, name: str, x: npt.ArrayLike, samples: npt.ArrayLike, *, root: bool = False) -> Curve:
    """Return the mean over runs and its interval; with `root` their roots, for a root mean square.

    Parameters
    ----------
    axis : tuple of str
        Figure, panel, and the labels of x and y.
    name : str
    x : array_like, shape (points,)
    samples : array_like, shape (runs, points)
    root : bool
    """
    rows = np.asarray(samples, dtype=np.float64)
    found = np.array([mean_interval(column) for column in rows.T])
    found = np.sqrt(np.maximum(found, 0.0)) if root else found
    figure, panel, x_label, y_label = axis
    along = np.asarray(x, dtype=np.float64)
    return Curve(figure, panel, name, x_label, y_label, along, *found.T, runs=len(rows))


def exactly(axis: Axis, name: str, x: npt.ArrayLike, values: npt.ArrayLike) -> Curve:
    """Return a curve that is computed."""
    figure, panel, x_label, y_label = axis
    along, mean = np.asarray(x, dtype=np.float64), np.asarray(values, dtype=np.float64)
    return Curve(figure, panel, name, x_label, y_label, along, mean, mean, mean, runs=1)


def spaced(first: int, last: int, points: int) -> npt.NDArray[np.int64]:
    """Return whole numbers from first to last, equally spaced in the logarithm, none twice."""
    return np.unique(np.geomspace(first, last, points).round().astype(np.int64))


def _kept(values: Array) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]
