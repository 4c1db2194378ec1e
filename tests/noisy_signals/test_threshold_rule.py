"""Crawlers that hear noisy signals: rules by hand, signals drawn as they should be, replays as predicted."""

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt.noisy_signals import (
    NoisySignalFreshness,
    SignalCrawler,
    SignalGreedy,
    SignalThresholds,
    noisy_signals,
    replay_signals,
)
from freshopt.problems import BinaryFreshness
from freshopt.scheduling import Greedy
from tests.ground_truth.refusals import refused

FOUR = 4.0  # standard errors
N = 150
Qualities = tuple[np.ndarray, np.ndarray]


def sources(seed: int = 1) -> fo.Sources:
    rng = np.random.default_rng(seed)
    return fo.Sources(rng.lognormal(0.0, 1.0, N), rng.pareto(1.5, N) + 1.0)


def mixed() -> Qualities:
    rng = np.random.default_rng(3)
    recall, precision = rng.uniform(0.0, 1.0, N), rng.uniform(0.1, 1.0, N)
    recall[:15], recall[15:30], precision[30:45] = 0.0, 1.0, 1.0
    return recall, precision


KINDS = {
    "mixed": mixed(),
    "no signals": (np.zeros(N), np.ones(N)),
    "all and true": (np.ones(N), np.ones(N)),
    "all, partly true": (np.ones(N), np.full(N, 0.4)),
    "true, not all": (np.full(N, 0.6), np.ones(N)),
    "hardly true": (np.full(N, 0.7), np.full(N, 0.01)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_thresholds_replayed_are_as_predicted(kind: str) -> None:
    many, (recall, precision) = sources(), KINDS[kind]
    objective = NoisySignalFreshness(recall, precision)
    solution = fo.solve(fo.Problem(objective, many, 0.3 * N))
    rule = objective.thresholds(solution.rates, many)
    found = replay_signals(rule, fo.World.poisson(many, seed=5), recall, precision, 200.0, skip=50.0)
    fresh = found.costs["binary"]
    assert abs(fresh.z(solution.value)) < FOUR
    assert fresh.error < 0.01 * solution.value
    crawls = 0.3 * N * 150.0
    assert abs(found.refreshes - crawls) < FOUR * math.sqrt(crawls)  # at most as irregular as Poisson


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_picks_reach_the_optimum_of_thresholds(kind: str) -> None:
    many, (recall, precision) = sources(), KINDS[kind]
    problem = fo.Problem(NoisySignalFreshness(recall, precision), many, 0.3 * N)
    optimum = fo.solve(problem).value
    world = fo.World.poisson(many, seed=8)
    found = replay_signals(SignalGreedy(problem), world, recall, precision, 40.0, skip=15.0, runs=6)
    assert found.refreshes == 0.3 * N * 25.0
    fresh = found.costs["binary"]
    assert fresh.value > optimum * 0.985 - 2.0 * fresh.error
    assert fresh.value < optimum + FOUR * fresh.error


@pytest.mark.exhaustive
def test_worse_knowledge_costs() -> None:
    many, (recall, precision) = sources(), KINDS["mixed"]
    values = {}
    for name, believed in (("true", recall), ("none", np.zeros(N)), ("turned", recall[::-1].copy())):
        problem = fo.Problem(NoisySignalFreshness(believed, precision), many, 0.3 * N)
        world = fo.World.poisson(many, seed=8)
        found = replay_signals(SignalGreedy(problem), world, recall, precision, 60.0, skip=15.0, runs=3)
        values[name] = found.costs["binary"].value
    assert values["true"] > 1.01 * values["none"]
    assert values["true"] > 1.01 * values["turned"]


def test_without_signals_the_picks_are_those_of_greedy() -> None:
    many = sources()
    noisy = SignalGreedy(fo.Problem(NoisySignalFreshness(0.0, 1.0), many, 0.3 * N))
    plain = Greedy(fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), many, 0.3 * N))
    rates = np.full(N, 0.3)
    expected = plain.times(rates, 20.0)
    found = noisy.crawls([], [], 20.0)
    assert np.allclose(found[1], expected[1], rtol=1e-12)
    assert found[0].tolist() == expected[0].tolist()


def test_true_signals_of_all_changes_are_crawled_by_importance_per_change() -> None:
    few = fo.Sources([1.0, 1.0, 1.0], [1.0, 3.0, 2.0])
    greedy = SignalGreedy(fo.Problem(NoisySignalFreshness(1.0, 1.0), few, 1.0))
    found = greedy.crawls([0, 1, 2, 2], [0.1, 0.1, 0.2, 3.9], 5.0)[0]
    assert found[[0, 1, 2, 4]].tolist() == [1, 2, 0, 2]


@pytest.mark.exhaustive
def test_blocks_pick_whom_a_look_at_all_sources_picks() -> None:
    many, (recall, precision) = sources(), KINDS["mixed"]
    greedy = SignalGreedy(fo.Problem(NoisySignalFreshness(recall, precision), many, 0.3 * N))
    source, time = noisy_signals(fo.World.poisson(many, seed=2), recall, precision, 10.0)
    picked, moments = greedy.crawls(source, time, 10.0)
    crawler, heard = SignalCrawler(greedy), 0
    for moment, expected in zip(moments, picked, strict=True):
        until = int(np.searchsorted(time, moment, side="right"))
        crawler.hear(source[heard:until])
        heard = until
        assert crawler.pick(moment) == expected


def test_rules_by_hand() -> None:
    rule = SignalThresholds(
        signals=[1.0, 0.0, 2.0, 0.0],
        wait=[0.5, np.inf, 0.0, 3.0],
        bonus=[2.0, np.inf, np.inf, 0.0],
        crawl_probability=[1.0, 0.5, 1.0, 1.0],
        names=["both", "true", "second", "clock"],
    )
    source, time, draws = [0, 1, 2, 1, 2, 3], [1.0, 1.5, 2.0, 2.5, 4.0, 5.0], [0.9, 0.9, 0.9, 0.1, 0.9, 0.9]
    who, when = rule.crawls(source, time, 7.0, draws)
    by_source = {name: when[who == k].tolist() for k, name in enumerate(["both", "true", "second", "clock"])}
    # "both" has the threshold 2.5: a signal adds 2 to the elapsed 1, later 2.5 pass without one.
    assert by_source == {"both": [1.0, 3.5, 6.0], "true": [2.5], "second": [4.0], "clock": [3.0, 6.0]}
    assert rule.due([1, 0, 2, 5], [0.5, 99.0, 0.0, 2.9]).tolist() == [True, False, True, False]
    assert rule.threshold.tolist() == [2.5, np.inf, np.inf, 3.0]
    table = rule.to_frame()
    assert table["source"].to_list() == ["both", "true", "second", "clock"]
    assert table["threshold"].to_list() == [2.5, None, None, 3.0]
    refused("no draws", rule.crawls, source, time, 7.0)
    refused("crawl_probability of source 0 is 2", SignalThresholds, [0.0], [1.0], [0.0], [2.0])


def test_rules_in_plain_steps_are_the_compiled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    many, (recall, precision) = sources(), KINDS["mixed"]
    objective = NoisySignalFreshness(recall, precision)
    rule = objective.thresholds(fo.solve(fo.Problem(objective, many, 0.3 * N)).rates, many)
    source, time = noisy_signals(fo.World.poisson(many, seed=2), recall, precision, 10.0)
    draws = np.random.default_rng(0).random(len(time))
    fast = rule.crawls(source, time, 10.0, draws)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    slow = rule.crawls(source, time, 10.0, draws)
    assert fast[0].tolist() == slow[0].tolist()
    assert fast[1].tolist() == slow[1].tolist()


def test_signals_have_the_recall_and_precision_asked_for() -> None:
    recall, precision, d = np.array([0.3, 0.8, 0.0, 1.0]), np.array([0.5, 0.2, 0.5, 1.0]), 2.0
    world, end = fo.World.poisson(fo.Sources([d] * 4), seed=3), 5000.0
    source, time = noisy_signals(world, recall, precision, end)
    offsets, changes = world.events(0.0, end)
    for k in range(4):
        own, mine = time[source == k], changes[offsets[k] : offsets[k + 1]]
        true = np.isin(mine, own)
        told = int(np.sum(true))
        spread = math.sqrt(recall[k] * (1 - recall[k]) / len(mine))
        assert abs(told / len(mine) - recall[k]) <= FOUR * spread
        rate = recall[k] * d / precision[k] - recall[k] * d
        assert abs(len(own) - told - rate * end) <= FOUR * math.sqrt(rate * end)
    assert (time[1:] >= time[:-1]).all()
    again = noisy_signals(world, recall, precision, 100.0)
    early = time <= 100.0
    assert again[1].tolist() == time[early].tolist()  # however far one looks


@pytest.mark.exhaustive
def test_signals_of_recorded_histories() -> None:
    world = fo.World.from_events({"source": [0] * 50, "time": np.arange(1.0, 51.0)}, horizon=60.0)
    source, time = noisy_signals(world, 1.0, 0.5, 60.0, seed=1)
    true = np.isin(np.arange(1.0, 51.0), time)
    assert true.all()
    assert 50 < len(source) < 50 + 50 + FOUR * math.sqrt(50)
    rule = SignalThresholds([1.0], [0.0], [np.inf])
    found = replay_signals(rule, world, 1.0, 1.0, 60.0)
    assert found.costs["binary"].mean == 1.0  # a crawl at each change
    assert found.on_signal == found.refreshes == 50


def test_what_does_not_fit_is_refused() -> None:
    world = fo.World.poisson(fo.Sources([1.0]), seed=0)
    refused("recall of source 0 is 2", noisy_signals, world, 2.0, 0.5, 1.0)
    refused("finite end", noisy_signals, world, 0.5, 0.5, math.inf)
    with pytest.raises(fo.SourceDataError, match="another horizon or skip"):
        replay_signals(SignalThresholds([0.0], [1.0], [0.0]), world, 0.5, 0.5, 1.0, skip=2.0)
    with pytest.raises(fo.ObjectiveError, match="knows no signals"):
        SignalGreedy(fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), fo.Sources([1.0]), 1.0))
    limited = fo.Sources([1.0, 1.0], max_rate=2.0)
    refused("bounds, host limits", SignalGreedy, fo.Problem(NoisySignalFreshness(0.5, 0.5), limited, 1.0))
