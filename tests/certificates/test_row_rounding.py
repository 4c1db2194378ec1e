"""Bounds of stored rates in floating point, against the exact gap in 60 digits."""

from __future__ import annotations

import numpy as np
import pytest

from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_repair import repair_rows
from tests.ground_truth.exact_gap import exact_gap
from tests.ground_truth.proof_programs import program_of
from tests.ground_truth.row_truth import planted

FAMILIES = ("budgets", "targets", "mixed")
# Rates and multipliers are off by so much; 0 leaves what rounding alone leaves.
OFF = (0.0, 1e-16, 1e-12, 1e-5)
BATCHES = [pytest.param(k, marks=[] if k == 0 else pytest.mark.exhaustive) for k in range(8)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch", BATCHES)
def test_bounds_hold_to_the_last_bit(batch: int) -> None:
    checks = beyond = 0
    for seed in range(18 * batch, 18 * batch + 18):
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        p = planted(rng, FAMILIES[seed % 3], ill=seed % 4 != 0, n=n, m=m)
        program = program_of(p)
        for off in OFF:
            rates = np.clip(p.rates * np.exp(off * rng.standard_normal(n)), p.lower, program.upper)
            y = p.y * np.exp(off * rng.standard_normal(m))
            found = repair_rows(program, rates)
            if found is None or bool(np.any(found.rates <= 0.0)):
                continue
            gap = RowGap.of(program, found.rates)
            bound, exact = gap.at(y), exact_gap(p, program.upper, found.rates, y)
            assert exact <= bound, (seed, off)
            checks += 1
            # Without what rounding may add to the rows' parts, some bounds fall short.
            beyond += exact > bound - float(np.sum(gap.row_terms(y) - np.where(y > 0.0, y * gap.slack, 0.0)))
    assert checks > 40
    assert beyond > 0
