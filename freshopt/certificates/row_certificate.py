"""`row_multipliers`: multipliers with a small duality gap, from rates alone.

At an optimum φ_k' = 0 for sources between their bounds, and y_j > 0 only where row j is tight. The duality
gap of rates near it is about

    Σ_k φ_k'(ρ_k)²/max(φ_k'', |φ_k'|/room_k)  +  Σ_j y_j (b_j − G_j),

    φ_k' = f_k' + Σ_j y_j g_jk'   linear in y,

a least-squares problem in y ≥ 0 with m unknowns (NNLS on its normal equations). φ'' depends on y a little, so
it is solved a few times; the room is that to the bound which φ' pulls to. Whatever comes out is valid, since
any y ≥ 0 proves a bound; the best is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.errors import SourceDataError, list_offenders, shortened
from freshopt.heavy import optimize, sparse
from freshopt.modelling.host_limits import HostPrices
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, as_number
from freshopt.separable.program import Program

# Weights and active sets settle within 20 rounds on planted programs of up to 20 rows.
_ROUNDS = 40
# Rounds without a smaller gap, after which it is done.
_IDLE = 6
# In the first rounds sources near a bound count in full while they are pulled inwards: an active-set method.
_PLAIN = 6
# A gap of this share of what the rows are paid is rounding.
_ENOUGH = 1e-15
# Normal equations are solved densely up to so many rows (32 MB of float64), by projected quasi-Newton beyond.
_DENSE = 2000
# Added to the unit diagonal, for rows that are one another's copies.
_RIDGE = 1e-13
# Rows further from a price than this multiple of the most that any row is pulled by count as this far.
_SLACK = 1e6
# A bound nearer than this share of the rate is where the rate is, at first.
_AT = 1e-6


def row_multipliers(gap: RowGap, start: Array | None = None) -> Array:
    """Return multipliers y ≥ 0 with a small duality gap, shape (m,).

    - `gap`: Of feasible rates.
    - `start` (m,): Multipliers to begin with.
    """
    with np.errstate(all="ignore"):
        return _Fit(gap).best(start)


class _Fit:
    """Weighted least squares for the multipliers of one vector of rates."""

    def __init__(self, gap: RowGap) -> None:
        program, rates = gap.program, gap.rates
        rows, n = program.rows, len(rates)
        own = np.zeros(n) if program.numerics is None else -program.numerics.marginal(rates)
        own_bend = np.zeros(n) if program.numerics is None else program.numerics.curvature(rates)
        shape, source = (len(rows), n), rows.source
        entries, bends = rows.slopes(rates), rows.bends(rates)
        # A source at rate 0 of infinite slope says nothing about prices.
        usable = np.isfinite(own) & np.isfinite(own_bend) & (program.upper > program.lower)
        usable[source[~np.isfinite(entries) | ~np.isfinite(bends)]] = False
        self.own, self.own_bend = np.where(usable, own, 0.0), np.where(usable, own_bend, 0.0)
        kept = usable[source]
        self.jacobian = sparse.csr_array((np.where(kept, entries, 0.0), (rows.row, source)), shape=shape)
        self.bends = sparse.csr_array((np.where(kept, bends, 0.0), (rows.row, source)), shape=shape)
        near = _AT * np.maximum(rates, program.typical)
        self.low, self.high = rates <= program.lower + near, rates >= program.upper - near
        self.below, self.above = rates - program.lower, program.upper - rates
        self.usable, self.gap = usable, gap
        self.size = np.maximum(rates, _AT * program.typical)

    def best(self, start: Array | None) -> Array:
        """Return the multipliers of the smallest gap over a few rounds."""
        found = np.zeros(len(self.gap.used)) if start is None else start
        least = self.gap.at(found)
        y, idle = found, 0
        for k in range(_ROUNDS):
            y = self._fitted(y, first=k == 0 and start is None, limited=k >= _PLAIN)
            if not bool(np.all(np.isfinite(y))):
                break
            gap_bound = self.gap.at(y)
            idle = 0 if gap_bound < 0.9 * least or k < _PLAIN else idle + 1
            if gap_bound < least or not np.isfinite(least):
                found, least = y, gap_bound
            if idle == _IDLE or least <= _ENOUGH * float(np.dot(found, np.abs(self.gap.limits))):
                break
        return found

    def _fitted(self, y: Array, *, first: bool, limited: bool) -> Array:
        """Return the multipliers of one weighted least-squares problem."""
        slope = self.own + self.jacobian.T @ y
        bend = self.own_bend + self.bends.T @ y
        # Before anything is known, a slope that falls as 1/ρ has this curvature.
        guess = np.abs(self.own) / self.size
        size = np.maximum(bend, 1e-3 * guess) if not first else np.maximum(bend, guess)
        size = np.where(size > 0.0, size, 1.0 / self.size)
        if first:
            active = self.usable & ~(self.low | self.high)
            active = active if bool(np.any(active)) else self.usable
        elif not limited:
            active = self.usable & ~(self.low & (slope > 0.0)) & ~(self.high & (slope < 0.0))
        else:
            # A source moves no farther than its bound: there its gap is |φ'| times the room left.
            room = np.where(slope > 0.0, self.below, self.above)
            active = self.usable & (room > 0.0)
            size = np.maximum(size, np.abs(slope) / np.where(room > 0.0, room, 1.0))
        root = np.where(active, 1.0 / np.sqrt(size), 0.0)
        rows = self.jacobian * root[None, :]
        right = -(rows @ (root * self.own)) - 0.5 * self.gap.slack
        level = self.gap.program.level
        if level is not None:
            # Σ level·y = 1, as one more equation that weighs what a row does. The others are homogeneous but
            # for slacks: their solution keeps its direction, and a weight that outdid them would take their
            # digits.
            size = float(np.sqrt((rows * rows).sum() / len(level)))
            weight = (size if size > 0.0 else 1.0) / float(np.max(level))
            return _nonnegative(rows, right + weight**2 * level, weight * level)
        return _nonnegative(rows, right, None)


def _nonnegative(rows: Any, right: Array, extra: Array | None) -> Array:  # noqa: ANN401 - a sparse array
    """Return the y ≥ 0 that minimises ½|rowsᵀy|² − rightᵀy."""
    from scipy.linalg import cholesky, solve_triangular

    length = np.sqrt(np.asarray((rows * rows).sum(axis=1)).ravel() + (0.0 if extra is None else extra**2))
    scale = 1.0 / np.where(length > 0.0, length, 1.0)
    target = np.where(length > 0.0, scale * right, np.minimum(0.0, right))
    # Rows of immense slack have no price; as they are they would take all digits.
    target = np.maximum(target, -_SLACK * np.max(target, initial=0.0))
    if len(right) <= _DENSE:
        matrix = (rows @ rows.T).toarray() + (0.0 if extra is None else np.outer(extra, extra))
        matrix = scale[:, None] * matrix * scale[None, :]
        matrix[np.diag_indices_from(matrix)] += np.where(length > 0.0, _RIDGE * len(right), 1.0)
        factor = cholesky(matrix, lower=True, check_finite=False)
        y, _ = optimize.nnls(
            factor.T,
            solve_triangular(factor, target, lower=True, check_finite=False),
            maxiter=30 * len(right),
        )
        return scale * y

    def value(y: Array) -> tuple[float, Array]:
        pulled = rows.T @ (scale * y)
        gradient = scale * (rows @ pulled) - target
        if extra is not None:
            gradient = gradient + scale * extra * float(np.dot(extra, scale * y))
        return 0.5 * float(np.dot(y, gradient - target)), gradient

    begun = np.maximum(0.0, target)
    found = optimize.minimize(value, begun, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(right))
    return scale * np.maximum(0.0, found.x)


def multipliers_by_label(program: Program, prices: Mapping[str, float]) -> Array:
    """Return the multipliers of a program's rows from prices by label.

    Rows left out have none.

    - raises SourceDataError if a label is unknown or a price is no number ≥ 0.
    """
    place = {label: j for j, label in enumerate(program.rows.labels)}
    unknown = [repr(label) for label in prices if label not in place]
    if unknown:
        raise SourceDataError(
            f"prices name unknown constraints {list_offenders(unknown)}. Known: "
            f"{list_offenders(program.rows.labels)}."
        )
    multipliers = np.zeros(len(place))
    for label, price in prices.items():
        what = f"the price of {shortened(label)}"
        multipliers[place[label]] = as_number(price, what, "Pass a number >= 0.")
    bad = np.flatnonzero(~((multipliers >= 0.0) & np.isfinite(multipliers)))
    if len(bad):
        where = list_offenders(f"{program.rows.labels[j]}: {multipliers[j]:g}" for j in bad)
        raise SourceDataError(f"prices must be numbers >= 0, got {where}. Correct them.")
    return multipliers


def labelled_prices(
    problem: Problem, price: float | None, host_prices: Mapping[Any, float] | None
) -> dict[str, float]:
    """Return prices by label from those of bandwidth and hosts."""
    name, host = problem.labels
    found: dict[str, float] = {}
    if price is not None:
        if not math.isfinite(problem.bandwidth):
            raise SourceDataError("price is given, and there is no bandwidth. Pass prices= by label.")
        found[name] = price
    return found | {f"{host}[{key}]": value for key, value in (host_prices or {}).items()}


def short_form(problem: Problem, multipliers: Array) -> tuple[float, HostPrices]:
    """Return the prices of bandwidth and hosts among the multipliers of rows."""
    first = int(math.isfinite(problem.bandwidth))
    price = float(multipliers[0]) if first else math.nan
    return price, problem.hosts.named(multipliers[first : first + len(problem.hosts)])


def short_prices(problem: Problem, prices: Mapping[str, float]) -> tuple[float, dict[Any, float]]:
    """Return the prices of bandwidth and hosts from prices by label."""
    name, host = problem.labels
    of_label = {f"{host}[{key}]": key for key in problem.hosts.names}
    unknown = [repr(label) for label in prices if label != name and label not in of_label]
    if unknown:
        known = list_offenders([name, *of_label])
        raise SourceDataError(f"prices name unknown constraints {list_offenders(unknown)}. Known: {known}.")
    remedy = "Pass a number >= 0."
    known_prices = {k: as_number(v, f"the price of {shortened(str(k))}", remedy) for k, v in prices.items()}
    price = known_prices.pop(name, 0.0)
    return price, {of_label[label]: own for label, own in known_prices.items()}


def host_vector(problem: Problem, host_prices: Mapping[Any, float]) -> Array:
    """Return the limited hosts' prices as a vector, shape (H,).

    - raises SourceDataError if a host has no limit or a price is no number ≥ 0.
    """
    if isinstance(host_prices, HostPrices) and host_prices.hosts is problem.hosts:
        return _checked(host_prices.values_)
    known = set(problem.hosts.names)
    odd = [repr(host) for host in host_prices if host not in known]
    if odd:
        raise SourceDataError(f"host_prices name hosts without a limit: {list_offenders(odd)}. Drop them.")
    return _checked(np.array([float(host_prices.get(host, 0.0)) for host in problem.hosts.names]))


def _checked(prices: Array) -> Array:
    if not bool(np.all(prices >= 0.0)):
        raise SourceDataError("host_prices must be numbers >= 0. Correct them.")
    return prices
