"""The parts of `speed.py`: what is measured, in turns, and the rows of its table."""

import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import freshopt as fo
from benchmarks.harness import clocked, seconds
from benchmarks.objectives import BUDGET, OBJECTIVES
from benchmarks.speed.derived import AlphaFair
from benchmarks.speed.speed_scaling import RIVALS, NoRatesError, harmonic, measure
from freshopt.modelling.objective import Refresh
from freshopt.problems import HarmonicStaleness, PowerCost, SynchronizationCost
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.solvers import SeparableNewton

MISS = 1e-12  # of the bandwidth
PROVED = 1e-9  # relative gap of a user's own objective
CERTIFIED = 3  # rounds in which the certified call is measured too
LEAST_ADD = 2.3e-9  # seconds a source: where memory is faster, an ADD counts as this


class Sizes(NamedTuple):
    """How large and how long."""

    sources: int = 10**7
    with_hosts: int = 10**6
    cones: int = 10**4
    slsqp: tuple[int, ...] = (100, 1000)
    loop: int = 10**5
    declared: int = 10**6
    largest: int = 10**8
    rounds: int = 7
    patience: float = 60.0  # seconds for all rounds of a row, and for one solve of the figure


QUICK = Sizes(70_000, 70_000, 100, (30,), 1000, 5000, 316, 2, 0.5)
Row = dict[str, Any]
Times = defaultdict[str, list[float]]


def row(work: str, n: int, measured: float, unit: str, hold: float | None, **beside: Any) -> Row:
    """Return a row of the table, in units of ADD, x or evaluations.

    What is to be held is at least that of ratios, at most that of costs. What the system takes to provide
    fresh memory for the rates, ``fresh``, is counted apart.
    """
    judged = measured - beside.get("fresh", 0.0)
    met = None if hold is None else judged >= hold if unit == "x" else judged <= hold
    if met and beside.get("miss", 0.0) > MISS:
        met = False
    return {"work": work, "n": n, "measured": measured, "unit": unit, "hold": hold, "met": met, **beside}


def miss(problem: fo.Problem, rates: np.ndarray) -> float:
    """Return |Σ cost·ρ / B − 1|."""
    return abs(float(np.sum(problem.sources.refresh_cost * rates)) / problem.bandwidth - 1.0)


def timed_solves(problem: fo.Problem, certify: bool, times: Times, name: str) -> fo.Solution:
    """Solve without a certificate, and with one if asked, and note the times; return the last solution."""
    solution, whole, _ = clocked(lambda: fo.solve(problem, certify=False))
    times[f"{name}: whole"].append(whole)
    times[f"{name}: solve"].append(solution.seconds)
    if certify:
        solution, certified, _ = clocked(lambda: fo.solve(problem))
        times[f"{name}: certified"].append(certified)
    return solution


def addition(d: np.ndarray, w: np.ndarray, out: np.ndarray, times: Times) -> None:
    """Note the time of one pass, into memory at hand and into fresh memory."""
    times["add"].append(seconds(lambda: np.add(w, d, out=out)))
    times["fresh"].append(seconds(lambda: np.add(w, d, out=np.empty(len(d)))))


def unit(times: Times, n: int) -> float:
    """Return the seconds of an ADD of n sources."""
    return max(min(times["add"]), LEAST_ADD * n)


def solve_row(
    work: str,
    hold: float | None,
    problem: fo.Problem,
    solution: fo.Solution,
    times: Times,
    certified_hold: float | None = None,
) -> Row:
    """Return a row in units of ADD; `certified_hold` is to be held by the certified call."""
    add, proof = unit(times, len(problem.sources)), solution.certificate
    certified = min(times[f"{work}: certified"]) / add if times[f"{work}: certified"] else None
    fresh = max(0.0, min(times["fresh"]) - min(times["add"])) / add
    met = None if certified_hold is None or certified is None else certified - fresh <= certified_hold
    return row(
        work,
        len(problem.sources),
        min(times[f"{work}: solve"]) / add,
        "ADD",
        hold,
        whole=min(times[f"{work}: whole"]) / add,
        certified=certified,
        certified_hold=certified_hold,
        certified_met=met,
        seconds=min(times[f"{work}: solve"]),
        fresh=fresh,
        rounds=len(times[f"{work}: solve"]),
        passes=solution.iterations,
        miss=miss(problem, solution.rates),
        gap=None if proof is None else proof.relative_gap,
    )


def objectives(sizes: Sizes) -> list[Row]:
    """Measure the named objectives."""
    n, rng = sizes.sources, np.random.default_rng(0)
    d, w, out = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n), np.zeros(n)
    exponents = rng.uniform(0.1, 0.9, n)
    # What the certified call is to hold, in ADD.
    works: dict[str, tuple[fo.Objective, float | None]] = {
        "harmonic": (OBJECTIVES["harmonic"], 6.0),
        "binary": (OBJECTIVES["binary"], 6.0),
        "power 0.5": (OBJECTIVES["power 0.5"], None),
        "power, an exponent each": (SynchronizationCost(PowerCost(1.0, exponents)), None),
        "delay": (OBJECTIVES["delay"], 3.5),
        "binary, periodic": (OBJECTIVES["binary, periodic"], 30.0),
        "harmonic, periodic": (OBJECTIVES["harmonic, periodic"], 16.0),
        "age": (OBJECTIVES["age"], 8.0),
        "age, periodic": (OBJECTIVES["age, periodic"], 14.0),
    }
    times: Times = defaultdict(list)
    sources, bandwidth = fo.Sources(d, w), BUDGET * float(np.sum(d))
    problems: dict[str, fo.Problem] = {}
    for work, (objective, _) in works.items():
        declare = partial(fo.Problem, objective, sources, bandwidth)
        problems[work], taken, _ = clocked(declare)
        times[f"{work}: declare"].append(taken)
    found: dict[str, fo.Solution] = {}
    for turn in range(sizes.rounds):
        for work, problem in problems.items():
            addition(d, w, out, times)
            spent = sum(times[f"{work}: whole"]) + sum(times[f"{work}: certified"])
            if turn < 2 or spent < sizes.patience:  # the first may have compiled
                solution = timed_solves(problem, turn < CERTIFIED, times, work)
                found[work] = solution if solution.certificate else found[work]
    add = unit(times, n)
    rows = [
        row("ADD", n, min(times["add"]) / add, "ADD", None, seconds=min(times["add"])),
        row("ADD into fresh memory", n, min(times["fresh"]) / add, "ADD", None),
    ]
    for work, (_, hold) in works.items():
        made = solve_row(work, None, problems[work], found[work], times, hold)
        made["declare"] = min(times[f"{work}: declare"]) / add
        rows.append(made)
    return rows


def again(sizes: Sizes) -> list[Row]:
    """Measure solves that start from an earlier solution: of another bandwidth, of some changed sources."""
    n = sizes.sources
    before = harmonic(n)
    d, w, out = np.array(before.sources.change_rate), before.sources.importance, np.zeros(n)
    earlier = fo.solve(before, certify=False)
    d[: n // 10_000] *= 7.0
    works = {
        "harmonic again, 5 % more bandwidth": before.with_bandwidth(1.05 * before.bandwidth),
        "harmonic again, 1 of 10 000 changed": fo.Problem(
            HarmonicStaleness(Refresh.POISSON), fo.Sources(d, w), before.bandwidth
        ),
    }
    times: Times = defaultdict(list)
    found: dict[str, fo.Solution] = {}
    for _ in range(sizes.rounds):
        addition(d, w, out, times)
        for work, problem in works.items():
            again = partial(fo.solve, problem, certify=False, warm_start=earlier)
            found[work], whole, _ = clocked(again)
            times[f"{work}: whole"].append(whole)
            times[f"{work}: solve"].append(found[work].seconds)
    return [solve_row(work, None, works[work], found[work], times) for work in works]


def limited(n: int) -> fo.Problem:
    """Return a problem with ten sources a host, the hosts' limits spread around what they would take."""
    rng = np.random.default_rng(1)
    d, w, many = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n), n // 10
    bandwidth = BUDGET * float(np.sum(d))
    limits = (bandwidth / many * rng.lognormal(0.3, 0.5, many)).tolist()
    host = rng.integers(0, many, n)
    present = np.unique(host).tolist()
    return fo.Problem(
        HarmonicStaleness(Refresh.POISSON),
        fo.Sources(d, w, host=host),
        bandwidth,
        {each: limits[each] for each in present},
    )


def hosts(sizes: Sizes) -> list[Row]:
    """Measure host limits; certificates are left out if they may take longer than the patience allows."""
    n = sizes.with_hosts
    patient = 100.0 * seconds(lambda: fo.solve(limited(n // 10))) <= sizes.patience
    problem, declare, _ = clocked(lambda: limited(n))
    d, w, out = problem.sources.change_rate, problem.sources.importance, np.zeros(n)
    times: Times = defaultdict(list)
    work = f"harmonic, {len(problem.hosts):,} host limits"
    solution = timed_solves(problem, False, times, work)  # may have compiled
    for turn in range(sizes.rounds):
        addition(d, w, out, times)
        found = timed_solves(problem, patient and turn < CERTIFIED, times, work)
        solution = found if found.certificate or not patient else solution
    made = solve_row(work, 35.0, problem, solution, times, 45.0)
    made["binding"] = sum(price > 0.0 for price in solution.host_prices.values()) / len(problem.hosts)
    made["declare"] = declare / unit(times, n)
    return [made]


def against(name: str, n: int, hold: float | None, rounds: int, patience: float) -> Row:
    """Measure a rival and freshopt in turns; the ratio is to the solve alone."""
    problem = harmonic(n)
    d, w = np.array(problem.sources.change_rate), np.array(problem.sources.importance)
    times: Times = defaultdict(list)
    work = f"against {name}"
    solution = timed_solves(problem, True, times, work)
    note, gap = "", None
    while not note and len(times["rival"]) < rounds and sum(times["rival"]) < patience:
        solution = timed_solves(problem, True, times, work)
        begun = time.perf_counter()
        try:
            rates = RIVALS[name](d, w, problem.bandwidth)
        except NoRatesError as reason:
            note = str(reason)
            continue
        times["rival"].append(time.perf_counter() - begun)
        proof = fo.certify(problem, rates, solution.price)
        gap = proof.relative_gap
    if note:
        return {**row(work, n, 0.0, "x", hold), "note": note}
    rival = min(times["rival"])
    return row(
        work,
        n,
        rival / min(times[f"{work}: solve"]),
        "x",
        hold,
        whole=rival / min(times[f"{work}: whole"]),
        certified=rival / min(times[f"{work}: certified"]),
        seconds=rival,
        rounds=len(times["rival"]),
        gap=gap,
    )


def bisection(sizes: Sizes) -> list[Row]:
    """Measure plain NumPy."""
    return [against("NumPy bisection", sizes.sources, 100.0, 3, sizes.patience)]


def others(sizes: Sizes) -> list[Row]:
    """Measure general solvers and a loop."""
    least = min(3, sizes.rounds)
    return [
        against("CVXPY + CLARABEL", sizes.cones, 5000.0, least, sizes.patience),
        against("CVXPY + ECOS", sizes.cones, None, least, sizes.patience),
        *(against("SciPy SLSQP", n, None, least, sizes.patience) for n in sizes.slsqp),
        against("pure Python", sizes.loop, None, least, sizes.patience),
    ]


def declared(sizes: Sizes) -> list[Row]:
    """Measure a user's own objective in evaluations of value, slope and curvature of all sources."""
    n, rng = sizes.declared, np.random.default_rng(2)
    d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    problem = fo.Problem(AlphaFair(), fo.Sources(d, w), BUDGET * float(np.sum(d)))
    numerics = problem.numerics
    if not isinstance(numerics, DerivedNumerics):
        raise TypeError("a user's objective has no kernel.")
    times: Times = defaultdict(list)
    share = np.full(n, problem.bandwidth / n)
    for _ in range(min(3, sizes.rounds)):
        times["one"] += [seconds(lambda: numerics.jet(share)) for _ in range(3)]
        solution = fo.solve(problem, SeparableNewton(), certify=False)
        times["solve"].append(solution.seconds)
        solution, certified, _ = clocked(lambda: fo.solve(problem, SeparableNewton(), tolerance=PROVED))
        times["certified"].append(certified)
    one, proof = min(times["one"]), solution.certificate
    shared = {"miss": miss(problem, solution.rates), "gap": None if proof is None else proof.relative_gap}
    return [
        row("own objective, evaluations", n, solution.iterations, "evaluations", 20.0, **shared),
        row(
            "own objective, time",
            n,
            min(times["solve"]) / one,
            "evaluations",
            40.0,
            certified=min(times["certified"]) / one,
            seconds=min(times["solve"]),
            **shared,
        ),
    ]


PARTS: dict[str, Callable[[Sizes], list[Row]]] = {
    "objectives": objectives,
    "again": again,
    "hosts": hosts,
    "bisection": bisection,
    "others": others,
    "declared": declared,
    "scaling": lambda sizes: measure(sizes.largest, sizes.patience),
}
