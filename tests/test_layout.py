"""The architecture, pinned: what may import what, what an import costs, what the package map says."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import freshopt as fo

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "freshopt"
# Layers from the bottom up; a module imports from lower layers, or along a pair in SAME_LAYER.
LAYERS = (
    ("errors", "cvx"),
    ("arrays",),
    ("tables",),
    ("units", "special", "inversion", "quadrature", "powers"),
    ("wording",),
    ("increments", "demands", "signal_rules", "signal_terms"),
    ("loop_columns", "signal_search"),
    ("loops", "signal_loops"),
    ("compiled",),
    ("signal_cycle",),
    ("sources",),
    ("kernel", "hosts", "estimates"),
    ("jets",),
    ("atoms",),
    ("kinks", "linear", "relative_entropy"),
    ("tape",),
    ("elementwise",),
    ("derived",),
    ("objective",),
    ("curve", "declaration", "cones"),
    ("domain",),
    ("model",),
    ("columns",),
    ("gap",),
    ("pricing", "vanishing"),
    ("certificate",),
    ("result",),
    ("verdict",),
    ("automata",),
    ("problems", "solvers"),
    ("solving",),
    ("crosscheck", "simulation", "learning", "scheduling", "io", "examples"),
    ("planning", "plan_folder", "testing", "report", "distributed", "exporting", "held_out"),
    ("cli",),
    ("__main__",),
)
LAYER = {name: k for k, layer in enumerate(LAYERS) for name in layer}
SAME_LAYER = {
    ("io", "learning"),  # a crawl log is what reading one returns
    ("examples", "learning"),
    ("learning", "simulation"),  # learners act in a world
    ("held_out", "planning"),  # a plan made from the first part of a log
    ("distributed", "planning"),  # a plan in partitions has the parts of one in memory
    ("distributed", "plan_folder"),
    ("plan_folder", "planning"),
    ("plan_folder", "report"),  # a plan's folder has its page in it
    ("planning", "report"),  # what the page finds is computed with the plan
}
# A closed form or a published algorithm is the solver of one objective, and names it; no other solver does.
SPECIALISED = {
    "automata_tree": {"binary_freshness", "polling_knapsack"},
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
    "rich",
    "pandas",
    "matplotlib",
    "narwhals",
    "click",
    "dask",
    "distributed",
    "pyarrow",
)


def sources() -> dict[str, Path]:
    """Return every module of the installed package by its dotted name, from where the file really lies."""
    folders = {
        "freshopt": PACKAGE,
        "freshopt.problems": ROOT / "problems",
        "freshopt.solvers": ROOT / "solvers",
    }
    found: dict[str, Path] = {}
    for package, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if package == "freshopt" and parts[0] in ("problems", "solvers"):
                continue  # the links
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


def top(module: str) -> str:
    """Return the part of a dotted name that has a layer: 'freshopt.io.tables' is 'io'."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports(path: Path) -> set[str]:
    """Return the freshopt modules that a file imports when it runs, also inside functions."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in names if (PACKAGE / f"{name.partition('.')[2]}.py").exists()}
            found |= modules if node.module == "freshopt" and modules == names else {node.module or ""}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return {name for name in found if name.split(".")[0] == "freshopt"}


MODULES = sources()


def test_every_module_has_a_layer() -> None:
    unplaced = {top(module) for module in MODULES} - {""} - set(LAYER)
    assert not unplaced, "give these a place in LAYERS"


@pytest.mark.parametrize("module", [m for m in MODULES if m != "freshopt"])
def test_imports_point_down(module: str) -> None:
    own = top(module)
    for imported in imports(MODULES[module]):
        other = top(imported)
        if other in ("", own):
            assert other == own or own == "cli", f"{module} imports freshopt itself"  # the version
            continue
        if (own, other) == ("solvers", "problems"):
            continue  # pinned below
        if (own, other) == ("solving", "solvers"):
            assert imported == "freshopt.solvers.auto"
        assert LAYER[other] < LAYER[own] or (own, other) in SAME_LAYER, f"{module} imports {imported}"


def test_problems_and_solvers_meet_only_where_a_solver_is_of_one_objective() -> None:
    named: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if top(module) == "problems":
            assert not {name for name in imports(path) if top(name) in ("solvers", "solving")}, module
        if top(module) == "solvers":
            named[module.split(".")[-1]] = {
                name.split(".")[-1] for name in imports(path) if top(name) == "problems"
            }
    assert {solver: objectives for solver, objectives in named.items() if objectives} == SPECIALISED


# Who acts while learning takes a solver's steps or solves anew, and is measured against the best rates.
ACTING = {
    "adaptive_rates",
    "async_mirror_sync",
    "async_projected_gradient_sync",
    "automata_tree_polling",
    "best_exploration",
    "campaign",
    "explore_then_commit",
    "fixed_polling",
    "lambda_learn_and_crawl",
    "mirror_sync",
    "phased_epsilon_greedy",
    "solution_spread",
    "sync_cycles",
    "synchronization",
    "truth",
}


def test_estimators_and_scheduling_do_without_solvers() -> None:
    for module, path in MODULES.items():
        if top(module) in ("learning", "scheduling") and module.split(".")[-1] not in ACTING:
            assert not {name for name in imports(path) if top(name) in ("solvers", "solving")}, module


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


def test_import_costs_no_more_than_numpy() -> None:
    code = f"import sys, freshopt; print([name for name in {HEAVY!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_direct_solve_of_a_named_objective_loads_no_cvxpy() -> None:
    code = (
        "import sys, freshopt as fo; "
        "fo.solve(fo.Problem(fo.problems.HarmonicStaleness(), fo.Sources([1.0, 2.0]), 1.0)); "
        "print('cvxpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_every_public_name_resolves() -> None:
    assert len(set(fo.__all__)) == len(fo.__all__)
    for name in fo.__all__:
        assert getattr(fo, name) is not None
        assert name in dir(fo)
    with pytest.raises(AttributeError, match="'freshopt' has no attribute 'Solver_'"):
        fo.Solver_  # noqa: B018


def test_files_are_short_enough_to_read() -> None:
    """STYLE: split before 500 lines, tests too."""
    tests = {path.stem: path for path in (ROOT / "tests").glob("*.py")}
    long = {
        name: n
        for name, path in {**MODULES, **tests}.items()
        if (n := len(path.read_text().splitlines())) > 500
    }
    assert not long


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
