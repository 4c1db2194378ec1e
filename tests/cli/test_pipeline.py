"""`freshopt pipeline`: from edges or dbt's manifest to a folder, and what is refused in one line."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.pipelines import AfterParents, aligned_freshness, aligned_problem
from tests.ground_truth.command_lines import Run, fields, refuse
from tests.tools.test_dbt import manifest

EDGES = "upstream,downstream\nr,a\ns,b\na,c\nb,c\na,d\n"
FILES = {
    "edges.csv": EDGES,
    "diamond.csv": EDGES + "r,b\n",
    "ring.csv": "upstream,downstream\nr,a\na,b\nb,c\nc,a\n",
    "half.csv": "upstream\nr\n",
    "rates.csv": "source,change_rate,time_unit\nr,1,hour\nother,3,hour\n",
    "costs.csv": "source,refresh_cost\na,2\nb,1\nc,5\n",
    "none.csv": "source,importance\nc,0\n",
    "weights.csv": "source,importance\nc,1\nd,9\n",
}
KNOWN = ("--change-rates", "rates.csv", "--rate", "s=2/day")
PLAN = ("pipeline", "edges.csv", *KNOWN, "--bandwidth", "60/day")


def write() -> None:
    for name, text in FILES.items():
        Path(name).write_text(text)


def test_aligned_rates_are_those_of_python(run: Run) -> None:
    write()
    wide = ("--cost", "costs.csv", "--importance", "weights.csv", "--view", "d", "--csv", "--out", "plan")
    told = run(*PLAN, *wide).stdout
    rows = fields(told)
    line = fo.pipeline(
        [("r", "a"), ("s", "b"), ("a", "c"), ("b", "c"), ("a", "d")],
        {"r": 24.0, "s": 2.0},
        {"c": 1.0, "d": 9.0},
        {"a": 2.0, "b": 1.0, "c": 5.0},
        views=["d"],
    )
    objective = fo.problems.LogFreshness(fo.Refresh.PERIODIC)
    solution = fo.solve(aligned_problem(line, objective, 60.0))
    rates = AfterParents(line).rates(line.rates_of(solution))
    table = pl.read_csv("plan/rates.csv")
    assert table["source"].to_list() == line.source_names
    assert table["rate"].to_list() == pytest.approx(rates.tolist())
    nodes = pl.read_csv("plan/nodes.csv")
    assert nodes["fresh"].to_list() == pytest.approx(aligned_freshness(line, rates).tolist())
    kinds = dict(nodes.select("node", "kind").iter_rows())
    assert kinds == {"r": "root", "s": "root", "a": "copy", "b": "copy", "c": "copy", "d": "view"}
    facts = json.loads(Path("plan/summary.json").read_text())
    assert facts["relative_gap"] < 1e-9
    assert facts["bandwidth_used"] <= 60.0 * (1.0 + 1e-12)
    assert facts["fresh"] > facts["fresh_with_one_cron"]
    assert rows["bandwidth"] == "60 of 60 units per day used"
    assert rows["formula"] == "exact for all nodes"
    assert rows["certificate"].startswith("optimal")
    assert "wrote rates.csv, nodes.csv, summary.json to plan" in told
    # The table is one that `freshopt schedule` takes.
    run("schedule", "plan/rates.csv", "--horizon", "2d", "--out", "times.csv")


def test_nodes_of_which_nothing_important_is_made_are_named(run: Run) -> None:
    write()
    Path("one.csv").write_text("source,importance\nd,1\n")
    rows = fields(run(*PLAN, "--importance", "one.csv", "--out", "plan").stdout)
    assert rows["intervals"].endswith("2 nodes never refreshed")
    assert rows["unused"] == "b, c: no node of importance is made of them; see --importance"
    assert "unused" not in fields(run(*PLAN, "--out", "other").stdout)


@pytest.mark.exhaustive
def test_independent_phases_tell_a_lower_bound_from_what_is_simulated(run: Run) -> None:
    write()
    asked = ("pipeline", "diamond.csv", *KNOWN, "--bandwidth", "200/day", "--phases", "independent")
    rows = fields(run(*asked, "--csv", "--out", "plan").stdout)
    assert rows["fresh"].startswith("at least ")
    assert rows["formula"].startswith("exact, but a lower bound for 1 of 6 nodes")
    nodes = pl.read_csv("plan/nodes.csv")
    assert nodes.filter(pl.col("formula") == "lower bound")["node"].to_list() == ["c"]
    facts = json.loads(Path("plan/summary.json").read_text())
    assert facts["fresh"] < facts["fresh_simulated"]
    served = nodes.filter(pl.col("importance") > 0)
    logs = served["importance"].to_numpy() @ np.log(served["fresh"].to_numpy())
    assert facts["value"] == pytest.approx(-float(logs))


@pytest.mark.exhaustive
def test_a_project_gets_its_jobs(run: Run, tmp_path: Path) -> None:
    manifest(tmp_path)
    times = [
        {"unique_id": f"model.shop.{name}", "status": "success", "execution_time": 40.0}
        for name in ("revenue", "daily")
    ]
    (tmp_path / "run_results.json").write_text(json.dumps({"results": times}))
    rates = ("--rate", "raw.orders=24/day", "--rate", "items=4/day", "--rate", "seed.shop.rates=0")
    asked = ("pipeline", str(tmp_path), *rates, "--cost", str(tmp_path), "--bandwidth", "1h/day")
    told = run(*asked, "--format", "dbt", "--out", "plan").stdout
    rows = fields(told)
    assert "of 3,600 seconds per day used" in rows["bandwidth"]
    assert rows["format"].startswith("dbt: 2 sources with an interval")
    assert "jobs/selectors.yml, jobs/crontab to plan" in told
    assert "dbt build --selector freshopt_" in Path("plan/jobs/crontab").read_text()
    rate = pl.read_parquet("plan/rates.parquet")["rate"].to_numpy()
    assert 40.0 * rate.sum() <= 3600.0
    again = run(*asked, "--out", "plan", "--overwrite").stdout
    assert "jobs" not in again.split("wrote")[1]
    assert not Path("plan/jobs").exists()


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pipeline", "ring.csv", *KNOWN, "--bandwidth", "9"), "the graph has a cycle: a → b → c → a"),
        (("pipeline", "edges.csv", "--change-rates", "rates.csv", "--bandwidth", "9"), "root 's' has no"),
        ((*PLAN, "--rate", "x=1/day"), "change_rate names 'x', which is no node"),
        ((*PLAN, "--rate", "1/day"), "names no root. Write it such as raw.orders=24/day"),
        ((*PLAN, "--rate", "s=often"), "--rate: 'often' cannot be read"),
        ((*PLAN, "--rate", "s=3/day"), "--rate names 's' more than once"),
        (("pipeline", "edges.csv", *KNOWN, "--bandwidth", "4h/day"), "no run times are known. Add --cost"),
        ((*PLAN, "--view", "z"), "views names 'z', which is no node"),
        ((*PLAN, "--importance", "none.csv"), "no node of the graph has importance"),
        ((*PLAN, "--format", "dbt"), "--format dbt is for the manifest.json"),
        ((*PLAN, "--phases", "independent", "--objective", "binary"), "--objective binary is for"),
        (("pipeline", "half.csv", *KNOWN, "--bandwidth", "9"), "has no column 'downstream'"),
        (("pipeline", "gone.csv", *KNOWN, "--bandwidth", "9"), "there is no file gone.csv"),
        (("pipeline", "gone.json", *KNOWN, "--bandwidth", "9"), "gone.json cannot be read"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    write()
    refuse(Path(), (*arguments, "--out", "plan"), [words])
    assert not Path("plan").exists()
