"""`kink_rates`: rates at which a kinked atom changes its branch.

Huber's function counts among them: it has a quadratic branch and linear ones.

Two branches change places where their difference crosses 0. Of lines that is one quotient, and of a chain of
monotone atoms against a constant their inverses tell it. Of others the difference is looked at on a few parts
of the range, and taken for convex or concave on each: it then crosses 0 at most once on each side of its
extremum, and a bracketed search finds both. Where it is neither, a rate may be missed: who relies on these
proves what was found by other means.

A rate is right up to the rounding of the difference, which comes with it: some ulp, more where large numbers
cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple, Self

import numpy as np

from freshopt.autodiff.affine_steps import NONE, AffineTerm, Linear
from freshopt.autodiff.jets import ONE, ZERO
from freshopt.autodiff.kinked_atoms import KINKED
from freshopt.autodiff.smooth_atoms import SMOOTH, Rule
from freshopt.autodiff.tape import Apply, Step, Tape
from freshopt.autodiff.value_rounding import value_errors
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.numerics.bracketed_roots import bracketed_roots

# Branches that are no lines, of one atom, at most: all pairs of them are looked at.
MOST = 6
# Multiples of typical rates between which a difference is taken for convex or concave; none a round number,
# at which it may be 0.
_NEAR = tuple(1.0471 * 10.0**k for k in (-4, -2, -1, -0.5, 0, 0.5, 1, 2, 4))
# Share of the upper bound below which no rate is looked for.
_LEAST = 1e-60
# Newton's steps in the rate itself: the search is in its logarithm, which rounds by more ulp.
_POLISH = 2
# Relative size of a step of these at most: farther off is another root.
_FAR = 1e-6
_ROUNDED = 16.0 * float(np.finfo(np.float64).eps)
# Its marginal has no jump, but is constant beyond M.
_HUBER = SMOOTH["huber"]
_BENT = (*KINKED.values(), _HUBER)


class Crossing(NamedTuple):
    """Where two branches are equal.

    - `rate` (n,): nan where they are not, between the bounds.
    - `error` (n,): Relative, of the rate, from the rounding of both values.
    """

    rate: Array
    error: Array


def kink_rates(tape: Tape, lower: Array, upper: Array, typical: Array) -> list[Crossing] | None:
    """Return where branches of maximum, minimum and abs are equal.

    - `lower`, `upper` (n,): Finite; rates above `lower` and up to `upper` count.
    - `typical` (n,): Rates > 0 around which to look more closely.
    - returns: In no order, some of them no kinks of the result; None if an atom has too many branches.

    Examples
    --------
    >>> from freshopt.autodiff.compiler import compile_expression
    >>> from freshopt.cvx import cp
    >>> rate = cp.Variable(2, nonneg=True)
    >>> tape = compile_expression(cp.pos(cp.inv_pos(rate) - np.array([4.0, 0.5])), rate)
    >>> [found.rate.round(12) for found in kink_rates(tape, np.zeros(2), np.ones(2), np.ones(2))]
    [array([0.25,  nan])]
    """
    found: list[Crossing] = []
    with np.errstate(all="ignore"):
        for step in tape.steps:
            if not isinstance(step, Apply) or step.rule not in _BENT:
                continue
            if step.rule is _HUBER:
                found += _of_huber(tape, step, lower, upper, typical)
                continue
            lines = [_affine(tape, slot) for slot in step.slots]
            straight = [line for line in lines if line is not None]
            slots = step.slots if len(step.slots) > 1 else (*step.slots, NONE)
            if len(straight) == len(lines):
                found += _of_lines(step.rule, straight, lower)
            elif len(slots) > MOST:
                return None
            else:
                found += [
                    each
                    for pair in combinations(slots, 2)
                    for each in _of_curves(tape, *pair, lower, upper, typical)
                ]
    for rate, _ in found:
        rate[~((rate > lower) & (rate <= upper))] = np.nan
    return [each for each in found if not bool(np.all(np.isnan(each.rate)))]


def kinked(node: object) -> bool:
    """Return whether an expression has atoms with kinks, or that become linear."""
    return isinstance(node, Tape) and any(
        isinstance(step, Apply) and step.rule in _BENT for step in node.steps
    )


def _affine(tape: Tape, slot: int) -> tuple[Array, Array] | None:
    """Return intercept and slope of an affine slot."""
    if slot <= 0:
        return ZERO, ZERO if slot == NONE else ONE
    step = tape.steps[slot - 1]
    if not isinstance(step, Linear) or step.terms:
        return None
    own = (ZERO if place == NONE else tape.constants[place] for place in (step.intercept, step.slope))
    return next(own), next(own)


def _of_huber(tape: Tape, step: Apply, lower: Array, upper: Array, typical: Array) -> list[Crossing]:
    """Return where the argument of Huber's function is M or −M."""
    (slot,), (most,) = step.slots, step.constants
    constants = *tape.constants, -tape.constants[most]
    ends = (Linear((), place, NONE, False) for place in (most, len(constants) - 1))
    tape = Tape((*tape.steps, *ends), constants, tape.finished)
    return [
        each
        for end in (len(tape.steps) - 1, len(tape.steps))
        for each in _of_curves(tape, slot, end, lower, upper, typical)
    ]


def _of_lines(rule: Rule, lines: list[tuple[Array, Array]], lower: Array) -> list[Crossing]:
    """Return where the largest of lines, or the smallest, changes."""
    sign = -1.0 if rule is KINKED["minimum"] else 1.0
    if len(lines) == 1:  # |x| is the maximum of x and −x
        lines = [*lines, (-lines[0][0], -lines[0][1])]
    a = sign * np.stack([np.broadcast_to(intercept, lower.shape) for intercept, _ in lines])
    b = sign * np.stack([np.broadcast_to(slope, lower.shape) for _, slope in lines])
    value, each = a + b * lower, np.arange(len(lower))
    steepest = np.where(value == np.max(value, axis=0), b, -np.inf)
    leading, found = np.argmax(steepest, axis=0), []
    for _ in lines[1:]:
        own, rise = a[leading, each], b - b[leading, each]
        meets = np.where(rise > 0.0, (own - a) / rise, np.inf)
        following = np.argmin(meets, axis=0)
        rate = meets[following, each]
        size = np.abs(own) + np.abs(a[following, each])
        size += (np.abs(b[leading, each]) + np.abs(b[following, each])) * np.abs(rate)
        found.append(Crossing(rate, _ROUNDED * (1.0 + size / np.abs(rise[following, each] * rate))))
        leading = np.where(rate < np.inf, following, leading)
    return found


def _difference(tape: Tape, first: int, second: int) -> Tape:
    """Return the tape of a branch minus another."""
    wanted = [slot for slot in (first, second) if slot != NONE]
    needed = set(wanted)
    for slot in range(max(wanted), 0, -1):
        if slot in needed:
            needed.update(tape.steps[slot - 1].slots)
    places = {slot: k for k, slot in enumerate(sorted(needed | {0}))}
    steps: list[Step] = [_moved(tape.steps[slot - 1], places) for slot in sorted(needed - {0})]
    signs = zip(wanted, (1, -1), strict=False)
    terms = tuple(AffineTerm(places[slot], sign, NONE, False) for slot, sign in signs)
    steps.append(Linear(terms, NONE, NONE, False))
    return Tape(tuple(steps), tape.constants, ((),) * len(steps))


def _moved(step: Step, places: dict[int, int]) -> Step:
    """Return a step that takes its arguments from other slots."""
    if isinstance(step, Linear):
        return replace(step, terms=tuple(term._replace(slot=places[term.slot]) for term in step.terms))
    assert isinstance(step, Apply)
    return replace(step, slots=tuple(places[slot] for slot in step.slots))


def _of_curves(
    whole: Tape, first: int, second: int, lower: Array, upper: Array, typical: Array
) -> list[Crossing]:
    """Return where a branch is another one."""
    tape = _difference(whole, first, second)
    level = ZERO if second == NONE else _constant(whole, second)
    rate = None if level is None else _solved(whole, first, level)
    if rate is not None:
        return [_polished(tape, np.array(np.broadcast_to(rate, lower.shape)))]
    grid = np.stack([np.maximum(lower, _LEAST * upper), *(typical * each for each in _NEAR), upper])
    grid = np.clip(grid, grid[0], upper)
    jets = [tape.evaluate(rate, 1) for rate in grid]
    value, slope = np.stack([jet.value for jet in jets]), np.stack([jet.slope for jet in jets])
    signs = np.sign(value)
    low, above, high, below = grid[:-1], value[:-1], grid[1:], value[1:]
    crossing = (above != 0.0) & (signs[:-1] * signs[1:] <= 0.0)
    turning = (signs[:-1] * signs[1:] > 0.0) & (slope[:-1] * slope[1:] < 0.0) & (slope * signs < 0.0)[:-1]
    if bool(np.any(turning)):
        middle, there = np.full(turning.shape, np.nan), np.full(turning.shape, np.nan)
        sloping = grid[:-1], slope[:-1], grid[1:], slope[1:]
        middle[turning] = _between(tape, turning, *sloping, sloping=True)
        there = np.stack([tape.evaluate(row, 0).value for row in middle])
        # Beside each other the halves of a part with an extremum, and nothing in place of its other half.
        low, above = np.concatenate([low, middle]), np.concatenate([above, there])
        high = np.concatenate([np.where(turning, middle, high), high])
        below = np.concatenate([np.where(turning, there, below), below])
        crossing = (above != 0.0) & (np.sign(above) * np.sign(below) <= 0.0)
    if not bool(np.any(crossing)):
        return []
    count = np.cumsum(crossing, axis=0)
    rates = np.full((int(np.max(count)), len(lower)), np.nan)
    where = count[crossing] - 1, np.nonzero(crossing)[1]
    rates[where] = _between(tape, crossing, low, above, high, below, sloping=False)
    return [_polished(tape, rate) for rate in rates]


def _polished(tape: Tape, rate: Array) -> Crossing:
    """Return roots of a difference after Newton's steps in the rate."""
    for _ in range(_POLISH):
        jet = tape.evaluate(rate, 1)
        step = jet.value / jet.slope
        rate = np.where(np.abs(step) < _FAR * rate, rate - step, rate)
    return Crossing(rate, _ROUNDED + value_errors(tape, rate) / np.abs(jet.slope * rate))


def _constant(tape: Tape, slot: int) -> Array | None:
    """Return the value of a slot without the rate."""
    line = _affine(tape, slot)
    return line[0] if line is not None and line[1] is ZERO else None


def _solved(tape: Tape, slot: int, level: Array) -> Array | None:
    """Return the rate at which monotone atoms reach a level.

    nan where there is none, None if the slot is no such chain.
    """
    line = _affine(tape, slot)
    if line is not None:
        return np.asarray((level - line[0]) / line[1])
    step = tape.steps[slot - 1]
    if isinstance(step, Linear):
        if len(step.terms) > 1 or step.slope != NONE:
            return None
        (term,) = step.terms
        factor = term.sign or tape.constants[term.constant]
        gone = ZERO if step.intercept == NONE else tape.constants[step.intercept]
        return _solved(tape, term.slot, np.asarray((level - gone) / factor))
    if not isinstance(step, Apply):
        return None
    if step.rule in (KINKED["maximum"], KINKED["minimum"]) and len(step.slots) == 2:
        for branch, other in (step.slots, step.slots[::-1]):
            least = _constant(tape, other)
            if least is not None:
                leads = level > least if step.rule is KINKED["maximum"] else level < least
                return _solved(tape, branch, np.where(leads, level, np.nan))
        return None
    inverse = _inverse(step.rule)
    return None if inverse is None else _solved(tape, step.slots[0], inverse(level))


def _inverse(rule: Rule) -> Callable[[Array], Array] | None:
    """Return the inverse of a monotone atom, or None."""
    exponent = getattr(rule, "exponent", None)
    if exponent is None:
        return _INVERSES.get(rule)
    if exponent == 0.0 or (exponent > 0.0 and exponent % 2.0 == 0.0):
        return None
    return lambda level: np.asarray(np.power(level, 1.0 / exponent))


_INVERSES: dict[Rule, Callable[[Array], Array]] = {
    SMOOTH["exp"]: np.log,
    SMOOTH["log"]: np.exp,
    SMOOTH["logistic"]: lambda level: np.asarray(np.log(np.expm1(level))),
}


@dataclass(frozen=True, slots=True)
class _Falling:
    """Differences, or their slopes, at log rates, made to fall."""

    tape: Tape
    sign: Array
    sloping: bool

    def excess(self, x: Array) -> Array:
        """Return their values."""
        jet = self.tape.evaluate(np.exp(x), 1 if self.sloping else 0)
        return self.sign * (jet.slope if self.sloping else jet.value)

    def take(self, chosen: BoolArray) -> Self:
        """Return some of them."""
        return replace(self, tape=self.tape.take(chosen), sign=self.sign[chosen])


def _between(
    tape: Tape, some: BoolArray, low: Array, above: Array, high: Array, below: Array, *, sloping: bool
) -> Array:
    """Return roots between rates of opposite signs, of some parts."""
    sign = np.sign(above[some])
    falling = _Falling(tape.take(np.nonzero(some)[1]), sign, sloping)
    ends = np.log(low[some]), np.log(high[some]), sign * above[some], sign * below[some]
    return np.exp(bracketed_roots(falling, *ends)[0])
