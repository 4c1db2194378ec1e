"""How long declared constraints take on a million sources, in passes and in NumPy additions.

    python -m benchmarks constraints_speed [--n 1000000] [--quick] [--works budgets3 nested ...] [--save]

The process keeps to one thread. In turns with the solves ``np.add(w, d, out=r)`` over as many sources is
timed, the least of all, and the load of the machine is noted. A pass in ADD is the processor seconds of the
solve, whatever they were for, over its full passes: in such additions (``ADD a pass``), and in additions of
2.3 ns a source (``a pass at 2.3 ns``). Compiling is done before, on a smaller problem of the same kind.
Seconds are of the whole call of `fo.solve`, without and with the certificate, by the clock and of the
processor: on a machine with other work the latter tell more.

budgets3, budgets8   dense budgets of random costs; budgets100, budgets1000: sparse rows, 4 of them a source
targets100   the least spend under 100 targets of one family, 4 of them a source
epsilon40    least harmonic staleness under 20 targets of freshness, 19 sparse budgets and the bandwidth
nested       limits on 10⁵ groups of three levels
hosts        10⁵ host limits and three dense budgets
short        one budget and 10⁵ host limits, declared as constraints and the short way: the same bits
"""

import copy
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, best_of, by, clocked
from freshopt.modelling.objective import Refresh
from freshopt.problems import BinaryFreshness, HarmonicStaleness

# Nanoseconds of one addition by convention.
CONVENTION = 2.3
PER_SOURCE = 4  # rows that a source is in, where rows are sparse
SMALL = 70_000  # sources of the problem that is compiled on: loops are, from 65 536 on
ADDITIONS = 20


class Data:
    """Lognormal sources, and rates that limits are set by."""

    def __init__(self, n: int) -> None:
        self.n, self.rng = n, np.random.default_rng(n)
        self.d, self.w = self.rng.lognormal(0.0, 1.0, n), self.rng.lognormal(0.0, 1.0, n)
        self.rates = self.d * self.rng.lognormal(0.0, 0.5, n)

    def sources(self, **given: Any) -> fo.Sources:
        """Return the sources."""
        return fo.Sources(self.d, self.w, **given)

    def dense(self, m: int) -> list[fo.Budget]:
        """Return budgets over all sources; some bind."""
        budgets = []
        for j in range(m):
            cost = self.rng.lognormal(0.0, 0.5, self.n)
            limit = float(cost @ self.rates) * self.rng.uniform(0.8, 1.2)
            budgets.append(fo.Budget(limit, cost=cost, name=f"unit {j}"))
        return budgets

    def sparse(self, m: int) -> Callable[[Any], list[Any]]:
        """Return sparse limits as a function of the rate."""
        row = np.concatenate([self.rng.integers(0, m, self.n) for _ in range(PER_SOURCE)])
        source = np.tile(np.arange(self.n), PER_SOURCE)
        matrix = sp.csr_array((self.rng.lognormal(0.0, 0.5, len(row)), (row, source)), shape=(m, self.n))
        limits = (matrix @ self.rates) * self.rng.uniform(0.8, 1.2, m)
        return lambda rate: [(matrix @ rate <= limits).set_label("sparse")]

    def hosts(self, count: int, seed: int = 1) -> tuple[np.ndarray, dict[int, float]]:
        """Return a host of each source, and limits."""
        host = np.random.default_rng(seed).integers(0, count, self.n)
        used = np.bincount(host, weights=self.rates, minlength=count)
        factor = self.rng.uniform(0.7, 1.5, count)
        return host, {k: float(used[k] * factor[k]) for k in np.flatnonzero(used).tolist()}

    @property
    def total(self) -> float:
        """Bandwidth."""
        return float(self.rates.sum())


def budgets(m: int) -> Callable[[Data], fo.Problem]:
    """Return what declares m dense budgets."""
    return lambda data: fo.Problem(
        HarmonicStaleness(Refresh.POISSON), data.sources(), constraints=data.dense(m)
    )


def sparse_budgets(m: int) -> Callable[[Data], fo.Problem]:
    """Return what declares m sparse budgets and a bandwidth."""
    return lambda data: fo.Problem(
        HarmonicStaleness(Refresh.POISSON), data.sources(), data.total, constraints=[data.sparse(m)]
    )


def targets(data: Data) -> fo.Problem:
    """Return 100 targets of one family by four groupings."""
    each, constraints = np.log1p(data.d / data.rates), []
    for k in range(PER_SOURCE):
        group = data.rng.integers(0, 25, data.n)
        mean = np.bincount(group, data.w * each) / np.bincount(group, data.w)
        most = dict(enumerate((mean * data.rng.uniform(0.95, 1.2, 25)).tolist()))
        constraints.append(
            fo.Target(HarmonicStaleness(Refresh.POISSON), at_most=most, by=group, name=f"by {k}")
        )
    return fo.Problem(fo.Spend(), data.sources(), constraints=constraints)


def epsilon(data: Data) -> fo.Problem:
    """Return one objective under targets of another, and budgets."""
    group, stale = data.rng.integers(0, 20, data.n), data.d / (data.d + data.rates)
    mean = np.bincount(group, data.w * stale) / np.bincount(group, data.w)
    least = dict(enumerate((1.0 - mean * data.rng.uniform(1.0, 1.1, 20)).tolist()))
    region = data.rng.integers(0, 19, data.n)
    cost = data.rng.lognormal(0.0, 0.5, data.n)
    limits = np.bincount(region, cost * data.rates) * data.rng.uniform(1.0, 1.2, 19)
    constraints = [
        fo.Target(BinaryFreshness(Refresh.POISSON), at_least=least, by=group),
        fo.Budget(dict(enumerate(limits.tolist())), cost=cost, by=region, name="region"),
    ]
    return fo.Problem(HarmonicStaleness(Refresh.POISSON), data.sources(), data.total, constraints=constraints)


def nested(data: Data) -> fo.Problem:
    """Return limits on hosts, domains of ten hosts and organisations of ten domains."""
    host = data.rng.integers(0, max(100, data.n // 11), data.n)
    levels, most = [], {}
    for depth, size in enumerate((1, 10, 100)):
        known, inverse = np.unique(host // size + 10 * depth * data.n, return_inverse=True)
        used = np.bincount(inverse, weights=data.rates) * data.rng.uniform(0.7, 1.5, len(known))
        most.update(dict(zip(known.tolist(), used.tolist(), strict=True)))
        levels.append(known[inverse])
    return fo.Problem(
        HarmonicStaleness(Refresh.POISSON), data.sources(), data.total, constraints=[fo.Nested(levels, most)]
    )


def hosts(data: Data) -> fo.Problem:
    """Return host limits, a tenth as many as sources, and three budgets."""
    host, limits = data.hosts(max(2, data.n // 10))
    return fo.Problem(
        HarmonicStaleness(Refresh.POISSON),
        data.sources(host=host),
        data.total,
        host_limits=limits,
        constraints=data.dense(3),
    )


WORKS: dict[str, Callable[[Data], fo.Problem]] = {
    "budgets3": budgets(3),
    "budgets8": budgets(8),
    "budgets100": sparse_budgets(99),
    "budgets1000": sparse_budgets(999),
    "targets100": targets,
    "epsilon40": epsilon,
    "nested": nested,
    "hosts": hosts,
}


class Clock:
    """The least time of an addition, measured in turns with the solves."""

    def __init__(self, data: Data) -> None:
        self.data, self.out, self.least = data, np.zeros(data.n), float("inf")

    def add(self) -> None:
        """Time some additions."""
        least = best_of(lambda: np.add(self.data.w, self.data.d, out=self.out), ADDITIONS)
        self.least = min(self.least, least)


def measure(work: str, n: int, rounds: int) -> dict[str, Any]:
    """Declare, solve and certify one problem; times are the least of all rounds."""
    fo.solve(WORKS[work](Data(min(n, SMALL))), throw=False)
    data = Data(n)
    clock, load = Clock(data), os.getloadavg()
    problem, declared, _ = clocked(lambda: WORKS[work](data))
    least = dict.fromkeys(("solve", "solve processor", "certified", "certified processor"), float("inf"))
    for _ in range(rounds):
        for name, certify in (("solve", False), ("certified", True)):
            clock.add()
            # A copy, of which nothing is remembered: the tree of its rows, say.
            own = copy.deepcopy(problem)
            solution, *taken = clocked(partial(fo.solve, own, certify=certify, throw=False))
            least[name] = min(least[name], taken[0])
            least[f"{name} processor"] = min(least[f"{name} processor"], taken[1])
    clock.add()
    proof, a_pass = solution.certificate, least["solve processor"] / max(1, solution.iterations)
    return {
        "work": work,
        "n": n,
        "rows": 0 if problem.program is None else len(problem.program.rows),
        "full passes": solution.iterations,
        **least,
        "declare": declared,
        "ADD ms": clock.least * 1e3,
        "ADD a pass": a_pass / clock.least,
        "a pass at 2.3 ns": a_pass / (CONVENTION * 1e-9 * n),
        "status": solution.status.value,
        "gap": None if proof is None else proof.relative_gap,
        "infeasibility": None if proof is None else proof.infeasibility,
        "note": solution.note,
        "load": load,
    }


def short(n: int, rounds: int) -> dict[str, Any]:
    """Time one budget and host limits declared as constraints, against the short way."""
    data = Data(n)
    host, limits = data.hosts(max(2, n // 10))
    sources, load = data.sources(host=host), os.getloadavg()
    as_constraints = [fo.Budget(data.total), fo.Budget(limits, by="host", name="host")]
    ways = {
        "short": lambda: fo.Problem(HarmonicStaleness(Refresh.POISSON), sources, data.total, limits),
        "constraints": lambda: fo.Problem(
            HarmonicStaleness(Refresh.POISSON), sources, constraints=as_constraints
        ),
    }
    problems = {way: declare() for way, declare in ways.items()}
    times = dict.fromkeys(ways, float("inf"))
    found: dict[str, fo.Solution] = {}
    for _ in range(1 + rounds):
        for way, problem in problems.items():
            found[way], wall, _ = clocked(partial(fo.solve, problem, certify=False))
            times[way] = min(times[way], wall)
    one, other = found["short"], found["constraints"]
    same = np.array_equal(one.rates, other.rates) and dict(one.prices) == dict(other.prices)
    return {
        "work": "short",
        "n": n,
        "rows": 1 + len(limits),
        "same bits": bool(same),
        "short seconds": times["short"],
        "constraints seconds": times["constraints"],
        "ratio": times["constraints"] / times["short"],
        "load": load,
    }


def rows(n: int = 10**6, rounds: int = 1, works: tuple[str, ...] = (*WORKS, "short")) -> Iterator[Row]:
    """Yield the works that are asked for; the others stay as saved."""
    for work in works:
        yield short(n, rounds) if work == "short" else measure(work, n, rounds)


def claims(record: Record) -> Claims:
    """Yield that all are proved, and that the short way has the same bits."""
    yield "all works", [row["work"] for row in record["rows"]] == [*WORKS, "short"]
    for row in record["rows"]:
        if row["work"] == "short":
            yield "the short way has the same bits", row["same bits"]
        else:
            yield (
                f"{row['work']}: {row['status']}, {row['gap']:.0e}",
                row["status"] == "optimal" and row["gap"] <= 1e-12,
            )


BENCH = Measurement(
    {"rows": rows},
    quick={"n": 2000},
    facts=("quick", "cores", "python"),
    merge=by("work"),
    claims=claims,
    alone=True,
)
