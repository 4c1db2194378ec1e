"""Named objectives of the command line, and their parameters."""

from __future__ import annotations

from dataclasses import dataclass, fields

from freshopt import problems
from freshopt.errors import ObjectiveError
from freshopt.modelling.objective import Objective, Refresh
from freshopt.numerics.arrays import Array
from freshopt.problems.power_cost import EXPONENT as EXPONENT
from freshopt.terminal.exported_names import objectives_of


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """Parameters of objectives besides the sources.

    Each is one number, one per source, or None if it is not given.

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

OBJECTIVES = objectives_of(problems)
# A plan prices its schedule gap by gap, which takes a cost of age; polls count slots, and not days.
PLANNED = tuple(name for name, named in OBJECTIVES.items() if named.planned)


def objective_of(name: str, refresh: str | None, given: Parameters | None = None) -> Objective:
    """Return the named objective under a discipline (default: its first).

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
    chosen = named.refreshes[0] if refresh is None else Refresh(refresh.replace("-", " "))
    if chosen not in named.refreshes and not (chosen is Refresh.ON_REQUEST and named.on_request):
        raise ObjectiveError(
            f"--objective {name} has no {chosen.value} cell. Use --refresh {named.refreshes[0].value}."
        )
    own = {key: getattr(given, key) for key in named.uses} if given else {}
    own = {key: value for key, value in own.items() if value is not None}
    for key in named.command.needs:
        if key not in own:
            raise ObjectiveError(
                f"--objective {name} needs one. Pass --{key}, such as 2d, or give the table of sources a "
                f"column '{key}'."
            )
    return named.make(chosen, own)
