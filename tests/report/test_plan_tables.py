"""What a page reads: folders of many sources, of parts, cut short or damaged; and the command for it."""

import json
import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import freshopt as fo
from freshopt.cli import main
from freshopt.distributed import plan as plan_in_parts
from freshopt.numerics.arrays import Array
from freshopt.planning.plan import make_plan
from freshopt.planning.plan_files import write_plan
from freshopt.report import write_report
from freshopt.report.axis import Scale, nice, tick_texts
from freshopt.report.context import Context, Facts
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.source_findings import EMBEDDED
from freshopt.report.source_sample import GRID, POINTS, survey
from tests.ground_truth.command_lines import refuse
from tests.ground_truth.page_reader import PageReader
from tests.ground_truth.plans import crawls, plan_request
from tests.ground_truth.refusals import present

SUMMARY = "summary.json"
# Sections that are made of the tables alone.
READ = ("rates", "sources")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "plan"
    write_plan(make_plan(fo.CrawlLog(**crawls()), plan_request(draws=3)), folder)
    return folder


@pytest.fixture
def plan(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "plan"))


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    facts = json.loads((folder / SUMMARY).read_text())
    edit(facts)
    (folder / SUMMARY).write_text(json.dumps(facts))


def many(folder: Path, n: int) -> dict[str, Array]:
    """Put the tables of n sources into a folder, some never refreshed, some with endless intervals."""
    rng = np.random.default_rng(8)
    change_rate = np.exp(rng.normal(-2.0, 2.0, n))
    rate = np.where(rng.random(n) < 0.2, 0.0, np.sqrt(change_rate) * np.exp(rng.normal(0.0, 0.5, n)))
    lower, upper = np.where(rng.random(n) < 0.1, 0.0, 0.5 * change_rate), 3.0 * change_rate
    upper[:3] = np.inf
    weight = np.where(rng.random(n) < 0.01, 0.0, rng.pareto(1.2, n))
    names = [f"<i>{k}" for k in range(n)]
    known = {"change_rate": change_rate, "lower": lower, "upper": upper, "importance": weight}
    pl.DataFrame({"source": names, **known}).write_parquet(folder / "change_rates.parquet")
    pl.DataFrame({"source": names, "rate": rate}).write_parquet(folder / "rates.parquet")
    further = {"crawl_rate": np.where(change_rate < 0.01, np.nan, 1.0), "cost": rng.pareto(2.0, n)}
    own = pl.DataFrame({"source": names, **further}).with_columns(pl.col("crawl_rate").fill_nan(None))
    own.write_parquet(folder / "per_source.parquet")
    time = np.sort(rng.uniform(0.0, 14.0, 5 * n))
    pl.DataFrame({"source": names * 5, "time": time}).write_parquet(folder / "schedule.parquet")
    counts = {"sources": n, "refreshes": 5 * n, "never_refreshed": int(np.sum(rate == 0.0))}
    change(folder, lambda facts: facts["counts"].update(counts))
    return {**known, "rate": rate}


@pytest.mark.parametrize(("importance", "drawn"), [([0.0, 1.0, 1.0], False), ([0.0, 1.0, 2.0], True)])
def test_importances_that_sources_do_not_differ_in_are_not_drawn(
    importance: list[float], drawn: bool
) -> None:
    """Sources that ended have no importance, whether or not the others have any of their own."""
    known = {"source": ["a", "b", "c"], "change_rate": [1.0, 2.0, 3.0], "rate": [0.0, 1.0, 2.0]}
    known |= {"lower": [0.5, 1.0, 2.0], "upper": [2.0, 4.0, 5.0], "importance": importance}
    seen = survey(lambda: [pl.DataFrame(known)])
    assert (seen.by_importance is not None, seen.weighed, seen.idle) == (drawn, drawn, True)


@pytest.mark.exhaustive
def test_a_hundred_thousand_sources_make_a_small_page(plan: Path) -> None:
    n = 100_000
    part = many(plan, n)
    text = write_report(plan).read_text(encoding="utf-8")
    assert len(text.encode()) < 1_000_000
    page = PageReader(text)
    assert not [label for label in page.tooltips if "<i>" in label]
    listed = page.blocks["sources-data"]["columns"]
    cost = pl.read_parquet(plan / "per_source.parquet")["cost"].to_numpy()
    place = np.argsort(-cost, kind="stable")[:EMBEDDED]
    assert listed[0] == [f"<i>{k}" for k in place.tolist()]
    assert f"the page leaves out the other {n - EMBEDDED:,}" in page.sections["sources"]
    assert "change_rates.parquet and rates.parquet and per_source.parquet" in page.sections["sources"]
    never = int(np.count_nonzero(part["rate"] == 0.0))
    assert f"{never:,} sources never refreshed" in page.sections["rates"]
    seen = survey(PlanFolder(plan, Context.of(Facts.of(plan))).sources)
    assert seen.points is None
    assert (seen.n, seen.never) == (n, never)
    for cells, values in (
        (seen.by_change_rate, part["change_rate"]),
        (present(seen.by_importance), part["importance"]),
    ):
        assert np.sum(cells.many) + np.sum(cells.never) == n
        edges = [
            np.geomspace(scale.low, scale.high, size + 1)
            for scale, size in zip((cells.x, cells.y), GRID, strict=True)
        ]
        some = (part["rate"] > 0.0) & (values > 0.0)
        expected = np.histogram2d(values[some], part["rate"][some], edges)[0]
        idle = np.bincount(
            np.searchsorted(edges[1], part["rate"][(part["rate"] > 0.0) & (values == 0.0)]) - 1,
            minlength=GRID[1],
        )
        expected[0] += idle
        assert np.abs(cells.many - expected).sum() <= 2  # numbers on an edge
    assert np.sum(seen.gaps) == n - seen.never
    assert np.sum(seen.reach[0]) == n


def test_parts_of_tables_are_read_like_whole_ones(made: Path, plan: Path, tmp_path: Path) -> None:
    part = many(plan, 3 * POINTS)
    (plan / "per_source.parquet").unlink()  # a plan in partitions has none
    whole = write_report(plan, tmp_path / "whole.html").read_text()
    for table in ("change_rates", "rates", "schedule"):
        frame = pl.read_parquet(plan / f"{table}.parquet")
        (plan / f"{table}.parquet").unlink()
        (plan / table).mkdir()
        for k in range(3):
            frame[k * len(frame) // 3 : (k + 1) * len(frame) // 3].write_parquet(
                plan / table / f"part-0000{k}.parquet"
            )
    text = write_report(plan, tmp_path / "parts.html").read_text()
    assert text.replace("part-00000.parquet", "NAME") == _renamed(whole)
    assert len(part["rate"]) == 3 * POINTS
    assert made.exists()


def _renamed(text: str) -> str:
    for table in ("change_rates", "rates", "schedule"):
        text = text.replace(f"{table}.parquet", "NAME")
    return text


def test_a_plan_in_partitions_has_a_page_on_request(tmp_path: Path) -> None:
    frame = pl.DataFrame(crawls())
    (tmp_path / "in").mkdir()
    for k in range(3):
        own = [name for j, name in enumerate(sorted(set(frame["source"]))) if j % 3 == k]
        frame.filter(pl.col("source").is_in(own)).write_parquet(tmp_path / "in" / f"{k}.parquet")
    plan_in_parts(tmp_path / "in", plan_request(), tmp_path / "out")
    assert not (tmp_path / "out" / "report.html").exists()
    page = PageReader(write_report(tmp_path / "out").read_text())
    facts = json.loads((tmp_path / "out" / SUMMARY).read_text())
    assert {facts["value"], facts["bound"]} <= page.values()
    assert "bandwidth" not in page.sections  # what needs the problem was not kept
    assert {*READ, "comparison", "proof", "load", "certainty", "made", "words"} == set(page.sections)
    plan_in_parts(
        tmp_path / "in", plan_request(), tmp_path / "out", overwrite=True
    )  # the page is part of the plan


def test_few_sources_are_drawn_one_by_one(plan: Path) -> None:
    many(plan, POINTS)
    page = PageReader(write_report(plan).read_text())
    assert len([tip for tip in page.tooltips if tip.startswith("<i>")]) == 3 * POINTS
    many(plan, POINTS + 1)
    page = PageReader(write_report(plan).read_text())
    assert not [tip for tip in page.tooltips if tip.startswith("<i>")]


def test_a_summary_of_an_earlier_version_has_fewer_sections(plan: Path) -> None:
    def forget(facts: dict[str, Any]) -> None:
        for key in ("findings", "settings", "log", "uncertainty"):
            del facts[key]

    change(plan, forget)
    page = PageReader(write_report(plan).read_text())
    assert set(page.sections) == {
        *READ,
        "changes",
        "comparison",
        "proof",
        "load",
        "certainty",
        "made",
        "words",
    }


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no summary": (lambda folder: (folder / SUMMARY).unlink(), "holds no summary.json"),
    "no JSON": (lambda folder: (folder / SUMMARY).write_text("{"), "cannot be read as JSON"),
    "no text": (lambda folder: (folder / SUMMARY).write_bytes(b"\xff\xfe{"), "cannot be read as JSON"),
    "deep": (lambda folder: (folder / SUMMARY).write_text("[" * 100_000), "cannot be read as JSON"),
    "a list": (lambda folder: (folder / SUMMARY).write_text("[1]"), "not a JSON object"),
    "no counts": (partial(change, edit=lambda facts: facts.pop("counts")), "has no counts"),
    "value": (partial(change, edit=lambda facts: facts.update(value="x")), "value is 'x', not a number"),
    "NaN": (partial(change, edit=lambda facts: facts.update(price=math.nan)), "price is nan, not a number"),
    "unit": (partial(change, edit=lambda facts: facts.update(time_unit="moon")), "'moon' is not known"),
    "horizon": (
        partial(change, edit=lambda facts: facts.update(horizon=0)),
        "horizon is 0, not a number > 0",
    ),
    "bandwidth": (
        partial(change, edit=lambda facts: facts.update(bandwidth=-1)),
        "bandwidth is -1, not a number > 0",
    ),
    "flags": (partial(change, edit=lambda facts: facts["counts"].update(flags=[1])), "counts.flags is [1]"),
    "interval": (
        partial(change, edit=lambda facts: facts["forecast"].update(value_90_percent=[1.0])),
        "forecast.value_90_percent is [1.0], not a list of two numbers",
    ),
    "no interval": (
        partial(change, edit=lambda facts: facts["forecast"].pop("value_90_percent")),
        "forecast.value_90_percent is missing, not a list of two numbers",
    ),
    "shortest": (
        partial(change, edit=lambda facts: facts["intervals"].pop("shortest")),
        "intervals.shortest.interval is missing, not a number > 0",
    ),
    "rows": (
        partial(change, edit=lambda facts: facts["findings"].update(held_back=[3])),
        "findings.held_back is [3], not a list of objects",
    ),
    "moment": (partial(change, edit=lambda facts: facts["log"].update(end="soon")), "log.end is no moment"),
    "count": (partial(change, edit=lambda facts: facts["counts"].update(sources=13)), "are not of one plan"),
    "no rates": (lambda folder: (folder / "rates.parquet").unlink(), "holds no table rates"),
    "bytes": (lambda folder: (folder / "rates.parquet").write_bytes(b"PAR1"), "cannot be read as Parquet"),
    "column": (
        lambda folder: pl.DataFrame({"x": [1]}).write_parquet(folder / "schedule.parquet"),
        "has no column 'time'",
    ),
    "rate": (
        lambda folder: pl.DataFrame({"rate": [-1.0] * 12}).write_parquet(folder / "rates.parquet"),
        "does not hold numbers >= 0",
    ),
    "text": (
        lambda folder: pl.DataFrame({"rate": ["x"] * 12}).write_parquet(folder / "rates.parquet"),
        "does not hold numbers >= 0",
    ),
    "short per_source": (
        lambda folder: pl.DataFrame({"crawl_rate": [1.0] * 3}).write_parquet(folder / "per_source.parquet"),
        "per_source.parquet has 3",
    ),
    "short": (
        lambda folder: pl.DataFrame({"rate": [1.0] * 3}).write_parquet(folder / "rates.parquet"),
        "has 12 rows and",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_in_one_line(damage: str, plan: Path) -> None:
    harm, words = DAMAGES[damage]
    harm(plan)
    refuse(plan, ["report", str(plan)], (words,))


def test_the_command_writes_the_page(plan: Path, tmp_path: Path) -> None:
    before = (plan / "report.html").read_bytes()
    (plan / "report.html").write_text("old")
    refuse(plan, ["report", str(plan)], ("report.html already exists", "--overwrite"))
    told = CliRunner().invoke(main, ["report", str(plan), "--overwrite"])
    assert (told.exit_code, told.output) == (0, f"wrote {plan / 'report.html'}\n")
    assert (plan / "report.html").read_bytes() == before
    other = tmp_path / "other.html"
    assert CliRunner().invoke(main, ["report", str(plan), "--out", str(other)]).exit_code == 0
    assert other.read_bytes() == before
    refuse(plan, ["report", str(plan), "--out", str(other)], ("already exists", "--overwrite"))
    assert CliRunner().invoke(main, ["report", str(plan), "--out", str(other), "--overwrite"]).exit_code == 0
    refuse(plan, ["report", str(tmp_path / "nowhere")], ("there is no folder",))
    refuse(plan, ["report", str(other)], ("there is no folder",))


@pytest.mark.usefixtures("here")
def test_the_command_of_a_plan_is_kept_to_be_run_again() -> None:
    pl.DataFrame(crawls()).write_csv("my log.csv")
    words = ["my log.csv", "--bandwidth", "9/day", "--horizon", "7d", "--seed", "4", "--csv"]
    assert CliRunner().invoke(main, ["plan", *words, "--out", "plan", "--overwrite"]).exit_code == 0
    told = json.loads(Path("plan", SUMMARY).read_text())["command"]
    assert told == "freshopt plan 'my log.csv' --bandwidth 9/day --horizon 7d --seed 4 --csv --out DIR"
    assert told in PageReader(Path("plan", "report.html").read_text()).sections["made"]


@pytest.mark.parametrize("decades", [0.3, 2.0, 9.0, 80.0])
def test_logarithmic_axes_have_some_round_ticks(decades: float) -> None:
    for low in (3e-30, 0.7, 2e5):
        scale = Scale(low, low * 10.0**decades, 0.0, 300.0, logarithmic=True)
        ticks = scale.ticks()
        assert 1 <= len(ticks) <= 10
        assert ticks == sorted(ticks)
        assert all(low <= tick <= scale.high for tick in ticks)
        assert all(len(text) <= 9 for text in tick_texts(ticks))
        places = scale(np.array(ticks))
        shares = np.log(np.array(ticks) / low) / np.log(scale.high / low)
        assert places == pytest.approx(300.0 * shares, abs=0.051)


def test_linear_axes_have_round_ticks() -> None:
    for span in np.geomspace(1e-9, 1e9, 37):
        step = nice(float(span), 5)
        assert 1.0 <= span / step <= 5.0 + 1e-6
        assert f"{step:.0e}"[0] in "125"
        ticks = Scale(0.0, float(span), 0.0, 1.0).ticks(5)
        assert np.diff(ticks) == pytest.approx(step)


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:  # noqa: ANN401
    """Return the path of everything in a summary."""
    keys = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in keys for place in places(inner, (*path, key)))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.data())
@pytest.mark.exhaustive
def test_any_other_value_in_the_summary_gives_a_page_or_one_line(
    made: Path, plan: Path, data: st.DataObject
) -> None:
    facts = json.loads((made / SUMMARY).read_text())
    *path, last = data.draw(st.sampled_from(places(facts)[1:]))
    inner = facts
    for key in path:
        inner = inner[key]
    inner[last] = data.draw(ANYTHING)
    (plan / SUMMARY).write_text(json.dumps(facts))
    try:
        told = write_report(plan).read_text(encoding="utf-8")
    except fo.SourceDataError as error:
        told = str(error)
    if told.startswith("<!DOCTYPE"):
        PageReader(told)
    else:
        assert "\n" not in told
        assert told.endswith(".")
