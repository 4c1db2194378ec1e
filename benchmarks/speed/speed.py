"""Measure the speed of solves: in units of one NumPy addition, and against what one would use instead.

    python benchmarks/speed/speed.py [--quick] [--parts objectives,hosts,...] [--save [FOLDER]] [--draw]

The process keeps to one core and one thread. Whatever is compared is measured in turns, round after round,
and the least time of each counts. ADD is one pass ``np.add(w, d, out=r)`` over as many sources, or 2.3 ns a
source where memory is faster.

objectives  ten million sources: the solve alone (`Solution.seconds`), the whole call without and with its
            certificate, the declaration ``fo.Problem(...)``, and what fresh memory for the rates costs
again       the same with another bandwidth or some changed sources, started from the solution before
hosts       a million sources of a hundred thousand hosts with limits
bisection   a bisection of the price in plain NumPy, ten million sources
others      CVXPY with CLARABEL and ECOS, SciPy's SLSQP, a loop in Python
declared    a user's own objective by SeparableNewton, in evaluations of its expression
scaling     all methods from 10² sources to the size that each manages in a minute, for docs/scaling.png

--save writes benchmarks/results/speed.json, docs/scaling.png and the table of docs/speed.md, below FOLDER if
one is given; --draw draws the figure of a saved measurement again. --quick is for trying it out: few rounds
of sizes that are too small to be judged.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from speed_parts import PARTS, QUICK, Row, Sizes
from speed_scaling import draw

from freshopt.compiled import backend

ROOT = Path(__file__).resolve().parents[2]
RESULT, FIGURE, PAGE = Path("benchmarks/results/speed.json"), Path("docs/scaling.png"), Path("docs/speed.md")
BEGIN, END = "<!-- measured -->\n", "<!-- end -->"
VERDICT = {True: "met", False: "NOT MET", None: ""}
LIBRARIES = ("freshopt", "numpy", "scipy", "numba", "cvxpy", "clarabel", "ecos")
ONE = {"FRESHOPT_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def show(rows: list[Row]) -> None:
    """Print rows of the table."""
    for each in rows:
        text = f"{each['work']:36}{each['n']:>11,}{each['measured']:>12,.4g} {each['unit']:12}"
        if each["hold"] is not None:
            sign = ">=" if each["unit"] == "x" else "<="
            text += f"{sign} {each['hold']:<6g}{VERDICT[each['met']]:9}"
        else:
            text += " " * 18
        for key in (
            "fresh",
            "declare",
            "whole",
            "certified",
            "certified_met",
            "passes",
            "miss",
            "gap",
            "note",
        ):
            value = each.get(key)
            if value is not None:
                text += f"  {key} {value:.3g}" if isinstance(value, float) else f"  {key} {value}"
        print(text, flush=True)


def run(parts: list[str], sizes: Sizes, *, quick: bool) -> dict[str, Any]:
    """Measure and return the record."""
    wall, processor = time.perf_counter(), time.process_time()
    record: dict[str, Any] = {
        "quick": quick,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "sizes": sizes._asdict(),
        "rows": [],
    }
    for part in parts:
        found = PARTS[part](sizes)
        if quick:
            found = [{**each, "met": None, "certified_met": None} for each in found]
        if part == "scaling":
            record["scaling"] = found
        else:
            show(found)
            record["rows"] += found
    idle = 1.0 - (time.process_time() - processor) / (time.perf_counter() - wall)
    record["waited"] = max(0.0, idle)
    print(
        f"{record['waited']:.0%} of the time this process waited for its core; on a quiet machine it is 0 %"
    )
    return record


def keep_to_one_core() -> None:
    """Keep to one core and one thread; restart if libraries may have been loaded for more."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if any(os.environ.get(name) != value for name, value in ONE.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE})


def table(rows: list[Row]) -> str:
    """Return the page's table; a column for what the design demands, and what a certified call takes."""
    lines = [
        "| work | sources | measured | of it fresh memory | to hold | certified call | budget missed by |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in rows:
        hold, certified, miss = each["hold"], each.get("certified"), each.get("miss")
        sign, unit = ("≥", "×") if each["unit"] == "x" else ("≤", f" {each['unit']}")
        bound = each.get("certified_hold")
        held = "" if bound is None else f" (≤ {bound:g}: {VERDICT[each['certified_met']]})"
        cells = (
            each["work"],
            f"{each['n']:,}",
            each.get("note") or f"{each['measured']:.3g}{unit}",
            "" if "fresh" not in each else f"{each['fresh']:.2g}{unit}",
            "" if hold is None else f"{sign} {hold:g}: {VERDICT[each['met']]}",
            "" if certified is None else f"{certified:.3g}{unit}{held}",
            "" if miss is None else f"{miss:.0e}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def filled(page: str, record: dict[str, Any]) -> str:
    """Return the page with what stands between its marks replaced by a measurement."""
    head, rest = page.split(BEGIN)
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    told = (
        f"np.add took {record['rows'][0]['seconds'] * 1e3:.3g} ms. The process waited {record['waited']:.0%} "
        f"of the time for its core, one of {record['cores']}. Python {record['python']}, {versions}.\n"
    )
    failures = [f"{each['note']} at {each['n']:,} sources" for each in record["scaling"] if each["note"]]
    told += f"In the figure left out: {'; '.join(failures)}.\n" if failures else ""
    return head + BEGIN + table(record["rows"]) + "\n" + told + END + rest.split(END, 1)[1]


def main() -> None:
    """Measure, print, save and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--save", nargs="?", type=Path, const=ROOT, metavar="FOLDER")
    parser.add_argument("--draw", action="store_true")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; they are {', '.join(PARTS)}")
    if options.save and set(parts) != set(PARTS):
        parser.error("only a complete measurement is saved: leave out --parts or --save")
    if options.draw:
        draw(json.loads((ROOT / RESULT).read_text())["scaling"], ROOT / FIGURE)
        return
    keep_to_one_core()
    with backend.loading():
        record = run(parts, QUICK if options.quick else Sizes(), quick=options.quick)
    if options.save:
        page = filled((ROOT / PAGE).read_text(encoding="utf-8"), record)
        for path, text in ((RESULT, json.dumps(record, indent=1) + "\n"), (PAGE, page)):
            (options.save / path).parent.mkdir(parents=True, exist_ok=True)
            (options.save / path).write_text(text, encoding="utf-8")
        draw(record["scaling"], options.save / FIGURE)


if __name__ == "__main__":
    main()
