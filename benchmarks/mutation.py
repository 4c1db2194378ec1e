"""Mutation testing: do tests notice a wrong line of the certificate, the water-filling or the estimators.

Each mutant differs from the sources by one operator, comparison, constant or branch. It is put in its module
when a forked process imports it, nothing is written to disk, and the tests of its group run until one
fails. What survives is equivalent, or tells of a test that is missing. NumPy path.

    python benchmarks/mutation.py --sample 320 --minutes 60

It goes on where an earlier run with the same sample stopped.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 60  # seconds that a mutant may take: the tests of a group take some 20 on a quiet core
QUICK = "not (never_below and (periodic or hosts or all)) and not (no_price_is_better and hosts)"
GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "certificate": (
        ("freshopt/certificate.py", "freshopt/gap.py", "freshopt/pricing.py", "freshopt/vanishing.py"),
        ("test_extremes", "test_flat_demand", "test_edges", "test_certificate", "test_mutants"),
    ),
    "water-filling": (
        ("solvers/water_filling.py", "solvers/price_search.py"),
        ("test_extremes", "test_edges", "test_certificate", "test_mutants", "test_flat_demand"),
    ),
    "estimators": (
        ("freshopt/learning/maximum_likelihood.py", "freshopt/learning/crawl_likelihood.py"),
        ("test_maximum_likelihood", "test_forgetting"),
    ),
}
COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}
NAMED = {
    "minimum": "maximum",
    "maximum": "minimum",
    "min": "max",
    "max": "min",
    "fmin": "fmax",
    "fmax": "fmin",
    "any": "all",
    "all": "any",
    "argmin": "argmax",
    "argmax": "argmin",
    "exp": "expm1",
    "log": "log1p",
}


class Mutant(NamedTuple):
    """One change: where, what it was and what it became, and the module's source with it."""

    file: str
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """What identifies it among all."""
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node may become."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in COMPARED:
            new.ops = [COMPARED[type(op)]()]
            yield new
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in COMPUTED:
            new.op = COMPUTED[type(op)]()
            yield new
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield new
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1 if abs(value) < 1000 else value / 2)
        case ast.IfExp(body=body, orelse=other):
            new.body, new.orelse = other, body
            yield new
        case ast.Call(func=ast.Attribute(attr="where"), args=[_, one, other]):
            new.args[1:] = [other, one]
            yield new
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in NAMED:
            new.func.attr = NAMED[attr]
            yield new
        case ast.Call(func=ast.Name(id=name)) if name in NAMED:
            new.func.id = NAMED[name]
            yield new
        case ast.If(test=test):
            new.test = ast.UnaryOp(ast.Not(), test)
            yield new
        case ast.Break():
            yield ast.Pass()


def mutants(file: str) -> list[Mutant]:
    """Return all mutants of a file, in order."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found: list[Mutant] = []
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list", "bases"):
                continue
            holders = [(value, k) for k in range(len(value))] if isinstance(value, list) else [(parent, name)]
            for holder, key in holders:
                node = holder[key] if isinstance(holder, list) else value
                if not isinstance(node, ast.AST) or _within_message(node, parent):
                    continue
                for new in changes(node):
                    _put(holder, key, new)
                    source = ast.unparse(ast.fix_missing_locations(tree))
                    _put(holder, key, node)
                    shown = [ast.unparse(ast.fix_missing_locations(x)).splitlines()[0] for x in (node, new)]
                    found.append(Mutant(file, getattr(node, "lineno", 0), *shown, source))
    return sorted(found, key=lambda mutant: (mutant.line, mutant.before, mutant.after))


def _put(holder: Any, key: Any, node: ast.AST) -> None:  # noqa: ANN401 - a list or a node
    if isinstance(holder, list):
        holder[key] = node
    else:
        setattr(holder, key, node)


def _within_message(node: ast.AST, parent: ast.AST) -> bool:
    """Tell whether a node only words a message."""
    return isinstance(parent, ast.JoinedStr | ast.FormattedValue) or isinstance(
        node, ast.Raise | ast.JoinedStr
    )


class Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from given source."""

    def __init__(self, file: str, source: str) -> None:
        parts = file.removesuffix(".py").split("/")
        self.name = ".".join(parts if parts[0] == "freshopt" else ["freshopt", *parts])
        self.file, self.source = file, source

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:  # noqa: ANN401, ARG002
        """Return this loader for its module, None for others."""
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        """Run the source."""
        exec(compile(self.source, self.file, "exec"), module.__dict__)


def judge(mutant: Mutant | None, tests: tuple[str, ...]) -> str:
    """Run tests in a forked process; return "killed", "survived" or "timeout"."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if mutant is not None:
            sys.meta_path.insert(0, Replaced(mutant.file, mutant.source))
        import pytest  # noqa: PLC0415

        files = [f"tests/{test}.py" for test in tests if (ROOT / f"tests/{test}.py").exists()]
        plain = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-W", "ignore", "-k", QUICK]
        os._exit(int(pytest.main([*plain, *files])))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "timeout" if os.WTERMSIG(status) == signal.SIGALRM else "killed"
    return "survived" if os.WEXITSTATUS(status) == 0 else "killed"


def main() -> None:
    """Judge a seeded sample of all mutants and save what became of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=320, help="mutants in all, shared out by size of group")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this long; run again to go on")
    parser.add_argument("--again", action="store_true", help="judge the survivors of the saved run once more")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "mutation.json")
    options = parser.parse_args()
    os.environ["FRESHOPT_COMPILED"] = "0"
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for module in (
        "numpy",
        "scipy.special",
        "scipy.optimize",
        "cvxpy",
        "hypothesis",
        "mpmath",
        "polars",
        "pytest",
    ):
        importlib.import_module(module)
    begun = time.monotonic()
    saved = json.loads(options.out.read_text()) if options.out.exists() else {"mutants": {}}
    judged: dict[str, dict[str, str]] = saved["mutants"]
    every = {group: [m for file in files for m in mutants(file)] for group, (files, _) in GROUPS.items()}
    total = sum(map(len, every.values()))
    chosen: list[tuple[str, Mutant]] = []
    for group, all_of_it in every.items():
        size = min(len(all_of_it), round(options.sample * len(all_of_it) / total))
        chosen += [(group, m) for m in random.Random(options.seed).sample(all_of_it, size)]
    random.Random(options.seed).shuffle(chosen)
    names = {mutant.name for _, mutant in chosen}
    judged = {name: found for name, found in judged.items() if name in names}
    for group, mutant in chosen:
        known = judged.get(mutant.name)
        if known and not (options.again and known["verdict"] == "survived"):
            continue
        if time.monotonic() - begun > 60.0 * options.minutes:
            break
        verdict = judge(mutant, GROUPS[group][1])
        judged[mutant.name] = {"group": group, "verdict": verdict}
        print(f"{verdict:9} {mutant.name}", flush=True)
        counts = {
            group: {
                "mutants": len(all_of_it),
                **{v: sum(j == {"group": group, "verdict": v} for j in judged.values()) for v in VERDICTS},
            }
            for group, all_of_it in every.items()
        }
        result = {"seed": options.seed, "sample": len(chosen), "groups": counts, "mutants": judged}
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


VERDICTS = ("killed", "timeout", "survived")

if __name__ == "__main__":
    main()
