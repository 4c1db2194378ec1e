"""Attempts at costs with kinks, against sums over the number of attempts."""

import functools
import itertools

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.cells.array_edition import COST, MARGINAL, OfPrice, OfRate
from freshopt.compiled.cells.attempt_kinks import ATTEMPT_KINKS, attempt_kinks
from freshopt.problems import PiecewiseLinearCost, SynchronizationCost
from tests.compiled.test_proofs import term
from tests.ground_truth.routes import require_same_compiled
from tests.ground_truth.source_gaps import CELLS, Number
from tests.ground_truth.strata import matrix

DIGITS, TRIALS = 50, 60
PERIODIC = CELLS["kinks"]
SHARES = [1.0, 1.0 - 1e-6, 0.99, 0.5, 0.2]


def drawn(rng: np.random.Generator) -> list[float]:
    """Return a level, up to three kinks with their gains, and a chance of success."""
    many = int(rng.integers(1, 4))
    rates, gains = (
        np.sort(10.0 ** rng.uniform(-1.5, 1.5, many)),
        -np.sort(-(10.0 ** rng.uniform(-4.0, 4.0, many))),
    )
    level = float(rng.choice([0.0, 10.0 ** rng.uniform(-4.0, 4.0)]))
    return [level, *np.stack([rates, gains], axis=1).ravel().tolist(), float(rng.choice(SHARES))]


def attempts(rate: float, own: list[float]) -> int:
    """Return up to how many attempts of a gap count."""
    return int(rate / own[1]) + int(100.0 / own[-1])


def cost(rate: float, own: list[float]) -> Number:
    """The mixture of periodic costs slowed k times, Σ s²k·q^(k−1)·J₁(ρ/k); what is left is the level's."""
    *kinks, success = map(mpmath.mpf, own)
    weights = [success**2 * k * (1 - success) ** (k - 1) for k in range(1, attempts(rate, own) + 1)]
    parts = (
        w * (PERIODIC.cost(mpmath.mpf(rate) / (k + 1), *kinks) - kinks[0]) for k, w in enumerate(weights)
    )
    return kinks[0] + sum(parts) + (1 - sum(weights)) * PERIODIC.cost(mpmath.mpf(0), 0, *kinks[1:])


def marginal(rate: Number, own: list[float]) -> Number:
    *kinks, success = map(mpmath.mpf, own)
    total = mpmath.mpf(0)
    for k in range(1, attempts(float(rate), own) + 1):
        total += success**2 * (1 - success) ** (k - 1) * PERIODIC.marginal(rate / k, *kinks)
    return total


def sources(seed: int, many: int = TRIALS) -> list[tuple[float, list[float]]]:
    """Return rates off all multiples of kinks, and parameters."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(many):
        own = drawn(rng)
        found.append((float(own[-3] * 10.0 ** rng.uniform(-2.5, -0.01 if own[-1] == 1.0 else 0.6)), own))
    return found


def test_costs_and_marginal_values_are_sums_over_the_number_of_attempts() -> None:
    with mpmath.workdps(DIGITS):
        for rate, own in sources(1):
            given = (np.float64(rate), 1.0, *map(np.float64, own))
            found, _, value, rounding = ATTEMPT_KINKS.values(*given)
            assert float(found / cost(rate, own) - 1) == pytest.approx(0.0, abs=4e-15), own
            exact = marginal(mpmath.mpf(rate), own)
            assert abs(value - exact) <= 0.5 * rounding * exact, own


def test_responses_are_the_least_rates_at_which_no_more_pays() -> None:
    near = mpmath.mpf(10) ** -13
    with mpmath.workdps(DIGITS):
        for price_at, own in sources(2):
            price = 0.999 * float(marginal(mpmath.mpf(price_at), own))
            best = attempt_kinks(np.float64(1.0 / price), *map(np.float64, own))
            assert marginal(mpmath.mpf(best) * (1 + near), own) <= price * (1 + near), own
            assert best == 0.0 or marginal(mpmath.mpf(best) * (1 - near), own) > price, own


def test_nothing_is_bought_where_no_gain_pays_and_all_that_counts_where_nothing_is_paid() -> None:
    for _, own in sources(3):
        given = [*map(np.float64, own)]
        with np.errstate(all="ignore"):
            assert attempt_kinks(np.float64(0.0), *given) == 0.0
            most = float(attempt_kinks(np.float64(np.inf), *given))
        assert own[-3] <= most < np.inf
        assert ATTEMPT_KINKS.values(np.float64(most), 1.0, *given)[2] == 0.0


def closed(rate: Number, own: list[float]) -> tuple[Number, Number]:
    """Return cost and marginal value by the number of attempts that are too early for each kink."""
    level, *kinks, success = map(mpmath.mpf, own)
    total, value, q = level, mpmath.mpf(0), 1 - success
    for j in range(0, len(kinks), 2):
        place, gain = kinks[j], kinks[j + 1] - (kinks[j + 3] if j + 3 < len(kinks) else 0)
        m = mpmath.floor(rate / place)
        total += gain * q**m * (place - success * (rate - m * place))
        value += success * gain * q**m
    return total, value


def test_terms_bound_the_exact_share_of_a_gap_and_vanish_at_best_responses() -> None:
    rng, ratios = np.random.default_rng(4), []
    with mpmath.workdps(DIGITS):
        for price_at, own in sources(5):
            # In ties the price is a marginal value, and any rate of a stretch is a best response.
            price = float(closed(mpmath.mpf(price_at), own)[1]) * float(rng.choice([1.0, 0.98]))
            best = float(attempt_kinks(np.float64(1.0 / price), *map(np.float64, own)))
            least = closed(mpmath.mpf(best), own)[0] + mpmath.mpf(price) * best
            for rate in (best, price_at, best * (1.0 + 2.0**-52), 0.5 * best, 2.0 * best, 0.0):
                found = term(ATTEMPT_KINKS, rate, 1.0, price, (0.0, np.inf), own)[2]
                whole = closed(mpmath.mpf(rate), own)[0] + mpmath.mpf(price) * rate
                truth = whole - least
                assert found >= float(truth) - 1e-20 * float(whole), (rate, own)
                if rate == best:
                    assert found <= 5e-14 * float(whole)
                if truth > 1e-9 * whole:
                    ratios.append(float(found / truth))
    assert len(ratios) > TRIALS
    assert np.median(ratios) < 4.0


# Kinks that share multiples, next to each other, and alone; each with its chance of success.
HOSTILE = [
    [0.0, 1.0, 1.0, 1.0],
    [0.0, 1.0, 1.0, 1.0 + 2.0**-51, 0.5, 1.0],
    [0.3, 0.3, 1.0, 1.0 - 1e-6],
    [0.0, 0.1, 5.0, 0.30000000000000004, 2.0, 0.5],
    [0.0, 0.7, 3.0, 1.4, 2.0, 2.1, 1e-9, 0.9],
]


def test_the_closed_form_is_the_sum_over_the_number_of_attempts() -> None:
    with mpmath.workdps(DIGITS):
        for rate, own in sources(8, 20):
            found = closed(mpmath.mpf(rate), own)
            for one, other in zip(found, (cost(rate, own), marginal(mpmath.mpf(rate), own)), strict=True):
                assert abs(one - other) <= mpmath.mpf(10) ** -25 * other


@pytest.mark.parametrize("own", HOSTILE, ids=str)
def test_beside_multiples_terms_are_no_less_than_the_exact_share(own: list[float]) -> None:
    multiples = [float(m * place) for m in (1, 2, 3, 5) for place in own[1:-1:2]]
    exact = functools.cache(lambda rate: closed(mpmath.mpf(rate), own)[0])
    with mpmath.workdps(DIGITS):
        for at, ulps in itertools.product(multiples, (-5, -2, -1, 0, 1, 4)):
            rate = at * (1.0 + ulps * 2.0**-52)
            values = [closed(at * (1 + side * mpmath.mpf(10) ** -14), own)[1] for side in (-1, 1)]
            prices = [float(value) * share for value in values if value > 0 for share in (1.0, 0.7, 1.3)]
            for price, lower in itertools.product([1e-20, *prices], (0.0, rate)):
                found = [
                    float(attempt_kinks(np.float64(1.0 / (price * off)), *map(np.float64, own)))
                    for off in (0.99, 1.0, 1.01)
                ]
                each = [x for x in (rate, 0.0, *found, *multiples) if x >= lower]
                totals = [exact(x) + mpmath.mpf(price) * x for x in each]
                term_found = term(ATTEMPT_KINKS, rate, 1.0, price, (lower, np.inf), own)[2]
                assert term_found >= float(totals[0] - min(totals)) - 2e-15 * float(totals[0]), (rate, price)


def test_costs_of_very_unequal_importance_are_no_less_than_they_are() -> None:
    importance = np.ones(40)
    importance[0] = 1e60
    costs = SynchronizationCost(PiecewiseLinearCost([0.0, 1.0], [0.0, -1.0]))
    sources = fo.Sources(np.ones(40), importance, success=0.5)
    solution = fo.solve(fo.Problem(costs, sources, 250.0))
    with mpmath.workdps(DIGITS):
        each = [closed(mpmath.mpf(rate), [0.0, 1.0, 1.0, 0.5])[0] for rate in solution.rates.tolist()]
        whole = float(sum(w * one for w, one in zip(importance.tolist(), each, strict=True)))
    assert solution.value == pytest.approx(whole, rel=1e-12)


def test_array_editions_are_the_scalar_formulas() -> None:
    rng, n = np.random.default_rng(6), 300
    rates = np.sort(10.0 ** rng.uniform(-3.0, 3.0, (2, n)), axis=0)
    gains = -np.sort(-(10.0 ** rng.uniform(-4.0, 4.0, (2, n))), axis=0)
    rates[0, ::7] = 0.0
    own = [np.ones(n), rates[0], gains[0], rates[1], gains[1], rng.choice([*SHARES, 1e-3, 1e-9], n)]
    prices = np.where(np.arange(n) % 11 == 0, 1e-300, 10.0 ** rng.uniform(-6.0, 5.0, n))
    with np.errstate(all="ignore"):
        alone = [attempt_kinks(1.0 / price, *each) for price, *each in zip(prices, *own, strict=True)]
        np.testing.assert_array_equal(OfPrice(attempt_kinks)(prices, *own), alone)
        at = np.where(np.arange(n) % 13 == 0, 0.0, 10.0 ** rng.uniform(-3.0, 3.0, n))
        each = np.array([ATTEMPT_KINKS.values(rate, 1.0, *p) for rate, *p in zip(at, *own, strict=True)])
        for part in (COST, MARGINAL):
            # Exponentials of up to −650 are those of loops, and NumPy's.
            found = OfRate(ATTEMPT_KINKS.values, part)(at, *own)
            np.testing.assert_allclose(found, each[:, part], rtol=3e-13)


@matrix(hosts=[False, True], shared=[True, False], every=2)
def test_plans_of_many_pieces_are_proved_in_loops_and_without(
    hosts: bool, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, n = np.random.default_rng(7), 400
    lines = (1 if shared else n, 3)
    slopes, ends = (
        np.cumsum(rng.uniform(0.0, 2.0, lines), axis=1),
        np.cumsum(rng.uniform(0.2, 2.0, lines), axis=1),
    )
    slopes[:, 0] = 0.0
    rises = np.diff(slopes, axis=1) * ends[:, :-1]
    intercepts = -np.concatenate([np.zeros((len(slopes), 1)), np.cumsum(rises, axis=1)], axis=1)
    costs = PiecewiseLinearCost(
        *((each[0] for each in (slopes, intercepts)) if shared else (slopes, intercepts))
    )
    host = rng.integers(0, 30, n) if hosts else None
    sources = fo.Sources(np.ones(n), rng.lognormal(size=n), host=host, success=rng.choice([0.3, 0.7, 1.0], n))
    limits = dict.fromkeys(range(0, 30, 2), 8.0) if hosts else None
    problem = fo.Problem(SynchronizationCost(costs), sources, 0.8 * n, limits)
    require_same_compiled(problem, monkeypatch, one_price=False)
