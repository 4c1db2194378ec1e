"""Readers of logs and histories, tables, atomic output."""

from freshopt.io.read_bing import BingData as BingData
from freshopt.io.read_bing import read_bing as read_bing
from freshopt.io.read_changedetection import read_changedetection as read_changedetection
from freshopt.io.read_dbt import read_dbt as read_dbt
from freshopt.io.read_git import read_git as read_git
from freshopt.io.read_history import read_history as read_history
from freshopt.io.read_log import read_log as read_log
from freshopt.io.read_nutch import read_nutch as read_nutch
from freshopt.io.read_requests import read_requests as read_requests

__all__ = [
    "BingData",
    "read_bing",
    "read_changedetection",
    "read_dbt",
    "read_git",
    "read_history",
    "read_log",
    "read_nutch",
    "read_requests",
]
