"""The tolerances of the tests, in one place. Random tests compare with a confidence interval instead."""

EXACT = 1e-12  # the same number by two routes of float64 arithmetic
SCALAR = 1e-9  # one-dimensional solves
CONIC = 1e-6  # interior-point solvers at their default settings
