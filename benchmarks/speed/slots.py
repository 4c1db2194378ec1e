"""How long crawls take to be placed in slots, how far they are moved, and how far that is proved.

    python -m benchmarks slots [--quick] [--save]

10⁴ crawls of 100 hosts, of unequal sizes, are wanted at equal gaps in a day of 1440 minutes. Crawlers manage
so many a minute; hosts want pauses of two to eight minutes (of one where more crawls are wanted of them than
that leaves room for); some days have an hour without crawls and a night of six hours on every tenth host.
Each day is placed in a process of its own, after a small one that loads what is compiled.
"""

import resource
from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Claims, Measurement, Record, Row, apart, clocked
from freshopt.scheduling import SlotAssignment

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


def measure(crawls: int, hosts: int, slots: int, capacity: int, pauses: bool, nights: bool) -> Row:
    """Return what placing a day took and how good it is; movements in slots."""
    warm = day(300, 8, 3000, 1, pauses=pauses, nights=nights)
    warm.assign(np.ones(300), 1.0)
    method = day(crawls, hosts, slots, capacity, pauses=pauses, nights=nights)
    found, seconds, cpu = clocked(lambda: method.assign(np.ones(crawls), 1.0))
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


def days(size: tuple[int, ...] = (10_000, 100, MINUTES)) -> Iterator[Row]:
    """Yield the days, each placed in a process of its own; a small one is a single day."""
    small = size[2] < MINUTES
    for capacity, pauses, nights in DAYS[:1] if small else DAYS:
        yield apart(measure, *size, 2 if small else capacity, pauses, nights)


def claims(record: Record) -> Claims:
    """Yield that all crawls are placed, and how far the movement is proved."""
    for day in record["days"]:
        moved, bound, proof = day["moved"], day["bound"], day["proof"]
        told = f"{day['crawls']} crawls moved {moved}, proved {bound} by {proof}"
        yield told, 0.0 < bound <= moved + 1e-6 * max(moved, 1)
        yield told, day["relative_gap"] < 1e-3 and (proof == "branch and bound" or moved - bound < 1.0)
    if not record["quick"]:
        wide = max(day["hosts_with_pauses_of_two_slots_or_more"] for day in record["days"])
        yield f"{wide} of 100 hosts want pauses of two slots or more", wide >= 90


BENCH = Measurement(
    {"days": days},
    quick={"size": (150, 5, 144)},
    facts=("quick",),
    claims=claims,
)
