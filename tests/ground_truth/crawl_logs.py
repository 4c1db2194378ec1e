"""Simulated crawls as logs, row by row: what crawls of Poisson sources find, and when such sources change."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.logs.crawl_log import CrawlLog

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Rows = Sequence[Any] | npt.NDArray[Any]


def found_changes(rng: np.random.Generator, rates: npt.ArrayLike, gaps: Floats) -> Flags:
    """Draw which crawls after these gaps find a change."""
    return np.asarray(rng.random(gaps.shape) < -np.expm1(-np.asarray(rates) * gaps))


def poisson_events(
    rng: np.random.Generator, rates: npt.ArrayLike, horizon: float, n: int | None = None
) -> tuple[Ints, Floats]:
    """Draw the changes of Poisson sources, or of n at one rate: their sources and times from 0 on."""
    many = np.asarray(rng.poisson(np.asarray(rates) * horizon, n))
    return np.repeat(np.arange(len(many)), many), rng.uniform(0.0, horizon, int(many.sum()))


def log_of_gaps(
    gaps: Rows,
    changed: Rows,
    changes: Rows | None = None,
    *,
    names: npt.NDArray[Any] | None = None,
    time_unit: str = "day",
    **more: Rows,
) -> CrawlLog:
    """Return the log of crawls of each source after gaps that are told, the first one too."""
    columns = {"elapsed": gaps, "changed": changed, **more}
    columns |= {} if changes is None else {"changes": changes}
    source = np.repeat(np.arange(len(gaps)), [len(each) for each in gaps])
    rows = {key: np.concatenate(list(values)) for key, values in columns.items()}
    return CrawlLog.from_columns({"source": source, **rows}, names=names, time_unit=time_unit)


def log_after_baselines(gaps: Floats, changed: Flags, **more: Any) -> CrawlLog:  # noqa: ANN401
    """Return the log of sources with a baseline at 0, and crawls after gaps, shape (sources, crawls)."""
    n, crawls = gaps.shape
    time = np.concatenate([np.zeros((n, 1)), np.cumsum(gaps, axis=1)], axis=1)
    found = np.concatenate([np.zeros((n, 1), dtype=np.bool_), changed], axis=1)
    return CrawlLog(np.repeat(np.arange(n), crawls + 1), time.ravel(), found.ravel(), **more)


def log_at(times: npt.ArrayLike, changed: Rows, **more: Any) -> CrawlLog:  # noqa: ANN401
    """Return the log of sources that are crawled at the same times, a row of outcomes for each."""
    n, at = len(changed), np.asarray(times, dtype=np.float64)
    return CrawlLog(np.repeat(np.arange(n), len(at)), np.tile(at, n), np.concatenate(list(changed)), **more)
