"""Crawls, changes and tables: read, validated, written."""

from freshopt.logs.change_history import ChangeHistory as ChangeHistory
from freshopt.logs.crawl_log import CrawlLog as CrawlLog
from freshopt.logs.read_events import read_history as read_history
from freshopt.logs.read_events import read_requests as read_requests
from freshopt.logs.read_log import read_log as read_log

__all__ = [
    "ChangeHistory",
    "CrawlLog",
    "read_history",
    "read_log",
    "read_requests",
]
