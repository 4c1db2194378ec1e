"""Validation kit for solver authors.

Hypothesis strategies are in `freshopt.testing.strategies`.
"""

from freshopt.renamed import exports
from freshopt.testing.known_optima import known_optima as known_optima
from freshopt.testing.optimality import assert_optimal as assert_optimal
from freshopt.testing.planted_optima import KnownOptimum as KnownOptimum
from freshopt.testing.problem_families import Instance as Instance
from freshopt.testing.problem_families import instances as instances
from freshopt.testing.problem_families import standard_objectives as standard_objectives
from freshopt.testing.recipe import Recipe as Recipe
from freshopt.testing.validation import validate as validate
from freshopt.testing.validation import validate_on as validate_on
from freshopt.testing.validation_report import Report as Report

__all__ = exports(globals())
