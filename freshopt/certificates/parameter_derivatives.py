"""`ParameterDerivatives`: what a parameter of each source changes in the KKT conditions.

At fixed rates and multipliers, a change of source k's parameter p_k changes its own slope φ_k', what rows
use, and the objective. Of a row that is a mean over a group, Σ w J/W, an importance also changes W, and with
it the slopes of all others in the group. Everything else is source by source.

Costs are taken as the objective states them, so that these derivatives are evaluations of the same numerics:
at unit importance, which is the exact derivative where a cost is proportional to importance, and at change
rates on either side, a central difference of fourth order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.certificates.active_set import CENTRAL, STEP, kinks
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.objective import Objective
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import weighted
from freshopt.separable.program import Program

# Relative: a cost that differs by more from importance times that at importance 1 is not proportional to it.
_PROPORTIONAL = 1e-12


@frozen_value()
class Mean:
    """Rows of means, or sums, over groups of sources.

    - `source`, `row` (entries,): Sources in a group and the program's row of their group; a mean has each
      source once.
    - `share` (entries,): 1/W of the group, W = Σ w; of a sum of refresh costs 1, or −1 where it is a reserve.
    """

    objective: Objective
    source: IntArray
    row: IntArray
    share: Array


@frozen_value()
class ParameterDerivatives:
    """Derivatives with respect to one parameter of every source.

    - `slope` (n,): ∂φ_k'/∂p_k.
    - `value` (n,): ∂f_k/∂p_k, f a loss where the objective is maximised.
    - `used` tuple of ndarray, each of (entries,): ∂(G_j − b_j)/∂p_k of every mean.
    - `pooled` tuple of ndarray, each of (entries,): ∂φ_k'/∂W of every mean; 0 where a parameter is no
      importance.
    """

    slope: Array
    value: Array
    means: tuple[Mean, ...]
    used: tuple[Array, ...]
    pooled: tuple[Array, ...]

    def forward(self, change: Array, rows: int) -> tuple[Array, Array, float]:
        """Return changes of φ', G − b and the objective."""
        slope = weighted(change, self.slope)
        total = np.zeros(rows)
        for mean, used, pooled in zip(self.means, self.used, self.pooled, strict=True):
            own = change[mean.source]
            total += np.bincount(mean.row, weights=weighted(own, used), minlength=rows)
            weight = np.bincount(mean.row, weights=own, minlength=rows)
            slope += np.bincount(mean.source, weights=pooled * weight[mean.row], minlength=len(slope))
        return slope, total, float(np.sum(weighted(change, self.value)))

    def backward(self, slope: Array, used: Array, value: float) -> Array:
        """Return the weights on p: `forward` transposed."""
        found = weighted(slope, self.slope)
        if value != 0.0:
            found = found + value * self.value
        for mean, own, pooled in zip(self.means, self.used, self.pooled, strict=True):
            weight = np.bincount(mean.row, weights=weighted(slope[mean.source], pooled), minlength=len(used))
            felt = weighted(used[mean.row], own) + weight[mean.row]
            found = found + np.bincount(mean.source, weights=felt, minlength=len(found))
        return found


def means_of(problem: Problem, program: Program) -> tuple[Mean, ...]:
    """Return the program's rows that are means of objectives."""
    place = {label: j for j, label in enumerate(program.rows.labels)}
    targets = [one for one in problem.constraints if isinstance(one, Target)]
    if isinstance(problem.objective, Worst):
        targets.append(problem.objective.target())
    means = []
    for target in targets:
        for block in target.blocks(problem.sources):
            row = np.array([place[label] for label in block.labels], dtype=np.int64)
            means.append(Mean(target.objective, block.source, row[block.row], block.coefficient))
    return tuple(means)


def in_importance(
    problem: Problem, means: tuple[Mean, ...], rates: Array, multipliers: Array
) -> ParameterDerivatives:
    """Return derivatives with respect to importances."""
    n = len(rates)

    def of(objective: Objective) -> tuple[Array, Array]:
        return _weight_derivative(objective, problem.sources, rates)

    slope, value = np.zeros(n), np.zeros(n)
    if problem.numerics is not None:
        value, marginal = of(problem.objective)
        slope = -marginal
    used, pooled = [], []
    for mean in means:
        source, row, share = mean.source, mean.row, mean.share
        loss, marginal = (found[source] for found in of(mean.objective))
        paid = multipliers[row] * share
        slope[source] -= weighted(paid, marginal)
        whole, fall = (found[source] for found in _evaluated(mean.objective, problem.sources, rates))
        level = np.bincount(row, weights=share * whole, minlength=len(multipliers))
        used.append(np.where(paid > 0.0, share * (loss - level[row]), 0.0))
        pooled.append(weighted(paid, share * fall))
    return ParameterDerivatives(slope, value, means, tuple(used), tuple(pooled))


def in_change_rate(
    problem: Problem, means: tuple[Mean, ...], rates: Array, multipliers: Array, carried: Array
) -> ParameterDerivatives:
    """Return derivatives with respect to change rates, at fixed rates.

    - `rates`, `multipliers` ndarray, shapes (n,) and (m,)
    - `carried` (n,): ρ/Δ of sources that stay at an end or a kink of their costs as it moves with the change
      rate, and 0 of others. Costs are smooth along it only: derivatives are those along it, less what the
      rate adds.
    """
    sources, n = problem.sources, len(rates)
    step = np.where(sources.signalled & (carried == 0.0), 0.25 * (1.0 - rates / sources.scale), STEP)

    def of(objective: Objective) -> tuple[Array, Array]:
        if not sources.rated:
            return np.zeros(n), np.zeros(n)

        def along(moved: Array) -> tuple[Array, Array]:
            at = np.where(carried > 0.0, carried * moved, rates)
            return _evaluated(objective, sources.with_change_rate(moved), at)

        loss, marginal = _stencil(along, sources.change_rate, np.minimum(step, STEP))
        if bool(np.any(carried)):
            loss = loss + weighted(carried, _evaluated(objective, sources, rates)[1])
        return loss, marginal

    slope, value = np.zeros(n), np.zeros(n)
    if problem.numerics is not None:
        value, marginal = of(problem.objective)
        slope = -marginal
    used = []
    for mean in means:
        loss, marginal = (found[mean.source] for found in of(mean.objective))
        slope[mean.source] -= weighted(multipliers[mean.row] * mean.share, marginal)
        used.append(np.where(multipliers[mean.row] > 0.0, mean.share * loss, 0.0))
    pooled = tuple(np.zeros(len(mean.source)) for mean in means)
    return ParameterDerivatives(slope, value, means, tuple(used), pooled)


def moving_kinks(
    problem: Problem, means: tuple[Mean, ...], rates: Array, multipliers: Array, kinked: BoolArray
) -> BoolArray:
    """Return whose kink moves with the change rate."""
    if not (problem.sources.rated and bool(np.any(kinked))):
        return np.zeros(len(rates), dtype=np.bool_)
    faster = problem.sources.with_change_rate(problem.sources.change_rate * (1.0 + STEP))

    def marginal(at: Array) -> Array:
        whole = np.zeros(len(at))
        if problem.numerics is not None:
            whole += _evaluated(problem.objective, faster, at)[1]
        for mean in means:
            paid = multipliers[mean.row] * mean.share
            whole[mean.source] += weighted(paid, _evaluated(mean.objective, faster, at)[1][mean.source])
        return whole

    moved = rates * (1.0 + STEP)
    with np.errstate(all="ignore"):
        return kinked & kinks(marginal, moved, np.abs(marginal(moved)))


def _evaluated(objective: Objective, sources: Sources, rates: Array) -> tuple[Array, Array]:
    """Return losses, of gains their negatives, and marginal values."""
    numerics, unknown = numerics_of(objective, sources)
    assert numerics is not None, unknown
    with np.errstate(all="ignore"):
        gain = numerics.gain(rates)
        return (numerics.cost(rates) if gain is None else -gain), numerics.marginal(rates)


def _weight_derivative(objective: Objective, sources: Sources, rates: Array) -> tuple[Array, Array]:
    """Return derivatives of loss and marginal with respect to importance."""
    weight = sources.importance
    loss, marginal = _evaluated(objective, sources, rates)
    unit_loss, unit = _evaluated(objective, sources.with_importance(np.ones(len(weight))), rates)
    with np.errstate(all="ignore"):
        off = np.abs(marginal - weight * unit) > _PROPORTIONAL * np.abs(marginal)
        off |= np.abs(loss - weight * unit_loss) > _PROPORTIONAL * np.abs(loss)
    if not bool(np.any(off & (weight > 0.0))):
        return unit_loss, unit
    return _stencil(
        lambda moved: _evaluated(objective, sources.with_importance(moved), rates),
        weight,
        np.full(len(weight), STEP),
    )


def _stencil(evaluate: Callable[[Array], tuple[Array, Array]], at: Array, step: Array) -> tuple[Array, Array]:
    """Return derivatives by each source's parameter, by differences."""
    first, second = np.zeros(len(at)), np.zeros(len(at))
    with np.errstate(all="ignore"):
        for place, weight in zip((-2.0, -1.0, 1.0, 2.0), CENTRAL[[0, 1, 3, 4]], strict=True):
            one, other = evaluate(at * (1.0 + place * step))
            first += weight * one
            second += weight * other
        step = np.where(at * step > 0.0, at * step, np.inf)
        first, second = first / step, second / step
    # A cost that is infinite on both sides, as that of a source of no group at rate 0, is no one's.
    return np.where(np.isfinite(first), first, 0.0), np.where(np.isfinite(second), second, 0.0)
