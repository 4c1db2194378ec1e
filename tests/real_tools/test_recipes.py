"""The recipes of the documentation, run by the real APScheduler and the real Airflow."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

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


def test_airflow_runs_the_recipe(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    home = tmp_path / "airflow"
    (home / "dags").mkdir(parents=True)
    (home / "dags/refresh.py").write_text(recipe("airflow"))
    named = {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    # It would tell its makers that it is used.
    named["AIRFLOW__USAGE_DATA_COLLECTION__ENABLED"] = "False"

    def airflow(*arguments: str) -> None:
        ended = subprocess.run(
            [program("airflow", "airflow"), *arguments],
            cwd=tmp_path,
            env={**os.environ, **named},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    airflow("db", "migrate")
    with served(real_changes(3, seed=1)) as pages:
        with fo.Planner(tmp_path / "planner", bandwidth="3/second") as planner:
            planner.add_many([pages.address(page) for page in pages.changes])
        for day in (0.0, 600.0):
            pages.turn(day)
            airflow("dags", "test", "freshopt_refresh")
        with fo.Planner(tmp_path / "planner") as planner:
            log = planner.log()
        first = len({each.page for each in pages.asked})
        assert len(pages.asked) > first > 0
    # A source's first visit is where its log begins.
    assert len(log) >= len(pages.asked) - first
