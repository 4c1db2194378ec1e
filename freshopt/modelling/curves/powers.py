"""Cells of powers of the age, of a cost's parameters.

A cost is min(a·s^e, U), and t₀ the age at which the cap U is reached; cells take levels, the logarithms of
what multiplies a power of a rate or of a lifetime. On request those of loops have the importance in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from freshopt.compiled.cells import window_tables
from freshopt.compiled.cells.capped_poisson import CAPPED_POISSON, capped_poisson
from freshopt.compiled.cells.capped_tables import CAPPED_TABLES, are_within, tables_for
from freshopt.compiled.cells.request_power import LEAST_EXPONENT, capped_request_power, request_power
from freshopt.compiled.cells.request_proofs import CAPPED_REQUEST_POWER, REQUEST_POWER
from freshopt.compiled.cells.window_power import MOST_EXPONENT, WINDOW_POWER, window_power
from freshopt.heavy import special
from freshopt.modelling.cost_curve import Cell
from freshopt.modelling.request_cell import RequestForms
from freshopt.numerics.arrays import SMALLEST, Array, Formula, as_float64, is_scalar
from freshopt.separable.kernel import Kernel


@dataclass(frozen=True, slots=True, eq=False)
class OfCapped(Cell):
    """Cell of capped powers under Poisson refreshes.

    Its parameters are a, e, t₀ and U.
    """

    def kernel(self, importance: Array, parameters: tuple[Array, ...]) -> Kernel:
        """Return the numerics of weighted sources.

        Many that share an exponent have tables.
        """
        own = _columns(_poisson_columns, len(importance), parameters)
        kernel, e = Cell.kernel(self, importance, own), own[1]
        if not (is_scalar(e) and are_within(*own[2:])):
            return kernel
        return replace(kernel, tables_of=partial(tables_for, float(e[0])), table_cell=CAPPED_TABLES)


@dataclass(frozen=True, slots=True, eq=False)
class OfRequested(Cell):
    """Cell of capped powers on request.

    Its parameters are a, e, t₀, U and ζ.
    """

    def kernel(self, importance: Array, parameters: tuple[Array, ...]) -> Kernel:
        """Return the numerics of weighted sources, in loops with weighted levels."""
        level, e, asked, *cap = _columns(_request_columns, len(importance), parameters)
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.log(as_float64(importance)) + level, e, asked
            capped = *own, cap[0], np.where(importance > 0.0, as_float64(importance) * cap[1], 0.0)
        demand, proof, given = (
            (capped_request_power, CAPPED_REQUEST_POWER, capped)
            if bool(np.any(cap[0]))
            else (request_power, REQUEST_POWER, own)
        )
        return replace(
            Cell.kernel(self, importance, (level, e, asked, *cap)),
            unit_demand=demand,
            demand_parameters=given,
            unit_proof=proof,
            proof_parameters=given,
        )


@dataclass(frozen=True, slots=True, eq=False)
class OfWindows(Cell):
    """Cell of powers on request with stale-while-revalidate windows.

    Its parameters are a, e, t₀, U, ζ and σ.
    """

    def kernel(self, importance: Array, parameters: tuple[Array, ...]) -> Kernel:
        """Return the numerics of weighted sources, in loops with weighted levels.

        Many that share an exponent have tables.
        """
        level, *others = _columns(_window_columns, len(importance), parameters)
        with np.errstate(divide="ignore"):
            own = np.log(as_float64(importance)) + level, *others
        kernel = replace(
            Cell.kernel(self, importance, (level, *others)), demand_parameters=own, proof_parameters=own
        )
        e = others[0]
        if not is_scalar(e):
            return kernel
        tables = partial(window_tables.tables_for, float(e[0]))
        return replace(kernel, tables_of=tables, table_cell=window_tables.WINDOW_TABLES)


def request_forms(parameters: tuple[Array, ...], rise: Formula) -> RequestForms:
    """Return what powers say about refreshes on request.

    - `parameters`: a, e, t₀ and U.
    - `rise`: As in `RequestForms`.
    """
    _, e, _, cap = parameters
    if bool(np.any(e < LEAST_EXPONENT)):
        return RequestForms(rise=rise)
    exact = not bool(np.any(e > MOST_EXPONENT) or np.any(np.isfinite(cap)))
    return RequestForms(REQUESTED, WINDOWED if exact else None, rise)


def _columns(
    made: Callable[..., tuple[Array, ...]], n: int, parameters: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Return columns made of parameters; of numbers they are numbers."""
    own = tuple(p[:1] for p in parameters) if all(map(is_scalar, parameters)) else parameters
    a, e, t0, *others = map(as_float64, own)
    # A cap that is reached at once is so at an age that is a number.
    with np.errstate(all="ignore"):
        found = made(a, e, np.maximum(t0, SMALLEST), *others)
    return tuple(np.broadcast_to(column, (n,)) for column in found)


def _poisson_columns(a: Array, e: Array, t0: Array, cap: Array) -> tuple[Array, ...]:
    """Return log C, e, the rate 1/t₀ and the plateau."""
    scale = np.log(a) + np.log(e) + special.gammaln(1.0 + e)
    return scale, e, 1.0 / t0, cap * t0 * (e / (1.0 + e))


def _request_columns(a: Array, e: Array, t0: Array, cap: Array, asked: Array) -> tuple[Array, ...]:
    """Return log(a/ζ^{1+e}), e, ζ, the rate of t₀ and the plateau."""
    level = np.log(a) - (1.0 + e) * np.log(asked)
    return level, e, asked, 1.0 / (t0 + 1.0 / asked), cap * (t0 * (e / (1.0 + e)) + 1.0 / asked)


def _window_columns(
    a: Array, e: Array, t0: Array, cap: Array, asked: Array, window: Array
) -> tuple[Array, ...]:
    """Return log(a/ζ^{1+e}), e, ζ and σ."""
    return *_request_columns(a, e, t0, cap, asked)[:3], window


POISSON = OfCapped.compiled(capped_poisson, CAPPED_POISSON)
REQUESTED = OfRequested.compiled(capped_request_power, CAPPED_REQUEST_POWER)
WINDOWED = OfWindows.compiled(window_power, WINDOW_POWER)
