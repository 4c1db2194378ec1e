"""Feeds: readers' histories and intervals, lists of feeds, signals of changes."""
