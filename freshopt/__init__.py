"""freshopt: a convex-optimization modelling toolkit for keeping copies fresh.

Declare an objective over refresh rates, solve it, prove the answer, learn change rates from a crawl log, and
write a schedule that a crawler can load. The public names below are imported on first use, so that
``import freshopt`` costs no more than NumPy.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from freshopt.moved import MOVED as _MOVED

if TYPE_CHECKING:
    from freshopt.certificates.certificate import Certificate as Certificate
    from freshopt.certificates.certificate import certify as certify
    from freshopt.certificates.solution import Solution as Solution
    from freshopt.certificates.solution import Status as Status
    from freshopt.certificates.solutions import Solutions as Solutions
    from freshopt.crosscheck import Agreement as Agreement
    from freshopt.crosscheck import cross_check as cross_check
    from freshopt.errors import CertificateError as CertificateError
    from freshopt.errors import FreshoptError as FreshoptError
    from freshopt.errors import InfeasibleProblemError as InfeasibleProblemError
    from freshopt.errors import ObjectiveError as ObjectiveError
    from freshopt.errors import SolverRefusedError as SolverRefusedError
    from freshopt.errors import SourceDataError as SourceDataError
    from freshopt.errors import SourceDataWarning as SourceDataWarning
    from freshopt.live.planner import Planner as Planner
    from freshopt.logs.change_history import ChangeHistory as ChangeHistory
    from freshopt.logs.crawl_log import CrawlLog as CrawlLog
    from freshopt.logs.read_log import read_log as read_log
    from freshopt.many import solve_many as solve_many
    from freshopt.modelling.constraints.budget import Budget as Budget
    from freshopt.modelling.constraints.nested import Nested as Nested
    from freshopt.modelling.constraints.ratio import Ratio as Ratio
    from freshopt.modelling.constraints.target import Target as Target
    from freshopt.modelling.constraints.tied import Tied as Tied
    from freshopt.modelling.expected import Expected as Expected
    from freshopt.modelling.objective import Objective as Objective
    from freshopt.modelling.objective import Refresh as Refresh
    from freshopt.modelling.problem import Problem as Problem
    from freshopt.modelling.sources import Sources as Sources
    from freshopt.modelling.spend import Spend as Spend
    from freshopt.modelling.worst import Worst as Worst
    from freshopt.parametric import Frontier as Frontier
    from freshopt.parametric import frontier as frontier
    from freshopt.pipelines.pipeline import Pipeline as Pipeline
    from freshopt.pipelines.pipeline import pipeline as pipeline
    from freshopt.planning.backtest import BackTest as BackTest
    from freshopt.planning.backtest import backtest as backtest
    from freshopt.planning.lifetime_plan import LifetimePlan as LifetimePlan
    from freshopt.planning.lifetime_plan import plan_lifetimes as plan_lifetimes
    from freshopt.planning.plan import Plan as Plan
    from freshopt.planning.plan import plan as plan
    from freshopt.planning.uncertainty import PlanUncertainty as PlanUncertainty
    from freshopt.planning.uncertainty import plan_uncertainty as plan_uncertainty
    from freshopt.questions.bandwidth_for import BandwidthFor as BandwidthFor
    from freshopt.questions.bandwidth_for import bandwidth_for as bandwidth_for
    from freshopt.scheduling.schedule import Schedule as Schedule
    from freshopt.scheduling.schedule import schedule as schedule
    from freshopt.simulation.replay_result import Replay as Replay
    from freshopt.simulation.replaying import replay as replay
    from freshopt.simulation.world import World as World
    from freshopt.solving import solve as solve
    from freshopt.warming import warm as warm
    from freshopt.weekly.profile import WeeklyProfile as WeeklyProfile

__version__ = "0.1.0"
# Steps are told at INFO, decisions of solvers at DEBUG, to whoever listens.
logging.getLogger("freshopt").addHandler(logging.NullHandler())

_HOME = {
    "Worst": "freshopt.modelling.worst",
    "Tied": "freshopt.modelling.constraints.tied",
    "Target": "freshopt.modelling.constraints.target",
    "Spend": "freshopt.modelling.spend",
    "Ratio": "freshopt.modelling.constraints.ratio",
    "Nested": "freshopt.modelling.constraints.nested",
    "Budget": "freshopt.modelling.constraints.budget",
    "Agreement": "freshopt.crosscheck",
    "ChangeHistory": "freshopt.logs.change_history",
    "Certificate": "freshopt.certificates.certificate",
    "CertificateError": "freshopt.errors",
    "CrawlLog": "freshopt.logs.crawl_log",
    "Expected": "freshopt.modelling.expected",
    "Frontier": "freshopt.parametric",
    "FreshoptError": "freshopt.errors",
    "BackTest": "freshopt.planning.backtest",
    "InfeasibleProblemError": "freshopt.errors",
    "Objective": "freshopt.modelling.objective",
    "ObjectiveError": "freshopt.errors",
    "Pipeline": "freshopt.pipelines.pipeline",
    "LifetimePlan": "freshopt.planning.lifetime_plan",
    "Plan": "freshopt.planning.plan",
    "Planner": "freshopt.live.planner",
    "Problem": "freshopt.modelling.problem",
    "Refresh": "freshopt.modelling.objective",
    "Replay": "freshopt.simulation.replay_result",
    "Schedule": "freshopt.scheduling.schedule",
    "Solution": "freshopt.certificates.solution",
    "PlanUncertainty": "freshopt.planning.uncertainty",
    "SolverRefusedError": "freshopt.errors",
    "SourceDataError": "freshopt.errors",
    "SourceDataWarning": "freshopt.errors",
    "Sources": "freshopt.modelling.sources",
    "Status": "freshopt.certificates.solution",
    "WeeklyProfile": "freshopt.weekly.profile",
    "World": "freshopt.simulation.world",
    "BandwidthFor": "freshopt.questions.bandwidth_for",
    "backtest": "freshopt.planning.backtest",
    "bandwidth_for": "freshopt.questions.bandwidth_for",
    "certify": "freshopt.certificates.certificate",
    "cross_check": "freshopt.crosscheck",
    "frontier": "freshopt.parametric",
    "pipeline": "freshopt.pipelines.pipeline",
    "plan": "freshopt.planning.plan",
    "read_log": "freshopt.logs.read_log",
    "replay": "freshopt.simulation.replaying",
    "schedule": "freshopt.scheduling.schedule",
    "plan_lifetimes": "freshopt.planning.lifetime_plan",
    "plan_uncertainty": "freshopt.planning.uncertainty",
    "solve": "freshopt.solving",
    "warm": "freshopt.warming",
    "solve_many": "freshopt.many",
    "Solutions": "freshopt.certificates.solutions",
}
_PACKAGES = (
    "automata",
    "cuda",
    "datasets",
    "distributed",
    "estimators",
    "goodness_of_fit",
    "logs",
    "noisy_signals",
    "online",
    "pipelines",
    "problems",
    "report",
    "scheduling",
    "simulation",
    "solvers",
    "testing",
    "tools",
)

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> object:
    """Import a public name or subpackage on first use (PEP 562)."""
    if name in _PACKAGES or f"freshopt.{name}" in _MOVED:
        return importlib.import_module(f"freshopt.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'freshopt' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *_HOME, *_PACKAGES})
