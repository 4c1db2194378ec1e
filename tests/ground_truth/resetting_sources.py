"""Simulated sources whose change rates are drawn anew at Poisson times."""

import numpy as np
import numpy.typing as npt

import freshopt as fo

Floats = npt.NDArray[np.float64]


def resetting_log(
    n: int, days: float, gap: float, reset: float, shape: float, exposure: float, seed: int | list[int]
) -> tuple[fo.CrawlLog, Floats]:
    """Return a log of Poisson crawls, and the rates in force at its end.

    Rates are Gamma(shape, exposure); each is drawn anew at the rate `reset`.
    """
    rng = np.random.default_rng(seed)
    source, time, changed, last = [], [], [], []
    for k in range(n):
        inside = np.cumsum(rng.exponential(gap, int(days / gap + 10.0 * np.sqrt(days / gap) + 20.0)))
        crawl = np.concatenate([[0.0], inside[inside < days]])
        edge = np.concatenate([[0.0], np.sort(rng.uniform(0.0, days, rng.poisson(reset * days))), [days]])
        rate = rng.gamma(shape, 1.0 / exposure, len(edge) - 1)
        expected = np.interp(crawl, edge, np.concatenate([[0.0], np.cumsum(rate * np.diff(edge))]))
        source.append(np.full(len(crawl), k))
        time.append(crawl)
        changed.append(np.append(False, rng.random(len(crawl) - 1) < -np.expm1(-np.diff(expected))))
        last.append(rate[-1])
    log = fo.CrawlLog(np.concatenate(source), np.concatenate(time), np.concatenate(changed))
    return log, np.array(last)


def resetting_world(
    n: int, weeks: int, reset: float, seed: int, draw: int | list[int]
) -> tuple[fo.World, Floats]:
    """Return a world of Gamma(0.6, 10) rates, drawn anew from week to week, and Pareto(1.5) importances."""
    rng = np.random.default_rng(draw)
    rates = [rng.gamma(0.6, 0.1, n)]
    for _ in range(weeks):
        anew = rng.random(n) < -np.expm1(-7.0 * reset)
        rates.append(np.where(anew, rng.gamma(0.6, 0.1, n), rates[-1]))
    each = np.maximum(rates, 1e-9)
    jumps = {"times": 7.0 * np.arange(1, weeks + 1), "change_rate": each[1:]} if reset else {}
    importance = rng.pareto(1.5, n) + 1.0
    return fo.World.poisson(fo.Sources(each[0], importance), seed=seed, **jumps), importance
