"""The field's words: short first lines, and no private vocabulary, in every room and page."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

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
PAGES = sorted((ROOT / "docs").rglob("*.md"))
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
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return " ".join(token.string.lstrip("#") for token in tokens if token.type == tokenize.COMMENT)


def prose(file: Path) -> list[str]:
    source = file.read_text()
    if file.suffix == ".md":
        return [source]
    tree = ast.parse(source)
    return [*(text for _, text in documented(tree)), *helps(tree), comments(source)]


# What is asked of a plan is a wish in these rooms; elsewhere a wish would be a preferred time.
ASKING = ("planning", "terminal", "cli", "live", "distributed")


def private_words(file: Path) -> list[str]:
    found = []
    for text in (" ".join(text.split()) for text in prose(file)):
        for pattern, better in BANNED.items():
            if "wish" in pattern and file.parent.name in ASKING:
                continue
            for match in re.finditer(pattern, text):
                around = text[max(0, match.start() - 30) : match.end() + 30]
                found.append(f"...{around}... (rather: {better})")
    return found


def test_every_room_is_read() -> None:
    assert len(FILES) > 200
    assert len(PAGES) > 15


@pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=name)
def test_first_lines_are_short(folder: Path) -> None:
    long = [
        f"{name(file)}, {what}: {line}"
        for file in FILES
        if file.parent == folder
        for what, text in documented(ast.parse(file.read_text()))
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
