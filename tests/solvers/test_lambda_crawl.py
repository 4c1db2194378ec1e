"""LambdaCrawl and its approximation against a dual bound in extended precision and the paper's statements."""

import ast
import inspect
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.solvers import lambda_crawl
from freshopt.solvers.lambda_crawl import LambdaCrawl
from freshopt.solvers.lambda_crawl_approx import LambdaCrawlApprox
from freshopt.solvers.water_filling import WaterFilling
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, HARMONIC_PERIODIC, present
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
KINDS = {"silent": 0.0, "few signals": 0.04, "half signals": 0.5, "signalled": 1.0}


class Instance:
    """Random sources; on `ill` data importances span 12 decades and change rates 10."""

    def __init__(self, n: int, kind: str, scale: str, seed: int) -> None:
        rng = np.random.default_rng([n, seed, len(kind), len(scale)])
        wide = scale == "ill"
        self.d: Floats = 10.0 ** (rng.uniform(-6, 4, n) if wide else rng.uniform(-1, 1, n))
        self.w: Floats = 10.0 ** (rng.uniform(-6, 6, n) if wide else rng.uniform(-1, 1, n))
        self.signalled: Flags = rng.random(n) < KINDS[kind]
        self.bandwidth = float(self.d.sum() * 10.0 ** rng.uniform(-3.0, np.log10(20.0)))

    @property
    def problem(self) -> fo.Problem:
        sources = fo.Sources(self.d, self.w, signalled=self.signalled)
        return fo.Problem(HARMONIC, sources, self.bandwidth)

    def cost(self, rates: npt.ArrayLike) -> float:
        """Σ w·log(1+Δ/ρ) over silent sources, Σ w·log(Δ/ρ) over signalled ones."""
        r = np.asarray(rates, dtype=np.longdouble)
        silent = np.log1p(self.d / r)
        return float(np.sum(self.w * np.where(self.signalled, np.log(self.d / r), silent)))

    def price(self) -> float:
        """Bisect log λ until the demands fill the bandwidth; 0 if all signals can be followed."""
        if self.signalled.all() and self.d.sum() <= self.bandwidth:
            return 0.0
        low, high = np.longdouble(-200), np.longdouble(200)
        for _ in range(100):
            middle = (low + high) / 2
            short = self.demand(np.exp(middle)).sum() > self.bandwidth
            low, high = (middle, high) if short else (low, middle)
        return float(np.exp(low))

    def demand(self, price: Any) -> npt.NDArray[np.longdouble]:  # noqa: ANN401 - a longdouble
        a = self.w / np.longdouble(price)
        silent = 2 * a / (1 + np.sqrt(1 + 4 * a / self.d))
        rates: npt.NDArray[np.longdouble] = np.where(self.signalled, np.minimum(a, self.d), silent)
        return rates

    def bound(self) -> tuple[float, float]:
        """Return the dual's lower bound on every policy's cost, and the scale on which gaps are measured."""
        price = self.price()
        if price == 0.0:
            return 0.0, float(self.w.sum())
        rates = self.demand(price)
        bound = self.cost(rates) + float(price * (rates.sum() - self.bandwidth))
        return bound, bound + price * self.bandwidth


@matrix(scale=["benign", "ill"], kind=KINDS, n=[1, 2, 3, 17, 250, 1000], every=4)
def test_no_policy_costs_less(n: int, kind: str, scale: str) -> None:
    for seed in range(3 if n < 1000 else 1):
        truth = Instance(n, kind, scale, seed)
        solution = fo.solve(truth.problem, LambdaCrawl())
        bound, unit = truth.bound()
        assert truth.cost(solution.rates) - bound <= SCALAR * unit
        assert present(solution.certificate).relative_gap <= SCALAR or present(solution.certificate).vanishing
        assert present(solution.certificate).infeasibility == 0.0
        used = float(solution.rates.sum())
        everything = bool(truth.signalled.all()) and float(truth.d.sum()) <= truth.bandwidth
        assert abs(used / (truth.d.sum() if everything else truth.bandwidth) - 1.0) <= EXACT
        if scale == "benign":
            assert abs(solution.price - truth.price()) <= 1e-5 * truth.price()  # the split is known to √eps


@matrix(scale=["benign", "ill"], n=[1, 2, 40, 1000])
def test_brackets_hold_price_and_split(n: int, scale: str) -> None:
    for seed in range(20):
        silent = Instance(n, "silent", scale, seed)
        low, high = lambda_crawl.price_bracket(silent.w, silent.d, silent.bandwidth)
        assert low - EXACT <= np.log(silent.price()) <= high + EXACT
        mixed = Instance(n + 1, "half signals", scale, seed)
        mixed.signalled[:2] = True, False
        loud, rates = mixed.signalled, mixed.demand(mixed.price())
        low, high = lambda_crawl.split_bracket(
            mixed.w[~loud], mixed.d[~loud], mixed.w[loud], mixed.d[loud], mixed.bandwidth
        )
        assert low - SCALAR <= np.log(float(rates[loud].sum() / rates[~loud].sum())) <= high + SCALAR


def test_without_caps_signalled_rates_are_proportional_to_importance() -> None:
    d, w = np.array([5.0, 9.0, 7.0]), np.array([1.0, 2.0, 3.0])
    problem = fo.Problem(HARMONIC, fo.Sources(d, w, signalled=True), bandwidth=3.0)
    solution = fo.solve(problem, LambdaCrawl())
    assert np.allclose(solution.rates, 3.0 * w / 6.0, rtol=EXACT, atol=0.0)  # Proposition 5
    assert abs(solution.price - 2.0) <= EXACT


@pytest.mark.parametrize("seed", range(8))
def test_signalled_sources_at_their_cap_are_those_of_the_best_subset(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, w = 10.0 ** rng.uniform(-2, 1, 7), 10.0 ** rng.uniform(-1, 2, 7)
    bandwidth = float(d.sum() * rng.uniform(0.1, 0.98))
    costs = []
    for capped in itertools.product([True, False], repeat=7):
        full = np.array(capped)
        left = bandwidth - d[full].sum()
        if left > 0.0 and not full.all():
            rates = np.where(full, d, left * w / w[~full].sum())
            if np.all(rates <= d):
                costs.append(float(np.sum(w * np.log(d / rates))))
    problem = fo.Problem(HARMONIC, fo.Sources(d, w, signalled=True), bandwidth)
    assert abs(fo.solve(problem, LambdaCrawl()).value / min(costs) - 1.0) <= EXACT


def test_all_signals_are_followed_where_that_is_best() -> None:
    sources = fo.Sources([0.5, 2.0, 1.0, 4.0], [9.0, 30.0, 1.0, 2.0], signalled=[1, 1, 0, 0])
    rates = fo.solve(fo.Problem(HARMONIC, sources, bandwidth=4.0), LambdaCrawl()).rates
    assert rates[:2].tolist() == [0.5, 2.0]
    assert abs(rates[2:].sum() - 1.5) <= EXACT
    alone = fo.Problem(HARMONIC, sources.take(np.array([0, 1])), bandwidth=2.5)
    solution = fo.solve(alone, LambdaCrawl())
    assert (solution.value, solution.price, solution.rates.tolist()) == (0.0, 0.0, [0.5, 2.0])


@pytest.mark.parametrize("signalled", [False, True, [True, False, False, True]])
def test_sources_of_no_importance_get_nothing(signalled: Any) -> None:  # noqa: ANN401 - a flag or several
    sources = fo.Sources([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 2.0], signalled=signalled)
    solution = fo.solve(fo.Problem(HARMONIC, sources, bandwidth=1.0), LambdaCrawl())
    assert solution.rates[[0, 2]].tolist() == [0.0, 0.0]
    assert abs(solution.rates.sum() - 1.0) <= EXACT
    nothing = fo.Sources([1.0, 2.0, 3.0, 4.0], 0.0, signalled=signalled)
    solution = fo.solve(fo.Problem(HARMONIC, nothing, bandwidth=1.0), LambdaCrawl())
    assert (solution.status, solution.price, solution.rates.tolist()) == (fo.Status.OPTIMAL, 0.0, [0.0] * 4)


def test_a_common_cost_is_a_unit_of_bandwidth() -> None:
    plain, dear = (
        fo.solve(
            fo.Problem(
                HARMONIC,
                fo.Sources([1.0, 2.0, 5.0], [3.0, 1.0, 2.0], signalled=[0, 0, 1], refresh_cost=cost),
                bandwidth=2.0 * cost,
            ),
            LambdaCrawl(),
        )
        for cost in (1.0, 3.0)
    )
    assert np.allclose(dear.rates, plain.rates, rtol=EXACT, atol=0.0)
    assert abs(dear.price / plain.price * 3.0 - 1.0) <= SCALAR


@pytest.mark.parametrize("solver", [LambdaCrawl(), LambdaCrawlApprox()])
@pytest.mark.parametrize(
    ("objective", "columns", "limits", "reason"),
    [
        (BINARY, {}, None, "not BinaryFreshness"),
        (DELAY, {}, None, "not AccumulatedDelay"),
        (HARMONIC_PERIODIC, {}, None, "not Refresh.PERIODIC"),
        (HARMONIC, {"min_rate": [0.0, 0.1]}, None, "no min_rate, here of source 1"),
        (HARMONIC, {"max_rate": [9.0, np.inf]}, None, "no max_rate, here of source 0"),
        (HARMONIC, {"max_rate": 0.5, "signalled": True}, None, "no max_rate"),
        (HARMONIC, {"refresh_cost": [1.0, 2.0]}, None, "costs differ"),
        (HARMONIC, {"host": ["a", "b"]}, {"b": 0.1}, "no host limits, here on 'b'"),
    ],
)
def test_refusals_say_why(
    solver: Any,  # noqa: ANN401 - one of two solvers
    objective: fo.Objective,
    columns: dict[str, Any],
    limits: dict[str, float] | None,
    reason: str,
) -> None:
    problem = fo.Problem(objective, fo.Sources([1.0, 2.0], **columns), 1.0, limits)
    refused(reason, fo.solve, problem, solver, error=fo.SolverRefusedError)


def test_a_cap_at_the_change_rate_is_the_signals_own() -> None:
    sources = fo.Sources([1.0, 2.0], signalled=True, max_rate=[1.0, 7.0])
    assert LambdaCrawl().supports(fo.Problem(HARMONIC, sources, 1.0)) is None


def test_tolerance_steers_the_search() -> None:
    truth = Instance(60, "half signals", "benign", 3)
    rough = fo.solve(truth.problem, LambdaCrawl(tolerance=0.1), throw=False)
    fine = fo.solve(truth.problem, LambdaCrawl())
    assert rough.iterations < fine.iterations / 5
    assert SCALAR < present(rough.certificate).relative_gap < 0.01
    for bad in (0.0, 0.5, -1.0, float("nan")):
        refused("tolerance", LambdaCrawl, tolerance=bad, error=fo.SolverRefusedError)


def test_it_agrees_with_the_dual_and_borrows_nothing_from_it() -> None:
    agreement = fo.cross_check(
        Instance(300, "half signals", "ill", 0).problem, [LambdaCrawl(), WaterFilling(), LambdaCrawlApprox()]
    )
    assert agreement.agrees
    for module in (lambda_crawl, inspect.getmodule(LambdaCrawlApprox)):
        tree = ast.parse(inspect.getsource(present(module)))
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imported.isdisjoint(
            {"freshopt.solvers.water_filling", "freshopt.dual_search.price_bracketing"}
        )


@pytest.mark.parametrize("kind", ["silent", "half signals"])
def test_the_approximation_is_exact_where_the_ratio_is_constant(kind: str) -> None:
    truth = Instance(80, kind, "benign", 1)
    truth.w = np.where(truth.signalled, truth.w, 0.7 * truth.d)  # Proposition 9
    exact, share = fo.solve(truth.problem, LambdaCrawl()), fo.solve(truth.problem, LambdaCrawlApprox())
    assert share.status is fo.Status.OPTIMAL
    assert np.allclose(share.rates, exact.rates, rtol=1e-6, atol=0.0)  # the split is known to √eps
    if kind == "silent":
        closed = truth.w * truth.bandwidth / truth.w.sum()
        assert np.allclose(share.rates, closed, rtol=EXACT, atol=0.0)
        assert np.allclose(exact.rates, closed, rtol=SCALAR, atol=0.0)


def test_elsewhere_the_approximation_is_a_baseline_with_the_best_split_for_its_shares() -> None:
    truth = Instance(80, "half signals", "benign", 2)
    solution = fo.solve(truth.problem, LambdaCrawlApprox())
    loud, w = truth.signalled, truth.w
    assert solution.status is fo.Status.INACCURATE
    assert 1e-4 < present(solution.certificate).relative_gap < 0.5
    part = float(solution.rates[~loud].sum())
    assert np.allclose(solution.rates[~loud], part * w[~loud] / w[~loud].sum(), rtol=EXACT, atol=0.0)
    for step in (-0.01, 0.01):
        other = np.array(solution.rates)
        other[~loud] *= 1.0 + step
        free = loud & (other < truth.d * (1.0 - 0.05))
        other[free] -= step * part * other[free] / other[free].sum()
        assert truth.cost(other) > truth.cost(solution.rates)
