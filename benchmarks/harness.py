"""One harness for all measurements: declared, run, saved, put into pages, and held to what is claimed.

    python -m benchmarks [NAME [PART ...]] [--quick] [--save [FOLDER]] [--page] [options of NAME]

A measurement is a module ``benchmarks/*/NAME.py`` with a `Measurement` called ``BENCH``. Its parts are
functions whose parameters are the options of the command line; what they yield is printed as it comes and
makes the record, which --save keeps as ``benchmarks/results/NAME.json``, below FOLDER if one is given. Parts
that are not asked for stay as they were saved. A page has a comment ``<!-- rows NAME.KEY | head: format | ...
-->`` where a table goes; --save writes it from what was measured, --page from what is saved. Claims are made
beside the measurement; the tests hold every record to them, and every page to the records.
"""

import argparse
import importlib
import importlib.metadata
import inspect
import json
import os
import platform
import re
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import GeneratorType
from typing import Any, TypeAlias, TypeVar

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path("benchmarks/results")
ONE = {"FRESHOPT_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ONE |= {"POLARS_MAX_THREADS": "1"}
# Where a page's table goes: whose rows, and its columns as "head: format" with | between.
MARK = re.compile(
    r"(?P<mark><!-- rows (?P<name>\w+)\.(?P<key>[^|]*?) \|(?P<columns>(?:(?!-->).)*)-->\n)(?:\|[^\n]*\n)*",
    re.DOTALL,
)
# Where paragraphs of a page go.
TEXT = re.compile(r"(?P<mark><!-- text (?P<name>\w+)\.(?P<key>[^>]*?) -->\n).*?(?=<!-- end -->)", re.DOTALL)
LONG = 100  # characters of a value that is not printed
LIBRARIES = ("freshopt", "numpy", "scipy", "numba", "cvxpy", "clarabel", "ecos")

T = TypeVar("T")
Record: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]
# What a claim says in words, with what was found, and whether it is so.
Claims: TypeAlias = Iterator[tuple[str, bool]]


def versions() -> dict[str, str]:
    """Return the versions of the libraries that are there."""
    found = {each.name.lower() for each in importlib.metadata.distributions()}
    return {name: importlib.metadata.version(name) for name in LIBRARIES if name in found}


# What a record may say of the machine and the run, beside the options.
FACTS: dict[str, Callable[[], Any]] = {
    "python": platform.python_version,
    "numpy": lambda: importlib.metadata.version("numpy"),
    "cores": lambda: len(os.sched_getaffinity(0)),
    "load": lambda: list(os.getloadavg()),
    "versions": versions,
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is measured, how little a test can afford of it, what is shown of it, and what must hold.

    Attributes
    ----------
    parts : dict
        From a key of the record to what yields its rows or returns its value; "" returns several keys.
    quick : dict
        Options of a quick run.
    facts : tuple of str
        Options, "quick", "seconds" and keys of `FACTS` that the record has.
    notes : dict
        What else the record says of itself.
    rows : dict
        From a key to what makes the rows of a page's table from the record; a part's own rows need none.
    texts : dict
        From a key to what makes the paragraphs of a page from the record.
    pictures : dict
        From a file to what draws it, given the record and the path.
    claims : callable, optional
        Yields what the record must show, in words, and whether it does.
    merge : callable, optional
        Makes a record of the saved one, which may be empty, and a new one; None replaces it.
    whole : bool
        Whether only a complete measurement is saved.
    large : bool
        Whether the claims are of full runs alone: a quick one has too few runs or sources for them.
    apiece : bool
        Whether the claims are of each part by itself, so that they can be made of some.
    alone : bool
        Whether the process keeps to one core and one thread.
    """

    parts: Mapping[str, Callable[..., Any]]
    quick: Mapping[str, Any] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Callable[[Record], Iterable[Row]]] = field(default_factory=dict)
    texts: Mapping[str, Callable[[Record], Iterable[str]]] = field(default_factory=dict)
    pictures: Mapping[str, Callable[[Record, Path], None]] = field(default_factory=dict)
    claims: Callable[[Record], Claims] | None = None
    merge: Callable[[Record, Record], Record] | None = None
    whole: bool = False
    large: bool = False
    apiece: bool = False
    alone: bool = False

    def options(self) -> dict[str, Any]:
        """Return the options of all parts with their defaults."""
        signatures = (inspect.signature(part).parameters.values() for part in self.parts.values())
        return {each.name: each.default for some in signatures for each in some}

    def measured(self, names: Iterable[str] = (), *, quick: bool = False, **given: Any) -> Record:
        """Run some parts, or all; return the record."""
        began, options = time.perf_counter(), self.options() | (dict(self.quick) if quick else {}) | given
        known = {"quick": quick, **options}
        record = {
            fact: known[fact] if fact in known else FACTS[fact]() for fact in self.facts if fact != "seconds"
        }
        record |= self.notes
        for name in names or self.parts:
            part = self.parts[name]
            found = part(**{key: options[key] for key in inspect.signature(part).parameters})
            value = list(map(shown, found)) if isinstance(found, GeneratorType) else found
            record |= {name: value} if name else value
        if "seconds" in self.facts:
            record["seconds"] = round(time.perf_counter() - began)
        return record

    def failing(self, record: Record) -> list[str]:
        """Return the claims that do not hold of a record."""
        return [words for words, so in (self.claims(record) if self.claims else ()) if not so]

    def table(self, key: str, record: Record) -> Iterable[Row]:
        """Return the rows of a page's table."""
        found: Iterable[Row] = self.rows[key](record) if key in self.rows else record[key]
        return found

    def draw(self, record: Record, folder: Path = ROOT) -> None:
        """Draw the pictures below a folder."""
        for picture, make in self.pictures.items():
            (folder / picture).parent.mkdir(parents=True, exist_ok=True)
            make(record, folder / picture)


def path_of(name: str, folder: Path = ROOT) -> Path:
    """Return where a measurement's record is."""
    return folder / RESULTS / f"{name}.json"


def saved(name: str, folder: Path = ROOT) -> Any:
    """Return a record that was kept."""
    return json.loads(path_of(name, folder).read_text(encoding="utf-8"))


def write(path: Path, text: str) -> None:
    """Write a file, and the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def text_of(record: Record) -> str:
    """Return a record as JSON; rows of its last part stand on a line each where they are many or long."""
    *head, (last, rows) = record.items()
    long = isinstance(rows, list) and any(
        isinstance(each, list) for row in rows[:1] if isinstance(row, dict) for each in row.values()
    )
    if not (isinstance(rows, list) and len(rows) > 1000) and not (long and last == "curves"):
        return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    begun = json.dumps(dict(head), indent=1, ensure_ascii=False).removesuffix("\n}")
    return begun + f',\n "{last}": [\n{lines}\n]\n}}\n'


def by(*keys: str, rows: str = "rows") -> Callable[[Record, Record], Record]:
    """Return a merge that replaces the rows with the same keys and keeps the others in their places."""

    def merge(old: Record, new: Record) -> Record:
        fresh = {tuple(row[key] for key in keys): row for row in new[rows]}
        kept = [fresh.pop(tuple(row[key] for key in keys), row) for row in old.get(rows, ())]
        return {**new, rows: [*kept, *fresh.values()]}

    return merge


def shown(row: Any) -> Any:
    """Print a row without its long values, and return it."""
    if isinstance(row, dict):
        plain = ((key, each) for key, each in row.items() if len(str(each)) < LONG)
        told = (f"{key} {each:.4g}" if isinstance(each, float) else f"{key} {each}" for key, each in plain)
        print(", ".join(told), flush=True)
    return row


class Cells(string.Formatter):
    """Formats cells: also percent (.1p), yes or no (yes), and − in place of - (−.1f); of None nothing."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:  # noqa: ARG002
        """Return a value by its key, or by keys of what is inside in brackets."""
        if field_name in kwargs:
            return kwargs[field_name], field_name
        key, *inside = field_name.rstrip("]").replace("][", "[").split("[")
        value = kwargs[key]
        for each in inside:
            value = value[int(each)] if isinstance(value, list) else value[each]
        return value, key

    def format_field(self, value: Any, spec: str) -> str:
        """Return a value as text."""
        if value is None or value == "":
            return ""
        if spec == "yes":
            return "yes" if value else "no"
        if spec.startswith("−"):
            return self.format_field(value, spec[1:]).replace("-", "−")
        if spec.endswith("p"):
            return f"{100.0 * value:{spec[:-1]}f}"
        return format(value, spec)


CELLS = Cells()


def filled(page: str, rows_of: Callable[[str, str], Iterable[Row]]) -> str:
    """Return a page whose tables are made of their rows, given by measurement and key."""

    def made(found: re.Match[str]) -> str:
        parts = (part.strip().partition("{") for part in found["columns"].split("|"))
        columns = [(*head.rpartition(": ")[::2], rest) for head, _, rest in parts]
        rows = rows_of(found["name"], found["key"])
        lines = [
            [CELLS.vformat(f"{begin}{{{rest}", (), row).strip() for _, begin, rest in columns] for row in rows
        ]
        return found["mark"] + grid([head for head, _, _ in columns], lines)

    return MARK.sub(made, page)


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ([cell.replace("|", "\\|") for cell in row] for row in (head, ["---"] * len(head), *rows))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def written(text: str, records: Mapping[str, Record] | None = None) -> str:
    """Return a page with its tables of saved records, or of some that are given."""
    known = dict(records or {})

    def record(name: str) -> Record:
        if name not in known:
            known[name] = saved(name) if path_of(name).exists() else {}
        return known[name]

    def paragraphs(found: re.Match[str]) -> str:
        told = measurement(found["name"]).texts[found["key"]](record(found["name"]))
        return found["mark"] + "\n\n".join(told) + "\n"

    text = TEXT.sub(paragraphs, text)
    return filled(text, lambda name, key: measurement(name).table(key, record(name)))


def pages() -> list[Path]:
    """Return the pages that have tables or paragraphs of measurements."""
    apart = (
        "CONTRIBUTING.md",
        "README.md",
        "benchmarks/accuracy/rules.md",
        "benchmarks/reproduce/findings.md",
        "benchmarks/signals/signals.md",
    )
    alone = (ROOT / page for page in apart)
    every = (*sorted((ROOT / "docs").rglob("*.md")), *alone)
    return [page for page in every if shows(page.read_text(encoding="utf-8"))]


def shows(text: str) -> set[str]:
    """Return the names of the measurements that a page shows."""
    return {found["name"] for mark in (MARK, TEXT) for found in mark.finditer(text)}


def write_pages(name: str, record: Record, folder: Path = ROOT) -> None:
    """Write the pages that show a measurement, below a folder, and its pictures."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if name in shows(text):
            write(folder / page.relative_to(ROOT), written(text, {name: record}))
    measurement(name).draw(record, folder)


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how long work takes."""
    begun = clock()
    work()
    return clock() - begun


def clocked(work: Callable[[], T]) -> tuple[T, float, float]:
    """Return what work returns, and how long it takes by the clock and of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - processor


def turns(
    works: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the least seconds of each work, measured in turns."""
    rows = [{name: seconds(work, clock) for name, work in works.items()} for _ in range(rounds)]
    return {name: min(row[name] for row in rows) for name in works}


def best_of(work: Callable[[], object], rounds: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the least seconds of some calls."""
    return min(seconds(work, clock) for _ in range(rounds))


def apart(function: Callable[..., Any], *given: Any, **more: str) -> Any:
    """Return what a function of a module returns in a process of its own; `more` is its environment."""
    code = f"import json, sys; from {function.__module__} import {function.__name__} as f; "
    code += "told = json.dumps(f(*json.loads(sys.argv[1]))); print(); print(told)"
    command, place = [sys.executable, "-c", code, json.dumps(given)], {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=place | more)
    return json.loads(ran.stdout.splitlines()[-1])


def keep_to_one_core() -> None:
    """Keep to one core and one thread; restart if libraries may have been loaded for more."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if any(os.environ.get(name) != value for name, value in ONE.items()):
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], {**os.environ, **ONE})


def places(mark: str = "\nBENCH = ") -> dict[str, str]:
    """Return the modules that declare a measurement, by name; with another mark those that have it."""
    files = sorted((ROOT / "benchmarks").glob("*/*.py"))
    return {
        path.stem: f"benchmarks.{path.parent.name}.{path.stem}"
        for path in files
        if mark in path.read_text(encoding="utf-8")
    }


def measurement(name: str) -> Measurement:
    """Return a measurement by its name."""
    bench: Measurement = importlib.import_module(places()[name]).BENCH
    return bench


def parser_of(name: str, bench: Measurement, about: str | None) -> argparse.ArgumentParser:
    """Return the parser of a measurement: its options are the parameters of its parts."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}", description=about, formatter_class=shape
    )
    parser.add_argument("names", nargs="*", metavar="PART", help=f"of {', '.join(filter(None, bench.parts))}")
    parser.add_argument("--quick", action="store_true", help="as little as a test can afford")
    parser.add_argument("--save", nargs="?", type=Path, const=ROOT, metavar="FOLDER", help="keep the results")
    parser.add_argument("--page", action="store_true", help="write pages and pictures from the saved results")
    for key, default in bench.options().items():
        word = f"--{key.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(word, action=argparse.BooleanOptionalAction, default=default)
        elif isinstance(default, tuple):
            parser.add_argument(word, nargs="+", type=type(default[0]), default=default)
        elif default is None:
            parser.add_argument(word, type=Path)
        else:
            kind = (lambda text: int(float(text))) if isinstance(default, int) else type(default)
            parser.add_argument(word, type=kind, default=default, help=f"{default} unless given")
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, save and write what is asked for."""
    words = sys.argv[1:] if words is None else words
    known, others = places(), places("\ndef main() ")
    if words and words[0] in others:
        sys.argv = [f"python -m benchmarks {words[0]}", *words[1:]]
        importlib.import_module(others[words[0]]).main()
        return
    if not words or words[0] not in known:
        raise SystemExit(f"{__doc__}\nNAME is one of {', '.join(sorted(known | others))}")
    name = words[0]
    module = importlib.import_module(known[name])
    bench: Measurement = module.BENCH
    parser = parser_of(name, bench, module.__doc__)
    options = vars(parser.parse_args(words[1:]))
    names, quick, folder, page = (options.pop(key) for key in ("names", "quick", "save", "page"))
    if unknown := set(names) - set(bench.parts):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; they are {', '.join(bench.parts)}")
    if page:
        old = saved(name)
        record = bench.merge(old, old) if bench.merge else old
        if record != old:
            write(path_of(name), text_of(record))
        write_pages(name, record)
        return
    asked = {key: given for key, given in options.items() if given != bench.options()[key]}
    if folder and bench.whole and (asked or (names and set(names) < set(bench.parts))):
        parser.error("only a complete measurement is saved: leave out the parts, the options or --save")
    if bench.alone:
        keep_to_one_core()
    record = bench.measured(names, quick=quick, **asked)
    broken = bench.failing(record) if bench.apiece or not names else []
    broken = [] if quick and bench.large else broken
    for claim in broken:
        print(f"does not hold: {claim}")
    none = [part for part in names or bench.parts if record.get(part) == []]
    if folder == ROOT and none:
        raise SystemExit(f"nothing is saved: nothing was measured of {', '.join(none)}. Is --data missing?")
    if folder:
        old = saved(name, folder) if path_of(name, folder).exists() else {}
        merged = bench.merge(old, record) if bench.merge else (old if names else {}) | record
        write(path_of(name, folder), text_of(merged))
        write_pages(name, merged, folder)
    if broken:
        raise SystemExit(1)
