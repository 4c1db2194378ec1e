"""Sums of the sources' best responses to a price.

Plain steps that compiled loops inline.

`rate` is the demand function of one source, ``rate(signalled, marginal value, parameters)``, and `respond`
writes best responses, ``respond(columns, 1/price, rates)``; both are compiled
into these functions. Sums are added in pieces of `PIECE` sources, and the pieces with their rounding
errors, so that their error does not grow with the number of sources. Imported by `freshopt.compiled.loops`
and what it inlines alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from freshopt.compiled.column_access import at, part
from freshopt.compiled.source_columns import LARGEST_RATE, SourceColumns
from freshopt.numerics.arrays import IN_TURN, PIECE, Array

Rate: TypeAlias = Callable[..., float]
Respond: TypeAlias = Callable[..., None]


def best_response(rate: Rate, columns: SourceColumns, k: int, inverse_price: float) -> float:
    """Return the optimal rate of source k within its bounds."""
    worth = at(columns.importance, k) * inverse_price / at(columns.cost, k)
    unconstrained = rate(at(columns.signalled, k), (worth,), at(columns.parameters, k))
    return bounded(unconstrained, at(columns.lower, k), at(columns.upper, k))


def bounded(unconstrained: float, lower: float, upper: float) -> float:
    """Return a rate within bounds.

    One without bound counts as one beyond all limits, whose cost is finite.
    """
    rate: float = min(max(min(unconstrained, LARGEST_RATE), lower), upper)
    return rate


def fill_rates(respond: Respond, columns: SourceColumns, inverse_price: float, rates: Array) -> float:
    """Write best responses to `rates`, and return Σ cost·ρ of them."""
    n, total, lost = len(rates), 0.0, 0.0
    for first in range(0, n, IN_TURN):
        last = min(n, first + IN_TURN)
        respond(part(columns, first, last), inverse_price, rates[first:last])
        # A loop that writes is vectorised only where its arrays lie well apart in memory. Terms are added in
        # one that writes nothing: in which order they are must not depend on addresses.
        for begin in range(first, last, PIECE):
            total, lost = added(total, lost, piece_used(columns, rates, begin, min(last, begin + PIECE)))
    return total + lost


def piece_used(columns: SourceColumns, rates: Array, begin: int, end: int) -> float:
    """Return Σ cost·ρ of some sources, added in lanes."""
    # Compilers vectorise loops that begin at 0, and no others.
    cost, own, some = part(columns.cost, begin, end), rates[begin:end], 0.0
    for k in range(len(own)):
        some += at(cost, k) * own[k]
    return some


def fill_apart(rate: Rate, columns: SourceColumns, inverse_price: float, rates: Array) -> float:
    """Return what `fill_rates` does, sooner, for rates that lie apart.

    Apart from all columns by `PIECE` entries at least: then the loop that writes is always vectorised.
    """
    n, total, lost = len(rates), 0.0, 0.0
    for begin in range(0, n, PIECE):
        end = min(n, begin + PIECE)
        own, piece, some = part(columns, begin, end), rates[begin:end], 0.0
        for k in range(len(piece)):
            piece[k] = best_response(rate, own, k, inverse_price)
            some += at(own.cost, k) * piece[k]
        total, lost = added(total, lost, some)
    return total + lost


def bandwidth_used(columns: SourceColumns, rates: Array) -> float:
    """Return Σ cost·ρ of given rates to the last bit or two."""
    total = lost = 0.0
    for k in range(len(rates)):
        total, lost = added(total, lost, at(columns.cost, k) * rates[k])
    return total + lost


def added(total: float, lost: float, term: float) -> tuple[float, float]:
    """Return a sum with one more term, and its rounding error."""
    following = total + term
    taken = following - total
    return following, lost + ((total - (following - taken)) + (term - taken))
