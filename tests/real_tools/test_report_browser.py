"""The page of a plan in Chromium: searched, sorted, pointed at, by keys, on a phone, without script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser, Locator, Page

import freshopt as fo
from freshopt.formatting import number, percent
from freshopt.planning.backtest import backtest
from freshopt.planning.plan import make_plan
from freshopt.planning.plan_files import write_files
from freshopt.problems import BinaryFreshness
from freshopt.report import write_report
from freshopt.report.source_findings import EMBEDDED
from freshopt.units import duration
from tests.ground_truth.named import PERIODIC
from tests.ground_truth.page_reader import PageReader
from tests.ground_truth.plans import dated, plan_request

N = 60
EVIL = '</script><img src=x onerror="window.harmed = 1">'
ODD = [
    EVIL,
    "<script>window.harmed = 1</script>",
    "a\"b'c&amp;d",
    "\u202eevil\u202c",
    "日本語 🦀",
    "x" * 300,
    "=1+1",
]


def names() -> list[str]:
    return ODD + [f"page/{k:02d}" for k in range(N - len(ODD))]


def many_crawls() -> dict[str, Any]:
    """Crawls of sources with change rates from 0.02 to 5 per day, over about 100 days."""
    rng = np.random.default_rng(5)
    parts = []
    for k, rate in enumerate(np.geomspace(0.02, 5.0, N)):
        at = np.sort(rng.uniform(0.0, 100.0, 60 + k))
        changed = [False, *(rng.random(len(at) - 1) < -np.expm1(-rate * np.diff(at))).tolist()]
        parts.append(pl.DataFrame({"source": [f"s{k:02d}"] * len(at), "time": at, "changed": changed}))
    return {key: column.to_numpy() for key, column in pl.concat(parts).to_dict(as_series=True).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan with dates, hosts, importances, a back-test, and sources that are never refreshed."""
    columns = dated(many_crawls())
    place = np.unique(columns["source"], return_inverse=True)[1]
    columns["source"] = np.array(names(), dtype=object)[place].astype(str)
    log = fo.CrawlLog(**columns)
    asked: dict[str, Any] = {
        "bandwidth": 8.0,
        "importance": lambda given: 1.0 + np.arange(len(given)) % 3,
        "hosts": lambda given: np.array([f"<b>host {k % 4}</b>" for k in range(len(given))]),
    }
    target = tmp_path_factory.mktemp("plans")
    made = make_plan(log, plan_request(BinaryFreshness(PERIODIC), draws=2, **asked))
    held = backtest(
        log, asked["bandwidth"], objective=BinaryFreshness(PERIODIC), importance=made.sources.importance
    )
    assert held.details is not None
    write_files(made, target, more=held.facts(), held_out=held.details.to_frame())
    return target


@pytest.fixture
def opened(browser: Browser, folder: Path) -> Iterator[Callable[..., Page]]:
    """Open the page; whatever it asks for or complains about fails the test."""
    contexts = []

    def show(path: Path | None = None, **settings: Any) -> Page:  # noqa: ANN401 - settings of a context
        context = browser.new_context(**settings)
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("request", lambda request: wrong.append(request.url))
        file = folder / "report.html" if path is None else path
        page.goto(file.as_uri())
        contexts.append((context, wrong, file))
        return page

    yield show
    for context, wrong, file in contexts:
        context.close()
        assert wrong == [file.as_uri()]


def rows(page: Page) -> list[list[str]]:
    """The rows of the table of sources, as they are read."""
    script = "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    found: list[list[str]] = page.locator("#sources-table tbody tr").evaluate_all(script)
    return found


def heads(page: Page) -> list[str]:
    found: list[str] = page.locator("#sources-table thead th").all_text_contents()
    return found


def test_names_are_text_and_nothing_else(opened: Callable[..., Page]) -> None:
    page = opened()
    page.locator("#sources-search").fill("img")
    assert [row[0] for row in rows(page)] == [EVIL]
    assert page.evaluate("window.harmed") is None
    assert page.locator("img").count() == 0


def test_nothing_runs_that_was_not_written_with_the_page(browser: Browser, folder: Path) -> None:
    page = browser.new_page()
    page.goto((folder / "report.html").as_uri())
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'harmed = 1'}))"
    )
    assert page.evaluate("window.harmed") is None
    page.close()


def test_script_shows_what_is_there_without_it(opened: Callable[..., Page]) -> None:
    plain, page = opened(java_script_enabled=False), opened()
    assert plain.locator("#sources-controls").is_hidden()
    assert plain.locator("#bandwidth-slider").is_hidden()
    assert heads(plain) == heads(page)
    assert len(rows(plain)) == 25
    assert rows(plain) == rows(page)


def test_sources_are_searched_sorted_and_filtered(opened: Callable[..., Page], folder: Path) -> None:
    page = opened()
    known = pl.read_parquet(folder / "change_rates.parquet").join(
        pl.read_parquet(folder / "rates.parquet"), on="source"
    )
    page.locator("#sources-search").fill("PAGE/1")
    assert {row[0] for row in rows(page)} == {f"page/1{k}" for k in range(10)}
    assert page.locator("#sources-status").inner_text() == "1 to 10 of 10 sources found among 60"
    page.locator("#sources-search").fill("")

    changes = heads(page).index("changes per day")
    page.get_by_role("button", name="changes per day").click()
    fastest = known.sort("change_rate", descending=True)
    assert [row[0] for row in rows(page)][:5] == [shown(name) for name in fastest["source"][:5]]
    assert rows(page)[0][changes] == number(float(f"{fastest['change_rate'][0]:.5g}"))
    page.get_by_role("button", name="changes per day").press("Enter")
    assert rows(page)[0][0] == shown(fastest["source"][-1])
    head = page.locator("#sources-table thead th").nth(changes)
    assert head.get_attribute("aria-sort") == "ascending"

    page.locator("#sources-show").select_option(label="never refreshed")
    never = known.filter(pl.col("rate") == 0.0)
    assert 0 < len(never) < N
    assert f" of {len(never)} source" in page.locator("#sources-status").inner_text()
    assert {row[heads(page).index("refresh every")] for row in rows(page)} == {"never"}
    page.locator("#sources-show").select_option(label="host: <b>host 1</b>")
    assert {row[heads(page).index("host")] for row in rows(page)} == {"<b>host 1</b>"}


def shown(name: str) -> str:
    """A name without its middle where it is long."""
    return name if len(name) <= 120 else f"{name[:59]}…{name[-59:]}"


def test_what_is_found_is_saved_as_csv(opened: Callable[..., Page], folder: Path) -> None:
    """All rows that were found, in their order; a text is none of a spreadsheet's formulas."""
    page = opened()
    page.locator("#sources-sort").select_option(label="source")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download as CSV").click()
    assert waiting.value.suggested_filename == "sources.csv"
    raw = Path(waiting.value.path()).read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    saved = pl.read_csv(raw, infer_schema_length=None)
    assert sorted(saved["source"]) == sorted(shown(name).replace("=1+1", "'=1+1") for name in names())
    known = pl.read_parquet(folder / "change_rates.parquet").with_columns(
        pl.col("source").replace({"=1+1": "'=1+1"}).map_elements(shown, return_dtype=pl.String)
    )
    both = saved.join(known, on="source")
    assert len(both) == N
    assert both["changes per day"].to_numpy() == pytest.approx(both["change_rate"].to_numpy(), rel=1e-5)
    assert saved["refresh every, days"].null_count() > 0
    page.locator("#sources-search").fill("page/07")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download as CSV").click()
    assert len(pl.read_csv(waiting.value.path())) == 1


def test_words_are_explained_where_they_stand(opened: Callable[..., Page]) -> None:
    page = opened()
    word = page.locator("#bandwidth abbr", has_text="hadow price").first
    word.focus()
    meaning = page.locator("#glossary dt", has_text="shadow price").locator("xpath=following-sibling::dd[1]")
    assert page.locator(".tip").inner_text() == meaning.inner_text()
    word.press("Escape")
    assert page.locator(".tip").is_hidden()
    word.hover()
    assert page.locator(".tip").is_visible()
    assert page.locator("abbr abbr, button abbr, #glossary abbr").count() == 0
    plain = opened(java_script_enabled=False)
    assert plain.locator("#glossary dt").first.is_visible()
    assert plain.locator("abbr").count() == 0


def test_leaves_are_turned(opened: Callable[..., Page]) -> None:
    page = opened()
    seen = [row[0] for row in rows(page)]
    following = page.get_by_role("button", name="next", exact=True)
    while following.is_enabled():
        following.click()
        seen += [row[0] for row in rows(page)]
    assert sorted(seen) == sorted(shown(name) for name in names())
    page.get_by_role("button", name="previous").click()
    assert page.locator("#sources-status").inner_text() == "26 to 50 of 60 sources"


def visible(page: Page) -> list[Locator]:
    return [chart for chart in page.locator("svg.chart").all() if chart.is_visible()]


@pytest.mark.parametrize("width", [1280, 360])
def test_every_mark_of_every_chart_tells_its_values(
    width: int, opened: Callable[..., Page], folder: Path
) -> None:
    told = PageReader((folder / "report.html").read_text(encoding="utf-8")).tooltips
    page = opened(viewport={"width": width, "height": 900})
    charts = visible(page)
    assert len(charts) == page.locator("figure").count() >= 12
    found = set()
    for chart in charts:
        chart.focus()
        chart.press("Home")
        many = int(chart.get_attribute("aria-valuemax") or 0)
        assert many >= 2
        for k in range(many):
            assert chart.get_attribute("aria-valuenow") == str(k + 1)
            text = chart.get_attribute("aria-valuetext")
            assert page.locator(".tip").text_content() == text
            found.add(text)
            chart.press("ArrowRight")
        chart.press("Escape")
        assert page.locator(".tip").is_hidden()
    assert found <= set(told)
    assert {tip for tip in told if tip.startswith("page/07: ")} <= found


def test_the_nearest_mark_is_told_under_the_pointer(opened: Callable[..., Page]) -> None:
    page = opened()
    chart = page.locator("#load svg.chart.wide")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    seen = []
    for share in (0.2, 0.5, 0.8):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
        tip = page.locator(".tip").bounding_box()
        seen.append(page.locator(".tip").inner_text())
        assert tip is not None
        assert tip["x"] >= 0.0
        assert tip["x"] + tip["width"] <= 1280.0
    assert len(set(seen)) == 3
    assert all("refresh" in text and "2024-" in text for text in seen)
    page.mouse.move(0, 0)
    assert page.locator(".tip").is_hidden()


def test_the_slider_shows_what_was_solved(opened: Callable[..., Page], folder: Path) -> None:
    page = opened()
    points = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["findings"]["frontier"]
    slider = page.get_by_label("Bandwidth, among those that were solved")
    assert int(slider.get_attribute("max") or 0) == len(points) - 1
    own = next(k for k, point in enumerate(points) if point["bandwidth"] == 8.0)
    slider.focus()
    for step, key in ((0, None), (1, "ArrowRight"), (len(points) - 1 - own, "End"), (-own, "Home")):
        if key:
            slider.press(key)
        point = points[own + step]
        text = page.locator("#bandwidth-slider dl").inner_text()
        for word in (number(point["bandwidth"]), percent(point["fresh"]), number(point["price"])):
            assert word in text
        assert f"up to date {percent(point['fresh'])}" in (slider.get_attribute("aria-valuetext") or "")
        assert page.locator(f"#bandwidth .point.at[data-point='{own + step}']").count() == 3
    page.get_by_role("button", name="this plan").click()
    assert number(points[own]["price"]) in page.locator("#bandwidth-slider dl").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(scheme: str, opened: Callable[..., Page]) -> None:
    page = opened(viewport={"width": 360, "height": 780}, has_touch=True, is_mobile=True, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    wide = """() => [...document.querySelectorAll("main *")].filter((each) => each.clientWidth > 2 &&
      !each.matches(".figures") &&
      each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== "visible").length"""
    assert page.evaluate(wide) == 0


def test_names_have_the_room_that_the_table_can_spare(opened: Callable[..., Page]) -> None:
    page = opened(viewport={"width": 1280, "height": 800})
    assert page.locator("#sources-table tbody th").first.evaluate("each => each.clientWidth") >= 224


def test_tables_are_as_wide_as_the_paper(opened: Callable[..., Page]) -> None:
    page = opened(viewport={"width": 718, "height": 1047})  # of A4, less margins of a centimetre
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") == 718
    wide = """() => [...document.querySelectorAll("table")].filter((each) =>
      each.offsetWidth > each.closest("section").offsetWidth).length"""
    assert page.evaluate(wide) == 0


def test_numbers_are_written_as_elsewhere(opened: Callable[..., Page]) -> None:
    rng = np.random.default_rng(4)
    values = [0.0, 1.0, 999.96, 1000.0, 12345.67, 1e9, 1e-4, 9.99996e-5, 1.5e-7, 0.5, 1e8]
    values += [float(f"{value:.5g}") for value in 10.0 ** rng.uniform(-9.0, 11.0, 300)]
    page = opened()
    assert page.evaluate("values => values.map((each) => number(each))", values) == [
        number(v) for v in values
    ]
    spans = [value for value in values if 1e-3 <= value < 1e10]
    written = [duration(value, "second") for value in spans]
    assert page.evaluate("values => values.map((each) => duration(each))", spans) == written
    shares = [float(f"{value:.7g}") for value in rng.uniform(0.0, 1.0, 300)]
    shares += [0.0, 1.0, 0.99999, 0.00012, 0.999, 0.01, 1e-7]
    written = [percent(value, even=True) for value in shares]
    assert page.evaluate("values => values.map((each) => percent(each))", shares) == written


def test_all_rows_that_the_page_has_are_searched(
    opened: Callable[..., Page], folder: Path, tmp_path: Path
) -> None:
    n, few = 100_000, EMBEDDED
    rng = np.random.default_rng(8)
    named = [f"https://example.org/{k}" for k in range(n)]
    rate = np.exp(rng.normal(-2.0, 1.0, n))
    known = {"change_rate": rate, "lower": 0.5 * rate, "upper": 2.0 * rate}
    pl.DataFrame({"source": named, **known}).write_parquet(tmp_path / "change_rates.parquet")
    pl.DataFrame({"source": named, "rate": np.sqrt(rate)}).write_parquet(tmp_path / "rates.parquet")
    pl.DataFrame({"source": named, "cost": rng.permutation(n) + 1.0}).write_parquet(
        tmp_path / "per_source.parquet"
    )
    pl.DataFrame({"source": named[:9], "time": np.arange(9.0)}).write_parquet(tmp_path / "schedule.parquet")
    facts = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    facts["counts"] |= {"sources": n, "refreshes": 9, "never_refreshed": 0}
    facts.pop("held_out")
    (tmp_path / "summary.json").write_text(json.dumps(facts), encoding="utf-8")
    page = opened(write_report(tmp_path))
    assert page.locator("#sources-status").inner_text() == f"1 to 25 of {few:,} sources"
    most = pl.read_parquet(tmp_path / "per_source.parquet").sort("cost", descending=True)["source"]
    page.locator("#sources-search").fill(most[few - 1])
    assert rows(page)[0][0] == most[few - 1]
    page.locator("#sources-search").fill(f"{most[few]} ")
    assert most[few] not in {row[0] for row in rows(page)}
