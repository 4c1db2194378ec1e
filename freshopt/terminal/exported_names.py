"""Command-line names of objectives and solvers, from what is exported.

An objective states its names itself (`Objective.commands`); otherwise, as a solver's, the name is the class's
own with hyphens. Solvers that are one class for several backends state the field that tells them apart.
"""

from __future__ import annotations

import functools
import re
import typing
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import ModuleType
from typing import Any

from freshopt.certificates.solver_protocol import Solver
from freshopt.modelling.cost_curve import CurveObjective
from freshopt.modelling.objective import Command, Objective, Refresh
from freshopt.problems import SynchronizationCost


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

    Attributes
    ----------
    owner : type
        An objective, or a cost of age, which is the cost of `SynchronizationCost`.
    command : Command
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
        """Return the objective under a discipline; one without parameters is made once.

        What a penalty compresses on first use then serves every later problem.
        """
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
