"""`certify_rows`: duality-gap certificates under declared constraints.

`row_multipliers`: multipliers with a small duality gap, from rates alone.

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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from freshopt.certificates.relative_gap import NOTHING, RelativeGap
from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_repair import directions, excess, repair_rows
from freshopt.certificates.row_scale import relative_row_gap
from freshopt.certificates.row_table import RowTable
from freshopt.certificates.strict_interior import interior_points
from freshopt.certificates.vanishing_cost import cost_without_refreshes
from freshopt.errors import SourceDataError, list_offenders, shortened
from freshopt.heavy import optimize, sparse
from freshopt.modelling.constraints.usages import rates_of, usage_value, variables_of
from freshopt.modelling.objective import value_at
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, as_number, read_only, total
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
            short = self.gap.at(y)
            idle = 0 if short < 0.9 * least or k < _PLAIN else idle + 1
            if short < least or not np.isfinite(least):
                found, least = y, short
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


class RowProof(NamedTuple):
    """What a certificate says of rates under declared constraints.

    - `rates` (n,): Of sources, repaired.
    - `value`: In the declared sense.
    - `gap`: inf where nothing is proved.
    - `multipliers` (m,)
    """

    rates: Array
    infeasibility: float
    value: float
    gap: float
    relative: RelativeGap
    multipliers: Array
    rows: RowTable | None


def prove_rows(
    problem: Problem,
    program: Program,
    given: Array,
    multipliers: Array | None = None,
    path: Sequence[Array] = (),
) -> RowProof:
    """Repair rates of sources and bound their duality gap.

    - `program`: The problem's.
    - `given` (n,)
    - `multipliers` (m,): Dual variables y ≥ 0; None searches for those with a small bound.
    - `path`: Strictly feasible rates of the program's variables, for repairs.
    """
    own = variables_of(problem, given)
    untied = _relative_distance(given, rates_of(problem, own))
    repaired = repair_rows(program, own, path)
    if repaired is None:
        return _unrepaired(problem, program, given)
    if problem.usages:  # mended rates may use less
        tight = variables_of(problem, rates_of(problem, repaired.rates))
        repaired = repaired._replace(rates=tight)
    gap = RowGap.of(program, repaired.rates)
    y = row_multipliers(gap) if multipliers is None else multipliers
    short = gap.at(y) + problem.objective.interpolation_error(problem.sources, gap.cost)
    proved, nothing = math.isfinite(short) and math.isfinite(gap.cost), NOTHING
    wrong = gap.contradiction() if proved else None
    if wrong is not None:
        plain = len(program) == len(problem.sources)
        name = problem.sources.label(wrong.source) if plain else f"bundle {wrong.source}"
        proved, nothing = False, replace(NOTHING, reason=wrong.sentence(name))
    relative = relative_row_gap(gap, y, short, lambda: _central(program, repaired.rates))
    numerics = program.numerics
    if numerics is not None and program.level is None:
        relative = relative.unless_nothing(
            gap.cost, short, lambda: cost_without_refreshes(numerics, repaired.rates)
        )
    kept = repaired.infeasibility == 0.0 and untied == 0.0
    rates = given if kept else read_only(rates_of(problem, repaired.rates))
    return RowProof(
        rates,
        max(repaired.infeasibility, untied),
        _value(problem, rates, gap.cost),
        short if proved else math.inf,
        relative if proved else nothing,
        gap.admissible(y),
        RowTable.of(gap, y, short),
    )


def _central(program: Program, rates: Array) -> Array | None:
    """Return central rates where rows oppose each other, else None.

    Rows that nearly conflict have prices of any size, in whose scale a loss would not show.
    """
    if program.level is not None:
        return None
    rising, falling = directions(program, rates)
    if bool(np.all(rising)) or bool(np.all(falling)):
        return None
    inside = interior_points(program)
    return inside[-1] if inside else None


def _value(problem: Problem, rates: Array, cost: float) -> float:
    """Return the value in the declared sense."""
    if problem.numerics is None:
        return cost if problem.objective.sense == "minimise" else -cost
    if problem.usages:
        cost = total(problem.numerics.cost(rates))
    own = value_at(problem.objective, problem.numerics, problem.sources, rates, cost)
    return own + usage_value(problem, rates)


def _unrepaired(problem: Problem, program: Program, given: Array) -> RowProof:
    """Return a proof of nothing, for rates that stay infeasible."""
    over, size = excess(program, variables_of(problem, given))
    worst = int(np.argmax(over / np.abs(size)))
    share = float(over[worst] / abs(size[worst]))
    reason = (
        f"the rates exceed {program.rows.labels[worst]} by {share:.2g} of it, and no feasible rates near "
        "them were found."
    )
    nothing = np.full(len(program.rows), math.nan)
    none = RelativeGap(math.inf, math.inf, reason)
    return RowProof(given, share, math.nan, math.inf, none, nothing, None)


def _relative_distance(one: Array, other: Array) -> float:
    scale = np.maximum(np.maximum(np.abs(one), np.abs(other)), np.finfo(float).tiny)
    return float(np.max(np.abs(one - other) / scale, initial=0.0))


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
