"""Work of each pass on one partition: `scan`, `measure`, `edges`.

Each reads the columns that it needs, and returns a few numbers (with host limits, a few per limited host).
None keeps anything: a step that runs twice, because a worker was lost, returns the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.distributed.partition import (
    Partition,
    PartitionedProblem,
    codes_of,
    piece_of,
    sources_from,
    sources_of,
)
from freshopt.distributed.partitioned_sources import UNIT, FilePart, Frame, Table, carried, read
from freshopt.errors import InfeasibleProblemError, SourceDataError, list_offenders
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray, exact_sum

# Seed of the sample's places.
SEED = 20_240_601


@dataclass(frozen=True, slots=True)
class Scan:
    """Result of the first pass over a partition.

    Attributes
    ----------
    lower, upper : float
        Σ cost·min_rate and Σ cost·max_rate (a signalled source's max_rate is at most its change_rate).
    host_lower : ndarray, shape (H,)
    host_sources : ndarray of int, shape (H,)
    units : tuple
        What a column time_unit says.
    sample : dict of ndarray
        Columns of some sources, and their positions ("place") and host positions ("code").
    """

    n: int
    lower: float
    upper: float
    host_lower: Array
    host_sources: IntArray
    units: tuple[Any, ...]
    sample: dict[str, npt.NDArray[Any]]

    def without_hosts(self) -> Scan:
        """Return the same without what grows with the hosts."""
        return replace(self, host_lower=np.zeros(0), host_sources=np.zeros(0, dtype=np.int64))


def scan(
    part: FilePart | Frame,
    label: str,
    first: int,
    share: bytes | None,
    index: int,
    size: int,
    terms: PartitionedProblem,
) -> Scan:
    """Validate a partition, sum its bounds, sample `size` sources.

    Raises
    ------
    FreshoptError
        If a value is missing or out of range, a source occurs twice, or the objective is refused.
    """
    own = [*carried(terms.columns), *(name for name in ("source", UNIT) if name in terms.columns)]
    table = read(part, [*own, "host"] if terms.hosts else own, label)
    hosts = len(terms.hosts)
    n = table.num_rows
    if n == 0:
        return Scan(0, 0.0, 0.0, np.zeros(hosts), np.zeros(hosts, dtype=np.int64), (), {})
    _require_names(table, label, first)
    units = tuple(table.column(UNIT).unique().to_pylist()) if UNIT in own else ()
    sources = sources_of(table, label, first, terms.columns, terms.time_unit)
    codes = codes_of(table, label, first, terms.hosts) if hosts else None
    used = sources.refresh_cost * sources.min_rate
    lower = exact_sum([float(np.sum(used))])
    if lower <= terms.bandwidth:  # else the sum over all partitions refuses, and says how much is needed
        piece = piece_of(table, label, first, terms.own(share), terms)
        highest = piece.problem.upper
    else:
        highest = sources.max_rate
    host_lower, count = np.zeros(hosts), np.zeros(hosts, dtype=np.int64)
    if codes is not None:
        host_lower = np.bincount(codes, weights=used, minlength=hosts + 1)[:hosts].astype(np.float64)
        count = np.bincount(codes, minlength=hosts + 1)[:hosts]
    with np.errstate(over="ignore"):
        upper = float(np.sum(sources.refresh_cost * highest))
    return Scan(
        n, lower, upper, host_lower, count, units, _sample(sources, codes, index, size, terms.columns)
    )


def measure(
    part: FilePart | Frame,
    label: str,
    first: int,
    share: bytes | None,
    message: tuple[PartitionedProblem, Array, IntArray, Array | None],
) -> tuple[int, Array, Array | None]:
    """Return a partition's rows and bandwidth use at several prices.

    Parameters
    ----------
    part, label, first, share
        The partition, and its own share of the objective if that holds arrays.
    message : tuple
        The terms; prices for all, shape (K,); W of the limited hosts; prices for each of these, shape
        (J, W), or None.

    Returns
    -------
    common : ndarray, shape (K, 1+H)
        At each of the prices for all: the use by sources without a limit, then by each limited host.
    own : ndarray, shape (J, W), or None
        The use by each of the W hosts at its own prices.
    """
    terms, prices, wanted, own_prices = message
    hosts = len(terms.hosts)
    table = read(part, terms.priced(), label)
    if table.num_rows == 0:
        return (
            0,
            np.zeros((len(prices), 1 + hosts)),
            None if own_prices is None else np.zeros(own_prices.shape),
        )
    piece = piece_of(table, label, first, terms.own(share), terms)
    common = np.array([piece.use(float(price)) for price in prices]).reshape(len(prices), 1 + hosts)
    if own_prices is None:
        return table.num_rows, common, None
    own, of_hosts = np.empty(own_prices.shape), np.ones(hosts)
    for j, each in enumerate(own_prices):
        of_hosts[wanted] = each
        own[j] = piece.use(piece.broadcast_to_sources(of_hosts, 1.0))[1 + wanted]
    return table.num_rows, common, own


def count(part: Frame, _message: None) -> int:
    """Return the rows of a partition of a Dask DataFrame."""
    return int(part.shape[0])


def edges(
    part: FilePart | Frame, label: str, first: int, share: bytes | None, terms: PartitionedProblem
) -> tuple[float, Array, IntArray]:
    """Return the prices from which every source stays at min_rate.

    They are needed where the limits leave no more than the lower bounds.

    Returns
    -------
    everyone : float
        The largest such price of a partition's sources.
    hosts : ndarray, shape (H,)
        The largest of each limited host.
    starved : ndarray of int, shape (1+H,)
        How many sources have an infinite cost at min_rate: all, then of each limited host.
    """
    hosts = len(terms.hosts)
    largest, starved = np.zeros(hosts + 1), np.zeros(1 + hosts, dtype=np.int64)
    table = read(part, terms.priced(), label)
    if table.num_rows == 0:
        return 0.0, largest[:hosts], starved
    piece = piece_of(table, label, first, terms.own(share), terms)
    lower, upper = np.array(piece.problem.lower), piece.problem.upper
    slope = piece.numerics.marginal(lower) / piece.problem.sources.refresh_cost
    edge = np.where((upper > lower) & np.isfinite(slope), np.maximum(slope, 0.0), 0.0)
    infinite = ~np.isfinite(piece.numerics.cost(lower))
    starved[0] = np.count_nonzero(infinite)
    if piece.codes is not None:
        np.maximum.at(largest, piece.codes, edge)
        starved[1:] = np.bincount(piece.codes[infinite], minlength=hosts + 1)[:hosts]
    return float(np.max(edge)), largest[:hosts], starved


def collect(
    part: FilePart | Frame,
    label: str,
    first: int,
    _share: bytes | None,
    message: tuple[PartitionedProblem, BoolArray],
) -> dict[str, npt.NDArray[Any]]:
    """Return the sources of some limited hosts, as a sample."""
    terms, wanted = message
    table = read(part, terms.priced(), label)
    codes = codes_of(table, label, first, terms.hosts)
    sources = sources_of(table, label, first, terms.columns, terms.time_unit)
    return _columns(sources, codes, np.flatnonzero(np.append(wanted, False)[codes]), terms.columns)


def pooled(drawn: list[dict[str, npt.NDArray[Any]]], rows: list[int], terms: PartitionedProblem) -> Partition:
    """Return the samples of all partitions as one partition."""
    columns = {key: np.concatenate([one[key] for one in drawn]) for key in drawn[0]}
    codes = columns.pop("code", None)
    starts = np.cumsum([0, *rows[:-1]])
    place = columns.pop("place") + np.repeat(starts, [len(one["place"]) for one in drawn])
    sources = sources_from(columns, terms.columns, terms.time_unit)
    return Partition.of(terms.objective.take(place), sources, terms.bandwidth, codes, len(terms.hosts))


def _sample(
    sources: Sources, codes: IntArray | None, index: int, size: int, present: tuple[str, ...]
) -> dict[str, npt.NDArray[Any]]:
    """Sample one source from each of `size` equal strata."""
    n = len(sources)
    size = min(size, n)
    within = np.random.default_rng([SEED, index]).random(size)
    place = np.minimum(((np.arange(size) + within) * (n / size)).astype(np.int64), n - 1)
    return _columns(sources, codes, place, present)


def _columns(
    sources: Sources, codes: IntArray | None, place: IntArray, present: tuple[str, ...]
) -> dict[str, npt.NDArray[Any]]:
    """Return columns, places and host positions of some sources."""
    found: dict[str, npt.NDArray[Any]] = {"place": place}
    for key in carried(present):
        found[key] = np.ascontiguousarray(sources[key][place])
    if codes is not None:
        found["code"] = codes[place]
    return found


def _require_names(table: Table, label: str, first: int) -> None:
    """Raise if source names are missing or repeated."""
    if "source" not in table.column_names:
        return
    import polars

    names = polars.from_arrow(table.select(["source"]))["source"]  # type: ignore[index]
    if names.null_count():
        row = first + int(names.is_null().arg_max() or 0)
        raise SourceDataError(
            f"{label} (its first row is 0): column 'source' is empty in row {row}. Fill it."
        )
    if names.n_unique() < len(names):
        twice = names.filter(names.is_duplicated()).unique(maintain_order=True).to_list()
        raise SourceDataError(
            f"{label}: {list_offenders(map(repr, twice))} occurs more than once. Keep one row."
        )


def require_room(
    needed: float, of_hosts: Array, terms: PartitionedProblem, limits: Array, few_ulp: float
) -> None:
    """Raise if the lower bounds exceed bandwidth or a limit."""
    unit = terms.time_unit
    needs = [("bandwidth", terms.bandwidth, needed)]
    needs += [
        (f"the limit of host {terms.hosts[h]!r}", float(limits[h]), float(of_hosts[h]))
        for h in np.flatnonzero(of_hosts > limits * (1.0 + few_ulp))
    ]
    for what, available, need in needs:
        if need > available * (1.0 + few_ulp):
            raise InfeasibleProblemError(
                f"lower bounds need {need:.6g} refreshes/{unit} but {what} is {available:.6g} (short by "
                f"{need - available:.3g}). Raise it to >= {need:.6g} or lower min_rate."
            )
