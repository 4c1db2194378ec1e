"""Command line of the adversary."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

import benchmarks.adversary

RESULT = Path(__file__).parents[1] / "results" / "adversary.json"


def main() -> int:
    """Run one part; the exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adversary",
        description=benchmarks.adversary.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=("problems", "files", "processes"))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes of `problems`")
    parser.add_argument("--save", action="store_true", help=f"keep the counts in {RESULT.name}")
    options = parser.parse_args()
    run = importlib.import_module(f"benchmarks.adversary.{options.part}").run
    extra = (options.jobs,) if options.part == "problems" else ()
    record = run(options.minutes, options.seed, *extra)
    print(json.dumps(record, indent=1))
    if options.save:
        saved = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        RESULT.write_text(json.dumps({**saved, options.part: record}, indent=1, sort_keys=True) + "\n")
    return 1 if record["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
