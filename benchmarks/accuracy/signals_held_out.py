"""What signals save on real histories, held out: back-tests of plans whose crawls follow them.

    python -m benchmarks signals_held_out [--data FOLDER] [--quick] [--save]

Of the sources that last from a history's first third to its end 150 are drawn anew (bootstrap), three times,
and crawled at exponential gaps, a week on average. Signals are made of their dates: a share is announced
(recall), an hour late, and false ones come at random, so that a share of all is true (precision).
`fo.backtest` learns from crawls and signals of the first half, at a crawl a source and week, and measures in
three windows of the second, in all changes: what share of the cost crawls save that follow signals, beside a
plan of as many crawls without them, and what share of the fetches at equal cost. Errors are of the mean over
draws. "alone" is the first share as the log alone tells it, which draws what crawls hid; of the first draw.
FOLDER is as `histories.py` has it; without it, debian-uploads is what is measured.

`STATEMENTS` were written before the first run and are left as they were, whether they held or not.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

import freshopt as fo
from benchmarks.accuracy.histories import GAP, HISTORIES, History, bundled, grouped, log_of, read, world_of
from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.statements import Statement, judged
from freshopt.noisy_signals import noisy_signals
from freshopt.planning.policies import MOST_NEEDED

OBJECTIVES, RECALLS, PRECISIONS = ("binary", "harmonic"), (0.5, 0.9), (0.5, 1.0)
HOUR = 1.0 / 24.0
# Share of the fetches that is saved at least, where no plan within so many times as many costs as little.
BEYOND = 1.0 - 1.0 / MOST_NEEDED


def said(
    words: str, recall: float | None, precision: float | None, number: str, low: float, high: float
) -> Statement:
    """Return a statement on all histories of a folder and both objectives, on average over draws."""
    known = {"recall": recall, "precision": precision}
    rows = {key: (value,) for key, value in known.items() if value is not None}
    return Statement(words, "histories", number, rows, low, high)


# Most sources change less often than they are crawled. A copy is then stale for half a gap after a change
# that nobody announced and hardly at all after one that was, so that cost falls by the recall; less where
# bandwidth goes to false signals, and where recall is learnt from few changes. As cost is then also in
# inverse proportion to the rates, fetches at equal cost fall alike: by nine tenths at most, as far as is
# sought. Of false signals there are as many as of true ones, a few per cent of the crawls.
STATEMENTS = (
    said("half announced, all true: cost", 0.5, 1.0, "saved", 0.38, 0.55),
    said("half announced, half true: cost", 0.5, 0.5, "saved", 0.35, 0.55),
    said("nine in ten announced, all true: cost", 0.9, 1.0, "saved", 0.75, 0.92),
    said("nine in ten announced, half true: cost", 0.9, 0.5, "saved", 0.70, 0.92),
    said("half announced, all true: fetches", 0.5, 1.0, "fetches", 0.38, 0.58),
    said("half announced, half true: fetches", 0.5, 0.5, "fetches", 0.33, 0.58),
    said("nine in ten announced, all true: fetches", 0.9, 1.0, "fetches", 0.75, 0.90),
    said("nine in ten announced, half true: fetches", 0.9, 0.5, "fetches", 0.70, 0.90),
    # Rules carry out the rates that they were made of, if signals go on as they came.
    said("crawls that are made, of those planned", None, None, "used", 0.90, 1.10),
    # What crawls hid is drawn from a model; the rest of the difference is that of the changes themselves.
    said("what the log alone tells, beside all changes", None, None, "beside", -0.10, 0.10),
)


def drawn(
    history: History, most: int, rng: np.random.Generator
) -> tuple[fo.CrawlLog, fo.ChangeHistory, fo.World]:
    """Return a log of a bootstrap of lasting sources, their changes, and the same as a world."""
    begin, end = float(history.start.min()), history.end
    alive = np.flatnonzero((history.start <= begin + (end - begin) / 3.0) & (history.stop >= end - 1e-9))
    sample = alive[rng.integers(len(alive), size=min(most, len(alive)))]
    n, start = len(sample), history.start[sample]
    many = rng.poisson((end - start) / GAP) + 2
    code = np.repeat(np.arange(n), many)
    time = start[code] + (end - start[code]) * rng.random(len(code))
    own = [history.changes[k] for k in sample.tolist()]
    changes = [each[(each >= first) & (each <= end)] for each, first in zip(own, start, strict=True)]
    crawls = grouped(code, time, n)
    logs = [log_of([own], at[None, :]) for own, at in zip(changes, crawls, strict=True)]
    changed = np.concatenate([each.changed for each in logs])
    log = fo.CrawlLog(np.repeat(np.arange(n), many), np.concatenate(crawls), changed)
    events = {
        "source": np.repeat(np.arange(n), [len(each) for each in changes]),
        "time": np.concatenate(changes),
    }
    known = fo.ChangeHistory.from_frame(pl.DataFrame(events), names=np.arange(n), start=start, end=end)
    return log, known, world_of(changes, start, end)


def held_out(history: History, objective: str, recall: float, precision: float, seed: int, most: int) -> Row:
    """Return what one draw of a history gives."""
    log, known, world = drawn(history, most, np.random.default_rng([29, seed]))
    who, when = noisy_signals(world, recall, precision, world.horizon, seed, delay=HOUR)
    signals, bandwidth = pl.DataFrame({"source": who, "time": when}), len(log.names) / GAP

    def tested(changes: fo.ChangeHistory | None) -> fo.BackTest:
        return fo.backtest(
            log, bandwidth, signals=signals, history=changes, objective=objective, load_limit=1.0
        )

    found = tested(known)
    rows = {row.policy: row for row in found.means}
    own, plan = rows["with signals"], rows["plan at with signals"]
    needed = found.rules["with signals"].needed
    assert own.saving is not None
    alone = None
    if seed == 0:
        alone = next(row.saving for row in tested(None).means if row.policy == "with signals")
    return {
        "sources": len(log.names),
        "saved": own.saving,
        "fetches": 1.0 - own.refreshes / needed if np.isfinite(needed) else BEYOND,
        "beyond": float(not np.isfinite(needed)),
        "used": own.refreshes / bandwidth,
        "fresh": own.fresh,
        "without": plan.fresh,
        "within": own.saving_error,
        "alone": alone,
        "beside": None if alone is None else alone - own.saving,
    }


def histories(data: Path | None = None, draws: int = 3, most: int = 150) -> Iterator[Row]:
    """Yield what signals save of cost and fetches in the held-out half."""
    known = [("debian-uploads", bundled("debian-uploads"))]
    if data is not None:
        known = [(name, read(Path(data), name)) for name in HISTORIES]
    for (name, history), objective, recall, precision in product(known, OBJECTIVES, RECALLS, PRECISIONS):
        rows = [held_out(history, objective, recall, precision, seed, most) for seed in range(draws)]
        told = {key: float(np.mean([row[key] for row in rows if row[key] is not None])) for key in rows[0]}
        for key in ("saved", "fetches"):
            told[f"{key}_error"] = float(np.std([row[key] for row in rows], ddof=1) / np.sqrt(draws))
        quality = {"history": name, "objective": objective, "recall": recall, "precision": precision}
        yield {**quality, "draws": draws, **told}


def stated(record: Record) -> Iterator[Row]:
    """Yield each statement with the least and the largest number of its rows, and whether it held."""
    for row in judged(STATEMENTS, record):
        told = {"words": row["words"], "predicted": row["band"]}
        yield told | {key: row[key] for key in ("least", "largest", "held")}


def in_words(record: Record) -> Iterator[str]:
    """Yield what signals save, by recall, over histories, objectives and precisions."""
    told = []
    for recall in RECALLS:
        own = [row for row in record["histories"] if row["recall"] == recall]
        least, largest = (pick(row["fetches"] for row in own) for pick in (min, max))
        before, after = (f"{100 * min(row[key] for row in own):.0f}" for key in ("without", "fresh"))
        # Of a draw in which no plan within the bandwidths that are tried costs as little, a bound is known.
        bound = "at least " if any(row["beyond"] for row in own) else ""
        told.append(
            f"{bound}{100 * least:.0f} to {100 * largest:.0f} % of the fetches at a recall of {recall:g} "
            f"(copies at least {after} % of the time fresh in place of {before} %)"
        )
    names = " and ".join(dict.fromkeys(row["history"] for row in record["histories"]))
    yield (
        f"Held out on {names}, with signals made of dates and half or none of them false, crawls that follow "
        f"them save {', and '.join(told)}."
    )


def claims(record: Record) -> Claims:
    """Yield that signals save beyond chance, and that statements are judged by their bands."""
    for row in record["histories"]:
        where = f"{row['history']}, {row['objective']}, {row['recall']}, {row['precision']}"
        yield f"{where}: {row['saved']:.3f} ± {row['within']:.3f}", row["saved"] > 2.0 * row["within"]
    for row, one in zip(stated(record), STATEMENTS, strict=True):
        so = row["held"] == (row["least"] >= one.low and row["largest"] <= one.high)
        yield f"{one.words}: {row['least']:.3f} to {row['largest']:.3f}", so


BENCH = Measurement(
    {"histories": histories},
    quick={"draws": 2, "most": 30},
    facts=("quick", "seconds"),
    rows={"statements": stated},
    texts={"saved": in_words},
    claims=claims,
    large=True,
)
