"""Compiled passes over the sources: demand and best responses."""
