"""Output of git as a stream; errors in one line.

Git is run with a plain list of arguments, never through a shell, and with those of a repository's settings
switched off that would start another program or change the format.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from freshopt.errors import SourceDataError

# Bytes of git's output read at once.
CHUNK = 1 << 20
SAFE = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false", "-c", "log.follow=false", "--no-pager")
# Variables that would point git away from the folder that was named.
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


@contextmanager
def running(folder: Path, arguments: Sequence[str]) -> Iterator[IO[bytes]]:
    """Run git in a folder and yield its output.

    Raises
    ------
    SourceDataError
        If there is no git, or it fails; with the first line of its complaint.
    """
    environment = {key: value for key, value in os.environ.items() if key not in ELSEWHERE}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    with tempfile.TemporaryFile() as errors:  # not a pipe, which would have to be emptied all the while
        try:
            process = subprocess.Popen(
                ["git", *SAFE, "-C", os.fspath(folder), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        except FileNotFoundError:
            raise SourceDataError(
                "there is no git on this machine. Install it, or pass a log file."
            ) from None
        with process:
            try:
                yield cast("IO[bytes]", process.stdout)
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        complaint = errors.read().decode("utf-8", "replace").strip()
    if process.returncode:
        reason = complaint.split("\n", 1)[0].removeprefix("fatal: ").rstrip(".") or "it gave no reason"
        if "unrecognized" in reason or "unknown option" in reason:
            raise SourceDataError(f"this git is too old: {reason}. Install git 2.31 or newer.")
        raise SourceDataError(
            f"git cannot read {folder}: {reason}. Name a folder of a git repository that has commits."
        )


def output_of(folder: Path, *arguments: str) -> bytes:
    """Return all that a git command prints."""
    with running(folder, arguments) as stream:
        return stream.read()


def fields(stream: IO[bytes]) -> Iterator[bytes]:
    r"""Yield the zero-terminated fields of a stream.

    Examples
    --------
    >>> import io
    >>> list(fields(io.BytesIO(b"one\0two\0three")))
    [b'one', b'two', b'three']
    """
    rest = b""
    while chunk := stream.read(CHUNK):
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole
    if rest.strip(b"\n"):
        yield rest
