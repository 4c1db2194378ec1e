"""Water filling on a CUDA device, beside what the device's memory takes for one addition.

    python benchmarks/speed/gpu.py [--n 1000000000] [--rounds 5] [--cells NAME ...] [--save]

Columns and rates are float32, made on the device by CuPy. An ADD is ``cupy.add(w, d, out=r)``: 12 bytes a
source, the least that a solve could read and write. To hold, for harmonic staleness at 10⁹: 0.1 s certified
on the device, and 1 s where columns come from the host's memory and rates go back to it.

Of each cell the record has the time of a certified call, its passes, and the gap that is proved; whether the
same input gave the same bits; and, at 10⁵ sources, how far value and price are from those of the solver in
NumPy, whose rates are float64. A saved record replaces the one of the same device and number of sources.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np

import freshopt as fo
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    PowerCost,
    SynchronizationCost,
)
from freshopt.solvers import WaterFilling, WaterFillingCuda

RESULT = Path("benchmarks/results/gpu.json")
PERIODIC = fo.Refresh.PERIODIC
CELLS: dict[str, fo.Objective] = {
    "harmonic": HarmonicStaleness(),
    "harmonic, periodic": HarmonicStaleness(PERIODIC),
    "binary": BinaryFreshness(),
    "binary, periodic": BinaryFreshness(PERIODIC),
    "delay": AccumulatedDelay(),
    "delay, periodic": AccumulatedDelay(PERIODIC),
    "age": Age(),
    "age, periodic": Age(PERIODIC),
    "power 0.5": SynchronizationCost(PowerCost(1.0, 0.5)),
}
SOLVER = WaterFillingCuda(dtype="float32")
BUDGET = 0.5  # of the sum of the change rates
COMPARED = 100_000  # sources of the comparison with the host
SLICE = 10**8  # sources that are drawn at once
ON_DEVICE, WITH_COPIES = 0.1, 1.0  # seconds, to hold for harmonic staleness at 10⁹


def lognormal(n: int, seed: int) -> Any:  # noqa: ANN401 - an array of CuPy
    """Return lognormal numbers on the device."""
    generator, found = cupy.random.default_rng(seed), cupy.empty(n, cupy.float32)
    for begin in range(0, n, SLICE):
        part = found[begin : begin + SLICE]
        cupy.exp(generator.standard_normal(len(part), dtype=cupy.float32), out=part)
    return found


def total(column: Any) -> float:  # noqa: ANN401
    """Return the sum of a column in float64."""
    parts = range(0, len(column), SLICE)
    return sum(float(column[begin : begin + SLICE].sum(dtype=cupy.float64)) for begin in parts)


def seconds(work: Callable[[], object], rounds: int) -> list[float]:
    """Return how long work takes by the clock on the wall, until the device is done."""
    times = []
    for _ in range(rounds):
        cupy.cuda.Device().synchronize()
        begun = time.perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - begun)
    return times


def added(w: Any, d: Any, rounds: int) -> float:  # noqa: ANN401
    """Return the least time of one addition."""
    out = cupy.empty_like(w)
    return min(seconds(lambda: cupy.add(w, d, out=out), rounds))


def digest(rates: Any) -> list[int]:  # noqa: ANN401
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


def of_cell(objective: fo.Objective, d: Any, w: Any, bandwidth: float, rounds: int) -> dict[str, Any]:  # noqa: ANN401
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


def with_copies(d: Any, w: Any, bandwidth: float, rounds: int) -> dict[str, float]:  # noqa: ANN401
    """Return the times of a solve whose columns and rates are the host's."""
    change_rate, importance = cupy.asnumpy(d), cupy.asnumpy(w)
    record: dict[str, list[float]] = {"copied there": [], "solved": [], "copied back": [], "all": []}
    for _ in range(rounds):
        begun = time.perf_counter()
        problem = fo.cuda.DeviceProblem(HarmonicStaleness(), change_rate, bandwidth, importance=importance)
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


def main() -> None:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=10**9)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--no-copies", action="store_true", help="columns and rates stay on the device")
    parser.add_argument("--save", action="store_true", help=f"write {RESULT}")
    arguments = parser.parse_args()
    n, rounds = arguments.n, arguments.rounds
    d, w = lognormal(n, 0), lognormal(n, 1)
    bandwidth = BUDGET * total(d)
    add = added(w, d, rounds)
    cupy.get_default_memory_pool().free_all_blocks()
    record: dict[str, Any] = {
        "device": cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode(),
        "n": n,
        "add": add,
        "bytes a second": 12 * n / add,
        "cells": {},
    }
    print(f"{record['device']}: ADD of {n:,} sources {1e3 * add:.2f} ms", flush=True)
    for name in arguments.cells:
        row = {**of_cell(CELLS[name], d, w, bandwidth, rounds), **against_host(CELLS[name])}
        record["cells"][name] = row
        print(
            f"{name:>20}: certified {1e3 * row['certified']:6.1f} ms ({row['certified'] / add:4.1f} ADD), "
            f"{row['passes']} passes, gap {row['relative gap']:.1e}, same bits: {row['same bits']}, "
            f"value and price {row['value, host']:.1e} and {row['price, host']:.1e} from the host's, "
            f"first {row['first']:.1f} s",
            flush=True,
        )
    if not arguments.no_copies:
        record["with copies"] = copies = with_copies(d, w, bandwidth, rounds)
        print(f"harmonic with copies: {', '.join(f'{key} {value:.3f} s' for key, value in copies.items())}")
        alone = record["cells"].get("harmonic", {}).get("certified", 0.0)
        held = alone <= ON_DEVICE and copies["all"] <= WITH_COPIES
        print(f"holds of {ON_DEVICE} s and {WITH_COPIES} s: {'met' if held else 'MISSED'} at {n:,}")
    if arguments.save:
        kept = json.loads(RESULT.read_text(encoding="utf-8"))["records"] if RESULT.exists() else []
        same = (record["device"], record["n"])
        kept = [one for one in kept if (one["device"], one["n"]) != same]
        RESULT.write_text(json.dumps({"records": [*kept, record]}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
