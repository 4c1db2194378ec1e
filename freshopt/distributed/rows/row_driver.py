"""Client side of a distributed solve under declared rows.

After the scan a pass adds up groups, one adds up rows and draws a sample, each step of the search is a pass,
and the last one writes the rates and adds up the certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.distributed.dask_passes import run_pass
from freshopt.distributed.driver import DistributedSolve
from freshopt.distributed.objective_shares import shares_of
from freshopt.distributed.partition import HostSums
from freshopt.distributed.rows.certify_rows import judge_rows
from freshopt.distributed.rows.column_rows import ColumnRows, declared_order
from freshopt.distributed.rows.nested_pieces import NestedDecision
from freshopt.distributed.rows.nested_tree import PartitionedTree, TreeSearch, partitioned_tree
from freshopt.distributed.rows.row_pieces import PartitionedRows
from freshopt.distributed.rows.row_search import (
    ENTRIES,
    SAMPLE,
    Facts,
    PartitionedRowPasses,
    SampleAnswer,
    conflicts,
    proved_conflict,
    search,
    solve_sample,
)
from freshopt.distributed.rows.row_steps import (
    Responses,
    RowSums,
    add_groups,
    add_rows,
    disprove,
    price_tight,
    respond,
    with_groups,
)
from freshopt.distributed.rows.write_row_rates import FinishedRows, finish_rows
from freshopt.distributed.solution import DistributedSolution
from freshopt.errors import InfeasibleProblemError, SolverRefusedError
from freshopt.interior_point.row_presolve import idle_and_tight
from freshopt.interior_point.solve_rows import RowAnswer
from freshopt.modelling.general_program import require_least
from freshopt.modelling.spend import Spend
from freshopt.numerics.arrays import Array, IntArray, exact_sum
from freshopt.separable.rows import Rows

# Rows of which Newton's matrix is a dense one: 128 MB of it per partition that is being worked on.
MOST_ROWS = 4000
# Relative slack of a row that does not bind, as in memory.
LOOSE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class RowSolve:
    """Scanned partitions with their declared rows.

    Parameters
    ----------
    rows : Rows
        All rows without entries.
    calls : tuple of tuple
        What workers are told of each partition with rows.
    members : int
        Entries of all rows.
    """

    work: DistributedSolve
    terms: PartitionedRows
    rows: Rows
    calls: tuple[tuple[Any, ...], ...]
    members: int

    @classmethod
    def of(cls, work: DistributedSolve, constraints: tuple[ColumnRows, ...]) -> RowSolve:
        """Find the groups and add up what they have.

        Raises
        ------
        SourceDataError
            If a group is unknown, or a mean is over sources of no importance.
        SolverRefusedError
            If there are too many rows.
        """
        none = np.zeros(0)
        unfound = PartitionedRows(
            work.terms.objective,
            constraints,
            work.terms.columns,
            work.terms.time_unit,
            none,
            none.astype(np.bool_),
            none.astype(np.bool_),
        )
        found = work.passes.run("adding up groups", add_groups, _calls(work, constraints), unfound)
        resolved, needed, members = with_groups(constraints, found)
        m = sum(map(len, resolved))
        nothing = np.zeros(m, dtype=np.bool_)
        terms = replace(unfound, constraints=resolved, needed=needed, idle=nothing, tight=nothing)
        return cls(
            work,
            terms,
            Rows.gather([one.without_entries() for one in resolved], 0),
            _calls(work, resolved),
            members,
        )

    def solve(
        self, staging: Path | None, folder: Path | None, tolerance: float, bandwidth: float | None = None
    ) -> DistributedSolution:
        """Search the multipliers, write the rates and certify them.

        Raises
        ------
        InfeasibleProblemError
            If rows are proved to conflict.
        """
        tree = self._tree()
        if tree is not None:
            decision, y = TreeSearch(self.work, self.terms, self.calls, tree).solve()
            return self._finish(self.terms, decision, [y], None, staging, folder, bandwidth, tolerance)
        m = len(self.rows)
        if m > MOST_ROWS and self.terms.arrow is None:
            raise SolverRefusedError(
                f"there are {m} rows, and over partitions up to {MOST_ROWS} are solved for where groups "
                "overlap, unless all are nested limits on bandwidth. Declare fewer groups."
            )
        terms, facts, drawn = self._presolved()
        sample = self._of_sample(terms, facts.n, drawn)
        near = None
        if sample is not None:
            if sample.conflict is not None:
                raise InfeasibleProblemError(str(sample.conflict), sample.conflict)
            if not sample.feasible:
                self._require_no_conflict(terms, sample.multipliers)
            near = sample.multipliers if sample.feasible else None
        found: RowAnswer | None = None
        y = np.zeros(len(self.rows))
        if bool(np.any(terms.kept)):
            limits = self.rows.limits[terms.kept]
            passes = PartitionedRowPasses(
                self._responder(terms), limits, terms.arrow, partial(self._require_no_conflict, terms)
            )
            found = search(passes, facts, near, terms)
            if not np.isfinite(found.gap):
                self._require_no_conflict(terms, found.multipliers)
            y[terms.kept] = found.multipliers
        y = self._with_tight(terms, y)
        candidates = [y]
        if found is not None and np.isfinite(found.gap):
            # On the path every multiplier is positive; 0 may prove as much of rows that do not bind.
            bare, limits = y.copy(), np.abs(self.rows.limits[terms.kept])
            bare[np.flatnonzero(terms.kept)[found.slack > LOOSE * limits]] = 0.0
            candidates.insert(0, bare)
        why = None if found is None else found.why
        return self._finish(terms, y, candidates, why, staging, folder, bandwidth, tolerance)

    def _tree(self) -> PartitionedTree | None:
        """Return the tree that all rows are, or None."""
        constraints = self.terms.constraints
        plain = all(one.plain for one in constraints) and not isinstance(self.terms.objective, Spend)
        if not plain and not any(one.nested for one in constraints):
            return None
        found = partitioned_tree(self.work, self.terms, self.calls)
        return found if plain else None

    def _presolved(self) -> tuple[PartitionedRows, Facts, list[dict[str, npt.NDArray[Any]] | None]]:
        """Add up the rows, and again where some fix their sources.

        Raises
        ------
        InfeasibleProblemError
            If bounds alone exclude a row.
        """
        terms = self.terms
        total = sum(one.n for one in self.work.scans)
        facts, drawn = self._facts(terms, SAMPLE / total)
        least, most, size, free, turning = facts.sums[:5]
        require_least(self.rows, facts.sums[8], terms.time_unit)
        idle, tight = idle_and_tight(self.rows.limits, (least, most, size), free)
        tight &= turning == 0.0
        terms = replace(terms, idle=idle, tight=tight)
        if bool(np.any(tight)):
            facts, _ = self._facts(terms, 0.0)
        else:
            facts = facts._replace(sums=facts.sums[:, terms.kept])
        return terms, facts, drawn

    def _facts(
        self, terms: PartitionedRows, share: float
    ) -> tuple[Facts, list[dict[str, npt.NDArray[Any]] | None]]:
        sums = HostSums((9, int(np.count_nonzero(terms.kept))))

        def fold(
            _: int, one: tuple[RowSums, dict[str, npt.NDArray[Any]] | None]
        ) -> tuple[int, float, dict[str, npt.NDArray[Any]] | None]:
            sums.add(one[0].sums)
            return one[0].n, one[0].value, one[1]

        calls = [(*call, k) for k, call in enumerate(self.calls)]
        found = self.work.passes.run("adding up rows", add_rows, calls, (terms, share), fold)
        n = sum(one[0] for one in found)
        return Facts(n, sums.total(), exact_sum(one[1] for one in found)), [one[2] for one in found]

    def _of_sample(
        self, terms: PartitionedRows, n: int, drawn: list[dict[str, npt.NDArray[Any]] | None]
    ) -> SampleAnswer | None:
        """Return what a sample says; None where it says too little."""
        if not bool(np.any(terms.kept)):
            return None
        if self.members * min(1.0, SAMPLE / n) < ENTRIES * len(self.rows) and n > SAMPLE:
            return None
        starts = np.cumsum([0, *(one.n for one in self.work.scans)]).tolist()
        some = [(one, start) for one, start in zip(drawn, starts, strict=False) if one is not None]
        call = ([one for one, _ in some], [start for _, start in some], n)
        ((_, found),) = run_pass(solve_sample, [call], terms)
        answer: SampleAnswer = found
        return answer

    def _responder(
        self, terms: PartitionedRows
    ) -> Callable[[Array, bool, Callable[[Responses], None]], None]:
        def run(multipliers: Array, gram: bool, add: Callable[[Responses], None]) -> None:
            def fold(k: int, one: Responses) -> None:
                self.work.require_same(k, one.n)
                add(one)

            message = (terms, multipliers, gram)
            self.work.passes.run("searching multipliers", respond, self.calls, message, fold)

        return run

    def _require_no_conflict(self, terms: PartitionedRows, multipliers: Array) -> None:
        """Raise InfeasibleProblemError if multipliers of the kept rows prove a conflict."""
        whole = np.zeros(len(self.rows))
        whole[terms.kept] = multipliers
        sizes = np.where(self.rows.limits != 0.0, np.abs(self.rows.limits), 1.0)
        candidates = conflicts(whole, sizes)
        if not len(candidates):
            return
        found = self.work.passes.run("proving a conflict", disprove, self.calls, (terms, candidates))
        least = np.array([exact_sum(one[c] for one in found) for c in range(len(candidates))])
        message = proved_conflict(self.rows, candidates, least)
        if message is not None:
            raise InfeasibleProblemError(message)

    def _with_tight(self, terms: PartitionedRows, multipliers: Array) -> Array:
        """Return multipliers with those of rows that fix their sources."""
        y = multipliers.copy()
        owner = np.repeat(np.arange(len(terms.constraints)), [len(one) for one in terms.constraints])
        for k in np.unique(owner[terms.tight]):
            # No two rows of a constraint share a source: one pass prices them all.
            own: IntArray = np.flatnonzero(terms.tight & (owner == k))
            found = self.work.passes.run("pricing tight rows", price_tight, self.calls, (terms, y, own))
            y[own] = np.max(np.stack(found), axis=0)
        return y

    def _finish(
        self,
        terms: PartitionedRows,
        decision: Array | NestedDecision,
        candidates: list[Array],
        why: str | None,
        staging: Path | None,
        folder: Path | None,
        bandwidth: float | None,
        tolerance: float,
    ) -> DistributedSolution:
        """Write the rates and certify them."""
        calls = self.work.last_calls(self.calls)
        sums = HostSums((3, len(self.rows)))

        def fold(_: int, one: FinishedRows) -> FinishedRows:
            sums.add(one.sums)
            return one._replace(sums=np.empty(0))

        message = (terms, decision, np.stack(candidates), None if staging is None else str(staging))
        parts = self.work.passes.run("writing the rates", finish_rows, calls, message, fold)
        judged = judge_rows(terms, self.rows, parts, sums.total(), candidates, tolerance, why)
        price, hosts = judged.prices_of(terms.constraints)
        return self.work.solution(
            judged,
            parts,
            calls,
            folder,
            bandwidth=np.inf if bandwidth is None else bandwidth,
            price=price,
            host_prices=hosts,
            used=exact_sum(one.bandwidth for one in parts),
            infeasibility=judged.infeasibility,
            terms=terms,
            decision=decision,
            rows=judged.rows.take(declared_order(terms.constraints)),
        )


def _calls(work: DistributedSolve, constraints: tuple[ColumnRows, ...]) -> tuple[tuple[Any, ...], ...]:
    """Return what workers are told of each partition."""
    sizes = tuple(one.n for one in work.scans)
    own = [tuple(call[3] for call in work.calls)]
    own += [shares_of(one.objective, sizes) for one in constraints]
    shares = zip(*own, strict=True)
    return tuple((*call[:3], share) for call, share in zip(work.calls, shares, strict=True))
