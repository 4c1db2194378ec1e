"""The tree as a solver: how near it comes, what it refuses, and how it stands in a table of solvers."""

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import (
    BinaryCost,
    ExpectedPenalty,
    PiecewiseLinearCost,
    PollingKnapsack,
    PowerCost,
    SynchronizationCost,
)
from freshopt.solvers import AutomataTree, Uniform, WaterFilling
from tests.ground_truth import named
from tests.ground_truth.named import present
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import rare

RNG = np.random.default_rng(4)  # drawn from here alone, not in tests, whose order varies
RATES, WEIGHTS = RNG.lognormal(0.0, 1.0, 24), RNG.lognormal(0.0, 1.0, 24)
WEIGHTED = fo.Sources(RATES, WEIGHTS)
CASES = [
    pytest.param(PollingKnapsack("polls"), fo.Sources(RATES), marks=pytest.mark.exhaustive),
    pytest.param(PollingKnapsack("materials"), fo.Sources(RATES), marks=pytest.mark.exhaustive),
    (PollingKnapsack("polls"), WEIGHTED),
    pytest.param(PollingKnapsack("materials"), WEIGHTED, marks=pytest.mark.exhaustive),
    pytest.param(named.BINARY_PERIODIC, WEIGHTED, marks=pytest.mark.exhaustive),
    (named.BINARY, WEIGHTED),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("objective", "sources"), CASES)
def test_it_comes_near_the_optimum_and_its_certificate_says_how_near(
    objective: fo.Objective, sources: fo.Sources
) -> None:
    problem = fo.Problem(objective, sources, bandwidth=0.3 * float(RATES.sum()))
    best = fo.solve(problem).value
    even = fo.solve(problem, Uniform(), throw=False).value
    lost = []
    for seed in range(4):
        solution = fo.solve(problem, AutomataTree(polls=400_000, seed=seed))
        assert solution.status is fo.Status.INACCURATE
        assert present(solution.certificate).gap >= best - solution.value - 1e-9 * best
        assert abs(solution.rates.sum() - problem.bandwidth) <= 1e-9 * problem.bandwidth
        assert np.all(solution.rates > 0.0)
        lost.append((best - solution.value) / (best - even))
    error = float(np.std(lost, ddof=1)) / 4**0.5
    assert np.mean(lost) + 3.0 * error <= 0.1  # of what uniform rates lose


@pytest.mark.exhaustive
def test_more_polls_are_nearer() -> None:
    problem = fo.Problem(named.BINARY_PERIODIC, WEIGHTED, bandwidth=10.0)
    gaps = []
    for polls in (4_000, 40_000, 400_000):
        proofs = [fo.solve(problem, AutomataTree(polls, seed)).certificate for seed in range(3)]
        gaps.append(np.mean([proof.gap for proof in proofs if proof is not None]))
    assert gaps[1] < 0.5 * gaps[0]
    assert gaps[2] < 0.5 * gaps[1]


def test_the_seed_decides_and_the_clock_does_not() -> None:
    problem = fo.Problem(PollingKnapsack(), fo.Sources(RATES), bandwidth=2.0)
    one, two, other = (fo.solve(problem, AutomataTree(5000, seed)).rates for seed in (1, 1, 2))
    assert one.tolist() == two.tolist() != other.tolist()
    hourly = fo.Problem(PollingKnapsack(), fo.Sources(RATES / 24.0, time_unit="hour"), bandwidth=2.0 / 24.0)
    assert np.allclose(24.0 * fo.solve(hourly, AutomataTree(5000, 1)).rates, one, rtol=1e-9)
    dear = fo.Problem(PollingKnapsack(), fo.Sources(RATES, refresh_cost=4.0), bandwidth=8.0)
    assert np.allclose(fo.solve(dear, AutomataTree(5000, 1)).rates, one, rtol=1e-9)


@pytest.mark.exhaustive
def test_in_a_table_of_solvers_it_is_judged_by_its_seeds() -> None:
    problem = fo.Problem(PollingKnapsack(), fo.Sources(RATES[:4]), bandwidth=2.0)
    agreement = fo.cross_check(problem, [WaterFilling(), AutomataTree(50_000), Uniform()])
    assert agreement.agrees
    assert agreement.to_frame()["verdict"].to_list() == ["proved optimal", "agrees within 2 s.e.", "baseline"]
    note = agreement.solutions[1].note
    assert note.startswith("Learnt from a finite number of samples: the certified relative gap")
    assert note.endswith("50,000 polls were simulated.")
    loose = fo.cross_check(problem, [AutomataTree(200_000)], tolerance=0.5)
    assert loose.to_frame()["verdict"].to_list() == ["proved optimal"]


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (
            fo.Problem(ExpectedPenalty(np.sqrt), fo.Sources([1.0, 2.0]), 1.0),
            "a poll shows nothing whose mean is the marginal of ExpectedPenalty",
        ),
        (
            fo.Problem(PollingKnapsack(), fo.Sources([1.0, 2.0], refresh_cost=[1.0, 2.0]), 1.0),
            "and costs differ",
        ),
        (fo.Problem(PollingKnapsack(), fo.Sources([1.0, 2.0], 0.0), 1.0), "nothing to learn"),
        (fo.Problem(named.BINARY, fo.Sources([1.0, 2.0], signalled=True), 1.0), "announce their changes"),
    ],
)
def test_what_a_tree_cannot_do_is_refused(problem: fo.Problem, reason: str) -> None:
    with pytest.raises(fo.SolverRefusedError, match=f"AutomataTree does not apply: .*{reason}"):
        fo.solve(problem, AutomataTree(10))


def test_settings_are_refused() -> None:
    refused("polls is 0", AutomataTree, polls=0)
    assert AutomataTree(polls=np.int64(5)) == AutomataTree(polls=5)  # type: ignore[arg-type]
    refused("resolution is -1", AutomataTree, resolution=-1)


def test_one_source_gets_everything() -> None:
    for objective in (PollingKnapsack(), named.BINARY, named.BINARY_PERIODIC):
        solution = fo.solve(fo.Problem(objective, fo.Sources([2.0]), bandwidth=3.0), AutomataTree(100))
        assert solution.rates.tolist() == [3.0]
        assert solution.status is fo.Status.OPTIMAL


COSTS = [
    named.HARMONIC,
    *rare(named.HARMONIC_PERIODIC),
    named.DELAY_PERIODIC,
    *rare(named.DELAY),
    named.AGE,
    *rare(named.AGE_PERIODIC),
    SynchronizationCost(PowerCost(1.0, 0.5)),
    *rare(SynchronizationCost(PowerCost(2.0, 1.5, 3.0), named.POISSON)),
    *rare(SynchronizationCost(BinaryCost())),
]
HOSTS = np.array(["a", "b", "c"])[np.arange(24) % 3]


@pytest.mark.parametrize("objective", COSTS, ids=str)
@pytest.mark.sampled(3)
def test_every_cost_is_learnt_to_a_few_percent(objective: fo.Objective) -> None:
    rates = np.geomspace(0.1, 10.0, 24)
    weights = np.random.default_rng(4).permutation(rates)
    problem = fo.Problem(objective, fo.Sources(rates, weights), bandwidth=0.3 * float(rates.sum()))
    solution = fo.solve(problem, AutomataTree(polls=120_000))
    assert present(solution.certificate).relative_gap <= 0.05
    assert abs(solution.rates.sum() - problem.bandwidth) <= 1e-9 * problem.bandwidth


@pytest.mark.parametrize("objective", [named.AGE_PERIODIC, named.HARMONIC], ids=str)
@pytest.mark.sampled(2)
def test_bounds_and_host_limits_are_kept_and_the_rest_is_optimal(objective: fo.Objective) -> None:
    """Each binds: without floors, ceilings and a host's limit the optimum is another."""
    free = fo.solve(fo.Problem(objective, WEIGHTED, bandwidth=10.0))
    low, high = np.zeros(24), np.full(24, np.inf)
    low[:8], high[8:12] = 1.2 * free.rates[:8], 0.6 * free.rates[8:12]
    bounded = fo.Sources(RATES, WEIGHTS, min_rate=low, max_rate=high, host=HOSTS)
    most = max(0.8 * float(free.rates[HOSTS == "c"].sum()), 1.05 * float(low[HOSTS == "c"].sum()))
    problem = fo.Problem(objective, bounded, 10.0, {"c": most})
    solution = fo.solve(problem, AutomataTree(polls=120_000))
    assert present(solution.certificate).infeasibility == 0.0
    assert present(solution.certificate).relative_gap <= 0.05
    assert np.all((solution.rates >= low) & (solution.rates <= high))
    assert solution.rates[HOSTS == "c"].sum() <= most * (1.0 + 1e-12)
    assert abs(solution.rates.sum() - 10.0) <= 1e-8


def test_neither_units_of_cost_nor_of_time_matter() -> None:
    cost = PowerCost(1.0, 0.5)
    problem = fo.Problem(SynchronizationCost(cost), WEIGHTED, bandwidth=10.0)
    rates = fo.solve(problem, AutomataTree(20_000)).rates
    dearer = fo.Sources(RATES, 1024.0 * WEIGHTS)  # a power of two, so that no sum is rounded otherwise
    other = fo.Problem(SynchronizationCost(cost), dearer, bandwidth=10.0)
    assert np.allclose(fo.solve(other, AutomataTree(20_000)).rates, rates, rtol=1e-9)
    slower = fo.Sources(RATES / 1024.0, WEIGHTS)
    other = fo.Problem(SynchronizationCost(cost), slower, bandwidth=10.0 / 1024.0)
    assert np.allclose(1024.0 * fo.solve(other, AutomataTree(20_000)).rates, rates, rtol=1e-9)


def test_bounds_that_leave_nothing_to_learn_are_met() -> None:
    floors = fo.Problem(named.AGE, fo.Sources([1.0, 2.0], min_rate=[1.0, 2.0]), bandwidth=3.0)
    assert fo.solve(floors, AutomataTree(1000)).rates.tolist() == [1.0, 2.0]
    ceilings = fo.Problem(named.AGE, fo.Sources([1.0, 2.0], max_rate=[1.0, 0.5]), bandwidth=3.0)
    assert fo.solve(ceilings, AutomataTree(1000)).rates.tolist() == [1.0, 0.5]


def test_bandwidth_that_limits_keep_from_use_is_not_polled() -> None:
    """Shares are of the polls that may be made: beyond them no feedback told the sources of a host apart."""
    sources = fo.Sources([0.3, 1.0, 3.0, 0.5], host=["a"] * 4)
    cases = [fo.Problem(named.BINARY, sources, bandwidth=2.0, host_limits={"a": 0.4})]
    capped = fo.Sources([1.0, 2.0, 3.0], refresh_cost=5.0, min_rate=0.01, max_rate=0.15, host=["a", "a", "b"])
    cases.append(fo.Problem(named.BINARY, capped, bandwidth=2.0, host_limits={"a": 1.0}))
    for problem in cases:
        solution = fo.solve(problem, AutomataTree(polls=50_000))
        assert present(solution.certificate).relative_gap <= 0.02
        assert present(solution.certificate).infeasibility == 0.0
    idle = fo.Problem(named.BINARY, fo.Sources([1.0, 2.0], max_rate=0.0), bandwidth=2.0)
    assert fo.solve(idle, AutomataTree(1000)).rates.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("compiled", ["1", "0"])
def test_sources_that_change_at_every_moment_are_sampled(
    compiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their changes between two polls are more than an integer holds."""
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    problem = fo.Problem(named.HARMONIC, fo.Sources([1e20] * 4), bandwidth=1.0)
    rates = fo.solve(problem, AutomataTree(2000)).rates
    assert np.all(np.abs(rates - 0.25) < 0.1)


def test_powers_beyond_the_range_of_numbers_are_learnt() -> None:
    """Only the ratios of scales count, and 1e-300 per slot to the tenth has none."""
    sources = fo.Sources(np.ones(4), [1.0, 2.0, 0.0, 4.0])
    problem = fo.Problem(SynchronizationCost(PowerCost(1e-300, 2.0)), sources, bandwidth=1e20)
    rates = fo.solve(problem, AutomataTree(20_000), throw=False).rates
    ordinary = fo.Problem(SynchronizationCost(PowerCost(1.0, 2.0)), sources, bandwidth=1.0)
    alike = fo.solve(ordinary, AutomataTree(20_000)).rates
    assert np.allclose(rates / 1e20, alike, rtol=1e-6)


def test_a_kinked_cost_is_learnt_up_to_its_kinks() -> None:
    cost = PiecewiseLinearCost(slopes=[0.0, 1.0], intercepts=[0.0, -2.0])
    problem = fo.Problem(SynchronizationCost(cost), fo.Sources(np.ones(8)), bandwidth=2.0)
    solution = fo.solve(problem, AutomataTree(100_000))
    assert solution.certificate is not None
    assert solution.value <= 1.05 * fo.solve(problem).value
