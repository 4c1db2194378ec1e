"""The page of the live planner shows what was measured, and its example runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "live-planner.md").read_text(encoding="utf-8")


def saved(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / name).read_text(encoding="utf-8"))
    assert record["quick"] is False
    return record


def table_of_accuracy(record: dict[str, Any]) -> str:
    days = {day["day"]: day for day in record["by_day"]}
    rows = [
        "| after day | crawls of a source | rates in force | its crawls of that day | certified gap |",
        "| --- | --- | --- | --- | --- |",
    ]
    for k in sorted({2, 4, 7, 14, 21, record["days"]} & set(days)):
        day = days[k]
        rows.append(
            f"| {k} | {day['observations'] / record['sources']:.1f} | +{100 * day['rates_in_force']:.1f} % "
            f"| +{100 * day['crawled']:.1f} % | {100 * day['certified_gap']:.2f} % |"
        )
    rows += [
        f"| uniform rates | | +{100 * record['uniform']:.1f} % | | |",
        f"| best if all changed alike | | +{100 * record['rates_alike']:.1f} % | | |",
    ]
    return "\n".join(rows)


def table_of_speed(record: dict[str, Any]) -> str:
    bare = record["bare"]
    rows = [
        "| a second of the processor | planner | SQLite alone |",
        "| --- | --- | --- |",
        f"| `observed`, one transaction each | {record['observed']['per_cpu_second']:,} "
        f"| {bare['inserts_one_by_one']['per_cpu_second']:,} |",
        f"| `observed_many`, 100 together | {record['observed_many_100']['per_cpu_second']:,} | |",
        f"| `observed_many`, 10,000 together | {record['observed_many_10000']['per_cpu_second']:,} "
        f"| {bare['inserts_together']['per_cpu_second']:,} |",
        f"| `due`, 100 at a time | {record['due_100']['per_cpu_second']:,} | |",
    ]
    return "\n".join(rows)


def test_the_tables_are_those_of_the_saved_runs() -> None:
    assert table_of_accuracy(saved("live_planner.json")) in PAGE
    assert table_of_speed(saved("planner.json")) in PAGE


def test_what_was_saved_holds() -> None:
    month, speed = saved("live_planner.json"), saved("planner.json")
    assert month["sources"] == 100_000
    last = month["by_day"][-1]
    assert last["rates_in_force"] < 0.02
    assert all(day["certified_gap"] <= 0.01 for day in month["by_day"])
    assert all(day["load"] <= 1.0 + 0.1 for day in month["by_day"])
    assert speed["sources"] == 100_000
    assert min(speed[key]["per_cpu_second"] for key in ("observed", "observed_many_100")) >= 5000


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(code, "page", "exec"), {})
    said = capsys.readouterr().out
    assert "2; 1 never crawled" in said
    assert "certificate" in said
