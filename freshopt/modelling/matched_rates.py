"""`matched_rates`: estimated change rates, matched to sources by name.

An estimator knows the sources of a log, sorted; a problem has its own, in the caller's order. They meet by
name, and units are converted. A rate that the log does not determine raises SourceDataError here by name,
before a rate of 0 or infinity makes a problem fail in ways that nobody can read.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray
from freshopt.units import convert_time


class Estimates(Protocol):
    """Protocol of fitted change-rate estimators.

    Anything with change rates by source: every estimator of `freshopt.estimators`, once fitted.
    """

    @property
    def change_rate_(self) -> Array:
        """Changes per time unit, shape (m,)."""

    @property
    def sources_(self) -> npt.NDArray[Any]:
        """Names or integers, shape (m,)."""

    @property
    def time_unit_(self) -> str:
        """Time unit of the rates."""


def matched_rates(sources: Sources, estimates: Estimates) -> Array:
    """Return the sources' estimated change rates, in their time unit.

    - `sources`: Their names, or if they have none their positions, are looked up among those of the
      estimates.
    - raises SourceDataError if nothing was estimated yet, or a source has no estimate, or one that is 0,
      infinite or not a number; names the source.
    """
    if not hasattr(estimates, "change_rate_"):
        raise SourceDataError(f"{type(estimates).__name__} has no change rates yet. Call fit(log) first.")
    rates = np.asarray(estimates.change_rate_, dtype=np.float64)[match(sources, estimates)]
    rates = rates * convert_time(1.0, sources.time_unit, estimates.time_unit_)
    wrong = np.flatnonzero(~((rates >= SMALLEST) & (rates <= LARGEST)))
    if len(wrong):
        where = list_offenders(f"{sources.label(k)} ({_meaning(float(rates[k]))})" for k in wrong)
        raise SourceDataError(
            f"the log alone does not tell the change rate of {where}. Leave smoothing, floors and bounds "
            "out, pass a prior, or give more crawls of them."
        )
    return rates


def match(sources: Sources, estimates: Estimates) -> IntArray:
    """Return each source's position among the estimates, shape (n,).

    - raises SourceDataError if a source is not among them; names it.
    """
    known = np.asarray(estimates.sources_)
    wanted = np.arange(len(sources)) if sources.names is None else np.asarray(sources.names)
    if wanted.dtype.kind == known.dtype.kind and np.array_equal(wanted, known):
        return np.arange(len(known), dtype=np.int64)
    place = {name: k for k, name in enumerate(known.tolist())}
    at = np.array([place.get(name, -1) for name in wanted.tolist()], dtype=np.int64)
    missing = np.flatnonzero(at < 0)
    if len(missing):
        named = "the problem's sources have no names, and " if sources.names is None else ""
        some = ", ".join(repr(name) for name in known[:2].tolist())
        raise SourceDataError(
            f"{named}there is no estimate of {list_offenders(map(sources.label, missing))}. The log has "
            f"{len(known)} sources, such as {some}. Give Sources(names=...) the log's names, or drop these "
            "sources."
        )
    return at


def _meaning(rate: float) -> str:
    if np.isnan(rate):
        return "crawled only once"
    return "never changed: 0" if rate < SMALLEST else "always changed: inf"
