"""The closed forms against the dual, on ill-scaled data, and where they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness, PollingKnapsack
from freshopt.solvers import ClosedForm
from tests.ground_truth.tolerances import EXACT

PERIODIC = fo.Refresh.PERIODIC
SIZES = (1, 2, 10, 1000)


def change_rates(n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return 10 ** np.random.default_rng(n).uniform(-6, 4, n)


def agree(problem: fo.Problem) -> None:
    closed, exact = fo.solve(problem, ClosedForm(), tolerance=EXACT), fo.solve(problem)
    assert np.all(np.abs(closed.rates - exact.rates) <= EXACT * exact.rates)
    assert abs(closed.price - exact.price) <= EXACT * exact.price
    assert abs(closed.value - exact.value) <= EXACT * abs(exact.value)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "objective",
    [HarmonicStaleness(), HarmonicStaleness(PERIODIC), BinaryFreshness(), BinaryFreshness(PERIODIC)],
    ids=repr,
)
def test_rates_follow_change_rates_where_importance_does(objective: fo.Objective, n: int) -> None:
    d = change_rates(n)
    problem = fo.Problem(objective, fo.Sources(d, 3.0 * d), 0.5 * float(d.sum()))
    rates = fo.solve(problem, ClosedForm()).rates
    assert np.all(np.abs(rates - 0.5 * d) <= EXACT * d)
    agree(problem)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("form", ["polls", "materials"])
def test_polls_follow_the_update_rates_without_weights(form: str, n: int) -> None:
    a = change_rates(n)
    objective = PollingKnapsack("polls" if form == "polls" else "materials")
    problem = fo.Problem(objective, fo.Sources(a, 2.0), 0.3 * float(a.sum()))
    assert np.all(np.abs(fo.solve(problem, ClosedForm()).rates - 0.3 * a) <= EXACT * a)
    agree(problem)


@pytest.mark.parametrize("n", SIZES)
def test_signalled_sources_follow_their_importance(n: int) -> None:
    w = change_rates(n)
    cost = np.linspace(1.0, 2.0, n)
    problem = fo.Problem(
        HarmonicStaleness(), fo.Sources(2.0 * w, w, signalled=True, refresh_cost=cost), 0.5 * float(w.sum())
    )
    assert np.all(np.abs(fo.solve(problem, ClosedForm()).rates - 0.5 * w / cost) <= EXACT * w)
    agree(problem)


@pytest.mark.parametrize("refresh", [fo.Refresh.POISSON, PERIODIC])
@pytest.mark.parametrize("n", SIZES)
def test_the_square_root_rule(n: int, refresh: fo.Refresh) -> None:
    d = change_rates(n)
    agree(
        fo.Problem(
            AccumulatedDelay(refresh), fo.Sources(d, d[::-1], refresh_cost=np.linspace(1.0, 2.0, n)), 7.0
        )
    )


@pytest.mark.parametrize(
    ("objective", "sources", "reason"),
    [
        (HarmonicStaleness(), fo.Sources([1.0, 2.0]), "importance/change_rate and cost are the same"),
        (BinaryFreshness(), fo.Sources([1.0, 2.0], [1.0, 2.0], refresh_cost=[1.0, 2.0]), "cost are the same"),
        (PollingKnapsack(), fo.Sources([1.0, 2.0], [1.0, 2.0]), "importance and cost are the same"),
        (AccumulatedDelay(), fo.Sources([1.0, 4.0], max_rate=[9.0, 1.2]), "bounds bind for source 1"),
        (HarmonicStaleness(), fo.Sources([1.0, 1.0], [1.0, 9.0], signalled=True), "bounds bind for source 1"),
    ],
)
def test_refusals(objective: fo.Objective, sources: fo.Sources, reason: str) -> None:
    with pytest.raises(fo.SolverRefusedError, match=f"ClosedForm does not apply: .*{reason}"):
        fo.solve(
            fo.Problem(objective, sources, 1.9 if reason.startswith("bounds bind") else 1.0), ClosedForm()
        )
