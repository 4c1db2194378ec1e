"""Pieces of convex curves through points: lines, or parabolas that keep slopes.

Without slopes a curve is the polygon through its points. With slopes two parabolas lie between two points,
with a knot where their tangents meet and the chord's slope there: convex wherever the data are, smooth, and
between chord and tangents, as is every convex function through the same points. Before the first rate and
after the last one it goes on as a line, after the last one as a level one if it was falling.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError
from freshopt.numerics.arrays import LARGEST, Array, read_only

# A chord is off by the rounding of two costs over their distance; so many half-ulps are no bend.
ROUNDED = 16.0 * float(np.finfo(np.float64).eps)
# Pieces of a curve, as many as the compiled search halves.
MOST_PIECES = 2**22


class Points(NamedTuple):
    """Points of one curve, or of n in rows."""

    rates: Array
    costs: Array
    slopes: Array | None

    @classmethod
    def of(cls, given: tuple[npt.ArrayLike, ...]) -> Points:
        """Return points of what was given, checked."""
        try:
            rates, costs, *more = (np.asarray(one, dtype=np.float64) for one in given)
        except (TypeError, ValueError, OverflowError):
            raise ObjectiveError(
                "a table of Curve is not of numbers. Pass (rates, costs) or (rates, costs, slopes)."
            ) from None
        shape = np.shape(costs)
        slopes = more[0] if more else None
        if len(shape) not in (1, 2) or shape[-1] < 2 or np.shape(rates) not in (shape, shape[-1:]):
            raise ObjectiveError(
                f"rates of Curve have shape {np.shape(rates)}, costs {shape}. Give both the shape (points,) "
                "or (n, points), with two points or more."
            )
        if slopes is not None and slopes.shape != shape:
            raise ObjectiveError(f"slopes of Curve have shape {slopes.shape}, costs {shape}. Give both one.")
        found = cls(np.broadcast_to(rates, shape), costs, slopes)
        found._require_numbers()
        return found

    def _require_numbers(self) -> None:
        for what, own in zip(("rate", "cost", "slope"), self, strict=True):
            wrong = np.zeros(0) if own is None else ~(np.abs(own) <= LARGEST)
            if np.any(wrong):
                where = _where(np.argwhere(wrong)[0])
                raise ObjectiveError(
                    f"the {what} at point {where} of Curve is no finite number. Leave that point out; a cost "
                    "without bound is kept away from by min_rate."
                )
        steps = np.diff(self.rates, axis=-1)
        if np.any(self.rates[..., :1] < 0.0) or np.any(steps <= 0.0):
            after = np.argwhere(steps <= 0.0)
            where = _where(after[0]) if len(after) else "0"
            raise ObjectiveError(
                f"rates of Curve at point {where} do not rise from there, or are negative. Sort them, and "
                "drop those that are given twice."
            )


def _where(place: Array) -> str:
    """Return a point in words, with its curve if there are several."""
    own = [int(one) for one in place]
    return f"{own[-1]}" if len(own) == 1 else f"{own[1]} of source {own[0]}"


def chords_of(points: Points) -> Array:
    """Return the chords' slopes, made monotone within rounding.

    - raises ObjectiveError: naming the first three points that are not convex, or the slope that is no
      tangent's.
    """
    x, c, slopes = points
    steps = np.diff(x, axis=-1)
    chords = np.diff(c, axis=-1) / steps
    size = ROUNDED * (np.abs(c[..., 1:]) + np.abs(c[..., :-1])) / steps
    falls = chords[..., 1:] < chords[..., :-1] - size[..., 1:] - size[..., :-1]
    if np.any(falls):
        place = np.argwhere(falls)[0]
        own, k = tuple(place[:-1]), int(place[-1])
        rates, costs = (", ".join(f"{one:.6g}" for one in part[own][k : k + 3]) for part in (x, c))
        raise ObjectiveError(
            f"Curve is not convex at points {_where(place)} to {k + 2}: at rates {rates} the costs "
            f"are {costs}, and the slope falls from {chords[own][k]:.6g} to {chords[own][k + 1]:.6g}. "
            "Correct them, or pass the points of the lower convex hull."
        )
    if slopes is not None:
        above = (slopes[..., :-1] > chords + size) | (slopes[..., 1:] < chords - size)
        if np.any(above):
            place = np.argwhere(above)[0]
            own, k = tuple(place[:-1]), int(place[-1])
            raise ObjectiveError(
                f"slopes of Curve at points {_where(place)} and {k + 1} are {slopes[own][k]:.6g} and "
                f"{slopes[own][k + 1]:.6g}, but the cost changes by {chords[own][k]:.6g} per unit of rate "
                "between them, which must lie between. Correct them, or leave the slopes out."
            )
    rising: Array = np.maximum.accumulate(chords, axis=-1)
    return rising


def error_between(points: Points) -> Array:
    """Return how far a convex function may be below each chord.

    That is to the tangents' crossing where slopes are given, else to that of the next chords.
    """
    chords, steps = chords_of(points), np.diff(points.rates, axis=-1)
    if points.slopes is None:
        end = np.full((*chords.shape[:-1], 1), np.inf)
        before, after = np.append(-end, chords, axis=-1), np.append(chords, end, axis=-1)
        fall, rise = chords - before[..., :-1], after[..., 1:] - chords
    else:
        fall, rise = chords - points.slopes[..., :-1], points.slopes[..., 1:] - chords
    with np.errstate(all="ignore"):
        crossing = np.where((fall > 0.0) & (rise > 0.0), 1.0 / (1.0 / fall + 1.0 / rise), 0.0)
    return np.asarray(steps * crossing)


def pieces_of(points: Points) -> Array:
    """Return the table of `freshopt.compiled.cells.curve_table`, shape (6, n, pieces)."""
    x, c, slopes = (np.empty(0) if one is None else np.atleast_2d(one) for one in points)
    chords, steps = np.atleast_2d(chords_of(points)), np.diff(x, axis=-1)
    level = np.zeros_like(chords)
    if points.slopes is None:
        parts = [(x[:, 1:], c[:, 1:], -chords, level, -chords)]
        first, last = -chords[:, 0], -chords[:, -1]
    else:
        fall, rise = (np.maximum(one, 0.0) for one in (chords - slopes[:, :-1], slopes[:, 1:] - chords))
        with np.errstate(all="ignore"):
            share = np.where(fall + rise > 0.0, rise / (fall + rise), 0.5)
            left, right = share * steps, (1.0 - share) * steps
            bends = [np.where(one > 0.0, by / one, 0.0) for one, by in ((left, fall), (right, rise))]
        knot = c[:, 1:] - right * (chords + 0.5 * rise)
        begin = np.where(left > 0.0, fall, 0.0) - chords
        end = -chords - np.where(right > 0.0, rise, 0.0)
        parts = [
            (x[:, :-1] + left, knot, -chords, bends[0], begin),
            (x[:, 1:], c[:, 1:], end, bends[1], -chords),
        ]
        first, last = -slopes[:, 0], end[:, -1]
    n, many = chords.shape[0], len(parts) * chords.shape[1] + 2
    if many > MOST_PIECES:
        raise ObjectiveError(f"Curve has {x.shape[1]} points, too many for {MOST_PIECES} pieces. Pass fewer.")
    table = np.zeros((6, n, many))
    table[5] = np.ceil(np.log2(many)) + 1.0
    for k, part in enumerate(parts):
        for row, values in enumerate(part):
            table[row, :, 1 + k : -1 : len(parts)] = values
    beyond = np.minimum(last, 0.0)
    table[:5, :, 0] = x[:, 0], c[:, 0], first, level[:, 0], first
    table[:5, :, -1] = x[:, -1], c[:, -1], beyond, level[:, 0], beyond
    # Marginal values never rise; rounding may have them do so by an ulp.
    order = np.stack([table[4], table[2]], axis=-1).reshape(n, -1)
    table[4], table[2] = np.moveaxis(np.minimum.accumulate(order, axis=1).reshape(n, many, 2), -1, 0)
    return read_only(table)
