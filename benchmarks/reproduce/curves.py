"""Run what the papers' figures show, and save the curves that the notebooks draw.

    python benchmarks/reproduce/curves.py [--only PAPER ...] [--runs N] [--seed N] [--quick] [--save]

The curves of a paper come from a module ``curves_<paper>.py`` beside this file; `mean_curve.py` tells how one
is written. They are of the same algorithms, settings and seeds as the statements of `reproduce.py`, of which
docs/reproduction.md is made; a figure's verdict is there, its picture here. --save keeps the curves as
benchmarks/results/curves_<paper>.json. --quick runs as little as a test can afford, and saves nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
PAPERS = tuple(
    sorted(path.stem.removeprefix("curves_") for path in Path(__file__).parent.glob("curves_*.py"))
)


def measure(paper: str, runs: int | None, *, quick: bool, seed: int) -> dict[str, Any]:
    """Run the figures of a paper, and return what is saved."""
    start = time.perf_counter()
    found = [each.record() for each in importlib.import_module(f"curves_{paper}").curves(runs, quick, seed)]
    seconds = round(time.perf_counter() - start, 1)
    return {"paper": paper, "seed": seed, "runs": runs, "quick": quick, "seconds": seconds, "curves": found}


def save(record: dict[str, Any]) -> None:
    """Keep the curves of a paper, one line each."""
    *head, (_, found) = record.items()
    lines = ",\n".join(json.dumps(each, ensure_ascii=False, allow_nan=False) for each in found)
    text = json.dumps(dict(head), indent=1).removesuffix("\n}") + f',\n "curves": [\n{lines}\n]\n}}\n'
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"curves_{record['paper']}.json").write_text(text, encoding="utf-8")


def main() -> None:
    """Run, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=PAPERS, default=PAPERS, metavar="PAPER", help=", ".join(PAPERS)
    )
    parser.add_argument("--runs", type=int, help="runs per curve instead of each paper's own number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    if options.quick and options.save:
        parser.error("only full runs are saved")
    for paper in options.only:
        record = measure(paper, options.runs, quick=options.quick, seed=options.seed)
        for each in record["curves"]:
            ends = f"{each['mean'][0]:.4g} → {each['mean'][-1]:.4g}"
            where = f"{each['figure']:8} {each['panel']:32} {each['name']:32}"
            print(f"{where} {ends:24} {len(each['x']):3} points, {each['runs']:,} runs")
        print(f"{paper}: {record['seconds']} s")
        if options.save:
            save(record)


if __name__ == "__main__":
    main()
