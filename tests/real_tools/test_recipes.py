"""The recipes of the documentation: with the real APScheduler, and with a stand-in for Airflow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import freshopt as fo
from tests.real_tools.loopback import real_changes, served

PAGE = Path(__file__).parents[2] / "docs/recipes.md"
# Run after the recipe: jobs run for some seconds, and then tell their intervals.
REST = """
import time
time.sleep(6)
for job in scheduler.get_jobs():
    print("every", job.id, job.trigger.interval.total_seconds())
scheduler.shutdown()
"""


def recipe(imported: str) -> str:
    """Return the block of the page that imports a package."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if f"from {imported}" in block]
    return str(found)


def test_apscheduler_runs_the_jobs_of_a_plan(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    # Every second, every two seconds, once a day, and never.
    rates = {"a": 86_400.0, "b, quoted": 43_200.0, "c": 1.0, "d": 0.0}
    rows = "".join(f'"{source}",{rate}\n' for source, rate in rates.items())
    (tmp_path / "plan/rates.csv").write_text(f"source,rate\n{rows}")
    (tmp_path / "recipe.py").write_text(recipe("apscheduler") + REST)
    python = str(program("apscheduler", "python"))
    said = subprocess.run(
        [python, "-u", "recipe.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()
    intervals = dict(line.removeprefix("every ").rsplit(" ", 1) for line in said if line.startswith("every "))
    assert {name: float(text) for name, text in intervals.items()} == {
        "a": 1.0,
        "b, quoted": 2.0,
        "c": 86_400.0,
    }
    ran = Counter(line.removeprefix("refresh ") for line in said if line.startswith("refresh "))
    # On a busy machine runs may be missed, and then are made up for by one.
    assert 1 <= ran["a"] <= 7
    assert 1 <= ran["b, quoted"] <= 4
    assert ran["d"] == 0


class _Task:
    """Stand-in for a task: it is run at once, and once for each item that it is expanded over."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *given: Any) -> Any:  # noqa: ANN401
        return self.function(*given)

    def expand(self, *, source: list[str]) -> None:
        for each in source:
            self.function(each)


def test_the_airflow_recipe_asks_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    airflow, decorators = ModuleType("airflow"), ModuleType("airflow.decorators")
    settings: list[dict[str, Any]] = []

    def dag(**given: Any) -> Callable[[Any], Any]:  # noqa: ANN401
        settings.append(given)
        return lambda function: function

    decorators.dag, decorators.task = dag, _Task  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow", airflow)
    monkeypatch.setitem(sys.modules, "airflow.decorators", decorators)
    with served(real_changes(3, seed=1)) as pages:
        with fo.Planner("planner", bandwidth="3/second") as planner:
            planner.add_many([pages.address(page) for page in pages.changes])
        for day in (0.0, 600.0, 1200.0):
            pages.turn(day)
            time.sleep(1.5)
            exec(compile(recipe("airflow"), "recipe.py", "exec"), {"__name__": "recipe"})
        with fo.Planner("planner") as planner:
            log = planner.log()
        assert pages.asked
        assert len(log) >= len(pages.asked) - len({each.page for each in pages.asked})
    assert settings[0]["schedule"] == "*/10 * * * *"
    assert settings[0]["start_date"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert os.path.isdir("planner")
