"""Compare each saved finding with the table of the commit that it names.

    python benchmarks/reproduce/as_run.py

A finding says what of its claim was other in the table before the run. This reads that table out of the
repository's history, and fails where the two differ. It needs git, the whole history, and nothing but Python.
"""

import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLAIMS, RESULTS = "benchmarks/reproduce/claims", ROOT / "benchmarks" / "results"


def git(*words: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True, encoding="utf-8").stdout


@cache
def table(commit: str, paper: str) -> dict[str, dict[str, Any]]:
    """Return the claims of a paper at a commit, by id, texts on one line."""
    given = tomllib.loads(git("show", f"{commit}:{CLAIMS}/{paper}.toml"))["claim"]
    return {
        each["id"]: {
            key: " ".join(value.split()) if isinstance(value, str) else value for key, value in each.items()
        }
        for each in given
    }


def differences(paper: str) -> list[str]:
    """Return what of a paper's findings is not as the table had it."""
    record = json.loads((RESULTS / f"reproduce_{paper}.json").read_text(encoding="utf-8"))
    found = []
    for each in record["findings"]:
        entry = table(each["commit"], paper).get(each["id"])
        if entry is None:
            found.append(f"{paper}: {each['id']} is not in the table of {each['commit']}")
            continue
        then = each | each["as_run"]
        other = {key for key, value in entry.items() if key != "judged" and then[key] != value}
        found += [f"{paper}: {each['id']}: {key} is not that of {each['commit']}" for key in sorted(other)]
    return found


def main() -> None:
    """Tell what differs, or how many findings are as their tables had them."""
    papers = sorted(path.stem for path in (ROOT / CLAIMS).glob("*.toml"))
    wrong = [text for paper in papers for text in differences(paper)]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(papers)} papers: every finding has its claim as it was written before the run")


if __name__ == "__main__":
    main()
