"""Compare declared constraints with CVXPY and CLARABEL: values, failures, and time.

    python -m benchmarks constraints_rivals [agreement] [time] [--quick] [--sizes 1000 10000 50000] [--save]

Stated before the run. Agreement: on well-scaled instances of every kind (n = 120, 2 to 20 rows) the value of
``problem.to_cvxpy().solve(solver="CLARABEL")`` differs from that of `fo.solve` by at most 1e-6 of |F| + Σ
y|b|. On ill-scaled ones (w lognormal of σ 3, Δ over ten decades, coefficients lognormal of σ 1.5) failures
and differences above 1e-6 are counted, with the median and the largest difference.

Time: well-scaled problems of n sources are declared and solved in turns with the same problem written in
vectorised CVXPY over ρ/Δ, compiled and solved by CLARABEL; the median of three rounds, of one from 50 000
sources on. Ours includes the declaration and the certificate; the declaration's part is told, too. Before,
problems of as many and of 70 000 sources are solved once, so that loops are compiled and loaded: a process
that has just begun takes NumPy's passes at 10⁴ sources, or half a second to load.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import freshopt as fo
from benchmarks.constraints.constraints_declared import nested_problem, objective_of, planted_problem
from benchmarks.constraints.constraints_families import groups_of
from benchmarks.harness import Claims, Measurement, Record, Row
from freshopt.cvx import Expression
from freshopt.modelling.objective import Refresh
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.nested_truth import forest
from tests.ground_truth.planted_rows import Formula, planted

AGREES = 1e-6
ONCE = 50_000
LOADED = 70_000
Timed = tuple[Callable[[], fo.Problem], Callable[[], Any]]


def minimax(seed: int, *, ill: bool) -> fo.Problem:
    """Return the worst of groups under two budgets."""
    case, rng = groups_of(seed), np.random.default_rng([seed, 6])
    n = len(case.weight)
    if ill:
        factor = 10.0 ** rng.uniform(-5.0, 5.0, n)
        case = replace(case, change=case.change * factor, weight=np.exp(rng.normal(0.0, 3.0, n)))
        lower, upper = case.lower * factor, case.upper * factor
    else:
        factor, lower, upper = np.ones(n), case.lower, case.upper
    sources = fo.Sources(
        case.change, case.weight, refresh_cost=case.cost / factor, min_rate=lower, max_rate=upper
    )
    second = rng.lognormal(0.0, 0.5, n) / factor
    least = max(0.5 * float(second @ (case.change * 1.0)), 1.1 * float(second @ lower))
    fairest = fo.Worst(objective_of(case.curve, case.change), by=case.group)
    return fo.Problem(
        fairest, sources, case.budget, constraints=[fo.Budget(least, cost=second, name="second")]
    )


def small(kind: str, seed: int, *, ill: bool) -> fo.Problem:
    """Return an instance of a kind."""
    m = int(np.random.default_rng([seed, 78]).integers(2, 21))
    if kind == "nested":
        curve = ("harmonic", "delay", "binary")[seed % 3]
        case = forest(seed, curve, ill=ill, groups=12, fixed=0.0)
        # A cone of no weight has no interior in the dual, which CLARABEL is not to be blamed for.
        return nested_problem(replace(case, weight=np.where(case.weight > 0.0, case.weight, 1.0)))
    if kind == "minimax":
        return minimax(seed, ill=ill)
    objective: Formula
    rows: tuple[Formula, ...]
    if kind == "budgets":
        objectives: tuple[Formula, ...] = ("harmonic", "delay", "binary")
        objective, rows = objectives[seed % 3], ("rate",) * m
    else:
        costs: tuple[Formula, ...] = ("harmonic", "binary", "tail")
        mixed: tuple[Formula, ...] = ("rate", "delay", "binary", "harmonic")
        objective, of = ("rate", costs) if kind == "targets" else ("harmonic", mixed)
        rows = tuple(of[k % len(of)] for k in range(m))
    return planted_problem(planted(seed, objective, rows, 120, ill=ill))


KINDS = ("budgets", "targets", "ε-constraint", "nested", "minimax")


def agreement(kind: str, count: int, *, ill: bool) -> dict[str, Any]:
    """Count how often CLARABEL finds the value."""
    row: Row = {"kind": kind, "ill": ill} | dict.fromkeys(("instances", "refused", "failed", "inaccurate"), 0)
    off = []
    for seed in range(count):
        problem = small(kind, seed, ill=ill)
        solution = fo.solve(problem, throw=False)
        row["instances"] += 1
        proof, program = solution.certificate, problem.program
        if proof is None or program is None or solution.multipliers is None or proof.relative_gap > AGREES:
            row["refused"] += 1
            continue
        size = abs(solution.value) + float(np.abs(solution.multipliers) @ np.abs(program.rows.limits))
        written = problem.to_cvxpy()
        try:
            written.solve(solver="CLARABEL")
        except cp.SolverError:
            row["failed"] += 1
            continue
        if written.value is None or not np.isfinite(written.value):
            row["failed"] += 1
            continue
        row["inaccurate"] += int(written.status != "optimal")
        off.append(abs(float(written.value) - solution.value) / size)
    row["off by more than 1e-6"] = int(np.sum(np.array(off) > AGREES))
    row["median"], row["largest"] = (float(np.median(off)), max(off)) if off else (None, None)
    row["met"] = None if ill else not (row["refused"] or row["failed"] or row["off by more than 1e-6"])
    return row


def members(labels: np.ndarray, weight: np.ndarray) -> sp.csr_array:
    """Return a sparse matrix of a group's weights per row."""
    return sp.csr_array((weight, (labels, np.arange(len(labels)))))


def timed(kind: str, n: int) -> Timed:
    """Return how a problem is declared, and how it is written and solved in CVXPY."""
    rng = np.random.default_rng(n)
    d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    rates = d * rng.lognormal(0.0, 0.5, n)
    sources, tier, region = fo.Sources(d, w), rng.integers(0, 10, n), rng.integers(0, 10, n)
    one, total = np.ones(n), float(rates.sum())
    share = {"tier": members(tier, w / np.bincount(tier, w)[tier]), "all": w / w.sum()}
    share["region"] = members(region, w / np.bincount(region, w)[region])
    by = {name: dict(enumerate(np.asarray(share[name] @ (d / (d + rates))))) for name in ("tier", "region")}
    fresh = {name: {k: 1.0 - v for k, v in by[name].items()} for name in by}
    stale = dict(enumerate(np.asarray(share["tier"] @ np.log1p(d / rates))))
    costs = [rng.lognormal(0.0, 0.5, n) for _ in range(3)]

    def solved(
        make: Callable[[Expression], tuple[Expression, list[Expression]]],
    ) -> Callable[[], cp.Problem]:
        def run() -> cp.Problem:
            # Over rates relative to change rates, which CLARABEL takes best.
            value, limits = make(cp.Variable(n, nonneg=True))
            program = cp.Problem(cp.Minimize(value), limits)
            program.solve(solver="CLARABEL")
            return program

        return run

    def scaled(unit: Expression) -> Expression:
        return cp.multiply(d, unit)

    def harmonic(unit: Expression) -> Expression:
        return cp.logistic(-cp.log(unit))

    def staleness(unit: Expression) -> Expression:
        return cp.inv_pos(1.0 + unit)

    if kind == "budgets":
        limits = {k: float(v) for k, v in enumerate(0.9 * np.bincount(region, rates))}
        budgets = [fo.Budget(float(a @ rates), cost=a, name=f"{j}") for j, a in enumerate(costs)]
        given: list[Any] = [*budgets, fo.Budget(limits, by=region, name="region")]
        rival = solved(
            lambda u: (
                w @ harmonic(u),
                [
                    np.stack(costs) @ scaled(u) <= [a @ rates for a in costs],
                    one @ scaled(u) <= total,
                    members(region, one) @ scaled(u) <= [*limits.values()],
                ],
            )
        )
        return lambda: fo.Problem(
            HarmonicStaleness(Refresh.POISSON), sources, total, constraints=given
        ), rival
    if kind == "targets":
        given = [
            fo.Target(HarmonicStaleness(Refresh.POISSON), at_most=stale, by=tier),
            fo.Target(BinaryFreshness(Refresh.POISSON), at_least=fresh["region"], by=region),
        ]
        rival = solved(
            lambda u: (
                one @ scaled(u),
                [
                    share["tier"] @ harmonic(u) <= [*stale.values()],
                    share["region"] @ staleness(u) <= [*by["region"].values()],
                ],
            )
        )
        return lambda: fo.Problem(fo.Spend(), sources, constraints=given), rival
    if kind == "ε-constraint":
        late = float(share["all"] @ (d / rates))
        given = [
            fo.Target(BinaryFreshness(Refresh.POISSON), at_least=fresh["tier"], by=tier),
            fo.Target(AccumulatedDelay(Refresh.POISSON), at_most=late),
            fo.Budget(float(costs[0] @ rates), cost=costs[0]),
        ]
        rival = solved(
            lambda u: (
                w @ harmonic(u),
                [
                    one @ scaled(u) <= total,
                    costs[0] @ scaled(u) <= costs[0] @ rates,
                    share["tier"] @ staleness(u) <= [*by["tier"].values()],
                    share["all"] @ cp.inv_pos(u) <= late,
                ],
            )
        )
        return lambda: fo.Problem(
            HarmonicStaleness(Refresh.POISSON), sources, total, constraints=given
        ), rival
    host = rng.integers(0, max(2, n // 50), n)
    domain = host % max(2, n // 500)
    most = {f"h{k}": float(v) for k, v in enumerate(np.bincount(host, rates)) if v > 0.0}
    wide = {f"d{k}": 0.8 * float(v) for k, v in enumerate(np.bincount(domain, rates)) if v > 0.0}
    names = [np.array([f"h{k}" for k in host]), np.array([f"d{k}" for k in domain])]
    tree = fo.Nested(names, at_most={**most, **wide})
    inner, outer = np.unique(host, return_inverse=True)[1], np.unique(domain, return_inverse=True)[1]
    rival = solved(
        lambda u: (
            w @ harmonic(u),
            [
                one @ scaled(u) <= 0.9 * total,
                members(inner, one) @ scaled(u) <= [*most.values()],
                members(outer, one) @ scaled(u) <= [*wide.values()],
            ],
        )
    )
    return lambda: fo.Problem(
        HarmonicStaleness(Refresh.POISSON), sources, 0.9 * total, constraints=[tree]
    ), rival


def seconds(kind: str, n: int) -> dict[str, Any]:
    """Time a kind in turns with CVXPY."""
    declare, rival = timed(kind, n)
    for first in (timed(kind, LOADED)[0], declare) if n < LOADED else (declare,):
        fo.solve(first(), throw=False)
    ours, declared, theirs, failures, solution = [], [], [], [], None
    value = float("nan")
    for _ in range(1 if n >= ONCE else 3):
        begun = time.perf_counter()
        problem = declare()
        declared.append(time.perf_counter() - begun)
        solution = fo.solve(problem, throw=False)
        ours.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        try:
            program = rival()
        except cp.SolverError as error:
            failures.append(str(error)[:60])
        else:
            value = float(program.value) if program.value is not None else float("nan")
            if program.status != "optimal":
                failures.append(program.status)
        theirs.append(time.perf_counter() - begun)
    proof = None if solution is None else solution.certificate
    off = None if solution is None or not np.isfinite(value) else abs(value / solution.value - 1.0)
    us, them = float(np.median(ours)), float(np.median(theirs))
    return {
        "kind": kind,
        "n": n,
        "rows": 0 if solution is None or solution.multipliers is None else len(solution.multipliers),
        "seconds": us,
        "declaration seconds": float(np.median(declared)),
        "CVXPY seconds": them,
        "ratio": them / us,
        "ratio without declaration": them / (us - float(np.median(declared))),
        "rounds": len(ours),
        "gap": None if proof is None else proof.relative_gap,
        "value off by": off,
        "CVXPY failures": failures,
    }


def agreements(count: int = 20) -> Iterator[Row]:
    """Yield the agreement of each kind, well-scaled and ill-scaled."""
    warnings.simplefilter("ignore")
    for ill in (False, True):
        for kind in KINDS:
            yield agreement(kind, count, ill=ill)


def times(sizes: tuple[int, ...] = (1_000, 10_000, 50_000)) -> Iterator[Row]:
    """Yield the times of each kind and size."""
    warnings.simplefilter("ignore")
    for n in sizes:
        for kind in KINDS[:4]:
            yield seconds(kind, n)


def claims(record: Record) -> Claims:
    """Yield that both agree where data are benign."""
    benign = [row for row in record["agreement"] if not row["ill"]]
    yield "five kinds", len(benign) == 5
    for row in benign:
        yield f"{row['kind']}: off by {row['largest']}", row["met"]
    yield "four kinds are timed", {row["kind"] for row in record["time"]} == set(KINDS[:4])
    yield "all took time", all(row["ratio"] > 0.0 for row in record["time"])


BENCH = Measurement(
    {"agreement": agreements, "time": times},
    quick={"count": 2, "sizes": (300,)},
    facts=("quick", "load"),
    claims=claims,
)
