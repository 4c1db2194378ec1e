"""Signals of a live planner: recorded once, learnt, acted upon within bandwidth and host limits."""

import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.live.signal_feed import SignalFeed
from freshopt.noisy_signals import noisy_signals
from freshopt.tools.live_planner import FILE

N, DAYS, STEP, LIMITS = 40, 40.0, 1.0 / 8.0, {"h0": 2.0, "h1": 3.0}


def crawled(
    folder: Path, *, hear: bool, limits: dict[str, float] | None = None, objective: str = "binary"
) -> tuple[fo.Planner, Any]:
    """A planner that crawled a world, the share of time fresh in the second half, and its crawls."""
    rng = np.random.default_rng(1)
    names = [f"s{k:02}" for k in range(N)]
    sources = fo.Sources(rng.gamma(0.6, 0.4, N) + 1e-3, names=names)
    world = fo.World.poisson(sources, seed=1)
    who, when = noisy_signals(world, 0.9, 0.8, DAYS, seed=1)
    offsets, events = world.events(0.0, DAYS)
    changes = [events[offsets[k] : offsets[k + 1]] for k in range(N)]
    crawls: list[list[float]] = [[] for _ in range(N)]
    given: dict[str, Any] = {
        "objective": objective,
        "burst": "3h",
        "replan": "5d",
        "update": "5d",
        "host_limits": limits,
    }
    planner = fo.Planner(folder, "8/day", **given)
    planner.add_many(names, host=[f"h{k % 3}" for k in range(N)])
    heard = 0
    for now in (STEP * np.arange(int(DAYS / STEP))).tolist():
        while hear and heard < len(when) and when[heard] <= now:
            assert planner.signal(names[who[heard]], float(when[heard]), "feed")
            heard += 1
        for visit in planner.due(now, limit=None):
            k = int(visit.source[1:])
            seen = np.searchsorted(changes[k], [*crawls[k][-1:], now], side="right")
            planner.observed(visit.source, now, bool(len(seen) > 1 and seen[1] > seen[0]))
            crawls[k].append(now)
    fresh = 0.0
    grid = np.linspace(0.5 * DAYS, DAYS, 2_000)
    for own, changed in zip(crawls, changes, strict=True):
        last = np.array([-1.0, *own])[np.searchsorted(own, grid, side="right")]
        fresh += float(np.mean(np.searchsorted(changed, grid) <= np.searchsorted(changed, last))) / N
    return planner, (fresh, crawls)


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401 - a planner and what it did
    planner, found = crawled(tmp_path_factory.mktemp("heard"), hear=True, limits=LIMITS)
    yield planner, found
    planner.close()


def test_signals_keep_copies_fresher_at_the_same_limits(heard: Any, tmp_path: Path) -> None:  # noqa: ANN401
    planner, (fresh, crawls) = heard
    deaf, (without, other) = crawled(tmp_path / "deaf", hear=False, limits=LIMITS)
    deaf.close()
    assert fresh > without + 0.08
    assert sum(map(len, crawls)) <= 1.02 * sum(map(len, other))
    told = planner.status(DAYS)
    assert told.freshness == pytest.approx(fresh, abs=0.06)
    assert "% of the changes announced" in told.signals
    assert told.relative_gap < 0.02


def test_hosts_and_bandwidth_are_never_asked_for_more(heard: Any) -> None:  # noqa: ANN401
    _, (_, crawls) = heard
    every = {host: np.sort(np.concatenate(crawls[k::3])) for k, host in enumerate(("h0", "h1", "h2"))}
    limits = {**LIMITS, "all": 8.0}
    every["all"] = np.sort(np.concatenate(crawls))
    for host, limit in limits.items():
        times = every[host]
        for length in (0.5, 1.0, 3.0, 10.0):
            within = np.searchsorted(times, times + length, side="left") - np.arange(len(times))
            # What its limit leaves in that time and in a burst, and the refresh that begins it.
            assert within.max() <= limit * (length + 0.125) + 1.0 + 1e-9, (host, length)


def test_a_signal_brings_its_source_forward_by_its_bonus(heard: Any) -> None:  # noqa: ANN401
    planner, _ = heard
    with sqlite3.connect(planner._database._file) as database:
        rows = database.execute(
            "SELECT name, last_crawl, next_due, threshold, bonus, heard FROM source JOIN signal_rule "
            "ON source.id = source WHERE silent_since IS NULL"
        ).fetchall()
    assert len(rows) > 0.9 * N
    for _, last, due, threshold, bonus, many in rows:
        assert 0.0 < bonus <= threshold
        assert due == pytest.approx(last + threshold - many * bonus, abs=1e-9)
    name, last, due, _, bonus, _ = max(rows, key=lambda row: row[2])
    at = max(last, DAYS - STEP) + 1e-3
    assert planner.signal(name, at)
    assert not planner.signal(name, at)
    frame = planner.to_frame()
    assert frame.filter(frame["source"] == name)["next_due"][0] == pytest.approx(due - bonus, abs=1e-9)
    # One before the last crawl tells nothing of now.
    assert planner.signal(name, last - 0.5)
    assert planner.to_frame().filter(frame["source"] == name)["next_due"][0] == pytest.approx(due - bonus)


def test_harmonic_staleness_follows_its_waits(tmp_path: Path, heard: Any) -> None:  # noqa: ANN401
    planner, (fresh, _) = crawled(tmp_path / "p", hear=True, objective="harmonic")
    with planner:
        rows = planner._database.rows(
            "SELECT id, name, last_crawl, next_due, threshold, heard FROM source JOIN signal_rule "
            "ON source.id = source WHERE silent_since IS NULL"
        )
        waits = {
            (each, many): wait for each, many, wait in planner._database.rows("SELECT * FROM signal_wait")
        }
        assert len(rows) > 0.9 * N
        assert waits
        for number, _, last, due, whole, many in rows:
            wait = waits.get((number, many), 0.0) if many else whole
            assert due <= last + max(wait, 0.0) + 1e-9
            assert due >= last + wait - 1e-9 or not wait
        # A signal shortens the wait of a source that has not heard yet to the wait of one signal.
        number, name, last, due, _, _ = max((row for row in rows if not row[5]), key=lambda row: row[3])
        at = max(last, DAYS - STEP) + 1e-3
        assert planner.signal(name, at)
        then = planner.to_frame()
        moved = then.filter(then["source"] == name)["next_due"][0]
        assert moved < due
        if (number, 1) in waits:
            assert moved == pytest.approx(last + waits[number, 1], abs=1e-9)
        assert fresh == pytest.approx(heard[1][0], abs=0.05)


def test_age_follows_the_times_of_its_signals(tmp_path: Path, heard: Any) -> None:  # noqa: ANN401
    planner, (fresh, _) = crawled(tmp_path / "p", hear=True, objective="age")
    with planner:
        rows = planner._database.rows(
            "SELECT id, name, last_crawl, next_due, threshold, bonus, precise, heard FROM source JOIN "
            "signal_rule ON source.id = source WHERE silent_since IS NULL"
        )
        assert len(rows) > 0.9 * N
        assert any(many for *_, many in rows)
        for number, _, last, due, age, unheard, precise, many in rows:
            sql = "SELECT time FROM signal WHERE source = ? AND time > ?"
            times = [time for (time,) in planner._database.rows(sql, (number, last))]
            assert len(times) == many
            # The age that is expected when it is due, by a sum over small steps.
            grid = np.linspace(last, due, 20_001)
            grid = 0.5 * (grid[1:] + grid[:-1])
            since = np.searchsorted(np.sort(times), grid)
            stale = 1.0 - np.exp(-unheard * (grid - last)) * (1.0 - precise) ** since
            assert (due - last) * np.mean(stale) == pytest.approx(age, rel=1e-3)
        # A signal brings its source forward, a later one less.
        _, name, last, due, *_ = max((row for row in rows if not row[-1]), key=lambda row: row[3])
        at = max(last, DAYS - STEP) + 1e-3

        def moved() -> float:
            then = planner.to_frame()
            return float(then.filter(then["source"] == name)["next_due"][0])

        assert planner.signal(name, at + 0.5)
        later = moved()
        assert planner.signal(name, at)
        assert moved() < later < due
        assert fresh == pytest.approx(heard[1][0], abs=0.05)


def test_a_planner_that_hears_nothing_has_no_tables_of_signals(tmp_path: Path) -> None:
    with fo.Planner(tmp_path / "p", "2/day", objective="binary") as planner:
        planner.add("a")
        planner.due(0.0)
        planner.observed("a", 0.5, changed=False)
        names = {name for (name,) in planner._database.rows("SELECT name FROM sqlite_master")}
        assert not {"signal", "signal_rule", "signal_wait"} & names
        assert planner.status(1.0).signals == ""
        assert planner.signal("a", 1.0)
        assert planner.status(1.0).signals == "1 heard"


def test_signalled_sources_are_taken(tmp_path: Path) -> None:
    with fo.Planner(tmp_path / "p", "2/day", objective="binary") as planner:
        planner.add_many(fo.Sources([1.0, 2.0], names=["a", "b"], signalled=[True, False]))
        assert len(planner) == 2


@pytest.mark.parametrize(
    ("more", "words", "told"),
    [
        ({}, ("zzz", 1.0), "there is no source 'zzz'"),
        ({}, ("a", "soon"), "time"),
        ({}, ("a", 1.0, ""), "Pass a short text"),
        ({}, ("a", 1.0, "x" * 1_000), "Pass a short text"),
        ({}, ("a", 1.0, "\0"), "Pass a short text"),
        ({"half_life": 3.0}, ("a", 1.0), "Pass half_life=inf"),
        (
            {"objective": fo.problems.Age(fo.Refresh.POISSON)},
            ("a", 1.0),
            'pass objective="harmonic", "delay"',
        ),
    ],
)
def test_what_cannot_be_used_is_refused(
    more: dict[str, Any], words: tuple[Any, ...], told: str, tmp_path: Path
) -> None:
    with fo.Planner(tmp_path / "p", "2/day", **{"objective": "binary", **more}) as planner:
        planner.add("a")
        planner.due(0.0)
        with pytest.raises(fo.FreshoptError, match=told):
            planner.signal(*words)
        assert planner.status(1.0).signals == ""


def test_a_file_is_followed_and_foreign_lines_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "signals.csv"
    file.write_bytes(b"source,time,kind\n# remark\na,1.0,feed\nzzz,1.0\nb,2.0,feed,more\n\xff\xfe,1\nb,1.5")
    with fo.Planner(tmp_path / "p", "2/day", objective="binary") as planner:
        planner.add_many(["a", "b"])
        planner.due(0.0)
        feed = SignalFeed(str(file))
        assert feed.hear(planner) == 1
        with file.open("ab") as more:
            more.write(b",feed\n" + b"c" * 50_000 + b"\n")
        assert feed.hear(planner) == 1
        assert feed.hear(planner) == 0
        assert (feed.heard, feed.refused) == (2, 4)
        other = tmp_path / "new"
        other.write_text("a,1.0,feed\na,3.0,feed\n")
        other.replace(file)
        assert feed.hear(planner) == 1
        feed.close()
        assert "4 not used: there is no source 'zzz'" in feed.words


def test_a_program_is_heard_and_ended(tmp_path: Path) -> None:
    script = tmp_path / "feed.py"
    script.write_text("import time\nfor k in range(3): print(f'a,{k}.5', flush=True)\ntime.sleep(600)\n")
    with fo.Planner(tmp_path / "p", "2/day", objective="binary") as planner:
        planner.add("a")
        planner.due(0.0)
        feed = SignalFeed(f"'{sys.executable}' '{script}'")
        until = time.monotonic() + 30.0
        while feed.heard < 3 and time.monotonic() < until:
            feed.hear(planner)
        assert feed.heard == 3
        feed.close()
        assert feed._process is not None
        assert feed._process.poll() is not None


def test_the_command_line_takes_a_feed(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("one")
    (tmp_path / "sources.txt").write_text(f"{tmp_path}/page\n")
    (tmp_path / "signals.csv").write_text(f"source,time\n{tmp_path}/page,2026-01-01T00:00:00Z\n")
    state, sources = str(tmp_path / "state"), str(tmp_path / "sources.txt")
    words = ["run", state, "--command", "cat {source}", "--sources", sources, "--bandwidth", "50/second"]
    for feed, told in ((str(tmp_path / "none"), "neither a file nor a program"), ("", "neither a file")):
        refused = CliRunner().invoke(main, [*words, "--signals-from", feed, "--once"])
        assert refused.exit_code != 0
        assert told in refused.output
        assert not (tmp_path / "state" / FILE).exists()
    other = CliRunner().invoke(
        main, [*words, "--objective", "power", "--signals-from", str(tmp_path / "signals.csv"), "--once"]
    )
    assert other.exit_code != 0
    assert not (tmp_path / "state" / FILE).exists()
    ran = CliRunner().invoke(main, [*words, "--signals-from", str(tmp_path / "signals.csv"), "--once"])
    assert ran.exit_code == 0, ran.output
    assert "1 new" in ran.output
    assert "HarmonicStaleness" in ran.output
