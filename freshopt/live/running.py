"""`run_planner`: the loop of a crawler whose fetches are commands.

What is due is handed to a few workers, one source each; what they find is recorded by one thread, as soon as
it is there. However the loop ends, what was handed out and not fetched is handed back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event

from freshopt.live.hand_out import Visit
from freshopt.live.planner import Planner
from freshopt.live.signal_feed import SignalFeed
from freshopt.live.source_command import Fetch, SourceCommand

# Longest time, in seconds, until the database is asked again: another process may have added sources.
PATIENCE = 30.0
# Time of which a loop that waits is handed the bandwidth at once at most: it asks every second at least.
BURST = "1s"
# Seconds between looks for signals.
HEARING = 1.0
# Failures that are kept with their words.
KEPT = 5
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Tally:
    """What a loop has done.

    - `failures`: What the first few failures said.
    - `sources`: Those that were fetched.
    """

    fetched: int = 0
    changed: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)


def run_planner(
    planner: Planner,
    command: SourceCommand,
    *,
    jobs: int = 4,
    until: datetime | None = None,
    once: bool = False,
    stop: Event | None = None,
    signals: SignalFeed | None = None,
    on_fetch: Callable[[Visit, Fetch, bool], None] = lambda visit, fetch, changed: None,  # noqa: ARG005
) -> Tally:
    """Fetch what is due by a command, and record what it found.

    - `planner`: Of dates.
    - `jobs`: Commands at a time, ≥ 1.
    - `until`: When to begin no more.
    - `once`: End when nothing more is due.
    - `stop`: Ends the loop when it is set; what is being fetched is finished first.
    - `signals`: Heard every second; with `once`, all that it has before anything is fetched.
    - `on_fetch`: Takes each visit, what came of it, and whether that is a change.
    """
    halt = Event() if stop is None else stop
    tally, begun = Tally(), datetime.now(UTC)
    running: dict[Future[Fetch], tuple[Visit, datetime]] = {}
    if signals is not None and once:
        signals.hear_all(planner, command.timeout)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while True:
                if signals is not None:
                    signals.hear(planner)
                now = datetime.now(UTC)
                over = halt.is_set() or (until is not None and now >= until)
                if not over and len(running) < jobs:
                    free = jobs - len(running)
                    for visit in planner.due(now, limit=free, burst=None if once else BURST):
                        future = pool.submit(command.run, visit.source, visit.host or "")
                        running[future] = visit, now
                if not running:
                    # What was due when the loop began and waits for its host alone is waited for.
                    ended = over or (once and planner.next_turn(now, begun) is None)
                    pause = None if ended else _pause(planner, now, until)
                    if pause is None:
                        return tally
                    halt.wait(pause if signals is None else min(pause, HEARING))
                    continue
                done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    visit, began = running.pop(future)
                    _record(planner, visit, began, future.result(), tally, on_fetch)
        finally:
            left = [visit.source for visit, _ in running.values()]
            for future in running:
                future.cancel()
            planner.release(*left)


def _record(
    planner: Planner,
    visit: Visit,
    began: datetime,
    fetch: Fetch,
    tally: Tally,
    on_fetch: Callable[[Visit, Fetch, bool], None],
) -> None:
    """Record what a command found; nothing if it failed."""
    changed = False
    if fetch.failure:
        planner.failed(visit.source, began)
        tally.failed += 1
        if len(tally.failures) < KEPT:
            tally.failures.append(f"{visit.source}: {fetch.failure}")
        _LOG.info("%s: %s", visit.source, fetch.failure)
    else:
        if fetch.content:
            planner.observed(visit.source, began, content=fetch.content, latency=fetch.seconds)
            changed = visit.content is not None and visit.content != fetch.content
        else:
            planner.observed(visit.source, began, fetch.changed, latency=fetch.seconds)
            changed = bool(fetch.changed)
        tally.fetched += 1
        tally.sources.add(visit.source)
        tally.changed += changed
    on_fetch(visit, fetch, changed)


def _pause(planner: Planner, now: datetime, until: datetime | None) -> float | None:
    """Return seconds until something may be due, None past the end."""
    due = planner.next_due(now)
    if until is not None and isinstance(due, datetime) and due >= until:
        return None
    waits = [(each - now).total_seconds() for each in (due, until) if isinstance(each, datetime)]
    # A tenth of a second at least, where the database and this process disagree about what is due.
    return max(0.1, min([PATIENCE, *waits]))
