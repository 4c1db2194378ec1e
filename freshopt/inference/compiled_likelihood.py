"""Rows of large logs sorted, and likelihoods maximised, by compiled loops.

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
from freshopt.inference.dated_crawls import first_dates
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import CHUNK, Array, BoolArray, chunks

Number = TypeVar("Number", np.float64, np.int64)

if TYPE_CHECKING:
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


def split_rows(log: CrawlLog, weight: Array | None) -> dict[str, Any]:
    """Return the arrays of a log's `CrawlLikelihood`."""
    n, size = len(log.sources_), int(np.count_nonzero(log.changed))
    counted, exposure, ends = np.empty(n), np.empty(n), np.zeros(n + 1, dtype=np.int64)
    # One more: an interval is written before it is known whether it stays.
    gaps, own = np.empty(size + 1), np.empty(0 if weight is None else size + 1)
    changed = log.changed.view(np.uint8)  # of booleans the compiler makes jumps
    told = (plain(NONE if column is None else column) for column in (log.changes, log.last_modified))
    columns = (log.offsets, log.interval, changed, *told, log.time, weight)
    m = _loops()[1](*columns, counted, exposure, ends, gaps, own)
    possible, age = first_dates(log, weight=None if weight is None else weight[log.offsets[:-1]])
    return {
        "intervals": gaps[:m],
        "offsets": ends,
        "counted": counted,
        "exposure": exposure,
        "weight": None if weight is None else own[:m],
        "possible": possible,
        "age": age,
    }


def maximise(likelihood: CrawlLikelihood, start: Array, moving: BoolArray, described: bool = False) -> Peaks:
    """Return the maxima, iterated to from starts left of them.

    Raises
    ------
    FreshoptError
        If one does not settle.
    """
    from freshopt.inference import likelihood_loops  # noqa: PLC0415 - numba loads only if needed

    n = len(start)
    births = None if likelihood.possible is None else likelihood.birth_rate
    columns = likelihood_loops.LikelihoodColumns(
        plain(likelihood.offsets),
        plain(likelihood.counted),
        plain(likelihood.exposure),
        plain(NONE if births is None or likelihood.possible is None else likelihood.possible),
        plain(NONE if births is None else births),
    )
    value, bend = (np.empty(n if described else 0) for _ in range(2))
    peaks = likelihood_loops.Peaks(start, moving, value, bend)
    rows = plain(likelihood.intervals), None if likelihood.weight is None else plain(likelihood.weight)
    unsettled = 0
    with np.errstate(over="ignore"):
        for part in chunks(n, CHUNK):
            unsettled += _loops()[0](
                part.start, part.stop, *rows, columns, likelihood.pseudo, STEP, STEPS, peaks
            )
    if unsettled:
        raise FreshoptError(
            f"the change rates of {unsettled} sources did not settle in {STEPS} steps. Report their gaps."
        )
    return Peaks(start, value, bend)


def plain(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return a read-only contiguous view.

    One type for the compiler, whoever made the array.
    """
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


@cache
def _loops() -> tuple[Callable[..., int], Callable[..., int]]:
    from freshopt.inference.likelihood_loops import build  # noqa: PLC0415 - numba loads only if needed

    return build()
