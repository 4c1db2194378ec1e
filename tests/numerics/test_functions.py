"""Special functions, vector math and bracketed roots against mpmath; caches by octaves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import mpmath
import numpy as np
import pytest
from numba import njit

from freshopt.compiled import loops
from freshopt.numerics import special_functions
from freshopt.numerics.bracketed_roots import bracketed_roots
from freshopt.numerics.octave_cache import ERROR, MANY, SCATTERED, OctaveCache
from freshopt.numerics.vector_math import fast_exp, fast_log
from tests.ground_truth.cost_truth import Floats
from tests.ground_truth.tolerances import EXACT

mp = mpmath.MPContext()
Function = Callable[[Any], Any]


def exact_ein(u: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    return u * mp.hyp2f2(1, 1, 2, 2, -u) if u < 1 else mp.e1(u) + mp.log(u) + mp.euler


EXACT_FORMS: dict[str, Function] = {
    "mean_stale_share": lambda u: 1 + mp.expm1(-u) / u,
    "ein": exact_ein,
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


@pytest.mark.exhaustive
def test_logarithm_and_exponential_are_within_two_ulp_in_compiled_loops() -> None:
    @njit(fastmath=loops.FAST, error_model="numpy")
    def both(x: np.ndarray, logs: np.ndarray, powers: np.ndarray) -> None:
        for k in range(len(x)):
            logs[k] = fast_log(abs(x[k]) + 1e-300)
            powers[k] = fast_exp(x[k])

    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(-700.0, 700.0, 2000), rng.uniform(-2.0, 2.0, 2000)])
    logs, powers = np.empty(len(x)), np.empty(len(x))
    both(x, logs, powers)
    with mpmath.workprec(120):
        for each, log, power in zip(x, logs, powers, strict=True):
            exact = mpmath.mpf(float(each))
            for found, true in ((log, mpmath.log(abs(exact) + 1e-300)), (power, mpmath.exp(exact))):
                assert abs(float(mpmath.mpf(float(found)) - true)) <= 2.0 * np.spacing(abs(float(true)))


@dataclass
class Cubes:
    """a − x³, or a jump at a."""

    a: Floats
    jump: np.typing.NDArray[np.bool_]
    asked: list[int]

    def excess(self, x: Floats) -> Floats:
        self.asked.append(len(x))
        return np.where(self.jump, np.where(x < self.a, 1.0, -2.0), self.a - x**3)

    def take(self, chosen: np.typing.NDArray[np.bool_]) -> Self:
        return type(self)(self.a[chosen], self.jump[chosen], self.asked)


def test_roots_and_jumps_are_found_and_the_found_not_asked_again() -> None:
    a = np.linspace(1.0, 2.0, 50)
    functions = Cubes(a, np.arange(50) % 5 == 0, [])
    low, high = np.full(50, 0.5), np.full(50, 3.0)
    found, evaluations = bracketed_roots(functions, low, high, functions.excess(low), functions.excess(high))
    np.testing.assert_allclose(found, np.where(functions.jump, a, np.cbrt(a)), rtol=4e-15)
    assert sum(functions.asked[2:]) == int(evaluations.sum())
    assert evaluations[~functions.jump].max() < 15
    assert np.all(found[functions.jump] >= a[functions.jump])


def test_neighbouring_floats_are_a_last_bracket_at_any_size() -> None:
    """From 64 to 66 two floats are apart by more than 2e-16 of them, which once was no end of the search."""
    a = np.concatenate([-(2.0**k) * np.linspace(1.0, 1.99, 40) for k in range(-3, 10)])
    functions = Cubes(np.nextafter(a, 0.0), np.ones(len(a), dtype=bool), [])
    low, high = a, np.zeros(len(a))
    found, evaluations = bracketed_roots(functions, low, high, functions.excess(low), functions.excess(high))
    assert np.all(np.abs(found - a) <= 1e-15 + 4.5e-16 * np.abs(a))
    assert evaluations.max() < 130


def kinked(q: Floats) -> Floats:
    return np.asarray(np.maximum(q - 1.3, 0.0) + 1.0 / q)


@pytest.mark.parametrize("fall", [0, 2])
def test_values_are_the_functions_own(fall: int) -> None:
    q = np.geomspace(1e-6, 1e4, 3 * MANY)
    found = OctaveCache(lambda q: np.asarray(1.0 / (q * (1.0 + q))), fall)(q)
    np.testing.assert_allclose(found, 1.0 / (q * (1.0 + q)), rtol=2.0 * ERROR)


def test_kinks_and_missing_values_are_evaluated() -> None:
    q = np.geomspace(0.1, 10.0, 3 * MANY)
    np.testing.assert_allclose(OctaveCache(kinked)(q), kinked(q), rtol=2.0 * ERROR)
    partly = OctaveCache(lambda q: np.where(q < 2.0, np.nan, np.log(q)))(q)
    np.testing.assert_allclose(partly, np.where(q < 2.0, np.nan, np.log(q)), rtol=2.0 * ERROR)


def test_what_is_no_normal_number_is_evaluated() -> None:
    odd = np.array([0.0, 5e-324, 1e-310, np.inf, np.nan, -1.0, -0.0])
    q = np.concatenate([np.geomspace(1e-3, 1.0, MANY), odd])
    found = OctaveCache(lambda q: np.asarray(q * 2.0))(q)
    np.testing.assert_array_equal(found[MANY:], odd * 2.0)


def test_values_do_not_depend_on_earlier_calls() -> None:
    q = np.geomspace(1e-3, 1e3, MANY)
    fresh, used = OctaveCache(np.sqrt), OctaveCache(np.sqrt)
    for other in (q * 1e5, q[:5], q / 3.0):
        used(other)
    np.testing.assert_array_equal(used(q), fresh(q))
    np.testing.assert_array_equal(fresh(q[: MANY - 1]), np.sqrt(q[: MANY - 1]))


def test_scattered_numbers_have_no_tables() -> None:
    q = 2.0 ** np.linspace(-2.0 * SCATTERED, 2.0 * SCATTERED, MANY)
    np.testing.assert_array_equal(OctaveCache(np.sqrt)(q), np.sqrt(q))
