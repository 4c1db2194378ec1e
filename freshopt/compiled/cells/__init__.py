"""Cells of refreshes on request and of conditional fetches."""
