"""The objectives that the command line knows by name, and what they need besides sources."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from freshopt.arrays import Array
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.increments import Penalty
from freshopt.objective import Objective, Refresh
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryCost,
    BinaryFreshness,
    ExpectedPenalty,
    HarmonicStaleness,
    PiecewiseLinearCost,
    PollingKnapsack,
    PowerCost,
    SynchronizationCost,
)

PERIODIC, POISSON = Refresh.PERIODIC, Refresh.POISSON
EXPONENT = 0.5  # of the power cost: in the middle of the range 0..1 that its paper studies


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """What some objectives need besides sources: one number, one per source, or None if it is not given.

    Attributes
    ----------
    scale, exponent, cap : float or ndarray of shape (n,), or None
        Of the power cost min(scale·age^exponent, cap).
    deadline : float or ndarray of shape (n,), or None
        Age, in time units, from which a copy costs.
    """

    scale: float | Array | None = None
    exponent: float | Array | None = None
    cap: float | Array | None = None
    deadline: float | Array | None = None


NAMES = tuple(field.name for field in fields(Parameters))


class Named(NamedTuple):
    """An objective that has a name.

    Attributes
    ----------
    words : str
        What it measures.
    make : callable
        Takes a discipline and parameters.
    refreshes : tuple of Refresh
        The disciplines in which it exists; the first is the default.
    uses : tuple of str
        The parameters that it knows.
    """

    words: str
    make: Callable[[Refresh, Parameters], Objective]
    refreshes: tuple[Refresh, ...] = (PERIODIC, POISSON)
    uses: tuple[str, ...] = ()


def _power(refresh: Refresh, given: Parameters) -> Objective:
    exponent = EXPONENT if given.exponent is None else given.exponent
    scale = 1.0 if given.scale is None else given.scale
    return SynchronizationCost(PowerCost(scale, exponent, given.cap), refresh)


@functools.cache  # what it compresses of C on first use serves every later problem
def _penalty(of: Penalty, refresh: Refresh) -> Objective:
    return ExpectedPenalty(of, refresh)


def _deadline(refresh: Refresh, given: Parameters) -> Objective:
    if given.deadline is None:
        raise ObjectiveError(
            "--objective deadline needs one. Pass --deadline, such as 2d, or give the table of sources a "
            "column 'deadline'."
        )
    late = np.asarray(given.deadline, dtype=np.float64)
    if not bool(np.all((late > 0.0) & np.isfinite(late))):
        raise SourceDataError("a deadline is not a number > 0. Correct the column 'deadline'.")
    # c̄(τ) = max(0, τ − deadline): a copy costs 1 while it is older than that
    pieces = np.stack([np.zeros_like(late), -late], axis=-1)
    slopes = np.broadcast_to([0.0, 1.0], pieces.shape)
    return SynchronizationCost(PiecewiseLinearCost(slopes, pieces), refresh)


OBJECTIVES: dict[str, Named] = {
    "harmonic": Named("staleness, the m-th missed change counts 1/m", lambda r, _: HarmonicStaleness(r)),
    "binary": Named("share of time that copies are fresh", lambda r, _: BinaryFreshness(r)),
    "delay": Named("number of missed changes", lambda r, _: AccumulatedDelay(r)),
    "age": Named("time since the oldest missed change", lambda r, _: Age(r)),
    "power": Named("a power of the time since the last refresh", _power, uses=("scale", "exponent", "cap")),
    "deadline": Named(
        "share of time that copies are older than a deadline", _deadline, (PERIODIC,), ("deadline",)
    ),
    "binary-cost": Named(
        "share of time that copies are stale", lambda r, _: SynchronizationCost(BinaryCost(), r)
    ),
    "polls": Named(
        "updates found by polling once per slot or less", lambda _r, _: PollingKnapsack("polls"), (PERIODIC,)
    ),
    "materials": Named(
        "the polling automata's variant of it", lambda _r, _: PollingKnapsack("materials"), (PERIODIC,)
    ),
    "penalty-sqrt": Named(
        "square root of the number of missed changes", lambda r, _: _penalty(np.sqrt, r), (POISSON,)
    ),
    "penalty-log": Named("its logarithm, log(1+m)", lambda r, _: _penalty(np.log1p, r), (POISSON,)),
    "penalty-square": Named("its square", lambda r, _: _penalty(np.square, r), (POISSON,)),
}
# A plan prices its schedule gap by gap, which takes a cost of age; polls count slots, and not days.
PLANNED = ("harmonic", "binary", "delay", "age", "power", "deadline", "binary-cost")


def objective_of(name: str, refresh: str | None, given: Parameters | None = None) -> Objective:
    """Return the named objective under the named discipline, by default its first.

    Raises
    ------
    ObjectiveError
        If it does not exist in this discipline, or lacks a parameter.

    Examples
    --------
    >>> objective_of("power", None, Parameters(exponent=0.25))
    SynchronizationCost(cost=PowerCost(scale=1, exponent=0.25), refresh=Refresh.PERIODIC)
    >>> objective_of("penalty-sqrt", "periodic")
    Traceback (most recent call last):
    ...
    freshopt.errors.ObjectiveError: --objective penalty-sqrt has no periodic cell. Use --refresh poisson.
    """
    named = OBJECTIVES[name]
    chosen = named.refreshes[0] if refresh is None else Refresh(refresh)
    if chosen not in named.refreshes:
        raise ObjectiveError(
            f"--objective {name} has no {chosen.value} cell. Use --refresh {named.refreshes[0].value}."
        )
    return named.make(chosen, given or Parameters())
