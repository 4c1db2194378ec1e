"""Special functions against mpmath, from u = 1e-100 to 1e100."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from freshopt.numerics import special_functions
from tests.ground_truth.tolerances import EXACT

mp = mpmath.MPContext()
Function = Callable[[Any], Any]


def exact_ein(u: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    return u * mp.hyp2f2(1, 1, 2, 2, -u) if u < 1 else mp.e1(u) + mp.log(u) + mp.euler


EXACT_FORMS: dict[str, Function] = {
    "mean_stale_share": lambda u: 1 + mp.expm1(-u) / u,
    "ein": exact_ein,
    "mean_harmonic": lambda u: exact_ein(u) - 1 - mp.expm1(-u) / u,
    "harmonic_index": lambda u: u + mp.expm1(-u),
    "mean_age": lambda u: u / 2 - 1 - mp.expm1(-u) / u,
    "age_index": lambda u: u * u / 2 - 1 + (1 + u) * mp.exp(-u),
    "gamma2": lambda u: 1 - (1 + u) * mp.exp(-u),
    "log_excess": lambda u: u - mp.log1p(u),
    "log_freshness_loss": lambda u: mp.log(u / -mp.expm1(-u)),
    "log_freshness_index": lambda u: u - u * u / mp.expm1(u),
}
INVERSES = {
    "inverse_harmonic_index": "harmonic_index",
    "inverse_age_index": "age_index",
    "inverse_gamma2": "gamma2",
    "inverse_log_excess": "log_excess",
    "inverse_log_freshness_index": "log_freshness_index",
}
ARGUMENTS = np.concatenate(
    [[1e-100, 1e-50], np.logspace(-12, 12, 97), [0.4999999, 0.5, 0.5000001, 1e50, 1e100]]
)


def public_functions() -> set[str]:
    return {
        name
        for name, value in vars(special_functions).items()
        if callable(value) and value.__module__ == special_functions.__name__ and not name.startswith("_")
    }


def exactly(name: str, u: float) -> float:
    with mp.workdps(420):
        return float(EXACT_FORMS[name](mp.mpf(u)))


def test_every_function_has_a_reference() -> None:
    assert public_functions() == set(EXACT_FORMS) | set(INVERSES)


@pytest.mark.parametrize("name", EXACT_FORMS)
def test_relative_error_over_two_hundred_decades(name: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):  # both branches are evaluated; callers do the same
        found = getattr(special_functions, name)(ARGUMENTS)
    expected = np.array([exactly(name, u) for u in ARGUMENTS])
    assert np.all(np.abs(found - expected) <= 0.01 * EXACT * expected)


@pytest.mark.parametrize("name", EXACT_FORMS)
def test_zero_gives_zero_and_scalars_are_taken(name: str) -> None:
    assert float(getattr(special_functions, name)(np.float64(0.0))) == 0.0


@pytest.mark.parametrize("name", EXACT_FORMS)
def test_functions_rise_across_the_change_of_branch(name: str) -> None:
    u = np.linspace(0.49, 0.51, 2001)
    assert np.all(np.diff(getattr(special_functions, name)(u)) > 0.0)


@pytest.mark.parametrize(("inverse", "name"), INVERSES.items())
def test_inverses_solve_their_equation(inverse: str, name: str) -> None:
    """A relative error e of u shows as e times the elasticity of the function, at most 3."""
    top = 30.0 if name == "gamma2" else np.inf  # beyond, 1 − gamma2 is below an ulp of 1
    u = ARGUMENTS[top >= ARGUMENTS]
    y = np.array([exactly(name, x) for x in u])
    back = np.array([exactly(name, x) for x in getattr(special_functions, inverse)(y)])
    assert np.all(np.abs(back - y) <= 1e-15 * y)


@pytest.mark.parametrize(("inverse", "name"), INVERSES.items())
def test_inverses_return_the_argument(inverse: str, name: str) -> None:
    """Where the function is steep enough for float64 to tell arguments apart."""
    u = ARGUMENTS[(ARGUMENTS <= 5.0) | ((ARGUMENTS <= 1e12) & (name != "gamma2"))]
    y = np.array([exactly(name, x) for x in u])
    assert np.all(np.abs(getattr(special_functions, inverse)(y) - u) <= 0.1 * EXACT * u)


@pytest.mark.parametrize("inverse", INVERSES)
def test_inverses_at_zero(inverse: str) -> None:
    assert np.array_equal(getattr(special_functions, inverse)(np.zeros(2)), np.zeros(2))


def test_no_period_makes_a_copy_more_stale_than_always() -> None:
    assert np.array_equal(special_functions.inverse_gamma2(np.array([1.0, 1.5, 1e100])), np.full(3, np.inf))
    assert np.isfinite(special_functions.inverse_gamma2(np.array([1.0 - 2.0**-53]))[0])


@pytest.mark.parametrize("name", EXACT_FORMS)
def test_what_is_no_number_stays_none(name: str) -> None:
    found = getattr(special_functions, name)(np.array([np.nan, 1.0]))
    assert np.isnan(found[0])
    assert found[1] > 0.0
