"""Commands in a folder of inputs, what they write, and what is left when they are killed or out of room."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 120.0
HUNG = -1000  # instead of a code
VARIES = ("summary.json",)  # it has the seconds that each step took
Command = tuple[str, ...]  # its last word is what it writes
Output = dict[str, str] | None  # digests by file


def state(target: Path) -> Output:
    """Return what is in an output, without what differs from run to run; None if there is none."""
    if not target.exists():
        return None
    files = sorted(path for path in target.rglob("*") if path.is_file()) if target.is_dir() else [target]
    found = {}
    for file in files:
        content = file.read_bytes()
        if file.name in VARIES:
            content = json.dumps({**json.loads(content), "seconds": None}).encode()
        elif file.suffix == ".html":  # the seconds again, in words
            content = re.sub(rb"\d+\.\d+ s", b"", content)
        found[str(file.relative_to(target.parent))] = hashlib.sha256(content).hexdigest()
    return found


def remove(target: Path) -> None:
    """Remove an output."""
    shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)


def begin(folder: Path, arguments: Command) -> subprocess.Popen[str]:
    """Start a command in a folder."""
    command, pipe = [sys.executable, "-m", "freshopt", *arguments], subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True)


def finish(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a command; return its code, or `HUNG` if it did not end in time, and both streams."""
    try:
        out, err = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        job.kill()
        return HUNG, *job.communicate()
    return job.returncode, out, err


@contextlib.contextmanager
def mounted(place: Path, size: str) -> Iterator[bool]:
    """Mount a small file system for a while; whether that was possible."""
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    done = os.geteuid() == 0 and not subprocess.run(mount, check=False, capture_output=True).returncode
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", str(place)], check=True)


@dataclass
class Bench:
    """A folder of inputs, and what undisturbed commands write."""

    folder: Path
    expected: dict[Command, Output] = field(default_factory=dict)
    seconds: dict[Command, float] = field(default_factory=dict)

    def target(self, command: Command) -> Path:
        """Return a command's output."""
        return self.folder / command[-1]

    def undisturbed(self, command: Command) -> Output:
        """Return what a command writes when nothing happens to it."""
        if command not in self.expected:
            remove(self.target(command))
            started = time.perf_counter()
            code, _, err = finish(begin(self.folder, command))
            self.seconds[command] = time.perf_counter() - started
            if code:
                raise SystemExit(f"undisturbed, and yet: {command} {err}")
            self.expected[command] = state(self.target(command))
            remove(self.target(command))
        return self.expected[command]

    def leftovers(self) -> list[Path]:
        """Return hidden unfinished outputs."""
        return [path for path in self.folder.rglob("*") if ".partial." in path.name]

    def interrupted(self, command: Command, sign: signal.Signals, share: float) -> tuple[str, bool, str]:
        """Kill a command after a share of its time; return what is there, leftovers, and what is wrong.

        SIGINT leaves nothing behind; what others leave must be gone after the next run.
        """
        new, target, moment = self.undisturbed(command), self.target(command), share * self.seconds[command]
        old = state(target)
        again = (*command[:-2], "--overwrite", *command[-2:])
        job = begin(self.folder, again)
        time.sleep(moment)
        job.send_signal(sign)
        code, _, err = finish(job)
        now, left = state(target), bool(self.leftovers())
        there = "new" if now == new else "old" if now == old else "broken"
        what = f"{command[0]} {sign.name} after {moment:.3f} s of {self.seconds[command]:.3f}"
        if there == "broken":
            return there, left, f"broken output: {what}"
        if "Traceback" in err or code == HUNG:
            return there, left, f"traceback or hang: {what}: {err[-400:]}"
        if left and sign is signal.SIGINT:
            return there, left, f"leftovers: {what}"
        if left:
            finish(begin(self.folder, again))
            if self.leftovers() or state(target) != new:
                return there, left, f"leftovers after the next run: {what}"
        return there, left, ""
