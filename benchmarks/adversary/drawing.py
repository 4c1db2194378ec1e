"""Random cases over the whole grammar of inputs, and smaller ones with the same finding."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.adversary import declared
from benchmarks.adversary.case import DEFAULTS, LAYOUTS, Case
from benchmarks.adversary.cells import CELLS

# Solvers and the largest number of sources with which they are tried.
SPECIALISED = {
    "fo.solvers.WaterFilling()": 6000, "fo.solvers.SeparableNewton()": 6000, "fo.solvers.ClosedForm()": 6000,
    "fo.solvers.Uniform()": 6000, "fo.solvers.Proportional()": 6000, "fo.solvers.LambdaCrawl()": 6000,
    "fo.solvers.LambdaCrawlApprox()": 6000, "fo.solvers.BinaryLambdaCrawl()": 6000,
    "fo.solvers.Conic()": 4,
    "fo.solvers.MirrorDescent()": 12, "fo.solvers.ProjectedGradient()": 12,
}  # fmt: skip


def draw(rng: np.random.Generator, only: str | None = None) -> Case:
    """Draw one case, of one cell only if it is named; most are small, few have thousands of sources."""
    is_declared = rng.random() < 0.35 and only is None
    kind = "declared" if is_declared else str(rng.choice(list(CELLS))) if only is None else only
    line = declared.cost(rng, int(rng.integers(0, 4))) if is_declared else ""
    n = int(
        rng.choice(
            [rng.integers(1, 7), rng.integers(7, 60), np.exp(rng.uniform(4.9, 8.7))], p=[0.7, 0.2, 0.1]
        )
    )
    columns: dict[str, Any] = {key: np.full(n, value) for key, value in DEFAULTS.items()}
    columns["change_rate"] = d = _change_rates(rng, n)
    columns["importance"] = _importances(rng, n)
    if not is_declared:
        cell = CELLS[kind]
        if n > cell.largest:
            return draw(rng, only)
        for key, (low, high) in {**cell.columns, **cell.given}.items():
            alike = rng.random() < 0.3
            columns[key] = np.exp(rng.uniform(np.log(low), np.log(high), 1 if alike else n)) * np.ones(n)
            if rng.random() < 0.3:
                columns[key] = np.array([float(f"{x:.1g}") for x in columns[key]])
        if cell.signal_cost is not None and rng.random() < 0.3:
            columns["signalled"] = (rng.random(n) < rng.choice([0.3, 1.0])).astype(float)
    if rng.random() < 0.25:
        columns["refresh_cost"] = (
            10.0 ** rng.uniform(-1, 1, n) if rng.random() < 0.7 else 10.0 ** rng.uniform(-6, 6, n)
        )
    budget = float(np.sum(columns["refresh_cost"] * d)) * 10.0 ** float(rng.uniform(-3, 1.3))
    if rng.random() < 0.1:
        budget = float(rng.choice([1.0, np.sum(columns["refresh_cost"] * d), 1e-3, 1e6]))
    _bounds(rng, columns, d, budget)
    if not is_declared and CELLS[kind].used is not None:
        # Bandwidth is no product of these: sums that fill a limit are others.
        columns["min_rate"] = np.zeros(n)
    budget = _exactly(rng, columns, budget)
    host, limits = _hosts(rng, columns, budget)
    layout = str(rng.choice(LAYOUTS)) if rng.random() < 0.5 else "plain"
    if layout == "whole":
        columns["change_rate"] = np.maximum(np.rint(np.minimum(d, 1e9)), 1.0)
    if layout == "float32":
        for key in ("change_rate", "importance"):
            columns[key] = columns[key].astype(np.float32).astype(float)
    solver = str(rng.choice(list(SPECIALISED))) if rng.random() < 0.3 else "None"
    if solver != "None" and (n > SPECIALISED[solver] or "penalty" in kind):
        solver = "None"
    compiled = bool(rng.random() < 0.6)
    return Case(kind, line, columns, host, limits, budget, layout, solver, compiled)


def _exactly(rng: np.random.Generator, columns: dict[str, Any], budget: float) -> float:
    """Return a bandwidth, now and then one that a sum of bounds fills exactly or nearly."""
    for key in ("max_rate", "min_rate"):
        total = float(np.sum(columns["refresh_cost"] * columns[key]))
        least = float(np.sum(columns["refresh_cost"] * columns["min_rate"]))
        if 0 < total < np.inf and rng.random() < 0.15:
            return max(total * float(rng.choice([1.0, 1 + 1e-15, 1 + 1e-9, 1 - 1e-12])), least)
    return budget


def _change_rates(rng: np.random.Generator, n: int) -> Any:
    kind = rng.integers(6)
    if kind <= 1:
        return rng.lognormal(0.0, 1.0, n)
    if kind == 2:
        return 10.0 ** rng.uniform(-6.0, 4.0, n)
    if kind == 3:
        return np.full(n, float(rng.choice([1.0, 1e-6, 1e4, 0.3])))
    if kind == 4:
        return rng.choice([1.0, 2.0, 5.0, 1e-3], n)
    return np.rint(rng.uniform(1, 20, n))


def _importances(rng: np.random.Generator, n: int) -> Any:
    kind = rng.integers(8)
    w = np.ones(n)
    if kind <= 2:
        w = rng.lognormal(0.0, 1.0, n)
    elif kind == 3:
        w = 10.0 ** rng.uniform(-6.0, 6.0, n)
    elif kind == 4:
        w = 10.0 ** rng.uniform(-15.0, 15.0, n)
    elif kind == 5:
        w = np.full(n, 10.0 ** float(rng.uniform(-30.0, 30.0)))
    elif kind == 6:
        w = rng.choice([1.0, 2.0, 10.0], n)
    if rng.random() < 0.2:
        w = w * (rng.random(n) < float(rng.choice([0.1, 0.7])))
    return w


def _bounds(rng: np.random.Generator, columns: dict[str, Any], d: Any, budget: float) -> None:
    n, cost = len(d), columns["refresh_cost"]
    share = budget / n / cost
    kind = rng.random()
    if kind < 0.45:
        return

    def some(share_of_all: float) -> Any:
        return rng.random(n) < share_of_all

    if kind < 0.85:
        columns["min_rate"] = np.where(some(0.5), share * rng.uniform(0, 1, n) ** 2, 0.0)
    if kind > 0.6:
        columns["max_rate"] = np.where(some(0.6), share * 10.0 ** rng.uniform(-1, 1, n), np.inf)
    if rng.random() < 0.1:  # as much as there is
        columns["min_rate"] = columns["min_rate"] * (
            0.999999 / max(np.sum(columns["min_rate"] / share) / n, 1e-9)
        )
    if rng.random() < 0.1:
        columns["max_rate"] = np.where(some(0.5) & (columns["importance"] == 0), 0.0, columns["max_rate"])
    cap = np.where(columns["signalled"] > 0, d, columns.get("request_rate", np.inf))
    columns["min_rate"] = np.minimum(columns["min_rate"], cap)
    columns["max_rate"] = np.maximum(columns["max_rate"], columns["min_rate"])
    if rng.random() < 0.1:
        k = rng.integers(n)
        columns["max_rate"][k] = (
            columns["min_rate"][k] if columns["min_rate"][k] > 0 else columns["max_rate"][k]
        )


def _hosts(rng: np.random.Generator, columns: dict[str, Any], budget: float) -> tuple[Any, dict[int, float]]:
    n = len(columns["change_rate"])
    if rng.random() < 0.6:
        return np.zeros(n, dtype=np.int64), {}
    groups = int(rng.choice([1, 2, 3, max(1, n // 3), n]))
    host = rng.integers(0, groups, n)
    limits: dict[int, float] = {}
    for name in np.unique(host).tolist():
        if rng.random() < 0.25:
            continue
        members = host == name
        least = float(np.sum((columns["refresh_cost"] * columns["min_rate"])[members]))
        part = budget * float(np.mean(members))
        limits[name] = least * 1.001 + part * 10.0 ** float(rng.uniform(-3, 0.5))
        if rng.random() < 0.05 and least > 0:
            limits[name] = least
    if limits and len(limits) == groups and rng.random() < 0.1:  # together the bandwidth, but for rounding
        shares = rng.dirichlet(np.ones(len(limits)))
        least = {h: float(np.sum((columns["refresh_cost"] * columns["min_rate"])[host == h])) for h in limits}
        free = budget - sum(least.values())
        limits = {h: least[h] + max(free, 0) * float(s) + 1e-99 for h, s in zip(limits, shares, strict=True)}
    return host, limits


TRIES = 400


def shrink(case: Case, fails: Callable[[Case], bool], tries: int = TRIES) -> Case:
    """Return a simpler case that fails in the same way, after so many tries at most."""
    left, before = tries, None
    while before is not case and left > 0:
        before = case
        for candidate in simpler(case):
            left -= 1
            if left < 0:
                break
            if fails(candidate):
                case = candidate
                break
    return case


def simpler(case: Case) -> Iterator[Case]:
    """Yield simpler cases, the boldest first."""
    n = len(case)
    chunk = n // 2
    while chunk:
        for start in range(0, n, chunk):
            kept = np.delete(np.arange(n), np.s_[start : start + chunk])
            if len(kept):
                part = case.take(kept)
                share = len(kept) / n
                limits = {host: limit * share for host, limit in part.limits.items()}
                yield part
                yield part.changed(bandwidth=case.bandwidth * share, limits=limits)
        chunk = chunk // 2 if n <= 64 or chunk > n // 8 else 0
    if case.layout != "plain":
        yield case.changed(layout="plain")
    if case.solver != "None":
        yield case.changed(solver="None")
    if not case.compiled:
        yield case.changed(compiled=True)
    if case.limits:
        yield case.changed(limits={})
        for host in case.limits:
            yield case.changed(limits={h: limit for h, limit in case.limits.items() if h != host})
    scopes = [np.arange(n), *([np.array([k]) for k in range(n)] if 1 < n <= 12 else [])]
    for key, default in (*DEFAULTS.items(), ("change_rate", 1.0)):
        for scope in scopes:
            column = np.array(case.columns[key], dtype=float)
            if np.any(column[scope] != default):
                column[scope] = default
                yield case.changed(**{key: column})
    for digits in (1, 2, 3):
        for key, column in case.columns.items():
            rounded = np.array([float(f"{x:.{digits - 1}e}") for x in column])
            if not np.array_equal(rounded, column):
                yield case.changed(**{key: rounded})
        whole = float(f"{case.bandwidth:.{digits - 1}e}")
        if whole != case.bandwidth:
            yield case.changed(bandwidth=whole)
        limits = {host: float(f"{limit:.{digits - 1}e}") for host, limit in case.limits.items()}
        if limits != case.limits:
            yield case.changed(limits=limits)
