"""Powers with caps or windows: whole problems, in NumPy and in loops, against bisection in many digits."""

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import PowerCost, SynchronizationCost
from tests.ground_truth.fetch_gaps import power_in_window
from tests.ground_truth.named import present
from tests.ground_truth.routes import compile_all
from tests.ground_truth.source_gaps import DIGITS, Number
from tests.ground_truth.strata import matrix

HALVINGS, N = 80, 60
REQUEST, POISSON = fo.Refresh.ON_REQUEST, fo.Refresh.POISSON


def marginal(
    refresh: fo.Refresh, rate: Number, a: float, e: float, cap: float, asked: float, shown: float
) -> Number:
    """Return −J' of the cost min(a·s^e, U) of age, from its integrals."""
    end = (mpmath.mpf(cap) / a) ** (1 / mpmath.mpf(e)) if cap < np.inf else mpmath.inf
    if refresh is POISSON:
        # Of exponential ages, −J' is ∫ s·c'(s)e^{−ρs} ds.
        return a * e * mpmath.gammainc(1 + mpmath.mpf(e), 0, rate * end) / rate ** (1 + mpmath.mpf(e))
    if shown > 0.0:
        life, power = asked / rate - 1, mpmath.mpf(e)
        mean, last = power_in_window(life, mpmath.mpf(asked) * shown, power)
        whole = (life + 1) * (mean + last) - life ** (1 + power) / (1 + power) - mean
        return a * whole / mpmath.mpf(asked) ** (1 + power)
    life = min(1 / rate - 1 / mpmath.mpf(asked), end)
    return a * life**e * (life * e / (1 + mpmath.mpf(e)) + 1 / mpmath.mpf(asked))


def best_response(refresh: fo.Refresh, price: float, upper: float, own: tuple[float, ...]) -> float:
    """Return the rate at which the marginal value falls to a price, by bisection."""
    low, high = mpmath.mpf(10) ** -40, mpmath.mpf(upper)
    for _ in range(HALVINGS):
        middle = mpmath.sqrt(low * high)
        low, high = (middle, high) if marginal(refresh, middle, *own) > price else (low, middle)
    return float(high) if high > mpmath.mpf(10) ** -39 else 0.0


@matrix(kind=["Poisson", "request", "window"], hosts=[False, True], shared=[False, True], every=2)
def test_rates_are_best_responses_in_loops_and_without(
    kind: str, hosts: bool, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    refresh = POISSON if kind == "Poisson" else REQUEST
    a, w, asked = 10.0 ** rng.uniform(-6.0, 6.0, (3, N))
    e = np.full(N, 0.5) if shared else 10.0 ** rng.uniform(-1.5, 0.7, N)
    w[::9] = 0.0
    # The cap is reached within 1e±4 of the time between requests, or never.
    cap = np.where(rng.random(N) < 0.2, np.inf, a * (10.0 ** rng.uniform(-4.0, 4.0, N) / asked) ** e)
    shown = np.zeros(N)
    if kind == "window":
        cap, shown = np.full(N, np.inf), 10.0 ** rng.uniform(-4.0, 2.0, N) / asked
    cost = PowerCost(a, 0.5 if shared else e, cap)
    sources = fo.Sources(
        np.ones(N),
        w,
        host=rng.integers(0, 6, N) if hosts else None,
        request_rate=asked if refresh is REQUEST else None,
        stale_while_revalidate=shown if kind == "window" else None,
    )
    bandwidth = 0.01 * float(np.sum(asked))
    limits = {0: 1e-3 * bandwidth, 3: 1e-5 * bandwidth} if hosts else None
    problem = fo.Problem(SynchronizationCost(cost, refresh), sources, bandwidth, limits)
    plain = fo.solve(problem)
    compile_all(monkeypatch)
    compiled = fo.solve(problem)
    assert compiled.value == pytest.approx(plain.value, rel=1e-12)
    with mpmath.workdps(DIGITS):
        for solution in (plain, compiled):
            assert present(solution.certificate).relative_gap < 1e-12
            paid = np.full(N, solution.price)
            for name, price in present(solution.host_prices if hosts else {}).items():
                paid[sources.host == name] += price
            off = 0
            for k in np.flatnonzero(w > 0.0):
                own = tuple(float(column[k]) for column in (a, e, cap, asked, shown))
                upper = float(asked[k]) if refresh is REQUEST else 1e40
                found = best_response(refresh, float(paid[k] / w[k]), upper, own)
                off += solution.rates[k] != pytest.approx(found, rel=1e-7, abs=1e-30)
            # A source is between two best responses for each limit at most.
            assert off <= (3 if hosts else 1)
