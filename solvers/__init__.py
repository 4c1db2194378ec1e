"""Solvers, one algorithm per file. Installs as `freshopt.solvers`."""

from freshopt.solvers.auto import Auto as Auto
from freshopt.solvers.water_filling import WaterFilling as WaterFilling

__all__ = ["Auto", "WaterFilling"]
