"""Constraints on the command line: against CVXPY and closed forms, what is printed, written and refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import cvxpy as cp
import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from freshopt.cli import main
from freshopt.errors import SourceDataError
from freshopt.terminal.target_grammar import goals_of
from tests.ground_truth.command_lines import Run, fields, refuse
from tests.ground_truth.tolerances import SCALAR

SOURCES = (
    "source,change_rate,size,tier,host,domain\n"
    "a,1,10,gold,h1,d1\nb,2,20,gold,h2,d1\nc,0.2,5,iron,h3,d2\nd,0.5,1,iron,h3,d2\n"
)
CHANGE, SIZE = np.array([1.0, 2.0, 0.2, 0.5]), np.array([10.0, 20.0, 5.0, 1.0])
TABLES = {
    "s.csv": SOURCES,
    "sizes.csv": "source,cost\nd,1\nb,20\na,10\nc,5\n",
    "few.csv": "source,cost\na,10\n",
    "words.csv": "source,cost\na,10\nb,much\nc,5\nd,1\n",
    "nested.csv": "group,at_most,at_least\nd1,1.5,\nd2,,0.5\n",
    "crossed.csv": "group,at_most,at_least\nd1,1,2\n",
    "strange.csv": "group,at_most\nd9,1\n",
    "unlimited.csv": "group,limit\nd1,1\n",
}
POISSON_DELAY = ("--objective", "delay", "--refresh", "poisson")


@pytest.fixture
def tables(folder: Path) -> Path:
    for name, text in TABLES.items():
        Path(name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "budget", ["kB=size:20", "kB=sizes.csv:20/day", "kB=sizes.csv:0.83333333333333333/h"]
)
@pytest.mark.usefixtures("tables")
def test_a_budget_in_its_own_unit_is_that_of_cvxpy(budget: str, run: Run) -> None:
    job = ("solve", "s.csv", *POISSON_DELAY, "--bandwidth", "3/day", "--budget", budget, "--out", "r.csv")
    shown = run(*job).output
    rate = cp.Variable(4)
    rows = [cp.sum(rate) <= 3.0, SIZE @ rate <= 20.0]
    least = cp.Problem(cp.Minimize(cp.sum(cp.multiply(CHANGE, cp.inv_pos(rate)))), rows).solve()
    rates = pl.read_csv("r.csv")["rate"].to_numpy()
    assert float(np.sum(CHANGE / rates)) == pytest.approx(least, rel=1e-6)
    table = pl.read_csv("r.constraints.csv").rows_by_key("row", named=True, unique=True)
    assert table["kB"]["used"] == pytest.approx(20.0, rel=SCALAR)
    for name, row in zip(("bandwidth", "kB"), rows, strict=True):
        assert table[name]["price"] == pytest.approx(row.dual_value, rel=1e-4, abs=1e-6)
    price = table["kB"]["price"]
    assert "kB: at most 20 per day, which binds; 20.2 in its place would lower the missed changes" in shown
    assert f"by at most {0.2 * price:.4g} (price {price:.4g})" in shown
    assert "wrote: r.csv, r.constraints.csv" in shown


@pytest.mark.usefixtures("tables")
def test_the_cheapest_rates_for_targets_by_group(run: Run) -> None:
    job = ("solve", "s.csv", "--cheapest", "--refresh", "poisson", "--out", "r.csv")
    shown = run(*job, "--target", "90%:tier", "--target", "95%:tier=gold").output
    rates = pl.read_csv("r.csv")["rate"].to_numpy()
    fresh = rates / (rates + CHANGE)
    # Of two sources of one group, ρ = s·√Δ − Δ, and s follows from the target: Σ (1 − √Δ/s) = 2·target.
    for own, least in ((slice(0, 2), 0.95), (slice(2, 4), 0.9)):
        root = np.sqrt(CHANGE[own])
        scale = np.sum(root) / (2.0 - 2.0 * least)
        assert rates[own] == pytest.approx(scale * root - CHANGE[own], rel=1e-6)
        assert float(np.mean(fresh[own])) == pytest.approx(least, rel=1e-9)
    lines = [line for line in shown.splitlines() if line.startswith("freshness by tier[")]
    assert [line.split(":")[0] for line in lines] == ["freshness by tier[gold]", "freshness by tier[iron]"]
    assert "at least 95 %, which binds; 94 % in its place would lower the bandwidth by at most" in lines[0]


@pytest.mark.usefixtures("tables")
def test_later_than_an_age_at_equal_intervals(run: Run) -> None:
    run("solve", "s.csv", "--cheapest", "--target", "later-than=3d<=10%", "--out", "r.csv")
    rates = pl.read_csv("r.csv")["rate"].to_numpy()
    # 1 − 3ρ summed over four sources is at most 0.4 where Σρ = 1.2, however they share it.
    assert math.fsum(rates) == pytest.approx(1.2, rel=1e-5)


@pytest.mark.usefixtures("tables")
def test_nested_limits_and_reserves(run: Run) -> None:
    job = ("solve", "s.csv", *POISSON_DELAY, "--bandwidth", "4", "--out", "r.csv")
    shown = run(*job, "--nested", "host, domain", "--nested-limits", "nested.csv").output
    rates = pl.read_csv("r.csv")["rate"].to_numpy()
    assert rates[:2] == pytest.approx(1.5 * np.sqrt(CHANGE[:2]) / np.sum(np.sqrt(CHANGE[:2])), rel=1e-6)
    assert rates[2:] == pytest.approx(2.5 * np.sqrt(CHANGE[2:]) / np.sum(np.sqrt(CHANGE[2:])), rel=1e-6)
    assert "nested[d1]: at most 1.5 per day, which binds; 1.515 in its place" in shown
    assert "1 more does not bind" in shown


@pytest.mark.usefixtures("tables")
def test_the_frontier_keeps_the_constraints(run: Run) -> None:
    shown = run("frontier", "s.csv", "--bandwidths", "2,40", "--target", "90%").output
    below = [line for line in shown.splitlines() if line.split()[0].isdigit()]
    assert below[0].split() == ["2", "infeasible"]
    assert "optimal" in below[1]


@pytest.mark.usefixtures("tables")
def test_without_constraints_nothing_is_new(run: Run) -> None:
    shown = run("solve", "s.csv", "--bandwidth", "4", "--out", "r.csv").output
    assert "bind" not in shown
    assert not Path("r.constraints.csv").exists()


# Further arguments of `solve s.csv --out out.csv`, and what is said of them.
REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no limit": (("--budget", "kB=size"), ("--budget 'kB=size' is no budget", "bytes=size:2e9")),
    "limit is a word": (("--budget", "kB=size:big"), ("--budget kB: 'big'",)),
    "limit 0": (("--budget", "kB=size:0"), ("--budget kB: the limit 0 is not > 0",)),
    "no column": (("--budget", "kB=sise:1"), ("--budget kB: s.csv has no column 'sise'", "'size', 'tier'")),
    "missing costs": (("--budget", "kB=few.csv:1"), ("--budget kB: few.csv has no cost for 'b', 'c', 'd'",)),
    "cost is a word": (
        ("--budget", "kB=words.csv:1"),
        ("--budget kB: cost is 'much' in row 2, line 3 of words.csv",),
    ),
    "cost in letters": (
        ("--budget", "kB=tier:1"),
        ("--budget kB: tier is 'gold' in row 1, line 2 of s.csv",),
    ),
    "no file": (("--budget", "kB=none.csv:1"), ("--budget kB", "none.csv")),
    "name of the bandwidth": (("--budget", "bandwidth=size:9"), ("--budget bandwidth: the name is taken",)),
    "twice": (("--budget", "kB=size:9", "--budget", "kB=size:8"), ("two constraints are named 'kB'",)),
    "nested alone": (("--nested", "host"), ("--nested and --nested-limits need each other",)),
    "nested without column": (
        ("--nested", "host,org", "--nested-limits", "nested.csv"),
        ("--nested: s.csv has no column 'org'",),
    ),
    "unknown group": (
        ("--nested", "host,domain", "--nested-limits", "strange.csv"),
        ("Nested 'nested'", "'d9'"),
    ),
    "no limits": (
        ("--nested", "host,domain", "--nested-limits", "unlimited.csv"),
        ("unlimited.csv has no column 'at_most'; it has 'group', 'limit'", "at_most or at_least"),
    ),
    "reserve above limit": (
        ("--nested", "host,domain", "--nested-limits", "crossed.csv"),
        ("nested", "d1"),
    ),
    "above 100 %": (("--target", "120%"), ("--target '120%': 120% is not between 0 and 100 %",)),
    "100 %": (("--target", "100%"), ("--target '100%'", "such as 95%")),
    "bare number": (("--target", "0.95"), ("--target '0.95' is no target. Write such as 95%",)),
    "no goal": (("--target", "fast<=3"), ("is of no known goal", "harmonic", "later-than=AGE")),
    "wrong side": (("--target", "harmonic>=3"), ("harmonic is a cost", "Write <= in place of >=")),
    "wrong side of shares": (("--target", "binary<=0.9"), ("Write >= in place of <=",)),
    "no age": (("--target", "later-than<=1%"), ("names no age",)),
    "age is a word": (("--target", "later-than=long<=1%"), ("'long'", "such as 7d")),
    "no column of groups": (
        ("--target", "95%:teir"),
        ("--target: s.csv has no column 'teir'", "'host' and 1 more. Correct the name, or add the column."),
    ),
    "empty column": (("--target", "95%:"), ("names no column or group",)),
    "no such group": (("--target", "95%:tier=tin"), ("freshness by tier", "unknown groups 'tin'")),
    "same target twice": (("--target", "95%", "--target", "binary>=0.9"), ("gives freshness twice",)),
    "conflict": (
        ("--target", "95%"),
        ("Error: bandwidth <= 4 and freshness >= 0.95 cannot both hold. Raise bandwidth to at least",),
    ),
    "cheapest without target": (("--cheapest",), ("--cheapest has no target", "--target 95%")),
    "cheapest with objective": (
        ("--cheapest", "--objective", "age", "--target", "95%"),
        ("--cheapest stands in place of --objective",),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_ends_in_one_line_and_leaves_nothing(name: str, tables: Path) -> None:
    more, words = REFUSED[name]
    refuse(tables, ["solve", "s.csv", "--bandwidth", "4", "--out", "out.csv", *more], words)


def test_other_commands_refuse(tables: Path) -> None:
    refuse(tables, ["check", "s.csv", "--target", "95%"], ("--target is for solve, plan and frontier",))
    job = ["plan", "log.csv", "--horizon", "7d", "--out", "out"]
    refuse(tables, job, ("Missing option '--bandwidth'", "200/day"))
    refuse(tables, [*job, "--target", "95%"], ("Missing option '--bandwidth'", "--cheapest"))
    refuse(
        tables,
        [*job, "--cheapest", "--target", "95%:tier"],
        ("--target names the column", "--source-columns FILE"),
    )
    refuse(
        tables, [*job, "--cheapest", "--target", "95%", "--replay"], ("--target does not go with --replay",)
    )
    refuse(
        tables, [*job, "--bandwidth", "2", "--source-columns", "s.csv"], ("--source-columns is for --budget",)
    )
    Path("b.csv").write_text("source,tier\na,gold\n", encoding="utf-8")
    refuse(
        tables,
        [*job, "--cheapest", "--target", "95%:tier", "--source-columns", "b.csv"],
        ("b.csv has no row for 'b'",),
    )


def test_an_earlier_table_of_constraints_is_not_replaced_unasked(tables: Path) -> None:
    Path("out.constraints.csv").write_text("mine", encoding="utf-8")
    job = ["solve", "s.csv", "--bandwidth", "4", "--budget", "kB=size:20", "--out", "out.csv"]
    refuse(tables, job, ("out.constraints.csv", "--overwrite"))


def test_a_newcomer_plans_the_example_with_targets(run: Run) -> None:
    run("examples", "debian-uploads", "--out", "log.csv", "--overwrite")
    names = sorted(set(pl.read_csv("log.csv")["source"].to_list()))
    tier = ["gold" if k % 3 == 0 else "iron" for k in range(len(names))]
    pl.DataFrame({"source": names, "tier": tier}).reverse().write_csv("about.csv")
    job = (
        "plan",
        "--example",
        "debian-uploads",
        "--cheapest",
        "--horizon",
        "90d",
        "--source-columns",
        "about.csv",
    )
    shown = run(*job, "--target", "60%:tier", "--target", "80%:tier=gold", "--out", "plan", "--csv").output
    rows = fields(shown)
    assert rows["objective"].startswith("Spend, the least bandwidth that meets the constraints; periodic")
    assert rows["constraints"].startswith("freshness by tier[gold]: at least 80 %, which binds")
    assert "constraints.csv" in shown
    rates, change = (pl.read_csv(f"plan/{name}.csv") for name in ("rates", "change_rates"))
    assert rates["source"].to_list() == names
    u = change["change_rate"].to_numpy() / np.maximum(rates["rate"].to_numpy(), 1e-300)
    fresh = -np.expm1(-u) / u
    of_tier = [float(np.mean(fresh[np.array(tier) == name])) for name in ("gold", "iron")]
    assert of_tier == pytest.approx([0.8, 0.6], rel=1e-8)
    facts = json.loads(Path("plan/summary.json").read_text(encoding="utf-8"))
    assert facts["bandwidth"] is None
    assert facts["price"] is None
    assert facts["findings"]["fresh"]["plan"] == pytest.approx(float(np.mean(fresh)), rel=SCALAR)
    assert facts["constraints"]["binding"] == 2
    page = Path("plan/report.html").read_text(encoding="utf-8")
    assert 'id="constraints-title">Constraints</h2>' in page
    assert "meets its constraints with the least bandwidth" in page


@pytest.mark.parametrize("text", ["95%:tier", "95% : tier", "binary>=0.95:tier", "binary≥95%:tier"])
def test_ways_to_write_one_target(text: str) -> None:
    [goal] = goals_of([text], None, "day")
    assert (goal.name, goal.column, goal.everywhere) == ("freshness by tier", "tier", 0.95)


def test_ages_carry_their_units() -> None:
    late, old = goals_of(["later-than=36h<=1%", "age <= 12h"], None, "day")
    assert late.objective.age == 1.5  # type: ignore[attr-defined]
    assert (late.name, late.everywhere, old.everywhere) == ("later-than 36h", 0.01, 0.5)
    with pytest.raises(SourceDataError, match="is no number"):
        goals_of(["harmonic<=x"], None, "day")


@pytest.mark.parametrize("command", ["solve", "plan"])
def test_the_help_names_the_grammar(command: str) -> None:
    shown = "".join(CliRunner().invoke(main, [command, "--help"]).output.split())
    for words in ("95%:tier", "'harmonic<=0.3'", "'later-than=3d<=1%'", "NAME=COLUMN:LIMIT", "--cheapest"):
        assert words in shown
