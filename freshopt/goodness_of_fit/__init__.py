"""Goodness-of-fit tests of the Poisson model.

Against crawl logs and change histories.
"""

from freshopt.goodness_of_fit.interpretation import draw, interpret
from freshopt.goodness_of_fit.interpretation import plot as plot
from freshopt.goodness_of_fit.poisson_check import PoissonCheck, poisson_check

__all__ = ["PoissonCheck", "draw", "interpret", "poisson_check"]
