"""Print the lowest version of every package that pyproject.toml says will do, as constraints for pip.

    python .ci/lowest.py [--installed]

What the package needs, and its extra `test` with the extras that this one names. ``--installed`` prints the
versions that are installed beside the Python that runs this.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from importlib.metadata import version
from pathlib import Path


def lowest(extra: str = "test") -> dict[str, str]:
    """Return the lower bound of each requirement by the name of its package."""
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    bounds: dict[str, str] = {}
    left = [*project["dependencies"], f"{project['name']}[{extra}]"]
    while left:
        requirement = left.pop(0)
        if own := re.fullmatch(rf"{project['name']}\[(.+)\]", requirement):
            left += [inner for name in own[1].split(",") for inner in project["optional-dependencies"][name]]
            continue
        bounded = re.fullmatch(r"([\w-]+)(?:\[.+\])?>=([\d.]+)(?:,!=[\d.]+)?", requirement)
        if bounded is None:
            raise SystemExit(f"pyproject.toml: write {requirement!r} as 'name>=lowest' (',!=broken')")
        if bounds.setdefault(bounded[1], bounded[2]) != bounded[2]:
            raise SystemExit(f"pyproject.toml: {bounded[1]} has two lower bounds")
    return bounds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The lowest versions that pyproject.toml says will do.")
    parser.add_argument("--installed", action="store_true", help="the versions that are installed instead")
    installed = parser.parse_args().installed
    for name, bound in lowest().items():
        print(f"{name}=={version(name) if installed else bound}")
