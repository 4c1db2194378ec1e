"""Limits on the command line: rates of sources, budgets, groups and targets."""

import json
import math
import re
import sqlite3
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.terminal.constraint_options import goals_of
from tests.ground_truth.command_lines import Run, fields, refusals, refuse
from tests.ground_truth.refusals import refused
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
    "b.csv": "source,tier\na,gold\n",
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


REFUSED = refusals(
    """
SOLVE --budget kB=size -> --budget 'kB=size' is no budget | bytes=size:2e9
SOLVE --budget kB=size:big -> --budget kB: 'big'
SOLVE --budget kB=size:0 -> --budget kB: the limit 0 is not > 0
SOLVE --budget kB=sise:1 -> --budget kB: s.csv has no column 'sise' | 'size', 'tier'
SOLVE --budget kB=few.csv:1 -> --budget kB: few.csv has no cost for 'b', 'c', 'd'
SOLVE --budget kB=words.csv:1 -> --budget kB: cost is 'much' in row 2, line 3 of words.csv
SOLVE --budget kB=tier:1 -> --budget kB: tier is 'gold' in row 1, line 2 of s.csv
SOLVE --budget kB=none.csv:1 -> --budget kB | none.csv
SOLVE --budget bandwidth=size:9 -> --budget bandwidth: the name is taken
SOLVE --budget kB=size:9 --budget kB=size:8 -> two constraints are named 'kB'
SOLVE --nested host -> --nested and --nested-limits need each other
SOLVE --nested host,org --nested-limits nested.csv -> --nested: s.csv has no column 'org'
SOLVE --nested host,domain --nested-limits strange.csv -> Nested 'nested' | 'd9'
SOLVE --nested host,domain --nested-limits unlimited.csv
    -> unlimited.csv has no column 'at_most'; it has 'group', 'limit' | at_most or at_least
SOLVE --nested host,domain --nested-limits crossed.csv -> nested | d1
SOLVE --target 120% -> --target '120%': 120% is not between 0 and 100 %
SOLVE --target 100% -> --target '100%' | such as 95%
SOLVE --target 0.95 -> --target '0.95' is no target. Write such as 95%
SOLVE --target 'fast<=3' -> is of no known goal | harmonic | later-than=AGE
SOLVE --target 'harmonic>=3' -> harmonic is a cost | Write <= in place of >=
SOLVE --target 'binary<=0.9' -> Write >= in place of <=
SOLVE --target 'later-than<=1%' -> names no age
SOLVE --target 'later-than=long<=1%' -> 'long' | such as 7d
SOLVE --target 95%:teir
    -> --target: s.csv has no column 'teir' | 'host' and 1 more. Correct the name, or add the column.
SOLVE --target 95%: -> names no column or group
SOLVE --target 95%:tier=tin -> freshness by tier | unknown groups 'tin'
SOLVE --target 95% --target 'binary>=0.9' -> gives freshness twice
SOLVE --target 95%
    -> Error: bandwidth <= 4 and freshness >= 0.95 cannot both hold. Raise bandwidth to at least
SOLVE --cheapest -> --cheapest has no target | --target 95%
SOLVE --cheapest --objective age --target 95% -> --cheapest stands in place of --objective
check s.csv --target 95% -> --target is for solve, plan and frontier
PLAN --cheapest --target 95%:tier -> --target names the column | --source-columns FILE
PLAN --cheapest --target 95% --replay -> --target does not go with --replay
PLAN --bandwidth 2 --source-columns s.csv -> --source-columns is for --budget
PLAN --cheapest --target 95%:tier --source-columns b.csv -> b.csv has no row for 'b'
""",
    SOLVE="solve s.csv --bandwidth 4 --out out.csv",
    PLAN="plan log.csv --horizon 7d --out out",
)


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_what_is_wrong_ends_in_one_line_and_leaves_nothing(
    arguments: tuple[str, ...], words: tuple[str, ...], tables: Path
) -> None:
    refuse(tables, arguments, words)


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
    shown = run(*job, "--target", "60%:tier", "--target", "80%:tier=gold", "--details", "--csv").output
    rows = fields(shown)
    assert rows["objective"].startswith("Spend, the least bandwidth that meets the constraints; periodic")
    assert rows["constraints"].startswith("freshness by tier[gold]: at least 80 %, which binds")
    assert Path("plan/constraints.csv").exists()
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
    assert "Fewest within the constraints" in page


@pytest.mark.parametrize("text", ["95%:tier", "95% : tier", "binary>=0.95:tier", "binary≥95%:tier"])
def test_ways_to_write_one_target(text: str) -> None:
    [goal] = goals_of([text], None, "day")
    assert (goal.name, goal.column, goal.everywhere) == ("freshness by tier", "tier", 0.95)


def test_ages_carry_their_units() -> None:
    late, old = goals_of(["later-than=36h<=1%", "age <= 12h"], None, "day")
    assert late.objective.age == 1.5  # type: ignore[attr-defined]
    assert (late.name, late.everywhere, old.everywhere) == ("later-than 36h", 0.01, 0.5)
    refused("is no number", goals_of, ["harmonic<=x"], None, "day")


@pytest.mark.usefixtures("here")
def test_help_names_the_grammar() -> None:
    for arguments in (["solve", "--help"], ["plan", "--init"]):
        shown = CliRunner().invoke(main, arguments).output
        shown += Path("plan.toml").read_text(encoding="utf-8") if "--init" in arguments else ""
        for words in ("95%:tier", "'harmonic<=0.3'", "'later-than=3d<=1%'", "NAME=COLUMN:LIMIT", "cheapest"):
            assert words in re.sub(r"[\s#│]", "", shown)


LIMITS = "source,min_interval,max_interval\npage/0,,2d\npage/1,90h,\npage/7,12h,36\n"
HOW = ("--time-unit", "hour", "--draws", "0", "-b", "0.2/h", "-q")


def rates(path: str) -> dict[str, float]:
    frame = pl.read_parquet(path) if path.endswith(".parquet") else pl.read_csv(path)
    return dict(zip(frame["source"].to_list(), frame["rate"].to_list(), strict=True))


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        (("--min-interval", "4 h"), ("--max-rate", "6/day")),
        (("--max-interval", "30d"), ("--min-rate", "1/30d")),
        (
            ("--min-interval", "6h", "--max-interval", "monthly"),
            ("--max-rate", "4/day", "--min-rate", "1/month"),
        ),
    ],
)
def test_intervals_are_rates(arguments: tuple[str, ...], same: tuple[str, ...], run: Run, log: Path) -> None:
    for folder, given in (("a", arguments), ("b", same)):
        run("plan", str(log), *HOW, *given, "-o", folder)
    assert rates("a/rates.parquet") == pytest.approx(rates("b/rates.parquet"), rel=1e-12)
    told = [json.loads(Path(folder, "summary.json").read_text())["settings"] for folder in ("a", "b")]
    assert told[0] == pytest.approx(told[1])


def bounded(found: dict[str, float], per_hour: float = 1.0) -> None:
    """Check the limits of `LIMITS`, of which some bind, and those of all sources."""
    assert found["page/0"] * per_hour >= (1 - 1e-9) / 48.0
    assert found["page/1"] * per_hour == pytest.approx(1.0 / 90.0)
    assert (1 - 1e-9) / 36.0 <= found["page/7"] * per_hour <= (1 + 1e-9) / 12.0
    assert min(found.values()) * per_hour >= (1 - 1e-9) / 96.0


def test_single_sources_have_limits_in_every_command(run: Run, log: Path) -> None:
    Path("limits.csv").write_text(LIMITS)
    within = ("--limits", "limits.csv", "--max-interval", "4d", "--time-unit", "hour")
    run("plan", str(log), *HOW, *within, "-o", "plan")
    bounded(rates("plan/rates.parquet"))
    run("lifetimes", str(log), "-b", "0.2/h", *within)
    run("estimate", str(log), "--time-unit", "hour", "--out", "sources.csv")
    run("solve", "sources.csv", "-b", "0.2/h", *within, "--out", "rates.csv")
    bounded(rates("rates.csv"))
    for name, held in (("free.csv", ()), ("held.csv", within)):
        run("frontier", "sources.csv", "--bandwidths", "0.2/h", *held, "--out", name)
    free, held_value = (pl.read_csv(name)["value"].item() for name in ("free.csv", "held.csv"))
    assert free < held_value  # staleness, of which less is better
    Path("names.txt").write_text("\n".join(f"page/{k}" for k in range(8)))
    Path("day.csv").write_text(LIMITS.replace(",36", ",36h"))
    live = ("run", "state", "-b", "4/day", "--min-interval", "2h")
    assert "--sources" in run(*live, code=2).output
    run(*live, "--sources", "names.txt", "--limits", "day.csv")
    rows = sqlite3.connect("state/planner.sqlite").execute("SELECT name, min_rate, max_rate FROM source")
    found = {name: (least, most) for name, least, most in rows}
    assert found["page/7"] == pytest.approx((1 / 1.5, 2.0))
    assert found["page/3"] == pytest.approx((0.0, 12.0))


@pytest.mark.parametrize("kind", [dict, pl.DataFrame, pd.DataFrame])
def test_python_takes_the_same(kind: type, log: Path, tmp_path: Path) -> None:
    rows = {"page/0": (None, "2d"), "page/1": ("90h", None), "page/7": ("12h", "36h")}
    given: Any = rows
    if kind is not dict:
        shortest, longest = zip(*rows.values(), strict=True)
        given = kind({"source": [*rows], "min_interval": shortest, "max_interval": longest})
    path = tmp_path / log
    made = fo.plan(path, "4.8/day", draws=0, max_interval="4d", limits=given)
    found = dict(zip(map(str, made.log.names.tolist()), made.solution.rates.tolist(), strict=True))
    bounded(found, per_hour=1.0 / 24.0)
    same = fo.plan(path, "4.8/day", draws=0, min_interval=0.5).solution.rates
    np.testing.assert_allclose(same, fo.plan(path, "4.8/day", draws=0, max_rate=2.0).solution.rates)
    for wrong, words in (({"nobody": ("1d", None)}, "none of which is in the log"), (3, "limits are int")):
        refused(words, fo.plan, path, "4.8/day", limits=wrong)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--min-interval", "often"), ("--min-interval: 'often' cannot be read",)),
        (("--min-interval", "1h", "--max-rate", "1/h"), ("--min-interval is a largest rate", "--max-rate")),
        (("--max-interval", "1h", "--min-rate", "1/h"), ("--max-interval is a least rate", "--min-rate")),
        (("--limits", "log.csv"), ("log.csv has no column 'min_interval'", "max_interval or min_rate")),
        (("--limits", "limits.csv"), ("limits.csv", "max_interval of 'b'", "'soon'")),
        (("--limits", "others.csv"), ("limits are of 'x'", "none of which is in the log")),
        (("--limits", "crossed.csv"), ("min_interval exceeds max_interval for 'a': 2 days > 1 day", "widen")),
    ],
)
def test_limits_that_do_not_do_are_refused(
    arguments: tuple[str, ...], words: tuple[str, ...], folder: Path
) -> None:
    Path("limits.csv").write_text("source,max_interval\na,1d\nb,soon\n")
    Path("others.csv").write_text("source,max_interval\nx,1d\n")
    Path("crossed.csv").write_text("source,min_interval,max_interval\na,2d,1d\n")
    refuse(folder, ["plan", "log.csv", "-b", "9/day", *arguments], words)


def test_partitions_take_limits_from_their_columns(folder: Path) -> None:
    job = ["solve", "sources.csv", "-b", "2", "--engine", "dask", "--min-interval", "1h", "--out", "out"]
    refuse(folder, job, ("columns min_rate and max_rate",))
