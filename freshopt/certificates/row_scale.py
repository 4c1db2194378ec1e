"""Relative gap of a program: compared with what is at stake.

With h the rates half-way to the lower bounds, h = (ρ + lo)/2, and d the doubled ones, d = min(2ρ, hi), at
stake are

    P = Σ_j y_j p_j,   p_j = min(|b_j|, max(2(b_j − G_j(h)), b_j − G_j(d), 0)),   and
    H = min(|F|, max(|F(h) − F|, |F(d) − F|)).

A gap g is relative to P + H. No constant that a row or a cost carries on both sides changes 2(b − G(h)), b −
G(d) or F(h) − F, so none can hide a loss; and no choice of multipliers can. For d(y) ≤ F(x) − Σ y (b − G(x))
at every x within the bounds, and g ≥ F(ρ) − d(y), whence

    Σ_j y_j (b_j − G_j(x))  ≤  F(x) − F(ρ) + g.

Where all rows rise (budgets), x = h gives P ≤ 2(H' + g) with H' = F(h) − F, what halving all rates loses:
rates that lose δ·H' have a relative gap of at least δ/(3 + 2δ), as in `freshopt.certificates.relative_gap`.
Where all fall (targets and reserves), x = d gives P ≤ H'' + g with H'' = F(d) − F, what doubling all rates
costs. A spend c·ρ has no constant and H'' ≤ F: rates that spend δ·F too much have a relative gap of at least
δ/(2 + δ).

Rows of both kinds that nearly conflict have prices of any size: none of h and d meets all of them. There x
has to be inside all rows, a central point of the feasible set; it gives Σ y (b − G(x)) + min(|F|, |F(x) −
F|), and the smaller of the two scales is taken. Finding one takes longer than a solve, and is needed only
where prices hide something: while P ≤ 8(H + g), rates that lose δ·H have a relative gap g/(P + H) of at least
δ/(9 + 8δ) whatever the rows, and P + H is the scale.

Limits are met to a few ulp, which have a price too; where that is no small part of the scale, a gap up to it
is rounding, and nothing finer can be proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from freshopt.certificates.relative_gap import MENTIONED, NOTHING, RelativeGap, ratio
from freshopt.certificates.row_gap import RowGap
from freshopt.errors import list_offenders
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import Array

# Prices of rows up to this multiple of H + g hide no loss. Of 60 planted programs of opposing rows, a tenth
# have prices above it.
_OPEN = 8.0


def relative_row_gap(
    gap: RowGap,
    multipliers: Array,
    gap_bound: float | None = None,
    inside: Callable[[], Array | None] | None = None,
) -> RelativeGap:
    """Return a gap relative to what is at stake.

    - `multipliers` (m,): y ≥ 0.
    - `gap_bound`: The gap at these multipliers, where it is known.
    - `inside`: Returns central rates where there are rows of both kinds, else None; not rates near the
      optimum, beside which nothing is at stake. Called only where prices may hide a loss.
    """
    with np.errstate(all="ignore"):
        gap_bound = gap.at(multipliers) if gap_bound is None else gap_bound
        y = gap.admissible(multipliers)

        def staked() -> float:
            priced, changed = _stakes(gap, y)
            scale = priced + changed
            if inside is None or priced <= _OPEN * (changed + gap_bound):
                return scale
            central = inside()
            return scale if central is None else min(scale, _central(gap, y, central))

        return relative_to_stakes(gap.program.rows.labels, gap.cost, gap.limits, y, gap_bound, staked)


def relative_to_stakes(
    labels: Sequence[str], cost: float, limits: Array, y: Array, gap_bound: float, staked: Callable[[], float]
) -> RelativeGap:
    """Return a gap relative to |F| + Σ y|b|, or to less.

    What is at stake counts if it is less.

    - `labels`: Of the rows.
    - `cost`: F.
    - `limits`, `y` (m,)
    - `gap_bound`: The gap.
    - `staked`: Returns what is at stake; called only where it matters.
    """
    with np.errstate(all="ignore"):
        if not (math.isfinite(gap_bound) and math.isfinite(cost)):
            return NOTHING
        paid = np.where(y > 0.0, y * np.abs(limits), 0.0)
        amount = float(np.sum(paid))
        scale = abs(cost) + amount
        if gap_bound > FEW_ULP * scale:
            scale = min(scale, staked())
        rounding = FEW_ULP * amount
        if rounding <= MENTIONED * scale:
            return RelativeGap(ratio(gap_bound, scale), ratio(gap_bound, scale), "")
        names = [labels[j] for j in np.argsort(-paid, kind="stable")[: len(paid)] if paid[j]]
        reason = (
            f"limits are so tight that rounding has a price, of {list_offenders(names)}: there a gap is"
            " rounding of the limit, nothing finer can be proved."
        )
        beyond = max(0.0, gap_bound - rounding)
        return RelativeGap(ratio(max(gap_bound, rounding), scale), ratio(beyond, scale), reason)


def _stakes(gap: RowGap, y: Array) -> tuple[float, float]:
    """Return P and H."""
    program, rates = gap.program, gap.rates
    fewer = RowGap.of(program, 0.5 * (rates + program.lower))
    more = RowGap.of(program, np.minimum(2.0 * rates, program.upper))
    return stakes_of(gap.cost, gap.limits, y, (fewer.cost, fewer.used), (more.cost, more.used))


def stakes_of(
    cost: float, limits: Array, y: Array, fewer: tuple[float, Array], more: tuple[float, Array]
) -> tuple[float, float]:
    """Return P and H from sums at halved and doubled rates."""
    free = np.fmax(np.fmax(2.0 * (limits - fewer[1]), limits - more[1]), 0.0)
    staked = float(np.sum(np.where(y > 0.0, y * np.minimum(np.abs(limits), free), 0.0)))
    changes = [abs(other - cost) for other in (fewer[0], more[0])]
    known = [change for change in changes if not math.isnan(change)]
    return staked, min([abs(cost), max(known)] if known else [abs(cost)])


def _central(gap: RowGap, y: Array, inside: Array) -> float:
    """Return what is at stake between the rates and central ones."""
    other = RowGap.of(gap.program, inside)
    free = np.where(y > 0.0, y * np.maximum(0.0, gap.limits - other.used), 0.0)
    scale = float(np.sum(free)) + min(abs(gap.cost), abs(other.cost - gap.cost))
    return scale if math.isfinite(scale) and bool(np.all(other.used <= gap.limits)) else math.inf
