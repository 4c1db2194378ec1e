"""Decide what the papers claim, by seeded runs, and print what does not hold too.

    python -m benchmarks reproduce [--only PAPER ...] [--claims ID ...] [--seed N] [--quick]
    [--save] [--page] [--bing FOLDER]

The claims, their bands and their numbers of runs are fixed in ``claims/<paper>.toml``; `claims.py` has the
rules. --save keeps the findings as benchmarks/results/reproduce_<paper>.json and writes docs/reproduction.md
from all that are kept; with --claims it replaces the findings of their groups. --quick is the reduced form
that the tests run. --page writes the page, and the words of the tables into the findings, and measures
nothing. --bing measures the claims of LambdaCrawl that need the published Bing data, from the five files in
FOLDER, and saves nothing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import math
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.reproduce.claims import (
    DECIDES,
    FAILS,
    FOLDER,
    HOLDS,
    ORIGINS,
    UNDECIDED,
    Finding,
    Measurements,
    Plan,
    Table,
    decide,
)

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "reproduction.md"
PAPERS = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
LIBRARIES = ("freshopt", "numpy", "scipy", "numba")
HEADINGS = ("where", "claim", "decided by", "found", "verdict")
VERDICTS = (HOLDS, FAILS, UNDECIDED)
INTRODUCTION = """# What the papers claim, and what was found

Each claim was written down with the statistic, the band and the number of runs that decide it, and then run
with freshopt's own algorithms. It **holds** if the 95 % interval of the runs lies inside the band, **does not
hold** if the interval lies outside, and is undecided otherwise. In brackets stands what the interval is of: a
mean, a difference of two means, or a share of the runs. Where a claim must be so always, the number found is
the share of runs in which it was; rows without interval are computed. *Without learning* stands what rates
reach that stay as they were at first: a row that they meet too says little of learning.

A claim comes from *the paper's number*, *the paper's ordering or figure*, *its theorem*, or is *our own
addition*. It is the paper's if the paper says it, in a sentence, a theorem, a formula, a line of an algorithm
or by what a figure shows, and would need a correction where the row fails at the paper's setting. It is ours
if what the paper says stands whatever the row finds: the row checks our instruments, asks for more than is
said, or asks how often repetitions show what one printed run shows. Where the paper can be read both ways,
what was written before the run stands. Verdicts are not looked at. Both counts are below; rows whose words or
origin are others than before the run say so.

Where a paper's data are not at hand, its figures are decided on stand-ins: that one does not hold there shows
that it depends on the data, not that the paper erred. This concerns Figures 1 to 3 of LambdaCrawl and Figures
1 and 2 of Learning to Crawl.

`python -m benchmarks reproduce --save` repeats everything and writes this page; `--only` takes one
paper. The tables with all settings are in `benchmarks/reproduce/claims/`, the findings with their intervals
in `benchmarks/results/reproduce_*.json`. Where the papers are wrong, silent, or bound to
their data is told in [papers](papers.md).
"""


# The modules that measure a paper's claims, in their order.
PARTS = {
    "automata": ("automata_theory", "automata_static"),
    "estimators": ("estimators_theory", "estimators_figures", "estimators_adaptive"),
    "lambdacrawl": ("lambdacrawl_claims",),
    "learning_to_crawl": tuple(f"learning_to_crawl_{each}" for each in ("lemmas", "estimation", "regret")),
    "mirrorsync": ("mirrorsync_theorems", "mirrorsync_learners"),
}


def measurements(paper: str) -> Measurements:
    """Return the functions that measure a paper's claims."""
    found = [importlib.import_module(f"benchmarks.reproduce.{part}").measure for part in PARTS[paper]]
    registries = {id(each): each for each in found}.values()
    return Measurements([group for each in registries for group in each.groups])


def measure(
    paper: str,
    *,
    quick: bool = False,
    seed: int = 0,
    only: frozenset[str] = frozenset(),
    commit: str = "",
) -> dict[str, Any]:
    """Decide the claims of a paper, printing each as it is decided, and return what is saved."""
    table, registered = Table.read(paper), measurements(paper)
    registered.check(table)
    plan = Plan(table.claims, seed, quick=1 if quick else None, commit=commit)
    groups: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    for group in registered.groups:
        if (quick and group.quick is None) or (only and not only & set(group.ids)):
            continue
        found, seconds = decide(group, plan)
        for each in found:
            print(line(each), flush=True)
            findings.append(each.record())
        groups.append({"claims": list(group.ids), "seconds": round(seconds, 1), "versions": versions()})
    return {"paper": paper, "seed": seed, "quick": quick, "groups": groups, "findings": findings}


def versions() -> dict[str, str]:
    """Return the versions that measure."""
    found = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), **found}


def table_commit() -> str:
    """Return the commit that has the tables; raise ValueError where they were changed since."""
    asked = (["status", "--porcelain", "--", str(FOLDER)], ["rev-parse", "--short", "HEAD"])
    told = [subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True) for words in asked]
    if any(each.returncode for each in told):
        raise ValueError("findings name the commit of their claims: save them in a git repository")
    if told[0].stdout.strip():
        raise ValueError("a claim is entered before its runs: commit benchmarks/reproduce/claims first")
    return told[1].stdout.strip()


def merged(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Return a record with newly measured groups in place of older ones, in the order of the table.

    A claim that is measured again stays as it was written before its first run.
    """
    if old is None:
        return new
    before = {each["id"]: each for each in old["findings"]}
    fresh = {each["id"]: remeasured(before.get(each["id"]), each) for each in new["findings"]}
    found, order = before | fresh, list(Table.read(new["paper"]).claims)
    left = ({**each, "claims": [one for one in each["claims"] if one not in fresh]} for each in old["groups"])
    groups = [each for each in left if each["claims"]] + new["groups"]
    return {**new, "groups": groups, "findings": [found[each] for each in order if each in found]}


def remeasured(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Return a new finding with the claim of the older one, unless what decides has changed."""
    if old is None or any(old[key] != new[key] for key in DECIDES):
        return new
    before, now = Finding.of(old), Finding.of(new)
    return replace(now, as_run=before.as_run, commit=before.commit).record()


def cells(each: Finding) -> tuple[str, ...]:
    """Return the row of a finding."""
    claim = each.claim
    decided_by = claim.band if claim.kind in {"always", "exact"} else f"{claim.band} ({claim.kind})"
    return claim.place, f"{claim.claim}: {claim.statistic}", decided_by, measured(each), each.verdict


def measured(each: Finding) -> str:
    """Return the estimate, its interval and the runs."""
    runs = "" if each.runs == 1 else f", {each.runs:,} runs"
    never = "" if each.never is None else f"; without learning {number(each.never, each)}"
    if each.low == each.high:
        return f"{number(each.estimate, each)}{runs}{never}"
    ends = f"{number(each.low, each)} to {number(each.high, each)}"
    return f"{number(each.estimate, each)} ({ends}){runs}{never}"


def number(value: float, each: Finding) -> str:
    """Return a number to two digits of its interval's width, to five where there is none."""
    width = each.high - each.low
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "–"
    if not 0.0 < width < math.inf:
        return f"{value:.5g}"
    digits = 1 - math.floor(math.log10(width))
    return f"{value:.{digits}f}" if 0 <= digits <= 6 else f"{value:.5g}"


def line(each: Finding) -> str:
    """Return the printed line of a finding."""
    return " | ".join(cells(each))


def counts(found: list[Finding]) -> str:
    """Return how many hold."""
    number_of = Counter(each.verdict for each in found)
    words = {HOLDS: "hold", FAILS: "do not hold", UNDECIDED: "undecided"}
    return ", ".join(f"{number_of[verdict]} {words[verdict]}" for verdict in VERDICTS if number_of[verdict])


def saved(paper: str) -> dict[str, Any] | None:
    """Return the kept findings of a paper."""
    path = RESULTS / f"reproduce_{paper}.json"
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def kept(paper: str) -> list[Finding]:
    """Return the kept findings; raise ValueError where the table has changed since they were measured."""
    record, claims = saved(paper), Table.read(paper).claims
    read = [] if record is None else [Finding.of(each) for each in record["findings"]]
    found = [replace(each, claim=claims.get(each.claim.id, each.claim)) for each in read]
    void = [each.claim.id for each in found if each.claim.id not in claims or not each.is_of_its_table]
    void += sorted(set(claims) - {each.claim.id for each in found})
    if void:
        raise ValueError(f"{paper}: measure again, with --claims {' '.join(void)} --save")
    return found


def page() -> str:
    """Return docs/reproduction.md as the kept findings give it."""
    return INTRODUCTION + overview() + "".join(map(section, PAPERS))


def overview() -> str:
    """Return how many claims hold, by origin and by paper."""
    found = {paper: kept(paper) for paper in PAPERS}
    everything = [each for some in found.values() for each in some]
    rows = [("", "hold", "do not hold", "undecided", "as written before the runs"), ("---",) * 5]
    for origin, name in ORIGINS.items():
        now = [each for each in everything if each.claim.origin == origin]
        then = [each for each in everything if each.as_run.origin == origin]
        rows.append((*tally(name, now), ", ".join(tally(name, then)[1:])))
    rows.append((*tally("all", everything), ""))
    rows += [(*tally(Table.read(paper).title, some), "") for paper, some in found.items()]
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def tally(name: str, found: list[Finding]) -> tuple[str, ...]:
    """Return a row of counts."""
    number_of = Counter(each.verdict for each in found)
    return (name, *(str(number_of[verdict]) for verdict in VERDICTS))


def section(paper: str) -> str:
    """Return a paper's part of the page."""
    table, found, record = Table.read(paper), kept(paper), saved(paper)
    seconds = sum(each["seconds"] for each in record["groups"]) if record else 0.0
    command = f"python -m benchmarks reproduce --only {paper}"
    how = f"{counts(found)}. `{command}`: {seconds:,.0f} s by the clock."
    parts = [f"## {table.title}", table.place, table.setting, how[0].upper() + how[1:]]
    for verdict in (FAILS, UNDECIDED, HOLDS):
        some = [each for each in found if each.verdict == verdict]
        if some:
            parts += [
                f"**{verdict.capitalize()}**",
                grid([HEADINGS[:-1], ("---",) * 4, *map(page_cells, some)]),
            ]
    if table.undecidable:
        listed = (f"* {each['place']}: {each['claim']} {each['why']}" for each in table.undecidable)
        parts.append("Cannot be decided:\n\n" + "\n".join(listed))
    return "\n" + "\n\n".join(part for part in parts if part) + "\n"


def grid(rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows as a table in Markdown."""
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def page_cells(each: Finding) -> tuple[str, ...]:
    """Return the row of the page: origin below the place, settings below the claim."""
    place, claim, *rest, _ = cells(each)
    settings = [f"Paper: {each.claim.theirs}"] * bool(each.claim.theirs)
    settings += [f"Here: {each.claim.ours}"] * bool(each.claim.ours)
    then = f"{each.as_run.claim}: {each.as_run.statistic}"
    settings += [f"Written before the run: {then}"] * (then != f"{each.claim.claim}: {each.claim.statistic}")
    if each.claim.judged:
        settings.append(f"Before the run: {ORIGINS[each.as_run.origin]}. {each.claim.judged}")
    origin = ORIGINS[each.claim.origin].removeprefix("the paper's ").removeprefix("its ")
    return f"{place}<br>*{origin}*", "<br>".join([claim, *settings]), *rest


def write(paper: str, record: dict[str, Any]) -> None:
    """Write the kept findings of a paper."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    (RESULTS / f"reproduce_{paper}.json").write_text(text + "\n", encoding="utf-8")


def keep(record: dict[str, Any]) -> None:
    """Save a record, and write the page if all claims are measured."""
    write(record["paper"], merged(saved(record["paper"]), record))
    try:
        PAGE.write_text(page(), encoding="utf-8")
    except ValueError as missing:
        print(f"the page is not written: {missing}")


def main() -> None:
    """Decide, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=PAPERS, default=PAPERS, metavar="PAPER", help=", ".join(PAPERS)
    )
    parser.add_argument("--claims", nargs="+", default=(), metavar="ID", help="of the papers of --only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--bing", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.page:
        for paper in options.only:
            write(paper, {**(saved(paper) or {}), "findings": [each.record() for each in kept(paper)]})
        PAGE.write_text(page(), encoding="utf-8")
        return
    if options.bing is not None:
        importlib.import_module("benchmarks.reproduce.bing").main(options.bing)
        return
    if options.save and (options.quick or options.seed):
        parser.error("only a full measurement from seed 0 is saved")
    only = frozenset(options.claims)
    try:
        commit = table_commit() if options.save else ""
    except ValueError as refused:
        parser.error(str(refused))
    for paper in options.only:
        print(f"\n{paper}: {' | '.join(HEADINGS)}")
        record = measure(paper, quick=options.quick, seed=options.seed, only=only, commit=commit)
        found = [Finding.of(each) for each in record["findings"]]
        print(f"{counts(found)}; {sum(each['seconds'] for each in record['groups']):.4g} s")
        for each in found:
            if each.verdict != HOLDS:
                print(f"  {each.verdict}: {each.claim.place}: {each.claim.claim}: {measured(each)}")
        if options.save:
            keep(record)


if __name__ == "__main__":
    main()
