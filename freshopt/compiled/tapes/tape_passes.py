"""Passes over the sources of declared expressions, compiled where that pays.

A declared expression costs NumPy some passes over memory per atom, and its inverse marginal several dozen
evaluations. Compiled, an evaluation is one pass, and an inverse is searched for in blocks of sources that
stay in the first-level cache. Compiling takes about a second per structure of expression and kind of
loop, once per machine (`freshopt.compiled.tapes.tape_loops`); loading takes about 10 ms.

Every source is treated alone: results have the same bits on any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from freshopt.compiled import backend
from freshopt.compiled.columns import run_chunks_in_threads
from freshopt.compiled.tapes.tape_source import Description, Part, numbers_of
from freshopt.numerics.arrays import CACHED, Array

# Inverse marginals cost NumPy .6 to 3 µs a source, compiled .1 to .6, and a dual search asks for a dozen.
# From so many sources on, one dual search takes as long as compiling, 2 s.
COMPILED_FROM = 65_536
# An evaluation costs NumPy 5 to 30 ns a source, compiled 1 to 8: only with so many sources do the dozens of
# evaluations of a few solves make up for compiling it, 1 s.
EVALUATED_FROM = 1_000_000
# Chunks of `CACHED` sources that are a thread's at least.
_SHARE = 8


class TapePasses(NamedTuple):
    """Passes of one expression's structure.

    - `part`: The structure, and whether it is maximised.
    - `places`: Which of the tape's constants are arguments.
    - `evaluates`: Whether compiled evaluations pay, too; if not, searches alone.
    """

    part: Part
    places: tuple[int, ...]
    evaluates: bool

    @classmethod
    def of(cls, description: Description, n: int, *, maximised: bool) -> TapePasses:
        """Return the passes of a described tape of n sources."""
        places = tuple(k for k, _ in numbers_of(description))
        return cls(Part(description, maximised), places, n >= EVALUATED_FROM)

    def arguments(self, constants: Sequence[Array]) -> list[Array | float]:
        """Return what loops take of a tape's constants."""
        return [_argument(constants[k]) for k in self.places]

    def jets(self, constants: Sequence[Array], rates: Array, side: int) -> tuple[Array, Array, Array]:
        """Return cost, marginal and curvature, shape (n,) each.

        One loop serves all orders: it is as fast as shorter ones, and compiled once.
        """
        run = _loop("jets", (self.part,))
        given, n = self.arguments(constants), len(rates)
        rates, out = np.ascontiguousarray(rates), (np.empty(n), np.empty(n), np.empty(n))

        def chunk(begin: int, end: int) -> None:
            a, b = begin * CACHED, min(n, end * CACHED)
            run(rates[a:b], float(side), *_cut(given, a, b), *(row[a:b] for row in out))

        run_chunks_in_threads(chunk, -(-n // CACHED), _SHARE)
        return out

    def inverse_marginal(self, constants: Sequence[Array], price: Array, start: Array) -> Array:
        """Return best responses to prices, shape (n,).

        They are 0 or inf where there is none.

        - `price` (n,)
        - `start` (n,): Rates > 0 near them.
        """
        run = _loop("inverse", (self.part,))
        given, n = self.arguments(constants), len(price)
        price, start, out = np.ascontiguousarray(price), np.ascontiguousarray(start), np.empty(n)

        def chunk(begin: int, end: int) -> None:
            a, b = begin * CACHED, min(n, end * CACHED)
            run(price[a:b], start[a:b], *_cut(given, a, b), out[a:b])

        run_chunks_in_threads(chunk, -(-n // CACHED), _SHARE)
        return out


class RowResponse(NamedTuple):
    """Best responses of weighted sums of costs, and what is known there.

    - `rates` (n,)
    - `values` (kinds, n): Of every kind: of the rate itself, then of the curves.
    - `slopes` (kinds, n): Their derivatives in the rate.
    - `curvature` (n,): φ''.
    - `cost` (n,): f; 0 without an objective.
    """

    rates: Array
    values: Array
    slopes: Array
    curvature: Array
    cost: Array


def row_response(
    objective: tuple[TapePasses, Sequence[Array]] | None,
    curves: Sequence[tuple[TapePasses, Sequence[Array]]],
    weights: Array,
    start: Array,
    lower: Array,
    upper: Array,
) -> RowResponse:
    """Return best responses of a weighted sum of costs.

    They minimise φ = f + Σ_t θ_t·T_t + θ_0·ρ over the bounds.

    - `objective` (TapePasses, constants): f in its cost form.
    - `curves` sequence of (TapePasses, constants): T_1, T_2, ...
    - `weights` (kinds, n): θ, of any sign for the rate, ≥ 0 for curves.
    - `start` (n,): Rates > 0 near the best responses, as those of the last multipliers.
    - `lower`, `upper` (n,)

    Notes
    -----
    Where nothing is gained and nothing is paid the response is the lower bound, as
    `freshopt.separable.lagrangian` has it. Slopes and curvature are those to the right of a kink.
    """
    own = [*([] if objective is None else [objective]), *curves]
    run = _loop("rows", tuple(passes.part for passes, _ in own), objective=objective is not None)
    given = [entry for passes, constants in own for entry in passes.arguments(constants)]
    kinds, n = weights.shape
    weights, start, lower, upper = (np.ascontiguousarray(a) for a in (weights, start, lower, upper))
    values, slopes, curvature, cost = np.empty((kinds, n)), np.empty((kinds, n)), np.empty(n), np.zeros(n)

    def chunk(begin: int, end: int) -> None:
        a, b = begin * CACHED, min(n, end * CACHED)
        run(a, b, weights, start, lower, upper, *given, values, slopes, curvature, cost)

    run_chunks_in_threads(chunk, -(-n // CACHED), _SHARE)
    return RowResponse(values[0], values, slopes, curvature, cost)


def enabled(n: int) -> bool:
    """Return whether passes of expressions of n sources are to be compiled."""
    return n >= COMPILED_FROM and backend.compiled()


def _argument(constant: Array) -> Array | float:
    return np.ascontiguousarray(constant) if constant.ndim else float(constant)


def _cut(given: Sequence[Array | float], a: int, b: int) -> list[Array | float]:
    return [entry[a:b] if isinstance(entry, np.ndarray) else entry for entry in given]


def _loop(kind: str, parts: tuple[Part, ...], *, objective: bool = True) -> Any:  # noqa: ANN401 - compiled
    from freshopt.compiled.tapes.tape_loops import loop  # noqa: PLC0415 - numba loads only if needed

    return loop(kind, parts, objective=objective)
