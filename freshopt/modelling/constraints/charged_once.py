"""`charged_once`, `as_charged`: rows and prices where a bundle's cost counts once.

`expression_of`: prices as a CVXPY expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.cvx import Expression
from freshopt.modelling.constraints.priced import Priced
from freshopt.modelling.constraints.tied import Tied
from freshopt.modelling.constraints.written_rows import written
from freshopt.modelling.sources import Sources
from freshopt.separable.rows import RATE

if TYPE_CHECKING:
    from freshopt.modelling.problem import Problem


def charged_once(problem: Problem, constraints: Sequence[Expression], rate: Expression) -> list[Expression]:
    """Return constraints, rows beside such ties of each bundle's dearest source.

    - `constraints` sequence of cvxpy constraint: Labelled; those of rows of rates are replaced.
    - `rate` cvxpy expression, affine (n,)
    """
    if problem.program is None or problem.bundles is None or not is_once(problem.constraints):
        return list(constraints)
    rows, bundles = problem.program.rows, problem.bundles
    # Of sums with a price the program has variables of its own.
    other = (rows.kind != RATE) | (rows.source >= len(bundles))
    curved = np.bincount(rows.row, weights=other, minlength=len(rows)) > 0.0
    own = rows.only(~curved)
    # A constraint on a vector has one label for all of its rows, "name[position]".
    replaced = {*own.labels, *(label.rsplit("[", 1)[0] for label in own.labels)}
    kept = [each for each in constraints if each.label not in replaced]
    return [*kept, *written(own, rate[bundles.order[bundles.first[:-1]]])]


def is_once(constraints: Sequence[Any]) -> bool:
    """Return whether ties among constraints are charged once."""
    return any(isinstance(one, Tied) and one.cost == "once" for one in constraints)


def as_charged(constraints: Sequence[Any], sources: Sources) -> tuple[Any, ...]:
    """Return constraints, prices as they are beside ties that are charged once."""
    if not is_once(constraints):
        return tuple(constraints)
    bundles = next(one for one in constraints if isinstance(one, Tied)).bundles(sources)
    return tuple(
        one.charged_once(bundles, sources) if isinstance(one, Priced) else one for one in constraints
    )


def expression_of(problem: Problem, rate: Expression) -> Expression | float:
    """Return what prices add to a declared objective, 0 without any."""
    constraints = as_charged(problem.constraints, problem.sources)
    terms = [one.expression(rate, problem.sources) for one in constraints if isinstance(one, Priced)]
    total_cost = sum(terms[1:], terms[0]) if terms else 0.0
    return total_cost if problem.objective.sense == "minimise" else -total_cost
