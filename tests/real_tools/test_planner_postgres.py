"""A live planner whose state is in PostgreSQL: one plan, several processes, the end of any of them."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import SCALAR
from tests.live.test_own_columns import KINDS, SIZES, Sized, crawled, rates
from tests.live.test_processes import crawls, said, started
from tests.live.test_promises import check_two_weeks, first_process
from tests.live.test_tables import BEFORE

NAMES = [f"s{k}" for k in range(60)]


def rows(database: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database) as connection:
        found: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
        return found


OBSERVED = (
    "SELECT name, time, changed = 1 FROM freshopt.observation o JOIN freshopt.source s ON s.id = o.source"
)


def crawl(place: str | Path) -> tuple[list[tuple[str, float, bool]], list[float], str]:
    """Return what a planner handed out and planned in 12 days of a world that changes every other day."""
    said_out: list[tuple[str, float, bool]] = []
    settings = {"host_limits": {"h": "8/day"}, "update": 0.5, "burst": "1d", "host_gap": 0.02}
    with fo.Planner(place, bandwidth=30.0, **settings) as planner:  # type: ignore[arg-type]
        hosts = ["h"] * 20 + ["i"] * 20 + [f"j{k}" for k in range(20)]
        most = [0.5 if k % 7 == 0 else None for k in range(60)]
        planner.add_many(NAMES, importance=[1.0 + k % 3 for k in range(60)], host=hosts, max_rate=most)
        for step in range(120):
            now = step / 10
            for visit in planner.due(now, limit=7):
                if visit.source in ("s7", "s50") and 3.0 < now < 10.0:
                    planner.failed(visit.source, now)
                    continue
                changed = (int(visit.source[1:]) + int(now)) % 2 == 0
                assert planner.observed(visit.source, now, changed)
                said_out.append((visit.source, now, changed))
        planner.remove("s3")
        rates = planner.solution().rates.tolist()
        return said_out, rates, repr(planner.log())


def test_the_plan_is_that_of_a_folder(database: str, tmp_path: Path) -> None:
    handed_out, planned, log = crawl(database)
    with fo.Planner(database) as planner:
        assert planner.next_due(12.0) is not None
        assert planner.next_turn(12.0, 12.0) is None or planner.settings.host_gap > 0.0
    there, rates_there, log_there = crawl(tmp_path)
    assert handed_out == there
    assert log == log_there
    assert planned == pytest.approx(rates_there, rel=1e-9)
    assert Counter(rows(database, OBSERVED)) == Counter(handed_out)
    with fo.Planner(database) as planner:
        assert planner.settings.bandwidth == 30.0
        assert len(planner) == 59
        planner.due(20.0)
        assert (
            planner.observed_many(["s1", "s2"], [20.0, 21.0], [True, False], changes=[3.0, float("nan")]) == 2
        )
        assert not planner.observed("s1", 20.0, True, changes=3)
        with pytest.raises(fo.SourceDataError, match="is recorded as changed"):
            planner.observed("s1", 20.0, False)


def test_tables_of_the_version_before_go_on(database: str) -> None:
    with fo.Planner(database, bandwidth=30.0) as planner:
        planner.add_many(NAMES)
        assert len(planner.due(0.0)) == 1
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = freshopt")
        for statement in BEFORE:
            connection.execute(statement)
    with fo.Planner(database) as planner:
        assert len(planner.due(1.0)) > 0
        assert len(planner) == 60


def test_workers_at_once_are_handed_different_sources(database: str) -> None:
    with fo.Planner(database, bandwidth=600.0, burst=2.0, lease=1000.0) as planner:
        planner.add_many(NAMES)
        assert len(planner.due(0.0)) == 1
    found: list[str] = []
    together = threading.Barrier(4, timeout=60)

    def work() -> None:
        with fo.Planner(database) as own:
            for k in range(40):
                together.wait()
                for visit in own.due(1.0 + k, limit=2):
                    found.append(f"{visit.source} {visit.due!r}")
                    own.observed(visit.source, 1.0 + k, changed=False)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert not any(worker.is_alive() for worker in workers)
    assert len(found) == len(set(found)) == 320
    assert rows(database, "SELECT COUNT(*) FROM freshopt.source WHERE lease_until IS NOT NULL") == [(1,)]


def test_a_process_that_is_killed_loses_and_doubles_nothing(database: str) -> None:
    rng = random.Random(7)
    with fo.Planner(database, bandwidth=40.0, update=0.5, lease=0.2, burst=10.0) as planner:
        planner.add_many(NAMES)
    acknowledged: set[tuple[str, float, bool]] = set()
    begin = 0.0
    for _ in range(4):
        worker, asked, answers = started(database)
        asked.writelines(f"{begin + 0.05 * k!r}\n" for k in range(2000))
        asked.flush()
        lines = [answers.readline() for _ in range(rng.randrange(1, 100))]
        worker.send_signal(signal.SIGKILL)
        lines += answers.readlines()
        asked.close()
        answers.close()
        worker.wait()
        acknowledged |= set(map(said, crawls(lines)))
        # The server may still be committing what the process had sent when it ended.
        inside = rows(database, OBSERVED)
        assert max(Counter((name, time) for name, time, _ in inside).values()) == 1
        assert acknowledged <= set(inside)
        begin = max(float(str(time)) for _, time, _ in inside) + 0.05
    assert len(rows(database, OBSERVED)) <= len(acknowledged) + 4


def test_what_cannot_be_reached_or_is_something_elses(database: str) -> None:
    nowhere = database.replace("postgresql://postgres@", "postgresql://postgres:secret@").replace(
        "/test_", "/no_"
    )
    with pytest.raises(fo.SourceDataError, match="does not exist") as caught:
        fo.Planner(nowhere, bandwidth=5.0)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(fo.SourceDataError, match=r"there is no planner in .* Pass bandwidth="):
        fo.Planner(database)
    rows_before = "SELECT nspname FROM pg_namespace WHERE nspname = 'freshopt'"
    assert rows(database, rows_before) == []
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA freshopt")
        connection.execute("CREATE TABLE freshopt.mine (x integer)")
    with pytest.raises(fo.SourceDataError, match="is something else's"):
        fo.Planner(database, bandwidth=5.0)


def test_commands_are_carried_out_from_an_address(database: str, tmp_path: Path) -> None:
    listed = tmp_path / "names.txt"
    listed.write_text("".join(f"{name}\n" for name in NAMES[:5]))
    words = ["run", database, "--bandwidth", "100/second", "--sources", str(listed)]
    done = CliRunner().invoke(main, [*words, "--command", "echo {source}", "--for", "3s", "--quiet"])
    assert done.exit_code == 0, done.output
    assert "; 0 changed, 0 failed" in done.output
    assert len(rows(database, OBSERVED)) >= 5
    stands = CliRunner().invoke(main, ["run", database])
    assert "refreshes per second in force" in stands.output
    refused = CliRunner().invoke(main, ["run", database, "--bandwidth", "0/day"])
    assert (refused.exit_code, refused.output.count("\n")) == (2, 1)
    assert not [path for path in tmp_path.iterdir() if path != listed]


def test_promises_are_kept_for_two_weeks_within_the_bandwidth(database: str) -> None:
    first_process(database)
    check_two_weeks(database)


def test_columns_of_ones_own_are_kept(database: str) -> None:
    with fo.Planner(
        database, "7/day", objective=Sized(), explore=0.0, burst="1d", source_columns={"size": SIZES}
    ) as planner:
        planner.add_many([*SIZES])
        crawled(planner, 0.0, 3.0)
        assert rates(planner) == pytest.approx([1.0, 2.0, 4.0], rel=SCALAR)
    # What an objective reads is told with words, and changed at another opening.
    told = {"size": {"a": 16.0}, "kind": KINDS}
    with fo.Planner(database, objective=Sized(), source_columns=told) as planner:
        planner.due(3.05)
        assert rates(planner) == pytest.approx([3.5, 1.75, 1.75], rel=SCALAR)
        refused("there is no size of 'd'", planner.add, "d")
