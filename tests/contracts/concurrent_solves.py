"""Solve from many threads and processes at once, cold, and compare with one after the other.

Run as a script it prints the largest relative difference of each way; `test_concurrency` reads that.
"""

import concurrent.futures
import json
import multiprocessing
import threading
import warnings
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import freshopt as fo
from freshopt import problems
from freshopt.compiled import backend
from freshopt.cvx import cp
from freshopt.scheduling import Greedy
from freshopt.solvers import Conic, MirrorDescent, SeparableNewton

Floats: TypeAlias = npt.NDArray[np.float64]
WORKERS = 8
# More than 65 536 sources are solved in compiled loops, by several threads of their own.
MANY = 70_000


class Declared(fo.Objective):
    """Without a kernel: its numerics are derived from the expression."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance, cp.exp(-rate / sources.change_rate))


def sources(n: int, **more: Any) -> fo.Sources:  # noqa: ANN401
    rng = np.random.default_rng(n)
    return fo.Sources(10.0 ** rng.uniform(-3.0, 3.0, n), 10.0 ** rng.uniform(-2.0, 2.0, n), **more)


def answer(task: str) -> Floats:
    """Return the numbers of one task, all of them unique."""
    kind, _, rest = task.partition(" ")
    if kind == "large":
        objective = problems.HarmonicStaleness(fo.Refresh[rest])
        return fo.solve(fo.Problem(objective, sources(MANY), 0.3 * MANY)).rates
    if kind == "hosts":
        host = np.arange(5000) % 50
        limits = dict.fromkeys(range(0, 50, 2), 10.0)
        given = sources(5000, host=host, signalled=np.arange(5000) % 3 == 0)
        return fo.solve(fo.Problem(problems.BinaryFreshness(fo.Refresh.POISSON), given, 1500.0, limits)).rates
    if kind == "declared":
        return fo.solve(fo.Problem(Declared(), sources(3000), 3000.0), SeparableNewton()).rates
    small = fo.Problem(problems.AccumulatedDelay(fo.Refresh.POISSON), fo.Sources([1.0, 4.0, 9.0]), 3.0)
    if kind == "cones":
        return np.array([fo.solve(small, Conic(rest)).value])
    if kind == "descent":
        return fo.solve(small, MirrorDescent()).rates
    times = fo.schedule(fo.solve(small), 20.0, Greedy(small))
    found = fo.replay(times, fo.World.poisson(small.sources, 1), runs=3, seed=2)
    return np.array([found.costs["binary"].value, found.costs["delay"].value])


TASKS = (
    "large POISSON",
    "large PERIODIC",
    "hosts",
    "declared",
    "cones CLARABEL",
    "cones SCS",
    "descent",
    "replay",
)


def difference(found: list[Floats], wanted: list[Floats]) -> float:
    """Return the largest relative difference."""
    return max(
        float(np.max(np.abs(a - b) / (np.abs(b) + 1e-300))) for a, b in zip(found, wanted, strict=True)
    )


def threads(tasks: list[str]) -> list[Floats]:
    """Return the answers of as many threads, which begin together."""
    barrier = threading.Barrier(WORKERS)

    def together(task: str) -> Floats:
        barrier.wait()
        return answer(task)

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(together, tasks))


def load() -> None:
    """Have loops do all that they can: which route an answer takes must not depend on who asks first."""
    backend.account.loads = True


def processes(method: str) -> list[Floats]:
    """Return the answers of two processes."""
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, context, initializer=load) as pool:
        return list(pool.map(answer, TASKS))


def silenced() -> list[str]:
    """Return the warnings of CVXPY that nobody sees any more."""
    lost = []
    for message in ("Solution may be inaccurate.", "This use of ``*`` has resulted in a matrix product."):
        with warnings.catch_warnings(record=True) as seen:
            try:
                warnings.warn(message, UserWarning, stacklevel=1)
            except UserWarning:  # where warnings are errors
                continue
        if not seen:
            lost.append(message)
    return lost


def main() -> None:
    """Print the differences as JSON."""
    load()
    cold = threads(list(TASKS))
    alone = [answer(task) for task in TASKS]
    found = {"different problems in threads": difference(cold, alone)}
    for task, wanted in zip(TASKS[:4], alone[:4], strict=True):
        found[f"{task} in threads"] = difference(threads([task] * WORKERS), [wanted] * WORKERS)
    found["warnings silenced for good"] = float(len(silenced()))
    for method in multiprocessing.get_all_start_methods():
        found[method] = difference(processes(method), alone)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
