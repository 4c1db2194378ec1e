"""A reader of HTML pages that trusts none: well-formed, self-contained, names that refer to something."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from typing import Any, NamedTuple

from tests.ground_truth.named import present

VOID = {"meta", "br", "input"}
PARAGRAPHS = {"p", "li", "dd", "h1", "h2", "h3", "figcaption"}
HARMLESS = {  # every element that a page of ours may have
    *(
        "html",
        "head",
        "title",
        "style",
        "body",
        "header",
        "main",
        "footer",
        "nav",
        "section",
        "div",
        "details",
    ),
    *(
        "summary",
        "h1",
        "h2",
        "h3",
        "p",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
        "a",
        "b",
        "span",
        "code",
        "bdi",
        "data",
    ),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption"),
    *("svg", "g", "path", "line", "circle", "rect", "text"),
    *("label", "input", "select", "option", "button", "script"),
    *VOID,
}


class Table(NamedTuple):
    """A table's caption and its rows of texts, the head first."""

    caption: str
    rows: list[list[str]]


class PageReader(HTMLParser):
    """Reads a page and keeps what tests look at; fails on what must not be there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.named: list[str] = []
        self.links: list[str] = []
        self.labels: list[str] = []
        self.scopes: list[str] = []
        self.tooltips: list[str] = []
        self.tables: list[Table] = []
        self.data: list[tuple[float, str]] = []
        self.sections: dict[str, str] = {}
        self.text = ""
        self.prose = ""  # what stands in no table and no picture, a paragraph a line
        self.drawn: list[str] = []
        self.blocks: dict[str, Any] = {}  # JSON for scripts
        self.code: list[str] = []  # what a browser executes
        self._script: tuple[str, str] | None = None
        self.counts: dict[str, int] = {}
        self._section = ""
        self._value: float | None = None
        assert text.startswith("<!DOCTYPE html>\n")
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)
        assert set(self.named) <= set(self.ids)
        assert {link.removeprefix("#") for link in self.links} <= set(self.ids)
        style = present(re.search(r"<style>(.*?)</style>", text, re.DOTALL))
        for foreign in ("url(", "@import", "@font-face", "expression("):
            assert foreign not in style[1]
        policy = html.unescape(text.partition("<style>")[0])
        assert "default-src 'none'" in policy
        allowed = re.findall(r"script-src '(sha256-[^']*)'[\";]", policy)
        assert ["sha256-" + _hash(code) for code in self.code] == allowed
        assert len(re.findall("<script", text, re.IGNORECASE)) == len(self.blocks) + len(self.code)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._element(tag, attrs)
        if tag in VOID:
            return
        self.open.append(tag)
        given = dict(attrs)
        if tag == "section":
            self._section = given["id"] or ""
            self.sections[self._section] = ""
        elif tag == "table":
            self.tables.append(Table("", []))
        elif tag == "tr":
            self.tables[-1].rows.append([])
        elif tag in ("th", "td"):
            self.tables[-1].rows[-1].append("")
            if tag == "th":
                self.scopes.append(given["scope"] or "")
        elif tag == "script":
            self._script = given.get("type") or "", given.get("id") or ""
        elif tag == "data":
            self._value = float(given["value"] or "")
            self.data.append((self._value, ""))
        elif tag == "svg" and given.get("aria-hidden") != "true":
            assert given["role"] == "img"
            self.labels.append(given["aria-label"] or "")
        elif tag == "title" and "svg" in self.open:
            self.tooltips.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"<{tag}/> does not end an element of HTML"
        self._element(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in PARAGRAPHS:
            self.prose += "\n"
        if tag == "section":
            self._section = ""
        elif tag == "data":
            self._value = None

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        if self._script is not None:
            kind, anchor = self._script
            assert kind in ("", "application/json")
            if kind:
                self.blocks[anchor] = json.loads(data)
            else:
                self.code.append(data)
            self._script = None
            return
        if self.open and self.open[-1] == "title":
            if "svg" in self.open:
                self.tooltips[-1] += data
            return
        self.text += data
        if "svg" in self.open:
            self.drawn.append(data)
        elif "table" not in self.open:
            self.prose += data
        if self._section:
            self.sections[self._section] += data
        if self._value is not None:
            self.data[-1] = (self._value, self.data[-1][1] + data)
        if "caption" in self.open:
            self.tables[-1] = self.tables[-1]._replace(caption=self.tables[-1].caption + data)
        elif {"th", "td"} & set(self.open):
            self.tables[-1].rows[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def values(self) -> set[float]:
        """The numbers that are on the page with all their digits."""
        return {value for value, _ in self.data}

    def table(self, caption: str) -> Table:
        """The table whose caption begins so."""
        (found,) = (table for table in self.tables if table.caption.startswith(caption))
        return found

    def _element(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in HARMLESS, tag
        self.counts[tag] = self.counts.get(tag, 0) + 1
        assert len({key for key, _ in attrs}) == len(attrs)
        for key, value in attrs:
            assert not key.startswith("on"), key
            assert key not in ("src", "srcset", "style", "action", "data", "background", "xlink:href"), key
            if key == "href":
                assert value is not None
                assert value.startswith("#")
                self.links.append(value)
            elif key == "id":
                self.ids.append(value or "")
            elif key == "aria-labelledby":
                self.named.append(value or "")
            assert "url(" not in (value or "")


def _hash(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode()
