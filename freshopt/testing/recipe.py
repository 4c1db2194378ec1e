"""`Recipe`: a problem as plain, editable values.

From a recipe the problem can be built again, cut down, and written as Python.

A foreign solver gets a problem of its own, built from fresh copies, so that whatever it does to its input
spoils nothing and shows. The shrinker edits recipes, and the smallest failing one is printed as code.

What is printed is Python source of values, with the imports it needs.
"""

from __future__ import annotations

import copy
import enum
import importlib
import io
import math
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass, replace
from itertools import pairwise
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, shown
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.ratio import Ratio
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.constraints.tied import Tied
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, Index
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.renamed import Renamed, keywords

# From modules to names; "numpy" is imported as np.
Imports = dict[str, set[str]]
# Characters of a line; a report indents code by four.
LONGEST = 96


def spell(value: Any, imports: Imports) -> str:  # noqa: ANN401 - a value of any kind, refused if unknown
    """Return an expression that evaluates to an equal value.

    - raises ObjectiveError if the value cannot be written down, such as a lambda.

    Examples
    --------
    >>> from freshopt.problems import AccumulatedDelay
    >>> imports = {}
    >>> spell(AccumulatedDelay(), imports), sorted(imports)
    ('AccumulatedDelay(refresh=Refresh.PERIODIC)', ['freshopt', 'freshopt.problems'])
    >>> spell(np.array([1.0, np.inf]), imports), sorted(imports)
    ('[1.0, np.inf]', ['freshopt', 'freshopt.problems', 'numpy'])
    """
    if isinstance(value, np.ndarray):
        return spell(value.tolist(), imports)
    if isinstance(value, np.generic):
        return spell(value.item(), imports)
    if isinstance(value, float) and not math.isfinite(value):
        imports.setdefault("numpy", set())
        return "np.nan" if math.isnan(value) else "np.inf" if value > 0.0 else "-np.inf"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if type(value) in (list, tuple):
        items = ", ".join(spell(item, imports) for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return f"{{{', '.join(f'{spell(k, imports)}: {spell(v, imports)}' for k, v in value.items())}}}"
    if isinstance(value, enum.Enum):
        return f"{_importable(type(value), imports)}.{value.name}"
    name = getattr(value, "__name__", "")
    if isinstance(value, np.ufunc) and getattr(np, name, None) is value:
        imports.setdefault("numpy", set())
        return f"np.{name}"
    if isinstance(value, FunctionType):
        return _importable(value, imports)
    if is_dataclass(value):
        given = ", ".join(
            f"{f.name}={spell(getattr(value, f.name), imports)}" for f in fields(value) if f.init
        )
        return f"{_importable(type(value), imports)}({given})"
    if isinstance(value, Objective) and not getattr(value, "__dict__", None):
        return f"{_importable(type(value), imports)}()"
    raise ObjectiveError(f"{value!r} cannot be written as an expression. Make it a frozen dataclass.")


def import_lines(imports: Imports) -> list[str]:
    """Return the import statements, freshopt's own last.

    Examples
    --------
    >>> import_lines({"numpy": set(), "freshopt": {"Refresh"}})
    ['import numpy as np', 'from freshopt import Refresh']
    """
    lines = ["import numpy as np"] if "numpy" in imports else []
    named = sorted(imports, key=lambda module: (module.startswith("freshopt"), module))
    return lines + [f"from {m} import {', '.join(sorted(imports[m]))}" for m in named if imports[m]]


def folded(code: str) -> str:
    """Return code with its long lines broken after commas in brackets.

    Examples
    --------
    >>> folded("x = [" + "1.5, " * 30 + "2.0]").count(chr(10))
    1
    """
    ends: dict[int, list[int]] = {}
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
        if token.type == tokenize.OP and token.string == "," and depth:
            ends.setdefault(token.end[0], []).append(token.end[1])
    lines: list[str] = []
    for number, line in enumerate(code.splitlines(), 1):
        places = [0, *ends.get(number, []), len(line)]
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        current = ""
        for begin, end in pairwise(places):
            if current and len(current) + end - begin > LONGEST:
                lines.append(current)
                current = indent + line[begin:end].lstrip()
            else:
                current += line[begin:end]
        lines.append(current)
    return "\n".join(lines)


def _importable(thing: type | FunctionType, imports: Imports) -> str:
    """Return a class's or function's name and record its import."""
    module, name = thing.__module__, thing.__qualname__
    if "<" in name or "." in name or module == "__main__":
        raise ObjectiveError(f"{name} of {module} cannot be imported. Define it at the top of a module.")
    parts = module.split(".")
    if parts[0] == "freshopt":
        # By the public name: that of the package if it exports the name, else that of freshopt itself.
        package = ".".join(parts[:2])
        module = package if hasattr(importlib.import_module(package), name) else "freshopt"
    imports.setdefault(module, set()).add(name)
    return name


def cut(constraint: object, index: Index, host: npt.NDArray[Any] | None) -> object | None:
    """Return a constraint on some of the sources, None for nothing.

    Limits of groups without sources are dropped.

    - raises ObjectiveError if it cannot be cut, as a function of the rate.
    """
    way = _WAYS.get(type(constraint))
    if way is None:
        raise ObjectiveError(f"{shown(constraint)} holds what is needed for all sources. Keep all of them.")
    return way(constraint, index, host)


def _budget(one: Budget, index: Index, host: npt.NDArray[Any] | None) -> Budget | None:
    changes: dict[str, Any] = {"by": _part(one.by, index), "cost": _part(one.cost, index)}
    for side in ("limit", "at_least", "exactly"):
        limit = _kept(getattr(one, side), one.by, index, host)
        changes[side] = None if limit == {} else limit
    bounded = any(changes[side] is not None for side in ("limit", "at_least", "exactly"))
    return replace(one, **changes) if bounded else None


def _target(one: Target, index: Index, host: npt.NDArray[Any] | None) -> Target | None:
    side = "at_least" if one.at_most is None else "at_most"
    limit = _kept(getattr(one, side), one.by, index, host)
    changes: dict[str, Any] = {
        side: limit,
        "by": _part(one.by, index),
        "objective": one.objective.take(index),
    }
    return None if isinstance(limit, dict) and not limit else replace(one, **changes)


def _nested(one: Nested, index: Index, host: npt.NDArray[Any] | None) -> Nested | None:
    present: set[Any] = set()
    for level in one.levels:
        present |= _labels(level, index, host)
    most = {key: value for key, value in (one.at_most or {}).items() if key in present}
    least = {key: value for key, value in (one.at_least or {}).items() if key in present}
    if not most and not least:
        return None
    levels = tuple(_part(level, index) for level in one.levels)
    return replace(one, levels=levels, at_most=most or None, at_least=least or None)


def _tied(one: Tied, index: Index, _: npt.NDArray[Any] | None) -> Tied:
    return replace(one, bundle=_part(one.bundle, index))


def _ratio(one: Ratio, index: Index, _: npt.NDArray[Any] | None) -> Ratio:
    of = np.asarray(one.of)
    place = np.full(len(of) + 1, -1, dtype=np.int64)
    kept = np.arange(len(of))[index]
    place[kept] = np.arange(len(kept))
    parent = of[kept]
    own = np.where(parent >= 0, place[parent], -1)
    # A source that stands for several of the old ones is not its own parent.
    return replace(one, of=np.where(own == np.arange(len(kept)), -1, own), at_most=_part(one.at_most, index))


def _part(value: Any, index: Index) -> Any:  # noqa: ANN401 - a setting of any kind
    return value[index] if isinstance(value, np.ndarray) and value.ndim == 1 else value


def _kept(limit: Any, by: Any, index: Index, host: npt.NDArray[Any] | None) -> Any:  # noqa: ANN401
    if not isinstance(limit, Mapping):
        return limit
    present = _labels(by, index, host)
    return {key: value for key, value in limit.items() if key in present}


def _labels(by: Any, index: Index, host: npt.NDArray[Any] | None) -> set[Any]:  # noqa: ANN401
    labels = host if isinstance(by, str) else by
    return set() if labels is None else set(labels[index].tolist())


_WAYS: dict[type, Callable[..., object | None]] = {
    Budget: _budget,
    Target: _target,
    Nested: _nested,
    Tied: _tied,
    Ratio: _ratio,
}


DEFAULTS: dict[str, float] = {
    "importance": 1.0,
    "signalled": 0.0,
    "min_rate": 0.0,
    "max_rate": np.inf,
    "refresh_cost": 1.0,
    "success": 1.0,
    "changed_cost": 0.0,
}
COLUMNS = ("change_rate", *DEFAULTS)
# Columns that a problem may do without.
OPTIONAL = ("host", "names", "request_rate", "stale_while_revalidate")


@keywords(name="names")
@frozen_value()
class Recipe:
    """All data of a problem.

    Parameters
    ----------
    objective : Objective
    bandwidth : float or None
        None where constraints say what it is.
    change_rate, importance, min_rate, max_rate, refresh_cost : ndarray of float, shape (n,)
    success, changed_cost : ndarray of float, shape (n,)
    signalled : ndarray of bool, shape (n,)
    host, names, request_rate, stale_while_revalidate : ndarray, shape (n,), or None
    host_limits : dict of host to float
    time_unit : str
    constraints : tuple of Constraint
    columns : dict of str to ndarray, shape (n,)
        The user's own.
    rated : bool
        Whether change rates are those of the sources; they have none otherwise.
    """

    objective: Objective
    bandwidth: float | None
    change_rate: Array
    importance: Array
    signalled: BoolArray
    min_rate: Array
    max_rate: Array
    refresh_cost: Array
    success: Array
    changed_cost: Array
    host: npt.NDArray[Any] | None = None
    names: npt.NDArray[Any] | None = None
    host_limits: dict[Any, float] = field(default_factory=dict)
    time_unit: str = "day"
    constraints: tuple[Any, ...] = ()
    request_rate: Array | None = None
    stale_while_revalidate: Array | None = None
    columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    rated: bool = True
    name = Renamed("names")

    @classmethod
    def from_problem(cls, problem: Problem) -> Recipe:
        """Return a problem's recipe, with copies of its arrays.

        Examples
        --------
        >>> import freshopt as fo
        >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
        >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
        >>> Recipe.from_problem(problem).problem()
        Problem(AccumulatedDelay(refresh=Refresh.POISSON), n=2, bandwidth=3 per day)
        """
        sources = problem.sources
        columns: dict[str, Any] = {key: column_of(sources, key) for key in COLUMNS}
        labels: dict[str, Any] = {
            key: None if (x := getattr(sources, key)) is None else np.array(x) for key in OPTIONAL
        }
        return cls(
            problem.objective,
            problem.bandwidth if problem.short[0] else None,
            **columns,
            **labels,
            host_limits=problem.host_limits if problem.short[1] else {},
            time_unit=sources.time_unit,
            constraints=copy.deepcopy(problem.constraints),
            columns={name: np.array(column) for name, column in sources.columns.items()},
            rated=sources.rated,
        )

    def problem(self) -> Problem:
        """Build the problem, from copies.

        Raises
        ------
        FreshoptError
            If there is no such problem: infeasible, or refused by the objective.
        """
        columns: dict[str, Any] = {key: np.array(getattr(self, key)) for key in COLUMNS}
        labels: dict[str, Any] = {
            key: None if (x := getattr(self, key)) is None else np.array(x) for key in OPTIONAL
        }
        if not self.rated:
            del columns["change_rate"]
        own = {name: np.array(column) for name, column in self.columns.items()}
        sources = Sources(**columns, **labels, time_unit=self.time_unit, columns=own)
        given = copy.deepcopy(self.constraints)
        return Problem(self.objective, sources, self.bandwidth, dict(self.host_limits), given)

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.change_rate)

    @property
    def most(self) -> Array:
        """Rates that sources may have, by their signals and requests."""
        most = np.where(self.signalled, self.change_rate, np.inf)
        return most if self.request_rate is None else np.minimum(most, self.request_rate)

    @property
    def available(self) -> float:
        """Bandwidth, infinite where there is none."""
        return np.inf if self.bandwidth is None else self.bandwidth

    def take(self, index: Index) -> Recipe:
        """Return the recipe of some of the sources.

        Limits of hosts and groups without sources are dropped.

        Raises
        ------
        ObjectiveError
            If a constraint cannot be cut, as a function of the rate.
        """
        taken = {key: getattr(self, key)[index] for key in COLUMNS}
        taken |= {key: None if (x := getattr(self, key)) is None else x[index] for key in OPTIONAL}
        taken["columns"] = {name: column[index] for name, column in self.columns.items()}
        present = set() if taken["host"] is None else set(taken["host"].tolist())
        limits = {host: limit for host, limit in self.host_limits.items() if host in present}
        parts = (cut(one, index, self.host) for one in self.constraints)
        kept = tuple(part for part in parts if part is not None)
        return replace(
            self, objective=self.objective.take(index), host_limits=limits, constraints=kept, **taken
        )

    def changes_in(self, problem: Problem) -> list[str]:
        """Return the fields that differ between a recipe and a problem.

        The problem was built from the recipe; a solver may have changed it since.
        """
        now, intended = Recipe.from_problem(problem), self.problem()
        pairs = [(key, getattr(self, key), getattr(now, key)) for key in (*COLUMNS, *OPTIONAL)]
        pairs += [(key, getattr(intended, key), getattr(problem, key)) for key in ("lower", "upper")]
        found = [key for key, old, new in pairs if not _equal(old, new)]
        plain = ("bandwidth", "host_limits", "time_unit")
        if intended.program is not None and problem.program is not None:
            ours, theirs = intended.program.rows, problem.program.rows
            same = all(
                _equal(getattr(ours, key), getattr(theirs, key)) for key in ("limits", "coefficient", "row")
            )
            found += [] if same else ["constraints"]
        return found + [key for key in plain if getattr(self, key) != getattr(now, key)]

    def code(self) -> str:
        """Return Python code that builds the problem.

        An objective that cannot be written down (one that holds a lambda, say) leaves a line to fill in.

        Examples
        --------
        >>> import freshopt as fo
        >>> sources = fo.Sources([1.0, 4.0], max_rate=[np.inf, 0.5])
        >>> problem = fo.Problem(fo.problems.AccumulatedDelay(fo.Refresh.POISSON), sources, bandwidth=3.0)
        >>> print(Recipe.from_problem(problem).code())
        import numpy as np
        from freshopt import Problem, Refresh, Sources
        from freshopt.problems import AccumulatedDelay
        <BLANKLINE>
        objective = AccumulatedDelay(refresh=Refresh.POISSON)
        sources = Sources(
            change_rate=[1.0, 4.0],
            max_rate=[np.inf, 0.5],
        )
        problem = Problem(objective, sources, bandwidth=3.0)
        """
        imports: Imports = {"freshopt": {"Problem", "Sources"}}
        try:
            objective = spell(self.objective, imports)
        except ObjectiveError as error:
            objective = f"...  # {error}"
        arguments = {"change_rate": spell(self.change_rate, imports)} if self.rated else {}
        for key, default in DEFAULTS.items():
            column = getattr(self, key)
            if not bool(np.all(column == default)):
                alike = bool(np.all(column == column[0]))
                arguments[key] = spell(column[0] if alike else column, imports)
        for key in OPTIONAL:
            if getattr(self, key) is not None:
                arguments[key] = spell(getattr(self, key), imports)
        if self.columns:
            arguments["columns"] = spell(self.columns, imports)
        if self.time_unit != "day":
            arguments["time_unit"] = spell(self.time_unit, imports)
        limits = "" if self.bandwidth is None else f", bandwidth={spell(self.bandwidth, imports)}"
        limits += f", host_limits={spell(self.host_limits, imports)}" if self.host_limits else ""
        try:
            given = f", constraints={spell(list(self.constraints), imports)}" if self.constraints else ""
        except ObjectiveError as error:
            given = f", constraints=...)  # {error}"
        lines = [
            *import_lines(imports),
            "",
            f"objective = {objective}",
            "sources = Sources(",
            *(f"    {key}={text}," for key, text in arguments.items()),
            ")",
            f"problem = Problem(objective, sources{limits}{given})",
        ]
        return folded("\n".join(lines))


def column_of(sources: Sources, key: str) -> npt.NDArray[Any]:
    """Return a copy of a column, or its default."""
    column = getattr(sources, "scale" if key == "change_rate" else key)
    return np.full(len(sources), DEFAULTS[key]) if column is None else np.array(column)


def _equal(old: npt.NDArray[Any] | None, new: npt.NDArray[Any] | None) -> bool:
    if old is None or new is None:
        return old is new
    return bool(np.array_equal(old, new))
