"""Profile `freshopt plan` end to end: processor seconds by stage, and memory.

    python -m benchmarks plan_profile [--rows 10000000] [--logs source-ids time-urls] [--key after] [--save]

A log has 100 crawls of each source, as Parquet: rows by source with integers for names and days for times,
by time with URLs and dates, or the other two. Seconds are of the processor on one core, in a process of its
own: a load on the machine hardly moves them. The whole command runs once more without a look at its stages;
memory is its largest resident set. Results are kept
under a key, "before" or "after" a change. Ten million
rows take half a minute a log, a hundred million three minutes and up to 5 GiB.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars

import freshopt.__main__ as command_line
import freshopt.cli.plan  # noqa: F401 - loaded when the command runs, and counted as an import
from benchmarks.harness import ONE, Claims, Measurement, Record, Row, apart
from freshopt.planning import plan as planning

# Columns of the table: stages that are added up.
SHOWN = {
    "imports": ("imports",),
    "reading": ("reading",),
    "change rates, intervals": ("change rates",),
    "solves": ("refresh rates", "weekly cycle", "baselines"),
    "today": ("today",),
    "schedule": ("schedule",),
    "findings": ("findings", "done"),
    "files": ("writing",),
}
ROWS_NAMED = {
    "source-ids": "by source, integers for names",
    "time-ids": "by time, integers for names",
    "source-urls": "by source, URLs for names",
    "time-urls": "by time, URLs for names",
}
CRAWLS, SEED = 100, 7
LOGS = ("source-ids", "time-ids", "source-urls", "time-urls")


def write_log(place: str, rows: int, kind: str) -> None:
    """Write a seeded log, in pieces that fit into memory."""
    by, names = kind.split("-")
    sources = rows // CRAWLS
    rng = np.random.default_rng(SEED)
    rate = rng.gamma(0.6, 1.0 / 0.6, sources).astype(np.float32)
    gap = rng.standard_exponential((sources, CRAWLS), dtype=np.float32) + np.float32(1e-3)
    changed = rng.random((sources, CRAWLS), dtype=np.float32) < -np.expm1(-rate[:, None] * gap)
    moment = np.cumsum(gap, axis=1, dtype=np.float64)
    columns: dict[str, Any] = {
        "source": np.repeat(np.arange(sources, dtype=np.int32), CRAWLS),
        "time": moment.ravel(),
        "changed": changed.ravel(),
    }
    del gap, moment
    if by == "time":
        order = np.argsort(columns["time"], kind="stable")
        columns = {key: column[order] for key, column in columns.items()}
        del order
    if names == "urls":
        columns["time"] = (
            (1.7e9 + 86_400.0 * columns["time"]).astype("datetime64[s]").astype("datetime64[us]")
        )
    frame = polars.DataFrame(columns)
    del columns
    if names == "urls":
        host = (polars.col("source") % 1000).cast(polars.String)
        page = polars.col("source").cast(polars.String)
        text = polars.concat_str(
            polars.lit("https://www.site"), host, polars.lit(".example/articles/"), page, polars.lit(".html")
        )
        frame = frame.lazy().with_columns(source=text).collect(engine="streaming")
    frame.write_parquet(place)


def command(path: Path, out: Path, *, draws: int) -> list[str]:
    """Return the arguments of ``freshopt plan``."""
    sources = int(path.stem.split("-")[-1]) // CRAWLS
    asked = ["--bandwidth", f"{sources // 2}/day", "--horizon", "7d", "--draws", str(draws)]
    return ["plan", str(path), *asked, "--out", str(out)]


def stages(arguments: list[str]) -> dict[str, float]:
    """Return the processor seconds of each stage of one run in this process."""
    found: dict[str, float] = {"imports": time.process_time()}
    begun = time.process_time()
    make_plan, name = planning.make_plan, "reading"

    def step(text: str) -> None:
        nonlocal begun, name
        now = time.process_time()
        found[name] = found.get(name, 0.0) + now - begun
        begun, name = now, text

    def watched(log: Any, request: Any, on_progress: Any = None, **more: Any) -> Any:  # noqa: ARG001 - make_plan's
        made = make_plan(log, request, step, **more)
        step("writing")
        return made

    planning.make_plan = watched
    sys.argv = ["freshopt", *arguments]
    try:
        command_line.main()
    except SystemExit as end:
        if end.code:
            raise
    step("")
    return found


def run(path: Path, draws: int) -> Row:
    """Return stages and totals of a log's plan."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        place = Path(folder)
        # What is installed has its bytecode: compiling the sources anew is no part of a plan.
        more = ONE | {"PYTHONDONTWRITEBYTECODE": ""}
        row: Row = {"stages": apart(stages, command(path, place / "a", draws=draws), **more)}
        words = [sys.executable, "-m", "freshopt", *command(path, place / "b", draws=draws)]
        child = subprocess.Popen(words, env=os.environ | more, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(words)} failed")
    return row | {"cpu_seconds": used.ru_utime + used.ru_stime, "peak_gib": used.ru_maxrss / 2**20}


def profiles(
    rows: int = 10**7,
    logs: tuple[str, ...] = LOGS,
    draws: int = 20,
    folder: Path | None = None,
    key: str = "after",
) -> Record:
    """Return the profile of each log under a key; a folder that is given keeps the logs."""
    found: Record = {}
    with tempfile.TemporaryDirectory() as scratch:
        place = folder or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        for kind in logs:
            path = place / f"{kind}-{rows}.parquet"
            if not path.exists():  # in a process of its own: what it takes is no plan's memory
                apart(write_log, str(path), rows, kind)
            row = run(path, draws)
            print(
                f"{kind}, {rows} rows: {row['cpu_seconds']:.1f} s, {row['peak_gib']:.2f} GiB", row["stages"]
            )
            found[f"{kind}-{rows}"] = {key: row}
    return found


def merged(old: Record, new: Record) -> Record:
    """Return the profiles of both, by log and key."""
    return {log: old.get(log, {}) | new.get(log, {}) for log in sorted(old | new)}


def claims(record: Record) -> Claims:
    """Yield that stages make up the whole, and that a change made nothing slower."""
    for log, each in record.items():
        for key, row in each.items():
            told = sum(row["stages"].values())
            yield (
                f"{log}, {key}: stages {told:.1f} of {row['cpu_seconds']:.1f} s",
                told < 1.25 * row["cpu_seconds"],
            )


def shown(record: Record) -> Iterator[Row]:
    """Yield the logs by size, with the stages added up."""
    for log in sorted(record, key=lambda log: (int(log.rsplit("-", 1)[1]), log)):
        kind, rows = log.rsplit("-", 1)
        for name in (name for name in ("before", "after") if name in record[log]):
            row = record[log][name]
            spent = {head: sum(row["stages"].get(stage, 0.0) for stage in own) for head, own in SHOWN.items()}
            yield {**row, **spent, "rows": int(rows), "log": ROWS_NAMED[kind], "name": name}


BENCH = Measurement(
    {"": profiles},
    quick={"rows": 1000, "logs": ("source-ids",), "draws": 2},
    rows={"logs": shown},
    merge=merged,
    claims=claims,
)
