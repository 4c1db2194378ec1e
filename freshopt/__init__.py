"""freshopt: a convex-optimization modelling toolkit for keeping copies fresh.

Declare an objective over refresh rates, solve it, prove the answer, learn change rates from a crawl log, and
write a schedule that a crawler can load. The public names below are imported on first use, so that
``import freshopt`` costs no more than NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freshopt.certificate import Certificate as Certificate
    from freshopt.certificate import certify as certify
    from freshopt.crosscheck import Agreement as Agreement
    from freshopt.crosscheck import cross_check as cross_check
    from freshopt.errors import CertificateError as CertificateError
    from freshopt.errors import FreshoptError as FreshoptError
    from freshopt.errors import InfeasibleProblemError as InfeasibleProblemError
    from freshopt.errors import ObjectiveError as ObjectiveError
    from freshopt.errors import SolverRefusedError as SolverRefusedError
    from freshopt.errors import SourceDataError as SourceDataError
    from freshopt.io.read_log import read_log as read_log
    from freshopt.learning.crawl_log import CrawlLog as CrawlLog
    from freshopt.model import Problem as Problem
    from freshopt.objective import Objective as Objective
    from freshopt.objective import Refresh as Refresh
    from freshopt.result import Solution as Solution
    from freshopt.result import Status as Status
    from freshopt.scheduling.schedule import Schedule as Schedule
    from freshopt.scheduling.schedule import schedule as schedule
    from freshopt.simulation.measured import Replay as Replay
    from freshopt.simulation.replaying import replay as replay
    from freshopt.simulation.world import World as World
    from freshopt.solving import Frontier as Frontier
    from freshopt.solving import frontier as frontier
    from freshopt.solving import solve as solve
    from freshopt.sources import Sources as Sources

__version__ = "0.1.0"

_HOME = {
    "Agreement": "freshopt.crosscheck",
    "Certificate": "freshopt.certificate",
    "CertificateError": "freshopt.errors",
    "CrawlLog": "freshopt.learning.crawl_log",
    "Frontier": "freshopt.solving",
    "FreshoptError": "freshopt.errors",
    "InfeasibleProblemError": "freshopt.errors",
    "Objective": "freshopt.objective",
    "ObjectiveError": "freshopt.errors",
    "Problem": "freshopt.model",
    "Refresh": "freshopt.objective",
    "Replay": "freshopt.simulation.measured",
    "Schedule": "freshopt.scheduling.schedule",
    "Solution": "freshopt.result",
    "SolverRefusedError": "freshopt.errors",
    "SourceDataError": "freshopt.errors",
    "Sources": "freshopt.sources",
    "Status": "freshopt.result",
    "World": "freshopt.simulation.world",
    "certify": "freshopt.certificate",
    "cross_check": "freshopt.crosscheck",
    "frontier": "freshopt.solving",
    "read_log": "freshopt.io.read_log",
    "replay": "freshopt.simulation.replaying",
    "schedule": "freshopt.scheduling.schedule",
    "solve": "freshopt.solving",
}
_PACKAGES = (
    "automata",
    "distributed",
    "exporting",
    "io",
    "learning",
    "problems",
    "report",
    "scheduling",
    "simulation",
    "solvers",
    "testing",
)

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> object:
    """Import a public name or subpackage on first use (PEP 562)."""
    if name in _PACKAGES:
        return importlib.import_module(f"freshopt.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'freshopt' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *_HOME, *_PACKAGES})
