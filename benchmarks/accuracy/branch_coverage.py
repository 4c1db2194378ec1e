"""Sum up what a run of the tests under coverage took of the core: its lines and its branches.

    FRESHOPT_COMPILED=0 pytest -n 2 --cov --cov-branch --cov-report=json:coverage.json
    python benchmarks/accuracy/branch_coverage.py coverage.json [--save]

The core are the modules of `freshopt`, `problems` and `solvers` themselves, without subpackages, on the NumPy
path: bodies that numba compiles are not seen by coverage, and the plan's modules and those of noisy signals
are run by the tests of the command line and of schedules. --save keeps benchmarks/results/coverage.json.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROOMS = "autodiff|certificates|compiled|dual_search|first_order|interior_point|modelling|numerics|separable"
CORE = re.compile(rf"(freshopt|freshopt/({ROOMS})|problems|solvers)/\w+\.py")
COMPILED = re.compile(
    r"freshopt/(compiled/\w+|numerics/vector_math|dual_search/(compiled_\w+|problem_columns|sampled_search))\.py"
)
ELSEWHERE = re.compile(r"freshopt/(__main__|formatting)\.py")


def summed(files: dict[str, Any]) -> dict[str, float]:
    """Return the counts of some modules, and the shares of lines and branches that were taken, in percent."""
    count = {
        key: sum(each["summary"][key] for each in files.values())
        for key in ("num_statements", "covered_lines", "num_branches", "covered_branches")
    }
    lines = 100.0 * count["covered_lines"] / count["num_statements"]
    branches = 100.0 * count["covered_branches"] / count["num_branches"]
    return {"modules": len(files), **count, "lines_percent": lines, "branches_percent": branches}


def main() -> None:
    """Print, and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path, help="what coverage wrote as JSON")
    parser.add_argument("--save", action="store_true", help="keep the result")
    options = parser.parse_args()
    files = json.loads(options.report.read_text(encoding="utf-8"))["files"]
    core = {
        name: each
        for name, each in files.items()
        if CORE.fullmatch(name) and not COMPILED.fullmatch(name) and not ELSEWHERE.fullmatch(name)
    }
    found = summed(core)
    print(json.dumps(found, indent=1))
    missed = sorted((-len(each["missing_branches"]), name) for name, each in core.items())
    for many, name in missed[:10]:
        print(f"{-many:3} branches not taken in {name}")
    if options.save:
        path = ROOT / "benchmarks" / "results" / "coverage.json"
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
