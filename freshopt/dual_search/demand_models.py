"""`DemandModels`: models of the demand functions of all sources.

They are made from evaluations of a declared expression.

A source's demand function gives its optimal rate at a price. What one evaluation of the expression tells
about it is a `LocalModel`, a frozen value of each chunk of sources that stays in the cache. An evaluation is
a pass over the chunks that returns new models; the demand of all models at a price is another one, which
costs an exponential or some comparisons per source and no evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from freshopt.dual_search.local_models import LocalModel
from freshopt.dual_search.segments import Chunk, Kinds
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, chunks, exact_sum, is_scalar
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import MixedNumerics, Numerics

# Sources of a chunk: some twenty temporaries of 64 KiB stay in a second-level cache of 2 MiB.
SIZE = 8192
# Compiled passes have few temporaries, and calling them takes as long as some thousand sources.
COMPILED_SIZE = 32_768


class Evaluation(NamedTuple):
    """Models after an evaluation of all sources; attributes as in `ChunkEvaluation`."""

    models: DemandModels
    gap: float
    cost: float
    misfit: float


@dataclass(frozen=True, slots=True, eq=False)
class DemandModels:
    """Models of all sources' demand functions.

    - `pieces`: In the order of the sources.
    - `evaluations`: Evaluations of the expression, so far.
    """

    pieces: tuple[LocalModel, ...]
    evaluations: int

    def evaluated(self, rates: Array, prices: Array) -> Evaluation:
        """Evaluate the expression at some rates.

        - `rates` (n,)
        - `prices` (n,): What each source pays per unit of bandwidth, by these models.
        """
        with np.errstate(all="ignore"):
            found = [
                piece.evaluated(
                    rates[piece.chunk.part], prices[:1] if is_scalar(prices) else prices[piece.chunk.part]
                )
                for piece in self.pieces
            ]
        models = DemandModels(tuple(one.model for one in found), self.evaluations + 1)
        gap, cost = exact_sum(one.gap for one in found), exact_sum(one.cost for one in found)
        return Evaluation(models, gap, cost, max(one.misfit for one in found))

    def rates(self, log_price: float | Array) -> Array:
        """Return the modelled rates at one log λ, or one each."""
        found = np.empty(self.pieces[-1].chunk.part.stop)
        with np.errstate(all="ignore"):
            for piece in self.pieces:
                part = piece.chunk.part
                found[part] = piece.rates(log_price[part] if isinstance(log_price, np.ndarray) else log_price)
        return found

    def response(self, log_price: Array) -> tuple[Array, Array]:
        """Return each source's bandwidth at log λ, and its fall per nat."""
        used, falls = np.empty(len(log_price)), np.empty(len(log_price))
        with np.errstate(all="ignore"):
            for piece in self.pieces:
                part, cost = piece.chunk.part, piece.chunk.cost
                for own, out in zip(piece.response(log_price[part]), (used, falls), strict=True):
                    np.multiply(own, cost, out=out[part])
        return used, falls

    def total_response(self, log_price: float) -> tuple[float, float]:
        """Return the total bandwidth at log λ, and its fall per nat."""
        used, falls = [], []
        with np.errstate(all="ignore"):
            for piece in self.pieces:
                some = piece.total(log_price)
                used.append(some[0])
                falls.append(some[1])
        return exact_sum(used), exact_sum(falls)

    def jumps(self) -> Array:
        """Return log prices at which modelled demand is known to jump."""
        found = [piece.segments.jumps for piece in self.pieces if piece.segments is not None]
        return np.concatenate(found) if found else np.empty(0)

    def capped(self, rates: Array) -> DemandModels:
        """Return the models with no rates above these."""
        pieces = tuple(piece.capped(rates[piece.chunk.part]) for piece in self.pieces)
        return replace(self, pieces=pieces)

    def marginals_at_lower(self) -> Array:
        """Return marginals of sources evaluated at their lower bounds, per bandwidth."""
        return np.concatenate([piece.marginals_at_lower() for piece in self.pieces])


def split(
    problem: Problem, numerics: Numerics, upper: Array, model: Callable[[Chunk], LocalModel], size: int = SIZE
) -> tuple[LocalModel, ...]:
    """Return a model of each chunk of a problem's sources.

    - `upper` (n,): Rates that no feasible source exceeds.
    - `model`: What makes the model of a chunk.
    - `size`: Sources of a chunk.
    """
    cost, lower = problem.sources.refresh_cost, problem.lower
    return tuple(
        model(Chunk(part, _by_kind(numerics, part), cost[part], lower[part], upper[part]))
        for part in chunks(len(upper), size)
    )


def _by_kind(numerics: Numerics, part: slice) -> Kinds:
    """Return the numerics of a chunk.

    These are one, or one for each kind of its sources and where these are.
    """
    taken = numerics.take(part)
    if not isinstance(taken, MixedNumerics):
        pairs = [(np.arange(part.stop - part.start), taken)]
    else:
        silent, announced = np.flatnonzero(~taken.signalled), np.flatnonzero(taken.signalled)
        pairs = [
            (silent, taken.silent_sources.take(silent)),
            (announced, taken.signalled_sources.take(announced)),
        ]
    return tuple((where, own) for where, own in pairs if isinstance(own, DerivedNumerics))
