"""The page of a plan of lifetimes: well-formed, escaped, and saying what summary and tables say."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.report import write_report
from freshopt.tools import CacheControl
from tests.ground_truth.page_reader import PageReader
from tests.ground_truth.refusals import refused
from tests.report.test_page import ODD

ON_REQUEST = fo.Refresh.ON_REQUEST
SECTIONS = ["comparison", "bandwidth", "lifetimes", "sources", "certainty", "proof", "made", "words"]
# Names, request rates, bandwidth, objective, and what else was asked.
KINDS: dict[str, tuple[list[str], Any, float, fo.Objective, dict[str, Any]]] = {
    "plain": ([f"/{k}" for k in range(30)], 40.0, 90.0, HarmonicStaleness(ON_REQUEST), {}),
    "starved": ([f"/{k}" for k in range(30)], 2.0, 3.0, BinaryFreshness(ON_REQUEST), {}),
    "free": ([f"/{k}" for k in range(4)], 0.2, 50.0, AccumulatedDelay(ON_REQUEST), {}),
    "odd": (ODD, 9.0, 20.0, BinaryFreshness(ON_REQUEST), {"max_rate": 5.0, "importance": 2.0}),
    "one": (["/"], 3.0, 1.0, HarmonicStaleness(ON_REQUEST), {}),
    "many": ([f"/{k}" for k in range(1200)], 30.0, 600.0, BinaryFreshness(ON_REQUEST), {}),
}


def made(kind: str) -> fo.LifetimePlan:
    names, asked, bandwidth, objective, more = KINDS[kind]
    rng, n = np.random.default_rng(3), len(names)
    chance = -np.expm1(-(10.0 ** rng.uniform(-1.5, 0.8, n)))
    changed = [bool(day and rng.random() < chance[k]) for k in range(n) for day in range(9)]
    log = fo.CrawlLog([name for name in names for _ in range(9)], [float(d) for d in range(9)] * n, changed)
    rates = np.asarray(asked) * 10.0 ** rng.uniform(-1.0, 1.0, n)
    return fo.plan_lifetimes(log, rates, bandwidth, objective=objective, **more)


@pytest.fixture(scope="module", params=KINDS)
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("lifetimes") / request.param
    made(request.param).write(
        folder, None if request.param == "odd" else CacheControl(), csv=request.param == "odd"
    )
    return request.param, folder


def opened(folder: Path) -> tuple[dict[str, Any], PageReader]:
    facts: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return facts, PageReader((folder / "report.html").read_text(encoding="utf-8"))


def test_its_sections_and_numbers_are_those_of_the_summary(plan: tuple[str, Path]) -> None:
    kind, folder = plan
    facts, page = opened(folder)
    assert list(page.sections) == SECTIONS
    assert page.links[: len(SECTIONS)] == [f"#{anchor}" for anchor in SECTIONS]
    fresh = facts["requests_see_fresh"]
    top = [facts[key] for key in ("value", "bound", "gap", "price", "bandwidth_used", "request_rate")]
    counts = [
        many for key in ("never_fetched", "fetched_at_each_request") if (many := facts["counts"][key]) > 0
    ]
    assert {*top, *counts, *facts["baselines"].values(), *fresh.values()} <= page.values()
    assert "Proved optimal" in page.sections["proof"]
    (lead,) = (line for line in page.prose.splitlines() if line.startswith("With "))
    shares = [float(share) for share in re.findall(r"([\d.]+)\xa0%", lead)]
    assert shares == pytest.approx(
        [100 * share for key, share in fresh.items() if key != "over time"], abs=0.05
    )
    assert "requests up to date" in page.text or kind == "free"
    assert "time up to date" not in page.text
    for value, text in page.data:
        shown = re.fullmatch(r"[\d,.]+(?:e[+-]\d+)?", text)
        if shown:
            assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-4 if value else 0.0)


def test_its_rows_are_those_of_the_tables(plan: tuple[str, Path]) -> None:
    kind, folder = plan
    _, page = opened(folder)
    ending, read = (".csv", pl.read_csv) if kind == "odd" else (".parquet", pl.read_parquet)
    life, known, each = (
        read(folder / f"{name}{ending}") for name in ("lifetimes", "change_rates", "per_source")
    )
    rows = page.blocks["sources-data"]
    columns = dict(zip((head for head, _ in rows["fields"]), rows["columns"], strict=True))
    order = sorted(range(len(each)), key=lambda k: -(each["cost"][k] or 0.0))
    shown = [math.inf if value is None else value for value in columns["expires after"]]
    expected = life["lifetime"].fill_null(math.inf).to_list()
    assert shown == pytest.approx([expected[k] for k in order], rel=1e-5)
    asked = known["request_rate"].to_list()
    assert columns["requests per day"] == pytest.approx([asked[k] for k in order], rel=1e-5)
    assert ("importance" in columns) == (kind == "odd")
    # The share of a source's requests that find a fresh copy, by its formula.
    d, z, p, t = (
        np.array(frame[key].fill_null(math.inf), dtype=float)
        for frame, key in (
            (known, "change_rate"),
            (known, "request_rate"),
            (life, "rate"),
            (life, "lifetime"),
        )
    )
    some = p > 0.0
    share = np.zeros(len(p))
    share[some] = p[some] / z[some] - p[some] / d[some] * np.expm1(-d[some] * t[some])
    np.testing.assert_allclose(each["fresh"].to_numpy(), share, rtol=1e-9, atol=1e-12)


def test_pictures_have_every_source(plan: tuple[str, Path]) -> None:
    kind, folder = plan
    facts, page = opened(folder)
    n = facts["counts"]["sources"]
    if kind == "many":
        found = [tip for tip in page.tooltips if ", lifetime " in tip]
        sizes = [int(tip.partition(" source")[0].replace(",", "")) for tip in found]
        assert sum(sizes) == 2 * n
    else:
        assert sum(" requests per day" in tip and " changes and " in tip for tip in page.tooltips) == 2 * n
    never, always = (facts["counts"][key] for key in ("never_fetched", "fetched_at_each_request"))
    told = page.sections["lifetimes"]
    assert ("The row above" in told, "The row below" in told) == (never > 0, always > 0)
    assert {"starved": never > 0, "free": always == n}.get(kind, True)


def test_it_can_be_read_aloud_and_made_again(plan: tuple[str, Path], tmp_path: Path) -> None:
    _, folder = plan
    _, page = opened(folder)
    assert all(table.caption for table in page.tables)
    assert all(len(label.split()) > 4 for label in page.labels)
    before = (folder / "report.html").read_bytes()
    assert write_report(folder, tmp_path / "again.html").read_bytes() == before


def test_a_notebook_shows_it(tmp_path: Path) -> None:
    lifetimes = made("one")
    assert lifetimes.report().startswith("<!DOCTYPE html>")
    assert "<iframe" in lifetimes._repr_html_()
    lifetimes.write(tmp_path / "plan")
    pl.DataFrame({"rate": [1.0] * 2, "lifetime": [1.0] * 2}).write_parquet(
        tmp_path / "plan" / "lifetimes.parquet"
    )
    refused(
        r"change_rates\.parquet has 1 rows and .*lifetimes\.parquet has 2", write_report, tmp_path / "plan"
    )
