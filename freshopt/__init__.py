"""freshopt: a convex-optimization modelling toolkit for keeping copies fresh.

Declare an objective over refresh rates, solve it, prove the answer, learn change rates from a crawl log, and
write a schedule that a crawler can load. The public names below are imported on first use, so that
``import freshopt`` costs no more than NumPy.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING

from freshopt.moved import MOVED as _MOVED

__version__ = "0.2.0"
# Steps are told at INFO, decisions of solvers at DEBUG, to whoever listens.
logging.getLogger("freshopt").addHandler(logging.NullHandler())

# The public names, by the module that has them, and the public packages. Editors read the same below.
_HOME = {
    "power": "freshopt.autodiff.own_powers",
    "perspective": "freshopt.autodiff.perspective",
    "Certificate": "freshopt.certificates.certificate",
    "certify": "freshopt.certificates.certificate",
    "Solution": "freshopt.certificates.solution",
    "Status": "freshopt.certificates.solution",
    "Solutions": "freshopt.certificates.solutions",
    "Agreement": "freshopt.crosscheck",
    "cross_check": "freshopt.crosscheck",
    "CertificateError": "freshopt.errors",
    "FreshoptError": "freshopt.errors",
    "InfeasibleProblemError": "freshopt.errors",
    "ObjectiveError": "freshopt.errors",
    "SolverRefusedError": "freshopt.errors",
    "SourceDataError": "freshopt.errors",
    "SourceDataWarning": "freshopt.errors",
    "Planner": "freshopt.live.planner",
    "ChangeHistory": "freshopt.logs.change_history",
    "CrawlLog": "freshopt.logs.crawl_log",
    "read_log": "freshopt.logs.read_crawls",
    "solve_many": "freshopt.many",
    "Budget": "freshopt.modelling.constraints.budget",
    "Nested": "freshopt.modelling.constraints.nested",
    "Priced": "freshopt.modelling.constraints.priced",
    "Ratio": "freshopt.modelling.constraints.ratio",
    "Target": "freshopt.modelling.constraints.target",
    "Tied": "freshopt.modelling.constraints.tied",
    "Curve": "freshopt.modelling.curves.curve",
    "Expected": "freshopt.modelling.expected",
    "Objective": "freshopt.modelling.objective",
    "Refresh": "freshopt.modelling.objective",
    "Problem": "freshopt.modelling.problem",
    "Sources": "freshopt.modelling.sources",
    "Spend": "freshopt.modelling.spend",
    "Worst": "freshopt.modelling.worst",
    "Frontier": "freshopt.parametric",
    "frontier": "freshopt.parametric",
    "Pipeline": "freshopt.pipelines.pipeline",
    "pipeline": "freshopt.pipelines.pipeline",
    "BackTest": "freshopt.planning.backtest",
    "backtest": "freshopt.planning.backtest",
    "LifetimePlan": "freshopt.planning.lifetime_plan",
    "plan_lifetimes": "freshopt.planning.lifetime_plan",
    "Plan": "freshopt.planning.plan",
    "plan": "freshopt.planning.plan",
    "PlanUncertainty": "freshopt.planning.uncertainty",
    "plan_uncertainty": "freshopt.planning.uncertainty",
    "BandwidthFor": "freshopt.questions.bandwidth_for",
    "bandwidth_for": "freshopt.questions.bandwidth_for",
    "Schedule": "freshopt.scheduling.schedule",
    "schedule": "freshopt.scheduling.schedule",
    "Replay": "freshopt.simulation.replay_result",
    "replay": "freshopt.simulation.replaying",
    "World": "freshopt.simulation.world",
    "solve": "freshopt.solving",
    "show_versions": "freshopt.versions",
    "warm": "freshopt.warming",
    "WeeklyProfile": "freshopt.estimators.weekly_profile",
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
# These take objectives by name, and `freshopt.naming` knows the names.
_TAKING_NAMES = ("Problem", "Target", "Worst", "Expected", "cuda", "distributed", "online", "testing")

if TYPE_CHECKING:
    from freshopt import automata as automata
    from freshopt import cuda as cuda
    from freshopt import datasets as datasets
    from freshopt import distributed as distributed
    from freshopt import estimators as estimators
    from freshopt import goodness_of_fit as goodness_of_fit
    from freshopt import logs as logs
    from freshopt import noisy_signals as noisy_signals
    from freshopt import online as online
    from freshopt import pipelines as pipelines
    from freshopt import problems as problems
    from freshopt import report as report
    from freshopt import scheduling as scheduling
    from freshopt import simulation as simulation
    from freshopt import solvers as solvers
    from freshopt import testing as testing
    from freshopt import tools as tools
    from freshopt.autodiff.own_powers import power as power
    from freshopt.autodiff.perspective import perspective as perspective
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
    from freshopt.estimators.weekly_profile import WeeklyProfile as WeeklyProfile
    from freshopt.live.planner import Planner as Planner
    from freshopt.logs.change_history import ChangeHistory as ChangeHistory
    from freshopt.logs.crawl_log import CrawlLog as CrawlLog
    from freshopt.logs.read_crawls import read_log as read_log
    from freshopt.many import solve_many as solve_many
    from freshopt.modelling.constraints.budget import Budget as Budget
    from freshopt.modelling.constraints.nested import Nested as Nested
    from freshopt.modelling.constraints.priced import Priced as Priced
    from freshopt.modelling.constraints.ratio import Ratio as Ratio
    from freshopt.modelling.constraints.target import Target as Target
    from freshopt.modelling.constraints.tied import Tied as Tied
    from freshopt.modelling.curves.curve import Curve as Curve
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
    from freshopt.versions import show_versions as show_versions
    from freshopt.warming import warm as warm

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> object:
    """Import a public name or subpackage on first use (PEP 562)."""
    if name in _TAKING_NAMES:
        importlib.import_module("freshopt.naming")
    if name in _PACKAGES or f"freshopt.{name}" in _MOVED:
        return importlib.import_module(f"freshopt.{name}")
    if name not in _HOME:
        # With these the interpreter names the nearest.
        missing = f"module 'freshopt' has no attribute {name!r}"
        raise AttributeError(missing, name=name, obj=sys.modules[__name__])
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*_HOME, *_PACKAGES, "__version__"})
