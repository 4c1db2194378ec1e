"""Best responses of age from tables, against equations solved in 60 digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled import demand_functions
from freshopt.problems import Age

# Half-ulps of a polynomial, of its argument's quotient, and of the product with the change rate.
FEW_ULP = 2e-15
DISCIPLINES = [fo.Refresh.POISSON, fo.Refresh.PERIODIC]
DEMANDS = {
    fo.Refresh.POISSON: demand_functions.age_poisson,
    fo.Refresh.PERIODIC: demand_functions.age_periodic,
}


def marginal(refresh: fo.Refresh, rate: mpmath.mpf, d: mpmath.mpf) -> mpmath.mpf:
    """Return −J'(ρ) as it is printed."""
    if refresh is fo.Refresh.POISSON:
        return d * (2 * rate + d) / (rate * (rate + d)) ** 2
    u = d / rate
    if u < mpmath.mpf("1e-12"):
        return (u**3 / 3 - u**4 / 8 + u**5 / 30) / d**2
    return (u**2 / 2 - 1 + (1 + u) * mpmath.exp(-u)) / d**2


def truth(refresh: fo.Refresh, worth: float, d: float) -> mpmath.mpf:
    """Return the rate whose marginal value is 1/worth, by bisection on logarithms."""
    price, change = 1 / mpmath.mpf(worth), mpmath.mpf(d)
    low, high = mpmath.mpf("1e-260"), mpmath.mpf("1e260")
    for _ in range(90):
        middle = mpmath.sqrt(low * high)
        low, high = (middle, high) if marginal(refresh, middle, change) > price else (low, middle)
    return mpmath.sqrt(low * high)


def pairs() -> list[tuple[float, float]]:
    """Return marginal values and change rates: usual, extreme, and where tables change over to limits."""
    rng = np.random.default_rng(20)
    usual = [(10.0 ** rng.uniform(-21, 21), 10.0 ** rng.uniform(-6, 4)) for _ in range(30)]
    extreme = [(10.0 ** rng.uniform(-300, 300), 10.0 ** rng.uniform(-100, 100)) for _ in range(20)]
    ends = [(math.ldexp(1.0 + e, -k), 1.0) for k in (-81, -80, 0, 55, 56) for e in (-1e-9, 0.0, 1e-9)]
    return [*usual, *[(a, d) for a, d in extreme if 1e-290 < a * d < 1e290], *ends]


@pytest.mark.parametrize("refresh", DISCIPLINES)
def test_table_gives_the_root_of_the_printed_equation(refresh: fo.Refresh) -> None:
    objective = Age(refresh)
    with mpmath.workdps(60):
        for worth, d in pairs():
            exact = truth(refresh, worth, d)
            compiled = DEMANDS[refresh](worth, d)
            assert abs(compiled / exact - 1) < FEW_ULP, (worth, d)
            if 1e-290 < worth < 1e290:
                kernel = objective.kernel(fo.Sources([d]))
                assert kernel is not None
                plain = float(kernel.inverse_marginal(np.array([1.0 / worth]))[0])
                assert abs(plain / exact - 1) < FEW_ULP, (worth, d)


@pytest.mark.exhaustive
@pytest.mark.parametrize("refresh", DISCIPLINES)
def test_rates_rise_with_the_marginal_value_up_to_rounding(refresh: fo.Refresh) -> None:
    for d in (1e-100, 1e-6, 1.0, 1e4, 1e100):
        worth = np.exp(np.linspace(math.log(1e-300), math.log(1e300), 20_001))
        with np.errstate(over="ignore", under="ignore"):
            rates = np.array([DEMANDS[refresh](float(a), d) for a in worth])
        assert np.all(np.isfinite(rates))
        assert np.all(rates >= 0.0)
        assert np.all(rates[1:] >= rates[:-1] * (1.0 - FEW_ULP))


@pytest.mark.parametrize("refresh", DISCIPLINES)
@pytest.mark.parametrize("d", [1e-100, 5e-7, 1.0, 1e100])
def test_ends_of_the_floats_are_no_trouble(refresh: fo.Refresh, d: float) -> None:
    with np.errstate(all="ignore"):
        at_zero, least, most, infinite = (
            DEMANDS[refresh](np.float64(a), np.float64(d)) for a in (0.0, 1e-310, 1.7e308, math.inf)
        )
    assert at_zero == 0.0
    assert 0.0 < least < most
    assert infinite > 0.0
    assert not math.isnan(infinite)
