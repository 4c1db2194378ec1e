"""Declared objectives, one per file. Installs as `freshopt.problems`."""
