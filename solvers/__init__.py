"""Solvers, one algorithm per file; installed as `freshopt.solvers`.

A line here is all that a new file needs: the names of the command line, the tests and the reference take what
is exported, in the order of these lines. A file is loaded when its solver is first asked for.
"""

# ruff: noqa: I001 - the order of the command line, and not of the alphabet
from typing import TYPE_CHECKING

from freshopt.heavy import on_first_use

if TYPE_CHECKING:
    from freshopt.solvers.auto import Auto as Auto
    from freshopt.solvers.water_filling import WaterFilling as WaterFilling
    from freshopt.solvers.water_filling_cuda import WaterFillingCuda as WaterFillingCuda
    from freshopt.solvers.separable_newton import SeparableNewton as SeparableNewton
    from freshopt.solvers.interior_point import InteriorPoint as InteriorPoint
    from freshopt.solvers.nested_water_filling import NestedWaterFilling as NestedWaterFilling
    from freshopt.solvers.ratio_water_filling import RatioWaterFilling as RatioWaterFilling
    from freshopt.solvers.leximin import Leximin as Leximin
    from freshopt.solvers.closed_form import ClosedForm as ClosedForm
    from freshopt.solvers.conic import Conic as Conic
    from freshopt.solvers.lambda_crawl import LambdaCrawl as LambdaCrawl
    from freshopt.solvers.lambda_crawl_approx import LambdaCrawlApprox as LambdaCrawlApprox
    from freshopt.solvers.binary_lambda_crawl import BinaryLambdaCrawl as BinaryLambdaCrawl
    from freshopt.solvers.mirror_descent import MirrorDescent as MirrorDescent
    from freshopt.solvers.projected_gradient import ProjectedGradient as ProjectedGradient
    from freshopt.solvers.automata_tree import AutomataTree as AutomataTree
    from freshopt.solvers.uniform import Uniform as Uniform
    from freshopt.solvers.proportional import Proportional as Proportional
    from freshopt.solvers.square_root import SquareRoot as SquareRoot
    from freshopt.solvers.lifetime_rule import LifetimeRule as LifetimeRule

_HOMES, __getattr__, __dir__ = on_first_use(__name__, __file__)
__all__ = [*_HOMES]
