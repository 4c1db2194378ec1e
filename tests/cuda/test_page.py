"""The table of docs/gpu.md is that of the saved record."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_shows_what_was_saved() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks/speed/gpu_page.py"))
    records = json.loads((ROOT / "benchmarks/results/gpu.json").read_text(encoding="utf-8"))["records"]
    page = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    assert made["filled"](page, records) == page
    assert made["filled"](page, records[:1]) != page
