"""Passes over local models of demand functions, compiled for many sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from freshopt.compiled import backend
from freshopt.compiled.kept_code import built
from freshopt.compiled.source_columns import Data
from freshopt.compiled.tapes.tape_passes import enabled

# What NumPy takes for the models of one search, in evaluations of its account, of smooth costs and of costs
# with kinks: .5 and 3 µs a source.
_EVALUATIONS = {False: 12, True: 70}


class Line(NamedTuple):
    """Lines of sources' demand, each in a segment.

    That is from rate a with marginal α to rate b with marginal β.

    - `begin`: a; the lower bound if costs have no kinks.
    - `share`, `least`, `edge`: 1/(b − a), β, 1/(α − β); numbers 0 if costs have no kinks.
    - `gain`, `level`, `pace`: At a price λ, 1/(1/(ρ − a) − 1/(b − a)) is gain·e^(pace·(level + y)), where y
      is log(1/(λ − β) − edge).
    - `floor`, `ceiling`: Between what the rates lie.
    - `below`, `above`: At prices below one, and from the other on, best responses are in another segment.
    """

    begin: Data
    share: Data
    least: Data
    edge: Data
    gain: Data
    level: Data
    pace: Data
    floor: Data
    ceiling: Data
    below: Data
    above: Data


class ModelPasses(NamedTuple):
    """Compiled passes over a chunk, as `freshopt.compiled.model_loops` makes them.

    - `respond`: Bandwidth used at a price, and its fall per nat of the price.
    - `fill`: Rates at a price.
    - `take`: Models from an evaluation; what is lost, the misfit, and how many marginals are not positive.
    """

    respond: Callable[..., tuple[float, float]]
    fill: Callable[..., None]
    take: Callable[..., tuple[float, float, float]]


def model_passes(n: int, *, bent: bool) -> Callable[[bool, bool], ModelPasses] | None:
    """Return the passes for n sources, of costs with kinks or without.

    They are chosen by whether sources are limited, and costs bent. None means that NumPy is faster.

    - `bent`: Whether any costs may have kinks.
    """
    if not (enabled(n) or backend.takes("models", n, _EVALUATIONS[bent])):
        return None
    return lambda *kind: ModelPasses(*built("model_loops", *kind))
