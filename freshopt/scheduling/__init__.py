"""Refresh times from refresh rates."""
