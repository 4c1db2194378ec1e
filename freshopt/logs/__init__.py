"""Crawl logs and change histories as validated values."""

from freshopt.logs.change_history import ChangeHistory as ChangeHistory
from freshopt.logs.crawl_log import CrawlLog as CrawlLog

__all__ = [
    "ChangeHistory",
    "CrawlLog",
]
