"""Small gains, log freshness and the polling knapsack, in many digits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import mpmath
import numpy as np
import polars as pl
import pytest
from scipy.special import expn, gammainc

import freshopt as fo
from freshopt.cvx import cp
from freshopt.modelling.objective import value_at
from freshopt.pipelines import IndependentPhases, PipelineReplay, replay_pipeline
from freshopt.problems import BinaryFreshness, PollingKnapsack
from freshopt.scheduling.expected_cost import expected_value
from tests.ground_truth.cost_truth import Floats, market
from tests.ground_truth.named import BINARY, BINARY_PERIODIC, HARMONIC, LOG, LOG_PERIODIC, PERIODIC, present
from tests.ground_truth.partitioned import write
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

mp = mpmath.MPContext()
mp.dps = 60
GAINED = 1e-13


def fresh_in_a_period(u: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    return (1 - mp.exp(-u)) / u


# What a source of weight 1 gains at Δ/ρ = u, and Δ.
GAINS: list[tuple[fo.Objective, bool, Callable[[Any, Any], Any]]] = [
    (BINARY, False, lambda u, _: 1 / (1 + u)),
    (BINARY_PERIODIC, False, lambda u, _: fresh_in_a_period(u)),
    (BINARY, True, lambda u, _: min(1, 1 / u)),
    (BINARY_PERIODIC, True, lambda u, _: min(1, 1 / u)),
    (PollingKnapsack("polls"), False, lambda u, d: d * fresh_in_a_period(u)),
    (PollingKnapsack("materials"), False, lambda u, d: d / u * (1 - mp.expint(2, u))),
]
RATIOS = 10.0 ** np.arange(-18, 18.5, 4.5)


@pytest.mark.parametrize(("objective", "signalled", "gain"), GAINS)
@pytest.mark.sampled(3)
def test_gains_over_36_decades(
    objective: fo.Objective, signalled: bool, gain: Callable[[Any, Any], Any]
) -> None:
    for d in (1.0, 3e7):
        for ratio in RATIOS[RATIOS >= 1.0] if signalled else RATIOS:
            rate = d / ratio
            problem = fo.Problem(objective, fo.Sources([d], [0.7], signalled=signalled), rate)
            exact = 0.7 * gain(mp.mpf(d) / mp.mpf(rate), mp.mpf(d))
            certificate = fo.certify(problem, [rate])
            assert abs(certificate.value - exact) <= GAINED * exact
            # The source takes all bandwidth: the bound is the value but for what proves it.
            solution = fo.solve(problem)
            assert abs(solution.value - exact) <= GAINED * exact
            assert exact * (1 - GAINED) <= present(solution.certificate).bound <= exact * (1 + 1e-11)
            assert f"{float(exact):.9g}" in repr(solution)
            plain = fo.solve(problem, certify=False)
            assert abs(plain.value - exact) <= GAINED * exact


def test_all_kinds_of_sources_together() -> None:
    d, w = 10.0 ** np.linspace(0, 18, 20), np.linspace(0.0, 2.0, 20)
    signalled = np.arange(20) % 2 == 0
    rates = np.ones(20)
    problem = fo.Problem(BINARY, fo.Sources(d, w, signalled=signalled), 20.0)
    each = [
        mp.mpf(x) / (mp.mpf(y) + (0 if known else 1)) for x, y, known in zip(w, d, signalled, strict=True)
    ]
    assert abs(fo.certify(problem, rates).value - sum(each)) <= GAINED * sum(each)
    part = fo.Problem(BINARY, problem.sources.take(np.arange(15, 20)), 5.0)
    assert abs(fo.certify(part, rates[15:]).value - sum(each[15:])) <= GAINED * sum(each[15:])


@matrix(refresh=[fo.Refresh.POISSON, PERIODIC], every=2)
def test_partitions(tmp_path: Path, refresh: fo.Refresh) -> None:
    files = write(tmp_path, pl.DataFrame({"change_rate": np.full(100, 1e18)}), 2)
    found = fo.distributed.solve(BinaryFreshness(refresh), files, 100.0)
    assert found.value == pytest.approx(1e-16, rel=GAINED)
    assert found.bound == pytest.approx(1e-16, rel=1e-11)


def test_a_schedule_of_fast_sources() -> None:
    sources = fo.Sources([1e18])
    schedule = fo.Schedule(source=[0, 0], time=[0.0, 0.5], horizon=1.0, rates=[2.0])
    assert expected_value(schedule, BINARY, sources) == pytest.approx(2e-18, rel=GAINED)


def test_a_minimised_stale_share_stays_one() -> None:
    objective = fo.problems.SynchronizationCost(fo.problems.BinaryCost())
    problem = fo.Problem(objective, fo.Sources([1e18]), 1.0)
    assert value_at(objective, present(problem.numerics), problem.sources, np.ones(1), 0.25) == 0.25
    assert fo.solve(problem).value == 1.0


LOG_RATIOS = np.logspace(-8.0, 8.0, 65)  # changes per refresh


def exact_cost(d: float, rate: float) -> mpmath.mpf:
    """−log of the share of a period before the first change, ∫₀¹ e^{−ut} dt."""
    u = mp.mpf(d) / mp.mpf(rate)
    return -mp.log(-mp.expm1(-u) / u)


def test_cost_is_the_logarithm_of_the_mean_over_a_period() -> None:
    for rate in (0.02, 0.3, 5.0, 700.0):
        u = mp.mpf(1.7) / rate
        knots = [mp.mpf(0), *(k for k in (1 / u, 5 / u, 25 / u) if k < 1), mp.mpf(1)]
        share = mp.quad(lambda t, u=u: mp.exp(-u * t), knots)
        assert abs(exact_cost(1.7, rate) + mp.log(share)) <= mp.mpf("1e-25")


@pytest.mark.parametrize("d", [1e-6, 0.7, 1e4])
def test_cost_slope_and_inverse_over_sixteen_decades(d: float) -> None:
    kernel, rates = LOG_PERIODIC.kernel(fo.Sources(np.full(len(LOG_RATIOS), d))), d / LOG_RATIOS
    cost, slope = kernel.cost(rates), kernel.marginal(rates)
    for rate, found, marginal in zip(rates.tolist(), cost.tolist(), slope.tolist(), strict=True):
        assert abs(found - exact_cost(d, rate)) <= 0.1 * EXACT * exact_cost(d, rate)
        exact = -mp.diff(lambda r: exact_cost(d, r), rate, h=mp.mpf(rate) * mp.mpf(10) ** -25)
        assert abs(marginal - exact) <= EXACT * exact
    assert np.all(np.abs(kernel.inverse_marginal(slope) - rates) <= 0.01 * EXACT * rates)
    assert np.all(kernel.cost(np.zeros(len(LOG_RATIOS))) == np.inf)


def test_other_cells_are_those_of_harmonic_staleness() -> None:
    sources = fo.Sources([1e-3, 2.0, 40.0], [1.0, 0.0, 3.0])
    rates = np.array([1e-4, 1.5, 7.0])
    for own, other in (
        (LOG.kernel(sources), HARMONIC.kernel(sources)),
        (LOG.signalled_kernel(sources), HARMONIC.signalled_kernel(sources)),
    ):
        assert other is not None
        assert np.array_equal(own.cost(rates), other.cost(rates))
        assert np.array_equal(own.marginal(rates), other.marginal(rates))
        assert np.array_equal(own.inverse_marginal(rates), other.inverse_marginal(rates))


@pytest.mark.parametrize("seed", range(4))
def test_optimum_is_that_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = (8, 8, 1, 8)[seed]
    d, w = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    bandwidth = (1e-3, 0.5, 2.0, 20.0)[seed] * float(d.sum())
    lower = np.where(rng.random(n) < 0.3, 0.01 * bandwidth, 0.0)
    upper = np.where(rng.random(n) < 0.3, 0.2 * bandwidth, np.inf)
    sources = fo.Sources(d, w, min_rate=lower, max_rate=upper)
    solution = fo.solve(fo.Problem(LOG_PERIODIC, sources, bandwidth), tolerance=SCALAR)

    def marginal(rates: Floats) -> Floats:
        u = d / rates
        return np.asarray(w * u * gammainc(2.0, u) / gammainc(1.0, u) / d)

    best = market(marginal, bandwidth, n, lower=lower, upper=upper).optimum()
    assert present(solution.certificate).relative_gap <= SCALAR
    expected = float(sum(mp.mpf(a) * exact_cost(b, r) for a, b, r in zip(w, d, best, strict=True)))
    assert solution.value == pytest.approx(expected, rel=SCALAR)


def test_it_is_declared_exactly() -> None:
    sources, rates = fo.Sources([0.1, 0.7, 2.0], [1.0, 0.0, 3.0]), np.array([0.05, 0.3, 11.0])
    rate = cp.Variable(3, nonneg=True)
    expression, cones = LOG_PERIODIC.per_source(rate, sources)
    declared = cp.Problem(cp.Minimize(cp.sum(expression)), [*cones, rate == rates]).solve(solver="CLARABEL")
    exact = sum(w * exact_cost(d, r) for w, d, r in zip([1.0, 0.0, 3.0], [0.1, 0.7, 2.0], rates, strict=True))
    assert declared == pytest.approx(float(exact), rel=CONIC)


def test_attempts_that_fail_have_a_cell_but_where_they_are_periodic() -> None:
    sources = fo.Sources([1.0, 3.0], success=[0.5, 0.2])
    found = fo.solve(fo.Problem(LOG, sources, 5.0))
    assert found.value == pytest.approx(
        float(np.sum(np.log1p(np.array([2.0, 15.0]) / found.rates))), rel=EXACT
    )
    with pytest.raises(
        fo.ObjectiveError, match=r"no declared form for periodic attempts\. Use Refresh\.POISSON"
    ):
        fo.Problem(LOG_PERIODIC, sources, 5.0)


@pytest.mark.exhaustive
def test_phases_of_a_pipeline_have_an_optimum_of_their_own() -> None:
    """Predicted and replayed it beats the optimum for Poisson refreshes; each run has phases of its own."""
    edges = [("r", "a"), ("s", "b"), ("t", "c"), ("a", "d"), ("b", "d"), ("d", "e"), ("c", "e"), ("a", "f")]
    cost = {"a": 60.0, "b": 20.0, "c": 20.0, "d": 300.0, "e": 120.0, "f": 600.0}
    line = fo.pipeline(edges, {"r": 24.0, "s": 4.0, "t": 1.0}, {"e": 10.0, "f": 1.0}, cost)
    objectives = (LOG_PERIODIC, HARMONIC)
    found = [fo.solve(fo.Problem(each, line.sources, bandwidth=43200.0)) for each in objectives]
    served = line.importance > 0.0
    predicted = [
        -float(line.importance[served] @ np.log(line.freshness(each.rates, PERIODIC)[served]))
        for each in found
    ]
    assert predicted[0] == pytest.approx(found[0].value, rel=EXACT)
    replays = [
        replace(each[0], share=np.array([run.per_node for run in each]))
        for each in ([replayed(line, solution, run) for run in range(60)] for solution in found)
    ]
    _, gain = replays[1].against(replays[0])
    assert gain.value > 4.0 * gain.error
    assert abs(gain.value - (predicted[1] - predicted[0])) < 4.0 * gain.error


def replayed(line: fo.Pipeline, solution: fo.Solution, run: int) -> PipelineReplay:
    plan = fo.schedule(solution, 30.0, IndependentPhases(seed=run))
    return replay_pipeline(line, plan, fo.World.poisson(line.roots, seed=run), skip=2.0)


Form = Literal["polls", "materials"]
FORMS: list[Form] = ["polls", "materials"]
RANK = np.arange(1.0, 101.0)
KNAPSACK_RATIOS = np.logspace(-8.0, 8.0, 33)  # a/x: updates per poll


def exact_gain(form: Form, a: float, x: float) -> mpmath.mpf:
    """x·d(x), or ∫₀ˣ d, with d(t) = 1 − e^{−a/t}."""
    u = mp.mpf(a) / x
    return -x * mp.expm1(-u) + (a * mp.e1(u) if form == "materials" else 0)


def exact_slope(form: Form, a: float, x: float) -> mpmath.mpf:
    u = mp.mpf(a) / x
    return -mp.expm1(-u) - (u * mp.exp(-u) if form == "polls" else 0)


def test_materials_gain_is_the_integral_of_the_detection_probability() -> None:
    for x in (0.05, 0.5, 3.0, 100.0):
        knots = [0, *(k for k in (0.01, 0.03, 0.1, 0.5, 2.0, 10.0) if k < x), x]
        integral = mp.quad(lambda t: -mp.expm1(-1 / t), knots)
        assert abs(exact_gain("materials", 1.0, x) - integral) <= 1e-14 * integral


@matrix(form=FORMS, a=[1e-6, 0.7, 30.0])
def test_gain_slope_and_inverse_over_sixteen_decades(form: Form, a: float) -> None:
    sources, rates = fo.Sources(np.full(len(KNAPSACK_RATIOS), a)), a / KNAPSACK_RATIOS
    kernel = PollingKnapsack(form).kernel(sources)
    loss, slope = kernel.cost(rates), kernel.marginal(rates)
    for x, cost, worth in zip(rates, loss, slope, strict=True):
        missed = a if form == "polls" else 0.0
        expected = missed - exact_gain(form, a, float(x))
        assert abs(cost - float(expected)) <= EXACT * abs(float(expected))
        assert abs(worth - float(exact_slope(form, a, float(x)))) <= EXACT * worth
    back = kernel.inverse_marginal(slope)
    told_apart = KNAPSACK_RATIOS <= 5.0  # beyond, the slope is 1 to within float64's view of the rate
    assert np.all(np.abs(back - rates)[told_apart] <= 10 * EXACT * rates[told_apart])
    assert np.all(kernel.inverse_marginal(np.full(len(KNAPSACK_RATIOS), 1.0)) == 0.0)
    assert np.all(kernel.cost(np.zeros(len(KNAPSACK_RATIOS))) == (a if form == "polls" else 0.0))


@pytest.mark.parametrize("form", FORMS)
def test_without_weights_polls_are_proportional(form: Form) -> None:
    a = -np.log1p(-np.array([1e-6, 0.01, 0.2, 0.5, 0.9, 1 - 1e-9]))
    for bandwidth in (1e-3, 1.0, 1e4):
        solution = fo.solve(fo.Problem(PollingKnapsack(form), fo.Sources(a), bandwidth), tolerance=SCALAR)
        assert np.all(np.abs(solution.rates - bandwidth * a / a.sum()) <= 10 * SCALAR * solution.rates)


def test_polls_are_periodic_freshness_weighted_by_the_update_rate() -> None:
    a, w = np.array([0.02, 0.4, 3.0]), np.array([1.0, 0.1, 2.0])
    polls = fo.solve(fo.Problem(PollingKnapsack(), fo.Sources(a, w), 0.5))
    fresh = fo.solve(fo.Problem(BINARY_PERIODIC, fo.Sources(a, w * a), 0.5))
    assert np.allclose(polls.rates, fresh.rates, rtol=SCALAR, atol=0.0)
    assert polls.value == pytest.approx(fresh.value, rel=EXACT)


def zipf(exponent: float, importance: Floats) -> fo.Sources:
    """Update probabilities 0.9/k^exponent."""
    return fo.Sources(-np.log1p(-0.9 / RANK**exponent), importance)


def gain(form: Form, sources: fo.Sources, x: Floats) -> float:
    z = sources.change_rate / np.maximum(x, 1e-280)
    each = x * (-np.expm1(-z) if form == "polls" else 1.0 - expn(2, z))
    return float(np.sum(sources.importance * each))


def losses(sources: fo.Sources, bandwidth: float) -> list[float]:
    """What each form's optimum is missing under the other form."""
    rates = {f: fo.solve(fo.Problem(PollingKnapsack(f), sources, bandwidth)).rates for f in FORMS}
    return [
        1.0 - gain(form, sources, rates[other]) / gain(form, sources, rates[form])
        for form, other in zip(FORMS, reversed(FORMS), strict=True)
    ]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_with_weights_each_form_loses_some_of_the_other(exponent: float) -> None:
    """2-6 % where the busy sources are the important ones, 9-20 % where importance is independent."""
    alike = losses(zipf(exponent, 1.0 / RANK), 5.0)
    assert 0.001 <= min(alike) <= max(alike) <= 0.07
    shuffled = np.random.default_rng(round(2 * exponent) - 1).permutation(RANK)
    unlike = losses(zipf(exponent, 1.0 / shuffled), 2.0)
    assert 0.07 <= min(unlike) <= max(unlike) <= 0.2


@matrix(form=FORMS, seed=range(4))
def test_optimum_is_that_of_brute_force_knapsack(form: Form, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, spread = 8, (1.0, 1.0, 4.0, 6.0)[seed]
    a, w = 10.0 ** rng.uniform(-spread, spread, n), 10.0 ** rng.uniform(-spread, spread, n)
    bandwidth = float(0.3 * a.sum())
    lower = np.where(rng.random(n) < 0.3, 0.01 * bandwidth, 0.0)
    upper = np.where(rng.random(n) < 0.3, 0.2 * bandwidth, np.inf)
    host = np.where(np.arange(n) < 3, 0, -1)
    sources = fo.Sources(a, w, min_rate=lower, max_rate=upper, host=host)
    problem = fo.Problem(PollingKnapsack(form), sources, bandwidth, {0: 0.1 * bandwidth})
    solution = fo.solve(problem, tolerance=SCALAR)

    def marginal(x: Floats) -> Floats:
        return w * (gammainc(2.0, a / x) if form == "polls" else -np.expm1(-a / x))

    best = market(marginal, bandwidth, n, lower=lower, upper=upper, host=host, limits=[0.1 * bandwidth])
    assert present(solution.certificate).relative_gap <= SCALAR
    expected = gain(form, sources, best.optimum())
    assert abs(solution.value - expected) <= SCALAR * (expected + solution.price * bandwidth)


def declared(form: Form, sources: fo.Sources, rates: Floats, nodes: int = 16) -> float:
    rate = cp.Variable(len(sources), nonneg=True)
    expression, cones = PollingKnapsack(form, nodes).per_source(rate, sources)
    problem = cp.Problem(cp.Maximize(cp.sum(expression)), [*cones, rate == rates])
    return float(problem.solve(solver="CLARABEL"))


def test_polls_are_declared_exactly() -> None:
    sources = fo.Sources([0.1, 0.7, 2.0], importance=[1.0, 0.0, 3.0])
    for rates in (np.array([0.05, 0.3, 1.1]), np.array([3.0, 0.9, 0.4])):
        assert declared("polls", sources, rates) == pytest.approx(gain("polls", sources, rates), rel=CONIC)


def test_materials_are_declared_as_accurately_as_stated() -> None:
    """With 16 nodes: 6e-6 for a/x ≥ 0.1, 4e-3 for a/x ≥ 0.001."""
    for ratio, stated in ((10.0, 6e-6), (1.0, 6e-6), (0.1, 6e-6), (0.01, 4e-3), (0.001, 4e-3)):
        sources, rates = fo.Sources([1.0, 0.5]), np.array([1.0, 0.5]) / ratio
        expected = gain("materials", sources, rates)
        assert abs(declared("materials", sources, rates) - expected) <= stated * expected
        assert abs(declared("materials", sources, rates, nodes=32) - expected) <= stated * expected


def test_forms_and_signals_that_are_refused() -> None:
    with pytest.raises(fo.ObjectiveError, match=r"form of .* is 'both'\. Pass 'polls' or 'materials'"):
        PollingKnapsack("both")  # type: ignore[arg-type]
    with pytest.raises(fo.ObjectiveError, match=r"source 0 is signalled, .* Pass signalled=False"):
        fo.Problem(PollingKnapsack(), fo.Sources([1.0], signalled=True), bandwidth=1.0)


def test_declarations_print_their_form() -> None:
    assert repr(PollingKnapsack("materials")) == "PollingKnapsack(form='materials', nodes=16)"
