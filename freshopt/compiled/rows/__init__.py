"""Loops over sources and the rows of constraints."""
