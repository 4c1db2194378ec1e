"""Measure what dates of last change (`last_modified`) gain: on real histories and on simulated sources.

    python benchmarks/accuracy/last_modified.py [--data FOLDER] [--seeds 5] [--save]

FOLDER holds NAME.events.parquet (source, time in days, kind 0 where a source is first seen, 1 for a change)
and NAME.sources.parquet (source, start and stop in days). A log of m crawls per source, and a first one, ends
at a split, its gaps are exponential with mean 7 days, its outcomes changed or not. Its dates are exact: that
of a first crawl is the source's last change or its first appearance; a source that neither changed nor
appeared since the record began tells none, or the moment when the record began ("record's begin"), a date
that many share: a deployment. Sources are those alive from before their first crawl until the end of the
test; in each run they are drawn anew (bootstrap), with Pareto(1.5) importances.

The plan made at the split, equal gaps at the learnt rates, is held against the true changes of the next 26
mean gaps. Equal gaps at a random phase are replayed exactly, by a sum over changes. The gain is the share of
the way from the plan without dates to the best static plan in hindsight, means over mean refresh gaps of 7/4,
7 and 28 days, binary freshness and harmonic staleness, splits and seeds. "Known rates" plans with the rates
of the test window's own counts, which are not known when a plan is made.

--save keeps benchmarks/results/last_modified.json and writes the tables of docs/last-modified.md from it;
--page writes the tables alone.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.problems import BinaryFreshness, HarmonicStaleness

ROOT = Path(__file__).resolve().parents[2]
SAVED, PAGE = ROOT / "benchmarks" / "results" / "last_modified.json", ROOT / "docs" / "last-modified.md"
HISTORIES = ("scoop_packages", "eol_releases")
GAP, TEST = 7.0, 26  # days; mean gaps in the test window
CRAWLS = (2, 5, 20)
SPLITS = (0.5, 0.65, 0.8)  # of the record
PERIODIC = fo.Refresh.PERIODIC
Floats = np.ndarray


class History:
    """Events of one data set, sorted by source and time."""

    def __init__(self, folder: Path, name: str) -> None:
        import polars as pl

        events = pl.read_parquet(folder / f"{name}.events.parquet").with_columns(
            pl.col("source").cast(pl.String)
        )
        sources = pl.read_parquet(folder / f"{name}.sources.parquet").sort("source")
        codes = {label: k for k, label in enumerate(sources["source"].to_list())}
        self.start, self.stop = sources["start"].to_numpy(), sources["stop"].to_numpy()
        code = events["source"].replace_strict(codes, return_dtype=pl.Int64).to_numpy()
        time, is_change = events["time"].to_numpy(), events["kind"].to_numpy() == 1
        self.any = _grouped(code, time, len(codes))
        self.changes = _grouped(code[is_change], time[is_change], len(codes))
        self.end = float(self.stop.max())


def _grouped(code: Floats, time: Floats, n: int) -> list[Floats]:
    order = np.lexsort((time, code))
    return np.split(time[order], np.cumsum(np.bincount(code, minlength=n))[:-1])


def log_of(history: History, chosen: Floats, begin: Floats, undated: float) -> fo.CrawlLog:
    """Return the log of crawls at `begin`, shape (sources, crawls), of some sources.

    `undated` is told of sources that neither changed nor appeared since the record began.
    """
    changed, modified = np.zeros(begin.shape, dtype=bool), np.full(begin.shape, np.nan)
    for row, k in enumerate(chosen.tolist()):
        found = np.searchsorted(history.changes[k], begin[row], side="right")
        changed[row, 1:] = np.diff(found) > 0
        seen = np.searchsorted(history.any[k], begin[row], side="right")
        last = history.any[k][np.maximum(seen - 1, 0)] if len(history.any[k]) else np.full(len(seen), np.nan)
        modified[row] = np.where(seen > 0, last, undated)
    source = np.repeat(np.arange(len(chosen)), begin.shape[1])
    return fo.CrawlLog(source, begin.ravel(), changed.ravel(), last_modified=modified.ravel())


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
        gaps = rng.exponential(GAP, (len(sample), crawls))
        times = begin - np.concatenate(
            [np.cumsum(gaps[:, ::-1], axis=1)[:, ::-1], np.zeros((len(sample), 1))], 1
        )
        sample_at = history.start[lasting[sample]] <= times[:, 0]
        sample, times = sample[sample_at], times[sample_at]
        weight = rng.pareto(1.5, len(sample)) + 1.0
        weight /= weight.sum()
        log = log_of(history, lasting[sample], times, np.nan)
        begun = log_of(history, lasting[sample], times, 0.0)
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


def page(text: str, found: dict[str, Any]) -> str:
    """Return the page with the tables of a saved run."""
    names = ("last_modified", "last_modified, record's begin", "smoothing=0.5", "known rates")
    gains = [
        "| history | crawls | dates | dates, begin told | smoothing 0.5 | own counts |",
        "| --- " * 6 + "|",
    ]
    for row in found["histories"]:
        cells = (f"{row[name]['gain']:.0f} ± {row[name]['error']:.0f}".replace("-", "−") for name in names)
        gains.append(f"| {row['history']} | {row['crawls']} | " + " | ".join(cells) + " |")
    births = ["| η | learnt | sum | error | error without dates |", "| --- " * 5 + "|"]
    for row in found["simulated"]:
        cells = (
            f"{row[key]:{form}}" for key, form in (("births", "g"), ("birth_rate", ".2g"), ("sum", ".3f"))
        )
        births.append(f"| {' | '.join(cells)} | {row['rms']:.2f} | {row['rms without dates']:.2f} |")
    for name, table in (("gains", gains), ("simulated", births)):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        text = head + begin + "\n".join(table) + "\n" + end + rest.partition(end)[2]
    return text


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if arguments.page:
        found = json.loads(SAVED.read_text(encoding="utf-8"))
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
        return
    found = {"simulated": [], "histories": [], "python": platform.python_version()}
    for births in (0.0, 0.001, 0.01):
        runs = [simulated(births, seed) for seed in range(arguments.seeds)]
        mean = {key: float(np.mean([one[key] for one in runs])) for key in runs[0]}
        error = float(np.std([one["sum"] for one in runs], ddof=1) / np.sqrt(len(runs)))
        found["simulated"].append({"births": births, **mean, "sum_error": error})
        print(f"births {births:g}: ", {key: round(value, 5) for key, value in mean.items()})
    for name in HISTORIES if arguments.data else ():
        history = History(arguments.data, name)
        for crawls in CRAWLS:
            gains: dict[str, list[float]] = {}
            for number, part in enumerate(SPLITS):
                one = run(history, part * history.end, crawls, arguments.seeds, number)
                for key, values in one.items():
                    gains.setdefault(key, []).extend(values)
            row: dict[str, Any] = {"history": name, "crawls": crawls}
            for key, values in gains.items():
                table = np.reshape(values, (len(SPLITS) * arguments.seeds, 2, 3))
                each = table.mean(axis=(1, 2))
                row[key] = {
                    "gain": float(each.mean()),
                    "error": float(each.std(ddof=1) / np.sqrt(len(each))),
                    "binary": table[:, 0].mean(axis=0).tolist(),
                    "harmonic": table[:, 1].mean(axis=0).tolist(),
                    "splits": table.reshape(len(SPLITS), -1).mean(axis=1).tolist(),
                }
            found["histories"].append(row)
            texts = (f"{k} {v['gain']:.1f} ± {v['error']:.1f}" for k, v in row.items() if isinstance(v, dict))
            print(f"{name}, {crawls} crawls: " + "; ".join(texts), flush=True)
    if arguments.save:
        SAVED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
        print(f"saved {SAVED}")


if __name__ == "__main__":
    main()
