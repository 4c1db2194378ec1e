"""`freshopt check --solver`: the worked example prints what CONTRIBUTING shows; mistakes end in one line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from freshopt.cli import main

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Validate a solver of your own")[1]
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
COMMAND = Path(sys.executable).with_name("freshopt")
RIGHT = "import freshopt as fo\n\n\ndef solve(problem):\n    return fo.solve(problem).rates\n"
FILES = {
    "right_solver": RIGHT,
    "growing_solver": """import freshopt as fo
import numpy as np


def solve(problem):
    rates = np.array(fo.solve(problem).rates)
    if len(rates) >= 30:
        rates[-1] = max(rates[-1] / 2.0, problem.lower[-1])
    return rates
""",
    "broken_solver": "import freshopt\n1 / 0\n",
    "needy_solver": "import a_package_that_is_not_there\n",
    "choosy_solver": "class Solver:\n    def __init__(self, size): ...\n\n\nlimit = 3\n",
    "polite_solver": "import freshopt\n\n\ndef solve(problem):\n    raise freshopt.SolverRefusedError\n",
}


def untimed(report: str) -> list[str]:
    """Return the lines of a report without the seconds and without what their width does to the columns.

    A gap below rounding is no number to compare: processors differ in it.
    """
    row = re.compile(r"^(benign|ill|given) +(\d+) +(\d+) +(\d+) +\S+ +(.*)$")
    told = [line for line in report.splitlines() if not line.startswith("... ")]  # what takes long
    rounding = re.compile(r"certified gap is (0|\S+e-1\d) \(relative (0|\S+e-1\d)\)")
    told = [rounding.sub("certified gap is 0 (relative 0)", line) for line in told]
    lines = [" ".join(row.sub(r"\1 \2 \3 \4 \5", line).split()) for line in told]
    assert sum(bool(row.match(line)) for line in report.splitlines()) >= 2
    return lines


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "sources.csv").write_text("source,change_rate\na,1\nb,4\n")
    return tmp_path


@pytest.mark.exhaustive
def test_the_worked_example_prints_what_contributing_shows(folder: Path) -> None:
    (code,) = (text for kind, text in BLOCKS if kind == "python")
    (command,) = (text for kind, text in BLOCKS if kind == "sh")
    (shown,) = (text for kind, text in BLOCKS if not kind)
    (folder / "squareroot.py").write_text(code)
    assert command.startswith("freshopt check --solver squareroot:solve ")
    ran = subprocess.run([COMMAND, *command.split()[1:]], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert untimed(ran.stdout) == untimed(shown)


@pytest.mark.exhaustive
def test_a_right_solver_ends_well_on_families_and_on_a_table() -> None:
    for arguments in (
        ["--objective", "delay", "--refresh", "poisson", "--seed", "3"],
        ["sources.csv", "--bandwidth", "2/day", "--objective", "harmonic"],
    ):
        result = CliRunner().invoke(main, ["check", "--solver", "right_solver:solve", *arguments])
        assert result.exit_code == 0, result.output
        assert "No shortfall: " in result.output


def test_declining_everything_is_not_passing() -> None:
    arguments = ["check", "sources.csv", "--solver", "polite_solver:solve", "--objective", "delay"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "declined every problem" in result.output


@pytest.mark.exhaustive
def test_a_fault_that_begins_at_thirty_sources_is_found_and_n_chooses_the_sizes() -> None:
    command = ["check", "--solver", "growing_solver:solve", "--objective", "delay", "--refresh", "poisson"]
    result = CliRunner().invoke(main, [*command, "--n", "10, 29"])
    assert result.exit_code == 0, result.output
    assert "No shortfall: 240 answers" in result.output
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1, result.output
    assert "Smallest problem found: not optimal." in result.output
    assert max(map(len, result.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--solver", "solve"], ("'solve' names no function", "MODULE:FUNCTION")),
        (["--solver", "missing_solver:solve"], ("no module 'missing_solver'", "MODULE:FUNCTION")),
        (["--solver", "right_solver.inner:solve"], ("right_solver.inner",)),
        (["--solver", "right_solver:slove"], ("'right_solver' has no 'slove'", "It has solve.")),
        (["--solver", "broken_solver:solve"], ("importing 'broken_solver' fails", "ZeroDivisionError")),
        (
            ["--solver", "needy_solver:solve"],
            ("importing 'needy_solver' fails", "a_package_that_is_not_there"),
        ),
        (["--solver", "choosy_solver:Solver"], ("without arguments", "size")),
        (["--solver", "choosy_solver:limit"], ("is 3, not a function",)),
        (["--solver", "right_solver:solve", "--solvers", "ecos"], ("--solver runs alone", "--solvers")),
        (["--solver", "right_solver:solve", "--n", "3,no"], ("'--n'", "'no' is not a whole number")),
        (["--solver", "right_solver:solve", "--n", "0"], ("'0' is not a whole number",)),
        (["sources.csv", "--solver", "right_solver:solve", "--n", "3"], ("take the place of SOURCES",)),
        (["--n", "3"], ("--n is for the problem families of --solver",)),
        (["--solver", "right_solver:solve", "--html", "x.html"], ("--solver runs alone", "--html")),
    ],
)
def test_mistakes_end_in_one_line(arguments: list[str], words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["check", "--objective", "delay", *arguments])
    assert result.exit_code == 2, result.output
    (line,) = result.output.splitlines()
    for word in words:
        assert word in line
