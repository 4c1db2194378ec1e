"""Declared constraints, one per file, with their groups and settings."""
