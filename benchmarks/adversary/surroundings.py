"""Surroundings that a command may find itself in: an environment, limits, streams, another user."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

NOBODY = 65534
SECONDS = 120.0


@dataclass(frozen=True)
class Surroundings:
    """What differs from the usual: variables, what the child does first, a shell around it.

    None removes a variable; {} stands for the command of freshopt in that of the shell.
    """

    name: str
    environment: dict[str, str | None] = field(default_factory=dict)
    before: Callable[[], object] | None = None
    shell: str = "{}"
    as_nobody: bool = False


def no_descriptors() -> None:
    """Allow few open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def few_processes() -> None:
    """Leave one processor."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


NOWHERE = "/proc/nowhere"
# A folder that `processes` makes, which cannot be written without root's privileges.
LOCKED: dict[str, str | None] = dict.fromkeys(
    ("HOME", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"), "locked"
)
UNPRIVILEGED = "setpriv --bounding-set=-all --inh-caps=-all"
SURROUNDINGS = (
    Surroundings("LANG=C", {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    Surroundings("ASCII streams", {"PYTHONIOENCODING": "ascii"}),
    Surroundings("no HOME", {"HOME": None, "USER": None, "LOGNAME": None}),
    Surroundings("HOME nowhere", {"HOME": NOWHERE, "XDG_CACHE_HOME": NOWHERE, "XDG_CONFIG_HOME": NOWHERE}),
    Surroundings("numba's cache nowhere", {"NUMBA_CACHE_DIR": NOWHERE}),
    Surroundings("no compiler", {"FRESHOPT_COMPILED": "0"}),
    Surroundings("TMPDIR nowhere", {"TMPDIR": NOWHERE}),
    Surroundings("no PATH", {"PATH": None}),
    Surroundings("a terminal of one column", {"TERM": "dumb", "COLUMNS": "1", "LINES": "1"}),
    Surroundings("Python optimised", {"PYTHONOPTIMIZE": "2"}),
    Surroundings("warnings are errors", {"PYTHONWARNINGS": "error::RuntimeWarning"}),
    Surroundings("hash seed", {"PYTHONHASHSEED": "4711"}),
    Surroundings("far from Greenwich", {"TZ": "Pacific/Kiritimati"}),
    Surroundings("one processor", before=few_processes),
    Surroundings("few files", before=no_descriptors),
    Surroundings("umask 077", before=lambda: os.umask(0o077)),
    Surroundings("no standard input", shell="{} <&-"),
    Surroundings("no standard output", shell="{} >&-"),
    Surroundings("no standard error", shell="{} 2>&-"),
    Surroundings("output read by none", shell="({}; echo $? >code) | true; exit $(cat code)"),
    Surroundings("output to a full device", shell="{} >/dev/full"),
    Surroundings("a terminal", shell="script -qec '{}' /dev/null"),
    Surroundings("in the background", shell="setsid {}"),
    Surroundings("no privileges, locked caches", LOCKED, shell=f"{UNPRIVILEGED} {{}}"),
    Surroundings("nobody", as_nobody=True),
)


def begin(
    folder: Path, arguments: tuple[str, ...], place: Surroundings = SURROUNDINGS[0], *, plain: bool = False
) -> subprocess.Popen[str]:
    """Start a command in a folder, in its surroundings or in plain ones."""
    environment = dict(os.environ)
    command = [sys.executable, "-m", "freshopt", *arguments]
    if plain:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    for key, value in place.environment.items():
        environment.pop(key, None) if value is None else environment.update({key: value})
    if place.shell != "{}":
        command = ["/bin/bash", "-c", place.shell.format(" ".join(command))]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=place.before,
        user=NOBODY if place.as_nobody else None,
    )


def possible(place: Surroundings) -> bool:
    """Return whether this machine has such surroundings."""
    tool = next((tool for tool in ("script", "setsid", "setpriv") if place.shell.startswith(tool)), None)
    if tool is not None:
        return shutil.which(tool) is not None
    if not place.as_nobody:
        return True
    if os.geteuid() != 0:
        return False
    test = [sys.executable, "-c", "import freshopt.cli"]
    try:
        done = subprocess.run(test, user=NOBODY, check=False, capture_output=True, cwd="/")
    except PermissionError:  # the interpreter itself is out of reach
        return False
    return done.returncode == 0


def finish(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a command; a code of None is one that did not end in time."""
    try:
        out, err = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        job.kill()
        out, err = job.communicate()
        return -1000, out, err
    return job.returncode, out, err
