"""`ActiveSet`: which rates move and which rows bind, at an optimum.

The KKT conditions of min Σ f_k(ρ_k) under Σ_k g_jk(ρ_k) ≤ b_j and bounds leave a source one of three roles.
Strictly inside its bounds it is free: it follows its multipliers by dρ_k = −dφ_k'/φ_k''. At a bound it stays
there. At a kink of φ_k, where the slope jumps over 0, it stays there as well. A row with a multiplier y_j > 0
binds, one with slack does not matter. All of it is read from an answer with its rounding: of two
complementary numbers, a slack and its multiplier, the larger one is meant to be positive, both relative to
what they are measured by.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program

# Relative: where the slope at a bound is below this, the source just touches it.
TOUCHING = 1e-7
# A slack and its multiplier, both relative, within this factor of each other do not say which of them is 0.
UNDECIDED = 1e3
# Above this the larger of the two is no rounding of an interior point; below `_NOTHING` both are.
_SMALL, _NOTHING = 1e-4, 1e-12
# Relative distances to either side of a rate over which a kink shows, and the least relative jump that is
# one. Over the wider one a smooth marginal falls 8 times as far, and at a kink as far.
_ASIDE, _JUMP = (1e-9, 8e-9), 1e-6
# Steps of a central difference of fourth order, relative to the rate: it is off by (step·elasticity)⁴/30 and
# by rounding over the step, both about 1e-12.
STEP = 1e-4
# Where the marginal hardly changes with the rate it is a function of ρ + const, and this step is as short.
_WIDE, _FLAT = 2e-2, 1e-5
# An elasticity of φ' below this is rounding: the source is linear.
_LINEAR = 1e-10
# Weights of f(x + i·step) in step·f'(x), i = −2..2.
CENTRAL = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / 12.0


@frozen_value()
class ActiveSet:
    """Roles of variables and rows at an optimum.

    - `response` (n,): 1/φ_k'' of sources that are free, 0 of all others.
    - `linear`: Sources strictly inside their bounds with φ_k'' = 0: their rates are what the rows leave them.
    - `rows`: Rows that bind.
    - `slope` (n,): φ_k', the multiplier of the bound of a source that is held by one.
    - `at_upper` (n,): Sources held by their upper bound.
    - `kinked` (n,): Sources that are held by a kink.
    - `touching_sources`, `touching_rows`: How many bounds and rows are met without being paid for.
    """

    response: Array
    linear: IntArray
    rows: IntArray
    slope: Array
    at_upper: BoolArray
    kinked: BoolArray
    touching_sources: int
    touching_rows: int

    @classmethod
    def of(cls, program: Program, rates: Array, multipliers: Array, bounds: tuple[Array, Array]) -> ActiveSet:
        """Return the active set of an optimal answer.

        - `rates` (n,)
        - `multipliers` (m,)
        - `bounds` tuple of two ndarrays, each of (n,): As declared: the program's own include what rows
          imply.
        """
        lower, upper = bounds
        lagrangian = Lagrangian.at(program, multipliers)
        with np.errstate(all="ignore"):
            # The scale is what all terms of φ' add up to in size.
            slope, scale = lagrangian.slope(rates), np.abs(lagrangian.price) + lagrangian.marginal_size(rates)
            # What is infinite on both sides, or 0, says nothing: such a source stays where it is.
            steepness = np.where(scale > 0.0, np.abs(slope) / scale, 0.0)
            steepness = np.where(np.isnan(steepness), 1.0, steepness)
            above = (rates - lower) / np.maximum(rates, np.where(lower > 0.0, 0.0, program.typical))
            below = np.where(np.isinf(upper), 1.0, (upper - rates) / np.maximum(rates, upper))
            distance = np.maximum(0.0, np.minimum(above, below))
            distance = np.where(np.isnan(distance), 0.0, distance)
            inside = distance > steepness
            kinked = inside & kinks(lagrangian.marginal, rates, scale)
            inside &= ~kinked
            # What lies beyond an upper bound may be beyond the end of a cost.
            room = 0.25 * below
            elasticity = np.where(inside, _curvature(lagrangian, rates, scale, room) * rates / scale, np.inf)
            linear = inside & ~(elasticity > _LINEAR)
            free = inside & ~linear
            response = np.where(free, rates / (elasticity * scale), 0.0)
            # Of a free source: how far φ' is from 0 at the bound; of a linear one, how far the bound is.
            near = np.minimum(rates - lower, upper - rates) / rates * np.where(linear, 1.0, elasticity)
        at_upper = ~inside & (below <= above) & (below < TOUCHING)
        touching = np.where(inside, near, np.maximum(distance, steepness)) <= TOUCHING
        rows, undecided = _binding(program, rates, multipliers)
        return cls(
            response,
            np.flatnonzero(linear),
            rows,
            np.where(inside, 0.0, slope),
            at_upper,
            kinked,
            int(np.sum(touching & (scale > 0.0))),
            undecided,
        )


def kinks(marginal: Callable[[Array], Array], rates: Array, scale: Array) -> BoolArray:
    """Return the sources whose marginal jumps at their rate."""
    near, far = (marginal(rates * (1.0 - aside)) - marginal(rates * (1.0 + aside)) for aside in _ASIDE)
    kinked: BoolArray = (near > _JUMP * scale) & (far < 4.0 * near)
    return kinked


def _curvature(lagrangian: Lagrangian, rates: Array, scale: Array, room: Array) -> Array:
    """Return φ'' to about 1e-11 of scale/rate, by steps within `room`."""
    if all(isinstance(numerics, DerivedNumerics) for _, numerics in lagrangian.parts):
        return lagrangian.curvature(rates)
    curvature = _difference(lagrangian, rates, np.minimum(STEP, room))
    flat = curvature * rates < _FLAT * scale
    if bool(np.any(flat)):
        wide = _difference(lagrangian, rates, np.minimum(_WIDE, room))
        # A kink within the wide step would show as a larger curvature.
        curvature = np.where(flat & (wide * rates < 2.0 * _FLAT * scale), wide, curvature)
    return curvature


def _difference(lagrangian: Lagrangian, rates: Array, step: Array) -> Array:
    fall = np.zeros(len(rates))
    for place, weight in zip((-2.0, -1.0, 1.0, 2.0), CENTRAL[[0, 1, 3, 4]], strict=True):
        fall -= weight * lagrangian.marginal(rates * (1.0 + place * step))
    curvature: Array = fall / (step * rates)
    return curvature


def _binding(program: Program, rates: Array, multipliers: Array) -> tuple[IntArray, int]:
    """Return the rows that bind, and how many cannot be told."""
    rows = program.rows
    limits = rows.limits
    used, amounts = rows.sums(rates)
    if program.level is not None:
        fair = program.level > 0.0
        limits = limits + program.level * np.max((used[fair] - limits[fair]) / program.level[fair])
    size = np.maximum(np.maximum(np.abs(limits), amounts), np.finfo(float).tiny)
    with np.errstate(all="ignore"):
        paid = multipliers * size
        paid = paid / (abs(float(np.sum(program.cost(rates)))) + float(np.sum(paid)))
    paid = np.where(multipliers > 0.0, paid, 0.0)
    slack = np.maximum(0.0, limits - used) / size
    least, most = np.minimum(paid, slack), np.maximum(paid, slack)
    undecided = (most <= _NOTHING) | ((most <= _SMALL) & (most < UNDECIDED * least))
    return np.flatnonzero(paid > slack), int(np.sum(undecided))
