"""Crawls, changes and tables: read, validated, written."""

from typing import TYPE_CHECKING

from freshopt.renamed import on_first_use

if TYPE_CHECKING:
    from freshopt.logs.change_history import ChangeHistory
    from freshopt.logs.crawl_log import CrawlLog
    from freshopt.logs.read_crawls import read_log
    from freshopt.logs.read_events import read_history, read_requests

# Names by their file. Sources need dataframes of these, and no reader.
_NAMES = {
    "change_history": ("ChangeHistory",),
    "crawl_log": ("CrawlLog",),
    "read_events": ("read_history", "read_requests"),
    "read_crawls": ("read_log",),
}
__all__ = ["ChangeHistory", "CrawlLog", "read_history", "read_log", "read_requests"]
__getattr__, __dir__ = on_first_use(__name__, _NAMES)
