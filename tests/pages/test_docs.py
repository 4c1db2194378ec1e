"""The documentation site is complete and true: output, help, tables, evidence and links are what is there."""

import importlib
import importlib.util
import math
import os
import re
import tomllib
from pathlib import Path
from types import ModuleType

import click
import polars as pl
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt import units
from freshopt.cli import COMMANDS, main
from freshopt.logs import schema
from freshopt.planning import plan_files
from freshopt.terminal.groups import GROUPS, Group
from tests.ground_truth.refusals import present
from tests.pages import measured

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = re.compile(r"^(api|gallery|reference/commands)/")
PAGES = {
    str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if not GENERATED.match(path.relative_to(DOCS).as_posix())
}
TREE = re.compile(r"^```\{toctree\}\n(?::[^\n]*\n)*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def module(path: Path) -> ModuleType:
    spec = present(importlib.util.spec_from_file_location(path.stem, path))
    made = importlib.util.module_from_spec(spec)
    present(spec.loader).exec_module(made)
    return made


WRITTEN, CHOOSING = module(DOCS / "pages.py"), measured.module("accuracy.choosing")
WORDS = module(DOCS / "words.py")
REFERENCE = module(DOCS / "_ext" / "reference.py")
MADE: dict[str, str] = REFERENCE.pages()
EVERY = PAGES | MADE


def read(name: str) -> str:
    return EVERY[name]


# It prints what the README does of the same log, which runs; `tests/pages/test_readme.py` compares them.
AS_README = "start/plan-from-your-log.md"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] * (name == AS_README))
        for name in sorted(WRITTEN.PRINTED)
    ],
)
def test_pages_print_what_they_show(name: str) -> None:
    assert WRITTEN.printed(read(name)) == read(name), "run: python docs/pages.py"
    assert "```\n```" not in read(name)  # nothing that was to be printed is missing


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_of_a_command_has_all_that_it_tells(command: str) -> None:
    page = read(f"reference/commands/{command}.md")
    assert page.startswith(f"# freshopt {command}\n\n")
    made = present(main.get_command(click.Context(main), command))
    options = {
        each.opts[0].removeprefix("--"): each for each in made.params if isinstance(each, click.Option)
    }
    groups = GROUPS.get(command, {"": Group(tuple(options))})
    listed, _, settings = page.partition("## Settings of")
    for place, names in (
        (listed, [name for group in groups.values() for name in group.listed]),
        (settings, [name for group in groups.values() for name in group.more]),
    ):
        for name in names:
            if options[name].help:
                head = rf"^\| (?:`-\w`, )?`--{name}[` ].* \| \S.* \|$"
                rows = [re.findall(head, text, re.MULTILINE) for text in (place, page)]
                assert len(rows[0]) == len(rows[1]) == 1, name
    (row,) = re.findall(rf"^\| \[`freshopt {command}`\].*", read("reference/commands/index.md"), re.MULTILINE)
    assert COMMANDS[command][1] in row


def test_a_row_has_names_help_and_default_in_one_piece() -> None:
    @click.command()
    @click.option("-s", "--shown", help="One | two.")
    @click.option("--kept", default=3, show_default=True, help="A <b>\nof 'a*', as --shown.")
    def told(shown: str, kept: int) -> None:
        """Do\nwhat is *asked*."""

    page = REFERENCE.command_page(click.Context(told, info_name="told"))
    assert "\n\nDo what is *asked*.\n\n" in page
    assert "| `-s`, `--shown TEXT` | One \\| two. |" in page
    assert "| `--kept INTEGER` | A \\<b> of 'a\\*', as `--shown`. [default: 3] |" in page


def test_a_page_whose_name_is_gone_is_removed(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "gone.md").write_text("# gone")
    REFERENCE.written(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")} == set(MADE)


def test_what_the_papers_get_wrong_is_what_was_measured() -> None:
    page = read("evidence/papers.md")
    told = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(told) >= 6
    for path, name in told:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or f"\ndef {name}(" in text, f"{path}::{name}"


def test_findings_are_decided_as_the_page_says() -> None:
    rows = re.findall(
        r"^\| .* \| (holds|does not hold|undecided) \|$", read("evidence/papers.md"), re.MULTILINE
    )
    assert rows.count("does not hold") == 48
    assert 0 < rows.count("undecided") <= 10
    assert rows.count("holds") == 0


def test_words_are_counted_of_text_and_tables() -> None:
    page = "# Head\n\nA cat sat here. It is [fat](x.md), $x$ times.\n\n| a | b c |\n| --- | --- |\n"
    page += "```python\nnone(of)\n```\n\n```text\nprinted words\n```\n<!-- not this -->\n"
    found = WORDS.read(page)
    assert (found.words, found.in_tables, found.sentences) == (13, 5, 2)
    assert found.grade == pytest.approx(0.39 * 4 + 11.8 * 9 / 8 - 15.59)
    assert [WORDS.syllables(word) for word in ("crawl", "change", "estimate", "table")] == [1, 1, 3, 2]


def test_evidence_and_reference_are_read_in_little_more_than_an_hour() -> None:
    assert (
        sum(WORDS.read(text).words for name, text in PAGES.items() if "/" in name and name[0] in "er")
        <= 15_000
    )


def test_choices_are_computed_anew() -> None:
    for now, then in zip(CHOOSING.measure(), measured.harness.saved("choosing")["rows"], strict=True):
        assert (now["rates"], now["never"]) == (then["rates"], then["never"])
        for key, extra in now["extra"].items():
            if extra is None:
                assert then["extra"][key] is None
            else:
                assert math.isclose(extra, then["extra"][key], rel_tol=1e-6, abs_tol=1e-9)


def test_every_public_name_is_in_the_reference_once() -> None:
    told: dict[int, str] = {}  # by identity: a public mapping has no hash
    for home in REFERENCE.PACKAGES:
        page = read(f"api/{home.rpartition('.')[2]}.md")
        for name in re.findall(r"^   (\w+)$", page, re.MULTILINE):
            thing = getattr(importlib.import_module(home), name)
            assert id(thing) not in told, f"{name} is told of twice"
            told[id(thing)] = name
        for name in re.findall(r"`(freshopt[\w.]*)`", page.partition("\nAlso here:")[2]):
            assert (
                id(getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2])) in told
            )
    packages = [fo, *(importlib.import_module(f"freshopt.{name}") for name in fo._PACKAGES)]
    public = {
        f"{p.__name__}.{name}": getattr(p, name) for p in packages for name in p.__all__ if name[0] != "_"
    }
    assert [key for key, thing in public.items() if id(thing) not in told] == []
    for name in REFERENCE.EXTENDING:
        assert f"\n   {name}\n" in read("api/extending.md")


def test_every_page_is_in_the_contents() -> None:
    listed: list[str] = []
    for name, text in EVERY.items():
        for tree in TREE.findall(text):
            listed += [str((Path(name).parent / line).as_posix()) for line in tree.split()]
    assert sorted(listed) == sorted({name.removesuffix(".md") for name in EVERY} - {"index"})
    # A contents tree is a link on the site only, and hidden there; to a reader of the files it is none.
    trees = {line for tree in TREE.findall(read("index.md")) for line in tree.split()}
    assert trees <= set(re.findall(r"\]\((\S+?)\.md\)", read("index.md")))


@pytest.mark.parametrize("page", EVERY)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", EVERY[page], flags=re.MULTILINE | re.DOTALL)
    ):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        name = os.path.normpath(Path(page).parent / path) if path else page
        assert name in EVERY or (DOCS / name).exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.+)$", EVERY[name], re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, (
                target
            )


def uploads(first: str) -> pl.DataFrame:
    """Return the log of those packages whose names begin with some letters, each a host."""
    log = pl.DataFrame(fo.datasets.load_example("debian-uploads").to_frame())
    log = log.with_columns(host=pl.col("source").str.slice(0, 1))
    return log.filter(pl.col("host").is_in(list(first)))


def test_the_files_of_a_plan_are_told_with_their_columns(tmp_path: Path) -> None:
    plan = fo.plan(uploads("w"), bandwidth=4.0, horizon=10.0)
    told = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", read("reference/files.md"), re.MULTILINE))
    for name, table in plan_files.tables(plan).items():
        assert told[name] == ", ".join(table.columns)
    plan.write(tmp_path / "plan")
    assert {path.name.removesuffix(".parquet") for path in (tmp_path / "plan").iterdir()} <= set(told)
    assert {name.removesuffix(".csv").removesuffix(".parquet") for name in plan_files.FILES} <= set(told)


@pytest.mark.parametrize(
    ("table", "columns"),
    {
        "importance": schema.IMPORTANCES,
        "hosts": schema.HOSTS,
        "host limits": schema.HOST_LIMITS,
        "limits of sources": schema.SOURCE_LIMITS,
        "limits of groups": schema.GROUP_LIMITS,
        "when sources began to exist": schema.STARTS,
        "change history": schema.HISTORY,
        "requests of a cache": schema.REQUESTS,
    }.items(),
)
def test_tables_are_told_with_the_columns_that_they_need(table: str, columns: schema.Schema) -> None:
    (told,) = re.findall(rf"^\| {table} \| .+ \| (.+) \|$", read("reference/files.md"), re.MULTILINE)
    needed = {name for each in columns.needed for name in each.split("|")}
    assert needed <= set(re.findall(r"\w+", told))


UNITS = PAGES["reference/files.md"].split("## Units")[1].split("##")[0]


@pytest.mark.parametrize("text", re.findall(r"`(\d[\w/]*)`", UNITS))
def test_times_and_rates_are_read_as_they_are_told(text: str) -> None:
    read_as = units.rate_of if "/" in text else units.duration_of
    assert read_as("it", text, "day") > 0.0


def test_words_that_the_page_of_a_plan_explains_are_in_the_glossary() -> None:
    parts = (ROOT / "freshopt/report/templates/parts.html.j2").read_text(encoding="utf-8")
    explained = re.findall(
        r'^  "([^"]+)": "', parts.split("macro glossary")[1].split("endmacro")[0], re.MULTILINE
    )
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| ", read("reference/glossary.md"), re.MULTILINE)
    known = {word for row in rows for word in row.split(", ")}
    assert len(explained) > 5
    assert set(explained) <= known


def test_the_sections_that_are_told_are_those_of_the_page(tmp_path: Path) -> None:
    """Of a plan with limits per host and a back-test, in order; after the head, and before the words."""
    log = uploads("ow")
    log.write_csv(tmp_path / "log.csv")
    log.select("host").unique().with_columns(limit=pl.lit("40/day")).write_csv(tmp_path / "limits.csv")
    given = [tmp_path / "log.csv", "--host-limits", tmp_path / "limits.csv", "--replay", "--draws", "2"]
    ran = CliRunner().invoke(main, ["plan", *map(str, given), "--out", str(tmp_path / "plan")])
    assert ran.exit_code == 0, ran.output
    page = (tmp_path / "plan" / "report.html").read_text(encoding="utf-8")
    told = read("guides/trust.md").split("## Read the page")[1].split("\n## ")[0]
    names = re.findall(r"^\| ([A-Z][^|]+?) \|", told, re.MULTILINE)
    assert ["Head", *re.findall(r"<h2[^>]*>([^<]+)</h2>", page)] == [*names, "Words on this page"]


def test_the_extras_that_are_told() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = set(re.findall(r"^\| `(\w+)` \|", read("start/install.md"), re.MULTILINE))
    assert told == set(project["optional-dependencies"])
    assert project["requires-python"].removeprefix(">=") in read("start/install.md")


def test_the_map_names_every_package() -> None:
    page, package = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), ROOT / "freshopt"
    page = page.split("## Where everything is")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", page, re.MULTILINE)
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    assert len(rows) == len(rooms)
    assert [name for name, _ in rows] == list(dict.fromkeys(name for name, _ in rows))
    assert {name for name, _ in rows} == rooms
    assert {name for _, others in rows for name in re.findall(r"`(\w+)`", others)} <= rooms | {
        "solving",
        "many",
    }


def test_files_that_contributing_names_are_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    page = re.sub(r"<!-- rows .*?\n\n", "", page, flags=re.DOTALL)  # measurements name the files of their day
    folders = ("freshopt", "problems", "solvers", "tests", "benchmarks", "docs", ".ci")
    paths = [f"/{path.relative_to(ROOT)}" for name in folders for path in (ROOT / name).rglob("*.py")]
    named = {name for name in re.findall(r"`([\w./-]*\w\.py)`", page) if "/my_" not in name}
    assert len(named) > 50
    assert not {name for name in named if not any(path.endswith(f"/{name}") for path in paths)}
