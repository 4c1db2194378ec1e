"""Likelihood of the shape of the change rate over a cycle.

The rates of the sources are known.

With g the shape, of mean 1, a span of a source of rate Δ has Λ = Δ∫g changes on average: it contributes
ln(1 − e^{−Λ}) where some were found, k ln Λ − Λ where k were counted, and −Λ where there were none; a dated
change contributes ln g at its date. Each term is concave in g.

Cost: a few passes over the spans in which changes were found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.weekly.cycle_spans import CycleSpans
from freshopt.weekly.observed_spans import ObservedSpans

ROUNDS = 25


@dataclass(frozen=True, slots=True, eq=False)
class ShapeLikelihood:
    """Log-likelihood of a piecewise constant shape, over that of a constant rate.

    Attributes
    ----------
    found : CycleSpans
        In which an unknown number of changes was found.
    found_rate : ndarray of float
        Of their sources, per cycle.
    counted : CycleSpans
        In which a known number > 0 of changes was found.
    number : ndarray of float
        These numbers.
    dated : ndarray of float, shape (bins,)
        How many dated changes fall in each bin.
    exposure : ndarray of float, shape (bins,)
        Changes that constant rates would have in each bin, over all spans.
    """

    found: CycleSpans
    found_rate: Array
    counted: CycleSpans
    number: Array
    dated: Array
    exposure: Array

    @classmethod
    def of(cls, rows: ObservedSpans, period: float, bins: int) -> ShapeLikelihood:
        """Return the likelihood of shapes over a period in seconds."""
        spans = CycleSpans.of(rows.begin / period, rows.length / period, bins)
        rate = rows.rate * period
        some, known = np.isnan(rows.changes), rows.changes > 0.0
        dated = np.bincount(spans.first[rows.dated], minlength=bins).astype(np.float64)
        return cls(
            found=spans.select(some),
            found_rate=rate[some],
            counted=spans.select(known),
            number=rows.changes[known],
            dated=dated,
            exposure=spans.spread(rate),
        )

    def maximising(self) -> Array:
        """Return the shape that expectation maximisation with smoothing leads to, shape (bins,).

        Expected changes are spread over the bins of their spans as the shape is, N = Λ/(1 − e^{−Λ}) of them
        where their number is unknown, and divided by the exposure. Each round is smoothed over neighbouring
        bins with weights ¼, ½, ¼.
        """
        bins = len(self.exposure)
        g = np.ones(bins)
        for _ in range(ROUNDS if bins > 1 else 0):
            weight = self.found_rate / -np.expm1(-self.found_rate * self.found.integral(g))
            spread = self.found.spread(weight) + self.counted.spread(self.number / self.counted.integral(g))
            ratio = np.divide(
                self.dated + g * spread, self.exposure, out=np.ones(bins), where=self.exposure > 0.0
            )
            g = scaled(0.5 * ratio + 0.25 * (np.roll(ratio, 1) + np.roll(ratio, -1)))
        return g

    def gain(self, g: Array) -> float:
        """Return the log-likelihood less that of g = 1, in nats."""
        with np.errstate(divide="ignore"):
            at_dates = float(self.dated @ np.where(self.dated > 0.0, np.log(g), 0.0))
            counted = float(self.number @ np.log(self.counted.integral(g) / self.counted.length))
            found = float(
                np.sum(
                    _log_found(self.found_rate * self.found.integral(g))
                    - _log_found(self.found_rate * self.found.length)
                )
            )
        others = self.exposure - self.found.spread(self.found_rate)
        return at_dates + counted + found - float(others @ (g - 1.0))


def scaled(g: Array) -> Array:
    """Return a shape with mean 1; constant if it vanishes everywhere."""
    mean = float(np.mean(g))
    return g / mean if mean > 0.0 else np.ones(len(g))


def _log_found(x: Array) -> Array:
    """Return ln(1 − e^{−x})."""
    return np.log(-np.expm1(-x))
