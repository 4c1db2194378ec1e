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

--save keeps benchmarks/results/last_modified.json and writes the tables of the evidence from it;
--page writes the tables alone.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import freshopt as fo
from benchmarks.accuracy.histories import (
    GAP,
    TEST,
    Floats,
    History,
    crawl_times,
    in_hindsight,
    log_of,
    read,
    world_of,
)
from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.objectives import AT_EQUAL_GAPS
from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.simulation.static_costs import ChangeWindow, static_costs

HISTORIES = ("scoop_packages", "eol_releases")
CRAWLS = (2, 5, 20)
SPLITS = (0.5, 0.65, 0.8)  # of the record


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


def compare(window: ChangeWindow, plans: dict[str, Floats], weight: Floats) -> dict[str, list[float]]:
    """Gains of plans over the first of them, in percent of the gap to hindsight."""
    gains: dict[str, list[float]] = {name: [] for name in plans}
    for objective in AT_EQUAL_GAPS.values():
        for mean_gap in (GAP / 4, GAP, 4 * GAP):
            bandwidth = len(weight) / mean_gap
            taken = {
                name: fo.solve(fo.Problem(objective, fo.Sources(rate, weight), bandwidth)).rates
                for name, rate in plans.items()
            }
            taken["hindsight"] = in_hindsight(window, weight, objective, bandwidth)
            costs = {
                name: float(weight @ static_costs(window, each, objective)) for name, each in taken.items()
            }
            today, hindsight = costs["without dates"], costs.pop("hindsight")
            for name, cost in costs.items():
                gains[name].append(100.0 * (today - cost) / (today - hindsight))
    return gains


def run(history: History, split: float, crawls: int, seeds: int, seed0: int) -> dict[str, list[float]]:
    """Gains of one history at one split."""
    begin, end = split, split + TEST * GAP
    lasting = np.flatnonzero((history.start < begin) & (history.stop >= end - 1e-9))
    gains: dict[str, list[float]] = {}
    for seed in range(seeds):
        rng = np.random.default_rng([seed0, crawls, seed])
        sample = lasting[rng.integers(len(lasting), size=len(lasting))]
        times = crawl_times(rng, len(sample), crawls, begin)
        there = history.start[sample] <= times[:, 0]
        sample, times = sample[there], times[there]
        weight = rng.pareto(1.5, len(sample)) + 1.0
        weight /= weight.sum()
        log, begun = (dated_log(history, sample, times, undated) for undated in (np.nan, 0.0))
        plain = without_dates(log)
        world = world_of([history.changes[k] for k in sample.tolist()], history.start[sample], end)
        window = ChangeWindow.of(world, begin, end)
        count = np.bincount(window.source[window.time > begin], minlength=len(sample))
        plans = {
            "without dates": learnt(plain),
            "last_modified": learnt(log),
            "last_modified, record's begin": learnt(begun),
            "smoothing=0.5": smoothed(plain),
            "known rates": (count + 0.1) / (end - begin),
        }
        for name, values in compare(window, plans, weight).items():
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
