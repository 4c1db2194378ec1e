"""Damaged and hostile files: each command ends with a complete output, or with one line and nothing."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.adversary.corpus import NAMES, Job, damaged, jobs, write
from freshopt.cli import main
from tests.ground_truth.command_lines import content

KEPT = 4


def problems_of(outcome: Outcome, before: dict[str, bytes | None], folder: Path, out: str) -> str:
    """Return what is wrong with a command's end, or nothing."""
    after = content(folder)
    new = {name for name in after if name not in before}
    if outcome.raised:
        return f"raised {outcome.raised[:300]}"
    if any(".partial." in name for name in after):
        return "leftovers"
    if {name: after.get(name) for name in before} != before:
        return "changed its inputs"
    if any(sign in outcome.out + outcome.err for sign in "\x1b\x00\x07"):
        return "control characters in what it prints"
    if outcome.code == 0:
        if not (folder / out).exists():
            return "code 0 without an output"
        if outcome.err:
            return f"code 0, and on standard error: {outcome.err[:300]}"
        return _unreadable(folder / out)
    if new:
        return f"code {outcome.code} and an output: {sorted(new)}"
    lines = outcome.err.splitlines()
    if outcome.code != 2 or len(lines) != 1 or outcome.out:
        return (
            f"code {outcome.code}, {len(lines)} lines on standard error: {(outcome.out + outcome.err)[-300:]}"
        )
    if not lines[0].startswith("Error: ") or not lines[0].endswith((".", "?", ")")):
        return f"no sentence: {lines[0][:300]}"
    return ""


def _unreadable(path: Path) -> str:
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    for file in files:
        if not file.stat().st_size:
            return f"{file.name} is empty"
        try:
            if file.suffix == ".parquet":
                pl.read_parquet(file)
            if file.suffix == ".csv":
                pl.read_csv(file, infer_schema_length=None)
        except (pl.exceptions.PolarsError, OSError) as error:
            return f"{file.name} cannot be read: {error}"
    return ""


def prepare(folder: Path) -> dict[str, bytes | None]:
    """Write the corpus and a plan; return all of it."""
    write(folder)
    with tempfile.TemporaryDirectory() as streams:
        done = call(
            ("plan", "log.csv", "--bandwidth", "6/day", "--horizon", "3d", "--out", "made"),
            folder,
            Path(streams),
        )
    if done.code != 0:
        raise SystemExit(f"the corpus itself is refused: {done}")
    return content(folder)


def lay(folder: Path, content: dict[str, bytes | None]) -> None:
    """Write files and folders."""
    for name, data in content.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(exist_ok=True) if data is None else place.write_bytes(data)


def attempt(
    rng: np.random.Generator, job: Job, corpus: dict[str, bytes | None], root: Path
) -> tuple[str, str]:
    """Damage one input, or rename it, and run; return what is wrong, and how to repeat it."""
    shutil.rmtree(root / "run", ignore_errors=True)
    folder = root / "run"
    folder.mkdir(parents=True)
    victim = job.inputs[int(rng.integers(len(job.inputs)))]
    arguments = job.arguments
    tops = {text.partition("/")[0] for text in (*arguments, victim)}
    content = {name: data for name, data in corpus.items() if name.partition("/")[0] in tops}
    whole = content[victim]
    assert whole is not None
    if victim in arguments and rng.random() < 0.15:
        new = NAMES[int(rng.integers(len(NAMES)))].format("." + victim.partition(".")[2])
        content[new] = content.pop(victim)
        arguments = tuple(new if text == victim else text for text in arguments)
    else:
        content[victim] = damaged(rng, victim, whole)
    lay(folder, content)
    before = content(folder)
    outcome = call(arguments, folder, root)
    wrong = problems_of(outcome, before, folder, job.arguments[job.arguments.index("--out") + 1])
    changed = next(
        (
            repr(data[:1500])
            for name, data in content.items()
            if data is not None and data != corpus.get(name)
        ),
        "",
    )
    return wrong, f"freshopt {shlex.join(arguments)}\n{victim}: {changed}"


def attempts(seed: int, first: int, end: float, told: Connection) -> None:
    """Attempt from a number on until the time is up, and tell of each before and after."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "corpus").mkdir()
        corpus, todo, number = prepare(root / "corpus"), jobs(), first
        for job in todo if first == 0 else ():  # undamaged, all of them end well
            lay(root / "whole", corpus)
            done = call(job.arguments, root / "whole", root)
            if done.code != 0:
                raise SystemExit(f"undamaged, and yet: {job.arguments} {done}")
            shutil.rmtree(root / "whole")
        while time.time() < end:
            rng = np.random.default_rng([seed, number])
            job = todo[int(rng.integers(len(todo)))]
            told.send((number, job.arguments))
            told.send(attempt(rng, job, corpus, root))
            number += 1
    told.send(None)


def run(minutes: float = 10.0, seed: int = 1) -> dict[str, Any]:
    """Attempt in a process of its own, and in another one if that dies; print what is found."""
    begun, number = time.time(), 0
    kinds: Counter[str] = Counter()
    commands: Counter[str] = Counter()
    context = get_context("spawn")
    while time.time() < begun + 60.0 * minutes:
        ours, theirs = context.Pipe(duplex=False)
        job = context.Process(target=attempts, args=(seed, number, begun + 60.0 * minutes, theirs))
        job.start()
        theirs.close()
        arguments: tuple[str, ...] = ()
        try:
            while (begin := ours.recv()) is not None:
                number, arguments = begin
                wrong, words = ours.recv()
                _note(kinds, wrong, f"seed {seed} {number}\n{words}")
                commands[arguments[0]] += 1
        except EOFError:
            job.join()
            if not arguments:
                raise SystemExit("the corpus itself is refused") from None
            _note(kinds, f"died: exit code {job.exitcode}", f"seed {seed} {number}\n{shlex.join(arguments)}")
        job.join()
        number += 1
    return {
        "seed": seed,
        "instances": commands.total(),
        "seconds": round(time.time() - begun, 1),
        "commands": dict(commands.most_common()),
        "findings": dict(kinds.most_common()),
    }


def _note(kinds: Counter[str], wrong: str, words: str) -> None:
    if wrong:
        kind = re.sub(r"\d+", "n", wrong.partition(":")[0])
        kinds[kind] += 1
        if kinds[kind] <= KEPT:
            print(f"\n{wrong}\n{words}\n", flush=True)


LIMIT = 60  # seconds; a command takes less than one


class TooLongError(BaseException):
    """A command did not end in time."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int | None
    out: str
    err: str
    raised: str


@contextlib.contextmanager
def captured(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Send both streams of this process, foreign code's too, to files."""
    paths = folder / "stdout", folder / "stderr"
    kept = [os.dup(1), os.dup(2)]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for number, path in enumerate(paths, 1):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, number)
            os.close(handle)
        yield paths
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, handle in enumerate(kept, 1):
            os.dup2(handle, number)
            os.close(handle)


def call(arguments: tuple[str, ...], folder: Path, streams: Path) -> Outcome:
    """Run a command line in this process, in a folder."""

    def stop(*_: Any) -> None:
        raise TooLongError

    code, raised = None, ""
    signal.signal(signal.SIGALRM, stop)
    with contextlib.chdir(folder), captured(streams) as (out, err):
        signal.alarm(LIMIT)
        try:
            main(list(arguments), prog_name="freshopt")
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0
        except BaseException as error:
            raised = f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
    return Outcome(code, out.read_text(errors="replace"), err.read_text(errors="replace"), raised)
