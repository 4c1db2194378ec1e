"""Sensitivity analysis of a solution, for the plan's page.

A folder holds rates, change rates and times, and not the objective as a function. What needs the function is
worked out when the plan is made and kept in ``summary.json``: who is never refreshed and why, what costs
most, what more bandwidth would bring and to whom, which hosts bind, and the value along the bandwidth. Lists
are cut to the first few, so that the summary of a million sources is as short as that of a hundred.

Where fetches cost what they bring, costs and marginal values are per bandwidth used.

Cost: a solve and a certificate for each of 35 bandwidths, begun at the last one's price; for each of 13 where
there are many sources, and of 5 where there are very many (2 s for 10⁶, more if the price of one takes a
longer search) or hundreds with noisy signals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solver_protocol import SolveOptions, run_solver
from freshopt.errors import InfeasibleProblemError
from freshopt.formatting import finite, plain_name
from freshopt.modelling.fetches.conditional_fetches import with_numerics
from freshopt.modelling.objective import Refresh
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import plain
from freshopt.modelling.problem import Problem
from freshopt.noisy_signals.with_noisy_signals import WithNoisySignals
from freshopt.noisy_signals.with_signals import follows_signals, stale_with_signals, without_signals
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, BoolArray, IntArray, total
from freshopt.planning.declared import discipline_of
from freshopt.planning.good_phases import at_good_phases, phase_savings
from freshopt.problems.binary_freshness import BinaryFreshness, freshness_like
from freshopt.questions.bandwidth_for import freshness_objective
from freshopt.questions.rate_changes import source_prices
from freshopt.report.source_sample import MOVED
from freshopt.solvers.uniform import Uniform
from freshopt.solving import solve

# Sources and hosts of each list.
LISTED = 10
# Relative difference of intervals that are the same but for rounding.
_SAME = 1e-9


def interval_facts(rates: Array, names: npt.NDArray[Any], flags: npt.NDArray[np.str_]) -> dict[str, Any]:
    """Return the shortest, median and longest interval, with whose the ends are.

    Examples
    --------
    >>> names, flags = np.array(["a", "b", "c"]), np.array(["ok", "never changed", "never changed"])
    >>> found = interval_facts(np.array([1.0, 0.25, 0.25]), names, flags)
    >>> found["shortest"], found["longest"]
    ({'interval': 1.0, 'whose': 'a'}, {'interval': 4.0, 'whose': 'never changed'})
    """
    some = rates > 0.0
    if not np.any(some):
        return {}
    low, high = float(np.min(rates[some])), float(np.max(rates))
    return {
        "shortest": {
            "interval": 1.0 / high,
            "whose": _whose(rates >= high * (1.0 - _SAME), names, flags),
        },
        "median": float(np.median(1.0 / rates[some])),
        "longest": {
            "interval": 1.0 / low,
            "whose": _whose(some & (rates <= low * (1.0 + _SAME)), names, flags),
        },
    }


def moved_facts(rates: Array, crawled: Array, names: npt.NDArray[Any]) -> dict[str, Any] | None:
    """Return how many sources are refreshed more and less often.

    Examples
    --------
    >>> found = moved_facts(np.array([2.0, 0.5, 0.0]), np.array([1.0, 1.0, 1.0]), np.array(["a", "b", "c"]))
    >>> [found[key] for key in ("more", "less", "about", "never")], found["sources"][0]["source"]
    ([1, 1, 0, 1], 'a')
    """
    known = crawled > 0.0
    if not np.any(known):
        return None
    where = np.flatnonzero(known)
    ratio = rates[where] / crawled[where]
    more, less, never = ratio > MOVED, (ratio < 1.0 / MOVED) & (ratio > 0.0), ratio == 0.0
    # Those first whose number of fetches changes most.
    first = np.argsort(-np.abs(rates[where] - crawled[where]), kind="stable")[:LISTED]
    listed = where[[k for k in first.tolist() if more[k] or less[k] or never[k]]]
    return {
        "crawled": float(np.sum(crawled[where])),
        "more": int(np.count_nonzero(more)),
        "less": int(np.count_nonzero(less)),
        "never": int(np.count_nonzero(never)),
        "about": int(np.count_nonzero(~(more | less | never))),
        "sources": [
            {"source": plain_name(names[k]), "crawl_rate": float(crawled[k]), "rate": float(rates[k])}
            for k in listed.tolist()
        ],
    }


def _whose(which: BoolArray, names: npt.NDArray[Any], flags: npt.NDArray[np.str_]) -> str | int:
    """Return the only source's name, or what several have in common."""
    where = np.flatnonzero(which)
    if len(where) == 1:
        return str(names[where[0]])
    kinds = set(flags[where].tolist())
    return kinds.pop() if len(kinds) == 1 and "ok" not in kinds else len(where)


# Bandwidths around the plan's own, a fifth to four times: what somebody may ask for, near enough to each
# other for a smooth curve through values and slopes.
MULTIPLES = (
    *(k / 20 for k in range(4, 20)),
    *(k / 10 for k in range(10, 20)),
    *(k / 4 for k in range(8, 17)),
)
# Of more than `SOME` sources; 13 solves of 3·10⁵ take a second.
FEWER = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
SOME = 100_000
# Of more than `MANY` sources, and under declared constraints, where a solve may take seconds.
FEW = (0.5, 0.75, 1.0, 1.5, 2.0)
MANY = 300_000
# As many sources of plain formulas take as long as one whose crawls follow noisy signals.
EACH_NOISY = 500
# Bandwidths of the curve of freshness, and of more than `SOME` sources.
CURVE, FEW_OF_CURVE = 25, 7
MORE = 1.1  # times the bandwidth: a raise that somebody may ask for
# A marginal value at rate 0 that exceeds the price by less is equal to it, but for rounding.
ROUNDING = 1e-9
NO_ANSWER: dict[str, float | None] = {"value": None, "price": None, "fresh": None}


def findings(solution: Solution, baselines: Mapping[str, Solution]) -> dict[str, Any]:
    """Return the sensitivity analysis of a solution, ready for JSON.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.1, 1.0, 100.0], names=["a", "b", "c"])
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> found = findings(fo.solve(fo.Problem(objective, sources, bandwidth=1.0)), {})
    >>> found["never_refreshed"]["not_worth_it"], found["never_refreshed"]["sources"][0]["source"]
    (1, 'c')
    >>> [round(point["price"], 3) for point in found["frontier"][15:18]]
    [0.412, 0.393, 0.358]
    """
    problem = solution.problem
    own, used = with_numerics(problem, solution.rates)
    numerics = own.numerics
    told: dict[str, Any] = {
        "importance": total(problem.sources.column("importance")),
        "fresh": time_fresh(problem, {"plan": solution, **baselines}),
        "frontier": frontier_of(solution),
        "hosts": _hosts(solution),
    }
    if numerics is None:
        return told
    cost = numerics.cost(used)
    told |= {
        "more_bandwidth": _more(solution, cost),
        "cost": finite(total(cost)),
    }
    if problem.program is not None:
        # A source's price then depends on the rows that it is in; the constraints' own prices are told.
        return told
    # Marginal values per unit of bandwidth; at rate 0, by convexity, they decrease from there on.
    prices, cost_of_one = source_prices(solution), own.sources.refresh_cost
    worth, first_worth = (numerics.marginal(at) / cost_of_one for at in (used, np.zeros(len(used))))
    return told | {
        "interior": _interior(solution, worth, prices),
        "never_refreshed": _never(solution, first_worth, prices),
        "held_back": _held_back(solution, worth, prices),
    }


def time_fresh(problem: Problem, solutions: Mapping[str, Solution]) -> dict[str, float] | None:
    """Return the importance-weighted share of time fresh of several solutions."""
    sources, refresh = problem.sources, discipline_of(problem)
    weight = total(sources.column("importance"))
    if weight <= 0.0 or refresh is Refresh.ON_SIGNAL or bool(np.any(sources.signalled)):
        return None
    shares = {}
    for key, each in solutions.items():
        own = each.problem.objective
        if follows_signals(own):
            stale_weight = sources.importance * stale_with_signals(own, each.rates, sources)
            shares[key] = 1.0 - total(stale_weight) / weight
            continue
        stale = numerics_of(freshness_like(plain(own), refresh), sources)[0]
        assert stale is not None, "every cell has a kernel"
        shares[key] = 1.0 - _stale(stale.cost(each.rates), each) / weight
    return shares


def _stale(cost: Array, solution: Solution) -> float:
    """Return the stale part of a solution, given that at random phases."""
    freshness = BinaryFreshness(Refresh.PERIODIC)
    return total(cost - phase_savings(solution.problem, solution.rates, objective=freshness))


def frontier_of(solution: Solution) -> list[dict[str, Any]]:
    """Return optimal value, shadow price and freshness along the bandwidth.

    Bandwidths are ascending; one that is infeasibly small has none of them.

    As `freshopt.frontier`, but no solution is kept: a dozen of ten million sources would take a gigabyte.
    """
    problem = solution.problem
    n = len(solution.rates) * (EACH_NOISY if isinstance(problem.objective, WithNoisySignals) else 1)
    if problem.program is not None:
        n = MANY + 1
    multiples = MULTIPLES if n <= SOME else FEWER if n <= MANY else FEW
    points: list[dict[str, Any]] = []
    for bandwidth, found in _solved_down(problem, [problem.bandwidth * each for each in multiples], solution):
        if found is None:
            points.append({"bandwidth": bandwidth, "status": Status.INFEASIBLE.value, **NO_ANSWER})
            continue
        fresh = time_fresh(problem, {"here": found})
        points.append(
            {
                "bandwidth": bandwidth,
                "status": found.status.value,
                "value": finite(found.value),
                "price": finite(found.price),
                "fresh": None if fresh is None else finite(fresh["here"]),
            }
        )
    return points[::-1]


def _solved_down(
    problem: Problem, bandwidths: Iterable[float], known: Solution | None = None
) -> Iterator[tuple[float, Solution | None]]:
    """Yield bandwidths with their solutions, None where infeasible.

    From the largest down: a price is then known before lower bounds make a bandwidth infeasible.
    """
    start: float | Solution | None = None
    short = False
    for bandwidth in sorted(bandwidths, reverse=True):
        if not SMALLEST <= bandwidth <= LARGEST:
            continue
        found = known if known is not None and bandwidth == problem.bandwidth else None
        # Less than what does not suffice does not suffice either.
        if found is None and not short:
            with suppress(InfeasibleProblemError):
                found = solve(problem.with_bandwidth(bandwidth), throw=False, warm_start=start)
        short = short or found is None or found.status is Status.INFEASIBLE
        if not short and found is not None and found.price > 0.0:
            start = found.price if problem.program is None else found
        yield bandwidth, None if short else found


def freshness_along(solution: Solution, marked: Sequence[float]) -> list[dict[str, float]] | None:
    """Return the most freshness along the bandwidth, and that of equal rates.

    The bandwidths reach around those that are marked, which are among them. None where no formula tells the
    share of time fresh, or other constraints than bounds and host limits hold.
    """
    problem = solution.problem
    marked = [at for at in marked if SMALLEST <= at <= LARGEST]
    known = time_fresh(problem, {"plan": solution})
    if not marked or known is None or problem.program is not None or problem.per_bandwidth is not None:
        return None
    own = problem.restated(objective=freshness_objective(problem))
    many = CURVE if len(solution.rates) <= SOME else FEW_OF_CURVE
    around = np.geomspace(min(marked) / 4.0, 1.5 * max(marked), many)
    wanted = np.unique(np.append(around, marked)).tolist()
    points: list[dict[str, float]] = []
    for bandwidth, best in _solved_down(own, wanted):
        if best is None or best.status is not Status.OPTIMAL:
            break
        equal = run_solver(Uniform(), without_signals(best.problem), SolveOptions(certify=False))
        shares = time_fresh(best.problem, {"best": best, "equal": equal})
        points.append({"bandwidth": bandwidth, **(shares or {})})
    return points[::-1]


def _more(solution: Solution, cost: Array) -> dict[str, Any] | None:
    """Return a tenth more bandwidth's gain and to whom, or None."""
    problem = solution.problem
    if not (solution.price > 0.0 and MORE * problem.bandwidth <= LARGEST):
        return None
    then = solve(problem.with_bandwidth(MORE * problem.bandwidth), throw=False, warm_start=solution)
    own, used = with_numerics(then.problem, then.rates)
    if own.numerics is None or not np.isfinite(then.value):
        return None
    gain = cost - own.numerics.cost(used)
    # Gains below that are rounding of the costs.
    first = _largest(gain, gain > 1e-12 * np.abs(cost))
    entries = _listed(solution, first, rate_then=then.rates, gain=gain)
    return {"bandwidth": then.problem.bandwidth, "value": then.value, "sources": entries}


def _never(solution: Solution, worth: Array, prices: Array) -> dict[str, Any]:
    """Return the sources of rate 0, with the reason.

    Their importance is 0, or their maximum rate, or their marginal value at rate 0 is below the price.
    """
    sources = solution.problem.sources
    never = solution.rates == 0.0
    idle = never & (sources.column("importance") == 0.0)
    barred = never & ~idle & (solution.problem.upper == 0.0)
    dear = never & ~idle & ~barred & (worth <= prices * (1.0 + ROUNDING))
    first = _largest(worth / np.where(prices > 0.0, prices, 1.0), dear)
    return {
        "no_importance": int(np.count_nonzero(idle)),
        "not_worth_it": int(np.count_nonzero(dear)),
        "max_rate_zero": int(np.count_nonzero(barred)),
        "sources": _listed(solution, first, worth=worth, price=prices),
    }


def _interior(solution: Solution, worth: Array, prices: Array) -> dict[str, Any]:
    """Return how far marginals between the bounds are from prices.

    Complementary slackness: where no bound is active, the marginal value per unit of bandwidth is the price.
    At a kink of the cost it only lies on both sides of it; sources at good phases are left out.
    """
    problem, rates = solution.problem, solution.rates
    inside = (rates > problem.lower) & (rates < problem.upper) & (prices > 0.0)
    inside &= ~at_good_phases(problem, rates)
    relative = np.abs(worth[inside] - prices[inside]) / prices[inside]
    deviation = float(np.max(relative)) if len(relative) else None
    return {"sources": int(np.count_nonzero(inside)), "deviation": finite(deviation)}


def _held_back(solution: Solution, worth: Array, prices: Array) -> list[dict[str, Any]]:
    """Return the sources with the largest multipliers of max_rate."""
    problem = solution.problem
    at = (solution.rates >= problem.upper) & (problem.upper > 0.0)
    first = _largest(worth - prices, at & (worth > prices))
    return _listed(solution, first, worth=worth, price=prices)


def _hosts(solution: Solution) -> dict[str, Any] | None:
    """Return the limited hosts of the highest prices, with what they use."""
    problem = solution.problem
    hosts = problem.hosts
    if not len(hosts) or problem.program is not None:
        return None
    price = np.array([solution.host_prices[host] for host in hosts.names])
    used = hosts.totals(problem.used_by_source(solution.rates))
    many = hosts.totals(np.ones(len(solution.rates)))
    rows = [
        {
            "host": plain_name(hosts.names[k]),
            "limit": float(hosts.limits[k]),
            "used": float(used[k]),
            "price": float(price[k]),
            "sources": int(many[k]),
        }
        for k in _largest(price, price > 0.0)
    ]
    return {"limited": len(hosts), "binding": int(np.count_nonzero(price > 0.0)), "hosts": rows}


def _largest(value: Array, among: BoolArray) -> IntArray:
    """Return the positions of the `LISTED` largest values, ties in order."""
    where = np.flatnonzero(among)
    if len(where) > LISTED:
        least = np.partition(value[where], len(where) - LISTED)[len(where) - LISTED]
        where = where[value[where] >= least]
    return where[np.argsort(-value[where], kind="stable")][:LISTED]


def _listed(solution: Solution, which: IntArray, **columns: Array) -> list[dict[str, Any]]:
    """Return what a table says of some sources, with further columns."""
    sources = solution.problem.sources
    own = {
        "change_rate": sources.change_rate,
        "importance": sources.column("importance"),
        "rate": solution.rates,
        **columns,
    }
    return [
        {
            "source": k if sources.names is None else plain_name(sources.names[k]),
            **{key: finite(column[k]) for key, column in own.items()},
        }
        for k in which.tolist()
    ]
