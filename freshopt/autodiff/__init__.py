"""Automatic differentiation of a CVXPY expression, elementwise."""
