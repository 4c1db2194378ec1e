"""Objectives as users write them, of costs that the library has under names of its own."""

from typing import Any

import numpy as np

import freshopt as fo
from freshopt.cvx import cp


class Harmonic(fo.Objective):
    """Harmonic staleness, whose marginal at rate 0 is infinite."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        """Declare w·log(1 + Δ/ρ)."""
        return cp.multiply(sources.importance, cp.logistic(np.log(sources.change_rate) - cp.log(rate)))


class Delay(fo.Objective):
    """Accumulated delay."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        """Declare w·Δ/ρ."""
        return cp.multiply(sources.importance * sources.change_rate, cp.inv_pos(rate))


class Binary(fo.Objective):
    """The stale share, whose marginal at rate 0 is finite: sources may starve."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        """Declare w·Δ/(Δ + ρ)."""
        share = cp.multiply(1.0 / sources.change_rate, rate)
        return cp.multiply(sources.importance, cp.inv_pos(1.0 + share))


class AlphaFair(fo.Objective):
    """Importance over freshness squared."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        """Declare w·(1 + Δ/ρ)²."""
        staleness = cp.logistic(np.log(sources.change_rate) - cp.log(rate))
        return cp.multiply(sources.importance, cp.exp(2 * staleness))
