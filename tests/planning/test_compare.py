"""Plans beside the rates in force: what changes, what it brings, and how few changes may do."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.planning.plan_files import told_of
from freshopt.problems import BinaryFreshness
from freshopt.report.page import findings
from freshopt.terminal.tables import rates_in_force_of
from tests.ground_truth.command_lines import MAIN_JOB, Run, crawl_log, fields, refuse
from tests.ground_truth.named import PERIODIC
from tests.ground_truth.plans import crawls
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import EXACT, SCALAR

JOB = ("plan", "log.parquet", *MAIN_JOB, "--draws", "0")


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**crawls())


def test_a_plan_beside_earlier_rates(log: fo.CrawlLog) -> None:
    old = {f"s{k:02d}": 0.5 for k in range(1, 12)} | {"gone": 1.0}
    made = fo.plan(log, 6.0, 14.0, draws=0, compare=old, load_limit=1.0)
    found = present(made.changes)
    assert made.few is None
    assert (found.new, found.gone) == (1, 1)
    assert np.isnan(found.old[0])
    assert found.bandwidth == pytest.approx(5.5, rel=EXACT)
    # The new source has its new rate in the value at the old rates.
    numerics = present(made.problem.numerics)
    rates = np.where(np.arange(12) == 0, made.solution.rates, 0.5)
    assert found.value == pytest.approx(float(np.sum(numerics.cost(rates))), rel=EXACT)
    best = fo.solve(made.problem.with_bandwidth(float(rates.sum())))
    assert present(found.certificate).gap == pytest.approx(found.value - best.value, rel=SCALAR)


@pytest.mark.parametrize("share", [0.3, 0.8, 1.2])
def test_old_rates_beyond_limits_are_cut_to_them(log: fo.CrawlLog, share: float, tmp_path: Path) -> None:
    """What is said to be no better than a bound is within the limits that the bound is for."""
    hosts = {f"s{k:02d}": "ab"[k % 2] for k in range(12)}
    old = {name: 0.4 if host == "a" else 0.6 for name, host in hosts.items()}
    limits = {"a": f"{share * 2.4}/day", "b": "9/day"}
    made = fo.plan(
        log, 6.0, 14.0, draws=0, compare=old, load_limit=1.0, hosts=hosts, host_limits=limits, max_rate=5.0
    )
    found = present(made.changes)
    assert found.bandwidth == pytest.approx(6.0, rel=EXACT)
    numerics = present(made.problem.numerics)
    cut = np.array([min(share, 1.0) * 0.4 if host == "a" else 0.6 for host in hosts.values()])
    value = float(np.sum(numerics.cost(cut)))
    assert (found.cut is None) == (share > 1.0)
    if found.cut is not None:
        assert found.cut == pytest.approx((float(cut.sum()), value), rel=EXACT)
        assert found.value < value
    assert found.certificate is not None
    assert found.certificate.value == pytest.approx(value, rel=EXACT)
    best = fo.solve(made.problem.with_bandwidth(float(cut.sum())))
    assert found.certificate.bound == pytest.approx(best.value, rel=SCALAR)
    # This plan is within the limits too, and no worse than what was cut to them.
    assert made.solution.value <= value * (1.0 + SCALAR)
    (told,) = (each for each in findings(told_of(made)) if each.key == "earlier")
    assert ("they exceed maximum rates or host limits" in told.sentence) == (share < 1.0)
    made.write(tmp_path / "plan")
    page = (tmp_path / "plan" / "report.html").read_text()
    assert ("they exceed maximum rates or host limits" in page) == (share < 1.0)


def test_few_changes_of_a_plan(log: fo.CrawlLog, tmp_path: Path) -> None:
    earlier = fo.plan(log, 5.0, 14.0, draws=0, objective=BinaryFreshness(PERIODIC))
    made = fo.plan(log, 6.0, 14.0, draws=0, compare=earlier, max_churn="25 %")
    assert made.few is not None
    assert made.few.most == 3
    kept = made.solution.rates == earlier.solution.rates
    assert np.count_nonzero(~kept) == made.few.changed <= 3
    free = fo.plan(log, 6.0, 14.0, draws=0, load_limit=1.0)
    loss = made.solution.value - free.solution.value
    assert made.few.loss == pytest.approx(loss, rel=SCALAR)
    assert made.phases is None
    made.write(tmp_path / "plan")
    facts = json.loads((tmp_path / "plan" / "summary.json").read_text())
    assert facts["few_changes"]["changed"] == facts["changes"]["changed"] == made.few.changed
    assert facts["status"] == "inaccurate"
    table = pl.read_parquet(tmp_path / "plan" / "changes.parquet")
    assert table.columns == ["source", "old_rate", "rate", "old_interval", "interval", "gain"]
    assert len(table.filter(pl.col("gain") > 0.0)) == made.few.changed
    assert "Most old intervals are kept" in repr(made)


@pytest.mark.exhaustive
def test_the_command_compares_with_folders_and_tables(run: Run) -> None:
    crawl_log().write_parquet("log.parquet")
    run(*JOB, "--out", "old")
    same = fields(run(*JOB, "--details", "--out", "new", "--compare", "old", "--load-limit", "1").output)
    assert same["changes"].startswith("0 of ")
    again = fields(run(*JOB, "--details", "--out", "new", "--overwrite", "--compare", "new").output)
    assert again["changes"].startswith("0 of ")
    rates = pl.read_parquet("old/rates.parquet")
    rates.select("source", interval=pl.lit("240h")).write_csv("old.csv")
    few = ("--out", "few", "--compare", "old.csv", "--max-churn", "50%")
    output = run(*JOB, "--details", *few).output
    assert "The 4 changes that bring most:" in output
    assert "4 of 8 intervals changed, at most 4;" in " ".join(output.split())
    assert output.count("10 days") >= 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--max-churn", "10%"), ("--compare OLD",)),
        (("--compare", "missing"), ("there is no folder or file missing",)),
        (("--compare", "rates.csv", "--max-churn", "2"), ("--max-churn 2 has no %. Write 2% or 0.02.",)),
        (("--compare", "rates.csv", "--max-churn", "200%"), ("--max-churn", "not between 0 and 100 %")),
        (("--compare", "rates.csv", "--max-churn", "x"), ("--max-churn", "cannot be read")),
        (("--compare", "rates.csv"), ("no source has an earlier rate", "'other'")),
        (("--compare", "zero.csv"), ("interval in row 1, line 2 of zero.csv", "no time > 0")),
        (("--compare", "empty"), ("holds no table rates",)),
        (("--compare", "rates.csv", "--engine", "dask"), ("--compare is for --engine memory",)),
        (("--freshness", "99%"), ("--freshness stands in place of --bandwidth",)),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(
    arguments: tuple[str, ...], words: tuple[str, ...], here: Path
) -> None:
    crawl_log().write_parquet("log.parquet")
    Path("rates.csv").write_text("source,rate\nother,1\n")
    Path("zero.csv").write_text("source,interval\npage/1,0\n")
    Path("empty").mkdir()
    refuse(here, [*JOB, "--out", "plan", *arguments], words)


@pytest.mark.parametrize(
    ("text", "unit", "rates"),
    [
        ("source,interval\na,12h\nb,\nc,4\n", "day", [2.0, 0.0, 0.25]),
        ("source,rate\na,2/week\nb,0\nc,3\n", "week", [2.0, 0.0, 3.0]),
        ("source,rate,time_unit\na,1/day,hour\nb,2,hour\nc,0,hour\n", "day", [1.0 / 24.0, 2.0, 0.0]),
    ],
)
def test_rates_in_force_are_read_with_units(text: str, unit: str, rates: list[float], tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(text)
    table = rates_in_force_of(path, unit)
    assert table.rates.tolist() == pytest.approx(rates, rel=1e-15)
    assert table.time_unit == ("hour" if "time_unit" in text else unit)


def test_freshness_on_the_command_line(run: Run) -> None:
    crawl_log().write_parquet("log.parquet")
    job = ("plan", "log.parquet", "--horizon", "7d", "--draws", "0", "--freshness")
    shown = " ".join(run(*job, "80%", "--details", "--out", "plan").output.split())
    facts = json.loads(Path("plan/summary.json").read_text())
    assert facts["objective"] == "BinaryFreshness"
    assert "80 % fresh needs " in shown
    today = run(*job, "today", "--details", "--out", "today").output
    assert "as fresh as today" not in today
    facts = json.loads(Path("today/summary.json").read_text())
    assert facts["bandwidth"] == facts["today"]["needed"]
    for more, word in (("--objective", "age"), ("--target", "99%"), ("--engine", "dask")):
        refuse(Path(), [*job, "80%", "--out", "no", more, word], ("--freshness",))
    capped = [*job, "99%", "--max-rate", "0.001", "--out", "no"]
    refuse(Path(), capped, ("out of reach", "max_rate everywhere"))
