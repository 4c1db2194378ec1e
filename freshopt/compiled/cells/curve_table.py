"""Cells of cost curves that are tables: lines and parabolas between rates.

A column is a piece of a convex curve J(x), x = ρ/d in units of the source's scale d: its right end, the cost
and the marginal value m = −J' there, the curvature k, and the marginal value at its left end. With
u = right − x,

    J = cost + u·(m + k·u/2),  −J' = m + k·u,

and as much from the end of the piece before, whichever is nearer: less cancels where costs change sign. The
last piece is what follows the last rate: a line from there on. Where pieces meet, marginal values may jump:
at a kink that beyond it counts. One table has the pieces of all curves, and a source has `count` of them from
`first` on. Its rows are these five numbers, and the halvings that find one among `count` pieces.

**Reach.** Best responses to the price, raised and lowered by its rounding, lie on both sides of the true one.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.proof_functions import HALF_ULP, Excess, ProofCell, Values
from freshopt.numerics.arrays import Array

# A cost per rate, products and the sum lose a few half-ulps each, and a place in a piece two of the rate.
ROUNDING = 32.0 * HALF_ULP
PLACED = 4.0 * HALF_ULP


def pieces_before(x: float, first: float, count: float, table: Array) -> float:
    """Return how many of a source's pieces end at x or before."""
    low, high = first, first + count - 1.0
    for _ in range(np.int64(table[5, 0])):
        middle = np.floor(0.5 * (low + high))
        before = (table[0, np.int64(middle)] <= x) & (low < high)
        low = middle + 1.0 if before else low
        high = high if before else max(middle, low)
    return low - first


def pieces_above(price: float, first: float, count: float, table: Array) -> float:
    """Return how many of a source's pieces begin above a price."""
    low, high = first, first + count - 1.0
    for _ in range(np.int64(table[5, 0])):
        middle = np.floor(0.5 * (low + high))
        above = (table[4, np.int64(middle)] > price) & (low < high)
        low = middle + 1.0 if above else low
        high = high if above else max(middle, low)
    return low - first


def curve_response(worth: float, d: float, first: float, count: float, table: Array) -> float:
    """Return the rate at which the marginal value falls to λ/w."""
    price = d / worth
    place = pieces_above(price, first, count, table)
    row = np.int64(first + max(place - 1.0, 0.0))
    bend, end = table[3, row], table[0, row]
    short = max(price - table[2, row], 0.0)
    x = max(end - short / bend, 0.0) if (short > 0.0) & (bend > 0.0) else end
    return d * x if place > 0.0 else 0.0


def curve_values(rate: float, w: float, d: float, first: float, count: float, table: Array) -> Values:
    """Return J and w·m/d."""
    x = rate / d
    place = pieces_before(x, first, count, table)
    row = np.int64(first + place)
    before = np.int64(first + max(place - 1.0, 0.0))
    u, marginal, bend = table[0, row] - x, table[2, row], table[3, row]
    here = marginal + bend * u
    lost = PLACED * bend * x / abs(here) if bend > 0.0 else 0.0
    t = x - table[0, before]
    ahead = table[1, row] + u * (marginal + 0.5 * bend * u)
    behind = table[1, before] - t * (table[4, row] - 0.5 * bend * t)
    nearer = (place > 0.0) & (t < u)
    return behind if nearer else ahead, 0.0, (w / d) * here, ROUNDING + lost


def curve_reach(
    rate: float, w: float, excess: Excess, d: float, first: float, count: float, table: Array
) -> float:
    """Return the distance to best responses around the price."""
    _, paid, rises, falls = excess
    most = curve_response(w / (paid * (1.0 - ROUNDING)), d, first, count, table)
    least = curve_response(w / (paid * (1.0 + ROUNDING)), d, first, count, table)
    up, down = most - rate if rises else 0.0, rate - least if falls else 0.0
    return max(up, down, 0.0) + 2.0 * PLACED * (rate + most)


CURVE = ProofCell(curve_values, curve_reach)
