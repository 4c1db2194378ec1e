"""Disturbed processes: killed, two at once, out of room, in strange surroundings.

The old output or the whole new one must be there, never a part; refusals are one line; whatever a command
finds around it, it writes the same.
"""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adversary.corpus import write
from benchmarks.adversary.outputs import HUNG, SECONDS, Bench, Command, begin, finish, mounted, remove, state

NOBODY = 65534


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


def begin_in(folder: Path, arguments: Command, place: Surroundings) -> subprocess.Popen[str]:
    """Start a command in a folder, in its surroundings."""
    environment = dict(os.environ)
    command = [sys.executable, "-m", "freshopt", *arguments]
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


BANDWIDTH = ("--bandwidth", "6/day")
COMMANDS: tuple[Command, ...] = (
    ("plan", "log.csv", *BANDWIDTH, "--horizon", "30d", "--out", "out"),
    ("plan", "log.parquet", *BANDWIDTH, "--horizon", "30d", "--csv", "--out", "out"),
    ("estimate", "log.csv.gz", "--out", "out.csv"),
    ("solve", "sources.csv", *BANDWIDTH, "--host-limits", "limits.csv", "--out", "out.parquet"),
    ("schedule", "rates.csv", "--horizon", "900d", "--out", "out.csv"),
    ("frontier", "sources.csv", "--bandwidths", "2,3,9", "--out", "out.csv"),
    ("poisson-check", "log.csv", "--out", "out.csv"),
)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)


@dataclass
class Disturbed(Bench):
    """A bench whose commands are drawn."""

    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def draw(self) -> Command:
        """Draw a command."""
        return COMMANDS[int(self.rng.integers(len(COMMANDS)))]


def killed(bench: Disturbed) -> str:
    """Kill a command at a random moment, over an old output or none."""
    command, sign = bench.draw(), SIGNALS[int(bench.rng.integers(len(SIGNALS)))]
    bench.undisturbed(command)
    target = bench.target(command)
    remove(target)
    if bench.rng.random() < 0.5:
        target.mkdir() if command[0] == "plan" else target.write_text("old")
        (target / "summary.json" if target.is_dir() else target).write_text("{}")
    return bench.interrupted(command, sign, float(bench.rng.uniform(0.05, 1.1)))[-1]


def two_writers(bench: Disturbed) -> str:
    """Start two commands, or three, that write to one place."""
    command = bench.draw()
    other = tuple({"6/day": "7/day", "900d": "901d", "2,3,9": "2,3"}.get(text, text) for text in command)
    whole = [bench.undisturbed(command), bench.undisturbed(other)]
    remove(bench.target(command))
    overwrite = ("--overwrite",) if bench.rng.random() < 0.7 else ()
    running = []
    for each in (command, other, command)[: int(bench.rng.integers(2, 4))]:
        running.append(begin(bench.folder, (*each, *overwrite)))
        time.sleep(float(bench.rng.uniform(0, 0.2)))
    ends = [finish(job) for job in running]
    for code, out, err in ends:
        if code not in (0, 2) or (code == 2 and (out or err.count("\n") != 1)) or "Traceback" in err:
            return f"two writers: {command[0]} code {code}: {err[-400:]}"
    if all(code for code, _, _ in ends) or state(bench.target(command)) not in whole:
        return f"two writers: {command[0]}: neither output is there, codes {[code for code, _, _ in ends]}"
    return f"two writers: {command[0]}: leftovers" if bench.leftovers() else ""


def no_room(bench: Disturbed) -> str:
    """Write to a small file system where one can be mounted, or under a limit of the file size."""
    command = bench.draw()
    bench.undisturbed(command)
    size, small = int(2 ** bench.rng.uniform(9, 19)), bench.folder / "small"
    limited = Surroundings("", {"NUMBA_CACHE_DIR": None})
    whole = contextlib.nullcontext(False) if bench.rng.random() < 0.5 else mounted(small, f"{size}")
    small.mkdir(exist_ok=True)
    target = small / command[-1]
    with whole as room:
        if not room:
            limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
            limited = replace(limited, before=limit)
        code, out, err = finish(begin_in(bench.folder, (*command[:-1], str(target)), limited))
        there, left = state(target), bench.leftovers()
    shutil.rmtree(small)
    what = f"{command[0]} with room for {size} bytes, {'mounted' if room else 'limited'}"
    if code == 0 and there != bench.undisturbed(command):
        return f"no room: {what}: code 0 and another output"
    if code != 0 and (there or left or code != 2 or out or err.count("\n") != 1):
        return f"no room: {what}: code {code}, output {bool(there)}, {len(left)} left: {err[-400:]}"
    return ""


def strange(place: Surroundings) -> Callable[[Disturbed], str]:
    """Return the check that a command does the same in such surroundings."""

    def check(bench: Disturbed) -> str:
        command = bench.draw()
        new, target = bench.undisturbed(command), bench.target(command)
        remove(target)
        bench.folder.chmod(0o777)
        code, out, err = finish(begin_in(bench.folder, command, place))
        what = f"{place.name}: {command[0]}: code {code}"
        lost = place.name in ("output to a full device", "no standard output", "output read by none")
        if "Traceback" in out + err or code == HUNG:
            return f"{what}: traceback or hang: {(out + err)[-600:]}"
        if state(target) != new and not (code == 2 and place.name == "few files" and not target.exists()):
            return f"{what}: another output, or none: {(out + err)[-600:]}"
        if code and not lost and place.name != "few files":
            return f"{what}: {(out + err)[-600:]}"
        if err.strip() and not lost:
            return f"{what}: on standard error: {err[-600:]}"
        return f"{what}: leftovers" if bench.leftovers() else ""

    return check


def run(minutes: float = 10.0, seed: int = 1) -> dict[str, Any]:
    """Disturb until the time is up; print what is found as it is found."""
    begun, done = time.monotonic(), 0
    kinds: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    places = [place for place in SURROUNDINGS if possible(place)]
    with tempfile.TemporaryDirectory() as name:
        bench = Disturbed(Path(name), rng=np.random.default_rng(seed))
        bench.rng.shuffle(places)
        write(bench.folder)
        (bench.folder / "locked").mkdir(mode=0o555)
        while time.monotonic() - begun < 60.0 * minutes:
            place = places[done // 4 % len(places)]
            scenarios = {
                "killed": killed,
                "two writers": two_writers,
                "no room": no_room,
                place.name: strange(place),
            }
            scenario = list(scenarios)[done % 4]
            wrong = scenarios[scenario](bench)
            done += 1
            tried[scenario] += 1
            if wrong:
                kinds[scenario] += 1
                print(f"\n{wrong}", flush=True)
            for path in bench.leftovers():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return {
        "seed": seed,
        "instances": done,
        "seconds": round(time.monotonic() - begun, 1),
        "limit": SECONDS,
        "tried": dict(tried.most_common()),
        "impossible here": sorted({place.name for place in SURROUNDINGS} - {place.name for place in places}),
        "findings": dict(kinds.most_common()),
    }
