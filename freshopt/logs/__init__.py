"""Crawls, changes and tables: read, validated, written."""

from freshopt.logs.change_history import ChangeHistory as ChangeHistory
from freshopt.logs.crawl_log import CrawlLog as CrawlLog
from freshopt.logs.read_history import read_history as read_history
from freshopt.logs.read_log import read_log as read_log
from freshopt.logs.read_requests import read_requests as read_requests

__all__ = [
    "ChangeHistory",
    "CrawlLog",
    "read_history",
    "read_log",
    "read_requests",
]
