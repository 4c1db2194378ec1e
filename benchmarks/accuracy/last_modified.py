"""Measure what dates of last change (`last_modified`) gain: on real histories and on simulated sources.

    python -m benchmarks last_modified [--data FOLDER] [--seeds 5] [--save]

FOLDER is as `histories.py` has it. A log of m crawls per source, and a first one, ends at a split, its gaps
are exponential with mean 7 days, its outcomes changed or not. Its dates are exact: that of a first crawl is
the source's last change or its first appearance; a source that neither changed nor appeared since the record
began tells none, or the moment when the record began ("record's begin"), a date that many share: a
deployment. Sources are those alive from before their first crawl until the end of the test; in each run they
are drawn anew (bootstrap), with Pareto(1.5) importances.

The plan made at the split, equal gaps at the learnt rates, is held against the true changes of the next 26
mean gaps. Equal gaps at a random phase are replayed exactly, by a sum over changes. The gain is the share of
the way from the plan without dates to the best static plan in hindsight, means over mean refresh gaps of 7/4,
7 and 28 days, binary freshness and harmonic staleness, splits and seeds. "Known rates" plans with the rates
of the test window's own counts, which are not known when a plan is made.

--save keeps benchmarks/results/last_modified.json and writes the tables of docs/last-modified.md from it;
--page writes the tables alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import freshopt as fo
from benchmarks.accuracy.histories import GAP, TEST, Floats, History, crawl_times, log_of, read
from benchmarks.harness import Claims, Measurement, Record, Row
from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.problems import BinaryFreshness, HarmonicStaleness

HISTORIES = ("scoop_packages", "eol_releases")
CRAWLS = (2, 5, 20)
SPLITS = (0.5, 0.65, 0.8)  # of the record
PERIODIC = fo.Refresh.PERIODIC


def dated_log(history: History, chosen: Floats, times: Floats, undated: float) -> fo.CrawlLog:
    """Return the log of crawls of some sources, shape (sources, crawls), with dates of last change.

    `undated` is told of sources that neither changed nor appeared since the record began.
    """
    modified = np.full(times.shape, np.nan)
    for row, k in enumerate(chosen.tolist()):
        own = history.seen[k]
        seen = np.searchsorted(own, times[row], side="right")
        last = own[np.maximum(seen - 1, 0)] if len(own) else np.full(len(seen), np.nan)
        modified[row] = np.where(seen > 0, last, undated)
    return log_of([history.changes[k] for k in chosen.tolist()], times, modified)


def without_dates(log: fo.CrawlLog) -> fo.CrawlLog:
    """Return the log as if no dates were told."""
    return fo.CrawlLog(log.source_index, log.time, log.changed)


def learnt(log: fo.CrawlLog) -> Floats:
    """Return the rates that a plan estimates."""
    return MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log).change_rate_


def smoothed(log: fo.CrawlLog) -> Floats:
    """Return the rates smoothed as in the papers."""
    return MaximumLikelihood(smoothing=0.5).fit(log).change_rate_


class Window:
    """True changes of some sources; costs of equal gaps at a random phase between two moments, exactly."""

    def __init__(self, times: list[Floats], begin: float, end: float) -> None:
        self.begin, self.end = begin, end
        times = [each[(each > begin - 4.0 * (end - begin)) & (each <= end)] for each in times]
        self.many = np.array([len(each) for each in times])
        self.flat = np.concatenate(times)
        self.source = np.repeat(np.arange(len(times)), self.many)
        self.first = (np.cumsum(self.many) - self.many)[self.source]
        self.after = np.append(self.flat[1:], end)
        self.after[np.cumsum(self.many)[self.many > 0] - 1] = end
        self.count = np.bincount(self.source[self.flat > begin], minlength=len(times))

    def cost(self, interval: Floats, harmonic: bool) -> Floats:
        """Mean cost of each source per unit of time at intervals of shape (n,).

        At a time x the age of the copy is uniform on (0, I), and k or more changes are missed where it
        exceeds x − x_k, the k-th last change. Binary is P(1 or more), harmonic the sum of P(k or more)/k.
        """
        width = np.minimum(interval, 1e6)[self.source]
        total = np.zeros(len(self.many))
        alive, k = np.flatnonzero(self.after > self.begin), 1
        while len(alive):
            before, own = self.flat[alive - (k - 1)], width[alive]
            now, after = np.maximum(self.flat[alive], self.begin), self.after[alive]
            each = _beyond(after - before, own) - _beyond(now - before, own)
            total += np.bincount(self.source[alive], each / k, len(total))
            if not harmonic:
                break
            alive = alive[(now - before < own) & (alive - k >= self.first[alive])]
            k += 1
        return total / (self.end - self.begin)


def _beyond(t: Floats, width: Floats) -> Floats:
    """∫₀^t P(age > x) dx, the age uniform on (0, width)."""
    t = np.minimum(t, width)
    return t - t * t / (2.0 * width)


GRID = np.geomspace(1e-5, 100.0, 240)  # refreshes per day


def best(curves: Floats, weight: Floats, bandwidth: float) -> float:
    """Cost of the best static rates in hindsight: costs of shape (grid, n) are convex in the rate."""
    low, high = 1e-12, 1e6
    value = np.inf
    for _ in range(80):
        price = np.sqrt(low * high)
        chosen = np.argmin(weight * curves + price * GRID[:, None], axis=0)
        spent = float(GRID[chosen].sum())
        low, high = (price, high) if spent > bandwidth else (low, price)
        # The dual value is a lower bound of what any static rates cost, and here their cost.
        bound = float((weight * curves + price * GRID[:, None]).min(axis=0).sum() - price * bandwidth)
        value = bound if not np.isfinite(value) else max(value, bound)
    return value


def planned(rate: Floats, weight: Floats, bandwidth: float, harmonic: bool) -> Floats:
    """Return the optimal refresh rates."""
    objective = HarmonicStaleness(PERIODIC) if harmonic else BinaryFreshness(PERIODIC)
    problem = fo.Problem(objective, fo.Sources(rate, weight), bandwidth)
    return fo.solve(problem).rates


def compare(
    window: Window, curves: dict[bool, Floats], sample: Floats, plans: dict[str, Floats], weight: Floats
) -> dict[str, list[float]]:
    """Gains of plans over the first of them, in percent of the gap to hindsight."""
    gains: dict[str, list[float]] = {name: [] for name in plans}
    for harmonic in (False, True):
        for mean_gap in (GAP / 4, GAP, 4 * GAP):
            bandwidth = len(sample) / mean_gap
            costs = {}
            for name, rate in plans.items():
                with np.errstate(divide="ignore"):
                    interval = 1.0 / planned(rate, weight, bandwidth, harmonic)
                costs[name] = float(weight @ window.cost(interval, harmonic))
            hindsight = best(curves[harmonic][:, sample], weight, bandwidth)
            today = costs["without dates"]
            for name, cost in costs.items():
                gains[name].append(100.0 * (today - cost) / (today - hindsight))
    return gains


def run(history: History, split: float, crawls: int, seeds: int, seed0: int) -> dict[str, list[float]]:
    """Gains of one history at one split."""
    begin, end = split, split + TEST * GAP
    lasting = np.flatnonzero((history.start < begin) & (history.stop >= end - 1e-9))
    window = Window([history.changes[k] for k in lasting], begin, end)
    curves = {
        h: np.array([window.cost(np.full(len(lasting), 1 / r), h) for r in GRID]) for h in (False, True)
    }
    gains: dict[str, list[float]] = {}
    for seed in range(seeds):
        rng = np.random.default_rng([seed0, crawls, seed])
        sample = rng.integers(len(lasting), size=len(lasting))
        times = crawl_times(rng, len(sample), crawls, begin)
        sample_at = history.start[lasting[sample]] <= times[:, 0]
        sample, times = sample[sample_at], times[sample_at]
        weight = rng.pareto(1.5, len(sample)) + 1.0
        weight /= weight.sum()
        log, begun = (dated_log(history, lasting[sample], times, undated) for undated in (np.nan, 0.0))
        plain = without_dates(log)
        drawn = Window([history.changes[k] for k in lasting[sample]], begin, end)
        plans = {
            "without dates": learnt(plain),
            "last_modified": learnt(log),
            "last_modified, record's begin": learnt(begun),
            "smoothing=0.5": smoothed(plain),
            "known rates": (drawn.count + 0.1) / (end - begin),
        }
        for name, values in compare(drawn, curves, sample, plans, weight).items():
            gains.setdefault(name, []).extend(values)
    return gains


def simulated(births: float, seed: int, n: int = 3000, a: float = 0.6, b: float = 20.0) -> dict[str, float]:
    """Learn from sources of Gamma(a, b) rates and exponential lives, two crawls after the first."""
    rng = np.random.default_rng([seed, int(1e6 * births)])
    rate = rng.gamma(a, 1.0 / b, n)
    age = rng.exponential(1.0, n) / (rate + births)
    gaps = rng.exponential(GAP, (n, 2))
    times = np.concatenate([np.zeros((n, 1)), np.cumsum(gaps, axis=1)], axis=1)
    changed, modified = np.zeros((n, 3), dtype=bool), np.full((n, 3), 0.0)
    modified[:, 0] = -age
    for j in (1, 2):
        back = rng.exponential(1.0, n) / rate
        changed[:, j] = back < gaps[:, j - 1]
        modified[:, j] = np.where(changed[:, j], times[:, j] - back, modified[:, j - 1])
    source = np.repeat(np.arange(n), 3)
    log = fo.CrawlLog(source, times.ravel(), changed.ravel(), last_modified=modified.ravel())
    prior = GammaPrior.from_log(log)
    rates, plain = learnt(log), learnt(without_dates(log))
    return {
        "birth_rate": prior.birth_rate,
        "shape": prior.shape,
        "exposure": prior.exposure,
        "sum": float(rates.sum() / rate.sum()),
        "rms": float(np.sqrt(np.mean(np.log(rates / rate) ** 2))),
        "rms without dates": float(np.sqrt(np.mean(np.log(plain / rate) ** 2))),
    }


def simulations(seeds: int = 5) -> Iterator[Row]:
    """Yield means over seeds by the rate of births."""
    for births in (0.0, 0.001, 0.01):
        runs = [simulated(births, seed) for seed in range(seeds)]
        mean = {key: float(np.mean([one[key] for one in runs])) for key in runs[0]}
        error = float(np.std([one["sum"] for one in runs], ddof=1) / np.sqrt(len(runs)))
        yield {"births": births, **mean, "sum_error": error}


def histories(data: Path | None = None, seeds: int = 5) -> Iterator[Row]:
    """Yield the gains on each real history by the length of the log."""
    for name in HISTORIES if data else ():
        history = read(data, name)
        for crawls in CRAWLS:
            gains: dict[str, list[float]] = {}
            for number, part in enumerate(SPLITS):
                for key, values in run(history, part * history.end, crawls, seeds, number).items():
                    gains.setdefault(key, []).extend(values)
            row: Row = {"history": name, "crawls": crawls}
            for key, values in gains.items():
                table = np.reshape(values, (len(SPLITS) * seeds, 2, 3))
                each = table.mean(axis=(1, 2))
                row[key] = {
                    "gain": float(each.mean()),
                    "error": float(each.std(ddof=1) / np.sqrt(len(each))),
                    "binary": table[:, 0].mean(axis=0).tolist(),
                    "harmonic": table[:, 1].mean(axis=0).tolist(),
                    "splits": table.reshape(len(SPLITS), -1).mean(axis=1).tolist(),
                }
            yield row


LEAST = {"scoop_packages": (30.0, 25.0, 10.0), "eol_releases": (22.0, 13.0, 6.0)}


def claims(record: Record) -> Claims:
    """Yield that births are found, and what dates gain at least."""
    for row in record["simulated"]:
        births, found = row["births"], row["birth_rate"]
        yield f"births {births:g}: found {found:.2g}", abs(found - births) <= max(0.1 * births, 1e-5)
        yield f"births {births:g}: the rates sum to {row['sum']:.3f} of the true", 0.95 < row["sum"] < 1.05
        yield f"births {births:g}: dates help", row["rms"] < row["rms without dates"]
    for row in record["histories"]:
        gain, least = row["last_modified, record's begin"]["gain"], LEAST[row["history"]]
        yield (
            f"{row['history']}, {row['crawls']} crawls: {gain:.0f}",
            gain >= least[CRAWLS.index(row["crawls"])],
        )
        yield f"{row['history']}: dates alone gain", row["last_modified"]["gain"] > 0.0


BENCH = Measurement(
    {"simulated": simulations, "histories": histories}, {"seeds": 5}, ("python",), claims=claims
)
