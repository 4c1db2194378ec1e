"""Mutation testing: do tests notice a wrong line of the certificate, the water-filling or the estimators.

Each mutant differs from the sources by one operator, comparison, constant or branch. Tests are collected;
a forked process takes over the mutant's code in place (nothing is written to disk) and runs the tests of its
file until one fails, those first that found most mutants per second, as many as fit into `--seconds` of
processor time. `--again` judges survivors once more, by more tests. What survives that is equivalent, with
the reason in ``mutation_equivalent.json``, or tells of a test that is missing. NumPy path.

    python -m benchmarks mutation --sample 320 --minutes 60
    python -m benchmarks mutation --sample 320 --again --seconds 100
    python -m benchmarks mutation --like EARLIER.json --out NOW.json

It goes on where an earlier run with the same sample stopped, in the file that --out names. --like judges the
mutants of an earlier record that are still there, in whichever target their line stands now, and tells which
are gone. Targets are the files that define a name; a name that nothing defines any more ends the run.
"""

import argparse
import ast
import copy
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from benchmarks.harness import ROOT, Claims, Measurement, Record, Row, path_of

REASONS = ROOT / "benchmarks" / "accuracy" / "mutation_equivalent.json"
ROOMS = ("freshopt", "solvers", "problems")
GUESS = 0.1  # seconds of a test that was not run yet
STUCK = 240  # seconds on the clock after which a mutant is given up
PROOF = ("extremes", "few", "certificate", "mutants", "mathematics_dual")
FILLING = (*PROOF, "small_problems", "closed_forms", "solving", "bounds")
LEARNING = (
    "maximum_likelihood",
    "forgetting",
    "mathematics_learning",
    "known_crawl_rate",
    "crawl_formulas",
    "gamma_prior",
    "mutants",
)
# Tests by what is defined in the file that they are to guard, wherever that is.
TARGETS = {
    "certify": PROOF,
    "Gap": PROOF,
    "best_prices": PROOF,
    "sampled_price": PROOF,
    "vanishes": PROOF,
    "WaterFilling": FILLING,
    "Brackets": FILLING,
    "MaximumLikelihood": LEARNING,
    "CrawlLikelihood": LEARNING,
    "odds_of": LEARNING,
}


def both_ways(*pairs: tuple[Any, Any]) -> dict[Any, Any]:
    """Return what becomes of either of two."""
    return dict(pairs) | {other: one for one, other in pairs}


COMPARED = both_ways((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq))
COMPUTED = both_ways((ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr)) | {ast.Pow: ast.Mult}
NAMED = both_ways(
    *(("minimum", "maximum"), ("min", "max"), ("fmin", "fmax"), ("any", "all"), ("argmin", "argmax"))
) | {"exp": "expm1", "log": "log1p"}


def read(path: Path, absent: Record | None = None) -> Record:
    """Return what a file holds, or what stands for a file that is absent."""
    found: Record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else absent or {}
    return found


class Mutant(NamedTuple):
    """One change: where, what it was and what it became, and the module's source with it."""

    file: str
    line: int
    column: int
    text: str
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """What identifies it among all."""
        return f"{self.file}:{self.line}:{self.column}: {self.before} -> {self.after}"

    @property
    def lasting(self) -> str:
        """What identifies it when lines have moved."""
        return f"{self.file} | {self.change}"

    @property
    def change(self) -> str:
        """What identifies it when its line has moved to another file."""
        return f"{self.text} | {self.before} -> {self.after}"


def targets() -> dict[str, tuple[str, ...]]:
    """Return the tests of each file that defines a target; a name without one file ends the run."""
    found: dict[str, tuple[str, ...]] = {}
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    own = [path for path in files if not path.parent.is_symlink()]
    for name, tests in TARGETS.items():
        defined = re.compile(rf"^(class|def) {name}\b", re.MULTILINE)
        there = [path for path in own if defined.search(path.read_text(encoding="utf-8"))]
        if len(there) != 1:
            places = ", ".join(str(path.relative_to(ROOT)) for path in there) or "no file"
            raise SystemExit(
                f"{name} is defined in {places}: name what stands for it in TARGETS of mutation.py"
            )
        file = str(there[0].relative_to(ROOT))
        found[file] = tuple(dict.fromkeys((*found.get(file, ()), *tests)))
    return found


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
    text = (ROOT / file).read_text(encoding="utf-8")
    tree, lines = ast.parse(text), [line.strip() for line in text.splitlines()]
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
                    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
                    found.append(Mutant(file, line, column, lines[line - 1], *shown, source))
    return sorted(found, key=lambda mutant: mutant[:6])


def _put(holder: Any, key: Any, node: ast.AST) -> None:
    if isinstance(holder, list):
        holder[key] = node
    else:
        setattr(holder, key, node)


def _within_message(node: ast.AST, parent: ast.AST) -> bool:
    """Tell whether a node only words a message."""
    return isinstance(parent, ast.JoinedStr | ast.FormattedValue) or isinstance(
        node, ast.Raise | ast.JoinedStr
    )


def take_over(mutant: Mutant) -> None:
    """Put a mutant's code and constants into the module as it is imported, wherever they are referred to."""
    parts = mutant.file.removesuffix(".py").split("/")
    name = ".".join(parts if parts[0] == "freshopt" else ["freshopt", *parts])
    module, changed = sys.modules[name], ModuleType(name)
    exec(compile(mutant.source, mutant.file, "exec"), changed.__dict__)
    everybody = [m.__dict__ for key, m in sys.modules.items() if key.startswith(("freshopt", "tests"))]
    for key, new in vars(changed).items():
        old = module.__dict__.get(key)
        if key.startswith("__") or getattr(new, "__module__", name) != name:
            continue
        if isinstance(new, FunctionType):
            _take_code(old, new)
        elif isinstance(new, type):
            for attribute, inner in vars(new).items():
                _take_code(vars(old).get(attribute), inner)
        else:
            for space in everybody:
                if space.get(key) is old:
                    space[key] = new


def _take_code(old: Any, new: Any) -> None:
    if isinstance(new, property):
        old, new = old.fget, new.fget
    old, new = (getattr(x, "__wrapped__", getattr(x, "__func__", getattr(x, "func", x))) for x in (old, new))
    if isinstance(new, FunctionType) and isinstance(old, FunctionType):
        old.__code__, old.__defaults__, old.__kwdefaults__ = (
            new.__code__,
            new.__defaults__,
            new.__kwdefaults__,
        )


def judge(mutant: Mutant | None, items: Sequence[pytest.Item], limit: float) -> tuple[str, dict[str, float]]:
    """Run tests in a forked process; return the verdict and the seconds of each test, the last one failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_PROF, limit)
        signal.alarm(STUCK)
        if mutant is not None:
            take_over(mutant)
        for item, following in zip(items, [*items[1:], None], strict=True):
            begun = time.process_time()
            failed = any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))
            os.write(writer, f"{item.nodeid}\t{time.process_time() - begun}\n".encode())
            if failed:
                os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        rows = [line.rstrip("\n").split("\t") for line in pipe]
    _, status = os.waitpid(child, 0)
    seconds = {name: float(taken) for name, taken in rows}
    if os.WIFSIGNALED(status):
        return ("timeout" if os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF) else "killed"), seconds
    return ("survived" if os.WEXITSTATUS(status) == 0 else "killed"), seconds


def sampled(every: dict[str, list[Mutant]], sample: int, seed: int) -> list[Mutant]:
    """Return a seeded sample of each file's mutants, in turns."""
    total, turns = sum(map(len, every.values())), []
    for file, found in every.items():
        size = min(len(found), max(1, round(sample * len(found) / total)))
        chosen = random.Random(f"{seed} {file}").sample(found, size)
        turns += [((k + 0.5) / size, mutant) for k, mutant in enumerate(chosen)]
    return [mutant for _, mutant in sorted(turns, key=lambda turn: turn[0])]


def alike(every: dict[str, list[Mutant]], earlier: Record) -> list[Mutant]:
    """Return the mutants of an earlier record that are still there; print how many are not."""
    there: dict[str, list[Mutant]] = {}
    for mutant in (mutant for found in every.values() for mutant in found):
        there.setdefault(mutant.change, []).append(mutant)
    wanted = list(earlier["changes"].values())
    found = [there[each].pop(0) for each in wanted if there.get(each)]
    print(f"{len(found)} of {len(wanted)} mutants are still there")
    random.Random(0).shuffle(found)  # a run that is cut short has some of each file
    return found


class Judge:
    """A plugin that runs the collected tests against mutants instead of running them once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge mutants, and save after each."""
        options, begun = self.options, time.monotonic()
        seconds = dict.fromkeys((item.nodeid for item in session.items), GUESS)
        sound: set[str] = set()
        guards = targets()
        every = {file: mutants(file) for file in guards}
        reasons = read(REASONS)
        turns = (
            alike(every, read(options.like)) if options.like else sampled(every, options.sample, options.seed)
        )
        kept = read(options.out, {"mutants": {}})["mutants"]
        judged = {mutant.name: kept[mutant.name] for mutant in turns if mutant.name in kept}
        for mutant in turns:
            known = judged.get(mutant.name)
            again = options.again and known == "survived" and mutant.lasting not in reasons
            if (options.file not in mutant.file) or (known and not again):
                continue
            if time.monotonic() - begun > 60.0 * options.minutes:
                break
            mine = [
                item for item in session.items if item.path.stem.removeprefix("test_") in guards[mutant.file]
            ]
            kills = list(judged.values())
            mine.sort(key=lambda item: (kills.count(item.nodeid) + 0.5) / (seconds[item.nodeid] + 0.02))
            mine.reverse()
            few, room = [], options.seconds
            for item in mine:
                if seconds[item.nodeid] <= room:
                    few.append(item)
                    room -= seconds[item.nodeid]
            verdict, took = judge(mutant, few, 30.0 + 3.0 * sum(seconds[item.nodeid] for item in few))
            seconds |= took if verdict == "survived" else dict(list(took.items())[:-1])
            if verdict == "killed" and took:
                verdict = list(took)[-1]
                if verdict not in sound:
                    alone = [item for item in few if item.nodeid == verdict]
                    if judge(None, alone, STUCK)[0] != "survived":
                        raise SystemExit(f"it fails without a mutant: {verdict}")
                    sound.add(verdict)
            judged[mutant.name] = verdict
            print(f"{time.monotonic() - begun:5.0f} {verdict[-50:]:50} {mutant.name}", flush=True)
            save(options, every, turns, judged)
        save(options, every, turns, judged)
        return True


def save(
    options: argparse.Namespace,
    every: dict[str, list[Mutant]],
    chosen: list[Mutant],
    judged: dict[str, str],
) -> None:
    """Write what became of each mutant, counts of each file, and the survivors with their reasons."""
    reasons = read(REASONS)
    counts, survivors = {}, []
    for file, found in every.items():
        verdicts = [judged[mutant.name] for mutant in found if mutant.name in judged]
        left = [m for m in chosen if m.file == file and judged.get(m.name) == "survived"]
        equivalent = sum(mutant.lasting in reasons for mutant in left)
        counts[file] = {
            "mutants": len(found),
            "judged": len(verdicts),
            "killed": sum(verdict not in ("survived", "timeout") for verdict in verdicts),
            "timeout": verdicts.count("timeout"),
            "equivalent": equivalent,
            "survived": len(left) - equivalent,
        }
        survivors += [
            {key: getattr(mutant, key) for key in ("file", "line", "text", "before", "after")}
            | {"reason": reasons.get(mutant.lasting, "")}
            for mutant in sorted(left, key=lambda mutant: mutant[:6])
        ]
    result = {
        "seed": options.seed,
        "sample": len(chosen),
        "files": counts,
        "survivors": survivors,
        "mutants": dict(sorted(judged.items())),
        "changes": {mutant.name: mutant.change for mutant in chosen if mutant.name in judged},
    }
    options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def run(
    sample: int = 320,
    seed: int = 0,
    seconds: float = 4.0,
    minutes: float = 1e9,
    again: bool = False,
    tests: str = "",
    file: str = "",
    like: Path | None = None,
    out: Path | None = None,
) -> Record:
    """Collect the tests once and judge mutants with them.

    Of each mutant tests may take so many seconds of processor time, of the tests of its file or only of those
    named ("mutants,extremes"); `again` judges survivors without a reason once more, `file` takes files with
    this in their path.
    """
    if out is None:
        # A part of the mutants is no record of all.
        part = sample < 320 or tests or file
        out = Path(tempfile.mkdtemp(), "mutation.json") if part else path_of("mutation")
    options = argparse.Namespace(**{**locals(), "out": out.resolve()})
    os.environ["FRESHOPT_COMPILED"] = "0"
    listed = {test for some in targets().values() for test in some}
    every = {path.stem.removeprefix("test_"): path for path in (ROOT / "tests").rglob("test_*.py")}
    if absent := sorted(listed - every.keys()):
        raise SystemExit(f"there is no test_{absent[0]}.py any more: name what stands for it in mutation.py")
    wanted = sorted(listed & set(tests.split(",")) if tests else listed)
    files = [str(every[test]) for test in wanted]
    plain = ["-q", "-s", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--rootdir={ROOT}"]
    if code := pytest.main([*plain, *files], plugins=[Judge(options)]):
        raise SystemExit(int(code))
    return read(options.out)


def claims(record: Record) -> Claims:
    """Yield that each survivor is listed with the reason that there is, if any."""
    reasons = {name.partition(" | ")[2]: reason for name, reason in read(REASONS).items()}  # files move
    for one in record["survivors"]:
        change = f"{one['text']} | {one['before']} -> {one['after']}"
        yield f"{one['file']} | {change}: {one['reason']}", one["reason"] == reasons.get(change, "")


def table(record: Record) -> Iterator[Row]:
    """Yield what became of the mutants of each file, and of all together."""
    counts = record["files"].values()
    yield from ({"file": f"`{file}`", **row} for file, row in record["files"].items())
    yield {"file": "together", **{key: sum(row[key] for row in counts) for key in next(iter(counts))}}


BENCH = Measurement({"": run}, quick={"sample": 1}, rows={"files": table}, claims=claims)
