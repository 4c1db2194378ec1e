"""Client side of a distributed solve.

`DistributedSolve` holds scanned partitions; from them come their dual and their certified rates.

`scan` validates all partitions and returns a frozen value; of this `solve_dual` makes a dual, and of both
`finish` makes the solution.

The duality-gap certificate adds up its terms over partitions as it does in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from freshopt.certificates.best_response import limit_term, limit_terms
from freshopt.certificates.relative_gap import NOTHING, PricedLimits, resolved, scale_of
from freshopt.certificates.solution import Status
from freshopt.distributed.dask_passes import Passes, run_behind, run_pass
from freshopt.distributed.objective_shares import rows_of, whole_shares
from freshopt.distributed.partition import HostSums, PartitionedProblem
from freshopt.distributed.partitioned_sources import PartitionedSources
from freshopt.distributed.price_search import (
    PartitionedDemand,
    end_search,
    solve_partitioned_dual,
    trials_of_sample,
)
from freshopt.distributed.rows.tree_rates import FinishedRows, JudgedRows
from freshopt.distributed.solution import DistributedSolution
from freshopt.distributed.worker_passes import Scan, collect, edges, measure, require_room, scan
from freshopt.distributed.write_rates import Decision, Finished, finish
from freshopt.dual_search.trial_search import Trials
from freshopt.errors import InfeasibleProblemError, SourceDataError, list_offenders
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import Array, BoolArray, IntArray, exact_sum
from freshopt.units import check_time_unit


class Needed(NamedTuple):
    """Bandwidth that the lower bounds use: total, and per limited host."""

    bandwidth: float
    hosts: Array


class Judged(NamedTuple):
    """Certificate of all partitions' rates, as `fo.Certificate`."""

    status: Status
    value: float
    bound: float
    gap: float
    relative_gap: float
    used: float
    note: str


def judge(
    found: list[Finished],
    decision: Decision,
    terms: PartitionedProblem,
    limits: Array,
    use: Array,
    source_gaps: Array,
    needed: Needed,
    infeasibility: float,
    tolerance: float,
) -> Judged:
    """Sum the certificate over all partitions.

    Parameters
    ----------
    found : list of Finished
        One per partition.
    limits : ndarray, shape (H,)
    use : ndarray, shape (1+H,)
        Σ cost·ρ of the sources without a limit, then of each limited host.
    source_gaps : ndarray, shape (1+H,)
        Σ max(0, (ρ̂−ρ)(f'(ρ)−ν)) of the same.
    infeasibility : float
        The largest relative violation of a limit, 0 for a few ulp.
    """
    better = -1.0 if terms.objective.sense == "minimise" else 1.0
    used, cost = exact_sum(use), exact_sum(one.cost for one in found)
    slack = max(0.0, terms.bandwidth - used)
    unused = limit_terms(decision.multipliers, np.maximum(0.0, limits - use[1:]), limits)
    own = limit_term(decision.price, slack, terms.bandwidth)
    gap = exact_sum([own, *unused, *source_gaps])
    proved = math.isfinite(gap) and math.isfinite(cost)
    gap = gap if proved else math.inf
    amounts = np.append(terms.bandwidth, limits)
    priced = PricedLimits(
        terms.hosts,
        amounts,
        np.append(decision.price, decision.multipliers),
        np.maximum(0.0, amounts - np.append(needed.bandwidth, needed.hosts)),
    )
    lost = exact_sum(one.halving_loss for one in found)
    scale = scale_of(cost, gap, priced.at_stake, lambda: lost)
    relative = resolved(cost, gap, scale, priced, lambda: source_gaps[1:] + unused) if proved else NOTHING
    if proved:
        relative = relative.unless_nothing(cost, gap, lambda: exact_sum(one.unrefreshed for one in found))
    value = exact_sum(one.value for one in found)
    good = relative.beyond_rounding <= tolerance and infeasibility <= tolerance
    shortfall = f"The certified relative gap {relative.relative:.2g} exceeds the tolerance {tolerance:g}."
    note = " ".join(part for part in ("" if good else shortfall, relative.reason) if part)
    if infeasibility > tolerance:
        note = f"Limits are exceeded by {infeasibility:.2g} of them."
    return Judged(
        Status.OPTIMAL if good else Status.INACCURATE,
        value,
        value + better * gap if proved else better * math.inf,
        gap,
        relative.relative,
        used,
        note,
    )


# Sources: the price to 2e-3 where a few do not matter more than all others.
SAMPLE = 200_000
# Of the last pass, where rounding used a few ulp too much.
REWRITES = 2

Decide: TypeAlias = Callable[[float, Array | float], Decision]  # with parts of the limits left unused


@dataclass(frozen=True, slots=True, eq=False)
class DistributedSolve:
    """Sources in partitions that were validated, and limits that rates can meet.

    Parameters
    ----------
    limits : ndarray, shape (H,)
    calls : tuple of tuple
        What workers are told of each partition with rows.
    scans : tuple of Scan
        What they found in it.
    lower : float
        Σ cost·min_rate.
    host_lower : ndarray, shape (H,)
    members : ndarray of int, shape (H,)
        How many sources each host has.
    """

    partitions: PartitionedSources
    terms: PartitionedProblem
    limits: Array
    calls: tuple[tuple[Any, ...], ...]
    scans: tuple[Scan, ...]
    lower: float
    host_lower: Array
    members: IntArray
    passes: Passes

    @classmethod
    def scan(
        cls,
        objective: Objective,
        partitions: PartitionedSources,
        bandwidth: float,
        limits: dict[Any, float],
        on_progress: Callable[[str], None],
        sample: int = SAMPLE,
    ) -> DistributedSolve:
        """Validate all partitions, add up their bounds and draw a sample.

        Raises
        ------
        SourceDataError, InfeasibleProblemError
            If something is missing or out of range, or if no rates can meet the limits.
        """
        passes, most = Passes(on_progress), np.array(list(limits.values()), dtype=np.float64)
        unit = partitions.time_unit or "day"
        terms = PartitionedProblem(objective, bandwidth, tuple(limits), partitions.with_own(objective), unit)
        parts = list(zip(partitions.parts, partitions.labels, partitions.first, strict=True))
        own = whole_shares(objective, rows_of(objective, partitions, passes), len(parts))
        size = max(1, -(-sample // len(parts)))
        calls = [(*part, share, k, size) for k, (part, share) in enumerate(zip(parts, own, strict=True))]
        host_lower, members = HostSums((len(most),)), np.zeros(len(most), dtype=np.int64)

        def fold(_: int, one: Scan) -> Scan:
            host_lower.add(one.host_lower)
            np.add(members, one.host_sources, out=members)
            return one.without_hosts()

        found = passes.run("scanning the sources", scan, calls, terms, fold)
        filled = [k for k, one in enumerate(found) if one.n]
        if not filled:
            raise SourceDataError("the partitions hold no rows. Write at least one source.")
        scans = tuple(found[k] for k in filled)
        terms = _with_unit(terms, scans, partitions.time_unit)
        absent = np.flatnonzero(members == 0)
        if len(absent):
            unknown = list_offenders(repr(terms.hosts[h]) for h in absent)
            raise SourceDataError(f"host_limits name unknown hosts {unknown}. Correct the names.")
        lower = exact_sum(one.lower for one in scans)
        require_room(lower, host_lower.total(), terms, most, FEW_ULP)
        kept = tuple((*parts[k], own[k]) for k in filled)
        return cls(partitions, terms, most, kept, scans, lower, host_lower.total(), members, passes)

    def solve_dual(self) -> Decide:
        """Find the dual prices; return a function that makes the decision.

        Its arguments are the parts of the limits that are left unused.

        Raises
        ------
        InfeasibleProblemError
            If sources held at min_rate have an infinite cost there.
        """
        terms, hosts = self.terms, len(self.limits)
        tight = bool(self.lower >= terms.bandwidth * (1.0 - FEW_ULP))
        demand = PartitionedDemand(
            self._measure,
            self._gather,
            terms.bandwidth,
            self.limits,
            self.lower,
            self.host_lower,
            self.members,
        )
        edge, host_edges = 0.0, np.zeros(hosts)
        if tight or bool(np.any(demand.pinned)):
            edge, host_edges = self._edges(tight, demand.pinned)
        if tight:
            none = np.zeros(hosts)
            every = np.full(hosts, np.inf)
            at_lower = Decision(np.inf, np.inf, 0.0, edge, every, every, none, none, none)
            return lambda _, __: at_lower
        dual = solve_partitioned_dual(demand, self._first_trials())
        return lambda trim, host_trims: dual.decision(host_edges, trim, host_trims)

    def finish(
        self,
        decide: Decide,
        staging: Path | None,
        folder: Path | None,
        tolerance: float,
    ) -> DistributedSolution:
        """Write the rates and certify them."""
        terms, limits = self.terms, self.limits
        calls = self.last_calls(self.calls)
        trim, host_trims = 0.0, np.zeros(len(limits))
        for turn in range(1 + REWRITES):
            decision = decide(trim, host_trims)
            message = (terms, decision, None if staging is None else str(staging))
            word = "writing the rates" if turn == 0 else "writing them anew"
            sums = HostSums((2, 1 + len(limits)))

            def fold(_: int, one: Finished, sums: HostSums = sums) -> Finished:
                sums.add(one.sums)
                return replace(one, sums=np.empty(0))  # a part of it would keep all of it

            found = self.passes.run(word, finish, calls, message, fold)
            use, source_gaps = sums.total()
            excess = exact_sum(use) / terms.bandwidth - 1.0
            host_excess = use[1:] / limits - 1.0
            over = max(excess, float(np.max(host_excess, initial=0.0)))
            if over <= FEW_ULP:
                break
            trim += 2.0 * max(0.0, excess)
            host_trims = host_trims + 2.0 * np.maximum(0.0, host_excess)
        infeasibility = over if over > FEW_ULP else 0.0
        needed = Needed(self.lower, self.host_lower)
        judged = judge(found, decision, terms, limits, use, source_gaps, needed, infeasibility, tolerance)
        prices = dict(zip(terms.hosts, decision.multipliers.tolist(), strict=True))
        return self.solution(
            judged,
            found,
            calls,
            folder,
            bandwidth=terms.bandwidth,
            price=decision.price,
            host_prices=prices,
            used=judged.used,
            infeasibility=infeasibility,
            terms=terms,
            decision=decision,
        )

    def last_calls(self, calls: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return calls with each partition's first source and file of rates."""
        starts = np.cumsum([0, *(one.n for one in self.scans)]).tolist()
        own = zip(calls, starts, strict=False)
        return [(*call, start, file_name(k)) for k, (call, start) in enumerate(own)]

    def solution(
        self,
        judged: Judged | JudgedRows,
        found: Sequence[Finished | FinishedRows],
        calls: Sequence[tuple[Any, ...]],
        folder: Path | None,
        **more: Any,  # noqa: ANN401 - fields of the solution
    ) -> DistributedSolution:
        """Return the certified solution, given the last pass over each partition."""
        return DistributedSolution(
            objective=self.terms.objective,
            sources=self.partitions,
            n=sum(one.n for one in self.scans),
            status=judged.status,
            value=judged.value,
            bound=judged.bound,
            gap=judged.gap,
            relative_gap=judged.relative_gap,
            note=judged.note,
            never=sum(one.never for one in found),
            at_lower=sum(one.at_lower for one in found),
            at_upper=sum(one.at_upper for one in found),
            passes=len(self.passes.seconds),
            seconds=tuple(self.passes.seconds),
            folder=folder,
            calls=tuple(call[:-1] for call in calls),
            **more,
        )

    def _first_trials(self) -> Array:
        """Return first trial prices from a worker's sample of the sources."""
        drawn, rows = [one.sample for one in self.scans], [one.n for one in self.scans]
        sizes = [len(one["change_rate"]) for one in drawn]
        weights = np.repeat([n / size for n, size in zip(rows, sizes, strict=True)], sizes)
        message = (drawn, rows, weights, self.terms, self.limits)
        ((_, found),) = run_pass(trials_of_sample, [()], message)
        return found

    def _measure(self, prices: Array, hosts: IntArray, own: Array | None) -> tuple[Array, Array | None]:
        """Return the use of bandwidth at prices, over all partitions."""
        common = HostSums((len(prices), 1 + len(self.limits)))
        own_use = None if own is None else HostSums(own.shape)

        def fold(k: int, result: tuple[int, Array, Array | None]) -> None:
            rows, used, host_used = result
            self.require_same(k, rows)
            common.add(used)
            if own_use is not None and host_used is not None:
                own_use.add(host_used)

        self.passes.run("searching prices", measure, self.calls, (self.terms, prices, hosts, own), fold)
        return common.total(), None if own_use is None else own_use.total()

    def _gather(self, wanted: BoolArray, trials: Trials) -> Trials:
        """End the search of some hosts where their sources are gathered."""
        rows = [one.n for one in self.scans]
        further = (self.terms, rows, self.limits, wanted, trials)
        with self.passes.timed("gathering hosts"):
            found: Trials = run_behind(collect, list(self.calls), (self.terms, wanted), end_search, further)
        return found

    def _edges(self, tight: bool, pinned: BoolArray) -> tuple[float, Array]:
        """Return the prices from which every rate is min_rate, or raise."""
        hosts = len(self.limits)
        largest, starved = np.zeros(hosts), np.zeros(1 + hosts, dtype=np.int64)

        def fold(_: int, one: tuple[float, Array, IntArray]) -> float:
            np.maximum(largest, one[1], out=largest)
            np.add(starved, one[2], out=starved)
            return one[0]

        found = self.passes.run("evaluating min_rate", edges, self.calls, self.terms, fold)
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

    def require_same(self, k: int, rows: int) -> None:
        """Raise if a partition has other rows than when it was scanned."""
        if rows != self.scans[k].n:
            raise SourceDataError(
                f"{self.calls[k][1]} had {self.scans[k].n} rows at first and has {rows} now. "
                "Keep the sources as they are while they are being solved for."
            )


def file_name(k: int) -> str:
    """Return the name of the k-th file of rates.

    Examples
    --------
    >>> file_name(3)
    'part-00003.parquet'
    """
    return f"part-{k:05d}.parquet"


def _with_unit(terms: PartitionedProblem, scans: Sequence[Scan], asked: str | None) -> PartitionedProblem:
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
