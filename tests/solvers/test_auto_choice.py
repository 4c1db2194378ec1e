"""What `Auto` makes of declarations on which Newton's method settles soon, late, or has no price to find."""

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.solvers import SeparableNewton, WaterFilling
from tests.ground_truth.tolerances import EXACT

D, W = np.random.default_rng(3).lognormal(0.0, 1.0, (2, 50))


class Stock(fo.Objective):
    """w·(x + 1/x) with x = ρ/Δ, least at x = 1."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        x = cp.multiply(1.0 / sources.change_rate, rate)
        return cp.multiply(sources.importance, cp.inv_pos(x) + x)


@pytest.mark.parametrize(
    ("share", "kind", "note"),
    [
        (0.03, SeparableNewton, "derived from the declaration"),
        (0.999, WaterFilling, "Newton's steps did not settle"),
        (3.0, WaterFilling, "less would cost less"),
    ],
)
def test_costs_that_rise_again(share: float, kind: type, note: str) -> None:
    solution = fo.solve(fo.Problem(Stock(), fo.Sources(D, W), bandwidth=share * float(D.sum())))
    assert type(solution.solver) is kind
    assert note in solution.note
    # At the price λ, x = √(w/(w + λΔ)).
    rates = D * np.sqrt(W / (W + solution.price * D))
    assert solution.rates == pytest.approx(rates, rel=1e-9)
    assert solution.rates.sum() == pytest.approx(min(share, 1.0) * D.sum(), rel=EXACT)
    assert solution.certificate.relative_gap <= EXACT
