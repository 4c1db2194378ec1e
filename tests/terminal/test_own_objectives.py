"""Objectives of one's own on the command line: imported, never evaluated."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.terminal.own_objectives import OwnObjective
from tests.ground_truth.command_lines import Run
from tests.ground_truth.tolerances import SCALAR

MODULE = """
from dataclasses import dataclass, field
import numpy as np
import freshopt as fo
from freshopt.cvx import cp

@dataclass(frozen=True)
class Delayed(fo.Objective):
    power: float = 1.0
    label: str = ""
    refresh: fo.Refresh = fo.Refresh.PERIODIC
    def per_source(self, rate, sources):
        return cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -self.power))

class Sized(fo.Objective):
    columns = ("size",)
    def per_source(self, rate, sources):
        return cp.multiply(1.0 * sources["size"], cp.inv_pos(rate))

class Spaced(Sized):
    refresh = fo.Refresh.PERIODIC

class Wrong(fo.Objective):
    def per_source(self, rate, sources):
        return cp.multiply(sources.weight, cp.inv_pos(rate))

class Numeric(fo.Objective):
    def per_source(self, rate, sources):
        return -np.log(rate)

steep = Delayed(2.0)
def hidden(): raise SystemExit(3)
"""


@pytest.fixture
def module(run: Run) -> Run:
    """A module in the current folder, and a log."""
    Path("ownobjectives.py").write_text(MODULE, encoding="utf-8")
    days = np.arange(40)
    pl.DataFrame(
        {
            "source": ["a"] * 40 + ["b"] * 40,
            "time": [*days, *days],
            "changed": [*(days % 3 == 0).astype(int), *(days % 10 == 0).astype(int)],
        }
    ).write_csv("log.csv")
    return run


def test_a_plan_by_an_objective_of_ones_own(module: Run) -> None:
    asked = ("plan", "log.csv", "-b", "1/day", "--objective", "ownobjectives:Delayed(2.0, label='x:y')")
    module(*asked, "--out", "own", "--horizon", "2d")
    facts = json.loads(Path("own/summary.json").read_text(encoding="utf-8"))
    rates = pl.read_parquet("own/rates.parquet")["rate"].to_numpy()
    changes = pl.read_parquet("own/change_rates.parquet")["change_rate"].to_numpy()
    # Σ Δ/ρ² is least at ρ ∝ Δ^(1/3).
    assert rates == pytest.approx(np.cbrt(changes) / np.sum(np.cbrt(changes)), rel=SCALAR)
    assert facts["objective"] == "Delayed"
    assert facts["schedule_value"] is not None
    assert OwnObjective.parsed("ownobjectives.py:Delayed") == OwnObjective.parsed("ownobjectives:Delayed")
    module("plan", "--config", "own/plan.toml", "--out", "again")
    assert pl.read_parquet("again/rates.parquet")["rate"].to_list() == rates.tolist()
    assert "report.html" in [one.name for one in Path("again").iterdir()]


def test_columns_of_ones_own(module: Run) -> None:
    pl.DataFrame({"source": ["b", "a"], "size": [1.0, 9.0], "note": [None, "x"]}).write_csv("columns.csv")
    by_size = ("--objective", "ownobjectives:Sized")
    module("plan", "log.csv", "-b", "4/day", *by_size, "--source-columns", "columns.csv", "--out", "sized")
    assert pl.read_parquet("sized/rates.parquet")["rate"].to_list() == pytest.approx([3.0, 1.0], rel=SCALAR)
    pl.DataFrame({"source": ["b", "a"], "change_rate": 1.0, "size": [1.0, 9.0]}).write_parquet("rows.parquet")
    module("solve", "rows.parquet", "-b", "4/day", *by_size, "--out", "memory.csv")
    pl.read_parquet("rows.parquet").write_csv("rows.csv")
    module("solve", "rows.csv", "-b", "4/day", *by_size, "--out", "text.csv")
    assert Path("text.csv").read_bytes() == Path("memory.csv").read_bytes()
    assert pl.read_csv("memory.csv")["rate"].to_list() == pytest.approx([1.0, 3.0], rel=SCALAR)
    refused = module("plan", "log.csv", "-b", "4/day", *by_size, "--out", "none", code=2)
    assert "no column 'size'" in refused.output
    assert not Path("none").exists()


def test_columns_of_ones_own_over_partitions(module: Run) -> None:
    log = pl.read_csv("log.csv")
    Path("log").mkdir()
    for k, source in enumerate(("a", "b")):
        log.filter(pl.col("source") == source).write_parquet(f"log/{k}.parquet")
    pl.DataFrame({"source": ["b", "a"], "size": [1.0, 9.0]}).write_parquet("columns.parquet")
    asked = ("plan", "log", "--engine", "dask", "-b", "4/day", "--objective", "ownobjectives:Spaced")
    module(*asked, "--source-columns", "columns.parquet", "--out", "sized")
    found = pl.concat(
        [pl.read_parquet(f"sized/rates/{one.name}") for one in sorted(Path("sized/rates").iterdir())]
    )
    assert found.sort("source")["rate"].to_list() == pytest.approx([3.0, 1.0], rel=SCALAR)
    refused = module(*asked, "--out", "none", code=2)
    assert "reads the column size" in refused.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ownobjectives:Delayed(open('x'))", "the argument \"open('x')\" is no literal"),
        ("ownobjectives:Delayed(2.0", "names no class in a module"),
        ("ownobjectives:Delayed(**{})", "names no class in a module"),
        ("ownobjectives:Wrong", "line 25 of ownobjectives.py raises AttributeError: 'Sources' object has no"),
        ("ownobjectives:Numeric", "line 29 of ownobjectives.py raises RuntimeError: You're calling a NumPy"),
        ("ownobjectives:Delayed()()", "names no class in a module"),
        ("ownobjectives:hidden()", "no freshopt.Objective"),
        ("os:system('true')", "no freshopt.Objective"),
        ("ownobjectives:steep(1)", "an instance, which takes no arguments"),
        ("ownobjectives:Delayed(1, 2, 3, 4)", "cannot be made of these arguments: TypeError"),
        ("ownobjectives:Other", "has no 'Other'"),
        ("nosuchmodule:Other", "there is no module 'nosuchmodule'"),
        ("no such:Other", "names no class in a module"),
        ("ownobjectives:" + "(" * 300, "names no class in a module"),
        ("ownobjectives:Delayed(" + "9" * 20_000 + ")", "names no class in a module"),
    ],
)
def test_what_is_no_objective(module: Run, text: str, said: str) -> None:
    found = module("plan", "log.csv", "-b", "1/day", "--objective", text, "--out", "none", code=2)
    assert found.exit_code != 0
    assert said in " ".join(found.output.split()), found.output
    assert "Traceback" not in found.output
    assert not Path("none").exists()


def test_a_discipline_that_it_has_not(module: Run) -> None:
    asked = ("plan", "log.csv", "-b", "1/day", "--objective", "ownobjectives:steep", "--refresh", "poisson")
    found = module(*asked, "--out", "none", code=2)
    assert found.exit_code != 0
    assert "is of periodic refreshes, not of poisson ones" in " ".join(found.output.split())


def test_a_live_planner_is_told_at_each_start(module: Run) -> None:
    Path("sources.csv").write_text("source\na\nb\n", encoding="utf-8")
    asked = ("run", "live", "--command", "true {source}", "--once")
    own = ("--objective", "ownobjectives:Delayed(2.0)")
    module(*asked, "--sources", "sources.csv", "-b", "100/hour", *own)
    made = OwnObjective.parsed("ownobjectives:Delayed(2.0)").made(None)
    with fo.Planner("live", objective=made) as planner:
        assert "Delayed" in str(planner.status())
    for words in (asked, ("status", "live")):
        said = " ".join(module(*words, code=2).output.split())
        assert "one of your own, which is not kept. Pass objective=..., or --objective" in said
    assert "Delayed" in module("status", "live", *own).output
    assert module("status", "live", *own, "--fail-if", "down > 9").exit_code == 0
    assert "names no class in a module" in module("status", "live", "--objective", "delay", code=2).output
