"""Large logs by compiled loops: rows sorted, likelihoods maximised, quantiles of posteriors.

What `crawl_likelihood` does in NumPy, from so many rows on that loading the loops pays. Which way is taken
depends on the number of rows alone: the same log gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from freshopt.compiled import backend
from freshopt.errors import FreshoptError
from freshopt.inference.dated_crawls import Intervals, SplitRows
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import CHUNK, Array, BoolArray, chunks

Number = TypeVar("Number", np.float64, np.int64)

if TYPE_CHECKING:
    from freshopt.inference import crawl_loops
    from freshopt.inference.crawl_likelihood import CrawlLikelihood

# Crawl intervals from which loops are used. Loaded they pay from 100 000 on, and from 10 000 for the 170
# evidences of a prior; but compiling them, once per machine, takes the ten seconds that NumPy takes for so
# many, and nobody's first plan should wait for that.
WORTHWHILE = 500_000
NONE = np.empty(0)
# Relative step that ends the iteration, which is of third order, and the largest number of steps.
STEP, STEPS = 3e-6, 200


class Peaks(NamedTuple):
    """Maxima of likelihoods.

    Attributes
    ----------
    rate, value : ndarray of float, shape (n,)
        Where l is largest, and l there.
    bend : ndarray of float, shape (n,)
        −d²l/d(ln Δ)² there.
    """

    rate: Array
    value: Array
    bend: Array


def worthwhile(rows: int) -> bool:
    """Return whether so many rows are left to compiled loops."""
    return rows >= WORTHWHILE and backend.compiled()


def split_rows(log: CrawlLog, weight: Array | None, *, quiet: bool) -> SplitRows:
    """Return the rows of a log, with optional weights, as `SplitRows.of` does."""
    n, changed = len(log.sources_), int(np.count_nonzero(log.changed))
    counted, time, exposure = np.empty(n), np.empty(n), np.empty(n)
    # One more: an interval is written before it is known whether it stays.
    sizes = (changed + 1, len(log) - changed + 1 if quiet else 0)
    lengths, own = ([np.empty(size) for size in sizes] for _ in range(2))
    ends = [np.zeros(n + 1, dtype=np.int64) for _ in sizes]
    told = (plain(NONE if column is None else column) for column in (log.changes, log.last_modified))
    # Of booleans the compiler makes jumps.
    columns = (log.offsets, log.interval, log.changed.view(np.uint8), *told, log.time, weight)
    rows = (_crawl_loops().Segments(*each) for each in zip(lengths, ends, strict=True))
    sizes = _loops()[1](*columns, counted, time, exposure, *rows, *own)
    found, others = (
        Intervals(length[:m], end, None if weight is None else w[:m])
        for length, end, w, m in zip(lengths, ends, own, sizes, strict=True)
    )
    return SplitRows(found, others if quiet else None, counted, time, exposure)


def maximise(likelihood: CrawlLikelihood, start: Array, moving: BoolArray, described: bool = False) -> Peaks:
    """Return the maxima, iterated to from starts left of them."""
    n = len(start)
    value, bend = (np.empty(n if described else 0) for _ in range(2))
    peaks = _crawl_loops().Peaks(start, moving, value, bend)
    given = (*_rows(likelihood.rows), _columns(likelihood), likelihood.pseudo, STEP, STEPS, peaks)
    with np.errstate(over="ignore"):
        unsettled = sum(_loops()[0](part.start, part.stop, *given) for part in chunks(n, CHUNK))
    if unsettled:
        raise FreshoptError(
            f"the change rates of {unsettled} sources did not settle in {STEPS} steps. Report their gaps."
        )
    return Peaks(start, value, bend)


def posterior_quantiles(likelihood: CrawlLikelihood, levels: Array) -> Array:
    """Return the quantiles of each source's change rate.

    Levels and rates have the shape (k, n), NaN for a source without data.
    """
    quiet = (None, None) if likelihood.quiet is None else _rows(likelihood.quiet)
    time = plain(NONE if likelihood.time is None else likelihood.time)
    given = (*_rows(likelihood.rows), *quiet, _columns(likelihood), time)
    rates, unsettled = np.full(levels.shape, np.nan), 0
    for part in chunks(len(likelihood.counted), CHUNK):
        asked, found = plain(levels[:, part]), np.full((len(levels), part.stop - part.start), np.nan)
        unsettled += _loops()[2](part.start, part.stop, *given, asked, found)
        rates[:, part] = found
    if unsettled:
        raise FreshoptError(f"{unsettled} quantiles did not settle. Report the gaps of the log.")
    return rates


def plain(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return a read-only contiguous view.

    One type for the compiler, whoever made the array.
    """
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


def _rows(rows: Intervals) -> tuple[crawl_loops.Segments, Array | None]:
    weight = None if rows.weight is None else plain(rows.weight)
    return _crawl_loops().Segments(plain(rows.length), plain(rows.offsets)), weight


def _columns(likelihood: CrawlLikelihood) -> crawl_loops.SourceColumns:
    births = None if likelihood.possible is None else likelihood.birth_rate
    dates = (NONE, NONE) if births is None or likelihood.possible is None else (likelihood.possible, births)
    columns: crawl_loops.SourceColumns = _crawl_loops().SourceColumns(
        *map(plain, (likelihood.counted, likelihood.exposure, *dates))
    )
    return columns


def _crawl_loops() -> Any:  # noqa: ANN401 - a module
    from freshopt.inference import crawl_loops  # noqa: PLC0415 - numba loads only if needed

    return crawl_loops


@cache
def _loops() -> tuple[Callable[..., int], Callable[..., tuple[int, int]], Callable[..., int]]:
    loops: tuple[Callable[..., int], Callable[..., tuple[int, int]], Callable[..., int]] = (
        _crawl_loops().build()
    )
    return loops
