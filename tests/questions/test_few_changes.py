"""Few changes of rates: against all choices, their bound, and what cannot be met."""

from itertools import combinations

import numpy as np
import pytest

import freshopt as fo
from freshopt.modelling.objective import Refresh
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.questions.few_changes import with_few_changes
from freshopt.questions.rate_changes import rate_changes
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

N = 7


def costs(problem: fo.Problem, rates: np.ndarray) -> float:
    return float(np.sum(present(problem.numerics).cost(rates)))


def drawn(seed: int, objective: fo.Objective, **settings: object) -> tuple[fo.Problem, np.ndarray]:
    rng = np.random.default_rng(seed)
    sources = fo.Sources(rng.lognormal(0.0, 1.5, N), rng.lognormal(0.0, 1.0, N), **settings)  # type: ignore[arg-type]
    old = rng.lognormal(0.0, 1.0, N)
    return fo.Problem(objective, sources, 1.1 * float(old.sum())), old


def best_of_all(problem: fo.Problem, old: np.ndarray, m: int) -> float:
    """The least cost over every choice of m sources that change, each solved for."""
    found = []
    for chosen in combinations(range(N), m):
        free = np.isin(np.arange(N), chosen)
        sources = fo.Sources(
            problem.sources.change_rate,
            problem.sources.importance,
            min_rate=np.where(free, 0.0, old),
            max_rate=np.where(free, np.inf, old),
        )
        own = fo.Problem(problem.objective, sources, problem.bandwidth)
        found.append(costs(problem, fo.solve(own).rates))
    return min(found)


@pytest.mark.parametrize(
    "objective",
    [HarmonicStaleness(Refresh.POISSON), BinaryFreshness(Refresh.POISSON), AccumulatedDelay(Refresh.POISSON)],
    ids=repr,
)
@pytest.mark.parametrize("m", [1, 3, 6])
@pytest.mark.sampled(5)
def test_the_choice_is_near_the_best_of_all_and_bounded(objective: fo.Objective, m: int) -> None:
    for seed in range(3):
        problem, old = drawn(seed, objective)
        plan = fo.solve(problem)
        found = with_few_changes(plan, old, m / N)
        assert found.changed <= m == found.most
        kept = np.isclose(found.solution.rates, old, rtol=1e-13, atol=0.0)
        assert np.count_nonzero(~kept) <= m
        assert np.sum(found.solution.rates) <= problem.bandwidth * (1.0 + EXACT)
        least, truth = costs(problem, plan.rates), best_of_all(problem, old, m)
        mine = costs(problem, found.solution.rates)
        assert found.loss == pytest.approx(mine - least, abs=EXACT * mine)
        # The bound holds for every choice, and the choice is no better than the best of all.
        assert found.least_loss <= truth - least + SCALAR * truth
        assert truth <= mine * (1.0 + SCALAR)
        # A duality gap of a single source, of seven, is what may be lost.
        assert mine <= truth * 1.1
        proof = present(found.solution.certificate)
        assert proof.gap == pytest.approx(found.loss, abs=1e-8 * mine)


def test_all_may_change_and_none_may() -> None:
    problem, old = drawn(4, HarmonicStaleness(Refresh.POISSON))
    plan = fo.solve(problem)
    assert with_few_changes(plan, old, 1.0).solution.rates == pytest.approx(plan.rates, rel=SCALAR)
    assert with_few_changes(plan, old, 1.0).solution.status is fo.Status.OPTIMAL
    nothing = with_few_changes(plan, old, 0.0)
    assert nothing.solution.rates.tolist() == old.tolist()
    assert nothing.changed == 0
    assert "0 of 7 intervals changed" in nothing.sentence


@pytest.mark.exhaustive
def test_with_many_sources_the_bound_is_nearly_met() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    sources = fo.Sources(rng.lognormal(0.0, 1.5, n), rng.lognormal(0.0, 1.0, n))
    plan = fo.solve(fo.Problem(HarmonicStaleness(fo.Refresh.PERIODIC), sources, float(n)))
    for share in (0.01, 0.1, 0.5):
        found = with_few_changes(plan, np.ones(n), share)
        assert found.changed <= share * n
        assert 0.0 <= found.loss - found.least_loss <= 1e-4 * found.scale


def test_new_sources_get_rates_beyond_the_limit() -> None:
    problem, old = drawn(5, HarmonicStaleness(Refresh.POISSON))
    old = np.where(np.arange(N) == 2, np.nan, old)
    found = with_few_changes(fo.solve(problem), old, 0.0)
    assert found.solution.rates[2] > 0.0
    assert found.changed == 0
    rest = np.arange(N) != 2
    assert found.solution.rates[rest].tolist() == old[rest].tolist()


def test_rates_outside_the_bounds_must_change() -> None:
    problem, old = drawn(6, HarmonicStaleness(Refresh.POISSON), max_rate=[0.01] + [np.inf] * (N - 1))
    plan = fo.solve(problem)
    found = with_few_changes(plan, old, 1.0 / N)
    assert found.solution.rates[0] <= 0.01
    assert found.changed == 1
    with pytest.raises(fo.InfeasibleProblemError, match=r"1 old rate is outside the bounds and must change"):
        with_few_changes(plan, old, 0.0)


def test_limits_that_few_changes_do_not_meet() -> None:
    problem, old = drawn(7, HarmonicStaleness(Refresh.POISSON))
    plan = fo.solve(problem.with_bandwidth(0.2 * float(old.sum())))
    # The fewest changes whose old rates, taken to zero, leave the others within the bandwidth.
    need = next(k for k in range(N + 1) if np.sort(old)[: N - k].sum() <= plan.problem.bandwidth)
    with pytest.raises(
        fo.InfeasibleProblemError,
        match=rf"with at most 14.3 % of the intervals .* takes {need} changes or more",
    ):
        with_few_changes(plan, old, 1.0 / N)
    assert with_few_changes(plan, old, need / N).changed <= need
    assert with_few_changes(plan, old, 1.0).loss == pytest.approx(0.0, abs=SCALAR * plan.value)
    for share in (-0.1, 1.1, np.nan):
        refused("not between 0 and 1", with_few_changes, plan, old, share)
    declared = fo.Problem(
        AccumulatedDelay(Refresh.POISSON),
        problem.sources,
        9.0,
        constraints=[fo.Budget(50.0, cost=1.0, name="kB")],
    )
    refused("bounds and host limits alone", with_few_changes, fo.solve(declared), old, 0.5)


def test_hosts_are_kept() -> None:
    rng = np.random.default_rng(8)
    host = ["a", "a", "b", "b", "c", "c", "c"]
    sources = fo.Sources(rng.lognormal(0.0, 1.5, N), host=host)
    old = np.ones(N)
    problem = fo.Problem(HarmonicStaleness(Refresh.POISSON), sources, 8.0, {"a": 2.5, "b": 2.0})
    plan = fo.solve(problem)
    found = with_few_changes(plan, old, 3.0 / N)
    rates = found.solution.rates
    assert rates[:2].sum() <= 2.5 * (1.0 + EXACT)
    assert rates[2:4].sum() <= 2.0 * (1.0 + EXACT)
    assert found.changed <= 3
    assert 0.0 <= found.least_loss <= found.loss


def test_gains_of_changes_add_up_to_the_gap_of_the_old_rates() -> None:
    problem, old = drawn(9, HarmonicStaleness(fo.Refresh.PERIODIC))
    plan = fo.solve(problem)
    found = rate_changes(plan, old, gone=2)
    # What the old rates leave of the bandwidth has its price too.
    unused = plan.price * (problem.bandwidth - old.sum())
    fall = costs(problem, old) - costs(problem, plan.rates)
    assert float(np.sum(found.gain)) + unused == pytest.approx(fall, rel=SCALAR)
    assert found.value == pytest.approx(costs(problem, old), rel=EXACT)
    own = present(found.certificate)
    at_own = fo.solve(problem.with_bandwidth(float(old.sum())))
    assert own.gap == pytest.approx(own.value - at_own.value, rel=1e-6)
    assert own.bound <= at_own.value * (1.0 + EXACT)
    table = found.to_frame()
    assert table["gain"].is_sorted(descending=True)
    assert table["source"][0] == found.largest[0] == int(np.argmax(found.gain))
    assert table["old_interval"].to_numpy() == pytest.approx(1.0 / old[table["source"].to_numpy()], rel=EXACT)
    facts = found.facts()
    assert (facts["gone"], facts["new"], facts["changed"]) == (2, 0, N)


def test_the_same_rates_change_nothing() -> None:
    problem, _ = drawn(10, BinaryFreshness(Refresh.POISSON))
    plan = fo.solve(problem)
    found = rate_changes(plan, plan.rates * (1.0 + 1e-15))
    assert not found.changed.any()
    assert found.gain.tolist() == [0.0] * N
    assert len(found.largest) == 0


def test_gains_of_few_changes_are_true_where_the_bandwidth_shrinks() -> None:
    """A forced cut costs, and what each change brings is net of the price at which the few are best."""
    problem, _ = drawn(11, HarmonicStaleness(fo.Refresh.PERIODIC))
    # The best rates of more bandwidth: any cut costs.
    old = fo.solve(problem).rates
    plan = fo.solve(problem.with_bandwidth(0.8 * float(old.sum())))
    few = with_few_changes(plan, old, 3.0 / N)
    found = rate_changes(few.solution, old, prices=few.prices)
    changed = np.flatnonzero(few.solution.rates != old)
    assert 0 < len(changed) == few.changed <= 3
    # One price for all, the restricted problem's and not that of the best rates.
    price = float(few.prices[0])
    assert few.prices.tolist() == [price] * N
    assert price != pytest.approx(plan.price, rel=1e-3)
    # By central differences the rates that change are where the cost falls by that price.
    for k in changed:
        h = 1e-5 * few.solution.rates[k]
        sides = [np.where(np.arange(N) == k, few.solution.rates + d, few.solution.rates) for d in (-h, h)]
        assert (costs(problem, sides[0]) - costs(problem, sides[1])) / (2.0 * h) == pytest.approx(
            price, rel=CONIC
        )
    assert np.all(found.gain[changed] > 0.0)
    assert np.all(np.delete(found.gain, changed) == 0.0)
    saved = price * float(old.sum() - few.solution.rates.sum())
    fall = costs(problem, old) - costs(problem, few.solution.rates)
    assert fall < 0.0
    assert float(found.gain.sum()) == pytest.approx(fall + saved, rel=SCALAR)
