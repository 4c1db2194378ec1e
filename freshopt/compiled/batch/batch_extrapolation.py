"""Rates at a price beside three others, from the rates at these.

Best responses are smooth in the price, but for the few sources that cross a bound or jump. After three
evaluations of a problem its price is known to 1e-7 or better, and a source's rate is that of the parabola
through its last three, at a fifth of what an evaluation by tables costs. The parabola is one in y, by which
1/√price is larger than at the newest point: rates that fall as the root of the price are on a line in it, and
those that fall as the price on a parabola. Sources whose rates are on no parabola are evaluated themselves,
so that where demand jumps the search goes on among them alone. A rate's error enters the gap by its square,
and the proof tells what it is.
Imported by `freshopt.compiled.batch.batch_loops` alone.
"""

from __future__ import annotations

import math

from freshopt.compiled.batch.batch_records import Bracket
from freshopt.compiled.column_access import at, part
from freshopt.compiled.column_passes import Respond, added, piece_used
from freshopt.compiled.source_columns import SourceColumns
from freshopt.numerics.arrays import IN_TURN, PIECE, Array

# The product of the three distances, in nats: rates are off the parabola by 1/37 of it at most, which is what
# √(1 + z²) − 1 is at z = 1/√price.
NEAR = 1e-12
# A second divided difference of more times the rate is that of a jump or a kink.
BENT = 32.0
# Steps to the root of a parabola, of which each squares an error of 1e-4 and less.
NEWTON = 4
# So many sources at most are evaluated themselves: one in so many, and a few.
AMONG, FEW = 16, 8


def is_near(b: Bracket, x: float) -> bool:
    """Return whether parabolas through the last three points reach a log price."""
    return abs((x - b.x) * (x - b.x1) * (x - b.x2)) <= NEAR and abs(x - b.x2) <= 1.0


def extrapolated(
    respond: Respond, own: SourceColumns, b: Bracket, x: float, last: tuple[Array, Array, Array], rates: Array
) -> tuple[float, bool]:
    """Write the rates at a log price, and return Σ cost·ρ.

    The second result is whether few sources alone were evaluated. `last` has the rates at the
    bracket's points, the newest first.
    """
    n, odd, inverse_price = len(rates), 0, math.exp(-x)
    u, y1, y2 = relative_root(b, x), relative_root(b, b.x1), relative_root(b, b.x2)
    a, a1, whole, u1 = -1.0 / y1, 1.0 / (y1 - y2), -1.0 / y2, u - y1
    for begin in range(0, n, IN_TURN):
        # In loops that begin at 0: compilers vectorise no others.
        end = min(n, begin + IN_TURN)
        here, some = part(own, begin, end), rates[begin:end]
        now, before, earlier = last[0][begin:end], last[1][begin:end], last[2][begin:end]
        for k in range(len(some)):
            r, r1, r2 = now[k], before[k], earlier[k]
            first = (r - r1) * a
            second = (first - (r1 - r2) * a1) * whole
            lower, upper = at(here.lower, k), at(here.upper, k)
            inside = (r > lower) & (r1 > lower) & (r2 > lower) & (r < upper) & (r1 < upper) & (r2 < upper)
            same = (r == r1) & (r1 == r2)
            value = min(max(r + u * (first + u1 * second), lower), upper)
            value = value if inside & (abs(second) <= BENT * r) else -1.0
            some[k] = r if same else value
        for k in range(len(some)):
            odd += 1 if some[k] < 0.0 else 0
        if odd > FEW + n // AMONG:
            return 0.0, False
        for k in range(len(some)):
            if some[k] < 0.0:
                respond(part(here, k, k + 1), inverse_price, some[k : k + 1])
    return used_by(own, rates), True


def relative_root(b: Bracket, x: float) -> float:
    """Return y, by which 1/√price is larger than at the newest point."""
    return math.expm1(0.5 * (b.x - x))


def parabola_root(b: Bracket) -> tuple[float, float]:
    """Return where the parabola of demand meets the bandwidth.

    The second result is the steepness there. Sums of rates that are on parabolas are on this one. Where
    it has no root both are NaN, or anything.
    """
    g, g1, g2 = math.expm1(b.f), math.expm1(b.f1), math.expm1(b.f2)
    y1, y2 = relative_root(b, b.x1), relative_root(b, b.x2)
    first = (g1 - g) / y1
    second = ((g1 - g2) / (y1 - y2) - first) / y2
    u, slope = 0.0, first - y1 * second
    for _ in range(NEWTON):
        u -= (g + u * (first + (u - y1) * second)) / slope
        slope = first + (2.0 * u - y1) * second
    return b.x - 2.0 * math.log1p(u), 0.5 * (1.0 + u) * slope


def used_by(own: SourceColumns, rates: Array) -> float:
    """Return Σ cost·ρ of given rates.

    It is added in pieces, and these with their rounding errors.
    """
    n, total, lost = len(rates), 0.0, 0.0
    for begin in range(0, n, PIECE):
        total, lost = added(total, lost, piece_used(own, rates, begin, min(n, begin + PIECE)))
    return total + lost
