"""`Survey`: a plan's sources, as points or counted cells.

A page must stay small: up to `POINTS` sources are drawn one by one, with their names; more are counted in the
cells of a grid. Tables are read twice, once for the ranges and once to count, so that parts of a table larger
than memory need no more than a part at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from freshopt.heavy import polars
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.report.axis import Scale, covering

# Sources up to which each is a named point of each chart, some 150 bytes.
POINTS = 1000
# Cells of about the size of a point.
GRID = (44, 30)
# Bins along one axis.
BINS = 64
# Rates whose ratio is nearer to 1 are the same.
MOVED = 1.05


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts of sources by one property and by rate, on logarithmic scales."""

    x: Scale
    y: Scale
    many: Array
    never: Array


@dataclass(frozen=True, slots=True)
class Survey:
    """Data of the charts of all sources.

    Points are there where sources are few, and cells only where importances differ, or where somebody crawled
    (of sources with a known crawl rate). Ratios are of planned over crawled rates. The rows of reach are
    counts along the change rates, and the geometric means of the ends of their intervals.
    """

    n: int
    never: int
    weighed: bool
    idle: bool
    points: polars.DataFrame | None
    by_change_rate: Cells
    by_importance: Cells | None
    by_crawl_rate: Cells | None
    ratio: Array
    ratio_scale: Scale
    gaps: Array
    gap_scale: Scale
    reach: Array

    @property
    def crawled_alike(self) -> bool:
        """Whether all sources were crawled equally often."""
        cells = self.by_crawl_rate
        return cells is None or int(np.count_nonzero(np.sum(cells.many, axis=1) + cells.never)) < 2


def survey(read: Callable[[], Iterable[polars.DataFrame]]) -> Survey:
    """Return the survey of parts that can be read twice."""
    spans = {key: np.empty(0) for key in ("change_rate", "rate", "importance", "crawl_rate", "ratio")}
    n, alone, idle = 0, None, False
    for part in read():
        n, alone, columns = n + len(part), part, _numbers(part)
        for key, known in spans.items():
            if key in columns:
                spans[key] = _span(known, columns[key])
        idle = idle or ("importance" in part.columns and bool((part["importance"] == 0.0).any()))
    weighed = len(spans["importance"]) > 0 and bool(np.ptp(spans["importance"]) > 0.0)
    x, y = (covering(spans[key], 0.0, size) for key, size in zip(("change_rate", "rate"), GRID, strict=True))
    counted = {"change_rate": True, "importance": weighed, "crawl_rate": len(spans["crawl_rate"]) > 0}
    cells = {
        key: Cells(covering(spans[key], 0.0, GRID[0]), y, np.zeros(GRID), np.zeros(GRID[0]))
        for key, there in counted.items()
        if there
    }
    moves = covering(spans["ratio"], 0.0, BINS)
    ratios = np.zeros(BINS)
    gap = Scale(1.0 / y.high, 1.0 / y.low, 0.0, BINS, logarithmic=True)
    gaps, reach, never = np.zeros(BINS), np.zeros((3, BINS)), 0
    for part in read():
        columns = _numbers(part)
        rate, ratio = columns["rate"], columns.get("ratio")
        some = rate > 0.0
        never += int(np.count_nonzero(~some))
        for key, each in cells.items():
            known = ~np.isnan(columns[key])
            _count(each, columns[key][known], rate[known], some[known])
        if ratio is not None:
            ratios += np.bincount(_place(moves, ratio[ratio > 0.0], BINS), minlength=BINS)
        gaps += np.bincount(_place(gap, 1.0 / rate[some], BINS), minlength=BINS)
        place = _place(Scale(x.low, x.high, 0.0, BINS, logarithmic=True), columns["change_rate"], BINS)
        for row, weight in enumerate((None, _log(columns["lower"], x), _log(columns["upper"], x))):
            reach[row] += np.bincount(place, weight, BINS)
    with np.errstate(invalid="ignore"):
        reach[1:] = np.exp(reach[1:] / reach[0])
    points = alone if n <= POINTS and alone is not None and len(alone) == n else None
    by = cells["change_rate"], cells.get("importance"), cells.get("crawl_rate")
    return Survey(n, never, weighed, idle, points, *by, ratios, moves, gaps, gap, reach)


def _numbers(part: polars.DataFrame) -> dict[str, Array]:
    """Return columns of numbers, with the ratios of planned and crawled rates."""
    keys = ("change_rate", "lower", "upper", "importance", "rate", "crawl_rate")
    columns: dict[str, Array] = {key: part[key].to_numpy() for key in keys if key in part.columns}
    if "crawl_rate" in columns:
        crawled, unknown = columns["crawl_rate"], np.full(len(part), np.nan)
        columns["ratio"] = np.divide(columns["rate"], crawled, out=unknown, where=crawled > 0.0)
    return columns


def _span(known: Array, column: Array) -> Array:
    """Return the range of positive finite numbers so far."""
    useful = column[(column > 0.0) & np.isfinite(column)]
    if len(useful) == 0:
        return known
    every = np.append(known, [np.min(useful), np.max(useful)])
    return np.array([np.min(every), np.max(every)])


def _count(cells: Cells, x: Array, rate: Array, some: BoolArray) -> None:
    """Add sources to their cells."""
    across = _place(cells.x, x, GRID[0])
    up = _place(cells.y, rate[some], GRID[1])
    cells.many[:] += np.bincount(across[some] * GRID[1] + up, minlength=GRID[0] * GRID[1]).reshape(GRID)
    cells.never[:] += np.bincount(across[~some], minlength=GRID[0])


def _place(scale: Scale, values: Array, cells: int) -> IntArray:
    """Return the cell of each number, clipped to the scale."""
    inside = np.log(np.clip(values, scale.low, scale.high) / scale.low)
    share = inside / np.log(scale.high / scale.low)
    return np.asarray(np.minimum((share * cells).astype(np.int64), cells - 1))


def _log(values: Array, scale: Scale) -> Array:
    """Return logarithms, of numbers within a hundred times the scale."""
    return np.asarray(np.log(np.clip(values, scale.low / 100.0, scale.high * 100.0)))
