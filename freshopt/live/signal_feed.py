"""`SignalFeed`: signals as lines of a file or of a program.

A line is ``source``, or ``source,time``, or ``source,time,kind``, as in CSV; without a time it is of now. A
line of column names, empty ones and remarks (#) are passed over. A file is followed, and read from its
beginning where another took its place; that signals come again does not matter. What cannot be used is
counted, and told at the end: a feed is foreign.
"""

from __future__ import annotations

import csv
import os
import queue
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import IO

from freshopt.errors import FreshoptError, SourceDataError, shortened
from freshopt.live.planner import Planner
from freshopt.live.source_command import end_process, split_words

# Octets of a line at most, and lines taken at once.
LONGEST, MANY = 10_000, 10_000
# Refusals that are kept with their words.
KEPT = 3


class SignalFeed:
    """Lines of signals, read as they come."""

    def __init__(self, given: str) -> None:
        self.heard, self.refused = 0, 0
        self.refusals: list[str] = []
        self._path, self._at, self._rest = Path(given), 0, b""
        self._file: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue(MANY)
        self._ended = False
        if self._path.is_file():
            return
        try:
            words = split_words(given)
        except ValueError as error:
            raise SourceDataError(f"the program {shortened(given)} cannot be split ({error}).") from None
        if not words or shutil.which(words[0]) is None:
            raise SourceDataError(
                f"{shortened(given)} is neither a file nor a program. Name a file of signals, or what prints "
                "them."
            )
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def hear(self, planner: Planner) -> int:
        """Record what has come since; return how many signals were new."""
        before = self.heard
        for line in self._new_lines():
            self._record(planner, line)
        return self.heard - before

    def hear_all(self, planner: Planner, seconds: float) -> None:
        """Record all that a file has, or a program until it ends."""
        until = time.monotonic() + seconds
        while self.hear(planner) or (self._process is not None and not self._ended):
            if time.monotonic() > until:
                return
            time.sleep(0.02)

    def close(self) -> None:
        """End the program, or close the file."""
        if self._process is not None:
            end_process(self._process)
        if self._file is not None:
            self._file.close()

    @property
    def words(self) -> str:
        """How many signals came, and what could not be used."""
        text = f"{self.heard:,} new"
        if self.refused:
            text += f", {self.refused:,} not used: {'; '.join(each.rstrip('.') for each in self.refusals)}"
        return text

    def _new_lines(self) -> list[bytes]:
        """Return whole lines that were not read yet, so many at most."""
        if self._process is None:
            return self._grown()
        lines: list[bytes] = []
        while len(lines) < MANY:
            try:
                line = self._lines.get_nowait()
            except queue.Empty:
                break
            if line is None:
                self._ended = True
                break
            lines.append(line)
        return lines

    def _grown(self) -> list[bytes]:
        """Return the whole lines that a file has got."""
        try:
            there = self._path.stat()
        except OSError:
            return []  # between two files
        if self._file is not None:
            known = os.fstat(self._file.fileno())
            if (known.st_ino, known.st_dev) != (there.st_ino, there.st_dev) or there.st_size < self._at:
                self._file.close()
                self._file = None
        if self._file is None:
            self._file, self._at, self._rest = self._path.open("rb"), 0, b""
        part = self._file.read(LONGEST * 100)
        self._at += len(part)
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        return lines

    def _listen(self) -> None:
        """Hand on a program's lines, waiting where they are not taken."""
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while line := output.readline(LONGEST + 1):
                self._lines.put(line)
        self._lines.put(None)

    def _record(self, planner: Planner, line: bytes) -> None:
        """Record the signal of a line."""
        try:
            if len(line) > LONGEST:
                raise SourceDataError(f"a line has more than {LONGEST:,} characters. Write one a signal.")
            text = line.decode("utf-8").strip()
            cells = [cell.strip() for cell in next(csv.reader([text]), [])]
            if not cells or text.startswith("#") or cells[:2] == ["source", "time"]:
                return
            if len(cells) > 3:
                raise SourceDataError(f"{shortened(text)} has more than source, time and kind.")
            source, moment, kind = (*cells, "", "")[:3]
            self.heard += planner.signal(source, moment or None, kind or None)
        except (FreshoptError, UnicodeDecodeError, csv.Error) as error:
            self.refused += 1
            if len(self.refusals) < KEPT:
                self.refusals.append(shortened(str(error)))
