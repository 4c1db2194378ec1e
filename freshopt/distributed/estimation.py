"""Change rates from a partitioned crawl log, on the workers.

Before anything is solved they are estimated file by file, and no source may be in two files.

A source's crawls are all in one file, so each file is a log of its own and its change rates are those of the
whole log. Whether it is so is checked: where the names of files overlap, workers sort 64-bit hashes of them,
and each compares those of one range over all files. Names with the same hash are then compared themselves.

Cost: one reading of the log; the check reads 8 bytes per source.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.distributed.driver import file_name
from freshopt.errors import Heard, SourceDataError, list_offenders
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.features.feature_priors import FeaturePriors, priors_of
from freshopt.estimators.features.source_features import FEATURES, SourceFeatures, with_new_sources
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.heavy import polars
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_crawls import ask_about_answers, read_log
from freshopt.logs.row_outcomes import NOT_MODIFIED
from freshopt.logs.schema import Table
from freshopt.logs.tables import read_table, write_table
from freshopt.numerics.arrays import total
from freshopt.planning.plan import learn
from freshopt.planning.plan_files import change_rates, flag_counts
from freshopt.planning.request import featured
from freshopt.planning.wishes import Wishes
from freshopt.questions.features_bring import features_bring
from freshopt.solvers.square_root import square_root_shape

SOURCES, HASHES = ".sources", ".hashes"  # folders of what later steps need; they go before the plan appears
AT_A_TIME = 4_000_000  # hashes that a worker compares, 32 MB
Adapt: TypeAlias = Callable[[Wishes, Path], Wishes]
FurtherColumns: TypeAlias = Callable[[Path, npt.NDArray[Any]], Mapping[str, Any]]


class Featured(NamedTuple):
    """Features of sources, and the priors that the first files tell."""

    given: Path
    priors: FeaturePriors

    def of(self, file: Path, log: CrawlLog) -> tuple[CrawlLog, SourceFeatures]:
        """Return a file's log with new sources, and its features."""
        learnt = self.priors.table
        if not self.given.is_dir():
            return log, features_of_files(self.given, [file], [log.names], learnt)
        table = SourceFeatures.of(log.names, table_of(self.given, file), learnt)
        return with_new_sources(log, table.new), table

    def estimate(self, table: SourceFeatures, log: CrawlLog) -> Estimator:
        """Return the estimates of a file's sources."""
        return featured(MaximumLikelihood(prior=priors_of(table, self.priors)).fit(log), log, table)


class Order(NamedTuple):
    """Instructions for each file of the log.

    They are the request, a file's own request, its sources' further columns and features, the time unit and
    the folder to write to.
    """

    request: Wishes
    adapt: Adapt | None
    columns: FurtherColumns | None
    featured: Featured | None
    time_unit: str
    folder: str


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the client keeps of a file.

    - `n`, `crawls`, `found`: Sources, crawls, and crawls that found a change.
    - `flags`: How many sources have which flag.
    - `change_rate`: The sum of all change rates.
    - `square_roots`: The sum of the rates' shape by the square-root rule.
    - `first`, `last`: The least and the greatest name.
    - `begin`, `end`: The times of its earliest and latest crawl.
    - `origin`: The moment of time 0, if the file has dates.
    - `new`: The least and the largest rate expected of sources that features alone tell of.
    """

    n: int
    crawls: int
    found: int
    flags: Counter[str]
    change_rate: float
    square_roots: float
    first: str | int
    last: str | int
    begin: float
    end: float
    origin: datetime | None
    estimator: str
    warnings: tuple[Heard, ...]
    new: tuple[float, float]


def table_of(given: Path | None, file: Path) -> Path | None:
    """Return a file's own table, or that of all."""
    return given / file.name if given is not None and given.is_dir() else given


def features_of_files(
    given: Path,
    files: Sequence[Path],
    names: Sequence[npt.NDArray[Any]],
    learnt: SourceFeatures | None = None,
) -> SourceFeatures:
    """Return the features of the sources of some files."""
    every = np.concatenate(names)
    if not given.exists():  # of URLs, or a table that is not there
        return SourceFeatures.of(every, given, learnt)
    tables = [table_of(given, file) or given for file in files]
    frames = [
        Table.read(table, FEATURES).of(own.tolist()).frame for table, own in zip(tables, names, strict=True)
    ]
    return SourceFeatures.of(every, polars.concat(frames, how="vertical_relaxed"), learnt)


def learn_file(file: str, k: int, order: Order) -> Learnt:
    """Estimate the change rates of one file's sources; write them.

    - raises FreshoptError if the file is no log, or its sources have no importance or host.
    """
    request = order.request if order.adapt is None else order.adapt(order.request, Path(file))
    log = read_log(file, order.time_unit, answers_are_changes=None)
    if order.featured is not None:
        log, table = order.featured.of(Path(file), log)
        request = replace(request, estimator=partial(order.featured.estimate, table))
    estimate, lower, upper, sources = learn(log, request)
    brought = features_bring(estimate)
    folder, name = Path(order.folder), file_name(k)
    with complete_file(folder / "change_rates" / name, overwrite=True) as part:
        write_table(change_rates(estimate, lower, upper, sources), part)
    with complete_file(folder / SOURCES / name, overwrite=True) as part:
        further = {} if order.columns is None else order.columns(Path(file), log.names)
        known = sources.to_frame().with_columns(polars.Series("last_crawl", log.last_crawl))
        more = [polars.Series(key, values) for key, values in further.items() if key not in known.columns]
        write_table(known.with_columns(more), part)
    with complete_file(folder / HASHES / f"{name}.npy", overwrite=True) as part:
        np.save(part, np.sort(_hashes(log.names)))
    return Learnt(
        len(sources),
        len(log),
        int(np.count_nonzero(log.changed)),
        Counter(flag_counts(estimate)),
        total(estimate.change_rate_),
        total(square_root_shape(sources)),
        log.names.item(0),
        log.names.item(-1),
        float(np.min(log.time)),
        log.end,
        log.origin,
        repr(estimate),
        log.warnings,
        (math.inf, 0.0) if brought is None else brought.between,
    )


def require_conditional(files: list[Path], *, answers_are_changes: bool) -> None:
    """Raise, or warn, if every answer would be a change.

    That is in a log of statuses alone. A file without a status 304 may be one of many.
    """
    own = set(polars.read_parquet_schema(files[0]))
    if "status" not in own or own & {"changed", "hash", "etag"}:
        return
    for file in files:
        status = polars.read_parquet(file, columns=["status"])["status"].cast(polars.Float64, strict=False)
        if (status == NOT_MODIFIED).any():
            return
    ask_about_answers(files[0].parent, answers_are_changes)


def require_alike(found: list[Learnt], files: list[Path]) -> None:
    """Raise unless all files have names and times of one kind.

    Names are text or integers, times are dates or numbers.

    - raises SourceDataError if some are unlike others.
    """
    for what, kinds in (
        ("names as sources", [isinstance(one.first, str) for one in found]),
        ("dates as times", [one.origin is not None for one in found]),
    ):
        if len(set(kinds)) > 1:
            one, other = files[kinds.index(True)], files[kinds.index(False)]
            raise SourceDataError(f"{one} has {what} and {other} has numbers. Write the same in each file.")


def ranges_overlap(found: list[Learnt]) -> bool:
    """Return whether the name ranges of files overlap."""
    ordered: list[Any] = sorted(found, key=lambda one: one.first)
    return any(ordered[k].last >= ordered[k + 1].first for k in range(len(ordered) - 1))


def require_apart(index: int, ranges: int, message: tuple[list[str], str]) -> int:
    """Raise if two files share a source of one range.

    Compares the hashes of that range over all files; returns how many there are.

    - `index`, `ranges`: Which range, of how many.
    - `message`: The files of the log, and the folder with what was learnt of them.
    - raises SourceDataError if a source is in two files.
    """
    files, folder = message
    step = -(-(2**64) // ranges)
    low, high = index * step, (index + 1) * step
    drawn = []
    for k in range(len(files)):
        hashes = np.load(Path(folder) / HASHES / f"{file_name(k)}.npy", mmap_mode="r")
        begin = np.searchsorted(hashes, np.uint64(low))
        end = len(hashes) if high >= 2**64 else np.searchsorted(hashes, np.uint64(high))
        drawn.append(np.array(hashes[begin:end]))
    owner = np.repeat(np.arange(len(files)), [len(one) for one in drawn])
    hashes = np.concatenate(drawn)
    order = np.argsort(hashes, kind="stable")
    twice = order[1:][hashes[order[1:]] == hashes[order[:-1]]]
    if len(twice):
        _require_other_names(hashes[twice[:20]], owner, hashes, files, Path(folder))
    return len(hashes)


def _require_other_names(
    twice: npt.NDArray[np.uint64],
    owner: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.uint64],
    files: list[str],
    folder: Path,
) -> None:
    """Raise if a name itself, not its hash, is in two files."""
    for one in np.unique(twice):
        seen: dict[Any, str] = {}
        for k in np.unique(owner[hashes == one]).tolist():
            names = read_table(folder / SOURCES / file_name(k), columns=["source"])["source"].to_numpy()
            for name in names[_hashes(names) == one].tolist():
                if name in seen:
                    where = list_offenders([seen[name], files[k]])
                    raise SourceDataError(
                        f"source {name!r} is in {where}. A source's change rate is learnt from all of its "
                        "crawls: write the log so that each source is in one file."
                    )
                seen[name] = files[k]


def _hashes(names: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return evenly spread 64-bit hashes, the same in every process."""
    plain = names.astype(np.int64).tobytes() if names.dtype.kind in "iu" else None
    texts = (
        (name.encode() for name in names.tolist())
        if plain is None
        else (plain[k : k + 8] for k in range(0, len(plain), 8))
    )
    digests = b"".join(blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint64)
