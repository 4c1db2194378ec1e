"""Solvers, one algorithm per file. Installs as `freshopt.solvers`."""

from freshopt.solvers.auto import Auto as Auto
from freshopt.solvers.automata_tree import AutomataTree as AutomataTree
from freshopt.solvers.binary_lambda_crawl import BinaryLambdaCrawl as BinaryLambdaCrawl
from freshopt.solvers.closed_form import ClosedForm as ClosedForm
from freshopt.solvers.conic import Conic as Conic
from freshopt.solvers.lambda_crawl import LambdaCrawl as LambdaCrawl
from freshopt.solvers.lambda_crawl_approx import LambdaCrawlApprox as LambdaCrawlApprox
from freshopt.solvers.mirror_descent import MirrorDescent as MirrorDescent
from freshopt.solvers.projected_gradient import ProjectedGradient as ProjectedGradient
from freshopt.solvers.proportional import Proportional as Proportional
from freshopt.solvers.separable_newton import SeparableNewton as SeparableNewton
from freshopt.solvers.uniform import Uniform as Uniform
from freshopt.solvers.water_filling import WaterFilling as WaterFilling

__all__ = [
    "Auto",
    "AutomataTree",
    "BinaryLambdaCrawl",
    "ClosedForm",
    "Conic",
    "LambdaCrawl",
    "LambdaCrawlApprox",
    "MirrorDescent",
    "ProjectedGradient",
    "Proportional",
    "SeparableNewton",
    "Uniform",
    "WaterFilling",
]
