"""Declared objectives, one per file. Installs as `freshopt.problems`."""

from freshopt.problems.accumulated_delay import AccumulatedDelay as AccumulatedDelay
from freshopt.problems.binary_freshness import BinaryFreshness as BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness as HarmonicStaleness

__all__ = ["AccumulatedDelay", "BinaryFreshness", "HarmonicStaleness"]
