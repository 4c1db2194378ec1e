"""Sum up what a run of the tests under coverage took of the core: its lines and its branches.

    FRESHOPT_COMPILED=0 pytest -n 2 --cov --cov-branch --cov-report=json:coverage.json
    python -m benchmarks coverage --report coverage.json [--save]

The core are the modules of `freshopt`, `problems` and `solvers` themselves, without subpackages, on the NumPy
path: bodies that numba compiles are not seen by coverage, and the plan's modules and those of noisy signals
are run by the tests of the command line and of schedules.
"""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.harness import Claims, Measurement, Record

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


def core(report: Path | None = None) -> Record:
    """Return the counts of the core in what coverage wrote as JSON."""
    if report is None:
        raise SystemExit("--report is needed: the file that coverage wrote")
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    own = {
        name: each
        for name, each in files.items()
        if CORE.fullmatch(name) and not COMPILED.fullmatch(name) and not ELSEWHERE.fullmatch(name)
    }
    missed = sorted((-len(each["missing_branches"]), name) for name, each in own.items())
    for many, name in missed[:10]:
        print(f"{-many:3} branches not taken in {name}")
    return summed(own)


def claims(record: Record) -> Claims:
    """Yield the shares that are kept."""
    lines, branches = record["lines_percent"], record["branches_percent"]
    yield f"{lines:.1f} % of lines, {branches:.1f} % of branches", lines >= 99.0 and branches >= 96.0


BENCH = Measurement({"": core}, claims=claims)
