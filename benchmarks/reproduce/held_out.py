"""Ask whether rates learnt on the first half of a history predict its second half better than Naive's.

    python -m benchmarks held_out [--log LOG] [--data FOLDER] [--save]

A log is split at the middle of its time. Estimators learn from the crawls before; each of their rates is
then scored by the log-likelihood of what the crawls after found, −Δa for a gap a without a change and
ln(1−e^{−Δa}) for one with. A gap that straddles the middle counts for neither half, and a source needs a gap
in each. Every estimator is compared with Naive source by source: wins, losses, a sign test, and a paired 95 %
interval of the gain per 1000 crawls. Priors and half-lives are chosen on the first half alone. Naive has its
floor of one change in 1000 days; without one it calls impossible what then happened to many a source.

LOG is a crawl log, CSV or Parquet; without one the bundled history is taken. --data adds the crawl logs
``*.crawl_*.parquet`` of a folder. Daily logs are also seen by a crawler that comes every seventh time only.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.reproduce.claims import FAILS, HOLDS, UNDECIDED, mean_interval
from freshopt.datasets.change_histories import load_example
from freshopt.estimators import (
    GammaPrior,
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentMatching,
    Naive,
    StochasticApproximation,
)
from freshopt.logs.crawl_log import CrawlLog
from freshopt.units import convert_time

Array = npt.NDArray[np.float64]
HALF_LIVES = (None, 365.0, 180.0, 90.0, 45.0, 20.0)  # days
FLOOR = 1e-3  # changes per day
SPARSE = 7


@dataclass(frozen=True, slots=True)
class Half:
    """Gaps after a moment: whose they are, how long, and whether they ended with a change."""

    source: npt.NDArray[np.int64]
    gap: Array
    changed: npt.NDArray[np.bool_]

    def scores(self, rates: Array) -> Array:
        """Return the log-likelihood of each source's gaps at a rate for each source."""
        x = rates[self.source] * self.gap
        with np.errstate(divide="ignore"):
            each = np.where(self.changed, np.log(-np.expm1(-x)), -x)
        return np.bincount(self.source, each, len(rates))


@dataclass(frozen=True, slots=True)
class Split:
    """A log up to a moment, and the gaps after it of the sources that have a gap in both."""

    before: CrawlLog
    after: Half
    sources: int


def split(log: CrawlLog, middle: float) -> Split:
    """Split a log at a moment; sources are numbered anew, as 0, 1, ..."""
    source, known = log.source_index, ~np.isnan(log.interval)
    first = log.time <= middle
    second = known & (log.time - log.interval >= middle)
    both = np.intersect1d(source[first & known], source[second])
    number = np.full(len(log.names), -1)
    number[both] = np.arange(len(both))
    keep = first & (number[source] >= 0)
    columns = {
        "source": number[source[keep]],
        "time": log.time[keep],
        "elapsed": log.interval[keep],
        "changed": log.changed[keep],
    }
    before = CrawlLog.from_columns(columns, time_unit=log.time_unit)
    kept = second & (number[source] >= 0)
    after = Half(number[source[kept]], log.interval[kept], log.changed[kept])
    return Split(before, after, len(both))


def middle_of(log: CrawlLog) -> float:
    """Return the middle of a log's time."""
    return 0.5 * (float(np.min(log.time)) + log.end)


def thinned(log: CrawlLog, every: int) -> CrawlLog:
    """Return what a crawler sees that comes only every so many crawls of each source."""
    position = np.arange(len(log)) - log.offsets[log.source_index]
    group = (position + every - 1) // every  # the first crawl stays the baseline
    first = np.flatnonzero(np.r_[True, np.diff(group) != 0] | (position == 0))
    last = np.r_[first[1:], len(log)] - 1
    whole = (position[last] % every == 0) | (position[last] == 0)  # the last group may be cut short
    changed = np.maximum.reduceat(log.changed, first)
    columns = {"source": log.source_index[last], "time": log.time[last], "changed": changed}
    kept = {key: column[whole] for key, column in columns.items()}
    return CrawlLog.from_columns(kept, time_unit=log.time_unit)


def crawl_rates(log: CrawlLog) -> Array:
    """Return each source's crawls per time unit, which LLN and SA have to be told."""
    known = ~np.isnan(log.interval)
    count = np.bincount(log.source_index[known], minlength=len(log.names))
    return np.asarray(count / np.bincount(log.source_index[known], log.interval[known], len(log.names)))


def everybody(log: CrawlLog) -> Array:
    """Return one rate for all: maximum likelihood of the log as if it were of one source."""
    known = ~np.isnan(log.interval)
    columns = {"source": np.zeros(int(known.sum()), dtype=np.int64), "elapsed": log.interval[known]}
    one = CrawlLog.from_columns({**columns, "changed": log.changed[known]}, time_unit=log.time_unit)
    return np.repeat(MaximumLikelihood(smoothing=0.5).fit(one).change_rate_, len(log.names))


def floored(log: CrawlLog) -> Array:
    """Return maximum likelihood without smoothing, but with Naive's floor; where all changed, smoothed."""
    plain, smooth = MaximumLikelihood(smoothing=0).fit(log), MaximumLikelihood(smoothing=0.5).fit(log)
    rates = np.maximum(plain.change_rate_, convert_time(1e3, "day", log.time_unit) ** -1)
    return np.where(np.isfinite(plain.change_rate_), rates, smooth.change_rate_)


def with_prior(log: CrawlLog, half_life: float | None = None) -> Array:
    """Return maximum likelihood with the Gamma prior under which the log is most likely."""
    return MaximumLikelihood(prior=GammaPrior.from_log(log), half_life=half_life).fit(log).change_rate_


def plain_forgetting(log: CrawlLog, half_life: float | None) -> Array:
    """Return Naive's rates with old crawls forgotten."""
    return Naive(FLOOR, half_life).fit(log).change_rate_


def chosen(estimate: Callable[[CrawlLog, float | None], Array], log: CrawlLog) -> float | None:
    """Return the half-life with which the first half of a log predicts its second half best."""
    halves = split(log, middle_of(log))
    totals = [float(np.sum(halves.after.scores(estimate(halves.before, each)))) for each in HALF_LIVES]
    return HALF_LIVES[int(np.argmax(totals))]


ESTIMATORS: dict[str, Callable[[CrawlLog], Array]] = {
    "Naive": lambda log: Naive(FLOOR).fit(log).change_rate_,
    "one rate for all": everybody,
    "MaximumLikelihood": lambda log: MaximumLikelihood(smoothing=0.5).fit(log).change_rate_,
    "MaximumLikelihood, floor": floored,
    "MaximumLikelihood, prior": with_prior,
    "MomentMatching": lambda log: MomentMatching((1e-3, 1e3)).fit(log).change_rate_,
    "LawOfLargeNumbers": lambda log: LawOfLargeNumbers(floor=FLOOR).fit(log, crawl_rates(log)).change_rate_,
    "StochasticApproximation": lambda log: (
        StochasticApproximation(floor=FLOOR).fit(log, crawl_rates(log)).change_rate_
    ),
}
FORGETTING: dict[str, Callable[[CrawlLog, float | None], Array]] = {
    "Naive, half-life": plain_forgetting,
    "prior, half-life": with_prior,
}


def sign_test(wins: int, losses: int) -> float:
    """Return the two-sided probability of a split at least as uneven if either were as likely."""
    return float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def compared(scores: Array, yardstick: Array, crawls: Array) -> dict[str, Any]:
    """Return how an estimator's scores compare with the yardstick's, source by source."""
    gain, total = scores - yardstick, float(np.sum(crawls))
    wins, losses = int(np.count_nonzero(gain > 0)), int(np.count_nonzero(gain < 0))
    each = 1000.0 * len(gain) / total  # from per source to per 1000 crawls
    mean, low, high = (each * x for x in mean_interval(gain))
    measured = {
        "per_crawl": float(np.sum(scores)) / total,
        "gain_per_1000": mean,
        "low": low,
        "high": high,
        "sign_test": sign_test(wins, losses),
    }
    verdict = HOLDS if low >= 0.0 else FAILS if high < 0.0 else UNDECIDED
    counted = {"wins": wins, "losses": losses, "verdict": verdict}
    return {key: float(f"{value:.6g}") for key, value in measured.items()} | counted


def judged(name: str, log: CrawlLog) -> dict[str, Any]:
    """Learn on the first half, score the second, and return what is saved."""
    halves = split(log, middle_of(log))
    scores = {key: halves.after.scores(estimate(halves.before)) for key, estimate in ESTIMATORS.items()}
    half_lives = {key: chosen(estimate, halves.before) for key, estimate in FORGETTING.items()}
    for key, estimate in FORGETTING.items():
        scores[key] = halves.after.scores(estimate(halves.before, half_lives[key]))
    n, before = halves.sources, halves.before
    crawls = np.bincount(halves.after.source, minlength=n).astype(np.float64)
    moved = np.bincount(before.source_index, before.changed, n) > 0
    moving = np.bincount(halves.after.source, halves.after.changed, n) > 0
    groups = {"all": np.ones(n, dtype=bool), "changed before": moved, "never changed before": ~moved}
    return {
        "log": name,
        "days": log.end - float(np.min(log.time)),
        "learnt_from": int(np.count_nonzero(~np.isnan(before.interval))),
        "changes_before": int(np.count_nonzero(before.changed)),
        "scored": len(halves.after.gap),
        "changes_after": int(np.count_nonzero(halves.after.changed)),
        "changed_after_all": int(np.count_nonzero(moving & ~moved)),  # impossible to a Naive without floor
        "half_lives": half_lives,
        "forgetting": compared(scores["prior, half-life"], scores["MaximumLikelihood, prior"], crawls),
        "groups": {
            group: {
                "sources": int(np.count_nonzero(of)),
                "scored": int(np.sum(crawls[of])),
                "estimators": {
                    key: compared(each[of], scores["Naive"][of], crawls[of]) for key, each in scores.items()
                },
            }
            for group, of in groups.items()
        },
    }


def logs(log: Path | None = None, data: Path | None = None, crawls: int = 0) -> Iterator[Row]:
    """Yield each log, and daily ones also as a rarer crawler sees them; `crawls` cuts logs short."""
    paths = [*([log] if log else []), *(sorted(data.glob("*.crawl_*.parquet")) if data else [])]
    given = {} if log else {"debian-uploads": load_example("debian-uploads")}
    given |= {path.stem: fo.read_log(path) for path in paths}
    for name, whole in given.items():
        own = whole if not crawls else thinned(whole, max(1, len(whole) // crawls))
        yield judged(name, own)
        if np.nanstd(own.interval) < 1e-3 * np.nanmean(own.interval):  # always the same gap, which is a day
            yield judged(f"{name}, every {SPARSE}th crawl", thinned(own, SPARSE))


def claims(record: Record) -> Claims:
    """Yield what the page says of real histories."""
    every = [one["groups"]["all"]["estimators"] for one in record["logs"]]
    if len(every) < 8:
        return
    better = {name for name in every[0] if all(row[name]["gain_per_1000"] > 0 for row in every)} - {"Naive"}
    yield f"{better} are always better", better == {"MaximumLikelihood, prior", "prior, half-life"}
    verdicts = [row["MaximumLikelihood, prior"]["verdict"] for row in every]
    yield f"the prior: {verdicts}", (verdicts.count(HOLDS), verdicts.count(UNDECIDED)) == (7, 1)
    forgetting = [one["forgetting"] for one in record["logs"]]
    yield "forgetting always gains", all(row["gain_per_1000"] > 0 for row in forgetting)
    yield "decided on three", [row["verdict"] for row in forgetting].count(HOLDS) == 3
    packages = next(one for one in record["logs"] if one["log"] == "scoop_packages.crawl_daily")
    never = packages["groups"]["never changed before"]["sources"] - packages["changed_after_all"]
    share = never / packages["groups"]["all"]["sources"]
    yield f"{share:.1%} of the packages never changed", 0.4 < share < 0.43
    wins = packages["groups"]["all"]["estimators"]["MaximumLikelihood, prior"]
    yield f"{wins['wins']} : {wins['losses']}", wins["wins"] < wins["losses"]


SHOWN = {
    "MaximumLikelihood": "smoothing",
    "MaximumLikelihood, floor": "floor",
    "MaximumLikelihood, prior": "prior",
    "prior, half-life": "forgetting",
    "LawOfLargeNumbers": "law",
}


def gains(record: Record) -> Iterator[Row]:
    """Yield the gain of each estimator with its interval, and wins and losses of the prior."""
    for one in record["logs"]:
        every, moved = (one["groups"][key]["estimators"] for key in ("all", "changed before"))
        told = ((SHOWN[key], every[key]) for key in SHOWN)
        cells = {key: f"{x['gain_per_1000']:.2f} ({x['low']:.2f} to {x['high']:.2f})" for key, x in told}
        counts = [
            f"{x['wins']} : {x['losses']}"
            for x in (each["MaximumLikelihood, prior"] for each in (every, moved))
        ]
        yield {"log": one["log"], **one["groups"]["all"], **cells, "all": counts[0], "moved": counts[1]}


BENCH = Measurement({"logs": logs}, quick={"crawls": 20_000}, rows={"gains": gains}, claims=claims)
