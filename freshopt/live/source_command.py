"""`SourceCommand`: a program that fetches one source and tells whether it changed.

The words of the command are split as a shell splits them, once; placeholders are then filled in within the
words. Where a backslash separates folders (Windows) it escapes nothing.
No shell reads a source's name, so that no name can say anything to it. Output is hashed as it comes and not
kept. A program that runs too long ends with all that it has started.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO, Literal

from freshopt.errors import SourceDataError, one_of, shortened

# Octets that are read of the output at a time.
_CHUNK = 65_536
# What a word may hold in braces.
PLACEHOLDERS = ("source", "host")
_BRACES = re.compile(r"\{([^{}]*)\}")
# Seconds that a process which was asked to end is given before it is killed.
_GRACE = 2.0
# What a signal to a group that has ended raises; the second on macOS, until its first process is waited for.
_NO_GROUP = (ProcessLookupError, PermissionError)


@dataclass(frozen=True, slots=True)
class Fetch:
    """What a run of the command found.

    - `changed`: Whether the copy changed, by the exit code; None where the output decides, or nothing does.
    - `content`: Digest of the output; empty where the exit code decides.
    - `failure`: Why nothing was found, in a few words; empty if something was.
    - `seconds`: How long it took.
    """

    changed: bool | None = None
    content: str = ""
    failure: str = ""
    seconds: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SourceCommand:
    """Command line that fetches one source.

    - `words`: Program and arguments, with ``{source}`` and ``{host}`` in them.
    - `timeout`: Seconds after which a run has failed, > 0.
    - `changed_by` {"output", "exit-code"}: By the output: any other than last time is a change, and every
      exit code but 0 a failure. By the exit code: 0 is unchanged, 1 is changed, as ``cmp`` and ``diff`` say
      it, and every other a failure.
    """

    words: tuple[str, ...]
    timeout: float = 60.0
    changed_by: Literal["output", "exit-code"] = "output"

    def __post_init__(self) -> None:
        """Raise SourceDataError unless it is told how changes are seen."""
        one_of(self.changed_by, ("output", "exit-code"), "changed_by")

    @classmethod
    def parse(
        cls, text: str, timeout: float = 60.0, changed_by: Literal["output", "exit-code"] = "output"
    ) -> SourceCommand:
        """Split a command line into words.

        Examples
        --------
        >>> SourceCommand.parse("cat 'copies/{source}.html'").words
        ('cat', 'copies/{source}.html')
        >>> SourceCommand.parse("cat {url}")
        Traceback (most recent call last):
        freshopt.errors.SourceDataError: the command has {url}, which is unknown. Write {source} or {host}.
        """
        try:
            words = tuple(split_words(text))
        except ValueError as error:
            raise SourceDataError(
                f"the command {shortened(text)} cannot be split into words ({error}). Close its quotes."
            ) from None
        named = [name for word in words for name in _BRACES.findall(word)]
        unknown = next((name for name in named if name not in PLACEHOLDERS), None)
        if unknown is not None:
            raise SourceDataError(
                f"the command has {{{unknown}}}, which is unknown. Write {{source}} or {{host}}."
            )
        if "source" not in named:
            raise SourceDataError(
                f"the command {shortened(text)} does not name the source. Write {{source}} where it belongs."
            )
        if not _BRACES.search(words[0]) and shutil.which(words[0]) is None:
            raise SourceDataError(
                f"the program {shortened(words[0])} of the command is not there or not executable. Name "
                "another."
            )
        return cls(words, timeout, changed_by)

    @property
    def names_host(self) -> bool:
        """Whether a word has ``{host}``."""
        return any("host" in _BRACES.findall(word) for word in self.words)

    def filled(self, values: Mapping[str, str]) -> list[str]:
        """Return the words for one source.

        Examples
        --------
        >>> SourceCommand.parse("cat 'https://{host}/{source}'").filled({"host": "a.org", "source": "x y"})
        ['cat', 'https://a.org/x y']
        """
        return [_BRACES.sub(lambda found: values.get(found[1], ""), word) for word in self.words]

    def run(self, source: str, host: str = "") -> Fetch:
        """Fetch one source, within the timeout and two seconds."""
        begin = time.monotonic()
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    self.filled({"source": source, "host": host}),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if self.changed_by == "output" else subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                # ValueError: a name that holds the character NUL, which no argument can.
                return Fetch(failure=f"does not start: {getattr(error, 'strerror', None) or error}")
            try:
                digest = self._digest(process)
            finally:
                end_process(process)
            if digest is None:
                return Fetch(failure=f"took more than {self.timeout:g} s and was ended")
            found = self._found(process.returncode, digest, said)
            return replace(found, seconds=time.monotonic() - begin)

    def _found(self, code: int, digest: str, said: IO[bytes]) -> Fetch:
        if self.changed_by == "exit-code" and code in (0, 1):
            return Fetch(changed=code == 1)
        if code == 0:
            return Fetch(content=digest)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Fetch(failure=f"{how}{_last_line(said)}")

    def _digest(self, process: subprocess.Popen[bytes]) -> str | None:
        """Return the digest of the output; None if the time is over."""
        deadline = time.monotonic() + self.timeout
        digest = hashlib.sha256()
        if process.stdout is not None:
            # Not every system can wait for a pipe and for a moment at once. The thread outlives the run only
            # where a process that left the group holds the pipe open.
            reader = threading.Thread(target=_read, args=(process.stdout, digest.update), daemon=True)
            reader.start()
            reader.join(self.timeout)
            if reader.is_alive():
                return None
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        return digest.hexdigest()


def split_words(text: str) -> list[str]:
    """Split a command line into words, without a shell."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    if os.sep == "\\":
        lexer.escape = ""
    return list(lexer)


def _read(output: IO[bytes], update: Callable[[bytes], object]) -> None:
    """Hand on all output, and close it at its end."""
    with output:
        while part := os.read(output.fileno(), _CHUNK):
            update(part)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started."""
    if hasattr(os, "killpg"):
        _end_group(process)
    elif process.poll() is None:
        with suppress(OSError):  # the tree of a process is found while its root runs
            tree = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
            subprocess.run(tree, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        process.kill()
    process.wait()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for ask in (signal.SIGTERM, signal.SIGKILL):
        # The group outlives its first process where that leaves others behind.
        try:
            os.killpg(process.pid, ask)
        except _NO_GROUP:
            break
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            continue
        if ask == signal.SIGTERM and not _group_lives(process.pid):
            break


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except _NO_GROUP:
        return False
    return True


def _last_line(said: IO[bytes]) -> str:
    """Return the last line of standard error, shortened, in brackets."""
    end = said.seek(0, os.SEEK_END)
    said.seek(max(0, end - 1000))
    lines = said.read().decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f" ({shortened(last)})" if last else ""
