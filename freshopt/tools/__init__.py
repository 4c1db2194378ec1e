"""Foreign tools, one a file: read, written, kept in step.

Logs from what they have recorded; intervals or lifetimes from rates, or the times of a schedule, as they load
them. `TOOLS` is the table of all.
"""

from freshopt.tools.cache_control import CacheControl
from freshopt.tools.changedetection import ChangeDetection, read_changedetection
from freshopt.tools.crontab import Crontab
from freshopt.tools.dbt import Dbt, read_dbt
from freshopt.tools.dbt_project import DbtJobs
from freshopt.tools.dns import Dns
from freshopt.tools.export import Exported, export
from freshopt.tools.external_secrets import ExternalSecrets
from freshopt.tools.feeds.freshrss import FreshRss
from freshopt.tools.feeds.miniflux import Miniflux
from freshopt.tools.git import read_git
from freshopt.tools.icalendar import write_icalendar
from freshopt.tools.nginx import Nginx
from freshopt.tools.nutch import Nutch, read_nutch
from freshopt.tools.pg_cron import PgCron
from freshopt.tools.redis import Redis
from freshopt.tools.sitemap import read_sitemap
from freshopt.tools.stormcrawler import StormCrawler
from freshopt.tools.text_template import TextTemplate
from freshopt.tools.wayback import read_wayback

__all__ = [
    "CacheControl",
    "ChangeDetection",
    "Crontab",
    "Dbt",
    "DbtJobs",
    "Dns",
    "Exported",
    "ExternalSecrets",
    "FreshRss",
    "Miniflux",
    "Nginx",
    "Nutch",
    "PgCron",
    "Redis",
    "StormCrawler",
    "TextTemplate",
    "export",
    "read_changedetection",
    "read_dbt",
    "read_git",
    "read_nutch",
    "read_sitemap",
    "read_wayback",
    "write_icalendar",
]
