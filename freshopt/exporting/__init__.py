"""What crawlers and other tools load: intervals from rates, or the times of a schedule."""

from freshopt.exporting.changedetection import ChangeDetection
from freshopt.exporting.crontab import Crontab
from freshopt.exporting.export import export
from freshopt.exporting.external_secrets import ExternalSecrets
from freshopt.exporting.icalendar import write_icalendar
from freshopt.exporting.intervals import Exported
from freshopt.exporting.nutch import Nutch
from freshopt.exporting.stormcrawler import StormCrawler

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
