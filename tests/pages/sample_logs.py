"""What the commands that pages show read: a folder of small files, and how such a command is run in it."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main

START = datetime(2026, 1, 1, 6, tzinfo=UTC)
DAYS, SOURCES, HOSTS = 40, 16, ("a.example", "b.example")


def write_files(folder: Path) -> None:
    """Write logs and tables under the names that pages give them."""
    rng = np.random.default_rng(1)
    names = [f"https://{HOSTS[k % 2]}/{k}" for k in range(SOURCES)]
    rates = np.exp(rng.normal(-1.0, 1.0, SOURCES))
    found = rng.random((SOURCES, DAYS)) < 1.0 - np.exp(-rates)[:, None]
    found[:, 0] = False
    failed = rng.random((SOURCES, DAYS)) < 0.1
    log = pl.DataFrame(
        {
            "source": np.repeat(names, DAYS),
            "time": [START + timedelta(days=day) for _ in names for day in range(DAYS)],
            "changed": found.ravel().astype(int),
        }
    )
    log.write_csv(folder / "crawls.csv", datetime_format="%Y-%m-%dT%H:%M:%SZ")
    status = np.where(failed, 503, np.where(found | (np.arange(DAYS) == 0), 200, 304)).ravel()
    log.drop("changed").with_columns(status=pl.Series(status)).write_csv(
        folder / "statuses.csv", datetime_format="%Y-%m-%dT%H:%M:%SZ"
    )
    tables: dict[str, dict[str, Any]] = {
        "limits.csv": {"host": HOSTS, "limit": (2.0, 2.0)},
        "about.csv": {"source": names, "tier": ["gold", "iron"] * (SOURCES // 2)},
        "rates.csv": {"source": names, "rate": rates, "change_rate": rates},
    }
    for name, columns in tables.items():
        pl.DataFrame(columns).write_csv(folder / name)
    for name, answers in (("origin.log", found[:4]), ("edge.log", np.ones((4, 2 * DAYS), dtype=bool))):
        (folder / name).write_text("".join(access_lines(answers)), encoding="utf-8")
    rows = [
        {"url": n, "fetched_at": f"2026-01-{d:02}T06:00Z", "sha256": f"{d // 3}"}
        for n in names
        for d in range(1, 9)
    ]
    (folder / "crawls.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (folder / "urls.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def access_lines(changed: np.ndarray) -> Iterator[str]:
    """Yield lines in common format: 200 where a page had changed, else 304."""
    for k, row in enumerate(changed):
        for day, new in enumerate(row):
            moment = START + timedelta(days=day * DAYS / len(row), minutes=k)
            answer = f"{200 if new or day == 0 else 304} 120"
            yield f'10.0.0.1 - - [{moment:%d/%b/%Y:%H:%M:%S} +0000] "GET /{k} HTTP/1.1" {answer}\n'


def write_planner(folder: Path) -> None:
    """Write a live planner's folder, as it is on its first day."""
    with fo.Planner(folder, bandwidth="200/day") as planner:
        planner.add_many([f"https://a.example/{k}" for k in range(3)])


def reader() -> str:
    """Return a command that prints an address, in the place of one that fetches it."""
    code = "import sys; print(sys.argv[1])"
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} {{source}}"


def run(words: list[str]) -> str:
    """Run freshopt with these words, and return what it prints; anything but success fails."""
    words = [reader() if word.startswith("curl ") and words[0] == "run" else word for word in words]
    # The example that pages write as a log is large: what follows reads the small one that is there.
    if words[0] == "examples" and "--out" in words:
        words = [*words[:-1], f"other-{words[-1]}"]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, f"freshopt {shlex.join(words)}\n{result.output}"
    return result.stdout


def with_few_draws(lines: list[list[str]]) -> Iterator[list[str]]:
    """Yield command lines; of plans only the first draws rates, which takes most of the time."""
    drawn = False
    for words in lines:
        again = words[0] == "plan" and drawn and not {"--draws", "--init"} & set(words)
        drawn |= words[0] == "plan" and "--init" not in words
        yield [*words, "--draws", "0"] if again else words


def parse(words: list[str]) -> None:
    """Let freshopt read these words as a command with its options, and run nothing."""
    command: click.Command | None = main
    rest = list(words)
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), rest.pop(0))
    assert command is not None, f"freshopt {shlex.join(words)}"
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    options = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    assert set(options) <= known, f"freshopt {shlex.join(words)}"


def lines_of(text: str) -> list[list[str]]:
    """Return the command lines of freshopt in a block of shell, as words without the program."""
    lines = text.replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in found if words and os.path.basename(words[0]) == "freshopt"]
