"""Heavy libraries, and public names of packages, imported on first use.

They take tenths of a second to import, and most uses of freshopt need few of them. A module that does says
``from freshopt.heavy import polars`` at its top, and writes ``polars.col(...)``: nothing is imported until
then. Type checkers read the libraries themselves.

A package of which few names are needed at once lists them for type checkers alone, under ``TYPE_CHECKING``;
`on_first_use` reads them there.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

# A line that tells type checkers where a public name is.
_LINE = re.compile(r"^ {4}from (\S+) import (?:\(\s+)?(\w+) as \2\b", re.MULTILINE)


class Lazy:
    """Stand-in for a module, imported on first attribute access."""

    __slots__ = ("_called", "_found")

    def __init__(self, called: str) -> None:
        self._called = called

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a module's attributes have no common type
        """Return the attribute of the real module."""
        if name.startswith("__"):  # whoever inspects any object asks for these, and needs no library
            raise AttributeError(name)
        if name == "_found":  # a slot that is empty so far
            self._found = importlib.import_module(self._called)
            return self._found
        return getattr(self._found, name)

    def __reduce__(self) -> tuple[type[Lazy], tuple[str]]:
        """Return what makes it anew: modules are in no pickle."""
        return Lazy, (self._called,)

    def __repr__(self) -> str:
        return f"<{self._called}, imported on first use>"


def on_first_use(
    package: str, file: str
) -> tuple[dict[str, str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's public names by module, its `__getattr__` and its `__dir__`.

    Examples
    --------
    >>> import freshopt.solvers
    >>> homes, find, names = on_first_use("freshopt.solvers", freshopt.solvers.__file__)
    >>> homes["Uniform"], find("Uniform"), "Uniform" in names()
    ('freshopt.solvers.uniform', <class 'freshopt.solvers.uniform.Uniform'>, True)
    """
    with open(file, encoding="utf-8") as lines:
        homes = {name: home for home, name in _LINE.findall(lines.read())}

    def find(name: str) -> Any:  # noqa: ANN401 - as the name
        part = f"{package}.{name}"
        if homes.get(name) == package or part in homes.values():
            return importlib.import_module(part)
        if name not in homes:
            # With these the interpreter names the nearest.
            missing = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(missing, name=name, obj=sys.modules[package])
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return homes, find, lambda: sorted({*homes, *sys.modules[package].__all__})


if TYPE_CHECKING:
    import msgspec
    import polars
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from scipy import optimize, sparse, special
else:
    msgspec, polars = Lazy("msgspec"), Lazy("polars")
    optimize, sparse, special = Lazy("scipy.optimize"), Lazy("scipy.sparse"), Lazy("scipy.special")
    pa, pc, pq = Lazy("pyarrow"), Lazy("pyarrow.compute"), Lazy("pyarrow.parquet")
__all__ = ["Lazy", "msgspec", "on_first_use", "optimize", "pa", "pc", "polars", "pq", "sparse", "special"]
