"""Passes over local models of demand functions, compiled for many sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from freshopt.compiled.kept_code import built
from freshopt.compiled.tapes.tape_passes import enabled


class ModelPasses(NamedTuple):
    """Compiled passes over a chunk, as `freshopt.compiled.model_loops` makes them.

    - `respond`: Bandwidth used at a price, and its fall per nat of the price.
    - `fill`: Rates at a price.
    - `take`: Models from an evaluation; what is lost, the misfit, and how many marginals are not positive.
    """

    respond: Callable[..., tuple[float, float]]
    fill: Callable[..., None]
    take: Callable[..., tuple[float, float, float]]


def model_passes(n: int) -> Callable[[bool], ModelPasses] | None:
    """Return the passes for n sources that are limited or not.

    None means that NumPy is faster.
    """
    return (lambda limited: ModelPasses(*built("model_loops", limited))) if enabled(n) else None
