"""Heavy libraries, each imported on its first use.

They take tenths of a second to import, and most uses of freshopt need few of them. A module that does says
``from freshopt.heavy import polars`` at its top, and writes ``polars.col(...)``: nothing is imported until
then. Type checkers read the libraries themselves.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


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
__all__ = ["Lazy", "msgspec", "optimize", "pa", "pc", "polars", "pq", "sparse", "special"]
