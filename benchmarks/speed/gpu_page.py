"""Write the table of docs/gpu.md from what `gpu.py` saved, on any machine.

python benchmarks/speed/gpu_page.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULT, PAGE = ROOT / "benchmarks/results/gpu.json", ROOT / "docs/gpu.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->"


def table(records: list[dict[str, Any]]) -> str:
    """Return the table and a sentence for each record."""
    rows = [
        "| device | sources | objective | certified call | in ADD | passes | certified gap | first call |",
        "|---|---|---|---|---|---|---|---|",
    ]
    sentences = []
    for record in records:
        where = f"| {record['device']} | {record['n']:,} |"
        for cell, row in record["cells"].items():
            rows.append(
                f"{where} {cell} | {1e3 * row['certified']:.0f} ms "
                f"| {row['certified'] / record['add']:.1f} | {row['passes']} "
                f"| {row['relative gap']:.0e} | {row['first']:.1f} s |"
            )
        cells = record["cells"].values()
        value, price = (max(row[key] for row in cells) for key in ("value, host", "price, host"))
        left = max(abs(row["bandwidth left"]) for row in cells)
        bits = "the same bits twice" if all(row["same bits"] for row in cells) else "NOT the same bits twice"
        text = (
            f"{record['device']}: an ADD of {record['n']:,} sources takes {1e3 * record['add']:.1f} ms "
            f"({record['bytes a second'] / 1e12:.1f} TB a second); {bits}; the bandwidth is met to "
            f"{left:.0e}; at 100 000 sources values are within {value:.0e} and prices within {price:.0e} "
            "of the host's."
        )
        if "with copies" in record:
            copies = record["with copies"]
            text += (
                " With columns and rates in the host's memory "
                f"harmonic staleness takes {copies['all']:.2f} s: "
                f"{copies['copied there']:.2f} s to copy two columns there and check them, "
                f"{copies['solved']:.2f} s to solve, {copies['copied back']:.2f} s to copy the rates back."
            )
        sentences.append(text)
    return "\n".join([*rows, "", *[f"{text}\n" for text in sentences]])


def filled(page: str, records: list[dict[str, Any]]) -> str:
    """Return the page with the table of records."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table(records) + END + rest.split(END)[1]


def main() -> None:
    """Write the page."""
    records = json.loads(RESULT.read_text(encoding="utf-8"))["records"]
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), records), encoding="utf-8")


if __name__ == "__main__":
    main()
