"""The field's words: short first lines, and no private vocabulary, in every room and page."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from freshopt.cli import COMMANDS, main
from tests.ground_truth.named import present

ROOT = Path(__file__).parents[2]
ROOMS = ("freshopt", "problems", "solvers")
FILES = sorted(
    {
        file
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        if file.resolve() == file and file.parent.name != "__pycache__"
    }
)
# Those that are written by hand: the others are made of docstrings and help.
PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if not page.relative_to(ROOT / "docs").as_posix().startswith(("api/", "gallery/", "reference/commands/"))
]
CORE = (
    "certificates",
    "dual_search",
    "first_order",
    "interior_point",
    "modelling",
    "problems",
    "separable",
    "solvers",
)
LONGEST = 12
TERMS = (
    "duality gap",
    "dual variable",
    "shadow price",
    "complementary slackness",
    "best response",
    "KKT",
    "primal",
    "feasible",
    "marginal value",
)
BANNED = {
    r"\bTell (whether|where|which|what)\b": "Return whether",
    r"\bRefuse\b": "Raise ... unless; return why ... is unsupported",
    r"(?i)\bnext to no(thing)?\b": "negligible",
    r"(?i)\bendless\w*": "infinite",
    r"(?i)\b(one|first|second|two or three) looks?\b|\blooks at (all|the) sources\b": "one evaluation",
    r"(?i)\bmarkets?\b": "dual problem; prices",
    r"(?i)\bwish(es)?\b": "unconstrained rate; preferred time",
    r"(?i)\bworth\b": "marginal value",
    r"(?i)\bimaginary\b": "pseudo-observation",
    r"(?i)\bheavy ball does\b": "heavy-ball momentum",
    r"(?i)\bto tell what\b": "to estimate",
    r"(?i)\bleft open\b|\bleaves open\b": "posterior",
    r"(?i)\bof whatever is random\b": "random seed",
    r"(?i)\bfront door\b|\bthe one road\b": "solve a problem and certify the result",
    r"(?i)\bsource buys\b": "demand function; best response",
    r"(?i)\bact while they learn\b": "online learning policies",
    r"(?i)\bappears complete or not at all\b": "atomic",
    r"(?i)\bonly so many hands\b": "capacity-limited slots",
}
# What a reader from crawling, statistics or optimisation would stumble on, in what is shown to users.
FOR_READERS = BANNED | {
    r"(?i)\brooms\b|\bthe house\b|\bon \d+ floors\b": "package; layer",
    r"(?i)\bthe (same )?cells?\b(?! of a table)|\b(another|other|its|own) cells?\b": "cost formula",
    r"(?i)\bis told\b|\bare told\b(?! apart)|\btells? of\b|\btells other\b": "is shown; gives; says",
    r"(?i)\b(is|are) of (caches|plans|times)\b": "is for",
    r"(?i)\bbut for (second|the first|those)\b|\brequired but\b": "except",
    r"\bWho (has|goes|wants|asks)\b|\bWhoever\b": "If you",
    r"(?i)\bheld against\b": "scored on; compared with",
    r"(?i)\bbeliefs?\b": "posterior",
    r"(?i)\bstrangers?\b": "somebody else",
    r"(?i)\bcopies (that are )?made of copies\b": "tables built from tables",
    r"(?i)\bto the letter\b": "exactly",
    r"(?i)\bof no account\b": "ignored",
    r"(?i)\bin one go\b": "at once",
    r"(?i)\bso many crawls\b|\bso much bandwidth\b": "that many; the same number of",
    r"(?i)\bnot to be had\b|\bis there to be\b": "unavailable",
    r"(?i)\bfrugal\b|\bgenerous\b|\bthrift\w*": "below; above",
}
# Where what is shown to users is written, besides the help and the pages.
SHOWN = ("report", "planning", "terminal", "cli")


def name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def documented(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", "module"), text


def helps(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("help", "epilog", "short_help"):
            parts = (part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant))
            yield " ".join(part for part in parts if isinstance(part, str))


def comments(source: str) -> str:
    """Return what follows a "#", in texts too: to tell these apart takes most of the time."""
    return " ".join(re.findall(r"#+(.*)", source))


@cache
def docstrings(file: Path) -> list[tuple[str, str]]:
    return list(documented(ast.parse(file.read_text())))


@cache
def prose(file: Path) -> list[str]:
    source = file.read_text()
    if file.suffix == ".md":
        return [source]
    tree = ast.parse(source)
    return [*(text for _, text in docstrings(file)), *helps(tree), comments(source)]


# What is asked of a plan is a wish in these rooms; elsewhere a wish would be a preferred time.
ASKING = ("planning", "terminal", "cli", "live", "distributed")


def private_words(file: Path) -> list[str]:
    asking = file.parent.name in ASKING
    banned = {key: better for key, better in BANNED.items() if not (asking and "wish" in key)}
    return [found for text in prose(file) for found in words_of(text, banned)]


def words_of(text: str, banned: dict[str, str]) -> Iterator[str]:
    text = " ".join(text.split())
    for pattern, better in banned.items():
        for match in re.finditer(pattern, text):
            around = text[max(0, match.start() - 30) : match.end() + 30]
            yield f"...{around}... (rather: {better})"


def help_of(command: str) -> str:
    """Return all that the help of a command says, settings of its file too."""
    made = present(main.get_command(click.Context(main), command))
    helps = [each.help or "" for each in made.params if isinstance(each, click.Option)]
    return " ".join([made.help or "", *helps])


def sentences(file: Path) -> str:
    """Return the texts of a module that are no docstrings, and have blanks: what it prints or shows."""
    tree = ast.parse(file.read_text())
    told = {" ".join(text.split()) for _, text in docstrings(file)}
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = [" ".join(text.split()) for text in constants if isinstance(text, str)]
    return " ; ".join(text for text in texts if " " in text and text not in told)


@cache
def shown_texts() -> dict[str, str]:
    """Return what users read, by where it is: README, pages, help, console, page of a plan."""
    pages = [ROOT / "README.md", *(page for page in PAGES if page.name != "mathematics.md")]
    found = {name(page): page.read_text(encoding="utf-8") for page in pages}
    found |= {f"freshopt {command} --help": help_of(command) for command in COMMANDS}
    templates = sorted((ROOT / "freshopt/report/templates").iterdir())
    found |= {name(file): re.sub(r"<[^>]*>|{[%#{].*?[%#}]}", " ", file.read_text()) for file in templates}
    rooms = [file for file in FILES if file.relative_to(ROOT).parts[:2][-1] in SHOWN]
    return found | {name(file): sentences(file) for file in rooms}


@pytest.mark.parametrize("place", shown_texts())
def test_what_users_read_has_no_private_words(place: str) -> None:
    banned = {key: better for key, better in FOR_READERS.items() if "wish" not in key}
    found = list(words_of(shown_texts()[place], banned))
    assert not found, f"{len(found)} private words in {place}:\n" + "\n".join(found)


def test_every_room_is_read() -> None:
    assert len(FILES) > 200
    assert len(PAGES) > 12


@pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=name)
def test_first_lines_are_short(folder: Path) -> None:
    long = [
        f"{name(file)}, {what}: {line}"
        for file in FILES
        if file.parent == folder
        for what, text in docstrings(file)
        if len((line := " ".join(text.split("\n\n")[0].split())).split()) > LONGEST
    ]
    assert not long, f"{len(long)} first lines have more than {LONGEST} words:\n" + "\n".join(long)


@pytest.mark.parametrize("folder", sorted({file.parent for file in (*FILES, *PAGES)}), ids=name)
def test_words_are_those_of_the_field(folder: Path) -> None:
    files = [file for file in (*FILES, *PAGES) if file.parent == folder]
    found = [f"{name(file)}: {words}" for file in files for words in private_words(file)]
    assert not found, f"{len(found)} private words:\n" + "\n".join(found)


def test_the_core_speaks_of_convex_optimisation() -> None:
    core = [file for file in FILES if name(file).removeprefix("freshopt/").split("/")[0] in CORE]
    text = " ".join(" ".join(word for text in prose(file) for word in text.split()) for file in core)
    missing = [term for term in TERMS if len(re.findall(rf"\b{term}\b", text)) < 2]
    assert not missing


@pytest.mark.parametrize(
    ("text", "private"),
    [
        ('"""Tell whether it is worth it."""', 2),
        ("x = 1  # of an endless market", 2),
        ('"""A worthwhile look-up: nothing is next to the refused."""', 0),
        ('option(help="Imaginary observation of each source")', 1),
    ],
)
def test_private_words_are_found(tmp_path: Path, text: str, private: int) -> None:
    file = tmp_path / "words.py"
    file.write_text(text + "\n")
    assert len(private_words(file)) == private
