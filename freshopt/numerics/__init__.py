"""Numerical mathematics on arrays."""
