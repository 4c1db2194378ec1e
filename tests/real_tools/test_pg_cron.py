"""Rates exported to pg_cron, run by psql, kept by pg_cron, and a job that it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from freshopt.cli import main
from tests.real_tools.postgres_server import PostgresServer

# Names that SQL must not read as SQL.
SOURCES = ["often", "it's", "a\\b", "x'); DROP TABLE crawled; --", "$$", "ü" * 40, 'a "b".c', "E'\\x'"]
# A job is started within the minute after it is due, and pg_cron looks once a second.
PATIENCE = 80
EVERY_MINUTE = ",".join(map(str, range(60))) + " * * * *"


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    postgres.run("CREATE TABLE crawled (source text, at timestamptz DEFAULT now())")
    yield postgres
    postgres.run("SELECT cron.unschedule(jobid) FROM cron.job; DROP TABLE crawled")


def exported(folder: Path, rates: dict[str, float], *options: str) -> str:
    (folder / "rates.csv").write_text(
        "source,rate\n" + "".join('"{}",{}\n'.format(k.replace('"', '""'), v) for k, v in rates.items())
    )
    arguments = [
        "schedule",
        str(folder / "rates.csv"),
        "--format",
        "pg_cron",
        "--out",
        str(folder / "jobs.sql"),
    ]
    ran = CliRunner().invoke(main, [*arguments, "--overwrite", *options])
    assert ran.exit_code == 0, ran.output
    return (folder / "jobs.sql").read_text()


def jobs(server: PostgresServer) -> list[tuple[str, str, str]]:
    with psycopg.connect(server.cron_url) as connection:
        found = connection.execute("SELECT jobname, schedule, command FROM cron.job ORDER BY jobid")
        return [(str(name), str(schedule), str(command)) for name, schedule, command in found]


def test_pg_cron_keeps_and_runs_what_is_exported(server: PostgresServer, tmp_path: Path) -> None:
    server.run("SELECT cron.schedule('another''s', '0 0 1 1 *', 'SELECT 1')")
    command = ("--command", "INSERT INTO crawled VALUES ({source})")
    server.run(exported(tmp_path, dict.fromkeys(SOURCES, 30.0), *command))
    # The second script takes the place of the first: 1440 a day is once a minute.
    rates = {name: 1440.0 if name == "often" else 2.0 for name in SOURCES} | {"never": 0.0}
    server.run(exported(tmp_path, rates, *command))
    kept = jobs(server)
    assert kept[0] == ("another's", "0 0 1 1 *", "SELECT 1")
    assert [schedule for name, schedule, _ in kept if name.endswith(" often")] == [EVERY_MINUTE]
    # What a job's command does is done at once for each source: its text is that of pg_cron's table.
    with psycopg.connect(server.cron_url) as connection:
        for _, _, text in kept[1:]:
            connection.execute(text)
        done = connection.execute("SELECT source FROM crawled ORDER BY ctid").fetchall()
        connection.execute("DELETE FROM crawled")
    assert [name for (name,) in done] == SOURCES
    # And pg_cron itself runs the one that is due.
    end = time.monotonic() + PATIENCE
    while not server.run("SELECT 1 FROM crawled LIMIT 1"):
        assert time.monotonic() < end, server.run("SELECT status, return_message FROM cron.job_run_details")
        time.sleep(1.0)
    assert set(server.run("SELECT source FROM crawled")) == {"often"}
    assert set(server.run("SELECT command FROM cron.job_run_details WHERE status = 'succeeded'")) == {
        "INSERT INTO crawled VALUES ('often')"
    }


def test_views_are_named_as_names(server: PostgresServer, tmp_path: Path) -> None:
    server.run('CREATE SCHEMA "Net"; CREATE MATERIALIZED VIEW "Net"."daily ""sum""" AS SELECT now() AS at')
    before = server.run('SELECT at FROM "Net"."daily ""sum"""')
    server.run(exported(tmp_path, {'Net.daily "sum"': 1.0}))
    ((_, _, command),) = jobs(server)
    server.run(command)
    assert server.run('SELECT at FROM "Net"."daily ""sum"""') != before
    server.run('DROP SCHEMA "Net" CASCADE')


def test_where_pg_cron_knows_no_seconds_nothing_changes(server: PostgresServer, tmp_path: Path) -> None:
    """Debian's is 1.4; intervals of seconds came with 1.5."""
    server.run(exported(tmp_path, {"a": 1.0}))
    before = jobs(server)
    script = exported(tmp_path, {"a": 2.0, "b": 7200.0})
    assert "'12 seconds'" in script
    with pytest.raises(AssertionError, match=r"pg_cron knows from 1\.5 on\. Update it"):
        server.run(script)
    assert jobs(server) == before
