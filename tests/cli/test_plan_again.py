"""`freshopt plan --every`: plan, crawl, observe, plan again, by the lines that the command prints."""

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.ground_truth.command_lines import MAIN_JOB, Run, refuse

LOOP = ("--draws", "0", "--every", "7d")


def test_the_loop_is_closed(run: Run, tmp_path: Path) -> None:
    """Sources that changed stop, others begin; three rounds of the schedule's own crawls tell the plan."""
    rng = np.random.default_rng(3)
    n, first = 32, 21
    awake = np.arange(n) < n // 2
    rows = [
        (f"s{k:02d}", float(t), bool(rng.random() < (0.7 if awake[k] else 0.05)))
        for k in range(n)
        for t in range(0, first, 3)
    ]
    pl.DataFrame(rows, schema=["source", "time", "changed"], orient="row").write_csv("log.csv")
    how = ("plan", "log.csv", "--bandwidth", "20/day", "--horizon", "7d", *LOOP, "--csv", "--out", "plan")
    output = run(*how).output
    line = next(text for text in output.splitlines() if text.startswith("0 0 * * 1 "))
    assert "Append what the schedule's crawls find (source, time, changed) to plan-crawls.csv" in output
    where, command = line.removeprefix("0 0 * * 1 ").split(" && ")
    assert where == f"cd {shlex.quote(str(tmp_path))}"
    words = shlex.split(command)
    assert words[:4] == [sys.executable, "-m", "freshopt", "plan"]
    assert words[-3:] == ["--out", "plan", "--overwrite"]
    assert json.loads(Path("plan/summary.json").read_text())["again"]["crontab"] == line
    shares = []
    changes = [np.cumsum(rng.exponential(1.0 / (0.02 if was else 0.6), 400)) + first - 3 for was in awake]
    last = dict.fromkeys(range(n), float(first - 3))
    begin = float(first - 3)
    for _ in range(4):
        rates = {row["source"]: row["rate"] for row in pl.read_csv("plan/rates.csv").to_dicts()}
        shares.append(sum(rates[f"s{k:02d}"] for k in range(n) if awake[k]) / sum(rates.values()))
        crawls = []
        for row in pl.read_csv("plan/schedule.csv").sort("time").to_dicts():
            k, time = int(row["source"][1:]), begin + row["time"]
            if time <= last[k]:
                continue
            found = bool(np.any((changes[k] > last[k]) & (changes[k] <= time)))
            crawls.append((row["source"], time, found))
            last[k] = time
        begin = max(time for _, time, _ in crawls)
        kept = Path("plan-crawls.csv")
        earlier = kept.read_text() if kept.exists() else "source,time,changed\n"
        kept.write_text(earlier + "".join(f"{s},{t!r},{int(f)}\n" for s, t, f in crawls))
        again = run(*words[3:], "--details").output
        assert "own crawls" in again
        said = next(text for text in again.splitlines() if text.startswith("0 0 * * 1 "))
        assert sorted(shlex.split(said)) == sorted(shlex.split(line))
    assert shares[0] > 0.6
    assert shares[-1] < shares[0] - 0.15


def test_with_a_replay_there_is_a_row_for_it(run: Run, log: Path) -> None:
    looped = (*LOOP, "--every", "1d", "--replay", "--out", "plan", "--details")
    output = run("plan", str(log), *MAIN_JOB, *looped).output
    told = {
        row["policy"]: row
        for row in json.loads(Path("plan/summary.json").read_text())["held_out"]["policies"]
    }
    assert told["re-planned"]["predicted"] is None
    assert "planned again from its own crawls" in output
    assert "e-planning every 1 day" in " ".join(output.split())


def test_percent_signs_and_given_files(run: Run, log: Path) -> None:
    Path("own.csv").write_text("source,time,changed\npage/0,2024-06-01T00:00:00Z,1\n")
    again = ("--every", "6h", "--crawls", "own.csv", "--out", "100%")
    output = run("plan", "--details", str(log), *MAIN_JOB, "--draws", "0", *again).output
    line = next(text for text in output.splitlines() if text.startswith("0 */6 * * * "))
    assert r"--crawls own.csv --out 100\% --overwrite" in line
    assert "321 crawls" in output or "and 1 own crawl" in output


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--every", "3d"), ("cron does not repeat that", "6h")),
        (("--every", "never"), ("--every", "never")),
        (("--every", "7d", "--engine", "dask"), ("--every is for --engine memory",)),
        (("--crawls", "missing.csv"), ("missing.csv",)),
    ],
)
def test_refusals(folder: Path, more: tuple[str, ...], words: tuple[str, ...]) -> None:
    refuse(folder, ["plan", "log.csv", *MAIN_JOB, "--out", "out", *more], words)


def test_own_crawls_continue_logs_only(run: Run, folder: Path) -> None:
    Path("changes.csv").write_text("source,time\na,1\na,2\nb,3\n")
    done = run("plan", "--history", "changes.csv", *MAIN_JOB, "--out", "out", "--crawls", "log.csv", code=2)
    assert "--crawls continues a log" in done.output
    assert folder.exists()


def test_a_file_without_rows_yet(run: Run, log: Path) -> None:
    """Of --every alone; a file that is given to be read has rows."""
    Path("own.csv").write_text("source,time,changed\n")
    how = ("plan", str(log), *MAIN_JOB, "--draws", "0", "--crawls", "own.csv")
    run(*how, "--every", "7d", "--out", "plan")
    run("plan", str(log), *MAIN_JOB, "--draws", "0", "--out", "alone")
    one, other = (json.loads(Path(f"{name}/summary.json").read_text()) for name in ("plan", "alone"))
    assert one["value"] == other["value"]
    assert "no rows" in run(*how, "--out", "out", code=2).output
    Path("own.csv").write_text("source,when,changed\n")
    assert "own.csv has column names but no rows" in run(*how, "--every", "7d", "--out", "out", code=2).output


def test_a_schedule_lasts_until_the_next_plan(run: Run, log: Path) -> None:
    how = ("plan", str(log), "--bandwidth", "6/day", "--horizon", "2d", "--out", "out", "--every", "7d")
    said = run(*how, code=2).output
    assert "--horizon 2d is shorter than --every 7d" in " ".join(said.split())


def test_the_line_plans_and_replays_nothing(run: Run, log: Path) -> None:
    output = run("plan", str(log), *MAIN_JOB, *LOOP, "--replay", "--out", "plan").output
    line = next(text for text in output.splitlines() if text.startswith("0 0 * * 1 "))
    assert "--replay" not in line
    assert "--replay" in json.loads(Path("plan/summary.json").read_text())["command"]
