"""Kill commands at random moments, and fill their disk: the old output or the new one must be there, no half.

    python -m benchmarks interruption --kills 240 --save

Each command is run to its end once; then, over its output or without any, killed by SIGINT or SIGKILL at a
random moment of such a run. Afterwards the output must be, byte by byte but for the times in it, the old one
or the new one. SIGINT must say "Aborted!" and leave nothing behind; what SIGKILL leaves behind must be gone
after the next run. As root on Linux it then mounts small file systems and lets `plan` run out of room there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Claims, Measurement, Record

LOG = ("--bandwidth", "40/day", "--horizon", "14d")
COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", "log.parquet", *LOG, "--out", "target"),
    "plan --csv": ("plan", "log.parquet", *LOG, "--out", "target", "--csv"),
    "plan --engine dask": ("plan", "parts", *LOG, "--out", "target", "--engine", "dask"),
    "estimate": ("estimate", "log.parquet", "--out", "target.csv.gz"),
    "solve": ("solve", "sources.csv", "--bandwidth", "40", "--out", "target.parquet"),
    "schedule": ("schedule", "rates.csv", "--horizon", "900d", "--out", "target.csv"),
    "report": ("report", "made", "--out", "target.html"),
}
VARIES = ("summary.json",)  # it has the seconds that each step took
ROOM = (16, 64, 128, 160, 192, 224, 256, 320, 512, 4096)  # KiB of the file systems


def inputs(folder: Path, rng: np.random.Generator) -> None:
    """Write what the commands read."""
    n, crawls = 400, 60
    time_ = np.cumsum(rng.uniform(0.1, 0.9, (n, crawls)), axis=1).ravel()
    names = np.repeat([f"page/{k:03d}" for k in range(n)], crawls)
    log = pl.DataFrame({"source": names, "time": time_, "changed": rng.random(n * crawls) < 0.4})
    log.write_parquet(folder / "log.parquet")
    (folder / "parts").mkdir()
    for k in range(4):
        log[k * len(log) // 4 : (k + 1) * len(log) // 4].write_parquet(folder / "parts" / f"{k}.parquet")
    sources = pl.DataFrame({"source": np.arange(n), "change_rate": rng.uniform(0.1, 3.0, n)})
    sources.write_csv(folder / "sources.csv")
    sources.rename({"change_rate": "rate"}).write_csv(folder / "rates.csv")
    for name in ("made", "made2"):
        begin(folder, _other(("plan", "log.parquet", *LOG, "--out", name), name == "made2")).communicate()


def begin(folder: Path, arguments: tuple[str, ...]) -> subprocess.Popen[str]:
    """Start a command."""
    command = [sys.executable, "-m", "freshopt", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def state(target: Path) -> dict[str, str] | None:
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


def killed(folder: Path, name: str, kills: int, rng: np.random.Generator) -> dict[str, Any]:
    """Kill one command at random moments."""
    arguments = COMMANDS[name]
    target = folder / arguments[arguments.index("--out") + 1]
    started = time.perf_counter()
    _, error = begin(folder, arguments).communicate()
    seconds = time.perf_counter() - started
    new = state(target)
    if new is None:
        raise SystemExit(f"{name}: {error}")
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    for k in range(kills):
        over = bool(k % 2)
        sign = (signal.SIGINT, signal.SIGKILL)[k // 2 % 2]
        remove(target)
        if over:  # an old output that cannot be taken for the new one
            begin(folder, _other(arguments)).communicate()
        old = state(target)
        job = begin(folder, (*arguments, "--overwrite"))
        moment = float(rng.uniform(0.1, 1.05) * seconds)
        time.sleep(moment)
        job.send_signal(sign)
        _, error = job.communicate()
        now = state(target)
        what = "new" if now == new else "old" if now == old else "broken"
        left = [path for path in folder.iterdir() if ".partial." in path.name]
        seen[f"{what}, {sign.name}"] += 1
        seen["left behind by SIGKILL"] += bool(left) and sign is signal.SIGKILL
        if what == "broken" or "Traceback" in error or (left and sign is signal.SIGINT):
            wrong.append(f"{sign.name} after {moment:.3f} s: {what}, {len(left)} left, {error[-200:]!r}")
        if left:
            begin(folder, (*arguments, "--overwrite")).communicate()
            if any(".partial." in path.name for path in folder.iterdir()):
                wrong.append(f"{sign.name} after {moment:.3f} s: the next run left it")
    remove(target)
    return {"seconds": round(seconds, 2), "kills": kills, **dict(sorted(seen.items())), "wrong": wrong}


def _other(arguments: tuple[str, ...], other: bool = True) -> tuple[str, ...]:
    """Return a command line whose output differs, if it is to."""
    changes = {"40/day": "41/day", "40": "41", "900d": "901d", "made": "made2", "--csv": "--csv"}
    changed = tuple(changes.get(text, text) for text in arguments) if other else arguments
    return (*changed, "--confidence", "0.9") if other and arguments[0] == "estimate" else changed


def full(folder: Path) -> dict[str, Any] | None:
    """Let a plan run out of room on small file systems; None where none can be mounted."""
    place = folder / "small"
    place.mkdir()
    outcomes: dict[str, str] = {}
    for size in ROOM:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(place)]
        if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
            return None
        try:
            for csv in ((), ("--csv",)):
                job = begin(folder, ("plan", "log.parquet", *LOG, "--out", "small/target", *csv))
                _, error = job.communicate()
                there = (place / "target").exists()
                left = any(".partial." in path.name for path in place.iterdir())
                good = (job.returncode == 0) == there and not left and error.count("\n") == (not there)
                word = "written" if there else "refused in one line"
                outcomes[f"{size} KiB{' '.join(csv)}"] = word if good else f"WRONG: {error[-200:]}"
                remove(place / "target")
        finally:
            subprocess.run(["umount", str(place)], check=True)
    return outcomes


def killings(kills: int = 240, which: tuple[str, ...] = tuple(COMMANDS)) -> Record:
    """Return what became of the outputs, of so many kills in all."""
    rng = np.random.default_rng(9)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs(folder, rng)
        commands = {}
        for command in which:
            commands[command] = killed(folder, command, kills // len(which), rng)
            print(command, commands[command], flush=True)
        room = full(folder)
    print("small disks:", room)
    wrong = [text for each in commands.values() for text in each["wrong"]]
    wrong += [text for text in (room or {}).values() if text.startswith("WRONG")]
    done = sum(each["kills"] for each in commands.values())
    return {"kills": done, "wrong": len(wrong), "commands": commands, "small_disks": room}


def claims(record: Record) -> Claims:
    """Yield that no output was broken."""
    yield f"{record['wrong']} of {record['kills']} kills went wrong", record["wrong"] == 0


BENCH = Measurement({"": killings}, quick={"kills": 4, "which": ("solve",)}, claims=claims)
