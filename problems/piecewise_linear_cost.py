"""Piecewise linear convex cost C̄(τ) = max_j(α_j·τ + β_j): deadlines, service levels.

c = C̄' is a step function of the age, and J(ρ) = ρ·C̄(1/ρ) = max_j(α_j + β_j·ρ) is piecewise linear too, so
the whole problem is a linear program. With max_j β_j = 0 a refresh by itself costs nothing, with α ≥ 0
neglect never pays. The marginal value −β_j of the active piece falls in steps: optimal rates sit at the
kinks, and at most one source (or one per binding limit) is between two of them.

**On request**, at request rate ζ, J(ρ) = max_j(α_j·(1 − ρ/ζ) + β_j·ρ) (`freshopt.modelling.request_cell`) has
kinks of its own: pieces whose slopes differ by a and intercepts by b meet at ρ = a/(b + a/ζ) in place of a/b.
Below it the steeper one, j, gains g = α_j/ζ − β_j; the piece with β = 0 gains α/ζ up to ζ, where nothing is
left. All are sums of terms ≥ 0: a kink has the rounding of five operations, a gain that of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from freshopt.compiled.cells.attempt_kinks import ATTEMPT_KINKS, attempt_kinks
from freshopt.compiled.cells.kink_proofs import ABOVE, KINKS, REQUEST_KINKS
from freshopt.compiled.demand_functions import last_kink
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.cone_forms import within_lifetime
from freshopt.modelling.cost_curve import Cell, Curve
from freshopt.modelling.objective import Command, ConeForm, Refresh
from freshopt.modelling.request_cell import RequestForms
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, Index, as_float64, once, read_only, repeated
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import Kernel


def deadline_cost(deadline: npt.ArrayLike) -> PiecewiseLinearCost:
    """Return C̄(τ) = max(0, τ − deadline), of copies older than it."""
    late = np.asarray(deadline, dtype=np.float64)
    if not bool(np.all((late > 0.0) & np.isfinite(late))):
        raise SourceDataError("a deadline is not a number > 0. Correct the column 'deadline'.")
    pieces = np.stack([np.zeros_like(late), -late], axis=-1)
    return PiecewiseLinearCost(np.broadcast_to([0.0, 1.0], pieces.shape), pieces)


@frozen_value()
class PiecewiseLinearCost:
    """Integral cost C̄(τ) = max_j(slopes_j·τ + intercepts_j) of a period τ.

    Parameters
    ----------
    slopes : array_like, shape (pieces,) or (n, pieces)
        α ≥ 0.
    intercepts : array_like, same shape
        β ≤ 0, with a largest of 0 for each source.

    Examples
    --------
    >>> import freshopt as fo
    >>> cost = PiecewiseLinearCost(slopes=[0.0, 1.0], intercepts=[0.0, -2.0])  # the first 2 days are free
    >>> problem = fo.Problem(fo.problems.SynchronizationCost(cost), fo.Sources([1.0, 1.0]), bandwidth=0.75)
    >>> fo.solve(problem).value
    0.5
    """

    slopes: npt.ArrayLike
    intercepts: npt.ArrayLike
    disciplines: ClassVar[tuple[Refresh, ...]] = (Refresh.PERIODIC,)
    commands: ClassVar[tuple[Command, ...]] = (
        Command(
            "deadline",
            "share of time that copies are older than a deadline",
            uses=("deadline",),
            needs=("deadline",),
            make=deadline_cost,
        ),
    )

    def __post_init__(self) -> None:
        """Raise SourceDataError unless the lines are a cost function.

        That there is one row per source, `Problem` finds out.
        """
        _require_lines(*self._lines())

    def __repr__(self) -> str:
        return f"PiecewiseLinearCost({np.shape(self.slopes)[-1]} pieces)"

    def curve(self, sources: Sources) -> Curve:
        """Return the cost curve of the pieces.

        Its one parameter is the (n, 2, pieces) array of α and β.
        """
        return self._curve(len(sources))

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics of periodic refreshes, from the kinks."""
        return KINKED.kernel(sources.column("importance"), _columns_of_kinks(self._pieces(len(sources))))

    def declare(
        self, rate: Expression, sources: Sources, refresh: Refresh
    ) -> tuple[Expression, list[Expression]]:
        """Declare max_j(α_j + β_j·ρ) per source."""
        if refresh is Refresh.POISSON:
            raise ObjectiveError(
                "a piecewise linear cost is defined for periodic refreshes only. Use PERIODIC."
            )
        pieces = self._pieces(len(sources))
        one = within_lifetime(rate, sources) if refresh is Refresh.ON_REQUEST else np.ones(len(sources))
        lines = [
            cp.multiply(np.array(pieces[:, 0, j]), one) + cp.multiply(np.array(pieces[:, 1, j]), rate)
            for j in range(pieces.shape[2])
        ]
        return (cp.maximum(*lines) if len(lines) > 1 else lines[0]), []

    def cone_form(self, y: Expression, sources: Sources, typical: Array, refresh: Refresh) -> ConeForm | None:
        """Return the linear program's total.

        Each source's lines are in units of its largest.
        """
        if refresh is not Refresh.PERIODIC:
            return None
        pieces = self._pieces(len(sources))
        scale = np.maximum(np.max(pieces[:, 0], axis=1), np.max(-pieces[:, 1] * typical[:, None], axis=1))
        scale = np.where(scale > 0.0, scale, 1.0)
        lines = [
            pieces[:, 0, j] / scale + cp.multiply(pieces[:, 1, j] * typical / scale, y)
            for j in range(pieces.shape[2])
        ]
        return (sources.importance * scale) @ (cp.maximum(*lines) if len(lines) > 1 else lines[0]), []

    def never_failing(
        self,
        sources: Sources,  # noqa: ARG002
        success: Array,  # noqa: ARG002
        refresh: Refresh,  # noqa: ARG002
    ) -> None:
        """Return None: periodic attempts make another cost of it."""
        return

    def take(self, index: Index) -> PiecewiseLinearCost:
        """Return the cost of some of the sources."""
        slopes, intercepts = np.asarray(self.slopes), np.asarray(self.intercepts)
        if slopes.ndim == 1:
            return self
        return PiecewiseLinearCost(slopes[index], intercepts[index])

    def _pieces(self, n: int) -> Array:
        """Return α and β as one array of shape (n, 2, pieces)."""
        return self._curve(n).parameters[0]

    def _curve(self, n: int) -> Curve:
        """Return the curve of n sources."""
        slopes, intercepts = self._lines()
        if slopes.ndim == intercepts.ndim == 1:
            return _shared_curve(slopes.tobytes(), intercepts.tobytes(), n)
        _require_lines(slopes, intercepts)
        if len(slopes) != n:
            raise SourceDataError(
                f"PiecewiseLinearCost has {len(slopes)} rows but there are {n} sources. Match them."
            )
        return _curve_of(np.stack([slopes, intercepts], axis=-2))

    def _lines(self) -> tuple[Array, Array]:
        """Return α and β as arrays."""
        try:
            return np.asarray(self.slopes, dtype=np.float64), np.asarray(self.intercepts, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise SourceDataError(
                "PiecewiseLinearCost slopes and intercepts must be numbers. Pass floats."
            ) from None


def _require_lines(slopes: Array, intercepts: Array) -> None:
    """Raise SourceDataError unless lines are a cost function."""
    if slopes.shape != intercepts.shape or slopes.ndim not in (1, 2) or slopes.shape[-1] == 0:
        raise SourceDataError(
            f"PiecewiseLinearCost slopes have shape {slopes.shape}, intercepts {intercepts.shape}. Give "
            f"both the shape (pieces,) or (n, pieces)."
        )
    if not (((slopes >= 0.0) & np.isfinite(slopes)).all() and np.isfinite(intercepts).all()):
        raise SourceDataError("PiecewiseLinearCost slopes must be finite and >= 0. Correct them.")
    if not (intercepts.max(axis=-1) == 0.0).all():
        raise SourceDataError("the largest intercept must be 0, so that C̄(0) = 0. Shift the intercepts.")


@lru_cache(maxsize=64)
def _shared_curve(slopes: bytes, intercepts: bytes, n: int) -> Curve:
    """Return the curve of lines that n sources share, checked once."""
    lines = np.frombuffer(slopes), np.frombuffer(intercepts)
    _require_lines(*lines)
    return _curve_of(np.broadcast_to(np.stack(lines), (n, 2, len(lines[0]))))


def _curve_of(pieces: Array) -> Curve:
    """Return the curve of α and β, shape (n, 2, pieces)."""
    return Curve(
        (pieces,),
        _at,
        _mean,
        _index,
        _inverse_index,
        on_request=RequestForms(ON_REQUEST),
        rate_at=None,
        attempts=ATTEMPTS,
    )


def _columns_of_kinks(pieces: Array, asked: Array | None = None) -> tuple[Array, ...]:
    """Return level and kinks, numbers where sources share their lines."""
    own = pieces[:1] if pieces.strides[0] == 0 else pieces
    with np.errstate(divide="ignore", over="ignore"):
        kinks = _kinks(own) if asked is None else _request_kinks(own, once(as_float64(asked)))
    n = len(pieces)
    return tuple(read_only(each) if 1 < n == len(each) else repeated(float(each[0]), n) for each in kinks)


def _kinks(pieces: Array) -> list[Array]:
    """Return the level that is left, then each kink's ρ and g.

    ρ_j is the best response to prices from g_{j+1} to below g_j, of importance 1.
    """
    level, lines = _active_lines(pieces)
    found: list[Array] = []
    place = np.full(len(pieces), LARGEST)
    for _, lower, rise, fall in lines:
        place = np.minimum(_crossing(rise, fall), place)
        found += [-lower, place]
    return [level, *found[::-1]]


def _request_kinks(pieces: Array, asked: Array) -> list[Array]:
    """Return the same of refreshes on request, with kinks rounded up.

    No level is left.
    """
    (level, lines), place = _active_lines(pieces), asked
    found = [level / asked, asked] if np.count_nonzero(level) else []
    for slope, lower, rise, fall in lines:
        place = np.minimum(_crossing(rise, fall + rise / asked) * ABOVE, place)
        found += [slope / asked - lower, place]
    return [np.zeros(1), *found[::-1]]


def _active_lines(pieces: Array) -> tuple[Array, Iterable[tuple[Array, ...]]]:
    """Return α of the level line, and the highest others.

    As rates fall, next to each is the first of steeper lines to meet it, and itself where none is: its α, its
    β, and by how much these are more and less than the one's before.
    """
    if len(pieces) == 1:
        return _shared_lines(pieces.tobytes(), pieces.shape)
    lines = _highest_lines(pieces)
    return lines[0][0], _differences(lines)


@lru_cache(maxsize=64)
def _shared_lines(pieces: bytes, shape: tuple[int, ...]) -> tuple[Array, Iterable[tuple[Array, ...]]]:
    """Return the same of lines that all sources share, found once."""
    lines = _highest_lines(np.frombuffer(pieces).reshape(shape))
    return lines[0][0], tuple(_differences(lines))


def _differences(lines: list[tuple[Array, Array]]) -> Iterator[tuple[Array, ...]]:
    for (slope, start), (steeper, lower) in pairwise(lines):
        yield steeper, lower, steeper - slope, start - lower


def _highest_lines(pieces: Array) -> list[tuple[Array, Array]]:
    """Return α and β of the level line and the highest others."""
    every = list(zip(*_columns(pieces), strict=True))
    slope, start = reduce(np.maximum, [np.where(b == 0.0, a, 0.0) for a, b in every]), np.zeros(len(pieces))
    found = [(slope, start)]
    for _ in every[: max(1, len(every) - 1)]:
        steeper, lower, rate = slope, start, np.zeros(len(pieces))
        for a, b in every:
            meets = _crossing(a - slope, start - b)
            nearer = (a > slope) & ((meets > rate) | ((meets == rate) & (a > steeper)))
            steeper, lower = np.where(nearer, a, steeper), np.where(nearer, b, lower)
            rate = np.where(nearer, meets, rate)
        slope, start = steeper, lower
        found.append((slope, start))
    return found


def _crossing(rise: Array, fall: Array) -> Array:
    """Return the rate at which lines cross, of the same line 0."""
    if len(rise) == 1:
        return rise / fall if rise[0] > 0.0 else np.zeros(fall.shape)
    return np.divide(rise, fall, out=np.zeros(fall.shape), where=rise > 0.0)


def _at(age: Array, pieces: Array) -> Array:
    """Return the slope of the piece active just below the age."""
    alpha, beta = _columns(pieces)
    # At an infinite age a level piece would be 0·inf.
    age = np.minimum(age, LARGEST)
    heights = [a * age + b for a, b in zip(alpha, beta, strict=True)]
    top = reduce(np.maximum, heights)
    slopes = [np.where(height >= top, a, np.inf) for height, a in zip(heights, alpha, strict=True)]
    slope: Array = reduce(np.minimum, slopes)
    return slope


def _columns(pieces: Array) -> tuple[list[Array], list[Array]]:
    """Return α and β of every piece, shape (n,) each.

    NumPy reduces a short last axis ten times slower than it combines as many columns.
    """
    alpha, beta = ([row[:, j] for j in range(row.shape[1])] for row in (pieces[:, 0], pieces[:, 1]))
    return alpha, beta


def _heights(period: Array, pieces: Array) -> list[Array]:
    """Return α + β/τ of every piece, shape (n,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return [np.where(b == 0.0, a, a + b / period) for a, b in zip(*_columns(pieces), strict=True)]


def _mean(period: Array, pieces: Array) -> Array:
    mean: Array = reduce(np.maximum, _heights(period, pieces))
    return mean


def _index(period: Array, pieces: Array) -> Array:
    """Return the active piece's marginal value −β, the smaller at kinks."""
    heights = _heights(period, pieces)
    top = reduce(np.maximum, heights)
    active = [
        np.where(height >= top, b, -np.inf) for height, b in zip(heights, _columns(pieces)[1], strict=True)
    ]
    gain: Array = -reduce(np.maximum, active)
    return gain


def _inverse_index(price: Array, pieces: Array) -> Array:
    """Return 1/ρ of the best response, a kink of J(ρ) + price·ρ."""
    with np.errstate(divide="ignore"):
        period: Array = 1.0 / KINKED.inverse(price, *_columns_of_kinks(pieces))
    return period


@dataclass(frozen=True, slots=True, eq=False)
class OfLines(Cell):
    """Cell of kinks, given by lines, and chances of success."""

    def kernel(self, importance: Array, parameters: tuple[Array, ...]) -> Kernel:
        """Return the numerics of weighted sources."""
        pieces, *others = parameters
        return Cell.kernel(self, importance, (*_columns_of_kinks(pieces), *others))


@dataclass(frozen=True, slots=True, eq=False)
class OfRequests(Cell):
    """Cell of kinks, given by lines and request rates."""

    def kernel(self, importance: Array, parameters: tuple[Array, ...]) -> Kernel:
        """Return the numerics of weighted sources."""
        return Cell.kernel(self, importance, _columns_of_kinks(*parameters))


KINKED = Cell.compiled(last_kink, KINKS)
ON_REQUEST = OfRequests.compiled(last_kink, REQUEST_KINKS)
ATTEMPTS = OfLines.compiled(attempt_kinks, ATTEMPT_KINKS)
