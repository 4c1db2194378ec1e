"""`require_declared`: numbers written by hand compared with what is declared.

A kernel, and derivatives given to `freshopt.autodiff.compiler.register`, are a user's formulas beside a
user's expression: nothing but their agreement says that one is the other. A few sources at three rates each
show a slip; ObjectiveError names source, rate and both numbers. What these rates do not show, certificates
may (`freshopt.separable.tangents`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.autodiff.compiler import UnknownAtomError, compile_expression
from freshopt.autodiff.kinked_atoms import LEFT, RIGHT
from freshopt.autodiff.tape_description import describe
from freshopt.cvx import Expression
from freshopt.errors import ObjectiveError
from freshopt.modelling.declaration import Declaration, show
from freshopt.modelling.objective import Objective
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Kernel
from freshopt.separable.tangents import contradiction

# Relative difference of two formulas of one number. Series and quadratures of kernels are better.
AGREED = 1e-6
# Rates go from this share of the change rate to the same multiple of it, within the source's bounds.
_SPREAD = 4.0


def require_declared(
    objective: Objective,
    kernel: Kernel,
    declaration: Declaration,
    rate: Expression,
    sources: Sources,
    chosen: BoolArray,
    where: str,
) -> None:
    """Raise ObjectiveError unless a kernel is what is declared.

    A declaration with variables of its own has no value at a rate: then the kernel's cost, marginal and
    inverse marginal are compared with each other alone.

    - `declaration`: Of all sources, over the variable `rate`.
    - `rate` cvxpy.Variable (n,)
    - `chosen` (n,): Those whose objective it is.
    - `where`: The declaring method, for messages.
    """
    few = _Few.of(sources, chosen, f"the kernel beside {where}")
    own, derived = kernel.take(few.places), None
    if not declaration.constraints:
        derived = _derived(declaration.expression, rate, objective, sources)
    for at in few.rates:
        if derived is not None:
            some = derived.take(few.places)
            _require_value(objective, own, some.sign * some.cost(at), few, at)
            _require_slope(own, some, few, at)
        elif not declaration.constraints:
            _require_value(objective, own, few.values(declaration.expression, rate, at), few, at)
        _require_inverse(own, few, at)
        _require_tangents(own, few, at)


def require_registered(
    numerics: DerivedNumerics, expression: Expression, rate: Expression, sources: Sources, chosen: BoolArray
) -> None:
    """Raise ObjectiveError unless registered derivatives are their atoms'."""
    if describe(numerics.node) is not None:
        return
    few = _Few.of(sources, chosen, f"what is registered for an atom in '{show(expression)}'")
    some = numerics.take(few.places)
    for at in few.rates:
        expected = few.values(expression, rate, at)
        few.require_same("value", numerics.sign * some.cost(at), expected, at, "the atom's own is {:.9g}")
        _require_tangents(some, few, at)


class _Few(NamedTuple):
    """A few of the sources, and rates to look at them.

    - `places` (k,): First, middle and last of those with importance, and those that change least and most
      often.
    - `sources`: These, and `whole` all.
    - `lower`, `upper` (k,)
    - `rates` (3, k): Between the bounds.
    - `told`: What is compared, for messages.
    """

    places: IntArray
    sources: Sources
    whole: Sources
    lower: Array
    upper: Array
    rates: Array
    told: str

    @classmethod
    def of(cls, sources: Sources, chosen: BoolArray, told: str) -> _Few:
        """Choose from the sources of one kind."""
        index = np.flatnonzero(chosen & (sources.importance > 0.0))
        if len(index):
            changes = sources.scale[index]
            some = (0, len(index) // 2, len(index) - 1, int(np.argmin(changes)), int(np.argmax(changes)))
            index = index[np.unique(some)]
        few = sources.take(index)
        upper = np.where(few.signalled, np.minimum(few.max_rate, few.scale), few.max_rate)
        typical = np.minimum(np.maximum(few.scale, _SPREAD * few.min_rate), upper)
        rates = np.stack([typical / _SPREAD, typical, typical * _SPREAD])
        return cls(index, few, sources, few.min_rate, upper, np.clip(rates, few.min_rate, upper), told)

    def label(self, k: int) -> str:
        """Return a source's name in messages."""
        return self.whole.label(self.places[k])

    def values(self, expression: Expression, rate: Expression, at: Array) -> Array:
        """Return what CVXPY makes of an expression at these sources' rates."""
        everywhere = np.full(rate.size, at[0] if len(at) else 1.0)
        everywhere[self.places] = at
        rate.save_value(everywhere)
        with np.errstate(all="ignore"):
            found: Array = np.broadcast_to(np.reshape(expression.value, -1), everywhere.shape)[self.places]
        return found

    def require_same(self, what: str, found: Array, expected: Array, at: Array, other: str) -> None:
        """Raise ObjectiveError where numbers differ; `other` tells what is expected, and why."""
        with np.errstate(all="ignore"):
            same = np.abs(found - expected) <= AGREED * np.maximum(np.abs(expected), np.abs(found))
        wrong = np.flatnonzero(np.isfinite(expected) & ~same)
        if len(wrong):
            k = int(wrong[0])
            raise ObjectiveError(
                f"{self.told} has the {what} {found[k]:.9g} of {self.label(k)} at the rate {at[k]:.9g}; "
                f"{other.format(expected[k])}. Correct one of them."
            )


def _derived(
    expression: Expression, rate: Expression, objective: Objective, sources: Sources
) -> DerivedNumerics | None:
    """Return the expression's own numerics, None if an atom is unknown."""
    try:
        node = compile_expression(expression, rate)
    except UnknownAtomError:
        return None
    return DerivedNumerics(node, 1.0 if objective.sense == "minimise" else -1.0, sources.scale)


def _require_value(objective: Objective, kernel: Kernel, declared: Array, few: _Few, at: Array) -> None:
    found, other = kernel.gain(at), "declared is {:.9g}"
    if objective.sense == "maximise":
        other += ", and a kernel's cost is minus that, unless unit_gain or value_from_cost says what it is"
    if objective.sense == "minimise" or found is None:
        one = (few.sources.take(np.array([k])) for k in range(len(at)))
        cost = zip(kernel.cost(at), one, strict=True)
        found = np.array([objective.value_from_cost(float(c), source) for c, source in cost])
    few.require_same("value", found, declared, at, other)


def _require_slope(kernel: Kernel, derived: DerivedNumerics, few: _Few, at: Array) -> None:
    found, right, left = kernel.marginal(at), derived.marginal(at, RIGHT), derived.marginal(at, LEFT)
    expected = np.clip(found, np.minimum(left, right), np.maximum(left, right))
    few.require_same("marginal", found, expected, at, "declared is {:.9g}, minus the slope of the cost")


def _require_inverse(kernel: Kernel, few: _Few, at: Array) -> None:
    """Raise ObjectiveError unless marginals cross a price at its inverse."""
    with np.errstate(all="ignore"):
        price = kernel.marginal(at)
        back = kernel.inverse_marginal(price)
        before, after = kernel.marginal(back * (1.0 - AGREED)), kernel.marginal(back * (1.0 + AGREED))
        crossed = (before >= price * (1.0 - AGREED)) & (after <= price * (1.0 + AGREED))
    wrong = np.flatnonzero(~crossed & (price > 0.0) & np.isfinite(price))
    if len(wrong):
        k = int(wrong[0])
        raise ObjectiveError(
            f"{few.told} has the inverse marginal {back[k]:.9g} of {few.label(k)} at the price "
            f"{price[k]:.9g}, which is its marginal at the rate {at[k]:.9g}. Correct unit_inverse."
        )


def _require_tangents(numerics: Kernel | DerivedNumerics, few: _Few, at: Array) -> None:
    with np.errstate(all="ignore"):
        given = at, numerics.cost(at), numerics.marginal(at)
        wrong = contradiction(numerics, *given, few.lower, few.upper, few.sources.scale)
    if wrong is not None:
        raise ObjectiveError(f"{few.told} is refused: {wrong.sentence(few.label(wrong.source))}")
