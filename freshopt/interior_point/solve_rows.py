"""`solve_rows`: interior point method over the multipliers of declared constraints.

The KKT conditions of a `Program`, with every rate its best response to the multipliers y, are

    0 ≤ y  ⟂  s(y) = b − G(ρ(y)) ≥ 0,

a monotone complementarity problem in m unknowns whose Jacobian H = Σ_k g_k' g_k'ᵀ/φ_k'' is symmetric and
positive semidefinite. An iteration takes one pass over the sources and one m×m system
(`freshopt.interior_point.path_steps`). Rates on the path are best responses, so that the duality gap is Σ y_j
s_j exactly; where s ≥ 0 they are feasible, and the last ones need no repair.

A minimax program has one more unknown, the level t: s(y) = b + level·t − G and Σ level_j y_j = 1.

A solve begins at the multipliers of a sample of the sources: with limits in its proportion it has nearly the
same ones, at a fraction of the cost of a pass over all. Rows with few sources are not well represented: they
take a start of their own.

References
----------
S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optim. 2(4), 1992,
doi:10.1137/0802028.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from freshopt.interior_point.infeasibility import proves_conflict
from freshopt.interior_point.path_steps import Aim, Iterate, following
from freshopt.interior_point.row_passes import RowPasses, row_passes
from freshopt.interior_point.row_presolve import presolve
from freshopt.interior_point.row_scaling import ScaledRows
from freshopt.interior_point.row_start import Start, start_near, starting_multipliers
from freshopt.numerics.arrays import Array, total
from freshopt.separable.program import Program
from freshopt.separable.usage_costs import UsageCosts

# Sources of a sample, and of programs that are not sampled; a sample is this share of the sources at most.
SAMPLE, SHARE = 20_000, 0.2
# Sampled entries of a row, on average, for its multiplier to mean something: off by a fifth at equal weights.
_ENTRIES = 25
# Seed of the sample: the same answer at every run.
_SEED = 20


# The gap aimed at, as a share of the tolerance: the slacks then stay as far above rounding as they may.
_AIM = 0.3
# Relative gaps at which strictly feasible rates are kept.
_KEPT = (1e-1, 1e-2, 1e-3, 1e-4)
# Newton steps; 330 planted instances need 25 at most, a million sources under 10⁵ rows some 40.
_ITERATIONS = 100

# While a row is violated, multipliers are tested for a proof of conflict every so many steps: at 60 instances
# with conflicts the first or second test finds one.
EVERY = 4
# Why a search ends whose multipliers prove that no rates meet all rows.
CONFLICT = "the rows conflict"


@dataclass(frozen=True, slots=True, eq=False)
class RowAnswer:
    """Rates and multipliers, and how near to the optimum they are.

    - `rates` (n,): Best responses to the multipliers.
    - `multipliers` (m,)
    - `gap`: Σ y_j s_j relative to |F| + Σ y_j |b_j|; inf where the rates are not feasible.
    - `iterations`, `passes`: Newton steps and passes over all sources.
    - `why`: Why the tolerance was not met; None if it was. Begins with `CONFLICT` where the multipliers prove
      one.
    - `path` tuple of ndarray, each of (n,): Earlier strictly feasible rates, for repairs of infeasible ones.
    """

    rates: Array
    multipliers: Array
    gap: float
    iterations: int
    passes: int
    why: str | None
    path: tuple[Array, ...]


def solve_rows(
    program: Program,
    tolerance: float = 1e-12,
    *,
    iterations: int = _ITERATIONS,
    passes: Callable[[Program], RowPasses] = row_passes,
    start: Array | None = None,
) -> RowAnswer:
    """Minimise a separable objective under rows, by their multipliers.

    - `tolerance`: Of the duality gap, relative to |F| + Σ y_j|b_j|.
    - `iterations`: Newton steps at most.
    - `passes`: Makes the passes over a program's sources; the fastest by default.
    - `start` (m,): Multipliers > 0 near the answer's.
    """
    smaller = presolve(program)
    inner = smaller.program
    sources = passes(inner)
    rows = ScaledRows(inner, sources, smaller.least)
    if not len(inner.rows):
        rates = sources.evaluate(np.zeros(0), gram=False).rates
        found = RowAnswer(rates, np.zeros(0), 0.0, 0, 1, None, (rates,))
    else:
        start = _sampled_multipliers(inner, passes) if start is None else start[smaller.kept]
        first = starting_multipliers(inner, rows) if start is None else start_near(rows, start)
        found = _Search(inner, rows, tolerance).run(first, iterations)
    return replace(found, multipliers=smaller.multipliers(program, found.multipliers))


def _sampled_multipliers(program: Program, passes: Callable[[Program], RowPasses]) -> Array | None:
    """Return multipliers of a sample, or None where none helps."""
    n, rows = len(program), program.rows
    size = min(SAMPLE, int(SHARE * n))
    # A sum's variable stands for all of its sources.
    if isinstance(program.numerics, UsageCosts):
        return None
    if n <= SAMPLE or program.level is not None or len(rows.row) * (size / n) < _ENTRIES * len(rows):
        return None
    chosen = np.sort(np.random.default_rng(_SEED).choice(n, size, replace=False))
    part = program.take(chosen)
    part = replace(part, rows=replace(part.rows, limits=rows.limits * (size / n)))
    found = solve_rows(part, 1e-2, passes=passes)
    return found.multipliers if np.isfinite(found.gap) else None


class _Search:
    """Iterates of one solve."""

    def __init__(self, program: Program, rows: ScaledRows, tolerance: float) -> None:
        self._program, self._rows, self._tolerance = program, rows, tolerance
        self._kept: list[Array] = []
        self._best: tuple[float, Iterate] | None = None
        # The last rates whose cost was asked for, and that.
        self._cost: tuple[Array | None, float] = None, 0.0

    def run(self, start: Start, iterations: int) -> RowAnswer:
        """Iterate to the tolerance or until steps stall."""
        rows = self._rows
        at = rows.evaluate(start.multipliers)
        level = rows.feasible_level(at.slack)
        slack = rows.lifted(at.slack, level)
        y = start.multipliers
        point = Iterate(y, start.slack_variables(slack), level, at._replace(slack=slack))
        if not bool(np.all(np.isfinite(slack))):
            return self._answer(point, 0, "no multipliers with finite rows were found")
        aim: Aim | None = None
        for k in range(iterations):
            gap = self._gap(point)
            if gap <= self._tolerance:
                return self._answer(point, k, None, gap)
            if gap < np.inf and self._costs_nothing(point):
                # Beside the price of the limits alone no gap would ever be small.
                return self._answer(point._replace(y=np.zeros(len(point.y))), k, None, 0.0)
            if k % EVERY == EVERY - 1 and self._conflicting(point):
                # Rates of the path would be no answer, nor its multipliers a proof.
                self._best = None
                return self._answer(point, k, CONFLICT)
            least = _AIM * self._tolerance * self._size(point) / len(rows)
            step = following(rows, point, least, aim)
            if step is None:
                return self._answer(point, k, "steps became negligible")
            point, aim = step
        gap = self._gap(point)
        why = None if gap <= self._tolerance else f"{iterations} Newton steps were not enough"
        return self._answer(point, iterations, why, gap)

    def _costs_nothing(self, point: Iterate) -> bool:
        """Return whether the cost is 0, the least without rows."""
        if self._rows.level is not None or self._size(point) > self._rows.paid(point.y):
            return False
        numerics = self._program.numerics
        return numerics is None or not bool(np.any(numerics.marginal(point.at.rates)))

    def _conflicting(self, point: Iterate) -> bool:
        """Return whether the multipliers prove that no rates meet all rows."""
        rows = self._rows
        y = point.y if rows.level is None else np.where(rows.level == 0.0, point.y, 0.0)
        # Best responses to the multipliers alone would violate the rows by no more than these rates.
        if not float(y @ point.at.slack) < 0.0:
            return False
        return proves_conflict(self._program, rows.unscaled(y))

    def _size(self, point: Iterate) -> float:
        """Return |F| + Σ y|b|, what gaps are measured by."""
        if self._rows.level is not None:
            return abs(point.level) + self._rows.paid(point.y)
        if self._cost[0] is not point.at.rates:
            self._cost = point.at.rates, total(self._program.cost(point.at.rates))
        return abs(self._cost[1]) + self._rows.paid(point.y)

    def _gap(self, point: Iterate) -> float:
        """Return the relative gap, inf if infeasible; keep feasible rates."""
        slack = self._slack(point)[0]
        relative = self._relative(point, slack)
        if relative <= self._tolerance:
            # A pass adds in the order of its chunks; the last ulp decides what is feasible.
            slack = self._exact(point)
            relative = self._relative(point, slack)
        if relative == np.inf:
            return relative
        strictly = bool(np.all(point.at.slack > 0.0))
        if strictly and len(self._kept) < len(_KEPT) and relative <= _KEPT[len(self._kept)]:
            self._kept.append(point.at.rates)
        if self._best is None or relative < self._best[0]:
            self._best = relative, point
        return relative

    def _relative(self, point: Iterate, slack: Array) -> float:
        """Return Σ y s relative to its size, inf if infeasible."""
        if not bool(np.all(slack >= 0.0)):
            return float("inf")
        gap = float(np.sum(point.y * slack))
        return gap / self._size(point) if gap > 0.0 else 0.0

    def _exact(self, point: Iterate) -> Array:
        """Return the slacks from sums that are right to an ulp."""
        slack = (self._rows.limits - self._program.rows.used(point.at.rates)) / self._rows.scale
        level = self._slack(point)[1]
        if self._rows.level is not None:
            # The exact slacks may need a level an ulp above.
            level += max(0.0, self._rows.feasible_level(self._rows.lifted(slack, level)))
        return self._rows.lifted(slack, level)

    def _slack(self, point: Iterate) -> tuple[Array, float]:
        """Return slacks and level, the least for the rates."""
        rows = self._rows
        if rows.level is None:
            return point.at.slack, 0.0
        down = rows.feasible_level(point.at.slack)
        return rows.lifted(point.at.slack, down), point.level + down

    def _answer(
        self, point: Iterate, iterations: int, why: str | None, gap: float = float("inf")
    ) -> RowAnswer:
        """Return an iterate that is near enough, or the best one."""
        if why is not None:
            gap, point = (float("inf"), point) if self._best is None else self._best
        return RowAnswer(
            point.at.rates,
            self._rows.unscaled(point.y),
            gap,
            iterations,
            self._rows.passes_made,
            None if why is None else f"{why}; the relative gap reached is {gap:.1e}",
            tuple(self._kept),
        )
