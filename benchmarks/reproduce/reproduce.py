"""The measurement of a paper's claims: its runs, verdicts, table and section; `claims.py` has the rules.

    python -m benchmarks reproduce_PAPER [--claims ID ...] [--seed N] [--quick] [--save] [--page]

The claims, their bands and their numbers of runs are fixed in ``claims/<paper>.toml``. --save keeps the
findings as benchmarks/results/reproduce_<paper>.json and writes findings.md beside this and the tables of
docs/evidence/papers.md; with --claims it replaces the findings of their groups. --quick is the reduced form
that the tests run. --page writes the pages, and the words of the tables into the findings.
"""

import importlib.metadata
import math
import platform
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.harness import ROOT, Claims, Measurement, Record, Row, grid, saved
from benchmarks.reproduce import claims as tables
from benchmarks.reproduce.claims import FAILS, HOLDS, ORIGINS, UNDECIDED, Finding, Measurements, Plan, Table

PAPERS = tuple(sorted(path.stem for path in tables.FOLDER.glob("*.toml")))
LIBRARIES = ("freshopt", "numpy", "scipy", "numba")
HEADINGS = ("where", "claim", "decided by", "found", "verdict")
VERDICTS = {HOLDS: "hold", FAILS: "do not hold", UNDECIDED: "undecided"}


def of_paper(paper: str, *registries: Measurements) -> Measurement:
    """Return the measurement of a paper's claims."""
    registered = Measurements([group for each in registries for group in each.groups])
    every = tuple(name for group in registered.groups for name in group.ids)

    def run(claims: tuple[str, ...] = every, seed: int = 0, few: bool = False) -> Record:
        return measured(paper, registered, frozenset(claims), seed, quick=few)

    return Measurement(
        {"": run},
        quick={"few": True},
        rows={"not_held": not_held},
        texts={"findings": section, "overview": overview},
        claims=of_the_table,
        merge=merged,
        large=True,
    )


def measured(
    paper: str, registered: Measurements, only: frozenset[str], seed: int = 0, *, quick: bool = False
) -> Record:
    """Decide the claims of a paper, printing each as it is decided, and return what is saved."""
    table = Table.read(paper)
    registered.check(table)
    commit = "" if quick else table_commit()
    plan = Plan(table.claims, seed, quick=1 if quick else None, commit=commit)
    groups, found = [], []
    print(" | ".join(HEADINGS))
    for group in registered.groups:
        if (quick and group.quick is None) or not only & set(group.ids):
            continue
        decided, seconds = tables.decide(group, plan)
        for each in decided:
            print(line(each), flush=True)
        found += decided
        groups.append({"claims": list(group.ids), "seconds": round(seconds, 1), "versions": versions()})
    print(counts(found))
    for each in found:
        if each.verdict != HOLDS:
            print(f"  {each.verdict}: {each.claim.place}: {each.claim.claim}: {estimated(each)}")
    findings = [each.record() for each in found]
    return {"paper": paper, "seed": seed, "quick": quick, "groups": groups, "findings": findings}


def versions() -> dict[str, str]:
    """Return the versions that measure."""
    found = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), **found}


def table_commit() -> str:
    """Return the commit that has the tables; say why findings cannot be saved where there is none."""
    asked = (["status", "--porcelain", "--", str(tables.FOLDER)], ["rev-parse", "--short", "HEAD"])
    told = [subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True) for words in asked]
    if any(each.returncode for each in told):
        print("findings name the commit of their claims: save them in a git repository")
        return ""
    if told[0].stdout.strip():
        print("a claim is entered before its runs: commit benchmarks/reproduce/claims before you save")
        return ""
    return told[1].stdout.strip()


def merged(old: Record, new: Record) -> Record:
    """Return a record with newly measured groups in place of older ones, in the order and words of the table.

    A claim that is measured again stays as it was written before its first run.
    """
    known = all(each["commit"] for each in new["findings"])
    if new["seed"] or (old and not old["quick"] if new["quick"] else not known):
        raise SystemExit("only a full measurement from seed 0 is saved, of claims that are committed")
    before = {each["id"]: each for each in old.get("findings", ())}
    fresh = {each["id"]: remeasured(before.get(each["id"]), each) for each in new["findings"]}
    told = {**new, "findings": list((before | fresh).values())}
    found = {each.claim.id: each.record() for each in findings(told)}
    left = (
        {**each, "claims": [one for one in each["claims"] if one not in fresh]}
        for each in old.get("groups", ())
    )
    groups = [each for each in left if each["claims"]] + new["groups"]
    order = [each for each in Table.read(new["paper"]).claims if each in found]
    return {**new, "groups": groups, "findings": [found[each] for each in order]}


def remeasured(old: Row | None, new: Row) -> Row:
    """Return a new finding with the claim of the older one, unless what decides has changed."""
    if old is None or any(old[key] != new[key] for key in tables.DECIDES):
        return new
    before, now = Finding.of(old), Finding.of(new)
    return replace(now, as_run=before.as_run, commit=before.commit).record()


def findings(record: Record) -> list[Finding]:
    """Return the findings of a record, their claims in the words of the table."""
    claims = Table.read(record["paper"]).claims
    found = map(Finding.of, record["findings"])
    return [replace(each, claim=claims.get(each.claim.id, each.claim)) for each in found]


def of_the_table(record: Record) -> Claims:
    """Yield that the table has still what decided each finding."""
    claims = Table.read(record["paper"]).claims
    for each in findings(record):
        name = each.claim.id
        yield f"{name}: measure again, with --claims {name} --save", name in claims and each.is_of_its_table


def cells(each: Finding) -> tuple[str, ...]:
    """Return the row of a finding."""
    claim = each.claim
    decided_by = claim.band if claim.kind in {"always", "exact"} else f"{claim.band} ({claim.kind})"
    return claim.place, f"{claim.claim}: {claim.statistic}", decided_by, estimated(each), each.verdict


def estimated(each: Finding) -> str:
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


def tally(found: Sequence[Finding]) -> list[int]:
    """Return how many hold, do not hold, and are undecided."""
    number_of = Counter(each.verdict for each in found)
    return [number_of[verdict] for verdict in VERDICTS]


def counts(found: Sequence[Finding]) -> str:
    """Return how many hold, in words."""
    told = zip(tally(found), VERDICTS.values(), strict=True)
    return ", ".join(f"{many} {words}" for many, words in told if many)


def not_held(record: Record) -> Iterator[Row]:
    """Yield a paper's own claims that do not hold or are undecided."""
    found = (each for each in findings(record) if each.verdict != HOLDS and each.claim.origin != "own")
    for row in sorted(map(cells, found), key=lambda row: list(VERDICTS).index(row[-1])):
        yield dict(zip(HEADINGS, row, strict=True))


def overview(record: Record) -> Iterator[str]:
    """Yield how many claims hold, by origin and by paper; of other papers as they are saved."""
    records = {paper: saved(f"reproduce_{paper}") for paper in PAPERS} | {record["paper"]: record}
    found = {Table.read(paper).title: findings(each) for paper, each in records.items()}
    everything = [each for some in found.values() for each in some]
    rows: list[tuple[Any, ...]] = []
    for origin, name in ORIGINS.items():
        now = tally([each for each in everything if each.claim.origin == origin])
        then = tally([each for each in everything if each.as_run.origin == origin])
        rows.append((name, *now, ", ".join(map(str, then))))
    rows += [(name, *tally(some), "") for name, some in {"all": everything, **found}.items()]
    yield grid(["", *VERDICTS.values(), "as written before the runs"], [map(str, row) for row in rows])[:-1]


def section(record: Record) -> Iterator[str]:
    """Yield a paper's part of the page."""
    table, found = Table.read(record["paper"]), findings(record)
    seconds = sum(each["seconds"] for each in record["groups"])
    yield f"## {table.title}"
    yield from filter(None, (table.place, table.setting))
    yield f"{counts(found)}. `python -m benchmarks reproduce_{table.paper}`: {seconds:,.0f} s by the clock."
    for verdict in (FAILS, UNDECIDED, HOLDS):
        some = [page_cells(each) for each in found if each.verdict == verdict]
        if some:
            yield f"**{verdict.capitalize()}**"
            yield grid(HEADINGS[:-1], some)[:-1]
    if table.undecidable:
        listed = (f"* {each['place']}: {each['claim']} {each['why']}" for each in table.undecidable)
        yield "Cannot be decided:"
        yield "\n".join(listed)


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
