"""Findings, charts and notes as values, and the section of declared constraints."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError

import freshopt as fo
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from freshopt.report import write_report
from freshopt.report.axis import Scale
from freshopt.report.charts import Axis, Cells, Chart, Crosses, Dots, Figure, Hits, Line, shades
from freshopt.report.document import environment, framed
from freshopt.report.finding import Column, Finding, Table
from freshopt.report.held_out import PolicyRow, notes
from freshopt.report.markup import amount, name
from tests.ground_truth.named import PERIODIC
from tests.ground_truth.page_reader import PageReader
from tests.ground_truth.plans import crawls
from tests.ground_truth.refusals import present, refused

LOG = Scale(1.0, 100.0, 0.0, 1.0, logarithmic=True)


def drawn(chart: Chart) -> str:
    return chart.__html__()


def read(finding: Finding) -> PageReader:
    plain = vars(environment().get_template("sections.html.j2").module)["plain"]
    return PageReader(framed("t", plain(finding)))


def test_a_finding_without_words_of_its_own_shows_sentence_charts_and_table() -> None:
    chart = Chart(
        "five words tell of it", Axis("x", LOG), Axis("y", LOG), [Dots(np.ones(1), np.ones(1), ["a"])]
    )
    table = Table("some", [Column("source"), Column("cost", "number")], [[name("<b>"), amount(1.5)]], own=0)
    page = read(Finding("key", "label", "It is so.", {}, table, (Figure("title", (chart,), "caption"),)))
    assert [line for line in page.prose.splitlines() if line.strip()] == ["It is so.", "titlecaption"]
    assert page.table("some").rows == [["source", "cost"], ["<b>", "1.5"]]
    assert page.tooltips == ["a"]
    assert page.labels == ["five words tell of it"]
    assert page.values() == {1.5}


def test_templates_refuse_what_is_missing_and_what_is_no_text() -> None:
    """No number without its format comes onto a page, and no empty place where something should stand."""
    with pytest.raises(UndefinedError):
        environment().from_string("{{ nothing.part }}").render()
    refused(r"Undefined is no text", environment().from_string("{{ nothing }}").render, error=TypeError)
    refused(r"0\.1 is no text", environment().from_string("{{ value }}").render, value=0.1, error=TypeError)
    shown = environment().from_string("{{ value }}{{ nothing }}").render(value="<\x00", nothing=None)
    assert shown == "&lt;\ufffd"


def test_marks_at_0_and_at_infinity_lie_in_strips_beyond_the_axis() -> None:
    y = Axis("y", LOG, zero="never", infinite="ever")
    x, up = np.array([1.0, 10.0, 100.0]), np.array([0.0, 1.0, np.inf])
    picture = drawn(Chart("label", Axis("x", LOG), y, [Dots(x, up, ["a", "b", "c"])]))
    heights = [float(each) for each in re.findall(r'cy="([\d.]+)"', picture)]
    assert heights[0] > heights[1] > heights[2]
    floor = float(re.findall(r'class="frame" x1="52" x2="408" y1="([\d.]+)"', picture)[0])
    assert heights[0] < floor
    assert {"never", "ever"} <= set(re.findall(r">(\w+)</text>", picture))
    ((a, b),) = re.findall(
        r'd="M([\d.]+) ([\d.]+)l6', drawn(Chart("", Axis("x", LOG), y, [Crosses(x[:1], up[:1], "a")]))
    )
    assert (float(a) + 3.0, float(b) + 3.0) == (52.0, heights[0])


def test_cells_of_one_shade_are_a_group_and_empty_ones_are_none() -> None:
    many = np.array([[1.0, 0.0], [1.0, 9.0]])
    edges = np.array([1.0, 10.0, 100.0])
    cells = Cells(edges, edges, shades(many, 9.0), lambda a, b: f"{many[a, b]:g} at {a}, {b}")
    picture = drawn(Chart("label", Axis("x", LOG), Axis("y", LOG), [cells]))
    assert re.findall(r"<title>(.*?)</title>", picture) == ["1 at 0, 0", "1 at 1, 0", "9 at 1, 1"]
    assert [len(re.findall("<rect", group)) for group in picture.split("<g ")[1:]] == [2, 1]


def test_rows_have_names_and_strips_over_their_whole_width() -> None:
    y = Axis("", LOG, names=["first", "a" * 90], own="first")
    hits = Hits(np.arange(2.0), ["one", "two"], rows=True)
    picture = drawn(
        Chart("label", Axis("x", LOG), y, [hits, Line(np.array([1.0, 10.0]), np.zeros(2), "error")])
    )
    assert (
        re.findall(r'class="hit" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', picture)
        == [("52.0", "356.0")] * 2
    )
    assert '<text x="44" y="' in picture
    assert len(re.findall(r">(a+…)<", picture)[0]) < 10
    assert re.findall(r'class="word" text-anchor="end">(.*?)<', picture) == ["first"]


def test_ticks_whose_labels_would_overlap_are_left_out() -> None:
    axis = Axis("x", Scale(0.0, 1.0, 0.0, 1.0), lambda tick: f"a long label {tick:g}", [0.1, 0.15, 0.5, 0.99])
    picture = drawn(Chart("label", axis, Axis("y", LOG), []))
    assert re.findall(r">(a long label [\d.]+)<", picture) == ["a long label 0.1", "a long label 0.5"]


def test_notes_say_what_is_measured_and_how_much_of_it_crawls_hid() -> None:
    def rows(hidden: float | None) -> list[PolicyRow]:
        return [
            PolicyRow("plan", 1.0, 2.0, 0.1, 0.9, hidden=hidden),
            PolicyRow("current", 1.0, 2.0, 0.1, 0.9),
        ]

    some, most = (notes(rows(hidden))[-1] for hidden in (0.22, 0.6))
    assert some.startswith("Costs are those of all changes.")
    assert "22 % of the plan's cost; half of it counts as a standard error." in some
    assert "60 % of the plan's cost, too much to decide between policies." in most
    # All changes are known, or an earlier version did not tell.
    assert notes(rows(0.0)) == notes(rows(None)) == []


TIER = ["<b>gold</b>", "iron"] * 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = fo.Target(BinaryFreshness(PERIODIC), at_least=0.5, by=TIER, name="fresh")
    kilobytes = fo.Budget(30.0, cost=[float(k + 1) for k in range(12)], name="kB")
    home = tmp_path_factory.mktemp("plans") / "plan"
    log = fo.CrawlLog(**crawls())
    plan = fo.plan(log, 9.0, 14.0, objective=HarmonicStaleness(PERIODIC), constraints=[kilobytes, target])
    plan.write(home, csv=True)
    return home


def section(page: str) -> str:
    found = present(re.search(r'<section id="constraints".*?</section>', page, re.DOTALL))
    return found[0]


def test_it_shows_use_limit_and_price(folder: Path) -> None:
    told = section((folder / "report.html").read_text(encoding="utf-8"))
    facts = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["constraints"]
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", told)
    assert len(rows) == facts["rows"] == 4
    for row, shown in zip(facts["listed"], rows, strict=True):
        for key in ("used", "limit"):
            assert f'<data value="{row[key]!r}">' in shown
        assert ("at least" if row["at_least"] else "at most") in shown
        assert ("does not bind" in shown) == (row["price"] == 0.0)
        assert row["price"] == 0.0 or f'<data value="{row["price"]!r}">' in shown
    assert f"{facts['binding']} of 4 constraints bind" in told
    assert "fresh[&lt;b&gt;gold&lt;/b&gt;]" in told
    assert "Targets are met if the change rates are as estimated" in told
    assert "constraints.csv" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_summary_without_constraints_has_no_section(folder: Path, tmp_path: Path) -> None:
    facts = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    for table in ("rates", "change_rates", "schedule"):
        (tmp_path / f"{table}.csv").write_bytes((folder / f"{table}.csv").read_bytes())
    facts["constraints"] = None
    (tmp_path / "summary.json").write_text(json.dumps(facts), encoding="utf-8")
    assert 'id="constraints"' not in write_report(tmp_path).read_text(encoding="utf-8")
    (tmp_path / "constraints.csv").write_bytes((folder / "constraints.csv").read_bytes())
    facts["constraints"] = {"rows": "many"}
    (tmp_path / "summary.json").write_text(json.dumps(facts), encoding="utf-8")
    refused(r"constraints\.rows is 'many', not a whole number", write_report, tmp_path)
