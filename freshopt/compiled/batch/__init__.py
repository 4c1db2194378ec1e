"""Compiled passes over many small problems at once."""
