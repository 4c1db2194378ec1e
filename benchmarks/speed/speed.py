"""Measure the speed of solves: in units of one NumPy addition, and against what one would use instead.

    python -m benchmarks speed [--quick] [--only objectives hosts ...] [--save [FOLDER]]

The process keeps to one core and one thread. Whatever is compared is measured in turns, round after round,
and the least time of each counts. ADD is one pass ``np.add(w, d, out=r)`` over as many sources, or 2.3 ns a
source where memory is faster.

objectives  ten million sources: the solve alone (`Solution.seconds`), the whole call without and with its
            certificate, the declaration ``fo.Problem(...)``, and what fresh memory for the rates costs
again       the same with another bandwidth or some changed sources, started from the solution before
hosts       a million sources of a hundred thousand hosts with limits
bisection   a bisection of the price in plain NumPy, ten million sources
others      CVXPY with CLARABEL and ECOS, SciPy's SLSQP, a loop in Python
declared    a user's own objective by SeparableNewton, in evaluations of its expression
scaling     all methods from 10² sources to the size that each manages in a minute, for the picture

A quick run has few rounds of sizes that are too small to be judged. The picture is docs/evidence/scaling.png.
"""

import time
from collections.abc import Iterator

from benchmarks.harness import Claims, Measurement, Record, Row, shown
from benchmarks.speed.speed_parts import PARTS, QUICK, Sizes
from benchmarks.speed.speed_scaling import draw
from freshopt.compiled import backend

VERDICT = {True: "met", False: "NOT MET", None: ""}


def run(only: tuple[str, ...] = tuple(PARTS), small: bool = False) -> Record:
    """Return what the parts give, and how long the process waited for its core."""
    if unknown := set(only) - set(PARTS):
        raise SystemExit(f"no part is called {', '.join(sorted(unknown))}; they are {', '.join(PARTS)}")
    wall, processor = time.perf_counter(), time.process_time()
    sizes = QUICK if small else Sizes()
    record: Record = {"sizes": sizes._asdict(), "rows": []}
    with backend.loading():
        for part in only:
            found = PARTS[part](sizes)
            if small:
                found = [{**each, "met": None, "certified_met": None} for each in found]
            if part == "scaling":
                record["scaling"] = found
            else:
                record["rows"] += map(shown, found)
    idle = 1.0 - (time.process_time() - processor) / (time.perf_counter() - wall)
    record["waited"] = max(0.0, idle)
    print(
        f"{record['waited']:.0%} of the time this process waited for its core; on a quiet machine it is 0 %"
    )
    return record


LINES = {
    *("one NumPy addition", "freshopt", "freshopt, certified", "freshopt, not compiled", "NumPy bisection"),
    *("pure Python", "SciPy SLSQP", "CVXPY + CLARABEL", "CVXPY + ECOS"),
}
KINDS = ("harmonic", "binary", "power", "delay", "age", "against CVXPY", "own objective")


def claims(record: Record) -> Claims:
    """Yield that all works are there, proved and with the bandwidth spent, and all lines of the figure."""
    rows, scaling = record["rows"], record["scaling"]
    works = [row["work"] for row in rows]
    yield "no row twice", len({(row["work"], row["n"]) for row in rows}) == len(rows)
    yield "additions first", works[:2] == ["ADD", "ADD into fresh memory"]
    for kind in KINDS:
        yield f"works of {kind}", any(work.startswith(kind) for work in works)
    for row in rows:
        most = 1e-6 if row["work"].startswith("against") else 1e-9
        proved = row.get("miss", 0.0) <= 1e-12 and (row.get("gap") or 0.0) <= most
        yield f"{row['work']}: gap {row.get('gap')}, missed {row.get('miss')}", proved
        yield f"{row['work']}: measured", (row["measured"] > 0.0 or bool(row["note"])) and row["n"] > 0
    yield "all lines", {row["method"] for row in scaling} == LINES
    yield "times or notes", all(row["note"] or row["seconds"] > 0.0 for row in scaling)
    for name in LINES:
        sizes = [row["n"] for row in scaling if row["method"] == name]
        yield f"{name}: {sizes}", sizes == sorted(set(sizes)) and sizes[0] == 100
    if record["quick"]:
        yield "nothing is judged", all(row["met"] is None for row in rows)
    else:
        largest = max(row["n"] for row in scaling if row["method"] == "freshopt")
        yield f"up to {largest:,} sources", largest == 10**8
        found = [tuple(each) if isinstance(each, list) else each for each in record["sizes"].values()]
        yield "of full sizes", found == [*Sizes()]


def cells(record: Record) -> Iterator[Row]:
    """Yield the page's rows; a column for what the design demands, and what a certified call takes."""
    for row in record["rows"]:
        hold, certified = row["hold"], row.get("certified")
        sign, unit = ("≥", "×") if row["unit"] == "x" else ("≤", f" {row['unit']}")
        bound = row.get("certified_hold")
        held = "" if bound is None else f" (≤ {bound:g}: {VERDICT[row['certified_met']]})"
        yield {
            "work": row["work"],
            "n": row["n"],
            "measured": row.get("note") or f"{row['measured']:.3g}{unit}",
            "fresh": f"{row['fresh']:.2g}{unit}" if "fresh" in row else "",
            "hold": "" if hold is None else f"{sign} {hold:g}: {VERDICT[row['met']]}",
            "certified": "" if certified is None else f"{certified:.3g}{unit}{held}",
            "miss": row.get("miss"),
        }


def told(record: Record) -> Iterator[str]:
    """Yield what the table's unit was, on what machine, and what the figure leaves out."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    text = (
        f"np.add took {record['rows'][0]['seconds'] * 1e3:.3g} ms. The process waited {record['waited']:.0%} "
        f"of the time for its core, one of {record['cores']}. Python {record['python']}, {versions}."
    )
    failures = [f"{each['note']} at {each['n']:,} sources" for each in record["scaling"] if each["note"]]
    yield text + (f"\nIn the figure left out: {'; '.join(failures)}." if failures else "")


BENCH = Measurement(
    {"": run},
    quick={"small": True},
    facts=("quick", "cores", "python", "versions"),
    rows={"cells": cells},
    texts={"machine": told},
    pictures={"docs/evidence/scaling.png": draw},
    claims=claims,
    whole=True,
    alone=True,
)
