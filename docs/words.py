"""Print how much there is to read, and how hard it is: words, minutes and grade of README and pages.

    python docs/words.py [COMMIT]

of the checkout, or of a commit. Words are those of sentences, and of tables and printed text; code, formulas
and generated pages do not count. Minutes are at 220 words. The grade is that of Flesch and Kincaid for the
sentences: the school year that reads them at ease.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PER_MINUTE = 220
PRINTED = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What is not read as text: code, comments, formulas, headings, pictures.
LEFT_OUT = re.compile(
    r"^(?P<fence>```+).*?^(?P=fence)$|<!--.*?-->|\$\$.*?\$\$|\$[^$\n]+\$|^#+ [^\n]*|!\[[^\]]*\]\([^)]*\)",
    re.MULTILINE | re.DOTALL,
)
WORD = re.compile(r"[^\W\d_][\w'’-]*|\d[\d.,]*")


class Read(NamedTuple):
    """What a page is to its reader."""

    words: int
    in_tables: int
    sentences: int
    syllables: int

    def __add__(self, other: Read) -> Read:  # type: ignore[override]
        """Return both pages together."""
        return Read(*(one + more for one, more in zip(self, other, strict=True)))

    @property
    def grade(self) -> float:
        """Flesch and Kincaid's grade of the sentences."""
        told = max(self.words - self.in_tables, 1)
        return 0.39 * told / max(self.sentences, 1) + 11.8 * self.syllables / told - 15.59

    def line(self, name: str) -> str:
        """Return the page's row."""
        minutes = self.words / PER_MINUTE
        grade = f"{self.grade:.1f}" if self.sentences else ""
        return f"| {name} | {self.words:,} | {self.in_tables:,} | {minutes:.0f} | {grade} |"


def syllables(word: str) -> int:
    """Return about how many syllables an English word has."""
    groups = re.findall(r"[aeiouy]+", word.lower())
    silent = word.lower().endswith("e") and not word.lower().endswith(("le", "ee")) and len(groups) > 1
    return max(len(groups) - silent, 1)


def read(text: str) -> Read:
    """Return how much there is to read in a page."""
    printed = " ".join(PRINTED.findall(text))
    plain = re.sub(r"\]\([^)]*\)", "]", LEFT_OUT.sub(" ", text))
    rows = [line for line in plain.split("\n") if line.startswith("|") and not line.startswith("| --- ")]
    prose = "\n".join(line for line in plain.split("\n") if not line.startswith("|"))
    words, cells = WORD.findall(prose), WORD.findall(" ".join([*rows, printed]))
    ends = re.findall(
        r"[.!?](?=\s|$)|\n\s*\n(?=\S)|\n(?=\s*[*-] )", re.sub(r"([.!?])\s*\n\s*\n", r"\1 ", prose.strip())
    )
    return Read(len(words) + len(cells), len(cells), len(ends), sum(map(syllables, words)))


def pages(commit: str | None = None) -> dict[str, str]:
    """Return README and the pages that are written by hand, of the checkout or a commit."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    if commit is None:
        listed = git("ls-files", "--cached", "--others", "--exclude-standard", "README.md", "docs").split(
            "\n"
        )
        there = [name for name in listed if name.endswith(".md") and (ROOT / name).exists()]
        return {name: (ROOT / name).read_text(encoding="utf-8") for name in sorted(there)}
    listed = git("ls-tree", "-r", "--name-only", commit, "README.md", "docs").split("\n")
    return {name: git("show", f"{commit}:{name}") for name in listed if name.endswith(".md")}


def main() -> None:
    """Print a row a page, and their sum."""
    found = {name: read(text) for name, text in pages(*sys.argv[1:2]).items()}
    print("| page | words | in tables | minutes | grade |\n| --- | --- | --- | --- | --- |")
    for name, each in found.items():
        print(each.line(name))
    print(sum(found.values(), Read(0, 0, 0, 0)).line(f"{len(found)} pages"))


if __name__ == "__main__":
    main()
