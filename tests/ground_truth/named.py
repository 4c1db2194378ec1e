"""Objectives by name, or written as users do."""

from collections.abc import Callable
from typing import Any, cast

import freshopt as fo
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness, LogFreshness
from tests.ground_truth.refusals import present as present

POISSON, PERIODIC, ON_REQUEST = fo.Refresh.POISSON, fo.Refresh.PERIODIC, fo.Refresh.ON_REQUEST
HARMONIC, HARMONIC_PERIODIC, HARMONIC_ON_REQUEST = map(HarmonicStaleness, (POISSON, PERIODIC, ON_REQUEST))
BINARY, BINARY_PERIODIC, BINARY_ON_REQUEST = map(BinaryFreshness, (POISSON, PERIODIC, ON_REQUEST))
DELAY, DELAY_PERIODIC, DELAY_ON_REQUEST = map(AccumulatedDelay, (POISSON, PERIODIC, ON_REQUEST))
AGE, AGE_PERIODIC, AGE_ON_REQUEST = map(Age, (POISSON, PERIODIC, ON_REQUEST))
LOG, LOG_PERIODIC = map(LogFreshness, (POISSON, PERIODIC))

# The same by what they are called: "harmonic", "harmonic periodic", "harmonic on request".
BY_NAME: dict[str, fo.Objective] = {
    name.lower().replace("_", " "): found
    for name, found in list(globals().items())
    if isinstance(found, fo.Objective)
}


def chosen(*names: str) -> dict[str, fo.Objective]:
    return {name: BY_NAME[name] for name in names}


def written(
    name: str, per_source: Callable[[Any, fo.Sources], Any], **settings: object
) -> type[fo.Objective]:
    """Return the class of an objective that declares a function of rates and sources."""
    members = {"per_source": lambda _, rate, sources: per_source(rate, sources), **settings}
    return cast(type[fo.Objective], type(name, (fo.Objective,), members))


def declared(per_source: Callable[[Any, fo.Sources], Any], **settings: object) -> fo.Objective:
    """Return an objective that declares a function of rates and sources."""
    return written("Declared", per_source, **settings)()
