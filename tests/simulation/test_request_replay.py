"""Replays of caches with lifetimes: by hand, against the formulas, compiled as in NumPy, and paired."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

import freshopt as fo
from freshopt.simulation import compare_lifetimes
from freshopt.simulation.loops import Events
from freshopt.simulation.request_replay import met
from freshopt.solvers import LifetimeRule
from tests.ground_truth.cost_truth import Floats
from tests.ground_truth.refusals import refused

ON_REQUEST = fo.Refresh.ON_REQUEST
FRESH = fo.problems.BinaryFreshness(ON_REQUEST)


def two(bandwidth: float = 0.4) -> fo.Solution:
    """Source 0 lives for 3 days, if it may use 0.2 of the bandwidth: ζ = .5, Δ = 1."""
    sources = fo.Sources(1.0, request_rate=[0.5, 0.5], max_rate=0.2)
    return fo.solve(fo.Problem(FRESH, sources, bandwidth=bandwidth))


def test_seven_requests_by_hand() -> None:
    # Source 0 lives 3: fresh at 0, requested at 1 (one change missed, at .5), 2 (two, at 1.5), 3.5 (fetches),
    # 5 (one, at 4), 6.5 (exactly 3 after the fetch: fetches), 8 (none). Source 1 is requested once, at 9.
    changes = {"source": [0, 0, 0, 0, 1], "time": [0.5, 1.5, 3.0, 4.0, 9.5]}
    requests = {"source": [0, 0, 0, 0, 0, 0, 1], "time": [1.0, 2.0, 3.5, 5.0, 6.5, 8.0, 9.0]}
    world = fo.World.on_request(
        fo.Sources(1.0, request_rate=[0.5, 0.5]), seed=0, changes=changes, requests=requests, horizon=10.0
    )
    assert repr(world) == "World(2 sources with 5 recorded changes, 7 recorded requests in 0..10 days)"
    solution = two()
    assert solution.lifetimes == pytest.approx([3.0, 3.0])
    found = fo.replay(solution, world)
    assert (found.requests, found.refreshes, found.runs) == (7.0, 3.0, 1)
    assert found.costs["binary"].mean == pytest.approx(4 / 7)
    assert found.costs["harmonic"].mean == pytest.approx((1.0 + 1.5 + 1.0) / 7)
    assert found.costs["delay"].mean == pytest.approx((1 + 2 + 1) / 7)
    assert found.costs["age"].mean == pytest.approx((0.5 + 1.5 + 1.0) / 7)
    assert found.per_source["delay"] == pytest.approx([4 / 6, 0.0])
    # Stale .5..3.5 and 4..6.5 of source 0, 9.5..10 of source 1 (which nobody has asked for again).
    assert found.time_average["binary"].mean == pytest.approx(1.0 - (3.0 + 2.5 + 0.5) / 20.0)
    assert found.of(FRESH).value == pytest.approx(4 / 7)  # Σw = 1
    table = found.to_frame()
    assert table["over"].unique(maintain_order=True).to_list() == ["requests", "time"]
    assert "fresh 0.5714" in repr(found)
    assert "of requests, 0.7000 of time" in repr(found)


def test_a_window_of_requests() -> None:
    requests = {"source": [0, 0, 0, 0], "time": [1.0, 2.0, 3.5, 5.0]}
    world = fo.World.on_request(
        fo.Sources(1.0, request_rate=[0.5, 0.5]),
        seed=0,
        changes={"source": [0], "time": [0.5]},
        requests=requests,
        horizon=10.0,
    )
    found = fo.replay(two(), world, skip=1.0, end=4.0)  # the requests at 2 and 3.5
    assert (found.requests, found.refreshes) == (2.0, 1.0)
    assert found.costs["binary"].mean == pytest.approx(0.5)


@pytest.mark.parametrize(
    "objective",
    [
        FRESH,
        fo.problems.HarmonicStaleness(ON_REQUEST),
        fo.problems.AccumulatedDelay(ON_REQUEST),
        fo.problems.Age(ON_REQUEST),
        fo.problems.SynchronizationCost(fo.problems.PowerCost(1.0, 0.5), ON_REQUEST),
    ],
    ids=repr,
)
@pytest.mark.sampled(2)
def test_requests_see_what_the_solution_says(objective: fo.Objective) -> None:
    rng = np.random.default_rng(1)
    sources = fo.Sources(rng.lognormal(0.0, 1.0, 40), request_rate=rng.lognormal(0.0, 1.0, 40))
    solution = fo.solve(fo.Problem(objective, sources, bandwidth=0.3 * float(sources.asked.sum())))
    found = fo.replay(solution, fo.World.on_request(sources, seed=11), skip=100.0, end=500.0)
    assert abs(found.of(objective).z(solution.value)) < 3.0
    assert found.refreshes / 400.0 == pytest.approx(solution.rates.sum(), rel=0.02)


def test_requests_and_time_see_two_numbers() -> None:
    """Fresh share ρ/ζ + (ρ/Δ)(1 − e^{−ΔT}) of requests, ρ[(1 − e^{−ΔT})/Δ + e^{−ΔT}/(ζ + Δ)] of time."""
    d, asked, life = 1.0, 0.5, 3.0
    rate = 1.0 / (life + 1.0 / asked)
    solution = fo.solve(fo.Problem(FRESH, fo.Sources([d] * 200, request_rate=asked), bandwidth=200 * rate))
    assert solution.lifetimes == pytest.approx([life] * 200)
    found = fo.replay(solution, fo.World.on_request(solution.problem.sources, seed=4), skip=50.0, end=200.0)
    seen, average = found.costs["binary"], found.time_average["binary"]
    requests = rate / asked + rate / d * -math.expm1(-d * life)
    time = rate * (-math.expm1(-d * life) / d + math.exp(-d * life) / (asked + d))
    assert abs(seen.z(100.0 * requests)) < 3.0
    assert abs(average.z(100.0 * time)) < 3.0
    assert (requests, time) == pytest.approx((0.590, 0.197), abs=5e-4)


@pytest.mark.parametrize("window", [1.0, math.inf])
def test_stale_while_revalidate(window: float) -> None:
    """Fresh ρ[(1 − e^{−ΔT})/Δ + e^{−ΔT}(1 − e^{−(ζ+Δ)σ})/(ζ + Δ) + e^{−ζσ}/ζ]."""
    d, asked, life = 1.0, 0.5, 3.0
    rate = 1.0 / (life + 1.0 / asked)
    sources = fo.Sources([d] * 200, request_rate=asked, stale_while_revalidate=window)
    solution = fo.solve(fo.Problem(FRESH, sources, bandwidth=200 * rate))
    fresh = -math.expm1(-d * life) / d + math.exp(-asked * window) / asked
    fresh += math.exp(-d * life) * -math.expm1(-(asked + d) * window) / (asked + d)
    found = fo.replay(solution, fo.World.on_request(sources, seed=4), skip=50.0, end=200.0)
    assert abs(found.costs["binary"].z(100.0 * rate * fresh)) < 3.0
    assert solution.value == pytest.approx(100.0 * rate * fresh)
    assert abs(found.time_average["binary"].z(solution.time_average)) < 3.0


def met_by_hand(
    requests: Floats, changes: Floats, life: float, grace: float
) -> Iterator[tuple[int, float, float, bool]]:
    """Yield what each request of one source meets, by sets of changes."""
    since = 0.0
    for time in requests:
        age = time - since
        shown = age < life + grace
        missed = changes[(changes > since) & (changes <= time)] if shown else changes[:0]
        oldest = time - missed[0] if len(missed) else 0.0
        yield len(missed), oldest, age if shown else 0.0, age >= life
        since = time if age >= life else since


def test_requests_meet_what_they_should() -> None:
    rng = np.random.default_rng(5)
    many = rng.integers(0, 60, (2, 30))
    columns = []
    for counts in many:
        counts[[0, 7]] = 0
        offsets = np.concatenate([[0], np.cumsum(counts)])
        times = rng.integers(1, 400, offsets[-1]) / 8.0  # so that requests and changes coincide
        for a, b in pairwise(offsets):
            times[a:b].sort()
        columns.append((offsets, times))
    requests, changes = (Events(*each) for each in columns)
    life = rng.choice([0.0, 0.5, 3.0, 20.0, np.inf], 30)
    grace = rng.choice([0.0, 1.0, np.inf], 30)
    found = met(requests, changes, np.zeros(30), life, grace)
    places = list(zip(range(30), *(map(pairwise, (columns[0][0], columns[1][0]))), strict=True))
    expected = [
        one
        for k, (a, b), (c, d) in places
        for one in met_by_hand(columns[0][1][a:b], columns[1][1][c:d], float(life[k]), float(grace[k]))
    ]
    for mine, theirs in zip(found, zip(*expected, strict=True), strict=True):
        assert np.array_equal(mine, theirs)
    assert found.fetched.any()
    assert (found.missed[found.fetched] > 0).any()  # stale while it was revalidated


def test_a_comparison_is_paired() -> None:
    rng = np.random.default_rng(2)
    sources = fo.Sources(rng.lognormal(0.0, 1.0, 30), request_rate=rng.lognormal(0.0, 1.0, 30))
    problem = fo.Problem(FRESH, sources, bandwidth=0.2 * float(sources.asked.sum()))
    rules = {
        "optimal": fo.solve(problem),
        "one": fo.solve(problem, LifetimeRule(), certify=False),
        "by changes": fo.solve(problem, LifetimeRule(1.0), certify=False),
    }
    world = fo.World.on_request(sources, seed=3)
    found = compare_lifetimes(rules, world, skip=50.0, end=150.0)
    assert list(found) == ["one", "by changes"]
    for name, difference in found.items():
        assert abs(difference.z(rules[name].value - rules["optimal"].value)) < 3.0
        assert difference.z(0.0) < -5.0
    # Lifetimes that differ little meet the same requests: what is random in both drops out.
    near = {"one": rules["one"], "other": fo.solve(problem, LifetimeRule(0.1), certify=False)}
    alone = [fo.replay(each, world, skip=50.0, end=150.0).of(FRESH) for each in near.values()]
    difference = compare_lifetimes(near, world, skip=50.0, end=150.0)["other"]
    apart = math.hypot(alone[0].error, alone[1].error)
    assert difference.error < apart
    assert difference.value == pytest.approx(alone[1].value - alone[0].value, abs=4.0 * apart)
    # A cost is minimised: less fares better, and the optimum's difference to a rule is negative.
    delay = fo.Problem(fo.problems.AccumulatedDelay(ON_REQUEST), sources, bandwidth=problem.bandwidth)
    rule = {"one": fo.solve(delay, LifetimeRule(), certify=False), "optimal": fo.solve(delay)}
    assert compare_lifetimes(rule, world, skip=50.0, end=150.0)["optimal"].value < 0.0


def test_recorded_requests_of_poisson_changes() -> None:
    sources = fo.Sources([1.0, 2.0], request_rate=[1.0, 1.0], names=["b", "a"])
    rng = np.random.default_rng(8)
    asked = {"source": ["a", "b"] * 500, "time": rng.uniform(0.0, 100.0, 1000)}
    world = fo.World.on_request(sources, seed=1, requests=asked, horizon=100.0)
    assert "1000 recorded requests" in repr(world) or "Poisson" in repr(world)
    found = fo.replay(fo.solve(fo.Problem(FRESH, sources, bandwidth=1.0)), world, runs=5)
    assert found.requests == 1000.0
    assert found.runs == 5
    assert found.costs["binary"].error > 0.0
    # What is drawn and comes before the start is not there: the copies are fresh at the start.
    late = fo.World.on_request(
        sources, 1, requests={"source": ["a", "b"], "time": [50.001, 50.002]}, start=50.0, horizon=60.0
    )
    assert (
        fo.replay(fo.solve(fo.Problem(FRESH, sources, bandwidth=1.0)), late, runs=3).costs["delay"].mean < 0.1
    )


def test_a_source_that_is_never_fetched_and_one_that_always_is() -> None:
    sources = fo.Sources([1e3, 1.0], [1e-9, 1.0], request_rate=[1.0, 2.0])
    solution = fo.solve(fo.Problem(FRESH, sources, bandwidth=1.5))
    assert solution.lifetimes[0] == math.inf
    world = fo.World.on_request(sources, seed=1)
    assert fo.replay(solution, world, end=50.0, runs=2).per_source["binary"][0] > 0.99
    always = fo.solve(fo.Problem(FRESH, sources, bandwidth=5.0))
    assert always.lifetimes.tolist() == [0.0, 0.0]
    assert fo.replay(always, world, end=50.0, runs=2).per_source["binary"].tolist() == [0.0, 0.0]


def test_refusals() -> None:
    solution = two()
    with pytest.raises(fo.SourceDataError, match=r"world has no requests.*World.on_request"):
        fo.replay(solution, fo.World.poisson(solution.problem.sources, seed=1))
    world = fo.World.on_request(solution.problem.sources, seed=1)
    refused(r"origin is for schedules", fo.replay, solution, world, origin=3.0)
    with pytest.raises(fo.SourceDataError, match=r"solution is for 2 sources per day, the world has 1"):
        fo.replay(solution, fo.World.on_request(fo.Sources(1.0, request_rate=1.0), seed=1))
    refused(r"sources have no request rates", fo.World.on_request, fo.Sources(1.0), seed=1)
    refused(r"nothing is left to count", fo.replay, solution, world, skip=9.0, end=8.0)
    refused(r"changes to draw", fo.replay, solution, world, end=1e12)
    with pytest.raises(fo.ObjectiveError, match=r"cannot be measured"):
        fo.replay(solution, world, objective=fo.problems.PollingKnapsack())
    refused(r"1 solutions to compare", compare_lifetimes, {"a": solution}, world)
    empty = fo.World.on_request(
        solution.problem.sources, 1, requests={"source": [0], "time": [1.0]}, horizon=5.0
    )
    refused(r"no requests in the window", fo.replay, solution, empty, skip=2.0)
    periodic = fo.solve(
        fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.PERIODIC), fo.Sources([1.0]), bandwidth=1.0)
    )
    with pytest.raises(TypeError, match=r"schedule is of type Solution.*refreshed on request"):
        fo.replay(periodic, world)
    penalty = fo.problems.ExpectedPenalty(np.sqrt)
    counted = fo.replay(solution, world, end=100.0, runs=2, objective=penalty)
    assert counted.costs["binary"].value < counted.costs[repr(penalty)].value + 1.0
