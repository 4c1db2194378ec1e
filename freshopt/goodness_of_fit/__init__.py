"""Goodness-of-fit tests of the Poisson model.

Against crawl logs and change histories.
"""

from freshopt.goodness_of_fit.interpretation import interpret as interpret
from freshopt.goodness_of_fit.plot import plot as plot
from freshopt.goodness_of_fit.poisson_check import PoissonCheck as PoissonCheck
from freshopt.goodness_of_fit.poisson_check import poisson_check as poisson_check

__all__ = ["PoissonCheck", "interpret", "plot", "poisson_check"]
