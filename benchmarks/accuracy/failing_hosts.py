"""Hosts that go down: what a live planner does with the bandwidth that they leave.

    python -m benchmarks failing_hosts [--quick] [--save]

120 sources on 20 hosts change as Poisson processes, at rates of a gamma of shape 0.6 and mean two a day, with
importances of a power law; the bandwidth is one attempt a day each and the objective their fresh share at
equal gaps. A planner learns for 20 days; then four hosts, drawn at random, answer nothing for 30 days, and
answer again for 20 more. From the 20th day on nothing is solved in full any more, so that what moves is moved
by the hourly updates alone; they keep the price such that the bandwidth is used. The same world and the same
20 days are gone on from in three ways:

* equal retries: a failure waits for a gap, whatever the silence;
* back-off alone: silences double, and nobody has what that leaves;
* back-off that gives: what the planner does.

Bands, set before the run:

* attempts from any day to any other stay within the bandwidth of those days, of the burst and one more;
* the sources that answer are fresher under back-off that gives than under back-off alone, from the 30th day
  to the 50th, by 0.01 of the time or more and by more than three standard errors over paired seeds;
* that is 0.6 or more of what the optimum of the true rates gains when the four hosts' share is handed on;
* in the 20 days after their return the hosts' sources are as fresh as under back-off alone, or fresher, to
  0.01, and all sources together are no less fresh than under equal retries, to 0.01.

Shares are expectations given when each source was crawled with success, weighted by importance.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record
from freshopt.live import planning, recording
from freshopt.live.planner import Planner
from freshopt.live.source_table import SourceTable
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.simulation import SimulatedCrawler

OBJECTIVE = fo.problems.BinaryFreshness(fo.Refresh.PERIODIC)
HOSTS, EACH, DOWN, MEAN = 20, 6, 4, 2.0
N = HOSTS * EACH
# Days of the world: learnt until, down until, ends; what is averaged begins ten days after the hosts went.
LEARNT, SETTLED, BACK, END = 20, 30, 50, 70
# Times a day that the planner is asked, and days of which the bandwidth may be handed out at once.
ASKED, BURST = 12, 0.25
NEVER = 1e9
WAYS = ("equal retries", "back-off alone", "back-off that gives")


@contextmanager
def way(name: str) -> Iterator[None]:
    """Leave out what a way of going on has not."""
    with ExitStack() as stack:
        # No growth of the observations solves in full.
        stack.enter_context(patch.object(planning, "GROWTH", math.inf))
        if name == "equal retries":
            stack.enter_context(patch.object(recording, "is_down", lambda *_: False))
            stack.enter_context(patch.object(recording, "retry_wait", lambda _, rate, *__, **___: 1.0 / rate))
        if name == "back-off alone":
            stack.enter_context(patch.object(SourceTable, "most", property(lambda table: table.max_rate)))
            stack.enter_context(patch.object(recording, "_WAKE", f"{recording._WAKE} AND 1 = 0"))
        yield


def fresh_share(sources: fo.Sources, crawls: list[list[float]], begin: float, end: float) -> Array:
    """Return the expected share of a time that each copy is fresh, given its crawls."""
    share = np.zeros(len(sources))
    for k, (rate, own) in enumerate(zip(sources.change_rate.tolist(), crawls, strict=True)):
        moments = np.array(own)
        known = moments[moments <= begin]
        first = known[-1] if len(known) else math.inf
        edges = np.concatenate([[begin], moments[(moments > begin) & (moments < end)], [end]])
        since = np.concatenate([[first], edges[1:-1]])
        here = np.isfinite(since)
        lost = np.exp(-rate * (edges[:-1] - since)[here]) - np.exp(-rate * (edges[1:] - since)[here])
        share[k] = np.sum(lost) / rate / (end - begin)
    return share


def world(seed: int) -> tuple[fo.Sources, BoolArray]:
    """Return the sources, and which of them are on hosts that go down."""
    rng = np.random.default_rng([seed, N])
    rate = np.maximum(rng.gamma(0.6, MEAN / 0.6, N), 1e-3)
    host = np.arange(N) % HOSTS
    names, hosts = [f"s{k}" for k in range(N)], [f"host {k}" for k in host.tolist()]
    sources = fo.Sources(rate, 1.0 + rng.pareto(2.0, N), names=names, host=hosts)
    return sources, np.isin(host, rng.choice(HOSTS, DOWN, replace=False))


class Campaign:
    """Crawls of one planner in one world."""

    def __init__(self, sources: fo.Sources, gone: BoolArray, seed: int) -> None:
        self.sources, self.gone, self.seed = sources, gone, seed
        self.crawls: list[list[float]] = [[] for _ in range(N)]
        self.attempts: list[tuple[float, int]] = []

    def copy(self) -> Campaign:
        """Return one that goes on from here."""
        other = Campaign(self.sources, self.gone, self.seed)
        other.crawls = [own.copy() for own in self.crawls]
        other.attempts = self.attempts.copy()
        return other

    def crawl(self, planner: Planner, begin: int, end: int, back: int = BACK) -> None:
        """Crawl what is due from one day to another."""
        crawler = SimulatedCrawler(fo.World.poisson(self.sources, self.seed))
        before = sorted((own[-1], k) for k, own in enumerate(self.crawls) if own)
        if before:
            crawler.refresh(np.array([k for _, k in before]), np.array([last for last, _ in before]))
        for step in range(begin * ASKED, end * ASKED):
            now = step / ASKED
            visits = planner.due(now, limit=None)
            index = np.array([int(visit.source[1:]) for visit in visits], dtype=np.int64)
            answers = ~self.gone[index] if LEARNT <= now < back else np.ones(len(index), dtype=np.bool_)
            there = index[answers]
            found = crawler.refresh(there, np.full(len(there), now))
            planner.observed_many([f"s{k}" for k in there.tolist()], now, found)
            for k in index[~answers].tolist():
                planner.failed(f"s{k}", now)
            for k in there.tolist():
                self.crawls[k].append(now)
            self.attempts += [(now, k) for k in index.tolist()]

    def share(self, who: BoolArray, begin: float, end: float) -> float:
        """Return the weighted fresh share of some sources."""
        own = fresh_share(self.sources, self.crawls, begin, end)
        return float(np.average(own[who], weights=self.sources.importance[who]))

    def excess(self) -> float:
        """Return by how much attempts between any two moments exceed the bandwidth of that time."""
        moments = np.array([now for now, _ in self.attempts])
        ahead = np.arange(1, len(moments) + 1) - N * moments
        # From just before an attempt to just after a later one.
        return float(np.max(ahead - np.minimum.accumulate(ahead - 1.0)))

    def tried(self, begin: float, end: float) -> int:
        """Return how many attempts went to the hosts that are down."""
        return sum(1 for now, k in self.attempts if begin <= now < end and self.gone[k])


def run(seed: int, place: Path, settled: int, back: int, end: int) -> dict[str, Any]:
    """Return what the three ways come to in one world."""
    sources, gone = world(seed)
    learnt = Campaign(sources, gone, seed)
    with Planner(place / "learnt", bandwidth=float(N), objective=OBJECTIVE, burst=BURST) as planner:
        planner.add_many(sources.names, importance=sources.importance, host=sources.host)
        learnt.crawl(planner, 0, LEARNT)
    found: dict[str, Any] = {"seed": seed, "down": int(np.count_nonzero(gone))}
    for name in WAYS:
        shutil.copytree(place / "learnt", place / name)
        own = learnt.copy()
        with (
            way(name),
            Planner(place / name, replan=NEVER, update=1.0 / 24.0, gap_limit=1.0) as planner,
        ):
            planner.due(LEARNT - 0.5 / ASKED, limit=0)
            solves = planner.status().solves
            own.crawl(planner, LEARNT, end, back)
            assert planner.status().solves == solves
        first = [
            min([t for t in own.crawls[k] if t >= back], default=float(end)) - back
            for k in np.flatnonzero(gone)
        ]
        found[name] = {
            "living": own.share(~gone, settled, back),
            "tried_while_down": own.tried(LEARNT, back),
            "tried_settled": own.tried(settled, back),
            "attempts": len(own.attempts),
            "excess": own.excess(),
            "returned": own.share(gone, back, end),
            "all_after": own.share(np.ones(N, dtype=np.bool_), back, end),
            "days_until_crawled": float(np.mean(first)),
            "most_days_until_crawled": float(np.max(first)),
        }
    found["optimum"] = optimum_gain(sources, gone)
    return found


def optimum_gain(sources: fo.Sources, gone: BoolArray) -> float:
    """Return what the living gain at the optimum of true rates when the bandwidth is theirs alone."""
    weight = sources.importance[~gone]
    before = fo.solve(fo.Problem(OBJECTIVE, sources, float(N))).rates[~gone]
    after = fo.solve(fo.Problem(OBJECTIVE, sources.take(~gone), float(N))).rates

    def share(rate: Array) -> float:
        with np.errstate(divide="ignore"):
            u = sources.change_rate[~gone] / rate
        return float(np.average(np.where(np.isfinite(u), -np.expm1(-u) / u, 0.0), weights=weight))

    return share(after) - share(before)


def paired(runs: list[dict[str, Any]], key: str, one: str, other: str) -> tuple[float, float]:
    """Return a mean difference and its standard error over seeds."""
    gain = np.array([each[one][key] - each[other][key] for each in runs])
    return float(np.mean(gain)), float(np.std(gain, ddof=1) / math.sqrt(len(gain)))


def judged(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the bands of the page above and whether each holds."""
    retries, alone, gives = WAYS
    gain, error = paired(runs, "living", gives, alone)
    best = float(np.mean([each["optimum"] for each in runs]))
    returned, all_after = paired(runs, "returned", gives, alone), paired(runs, "all_after", gives, retries)
    excess = max(each[name]["excess"] for each in runs for name in WAYS)
    return {
        "gain": gain,
        "error": error,
        "over_retries": paired(runs, "living", gives, retries),
        "of_optimum": gain / best,
        "returned": returned,
        "all_after": all_after,
        "excess": excess,
        "met": {
            "bandwidth": excess <= BURST * N + 1.0 + 1e-9,
            "living": gain >= 0.01 and gain > 3.0 * error,
            "of_optimum": gain >= 0.6 * best,
            "returned": returned[0] >= -0.01,
            "all_after": all_after[0] >= -0.01,
        },
    }


def runs(seeds: int = 8, days: tuple[int, ...] = (SETTLED, BACK, END)) -> Record:
    """Return the worlds, and the bands judged by them."""
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found.append(run(seed, Path(folder), *days))
        print(json.dumps(found[-1]), flush=True)
    return {"runs": found, **judged(found)}


def claims(record: Record) -> Claims:
    """Yield that the bands, which need not hold, are judged by the runs, and that the bandwidth is kept."""
    yield f"bands are judged by the runs: {record['met']}", record["met"] == judged(record["runs"])["met"]
    yield f"attempts exceed the bandwidth by {record['excess']}", record["met"]["bandwidth"]


BENCH = Measurement(
    {"": runs},
    quick={"seeds": 2, "days": (24, 27, 30)},
    facts=("quick",),
    notes={"sources": N, "bandwidth": N},
    claims=claims,
)
