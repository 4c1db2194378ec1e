"""How long crawls take to be placed in slots, how far they are moved, and how far that is proved.

    python benchmarks/speed/slots.py [--quick] [--save [ROOT]]

10⁴ crawls of 100 hosts, of unequal sizes, are wanted at equal gaps in a day of 1440 minutes. Crawlers manage
so many a minute; hosts want pauses of two to eight minutes (of one where more crawls are wanted of them than
that leaves room for); some days have an hour without crawls and a night of six hours on every tenth host.
Each day is placed in a process of its own, after a small one that loads what is compiled. --save keeps
benchmarks/results/slots.json, from which docs/schedules.md has its table; --quick is for tests.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.scheduling import SlotAssignment

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 1440
# Crawls a minute at most, whether hosts want pauses, whether there are nights.
DAYS = ((12, True, False), (12, True, True), (8, False, False))


def day(
    crawls: int, hosts: int, slots: int, capacity: int, *, pauses: bool, nights: bool, seed: int = 0
) -> SlotAssignment:
    """Return the assignment of a day; each source has one crawl in it."""
    rng = np.random.default_rng(seed)
    share = np.minimum((size := rng.pareto(1.5, hosts) + 1.0) / size.sum(), 3.5 / hosts)
    host = rng.choice(hosts, crawls, p=share / share.sum())
    count = np.bincount(host, minlength=hosts)
    there = 0.8 * slots * (0.75 if nights else 1.0)
    pause = np.clip(there // np.maximum(count, 1), 1, rng.integers(2, 9, hosts))
    return SlotAssignment(
        slot=1.0 / slots,
        capacity=capacity,
        host=host,
        host_capacity=1,
        min_gap={h: float(pause[h]) / slots for h in np.unique(host).tolist()} if pauses else 0.0,
        blackouts=[(3 / 24, 4 / 24), *((0.0, 0.25, h) for h in range(0, hosts, 10))] if nights else (),
    )


def measure(
    crawls: int, hosts: int, slots: int, capacity: int, *, pauses: bool, nights: bool
) -> dict[str, Any]:
    """Return what placing a day took and how good it is; movements in slots."""
    warm = day(300, 8, 3000, 1, pauses=pauses, nights=nights)
    warm.assign(np.ones(300), 1.0)
    method = day(crawls, hosts, slots, capacity, pauses=pauses, nights=nights)
    began, used = time.perf_counter(), time.process_time()
    found = method.assign(np.ones(crawls), 1.0)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    moved, bound = round(found.moved * slots), found.bound * slots
    return {
        "crawls": len(found.time),
        "hosts": hosts,
        "slots": slots,
        "capacity": capacity,
        "pauses": pauses,
        "nights": nights,
        "hosts_with_pauses_of_two_slots_or_more": int(
            sum(gap * slots > 1.5 for gap in method.min_gap.values())
            if isinstance(method.min_gap, dict)
            else 0
        ),
        "moved": moved,
        "bound": round(bound, 4),
        # A whole number that the bound rounds up to is the optimum; else branch and bound has proved it.
        "proof": "bound" if moved <= np.ceil(bound - 1e-6) else "branch and bound",
        "relative_gap": max(0.0, (moved - bound) / max(moved, 1)),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small day")
    parser.add_argument("--save", nargs="?", type=Path, const=ROOT, metavar="ROOT", help="keep the results")
    parser.add_argument("--one", nargs=6, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        *size, pauses, nights = options.one
        print(json.dumps(measure(*size, pauses=bool(pauses), nights=bool(nights))))
        return
    days = DAYS[:1] if options.quick else DAYS
    rows = []
    for capacity, pauses, nights in days:
        size = (150, 5, 144, 2) if options.quick else (10_000, 100, MINUTES, capacity)
        command = [sys.executable, __file__, "--one", *map(str, (*size, int(pauses), int(nights)))]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(ran.stdout))
        print(rows[-1], flush=True)
    if options.save is not None:
        saved = options.save / "benchmarks" / "results" / "slots.json"
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_text(
            json.dumps({"quick": options.quick, "days": rows}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
