"""Solvers, one algorithm per file. Installs as `freshopt.solvers`."""

from freshopt.solvers.auto import Auto as Auto
from freshopt.solvers.closed_form import ClosedForm as ClosedForm
from freshopt.solvers.conic import Conic as Conic
from freshopt.solvers.proportional import Proportional as Proportional
from freshopt.solvers.uniform import Uniform as Uniform
from freshopt.solvers.water_filling import WaterFilling as WaterFilling

__all__ = ["Auto", "ClosedForm", "Conic", "Proportional", "Uniform", "WaterFilling"]
