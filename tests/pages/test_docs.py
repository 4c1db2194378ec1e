"""The documentation site is complete and true: output, help, tables, evidence and links are what is there."""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import freshopt as fo
from freshopt.terminal.objective_options import OBJECTIVES
from freshopt.terminal.options import SOLVERS
from tests.pages import measured

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
API = sorted((DOCS / "api").glob("*.md"))
PAGES = [*sorted(DOCS.glob("*.md")), *API]
AT_HOME = re.compile(
    r"^\.\. currentmodule:: (\S+)\n\n\.\. autosummary::\n(?:   :.*\n)*\n((?:   \S+\n)+)", re.MULTILINE
)
TREE = re.compile(r"^```\{toctree\}\n(?::[^\n]*\n)*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


WRITTEN, CHOOSING = module(DOCS / "pages.py"), measured.module("accuracy.choosing")
EXPORTED = module(DOCS / "_ext" / "exported.py")
AGAIN = "run: python docs/pages.py"


# The paragraphs of the help that list objectives and solvers; the site is built with the lists as they are.
NAMED_ONES = re.compile(r"^  --(?:objective|solvers?) NAMES? .*\n(?: {34}.*\n)*", re.MULTILINE)


def without_names(page: str) -> str:
    """Return a page of help without the lists of objectives and solvers."""
    return NAMED_ONES.sub("", page)


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_tutorial_prints_what_it_shows() -> None:
    page = read("tutorial.md")
    assert WRITTEN.printed(page) == page, AGAIN
    assert "```\n```" not in page  # nothing that was to be printed is missing


def test_the_commands_are_told_as_they_are() -> None:
    page = read("commands.md")
    now = WRITTEN.commands(page)
    assert without_names(now) == without_names(page), AGAIN
    flat = re.sub(r"-\n\s+", "-", page)
    if all(re.search(rf"(?<![\w-]){name}(?![\w-])", flat) for name in (*OBJECTIVES, *SOLVERS)):
        assert now == page, AGAIN
    listed = page.split("\nCommands:\n")[1].split("```")[0]
    assert "..." not in listed  # what a command does is told to its end


def test_what_the_papers_get_wrong_is_what_was_measured() -> None:
    page = read("papers.md")
    assert WRITTEN.papers(page) == page, AGAIN
    assert page.count("<!-- shown by ") == len(re.findall("^> ", page, re.MULTILINE)) >= 20
    for path, _, name in re.findall(r"`(tests/\w+\.py)(::(\w+))?`", page):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or f"\ndef {name}(" in text, f"{path}::{name}"


def test_findings_are_decided_as_the_page_says() -> None:
    verdicts = dict.fromkeys(("holds", "does not hold", "undecided"), 0)
    for found in re.finditer(r"<!-- shown by (\w+) .*-->\n> .*\*\*(.+)\*\*\.", read("papers.md")):
        verdicts[found[2]] += 1
    assert verdicts["does not hold"] >= 7
    assert verdicts["undecided"] < verdicts["does not hold"]


def test_choices_are_computed_anew() -> None:
    for now, then in zip(CHOOSING.measure(), measured.harness.saved("choosing")["rows"], strict=True):
        assert (now["rates"], now["never"]) == (then["rates"], then["never"])
        for key, extra in now["extra"].items():
            if extra is None:
                assert then["extra"][key] is None
            else:
                assert math.isclose(extra, then["extra"][key], rel_tol=1e-6, abs_tol=1e-9)


def test_every_public_name_is_in_the_reference() -> None:
    told: dict[int, str] = {}  # by identity: a public mapping has no hash
    for path in API:
        for home, names in AT_HOME.findall(path.read_text(encoding="utf-8")):
            for name in names.split():
                thing: object = importlib.import_module(home)
                for part in name.split("."):
                    thing = getattr(thing, part)
                assert id(thing) not in told, f"{name} is told of twice"
                told[id(thing)] = name
        for home in EXPORTED.PLACE.findall(path.read_text(encoding="utf-8")):
            for name in EXPORTED.others(home, path.read_text(encoding="utf-8")):
                told[id(getattr(importlib.import_module(home), name))] = name
    packages = [fo, *(importlib.import_module(f"freshopt.{name}") for name in fo._PACKAGES)]
    public = {
        f"{p.__name__}.{name}": getattr(p, name)
        for p in packages
        for name in p.__all__
        if name != "__version__"
    }
    assert [key for key, thing in public.items() if id(thing) not in told] == []
    assert {path.stem for path in API} == {"freshopt", "extending", *fo._PACKAGES}


def test_every_page_is_in_the_contents() -> None:
    listed = {line for tree in TREE.findall(read("index.md")) for line in tree.split()}
    assert listed == {str(path.relative_to(DOCS).with_suffix("")) for path in PAGES} - {"index"}
    # A contents tree is a link on the site only, and hidden there; to a reader of the files it is none.
    assert listed <= set(re.findall(r"\]\((\S+?)\.md\)", read("index.md")))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    ):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        place = page.parent / path if path else page
        assert place.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.+)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, (
                target
            )


def test_the_versions_and_extras_that_are_told() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"version = {{{project['version']}}}" in read("cite.md")
    told = set(re.findall(r"^\| `(\w+)` \|", read("install.md"), re.MULTILINE))
    assert told == set(project["optional-dependencies"])
    assert project["requires-python"].removeprefix(">=") in read("install.md")


def test_the_map_of_the_house_names_every_room_and_files_that_are_there() -> None:
    page, package = read("house.md"), ROOT / "freshopt"
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", page, re.MULTILINE)
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    assert [name for name, _ in rows] == list(dict.fromkeys(name for name, _ in rows))
    assert {name for name, _ in rows} == rooms
    assert {name for _, others in rows for name in re.findall(r"`(\w+)`", others)} <= rooms | {
        "solving",
        "many",
    }
    for name in re.findall(r"`((?:freshopt/|problems/|solvers/|tests/)?\w+/\w+\.py)`", page):
        assert (ROOT / name).exists() or (package / name).exists(), name
