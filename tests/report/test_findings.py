"""Findings and charts as values: what a new one needs, and where marks are drawn."""

from __future__ import annotations

import re

import numpy as np
import pytest
from jinja2 import UndefinedError

from freshopt.report.axis import Scale
from freshopt.report.charts import Axis, Cells, Chart, Crosses, Dots, Figure, Hits, Line, shades
from freshopt.report.document import environment, framed
from freshopt.report.finding import Column, Finding, Table
from freshopt.report.markup import amount, name
from tests.ground_truth.page_reader import PageReader

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
    with pytest.raises(TypeError, match=r"Undefined is no text"):
        environment().from_string("{{ nothing }}").render()
    with pytest.raises(TypeError, match=r"0\.1 is no text"):
        environment().from_string("{{ value }}").render(value=0.1)
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
