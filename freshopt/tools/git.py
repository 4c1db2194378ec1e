"""`read_git`: change history of the files in a git repository.

Each commit that touches a file is a change.

Everybody has one: it is the quickest way to try freshopt on sources that one knows. ``git log`` is read as a
stream, so that a long history costs the memory of its changes, not of its commits' text.

What counts is the first-parent line of the branch: what somebody who pulls it would see. A merge is one
change of every file that it brings, when it is merged; the commits behind it are no changes of this branch.
Times are those of the committer, in UTC. The history is complete: a file of the branch has no other state
than those of its commits, however close they are.

Git is run with a plain list of arguments, never through a shell, and with those of a repository's settings
switched off that would start another program or change the format.

Cost: that of ``git log --name-status``, some 10 000 commits a second.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, cast

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.change_history import ChangeHistory
from freshopt.numerics.arrays import label_array, labels_of
from freshopt.units import check_time_unit

# A commit and its time.
HEADER = re.compile(rb"[0-9a-f]{40,64} (-?\d+)")
STATUS = re.compile(rb"\n?([AMDTUXB])\d*")

# Bytes of git's output read at once.
CHUNK = 1 << 20
SAFE = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false", "-c", "log.follow=false", "--no-pager")
# Variables that would point git away from the folder that was named.
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


def read_git(
    path: str | os.PathLike[str] = ".",
    *,
    since: str | datetime | None = None,
    paths: Sequence[str] = (),
    min_changes: int = 0,
    deleted: bool = False,
    time_unit: str = "day",
) -> ChangeHistory:
    r"""Read the change history of a git repository's files.

    Parameters
    ----------
    path : path
        The repository, or a folder in it: then only the files below it. It may be bare.
    since : datetime or str, optional
        Use changes from here on only (in text: ISO 8601; without an offset: UTC). Files that are older
        are watched from then on.
    paths : sequence of str
        Git pathspecs relative to `path`, such as ``docs`` or ``*.md``; default: all files.
    min_changes : int
        Leave out files that changed less often.
    deleted : bool
        Also take files that are gone; the time in which such a file was watched ends when it was deleted.
    time_unit : str
        "second", "minute", "hour", "day" or "week".

    Returns
    -------
    ChangeHistory
        Sources are paths from the root of the repository; bytes that are not UTF-8 are written ``\xff``. A
        file is watched from the commit that added it, which is no change of it, to the last commit of the
        branch. A file that was deleted and came back is one source, and both are changes of it. A renamed
        file is a new one: what it was called before has ended.

    Raises
    ------
    SourceDataError
        If git is missing, there is no repository or no commit, or no file is left.
    """
    check_time_unit(time_unit)
    folder = Path(path)
    if not folder.is_dir():
        raise SourceDataError(f"{folder} is not a folder. Name a git repository, or a folder in one.")
    begin = _moment(since)
    specs = list(paths) or ["."] if _is_true(folder, "--is-inside-work-tree") else list(paths)
    end = int(output_of(folder, "log", "-1", "--first-parent", "--no-show-signature", "--format=%ct"))
    if begin is not None and begin > end:
        last = datetime.fromtimestamp(end, UTC).isoformat()
        raise SourceDataError(f"since is {since}, after the last commit, at {last}. Look further back.")
    alive = _alive(folder, specs)
    touched = _Touched.read(folder, specs, begin)
    if len(set(touched.time)) == 1 and _is_true(folder, "--is-shallow-repository"):
        raise SourceDataError(
            f"{folder} is a shallow clone with one commit, which shows no change of any file. Fetch the "
            "history: git fetch --unshallow."
        )
    return touched.history(alive, end, begin, min_changes, deleted=deleted, time_unit=time_unit)


class _Touched:
    """Touched files, numbered newest first, and the times of commits."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.file, self.time = array("q"), array("q")
        self.status = bytearray()

    @classmethod
    def read(cls, folder: Path, specs: Sequence[str], begin: int | None) -> _Touched:
        """Read the log of a repository."""
        touched = cls()
        since = [] if begin is None else [f"--since={datetime.fromtimestamp(begin, UTC).isoformat()}"]
        command = (
            *("log", "-z", "--first-parent", "--diff-merges=first-parent", "--name-status", "--no-renames"),
            *(
                "--no-show-signature",
                "--no-ext-diff",
                "--no-relative",
                "--format=%H %ct",
                *since,
                "HEAD",
                "--",
            ),
            *specs,
        )
        with running(folder, command) as stream:
            touched._take(fields(stream), folder)
        return touched

    def _take(self, tokens: Iterator[bytes], folder: Path) -> None:
        """Parse a git log's commits, with their files' status and path."""
        time: int | None = None
        for token in tokens:
            if not token:
                continue
            header = HEADER.fullmatch(token.strip(b"\n"))
            if header:
                time = int(header[1])
                continue
            status = STATUS.fullmatch(token)
            name = next(tokens, None) if status else None
            if status is None or not name or time is None:
                raise SourceDataError(
                    f"git log of {folder} has the field {token[:60]!r}, which is neither a commit nor a "
                    "change. "
                    "Check that `git log --name-status` works there (git 2.31 or newer)."
                )
            self.file.append(self.numbers.setdefault(name, len(self.numbers)))
            self.time.append(time)
            self.status += status[1]

    def history(
        self,
        alive: set[bytes],
        end: int,
        begin: int | None,
        min_changes: int,
        *,
        deleted: bool,
        time_unit: str,
    ) -> ChangeHistory:
        """Return the files' change history with the time each was watched."""
        for name in sorted(alive):
            self.numbers.setdefault(name, len(self.numbers))
        names = list(self.numbers)
        n = len(names)
        # Oldest first: the first status of a file shows whether it was there before.
        file = np.array(self.file, dtype=np.int64)[::-1]
        time = np.array(self.time, dtype=np.int64)[::-1]
        status = np.frombuffer(bytes(self.status), dtype=np.uint8)[::-1]
        some, first = np.unique(file, return_index=True)
        last = len(file) - 1 - np.unique(file[::-1], return_index=True)[1]
        is_alive = np.fromiter((name in alive for name in names), np.bool_, n)
        added, gone = status[first] == ord("A"), ~is_alive[some]
        # Without `since`, what was not added was there before the first commit known to this clone.
        oldest = int(time.min()) if len(file) else end
        opened = np.full(n, oldest if begin is None else begin)
        opened[some[added]] = time[first[added]]
        closed = np.full(n, end)
        closed[some[gone]] = time[last[gone]]
        # Clocks of commits may be wrong.
        np.minimum.at(opened, file, time)
        np.maximum.at(closed, file, time)
        is_change = np.ones(len(file), dtype=np.bool_)
        # Neither the beginning nor the end of a source is a change of it.
        is_change[first[added]] = is_change[last[gone]] = False
        counts = np.bincount(file[is_change], minlength=n)
        kept = (counts >= min_changes) & (is_alive | (deleted & (np.bincount(file, minlength=n) > 0)))
        if not kept.any():
            raise SourceDataError(
                f"no file is left of the {n} in the history: {int(is_alive.sum())} are there now, and none "
                "of them "
                f"changed {min_changes} times or more. Look at more paths, further back, or at fewer changes."
            )
        labels = label_array([name.decode("utf-8", "backslashreplace") for name in names])
        rows = is_change & kept[file]
        order = np.argsort(labels[kept], kind="stable")
        return ChangeHistory(
            labels_of(labels, file[rows]),
            time[rows].astype("datetime64[s]"),
            opened[kept][order].astype("datetime64[s]"),
            closed[kept][order].astype("datetime64[s]"),
            names=labels[kept],
            time_unit=time_unit,
        )


def _moment(since: str | datetime | None) -> int | None:
    """Return `since` as whole seconds from 1970."""
    if since is None:
        return None
    if isinstance(since, str):
        try:
            since = datetime.fromisoformat(since)
        except ValueError:
            raise SourceDataError(
                f"since is {since!r}, which is no moment. Write it such as 2026-01-31 or "
                "2026-01-31T06:00:00Z."
            ) from None
    since = since if since.tzinfo else since.replace(tzinfo=UTC)
    return (since - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)


def _is_true(folder: Path, question: str) -> bool:
    """Return what ``git rev-parse`` answers, such as to --is-inside-work-tree."""
    return output_of(folder, "rev-parse", question).strip() == b"true"


def _alive(folder: Path, specs: Sequence[str]) -> set[bytes]:
    """Return the files that the last commit has."""
    empty = output_of(folder, "hash-object", "-t", "tree", "--stdin").decode().strip()
    listing = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-relative")
    with running(folder, (*listing, empty, "HEAD", "--", *specs)) as stream:
        return {token for token in fields(stream) if token}


@contextmanager
def running(folder: Path, arguments: Sequence[str]) -> Iterator[IO[bytes]]:
    """Run git in a folder and yield its output."""
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
