"""What rounding may do to the values of a tape.

A bound on the error travels with each value, in the place of the slope: an atom f turns an error e of its
argument x into |f'(x)|·e, which is what its rule makes of a slope, and adds some ulp of f(x). So values that
cancel as they are written, log(1 + x) for tiny x say, are known for what they are. It costs one evaluation
with slopes, of an atom of several arguments one for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshopt.autodiff.affine_steps import NONE, Linear
from freshopt.autodiff.jets import NOT_COMPUTED, ZERO, Jet
from freshopt.autodiff.kinked_atoms import KINKED, RIGHT
from freshopt.autodiff.tape import Apply, Step, Tape
from freshopt.numerics.arrays import Array

# Relative error of an atom's value beyond its argument's: rules are right to 65 ulp (relative entropies whose
# arguments differ by a third), constants to one.
_ROUNDED = 100.0 * float(np.finfo(np.float64).eps)
# Smaller numbers have fewer digits.
_SMALLEST = float(np.finfo(np.float64).tiny)


def value_errors(tape: Tape, rate: Array) -> Array:
    """Return bounds on the errors of a tape's values, shape (n,).

    Examples
    --------
    >>> from freshopt.autodiff.compiler import compile_expression
    >>> from freshopt.cvx import cp
    >>> rate = cp.Variable(1, nonneg=True)
    >>> tape = compile_expression(cp.log(1.0 + rate), rate)
    >>> bool(value_errors(tape, np.array([1e-18]))[0] > 1e-16)
    True
    """
    jets = [Jet(rate, _ROUNDED * rate, NOT_COMPUTED)]
    with np.errstate(all="ignore"):
        for step in tape.steps:
            value = step.run(jets, tape.constants, 0, RIGHT).value
            error = _carried(step, jets, tape.constants) + _ROUNDED * np.abs(value) + _SMALLEST
            # Of a value at the edge of a domain, or beyond, nothing is known.
            jets.append(Jet(value, np.where(np.isnan(error), np.inf, error), NOT_COMPUTED))
    return np.broadcast_to(jets[-1].slope, rate.shape)


def _carried(step: Step, jets: Sequence[Jet], constants: Sequence[Array]) -> Array:
    """Return the error that a step has from its arguments."""
    if isinstance(step, Linear):
        return _of_sum(step, jets, constants)
    total: Array = ZERO
    if isinstance(step, Apply) and step.rule in KINKED.values():
        for slot in step.slots:
            total = total + jets[slot].slope
        return total
    for slot in dict.fromkeys(step.slots):
        alone = [jet._replace(slope=jet.slope if k == slot else ZERO) for k, jet in enumerate(jets)]
        total = total + np.abs(step.run(alone, constants, 1, RIGHT).slope)
    return total


def _of_sum(step: Linear, jets: Sequence[Jet], constants: Sequence[Array]) -> Array:
    """Return the error of an affine sum."""
    total: Array = ZERO
    for term in step.terms:
        jet = jets[term.slot]
        each = jet.slope + _ROUNDED * np.abs(jet.value)
        total = total + (each if term.sign else _weighted(constants[term.constant], each))
    if step.slope != NONE:
        total = total + 2.0 * _weighted(constants[step.slope], jets[0].slope)
    if step.intercept != NONE:
        total = total + _ROUNDED * np.abs(constants[step.intercept])
    return total


def _weighted(coefficient: Array, error: Array) -> Array:
    """Return |c|·e, with 0 times infinity equal to 0."""
    return np.where(coefficient == 0.0, 0.0, np.abs(coefficient) * error)
