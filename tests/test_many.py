"""Many problems at once: each is what it is alone, and what closed forms and NumPy say."""

import copy
import gc
import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.duality_gap import Gap
from freshopt.compiled.batch import batch_columns
from freshopt.many import SourceGroups
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.problems import PollingKnapsack, PowerCost, SynchronizationCost
from freshopt.separable.tangents import Contradiction
from freshopt.solvers import Uniform
from tests.ground_truth import named
from tests.ground_truth.named import present
from tests.ground_truth.refusals import refused
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import rare
from tests.ground_truth.tolerances import EXACT

pytestmark = pytest.mark.usefixtures("all_compiled")
CELLS: dict[str, fo.Objective] = {
    "harmonic": named.HARMONIC,
    "harmonic periodic": named.HARMONIC_PERIODIC,
    "binary": named.BINARY,
    "binary periodic": named.BINARY_PERIODIC,
    "delay": named.DELAY,
    "delay periodic": named.DELAY_PERIODIC,
    "age": named.AGE,
    "age periodic": named.AGE_PERIODIC,
    "power": SynchronizationCost(PowerCost(2.0, 0.5)),
}
SIZES = (1, 2, 3, 700, 1, 100, 2500, 60)


def groups(
    rng: np.random.Generator, sizes: tuple[int, ...], *, ill: bool, bounded: bool, signals: bool = False
) -> tuple[fo.Sources, Array, Array]:
    """Return sources of groups, offsets and bandwidths within what bounds leave."""
    n = sum(sizes)
    spread = 4.0 if ill else 1.0
    d, w = np.exp(spread * rng.normal(size=n)), np.exp(spread * rng.normal(size=n)) * (rng.random(n) > 0.1)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    cost = np.exp(rng.normal(size=n)) if bounded else np.ones(n)
    signalled = rng.random(n) < 0.4 if signals else np.zeros(n, dtype=bool)
    lower = np.where(rng.random(n) < 0.3, 0.05 * d, 0.0) * bounded
    upper = np.where(rng.random(n) < 0.5, 0.6 * d, math.inf) if bounded else np.full(n, math.inf)
    need = np.add.reduceat(cost * lower, offsets[:-1])
    most = np.add.reduceat(cost * d, offsets[:-1])
    bandwidths = need + most * 10 ** rng.uniform(-3.0, 1.0, len(sizes))
    sources = fo.Sources(
        d,
        w,
        signalled=signalled,
        min_rate=lower if bounded else 0.0,
        max_rate=upper if bounded else math.inf,
        refresh_cost=cost if bounded else 1.0,
    )
    return sources, offsets, bandwidths


def same(one: fo.Solution, other: fo.Solution, gap: float = EXACT) -> None:
    """Compare what is unique: value, price where rates respond to it, and rates beyond rounding."""
    assert one.status is other.status
    scale = abs(other.value) + other.price * other.problem.bandwidth
    assert abs(one.value - other.value) <= EXACT * scale
    assert present(one.certificate).relative_gap <= gap
    used = other.problem.sources.refresh_cost
    inside = (other.rates > other.problem.lower) & (other.rates < other.problem.upper)
    if bool(np.any(inside)):
        assert abs(one.price - other.price) <= EXACT * other.price
    apart = used * np.abs(one.rates - other.rates)
    assert float(apart.sum()) <= 1e2 * EXACT * other.problem.bandwidth


# Of the plateau's proof the reach is a rate that is never approached.
LOOSE = {"binary periodic": 1e-9}
# Each cell and kind of columns has loops of its own, which are compiled once per machine.
MOST_USED = [
    ("harmonic", False),
    ("binary periodic", True),
]
CASES = [
    pytest.param(name, bounded, marks=[] if (name, bounded) in MOST_USED else pytest.mark.exhaustive)
    for name in CELLS
    for bounded in (False, True)
]


@pytest.mark.parametrize("ill", [False, True])
@pytest.mark.parametrize(("name", "bounded"), CASES)
@pytest.mark.sampled(4)
def test_each_problem_is_what_it_is_alone(
    name: str, bounded: bool, ill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = CELLS[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    sources, offsets, bandwidths = groups(rng, SIZES, ill=ill, bounded=bounded)
    found = fo.solve_many(objective, sources, offsets=offsets, bandwidths=bandwidths)
    assert len(found) == len(SIZES)
    assert found.statuses == (fo.Status.OPTIMAL,) * len(SIZES)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    for k, solution in enumerate(found):
        own = slice(int(offsets[k]), int(offsets[k + 1]))
        alone = fo.solve(fo.Problem(objective, sources.take(own), bandwidths[k]))
        same(solution, alone, LOOSE.get(name, EXACT))
        assert solution.rates.tolist() == found.rates[own].tolist()
        assert solution.price == found.prices[k]
        assert solution.value == pytest.approx(found.values[k], rel=EXACT, abs=1e-300)
        assert present(solution.certificate).relative_gap == pytest.approx(
            found.relative_gaps[k], rel=1e-9, abs=1e-300
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["binary", "harmonic"])
def test_signalled_sources(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    sources, offsets, bandwidths = groups(rng, SIZES, ill=False, bounded=True, signals=True)
    found = fo.solve_many(CELLS[name], sources, offsets=offsets, bandwidths=bandwidths)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    for k, solution in enumerate(found):
        same(solution, fo.solve(found.problems[k]))


@pytest.mark.exhaustive
def test_the_rates_of_delay_are_the_closed_form() -> None:
    """ρ ∝ √(wΔ), in 50 digits, at scales from 1e-12 to 1e12."""
    rng = np.random.default_rng(8)
    sizes = (5, 1, 80, 3)
    n, offsets = sum(sizes), np.concatenate(([0], np.cumsum(sizes)))
    d, w = 10 ** rng.uniform(-6, 4, n), 10 ** rng.uniform(-6, 6, n)
    bandwidths = 10 ** rng.uniform(-6, 6, len(sizes))
    found = fo.solve_many(named.DELAY, fo.Sources(d, w), offsets=offsets, bandwidths=bandwidths)
    with mpmath.workdps(50):
        for k in range(len(sizes)):
            own = range(offsets[k], offsets[k + 1])
            roots = [mpmath.sqrt(mpmath.mpf(w[j]) * mpmath.mpf(d[j])) for j in own]
            whole = mpmath.fsum(roots)
            for j, root in zip(own, roots, strict=True):
                assert found.rates[j] == pytest.approx(float(bandwidths[k] * root / whole), rel=EXACT)
            assert found.prices[k] == pytest.approx(float((whole / bandwidths[k]) ** 2), rel=EXACT)
            assert found.values[k] == pytest.approx(float(whole**2 / bandwidths[k]), rel=EXACT)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["binary", "binary periodic"])
def test_alike_sources_and_plateaus(name: str) -> None:
    """Demand jumps where all sources are alike: the mixture uses the bandwidth up, and is proved."""
    d = np.concatenate((np.full(300, 2.0), np.full(200, 0.5), np.linspace(1.0, 2.0, 50)))
    w = np.concatenate((np.ones(300), np.ones(200), np.zeros(50)))
    offsets, bandwidths = [0, 300, 500, 550], np.array([30.0, 400.0, 1.0])
    found = fo.solve_many(CELLS[name], fo.Sources(d, w), offsets=offsets, bandwidths=bandwidths)
    assert found.statuses == (fo.Status.OPTIMAL,) * 3
    assert float(found.relative_gaps.max()) <= EXACT
    used = np.add.reduceat(found.rates, offsets[:-1])
    assert np.all(used <= bandwidths * (1.0 + EXACT))
    assert used[1] == pytest.approx(400.0, rel=EXACT)
    assert found.prices[2] == 0.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("signalled", [True, False])
def test_jumps_of_many_for_a_small_bandwidth_are_proved(signalled: bool) -> None:
    """Sources that would each take ten thousand times the bandwidth at the price leave no gap to rounding."""
    rng, n = np.random.default_rng(1), 3000
    d = rng.lognormal(size=n)
    sources = fo.Sources(d, d, signalled=np.full(n, signalled))
    objective = named.BINARY if signalled else named.BINARY_PERIODIC
    found = fo.solve_many(objective, sources, offsets=[0, n], bandwidths=1e-4 * float(np.sum(d)))
    assert found.statuses == (fo.Status.OPTIMAL,)
    assert found.relative_gaps[0] <= EXACT
    # At any other price all or none would be refreshed.
    assert found.prices[0] == pytest.approx(1.0, rel=1e-12)


@pytest.mark.exhaustive
def test_a_source_may_leave_its_bound_beside_the_last_prices() -> None:
    """Left at 0 by the three evaluations, it takes 1.7e-4 of the bandwidth at the price they lead to."""
    d, w = (each[263_000:264_000] for each in np.random.default_rng(1).lognormal(size=(2, 10**6)))
    found = fo.solve_many(
        named.BINARY_PERIODIC, fo.Sources(d, w), offsets=[0, 1000], bandwidths=0.5 * float(d.sum())
    )
    assert not found.alone
    assert found.relative_gaps[0] <= EXACT
    assert found.prices[0] == pytest.approx(0.389009592001, rel=1e-11)


@pytest.mark.exhaustive
def test_an_answer_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(1)
    sources, offsets, bandwidths = groups(rng, (40,) * 20, ill=True, bounded=True)
    together = fo.solve_many(named.HARMONIC, sources, offsets=offsets, bandwidths=bandwidths)
    again = fo.solve_many(named.HARMONIC, sources, offsets=offsets, bandwidths=bandwidths)
    assert together.rates.tolist() == again.rates.tolist()
    for k in (0, 7, 19):
        own = slice(int(offsets[k]), int(offsets[k + 1]))
        alone = fo.solve_many(named.HARMONIC, sources.take(own), offsets=[0, 40], bandwidths=bandwidths[k])
        assert np.allclose(alone.rates, together.rates[own], rtol=EXACT, atol=0.0)
        assert alone.prices[0] == pytest.approx(together.prices[k], rel=EXACT)


@pytest.mark.exhaustive
def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_columns, "BLOCK", 200)
    rng = np.random.default_rng(1)
    sources, offsets, bandwidths = groups(rng, (40,) * 20, ill=False, bounded=False)
    rates = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("FRESHOPT_THREADS", threads)
        found = fo.solve_many(named.BINARY, sources, offsets=offsets, bandwidths=bandwidths)
        rates.append(found.rates.tolist())
    assert rates[0] == rates[1] == rates[2]


@pytest.mark.exhaustive
def test_problems_of_all_kinds_keep_their_order() -> None:
    rng = np.random.default_rng(4)
    sources = fo.Sources(rng.lognormal(size=30), rng.lognormal(size=30), host=["a"] * 10 + ["b"] * 20)
    single = fo.Sources(rng.lognormal(size=9).astype(np.float32), 2.0)
    problems = [
        fo.Problem(named.HARMONIC, sources, 5.0),
        fo.Problem(named.BINARY, single, 3.0),
        fo.Problem(named.HARMONIC, sources, 5.0, {"a": 0.5}),
        fo.Problem(named.HARMONIC, sources, 7.0),
        fo.Problem(named.DELAY, sources, 5.0, constraints=[fo.Budget(4.0, cost=2.0, name="kB")]),
        fo.Problem(PollingKnapsack(), single, 1.0),
        fo.Problem(named.HARMONIC, single, 7.0),
        fo.Problem(SynchronizationCost(PowerCost(1.0, 0.5)), single, 7.0),
        fo.Problem(named.BINARY, fo.Sources([1.0, 2.0], signalled=[True, False]), 1.0),
    ]
    found = fo.solve_many(iter(problems))
    assert [len(one.rates) for one in found] == [len(problem.sources) for problem in problems]
    for solution, problem in zip(found, problems, strict=True):
        assert solution.problem is problem
        alone = fo.solve(problem)
        assert solution.value == pytest.approx(alone.value, rel=1e-9)
        assert solution.rates == pytest.approx(alone.rates, rel=1e-6, abs=1e-9)
    assert "at once" in found[0].note
    assert "at once" not in found[4].note
    chosen = fo.solve_many(problems[:2], solver=Uniform(), throw=False)
    assert chosen.statuses == (fo.Status.INACCURATE,) * 2


def test_the_result_is_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    sources = fo.Sources([1.0, 4.0, 1.0, 9.0, 4.0])
    found = fo.solve_many(named.DELAY, sources, offsets=[0, 2, 5], bandwidths=[3.0, 12.0])
    assert repr(found).startswith("Solutions(2 problems of 2..3 sources: 2 optimal; relative gaps <= ")
    assert [one.value for one in found[::-1]] == pytest.approx([3.0, 3.0], rel=EXACT)
    assert found[-1].price == found.prices[1]
    assert found.offsets.tolist() == [0, 2, 5]
    assert not found.rates.flags.writeable
    with pytest.raises(IndexError):
        found[2]
    again = pickle.loads(pickle.dumps(found))
    assert again[1].rates.tolist() == found[1].rates.tolist()
    assert len(found.problems[:]) == 2


@pytest.mark.exhaustive
def test_what_cannot_be_done_is_named() -> None:
    sources = fo.Sources([1.0, 4.0, 1.0], min_rate=[0.0, 2.0, 0.0])
    delay = named.DELAY
    with pytest.raises(fo.InfeasibleProblemError, match=r"problem 1: lower bounds need 2 .* is 1 "):
        fo.solve_many(delay, sources, offsets=[0, 1, 3], bandwidths=[3.0, 1.0])
    found = fo.solve_many(delay, sources, offsets=[0, 1, 3], bandwidths=[3.0, 1.0], throw=False)
    assert found.statuses == (fo.Status.OPTIMAL, fo.Status.INFEASIBLE)
    assert np.isnan(found.rates).tolist() == [False, True, True]
    assert found.gaps[1] == math.inf
    with pytest.raises(fo.InfeasibleProblemError, match="lower bounds"):
        found[1]
    for bandwidths in ([3.0, 0.0], [3.0, math.nan], [3.0, -1.0], [3.0, math.inf]):
        with pytest.raises(fo.SourceDataError, match="bandwidths out of range for group 1: "):
            fo.solve_many(delay, sources, offsets=[0, 1, 3], bandwidths=bandwidths)
    for offsets, words in (
        ([0, 1, 1, 3], "no sources in group 1"),
        ([0, 2, 1, 3], "no sources in group 1"),
        ([0, 4], "from 0 to 4 but there are 3 sources"),
        ([1, 3], "Begin at 0"),
        ([0.0, 3.0], "whole numbers"),
        ([3], "whole numbers"),
    ):
        refused(words, fo.solve_many, delay, sources, offsets=offsets, bandwidths=4.0)
    with pytest.raises(fo.SourceDataError, match=r"bandwidths have shape \(3,\) but offsets tell of 2"):
        fo.solve_many(delay, sources, offsets=[0, 1, 3], bandwidths=[1.0, 2.0, 3.0])
    refused("there are no problems", fo.solve_many, [])
    refused("a problem is of type int", fo.solve_many, [3], error=TypeError)
    with pytest.raises(TypeError, match=r"Pass a list of freshopt\.Problem"):
        fo.solve_many(fo.Problem(delay, fo.Sources([1.0]), 1.0))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="go with an objective"):
        fo.solve_many([fo.Problem(delay, fo.Sources([1.0]), 1.0)], sources)  # type: ignore[call-overload]
    refused("no offsets or bandwidths", fo.solve_many, delay, sources)


@pytest.mark.exhaustive
def test_bandwidth_for_all_is_free() -> None:
    """Where max_rate takes less than the bandwidth, the price is 0."""
    sources = fo.Sources([1.0, 4.0, 1.0], max_rate=[1.0, 2.0, math.inf], importance=[1.0, 1.0, 0.0])
    found = fo.solve_many(named.DELAY, sources, offsets=[0, 2, 3], bandwidths=[5.0, 1.0])
    assert found.prices.tolist() == [0.0, 0.0]
    assert found.rates[:2].tolist() == [1.0, 2.0]
    assert found.values[1] == 0.0
    assert found.statuses == (fo.Status.OPTIMAL,) * 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("compiled", [True, False])
def test_a_group_that_may_never_be_refreshed_is_infeasible_alone(
    monkeypatch: pytest.MonkeyPatch, *, compiled: bool
) -> None:
    """A max_rate of 0 makes one group's cost infinite, and no other's."""
    if compiled:
        compile_all(monkeypatch)
    sources = fo.Sources([1.0, 4.0, 1.0], max_rate=[math.inf, math.inf, 0.0])
    delay, offsets = named.DELAY, [0, 2, 3]
    found = fo.solve_many(delay, sources, offsets=offsets, bandwidths=3.0, throw=False)
    assert found.statuses == (fo.Status.OPTIMAL, fo.Status.INFEASIBLE)
    assert found.rates[:2].tolist() == pytest.approx([1.0, 2.0], rel=EXACT)
    with pytest.raises(fo.InfeasibleProblemError, match="problem 1: max_rate is 0"):
        fo.solve_many(delay, sources, offsets=offsets, bandwidths=3.0)


@pytest.mark.parametrize("name", ["harmonic", *rare("binary", "delay")])
def test_tangents_are_compared_once_and_certificates_are_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, offsets, bandwidths = groups(np.random.default_rng(23), SIZES, ill=True, bounded=True)
    many = fo.solve_many(CELLS[name], sources, offsets=offsets, bandwidths=bandwidths)
    alone = [replace(many, convex_={})[k] for k in range(len(many))]
    compare, asked = Gap.contradiction, list[Gap]()

    def counted(gap: Gap) -> Contradiction | None:
        asked.append(gap)
        return compare(gap)

    monkeypatch.setattr(Gap, "contradiction", counted)
    for one, other in zip(many, alone, strict=True):
        mine, theirs = present(one.certificate), present(other.certificate)
        for key in (
            "value",
            "bound",
            "gap",
            "relative_gap",
            "beyond_rounding",
            "price",
            "reason",
            "vanishing",
        ):
            assert getattr(mine, key) == getattr(theirs, key)
        assert mine.to_frame().equals(theirs.to_frame())
    assert len(asked) == 1
    # Costs below a tangent are never told a gap, however often they are read.
    wrong = Contradiction(0, 1.0, 2.0, -1.0, 0.5, 0.75)
    monkeypatch.setattr(Gap, "contradiction", lambda _: wrong)
    doubted = replace(many, convex_={})
    assert all(present(doubted[k].certificate).gap == math.inf for k in (0, 0, 1) if k not in many.alone)


def test_a_problem_and_its_rows_are_made_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, offsets, bandwidths = groups(np.random.default_rng(5), SIZES, ill=False, bounded=False)
    many = fo.solve_many(named.HARMONIC, sources, offsets=offsets, bandwidths=bandwidths)
    first, *rest = (k for k in range(len(many)) if k not in many.alone)
    assert present(many[first].certificate).relative_gap <= EXACT
    declare, asked = type(many.problems).__getitem__, list[int]()

    def counted(own: SourceGroups, k: int) -> Problem:
        asked.append(k)
        return declare(own, k)

    monkeypatch.setattr(type(many.problems), "__getitem__", counted)
    for k in rest:
        one = many[k]
        proof = present(one.certificate)
        assert proof.relative_gap == many.relative_gaps[k]
        assert not asked
        assert one.problem is one.problem
        assert one.problem.bandwidth == bandwidths[k]
        assert proof.rows is proof.rows
        assert present(proof.rows)["bandwidth"].limit == bandwidths[k]
        assert asked == [k, k]
        asked.clear()
        for value, name in ((one, "problem"), (proof, "rows")):
            with pytest.raises(FrozenInstanceError):
                setattr(value, name, None)


def test_a_solution_holds_its_own_problem_alone() -> None:
    """Problems that are freed are those of which no solution is kept."""
    rng = np.random.default_rng(4)
    problems = [fo.Problem(named.HARMONIC, fo.Sources(rng.lognormal(size=5)), 3.0) for _ in range(40)]
    many = fo.solve_many(problems)
    first, last = [k for k in range(len(many)) if k not in many.alone][:2]
    assert present(many[first].certificate).relative_gap <= EXACT
    kept = many[last]
    held = problems[first].sources.change_rate, problems[last].sources.change_rate
    others = [sys.getrefcount(array) for array in held]
    del problems, many
    gc.collect()
    assert kept.problem.sources.change_rate is held[1]
    assert sys.getrefcount(held[0]) < others[0]
    assert present(kept.certificate).rows is not None


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_hold_what_nobody_has_asked_for(again: Callable[[fo.Solution], fo.Solution]) -> None:
    sources, offsets, bandwidths = groups(np.random.default_rng(5), SIZES, ill=False, bounded=False)
    many = fo.solve_many(named.HARMONIC, sources, offsets=offsets, bandwidths=bandwidths)
    k = [k for k in range(len(many)) if k not in many.alone][-1]
    one, other = many[k], again(many[k])
    assert repr(one) == repr(other)
    assert not other.problem.lower.flags.writeable
    mine, theirs = present(one.certificate), present(replace(other.certificate, reason="again"))
    assert present(mine.rows).to_frame().equals(present(theirs.rows).to_frame())
    assert theirs.reason == "again"
