"""Notebooks: a question first, public names, short functions, sharp figures, a proved answer last."""

import ast
import base64
import importlib
import importlib.util
import json
import re
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import freshopt as fo
from tests.ground_truth.refusals import present

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [
    "01_declare_and_solve",
    "02_prove_it",
    "03_one_price_rules",
    "04_learn",
    "05_mirror_sync",
    "06_automata_tree",
    "07_from_my_log_to_my_schedule",
    "08_constraints",
    "09_all_objectives_all_solvers",
    "10_a_crawler_that_plans_for_itself",
    "11_copies_that_are_not_pages",
    "12_problems_from_elsewhere",
]
PACKAGES = set(fo._PACKAGES)
OTHERS = {
    "__future__",
    "collections",
    "dataclasses",
    "datetime",
    "itertools",
    "json",
    "math",
    "matplotlib",
    "networkx",
    "numpy",
    "pathlib",
    "polars",
    "tempfile",
    "textwrap",
    "time",
    "warnings",
}
LONGEST_FUNCTION, LONGEST_CELL, LARGEST_FILE = 10, 28, 2_000_000
FIRST_LINES = ('%config InlineBackend.figure_formats = ["retina"]', 'plt.style.use("freshopt.mplstyle")')


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    return notebook


def code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def tree(cell: dict[str, Any]) -> ast.Module:
    lines = cell["source"].split("\n")
    return ast.parse("\n".join("" if line.startswith("%") else line for line in lines))


def printed(cell: dict[str, Any]) -> str:
    parts = [output.get("text", []) for output in cell["outputs"]]
    for kind in ("text/plain", "text/markdown", "text/html"):
        parts += [output.get("data", {}).get(kind, []) for output in cell["outputs"]]
    return "".join("".join(part) for part in parts)


def not_public(module: ast.Module) -> list[str]:
    """Return what a cell imports from freshopt or elsewhere that a reader should not need."""
    found: list[str] = []
    for node in ast.walk(module):
        given: list[tuple[str, str | None]]
        if isinstance(node, ast.Import):
            given = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            given = [(node.module or ".", alias.name) for alias in node.names]
        elif isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
            found.append(node.attr)
            continue
        else:
            continue
        found += [f"{where}.{name}" for where, name in given if not public(where, name)]
    return found


def public(module: str, name: str | None) -> bool:
    """Tell whether a module, or a name in it, is one for readers."""
    first, _, rest = module.partition(".")
    if first != "freshopt":
        return first in OTHERS
    if not rest:
        return name is None or name in fo.__all__ or name in PACKAGES
    if rest == "cvx":
        return name == "cp"
    return rest in PACKAGES and name in importlib.import_module(module).__all__


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = present(importlib.util.spec_from_file_location("notebook_checker", ROOT / ".ci" / "notebooks.py"))
    module = importlib.util.module_from_spec(spec)
    present(spec.loader).exec_module(module)
    return module


def test_the_story_is_numbered() -> None:
    assert [path.stem for path in PATHS] == NAMES


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_its_question_and_ends_with_the_answer_and_its_proof(path: Path) -> None:
    cells = read(path)["cells"]
    first, number = cells[0], int(path.stem[:2])
    assert first["cell_type"] == "markdown"
    assert re.match(rf"# {number}\. \S.*\n", first["source"])
    assert re.search(r"\*\*Question\.\*\* [^*]*\?", first["source"])
    answers = [k for k, cell in enumerate(cells) if cell["source"].startswith("## Answer")]
    assert answers
    assert answers == [answers[-1]]
    assert answers[-1] >= len(cells) - 2, "the answer, and at most one code cell that proves it"
    assert "**Verdict.**" in cells[answers[-1]]["source"]
    last = max(k for k, cell in enumerate(cells) if cell["cell_type"] == "code")
    assert last >= len(cells) - 2
    assert "gap" in printed(cells[last]), "the certificate belongs to the answer"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_uses_public_names_and_short_functions(path: Path) -> None:
    for k, cell in enumerate(code(read(path))):
        module = tree(cell)
        assert not not_public(module), f"code cell {k}"
        assert len(cell["source"].splitlines()) <= LONGEST_CELL, f"code cell {k}"
        for node in ast.walk(module):
            if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                assert (node.end_lineno or 0) - node.lineno < LONGEST_FUNCTION, f"code cell {k}"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_was_executed_in_order_and_holds_nothing_of_the_run(
    path: Path, checker: ModuleType
) -> None:
    notebook = read(path)
    cells = code(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    assert all(set(cell["metadata"]) <= {"tags"} for cell in notebook["cells"])
    assert not checker.faults(checker.nbformat.read(path, as_version=4))
    assert path.stat().st_size <= LARGEST_FILE


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_figures_are_in_one_style_and_sharp(path: Path) -> None:
    cells = code(read(path))
    assert all(line in cells[0]["source"] for line in FIRST_LINES)
    outputs = [output for cell in cells for output in cell["outputs"]]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert pictures
    for output in pictures:
        data = base64.b64decode("".join(output["data"]["image/png"]))
        width, _ = struct.unpack(">II", data[16:24])
        assert abs(width - 2 * output["metadata"]["image/png"]["width"]) <= 1


def test_the_rules_notice_what_they_are_for() -> None:
    lines = {
        "from freshopt.problems import HarmonicStaleness": [],
        "import freshopt as fo\nfrom freshopt.cvx import cp": [],
        "from freshopt.certificates.duality_gap import gap": ["freshopt.certificates.duality_gap.gap"],
        "from freshopt.estimators.changes_per_time import Naive": [
            "freshopt.estimators.changes_per_time.Naive"
        ],
        "from freshopt.estimators import kept": ["freshopt.estimators.kept"],
        "import requests": ["requests.None"],
        "problem._terms": ["_terms"],
    }
    assert {line: not_public(ast.parse(line)) for line in lines} == lines


@pytest.mark.parametrize(
    ("kept", "fresh", "equal"),
    [
        ("value 52.7728895", "value 52.7728896", True),
        ("value 52.7728895", "value 52.7738895", False),
        ("gap 3e-17", "gap < 1e-15", False),
        ("gap 3e-17", "gap 4.1e-09", True),
        ("gap 3e-17", "gap 4.1e-05", False),
        ("6 never refreshed", "7 never refreshed", False),
        ("0.12 of 7", "0.13 of 7", True),
        ("0.12 of 7", "0.14 of 7", False),
        ("optimal 1.0", "inaccurate 1.0", False),
        ("a   1.0\n---------", "a 1.0\n-----", True),
        ("1,234.5", "1,234.6", True),
        ("99.9999999", "100", True),
        ("two", "two 2.0", False),
        ("x3 = 1", "x4 = 1", False),
    ],
)
def test_printed_text_is_equal_up_to_rounding(
    checker: ModuleType, kept: str, fresh: str, equal: bool
) -> None:
    assert checker.same(kept, fresh) is equal
    assert checker.same(fresh, kept) is equal


def test_bad_outputs_are_noticed(checker: ModuleType) -> None:
    v4 = checker.nbformat.v4
    folder = "/" + "home" + "/somebody/log.csv"
    picture = v4.new_output("display_data", {"image/png": "AA==", "text/plain": "<Figure>"})
    cases = {
        "shows a warning": ("f()", v4.new_output("stream", text="DeprecationWarning: f is old")),
        "wrote to stderr": ("f()", v4.new_output("stream", name="stderr", text="hm")),
        "ended in an error": ("f()", v4.new_output("error", ename="E", evalue="e", traceback=[])),
        "shows a path of one machine": ("f()", v4.new_output("stream", text=f"wrote {folder}")),
        "shows an address in memory": ("f()", v4.new_output("stream", text="<object at 0x7f0a12345678>")),
        "plots and has no picture": ("plt.show()", v4.new_output("stream", text="1")),
    }
    for words, (source, output) in cases.items():
        notebook = v4.new_notebook(cells=[v4.new_code_cell(source, outputs=[output])])
        assert any(words in fault for fault in checker.faults(notebook)), words
    good = v4.new_notebook(cells=[v4.new_code_cell("plt.show()", outputs=[picture])])
    assert checker.faults(good) == []
    assert checker.faults(v4.new_notebook(cells=[v4.new_code_cell("1")])) == ["it has no outputs"]


def test_a_change_of_what_is_printed_is_noticed_and_of_timings_is_not(checker: ModuleType) -> None:
    v4 = checker.nbformat.v4

    def notebook(text: str, *tags: str) -> Any:  # noqa: ANN401 - nbformat has no types
        cell = v4.new_code_cell("f()", outputs=[v4.new_output("stream", text=text)])
        cell.metadata["tags"] = list(tags)
        return v4.new_notebook(cells=[cell])

    assert checker.differences(notebook("cost 2.50"), notebook("cost 2.60"))
    assert not checker.differences(notebook("cost 2.50"), notebook("cost 2.50"))
    assert not checker.differences(notebook("took 2.5 s", "timing"), notebook("took 9.7 s", "timing"))
    assert checker.differences(notebook("took 2.5 s", "timing"), notebook("failed", "timing"))
    assert not checker.differences(notebook("var7", "foreign"), notebook("x8", "foreign"))
    effort = "value: 1.0\n  effort: {} iterations, {} s"
    assert not checker.differences(notebook(effort.format(9, 0.1)), notebook(effort.format(8, 0.3)))
