"""Logarithm and exponential as compiled loops use them, against mpmath."""

import mpmath
import numpy as np
import pytest
from numba import njit

from freshopt.compiled import loops
from freshopt.numerics.vector_math import fast_exp, fast_log


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
