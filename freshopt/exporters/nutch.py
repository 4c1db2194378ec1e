"""Apache Nutch: seed list with a fetch interval per URL.

With bounds for each host.

``bin/nutch inject`` reads every file in the folder ``seeds``: a URL a line, then metadata ``key=value``, all
separated by tabs; lines that begin with ``#`` are skipped [1]_. ``nutch.fetchInterval.fixed`` is the interval
in seconds, an integer, which the adaptive schedule leaves alone. Pages that are found later have no such
entry; for those the adaptive schedule reads ``conf/adaptive-host-specific-intervals.txt``, host, shortest and
longest interval in seconds, separated by white space [2]_. There a host's bounds are the intervals of the
sources that were planned on it.

Two numbers of Nutch's decide what it can keep. It fetches again, whatever the interval, what is due later
than ``db.fetch.interval.max`` from now, by default 90 days; and it stores the interval as a 32-bit
float, in which whole seconds end at 194 days: longer ones are rounded up to such a number.

References
----------
.. [1] https://cwiki.apache.org/confluence/display/NUTCH/bin+nutch+inject
.. [2] https://github.com/apache/nutch/blob/master/conf/adaptive-host-specific-intervals.txt.template
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from freshopt.exporters.text_lines import hosts_of, urls_of, write_lines
from freshopt.exporters.tool_format import Exported
from freshopt.exporters.whole_intervals import (
    NEVER,
    IntervalFormat,
    Limits,
    exported,
    labels,
    whole_intervals,
)
from freshopt.numerics.arrays import IntArray
from freshopt.scheduling.rate_table import RateTable

SEEDS, HOSTS = "seeds/seeds.tsv", "conf/adaptive-host-specific-intervals.txt"
# Seconds, Nutch's default of db.fetch.interval.max.
LONGEST = 7_776_000
# Seconds; a host's bounds must lie strictly between them, or be "default".
_ADAPTIVE = (60, 31_536_000)
_HEAD = "# host, shortest and longest interval in seconds, of pages without one of their own\n"


@dataclass(frozen=True, slots=True)
class Nutch(IntervalFormat):
    """Folder with the seed list and the hosts' intervals.

    Parameters
    ----------
    longest : int
        Seconds: what ``db.fetch.interval.max`` is set to.

    Notes
    -----
    ``inject`` leaves URLs that Nutch already knows as they are, unless it runs with ``-update``. Sources that
    are never refreshed are left out of the list; of those that it knows Nutch keeps the interval it has.
    """

    longest: int = LONGEST
    files: ClassVar[tuple[str, ...]] = (SEEDS, HOSTS)

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write into a folder.

        Parameters
        ----------
        table : RateTable
        path : Path
            An existing, empty folder.

        Raises
        ------
        SourceDataError
            If a name is no URL, an interval does not fit, or a source waits for signals.
        """
        import polars
        from polars import col

        names = labels(table)
        limits = Limits(
            "Nutch",
            step=1,
            longest=self.longest,
            shortest=1,
            remedy="Raise their min_rate; or raise db.fetch.interval.max and tell it here (--longest).",
        )
        seconds = _floats(whole_intervals(table, limits))
        urls = urls_of(names, "Nutch")
        active = polars.DataFrame({"url": urls, "seconds": seconds}).filter(col("seconds") != NEVER)
        for name in self.files:
            (path / name).parent.mkdir()
        seed = polars.format("{}\tnutch.fetchInterval.fixed={}\n", col("url"), col("seconds"))
        write_lines(path / SEEDS, active, seed)
        hosts = active.select(hosts_of(active["url"]).alias("host"), "seconds").group_by("host")
        bounds = hosts.agg(low=col("seconds").min(), high=col("seconds").max()).sort("host")
        words = [
            polars.when(bound.is_between(*_ADAPTIVE, closed="none"))
            .then(bound.cast(polars.String))
            .otherwise(polars.lit("default"))
            for bound in (col("low"), col("high"))
        ]
        write_lines(path / HOSTS, bounds, polars.format("{} {} {}\n", col("host"), *words), head=_HEAD)
        return exported(table, seconds, "left out of the seeds")


def _floats(seconds: IntArray) -> IntArray:
    """Return the intervals rounded up to 32-bit floats."""
    single = seconds.astype(np.float32)
    short = single.astype(np.int64) < seconds
    return np.where(short, np.nextafter(single, np.float32(np.inf)), single).astype(np.int64)
