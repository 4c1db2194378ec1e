"""Exporters of rates and schedules to crawlers and tools.

Intervals from rates, or the times of a schedule.
"""

from freshopt.exporters.changedetection import ChangeDetection
from freshopt.exporters.crontab import Crontab
from freshopt.exporters.export import export
from freshopt.exporters.external_secrets import ExternalSecrets
from freshopt.exporters.icalendar import write_icalendar
from freshopt.exporters.nutch import Nutch
from freshopt.exporters.stormcrawler import StormCrawler
from freshopt.exporters.whole_intervals import Exported

__all__ = [
    "ChangeDetection",
    "Crontab",
    "Exported",
    "ExternalSecrets",
    "Nutch",
    "StormCrawler",
    "export",
    "write_icalendar",
]
