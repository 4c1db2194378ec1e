"""Story that `test_other_systems` has a process of its own go through: the commands, and the library.

``python -m tests.contracts.other_systems_story`` in an empty folder; ends with the word "done".
"""

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import freshopt as fo
from freshopt.cli import main
from freshopt.compiled import backend
from freshopt.compiled.threads import run_chunks_in_threads
from freshopt.live.source_command import SourceCommand

URLS = [f"https://host{k}.example.org/a%20b/{k}?x=1" for k in range(4)]
LOG = "source,time,changed\n" + "".join(
    f"{name},{day},{day % 2}\n" for name in ("ä", "ö") for day in range(6)
)
# Sources as each format names them, and what its command takes besides.
INTERVALS: dict[str, tuple[list[str], str, tuple[str, ...]]] = {
    "icalendar": (URLS, "calendar.ics", ("--horizon", "7d", "--start", "2026-01-01T00:00:00Z")),
    "nutch": (URLS, "nutch", ()),
    "stormcrawler": (URLS, "stormcrawler.txt", ()),
    "changedetection": (URLS, "changedetection.json", ()),
    "crontab": (URLS, "crontab.txt", ("--command", "fetch")),
    "pg_cron": (["one", "two"], "pg_cron.sql", ()),
    "dbt": (["source.shop.raw.orders", "source.shop.raw.items"], "dbt", ()),
    "external-secrets": (["team/one", "team/two"], "secrets.yaml", ()),
    "template": (URLS, "template.txt", ("--template", "{source!q}\n")),
}
LIFETIMES = {
    "cache-control": ["one", "two"],
    "nginx": ["one", "two"],
    "redis": ["one", "two"],
    "dns": ["www.example.org. A 192.0.2.1"],
}


def call(*arguments: str) -> None:
    """Run a command, which must end well."""
    try:
        main(list(arguments))
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"freshopt {' '.join(arguments)}: exit code {ended.code}") from None


def table(path: str, column: str, names: list[str]) -> str:
    """Write a table of sources with a number each, in Windows' line ends."""
    rows = [f"source,{column}", *(f"{name},{k + 1}" for k, name in enumerate(names))]
    Path(path).write_bytes("\r\n".join([*rows, ""]).encode())
    return path


def commands() -> None:
    """Main job twice, then each other command; names in other letters and Windows' ends of lines."""
    call("--help")
    settings = ("--bandwidth", "4/day", "--horizon", "90d", "--out", "plan")
    call("plan", "--example", "debian-uploads", *settings, "--draws", "0")
    Path("log.csv").write_bytes(LOG.replace("\n", "\r\n").encode())
    call("plan", "log.csv", *settings, "--draws", "2", "--csv", "--overwrite")
    table("sources.csv", "change_rate", ["ä/1", "ä/2", "日本"])
    call("solve", "sources.csv", "--bandwidth", "2", "--out", "rates.csv")
    call("solve", "sources.csv", "--bandwidth", "3", "--out", "rates.csv", "--overwrite")
    call("schedule", "rates.csv", "--horizon", "7d", "--out", "times.parquet")
    for name, (sources, out, more) in INTERVALS.items():
        call("schedule", table(f"{name}.csv", "rate", sources), "--format", name, "--out", out, *more)
    for name, sources in LIFETIMES.items():
        written = table(f"{name}.csv", "lifetime", sources)
        call("schedule", written, "--format", name, "--out", f"{name}.txt")


def planner() -> None:
    """A live plan by commands and by the library, and a log from it."""
    Path("pages").mkdir()
    for k in range(3):
        Path("pages", str(k)).write_text("text", encoding="utf-8")
    Path("pages.txt").write_bytes(b"0\r\n1\r\n2\r\n")
    program = f'"{sys.executable}" -c "import sys; print(open(sys.argv[1]).read())" pages/{{source}}'
    begin = ("--bandwidth", "100/hour", "--sources", "pages.txt")
    call("run", "live", "--command", program, *begin, "--once", "--timeout", "30s")
    call("run", "live")
    assert (
        SourceCommand.parse(f'"{sys.executable}" -c "import time; time.sleep(60)" {{source}}', 0.3)
        .run("0")
        .failure
    )
    day = datetime(2026, 1, 1, tzinfo=UTC)
    with fo.Planner("library", bandwidth="10/day") as plan:
        plan.add_many(["a", "b"])
        for visit in plan.due(day):
            plan.observed(visit.source, day, changed=False)
        plan.status(day)


def library() -> None:
    """Compiled loops, threads, processes."""
    with backend.loading():
        problem = fo.Problem(
            fo.problems.AccumulatedDelay(fo.Refresh.POISSON), fo.Sources(np.linspace(1.0, 2.0, 500)), 300.0
        )
        assert fo.certify(problem, np.full(500, 0.6)).gap > 0.0
    shares: Counter[int] = Counter()
    run_chunks_in_threads(lambda begin, end: shares.update(range(begin, end)), 100, 1)
    assert set(shares.values()) == {1}
    done = subprocess.run([sys.executable, "-m", "freshopt", "--version"], capture_output=True, check=True)
    assert b"freshopt" in done.stdout


if __name__ == "__main__":
    commands()
    planner()
    library()
    names = [str(path).casefold() for path in Path().rglob("*")]
    assert len(names) == len(set(names)), "two files that differ in case alone"
    print("done")
