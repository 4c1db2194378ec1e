"""Check the types of all Python that README and docs show, as a reader's editor does.

Each page is a module: its blocks follow each other; one that imports freshopt begins anew. Prompts and what
they print are left out. Usage: python .ci/page_types.py [pyright]
"""

import re
import subprocess
import sys
import tempfile
from doctest import DocTestParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(?:python|py|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs(page: Path) -> list[str]:
    """Return the programs of a page."""
    found: list[str] = []
    for text in BLOCK.findall(page.read_text(encoding="utf-8")):
        code = "".join(each.source for each in DocTestParser().get_examples(text)) if ">>> " in text else text
        if not found or re.search(r"^import freshopt as fo$", code, re.MULTILINE):
            found.append("")
        found[-1] += code
    return found


def main(checker: str = "mypy") -> int:
    """Check all pages in one run."""
    with tempfile.TemporaryDirectory() as folder:
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
            for k, program in enumerate(programs(page)):
                (Path(folder) / f"{page.stem.replace('-', '_')}_{k}.py").write_text(program, encoding="utf-8")
        options = (
            ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
            if checker == "mypy"
            else []
        )
        return subprocess.run([checker, *options, folder], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
