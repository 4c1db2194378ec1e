"""The recipes of the documentation, run by the real APScheduler, Airflow, Dagster and JAX."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars
import pytest

import freshopt as fo
from tests.real_tools.loopback import real_changes, served

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
# Run after the recipe: jobs run for some seconds, and then tell their intervals.
REST = """
import time
time.sleep(6)
for job in scheduler.get_jobs():
    print("every", job.id, job.trigger.interval.total_seconds())
scheduler.shutdown()
"""

# Run beside the recipe: the job, as its schedule would start it.
ONCE = "import dagster_job; assert dagster_job.freshopt_refresh.execute_in_process().success"

# Run beside the recipe: what JAX differentiates, as it stands and compiled.
GRADIENT = """
import jax, json
import jax.numpy as jnp
import freshopt as fo
from jax_layer import optimal_rates

def loss(change_rate, importance):
    objective = fo.problems.HarmonicStaleness()
    rates = optimal_rates(change_rate, importance, lambda sources: fo.Problem(objective, sources, 4.0))
    return jnp.dot(rates, jnp.array([0.3, -1.0, 0.7]))

slope = jax.grad(loss, (0, 1))
print(json.dumps([[x.tolist() for x in run(*AT)] for run in (slope, jax.jit(slope))]))
"""
AT = np.array([[0.5, 2.0, 1.0], [1.0, 2.0, 3.0]])


def test_apscheduler_runs_the_jobs_of_a_plan(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    # Every second, every two seconds, once a day, and never.
    rates = {"a": 86_400.0, "b, quoted": 43_200.0, "c": 1.0, "d": 0.0}
    polars.DataFrame({"source": [*rates], "rate": [*rates.values()]}).write_parquet(
        tmp_path / "plan/rates.parquet"
    )
    (tmp_path / "recipe.py").write_text((RECIPES / "apscheduler_jobs.py").read_text() + REST)
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
    (home / "dags/refresh.py").write_text((RECIPES / "airflow_dag.py").read_text())
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
    asked_and_learnt(tmp_path, lambda: airflow("dags", "test", "freshopt_refresh"))


def test_dagster_runs_the_recipe(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    (tmp_path / "dagster_job.py").write_text((RECIPES / "dagster_job.py").read_text())
    python = str(program("dagster", "python"))
    named = {**os.environ, "DAGSTER_DISABLE_TELEMETRY": "1"}

    def once() -> None:
        subprocess.run([python, "-c", ONCE], cwd=tmp_path, env=named, timeout=120, check=True)

    asked_and_learnt(tmp_path, once)


def test_jax_differentiates_through_the_recipe(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    (tmp_path / "jax_layer.py").write_text((RECIPES / "jax_layer.py").read_text())
    text = GRADIENT.replace("*AT", f"*jnp.array({AT.tolist()})")
    ended = subprocess.run(
        [program("jax", "python"), "-c", text],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = np.array(json.loads(ended.stdout))

    def loss(at: npt.NDArray[np.float64]) -> float:
        problem = fo.Problem(fo.problems.HarmonicStaleness(), fo.Sources(*at), 4.0)
        return float(fo.solve(problem).rates @ [0.3, -1.0, 0.7])

    for place in np.ndindex(AT.shape):
        step = np.zeros_like(AT)
        step[place] = 1e-5
        measured = (loss(AT + step) - loss(AT - step)) / 2e-5
        assert found[:, *place] == pytest.approx([measured, measured], abs=1e-8)


def asked_and_learnt(folder: Path, job: Callable[[], None]) -> None:
    """Run a job twice on pages that change, and find what it was told in the planner's log."""
    with served(real_changes(3, seed=1)) as pages:
        with fo.Planner(folder / "planner", bandwidth="3/second") as planner:
            planner.add_many([pages.address(page) for page in pages.changes])
        for day in (0.0, 600.0):
            pages.turn(day)
            job()
        with fo.Planner(folder / "planner") as planner:
            log = planner.log()
        first = len({each.page for each in pages.asked})
        assert len(pages.asked) > first > 0
    # A source's first visit is where its log begins.
    assert len(log) >= len(pages.asked) - first
