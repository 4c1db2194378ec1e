"""The page of a plan: well-formed, self-contained, escaped, and saying what the summary says."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import freshopt as fo
from freshopt.datasets import load_example
from freshopt.logs import tables
from freshopt.planning.plan import make_plan
from freshopt.planning.plan_files import write_plan
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from freshopt.report import write_report
from freshopt.report.axis import Scale
from freshopt.report.charts import Axis, Chart, Dots, Figure
from freshopt.report.document import environment, framed, sentence, stylesheet
from freshopt.report.finding import Column, Finding, Table
from tests.ground_truth.named import PERIODIC, POISSON
from tests.ground_truth.page_reader import PageReader
from tests.ground_truth.plans import crawls, dated, plan_request
from tests.ground_truth.refusals import refused

ODD = [
    "<script>alert(1)</script>",
    "</title><img src=x onerror=alert(1)>",
    "مرحبا بالعالم",
    "שלום",
    "日本語 🦀",
    "\u202eevil\u202c",
    "a\"b'c&amp;d",
    "x" * 300,
    "tab\there",
    "nul\x00\x1b[31m",
    "{{ 7 * 7 }}",
    "javascript:alert(1)",
]
ALWAYS = [
    *(
        "comparison",
        "proof",
        "bandwidth",
        "rates",
        "changes",
        "sources",
        "load",
        "certainty",
        "made",
        "words",
    )
]
Facts = dict[str, Any]


def renamed(names: list[str]) -> dict[str, Any]:
    columns = crawls()
    place = np.unique(columns["source"], return_inverse=True)[1]
    return {**columns, "source": np.array(names, dtype=object)[place].astype(str)}


def importance(names: Any) -> Any:  # noqa: ANN401
    return np.where(np.arange(len(names)) < 3, 0.0, 1.0 + np.arange(len(names)) % 5)


def hosts(names: Any) -> Any:  # noqa: ANN401
    return np.array([f"<b>host {k % 3}</b>" for k in range(len(names))])


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": (crawls(), {"draws": 4}),
    "dated": (dated(crawls()), {"objective": HarmonicStaleness(POISSON), "seed": 3}),
    "one": (crawls(n=1), {"bandwidth": 1.0}),
    "starved": (crawls(), {"objective": BinaryFreshness(PERIODIC), "bandwidth": 0.3}),
    "odd": (
        renamed(ODD),
        {
            "objective": BinaryFreshness(PERIODIC),
            "bandwidth": 2.0,
            "importance": importance,
            "hosts": hosts,
            "host_limits": {"<b>host 0</b>": 0.05, "<b>host 1</b>": 100.0},
            "max_rate": 0.6,
        },
    ),
    "free": (crawls(), {"max_rate": 0.1, "bandwidth": 100.0}),
    "idle": (crawls(), {"importance": lambda names: np.zeros(len(names)), "bandwidth": 2.0}),
}


@pytest.fixture(scope="module", params=KINDS)
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    kind: str = request.param
    columns, changes = KINDS[kind]
    asked = plan_request(changes.get("objective"), **{k: v for k, v in changes.items() if k != "objective"})
    folder = tmp_path_factory.mktemp("plans") / kind
    write_plan(make_plan(fo.CrawlLog(**columns), asked), folder, csv=kind in ("odd", "one"))
    return kind, folder


def opened(folder: Path) -> tuple[Facts, PageReader]:
    facts: Facts = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return facts, PageReader((folder / "report.html").read_text(encoding="utf-8"))


@pytest.mark.sampled(5)
def test_each_section_is_there_under_its_condition(plan: tuple[str, Path]) -> None:
    kind, folder = plan
    facts, page = opened(folder)
    expected = set(ALWAYS)
    if facts["counts"]["never_refreshed"]:
        expected.add("never")
    if kind == "odd":
        expected.add("hosts")
    assert set(page.sections) == expected
    assert page.links[: len(expected)] == [f"#{anchor}" for anchor in page.sections]  # the contents, in order
    assert {"starved", "odd", "idle"} >= ({kind} if "never" in expected else set())
    assert ("Held back" in page.text) == (kind in ("odd", "free"))
    assert ("More bandwidth brings nothing" in page.text) == (kind in ("free", "idle"))
    assert ("10\xa0% more bandwidth" in page.text) == (kind not in ("free", "idle"))
    assert ("ore data would help by" in page.text) == (kind == "plain")
    assert ("2024-0" in page.sections["load"]) == (kind == "dated")


def test_its_numbers_are_those_of_the_summary(plan: tuple[str, Path]) -> None:
    kind, folder = plan
    facts, page = opened(folder)
    findings, values = facts["findings"], page.values()
    wanted = [facts[key] for key in ("value", "bound", "gap")] + list(facts["baselines"].values())
    wanted.append(facts["change_rate"]["sum"])
    if findings["fresh"]:
        wanted += findings["fresh"].values()
    for rows in (findings["held_back"], findings["never_refreshed"]["sources"]):
        wanted += [
            row[key] for row in rows for key in ("change_rate", "price", "worth", "cost") if key in row
        ]
    if findings["more_bandwidth"]:
        more = findings["more_bandwidth"]
        wanted += [more["value"], *(row["gain"] for row in more["sources"])]
    if findings["hosts"]:
        wanted += [row[key] for row in findings["hosts"]["hosts"] for key in ("limit", "used", "price")]
    told = [factor * facts["bandwidth"] for factor in (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)]
    points = findings["frontier"] if kind not in ("free", "idle") else []  # flat there: a sentence says so
    wanted += told if points else []
    assert kind not in ("free", "idle") or {point["price"] for point in findings["frontier"]} == {0.0}
    wanted += [point[key] for point in points for key in ("value", "price") if point["bandwidth"] in told]
    if facts["uncertainty"]:
        told = facts["forecast"]
        assert all(f"{told_of:.4g}" in page.text for told_of in (told["expected"], *told["value_90_percent"]))
        assert f"{facts['counts']['refreshes']:,} refreshes in" in page.text
    assert set(wanted) <= values
    assert (kind == "plain") == (facts["uncertainty"] is not None)
    for value, text in page.data:  # what people read is that number, to the digits that they read
        shown = re.fullmatch(r"[\d,.]+(?:e[+-]\d+)?", text)
        if shown:
            assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-4 if value else 0.0)


def test_names_are_shown_as_they_are_and_never_as_markup(tmp_path: Path) -> None:
    columns, changes = KINDS["odd"]
    asked = plan_request(BinaryFreshness(PERIODIC), **{k: v for k, v in changes.items() if k != "objective"})
    write_plan(make_plan(fo.CrawlLog(**columns), asked), tmp_path / "plan")
    text = (tmp_path / "plan" / "report.html").read_text(encoding="utf-8")
    page = PageReader(text)
    assert text.count("<script") == 3  # two blocks of data and the script, which `PageReader` looks at
    assert "<img" not in text
    assert "<b>host" not in text
    assert "\x00" not in text
    assert "\x1b" not in text
    assert page.table("Binding limits").rows[1][0] == "<b>host 0</b>"
    shown = {row[0] for table in page.tables for row in table.rows}
    assert {ODD[0], ODD[1], ODD[2], ODD[7]} & shown
    named = {tip.rpartition(": ")[0] for tip in page.tooltips if "changes per" in tip}
    assert {name for name in ODD if len(name) < 60 and name.isprintable()} - {ODD[5]} <= named
    assert "nul\ufffd\ufffd[31m" in named
    assert max(map(len, named)) <= 60


def test_names_that_would_leave_their_place_stay_in_it(tmp_path: Path) -> None:
    hostile = [
        '" onerror=alert(1) x="',
        "' onload='alert(1)",
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "javascript:alert(1)",
        "data:text/html,<b>",
        "]]></style></svg>",
    ]
    columns = crawls(n=len(hostile))
    place = np.unique(columns["source"], return_inverse=True)[1]
    columns = {**columns, "source": np.array(hostile)[place]}
    write_plan(make_plan(fo.CrawlLog(**columns), plan_request(None)), tmp_path / "plan")
    text = (tmp_path / "plan" / "report.html").read_text(encoding="utf-8")
    page = PageReader(text)  # refuses elements, attributes and links that are not ours
    for block in re.findall(r'(?s)<script type="application/json"[^>]*>(.*?)</script>', text):
        assert not set("<>&") & set(block)
    assert set(hostile) <= set(page.blocks["sources-data"]["columns"][0])


def test_the_table_that_the_page_saves_has_no_formulas_and_no_open_separators() -> None:
    script = (Path(fo.__file__).parent / "report/assets/sources.js").read_text(encoding="utf-8")
    formula, quoted = (re.search(rf"const {name} = .*?/(.*)/\.test", script) for name in ("text", "quoted"))
    assert formula is not None
    assert quoted is not None
    for sign in tables._SIGNS:
        assert re.search(formula[1], f"{sign}1+1")
        assert re.search(formula[1], f" {sign}1+1")
    assert not re.search(formula[1], "a=1")
    assert all(re.search(quoted[1], f"a{sign}b") for sign in f',"\r\n{tables._PARTING}')
    assert not re.search(quoted[1], "https://a.example/?b=c")


def test_every_table_and_picture_can_be_read_aloud(plan: tuple[str, Path]) -> None:
    kind, folder = plan
    _, page = opened(folder)
    assert all(table.caption for table in page.tables)
    assert set(page.scopes) == {"col", "row"}
    for table in page.tables:
        assert len({len(row) for row in table.rows}) == 1
    assert all(len(label.split()) > 4 for label in page.labels)
    assert page.counts["h1"] == page.counts["main"] == 1
    assert page.counts["h2"] == len(page.sections)
    assert page.counts["figure"] == {"one": 8, "odd": 12, "free": 7, "idle": 4}.get(kind, 10)


@pytest.mark.sampled(2)
def test_it_can_be_made_again_from_the_files_alone(plan: tuple[str, Path], tmp_path: Path) -> None:
    _, folder = plan
    before = (folder / "report.html").read_bytes()
    assert write_report(folder, tmp_path / "again.html").read_bytes() == before
    assert write_report(folder) == folder / "report.html"
    assert (folder / "report.html").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.html"]
    refused(r"again\.html already exists", write_report, folder, tmp_path / "again.html")


def test_the_first_lines_say_what_the_summary_says(plan: tuple[str, Path]) -> None:
    kind, folder = plan
    facts, page = opened(folder)
    today, text = facts["today"], page.prose.replace("\xa0", " ")
    if kind == "idle":
        assert today is None
        assert "The same freshness" not in text
        return
    now = today.get("cut") or today
    saving = 1.0 - today["needed"] / now["bandwidth"]
    told = re.search(r"The same freshness.* with ([\d.]+) % fewer fetches", text)
    assert (told is not None) == (saving > 5e-4)
    if told is not None:
        assert float(told[1]) == pytest.approx(100.0 * saving, abs=0.5)
    shares = facts["findings"]["fresh"]
    assert f"{100.0 * shares['plan']:.1f}".removesuffix(".0") + " % of the time up to date" in text


def test_the_head_draws_what_the_summary_compares(plan: tuple[str, Path]) -> None:
    """Every solved bandwidth, this plan, the log's own crawls, and the fewest that are as fresh."""
    kind, folder = plan
    facts, page = opened(folder)
    drawn = [label for label in page.labels if label.startswith("Time up to date by")]
    points = facts["findings"]["freshness"]
    if kind == "idle":
        assert (points, drawn) == (None, [])
        return
    assert len(drawn) == 2  # for a desk and for a phone
    told = [tip for tip in page.tooltips if "at best" in tip]
    for tip, point in zip(told, 2 * points[::2], strict=True):
        shares = [float(share) for share in re.findall(r"([\d.]+)\xa0%", tip)]
        assert shares == pytest.approx([100 * point["best"], 100 * point["equal"]], abs=0.051)
    fresh, today = facts["findings"]["fresh"], facts["today"].get("cut", facts["today"])
    marked = {"this plan": fresh["plan"], "today": today["fresh"], "as fresh as today": today["fresh"]}
    for name, share in marked.items():
        (tip,) = {tip for tip in page.tooltips if tip.startswith(f"{name}: ")}
        assert float(re.findall(r"([\d.]+)\xa0%", tip)[0]) == pytest.approx(100 * share, abs=0.051)


def test_the_curve_that_a_weekly_plan_exceeds_is_of_equal_intervals(tmp_path: Path) -> None:
    """And no line of the head begins with a percent sign; crawls beyond limits are told to be cut."""
    log = load_example("gstreamer-plugins")
    hosts = np.array([name.split("/")[0] for name in log.names])
    limits = dict.fromkeys(np.unique(hosts).tolist(), 5.0)
    made = {"free": fo.plan(log, draws=0), "cut": fo.plan(log, draws=0, hosts=hosts, host_limits=limits)}
    for kind, plan in made.items():
        plan.write(tmp_path / kind)
        facts, _ = opened(tmp_path / kind)
        text = (tmp_path / kind / "report.html").read_text(encoding="utf-8")
        points = [[each[key] for key in ("bandwidth", "best")] for each in facts["findings"]["freshness"]]
        best = np.interp(facts["bandwidth_used"], *np.transpose(points))
        assert facts["findings"]["fresh"]["plan"] > best
        assert "the best for freshness at equal intervals" in text
        assert ("today, cut to the limits" in text) == (kind == "cut")
        assert " %" not in text.partition('<div class="picture"')[0].partition("<header")[2]


def test_axes_fall_and_say_that_they_do_not_begin_at_0() -> None:
    """Of rates that are read as intervals the shortest stands first; never stands beyond the longest."""
    rates = Axis("every", Scale(1.0, 100.0, 0.0, 1.0, logarithmic=True), zero="never", falling=True)
    shares = Axis("share", Scale(90.0, 100.0, 0.0, 1.0))
    dots = Dots(np.array([1.0, 100.0]), np.array([95.0, 99.0]))
    level = str(
        Chart("rates of sources, each with its share", rates._replace(zero=""), shares, [dots]).__html__()
    )
    places = [float(x) for x in re.findall(r'<circle class="dot" cx="([\d.]+)"', level)]
    assert places[0] > places[1]
    assert "share (not from 0)" in level
    assert 'class="frame cut"' in level
    tall = Chart("shares, each with its rate", shares, rates, [dots])
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', tall.__html__())]
    assert heights == sorted(heights)
    assert "cut" not in tall.__html__()


@given(st.text())
def test_text_of_a_finding_comes_back_as_it_was(text: str) -> None:
    """Whatever stands in a sentence, a table, or a chart; lines are joined, but for those of a title."""
    axis, at = Axis(text, Scale(0.0, 1.0, 0.0, 1.0), names=[text]), np.zeros(1)
    chart = Chart(text, axis, axis, [Dots(at, at, [text])])
    table = Table(text, [Column(text), Column(text)], [["", text]])
    finding = Finding("key", "label", text, table=table, charts=(Figure(text, (chart,), text),))
    plain = vars(environment().get_template("sections.html.j2").module)["plain"]
    page = PageReader(framed("t", plain(finding)))
    kept = "".join("\ufffd" if _forbidden(letter) else letter for letter in text)
    kept = kept.encode("utf-8", "replace").decode()
    assert page.tooltips == ([kept] if text else [])
    joined, (read,) = " ".join(kept.split()), page.tables
    told = (*page.labels, read.caption, *(row[1] for row in read.rows))
    assert {" ".join(each.split()) for each in told} == {joined}
    lines = [sentence(line) for line in text.split("\n") if line.strip()]
    shown = "".join("\ufffd" if _forbidden(letter) else letter for letter in " ".join(lines))
    shown = shown.encode("utf-8", "replace").decode()
    assert "".join(page.prose.split()) == "".join([*shown.split(), *2 * kept.split()])


def _forbidden(letter: str) -> bool:
    code = ord(letter)
    return (code < 32 and letter not in "\t\n\r") or 127 <= code < 160 or code in (0xFFFE, 0xFFFF)


def test_contrast_is_enough_by_day_by_night_and_on_paper() -> None:
    roots = re.findall(r":root \{(.*?)\}", stylesheet(), re.DOTALL)
    colours: dict[str, str] = {}
    assert len(roots) == 3  # light; dark; print, each over the first
    for root in (roots[0], roots[1], roots[2]):
        known = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})", root))
        colours = {**colours, **known} if colours else known
        light = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})", roots[0])) | known
        for back in ("page", "card"):
            for ink in ("ink", "faint", "accent", "other", "good", "bad", "short"):
                assert contrast(light[ink], light[back]) >= 4.5, (ink, back)
        assert contrast(light["ink"], light["good-back"]) >= 4.5
        assert contrast(light["ink"], light["bad-back"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """The contrast of two colours by WCAG 2."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
