"""Search for the multipliers of declared rows over partitions.

The engine of `freshopt.interior_point.solve_rows` asks what best responses to multipliers use of every row,
and how that falls with the multipliers: both are sums over partitions. The rates stay where the sources are;
the multipliers that they respond to stand for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.distributed.partition import HostSums
from freshopt.distributed.rows.row_pieces import PartitionedRows, RowColumns, RowPiece
from freshopt.distributed.rows.row_steps import Responses
from freshopt.errors import shortened
from freshopt.interior_point.conflict import Conflict
from freshopt.interior_point.infeasibility import CERTAIN, explain
from freshopt.interior_point.row_layout import Arrow
from freshopt.interior_point.row_passes import ArrowGram, Evaluation, Gram
from freshopt.interior_point.row_scaling import ScaledRows, scales_of
from freshopt.interior_point.row_start import start_in_the_middle, start_near
from freshopt.interior_point.solve_rows import RowAnswer, search_rows, solve_rows
from freshopt.modelling.spend import Spend
from freshopt.numerics.arrays import Array, exact_sum
from freshopt.separable.rows import Rows

# Sources of a sample: its multipliers are right to a hundredth or so where a row has a few hundred of them.
SAMPLE = 100_000
# Sampled entries of a row, on average, for its multiplier to mean something, as in memory.
ENTRIES = 25
# Relative gap of a sample's multipliers, and that of the answer.
NEAR, TOLERANCE = 1e-2, 1e-12
# Multipliers below these shares of the largest are dropped while the rest still prove a conflict.
_SHARES = (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 0.05)
# Newton steps, which a million sources under 10⁵ rows need; more of them do not help where demand jumps.
STEPS = 40
# Rows that a message names.
_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedRowPasses:
    """Passes over partitions, as `RowPasses` and `RowTotals`.

    Attributes
    ----------
    respond : callable
        Called with multipliers, with whether Newton's matrix is wanted, and with what takes each partition's
        sums.
    limits : ndarray, shape (m,)
    require_no_conflict : callable
        Called with multipliers that may prove that rows conflict; raises if they do.
    totals : dict
        What was used and what it cost, by multipliers.
    """

    respond: Callable[[Array, bool, Callable[[Responses], None]], None]
    limits: Array
    arrow: Arrow | None
    require_no_conflict: Callable[[Array], None]
    totals: dict[bytes, tuple[Array, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number m of rows."""
        return len(self.limits)

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Evaluation:
        """Return the multipliers for the rates, used amounts and the matrix."""
        used, costs, matrices = HostSums((len(self),)), list[float](), list[Gram]()

        def add(one: Responses) -> None:
            used.add(one.used)
            costs.append(one.cost)
            if one.gram is not None:
                matrices[:] = [_sum(matrices[0], one.gram)] if matrices else [one.gram]

        self.respond(multipliers, gram, add)
        total = used.total()
        self.totals[multipliers.tobytes()] = total, exact_sum(costs)
        return Evaluation(multipliers, total, matrices[0] if matrices else None)

    def cost(self, rates: Array) -> float:
        """Return F at the best responses to multipliers."""
        return self.totals[rates.tobytes()][1]

    def used(self, rates: Array) -> Array:
        """Return G at the best responses to multipliers."""
        return self.totals[rates.tobytes()][0]

    def conflicting(self, multipliers: Array) -> bool:
        """Return False, or raise where multipliers prove that rows conflict."""
        self.require_no_conflict(multipliers)
        return False


def _sum(one: Gram, other: Gram) -> Gram:
    if isinstance(one, ArrowGram) and isinstance(other, ArrowGram):
        return ArrowGram(*(a + b for a, b in zip(one, other, strict=True)))
    assert isinstance(one, np.ndarray)
    assert isinstance(other, np.ndarray)
    return one + other


class Facts(NamedTuple):
    """Sums over all sources that a search begins with.

    Attributes
    ----------
    sums : ndarray, shape (9, rows)
        As in `RowSums`.
    """

    n: int
    sums: Array
    value: float


def search(
    passes: PartitionedRowPasses, facts: Facts, near: Array | None, terms: PartitionedRows
) -> RowAnswer:
    """Return the multipliers of the kept rows.

    Parameters
    ----------
    near : ndarray, shape (kept rows,), or None
        Multipliers to begin near.
    """
    least, _, _, _, _, added, lost, sign, _ = facts.sums
    with np.errstate(all="ignore"):
        rows = ScaledRows(passes, scales_of(passes.limits, added, lost, least))
        if near is not None:
            start = start_near(rows, near)
        else:
            linear = isinstance(terms.objective, Spend)
            start = start_in_the_middle(rows, facts.value, sign > 0.0, linear=linear)
        return search_rows(rows, passes, start, TOLERANCE, STEPS)


class SampleAnswer(NamedTuple):
    """What a sample of the sources says.

    Attributes
    ----------
    multipliers : ndarray, shape (kept rows,)
    conflict : Conflict or None
        Of a sample that is everything, the rows that cannot hold together.
    """

    multipliers: Array
    feasible: bool
    conflict: Conflict | None


def solve_sample(
    drawn: list[dict[str, npt.NDArray[Any]]], starts: list[int], n: int, message: PartitionedRows
) -> SampleAnswer:
    """Return the multipliers of sampled sources, limits in their proportion.

    Parameters
    ----------
    drawn : list of dict
        The samples of partitions.
    starts : list of int
        Where each of these partitions begins among all sources.
    n : int
        The number of all sources.
    """
    terms = message
    place = np.concatenate([one["place"] + start for one, start in zip(drawn, starts, strict=True)])
    every = len(place) == n
    objectives = [
        None if one is None else one.take(place)
        for one in (terms.objective, *(one.objective for one in terms.constraints))
    ]
    piece = RowPiece.of(RowColumns.joined(drawn, terms), objectives, terms)
    program = piece.inner(terms)
    rows = replace(program.rows, limits=program.rows.limits * (len(place) / n))
    with np.errstate(all="ignore"):
        found = solve_rows(replace(program, rows=rows), TOLERANCE if every else NEAR)
    feasible = bool(np.isfinite(found.gap))
    conflict = None
    if every and not feasible:
        whole = np.zeros(len(piece.program.rows))
        whole[terms.kept] = found.multipliers
        conflict = explain(piece.program, whole, upper=piece.upper)
    return SampleAnswer(found.multipliers, feasible, conflict)


def conflicts(multipliers: Array, sizes: Array) -> Array:
    """Return candidates for a proof that rows conflict, ever fewer rows each.

    They are multipliers of sum 1 in units of the rows' sizes, shape (candidates, m).
    """
    weight = np.maximum(0.0, multipliers) * sizes
    if not np.isfinite(weight).all() or not weight.any():
        return np.zeros((0, len(sizes)))
    kept = [np.where(weight > share * np.max(weight), weight, 0.0) for share in _SHARES]
    return np.stack([one / float(np.sum(one)) / sizes for one in kept])


def proved_conflict(rows: Rows, candidates: Array, least: Array) -> str | None:
    """Return which rows are proved to conflict, or None.

    Parameters
    ----------
    rows : Rows
        All rows; their entries play no part.
    candidates : ndarray, shape (candidates, m)
    least : ndarray, shape (candidates,)
        Σ_k min Σ_j y_j g_jk at each.
    """
    best: tuple[Array, float] | None = None
    for y, found in zip(candidates, least, strict=True):
        excess = exact_sum([float(found), *(-y * rows.limits)])
        if excess > CERTAIN:
            best = y, excess
        elif best is not None:
            break
    if best is None:
        return None
    y, excess = best
    order = [int(j) for j in np.argsort(-y * np.abs(rows.limits), kind="stable") if y[j] > 0.0]
    limits = rows.declared(rows.limits)
    # Alone, a row must give by D/y_j at least; that much is necessary, and need not suffice.
    given = rows.declared(rows.limits + excess / np.where(y > 0.0, y, 1.0))
    named, ways = list[str](), list[str]()
    for j in order[:_SHOWN]:
        falling = rows.direction[j] < 0.0
        named.append(f"{shortened(rows.labels[j])} {'>=' if falling else '<='} {limits[j]:.6g}")
        ways.append(f"{'lower' if falling else 'raise'} {shortened(rows.labels[j])} beyond {given[j]:.6g}")
    more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
    how = "cannot hold" if len(order) == 1 else "cannot all hold"
    remedy = ", or ".join(ways)
    return f"{', '.join(named)}{more} {how}. {remedy[0].upper()}{remedy[1:]}."
