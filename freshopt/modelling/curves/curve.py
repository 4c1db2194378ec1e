"""`Curve`: an objective from a table, a function, or pairs."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import numpy as np

from freshopt.compiled.cells.array_edition import COST, MARGINAL, OfPrice, OfRate
from freshopt.compiled.cells.curve_table import CURVE, curve_response, curve_values
from freshopt.compiled.penalty_tables import PenaltyTables, TableCell
from freshopt.errors import ObjectiveError, SourceDataError, expect, shown
from freshopt.modelling.curves.pieces import Points, pieces_of
from freshopt.modelling.curves.sampled import identity, sampled
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, Formula, Index, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import Kernel

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
    """Tables that are at hand, whether asked for or not."""

    table: Array

    def __call__(self, _make: bool) -> PenaltyTables | None:
        return PenaltyTables(self.table, self.table)
