"""Decide what the papers state, by seeded runs, and print those statements that do not hold too.

    python benchmarks/reproduce/reproduce.py [--only PAPER ...] [--runs N] [--seed N] [--quick] [--save]
    [--page]

Each paper is a module ``reproduce_<paper>.py`` beside this file; `statements.py` tells how one is written.
A statement holds if the 95 % interval of its measurement lies within what is stated, and does not hold if it
lies outside; the interval decides, nobody else. --save keeps each paper's measurement as
benchmarks/results/reproduce_<paper>.json and writes docs/reproduction.md from all that are kept. --quick is
the reduced form that the tests run, --page writes the page and measures nothing.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.metadata
import json
import math
import platform
import textwrap
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

from statements import FAILS, HOLDS, UNDECIDED, Statement

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "reproduction.md"
PAPERS = tuple(
    sorted(path.stem.removeprefix("reproduce_") for path in Path(__file__).parent.glob("reproduce_*.py"))
)
LIBRARIES = ("freshopt", "numpy", "scipy", "numba")
WIDTHS = (10, 62, 18, 11, 23, 6, 13)
HEADINGS = ("figure", "statement", "paper, prototype", "ours", "95 % interval", "runs", "verdict")
INTRODUCTION = """# What the papers state, and what was found

Every statement below is decided by seeded runs of freshopt's own algorithms: one number per run, the mean
over the runs, and its 95 % interval (Student's; of paired differences where runs share their random
numbers). It **holds** if the interval lies within what is stated, **does not hold** if the interval lies
outside, and is undecided otherwise. Where a paper leaves a parameter or a number out, the expected number is
that of an independent prototype. Statements that do not hold stay in the tables.

`python benchmarks/reproduce/reproduce.py --save` repeats everything and writes this page;
`--only` takes one paper.
Notebooks 4 to 6 draw the figures, from the same runs (`python benchmarks/reproduce/curves.py --save`).
"""


def load(paper: str) -> ModuleType:
    """Return a paper's module."""
    return importlib.import_module(f"reproduce_{paper}")


def about(paper: str) -> str:
    """Return what a paper's module says of itself, without importing it."""
    path = Path(__file__).with_name(f"reproduce_{paper}.py")
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or paper


def measure(paper: str, runs: int | None, *, quick: bool, seed: int) -> dict[str, Any]:
    """Decide the statements of a paper, printing each as it is decided, and return what is saved."""
    start, found = time.perf_counter(), []
    for each in load(paper).statements(runs, quick, seed):
        print(lines(cells(each)), flush=True)
        found.append(each)
    return {
        "paper": paper,
        "seed": seed,
        "runs": runs,
        "quick": quick,
        "seconds": round(time.perf_counter() - start, 1),
        "versions": {
            "python": platform.python_version(),
            **{x: importlib.metadata.version(x) for x in LIBRARIES},
        },
        "statements": [each.record() for each in found],
    }


def cells(each: Statement) -> tuple[str, ...]:
    """Return the row of a statement."""
    fixed = each.low == each.high
    interval = "–" if fixed else f"{number(each.low, each)} to {number(each.high, each)}"
    return (
        each.figure,
        each.text,
        each.expected,
        number(each.ours, each),
        interval,
        f"{each.runs:,}",
        each.verdict,
    )


def number(value: float, each: Statement) -> str:
    """Return a number to two digits of its interval's width, to five where there is none."""
    width = each.high - each.low
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "–"
    if not 0.0 < width < math.inf:
        return f"{value:.5g}"
    digits = 1 - math.floor(math.log10(width))
    return f"{value:.{digits}f}" if 0 <= digits <= 6 else f"{value:.5g}"


def lines(row: tuple[str, ...]) -> str:
    """Return a row of the printed table, its cells wrapped."""
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, WIDTHS, strict=True)]
    height = max(map(len, wrapped))
    padded = [cell + [""] * (height - len(cell)) for cell in wrapped]
    return "\n".join(
        "  ".join(part.ljust(width) for part, width in zip(line, WIDTHS, strict=True)).rstrip()
        for line in zip(*padded, strict=True)
    )


def counts(statements: list[Statement]) -> str:
    """Return how many hold."""
    found = Counter(each.verdict for each in statements)
    words = {HOLDS: "hold", FAILS: "do not hold", UNDECIDED: "undecided"}
    return ", ".join(f"{found[verdict]} {word}" for verdict, word in words.items() if found[verdict])


def saved() -> list[dict[str, Any]]:
    """Return the kept measurements, by paper."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("reproduce_*.json"))]


def page() -> str:
    """Return docs/reproduction.md as the kept measurements give it."""
    records = saved()
    return INTRODUCTION + overview(records) + "".join(section(record) for record in records)


def overview(records: list[dict[str, Any]]) -> str:
    """Return how many statements of each paper hold."""
    rows = [("paper", "hold", "do not hold", "undecided"), ("---",) * 4]
    for record in records:
        found = Counter(each["verdict"] for each in record["statements"])
        rows.append((heading(record)[0], *(str(found[verdict]) for verdict in (HOLDS, FAILS, UNDECIDED))))
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def heading(record: dict[str, Any]) -> tuple[str, str]:
    """Return the title of a paper's part, and what its module says besides."""
    title, _, more = about(record["paper"]).partition("\n")
    return title.rstrip("."), more.strip()


def section(record: dict[str, Any]) -> str:
    """Return a paper's part of the page."""
    title, more = heading(record)
    found = [Statement.of(each) for each in record["statements"]]
    rows = [HEADINGS, ("---",) * len(HEADINGS), *map(cells, found)]
    table = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    runs = "" if record["runs"] is None else f" --runs {record['runs']}"
    command = (
        f"python benchmarks/reproduce/reproduce.py --only {record['paper']}{runs} --seed {record['seed']}"
    )
    how = f"{counts(found)}. `{command}`: {record['seconds']:.3g} s by the clock."
    parts = ["", f"## {title}", more, how[0].upper() + how[1:], table]
    return "\n\n".join(part for k, part in enumerate(parts) if part or k == 0)[1:] + "\n"


def main() -> None:
    """Decide, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=PAPERS, default=PAPERS, metavar="PAPER", help=", ".join(PAPERS)
    )
    parser.add_argument("--runs", type=int, help="runs per statement instead of each paper's own number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(page(), encoding="utf-8")
        return
    if options.quick and options.save:
        parser.error("only a full measurement is saved")
    for paper in options.only:
        print(f"\n{paper}\n{lines(HEADINGS)}")
        record = measure(paper, options.runs, quick=options.quick, seed=options.seed)
        found = [Statement.of(each) for each in record["statements"]]
        print(f"{counts(found)}; {record['seconds']} s")
        for each in found:
            if each.verdict == FAILS:
                print(f"  {FAILS}: {each.figure}: {each.text}")
        if options.save:
            RESULTS.mkdir(parents=True, exist_ok=True)
            text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
            (RESULTS / f"reproduce_{paper}.json").write_text(text + "\n", encoding="utf-8")
            PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
