"""Water filling on a CUDA device, beside what the device's memory takes for one addition.

    python -m benchmarks gpu [--n 1000000000] [--rounds 5] [--cells NAME ...] [--save]

Columns and rates are float32, made on the device by CuPy. An ADD is ``cupy.add(w, d, out=r)``: 12 bytes a
source, the least that a solve could read and write. To hold, for harmonic staleness at 10⁹: 0.1 s certified
on the device, and 1 s where columns come from the host's memory and rates go back to it.

Of each cell the record has the time of a certified call, its passes, and the gap that is proved; whether the
same input gave the same bits; and, at 10⁵ sources, how far value and price are from those of the solver in
NumPy, whose rates are float64. A saved record replaces the one of the same device and number of sources.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, by
from benchmarks.harness import seconds as timed
from benchmarks.objectives import BUDGET, OBJECTIVES
from freshopt.solvers import WaterFilling, WaterFillingCuda

with contextlib.suppress(ImportError):  # pages are written on any machine
    import cupy
NAMES = tuple(name for name in OBJECTIVES if name not in ("polls", "materials"))
SOLVER = WaterFillingCuda(dtype="float32")
COMPARED = 100_000  # sources of the comparison with the host
SLICE = 10**8  # sources that are drawn at once
ON_DEVICE, WITH_COPIES = 0.1, 1.0  # seconds, to hold for harmonic staleness at 10⁹


def lognormal(n: int, seed: int) -> Any:
    """Return lognormal numbers on the device."""
    generator, found = cupy.random.default_rng(seed), cupy.empty(n, cupy.float32)
    for begin in range(0, n, SLICE):
        part = found[begin : begin + SLICE]
        cupy.exp(generator.standard_normal(len(part), dtype=cupy.float32), out=part)
    return found


def total(column: Any) -> float:
    """Return the sum of a column in float64."""
    parts = range(0, len(column), SLICE)
    return sum(float(column[begin : begin + SLICE].sum(dtype=cupy.float64)) for begin in parts)


def added(w: Any, d: Any, rounds: int) -> float:
    """Return the least time of one addition."""
    out = cupy.empty_like(w)
    return min(seconds(lambda: cupy.add(w, d, out=out), rounds))


def digest(rates: Any) -> list[int]:
    """Return sums of the rates' bits, and of the bits by position, of slices."""
    bits, found = cupy.asarray(rates).view(cupy.uint32), []
    for begin in range(0, len(bits), SLICE):
        part = bits[begin : begin + SLICE].astype(cupy.uint64)
        found.append(int(part.sum()))
        part *= cupy.arange(len(part), dtype=cupy.uint64)
        found.append(int(part.sum()))
        del part
        cupy.get_default_memory_pool().free_all_blocks()
    return found


def seconds(work: Callable[[], object], rounds: int) -> list[float]:
    """Return how long work takes by the clock on the wall, until the device is done."""

    def whole() -> None:
        work()
        cupy.cuda.Device().synchronize()

    cupy.cuda.Device().synchronize()
    return [timed(whole) for _ in range(rounds)]


def of_cell(objective: fo.Objective, d: Any, w: Any, bandwidth: float, rounds: int) -> dict[str, Any]:
    """Return the record of one objective."""
    begun = time.perf_counter()
    problem = fo.cuda.DeviceProblem(objective, d, bandwidth, importance=w)
    solution = fo.solve(problem, SOLVER)
    compiled = time.perf_counter() - begun
    certificate = solution.certificate
    if certificate is None:
        raise SystemExit(f"{objective!r}: no certificate")
    record = {
        "value": solution.value,
        "price": solution.price,
        "relative gap": certificate.relative_gap,
        "bandwidth left": 1.0 - total(cupy.asarray(solution.rates)) / bandwidth,
        "passes": solution.iterations,
    }
    first = (solution.price, solution.value, digest(solution.rates))
    del solution, certificate
    solution = fo.solve(problem, SOLVER)
    record["same bits"] = first == (solution.price, solution.value, digest(solution.rates))
    del solution
    times = seconds(lambda: fo.solve(problem, SOLVER), rounds)
    return {**record, "certified": min(times), "median": statistics.median(times), "first": compiled}


def against_host(objective: fo.Objective) -> dict[str, float]:
    """Return relative differences from the solver in NumPy."""
    rng = np.random.default_rng(1)
    d, w = (rng.lognormal(0.0, 1.0, COMPARED).astype(np.float32) for _ in range(2))
    bandwidth = BUDGET * float(np.sum(d, dtype=float))
    there = fo.solve(fo.cuda.DeviceProblem(objective, d, bandwidth, importance=w), SOLVER)
    os.environ["FRESHOPT_COMPILED"] = "0"
    here = fo.solve(fo.Problem(objective, fo.Sources(d, w), bandwidth), WaterFilling())
    del os.environ["FRESHOPT_COMPILED"]
    return {
        "value, host": abs(there.value / here.value - 1.0),
        "price, host": abs(there.price / here.price - 1.0),
    }


def with_copies(d: Any, w: Any, bandwidth: float, rounds: int) -> dict[str, float]:
    """Return the times of a solve whose columns and rates are the host's."""
    change_rate, importance = cupy.asnumpy(d), cupy.asnumpy(w)
    record: dict[str, list[float]] = {"copied there": [], "solved": [], "copied back": [], "all": []}
    for _ in range(rounds):
        begun = time.perf_counter()
        problem = fo.cuda.DeviceProblem(OBJECTIVES["harmonic"], change_rate, bandwidth, importance=importance)
        there = time.perf_counter()
        solution = fo.solve(problem, SOLVER)
        solved = time.perf_counter()
        rates = solution.rates_on_host()
        ended = time.perf_counter()
        spent = (there - begun, solved - there, ended - solved, ended - begun)
        for key, value in zip(record, spent, strict=True):
            record[key].append(value)
        del problem, solution, rates
    best = min(range(rounds), key=record["all"].__getitem__)
    return {key: values[best] for key, values in record.items()}


def records(
    n: int = 10**9, rounds: int = 5, cells: tuple[str, ...] = NAMES, copies: bool = True
) -> Iterator[Row]:
    """Yield the record of a device and a number of sources."""
    d, w = lognormal(n, 0), lognormal(n, 1)
    bandwidth = BUDGET * total(d)
    add = added(w, d, rounds)
    cupy.get_default_memory_pool().free_all_blocks()
    device = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    record: Record = {"device": device, "n": n, "add": add, "bytes a second": 12 * n / add, "cells": {}}
    for name in cells:
        row = {**of_cell(OBJECTIVES[name], d, w, bandwidth, rounds), **against_host(OBJECTIVES[name])}
        record["cells"][name] = row
        print(name, row, flush=True)
    if copies:
        record["with copies"] = with_copies(d, w, bandwidth, rounds)
        print("harmonic with copies", record["with copies"])
    yield record


def claims(record: Record) -> Claims:
    """Yield bits and proofs, and what is to hold at 10⁹ sources."""
    for one in record["records"]:
        where = f"{one['device']}, {one['n']:,}"
        for name, row in one["cells"].items():
            yield f"{where}, {name}: the same bits twice", row["same bits"]
            yield f"{where}, {name}: gap {row['relative gap']:.0e}", row["relative gap"] <= 1e-6
        if one["n"] == 10**9 and "with copies" in one and "H200" in one["device"]:
            alone, copied = one["cells"]["harmonic"]["certified"], one["with copies"]["all"]
            yield (
                f"{where}: {alone:.3f} s, {copied:.2f} s with copies",
                alone <= ON_DEVICE and copied <= WITH_COPIES,
            )


def shown(record: Record) -> Iterator[Row]:
    """Yield a row for each record and cell."""
    for one in record["records"]:
        for cell, row in one["cells"].items():
            add, ms = row["certified"] / one["add"], f"{1e3 * row['certified']:.0f}"
            yield {**row, "device": one["device"], "n": one["n"], "cell": cell, "adds": add, "ms": ms}


def sentences(record: Record) -> Iterator[str]:
    """Yield a sentence for each record."""
    for one in record["records"]:
        cells = one["cells"].values()
        value, price = (max(row[key] for row in cells) for key in ("value, host", "price, host"))
        left = max(abs(row["bandwidth left"]) for row in cells)
        bits = "the same bits twice" if all(row["same bits"] for row in cells) else "NOT the same bits twice"
        text = (
            f"{one['device']}: an ADD of {one['n']:,} sources takes {1e3 * one['add']:.1f} ms "
            f"({one['bytes a second'] / 1e12:.1f} TB a second); {bits}; the bandwidth is met to "
            f"{left:.0e}; at 100 000 sources values are within {value:.0e} and prices within {price:.0e} "
            "of the host's."
        )
        if copies := one.get("with copies"):
            text += (
                " With columns and rates in the host's memory "
                f"harmonic staleness takes {copies['all']:.2f} s: "
                f"{copies['copied there']:.2f} s to copy two columns there and check them, "
                f"{copies['solved']:.2f} s to solve, {copies['copied back']:.2f} s to copy the rates back."
            )
        yield text


BENCH = Measurement(
    {"records": records},
    rows={"cells": shown},
    texts={"measured": sentences},
    merge=by("device", "n", rows="records"),
    claims=claims,
)
