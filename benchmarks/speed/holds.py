"""Hold speed between two checkouts: the same work in both, in turns, as ratios.

    git worktree add ../before COMMIT
    python -m benchmarks holds --base ../before [--save] [--cells harmonic ...] [--rounds 7]

A process of each checkout takes the same problems and works in turns with the other, on one thread; the least
CPU time counts. Work: the certified call of every cell at 10⁶ and 10⁷ sources, limits of hosts, batches, a
frontier, declared objectives (smooth, with a kink), declared constraints, and declaring a problem alone. The
cold start is the CPU time of new processes: the import, and a first solve of 10, 10⁴ and 10⁶ sources, and the
plan of the bundled example, each in turns too. Without --base the checkout is held to itself, which shows the
noise.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import ONE, ROOT, Claims, Measurement, Record, Row

WORKER = Path(__file__).with_name("holds_work.py")
CELLS = (
    *(
        f"{name}{how}"
        for name in ("harmonic", "binary", "delay", "age")
        for how in ("", ", signals", ", periodic")
    ),
    *("power 0.5", "polls", "materials"),
)
SIZES = (10**6, 10**7)
# Work, cell, sources, and what the ratio may be.
OTHERS = (
    ("hosts", "harmonic", 10**6, 1.15),
    ("hosts", "binary, periodic", 10**6, 1.15),
    ("batch", "harmonic", 10**6, 1.0),
    ("batch", "harmonic, periodic", 10**6, 1.0),
    ("batch", "binary, periodic", 10**6, 1.0),
    ("batch", "delay", 10**6, 1.0),
    ("batch", "age", 10**6, 1.0),
    ("frontier", "harmonic", 10**4, 1.0),
    ("rows", "harmonic", 10**6, 1.10),
    ("solve", "own, smooth", 10**6, 1.15),
    ("solve", "own, with a kink", 10**6, 1.15),
    ("declare", "harmonic", 1000, 1.0),
)
CERTIFIED, COLD = 1.10, 1.05
NOISE = 0.05  # by which a ratio of equal code may exceed 1
FIRST = (
    "import numpy as np, freshopt as fo; d = np.random.default_rng(1).lognormal(size={n}); "
    "fo.solve(fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), fo.Sources(d), float(d.sum())))"
)
# With options that releases before had to be told, too.
PLAN = "import sys; sys.argv = 'freshopt plan --example debian-uploads --bandwidth 4/day --horizon 90d --out"
PLAN += " plan --overwrite'.split(); from freshopt.__main__ import main; main()"
STARTS: dict[str, list[str]] = {
    "import": ["-c", "import freshopt"],
    **{f"first solve of {n:,}": ["-c", FIRST.format(n=n)] for n in (10, 10**4, 10**6)},
    "plan of the example": ["-c", PLAN],
}


def environment(checkout: Path) -> dict[str, str]:
    """Return the variables of a process that imports a checkout, on one thread."""
    return os.environ | ONE | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": ""}


class Worker:
    """A process of one checkout that works on demand."""

    def __init__(self, checkout: Path) -> None:
        command = [sys.executable, str(WORKER)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(checkout)
        )

    def seconds(self, work: str, cell: str, n: int) -> float:
        """Return the CPU seconds of some work."""
        given, told = self.process.stdin, self.process.stdout
        assert given is not None
        assert told is not None
        given.write(f"{work}|{cell}|{n}\n")
        given.flush()
        line = told.readline()
        if not line:
            raise RuntimeError(f"the process of a checkout ended at {work}, {cell}, {n:,} sources.")
        return float(line)


def compared(row: Row, hold: float, base: list[float], now: list[float]) -> Row:
    """Return a row with the ratio of the least times."""
    ratio = min(now) / max(min(base), sys.float_info.min)
    return {**row, "base": min(base), "now": min(now), "ratio": ratio, "hold": hold}


def warm(
    base: str = "", cells: tuple[str, ...] = CELLS, sizes: tuple[int, ...] = SIZES, rounds: int = 7
) -> Iterator[Row]:
    """Yield the ratio of all work of processes that are running."""
    workers = Worker(Path(base).resolve() if base else ROOT), Worker(ROOT)
    plain = [("solve", cell, n, CERTIFIED) for n in sizes for cell in cells]
    for work, cell, n, hold in (*plain, *OTHERS):
        few = min(n, max(sizes))
        times = [[worker.seconds(work, cell, few) for worker in workers] for _ in range(rounds)]
        before, now = (list(each) for each in zip(*times, strict=True))
        yield compared({"work": work, "cell": cell, "n": few}, hold, before, now)
    for worker in workers:
        worker.process.communicate()


def cpu_seconds(words: list[str], checkout: Path, scratch: Path) -> float:
    """Return the CPU seconds of a new process."""
    arguments = [word.format(scratch=scratch / "plan") for word in words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments], env=environment(checkout), cwd=scratch, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cold(base: str = "", starts: int = 9) -> Iterator[Row]:
    """Yield the ratio of all work of new processes."""
    checkouts = Path(base).resolve() if base else ROOT, ROOT
    for work, words in STARTS.items():
        with tempfile.TemporaryDirectory() as before_there, tempfile.TemporaryDirectory() as now_there:
            # Each writes files of its own, which the other may not know.
            both = [*zip(checkouts, map(Path, (before_there, now_there)), strict=True)]
            times = [[cpu_seconds(words, *each) for each in both] for _ in range(starts + 1)]
        before, now = (list(each) for each in zip(*times[1:], strict=True))
        yield compared({"work": work, "cell": "", "n": 0}, COLD, before, now)


def claims(record: Record) -> Claims:
    """Yield that no ratio exceeds its hold by more than noise."""
    for row in (*record["warm"], *record["cold"]):
        told = " ".join(str(part) for part in (row["work"], row["cell"], row["n"]) if part)
        yield f"{told}: {row['ratio']:.2f} of the base for {row['hold']}", row["ratio"] <= row["hold"] + NOISE


BENCH = Measurement(
    {"warm": warm, "cold": cold},
    quick={"sizes": (1000,), "rounds": 2, "starts": 1},
    facts=("rounds", "versions"),
    claims=claims,
    large=True,
)
