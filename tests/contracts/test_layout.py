"""The architecture, pinned: what may import what, what an import costs, what the package map says."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

import freshopt as fo
from tests.import_graph import circle, floors, graph, modules, room

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "freshopt"
# Room → the rooms that it may import, and with them all that those may import. The words of the trade in
# EVERYWHERE may be imported by every room above them. There are no exceptions.
EVERYWHERE = {"errors", "heavy", "cvx", "units", "formatting", "frames", "moved", "plots", "renamed"}
ROOMS = {
    "errors": "",
    "moved": "",
    "renamed": "moved errors",
    "heavy": "",
    "cvx": "errors heavy",
    "numerics": "heavy",
    "units": "numerics",
    "formatting": "",
    "frames": "heavy",
    "plots": "errors numerics formatting",
    "compiled": "numerics",
    "autodiff": "numerics",
    "separable": "compiled autodiff",
    "logs": "compiled",
    "modelling": "separable logs",
    "problems": "modelling",
    "automata": "compiled",
    "estimators": "logs",
    "goodness_of_fit": "estimators",
    "datasets": "logs",
    "scheduling": "modelling estimators",
    "certificates": "modelling",
    "dual_search": "certificates",
    "interior_point": "certificates",
    "first_order": "certificates",
    "tools": "scheduling",
    "report": "modelling",
    "simulation": "problems scheduling",
    "testing": "certificates problems",
    "pipelines": "simulation tools",
    "noisy_signals": "simulation estimators",
    "cuda": "certificates",
    "solvers": "cuda dual_search interior_point first_order automata problems",
    "crosscheck": "solvers agreement_cells",
    "naming": "solving many",
    "agreement_cells": "sampled_gap",
    "sampled_gap": "certificates",
    "solving": "solvers",
    "many": "solvers",
    "questions": "solvers scheduling noisy_signals",
    "warming": "solving problems",
    "versions": "compiled",
    "parametric": "many questions",
    "online": "solving many simulation",
    "planning": "questions naming report simulation goodness_of_fit noisy_signals tools datasets",
    "distributed": "planning",
    "live": "planning",
    "terminal": "planning",
    "cli": "terminal live distributed online crosscheck parametric testing pipelines versions",
    "__main__": "cli",
}
# Files beside the rooms: front doors.
FRONT = {"naming", "solving", "many", "warming", "parametric", "crosscheck", "agreement_cells", "sampled_gap"}
FRONT |= {"versions"}
# A closed form or a published algorithm is the solver of one objective, and names it; no other solver does.
SPECIALISED = {
    # What a poll sees of a copy depends on the cost: the tree has a feedback for each objective.
    "automata_tree": {
        "accumulated_delay",
        "age",
        "binary_freshness",
        "harmonic_staleness",
        "later_than",
        "piecewise_linear_cost",
        "polling_knapsack",
        "power_cost",
        "synchronization_cost",
    },
    "closed_form": {"accumulated_delay", "binary_freshness", "harmonic_staleness", "polling_knapsack"},
    "lambda_crawl": {"harmonic_staleness"},
    "binary_lambda_crawl": {"binary_freshness"},
}
HEAVY = (
    "cvxpy",
    "polars",
    "numba",
    "scipy",
    "networkx",
    "highspy",
    "jinja2",
    "rich",
    "rich_click",
    "msgspec",
    "pandas",
    "matplotlib",
    "narwhals",
    "click",
    "dask",
    "distributed",
    "pyarrow",
)


MODULES = modules(ROOT)


@functools.cache
def edges() -> dict[str, set[str]]:
    """Return what each module imports."""
    return graph(ROOT)


def allowed(name: str) -> set[str]:
    """Return the rooms that a room may import: those of its row, and theirs."""
    found: set[str] = set()
    for other in ROOMS[name].split():
        found |= {other} | allowed(other)
    return found


def test_every_room_has_a_row_and_every_row_is_a_room() -> None:
    assert {room(module) for module in MODULES} - {"freshopt"} == set(ROOMS)
    assert {name for row in ROOMS.values() for name in row.split()} <= set(ROOMS)


@pytest.mark.parametrize("own", sorted({room(module) for module in MODULES} - {"freshopt"}))
def test_imports_point_down(own: str) -> None:
    for module, imported in ((m, other) for m in MODULES if room(m) == own for other in edges()[m]):
        other = room(imported)
        if other == "freshopt":
            assert own in ("cli", "planning", "distributed"), (
                f"{module} imports freshopt itself"
            )  # the version
        elif other != own:
            known = allowed(own) | {name for name in EVERYWHERE if own not in allowed(name)}
            assert other in known, f"{module} imports {imported}"


def test_no_file_imports_another_in_a_circle() -> None:
    assert circle({module: others for module, others in edges().items() if module != "freshopt"}) == []


def test_the_house_has_at_most_thirteen_floors() -> None:
    assert len(floors(edges())) <= 13


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ({"freshopt.a.x": {"freshopt.b.y"}, "freshopt.b.y": {"freshopt.a.x"}}, 3),
        ({"freshopt.a.x": {"freshopt.b.y"}, "freshopt.b.y": set()}, 0),
    ],
)
def test_a_circle_is_seen(edges: dict[str, set[str]], found: int) -> None:
    assert len(circle(edges)) == found


def test_numba_is_imported_by_loops_alone() -> None:
    """HOUSE: numba code is always `loops.py` or `*_loops.py`; `column_access` is its generated columns."""
    users = {
        module.split(".")[-1]
        for module, path in MODULES.items()
        if "numba" in (text := path.read_text())
        and any(
            (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numba")
            or (isinstance(node, ast.Import) and any(alias.name == "numba" for alias in node.names))
            for node in ast.parse(text).body
        )
    }
    assert {name for name in users if not name.endswith("loops")} == {"column_access"}


def test_one_file_reads_the_switch_of_compiled_loops() -> None:
    assert [m for m, path in MODULES.items() if '"FRESHOPT_COMPILED"' in path.read_text()] == [
        "freshopt.compiled.backend"
    ]


def test_problems_and_solvers_meet_only_where_a_solver_is_of_one_objective() -> None:
    named = {
        module.split(".")[-1]: {name.split(".")[-1] for name in others if room(name) == "problems"}
        for module, others in edges().items()
        if room(module) == "solvers"
    }
    assert {solver: objectives for solver, objectives in named.items() if objectives} == SPECIALISED


def test_package_map_is_the_folders() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        setuptools = tomllib.load(file)["tool"]["setuptools"]
    folders = {
        ".".join(["freshopt", *path.parent.relative_to(PACKAGE).parts])
        for path in PACKAGE.rglob("__init__.py")
    }
    assert set(setuptools["packages"]) == folders | {"freshopt.problems", "freshopt.solvers"}
    assert setuptools["package-dir"] == {
        "freshopt": "freshopt",
        "freshopt.problems": "problems",
        "freshopt.solvers": "solvers",
    }
    for link in ("problems", "solvers"):
        assert (ROOT / link / "__init__.py").is_file()
        assert (PACKAGE / link).resolve() == (ROOT / link).resolve()


def test_every_dependency_has_one_lower_bound() -> None:
    """The lowest versions are tested too (.ci/lowest.py); a package without a bound has none."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    bounds: dict[str, str] = {}
    for requirement in chain(project["dependencies"], *project["optional-dependencies"].values()):
        if not re.fullmatch(r"freshopt\[[\w,]+\]", requirement):
            bounded = re.fullmatch(r"([\w-]+)(\[\w+\])?>=(\d+(\.\d+)*)(,!=[\d.]+)?", requirement)
            assert bounded, requirement
            assert bounds.setdefault(bounded[1], bounded[3]) == bounded[3], requirement
    assert {"numpy", "cvxpy", "pytest", "ruff"} <= set(bounds)


SOLVED = "fo.solve(fo.Problem(fo.problems.HarmonicStaleness(), fo.Sources([1.0, 2.0]), 1.0))"
# What is done in a fresh process, one after the other → what is not loaded by then.
LIGHT = {
    "import freshopt": " ".join(HEAVY),
    "import freshopt.estimators": "polars scipy cvxpy numba",
    f"import freshopt as fo; {SOLVED}": "cvxpy",
    f"import freshopt as fo; {SOLVED}; fo.solvers.WaterFillingCuda(); fo.cuda.DeviceProblem": (
        "numba.cuda numba_cuda"
    ),
    "import freshopt as fo; fo.pipeline([('r', 'a')], {'r': 1.0})": "networkx",
    "import freshopt.cli.plan, freshopt.cli.solve": "cvxpy",
    "import freshopt.cli.serve, freshopt.cli.run": "starlette uvicorn",
}


def test_what_is_not_needed_is_not_loaded() -> None:
    """One process does it all: what was loaded stays, so that no step may load what a later one must not."""
    told = [f"{code}; print({set(away.split())} & {{*sys.modules}})" for code, away in LIGHT.items()]
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(["import sys", *told])], capture_output=True, text=True, check=True
    )
    assert dict(zip(LIGHT, ran.stdout.splitlines(), strict=True)) == dict.fromkeys(LIGHT, "set()")


def test_every_public_name_resolves() -> None:
    assert len(set(fo.__all__)) == len(fo.__all__)
    for name in fo.__all__:
        assert getattr(fo, name) is not None
        assert name in dir(fo)
    with pytest.raises(AttributeError, match="'freshopt' has no attribute 'Solver_'"):
        fo.Solver_  # noqa: B018


def test_files_are_short_enough_to_read() -> None:
    """STYLE: split before 500 lines, tests too."""
    tests = {str(path): path for path in (ROOT / "tests").rglob("*.py")}
    long = {
        name: n
        for name, path in {**MODULES, **tests}.items()
        if (n := len(path.read_text().splitlines())) > 500
    }
    assert not long


def test_rooms_hold_few_files() -> None:
    """STYLE: at most 25 files in a folder of the library."""
    counts = Counter(path.parent for path in MODULES.values())
    assert not {str(folder): n for folder, n in counts.items() if n > 25}


def test_no_text_names_a_place_on_one_machine() -> None:
    places = tuple("/" + folder + "/" for folder in ("work", "tmp", "root", "home"))
    kinds = {".py", ".md", ".toml", ".ipynb", ".csv", ".cfg", ".yml", ".yaml", ".txt", ".in"}
    folders = ("freshopt", "problems", "solvers", "tests", "notebooks", "benchmarks", "docs", ".ci")
    paths = [*ROOT.glob("[!.]*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    texts = [path for path in paths if path.is_file() and (path.suffix in kinds or not path.suffix)]
    assert texts
    found = [
        f"{path.relative_to(ROOT)}: {place}"
        for path in texts
        for place in places
        if place in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert not found


def test_editors_see_what_is_public() -> None:
    """What is imported on first use is what type checkers read."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    seen = {
        name.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.asname == name.name
    }
    packages = {name for name, module in seen.items() if module == "freshopt"}
    assert packages == set(fo._PACKAGES)
    assert seen == fo._HOMES
    assert dir(fo) == sorted({*fo.__all__, *packages})
