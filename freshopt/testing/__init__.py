"""The kit with which a solver author validates a solver. Strategies: `freshopt.testing.strategies`."""

from freshopt.testing.families import Instance as Instance
from freshopt.testing.families import instances as instances
from freshopt.testing.families import standard_objectives as standard_objectives
from freshopt.testing.known_optima import known_optima as known_optima
from freshopt.testing.optimality import assert_optimal as assert_optimal
from freshopt.testing.planted import KnownOptimum as KnownOptimum
from freshopt.testing.recipe import Recipe as Recipe
from freshopt.testing.report import Report as Report
from freshopt.testing.validation import validate as validate
from freshopt.testing.validation import validate_on as validate_on

__all__ = [
    "Instance",
    "KnownOptimum",
    "Recipe",
    "Report",
    "assert_optimal",
    "instances",
    "known_optima",
    "standard_objectives",
    "validate",
    "validate_on",
]
