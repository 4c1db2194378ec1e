"""The relative gap: neither a price, a constant of the cost nor a part of the sources hides a loss in it."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.solvers import SeparableNewton, WaterFilling
from freshopt.testing import assert_optimal
from tests.contracts import discovery
from tests.ground_truth import truth
from tests.ground_truth.cases import as_problem
from tests.ground_truth.cell_truth import CURVES
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present, written
from tests.ground_truth.strata import matrix, stratified
from tests.ground_truth.strategies import FAMILIES, FETCHED, PLAIN, constrained, sample
from tests.ground_truth.tolerances import SCALAR
from tests.ground_truth.truth import Floats


class Constant(fo.Objective):
    """Binary freshness, declared as a user does, plus a constant of no consequence."""

    sense = "maximise"

    def __init__(self, constant: float) -> None:
        self.constant = constant

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return self.constant - cp.multiply(sources.change_rate, cp.inv_pos(rate + sources.change_rate))


# A cost that becomes small but never 0.
Exponential = written(
    "Exponential",
    lambda rate, sources: cp.multiply(
        sources.importance, cp.exp(cp.multiply(-3.0 / sources.change_rate, rate))
    ),
)


OWN = {"declared": discovery.Cell(Constant(7.0)), "exponential": discovery.Cell(Exponential())}
CELLS = discovery.cells() | OWN
PLAINLY = [name for name, cell in CELLS.items() if cell.fetches == "plain" and not cell.on_request]
SITUATIONS = (*FAMILIES, "tight", "scarce")
FREE = (1e-3, 1e-6, 1e-9, 1e-12, 1e-13, 1e-14)  # of a limit, beyond min_rate
PARTS = (("source", 1e-4), ("host", 1e-6), ("light", 1e-2), ("exchange", 1e-3))
TIGHT = 1e-7  # of a host's limit that family "tight" leaves free
ULPS = 8 * np.finfo(float).eps  # of a limit, to which it is met


def perturbed(problem: fo.Problem, rates: Floats, part: str, delta: float) -> Floats:
    """Take the share delta of its free rate from each source of a part; "exchange" gives one's to another."""
    free, n = np.array(rates - problem.lower), len(rates)
    weight = np.argsort(np.argsort(problem.sources.column("importance")))
    largest = int(np.argmax(free * problem.sources.refresh_cost))
    chosen = {
        "source": np.arange(n) == largest,
        "host": problem.hosts.codes == 0 if len(problem.hosts) else np.arange(n) % 2 == 0,
        "light": weight < n // 2,
        "exchange": np.arange(n) == largest,
    }[part]
    found = rates - np.where(chosen, delta * free, 0.0)
    if part == "exchange":
        cost, host = problem.sources.refresh_cost, problem.hosts.codes
        other = [k for k in range(n) if k != largest and host[k] == host[largest] and free[k] > 0.0]
        if other:
            given = min(cost[largest] * delta * free[largest], cost[other[0]] * delta * free[other[0]])
            found[largest] = rates[largest] - given / cost[largest]
            found[other[0]] = min(problem.upper[other[0]], rates[other[0]] + given / cost[other[0]])
    return np.maximum(problem.lower, found)


def half_used(used: Callable[[Floats], Any], rates: Floats) -> Floats:
    """Return the rates that use half as much bandwidth: half of them where all fetches cost the same."""
    target, low, high = 0.5 * np.asarray(used(rates), float), np.zeros(len(rates)), np.array(rates)
    for _ in range(80):
        middle = 0.5 * (low + high)
        less = np.asarray(used(middle), float) <= target
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return low


def least_gap(loss: float, halving: float) -> float:
    """Return the smallest relative gap that the definition allows: δ/(3 + 2δ) for a loss of δ·H."""
    share = loss / halving if halving > 0.0 else 0.0
    return share / (3.0 + 2.0 * share) if share < math.inf else 0.5


def require_no_hiding(problem: fo.Problem, rates: Floats, loss: float, halving: float) -> None:
    """Certify with prices good, searched for, zero and absurd: the loss shows with all of them."""
    best = fo.solve(problem, throw=False)
    good = dict(best.host_prices)
    rounding = ULPS / TIGHT if problem.lower.any() else 0.0
    proofs = [fo.certify(problem, rates, best.price, good), fo.certify(problem, rates)]
    for factor in (0.0, 1e3, 1e12):
        scaled = {host: factor * max(price, best.price) for host, price in good.items()}
        proofs.append(fo.certify(problem, rates, factor * best.price, good))
        proofs.append(fo.certify(problem, rates, best.price, scaled))
    for proof in proofs:
        assert proof.infeasibility == 0.0
        assert proof.relative_gap >= least_gap(loss, halving)
        assert proof.beyond_rounding >= least_gap(loss, halving) - rounding
        assert not proof.confirms(0.9 * (least_gap(loss, halving) - rounding)) or loss == 0.0
    # With good prices the gap is the loss, but for the rounding of limits, at their prices.
    limits = np.append(problem.bandwidth, problem.hosts.limits)
    for proof in sorted(proofs[:2], key=lambda proof: proof.gap)[:1]:
        rounding = 1e-15 * float(np.append(proof.price, list(proof.host_prices.values())) @ limits)
        assert proof.gap <= 5.0 * loss + SCALAR * abs(best.value) + rounding or loss == 0.0


def tight(plain: truth.Instance) -> truth.Instance:
    """Return the instance with a min_rate that leaves next to nothing of the limit of host 0."""
    first = int(np.flatnonzero(plain.host == 0)[0])
    lower = np.zeros(len(plain.host))
    lower[first] = plain.limits[0] * (1.0 - TIGHT) / plain.cost[first]
    return dataclasses.replace(plain, lower=lower)


@functools.cache
def optimum(cell: str, family: str) -> tuple[fo.Problem, fo.Solution] | None:
    """Return a problem and its solution, or None where the objective does not exist there."""
    n, rng = 8, np.random.default_rng(8)
    d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    kind = "hosts" if family == "tight" else "none" if family == "scarce" else family
    budget = {"scarce": 1e-9}.get(family, 0.5) * float(d.sum())
    plain = constrained(rng, "binary", "poisson", kind, d, w, budget)
    plain = tight(plain) if family == "tight" else plain
    problem = CELLS[cell].problem(plain, n)
    return None if problem is None else (problem, fo.solve(problem))


def cost_at(problem: fo.Problem, rates: Floats) -> float:
    solved = problem.per_bandwidth or problem
    used = rates if solved is problem else problem.used_by_source(rates)
    with np.errstate(all="ignore"):
        return float(np.sum(present(solved.numerics).cost(used)))


@pytest.mark.parametrize(
    ("cell", "family"),
    [
        *stratified(PLAINLY, SITUATIONS, every=3 * len(PARTS)),
        *stratified([name for name in CELLS if name not in PLAINLY], SITUATIONS, every=17 * len(PARTS)),
    ],
)
@pytest.mark.sampled(5)
def test_no_loss_is_hidden_in_any_objective(cell: str, family: str) -> None:
    found = optimum(cell, family)
    if found is None:
        return
    problem, best = found
    place = list(CELLS).index(cell) + SITUATIONS.index(family)
    rates = perturbed(problem, best.rates, *PARTS[place // len(PARTS) % len(PARTS)])
    cost = cost_at(problem, rates)
    noise = 1e-14 * (abs(cost) + float(np.sum(problem.sources.importance)))
    loss = max(0.0, cost - cost_at(problem, best.rates) - noise)
    halving = cost_at(problem, half_used(problem.used_by_source, rates)) - cost + noise
    require_no_hiding(problem, rates, loss, halving)


@pytest.mark.parametrize(
    ("curve", "discipline", "family", "part"),
    [
        *stratified(CURVES, PLAIN, (*FAMILIES, "tight"), PARTS[:2], every=6),
        *stratified(CURVES, FETCHED, FAMILIES, PARTS[:2], every=30, of=3),
    ],
)
@pytest.mark.sampled(5)
def test_no_true_loss_is_hidden(curve: str, discipline: str, family: str, part: tuple[str, float]) -> None:
    """Losses in 40 digits against the optimum of the ground truth."""
    plain = sample(7, curve, discipline, "hosts" if family == "tight" else family, 5, budget=0.4)
    plain = tight(plain) if family == "tight" else plain
    problem, best = as_problem(plain), truth.best(plain)
    rates = perturbed(problem, best.rates, *part)
    rates = fo.certify(problem, rates, best.price).rates
    cost = truth.total_cost(plain, rates)
    loss = max(0.0, cost - best.value - 1e-14 * best.value)
    halving = truth.total_cost(plain, half_used(plain.used, rates)) - cost
    require_no_hiding(problem, rates, loss, halving)


def filled(limit: str, free: float) -> fo.Problem:
    """Return the harmonic problem of which min_rate leaves the share `free` of a host's limit or of all."""
    sources = fo.Sources([1.0] * 4, host=["a", "a", "b", "b"], min_rate=[1.0, 0.0, 0.0, 0.0])
    if limit == "host":
        return fo.Problem(HARMONIC, sources, 10.0, {"a": 1.0 + free})
    return fo.Problem(HARMONIC, sources, 1.0 + free)


@pytest.mark.parametrize("solver", [WaterFilling(), SeparableNewton()], ids=repr)
@matrix(free=FREE, limit=["host", "bandwidth"], every=2)
def test_an_exact_answer_is_optimal_and_says_where_rounding_is_all_that_is_left(
    limit: str,
    free: float,
    solver: Any,  # noqa: ANN401
) -> None:
    solution = fo.solve(filled(limit, free), solver)
    proof = solution.certificate
    assert solution.status is fo.Status.OPTIMAL
    assert proof is not None
    name = "the limit of host 'a'" if limit == "host" else "the bandwidth"
    if free > 1e-5:
        assert proof.relative_gap == proof.beyond_rounding <= SCALAR
        assert not proof.reason
    if free < 1e-8:
        assert proof.relative_gap > 1e-17 / free
        assert f"{free:.1g} of {name}" in proof.reason
        assert proof.reason in solution.note


@matrix(free=FREE, limit=["host", "bandwidth"], every=5)
def test_what_loses_more_than_rounding_is_refused(limit: str, free: float) -> None:
    """A third of what is free is left unused; all of it given to one; or the loss is at another host."""
    problem = filled(limit, free)
    best = np.array(fo.solve(problem).rates)
    spare = problem.bandwidth - 1.0 if limit == "bandwidth" else best[1]
    if spare > 5 * ULPS:  # a few ulp are three quarters of the last
        less = best - np.array([0.0, 0.9 * best[1], 0.0, 0.0])
        with pytest.raises(AssertionError, match="not proved optimal"):
            assert_optimal(problem, less, 1e-6)
    starved = np.array([1.0, 1e-30, best[2] + best[1] if limit == "bandwidth" else best[2], best[3]])
    with pytest.raises(AssertionError, match="not proved optimal"):
        assert_optimal(problem, starved, 1e-6)
    if limit == "host":
        with pytest.raises(AssertionError, match="not proved optimal"):
            assert_optimal(problem, best + np.array([0.0, 0.0, 2.0, -2.5]), 1e-6)


@pytest.mark.exhaustive
def test_constants_of_the_cost_hide_nothing() -> None:
    sources = fo.Sources([1.0, 2.0, 3.0])
    for bandwidth in (1e-6, 1e6):
        own, rates = (fo.Problem(BINARY, sources, bandwidth), bandwidth * np.array([0.2, 0.2, 0.6]))
        expected = fo.certify(own, rates).relative_gap
        assert expected > 1e-3
        for constant in (0.0, 1e3):
            proof = fo.certify(fo.Problem(Constant(constant), sources, bandwidth), rates)
            assert expected / 3.0 <= proof.relative_gap <= 3.0 * expected
    pinned = fo.Sources([1.0, 1.0, 1.0], [1e12, 1.0, 1.0], min_rate=[1.0, 0.0, 0.0], max_rate=[1.0, 9.0, 9.0])
    proof = fo.certify(fo.Problem(DELAY, pinned, 3.0), [1.0, 1.5, 0.5])
    assert proof.relative_gap > 0.1


def test_little_bandwidth_hides_nothing() -> None:
    """Nearly everything is stale whatever is done; but these rates lose most of the freshness there is."""
    problem = fo.Problem(BINARY, fo.Sources([1.0, 1.0], [1.0, 1e-3]), 1e-9)
    proof = fo.certify(problem, [0.0, 1e-9])
    assert proof.value < 2e-3 * fo.solve(problem).value
    assert proof.relative_gap > 0.3
    with pytest.raises(AssertionError, match="not proved optimal"):
        assert_optimal(problem, [0.0, 1e-9], 1e-6)


def test_min_rates_that_use_up_everything_leave_nothing_to_prove() -> None:
    """Sums of least rates that are the bandwidth but for the last bit are no reason for a warning."""
    lower = np.full(10, 0.1)
    for bandwidth in (1.0, math.nextafter(1.0, 2.0), math.fsum(lower)):
        solution = fo.solve(fo.Problem(HARMONIC, fo.Sources(np.arange(1.0, 11.0), min_rate=lower), bandwidth))
        assert present(solution.certificate).relative_gap <= 1e-12
        assert not present(solution.certificate).reason
