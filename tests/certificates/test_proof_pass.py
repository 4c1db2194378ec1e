"""Certificates by one compiled pass against those of NumPy, which tests hold against exact optima."""

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.certificate import TIGHT, certify_in_one_pass
from freshopt.certificates.proof_pass import proof_columns, proved_gap
from freshopt.problems import BinaryCost, PollingKnapsack, PowerCost, SynchronizationCost
from tests.ground_truth import named
from tests.ground_truth.named import present
from tests.ground_truth.refusals import refused

# Its loops take long to compile.
pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("all_compiled")]

N = 1000
OBJECTIVES = [
    named.HARMONIC,
    named.HARMONIC_PERIODIC,
    named.BINARY,
    named.BINARY_PERIODIC,
    PollingKnapsack("polls"),
    PollingKnapsack("materials"),
    named.DELAY,
    named.DELAY_PERIODIC,
    named.AGE,
    named.AGE_PERIODIC,
    SynchronizationCost(PowerCost(2.0, 0.7)),
    SynchronizationCost(BinaryCost()),
]

CASES = [
    (objective, family)
    for objective in OBJECTIVES
    for family in ("plain", "hosts", "signals")
    if family != "signals" or objective.refuses_signals() is None
]


def problem(objective: fo.Objective, *, hosts: bool = False, signals: bool = False, n: int = N) -> fo.Problem:
    """Return weights 1e±6, rates 1e-6..1e4, ties, zeros, active bounds, unequal costs."""
    rng = np.random.default_rng(n)
    d, w = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    d[: n // 10], w[n // 5 :: 11] = d[0], 0.0
    share = 0.4 * float(d.sum()) / n
    host = rng.integers(0, n // 20 + 1, n)
    sources = fo.Sources(
        d,
        w,
        min_rate=np.where(rng.random(n) < 0.2, np.minimum(0.1 * share, 0.5 * d), 0.0),
        max_rate=np.where(rng.random(n) < 0.2, share, np.inf),
        refresh_cost=10.0 ** rng.uniform(-0.5, 0.5, n),
        host=host if hosts else None,
        signalled=rng.random(n) < 0.5 if signals else False,
    )
    limits = dict.fromkeys(range(0, n // 20 + 1, 2), 20.0 * share) if hosts else None
    return fo.Problem(objective, sources, share * n, limits)


def feasible(task: fo.Problem, optimum: fo.Solution, off: float, rng: np.random.Generator) -> np.ndarray:
    moved = optimum.rates * np.exp(off * rng.uniform(-1.0, 1.0, len(optimum.rates)))
    repaired: np.ndarray = fo.certify(task, moved, optimum.price, optimum.host_prices).rates
    return repaired


@pytest.mark.parametrize(("objective", "family"), CASES, ids=repr)
def test_a_pass_proves_what_numpy_proves(
    monkeypatch: pytest.MonkeyPatch, objective: fo.Objective, family: str
) -> None:
    task = problem(objective, hosts=family == "hosts", signals=family == "signals")
    rng = np.random.default_rng(1)
    optimum = fo.solve(task)
    assert present(optimum.certificate).relative_gap < 1e-10
    prices = np.array(list(optimum.host_prices.values()))
    ratios = []
    for off in (0.0, 1e-9, 1e-5, 1e-2, 1.0):
        for priced in (1.0, 1.0 + 1e-7, 1.3):
            rates = feasible(task, optimum, off, rng)
            mine = present(proved_gap(task, rates, priced * optimum.price, priced * prices))
            with monkeypatch.context() as patch:
                patch.setenv("FRESHOPT_COMPILED", "0")
                host_prices = task.hosts.named(priced * prices)
                theirs = fo.certify(task, rates, priced * optimum.price, host_prices)
            assert mine.gap.value == pytest.approx(theirs.value, rel=1e-12)
            # Both bound the same gap; where that is rounding, they differ as they round. The pass has
            # tangents alone, whose terms are twice those of the dual function near the best response.
            if theirs.relative_gap > 1e-11:
                ratios.append(mine.gap_bound / theirs.gap)
    assert min(ratios) > 0.1
    assert np.median(ratios) < 2.0 * 3.0


@pytest.mark.exhaustive
def test_an_answer_is_proved_in_one_pass_and_a_poor_one_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = problem(named.HARMONIC)
    optimum = fo.solve(task)
    exact = present(certify_in_one_pass(task, optimum.rates, optimum.price))
    assert exact.relative_gap < 1e-13
    assert fo.certify(task, optimum.rates, optimum.price).gap == exact.gap
    poor = feasible(task, optimum, 0.1, np.random.default_rng(2))
    assert certify_in_one_pass(task, poor, optimum.price) is None
    found = fo.certify(task, poor, optimum.price)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    assert proof_columns(task) is None
    assert fo.certify(task, poor, optimum.price).gap == found.gap > TIGHT * found.value


def test_rates_that_are_not_feasible_are_repaired_first() -> None:
    task = problem(named.BINARY)
    optimum = fo.solve(task)
    none = np.zeros(0)
    for rates in (1.001 * optimum.rates, np.where(np.arange(N) == 7, -1.0, optimum.rates)):
        assert proved_gap(task, rates, optimum.price, none) is None
        assert fo.certify(task, rates, optimum.price).infeasibility > 0.0
    assert proved_gap(task, optimum.rates[1:], optimum.price, none) is None
    assert proved_gap(task, optimum.rates.astype(np.float32), optimum.price, none) is None
    unknown = np.where(np.arange(N) == 7, np.nan, optimum.rates)
    assert proved_gap(task, unknown, optimum.price, none) is None
    refused("not finite", fo.certify, task, unknown, optimum.price)


def test_objectives_without_a_cell_keep_the_other_certificate() -> None:
    flat = SynchronizationCost(PowerCost(2.0, 0.005), fo.Refresh.ON_REQUEST)
    own = fo.Problem(flat, fo.Sources(np.ones(N), request_rate=3.0), 1.0)
    assert proof_columns(own) is None
    assert fo.solve(own).certificate is not None


def test_one_source_and_prices_of_zero() -> None:
    one = fo.Problem(named.DELAY, fo.Sources([1.0]), bandwidth=2.0)
    assert proved_gap(one, np.array([2.0]), 0.25, np.zeros(0)) is not None
    assert fo.certify(one, [2.0], 0.25).relative_gap < 1e-15
    free = fo.Problem(named.BINARY, fo.Sources([1.0, 2.0], max_rate=1.0), bandwidth=5.0)
    solution = fo.solve(free)
    assert present(solution.certificate).relative_gap == 0.0
    assert solution.price == 0.0


@pytest.mark.exhaustive
def test_the_value_without_a_certificate_is_the_same() -> None:
    task = problem(named.HARMONIC, hosts=True)
    assert fo.solve(task, certify=False).value == pytest.approx(fo.solve(task).value, rel=1e-12)
