"""Crawls, changes and tables: read, validated, written."""

from typing import TYPE_CHECKING

from freshopt.heavy import on_first_use

# Sources need dataframes of these, and no reader.
if TYPE_CHECKING:
    from freshopt.logs.change_history import ChangeHistory as ChangeHistory
    from freshopt.logs.crawl_log import CrawlLog as CrawlLog
    from freshopt.logs.read_crawls import read_log as read_log
    from freshopt.logs.read_events import read_history as read_history
    from freshopt.logs.read_events import read_requests as read_requests

_HOMES, __getattr__, __dir__ = on_first_use(__name__, __file__)
__all__ = sorted(_HOMES)
