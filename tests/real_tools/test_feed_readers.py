"""Intervals of feed readers, in a real PostgreSQL with the columns of Miniflux's and FreshRSS's tables."""

from __future__ import annotations

from pathlib import Path

import psycopg

from freshopt.tools import FreshRss, Miniflux, export
from tests.tools.formats import plain_url

# Of Miniflux 2.3.3, ``internal/database/migrations.go``, what its scheduler reads; and of FreshRSS 1.25.0,
# ``app/SQL/install.sql.pgsql.php``.
TABLES = """
CREATE TABLE feeds (id BIGSERIAL PRIMARY KEY, user_id int NOT NULL, feed_url text NOT NULL,
    checked_at timestamp with time zone DEFAULT now(), next_check_at timestamp with time zone DEFAULT now(),
    disabled boolean DEFAULT 'f', parsing_error_count int DEFAULT 0, UNIQUE (user_id, feed_url));
CREATE TABLE freshrss_ann_feed (id SERIAL PRIMARY KEY, url VARCHAR(32768) NOT NULL,
    ttl INT NOT NULL DEFAULT 0);
"""
DUE = (
    "SELECT feed_url FROM feeds WHERE disabled IS false AND next_check_at < now() ORDER BY next_check_at ASC"
)
HOSTILE = "https://x.org/?q=');DROP+TABLE+feeds;--&$$<b>%27"


def test_miniflux_looks_when_the_interval_is_over(database: str, tmp_path: Path) -> None:
    """As often as it is run, the file puts the next look where the plan has it; all users' feeds have it."""
    names = [*(plain_url(k) for k in range(8)), HOSTILE]
    hours = {name: 1.0 + k for k, name in enumerate(names)}
    never, disabled = names[6], names[7]
    rates = {name: 0.0 if name == never else 24.0 / own for name, own in hours.items()}
    export(rates, Miniflux(), tmp_path / "sql")
    with psycopg.connect(database, autocommit=True) as held:
        held.execute(TABLES)
        for user in (1, 2):
            for name in names:
                held.execute(
                    "INSERT INTO feeds (user_id, feed_url, checked_at, disabled) "
                    "VALUES (%s, %s, now() - interval '4 hours 30 minutes', %s)",
                    (user, name, name == disabled),
                )
        for _ in range(2):
            held.execute((tmp_path / "sql").read_text())
            due = [row[0] for row in held.execute(DUE).fetchall()]
            assert due == [name for name in names[:4] for _ in range(2)]
        # What was looked at is due an interval later, whatever Miniflux has put there itself.
        held.execute("UPDATE feeds SET checked_at = now(), next_check_at = now() - interval '1 hour'")
        held.execute((tmp_path / "sql").read_text())
        assert held.execute(DUE).fetchall() == []
        left = "SELECT feed_url, extract(epoch FROM next_check_at - checked_at)::bigint FROM feeds"
        told = dict(held.execute(left).fetchall())
        assert told == {
            name: -3600 if name == disabled else round(3600 * own)
            for name, own in hours.items()
            if name != never
        } | {never: told[never]}
        assert told[never] > 99 * 365 * 86_400


def test_freshrss_in_postgresql(database: str, tmp_path: Path) -> None:
    names = [*(plain_url(k) for k in range(8)), HOSTILE]
    export({name: 1.0 + k for k, name in enumerate(names)}, FreshRss("freshrss_ann_feed"), tmp_path / "sql")
    with psycopg.connect(database, autocommit=True) as held:
        held.execute(TABLES)
        for k, name in enumerate(names):
            escaped = (
                name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
            )
            held.execute("INSERT INTO freshrss_ann_feed (url, ttl) VALUES (%s, %s)", (escaped, -(k == 0)))
        held.execute((tmp_path / "sql").read_text())
        found = [row[0] for row in held.execute("SELECT ttl FROM freshrss_ann_feed ORDER BY id").fetchall()]
    assert found == [-1, *(-(-86_400 // (1 + k)) for k in range(1, 9))]
