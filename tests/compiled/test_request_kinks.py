"""Refreshes on request at costs with kinks, against the lines that are declared, in 120 digits."""

import itertools
from typing import TypeAlias

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.cells.kink_proofs import ABOVE, BELOW, REQUEST_KINKS
from freshopt.compiled.columns import Columns
from freshopt.compiled.demand_functions import last_kink
from freshopt.compiled.proof_columns import ProofColumns
from freshopt.numerics.arrays import Array
from freshopt.problems import PiecewiseLinearCost, SynchronizationCost
from freshopt.separable.kernel import Kernel
from freshopt.separable.kernel_columns import kernel_columns
from tests.compiled.test_proofs import term
from tests.ground_truth.named import ON_REQUEST
from tests.ground_truth.refusals import present
from tests.ground_truth.routes import compile_all, require_same_compiled
from tests.ground_truth.source_gaps import Number
from tests.ground_truth.strata import matrix

DIGITS, TRIALS = 120, 60
# Slopes and intercepts of each line, and a request rate.
Lines: TypeAlias = tuple[list[float], list[float], float]


# Kinks within a few ulp of ζ, where no rate is left above those beside them; one for all pieces.
HOSTILE: list[Lines] = [
    ([0.0, 1.0], [0.0, -(ulps * 2.0**-53)], 1.0) for ulps in (1.0, 3.0, 4.0, 6.0, 7.0)
] + [([0.0, 1.0, 3.0], [0.0, -2.0, -6.0], 0.5)]


def drawn(rng: np.random.Generator) -> Lines:
    """Return up to five lines, some of them never the highest or next to another, over 24 decades."""
    many = int(rng.integers(1, 6))
    slopes, starts = 10.0 ** rng.uniform(-6.0, 6.0, many), -(10.0 ** rng.uniform(-6.0, 6.0, many))
    match rng.integers(4):
        case 0:
            slopes[1:] = slopes[0] * (1.0 + rng.uniform(0.0, 1e-9, many - 1))
        case 1:
            slopes, starts = np.sort(slopes), -np.sort(-starts)
        case 2:
            slopes[1:], starts[1:] = slopes[0] * np.arange(2, many + 1), starts[0] * np.arange(2, many + 1)
    slopes[0] *= float(rng.choice([0.0, 1.0]))
    starts[0] = 0.0
    return slopes.tolist(), starts.tolist(), float(10.0 ** rng.uniform(-12.0, 12.0))


def cost(rate: Number, lines: Lines) -> Number:
    """Return max(α·(1 − ρ/ζ) + β·ρ), as it is declared."""
    rate, asked = mpmath.mpf(rate), mpmath.mpf(lines[2])
    each = (
        mpmath.mpf(a) * (1 - rate / asked) + mpmath.mpf(b) * rate for a, b in zip(*lines[:2], strict=True)
    )
    return max(0, *each)


def crossings(lines: Lines) -> list[Number]:
    """Return all rates at which two lines cross, and the ends: some of them are best responses."""
    *_, asked = lines
    slopes, starts = ([*map(mpmath.mpf, each)] for each in lines[:2])
    found = [mpmath.mpf(0), mpmath.mpf(asked)]
    for i, j in itertools.combinations(range(len(slopes)), 2):
        rise = slopes[i] - slopes[j]
        fall = starts[j] - starts[i] + rise / asked
        if fall != 0 and 0 < rise / fall < asked:
            found.append(rise / fall)
    return found


def kinks(lines: Lines) -> list[Number]:
    """Return the crossings at which the marginal value falls."""
    return [at for at in crossings(lines) if 0 < at < lines[2] and falls(at, lines)]


def falls(at: Number, lines: Lines) -> bool:
    step = min(at, lines[2] - at) * mpmath.mpf(10) ** -20
    bend = cost(at - step, lines) + cost(at + step, lines) - 2 * cost(at, lines)
    return bool(bend > mpmath.mpf(10) ** -25 * cost(at - step, lines) * step / at)


def slope(rate: Number, lines: Lines) -> Number:
    """Return the marginal value just above a rate."""
    step = (lines[2] - rate) * mpmath.mpf(10) ** -25
    return (cost(rate, lines) - cost(rate + step, lines)) / step if step > 0 else mpmath.mpf(0)


def kernel_of(lines: Lines, n: int = 1) -> Kernel:
    slopes, starts, asked = lines
    objective = SynchronizationCost(PiecewiseLinearCost(slopes, starts), ON_REQUEST)
    return objective.kernel(fo.Sources(np.ones(n), np.ones(n), request_rate=np.full(n, asked)))


def own_of(lines: Lines) -> list[float]:
    """Return level, kinks and gains of a source."""
    return [float(parameter[0]) for parameter in kernel_of(lines).parameters]


def everything(seed: int, many: int = TRIALS) -> list[Lines]:
    rng = np.random.default_rng(seed)
    return [*HOSTILE, *(drawn(rng) for _ in range(many))]


def test_kinks_are_those_of_the_lines_rounded_up() -> None:
    count = 0
    with mpmath.workdps(DIGITS):
        for lines in everything(1):
            found = own_of(lines)
            places, gains = found[1::2], found[2::2]
            assert found[0] == 0.0
            assert places == sorted(places)
            assert gains == sorted(gains, reverse=True)
            for at in kinks(lines):
                count += 1
                above = min(place for place in places if place >= at)
                assert above <= at / BELOW, (lines, at)
            for place in places:
                nearest = min(abs(at / place - 1) for at in crossings(lines)) if place > 0.0 else 0
                assert nearest <= 1 - BELOW, (lines, place)
    assert count > TRIALS
    assert 1.0 < ABOVE < 1.0 / BELOW


def test_costs_and_marginal_values_are_those_of_the_lines() -> None:
    rng = np.random.default_rng(2)
    with mpmath.workdps(DIGITS):
        for lines in everything(3):
            own, asked = [*map(np.float64, own_of(lines))], lines[2]
            ends = [0.0, *(float(at) for at in kinks(lines)), asked]
            for low, high in itertools.pairwise(sorted(ends)):
                rate = low + float(rng.uniform(0.01, 0.99)) * (high - low)
                if not low * (1.0 + 1e-14) < rate < high * (1.0 - 1e-14):
                    continue
                found, _, value, rounding = REQUEST_KINKS.values(np.float64(rate), 1.0, *own)
                truth = cost(rate, lines)
                # Next to ζ a cost has the rounding of kinks.
                assert truth * (1 - 4e-15) <= found <= truth * (1 + 4e-15) + (1.0 - BELOW) * max(lines[0])
                exact = slope(mpmath.mpf(rate), lines)
                assert abs(value - exact) <= 0.5 * rounding * exact, (lines, rate)
            assert REQUEST_KINKS.values(np.float64(asked), 1.0, *own)[:3] == (0.0, 0.0, 0.0)
            most = REQUEST_KINKS.values(np.float64(0.0), 1.0, *own)[0]
            assert most == pytest.approx(max(lines[0]), rel=4e-15, abs=0.0)


def prices_of(own: list[float]) -> list[float]:
    """Return prices next to each gain and far from all, and one of next to nothing."""
    gains = [gain for gain in own[2::2] if gain > 0.0]
    return [1e-20 * max(gains, default=1.0), *(gain * off for gain in gains for off in (1.0, 0.7, 1.3))]


def test_best_responses_are_those_of_all_crossings() -> None:
    with mpmath.workdps(DIGITS):
        for lines in everything(4):
            own = own_of(lines)
            for price in prices_of(own):
                best = float(last_kink(np.float64(1.0 / price), *map(np.float64, own)))
                least, truth = min((cost(at, lines) + mpmath.mpf(price) * at, at) for at in crossings(lines))
                found = cost(best, lines) + mpmath.mpf(price) * best
                assert 0.0 <= best <= lines[2]
                assert least <= found * (1 + mpmath.mpf(10) ** -40)
                # Up to a price that rounding takes for a gain, and a kink that is rounded.
                assert found <= least * (1 + 16 * mpmath.mpf(2) ** -53), (lines, price, best, truth)


def test_terms_bound_the_exact_share_of_a_gap_and_all_but_vanish_at_best_responses() -> None:
    rng, ratios = np.random.default_rng(5), []
    with mpmath.workdps(DIGITS):
        for lines in everything(6, TRIALS // 2):
            own, every = own_of(lines), crossings(lines)
            places = [place for place in own[1::2] if place > 0.0]
            for price in prices_of(own):
                best = float(last_kink(np.float64(1.0 / price), *map(np.float64, own)))
                beside = [at * (1.0 + ulps * 2.0**-52) for at in places for ulps in (-5, -1, 0, 1, 4)]
                some = [float(rng.uniform(0.0, lines[2])), 0.0, best, *beside]
                for rate, lower in itertools.product(some, (0.0, 0.5 * best)):
                    if not lower <= rate <= lines[2]:
                        continue
                    found = term(REQUEST_KINKS, rate, 1.0, price, (lower, lines[2]), own)[2]
                    within = [rate, lower, *(x for x in every if x >= lower)]
                    totals = [cost(x, lines) + mpmath.mpf(price) * x for x in within]
                    truth = totals[0] - min(totals)
                    assert found >= truth * (1 - mpmath.mpf(2) ** -49), (lines, price, rate, lower)
                    if rate == best and lower == 0.0:
                        assert found <= 1e-14 * float(totals[0]), (lines, price)
                    if truth > 1e-9 * (totals[0] + max(lines[0])):
                        ratios.append(float(found / truth))
    assert len(ratios) > TRIALS
    assert np.median(ratios) < 1.0 + 1e-12
    assert max(ratios) < 1.0 + 1e-5


def hostile(n: int) -> tuple[list[Lines], fo.Problem]:
    """Return sources of three lines each, of 24 decades, some at once, and their problem."""
    rng = np.random.default_rng(7)
    slopes, falls = (np.sort(10.0 ** rng.uniform(-6.0, 6.0, (n, 3)), axis=1) for _ in range(2))
    slopes[::3, 0], falls[:, 0] = 0.0, 0.0
    slopes[::5], falls[::5] = [0.0, 1.0, 3.0], [0.0, 1.0, 9.0]
    asked, importance = 10.0 ** rng.uniform(-6.0, 6.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    asked[::5], importance[::7] = 2.0, 0.0
    lines = [
        (*each, rate) for *each, rate in zip(slopes.tolist(), (-falls).tolist(), asked.tolist(), strict=True)
    ]
    objective = SynchronizationCost(PiecewiseLinearCost(slopes, -falls), ON_REQUEST)
    sources = fo.Sources(np.ones(n), importance, request_rate=asked, refresh_cost=rng.uniform(0.5, 2.0, n))
    return [(a, b, c) for a, b, c in lines], fo.Problem(objective, sources, float(np.sum(asked)))


def test_compiled_loops_answer_and_prove_as_the_lines_say(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, problem = hostile(160)
    compile_all(monkeypatch)
    kernel, sources = present(problem.numerics), problem.sources
    bounds = sources.refresh_cost, problem.lower, problem.upper
    demand = present(kernel_columns(Columns, kernel, *bounds))
    proof = present(kernel_columns(ProofColumns, kernel, *bounds))
    w, fetch = (column.tolist() for column in (sources.importance, sources.refresh_cost))
    with mpmath.workdps(DIGITS):
        for price in (1e-9, 1e-3, 1.0, 5.0, 1e4):
            rates = np.empty(len(lines))
            used = demand.fill(price, rates)
            assert used == pytest.approx(float(np.sum(sources.refresh_cost * rates)), rel=1e-13)

            def total(k: int, rate: Number, price: float = price) -> Number:
                return (
                    mpmath.mpf(w[k]) * cost(rate, lines[k]) + mpmath.mpf(price) * mpmath.mpf(fetch[k]) * rate
                )

            least = [min(total(k, at) for at in crossings(each)) for k, each in enumerate(lines)]
            nudged = [
                rates * (1.0 - 2.0**-52),
                np.minimum(rates * (1.0 + 2.0**-51), problem.upper),
                0.9 * rates,
            ]
            for tried in (rates, *nudged):
                each = [total(k, mpmath.mpf(rate)) for k, rate in enumerate(tried.tolist())]
                truth = sum(each) - sum(least)
                found = proof.prove(tried, price)
                costs = [cost(rate, lines[k]) for k, rate in enumerate(tried.tolist())]
                costs = sum(mpmath.mpf(own) * one for own, one in zip(w, costs, strict=True))
                whole = sum(own * max(one[0]) for own, one in zip(w, lines, strict=True))
                assert costs * (1 - 1e-14) <= found.cost <= costs * (1 + 1e-14) + 2.0 * (1.0 - BELOW) * whole
                assert found.gap >= float(truth) * (1.0 - 1e-12), price
                assert tried is not rates or found.gap <= 1e-14 * float(sum(each))


def test_array_editions_are_the_scalar_formulas() -> None:
    lines, problem = hostile(300)
    kernel = problem.numerics
    assert isinstance(kernel, Kernel)
    rng = np.random.default_rng(8)
    rates = problem.upper * rng.uniform(0.0, 1.0, len(lines))
    prices = 10.0 ** rng.uniform(-6.0, 6.0, len(lines))
    own = list(zip(*(np.asarray(each) for each in kernel.parameters), strict=True))
    alone = [REQUEST_KINKS.values(rate, 1.0, *each) for rate, each in zip(rates, own, strict=True)]
    np.testing.assert_array_equal(kernel.unit_cost(rates, *kernel.parameters), [each[0] for each in alone])
    np.testing.assert_array_equal(
        kernel.unit_marginal(rates, *kernel.parameters), [each[2] for each in alone]
    )
    best: Array = kernel.unit_inverse(prices, *kernel.parameters)
    responses = [last_kink(1.0 / price, *each) for price, each in zip(prices, own, strict=True)]
    np.testing.assert_array_equal(best, responses)


@matrix(hosts=[False, True], shared=[True, False], every=2)
def test_plans_of_many_pieces_are_proved_in_loops_and_without(
    hosts: bool, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, n = np.random.default_rng(9), 400
    slopes = np.cumsum(rng.uniform(0.0, 2.0, (1 if shared else n, 3)), axis=1)
    starts = -np.cumsum(rng.uniform(0.2, 2.0, slopes.shape), axis=1)
    starts -= starts[:, :1]
    given = (each[0] if shared else each for each in (slopes, starts))
    host = rng.integers(0, 30, n) if hosts else None
    asked = 1.0 if shared else rng.lognormal(size=n)
    sources = fo.Sources(np.ones(n), rng.lognormal(size=n), host=host, request_rate=asked)
    limits = dict.fromkeys(range(0, 30, 2), 5.0) if hosts else None
    problem = fo.Problem(
        SynchronizationCost(PiecewiseLinearCost(*given), ON_REQUEST), sources, 0.4 * n, limits
    )
    require_same_compiled(problem, monkeypatch, one_price=False)


def test_bandwidth_for_every_kink_leaves_nothing() -> None:
    """Nothing is lost to rounding where all deadlines can be kept, nor counted where one cannot."""
    objective = SynchronizationCost(PiecewiseLinearCost([0.0, 1.0], [0.0, -2.0]), ON_REQUEST)
    sources = fo.Sources([1.0, 1.0, 1.0], request_rate=[0.5, 1.0, 2.0])
    exact = np.array([1 / 4, 1 / 3, 2 / 5])
    ample = fo.solve(fo.Problem(objective, sources, 5.0))
    np.testing.assert_allclose(ample.rates, exact, rtol=1.0 - BELOW)
    assert (ample.value, ample.price, present(ample.certificate).gap) == (0.0, 0.0, 0.0)
    short = fo.solve(fo.Problem(objective, sources, float(exact.sum()) - 1e-9))
    # Requests of importance ζ gain ζ·(2 + 1/ζ) = 1 + 2ζ by a unit of rate: the first are the last to have it.
    assert short.price == pytest.approx(2.0, rel=1e-12)
    assert short.value == pytest.approx(2e-9, rel=1e-6)
