"""What `Auto` takes against every other exact solver that is shipped, over 18 objectives.

    python -m benchmarks auto_choice [--sizes 100 10000] [--rounds 3] [--save]

CPU seconds on one thread, in turns, the least of each, with loops loaded; only solvers that prove the optimum
count. Differences below a millisecond are what `Auto` looks at before it chooses.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, turns
from benchmarks.objectives import OBJECTIVES
from benchmarks.speed.derived import OBJECTIVES as DECLARED
from freshopt.compiled import backend
from freshopt.problems import LogFreshness
from freshopt.solvers import (
    InteriorPoint,
    NestedWaterFilling,
    RatioWaterFilling,
    SeparableNewton,
    WaterFilling,
)

PROVED, TIMES, NOTHING_MS = 1e-9, 3.0, 1.0
CELLS: dict[str, fo.Objective] = {
    **OBJECTIVES,
    "log freshness": LogFreshness(fo.Refresh.POISSON),
    **{f"declared {name}": own for name, (own, _) in DECLARED.items()},
}
OTHERS = (WaterFilling(), SeparableNewton(), InteriorPoint(), NestedWaterFilling(), RatioWaterFilling())
# What there is beside sources and objective: a share of the change rates, then limits and constraints.
SHAPES: dict[str, Callable[[fo.Sources, float], dict[str, Any]]] = {
    "bandwidth": lambda _, most: {"bandwidth": most},
    "little bandwidth": lambda _, most: {"bandwidth": 1e-3 * most},
    "hosts": lambda own, most: {
        "bandwidth": most,
        "host_limits": dict.fromkeys((f"h{k}" for k in range(min(10, len(own)))), most / 8.0),
    },
    "two units": lambda own, most: {
        "bandwidth": most,
        "constraints": [fo.Budget(1.5 * most, cost=1.0 + np.arange(len(own)) % 3, name="bytes")],
    },
    "tariff of groups": lambda own, most: {
        "bandwidth": most,
        "constraints": [fo.Priced(fo.Budget(by=own.host), {0: 0.01, most / 20.0: 0.1})],
    },
}


def cell(name: str, shape: str, n: int, rounds: int) -> Row | None:
    """Return the row of one objective, shape and size; None where nothing else proves an optimum."""
    rng = np.random.default_rng(1)
    own = fo.Sources(
        rng.lognormal(size=n), importance=rng.lognormal(size=n), host=[f"h{k % 10}" for k in range(n)]
    )
    try:
        problem = fo.Problem(CELLS[name], own, **SHAPES[shape](own, 0.5 * float(own.change_rate.sum())))
    except fo.FreshoptError:
        return None  # one of requests for polls, say, has no such limits
    works: dict[str, Callable[[], object]] = {}
    for solver in OTHERS:
        if solver.supports(problem) is None:
            found = fo.solve(problem, solver, throw=False)
            if found.status is fo.Status.OPTIMAL and found.certificate.relative_gap <= PROVED:
                works[type(solver).__name__] = partial(fo.solve, problem, solver)
    if not works:
        return None
    chosen = fo.solve(problem, throw=False)
    with backend.loading():
        took = turns({"Auto": lambda: fo.solve(problem, throw=False), **works}, rounds, time.process_time)
    best = min(works, key=took.__getitem__)
    return {
        "objective": name,
        "shape": shape,
        "sources": n,
        "auto_ms": 1e3 * took["Auto"],
        "best": best,
        "best_ms": 1e3 * took[best],
        "times": took["Auto"] / took[best],
        "gap": chosen.certificate.relative_gap,
    }


def cells(sizes: tuple[int, ...] = (100, 10_000), rounds: int = 3, largest: int = 99) -> Iterator[Row]:
    """Yield every objective, of so many at most, shape and size."""
    for name in list(CELLS)[:largest]:
        for shape in SHAPES:
            for n in sizes:
                row = cell(name, shape, n, rounds)
                if row is not None:
                    yield row


def claims(record: Record) -> Claims:
    """Yield that no other solver is three times as fast, and that all is proved."""
    for row in record["cells"]:
        where = f"{row['objective']}, {row['shape']}, {row['sources']} sources"
        said = f"{where}: {row['times']:.1f} times {row['best']}"
        yield said, row["times"] < TIMES or row["auto_ms"] - row["best_ms"] < NOTHING_MS
        yield f"{where}: gap {row['gap']:.0e}", row["gap"] <= 1e-6


BENCH = Measurement(
    {"cells": cells},
    quick={"sizes": (50,), "rounds": 1, "largest": 2},
    claims=claims,
    large=True,
    alone=True,
)
