"""Modelling: sources, objectives and constraints, up to a frozen Problem."""
