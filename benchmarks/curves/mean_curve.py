"""Curves that a paper draws, as means over runs with their 95 % intervals: `Curve` and its constructors.

How to use it. A module ``curves_<paper>.py`` has a function ``curves(runs, few, seed)`` that yields curves,
of the same algorithms, settings and seeds as the statements of `reproduce.py`; a figure's verdict is there,
its picture here. `runs` are those of a curve in place of each paper's own number. 1. Pass one row per
independent run, thinned to what can be seen in a figure: some 60 points. 2. `averaged` has the interval of
the mean at each point by itself, as the statements have; `exactly` is for    what is computed. A curve of
differences of runs that share their random numbers has a narrower interval    than its two curves: save it
too, where the difference is the point. 3. ``figure``, ``panel`` and ``name`` tell curves apart; units belong
into ``x_label`` and ``y_label``.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.reproduce.claims import mean_interval

Array = npt.NDArray[np.float64]
DIGITS = 6  # of what is kept; a figure shows three


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One curve of a figure, as "Fig 2", "error", "SAM"; low = mean = high where nothing is random."""

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

    def record(self) -> Row:
        """Return what is saved."""
        items = asdict(self).items()
        return {key: _kept(value) if isinstance(value, np.ndarray) else value for key, value in items}


Axis = tuple[str, str, str, str]  # figure, panel, and what is along x and y


def averaged(axis: Axis, name: str, x: npt.ArrayLike, samples: npt.ArrayLike, *, root: bool = False) -> Curve:
    """Return the mean of samples, shape (runs, points), and its interval; with `root` their roots.

    The axis has figure, panel, and the labels of x and y.
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


def measured_curves(paper: str, curves: Callable[[int, bool, int], Iterator[Curve]]) -> Measurement:
    """Return the measurement of a paper's curves."""

    def rows(runs: int = 0, few: bool = False, seed: int = 0) -> Iterator[Row]:
        yield from (each.record() for each in curves(runs, few, seed))

    return Measurement(
        {"curves": rows},
        quick={"few": True},
        facts=("seed", "quick", "seconds"),
        notes={"paper": paper, "runs": None},
        claims=whole,
        large=True,
    )


def whole(record: Record) -> Claims:
    """Yield that curves are told apart, and have as many means and ends as points."""
    keys = [(each["figure"], each["panel"], each["name"]) for each in record["curves"]]
    yield "no curve twice", 0 < len(set(keys)) == len(keys)
    for each, key in zip(record["curves"], keys, strict=True):
        x, *sides = (each[name] for name in ("x", "low", "mean", "high"))
        yield f"{key}: points", x == sorted(x) and {len(x)} == set(map(len, sides)) and len(x) > 1
        yield f"{key}: ends", all(a <= b <= c for a, b, c in zip(*sides, strict=True))
        yield f"{key}: labels", bool(each["x_label"] and each["y_label"])
        yield f"{key}: exact", each["runs"] > 1 or sides[0] == sides[1] == sides[2]
