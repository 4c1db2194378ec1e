"""The import graph of the library, read from its files by AST: rooms, floors and circles.

``python -m tests.import_graph [FOLDER]`` prints rooms by floor, circles between files, and sizes
of the checkout in a folder (by default, this one), so that two states of the house can be compared.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

HERE = Path(__file__).parents[1]
FOLDERS = {"freshopt": "freshopt", "problems": "freshopt.problems", "solvers": "freshopt.solvers"}


def modules(root: Path = HERE) -> dict[str, Path]:
    """Return every module of the library by its dotted name, from where the file really lies."""
    found: dict[str, Path] = {}
    for folder, package in FOLDERS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            if package == "freshopt" and parts[0] in ("problems", "solvers"):
                continue  # the links
            if "__pycache__" in parts:
                continue  # loops of declared objectives
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


def room(module: str) -> str:
    """Return the room of a module: a folder of the package, or a file beside the folders."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "freshopt"


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a file that are there when it runs: not those for type checkers alone."""
    queue = [tree]
    while queue:
        node = queue.pop()
        if not (isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING"):
            yield node
            queue += ast.iter_child_nodes(node)


def imports(path: Path, known: Mapping[str, Path]) -> set[str]:
    """Return the library's modules that a file imports when it runs, also inside functions."""
    found: set[str] = set()
    for node in running(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                inner_module = f"{node.module}.{alias.name}"
                found.add(inner_module if inner_module in known else node.module or "")
        elif isinstance(node, ast.Call) and "import_module" in (
            getattr(node.func, "id", None),
            getattr(node.func, "attr", None),
        ):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return {name for name in found if name.split(".")[0] == "freshopt"}


def graph(root: Path = HERE) -> dict[str, set[str]]:
    """Return what each module imports of the library."""
    known = modules(root)
    return {name: imports(path, known) - {name} for name, path in known.items()}


def circle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a circle of a graph, empty if there is none."""
    try:
        TopologicalSorter({node: set(others) for node, others in edges.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def floors(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the rooms by floor: each is one above the highest that it imports from.

    Raises
    ------
    RecursionError
        If rooms import each other in a circle.
    """
    below: dict[str, set[str]] = defaultdict(set)
    for module, others in edges.items():
        below[room(module)] |= {room(other) for other in others} - {room(module), "freshopt"}

    @cache
    def floor(name: str) -> int:
        return 1 + max(map(floor, below.get(name, ())), default=-1)

    found: dict[int, list[str]] = defaultdict(list)
    for name in sorted({*below, *(other for others in below.values() for other in others)} - {"freshopt"}):
        found[floor(name)].append(name)
    return [found[level] for level in sorted(found)]


def lines(root: Path = HERE) -> int:
    """Return the lines of the library."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules(root).values())


def longest_function(root: Path = HERE) -> tuple[int, str]:
    """Return the length of the longest function and where it is."""
    return max(
        (1 + (node.end_lineno or 0) - node.lineno, f"{name}.{node.name}")
        for name, path in modules(root).items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def main(folder: Path) -> None:
    """Print the floors, the circles and the sizes of a checkout."""
    edges = graph(folder)
    found = circle(edges)
    print(f"circle between files: {' -> '.join(found)}" if found else "no circle between files")
    try:
        for level, rooms in reversed(list(enumerate(floors(edges)))):
            print(f"floor {level:2}: {' '.join(rooms)}")
    except RecursionError:
        print("rooms import each other in a circle")
    length, where = longest_function(folder)
    print(f"{len(edges)} modules, {lines(folder)} lines, longest function {length} lines ({where})")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
