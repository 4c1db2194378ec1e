"""Magnitudes up to 1e±100 in each input alone and in all together, against exact arithmetic.

Random problems of one to three sources are solved; at the rates and the price that come back, value and gap
are worked out anew in 50 digits, from formulas of its own. Refusals and honest statuses are counted; a result
that is called optimal and is not, a certificate below the true gap, a warning or a foreign exception ends the
run with the problem that shows it.

    python -m benchmarks extremes --cases 3000 --seed 1
"""

import collections
import warnings
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record
from freshopt.modelling.objective import Refresh
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness, PollingKnapsack

mp = mpmath.MPContext()
mp.dps = 50
SHORT = 2.0**-10  # u below which series take the place of differences
PERIODIC = fo.Refresh.PERIODIC
Function = Callable[[Any], Any]


def series(u: Any, coefficient: Callable[[int], Any], first: int) -> Any:
    """Return Σ c_k u^k/k! of twenty terms."""
    return sum(coefficient(k) * u**k / mp.factorial(k) for k in range(first, first + 20))


def stale(u: Any) -> Any:
    """Return 1 − (1−e^{−u})/u."""
    return series(u, lambda k: -(mp.mpf(-1) ** k) / (k + 1), 1) if u < SHORT else 1 + mp.expm1(-u) / u


def gamma2(u: Any) -> Any:
    """Return 1 − (1+u)e^{−u}."""
    return series(u, lambda k: mp.mpf(-1) ** k * (k - 1), 2) if u < SHORT else 1 - (1 + u) * mp.exp(-u)


def harmonic(u: Any) -> Any:
    """Return Ein(u) − 1 + (1−e^{−u})/u."""
    if u < 1:
        return series(u, lambda k: -(mp.mpf(-1) ** k) / k, 1) - stale(u) if u > SHORT else _harmonic_short(u)
    return (mp.e1(u) if u < 200 else 0) + mp.log(u) + mp.euler - stale(u)


def _harmonic_short(u: Any) -> Any:
    return series(u, lambda k: -(mp.mpf(-1) ** k) / (k * (k + 1)), 1)


def age(u: Any) -> Any:
    """Return u/2 − 1 + (1−e^{−u})/u."""
    return series(u, lambda k: mp.mpf(-1) ** k / (k + 1), 2) if u < SHORT else u / 2 - 1 - mp.expm1(-u) / u


def age_index(u: Any) -> Any:
    """Return u²/2 − P(2, u)."""
    return (
        u * u * series(u, lambda k: -(mp.mpf(-1) ** k) / (k + 2), 1) if u < SHORT else u * u / 2 - gamma2(u)
    )


def harmonic_index(u: Any) -> Any:
    """Return u − 1 + e^{−u}."""
    return series(u, lambda k: mp.mpf(-1) ** k, 2) if u < SHORT else u + mp.expm1(-u)


def cells(d: Any) -> list[tuple[fo.Objective, Function, Function]]:
    """Return objectives with J(ρ) and −J'(ρ) of a source of change rate d."""
    return [
        (HarmonicStaleness(Refresh.POISSON), lambda r: mp.log1p(d / r), lambda r: d / (r * (r + d))),
        (HarmonicStaleness(PERIODIC), lambda r: harmonic(d / r), lambda r: harmonic_index(d / r) / d),
        (BinaryFreshness(Refresh.POISSON), lambda r: d / (d + r), lambda r: d / (d + r) ** 2),
        (BinaryFreshness(PERIODIC), lambda r: stale(d / r), lambda r: gamma2(d / r) / d),
        (AccumulatedDelay(Refresh.POISSON), lambda r: d / r, lambda r: d / r**2),
        (AccumulatedDelay(PERIODIC), lambda r: d / r / 2, lambda r: d / r**2 / 2),
        (Age(Refresh.POISSON), lambda r: d / (r * (r + d)), lambda r: d * (2 * r + d) / (r * (r + d)) ** 2),
        (Age(PERIODIC), lambda r: age(d / r) / d, lambda r: age_index(d / r) / d**2),
        (PollingKnapsack(), lambda r: d * stale(d / r), lambda r: gamma2(d / r)),
    ]


def at(function: Function, rate: Any, none: Any) -> Any:
    """Return a function's value, or what it is at rate 0."""
    return function(rate) if rate > 0 else none


def true_gap(problem: fo.Problem, cell: int, rates: Any, price: float) -> tuple[Any, Any]:
    """Return cost − dual bound at a price, and what relative gaps are relative to."""
    sources, budget, nu = problem.sources, mp.mpf(problem.bandwidth), mp.mpf(price)
    cost, dual = mp.mpf(0), -nu * budget
    for k in range(len(sources)):
        d, w, c = (
            mp.mpf(float(x[k])) for x in (sources.change_rate, sources.importance, sources.refresh_cost)
        )
        _, value, slope = cells(d)[cell]
        none = {2: mp.mpf(1), 3: mp.mpf(1), 8: d}.get(cell, mp.inf)
        rate, low = mp.mpf(float(rates[k])), mp.mpf(float(problem.lower[k]))
        high = min(mp.mpf(float(problem.upper[k])), budget / c)
        wish = low if w == 0 else _wish(lambda r, w=w, f=slope: w * f(r), c * nu, low, max(high, low))
        if w > 0:
            cost += w * at(value, rate, none)
            dual += w * at(value, wish, none)
        dual += c * nu * wish
    return cost - dual, abs(cost) + nu * budget


def _wish(worth: Function, paid: Any, low: Any, high: Any) -> Any:
    """Return the rate at which the worth falls to what is paid, by bisection on logarithms."""
    if high == 0 or worth(high) >= paid:
        return high
    a, b = mp.log(max(low, high * mp.mpf(10) ** -700)), mp.log(high)
    if worth(mp.exp(a)) <= paid:
        return low
    for _ in range(190):
        middle = (a + b) / 2
        a, b = (middle, b) if worth(mp.exp(middle)) > paid else (a, middle)
    return mp.exp((a + b) / 2)


def drawn(rng: np.random.Generator, cell: int) -> fo.Problem:
    """Draw a problem with one kind of input, or all, between 1e-100 and 1e100."""
    kind, n = (
        str(rng.choice(["change_rate", "importance", "cost", "bandwidth", "all"])),
        int(rng.integers(1, 4)),
    )
    width = float(rng.choice([20, 60, 90, 100]))

    def column(name: str) -> Any:
        if kind not in (name, "all"):
            return rng.lognormal(0.0, 1.0, n) if name != "cost" else np.ones(n)
        wide = 10.0 ** rng.uniform(-width, width, n)
        return np.clip(np.full(n, wide[0]) if rng.random() < 0.3 else wide, 1e-100, 1e100)

    importance = column("importance") * (rng.random(n) < 0.9)
    sources = fo.Sources(column("change_rate"), importance, refresh_cost=column("cost"))
    return fo.Problem(cells(mp.mpf(1))[cell][0], sources, float(column("bandwidth")[0]))


def counts(cases: int = 3000, seed: int = 1) -> dict[str, int]:
    """Solve and compare; return how often which status came back."""
    warnings.simplefilter("error")
    rng, found = np.random.default_rng(seed), collections.Counter[str]()
    for _ in range(cases):
        cell = int(rng.integers(9))
        try:
            solution = fo.solve(drawn(rng, cell), throw=False)
        except fo.FreshoptError:
            found["refused"] += 1
            continue
        found[solution.status.value] += 1
        proof = solution.certificate
        if proof is None or not np.isfinite(proof.relative_gap):
            continue
        gap, scale = true_gap(solution.problem, cell, solution.rates, solution.price)
        # Costs that vanish beside what is at stake are proved beside that.
        scale = mp.mpf(float(np.sum(solution.problem.sources.importance))) if proof.vanishing else scale
        true = gap / scale if scale > 0 else gap
        if true > proof.relative_gap * (1 + 1e-4) + 1e-12 or (
            solution.status is fo.Status.OPTIMAL and not true <= 1e-6
        ):
            print(solution, solution.problem.sources.to_frame(), float(true))
            raise SystemExit(1)
    print(f"{cases} problems: {dict(found)}, none called optimal that is not")
    return dict(found)


def claims(record: Record) -> Claims:
    """Yield that some are solved."""
    yield f"{record['counts']}", record["counts"]["optimal"] > 0


BENCH = Measurement({"counts": counts}, quick={"cases": 30}, facts=("cases", "seed"), claims=claims)
