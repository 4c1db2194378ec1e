"""freshopt: a convex-optimization modelling toolkit for keeping copies fresh.

Declare an objective over refresh rates, solve it, prove the answer, learn change rates from a crawl log, and
write a schedule that a crawler can load. Public names are listed in `__all__`; each is imported on first use,
so that ``import freshopt`` costs no more than NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "Sources": "freshopt.sources",
    "FreshoptError": "freshopt.errors",
    "SourceDataError": "freshopt.errors",
    "ObjectiveError": "freshopt.errors",
    "InfeasibleProblemError": "freshopt.errors",
    "SolverRefusedError": "freshopt.errors",
    "CertificateError": "freshopt.errors",
}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'freshopt' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from freshopt.errors import CertificateError as CertificateError
    from freshopt.errors import FreshoptError as FreshoptError
    from freshopt.errors import InfeasibleProblemError as InfeasibleProblemError
    from freshopt.errors import ObjectiveError as ObjectiveError
    from freshopt.errors import SolverRefusedError as SolverRefusedError
    from freshopt.errors import SourceDataError as SourceDataError
    from freshopt.sources import Sources as Sources
