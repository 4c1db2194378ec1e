"""Columns of one's own that a planner keeps: restarts, changes by hand, and sources that come late."""

import json
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.cvx import Expression, cp
from tests.ground_truth.command_lines import Run
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import SCALAR

ROOT = Path(__file__).parents[2]
SIZES = {"a": 1.0, "b": 4.0, "c": 16.0}
KINDS = {"a": "page", "b": "page", "c": "feed"}


@dataclass(frozen=True)
class Sized(fo.Objective):
    """Σ size/ρ: best rates are as the roots of the sizes; feeds count half."""

    refresh: fo.Refresh = fo.Refresh.PERIODIC

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        size = sources["size"]
        if "kind" in sources.columns:
            size = np.where(sources["kind"] == "feed", 0.25 * size, size)
        return cp.multiply(size, cp.inv_pos(rate))


def opened(folder: Path, **settings: object) -> fo.Planner:
    return fo.Planner(folder, "7/day", objective=Sized(), explore=0.0, burst="1d", **settings)  # type: ignore[arg-type]


def crawled(planner: fo.Planner, begin: float, end: float) -> None:
    """Crawl what is due until all rates are those of a full plan."""
    for now in np.arange(begin, end, 0.1).tolist():
        for visit in planner.due(now, limit=None):
            planner.observed(visit.source, now, changed=False)
    planner.replan(end)


def rates(planner: fo.Planner) -> list[float]:
    found: list[float] = planner.to_frame().sort("source")["rate"].to_list()
    return found


def test_columns_are_kept_by_another_process(tmp_path: Path) -> None:
    with opened(tmp_path, source_columns={"size": SIZES}) as planner:
        planner.add_many([*SIZES])
        crawled(planner, 0.0, 3.0)
        assert rates(planner) == pytest.approx([1.0, 2.0, 4.0], rel=SCALAR)
        assert present(planner.solution().certificate).relative_gap < SCALAR
    code = (
        "import sys, freshopt as fo\n"
        "from tests.live.test_own_columns import Sized, rates\n"
        "with fo.Planner(sys.argv[1], objective=Sized()) as planner:\n"
        "    planner.replan(3.1)\n"
        "    print(rates(planner), planner.status(3.1).relative_gap < 1e-9)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    told, proved = found.stdout.strip().rsplit(" ", 1)
    assert json.loads(told) == pytest.approx([1.0, 2.0, 4.0], rel=SCALAR)
    assert proved == "True"


def test_another_opening_changes_what_runs(tmp_path: Path) -> None:
    with opened(tmp_path, source_columns={"size": SIZES}) as running:
        running.add_many([*SIZES])
        crawled(running, 0.0, 3.0)
        before = running.status(3.0).solves
        with fo.Planner(tmp_path, objective=Sized(), source_columns={"size": SIZES}) as same:
            assert not same.status(3.0).outdated  # nothing is new
        frame = pl.DataFrame({"source": ["a", "b"], "size": [16.0, None]})
        with fo.Planner(tmp_path, objective=Sized(), source_columns=frame) as other:
            assert other.status(3.0).outdated
        running.due(3.05)
        assert running.status(3.05).solves == before + 1
        assert rates(running) == pytest.approx([2.8, 1.4, 2.8], rel=SCALAR)


def test_a_table_that_is_changed_by_hand_is_followed(tmp_path: Path) -> None:
    with opened(tmp_path, source_columns={"size": SIZES}, update=0.05) as planner:
        planner.add_many([*SIZES])
        crawled(planner, 0.0, 3.0)
        with sqlite3.connect(tmp_path / "planner.sqlite") as database:
            database.execute("UPDATE source_column SET number = 16 WHERE source = 'a' AND name = 'size'")
        planner.due(3.2)
        # The certificate of the rates in force says that they are no longer good.
        assert rates(planner) == pytest.approx([2.8, 1.4, 2.8], rel=SCALAR)
        with sqlite3.connect(tmp_path / "planner.sqlite") as database:
            database.execute("DELETE FROM source_column WHERE source = 'b'")
        refused(r"there is no size of 'b', and this planner", planner.due, 3.4)


def test_new_sources_are_told_of_or_refused(tmp_path: Path) -> None:
    with opened(tmp_path, source_columns={"size": {"a": 1.0, "b": 4.0, "late": 16.0}}) as planner:
        planner.add_many(["a", "b"])
        crawled(planner, 0.0, 2.0)
        refused(r"there is no size of 'c', and this planner's objective reads it", planner.add, "c")
        refused(r"there is no size of 'c', 'd'", planner.add_many, ["late", "c", "d"])
        assert len(planner) == 2
        planner.add("late")
        planner.due(2.05)
        crawled(planner, 2.1, 3.0)
        assert rates(planner) == pytest.approx([1.0, 2.0, 4.0], rel=SCALAR)
        planner.add_many(fo.Sources(names=["d"], columns={"size": [9.0]}, change_rate=1.0))
        planner.add_many(pl.DataFrame({"source": ["e"], "size": [25.0], "other": [1.0]}))
        planner.remove("late", "b")
        crawled(planner, 3.0, 5.0)
        assert rates(planner) == pytest.approx([7 / 9, 21 / 9, 35 / 9], rel=SCALAR)
        planner.add("b")  # what was told of it is kept
        crawled(planner, 5.0, 6.0)
        assert rates(planner)[1] == pytest.approx(14 / 11, rel=SCALAR)


def test_words_beside_numbers(tmp_path: Path) -> None:
    frame = pl.DataFrame({"source": [*SIZES], "size": SIZES.values(), "kind": KINDS.values()})
    with opened(tmp_path, source_columns=frame) as planner:
        planner.add_many([*SIZES])
        crawled(planner, 0.0, 2.0)
        assert rates(planner) == pytest.approx([7 / 5, 14 / 5, 14 / 5], rel=SCALAR)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([1.0], "source_columns is"),
        ({"size": [1.0]}, "source_columns is"),
        ({"size": {"a": np.inf}}, "not finite"),
        ({"size": {"a": "x", "b": 1.0}}, "several kinds"),
        ({"importance": {"a": 1.0}}, "no name that is free"),
        (pl.DataFrame({"name": ["a"], "size": [1.0]}), "no column 'source'"),
    ],
)
def test_columns_that_cannot_be_used(tmp_path: Path, given: object, why: str) -> None:
    place = tmp_path / "state"
    refused(why, opened, place, source_columns=given)
    assert not place.exists()


def test_columns_of_sources_that_are_there_are_needed(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, "7/day") as planner:
        planner.add_many([*SIZES])
    refused("there is no size of 'c'", opened, tmp_path, source_columns={"size": {"a": 1.0, "b": 1.0}})
    with fo.Planner(tmp_path) as planner:  # nothing was changed
        assert planner.settings.objective == fo.problems.HarmonicStaleness()


MODULE = """
import freshopt as fo
from freshopt.cvx import cp

class Sized(fo.Objective):
    refresh = fo.Refresh.PERIODIC
    def per_source(self, rate, sources):
        return cp.multiply(sources["size"], cp.inv_pos(rate))
"""


def test_commands_keep_columns(run: Run) -> None:
    Path("sizedobjective.py").write_text(MODULE, encoding="utf-8")
    Path("sources.txt").write_text("a\nb\n", encoding="utf-8")
    pl.DataFrame({"source": ["b", "a"], "size": [4.0, 1.0]}).write_csv("sizes.csv")
    asked = ("run", "state", "--objective", "sizedobjective:Sized", "--once", "--command", "echo {source}")
    run(
        *asked, "-b", "1000/day", "--burst", "1d", "--sources", "sources.txt", "--source-columns", "sizes.csv"
    )
    with sqlite3.connect("state/planner.sqlite") as database:
        found = dict(database.execute("SELECT source, number FROM source_column"))
    assert found == {"a": 1.0, "b": 4.0}
    run(*asked)
    Path("more.txt").write_text("a\nb\nc\n", encoding="utf-8")
    refusal = run(*asked, "--sources", "more.txt", code=2)
    assert "there is no size of 'c'" in refusal.output
    assert "\n" not in refusal.output.strip()
    pl.DataFrame({"source": ["c", "a"], "size": [9.0, None]}).write_csv("sizes.csv")
    run(*asked, "--sources", "more.txt", "--source-columns", "sizes.csv")
    run(*asked, "--features", "sizes.csv", "--source-columns", "sizes.csv", code=2)  # no row of b
    run("run", "state", "--objective", "sizedobjective:Sized", "--features", "url")
    with sqlite3.connect("state/planner.sqlite") as database:
        ((kept,),) = database.execute("SELECT value FROM planner WHERE key = 'columns'")
    assert json.loads(kept) == ["size", "feature url"]
    none = run("run", "other", "-b", "9/day", "--sources", "more.txt", "--source-columns", "more.txt", code=2)
    assert "more.txt" in none.output


HOSTS = {"fast": 0.6, "slow": 0.02}


def visited(planner: fo.Planner, begin: float, end: float, seed: int) -> None:
    """Crawl what is due; pages of a host change as often as each other."""
    rng = np.random.default_rng(seed)
    last: dict[str, float] = {}
    for now in np.arange(begin, end, 0.5).tolist():
        for visit in planner.due(now, limit=None):
            rate = HOSTS[visit.source.split("/")[2].removesuffix(".org")]
            gap = now - last.get(visit.source, now)
            planner.observed(visit.source, now, changed=bool(rng.random() < -np.expm1(-rate * gap)))
            last[visit.source] = now


@pytest.mark.parametrize("by_url", [False, True])
@pytest.mark.sampled(2)
def test_features_tell_of_new_sources(tmp_path: Path, by_url: bool) -> None:
    names = [f"https://{host}.org/{k}" for host in HOSTS for k in range(20)]
    late = [f"https://{host}.org/late" for host in HOSTS]
    table = pl.DataFrame({"source": [*names, *late], "host": ["f"] * 20 + ["s"] * 20 + ["f", "s"]})
    told = "url" if by_url else table
    with fo.Planner(tmp_path, "60/day", features=told, burst="1d", update="6d") as planner:
        planner.add_many(names)
        planner.due(0.0, limit=None)
        assert "to be learnt once 30 sources" in planner.status(0.0).features
        visited(planner, 0.5, 12.0, seed=1)
        planner.replan(12.0)
        assert "most by 'host'" in planner.status(12.0).features
        assert any("most by 'host'" in " ".join(map(str, row)) for row in planner.status(12.0).rows())
        planner.add_many(late)
        if not by_url:
            refused(
                "there is no feature host of 'https://fast.org/other'", planner.add, "https://fast.org/other"
            )
        planner.due(12.5)
        rates = dict(planner.to_frame().select("source", "change_rate").iter_rows())
        fast, slow = (rates[name] for name in late)
        assert 0.2 < fast < 1.8
        assert fast > 5.0 * slow
    # Kept for other processes, and for updates between re-solves.
    with fo.Planner(tmp_path) as again:
        solves = again.status(12.5).solves
        visited(again, 14.75, 15.3, seed=2)
        assert again.status(15.3).solves <= solves + 1
        assert "most by 'host'" in again.status(15.3).features
        assert again.solution().certificate is not None


def test_features_beside_signals_and_own_columns(tmp_path: Path) -> None:
    names = [f"https://{host}.org/{k}" for host in HOSTS for k in range(20)]
    sizes = {"size": dict.fromkeys(names, 2.0)}
    given: Any = {"features": "url", "source_columns": sizes, "burst": "1d", "update": "6d"}
    with fo.Planner(tmp_path, "60/day", **given) as planner:
        planner.add_many(names)
        visited(planner, 0.0, 6.0, seed=3)
        planner.signal(names[0], 6.1)
        planner.replan(6.2)
        assert "1 heard" in planner.status(6.2).signals
        assert "most by 'host'" in planner.status(6.2).features
        rates = dict(planner.to_frame().select("source", "change_rate").iter_rows())
        means = [np.mean([rates[f"https://{host}.org/{k}"] for k in range(20)]) for host in HOSTS]
        assert means[0] > 5.0 * means[1]
