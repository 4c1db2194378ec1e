"""Hold answers to those of an earlier commit: 400 problems with values, prices and gaps.

    python -m benchmarks golden --save              # of the code before a change of the core
    python -m benchmarks golden                     # after it: what differs from the saved record

Problems are seeded: every named objective under every discipline, of 1 to 3,000 sources and of 100,000,
benign and ill-scaled, with one of the kinds of bounds, hosts, signals and costs of `freshopt.testing`;
declared constraints; fetches that cost what they bring; copies refreshed on request; objectives of one's own;
batches. Values may differ by 1e-13 beside the gaps that are proved for both. A price may differ by 1e-12, or
by more where several are optimal: then the saved prices must prove the new rates. Gaps are at most 1e-9, or
no more than twice what they were: where lower bounds leave a billionth of the bandwidth, they are rounding.
"""

import zlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, path_of, saved
from benchmarks.speed.holds_work import MissedBeyond, SquaredStaleness
from freshopt.cvx import Expression, cp
from freshopt.testing import instances, standard_objectives
from freshopt.testing.problem_families import SCALES, Scale

SIZES = (1, 2, 10, 300, 3000)
CONSTRAINED_SIZES = (10, 300)
LARGE = 100_000
BATCHES, TOGETHER = 1000, 20  # problems in a batch, sources in each
GAP, VALUE, PRICE, BATCH = 1e-9, 1e-13, 1e-12, 1e-12
SHOWN = 12  # most prices of a problem that are kept


@dataclass(frozen=True)
class RootGain(fo.Objective):
    """w·√(ρ/Δ), to be maximised."""

    sense = "maximise"

    def per_source(self, rate: cp.Variable, sources: fo.Sources) -> Expression:
        """Return the gain by source."""
        return cp.multiply(sources.importance / np.sqrt(sources.change_rate), cp.sqrt(rate))


OWN: tuple[fo.Objective, ...] = (SquaredStaleness(), MissedBeyond(), RootGain())
ON_REQUEST: tuple[fo.Objective, ...] = tuple(
    kind(fo.Refresh.ON_REQUEST)
    for kind in (
        fo.problems.HarmonicStaleness,
        fo.problems.BinaryFreshness,
        fo.problems.AccumulatedDelay,
        fo.problems.Age,
    )
)


def drawn(
    objective: fo.Objective,
    n: int,
    scale: Scale,
    known: Container[str] = (),
    *,
    constraints: bool = False,
    conditional: bool = False,
) -> Iterator[tuple[str, fo.Problem]]:
    """Yield one problem of a family, a known one if any."""
    name = f"{objective!r}, n = {n}, {scale}"
    seed = zlib.crc32(name.encode())
    found = list(instances(objective, n, seed, scale, constraints=constraints, conditional=conditional))
    if found:
        kind = [key for key, so in (("constraints", constraints), ("conditional", conditional)) if so]
        seeded = found[zlib.crc32(f"{name}, {kind}".encode()) % len(found)]
        chosen = next((one for one in found if f"{name}, {one.name}" in known), seeded)
        yield f"{name}, {chosen.name}", chosen.problem


def problems(
    sizes: tuple[int, ...] = SIZES, large: int = LARGE, known: Container[str] = ()
) -> Iterator[tuple[str, fo.Problem]]:
    """Yield all problems by name, known ones where families grew."""
    named = standard_objectives()
    for objective in (*named, *ON_REQUEST, *OWN):
        for scale in SCALES:
            for n in sizes:
                yield from drawn(objective, n, scale, known)
    for scale in SCALES:
        for objective in named:
            for n in CONSTRAINED_SIZES:
                yield from drawn(objective, n, scale, known, constraints=True)
            yield from drawn(objective, CONSTRAINED_SIZES[0], scale, known, conditional=True)
    for objective in named if large else ():
        for chosen in islice(instances(objective, large, 1), 1, 2):
            yield f"{objective!r}, n = {large}, {chosen.name}", chosen.problem


def answer(problem: fo.Problem) -> Row:
    """Return what an answer is held to."""
    solution = fo.solve(problem)
    proof = solution.certificate
    prices = dict(islice(((label, price) for label, price in solution.prices.items() if price), SHOWN))
    return {
        "status": solution.status.value,
        "value": solution.value,
        "gap": None if proof is None else proof.relative_gap,
        "prices": prices,
        "many": len(solution.prices) > SHOWN,
    }


def differences(problem: fo.Problem, now: Row, before: Row) -> dict[str, Any]:
    """Return how an answer differs from an earlier one."""
    gaps = [0.0 if each["gap"] is None else each["gap"] for each in (now, before)]
    size = max(abs(now["value"]), abs(before["value"]), np.finfo(float).tiny)
    labels = now["prices"].keys() | before["prices"].keys()
    pairs = [(now["prices"].get(label, 0.0), before["prices"].get(label, 0.0)) for label in labels]
    largest = max((max(pair) for pair in pairs), default=0.0)
    apart = max((abs(a - b) for a, b in pairs), default=0.0) / max(largest, np.finfo(float).tiny)
    proved = None
    if apart > PRICE and not before["many"]:
        # Several prices are optimal if the earlier ones prove the rates as well.
        proved = fo.certify(problem, fo.solve(problem).rates, prices=before["prices"]).relative_gap
    return {
        "status": now["status"] == before["status"],
        "gap": before["gap"],
        "value": max(0.0, abs(now["value"] - before["value"]) / size - sum(gaps)),
        "price": apart,
        "proved": proved,
    }


def batches(problems: int = BATCHES) -> Iterator[Row]:
    """Yield the answers of `fo.solve_many` by objective, in sums and extremes."""
    earlier = (
        {row["objective"]: row for row in saved("golden")["batches"]} if path_of("golden").exists() else {}
    )
    offsets = np.arange(problems + 1) * TOGETHER
    for objective in (
        obj for obj in standard_objectives() if not isinstance(obj, fo.problems.ExpectedPenalty)
    ):
        rng = np.random.default_rng(zlib.crc32(repr(objective).encode()))
        sources = fo.Sources(
            10.0 ** rng.uniform(-6.0, 4.0, offsets[-1]), 10.0 ** rng.uniform(-6.0, 6.0, offsets[-1])
        )
        limits = np.add.reduceat(sources.change_rate, offsets[:-1]) * 10.0 ** rng.uniform(-3.0, 1.3, problems)
        found = fo.solve_many(objective, sources, offsets=offsets, bandwidths=limits)
        values, prices = found.values.tolist(), found.prices.tolist()
        before, known = earlier.get(repr(objective), {}), not earlier or repr(objective) in earlier
        yield {
            "objective": repr(objective),
            "known": known,
            "gap": float(np.max(found.relative_gaps)),
            "values": values[:SHOWN],
            "prices": prices[:SHOWN],
            "value": apart(values, before.get("values", values)),
            "price": apart(prices, before.get("prices", prices)),
        }


def apart(now: list[float], before: list[float]) -> float:
    """Return the largest relative difference of numbers, as many as both have."""
    pairs = list(zip(now, before, strict=False))
    return max(abs(a - b) / max(abs(a), abs(b), np.finfo(float).tiny) for a, b in pairs)


def rows(sizes: tuple[int, ...] = SIZES, large: int = LARGE) -> Iterator[Row]:
    """Yield each problem's answer, and how it differs from the saved one."""
    earlier = {row["problem"]: row for row in saved("golden")["rows"]} if path_of("golden").exists() else {}
    for name, problem in problems(sizes, large, earlier):
        now = answer(problem)
        known = not earlier or name in earlier
        yield {
            "problem": name,
            **now,
            "known": known,
            "differs": differences(problem, now, earlier.get(name, now)),
        }


def claims(record: Record) -> Claims:
    """Yield that answers are proved, and those of before."""
    for row in record["rows"]:
        name, differs = row["problem"], row["differs"]
        yield f"{name} is in the saved record, which is deleted before other problems are saved", row["known"]
        if row["gap"] is not None:
            yield f"{name}: gap {row['gap']:.0e}", row["gap"] <= max(GAP, 2.0 * differs["gap"])
        yield f"{name}: {row['status']} as before", differs["status"]
        yield f"{name}: value differs by {differs['value']:.1e}", differs["value"] <= VALUE
        proved = differs["proved"]
        same = differs["price"] <= PRICE or (proved is not None and proved <= max(GAP, 2.0 * differs["gap"]))
        yield f"{name}: prices differ by {differs['price']:.1e}, {differs['proved']}", same
    for row in record["batches"]:
        told = f"gap {row['gap']:.0e}, value {row['value']:.1e}, price {row['price']:.1e}"
        yield (
            f"{row['objective']} in a batch: {told}",
            row["known"] and row["gap"] <= GAP and row["value"] <= BATCH and row["price"] <= BATCH,
        )


BENCH = Measurement(
    {"rows": rows, "batches": batches},
    quick={"sizes": (2, 10), "large": 0, "problems": 20},
    facts=("versions",),
    claims=claims,
    large=True,
)
