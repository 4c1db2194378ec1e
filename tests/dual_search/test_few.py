"""Searches of a price where demand is flat, sources are few, or only a model passes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import gammainc

import freshopt as fo
from freshopt.compiled.columns import Columns
from freshopt.compiled.price_pairs import at_two_prices, memory
from freshopt.compiled.tapes import atom_functions, marginal_search, tape_passes
from freshopt.cvx import cp
from freshopt.dual_search.jump_search import FewAlone, crossing, jump_search
from freshopt.dual_search.sampled_search import sampled_search
from freshopt.numerics import vector_math
from freshopt.numerics.arrays import Array
from freshopt.problems import PollingKnapsack
from freshopt.solvers import SeparableNewton, WaterFilling
from tests.dual_search.test_jump_search import bisected, columns_of
from tests.ground_truth.named import BINARY, BINARY_PERIODIC, declared, present
from tests.ground_truth.own_objectives import Binary, Harmonic
from tests.ground_truth.strata import matrix, rare, stratified
from tests.ground_truth.tolerances import EXACT, SCALAR


def weighed(cost: Callable[[Any, fo.Sources], Any]) -> fo.Objective:
    return declared(lambda rate, sources: cp.multiply(sources.importance, cost(rate, sources)))


CAPPED = weighed(lambda rate, sources: cp.inv_pos(cp.minimum(rate, sources.change_rate)))
SHORTFALL = weighed(lambda rate, sources: cp.square(cp.pos(sources.change_rate - rate)))
DECAY = weighed(lambda rate, sources: cp.exp(-cp.multiply(1.0 / sources.change_rate, rate)))
LINEAR = weighed(lambda rate, _: -rate)


@pytest.mark.parametrize("certify", [True, False])
def test_more_bandwidth_than_is_of_use(certify: bool) -> None:
    """Σ w/min(ρ, Δ): beyond Δ nothing is gained, and half of the bandwidth has no use."""
    d = np.array([0.57109109, 1.45300723, 5.20275408])
    problem = fo.Problem(CAPPED, fo.Sources(d, [1.25876022, 0.0, 0.52145729]), 1.5 * float(d.sum()))
    solution = fo.solve(problem, SeparableNewton(), certify=certify)
    assert solution.value == pytest.approx(1.25876022 / d[0] + 0.52145729 / d[2], rel=EXACT)
    assert solution.price == 0.0
    assert float(solution.rates.sum()) <= problem.bandwidth * (1.0 + EXACT)


@pytest.mark.parametrize("certify", [True, False])
def test_bandwidth_for_all_but_what_a_bound_forbids(certify: bool) -> None:
    d = [5.19347891, 1.01923676, 2.65667445, 0.98963957, 1.07324303]
    w = [0.47590087, 17.28355662, 3.31357261, 3.25653152, 3.18263692]
    top = [2.34691718, 2.34140637, 3.88417771, 1.08756856, 5.06353966]
    problem = fo.Problem(SHORTFALL, fo.Sources(d, w, max_rate=top), 10.932272732977447)
    solution = fo.solve(problem, SeparableNewton(), certify=certify)
    assert solution.value == pytest.approx(w[0] * (d[0] - top[0]) ** 2, rel=EXACT)


@pytest.mark.parametrize("top", [np.inf, 182.62440801])
def test_marginals_that_fall_below_all_that_is_looked_for(top: float) -> None:
    """A source at its cap, the others with e^{−500} to lose: a price of 1e-217, or of 0."""
    sources = fo.Sources([2.0, 6.0], [1.0, 1.0], max_rate=[top, np.inf])
    problem = fo.Problem(DECAY, sources, 4000.0)
    for certify in (True, False):
        rates = fo.solve(problem, SeparableNewton(), certify=certify).rates
        reference = fo.solve(problem, WaterFilling()).rates
        assert rates[0] == pytest.approx(min(top, reference[0]), rel=SCALAR)
        assert rates[1] > 500.0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("solver", "price"), stratified([WaterFilling(), SeparableNewton()], [0.1, 0.7, 1.0 / 3.0], every=2)
)
def test_constant_marginals_that_are_the_price_but_for_an_ulp(solver: Any, price: float) -> None:  # noqa: ANN401
    rng = np.random.default_rng(4)
    for _ in range(5):
        cost = rng.lognormal(0.0, 2.0, 3)
        sources = fo.Sources(1.0, cost * price, refresh_cost=cost, host=["a", "a", "b"])
        problem = fo.Problem(LINEAR, sources, 3.0, {"a": float(rng.lognormal())})
        solution = fo.solve(problem, solver)
        assert solution.value == pytest.approx(-3.0 * price, rel=EXACT)
        assert fo.certify(problem, solution.rates).relative_gap <= SCALAR
        alone = fo.Problem(LINEAR, sources.take(slice(2)), 1e9, {"a": 2.5})
        assert fo.solve(alone, solver).value == pytest.approx(-2.5 * price, rel=EXACT)


def test_rates_that_break_nothing_but_a_host_limit_are_repaired() -> None:
    problem = fo.Problem(LINEAR, fo.Sources(1.0, host=["a", "a", "b"]), 9.0, {"a": 2.0})
    proof = fo.certify(problem, [2.0, 2.0, 1.0])
    assert proof.infeasibility == pytest.approx(1.0, rel=EXACT)
    assert proof.rates.tolist() == [1.0, 1.0, 1.0]


N = 40_000


def drawn(n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)


def enclosed(columns: Columns, low: float, high: float) -> FewAlone:
    """Return the demand between two prices."""
    into = memory(columns.n)
    used = at_two_prices(columns, low, high, into, steep=64.0 * math.log(high / low))
    jumps = np.flatnonzero(into.jumps)
    return FewAlone(columns.take(jumps, len(jumps)), (low, high), used)


def test_demand_within_a_bracket_is_that_of_all() -> None:
    """At the ends exactly, within to the square of the width; a known price brings its cube."""
    d, w = drawn(N, 1)
    columns = columns_of(fo.Problem(BINARY_PERIODIC, fo.Sources(d, w), 0.3 * float(np.sum(d))))
    low, middle, high = 0.6, 0.60002, 0.60005
    demand = enclosed(columns, low, high)
    assert 0 < demand.alone.n < N // 100
    for end in (low, high):
        assert demand(end) == pytest.approx(columns.demand(end), rel=1e-14)
    off = abs(demand(middle) / columns.demand(middle) - 1.0)
    assert 1e-14 < off < 1e-8
    rates = np.empty(N)
    target = columns.demand(middle)
    price, passes = demand.settle(columns, target, crossing(demand, target, middle, low, high), rates)
    assert passes == 2
    assert price == pytest.approx(middle, rel=1e-11)
    assert math.fsum(rates) == pytest.approx(target, rel=2e-13)


def test_where_rates_jump_nothing_is_settled() -> None:
    d, w = drawn(N, 2)
    own = fo.Sources(d, w, signalled=np.arange(N) % 2 == 0)
    columns = columns_of(fo.Problem(BINARY, own, 0.3 * float(np.sum(d))))
    jump = float(np.sort(w / d)[N // 2 :][::2][0])
    place = float(np.min(np.abs(w[::2] / d[::2] - jump))) + jump
    below, above = columns.demand(place * (1.0 - 1e-12)), columns.demand(place * (1.0 + 1e-12))
    assert below > above * (1.0 + 1e-9)
    demand = enclosed(columns, place * (1.0 - 1e-6), place * (1.0 + 1e-6))
    target = 0.5 * (below + above)
    price, passes = demand.settle(columns, target, crossing(demand, target, place, *demand.ends), np.empty(N))
    assert (price, passes) == (None, 0)


@matrix(form=["binary", *rare("polls")], budget=[0.02, 0.3])
def test_infinite_slopes_take_two_samples_a_pair_and_few_passes(form: str, budget: float) -> None:
    """The price is that of bisection; sources leave with an infinite slope all around it."""
    d, w = drawn(N, 3)
    objective = BINARY_PERIODIC if form == "binary" else PollingKnapsack(form="polls")
    task = fo.Problem(objective, fo.Sources(d, w), budget * float(np.sum(d)))
    columns = columns_of(task)
    known: list[tuple[float, float]] = []
    found = sampled_search(columns, task.bandwidth, known=known)
    if found is None:
        assert len(known) <= 2
        found = jump_search(columns, task.bandwidth, known=known)
    assert found is not None
    assert found.passes <= 12
    scale = w / d if form == "binary" else w
    some = found.rates > 0.0
    marginal = scale[some] * gammainc(2.0, d[some] / found.rates[some])
    np.testing.assert_allclose(marginal, found.price, rtol=1e-11)
    assert np.all(scale[found.rates == 0.0] <= found.price * (1.0 + 1e-12))
    assert math.fsum(found.rates) == pytest.approx(task.bandwidth, rel=2e-13)
    assert bisected(columns.demand, task.bandwidth) == pytest.approx(found.price, rel=1e-11)


MODEL_N = 300


class Turning(fo.Objective):
    """A delay that more refreshes than 2Δ make worse."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        d = sources.change_rate
        return cp.multiply(sources.importance * d, cp.inv_pos(rate)) + cp.multiply(
            sources.importance / (4.0 * d), rate
        )


def columns(kind: str) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    d, w = rng.lognormal(0, 1, MODEL_N), rng.lognormal(0, 1, MODEL_N)
    given: dict[str, dict[str, Any]] = {
        "plain": {"change_rate": d, "importance": w},
        "ill": {
            "change_rate": 10 ** rng.uniform(-6, 4, MODEL_N),
            "importance": 10 ** rng.uniform(-6, 6, MODEL_N),
        },
        "alike": {"change_rate": np.full(MODEL_N, 1.5)},
        "bounded": {"change_rate": d, "importance": w, "min_rate": 0.02 * d, "max_rate": 0.6 * d},
        "unequal": {
            "change_rate": d,
            "importance": w * (d > 0.5),
            "refresh_cost": rng.uniform(0.2, 5.0, MODEL_N),
        },
    }
    return given[kind]


@pytest.mark.exhaustive
@matrix(share=[1e-3, 0.3, 5.0], kind=["plain", "ill", "alike", "bounded", "unequal"])
@pytest.mark.parametrize(
    "objective", [Binary(), Harmonic(), Turning()], ids=["binary", "harmonic", "turning"]
)
def test_compiled_models_find_the_same_optimum(
    monkeypatch: pytest.MonkeyPatch, objective: fo.Objective, kind: str, share: float
) -> None:
    sources = fo.Sources(**columns(kind))
    least = float(np.sum(sources.refresh_cost * sources.min_rate))
    bandwidth = least + share * float(np.sum(sources.refresh_cost * sources.change_rate))
    plain = fo.solve(fo.Problem(objective, sources, bandwidth), SeparableNewton())
    monkeypatch.setattr(tape_passes, "COMPILED_FROM", 0)
    monkeypatch.setattr(tape_passes, "EVALUATED_FROM", 0)
    fast = fo.solve(fo.Problem(objective, sources, bandwidth), SeparableNewton())
    assert present(fast.certificate).relative_gap <= max(
        10 * EXACT, 1.1 * present(plain.certificate).relative_gap
    )
    assert present(fast.certificate).infeasibility <= EXACT
    assert fast.value == pytest.approx(plain.value, rel=2.0 * EXACT)


def test_names_that_share_a_generated_module_have_one_value() -> None:
    seen: dict[str, Any] = {}
    for module in (vector_math, atom_functions, marginal_search):
        for name, value in vars(module).items():
            if name.isupper():
                assert seen.setdefault(name, value) == value, name
