"""A hull of cost curves and points, declared in CVXPY.

ρ is cut into parts, one for each arc of the curve and each segment between its start and its end. Since the
hull is convex, the parts fill up from the steepest on, and the hull is the sum of what they save: H(ρ) = H(0)
+ Σ (H(start_i + x_i) − H(start_i)), with the parts x_i ≥ 0 no longer than their pieces. Arcs are the
objective's own declaration at start + x, segments are lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from freshopt.cvx import Expression, cp
from freshopt.heavy import sparse
from freshopt.modelling.cost_curve import CurveObjective
from freshopt.modelling.objective import ConeForm
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.separable.hull_numerics import HullNumerics


class _Piece(NamedTuple):
    """One arc or segment of each source's hull.

    - `start`, `length` (n,): Of sources that have no such piece the length is 0, and the start a rate > 0.
    - `slope` (n,): −H' on a segment; None on an arc.
    - `first` (n,): Whether it begins at the rate 0.
    """

    start: Array
    length: Array
    slope: Array | None
    first: BoolArray


def _pieces(hull: HullNumerics) -> Iterator[_Piece]:
    """Yield arcs and segments from left to right.

    Before each corner there are the arc from the end of the last segment and the segment to the corner; after
    it the segment that leaves it, unless it is the next corner's.
    """
    n = hull.left.shape[1]
    begin, nowhere = np.zeros(n), np.zeros(n, dtype=np.bool_)
    for k, own in enumerate(hull.rate):
        corner = np.isfinite(hull.left[k])
        start = np.where(corner, begin, own)
        yield _Piece(start, np.where(corner, hull.left[k] - start, 0.0), None, corner & (begin == 0.0))
        later = corner & np.any(hull.left[k + 1 :] == own, axis=0)
        for some, at, end, slope in (
            (corner, hull.left[k], np.full(n, own), hull.most_price[k]),
            (corner & ~later, np.full(n, own), hull.right[k], hull.least_price[k]),
        ):
            length = np.where(some, end - at, 0.0)
            yield _Piece(np.where(some, at, own), length, np.where(length > 0.0, slope, 0.0), nowhere)
        begin = np.where(corner, np.where(later, own, hull.right[k]), begin)
    yield _Piece(begin, np.full(n, np.inf), None, begin == 0.0)


def declared_hull(
    objective: CurveObjective, hull: HullNumerics, rate: Expression, sources: Sources
) -> tuple[Expression, list[Expression]]:
    """Return the hull of each source as a CVXPY expression.

    With it come the constraints on its parts.

    - `objective`: Of which `hull` is the hull.
    - `rate` cvxpy expression, affine (n,)
    """
    sign, n = (1.0 if objective.sense == "minimise" else -1.0), len(sources)
    parts: list[Expression] = []
    constraints: list[Expression] = []
    total: Any = 0.0
    for start, length, slope, first in _pieces(hull):
        x = cp.Variable(n, nonneg=True)
        parts.append(x)
        if not bool(np.all(np.isinf(length))):
            constraints.append(x <= np.maximum(length, 0.0))
        if slope is not None:
            total = total - cp.multiply(sign * slope, x)
            continue
        written = objective.per_source(start + x, sources)
        value, cones = written if isinstance(written, tuple) else (written, [])
        constraints.extend(cones)
        total = total + value - np.where(first, 0.0, _declared_at(objective, hull, start))
    constraints.append(sum(parts[1:], parts[0]) == rate)
    return total, constraints


def _declared_at(objective: CurveObjective, hull: HullNumerics, rate: Array) -> Array:
    """Return the curve's declared value, any number at rate 0."""
    at = np.where(rate > 0.0, rate, 1.0)
    gain = hull.curve.gain(at)
    cost = hull.curve.cost(at)
    if objective.sense == "minimise":
        return cost
    return -cost if gain is None else gain


def hull_cone_form(
    objective: CurveObjective, hull: HullNumerics, y: Expression, sources: Sources, typical: Array
) -> ConeForm | None:
    """Return a well-conditioned cone form of the hull's total, or None.

    It is right up to a constant. Each arc is a source of its own in the objective's cone form, typically at
    the rate of the arc that is nearest to the source's.
    """
    sign, n = (1.0 if objective.sense == "minimise" else -1.0), len(sources)
    arcs: list[tuple[IntArray, Array, Array]] = []
    segments: list[tuple[IntArray, Array, Array]] = []
    for start, length, slope, _ in _pieces(hull):
        some = np.flatnonzero(length > 0.0)
        if len(some):
            if slope is None:
                arcs.append((some, start[some], length[some]))
            else:
                segments.append((some, slope[some], length[some]))
    source, start, length = (np.concatenate(column) for column in zip(*arcs, strict=True))
    scale = np.clip(typical[source], np.maximum(start, 1e-3 * typical[source]), start + length)
    x = cp.Variable(len(source), nonneg=True)
    made = objective.cone_form(start / scale + x, sources.take(source), scale)
    if made is None:
        return None
    total, constraints = made
    short = np.flatnonzero(np.isfinite(length))
    constraints = [*constraints, x[short] <= length[short] / scale[short]]
    used = [_sums(source, scale / typical[source], n) @ x]
    if segments:
        at, slope, width = (np.concatenate(column) for column in zip(*segments, strict=True))
        z = cp.Variable(len(at), nonneg=True)
        total = total - sign * (slope * typical[at]) @ z
        constraints.append(z <= width / typical[at])
        used.append(_sums(at, np.ones(len(at)), n) @ z)
    return total, [*constraints, sum(used[1:], used[0]) == y]


def _sums(source: IntArray, weight: Array, n: int) -> Any:  # noqa: ANN401 - a sparse matrix
    """Return the matrix that adds up parts by source, shape (n, parts)."""
    return sparse.csr_array((weight, (source, np.arange(len(source)))), shape=(n, len(source)))
