"""Changes told by what crawls saw.

That may be an ETag, a digest of the text or a version number.

The planner keeps what the latest crawl of a source saw; a crawl that sees another is a change. What was kept
is read and written in the transaction that records the observation, so that no change is counted twice or
lost. Where it is not known what the crawl before saw, nothing is known of the gap between them: the crawl is
recorded, and is no evidence.
"""

from __future__ import annotations

from freshopt.errors import SourceDataError, shown
from freshopt.live.database import Database
from freshopt.live.recording import Outcome, outcome_of, record
from freshopt.live.settings import PlannerSettings
from freshopt.logs.clock import Clock
from freshopt.logs.row_outcomes import UNKNOWN

# Characters; an ETag or a digest has fewer than a hundred.
LONGEST = 1000


def check_content(name: str, changed: object, content: object) -> str:
    """Return what a crawl saw; raise unless it is a short text."""
    if changed is not None:
        raise SourceDataError(f"changed and content of {shown(name)} are both given. Pass one of them.")
    if not isinstance(content, str) or not 0 < len(content) <= LONGEST or "\0" in content:
        raise SourceDataError(
            f"content of {shown(name)} is {shown(content)}. Pass a text of 1 to {LONGEST} characters, such "
            "as an ETag or a digest."
        )
    return content


def record_content(
    database: Database,
    clock: Clock,
    name: str,
    time: float,
    content: str,
    changes: object,
    last_modified: float | None,
    settings: PlannerSettings,
) -> bool:
    """Record and keep what a crawl saw; return whether it was new.

    A first crawl sees nothing else than the one before; the same crawl reported again is told as it was
    recorded. Within a transaction.
    """
    rows = database.rows("SELECT id, content, last_crawl FROM source WHERE name = ?", (name,))
    if not rows:
        raise SourceDataError(f"there is no source {name!r}. Add it first; nothing was recorded.")
    number, before, last = rows[0]
    recorded = database.rows("SELECT changed FROM observation WHERE source = ? AND time = ?", (number, time))
    if not recorded and last is not None and time < last:
        raise SourceDataError(
            f"the crawl of {shown(name)} at {clock.moment(time)} came before one that is recorded, at "
            f"{clock.moment(last)}: its content cannot be compared any more. Report crawls in their order, "
            "or with changed."
        )
    if recorded:
        changed = recorded[0][0]
    elif before is None and last is not None:
        changed = UNKNOWN
    else:
        changed = int(before is not None and before != content)
    outcome: Outcome = (time, UNKNOWN, None, None)
    if changed != UNKNOWN:
        outcome = outcome_of(name, time, changed == 1, changes, last_modified)
    new = record(database, clock, [name], [outcome], settings) == 1
    if new:
        database.run("UPDATE source SET content = ? WHERE name = ?", (content, name))
    return new
