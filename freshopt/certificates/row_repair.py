"""`repair`, `repair_rows`: feasible rates near given ones.

Rates are clipped to their bounds, then shrunk towards these by host and by bandwidth. Of declared rows: where
every row rises in the rates (budgets), sources of rows that are over are shrunk towards their lower bounds,
row by row; where every row falls (targets), they are scaled up. Rows
of both kinds are met by shrinking if that leaves those that fall met, as where the former are over by
rounding; else by mixing with rates ρ° strictly inside: G_j((1−ε)ρ + ερ°) ≤ b_j by convexity, with

    ε = max_j over_j/(over_j + slack°_j).

Of several ρ° the one that leaves the least cost is taken. One that is inside by rounding alone would have ε ≈
1 and put ρ° in the place of the rates that were to be judged, so interior points should be early iterates of
a path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.strict_interior import interior_points, row_sizes
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import Array, BoolArray, chunks, exact_sum, read_only, total
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE

# Halvings of log s for rates that are scaled up by s: from 1e60 to 2e-14 of it.
_HALVINGS = 60
_MOST = 60.0 * float(np.log(10.0))
# A rate of 0 that is to rise starts at this share of a typical rate.
_FIRST = 1e-9
# Rates of 0 stay where the others, scaled up by no more than this, meet the row.
_ALONE = float(np.log(2.0))
# Rounding may leave a row over after a step that should have met it: then the step is repeated, a little
# longer.
_AGAIN = 8


Step: TypeAlias = Callable[[Program, Array, BoolArray, float], Array | None]


class Repaired(NamedTuple):
    """Feasible rates, and the largest relative infeasibility of those that were given."""

    rates: Array
    infeasibility: float


def repair(problem: Problem, rates: Array) -> tuple[Array, float]:
    """Return feasible rates near given ones, and their largest relative infeasibility.

    Rates are clipped to their bounds, then shrunk towards min_rate by host, then by bandwidth. A sum within a
    few ulp of its limit counts as feasible.
    """
    if _within_limits(problem, rates):
        return rates, 0.0
    cost, lower = problem.sources.refresh_cost, problem.lower
    repaired, worst = within_bounds(rates, problem.lower, problem.upper)
    # What is kept above the least rates is room/spare: 1 − excess/spare loses all digits of large excesses.
    spare = cost * (repaired - lower)
    if len(problem.hosts):
        limits = problem.hosts.limits
        excess = problem.hosts.totals(cost * repaired) - limits
        over = excess > limits * FEW_ULP
        worst = max(worst, float(np.max(np.where(over, excess / limits, 0.0))))
        room, wanted = limits - problem.hosts.totals(cost * lower), problem.hosts.totals(spare)
        keep = np.where(over, room / np.where(wanted > 0.0, wanted, 1.0), 1.0)
        if bool(np.any(over)):
            repaired = lower + (repaired - lower) * problem.hosts.broadcast_to_sources(
                np.clip(keep, 0.0, 1.0), 1.0
            )
            spare = cost * (repaired - lower)
    excess_total = total(cost * repaired) - problem.bandwidth
    if excess_total > problem.bandwidth * FEW_ULP:
        worst = max(worst, excess_total / problem.bandwidth)
        keep_all = max(0.0, problem.bandwidth - total(cost * lower)) / total(spare)
        repaired = lower + (repaired - lower) * keep_all
    return (rates if worst == 0.0 else read_only(repaired)), worst


def repair_rows(program: Program, rates: Array, interior: Sequence[Array] = ()) -> Repaired | None:
    """Return feasible rates near given ones; None where no way is found.

    - `program`: Rows that a minimax level relaxes always hold.
    - `rates` (n,)
    - `interior` sequence of ndarray (n,): Rates strictly inside all rows, for rows of both kinds; searched
      for if there are none.

    Notes
    -----
    Rows within a few ulp of what they add up to count as met.
    """
    with np.errstate(all="ignore"):
        held = program
        if program.level is not None:
            held = replace(program, rows=program.rows.only(program.level == 0.0), level=None)
        clipped, worst = within_bounds(rates, program.lower, program.upper)
        over, size = excess(held, clipped)
        if not bool(np.any(over > 0.0)):
            return Repaired(rates if worst == 0.0 else clipped, worst)
        worst = max(worst, float(np.max(over / np.abs(size))))
        found = _repaired(program, held, clipped, interior)
        return None if found is None else Repaired(found, worst)


def excess(program: Program, rates: Array) -> tuple[Array, Array]:
    """Return by how much rows are over, and their sizes.

    Both have shape (m,); within a few ulp a row is not over.
    """
    rows = program.rows
    used, added = rows.sums(rates)
    over = used - rows.limits
    over = np.where(over > FEW_ULP * np.maximum(np.abs(rows.limits), added), over, 0.0)
    return np.where(np.isnan(over), np.inf, over), row_sizes(program, rates)


def within_bounds(rates: Array, lower: Array, upper: Array) -> tuple[Array, float]:
    """Return rates clipped to their bounds, and their largest relative distance."""
    clipped = np.clip(rates, lower, upper)
    return clipped, 0.0 if np.array_equal(clipped, rates) else largest_distance(clipped, rates)


def largest_distance(one: Array, other: Array) -> float:
    """Return the largest relative distance of two vectors' entries."""
    size = np.maximum(np.maximum(np.abs(one), np.abs(other)), np.finfo(float).tiny)
    return float(np.max(np.abs(one - other) / size, initial=0.0))


def _within_limits(problem: Problem, rates: Array) -> bool:
    """Return whether rates are feasible, checked chunk by chunk."""
    used, cost = [], problem.sources.refresh_cost
    for part in chunks(len(rates)):
        mine = rates[part]
        if bool(np.any((mine < problem.lower[part]) | (mine > problem.upper[part]))):
            return False
        used.append(float(np.sum(cost[part] * mine)))
    if exact_sum(used) > problem.bandwidth * (1.0 + FEW_ULP):
        return False
    if not len(problem.hosts):
        return True
    return bool(np.all(problem.hosts.totals(cost * rates) <= problem.hosts.limits * (1.0 + FEW_ULP)))


def _repaired(program: Program, held: Program, rates: Array, interior: Sequence[Array]) -> Array | None:
    rising, falling = directions(held, rates)
    if bool(np.all(rising)):
        return _until_met(held, rates, _shrunk)
    if bool(np.all(falling)):
        return _until_met(held, rates, _raised)
    # Rows that rise, over by little, may be met at no harm to the others.
    less = _until_met(replace(held, rows=held.rows.only(rising)), rates, _shrunk)
    if less is not None and not bool(np.any(excess(held, less)[0] > 0.0)):
        return less
    best, cost = None, np.inf
    for inside in interior or interior_points(held):
        mixed = _mixed(held, rates, inside)
        if mixed is not None:
            own = RowGap.of(program, mixed).cost
            if best is None or own < cost:
                best, cost = mixed, own
    return best


def central_rates(program: Program, rates: Array) -> Array | None:
    """Return central rates where rows oppose each other, else None.

    Rows that nearly conflict have prices of any size, in whose scale a loss would not show.
    """
    if program.level is not None:
        return None
    rising, falling = directions(program, rates)
    if bool(np.all(rising)) or bool(np.all(falling)):
        return None
    inside = interior_points(program)
    return inside[-1] if inside else None


def directions(program: Program, rates: Array) -> tuple[BoolArray, BoolArray]:
    """Return which rows rise in every rate and which fall."""
    rows = program.rows
    slope = rows.slopes(np.maximum(rates, _FIRST * program.typical))
    up = np.bincount(rows.row, weights=slope > 0.0, minlength=len(rows))
    down = np.bincount(rows.row, weights=slope < 0.0, minlength=len(rows))
    return down == 0, up == 0


def _until_met(program: Program, rates: Array, step: Step) -> Array | None:
    for k in range(_AGAIN):
        over, _ = excess(program, rates)
        if not bool(np.any(over > 0.0)):
            return rates
        further = step(program, rates, over > 0.0, k * FEW_ULP)
        if further is None:
            return None
        rates = further
    return None


def _shrunk(program: Program, rates: Array, over: BoolArray, extra: float) -> Array | None:
    """Return rates shrunk towards the lower bounds, where their rows are over."""
    rows, lower = program.rows, program.lower
    least, used = rows.used(lower), rows.used(rates)
    room = rows.limits - least
    if bool(np.any((room < -FEW_ULP * np.abs(rows.limits)) & over)):
        return None
    keep = np.where(over, np.maximum(0.0, room) / np.where(over, used - least, 1.0) * (1.0 - extra), 1.0)
    each = np.ones(len(rates))
    entries = rows.coefficient != 0.0
    np.minimum.at(each, rows.source[entries], keep[rows.row[entries]])
    return lower + (rates - lower) * each


def _raised(program: Program, rates: Array, over: BoolArray, extra: float) -> Array | None:
    """Return rates scaled up, where their rows are over.

    Each such row has the least factor that meets it. Rates of 0 rise only where the others do not suffice.
    """
    rows = program.rows
    entries = np.flatnonzero(over[rows.row] & (rows.coefficient != 0.0))
    own, row, kind = rows.source[entries], rows.row[entries], rows.kind[entries]
    upper, start = program.upper[own], rates[own]
    curves = [(np.flatnonzero(kind == t), curve) for t, curve in enumerate(rows.curves, start=RATE + 1)]
    curves = [(mine, curve.take(own[mine])) for mine, curve in curves if len(mine)]

    def met(log_factor: Array) -> BoolArray:
        raised = np.minimum(upper, start * np.exp(log_factor)[row])
        each = raised.copy()
        for mine, curve in curves:
            each[mine] = curve.cost(raised[mine])
        total = np.bincount(row, weights=rows.coefficient[entries] * each, minlength=len(rows))
        return ~over | (total <= rows.limits)

    alone = met(np.where(over, _ALONE, 0.0))
    lifted = np.zeros(len(rates), dtype=np.bool_)
    lifted[own[~alone[row]]] = True
    start = np.where(lifted & (rates == 0.0), _FIRST * program.typical, rates)[own]
    low, high = np.zeros(len(rows)), np.where(over, np.where(alone, _ALONE, _MOST), 0.0)
    if not bool(np.all(met(high))):
        return None
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = met(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    factor = np.zeros(len(rates))
    np.maximum.at(factor, own, high[row] + extra)
    raised = rates.copy()
    raised[own] = np.minimum(upper, start * np.exp(factor[own]))
    return raised


def _mixed(program: Program, rates: Array, inside: Array) -> Array | None:
    """Return the nearest feasible rates on the way to others strictly inside."""
    rows = program.rows
    if bool(np.any((inside < program.lower) | (inside > program.upper))):
        return None
    slack = rows.limits - rows.used(inside)
    over, _ = excess(program, rates)
    beyond = over > 0.0
    if bool(np.any(slack[beyond] <= 0.0)):
        return None
    share = np.where(np.isfinite(over), over / (over + np.where(beyond, slack, 1.0)), 1.0)
    part = float(np.max(share[beyond]))
    for k in range(_AGAIN):
        mixed = np.clip((1.0 - part) * rates + part * inside, program.lower, program.upper)
        if not bool(np.any(excess(program, mixed)[0] > 0.0)):
            return mixed
        part = min(1.0, part * (1.0 + FEW_ULP * 8.0**k))
    return inside if not bool(np.any(excess(program, inside)[0] > 0.0)) else None
