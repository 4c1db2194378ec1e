"""Python source of values, with the imports it needs."""

from __future__ import annotations

import enum
import importlib
import io
import math
import tokenize
from dataclasses import fields, is_dataclass
from itertools import pairwise
from types import FunctionType
from typing import Any

import numpy as np

from freshopt.errors import ObjectiveError
from freshopt.modelling.objective import Objective

# From modules to names; "numpy" is imported as np.
Imports = dict[str, set[str]]
# Characters of a line; a report indents code by four.
LONGEST = 96


def spell(value: Any, imports: Imports) -> str:  # noqa: ANN401 - a value of any kind, refused if unknown
    """Return an expression that evaluates to an equal value.

    Raises
    ------
    ObjectiveError
        If the value cannot be written down, such as a lambda.

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
