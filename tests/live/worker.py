"""A crawler as a process of its own: it says what was acknowledged, line by line, until it is ended.

    python -m tests.live.worker FOLDER

Of each moment that it reads it crawls three sources that are due, and prints ``source time changed due`` as
soon as `Planner.observed` has returned, and ``done`` at last. Whether a source has changed is a function of
its name and the time, so that anybody can check what is recorded.
"""

import sys
from zlib import crc32

from freshopt.live.planner import Planner


def changed(source: str, time: float) -> bool:
    """Return what a crawl finds."""
    return crc32(f"{source} {time!r}".encode()) % 3 == 0


def main(folder: str) -> None:
    """Crawl what is due at the moments that are read."""
    with Planner(folder) as planner:
        print("ready", flush=True)
        for line in sys.stdin:
            now = float(line)
            for visit in planner.due(now, limit=3):
                found = changed(visit.source, now)
                planner.observed(visit.source, now, found)
                print(visit.source, repr(now), int(found), repr(visit.due), flush=True)
            print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
