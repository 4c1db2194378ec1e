"""Simulated logs of sources whose rates have a weekly shape, by thinning: no formula of the library."""

from datetime import datetime

import numpy as np
import numpy.typing as npt

import freshopt as fo

Floats = npt.NDArray[np.float64]

HOURS = np.arange(168)
# Relative rates by hour of the week: weekdays from 9 to 18 most, and every day from 9 to 18.
OFFICE = np.where((HOURS // 24 < 5) & (HOURS % 24 >= 9) & (HOURS % 24 < 18), 3.0, 0.5)
OFFICE /= OFFICE.mean()
DAILY = np.where((HOURS % 24 >= 9) & (HOURS % 24 < 18), 2.0, 0.4)
DAILY /= DAILY.mean()
FLAT = np.ones(168)


def changes(rng: np.random.Generator, rate: float, hourly: Floats, horizon: float) -> Floats:
    """Return sorted change times in days from a Monday, of a Poisson process of rate·g."""
    most = float(hourly.max())
    time = rng.uniform(0.0, horizon, rng.poisson(rate * most * horizon))
    kept = rng.uniform(size=len(time)) * most < hourly[(time % 7.0 * 24.0).astype(int)]
    return np.sort(time[kept])


def log_of(
    rng: np.random.Generator,
    hourly: Floats,
    sources: int,
    crawls: int,
    gap: float,
    *,
    dated: bool = False,
    origin: datetime | None = None,
) -> fo.CrawlLog:
    """Return a log of crawls at exponential gaps, of sources with gamma rates."""
    columns: list[list[Floats]] = [[], [], [], []]
    for k, rate in enumerate(rng.gamma(0.6, 1.0 / 12.0, sources).tolist()):
        time = rng.uniform(0.0, 7.0) + np.concatenate(([0.0], np.cumsum(rng.exponential(gap, crawls))))
        own = changes(rng, rate, hourly, float(time[-1]))
        seen = np.searchsorted(own, time)
        last = np.append(own, np.nan)[seen - 1]
        each = (np.full(len(time), float(k)), time, np.diff(seen, prepend=seen[:1]) > 0, last)
        for column, values in zip(columns, each, strict=True):
            column.append(values)
    source, time, changed, date = (np.concatenate(column) for column in columns)
    if origin is None:
        return fo.CrawlLog(source.astype(int), time, changed, last_modified=date if dated else None)
    moment = np.datetime64(origin) + (time * 86_400e6).astype("timedelta64[us]")
    return fo.CrawlLog(source.astype(int), moment, changed)


def waits(hourly: Floats, gap: float, phase: Floats, fine: int = 20) -> Floats:
    """Mean waiting times at phases, by adding over a fine grid of moments of change."""
    weeks = max(1, round(gap / 7.0))
    x = (np.arange(weeks * 168 * fine) + 0.5) / (24.0 * fine)
    g = np.tile(np.repeat(hourly, fine), weeks)
    return np.array([float(np.mean(g * ((p - x) % gap))) for p in phase])
