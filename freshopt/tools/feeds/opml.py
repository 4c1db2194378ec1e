"""OPML: lists of feeds, with bounds of intervals by folder.

All feed readers write such lists [1]_. A list tells no history: with one (of Miniflux, FreshRSS, or a
crawler's log, whose sources are the addresses of the feeds) it brings bounds by tag, as the table of
``freshopt plan --limits``.

References
----------
.. [1] http://opml.org/spec2.opml
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from freshopt.errors import SourceDataError
from freshopt.tools.feeds.tag_bounds import Bounds, bounds_of, read_tag_bounds, require_tags
from freshopt.tools.records import octets_of, unreadable

if TYPE_CHECKING:
    import polars

_INTERVAL = "--interval"


def read_opml(path: Path, *, intervals: Sequence[str] = ()) -> polars.DataFrame:
    """Read a list of feeds as a table of limits.

    Bounds are by tag, such as "News=10min..6h". Columns are source (the feed's address), tags, min_interval
    and max_interval, empty where there is none.
    """
    import polars

    try:
        import listparser
    except ImportError:
        raise SourceDataError(
            "listparser is not installed. Install it with: pip install 'freshopt[feeds]'"
        ) from None
    octets = octets_of(Path(path), "OPML")
    try:
        # Of text it would fetch an address; not all its parsers read other encodings than UTF-8.
        read = listparser.parse(
            octets.decode("utf-16" if octets[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig").encode()
        )
    except UnicodeDecodeError as error:
        raise unreadable(Path(path), "OPML", f"it is not in UTF-8 (byte {error.start})") from error
    tags: dict[str, dict[str, None]] = {}
    for feed in read.feeds:
        own = tags.setdefault(str(feed["url"]), {})
        own.update(
            dict.fromkeys(["/".join(folders) for folders in feed.get("categories", ()) if any(folders)])
        )
    if not tags:
        raise unreadable(Path(path), "OPML", "it lists no feed")
    bounds = read_tag_bounds(intervals, _INTERVAL)
    require_tags(bounds, {tag for own in tags.values() for tag in own}, _INTERVAL)
    rows = []
    for source, own in tags.items():
        least, most = bounds_of(source, own, bounds, Bounds(), _INTERVAL)
        shown = f"{least:g} s" if least > 0.0 else None, f"{most:g} s" if most < math.inf else None
        rows.append((source, "; ".join(own), *shown))
    names = ("source", "tags", "min_interval", "max_interval")
    return polars.DataFrame(rows, schema=dict.fromkeys(names, polars.String), orient="row")
