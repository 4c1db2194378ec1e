"""Client side of a distributed solve.

`DistributedSolve.scan` validates all partitions and makes the tree of their limits; `search` finds the prices
of its groups; `finish` writes the rates and certifies them. The client holds a few numbers per group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.distributed.bound_search import Ask, Bounds, add_up, inherit, search_bounds
from freshopt.distributed.column_rows import ColumnRows, declared_order
from freshopt.distributed.dask_passes import Passes, pack, run_behind, run_pass
from freshopt.distributed.partition import HostSums, Partition, PartitionedProblem
from freshopt.distributed.partitioned_sources import PartitionedSources
from freshopt.distributed.piece import Decision, OwnPrices
from freshopt.distributed.solution import DistributedSolution
from freshopt.distributed.tree import PartitionedTree, partitioned_tree
from freshopt.distributed.worker_passes import (
    Columns,
    Scan,
    Unfinished,
    collect,
    count,
    edge_prices,
    end_search,
    respond,
    scan,
    trials_of_sample,
)
from freshopt.distributed.write_rates import Finished, finish, judge
from freshopt.dual_search.nested_prices import require_finite
from freshopt.dual_search.trial_search import Trials
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.objective import Objective
from freshopt.modelling.short_form import NAMES
from freshopt.numerics.arrays import Array, IntArray
from freshopt.units import check_time_unit

# Sources: the price to 2e-3 where a few do not matter more than all others.
SAMPLE = 200_000
# Sources that one worker may gather, some 20 MB.
COLLECTED = 300_000


@dataclass(frozen=True, slots=True, eq=False)
class DistributedSolve:
    """Sources in partitions that were validated, and limits that rates can meet.

    - `calls`: Each partition with rows.
    - `samples`: Columns of some sources of each, with their places among all and groups of the tree.
    """

    partitions: PartitionedSources
    whole: PartitionedTree
    calls: tuple[tuple[Partition], ...]
    samples: tuple[Columns, ...]
    passes: Passes

    @classmethod
    def scan(
        cls,
        objective: Objective,
        partitions: PartitionedSources,
        constraints: tuple[ColumnRows, ...],
        on_progress: Callable[[str], None],
    ) -> DistributedSolve:
        """Validate all partitions, draw a sample, make the tree of limits.

        - raises SourceDataError, InfeasibleProblemError if something is missing or out of range, or if no
          rates can meet the limits.
        """
        passes, columns = Passes(on_progress), partitions.with_own(objective)
        terms = PartitionedProblem(objective, constraints, columns, partitions.time_unit or "day")
        own = _shares(objective, partitions, passes)
        every = zip(partitions.parts, partitions.labels, partitions.first, own, strict=True)
        parts = [Partition(*each) for each in every]
        size = max(1, -(-SAMPLE // len(parts)))
        calls = [(part, k, size) for k, part in enumerate(parts)]
        found: list[Scan | None] = passes.run("scanning the sources", scan, calls, terms)
        filled = [(part, one) for part, one in zip(parts, found, strict=True) if one is not None]
        if not filled:
            raise SourceDataError("the partitions hold no rows. Write at least one source.")
        scans = [one for _, one in filled]
        whole = partitioned_tree(scans, _with_unit(terms, scans, partitions.time_unit))
        kept, samples, start = [], [], 0
        for (part, one), leaf in zip(filled, whole.leaf, strict=True):
            kept.append((part._replace(rows=one.n, start=start),))
            place, code = one.sample["place"] + start, leaf[one.sample["code"]]
            samples.append({**one.sample, "place": place, "code": code})
            start += one.n
        return cls(partitions, whole, tuple(kept), tuple(samples), passes)

    def search(self) -> tuple[Decision, Array]:
        """Return the prices of all groups and the rows' multipliers, shape (m,).

        - raises InfeasibleProblemError if limits leave nothing for sources of an infinite cost.
        """
        tree, bounds = self.whole.tree, Bounds.of(self.whole.tree)
        none = np.zeros(0)
        unknown = OwnPrices(none, none, none, none)
        decision = Decision(self.whole.groups, tree.nesting.depth, (), none, unknown, none)
        found = self._own_prices(bounds, decision)
        own = np.stack([np.full(len(tree), -np.inf), np.full(len(tree), np.inf)])
        own[bounds.reserve.astype(np.int64), bounds.group] = found.price
        decision = replace(decision, around=bounds.around, target=bounds.target, own=found)
        price = tree.paid(*self._with_edges(decision, own))
        return replace(decision, price=price), tree.multipliers(price)

    def finish(
        self,
        staging: Path | None,
        folder: Path | None,
        tolerance: float,
        bandwidth: float | None,
        *,
        declared: bool,
    ) -> DistributedSolution:
        """Search the prices, write the rates and certify them."""
        (decision, y), whole = self.search(), self.whole
        calls = [(*call, file_name(k)) for k, call in enumerate(self.calls)]
        sums = HostSums((3, len(whole.tree)))

        def fold(_: int, one: Finished) -> Finished:
            sums.add(one.sums)
            return one._replace(sums=np.empty(0))

        message = (whole.terms, decision, None if staging is None else str(staging))
        parts = self.passes.run("writing the rates", finish, calls, message, fold)
        judged = judge(whole, parts, sums.total(), y, tolerance)
        prices = dict(zip(judged.rows.labels, judged.rows.price.tolist(), strict=True))
        rows = judged.rows.take(declared_order(whole.terms.constraints))
        hosts = [key for one in whole.terms.constraints if one.of_hosts for key in one.groups]
        return DistributedSolution(
            objective=whole.terms.objective,
            sources=self.partitions,
            bandwidth=np.inf if bandwidth is None else bandwidth,
            n=int(whole.members[-1]),
            price=0.0 if bandwidth is None else prices[NAMES[0]],
            host_prices={key: prices[f"{NAMES[1]}[{key}]"] for key in hosts},
            never=sum(one.never for one in parts),
            at_lower=sum(one.at_lower for one in parts),
            at_upper=sum(one.at_upper for one in parts),
            passes=len(self.passes.seconds),
            seconds=tuple(self.passes.seconds),
            folder=folder,
            terms=whole.terms,
            decision=decision,
            calls=self.calls,
            **(judged._asdict() | {"rows": rows if declared else None}),
        )

    def _own_prices(self, bounds: Bounds, decision: Decision) -> OwnPrices:
        """Return the own prices of all bounds."""
        members = self.whole.members

        def gathered(which: IntArray, rest: Unfinished | None) -> Any:  # noqa: ANN401 - what ends
            wanted = np.zeros(len(members), dtype=np.bool_)
            wanted[bounds.group[which]] = True
            inherit(bounds.tree, wanted, np.logical_or)
            message, further = (self.whole.terms, decision, wanted), (self.whole.terms, bounds, rest)
            with self.passes.timed("gathering sources"):
                return run_behind(collect, list(self.calls), message, end_search, further)

        def gather(which: IntArray, trials: Trials, negative: bool) -> Trials | None:
            if int(np.sum(members[np.unique(bounds.group[which])])) > COLLECTED:
                return None
            found: Trials = gathered(which, (which, trials, negative))
            return found

        def sums(common: Array, asks: list[Ask]) -> list[Array]:
            found = [HostSums((k, len(members))) for k in (len(common), *(len(one.prices) for one in asks))]

            def fold(_: int, used: list[Array]) -> None:
                for total, added in zip(found, used, strict=True):
                    total.add(added)

            message = (self.whole.terms, decision, common, asks)
            self.passes.run("searching prices", respond, self.calls, message, fold)
            return [one.total() for one in found]

        if members[-1] <= COLLECTED:
            every: OwnPrices = gathered(np.arange(len(bounds)), None)
            return every
        return search_bounds(sums, bounds, self._first_trials(bounds), gather)

    def _first_trials(self, bounds: Bounds) -> Array:
        """Return first log prices from a worker's sample of the sources."""
        rows, sizes = [part.rows for (part,) in self.calls], [len(one["place"]) for one in self.samples]
        weights = np.repeat(np.divide(rows, sizes), sizes)
        message = (list(self.samples), weights, self.whole.terms, bounds)
        ((_, found),) = run_pass(trials_of_sample, [()], message)
        return found

    def _with_edges(self, decision: Decision, own: Array) -> Array:
        """Return own prices, also where bounds of rates decide.

        Where lower bounds use up a limit, the least price at which no source takes more; where upper bounds
        are a reserve, the highest at which none takes less.
        """
        tree = self.whole.tree
        full = np.flatnonzero((own[0] == np.inf) & np.isfinite(tree.limit))
        scarce = np.flatnonzero((own[1] == -np.inf) & (tree.reserve > 0.0))
        if not len(full) and not len(scarce):
            return own
        chosen = np.zeros(len(tree), dtype=np.bool_)
        chosen[full] = chosen[scarce] = True
        inherit(tree, chosen, np.logical_or)
        largest, least = np.full(len(tree), -np.inf), np.full(len(tree), np.inf)

        def fold(_: int, found: tuple[Array, Array]) -> None:
            np.maximum(largest, found[0], out=largest)
            np.minimum(least, found[1], out=least)

        message = (self.whole.terms, decision, chosen)
        self.passes.run("pricing groups without room", edge_prices, self.calls, message, fold)
        add_up(tree, largest, np.maximum)
        add_up(tree, least, np.minimum)
        upper, lower = own.copy()
        upper[full] = np.maximum(0.0, largest[full])
        require_finite(tree, full[upper[full] == np.inf])
        lower[scarce] = np.where(np.isfinite(least[scarce]), least[scarce], 0.0)
        return np.stack([upper, lower])


def file_name(k: int) -> str:
    """Return the name of the k-th file of rates.

    Examples
    --------
    >>> file_name(3)
    'part-00003.parquet'
    """
    return f"part-{k:05d}.parquet"


def _shares(objective: Objective, partitions: PartitionedSources, passes: Passes) -> list[bytes | None]:
    """Return each partition's part of an objective's arrays, packed; None without any."""
    if objective.take(slice(0, 1)) is objective:
        return [None] * len(partitions.parts)
    rows = partitions.rows
    if rows is None:
        rows = tuple(passes.run("counting the sources", count, [(part,) for part in partitions.parts], None))
    n, ends = sum(rows), np.cumsum(rows).tolist()
    beyond, last = objective.take(slice(n - 1, None)), objective.take(slice(n - 1, n))
    if n and pack(beyond) != pack(last):
        raise ObjectiveError(
            f"{type(objective).__name__} holds more entries than there are sources ({n}). Give one each."
        )
    return [pack(objective.take(slice(end - number, end))) for number, end in zip(rows, ends, strict=True)]


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
