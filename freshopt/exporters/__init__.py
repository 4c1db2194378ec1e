"""Exporters of rates and schedules to crawlers, caches and tools.

Intervals or lifetimes from rates, or the times of a schedule.
"""

from freshopt.exporters.cache_control import CacheControl
from freshopt.exporters.changedetection import ChangeDetection
from freshopt.exporters.crontab import Crontab
from freshopt.exporters.dbt import Dbt
from freshopt.exporters.dbt_jobs import DbtJobs
from freshopt.exporters.dns import Dns
from freshopt.exporters.export import export
from freshopt.exporters.external_secrets import ExternalSecrets
from freshopt.exporters.icalendar import write_icalendar
from freshopt.exporters.nginx import Nginx
from freshopt.exporters.nutch import Nutch
from freshopt.exporters.pg_cron import PgCron
from freshopt.exporters.redis import Redis
from freshopt.exporters.stormcrawler import StormCrawler
from freshopt.exporters.text_template import TextTemplate
from freshopt.exporters.tool_format import Exported

__all__ = [
    "CacheControl",
    "ChangeDetection",
    "Crontab",
    "Dbt",
    "DbtJobs",
    "Dns",
    "Exported",
    "ExternalSecrets",
    "Nginx",
    "Nutch",
    "PgCron",
    "Redis",
    "StormCrawler",
    "TextTemplate",
    "export",
    "write_icalendar",
]
