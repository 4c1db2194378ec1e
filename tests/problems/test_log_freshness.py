"""Log freshness: cells in extended precision, optima by brute force, pipelines of independent phases."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.special import gammainc

import freshopt as fo
from freshopt.cvx import cp
from freshopt.pipelines import IndependentPhases, PipelineReplay, replay_pipeline
from freshopt.problems import HarmonicStaleness, LogFreshness
from tests.ground_truth.cost_truth import Floats, market
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

PERIODIC = fo.Refresh.PERIODIC
RATIOS = np.logspace(-8.0, 8.0, 65)  # changes per refresh

mp = mpmath.MPContext()
mp.dps = 60


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
    kernel, rates = LogFreshness(PERIODIC).kernel(fo.Sources(np.full(len(RATIOS), d))), d / RATIOS
    cost, slope = kernel.cost(rates), kernel.marginal(rates)
    for rate, found, marginal in zip(rates.tolist(), cost.tolist(), slope.tolist(), strict=True):
        assert abs(found - exact_cost(d, rate)) <= 0.1 * EXACT * exact_cost(d, rate)
        exact = -mp.diff(lambda r: exact_cost(d, r), rate, h=mp.mpf(rate) * mp.mpf(10) ** -25)
        assert abs(marginal - exact) <= EXACT * exact
    assert np.all(np.abs(kernel.inverse_marginal(slope) - rates) <= 0.01 * EXACT * rates)
    assert np.all(kernel.cost(np.zeros(len(RATIOS))) == np.inf)


def test_other_cells_are_those_of_harmonic_staleness() -> None:
    sources = fo.Sources([1e-3, 2.0, 40.0], [1.0, 0.0, 3.0])
    rates = np.array([1e-4, 1.5, 7.0])
    for own, other in (
        (LogFreshness().kernel(sources), HarmonicStaleness().kernel(sources)),
        (LogFreshness().signalled_kernel(sources), HarmonicStaleness().signalled_kernel(sources)),
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
    solution = fo.solve(fo.Problem(LogFreshness(PERIODIC), sources, bandwidth), tolerance=SCALAR)

    def marginal(rates: Floats) -> Floats:
        u = d / rates
        return np.asarray(w * u * gammainc(2.0, u) / gammainc(1.0, u) / d)

    best = market(marginal, bandwidth, n, lower=lower, upper=upper).optimum()
    assert solution.certificate is not None
    assert solution.certificate.relative_gap <= SCALAR
    expected = float(sum(mp.mpf(a) * exact_cost(b, r) for a, b, r in zip(w, d, best, strict=True)))
    assert solution.value == pytest.approx(expected, rel=SCALAR)


def test_it_is_declared_exactly() -> None:
    sources, rates = fo.Sources([0.1, 0.7, 2.0], [1.0, 0.0, 3.0]), np.array([0.05, 0.3, 11.0])
    rate = cp.Variable(3, nonneg=True)
    expression, cones = LogFreshness(PERIODIC).per_source(rate, sources)
    declared = cp.Problem(cp.Minimize(cp.sum(expression)), [*cones, rate == rates]).solve(solver="CLARABEL")
    exact = sum(w * exact_cost(d, r) for w, d, r in zip([1.0, 0.0, 3.0], [0.1, 0.7, 2.0], rates, strict=True))
    assert declared == pytest.approx(float(exact), rel=CONIC)


def test_attempts_that_fail_have_a_cell_but_where_they_are_periodic() -> None:
    sources = fo.Sources([1.0, 3.0], success=[0.5, 0.2])
    found = fo.solve(fo.Problem(LogFreshness(), sources, 5.0))
    assert found.value == pytest.approx(
        float(np.sum(np.log1p(np.array([2.0, 15.0]) / found.rates))), rel=EXACT
    )
    with pytest.raises(
        fo.ObjectiveError, match=r"no declared form for periodic attempts\. Use Refresh\.POISSON"
    ):
        fo.Problem(LogFreshness(PERIODIC), sources, 5.0)


@pytest.mark.exhaustive
def test_phases_of_a_pipeline_have_an_optimum_of_their_own() -> None:
    """Predicted and replayed it beats the optimum for Poisson refreshes; each run has phases of its own."""
    edges = [("r", "a"), ("s", "b"), ("t", "c"), ("a", "d"), ("b", "d"), ("d", "e"), ("c", "e"), ("a", "f")]
    cost = {"a": 60.0, "b": 20.0, "c": 20.0, "d": 300.0, "e": 120.0, "f": 600.0}
    line = fo.pipeline(edges, {"r": 24.0, "s": 4.0, "t": 1.0}, {"e": 10.0, "f": 1.0}, cost)
    objectives = (LogFreshness(PERIODIC), HarmonicStaleness())
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
