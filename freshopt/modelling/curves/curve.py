"""`Curve`: an objective from a table, a function, or pairs.

Of a function as many points are taken as a bound on the error between them needs. A convex function lies
below the chord of two of its points and above the tangents, or the next chords. Their distance falls with the
square of the points' own, so one coarse pass tells how many a fine one needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from freshopt.compiled.cells.array_edition import COST, MARGINAL, OfPrice, OfRate
from freshopt.compiled.cells.curve_table import CURVE, curve_response, curve_values
from freshopt.compiled.penalty_tables import PenaltyTables, TableCell
from freshopt.errors import ObjectiveError, SourceDataError, expect, shown
from freshopt.modelling.curves.pieces import Points, error_between, pieces_of
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, Formula, Index, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import Kernel

Function = Callable[[Array], Any]

# Points of the first pass, those of the second at most, and the share of the cost that they may be off: a gap
# of 1e-9 is to be proved.
COARSE, MOST_POINTS, AIMED = 2048, 2**20, 4e-10


class Sampled(NamedTuple):
    """Points of a function, and how far off their curve may be.

    At most `relative` times the cost and `absolute` besides.
    """

    points: Points
    relative: float
    absolute: float


def sampled(functions: tuple[Function, ...], between: tuple[float, float]) -> Sampled:
    """Return points of functions (rate, cost) or (rate, cost, slope)."""
    low, high = between
    at = np.geomspace(low, high, COARSE) if low > 0.0 else np.linspace(low, high, COARSE)
    points, error, allowed = _measured(functions, at)
    parts = np.clip(np.ceil(np.sqrt(error / allowed)), 1.0, MOST_POINTS)
    parts = np.maximum(1.0, np.floor(parts * min(1.0, MOST_POINTS / float(np.sum(parts))))).astype(np.int64)
    parts = parts if points.rates[0] == _rate(functions, at[:1])[0] else parts[::-1]
    if np.any(parts > 1):
        begin, step = np.repeat(at[:-1], parts), np.repeat(np.diff(at) / parts, parts)
        order = np.arange(len(begin)) - np.repeat(np.cumsum(parts) - parts, parts)
        at = np.append(begin + order * step, at[-1])
        points, error, _ = _measured(functions, at)
    least = np.minimum(points.costs[1:], points.costs[:-1])
    relative = AIMED if bool(np.all(least >= 0.0)) else 0.0
    return Sampled(points, relative, max(0.0, float(np.max(error - relative * least))))


def _rate(functions: tuple[Function, ...], at: Array) -> Array:
    return at if functions[0] is identity else _evaluated(functions[0], at, "rate")


def identity(at: Array) -> Array:
    """Return the rates of a cost that is a function of them."""
    return at


def _measured(functions: tuple[Function, ...], at: Array) -> tuple[Points, Array, Array]:
    """Return points by rate, the error between them, and the allowed one."""
    rates = _rate(functions, at)
    costs, *slopes = (
        _evaluated(one, at, what) for one, what in zip(functions[1:], ("cost", "slope"), strict=False)
    )
    order = slice(None, None, -1 if rates[0] > rates[-1] else 1)
    given = (rates[order], costs[order], *(one[order] for one in slopes))
    points = Points.of(given)
    # A spline may be off on either side, a chord lies above.
    error = error_between(points) * (1.0 if points.slopes is None else 2.0)
    size = np.abs(points.costs)
    # A coarse interval bends more at one end than in its middle.
    allowed = (
        0.97 * AIMED * (np.minimum(size[1:], size[:-1]) + size[len(size) // 2]) + np.finfo(np.float64).tiny
    )
    return points, error, allowed


def _evaluated(function: Function, at: Array, what: str) -> Array:
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(function(at), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ObjectiveError(
            f"the {what} of Curve fails on an array of rates: {shown(str(error))}. Write it with NumPy."
        ) from None
    if found.shape not in (at.shape, ()):
        raise ObjectiveError(
            f"the {what} of Curve returns shape {found.shape} for rates of shape {at.shape}. Return one "
            "number for each rate."
        )
    found = np.broadcast_to(found, at.shape)
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise ObjectiveError(
            f"the {what} of Curve at {at[wrong[0]]:.6g} is {found[wrong[0]]}. Give between=(low, high), "
            "where it is finite."
        )
    return found


# Scale, first piece, number of pieces.
TABLES = TableCell(curve_response, CURVE, 3)
# Rates between which a function is sampled unless told otherwise.
BETWEEN = (1e-3, 1e3)


@frozen_value(repr=False)
class Curve(Objective):
    """Minimise Σ w·J(ρ), J convex and given by numbers.

    Parameters
    ----------
    cost : tuple or callable
        A table (rates, costs) or (rates, costs, slopes): arrays of shape (points,), or (n, points) for a
        curve of each source. A function of an array of rates. Or a pair of functions (rate, cost) of a
        parameter, such as a price or a threshold, of which the rate is monotone.
    slope : callable or array_like, optional
        dJ/dρ at the same rates or parameters.
    refresh : Refresh
        How a schedule carries the rates out; J is what they cost then.
    per_change : bool
        Whether rates of the curve are ρ/Δ, in units of each source's change rate.
    between : (float, float), optional
        Where a function is used, ``(1e-3, 1e3)`` by default; of a pair it is the parameter's range.

    Raises
    ------
    ObjectiveError
        If the curve is not convex: the first three points are named. If rates do not rise, a number is not
        finite, or shapes do not fit.

    Notes
    -----
    A table without slopes *is* the polygon through its points; with slopes it is a convex spline of two
    parabolas between points, whose knot lies where the tangents meet. Before the first rate the first line
    goes on; after the last one the cost stays, or goes on to rise. For these curves the certificate is exact.

    A function is sampled, up to 2^20 points. It lies between chords and tangents (without slopes, the next
    chords), and twice that distance, some 1e-10 of the cost, is part of the certified gap.

    A cost may have a least value at some rate; sources are then refreshed no more often than that.

    Examples
    --------
    Measured costs at four rates, and one curve J(ρ) = 1/ρ as a function:

    >>> import freshopt as fo
    >>> measured = fo.Curve(([0.0, 1.0, 2.0, 4.0], [10.0, 6.0, 4.0, 3.0]))
    >>> fo.solve(fo.Problem(measured, fo.Sources([1.0, 1.0], [2.0, 1.0]), bandwidth=5.0)).value
    11.0
    >>> delay = fo.Curve(lambda x: 1.0 / x, lambda x: -1.0 / x**2, per_change=True)
    >>> fo.solve(fo.Problem(delay, fo.Sources([1.0, 4.0]), bandwidth=3.0)).rates.round(6)
    array([1., 2.])
    """

    cost: Any
    slope: Any = None
    refresh: Refresh = Refresh.PERIODIC
    per_change: bool = False
    between: tuple[float, float] | None = None
    _pieces: Array = field(init=False)
    _relative: float = field(init=False, default=0.0)
    _absolute: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        """Make the pieces, or raise ObjectiveError."""
        Objective.__post_init__(self)
        expect(self.per_change, bool, "per_change", "Pass True or False")
        parts = self.cost if isinstance(self.cost, tuple | list) else (identity, self.cost)
        parts = (*parts, *(() if self.slope is None else (self.slope,)))
        functions = [callable(one) for one in parts]
        if len(parts) not in (2, 3) or any(functions) != all(functions):
            raise ObjectiveError(
                f"cost of Curve is {shown(self.cost)}. Pass (rates, costs), (rates, costs, slopes), "
                "a function of rates, or two functions (rate, cost) of one parameter, with a slope of the "
                "same kind."
            )
        if all(functions):
            found = sampled(parts, self._range())
            points = found.points
            object.__setattr__(self, "_relative", found.relative)
            object.__setattr__(self, "_absolute", found.absolute)
        else:
            points = Points.of(parts)
        object.__setattr__(self, "_pieces", pieces_of(points))

    def __repr__(self) -> str:
        n, pieces = self._pieces.shape[1:]
        return f"Curve({'' if n == 1 else f'{n} sources, '}{pieces - 2} pieces, refresh={self.refresh!r})"

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics of the pieces."""
        n, (curves, pieces) = len(sources), self._pieces.shape[1:]
        if curves not in (1, n):
            raise SourceDataError(f"Curve has {curves} curves but there are {n} sources. Match them.")
        first = np.broadcast_to(0.0, (n,)) if curves == 1 else pieces * np.arange(float(n))
        scale = sources.change_rate if self.per_change else np.broadcast_to(1.0, (n,))
        table = self._pieces.reshape(6, -1)
        return Kernel(
            sources.column("importance"),
            (scale, first, np.broadcast_to(float(pieces), (n,))),
            _In(OfRate(curve_values, COST), table),
            _In(OfRate(curve_values, MARGINAL), table),
            _In(OfPrice(curve_response), table),
            tables_of=_Made(table),
            table_cell=TABLES,
        )

    def interpolation_error(self, sources: Sources, cost: float) -> float:
        """Return what a function may differ from its points, in total."""
        if not self._relative and not self._absolute:
            return 0.0
        return self._relative * max(cost, 0.0) + self._absolute * total(sources.column("importance"))

    def take(self, index: Index) -> Curve:
        """Return the curves of some of the sources."""
        if self._pieces.shape[1] == 1:
            return self
        rates, costs, *slopes = self.cost
        own = (rates if np.ndim(rates) == 1 else np.asarray(rates)[index], np.asarray(costs)[index])
        more = tuple(np.asarray(one)[index] for one in slopes)
        slope = None if self.slope is None else np.asarray(self.slope)[index]
        return replace(self, cost=(*own, *more), slope=slope)

    def _range(self) -> tuple[float, float]:
        """Return the range of a function, checked."""
        given = BETWEEN if self.between is None else self.between
        try:
            low, high = map(float, given)
        except (TypeError, ValueError):
            low = high = np.nan
        if not (np.isfinite(low) and low < high < np.inf) or (low < 0.0 and callable(self.cost)):
            raise ObjectiveError(
                f"between of Curve is {shown(given)}. Pass two finite numbers (low, high), of rates >= 0."
            )
        return low, high


@frozen_value()
class _In:
    """Formula of a source's rate or price with its table."""

    formula: Formula
    table: Array

    def __call__(self, at: Array, *parameters: Array) -> Array:
        return np.asarray(self.formula(at, *parameters, self.table), dtype=np.float64)


@frozen_value()
class _Made:
    """Tables that are at hand, however many sources ask for them."""

    table: Array

    def __call__(self, _n: int) -> PenaltyTables | None:
        return PenaltyTables(self.table, self.table)
