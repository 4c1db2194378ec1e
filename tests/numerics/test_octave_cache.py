"""Tables made on demand: right where they are used, and not used where they are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from freshopt.numerics.octave_cache import ERROR, MANY, SCATTERED, OctaveCache
from tests.ground_truth.cost_truth import Floats


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
