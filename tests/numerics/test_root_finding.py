"""`decreasing_root`: roots where rounding leaves a function the same over many ulp."""

import numpy as np
import pytest

from freshopt.numerics.arrays import Array, BoolArray
from freshopt.numerics.root_finding import decreasing_root


@pytest.mark.parametrize("root", [1e-10, 1e-6, 1e-2, 5.0])
def test_plateaus_of_rounding_take_few_steps(root: float) -> None:
    # Of 10⁴ − ρ, a projection's marginal: an ulp of it is 2e-12, and some 10⁴ ulp of the logarithm of ρ = 1.
    calls, level = 0, 1e4 - root

    def compare(x: Array) -> tuple[BoolArray, Array]:
        nonlocal calls
        calls += 1
        value = 1e4 - np.exp(x)
        return value > level, np.log(value / level) * value / np.exp(x)

    found = decreasing_root(compare, np.ones(1))
    assert found == pytest.approx([root], abs=4e-12)
    assert calls < 100
