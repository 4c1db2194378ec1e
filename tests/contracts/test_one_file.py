"""An objective or a solver is one file and one line: all that is to know of it is found from there.

The package is laid out anew in a temporary folder, with a toy objective and a toy solver more: one file each,
and one line each in `problems/__init__.py` and `solvers/__init__.py`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import freshopt as fo

ROOT = Path(__file__).parents[2]
OBJECTIVE = '''"""Toy staleness: a copy costs the square of the reciprocal rate, w·Δ/ρ²."""

from __future__ import annotations

from dataclasses import dataclass

from freshopt.cvx import Expression, cp
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.sources import Sources


@dataclass(frozen=True)
class ToyStaleness(Objective):
    """Minimise Σ w·Δ/ρ².

    Examples
    --------
    >>> import freshopt as fo
    >>> fo.solve(fo.Problem(ToyStaleness(), fo.Sources([1.0, 8.0]), bandwidth=3.0)).rates.round(6)
    array([1., 2.])
    """

    refresh: Refresh = Refresh.POISSON

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·Δ/ρ²."""
        return cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -2))
'''
SOLVER = '''"""Toy halving: water-filling under another name."""

from __future__ import annotations

from dataclasses import dataclass

from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import as_whole
from freshopt.solvers.water_filling import WaterFilling


@dataclass(frozen=True)
class ToyHalving:
    """Ask another solver."""

    rounds: int = 3

    def __post_init__(self) -> None:
        """Refuse what is no number of rounds."""
        as_whole(self.rounds, "rounds", 1, 100)

    def supports(self, problem: Problem) -> str | None:
        """Return why not."""
        return WaterFilling().supports(problem)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Return the other's answer."""

        def answer(problem: Problem, _start: float | None) -> Answer:
            found = WaterFilling().solve(problem)
            return Answer(found.rates, found.price, found.host_prices)

        return certified_solution(self, problem, options, answer)
'''
HELPERS = """
from tests.contracts import api_calls, discovery, test_api
print([repr(o) for o in discovery.objectives().values() if "Toy" in repr(o)])
print([name for name in discovery.solvers() if "Toy" in name])
calls = {name: sorted(call.arguments) for name, call in api_calls.CALLS.items() if "Toy" in name}
print(calls)
assert calls.keys() == {name for name in test_api.public_names() if "Toy" in name}
for name in calls:
    test_api.test_right_arguments_succeed(name)
    test_api.test_a_wrong_setting_is_refused_at_construction_and_not_later(name)
    for key in calls[name]:
        for part in range(test_api.PARTS):
            test_api.test_any_wrong_argument(f"{name}-{key}", part)
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package and two files more; all that does not change is a link."""
    home = tmp_path_factory.mktemp("house")
    package = Path(fo.__file__).parent
    (home / "freshopt").mkdir()
    for path in package.iterdir():
        if path.name not in ("problems", "solvers", "__pycache__"):
            (home / "freshopt" / path.name).symlink_to(path)
    for room, file, text, name in (
        ("problems", "toy_staleness", OBJECTIVE, "ToyStaleness"),
        ("solvers", "toy_halving", SOLVER, "ToyHalving"),
    ):
        (home / "freshopt" / room).mkdir()
        for path in (package / room).glob("*.py"):
            if path.name != "__init__.py":
                (home / "freshopt" / room / path.name).symlink_to(path.resolve())
        (home / "freshopt" / room / f"{file}.py").write_text(text, encoding="utf-8")
        exports = (package / room / "__init__.py").read_text(encoding="utf-8")
        line = f"from freshopt.{room}.{file} import {name} as {name}\n"
        lines = exports.splitlines(keepends=True)
        last = max(k for k, each in enumerate(lines) if each.lstrip().startswith(f"from freshopt.{room}."))
        lines.insert(last + 1, lines[last].partition("from")[0] + line)
        made = "".join(lines)
        assert made.count("\n") == exports.count("\n") + 1  # one line, and that is all
        (home / "freshopt" / room / "__init__.py").write_text(made, encoding="utf-8")
    return home


def ran(house: Path, *arguments: str, code: int = 0) -> str:
    """Return what Python prints with that package instead of the installed one."""
    path = os.pathsep.join([str(house), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=house,
        env={**os.environ, "PYTHONPATH": path, "FRESHOPT_COMPILED": "0", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.exhaustive
def test_the_command_line_checks_them(house: Path) -> None:
    output = ran(
        house, "-m", "freshopt", "check", "--objective", "toy-staleness", "--solvers",
        "toy-halving,water-filling", "--refresh", "poisson",
    )  # fmt: skip
    rows = re.findall(r"^toy-staleness +poisson +(\S.*?)  +\d+  2 of 2 proved$", output, re.MULTILINE)
    assert {"plain", "bounds", "hosts", "unequal costs"} <= set(rows)
    assert re.search(r"^toy-halving +(\d+) +\1 +0 ", output, re.MULTILINE)
    assert re.search(r"^The optimum of all \d+ problems is proved", output, re.MULTILINE)
    delay = ran(
        house, "-m", "freshopt", "check", "--objective", "delay", "--refresh", "poisson",
        "--solvers", "toy-halving",
    )  # fmt: skip
    assert re.search(r"^toy-halving +(\d+) +\1 +0 ", delay, re.MULTILINE)


@pytest.mark.exhaustive
def test_the_command_line_tells_of_them(house: Path) -> None:
    told = " ".join(ran(house, "-m", "freshopt", "check", "--help").split()).replace("- ", "-")
    assert "penalty-square, toy-staleness;" in told.replace("│ │ ", "")
    unknown = ran(house, "-m", "freshopt", "check", "--solvers", "none", code=2)
    assert re.search(r"water-filling, .*, lifetime-rule, toy-halving\b", " ".join(unknown.split()))
    assert "toy-staleness" not in " ".join(ran(house, "-m", "freshopt", "plan", "--help").split())
    solved = " ".join(ran(house, "-m", "freshopt", "solve", "--help").split())
    assert "toy-staleness" in solved


@pytest.mark.exhaustive
def test_the_contract_tests_take_them(house: Path) -> None:
    output = ran(house, "-c", HELPERS)
    assert "ToyStaleness(refresh=Refresh.PERIODIC)" in output
    assert "['ToyHalving(rounds=3)']" in output
    assert "{'problems.ToyStaleness': ['refresh'], 'solvers.ToyHalving': ['rounds']}" in output
    chosen = (
        "(ToyStaleness and (marginal or declared)) or (ToyHalving and ToyStaleness and hosts) "
        "or (toy and test_objective_options)"
    )
    passed = ran(
        house, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", str(ROOT),
        "-c", str(ROOT / "pyproject.toml"), str(ROOT / "tests/contracts/test_contract.py"),
        str(ROOT / "tests/terminal/test_objective_options.py"), "-k", chosen, "-m", "",
    )  # fmt: skip
    for cell in (
        r"test_contract\.py::\w*marginal\w*\[ToyStaleness",
        r"test_contract\.py::\w*declared\w*\[ToyStaleness",
        r"test_contract\.py::\w+\[ToyStaleness\S*-ToyHalving\S*-hosts",
        r"test_objective_options\.py::\S*toy",
    ):
        assert re.search(cell + r".* PASSED", passed), passed
    assert "FAILED" not in passed
