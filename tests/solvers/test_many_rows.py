"""Rows without a structure: so many as Newton's matrix has room for, and no more."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import HarmonicStaleness
from freshopt.solvers import Conic, InteriorPoint


def crossing(n: int, groups: int) -> fo.Problem:
    """Return a problem with two partitions into groups that cross each other."""
    rng = np.random.default_rng(groups)
    limits = dict.fromkeys(range(groups), 1.5 * n / groups)
    budgets = [
        fo.Budget(limits, by=rng.permutation(np.arange(n) % groups), cost=rng.uniform(0.5, 2.0, n), name=name)
        for name in "ab"
    ]
    return fo.Problem(HarmonicStaleness(), fo.Sources(rng.uniform(1.0, 2.0, n)), constraints=budgets)


def test_a_matrix_without_room_is_refused_in_one_line() -> None:
    problem = crossing(20_000, 10_000)
    with pytest.raises(
        fo.SolverRefusedError, match=r"20,000 rows .* 3\.2 GB; it takes 15,811 such rows"
    ) as refused:
        fo.solve(problem)
    assert "\n" not in str(refused.value)


def test_few_enough_rows_are_solved() -> None:
    found = fo.solve(crossing(3000, 100))
    assert found.certificate is not None
    assert found.certificate.relative_gap <= 1e-12


def test_auto_asks_the_cone_solver_only_of_few_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshopt.solvers.interior_point.CELLS", 100)
    few, (refusing, conic) = crossing(60, 6), (InteriorPoint(), Conic())
    assert refusing.supports(few) is not None
    note = fo.solve(few).note
    assert note.startswith(f"Auto chose {conic}: 12 rows that share sources need a matrix")
