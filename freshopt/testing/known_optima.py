"""`known_optima`: problems with analytically known optima.

Two kinds: the textbook cases (the square-root rule, rates in proportion to importance, x ∝ a, equal rates of
identical sources, rate 0 where the marginal value is below the price), and planted ones,
`freshopt.testing.planted_optima`, for every cell with closed forms, inside and at bounds, with costs and host
prices. No solver had a part in either.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshopt.errors import check_seed
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness, PollingKnapsack
from freshopt.testing.planted_optima import CELLS, KnownOptimum, plant

DISCIPLINES = (Refresh.POISSON, Refresh.PERIODIC)


def known_optima(seed: int = 0) -> list[KnownOptimum]:
    """Return problems with their optima.

    Parameters
    ----------
    seed : int
        Random seed of the planted problems.

    Returns
    -------
    list of KnownOptimum
        Each with ``rates`` (shape (n,), refreshes per time unit), ``value`` in the declared sense, ``price``
        and ``host_prices`` where they are unique, and ``origin``, the equation.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.testing import assert_optimal
    >>> for known in known_optima():
    ...     assert_optimal(known.problem, known.rates, tolerance=1e-12)
    >>> known_optima()[0].origin
    'Upadhyay et al., AAAI 2020, Eq 25 and 26: ρ = B√(wΔ)/Σ√(wΔ), value (Σ√(wΔ))²/B'
    """
    textbook = [
        *_square_root(),
        *_bounded(),
        *_proportional(),
        *_polls(),
        *_alike(),
        *_alone(),
        *_starved(),
        _unimportant(),
    ]
    seed = check_seed(seed)
    planted = [plant(cell, seed, constrained=which) for cell in CELLS for which in (False, True)]
    return textbook + planted


def _known(
    name: str,
    origin: str,
    problem: Problem,
    rates: Array,
    value: float,
    price: float | None = None,
    host_prices: dict[Any, float] | None = None,
) -> KnownOptimum:
    return KnownOptimum(
        name, origin, problem, np.asarray(rates, dtype=np.float64), value, price, host_prices or {}
    )


def _square_root() -> list[KnownOptimum]:
    """Minimise Σ wΔ/ρ by Cauchy-Schwarz."""
    d, w, bandwidth = np.array([0.3, 1.0, 7.0, 40.0]), np.array([2.0, 1.0, 0.5, 3.0]), 5.0
    root = np.sqrt(w * d)
    value = float(root.sum()) ** 2 / bandwidth
    origin = "Upadhyay et al., AAAI 2020, Eq 25 and 26: ρ = B√(wΔ)/Σ√(wΔ), value (Σ√(wΔ))²/B"
    return [
        _known(
            f"square root, {refresh.value}",
            origin,
            Problem(AccumulatedDelay(refresh), Sources(d, w), bandwidth),
            bandwidth * root / root.sum(),
            value * factor,
            value * factor / bandwidth,
        )
        for refresh, factor in zip(DISCIPLINES, (1.0, 0.5), strict=True)
    ]


def _bounded() -> list[KnownOptimum]:
    """Bound accumulated delay by its stationarity, Δ/ρ² = cost·λ."""
    d = np.array([0.5, 2.0, 8.0])
    delay = AccumulatedDelay(Refresh.POISSON)
    return [
        _known(
            "square root beside a cap",
            "complementary slackness: of 6 the capped source takes 1, the other 5, at λ = Δ/25",
            Problem(delay, Sources([1.0, 1.0], max_rate=[np.inf, 1.0]), 6.0),
            np.array([5.0, 1.0]),
            1.0 / 5.0 + 1.0,
            1.0 / 25.0,
        ),
        _known(
            "cost equal to change rate",
            "stationarity: Δ/ρ² = cost·λ is the same equation for every source, so ρ = B/ΣΔ",
            Problem(delay, Sources(d, refresh_cost=d), 7.0),
            np.full(3, 7.0 / d.sum()),
            float(d.sum()) ** 2 / 7.0,
            (float(d.sum()) / 7.0) ** 2,
        ),
        _known(
            "a host at its limit",
            "complementary slackness and Jensen: ½ each on the host limited to 1, 4 each elsewhere",
            Problem(delay, Sources([1.0] * 4, host=["a", "a", "b", "b"]), 9.0, {"a": 1.0}),
            np.array([0.5, 0.5, 4.0, 4.0]),
            2.0 / 0.5 + 2.0 / 4.0,
            1.0 / 16.0,
            {"a": 4.0 - 1.0 / 16.0},
        ),
    ]


def _proportional() -> list[KnownOptimum]:
    """Problems whose optimal rates are proportional to importance."""
    w, bandwidth = np.array([0.5, 1.0, 6.0]), 4.0
    d = np.array([9.0, 20.0, 5.0])
    s = np.array([1.0, 2.0, 0.5])
    follow = np.array([1.0, 0.25, 3.0])
    share = 3.5 * s / s.sum()
    return [
        _known(
            "harmonic with constant importance per change",
            "Kolobov et al., NeurIPS 2019, Proposition 9: with Δ = w/3 all ρ/Δ are 3B/Σw",
            Problem(HarmonicStaleness(Refresh.POISSON), Sources(w / 3.0, w), bandwidth),
            bandwidth * w / w.sum(),
            float(w.sum()) * math.log1p(float(w.sum()) / (3.0 * bandwidth)),
        ),
        _known(
            "signalled harmonic",
            "Kolobov et al., NeurIPS 2019, Proposition 5: pΔ = Bw/Σw while no p exceeds 1",
            Problem(HarmonicStaleness(Refresh.POISSON), Sources(d, s, signalled=True), 3.5),
            share,
            float(np.sum(s * np.log(d / share))),
            float(s.sum()) / 3.5,
        ),
        _known(
            "every signal followed",
            "Kolobov et al., NeurIPS 2019, Problem 2: B > ΣΔ cannot be used, and nothing is ever stale",
            Problem(HarmonicStaleness(Refresh.POISSON), Sources(follow, signalled=True), 5.0),
            follow,
            0.0,
            0.0,
        ),
    ]


def _polls() -> list[KnownOptimum]:
    """Poll sources at equal marginal values, in proportion to −log(1 − u)."""
    a = -np.log1p(-np.array([0.02, 0.3, 0.9]))
    rates, whole = a / a.sum(), float(a.sum())
    polls = "Granmo & Oommen 2010: equal 1 − q^{1/x} give x ∝ −log q"
    found = -math.expm1(-whole)
    return [
        _known("polls", polls, Problem(PollingKnapsack("polls"), Sources(a), 1.0), rates, found),
        _known(
            "freshness weighted by change rate, periodic",
            f"{polls}; the expected number of news is Σ Δ·freshness",
            Problem(BinaryFreshness(Refresh.PERIODIC), Sources(a, a), 1.0),
            rates,
            found,
        ),
        _known(
            "freshness weighted by change rate, poisson",
            f"{polls}; Poisson refreshes: w·Δ/(Δ+ρ)² with w = Δ depends on ρ/Δ alone",
            Problem(BinaryFreshness(Refresh.POISSON), Sources(a, a), 1.0),
            rates,
            whole / (1.0 + whole),
            1.0 / (1.0 + 1.0 / whole) ** 2,
        ),
    ]


def _stale(objective: Objective, d: float, r: float) -> float:
    """Return one source's value at importance 1, in closed form."""
    for cell in CELLS:
        if (
            type(cell.objective) is type(objective)
            and not cell.signalled
            and cell.objective.refresh is objective.refresh
        ):
            return float(cell.value(np.array([d]), np.array([r]))[0])
    raise LookupError(repr(objective))


def _named() -> list[Objective]:
    kinds = (BinaryFreshness, HarmonicStaleness, AccumulatedDelay)
    return [kind(refresh) for kind in kinds for refresh in DISCIPLINES]


def _alike() -> list[KnownOptimum]:
    return [
        _known(
            f"alike, {type(objective).__name__}, {objective.refresh.value}",
            "Jensen's inequality: identical sources have equal rates",
            Problem(objective, Sources([2.0] * 7, 0.3), 3.5),
            np.full(7, 0.5),
            7 * 0.3 * _stale(objective, 2.0, 0.5),
        )
        for objective in _named()
    ]


def _alone() -> list[KnownOptimum]:
    return [
        _known(
            f"one source, {type(objective).__name__}, {objective.refresh.value}, up to {cap:g}",
            "the costs fall with the rate: one source takes all, as far as it may",
            Problem(objective, Sources([0.8], max_rate=cap), 2.0),
            np.array([min(2.0, cap)]),
            _stale(objective, 0.8, min(2.0, cap)),
        )
        for objective in _named()
        for cap in (math.inf, 1.25)
    ]


def _starved() -> list[KnownOptimum]:
    """Starve a source whose marginal value is below the price.

    At rate 0 its marginal value is w/Δ; the other source takes all, at λ = Δ/(Δ+B)² = 1/4.
    """
    return [
        _known(
            f"binary, second source's marginal value {share:g} of the price",
            "Cho & Garcia-Molina 2003, section 4: where w ≤ λΔ the optimal rate is 0; λ = Δ/(Δ+B)²",
            Problem(BinaryFreshness(Refresh.POISSON), Sources([1.0, 8.0], [1.0, 8.0 * share / 4.0]), 1.0),
            np.array([1.0, 0.0]),
            0.5,
            0.25,
        )
        for share in (0.5, 0.999, 1.0)
    ]


def _unimportant() -> KnownOptimum:
    sources = Sources([1.0, 5.0], [2.0, 0.0], min_rate=[0.0, 0.5])
    return _known(
        "a source of no importance",
        "its cost does not depend on its rate: it gets min_rate and no more",
        Problem(HarmonicStaleness(Refresh.POISSON), sources, 3.0),
        np.array([2.5, 0.5]),
        2.0 * math.log1p(1.0 / 2.5),
        2.0 / (2.5 * 3.5),
    )
