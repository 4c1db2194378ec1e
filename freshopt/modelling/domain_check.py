"""`require_domain`: domain check of a user's objective.

It raises ObjectiveError where the objective has no value at rates that its bounds allow. The domain of a
convex function is convex, so the two ends of each source's rates show whether it holds all of them. Between,
the value must be a number: an atom of the user's own may return nan where it should not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError
from freshopt.modelling.declaration import Declaration, declare, name_of, show
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, BoolArray, total
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import MixedNumerics

if TYPE_CHECKING:
    from freshopt.modelling.problem import Problem


def require_domain(problem: Problem) -> None:
    """Raise ObjectiveError where the objective is undefined at feasible rates."""
    n, signalled, numerics = len(problem.sources), problem.sources.signalled, problem.numerics
    silent = numerics.silent_sources if isinstance(numerics, MixedNumerics) else numerics
    announced = numerics.signalled_sources if isinstance(numerics, MixedNumerics) else numerics
    for method, signals, own in (
        (problem.objective.per_source, False, silent),
        (problem.objective.signalled_per_source, True, announced),
    ):
        if own is not None and not isinstance(own, DerivedNumerics):
            continue
        chosen = signalled if signals else ~signalled
        if bool(np.any(chosen)):
            rate = cp.Variable(n, nonneg=True, name="rate")
            declaration = declare(problem.objective, method, rate, problem.sources)
            where = name_of(problem.objective, method)
            highest = np.minimum(problem.upper, problem.bandwidth / problem.sources.refresh_cost)
            highest = np.minimum(highest, LARGEST)
            typical = np.clip(problem.bandwidth / total(problem.sources.refresh_cost), problem.lower, highest)
            points = {"min_rate": problem.lower, "max_rate": highest, "bounds": typical}
            _require_defined(declaration, rate, own, chosen, points, problem.sources, where)


def _require_defined(
    declaration: Declaration,
    rate: Expression,
    numerics: DerivedNumerics | None,
    chosen: BoolArray,
    points: dict[str, Array],
    sources: Sources,
    where: str,
) -> None:
    """Raise ObjectiveError where an expression is undefined at given rates.

    - `declaration`: Of all sources, over the variable `rate`.
    - `rate` cvxpy.Variable (n,)
    - `numerics`: The same compiled; None where an atom is unknown, then CVXPY evaluates it between the
      bounds.
    - `chosen` (n,): The sources that it is the objective of.
    - `points` dict of ndarray, each of (n,): Rates to try, by the name of the bound to change where one is
      refused: ends "min_rate" and "max_rate", and rates between them, "bounds".
    - `where`: The declaring method, for messages.
    - raises ObjectiveError: naming the first source, its rate and the term.
    """
    expression = declaration.expression
    own = [c for c in expression.domain if {v.id for v in c.variables()} <= {rate.id}]
    for what, at in points.items():
        rate.save_value(np.array(at))
        for condition in own if what != "bounds" else ():
            with np.errstate(all="ignore"):
                broken = np.reshape(condition.violation(), -1) > 0.0
            outside = np.flatnonzero(broken & chosen if broken.size == len(chosen) else broken)
            if len(outside):
                k = int(outside[0])
                raise ObjectiveError(
                    f"{where} is undefined for {sources.label(k)} at the rate {at[k]:g}, which bounds and "
                    f"bandwidth allow: '{show(condition)}' does not hold. Set {what} inside the domain."
                )
        if numerics is None and (what != "bounds" or declaration.constraints):
            continue  # in CVXPY 0·inf of a source of no importance is nan; auxiliary variables have no value
        with np.errstate(all="ignore"):
            value = np.reshape(expression.value, -1) if numerics is None else numerics.cost(at)
        nowhere = np.flatnonzero(np.isnan(value) & chosen)
        if len(nowhere):
            k = int(nowhere[0])
            raise ObjectiveError(
                f"{where} is not a number for {sources.label(k)} at the rate {at[k]:g}, which bounds and "
                f"bandwidth allow: the term '{show(_first_nan(expression, k))}' is nan. Correct the term, or "
                f"set {what} away from that rate."
            )


def _first_nan(expression: Expression, k: int) -> Expression:
    """Return the smallest term whose entry k is nan at saved rates."""
    for argument in expression.args:
        with np.errstate(all="ignore"):
            value = np.reshape(argument.value, -1)
        if np.isnan(value[k if len(value) > 1 else 0]):
            return _first_nan(argument, k)
    return expression
