"""`explain`: which declared rows cannot hold together, with a Farkas proof.

For multipliers y ≥ 0 of the rows,

    D(y) = Σ_k min over [lo_k, hi_k] of Σ_j y_j g_jk  −  Σ_j y_j b_j  >  0

proves that no rates meet all rows with y_j > 0 (Farkas): at feasible rates the sum would be ≤ 0. The search
for rates inside all rows (`freshopt.certificates.strict_interior`) ends in rates or in such multipliers. Rows
are then dropped one at a time while the rest still conflict; of what remains, each row's removal was seen to
leave rates that meet the others. What limit a row needs when it alone gives is the least G_j under the
others, by the same search.

`Tangents`: rows replaced by their tangents at given rates.

Convex rows lie above their tangents, so that for multipliers y ≥ 0 and any rates ρ

    D(y)  ≥  Σ_j y_j (G_j(ρ) − b_j)  +  Σ_k min over [lo_k, hi_k] of (Σ_j y_j g_jk'(ρ_k))·(r − ρ_k),

whose minimum is at a bound. At the rates of an interior point method, whose slopes its bounds balance, this
loses no more than the complementarity left; no best response is asked for, and further multipliers at the
same rates cost one product with a matrix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.strict_interior import RowSlopes, inside_bounds, interior_path, row_sizes
from freshopt.interior_point.conflict import Conflict
from freshopt.numerics.arrays import LARGEST, Array, BoolArray, IntArray, exact_sum
from freshopt.separable.kernel import weighted
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program, implied_upper

# Slopes are off by this share of their parts at most, and sums of up to thousands of rows.
_ROUNDING = 1e-14


class Tangents:
    """Rows of a program without objective, linear at given rates.

    - `rates` (n,): Within the bounds.
    """

    def __init__(self, program: Program, rates: Array) -> None:
        rows, entries = program.rows, program.rows.slopes(rates)
        self._slopes, self._sizes = RowSlopes(rows, entries), RowSlopes(rows, np.abs(entries))
        self._excess = rows.used(rates) - rows.limits
        self._down, self._up = rates - program.lower, program.upper - rates

    def bound(self, multipliers: Array) -> float:
        """Return a lower bound of D(y), −inf where it has none."""
        paid = multipliers > 0.0
        # An infinite slope of a row that is not priced is no number, and no bound.
        with np.errstate(all="ignore"):
            slope = self._slopes.by_source(multipliers)
            off = _ROUNDING * self._sizes.by_source(multipliers)
            saved = np.maximum((slope + off) * self._down, (off - slope) * self._up)
        saved = np.where(off == 0.0, 0.0, saved)
        least = exact_sum([*(multipliers[paid] * self._excess[paid]), -float(np.sum(saved))])
        return least if np.isfinite(least) else -np.inf


# D beyond this share of Σ y|b| is no rounding; rows that nearly conflict by less are called feasible.
CERTAIN = 1e-9
# Rows count as met within this share of their size, between rounding and what `CERTAIN` can prove.
MET = 1e-10
# Multipliers below these shares of the largest are dropped together while the rest still prove the conflict.
_SHARES = (0.0, 1e-9, 1e-4, 1e-2)
# A proof whose tangents do not suffice is looked for by best responses once t is known to this share.
_CLOSE = 0.01
# Of more sources than this as many are looked at first: multipliers that are this far from a proof on them,
# as a share of Σ y|b|, need no look at all others.
_SAMPLED, _FAR_OFF = 20_000, 0.05
# A limit is known when the best is nearer than this share of what the row is short by.
_LIMIT = 1e-3
# The multipliers that are reported are of a least violation known to this share.
_SHARP = 1e-6


class Proof(NamedTuple):
    """Multipliers y with D(y) ≥ excess > 0, at the rates."""

    multipliers: Array
    excess: float
    rates: Array


def explain(
    program: Program, multipliers: Array | None = None, *, upper: Array | None = None
) -> Conflict | None:
    """Return an irreducible set of conflicting rows, or None.

    None if there are rates that meet all; also where neither is certain, as of rows that miss each other by
    rounding.

    - `program`: Its objective plays no part.
    - `multipliers` (m,): y ≥ 0 that may prove a conflict, as those of a solver that ran off.
    - `upper` (n,): The declared upper bounds. If None, a bound no lower than what rows imply counts as
      theirs, and goes with them: proofs hold, but a set without its row may then be met by rates beyond a
      declared bound.
    """
    with np.errstate(all="ignore"):
        bare, multipliers = _bare(program, multipliers)
        bare = _without_implied(bare) if upper is None else replace(bare, upper=upper)
        return _explained(bare, multipliers)


def proves_conflict(program: Program, multipliers: Array) -> bool:
    """Return whether multipliers prove that no rates meet all rows.

    - `program`: Its objective plays no part, nor do rows that a minimax level relaxes.
    - `multipliers` (m,): y ≥ 0, of an unfinished search. One pass over the sources.
    """
    with np.errstate(all="ignore"):
        bare, own = _bare(program, multipliers)
        assert own is not None
        paid = float(np.dot(own, row_sizes(bare, np.maximum(bare.typical, bare.lower))))
        if not 0.0 < paid < np.inf:
            return False
        y = own / paid
        if len(bare) > _SAMPLED and _sampled_bound(bare, y) < -_FAR_OFF:
            return False
        return lower_bound(bare, y, responses_to_rows(bare, y)) > CERTAIN


def _sampled_bound(program: Program, y: Array) -> float:
    """Estimate D(y) from evenly spaced sources, with limits in proportion."""
    n = len(program)
    part = program.take(np.arange(0, n, n // _SAMPLED))
    share = n / len(part)
    part = replace(part, rows=replace(part.rows, limits=part.rows.limits / share))
    return share * lower_bound(part, y, responses_to_rows(part, y))


def _bare(program: Program, multipliers: Array | None) -> tuple[Program, Array | None]:
    """Return the program without objective and rows that a level relaxes."""
    if program.level is None:
        return replace(program, numerics=None), multipliers
    fixed = program.level == 0.0
    bare = replace(program, numerics=None, level=None, rows=program.rows.only(fixed))
    return bare, None if multipliers is None else multipliers[fixed]


def _explained(program: Program, multipliers: Array | None) -> Conflict | None:
    chosen = np.ones(len(program.rows), dtype=np.bool_)
    proof: Proof | Array | None = None
    if multipliers is not None:
        own, y = _only(program, chosen), np.maximum(0.0, multipliers)
        proof = _sparse(own, y, responses_to_rows(own, y), tangents=False)
    if proof is None:
        proof = _search(program, chosen)
    if not isinstance(proof, Proof):
        return None
    chosen, y = _narrowed(program, chosen, proof)
    needed: dict[int, Array] = {}
    while True:
        tried = [j for j in np.flatnonzero(chosen) if j not in needed]
        if not tried:
            break
        # A row of little weight in the proof is the likeliest to be dispensable.
        row = min(tried, key=lambda j: y[j])
        fewer = chosen.copy()
        fewer[row] = False
        found = _search(program, fewer, start=proof.rates)
        if isinstance(found, Proof):
            proof = found
            chosen, y = _narrowed(program, fewer, proof)
        else:
            # Rates that meet the others; or nothing certain, and the row stays.
            needed[int(row)] = proof.rates if found is None else found
    # Rates that meet all rows but one still do so where the others have become fewer.
    return _conflict(program, chosen, proof.rates, [needed[int(j)] for j in np.flatnonzero(chosen)])


def _narrowed(program: Program, chosen: BoolArray, proof: Proof) -> tuple[BoolArray, Array]:
    """Return the rows that a proof uses, and multipliers among all rows.

    Where the proof rests on bounds that other rows imply, its rows may not conflict by themselves; then all
    stay.
    """
    y = np.zeros(len(chosen))
    y[chosen] = proof.multipliers
    fewer = y > 0.0
    if np.array_equal(fewer, chosen):
        return chosen, y
    own = _only(program, fewer)
    if Tangents(own, proof.rates).bound(_normal(own, y[fewer])) > CERTAIN:
        return fewer, y
    found = _search(program, fewer)
    if not isinstance(found, Proof):
        return chosen, y
    y = np.zeros(len(chosen))
    y[fewer] = found.multipliers
    return fewer, y


def _without_implied(program: Program) -> Program:
    """Return the program without the bounds that rows imply."""
    implied = implied_upper(program.rows, program.lower, np.full(len(program), np.inf))
    return replace(program, upper=np.where(program.upper >= implied, np.inf, program.upper))


def _only(program: Program, chosen: BoolArray) -> Program:
    """Return the program under some of the rows."""
    rows = program.rows.only(chosen)
    # Bounds wider than the rows imply are as good, and leave room for rates also where a row leaves none.
    with np.errstate(all="ignore"):
        needed = rows.used(program.lower)
    wider = np.where(np.isfinite(needed), np.maximum(rows.limits, needed), rows.limits) + np.abs(rows.limits)
    upper = implied_upper(replace(rows, limits=wider), program.lower, program.upper)
    return replace(program, rows=rows, upper=np.maximum(program.lower, upper))


def _search(
    program: Program, chosen: BoolArray, near: float = 0.5, *, start: Array | None = None
) -> Proof | Array | None:
    """Return a proof, or rates that meet the rows.

    None where nothing is certain. The proof is taken once the least violation is known to a share `near`
    of itself. The search begins near the rates `start`, if any.
    """
    own = _only(program, chosen)
    if not len(own.rows):
        return own.lower
    sizes = row_sizes(own, np.maximum(own.typical, own.lower))
    least = np.inf
    for point in interior_path(own, sizes, None if start is None else inside_bounds(own, start)):
        if bool(np.all(point.used <= own.rows.limits + MET * sizes)):
            return point.rates
        if point.t > 0.0 and point.gap < near * point.t and point.gap < 0.7 * least:
            least = point.gap
            proof = _sparse(own, point.multipliers, point.rates, tangents=point.gap > _CLOSE * point.t)
            if proof is not None:
                return proof
    return None if start is None else _search(program, chosen, near)


def lower_bound(program: Program, multipliers: Array, rates: Array) -> float:
    """Return D(y)'s proved lower bound, from any rates within their bounds.

    Σ y (G − b) at the rates, less what the sources' best responses can save.
    """
    gap = RowGap.of(program, rates)
    paid = multipliers > 0.0
    excess = multipliers[paid] * (gap.used - program.rows.limits)[paid]
    terms = gap.source_terms(multipliers)
    far = np.flatnonzero(~np.isfinite(terms))
    if len(far):
        terms[far] = _endless(Lagrangian.at(program, multipliers).take(far), rates[far])
    least = exact_sum([*excess, -float(np.sum(terms))])
    return least if np.isfinite(least) else -np.inf


def _endless(own: Lagrangian, rates: Array) -> Array:
    """Return φ(ρ) less its infimum, of sources that pay nothing."""
    most = np.minimum(own.program.upper, LARGEST)
    saved = np.zeros(len(rates))
    for weights, curve in own.parts:
        each = curve.cost(rates) - curve.cost(most)
        saved += each if weights is None else weighted(weights, each)
    return np.where((own.price == 0.0) & (own.slope(most) <= 0.0), saved, np.inf)


def _sparse(program: Program, multipliers: Array, rates: Array, *, tangents: bool) -> Proof | None:
    """Return multipliers of few rows that prove the conflict.

    Rows are dropped, from the least weight on, while tangents at the rates prove that the others conflict.
    Where they prove nothing, best responses may, unless `tangents` alone are asked for.
    """
    sizes = row_sizes(program, np.maximum(program.typical, program.lower))
    weight = multipliers * sizes
    if not np.isfinite(weight).all() or not weight.any():
        return None
    at = Tangents(program, rates)
    y = _normal(program, multipliers)
    d = at.bound(y)
    if not d > CERTAIN:
        return None if tangents else _sparse_by_responses(program, multipliers, weight, rates)
    for j in np.argsort(weight, kind="stable"):
        fewer = y.copy()
        fewer[j] = 0.0
        if not fewer.any():
            break
        fewer = _normal(program, fewer)
        found = at.bound(fewer)
        if found > CERTAIN:
            y, d = fewer, found
    return Proof(y, d, rates)


def _sparse_by_responses(program: Program, multipliers: Array, weight: Array, rates: Array) -> Proof | None:
    """Return multipliers that prove the conflict by best responses."""
    best = None
    for share in _SHARES:
        y = _normal(program, np.where(weight > share * np.max(weight), multipliers, 0.0))
        d = lower_bound(program, y, rates)
        if d > CERTAIN:
            best = Proof(y, d, rates)
        elif best is not None:
            break
    return best


def _normal(program: Program, multipliers: Array) -> Array:
    """Return multipliers with Σ y|b| = 1."""
    sizes = row_sizes(program, np.maximum(program.typical, program.lower))
    return multipliers / float(np.dot(multipliers, sizes))


def responses_to_rows(program: Program, multipliers: Array) -> Array:
    """Return rates to prove a conflict at: best responses, finite."""
    rates = Lagrangian.at(program, multipliers).best_response()
    return np.where(np.isfinite(rates), rates, program.typical)


def _conflict(program: Program, chosen: BoolArray, near: Array, others: list[Array]) -> Conflict | None:
    """Return the conflict of an irreducible set.

    Searches begin at the rates `near` of a proof, and for each row at those of `others`, that meet the rest.
    """
    proof = _search(program, chosen, _SHARP, start=near)
    if not isinstance(proof, Proof):
        proof = _search(program, chosen)
    if not isinstance(proof, Proof):
        return None
    y, d = proof.multipliers, proof.excess
    own = _only(program, chosen)
    rows = own.rows
    enough = np.array([_sufficient(program, chosen, k, start) for k, start in enumerate(others)])
    below, above = _bounds_used(program, chosen, y)
    return Conflict(
        labels=rows.labels,
        limits=tuple(rows.declared(rows.limits).tolist()),
        at_least=tuple((rows.direction < 0.0).tolist()),
        weights=tuple(y.tolist()),
        excess=d,
        sufficient=tuple(rows.declared(enough).tolist()),
        min_rates=tuple(below.tolist()),
        max_rates=tuple(above.tolist()),
    )


def _sufficient(program: Program, chosen: BoolArray, position: int, start: Array) -> float:
    """Return the least limit of one row that suffices.

    It is G_j at rates that meet the others, and within `_LIMIT` of the shortage of what the dual bounds.
    """
    others = chosen.copy()
    others[np.flatnonzero(chosen)[position]] = False
    rows = program.rows.only(chosen)
    alone = _only(program, others)
    own = replace(alone, rows=rows)
    level = np.zeros(len(rows))
    limit = float(rows.limits[position])
    level[position] = row_sizes(own, own.typical)[position]
    sizes = row_sizes(own, np.maximum(own.typical, own.lower))
    best, fixed = np.inf, level == 0.0
    for point in interior_path(own, level, inside_bounds(own, start)):
        if bool(np.all((point.used <= rows.limits + MET * sizes)[fixed])):
            best = min(best, float(point.used[position]))
            if point.gap * level[position] <= _LIMIT * abs(best - limit):
                y = point.multipliers * level[position] / float(np.dot(level, point.multipliers))
                short = best - limit - _LIMIT * abs(best - limit)
                if Tangents(own, point.rates).bound(y) >= short or lower_bound(own, y, point.rates) >= short:
                    break
    return best


def _bounds_used(program: Program, chosen: BoolArray, y: Array) -> tuple[IntArray, IntArray]:
    """Return the sources on whose bounds a proof rests, weightiest first."""
    whole = replace(program, rows=program.rows.only(chosen))
    at = Lagrangian.at(whole, y)
    rise = at.slope(np.maximum(program.lower, np.finfo(float).tiny)) * program.lower
    finite = np.isfinite(program.upper)
    fall = np.where(finite, -at.slope(np.where(finite, program.upper, 1.0)) * program.upper, 0.0)
    return _largest(rise), _largest(fall)


def _largest(weight: Array) -> IntArray:
    """Return where weights are positive and no rounding, the largest first."""
    weight = np.where(np.isfinite(weight), weight, 0.0)
    order = np.argsort(-weight, kind="stable")
    return order[weight[order] > CERTAIN]
