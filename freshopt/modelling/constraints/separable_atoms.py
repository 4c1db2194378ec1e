"""`as_sum`, `without_outer`: sums over sources in other words.

A sum of squares or of absolute values is one; a maximum, a norm or a log-sum-exp is one once its limit is
moved through it: ‖x‖_p ≤ c is Σ|x|^p ≤ c^p, and max x ≤ c is x ≤ c.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.cvx import Expression, cp


def as_sum(expression: Expression) -> Expression | None:
    """Return an atom as a sum of elementwise terms, or None."""
    kind, arguments = type(expression).__name__, expression.args
    if kind == "quad_over_lin" and arguments[1].is_constant():
        return cp.sum(cp.square(_flat(arguments[0]))) / arguments[1]
    if kind == "norm1":
        return cp.sum(_size(arguments[0]))
    if kind == "QuadForm" and arguments[1].is_constant():
        matrix = arguments[1].value
        matrix = matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
        diagonal = np.diagonal(matrix)
        if not np.any(matrix - np.diag(diagonal)):
            return cp.sum(cp.multiply(diagonal, cp.square(_flat(arguments[0]))))
    return None


def without_outer(constraint: Expression) -> Expression:
    """Return an inequality with its outer atom moved to the limit."""
    expression = constraint.expr
    terms = expression.args if type(expression).__name__ == "AddExpression" else [expression]
    varying = [term for term in terms if not term.is_constant()]
    if len(varying) != 1 or expression.size != 1:
        return constraint
    limit, (atom,) = -sum(float(np.reshape(t.value, -1)[0]) for t in terms if t.is_constant()), varying
    rising = type(atom).__name__ != "NegExpression"
    atom = atom if rising else atom.args[0]
    factor = 1.0
    if type(atom).__name__ == "multiply" and atom.args[0].is_constant() and atom.args[0].size == 1:
        factor, atom = float(np.reshape(atom.args[0].value, -1)[0]), atom.args[1]
    limit = limit / factor if factor > 0.0 else np.nan
    way = _WAYS.get((type(atom).__name__, rising))
    if way is None or not np.isfinite(limit) or getattr(atom, "axis", None) is not None:
        return constraint
    sides = way(atom, limit if rising else -limit)
    if sides is None:
        return constraint
    # Times the factor, as the limit is, so that a multiplier is the price of that.
    return (factor * sides[0] <= factor * sides[1]).set_label(constraint.label)


def _flat(expression: Expression) -> Expression:
    return expression if expression.ndim == 1 else cp.reshape(expression, (expression.size,), order="C")


def _size(expression: Expression) -> Expression:
    own = _flat(expression)
    return own if own.is_nonneg() else cp.abs(own)


def _norm(atom: Expression, limit: float) -> tuple[Expression, float] | None:
    """Return (c/p)Σ|x/c|^p and c/p: met, they have the norm's price."""
    power = float(atom.original_p if hasattr(atom, "original_p") else atom.p)
    if not (power > 1.0 and limit > 0.0):
        return None
    share = limit / power
    return share * cp.sum(cp.power(_size(atom.args[0]) / limit, power)), share


_WAYS: dict[tuple[str, bool], Callable[[Expression, float], tuple[Expression, float] | None]] = {
    ("max", True): lambda atom, limit: (_flat(atom.args[0]), limit),
    ("min", False): lambda atom, limit: (-_flat(atom.args[0]), -limit),
    ("norm_inf", True): lambda atom, limit: (_size(atom.args[0]), limit),
    ("log_sum_exp", True): lambda atom, limit: (cp.sum(cp.exp(_flat(atom.args[0]) - limit)), 1.0),
    ("Pnorm", True): _norm,
    ("PnormApprox", True): _norm,
}
