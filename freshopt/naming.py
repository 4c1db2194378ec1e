"""Names of objectives and solvers, in Python and on the command line.

An objective states its names itself (`Objective.commands`); otherwise, as a solver's, the name is the class's
own with hyphens. Solvers that are one class for several backends state the field that tells them apart. A
parameter may follow an objective's name: ``binary``, ``power:0.25`` and ``deadline:2d``.
"""

from __future__ import annotations

import functools
import math
import re
import typing
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import ModuleType
from typing import Any

from freshopt import problems
from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import ObjectiveError, shown, suggestion
from freshopt.modelling.cost_curve import CurveObjective
from freshopt.modelling.objective import Command, Objective, Refresh
from freshopt.numerics.arrays import Array
from freshopt.problems import SynchronizationCost
from freshopt.problems.power_cost import EXPONENT as EXPONENT
from freshopt.units import duration_of


def hyphenated(name: str) -> str:
    """Return the name of a class as the command line writes it.

    Examples
    --------
    >>> hyphenated("WaterFilling")
    'water-filling'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """An objective that has a name.

    - `owner`: An objective, or a cost of age, which is the cost of `SynchronizationCost`.
    """

    owner: type
    command: Command

    @property
    def words(self) -> str:
        """What it measures."""
        return self.command.words

    @property
    def uses(self) -> tuple[str, ...]:
        """The parameters that it knows."""
        return self.command.uses

    @property
    def refreshes(self) -> tuple[Refresh, ...]:
        """The disciplines in which it exists; the first is the default."""
        only = getattr(self.owner, "refresh", None)
        if isinstance(only, Refresh) and not _takes_refresh(self.owner):
            return (only,)
        known: tuple[Refresh, ...] = getattr(self.owner, "disciplines", Objective.disciplines)
        return known

    @property
    def on_request(self) -> bool:
        """Whether it exists for copies that are refreshed on request."""
        own = self.owner if issubclass(self.owner, Objective) else SynchronizationCost
        return bool(getattr(own, "on_request", False))

    @property
    def planned(self) -> bool:
        """Whether a plan can use it: it costs by age."""
        return not issubclass(self.owner, Objective) or issubclass(self.owner, CurveObjective)

    def make(self, refresh: Refresh, given: dict[str, Any]) -> Objective:
        """Return the objective under a discipline; one without parameters is shared."""
        if not given:
            return _made_once(self, refresh)
        return self._made(refresh, given)

    def _made(self, refresh: Refresh, given: dict[str, Any]) -> Objective:
        settings = {**self.command.settings, **given}
        if _takes_refresh(self.owner):
            settings["refresh"] = refresh
        made = (self.command.make or self.owner)(**settings)
        return made if isinstance(made, Objective) else SynchronizationCost(made, refresh)


@functools.cache
def _made_once(named: Named, refresh: Refresh) -> Objective:
    return named._made(refresh, {})


def _takes_refresh(owner: type) -> bool:
    return is_dataclass(owner) and any(each.name == "refresh" and each.init for each in fields(owner))


def objectives_of(package: ModuleType) -> dict[str, Named]:
    """Return the exported objectives by name, in their order.

    A class that needs an argument and states no name has none; `SynchronizationCost` is one.
    """
    found: dict[str, Named] = {}
    for owner in (getattr(package, name) for name in package.__all__):
        own = vars(owner).get("commands", ())
        if not own and isinstance(owner, type) and issubclass(owner, Objective) and not _required(owner):
            own = (Command(hyphenated(owner.__name__), _first_line(owner)),)
        found |= {command.name: Named(owner, command) for command in own}
    return found


def solvers_of(package: ModuleType) -> dict[str, Solver]:
    """Return the exported solvers by name, in their order.

    Examples
    --------
    >>> import freshopt.solvers
    >>> list(solvers_of(freshopt.solvers).items())[1]
    ('water-filling', WaterFilling())
    """
    found: dict[str, Solver] = {}
    for owner in (getattr(package, name) for name in package.__all__):
        if not (hasattr(owner, "supports") and hasattr(owner, "solve")) or _required(owner):
            continue
        choice = getattr(owner, "named_by", None)
        if choice is None:
            found[hyphenated(owner.__name__)] = owner()
        else:
            # The values that a Literal lists, alone or beside other types.
            hint = typing.get_type_hints(owner)[choice]
            kinds = typing.get_args(hint)
            values = [value for kind in kinds for value in typing.get_args(kind)] or kinds
            found |= {value.lower(): owner(**{choice: value}) for value in values}
    return found


def _required(owner: type) -> bool:
    """Return whether a class cannot be made without arguments."""
    return is_dataclass(owner) and any(
        each.init and each.default is MISSING and each.default_factory is MISSING for each in fields(owner)
    )


def _first_line(owner: type) -> str:
    return (owner.__doc__ or "").strip().split("\n")[0].rstrip(".")


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """Parameters of objectives besides the sources.

    Each is one number, one per source, or None if it is not given.

    - `scale`, `exponent`, `cap` float or ndarray of (n,): Of the power cost min(scale·age^exponent, cap).
    - `deadline` float or ndarray of (n,): Age, in time units, from which a copy costs.
    """

    scale: float | Array | None = None
    exponent: float | Array | None = None
    cap: float | Array | None = None
    deadline: float | Array | None = None


NAMES = tuple(field.name for field in fields(Parameters))

OBJECTIVES = objectives_of(problems)
# A plan prices its schedule gap by gap, which takes a cost of age; polls count slots, and not days.
PLANNED = tuple(name for name, named in OBJECTIVES.items() if named.planned)


# Parameters that may follow a name, and how they are read.
_AFTER_NAME: dict[str, Callable[[str, str, Any], float]] = {
    "exponent": lambda what, text, _unit: _positive(what, text),
    "deadline": duration_of,
}


def objective_named(
    text: str,
    time_unit: str | None,
    refresh: Refresh | None = None,
    among: Collection[str] = tuple(OBJECTIVES),
) -> Objective:
    """Return the objective that a text names.

    Under a discipline, by default periodic refreshes where they are defined. Without a time unit no time may
    follow the name.

    Examples
    --------
    >>> objective_named("binary", "day")
    BinaryFreshness(refresh=Refresh.PERIODIC)
    >>> objective_named("power:0.25", "day")
    SynchronizationCost(cost=PowerCost(scale=1, exponent=0.25), refresh=Refresh.PERIODIC)
    """
    name, colon, own = (part.strip() for part in text.partition(":"))
    if name not in OBJECTIVES:
        raise ObjectiveError(
            f"there is no objective {shown(name)}.{suggestion(name, among)} Pass "
            f"{', '.join(among)}, or an instance such as freshopt.problems.BinaryFreshness()."
        )
    takes = next((key for key in OBJECTIVES[name].uses if key in _AFTER_NAME), None)
    if colon and takes is None:
        raise ObjectiveError(f"objective {shown(text)}: {name} takes no parameter. Pass {name!r}.")
    if not colon and takes in OBJECTIVES[name].command.needs:
        raise ObjectiveError(f'objective {name!r} needs a {takes}. Pass such as "{name}:2d".')
    if takes == "deadline" and time_unit is None:
        raise ObjectiveError(f"objective {shown(text)}: no clock is known here. Pass an instance.")
    given = {takes: _AFTER_NAME[takes](f"objective {shown(text)}", own, time_unit)} if colon and takes else {}
    return objective_of(name, None if refresh is None else refresh.value, Parameters(**given))


Objective._of_name = staticmethod(objective_named)


def _positive(what: str, text: str) -> float:
    """Return a number > 0 that follows a name."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise ObjectiveError(f'{what} has no number > 0 after the colon. Write such as "power:0.5".')
    return number


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
                f"--objective {name} needs one. Write --objective {name}:2d, or give the table of sources a "
                f"column '{key}'."
            )
    return named.make(chosen, own)
