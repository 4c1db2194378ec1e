"""Kill commands at random moments, and fill their disk: the old output or the new one must be there, no half.

    python -m benchmarks interruption --kills 240 --save

Each command is run to its end once; then, over its output or without any, killed by SIGINT or SIGKILL at a
random moment of such a run. Afterwards the output must be, byte by byte but for the times in it, the old one
or the new one. SIGINT must say "Aborted!" and leave nothing behind; what SIGKILL leaves behind must be gone
after the next run. As root on Linux it then mounts small file systems and lets `plan` run out of room there.
"""

import signal
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.adversary.outputs import Bench, Command, begin, finish, mounted, remove
from benchmarks.harness import Claims, Measurement, Record

LOG = ("--bandwidth", "40/day", "--horizon", "14d")
COMMANDS: dict[str, Command] = {
    "plan": ("plan", "log.parquet", *LOG, "--out", "target"),
    "plan --csv": ("plan", "log.parquet", *LOG, "--csv", "--out", "target"),
    "plan --engine dask": ("plan", "parts", *LOG, "--engine", "dask", "--out", "target"),
    "estimate": ("estimate", "log.parquet", "--out", "target.csv.gz"),
    "solve": ("solve", "sources.csv", "--bandwidth", "40", "--out", "target.parquet"),
    "schedule": ("schedule", "rates.csv", "--horizon", "900d", "--out", "target.csv"),
    "report": ("report", "made", "--out", "target.html"),
}
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
        command = ("plan", "log.parquet", *LOG, "--out", name)
        finish(begin(folder, _other(command) if name == "made2" else command))


def killed(bench: Bench, name: str, kills: int, rng: np.random.Generator) -> dict[str, Any]:
    """Kill one command at random moments."""
    command = COMMANDS[name]
    target = bench.target(command)
    bench.undisturbed(command)
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    for k in range(kills):
        sign = (signal.SIGINT, signal.SIGKILL)[k // 2 % 2]
        remove(target)
        if k % 2:  # an old output that cannot be taken for the new one
            finish(begin(bench.folder, _other(command)))
        there, left, problem = bench.interrupted(command, sign, float(rng.uniform(0.1, 1.05)))
        seen[f"{there}, {sign.name}"] += 1
        seen["left behind by SIGKILL"] += left and sign is signal.SIGKILL
        wrong += [problem] * bool(problem)
    remove(target)
    seconds = round(bench.seconds[command], 2)
    return {"seconds": seconds, "kills": kills, **dict(sorted(seen.items())), "wrong": wrong}


def _other(arguments: Command) -> Command:
    """Return a command line whose output differs."""
    changes = {"40/day": "41/day", "40": "41", "900d": "901d", "made": "made2"}
    changed = tuple(changes.get(text, text) for text in arguments)
    return (changed[0], "--confidence", "0.9", *changed[1:]) if arguments[0] == "estimate" else changed


def full(bench: Bench) -> dict[str, str] | None:
    """Let a plan run out of room on small file systems; None where none can be mounted."""
    place, outcomes = bench.folder / "small", {}
    for size in ROOM:
        with mounted(place, f"{size}k") as room:
            if not room:
                return None
            for csv in ((), ("--csv",)):
                code, _, error = finish(
                    begin(bench.folder, ("plan", "log.parquet", *LOG, *csv, "--out", "small/target"))
                )
                there = (place / "target").exists()
                good = (code == 0) == there and not bench.leftovers() and error.count("\n") == (not there)
                word = "written" if there else "refused in one line"
                outcomes[f"{size} KiB{' '.join(csv)}"] = word if good else f"WRONG: {error[-200:]}"
                remove(place / "target")
    return outcomes


def killings(kills: int = 240, which: tuple[str, ...] = tuple(COMMANDS)) -> Record:
    """Return what became of the outputs, of so many kills in all."""
    rng = np.random.default_rng(9)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        inputs(bench.folder, rng)
        commands = {}
        for command in which:
            commands[command] = killed(bench, command, kills // len(which), rng)
            print(command, commands[command], flush=True)
        room = full(bench)
    print("small disks:", room)
    wrong = [text for each in commands.values() for text in each["wrong"]]
    wrong += [text for text in (room or {}).values() if text.startswith("WRONG")]
    done = sum(each["kills"] for each in commands.values())
    return {"kills": done, "wrong": len(wrong), "commands": commands, "small_disks": room}


def claims(record: Record) -> Claims:
    """Yield that no output was broken."""
    yield f"{record['wrong']} of {record['kills']} kills went wrong", record["wrong"] == 0


BENCH = Measurement({"": killings}, quick={"kills": 4, "which": ("solve",)}, claims=claims)
