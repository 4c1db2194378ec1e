"""Best responses of sources and their proofs, from tables of qualities.

A price v per crawl and change has the threshold V(η) = v and the rate 1/ψ(η). Rates are found by the rows of
`freshopt.noisy_signals.quality_rows`, and not trusted: a proof takes any rate x and price, and the rows'
proved error ε of V. J is the conjugate of V: J(x) = max η − x·V(η), where ψ(η) = 1/x. So for any η in the row
of which the ends have lengths below and above 1/x, with V̂'' ≥ −κ in t,

    η − x·(V̂ + ε)  ≤  J(x)  ≤  η − x·(V̂ − ε) + e,    e = |h − xV̂'| + xκ/2.

A source adds to the gap no more than the right side and xv less one of two bounds on min J + xv:

  - any η with V̂(η) + ε ≤ v: close to what rates from prices cost;
  - the left side, a line on or below J, at the rates between those of the ends of v's row, clipped to the
    source's bounds: exact where it is at one of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.noisy_signals.quality_rows import CONCAVE, ETA, LENGTH, OFF, VALUE, WIDTH
from freshopt.numerics.arrays import Array, IntArray

# Cells of an octave of V in which a row is looked for: mantissas' first two bits.
SHIFT = 47
# Sources whose use is summed as one.
BLOCK = 4096
# V of an end is right to this, relatively; η, and what is made of it, to a few ulp.
NEAR, ULP = 1e-11, 4e-15
# V is sought below a price by so many errors of V: what a bound loses.
BELOW = 1.5


class Tabled(NamedTuple):
    """Sources and the tables of their qualities.

    - `w`, `d` (n,): Importances and change rates.
    - `codes` (n,): Each source's quality; −1 for none.
    - `most`: V from which on a source is not crawled.
    """

    w: Array
    d: Array
    codes: IntArray
    most: float
    heads: IntArray
    places: IntArray
    rows: Array


def cell_of(value: float) -> int:
    """Return the number of a value's cell."""
    return int(np.float64(value).view(np.int64) >> SHIFT)


def row_of(value: float, head: IntArray, places: IntArray, rows: Array) -> int:
    """Return the row with a value, or −1."""
    first, last = head[0], head[1]
    if not (rows[first, VALUE] <= value < rows[last, VALUE]):
        return -1
    at = places[head[2] + cell_of(value) - head[3]]
    while rows[at + 1, VALUE] <= value:
        at += 1
    return int(at)


def place_of(value: float, row: Array) -> float:
    """Return about the t where a row has a value.

    One of Newton's steps from a root of the first three coefficients is right to 1e-5 or better.
    """
    missing = value - row[VALUE]
    slope, turn = row[3], row[4]
    t = 2.0 * missing / (slope + np.sqrt(slope * slope + 4.0 * turn * missing))
    off, rise = ends_at(t, row)
    t += (value - off) / rise
    found: float = min(1.0, max(0.0, t))
    return found


def ends_at(t: float, row: Array) -> tuple[float, float]:
    """Return V and its derivative in t."""
    value = row[VALUE] + t * (row[3] + t * (row[4] + t * (row[5] + t * (row[6] + t * row[7]))))
    slope = row[3] + t * (2.0 * row[4] + t * (3.0 * row[5] + t * (4.0 * row[6] + t * 5.0 * row[7])))
    return value, slope


def answer(k: int, paid: float, own: Tabled) -> float:
    """Return the best response of a source; NaN without a table."""
    value, code = paid * own.d[k] / own.w[k], own.codes[k]
    if value >= own.most:
        return 0.0
    at = row_of(value, own.heads[code], own.places, own.rows) if code >= 0 else -1
    if at < 0:
        return np.nan
    row = own.rows[at]
    rate: float = own.d[k] * row[WIDTH] / ends_at(place_of(value, row), row)[1]
    return rate


def respond(begin: int, end: int, paid: Array, own: Tabled, rate: Array) -> None:
    """Write best responses; NaN where no table has them."""
    for k in range(begin, end):
        rate[k] = answer(k, paid[k], own)


def fill(
    begin: int,
    end: int,
    price: float,
    cost: Array,
    lower: Array,
    upper: Array,
    own: Tabled,
    rate: Array,
    used: Array,
) -> None:
    """Write best responses within bounds, and what each BLOCK uses.

    NaN where no table has them.
    """
    for block in range(begin, end):
        total = 0.0
        for k in range(block * BLOCK, min(len(rate), (block + 1) * BLOCK)):
            free = answer(k, price * cost[k], own)
            rate[k] = min(upper[k], max(lower[k], free)) if free == free else free
            total += cost[k] * rate[k]
        used[block] = total


def prove(
    begin: int,
    end: int,
    rates: Array,
    paid: Array,
    lower: Array,
    upper: Array,
    tabled: Tabled,
    cost: Array,
    gap: Array,
    halving: Array,
) -> None:
    """Write bounds on costs, gaps, and what half the rates lose.

    NaN where no table has them. The last is at least ½xV, as J is convex.
    """
    w, d, codes, most, heads, places, rows = tabled
    for k in range(begin, end):
        cost[k] = gap[k] = halving[k] = np.nan
        code, value = codes[k], paid[k] * d[k] / w[k]
        if rates[k] == 0.0 and value >= most * (1.0 + NEAR) and most < np.inf:
            cost[k], gap[k], halving[k] = w[k], 0.0, 0.0
            continue
        if code < 0 or not (rates[k] > 0.0 and value < np.inf):
            continue
        head = heads[code]
        own = row_of(value, head, places, rows)
        if own < 0:
            continue
        length, at, x = d[k] / rates[k], own, rates[k] / d[k]
        if not (rows[at, LENGTH] <= length <= rows[at + 1, LENGTH]):
            first, last = head[0], head[1]
            if not (rows[first, LENGTH] <= length <= rows[last, LENGTH]):
                continue
            while last - first > 1:
                middle = (first + last) // 2
                first, last = (middle, last) if rows[middle, LENGTH] <= length else (first, middle)
            at = first
        row = rows[at]
        h, off = row[WIDTH], row[OFF]
        t = place_of(value, row) if at == own else 0.5
        for _ in range(2 if at == own else 8):
            # Newton's step to the row's own V̂' = 1/x; whatever t is, all below holds.
            bend = 2.0 * row[4] + t * (6.0 * row[5] + t * (12.0 * row[6] + t * 20.0 * row[7]))
            if bend > 0.0:
                t = min(1.0, max(0.0, t + (h * length - ends_at(t, row)[1]) / bend))
        found, slope = ends_at(t, row)
        eta = row[ETA] + t * h
        apart = abs(h - x * slope) + 0.5 * x * row[CONCAVE] + ULP * eta
        # The ends of v's row, and the next ones where v is an end but for rounding.
        low = rows[own - 1 if own > head[0] and value * (1.0 - NEAR) <= rows[own, VALUE] else own, LENGTH]
        beyond = own + 1 < head[1] and value * (1.0 + NEAR) >= rows[own + 1, VALUE]
        high = rows[own + 2 if beyond else own + 1, LENGTH]
        least, limit = lower[k] / d[k], upper[k] / d[k]
        more = min(limit, max(least, (1.0 + NEAR) / low)) - x
        less = x - min(limit, max(least, (1.0 - NEAR) / high))
        beside = 2.0 * x * off + apart
        beside += max(0.0, found + off - value) * max(0.0, more) + max(0.0, value - found + off) * max(
            0.0, less
        )
        # Newton's next step from where V̂ is the price leads to V̂ + ε below it.
        given = rows[own]
        s = t if at == own else place_of(value, given)
        for _ in range(2):
            reached, rise = ends_at(s, given)
            s = min(1.0, max(0.0, s + (value - BELOW * given[OFF] - reached) / rise))
        term = eta - (given[ETA] + s * given[WIDTH]) + x * (value - found + off) + apart + ULP * eta
        if not (ends_at(s, given)[0] + given[OFF] <= value and term < beside):
            term = beside
        cost[k], gap[k] = w[k] * (eta - x * (found - off) + apart), w[k] * term
        halving[k] = w[k] * 0.5 * x * max(0.0, found - off)


def coded(
    begin: int, end: int, recall: Array, precision: Array, slots: IntArray, codes: IntArray, seen: IntArray
) -> None:
    """Write each source's quality, and first sources to `seen`.

    −1 where there is no noise, or room for no more qualities. The last entry of `seen` is their number.
    """
    many, size = len(seen) - 1, len(slots)
    for k in range(begin, end):
        codes[k] = -1
        r, p = recall[k], precision[k]
        if not (0.0 < r < 1.0):
            continue
        mixed = np.float64(r + 3.7 * p).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        slot = int(np.uint64(mixed >> np.uint64(32))) % size
        while slots[slot] >= 0:
            one = seen[slots[slot]]
            if recall[one] == r and precision[one] == p:
                break
            slot = (slot + 1) % size
        if slots[slot] < 0:
            if seen[many] == many:
                continue
            slots[slot] = seen[many]
            seen[seen[many]] = k
            seen[many] += 1
        codes[k] = slots[slot]


def spans(
    begin: int,
    end: int,
    paid: Array,
    w: Array,
    d: Array,
    codes: IntArray,
    low: Array,
    high: Array,
    counts: IntArray,
) -> None:
    """Widen qualities' values by those of their sources, and count them."""
    for k in range(begin, end):
        code, value = codes[k], paid[k] * d[k] / w[k]
        if code >= 0 and 0.0 < value < np.inf:
            low[code], high[code] = min(low[code], value), max(high[code], value)
            counts[code] += 1
