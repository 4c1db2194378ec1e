"""Profile `freshopt plan` end to end: processor seconds by stage, and memory.

    python benchmarks/speed/plan_profile.py [--rows 10000000] [--logs source-ids time-urls] [--save KEY]

A log has 100 crawls of each source, as Parquet: rows by source with integers for names and days for times,
by time with URLs and dates, or the other two. Seconds are of the processor on one core, in a process of its
own: a load on the machine hardly moves them. The whole command runs once more without a look at its stages;
memory is its largest resident set. `--save` adds what was measured to the results under a key, "before" or
"after" a change, and writes the table of docs/speed.md anew; `--table` writes the table alone. Ten million
rows take half a minute a log, a hundred million three minutes and up to 5 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import freshopt.__main__ as command_line
import freshopt.cli.plan  # noqa: F401 - loaded when the command runs, and counted as an import
from freshopt.planning import plan as planning

ONE_CORE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "FRESHOPT_THREADS": "1",
}
RESULTS = Path(__file__).parents[1] / "results" / "plan_profile.json"
PAGE = Path(__file__).parents[2] / "docs" / "speed.md"
BEGIN, END = "<!-- plan -->\n", "<!-- end of plan -->\n"
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


def write_log(path: Path, rows: int, kind: str) -> None:
    """Write a seeded log, in pieces that fit into memory."""
    import polars

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
    frame.write_parquet(path)


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

    def watched(log: Any, request: Any, on_progress: Any = None, **more: Any) -> Any:  # noqa: ANN401, ARG001 - make_plan's
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


def run(path: Path, draws: int) -> dict[str, Any]:
    """Return stages and totals of a log's plan."""
    # What is installed has its bytecode: compiling the sources anew is no part of a plan.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= ONE_CORE
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        told = Path(folder) / "stages.json"
        first = command(path, Path(folder) / "a", draws=draws)
        subprocess.run(
            [sys.executable, __file__, "--stages", str(told), *first],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        row: dict[str, Any] = {"stages": json.loads(told.read_text())}
        second = command(path, Path(folder) / "b", draws=draws)
        child = subprocess.Popen(
            [sys.executable, "-m", "freshopt", *second], env=environment, stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(second)} failed")
    row["cpu_seconds"] = used.ru_utime + used.ru_stime
    row["peak_gib"] = used.ru_maxrss / 2**20
    return row


def table(saved: dict[str, dict[str, Any]]) -> str:
    """Return the table of what was saved, in Markdown."""
    head = ["rows", "log", "", "processor", "peak memory", *SHOWN]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for key in sorted(saved, key=lambda key: (int(key.rsplit("-", 1)[1]), key)):
        kind, rows = key.rsplit("-", 1)
        for name in ("before", "after"):
            if name not in saved[key]:
                continue
            row = saved[key][name]
            spent = [f"{sum(row['stages'].get(stage, 0.0) for stage in own):.2f}" for own in SHOWN.values()]
            cells = [f"{int(rows):,}", ROWS_NAMED[kind], name, f"{row['cpu_seconds']:.1f} s"]
            lines.append("| " + " | ".join([*cells, f"{row['peak_gib']:.2f} GiB", *spent]) + " |")
    return "\n".join(lines) + "\n"


def write_page(saved: dict[str, dict[str, Any]]) -> None:
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + table(saved) + END + rest.split(END)[1], encoding="utf-8")


def main() -> None:
    """Measure and print; save where asked."""
    if "--table" in sys.argv:
        write_page(json.loads(RESULTS.read_text()))
        return
    if "--stages" in sys.argv:
        at = sys.argv.index("--stages")
        told, arguments = Path(sys.argv[at + 1]), sys.argv[at + 2 :]
        told.write_text(json.dumps(stages(arguments)))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--logs", nargs="+", default=list(LOGS), choices=LOGS)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where logs are written, and kept")
    parser.add_argument("--save", metavar="KEY")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in given.logs:
            path = folder / f"{kind}-{given.rows}.parquet"
            if not path.exists():
                # In a process of its own: what it takes is no plan's memory.
                writer = (
                    f"import plan_profile as p; p.write_log(p.Path({str(path)!r}), {given.rows}, {kind!r})"
                )
                subprocess.run([sys.executable, "-c", writer], check=True, cwd=Path(__file__).parent)
            row = run(path, given.draws)
            print(f"{kind}, {given.rows} rows: {row['cpu_seconds']:.1f} s, {row['peak_gib']:.2f} GiB")
            for name, seconds in row["stages"].items():
                print(f"    {seconds:7.2f} s  {name}")
            if given.save:
                saved = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
                saved.setdefault(f"{kind}-{given.rows}", {})[given.save] = row
                RESULTS.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")
                write_page(saved)


if __name__ == "__main__":
    main()
