"""The tree as a learner: what it reaches and spends, batches, probes, crawlers of others, checkpoints."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

import freshopt as fo
from freshopt import automata
from freshopt.automata import Feedback, Polling, SimulatedSources, Update
from freshopt.automata.settings import weights_of
from freshopt.online import AutomataTree, FixedPolling
from freshopt.online.automata_tree import Intervals, TreePolls
from freshopt.problems import AccumulatedDelay, BinaryFreshness, PollingKnapsack
from freshopt.simulation import SimulatedCrawler
from freshopt.solvers import Auto, Uniform
from tests.ground_truth.recorder import Recorder

RNG = np.random.default_rng(3)
N = 20
RATES, WEIGHTS = RNG.lognormal(0.0, 1.0, N), RNG.lognormal(0.0, 1.0, N)
SOURCES = fo.Sources(RATES, WEIGHTS)
WEIGHTED = AutomataTree(Feedback.PROBE, Polling.EARLIEST_DEADLINE, Update.REWARD_INACTION, rounds=40, seed=1)
CASES = [
    (AutomataTree(rounds=40), PollingKnapsack("materials"), fo.Sources(RATES)),
    (AutomataTree(update=Update.REWARD_INACTION, rounds=40), PollingKnapsack("materials"), SOURCES),
    # One poll in twenty brings feedback: it has to count for more.
    (dataclasses.replace(WEIGHTED, gain=3.0), BinaryFreshness(fo.Refresh.PERIODIC), SOURCES),
    (
        dataclasses.replace(WEIGHTED, feedback=Feedback.NEWS_THEN_NONE, polling=Polling.RANDOM),
        BinaryFreshness(fo.Refresh.POISSON),
        SOURCES,
    ),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("learner", "objective", "sources"), CASES)
def test_what_is_learnt_closes_most_of_the_gap_from_uniform(
    learner: AutomataTree, objective: fo.Objective, sources: fo.Sources
) -> None:
    problem = fo.Problem(objective, sources, bandwidth=0.5 * float(RATES.sum()))
    history = learner.run(fo.World.poisson(sources, seed=5), problem, 120_000.0 / problem.bandwidth)
    # Probes take a twentieth of the polls: the best that the others can reach is what is left to learn.
    left = problem.with_bandwidth(float(history.final.sum()))
    best, even = fo.solve(left).value, fo.solve(left, Uniform(), throw=False).value
    assert np.mean(history.value[-10:]) >= best - 0.25 * (best - even)
    assert history.exact
    spent = float(np.sum(history.spent) / np.sum(history.allowed))
    assert abs(spent - 1.0) <= 0.01
    assert np.all(history.rates.sum(axis=1) <= problem.bandwidth * (1.0 + 1e-9))


def test_probes_of_batches_are_those_of_intervals() -> None:
    """Each probe lies in an interval of its source; each interval has one at most, and it keeps the copy."""
    problem = fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), SOURCES, bandwidth=10.0)
    recorder = Recorder(SimulatedCrawler(fo.World.poisson(SOURCES, seed=2)))
    learner = dataclasses.replace(WEIGHTED, rounds=3, probing=0.6, batch=7)
    history = learner.run(recorder, problem, 400.0)
    kinds = np.concatenate([np.full(len(each.time), each.kind) for each in recorder.asked])
    source = np.concatenate([each.source for each in recorder.asked])
    time = np.concatenate([each.time for each in recorder.asked])
    assert np.all(np.diff(time) >= 0.0)
    assert not history.exact
    polls, probes = int(np.sum(kinds == "refresh")), int(np.sum(kinds == "probe"))
    assert [polls + probes, probes] == [np.sum(history.spent), np.sum(history.extra["probes"])]
    between = 0
    for k in range(N):
        own = kinds[source == k]
        between += int(np.sum(own == "refresh"))
        assert not np.any((own[1:] == "probe") & (own[:-1] == "probe"))
        assert own[0] == "refresh"  # nothing is known of the time before
    assert between == polls
    assert abs(probes / polls - 0.3) < 0.05  # half of the planned ones come before the poll


@pytest.mark.parametrize(
    ("polling", "feedback"),
    [
        (Polling.EARLIEST_DEADLINE, Feedback.NEWS),
        (Polling.EARLIEST_DEADLINE, Feedback.PROBE),
        (Polling.RANDOM, Feedback.NEWS_TWICE),
        (Polling.RANDOM, Feedback.NEWS_THEN_NONE),
    ],
)
@pytest.mark.sampled(4)
def test_batches_bring_the_feedback_of_single_polls(polling: Polling, feedback: Feedback) -> None:
    """Against the loops that poll one at a time; both are in slots of the same length."""
    n, hazard, weight = 4, np.array([0.7, 0.1, 0.05, 0.3]), np.array([1.0, 2.0, 0.5, 4.0])
    tree = automata.AutomataTree.from_shares(np.full(n, 1.0 / n), polling=polling, seed=1)
    tree.update = Update.REWARD_INACTION
    single = tree.observe(SimulatedSources(hazard, weight), 200_000, feedback)
    world = fo.World.poisson(fo.Sources(hazard * 2.0), seed=6)  # slots of half a day
    paid = weights_of(weight, feedback, tree.update)
    asked = TreePolls(SimulatedCrawler(world), tree, paid, feedback, 1.0, 1.0, 0.5)
    intervals, rng = Intervals.first(n), np.random.default_rng(0)
    parts = []
    for k in range(1000):
        done = asked.play(intervals, asked.times(100.0 * k, 100.0 * (k + 1), 200, rng), rng)
        parts.append((done.source, done.value))
    batched = [np.concatenate(column) for column in zip(*parts, strict=True)]
    for k in range(n):
        one, other = single[1][single[0] == k], batched[1][batched[0] == k]
        error = 1.2 * np.sqrt(np.var(one) / len(one) + np.var(other) / len(other))
        assert abs(one.mean() - other.mean()) <= 4.5 * error
        assert error <= 0.1 * one.mean()


@pytest.mark.exhaustive
def test_fixed_polling_finds_what_its_rates_are_worth() -> None:
    problem = fo.Problem(PollingKnapsack(), fo.Sources(RATES), bandwidth=0.5 * float(RATES.sum()))
    world, horizon = fo.World.poisson(fo.Sources(RATES), seed=1), 60_000.0 / problem.bandwidth
    for solver in (Uniform(), Auto()):
        history = FixedPolling(solver, Polling.EARLIEST_DEADLINE).run(world, problem, horizon)
        expected = fo.solve(problem, solver).value / problem.bandwidth
        assert np.ptp(history.value) <= 1e-9 * history.value[0]
        assert abs(np.mean(history.extra["found"]) - expected) <= 0.015  # gaps are a slot off at times


@pytest.mark.exhaustive
def test_rates_learnt_in_recorded_changes() -> None:
    rng = np.random.default_rng(1)
    events = {
        "source": rng.choice(3, 3000, p=[0.1, 0.2, 0.7]),
        "time": np.sort(rng.uniform(0.0, 1000.0, 3000)),
    }
    problem = fo.Problem(PollingKnapsack(), fo.Sources([1.0, 1.0, 1.0]), bandwidth=10.0)
    history = AutomataTree(rounds=10, seed=2).run(fo.World.from_events(events), problem, 990.0)
    assert not history.exact
    assert history.final.argmax() == 2
    found = history.extra["found"] * 10.0
    assert np.all(np.abs(history.value - found) <= 1e-9)
    assert found[-1] < 3.0  # there are three changes a day


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AutomataTree(Feedback.PROBE), "zeros are no penalties"),
        (
            lambda: AutomataTree(Feedback.COST, update=Update.REWARD_INACTION),
            r"from simulated sources only\. Pass PROBE or NEWS_THEN_NONE",
        ),
        (lambda: AutomataTree(rounds=0), "rounds is 0. Pass a whole number >= 1."),
        (lambda: run(fo.Sources(RATES, min_rate=0.1)), "the problem has bounds on rates"),
        (lambda: run(fo.Sources(RATES, refresh_cost=2.0)), "the problem has refresh costs other than 1"),
        (lambda: run(fo.Sources(RATES), horizon=1.0), "too short for a poll in each of 100 rounds"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(fo.SourceDataError, match=message):
        call()


def run(sources: fo.Sources, horizon: float = 100.0) -> None:
    problem = fo.Problem(AccumulatedDelay(fo.Refresh.POISSON), sources, bandwidth=5.0)
    AutomataTree().run(fo.World.poisson(sources, seed=1), problem, horizon)
