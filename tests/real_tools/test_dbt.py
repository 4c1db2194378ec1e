"""A dbt project with DuckDB: its sources.json is the log, and it parses and uses what is exported."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.errors import SourceDataWarning
from freshopt.pipelines import AfterParents
from freshopt.tools import DbtJobs, export
from freshopt.tools.dbt import read_dbt

TABLES = ("orders", "items", "rarely")
PROJECT = """name: shop
version: "1.0.0"
profile: shop
model-paths: [models]
"""
PROFILE = "shop: {target: dev, outputs: {dev: {type: duckdb, path: shop.duckdb}}}\n"
CONFIG = "{loaded_at_field: loaded, freshness: {warn_after: {count: 9, period: day}}}"
SOURCES = f"version: 2\nsources: [{{name: raw, config: {CONFIG}, tables: [%s]}}]\n"
# Hours after which each table has been loaded anew, before each of the runs.
LOADED = {"orders": (0, 1, 2, 3), "items": (0, 0, 2, 2), "rarely": (0, 0, 0, 0)}


# What a person does with the exported freshness: each table's is written into the project's own sources.
MERGE = """
import yaml
own, new = (yaml.safe_load(open(path)) for path in ("models/sources.yml", "out/sources.yml"))
told = {(s["name"], t["name"]): t["config"] for s in new["sources"] for t in s["tables"]}
for source in own["sources"]:
    for table in source["tables"]:
        table.setdefault("config", {}).update(told.pop((source["name"], table["name"])))
assert not told
open("models/sources.yml", "w").write(yaml.safe_dump(own))
"""


class Project:
    """A dbt project in a folder, and its warehouse."""

    def __init__(self, folder: Path, program: Callable[[str, str], Path]) -> None:
        self.folder, self.program = folder, program
        (folder / "models").mkdir()
        (folder / "dbt_project.yml").write_text(PROJECT)
        (folder / "profiles.yml").write_text(PROFILE)
        names = ", ".join(f"{{name: {table}}}" for table in TABLES)
        (folder / "models/sources.yml").write_text(SOURCES % names)
        for table in TABLES:
            text = f"select * from {{{{ source('raw', '{table}') }}}}"
            (folder / f"models/from_{table}.sql").write_text(text)

    def run(self, *command: str) -> str:
        outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        ran = subprocess.run(
            [str(self.program("dbt", command[0])), *command[1:]],
            cwd=self.folder,
            env={**outside, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def dbt(self, *commands: str, before: str = "") -> list[str]:
        """Run commands of dbt in one process, which ends at the first that fails; return what it lists."""
        script = f"""
import json, shutil, sys, duckdb
from dbt.cli.main import dbtRunner
def run(words):
    done = dbtRunner().invoke(["-q", *words.split(), "--project-dir", ".", "--profiles-dir", "."])
    if not done.success:
        sys.exit(f"{{words}}: {{done.exception or [(str(r.node.name), str(r.status)) for r in done.result]}}")
    return done.result if isinstance(done.result, list) else []
listed = []
{before}
for words in {list(commands)!r}:
    listed += run(words)
print("LISTED", json.dumps(listed))
"""
        lines = self.run("python", "-c", script).splitlines()
        return [str(name) for name in json.loads(lines[-1].removeprefix("LISTED "))]


@pytest.fixture(scope="module")
def project(program: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("dbt"), program)


def test_a_projects_freshness_becomes_its_schedule(project: Project) -> None:
    kept = project.folder / "kept"
    kept.mkdir()
    # Old data end a run only where there is an error_after.
    project.dbt(
        before=f"""
for number in range(4):
    with duckdb.connect("shop.duckdb") as connection:
        connection.execute("create schema if not exists raw")
        for table, hours in {LOADED!r}.items():
            at = f"timestamp '2026-01-01' + interval {{hours[number]}} hour"
            connection.execute(f"create or replace table raw.{{table}} as select {{at}} as loaded")
    run("source freshness")
    shutil.move("target/sources.json", f"kept/sources-{{number}}.json")
"""
    )
    # What was loaded is of January, long before the runs, and no run can have found it new then.
    with pytest.warns(SourceDataWarning, match="stood still"):
        log = read_dbt(kept, "second")
    names = [f"source.shop.raw.{table}" for table in sorted(TABLES)]
    assert log.names.tolist() == names
    found = {name: int(log.changed[log.source_index == k].sum()) for k, name in enumerate(names)}
    assert found == {f"source.shop.raw.{table}": len(set(hours)) - 1 for table, hours in LOADED.items()}
    # The runs were seconds apart, and so are the changes; the bandwidth is one that dbt can have.
    folder = str(project.folder / "plan")
    plan = ["plan", "--dbt", str(kept), "--bandwidth", "40/day", "--horizon", "1d", "--out", folder, "--csv"]
    given = [*plan, "--min-rate", "0.5/day"]
    assert CliRunner().invoke(main, given, catch_exceptions=False).exit_code == 0
    out = project.folder / "out"
    rates = f"{folder}/rates.csv"
    ran = CliRunner().invoke(main, ["schedule", rates, "--format", "dbt", "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    # dbt takes the selectors and the freshness, and its selectors choose each source with its model.
    (out / "selectors.yml").rename(project.folder / "selectors.yml")
    project.run("python", "-c", MERGE)
    jobs = [line.split() for line in (out / "crontab").read_text().splitlines()]
    assert [(len(fields), command) for *fields, command, _, _, _ in jobs] == [(5, "dbt")] * len(jobs)
    assert [job[6:8] for job in jobs] == [["build", "--selector"]] * len(jobs)
    listed = project.dbt("parse", *(f"ls --selector {job[-1]}" for job in jobs))
    every = [name for table in TABLES for name in (f"shop.from_{table}", f"source:shop.raw.{table}")]
    assert sorted(listed) == sorted(every)
    manifest = json.loads((project.folder / "target/manifest.json").read_text())
    assert list(manifest["selectors"]) == [job[-1] for job in jobs]
    for name in names:
        freshness = manifest["sources"][name]["freshness"]
        warn, error = freshness["warn_after"], freshness["error_after"]
        assert error["count"] == 2 * warn["count"] > 0
        assert error["period"] == warn["period"] in ("minute", "hour", "day")
    # And the freshness that it measures by them says that data of January are old.
    with pytest.raises(AssertionError, match=r"source freshness: .*'orders', 'error'"):
        project.dbt("source freshness")


MADE = {
    "seeds/rates.csv": "id,rate\n1,2\n",
    "models/staged.sql": "select * from {{ source('raw', 'orders') }}",
    "models/priced.sql": "{{ config(materialized='ephemeral') }} select * from {{ ref('rates') }}",
    "models/marts/revenue.sql": "{{ config(materialized='table') }} "
    "select count(*) as n from {{ ref('staged') }}, {{ ref('priced') }}",
    "models/marts/daily.sql": "{{ config(materialized='incremental') }} "
    "select n from {{ ref('revenue') }}, {{ source('raw', 'items') }}",
    "models/board.yml": "exposures: [{name: board, type: dashboard, owner: {name: a, email: a@example.org}, "
    "depends_on: [ref('daily')], config: {meta: {importance: 5}}}]\n",
}


def test_a_projects_models_become_its_jobs(
    program: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The graph is the manifest's, costs are run times, and the selectors choose models as planned."""
    project = Project(tmp_path_factory.mktemp("jobs"), program)
    folder, target = project.folder, project.folder / "target"
    for name, text in MADE.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    made = [f"connection.execute('create table raw.{table} as select 1 as id')" for table in TABLES]
    project.dbt(
        "build",
        before=f"""
with duckdb.connect("shop.duckdb") as connection:
    connection.execute("create schema raw")
    {"; ".join(made)}
""",
    )
    change = {"orders": 40.0, "items": 2.0, "rarely": 0.1, "rates": 0.0}
    line = fo.pipeline(target / "manifest.json", change, cost=target / "run_results.json")
    kept = ["model.shop.revenue", "model.shop.daily"]
    views = ["model.shop.staged", "model.shop.priced", "exposure.shop.board"]
    assert set(views) <= set(line.names[line.view].tolist())
    assert line.source_names == kept
    assert line.sources.change_rate.tolist() == [40.0, 42.0]
    assert np.all((line.sources.refresh_cost > 0.0) & (line.sources.refresh_cost < 60.0))
    budget = 60.0 * float(line.sources.refresh_cost.sum())
    solution = fo.solve(fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), line.sources, budget))
    rounded = AfterParents(line, DbtJobs.periods()).rates(solution.rates)
    rates = dict(zip(line.source_names, rounded.tolist(), strict=True))
    export(rates, DbtJobs(target / "manifest.json"), folder / "jobs")
    assert float(line.sources.refresh_cost @ rounded) <= budget
    (folder / "jobs/selectors.yml").rename(folder / "selectors.yml")
    every = {name.split()[-1] for name in (folder / "jobs/crontab").read_text().splitlines()}
    slowest = (folder / "jobs/crontab").read_text().splitlines()[-1].split()[-1]
    listed = project.dbt("parse", f"ls --selector {slowest}")
    assert sorted(listed) == ["shop.marts.daily", "shop.marts.revenue"]
    for name in sorted(every - {slowest}):
        assert len(project.dbt(f"ls --selector {name}")) == 1
    # And dbt builds them, parents first.
    project.dbt(f"build --selector {slowest}")
    ran = [each["unique_id"] for each in json.loads((target / "run_results.json").read_text())["results"]]
    assert ran == kept
