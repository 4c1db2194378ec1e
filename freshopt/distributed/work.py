"""`Work`: one solve over partitions, its passes one after the other; the client's side of it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.arrays import Array, BoolArray, IntArray, exact_sum
from freshopt.distributed.engine import pack, run_behind, run_pass
from freshopt.distributed.finish import Decision, Finished, finish
from freshopt.distributed.judging import Needed, judge
from freshopt.distributed.market import Market, end_search, trials_of_sample
from freshopt.distributed.partitions import PartitionedSources
from freshopt.distributed.piece import Sums, Terms
from freshopt.distributed.search import Trials
from freshopt.distributed.solution import DistributedSolution
from freshopt.distributed.steps import Scan, collect, count, edges, measure, require_room, scan
from freshopt.errors import InfeasibleProblemError, ObjectiveError, SourceDataError, list_offenders
from freshopt.model import FEW_ULP
from freshopt.objective import Objective
from freshopt.units import check_time_unit

SAMPLE = 200_000  # sources: the price to 2e-3 where a few do not matter more than all others
REWRITES = 2  # of the last pass, where rounding used a few ulp too much


class Work:
    """One solve: its passes, one after the other."""

    def __init__(
        self,
        objective: Objective,
        partitions: PartitionedSources,
        bandwidth: float,
        limits: dict[Any, float],
        report: Callable[[str], None],
    ) -> None:
        self.partitions, self.report = partitions, report
        self.limits = np.array(list(limits.values()), dtype=np.float64)
        unit = partitions.time_unit or "day"
        self.terms = Terms(objective, bandwidth, tuple(limits), partitions.columns, unit)
        self.calls: list[tuple[Any, ...]] = []
        self.scans: list[Scan] = []
        self.lower, self.host_lower = 0.0, np.zeros(len(limits))
        self.members = np.zeros(len(limits), dtype=np.int64)
        self.seconds: list[float] = []

    def look(self) -> None:
        """Validate all partitions, add up their bounds, and refuse what no rates can meet."""
        parts = list(zip(self.partitions.parts, self.partitions.labels, self.partitions.first, strict=True))
        own = _shares(self.terms.objective, self._rows(parts), len(parts))
        size = max(1, -(-SAMPLE // len(parts)))
        calls = [(*part, share, k, size) for k, (part, share) in enumerate(zip(parts, own, strict=True))]
        host_lower = Sums((len(self.limits),))

        def fold(_: int, one: Scan) -> Scan:
            host_lower.add(one.host_lower)
            self.members += one.host_sources
            return one.without_hosts()

        found = self._pass("looking at the sources", scan, calls, self.terms, fold)
        self.host_lower = host_lower.total()
        filled = [k for k, one in enumerate(found) if one.n]
        if not filled:
            raise SourceDataError("the partitions hold no rows. Write at least one source.")
        self.scans = [found[k] for k in filled]
        self.calls = [(*parts[k], own[k]) for k in filled]
        self.terms = _with_unit(self.terms, self.scans, self.partitions.time_unit)
        absent = np.flatnonzero(self.members == 0)
        if len(absent):
            unknown = list_offenders(repr(self.terms.hosts[h]) for h in absent)
            raise SourceDataError(f"host_limits name unknown hosts {unknown}. Correct the names.")
        self.lower = exact_sum(one.lower for one in self.scans)
        require_room(self.lower, self.host_lower, self.terms, self.limits, FEW_ULP)

    def settle(self) -> Callable[[float, Array | float], Decision]:
        """Find the prices; return what makes a decision of them, with parts of the limits left unused."""
        terms, hosts = self.terms, len(self.limits)
        tight = bool(self.lower >= terms.bandwidth * (1.0 - FEW_ULP))
        market = Market(
            self._measure,
            terms.bandwidth,
            self.limits,
            self.lower,
            self.host_lower,
            self._gather,
            self.members,
        )
        edge, host_edges = 0.0, np.zeros(hosts)
        if tight or bool(np.any(market.pinned)):
            edge, host_edges = self._edges(tight, market.pinned)
        if tight:
            none = np.zeros(hosts)
            every = np.full(hosts, np.inf)
            at_lower = Decision(np.inf, np.inf, 0.0, edge, every, every, none, none, none)
            return lambda _, __: at_lower
        market.settle(self._first_trials())
        return lambda trim, host_trims: market.decide(host_edges, trim, host_trims)

    def finish(
        self,
        decide: Callable[[float, Array | float], Decision],
        staging: Path | None,
        folder: Path | None,
        tolerance: float,
    ) -> DistributedSolution:
        """Write the rates and certify them."""
        terms, limits = self.terms, self.limits
        starts = np.cumsum([0, *(one.n for one in self.scans)]).tolist()
        calls = [
            (*call, start, file_name(k))
            for k, (call, start) in enumerate(zip(self.calls, starts, strict=False))
        ]
        trim, host_trims = 0.0, np.zeros(len(limits))
        for turn in range(1 + REWRITES):
            decision = decide(trim, host_trims)
            message = (terms, decision, None if staging is None else str(staging))
            word = "writing the rates" if turn == 0 else "writing them anew"
            uses = Sums((1 + len(limits),))

            def fold(_: int, one: Finished, uses: Sums = uses) -> Finished:
                uses.add(one.use)
                return replace(one, use=np.empty(0))  # a part of it would keep all of it

            found = self._pass(word, finish, calls, message, fold)
            use = uses.total()
            excess = exact_sum(use) / terms.bandwidth - 1.0
            host_excess = use[1:] / limits - 1.0
            over = max(excess, float(np.max(host_excess, initial=0.0)))
            if over <= FEW_ULP:
                break
            trim += 2.0 * max(0.0, excess)
            host_trims = host_trims + 2.0 * np.maximum(0.0, host_excess)
        infeasibility = over if over > FEW_ULP else 0.0
        needed = Needed(self.lower, self.host_lower)
        judged = judge(found, decision, terms, limits, use, needed, infeasibility, tolerance)
        return DistributedSolution(
            objective=terms.objective,
            sources=self.partitions,
            bandwidth=terms.bandwidth,
            n=starts[-1],
            status=judged.status,
            value=judged.value,
            bound=judged.bound,
            gap=judged.gap,
            relative_gap=judged.relative_gap,
            infeasibility=infeasibility,
            price=decision.price,
            host_prices=dict(zip(terms.hosts, decision.multipliers.tolist(), strict=True)),
            used=judged.used,
            never=sum(one.never for one in found),
            at_lower=sum(one.at_lower for one in found),
            at_upper=sum(one.at_upper for one in found),
            passes=len(self.seconds),
            seconds=tuple(self.seconds),
            folder=folder,
            note=judged.note,
            terms=terms,
            decision=decision,
            calls=tuple((*call, start) for call, start in zip(self.calls, starts, strict=False)),
        )

    def _first_trials(self) -> Array:
        """Return what a sample of the sources suggests; a worker has the arithmetic of it loaded."""
        drawn, rows = [one.sample for one in self.scans], [one.n for one in self.scans]
        self.scans = [replace(one, sample={}) for one in self.scans]
        sizes = [len(one["change_rate"]) for one in drawn]
        weights = np.repeat([n / size for n, size in zip(rows, sizes, strict=True)], sizes)
        message = (drawn, rows, weights, self.terms, self.limits)
        ((_, found),) = run_pass(trials_of_sample, [()], message)
        return found

    def _measure(self, prices: Array, hosts: IntArray, own: Array | None) -> tuple[Array, Array | None]:
        """Return the use of bandwidth at prices, over all partitions."""
        common = Sums((len(prices), 1 + len(self.limits)))
        own_use = None if own is None else Sums(own.shape)

        def fold(k: int, result: tuple[int, Array, Array | None]) -> None:
            rows, used, host_used = result
            self._require_same(k, rows)
            common.add(used)
            if own_use is not None and host_used is not None:
                own_use.add(host_used)

        self._pass("searching prices", measure, self.calls, (self.terms, prices, hosts, own), fold)
        return common.total(), None if own_use is None else own_use.total()

    def _gather(self, wanted: BoolArray, trials: Trials) -> Trials:
        """End the search of some hosts where their sources are gathered."""
        rows = [one.n for one in self.scans]
        further = (self.terms, rows, self.limits, wanted, trials)
        self.report("gathering hosts")
        begun = time.perf_counter()
        found = run_behind(collect, self.calls, (self.terms, wanted), end_search, further)
        self.seconds.append(time.perf_counter() - begun)
        return found

    def _edges(self, tight: bool, pinned: BoolArray) -> tuple[float, Array]:
        """Return the prices that forbid more than min_rate; refuse infinite costs at it."""
        hosts = len(self.limits)
        largest, starved = np.zeros(hosts), np.zeros(1 + hosts, dtype=np.int64)

        def fold(_: int, one: tuple[float, Array, IntArray]) -> float:
            np.maximum(largest, one[1], out=largest)
            np.add(starved, one[2], out=starved)
            return one[0]

        found = self._pass("looking at min_rate", edges, self.calls, self.terms, fold)
        if tight and starved[0]:
            what, number = f"the bandwidth {self.terms.bandwidth:g}", int(starved[0])
        else:
            short = np.flatnonzero(pinned & (starved[1:] > 0))
            what = list_offenders(f"the limit of host {self.terms.hosts[h]!r}" for h in short)
            number = int(np.sum(starved[1:][short]))
        if number:
            raise InfeasibleProblemError(
                f"min_rate uses up {what} and leaves nothing for {number} sources with an infinite cost. "
                "Raise the bandwidth or the limit, or lower min_rate."
            )
        return max(found), largest

    def _rows(self, parts: list[tuple[Any, ...]]) -> tuple[int, ...] | None:
        """Return the rows of each partition, if the objective may hold something for each source."""
        objective = self.terms.objective
        if objective.take(slice(0, 1)) is objective:
            return None
        if self.partitions.rows is not None:
            return self.partitions.rows
        calls = [(part,) for part, _, _ in parts]
        return tuple(self._pass("counting the sources", count, calls, None))

    def _require_same(self, k: int, rows: int) -> None:
        """Refuse a partition that has other rows than at the first look."""
        if rows != self.scans[k].n:
            raise SourceDataError(
                f"{self.calls[k][1]} had {self.scans[k].n} rows at first and has {rows} now. "
                "Keep the sources as they are while they are being solved for."
            )

    def _pass(
        self,
        word: str,
        step: Callable[..., Any],
        calls: list[tuple[Any, ...]],
        message: object,
        fold: Callable[[int, Any], Any] = lambda _, result: result,
    ) -> list[Any]:
        """Run a step on every partition; return in order what `fold` leaves of each result as it arrives."""
        self.report(word)
        begun = time.perf_counter()
        results: list[Any] = [None] * len(calls)
        for k, result in run_pass(step, calls, message):
            results[k] = fold(k, result)
        self.seconds.append(time.perf_counter() - begun)
        return results


def file_name(k: int) -> str:
    """Return the name of the k-th file of rates.

    Examples
    --------
    >>> file_name(3)
    'part-00003.parquet'
    """
    return f"part-{k:05d}.parquet"


def _shares(objective: Objective, rows: tuple[int, ...] | None, parts: int) -> list[bytes | None]:
    """Return each partition's share of an objective that holds arrays, None of one that does not."""
    if rows is None:
        return [None] * parts
    n, ends = sum(rows), np.cumsum(rows).tolist()
    if n and pickle.dumps(objective.take(slice(n - 1, None))) != pickle.dumps(
        objective.take(slice(n - 1, n))
    ):
        raise ObjectiveError(
            f"{type(objective).__name__} holds more entries than there are sources ({n}). Give one each."
        )
    return [pack(objective.take(slice(end - number, end))) for number, end in zip(rows, ends, strict=True)]


def _with_unit(terms: Terms, scans: list[Scan], asked: str | None) -> Terms:
    """Return the terms with the time unit that the sources name."""
    named = {unit for one in scans for unit in one.units}
    if not named:
        return terms
    if len(named) > 1 or None in named:
        raise SourceDataError(
            "column 'time_unit' does not say one unit for all rows. Write the same in each."
        )
    unit = check_time_unit(named.pop())
    if asked not in (None, unit):
        raise SourceDataError(f"the sources are per {unit}, and not per {asked}. Leave time_unit out.")
    return replace(terms, time_unit=unit)
