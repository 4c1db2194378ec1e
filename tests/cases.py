"""Known optima, each with its source, and the bridge from plain arrays to freshopt's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc

import freshopt as fo
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.truth import Instance, instance

Floats = npt.NDArray[np.float64]
OBJECTIVES: dict[str, Callable[..., fo.Objective]] = {
    "binary": BinaryFreshness,
    "harmonic": HarmonicStaleness,
    "count": AccumulatedDelay,
}
REFRESHES = {"poisson": fo.Refresh.POISSON, "periodic": fo.Refresh.PERIODIC}


def objective_of(problem: Instance) -> fo.Objective:
    return OBJECTIVES[problem.curve](refresh=REFRESHES[problem.discipline])


def as_problem(problem: Instance) -> fo.Problem:
    """Return the freshopt problem of an instance; host h is called 'h', sources of no limited host 'free'."""
    sources = fo.Sources(
        change_rate=problem.change_rate,
        importance=problem.importance,
        min_rate=problem.lower,
        max_rate=problem.upper,
        cost=problem.cost,
        signalled=problem.signalled,
        host=[str(h) if h >= 0 else "free" for h in problem.host],
    )
    present = {str(h) for h in problem.host}
    limits = {str(h): float(x) for h, x in enumerate(problem.limits) if str(h) in present}
    return fo.Problem(objective_of(problem), sources, problem.bandwidth, limits)


def as_cost(problem: Instance, value: float) -> float:
    """Return Σ w·J of a value in the declared sense (binary freshness is maximised)."""
    return float(np.sum(problem.importance)) - value if problem.curve == "binary" else value


@dataclass(frozen=True, eq=False)
class Case:
    """An instance whose optimal rates are known by an argument, not by a solver."""

    name: str
    origin: str
    problem: Instance
    rates: Floats
    price: float | None = None  # None where it is not unique or not part of the argument


def _square_root() -> list[Case]:
    """ρ = B√(wΔ)/Σ√(wΔ): minimise Σ wΔ/ρ, by Cauchy-Schwarz; halving all costs changes the price alone."""
    d, w = np.array([0.3, 1.0, 7.0, 40.0]), np.array([2.0, 1.0, 0.5, 3.0])
    root = np.sqrt(w * d)
    rates, price = 5.0 * root / root.sum(), (root.sum() / 5.0) ** 2
    origin = "Upadhyay et al. 2020, Eq 25 and 26"
    return [
        Case("square root", origin, instance("count", "poisson", d, 5.0, importance=w), rates, price),
        Case(
            "square root, periodic",
            origin,
            instance("count", "periodic", d, 5.0, importance=w),
            rates,
            price / 2,
        ),
    ]


def _square_root_bounded() -> Case:
    """Two equal sources, the second capped at 1 of 6; the first takes the rest: Δ/25 at the price."""
    return Case(
        "square root beside a cap",
        "complementary slackness: what the capped source leaves goes to the other",
        instance("count", "poisson", [1.0, 1.0], 6.0, upper=[np.inf, 1.0]),
        np.array([5.0, 1.0]),
        1.0 / 25.0,
    )


def _square_root_costs() -> Case:
    """Δ/ρ² = cost·λ: with cost = Δ all rates are equal, B/Σcost."""
    d = np.array([0.5, 2.0, 8.0])
    return Case(
        "cost equal to change rate",
        "stationarity: Δ/ρ² = cost·λ is the same equation for every source",
        instance("count", "poisson", d, 7.0, cost=d),
        np.full(3, 7.0 / d.sum()),
        (d.sum() / 7.0) ** 2,
    )


def _harmonic_planted() -> Case:
    """At price λ, ρ = (−Δ + √(Δ² + 4wΔ/λ))/2; the bandwidth is what these rates add up to."""
    d, w, price = np.array([0.01, 0.5, 3.0, 90.0]), np.array([1.0, 0.2, 4.0, 1.5]), 0.7
    rates = (-d + np.sqrt(d * d + 4.0 * w * d / price)) / 2.0
    problem = instance("harmonic", "poisson", d, rates.sum(), importance=w)
    return Case("harmonic at a chosen price", "Kolobov et al. 2019, Eq 5", problem, rates, price)


def _harmonic_proportional() -> Case:
    """With μ/Δ the same for all sources ρ = Rμ/Σμ, whatever the ratio is."""
    w = np.array([0.5, 1.0, 6.0])
    return Case(
        "harmonic with constant importance per change",
        "Kolobov et al. 2019, Proposition 9",
        instance("harmonic", "poisson", w / 3.0, 4.0, importance=w),
        4.0 * w / w.sum(),
    )


def _signalled_proportional() -> Case:
    """p = Rμ/(ΔΣμ) where no p exceeds 1: the rates pΔ are proportional to importance."""
    d, w = np.array([9.0, 20.0, 5.0]), np.array([1.0, 2.0, 0.5])
    problem = instance("harmonic", "poisson", d, 3.5, importance=w, signalled=True)
    origin = "Kolobov et al. 2019, Proposition 5"
    return Case("signalled harmonic", origin, problem, 3.5 * w / w.sum(), 1.0)


def _signalled_saturated() -> Case:
    """With more bandwidth than changes, following every signal costs nothing."""
    d = np.array([1.0, 0.25, 3.0])
    return Case(
        "every signal followed",
        "Kolobov et al. 2019, Problem 2: R > ΣΔ cannot be used",
        instance("harmonic", "poisson", d, 5.0, signalled=True),
        d,
        0.0,
    )


def _polls() -> list[Case]:
    """x ∝ a = −log(1−u): counting detected changes, each source weighs its change rate, all gaps equal."""
    a = -np.log1p(-np.array([0.02, 0.3, 0.9]))
    origin = "Granmo & Oommen 2010 (H-TRAA): equal unit values 1 − q^{1/x} give x ∝ −log q"
    return [
        Case(
            f"polls, {discipline}", origin, instance("binary", discipline, a, 1.0, importance=a), a / a.sum()
        )
        for discipline in ("periodic", "poisson")
    ]


def _identical() -> list[Case]:
    """Sources that are alike get the same: the costs are convex."""
    return [
        Case(
            f"alike, {curve} {discipline}",
            "Jensen's inequality",
            instance(curve, discipline, [2.0] * 7, 3.5, importance=0.3),
            np.full(7, 0.5),
        )
        for curve in OBJECTIVES
        for discipline in REFRESHES
    ]


def _alone() -> list[Case]:
    """One source takes all, as far as it may."""
    return [
        Case(
            f"one source, {curve} {discipline}, up to {cap:g}",
            "the costs fall with the rate",
            instance(curve, discipline, [0.8], 2.0, upper=cap),
            np.array([min(2.0, cap)]),
        )
        for curve in OBJECTIVES
        for discipline in REFRESHES
        for cap in (np.inf, 1.25)
    ]


def _starved() -> list[Case]:
    """A source enters at the price w/Δ and not before: λ = Δ/(Δ+B)² of the other is 1/4."""
    origin = "w ≤ λΔ, Cho & Garcia-Molina 2003, section 4: some sources are not worth any refresh"
    return [
        Case(
            f"binary, second source worth {worth:g} of the price",
            origin,
            instance("binary", "poisson", [1.0, 8.0], 1.0, importance=[1.0, 8.0 * worth / 4.0]),
            np.array([1.0, 0.0]),
            0.25,
        )
        for worth in (0.5, 0.999, 1.0)
    ]


def _periodic_planted() -> list[Case]:
    """w·V(I) = λ with equal prices: gaps I are chosen, the importances follow."""
    d, gap = np.array([0.2, 1.0, 6.0]), np.array([3.0, 0.7, 0.5])
    u = d * gap
    price = 0.4
    index = {"binary": gammainc(2.0, u) / d, "harmonic": (u - 1.0 + np.exp(-u)) / d}
    return [
        Case(
            f"{curve} periodic at chosen gaps",
            "stationarity in the gap: w·(s·c(s) − ∫₀ˢc) is the price, Cho & Garcia-Molina 2003, section 4",
            instance(curve, "periodic", d, (1.0 / gap).sum(), importance=price / index[curve]),
            1.0 / gap,
            price,
        )
        for curve in index
    ]


def _host_capped() -> Case:
    """Four like sources, two on a host that may take 1 of 9: ½ each there, 4 each elsewhere."""
    return Case(
        "a host at its limit",
        "complementary slackness and Jensen's inequality on each side of the limit",
        instance("count", "poisson", [1.0] * 4, 9.0, host=[0, 0, -1, -1], limits=[1.0]),
        np.array([0.5, 0.5, 4.0, 4.0]),
        1.0 / 16.0,
    )


def _unimportant() -> Case:
    """A source of no importance gets its min_rate and no more."""
    return Case(
        "a source of no importance",
        "its cost does not depend on its rate",
        instance("harmonic", "poisson", [1.0, 5.0], 3.0, importance=[2.0, 0.0], lower=[0.0, 0.5]),
        np.array([2.5, 0.5]),
    )


CASES = [
    *_square_root(),
    _square_root_bounded(),
    _square_root_costs(),
    _harmonic_planted(),
    _harmonic_proportional(),
    _signalled_proportional(),
    _signalled_saturated(),
    *_polls(),
    *_identical(),
    *_alone(),
    *_starved(),
    *_periodic_planted(),
    _host_capped(),
    _unimportant(),
]
