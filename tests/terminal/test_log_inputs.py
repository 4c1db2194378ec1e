"""`freshopt poisson-check`, and logs that come from elsewhere: git, dbt, tables of changes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from freshopt.datasets import load_example
from freshopt.goodness_of_fit import interpret, poisson_check
from freshopt.goodness_of_fit.interpretation import verdict
from freshopt.tools import read_git
from tests.ground_truth.command_lines import Run, refuse, unwrapped
from tests.ground_truth.tolerances import SCALAR
from tests.tools.test_git import Repository
from tests.tools.test_read_dbt import RUNS


@pytest.fixture
def repository(folder: Path) -> Path:
    made = Repository(folder / "repo")
    rng = np.random.default_rng(1)
    days = np.sort(rng.uniform(0, 40, 30))
    for k, day in enumerate(days.tolist()):
        made.commit(day, **{f"f{k % 3}": str(k), "often": str(k)})
    return made.path


def test_a_plan_for_a_git_repository(run: Run, repository: Path) -> None:
    ran = run("plan", "--git", str(repository), "--bandwidth", "1/day", "--horizon", "7d", "--out", "out")
    history = read_git(repository)
    assert f"git history of {repository}: {len(history)} changes of 4 sources" in unwrapped(ran.output)
    assert "certificate   optimal" in ran.output
    rates = pl.read_parquet("out/rates.parquet")
    assert sorted(rates["source"].to_list()) == ["f0", "f1", "f2", "often"]
    assert json.loads(Path("out/summary.json").read_text())["counts"]["sources"] == 4


def test_change_rates_of_a_git_repository(run: Run, repository: Path) -> None:
    run("estimate", "--git", str(repository), "--smoothing", "0", "--out", "r.csv")
    frame = pl.read_csv("r.csv").sort("source")
    history = read_git(repository)
    expected = history.changes / (history.end - history.start)
    np.testing.assert_allclose(frame["change_rate"].to_numpy(), expected, rtol=SCALAR)
    run("estimate", "--git", str(repository), "--files", "f*", "--min-changes", "9", "--out", "s.csv")
    assert set(pl.read_csv("s.csv")["source"]) <= {"f0", "f1", "f2"}
    run("estimate", "--git", str(repository), "--since", "2023-11-20", "--out", "t.csv")
    assert pl.read_csv("t.csv").height == 4


def test_change_rates_from_dbt_and_a_table_of_changes(run: Run, folder: Path) -> None:
    for name, document in RUNS.items():
        (folder / "dbt" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "dbt" / name).write_text(json.dumps(document))
    ran = run("estimate", "--dbt", "dbt", "--out", "d.csv")
    assert "dbt: 5 crawls of 2 sources, 2 found a change" in ran.output
    (folder / "changes.csv").write_text("source,time\na,0\na,2\nb,3\na,10\n")
    ran = run("estimate", "--history", "changes.csv", "--out", "h.csv", "--smoothing", "0")
    assert "changes.csv: 4 changes of 2 sources in 10 days, all known" in ran.output
    np.testing.assert_allclose(pl.read_csv("h.csv")["change_rate"].to_numpy(), [0.3, 0.1], rtol=SCALAR)


def test_poisson_check_prints_writes_and_draws(run: Run, repository: Path) -> None:
    ran = run("poisson-check", "--git", str(repository), "--out", "p.parquet", "--plot", "p.png")
    check = poisson_check(read_git(repository))
    shown = unwrapped(ran.output)
    assert interpret(check) in shown if not check.tested.any() else verdict(check) in shown
    frame = pl.read_parquet("p.parquet")
    assert frame["source"].to_list() == check.sources_.tolist()
    np.testing.assert_array_equal(frame["dispersion_p"].to_numpy(), check.p_value["dispersion"])
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


def test_poisson_check_of_the_example(run: Run) -> None:
    ran = run("poisson-check", "--example", "debian-uploads", "--level", "0.01")
    rows = {line.split("  ")[0]: line for line in ran.output.splitlines() if line}
    assert "434,205 crawls of 344 sources, 4,303 found a change" in rows["data"]
    assert {"result", "dispersion", "gaps", "weekly", "drift"} <= set(rows)
    assert "FDR 1%" in rows["test"]
    check = poisson_check(load_example("debian-uploads"), level=0.01)
    index = check.pooled["dispersion"]
    assert rows["dispersion"].split()[1] == f"{check.share_rejected('dispersion'):.0%}"
    assert f"variance {index:.2g} (Poisson: 1)" in rows["dispersion"]
    assert f"widen change-rate intervals {math.sqrt(index):.1f}-fold" in rows["dispersion"]
    assert all(len(line) <= 100 for line in ran.output.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["poisson-check"], ("LOG or --example", "--git", "freshopt poisson-check --help")),
        (["poisson-check", "log.csv", "--git", "."], ("only one", "freshopt poisson-check --help")),
        (["poisson-check", "--git", "."], ("git cannot read .", "not a git repository")),
        (["poisson-check", "--git", "no"], ("no is not a folder", "Name a git repository")),
        (["poisson-check", "log.csv", "--since", "2024-01-01"], ("--since is for --git", "Leave it out")),
        (["estimate", "log.csv", "--min-changes", "3", "--out", "o.csv"], ("--min-changes is for --git",)),
        (["poisson-check", "log.csv", "--level", "2"], ("between 0 and 1",)),
        (["poisson-check", "log.csv", "--out", "log.csv"], ("is the file that is read",)),
        (["poisson-check", "--history", "log.csv", "--out", "log.csv"], ("is the file that is read",)),
        (["poisson-check", "log.csv", "--out", "o.xlsx"], ("o.xlsx ends in '.xlsx'",)),
        (["poisson-check", "log.csv", "--plot", "p.png"], ("nothing to draw",)),
        (["poisson-check", "log.csv", "--plot", "p.txt"], ("p.txt is no picture", "Rename")),
        (["poisson-check", "rates.csv"], ("rates.csv has no column 'changed'",)),
        (["estimate", "--history", "rates.csv", "--out", "o.csv"], ("rates.csv has no column 'time'",)),
        (["estimate", "--dbt", ".", "--out", "o.csv"], ("no JSON file", "dbt source freshness")),
    ],
)
def test_refusals(folder: Path, arguments: list[str], words: tuple[str, ...]) -> None:
    refuse(folder, arguments, words)
