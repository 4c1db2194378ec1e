"""freshopt: a convex-optimization modelling toolkit for keeping copies fresh.

Declare an objective over refresh rates, solve it, prove the answer, learn change rates from a crawl log, and
write a schedule that a crawler can load. The public names below are imported on first use, so that
``import freshopt`` costs no more than NumPy.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from freshopt.heavy import on_first_use as _on_first_use
from freshopt.moved import MOVED as _MOVED

__version__ = "0.2.0"
# Steps are told at INFO, decisions of solvers at DEBUG, to whoever listens.
logging.getLogger("freshopt").addHandler(logging.NullHandler())

# The public names and packages, once for editors and for `on_first_use`.
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

# These take objectives by name, and `freshopt.naming` knows the names.
_TAKING_NAMES = ("Problem", "Target", "Worst", "Expected", "cuda", "distributed", "online", "testing")
_HOMES, _find, __dir__ = _on_first_use(__name__, __file__)
_PACKAGES = tuple(name for name, home in _HOMES.items() if home == __name__)
__all__ = [*(name for name in _HOMES if name not in _PACKAGES), "__version__"]


def __getattr__(name: str) -> object:
    """Import a public name or subpackage on first use (PEP 562)."""
    if name in _TAKING_NAMES:
        importlib.import_module("freshopt.naming")
    if f"freshopt.{name}" in _MOVED:
        return importlib.import_module(f"freshopt.{name}")
    return _find(name)
