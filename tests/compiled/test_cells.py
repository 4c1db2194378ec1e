"""Cells of requests, windows and failing attempts, source by source: every cell with every property."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.cells import (
    attempt_proofs,
    request_functions,
    request_proofs,
    window_functions,
    window_proofs,
)
from freshopt.compiled.cells.attempt_costs import mean_harmonic_attempts
from freshopt.compiled.cells.attempt_functions import attempt_binary
from freshopt.compiled.cells.attempt_roots import attempt_age, attempt_harmonic
from freshopt.compiled.cells.request_age import request_age
from freshopt.compiled.cells.request_power import capped_request_power, request_power
from freshopt.compiled.cells.window_age import window_age
from freshopt.compiled.cells.window_harmonic import window_harmonic
from freshopt.compiled.cells.window_power import WINDOW_POWER, window_power
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.proof_functions import ProofCell
from freshopt.problems import PowerCost, SynchronizationCost
from freshopt.separable.kernel import Kernel
from tests.compiled.test_proofs import term
from tests.ground_truth.fetch_gaps import ATTEMPTS, CAPPED_POWER, POWER, REQUESTS, WINDOWS
from tests.ground_truth.fetch_gaps import WINDOW_POWER as WINDOWED
from tests.ground_truth.named import (
    AGE_ON_REQUEST,
    AGE_PERIODIC,
    BINARY_ON_REQUEST,
    BINARY_PERIODIC,
    DELAY_ON_REQUEST,
    HARMONIC_ON_REQUEST,
    HARMONIC_PERIODIC,
    ON_REQUEST,
    present,
)
from tests.ground_truth.routes import require_same_compiled
from tests.ground_truth.source_gaps import DIGITS, ExactCell, Number, exact_source_gap
from tests.ground_truth.strata import exhaustive, matrix

Rng = np.random.Generator
Drawn = tuple[float, list[float]]  # a rate, and parameters
# Of windows and of some attempts: what is subtracted has up to 40 of these in common.
MANY = 110


def decades(rng: Rng, low: float, high: float) -> float:
    return float(10.0 ** rng.uniform(low, high))


def request(rng: Rng) -> Drawn:
    asked = decades(rng, -3.0, 3.0)
    return asked * decades(rng, -3.0, -0.01), [asked * decades(rng, -5.0, 5.0), asked]


def far_request(rng: Rng) -> Drawn:
    asked = decades(rng, -3.0, 3.0)
    return asked * decades(rng, -9.0, -1e-3), [asked * decades(rng, -8.0, 8.0), asked]


def scaled_request(rng: Rng) -> Drawn:
    asked = decades(rng, -90.0, 90.0)
    return asked * decades(rng, -6.0, -1e-3), [asked * decades(rng, -6.0, 6.0), asked]


def window(rng: Rng, power: int = 1) -> Drawn:
    """Return a rate whose share of the requests is raised to a power."""
    asked = decades(rng, -3.0, 3.0)
    d = asked * decades(rng, -5.0, 5.0)
    shown = decades(rng, -5.0, 2.0) / (asked if rng.random() < 0.6 else d)
    share = decades(rng, -3.0, -0.01)
    return asked * share**power, [d, asked, 0.0 if rng.random() < 0.1 else shown]


def attempt(rng: Rng) -> Drawn:
    success = decades(rng, -6.0, 0.0) if rng.random() < 0.6 else 1.0 - decades(rng, -9.0, -0.1)
    d = decades(rng, -6.0, 4.0)
    return d / decades(rng, -5.0, 1.3), [d, 1.0 if rng.random() < 0.1 else success]


def far_attempt(rng: Rng) -> Drawn:
    rate, own = attempt(rng)
    return rate * (decades(rng, -8.0, 8.0) if rng.random() < 0.5 else 1.0), own


def level(rng: Rng) -> Drawn:
    """Return a rate, and a level, an exponent and a request rate."""
    asked = decades(rng, -3.0, 3.0)
    own = [float(rng.normal(0.0, 8.0)), decades(rng, -1.5, 0.8), asked]
    return asked * decades(rng, -6.0, -0.01), own


def capped_level(rng: Rng) -> Drawn:
    """Return a rate and the same with a kink, and the marginal value below it."""
    rate, own = level(rng)
    kink = own[2] * decades(rng, -6.0, -0.01)
    rate = kink * (1.0 - decades(rng, -6.0, -1.0)) if rng.random() < 0.2 else max(rate, kink)
    return rate, [*own, kink, float(POWER.marginal(*map(mpmath.mpf, (kink, *own))))]


def window_level(rng: Rng) -> Drawn:
    """Return a rate, and the same with a window."""
    rate, own = level(rng)
    return rate, [*own, 0.0 if rng.random() < 0.1 else decades(rng, -5.0, 2.5) / own[2]]


class Cell(NamedTuple):
    """A cell, its truth, how its sources are drawn: near, for slopes and for responses; and its digits."""

    demand: Demand
    proof: ProofCell
    objective: fo.Objective
    exact: ExactCell
    near: Callable[[Rng], Drawn]
    far: Callable[[Rng], Drawn]
    scaled: Callable[[Rng], Drawn]
    digits: int = DIGITS
    trials: int = 150
    rounding: float = 0.0  # of costs, in importances


ASKED = (request, far_request, scaled_request)
SHOWN = (window, lambda rng: window(rng, 3), lambda rng: window(rng, 2))
TRIED = (attempt, far_attempt, attempt)
CELLS = {
    "request delay": Cell(
        request_functions.request_delay,
        request_proofs.REQUEST_DELAY,
        DELAY_ON_REQUEST,
        REQUESTS["delay"],
        *ASKED,
        rounding=1e-15,
    ),
    "request harmonic": Cell(
        request_functions.request_harmonic,
        request_proofs.REQUEST_HARMONIC,
        HARMONIC_ON_REQUEST,
        REQUESTS["harmonic"],
        *ASKED,
        rounding=1e-15,
    ),
    "request binary": Cell(
        request_functions.request_binary,
        request_proofs.REQUEST_BINARY,
        BINARY_ON_REQUEST,
        REQUESTS["binary"],
        *ASKED,
        rounding=1e-15,
    ),
    "request age": Cell(
        request_age, request_proofs.REQUEST_AGE, AGE_ON_REQUEST, REQUESTS["age"], *ASKED, rounding=1e-15
    ),
    "window delay": Cell(
        window_functions.window_delay,
        window_proofs.WINDOW_DELAY,
        DELAY_ON_REQUEST,
        WINDOWS["delay"],
        *SHOWN,
        MANY,
    ),
    "window binary": Cell(
        window_functions.window_binary,
        window_proofs.WINDOW_BINARY,
        BINARY_ON_REQUEST,
        WINDOWS["binary"],
        *SHOWN,
        MANY,
    ),
    "window harmonic": Cell(
        window_harmonic,
        window_proofs.WINDOW_HARMONIC,
        HARMONIC_ON_REQUEST,
        WINDOWS["harmonic"],
        *SHOWN,
        MANY,
    ),
    "window age": Cell(window_age, window_proofs.WINDOW_AGE, AGE_ON_REQUEST, WINDOWS["age"], *SHOWN, MANY),
    "attempt binary": Cell(
        attempt_binary,
        attempt_proofs.ATTEMPT_BINARY,
        BINARY_PERIODIC,
        ATTEMPTS["binary"],
        attempt,
        attempt,
        attempt,
        trials=400,
        rounding=1e-15,
    ),
    "attempt harmonic": Cell(
        attempt_harmonic,
        attempt_proofs.ATTEMPT_HARMONIC,
        HARMONIC_PERIODIC,
        ATTEMPTS["harmonic"],
        *TRIED,
        MANY,
        60,
    ),
    "attempt age": Cell(
        attempt_age, attempt_proofs.ATTEMPT_AGE, AGE_PERIODIC, ATTEMPTS["age"], *TRIED, MANY, 400
    ),
}
POWERS = SynchronizationCost(PowerCost(1.0, 0.5), ON_REQUEST)
PROVED = CELLS | {
    "request power": Cell(
        request_power, request_proofs.REQUEST_POWER, POWERS, POWER, level, level, level, trials=400
    ),
    "request capped power": Cell(
        capped_request_power,
        request_proofs.CAPPED_REQUEST_POWER,
        POWERS,
        CAPPED_POWER,
        capped_level,
        capped_level,
        capped_level,
        trials=400,
    ),
    "window power": Cell(
        window_power, WINDOW_POWER, POWERS, WINDOWED, window_level, window_level, window_level, MANY, 100
    ),
}
COLUMNS = {
    "request": ("change_rate", "request_rate"),
    "window": ("change_rate", "request_rate", "stale_while_revalidate"),
    "attempt": ("change_rate", "success"),
}


@pytest.mark.parametrize(
    ("name", "trials"),
    [
        ("attempt binary", 12),
        *(pytest.param(name, cell.trials, marks=exhaustive) for name, cell in PROVED.items()),
    ],
)
def test_terms_bound_the_exact_share_of_a_gap(name: str, trials: int) -> None:
    cell, rng, ratios = PROVED[name], np.random.default_rng(len(name)), []
    exact = cell.exact
    with mpmath.workdps(cell.digits):
        for trial in range(trials):
            best, own = cell.near(rng)
            most = np.inf if "attempt" in name else own[2 if "power" in name else 1]
            # That of a power is in its level.
            w = 1.0 if "power" in name else float(rng.choice([1.0, 1e-6, 1e6, 0.37]))
            off = decades(rng, -12.0, float(np.log10(3.0)))
            rate = min(best * (1.0 + off) if rng.random() < 0.5 else best / (1.0 + off), most)
            paid = float(w * exact.marginal(*map(mpmath.mpf, (best, *own))))
            paid *= float(rng.choice([1.0, 1.0, 1.0 + 1e-16, 0.3, 40.0]))
            bounds = [(0.0, most), (min(rate, 0.9 * best), max(rate, min(most, 1.1 * best)))][trial % 2]
            truth = exact_source_gap(exact, rate, w, paid, bounds, own)
            cost, gain, found, outside = term(cell.proof, rate, w, paid, bounds, own)
            assert outside == 0.0
            assert found >= truth, (own, w, rate, paid, bounds)
            unit = exact.cost(*map(mpmath.mpf, (rate, *own)))
            whole = float(w * unit)
            assert cost == pytest.approx(whole, rel=1e-12, abs=cell.rounding * w)
            if "binary" in name:
                assert gain == pytest.approx(float(w * (1 - unit)), rel=1e-12, abs=cell.rounding * w)
            if truth > 1e-24 * (abs(whole) + paid * rate):
                ratios.append(float(found / truth))
    # Small exponents have a reach of 1/e.
    assert np.median(ratios) < (12.0 if "power" in name else 8.0)


@pytest.mark.parametrize("name", PROVED)
def test_marginal_values_are_within_the_rounding_allowed(name: str) -> None:
    cell, rng, worst = PROVED[name], np.random.default_rng(7), 0.0
    with mpmath.workdps(cell.digits + 40):
        for _ in range(150):
            rate, own = cell.far(rng)
            _, _, marginal, rounding = cell.proof.values(*map(np.float64, (rate, 1.0, *own)))
            exact = cell.exact.marginal(*map(mpmath.mpf, (rate, *own)))
            worst = max(worst, abs(float(marginal / exact - 1)) / rounding)
    assert worst <= 0.5


@pytest.mark.parametrize("name", CELLS)
def test_best_responses_are_those_of_numpy(name: str) -> None:
    cell, rng = CELLS[name], np.random.default_rng(2)
    each = [(rate, *own) for rate, own in (cell.scaled(rng) for _ in range(600))]
    rate, *own = np.array(each).T
    columns: dict[str, Any] = dict(zip(COLUMNS[name.split()[0]], own, strict=True))
    numerics = present(fo.Problem(cell.objective, fo.Sources(**columns, importance=1.0), 1.0).numerics)
    price = numerics.marginal(rate)
    # Above the largest marginal value, and next to nothing, where every request fetches.
    price[:40], price[40:80] = price[:40] * 1e9, price[40:80] * 1e-9
    expected = np.minimum(numerics.inverse_marginal(price), own[1] if "window" in name else np.inf)
    with np.errstate(all="ignore"):
        found = np.array([cell.demand(*source) for source in zip(1.0 / price, *own, strict=True)])
        again = numerics.marginal(found)
    near = np.abs(found - expected) <= 1e-12 * expected
    determined = name in ("attempt harmonic", "attempt age")
    assert np.all(near | (np.abs(again / price - 1.0) < 1e-12) & (not determined))
    assert name != "attempt binary" or np.count_nonzero(found == 0.0) > 20


PAIRS = [(1e-100, 1e100), (1e100, 1e-100), (1.0, 1.0), (1e-100, 1e-100), (1e100, 1e100)]
ENDS: dict[str, list[tuple[float, ...]]] = {
    "request": list(PAIRS),
    "window": [(*pair, end) for pair in PAIRS for end in (0.0, 1e-100, 1.0, 1e100, np.inf)],
    "attempt": list(itertools.product((1e-100, 1.0, 1e100), (1e-30, 1e-9, 0.5, 1.0))),
}


@pytest.mark.parametrize("name", CELLS)
def test_no_price_and_no_marginal_value(name: str) -> None:
    family, least = name.split()[0], [(d, 1e-300) for d in (1e-100, 1.0, 1e100)]
    for own in ENDS[family] + (least if name == "attempt binary" else []):
        numbers = [np.float64(x) for x in own]
        with np.errstate(all="ignore"):
            nothing, most = (CELLS[name].demand(np.float64(worth), *numbers) for worth in (0.0, np.inf))
        assert nothing == 0.0
        if family == "attempt":
            assert most > (1e100 if name == "attempt binary" else 1e80) * own[0]
        else:
            assert most == pytest.approx(own[1], rel=1e-12), own


@pytest.mark.exhaustive
@matrix(ill=[False, True], name=CELLS)
def test_compiled_solutions_are_those_of_numpy(name: str, ill: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(1), 3000
    columns = 10.0 ** rng.uniform(-4.0, 4.0, (5, n)) if ill else rng.lognormal(0.0, 1.0, (5, n))
    d, w, asked, cost, shown = columns
    own: dict[str, Any] = {
        "request": {"request_rate": asked},
        "window": {"request_rate": asked, "stale_while_revalidate": shown},
        "attempt": {"success": rng.choice([1e-4, 0.03, 0.5, 0.99, 1.0], n)},
    }[name.split()[0]]
    sources = fo.Sources(d, w, refresh_cost=cost, host=rng.integers(0, 20, n), **own)
    bandwidth = 0.3 * float((cost * own.get("request_rate", d)).sum())
    limits = {0: 0.01 * bandwidth, 3: 1e-4 * bandwidth}
    require_same_compiled(fo.Problem(CELLS[name].objective, sources, bandwidth, limits), monkeypatch)


def test_costs_of_attempts_are_sums_over_their_number() -> None:
    def mean(u: Number) -> Number:
        return mpmath.e1(u) + mpmath.log(u) + mpmath.euler - 1 - mpmath.expm1(-u) / u

    for u, success in ((0.3, 0.6), (7.0, 0.74), (25.0, 0.75), (60.0, 0.9), (3.0, 1.0)):
        s, failing = mpmath.mpf(success), 1 - mpmath.mpf(success)
        exact = float(sum(s**2 * k * failing ** (k - 1) * mean(mpmath.mpf(u) * k) for k in range(1, 50)))
        assert float(mean_harmonic_attempts(u, success)) == pytest.approx(exact, rel=1e-13)


def test_best_responses_of_powers_are_those_of_numpy() -> None:
    rng, n = np.random.default_rng(2), 500
    w, asked = 10.0 ** rng.uniform(-20.0, 20.0, n), 10.0 ** rng.uniform(-9.0, 9.0, n)
    cost = PowerCost(10.0 ** rng.uniform(-9.0, 9.0, n), 10.0 ** rng.uniform(-2.0, 0.8, n))
    sources = fo.Sources(1.0 + 0.0 * w, w, request_rate=asked)
    numerics = fo.Problem(SynchronizationCost(cost, ON_REQUEST), sources, bandwidth=1.0).numerics
    assert isinstance(numerics, Kernel)
    assert numerics.unit_demand is request_power
    price = numerics.marginal(asked * 10.0 ** rng.uniform(-6.0, -1e-3, n))
    expected = numerics.inverse_marginal(price)
    found = np.array(
        [request_power(*each) for each in zip(1.0 / price, *present(numerics.demand_parameters), strict=True)]
    )
    again = numerics.marginal(found)
    same = np.abs(found - expected) <= 1e-11 * expected
    assert np.all(same | (np.abs(again / price - 1.0) < 1e-11))


def test_no_price_and_no_importance_of_a_power() -> None:
    for e, asked in itertools.product((0.01, 0.5, 9.0), (1e-100, 1.0, 1e100)):
        # τ^e is 1e-300 at most.
        least = asked / (1.0 + 1e-300 ** (1.0 / e))
        with np.errstate(over="ignore"):
            assert request_power(1e-8, -np.inf, e, asked) == 0.0
            assert request_power(1e300, 0.0, e, asked) == pytest.approx(least, rel=1e-12)
            assert 0.0 <= request_power(0.0, 0.0, e, asked) < 1e-20 * asked


@pytest.mark.parametrize("window", [0.0, 1e-100, 1.0, 1e100, np.inf])
@pytest.mark.parametrize("asked", [1e-100, 1.0, 1e100])
def test_rates_are_from_0_to_those_of_the_requests_at_any_scale(asked: float, window: float) -> None:
    scales = [1e-300, 1e-100, 1e-6, 1.0, 1e4, 1e100, 1e290]
    for worth in scales:
        with np.errstate(all="ignore"):
            rates = [window_power(worth, 0.0, e, asked, window) for e in (0.5, 1.0, 3.0)]
            for d in scales[1:-1]:
                rates += [each(worth, d, asked, window) for each in (window_harmonic, window_age)]
        assert all(0.0 <= rate <= asked for rate in rates), (worth, rates)
        # Without a window, at the lowest price, every request is a fetch.
        assert worth < 1e290 or window or rates[0] == asked


def test_tiny_exponents_stay_in_numpy() -> None:
    problem = fo.Problem(
        SynchronizationCost(PowerCost(1.0, 0.005), ON_REQUEST),
        fo.Sources([1.0, 2.0], request_rate=3.0),
        bandwidth=1.0,
    )
    assert isinstance(problem.numerics, Kernel)
    assert problem.numerics.unit_demand is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("each", [False, True])
def test_compiled_solutions_of_powers_are_those_of_numpy(each: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(1), 3000
    w, asked, cost = 10.0 ** rng.uniform(-4.0, 4.0, (3, n)) if each else rng.lognormal(0.0, 1.0, (3, n))
    power = PowerCost(rng.lognormal(0.0, 1.0, n), rng.uniform(0.1, 3.0, n) if each else 0.5)
    sources = fo.Sources(1.0 + 0.0 * w, w, request_rate=asked, refresh_cost=cost)
    bandwidth = 0.3 * float((cost * asked).sum())
    problem = fo.Problem(SynchronizationCost(power, ON_REQUEST), sources, bandwidth)
    require_same_compiled(problem, monkeypatch, value=1e-11)


def test_rates_that_round_to_the_requests_waste_next_to_nothing() -> None:
    # τ = 1e-40 at the price 1e-4 of C = 1.
    own = [0.0, 0.1, 3.0]
    _, _, found, outside = term(request_proofs.REQUEST_POWER, 3.0, 1.0, 1e-4, (0.0, 3.0), own)
    assert outside == 0.0
    assert 0.0 < found < 1e-39


@pytest.mark.parametrize("success", [1e-3, 0.2, 0.541438, 0.9, 1.0])
def test_attempts_at_nearly_no_gain_are_right_to_the_last_digits(success: float) -> None:
    """Where a refresh is worth its price by 1e-15 of it, rates still fall as the price rises."""
    rates = []
    with mpmath.workdps(60):
        for left in (0.6, 0.51, 0.49, 0.1, 1e-3, 1e-8, 1e-12, 1e-13, 1e-14, 4e-15, 1e-15):
            worth = 1.0 / ((1.0 - left) * success)
            share, s = mpmath.mpf(1.0 / worth / success), mpmath.mpf(success)

            def excess(u: Number, share: Number = share, s: Number = s) -> Number:
                y, q = mpmath.exp(-u), 1 - s
                whole = s + q * (1 - y)
                return (s * (1 - (1 + u) * y) + q * (1 - y) ** 2) / whole**2 - share

            low, high = mpmath.mpf(0), mpmath.mpf(200)
            for _ in range(160):
                u = (low + high) / 2
                low, high = (u, high) if excess(u) < 0 else (low, u)
            rates.append(attempt_binary(worth, 1.0, success))
            assert rates[-1] * float(u) == pytest.approx(1.0, rel=4e-15)
    assert rates == sorted(rates, reverse=True)
