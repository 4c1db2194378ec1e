"""A command line run in this process, its streams caught with those of foreign code, its time bounded."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshopt.cli import main

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
