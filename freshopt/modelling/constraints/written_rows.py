"""`written`: rows as labelled CVXPY constraints."""

from __future__ import annotations

import numpy as np

from freshopt.cvx import Expression
from freshopt.separable.rows import RowBlock, Rows


def written(block: RowBlock | Rows, rate: Expression, value: Expression | None = None) -> list[Expression]:
    """Return rows as CVXPY constraints, one each.

    - `rate` cvxpy expression, affine (n,)
    - `value` cvxpy expression (n,): What the coefficients multiply; the rate by default.
    """
    of = rate if value is None else value
    order = np.argsort(block.row, kind="stable")
    first = np.searchsorted(block.row[order], np.arange(len(block) + 1))
    constraints = []
    for j, label in enumerate(block.labels):
        own = order[first[j] : first[j + 1]]
        sign = block.direction[j] if value is None else 1.0
        total = (sign * block.coefficient[own]) @ of[block.source[own]]
        limit = sign * block.limits[j]
        constraints.append((total >= limit if sign < 0.0 else total <= limit).set_label(label))
    return constraints
