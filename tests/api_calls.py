"""Every public callable with arguments that are right, for tests that put wrong ones in their place.

`CALLS` maps "subpackage.Name" to a function and its arguments, so small that a call takes milliseconds.
What is left out is listed in `tests.api_elsewhere`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import freshopt as fo
from freshopt import automata, exporting, learning, problems, scheduling, simulation, solvers, testing


class Call(NamedTuple):
    """A function of keyword arguments, and some with which it succeeds."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    refuses: tuple[type[Exception], ...] = ()  # with what else than the library's errors, by its contract


def sources(**changes: Any) -> fo.Sources:  # noqa: ANN401
    return fo.Sources(
        **{"change_rate": [1.0, 2.0, 5.0], "importance": [1.0, 0.0, 2.0], "name": ["a", "b", "c"], **changes}
    )


def problem(objective: fo.Objective | None = None) -> fo.Problem:
    return fo.Problem(objective or problems.BinaryFreshness(), sources(), 2.0)


SOURCES = sources()
PROBLEM = problem()
SOLUTION = fo.solve(PROBLEM)
TIMES = np.array([0.0, 1.0, 2.0, 4.0, 0.0, 3.0, 0.5, 1.5])
LOG = fo.CrawlLog(["a", "a", "a", "a", "b", "b", "c", "c"], TIMES, [0, 1, 0, 1, 0, 1, 0, 0])
COUNTED = fo.CrawlLog(
    ["a", "a", "b", "b", "c", "c"], [0, 1, 0, 2, 0, 3], [0, 1, 0, 1, 0, 0], changes=[0, 2, 0, 1, 0, 0]
)
WORLD = fo.World.poisson(SOURCES, 0)
FLOORED = fo.Problem(problems.SynchronizationCost(problems.BinaryCost()), sources(min_rate=0.5), 3.0)
GREEDY = scheduling.SignalGreedy(problem(scheduling.NoisySignalFreshness(0.5, 0.9)))
SCHEDULE = fo.schedule(SOLUTION, 5.0, scheduling.Periodic())


def solved(solver: Callable[..., Any], objective: fo.Objective | None = None, **arguments: Any) -> Call:  # noqa: ANN401
    return Call(lambda **given: fo.solve(problem(objective), solver(**given), throw=False), arguments)


def declared(kind: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(lambda **given: fo.solve(problem(kind(**given))), arguments)


def curved(kind: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return declared(lambda **given: problems.SynchronizationCost(kind(**given)), **arguments)


def fitted(estimator: Callable[..., Any], log: fo.CrawlLog = LOG, **arguments: Any) -> Call:  # noqa: ANN401
    return Call(lambda **given: estimator(**given).fit(log).change_rate_, arguments)


def acted(learner: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda horizon=4.0, **given: learner(**given).run(WORLD, PROBLEM, horizon),
        {"horizon": 4.0, **arguments},
    )


def synchronized(learner: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda horizon=4.0, **given: learner(**given).run(WORLD, FLOORED, horizon),
        {"horizon": 4.0, **arguments},
    )


def scheduled(method: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda horizon=3.0, **given: fo.schedule(SOLUTION, horizon, method(**given)),
        {"horizon": 3.0, **arguments},
    )


def interval(method: Callable[..., Any], model: Any, **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda confidence=0.9, **given: model.interval(confidence, method(**given)),
        {"confidence": 0.9, **arguments},
    )


def known_rate(estimator: Callable[..., Any], **arguments: Any) -> Call:  # noqa: ANN401
    return Call(
        lambda crawl_rate=1.0, **given: estimator(**given).fit(LOG, crawl_rate).change_rate_,
        {"crawl_rate": 1.0, **arguments},
    )


EVEN = fo.CrawlLog(["a"] * 5 + ["b"] * 5 + ["c"] * 5, [*range(5)] * 3, [0, 1, 0, 1, 1] * 3)
LIKELY = learning.MaximumLikelihood().fit(LOG)
MATCHED = learning.MomentMatching(bounds=(0.01, 10.0)).fit(EVEN)
OBSERVED = learning.FullObservation().fit(COUNTED)


MAX = {"min_rate": 0.01, "max_rate": 5.0}
BOUNDED = fo.Problem(problems.SynchronizationCost(problems.BinaryCost()), sources(importance=1.0, **MAX), 2.0)
CALLS: dict[str, Call] = {
    "freshopt.CrawlLog": Call(
        fo.CrawlLog,
        {
            "source": ["a", "a", "b"],
            "time": [0.0, 1.0, 0.0],
            "changed": [0, 1, 0],
            "changes": None,
            "start": None,
            "time_unit": "day",
        },
    ),
    "freshopt.Problem": Call(
        fo.Problem,
        {
            "objective": problems.Age(),
            "sources": sources(host=["x", "x", "y"]),
            "bandwidth": 2.0,
            "host_limits": {"x": 1.0},
        },
    ),
    "freshopt.Schedule": Call(
        fo.Schedule,
        {
            "source": [0, 1],
            "time": [0.5, 0.7],
            "horizon": 1.0,
            "rates": [1.0, 1.0],
            "names": ["a", "b"],
            "time_unit": "day",
            "method": "",
            "crawl_probability": None,
        },
    ),
    "freshopt.Sources": Call(
        lambda **given: fo.solve(fo.Problem(problems.Age(), fo.Sources(**given), 2.0)),
        {
            "change_rate": [1.0, 2.0],
            "importance": [1.0, 2.0],
            "name": ["a", "b"],
            "host": ["x", "y"],
            "signalled": [False, True],
            "min_rate": [0.0, 0.1],
            "max_rate": [1.0, np.inf],
            "cost": [1.0, 2.0],
            "time_unit": "day",
        },
    ),
    "freshopt.World": Call(
        fo.World.poisson, {"sources": SOURCES, "seed": 0, "times": None, "change_rate": None}
    ),
    "freshopt.certify": Call(
        fo.certify, {"problem": PROBLEM, "rates": [1.0, 0.5, 0.5], "price": 0.1, "host_prices": None}
    ),
    "freshopt.cross_check": Call(
        fo.cross_check, {"problem": PROBLEM, "solvers": [solvers.WaterFilling()], "tolerance": 1e-6}
    ),
    "freshopt.frontier": Call(
        fo.frontier, {"problem": PROBLEM, "bandwidths": [1.0, 2.0], "solver": None, "tolerance": 1e-6}
    ),
    "freshopt.replay": Call(
        fo.replay,
        {
            "schedule": SCHEDULE,
            "world": WORLD,
            "origin": None,
            "skip": 0.0,
            "end": None,
            "importance": None,
            "objective": None,
            "requests": None,
            "runs": 2,
            "seed": 0,
        },
    ),
    "freshopt.schedule": Call(
        fo.schedule,
        {"rates": {"a": 1.0, "b": 0.5}, "horizon": 3.0, "method": scheduling.Periodic(), "time_unit": "day"},
    ),
    "freshopt.solve": Call(
        fo.solve,
        {
            "problem": PROBLEM,
            "solver": None,
            "tolerance": 1e-6,
            "throw": True,
            "certify": True,
            "start": None,
        },
    ),
    "problems.AccumulatedDelay": declared(problems.AccumulatedDelay, refresh=fo.Refresh.POISSON),
    "problems.Age": declared(problems.Age, refresh=fo.Refresh.POISSON, nodes=2),
    "problems.BinaryCost": curved(problems.BinaryCost),
    "problems.BinaryFreshness": declared(problems.BinaryFreshness, refresh=fo.Refresh.PERIODIC),
    "problems.ExpectedPenalty": declared(
        problems.ExpectedPenalty, penalty=np.sqrt, refresh=fo.Refresh.POISSON, nodes=5, smallest_ratio=0.01
    ),
    "problems.HarmonicStaleness": declared(problems.HarmonicStaleness, refresh=fo.Refresh.PERIODIC, nodes=16),
    "problems.PiecewiseLinearCost": curved(
        problems.PiecewiseLinearCost, slopes=[0.0, 1.0], intercepts=[0.0, -2.0]
    ),
    "problems.PollingKnapsack": declared(problems.PollingKnapsack, form="polls", nodes=16),
    "problems.PowerCost": curved(problems.PowerCost, scale=[1.0, 2.0, 3.0], exponent=0.5, cap=None),
    "problems.SynchronizationCost": declared(
        problems.SynchronizationCost, cost=problems.BinaryCost(), refresh=fo.Refresh.PERIODIC
    ),
    "solvers.Auto": solved(solvers.Auto),
    "solvers.AutomataTree": solved(
        solvers.AutomataTree, problems.PollingKnapsack(), polls=200, seed=0, resolution=50
    ),
    "solvers.BinaryLambdaCrawl": solved(solvers.BinaryLambdaCrawl, floor=0.1),
    "solvers.ClosedForm": solved(solvers.ClosedForm, problems.AccumulatedDelay()),
    "solvers.Conic": solved(solvers.Conic, backend="CLARABEL", ladder=True),
    "solvers.LambdaCrawl": solved(solvers.LambdaCrawl, problems.HarmonicStaleness(), tolerance=1e-12),
    "solvers.LambdaCrawlApprox": solved(solvers.LambdaCrawlApprox, problems.HarmonicStaleness()),
    "solvers.MirrorDescent": solved(
        solvers.MirrorDescent, problems.AccumulatedDelay(), tolerance=1e-3, limit=50
    ),
    "solvers.ProjectedGradient": solved(solvers.ProjectedGradient, tolerance=1e-3, limit=50, scaled=True),
    "solvers.Proportional": solved(solvers.Proportional),
    "solvers.SeparableNewton": solved(solvers.SeparableNewton, tolerance=1e-13, limit=200),
    "solvers.Uniform": solved(solvers.Uniform),
    "solvers.WaterFilling": solved(solvers.WaterFilling),
    "learning.AdaptiveRates": acted(learning.AdaptiveRates, batch=2.0, floor=0.001, solver=None, seed=0),
    "learning.AsyncMirrorSync": synchronized(
        learning.AsyncMirrorSync, learning_rate=1.0, cycle=2.0, exploration=0.05, seed=0
    ),
    "learning.AsyncProjectedGradientSync": synchronized(
        learning.AsyncProjectedGradientSync, learning_rate=1.0, cycle=2.0, exploration=0.05, seed=0
    ),
    "learning.AutomataTreePolling": acted(
        learning.AutomataTreePolling,
        feedback=automata.Feedback.NEWS,
        polling=automata.Polling.CREDIT,
        update=automata.Update.REWARD_PENALTY,
        resolution=50,
        gain=1.0,
        probing=0.1,
        rounds=2,
        batch=None,
        seed=0,
    ),
    "learning.ChangeHistory": Call(
        learning.ChangeHistory,
        {
            "source": ["a", "a"],
            "time": [1.0, 2.0],
            "start": 0.0,
            "end": 3.0,
            "sources": None,
            "time_unit": "day",
        },
    ),
    "learning.Exact": interval(learning.Exact, OBSERVED),
    "learning.ExploreThenCommit": acted(
        learning.ExploreThenCommit, exploration=2.0, doubling=None, solver=None, seed=0
    ),
    "learning.FixedPolling": acted(learning.FixedPolling, polling=automata.Polling.CREDIT, rounds=2, seed=0),
    "learning.FullObservation": fitted(learning.FullObservation, COUNTED, smoothing=0.5, half_life=None),
    "learning.GammaPrior": Call(
        lambda **given: learning.MaximumLikelihood(prior=learning.GammaPrior(**given)).fit(LOG),
        {"shape": 1.0, "exposure": 1.0, "time_unit": "day"},
    ),
    "learning.Hoeffding": interval(learning.Hoeffding, MATCHED),
    "learning.HostPriors": Call(learning.HostPriors.of, {"log": LOG, "host": ["x", "x", "y"]}),
    "learning.LambdaLearnAndCrawl": acted(
        learning.LambdaLearnAndCrawl,
        approximate=False,
        objective=None,
        epoch=1.0,
        memory=None,
        floor=0.0,
        seed=0,
    ),
    "learning.LawOfLargeNumbers": known_rate(
        learning.LawOfLargeNumbers, alpha=1.0, floor=0.001, half_life=None
    ),
    "learning.LikelihoodRatio": interval(learning.LikelihoodRatio, LIKELY),
    "learning.MaximumLikelihood": fitted(
        learning.MaximumLikelihood, smoothing=0.5, prior=None, half_life=None
    ),
    "learning.MirrorSync": synchronized(learning.MirrorSync, learning_rate=1.0, exploration=0.05, seed=0),
    "learning.MomentMatching": fitted(learning.MomentMatching, bounds=(0.001, 1000.0), half_life=None),
    "learning.MomentumStochasticApproximation": known_rate(
        learning.MomentumStochasticApproximation, step=1.3, beta=0.75, omega=1.0, floor=0.001
    ),
    "learning.Naive": fitted(learning.Naive, floor=0.001, half_life=None),
    "learning.PhasedEpsilonGreedy": acted(
        learning.PhasedEpsilonGreedy, epsilon=0.1, phase=1.0, solver=None, seed=0
    ),
    "learning.Posterior": interval(learning.Posterior, LIKELY),
    "learning.Published": interval(learning.Published, MATCHED, bounds=(0.01, 10.0)),
    "learning.StochasticApproximation": known_rate(learning.StochasticApproximation, step=0.75, floor=0.001),
    "learning.best_exploration": Call(
        learning.best_exploration,
        {"problem": PROBLEM, "horizon": 8.0, "sweeps": [1, 2], "bounds": (0.01, 10.0), "draws": 2, "seed": 0},
    ),
    "learning.etc_regret_bound": Call(
        learning.etc_regret_bound,
        {
            "problem": PROBLEM,
            "horizon": 100.0,
            "bounds": (0.1, 10.0),
            "exploration": None,
            "confidence": 0.95,
        },
    ),
    "learning.mirror_sync_regret_bound": Call(
        learning.mirror_sync_regret_bound, {"problem": BOUNDED, "rounds": 100, "largest_cost": 1.0}
    ),
    "learning.poisson_check": Call(learning.poisson_check, {"log_or_events": LOG, "level": 0.05, "seed": 0}),
    "learning.price_bracket": Call(
        learning.price_bracket, {"problem": problem(problems.HarmonicStaleness())}
    ),
    "learning.sensitivity_bound": Call(
        learning.sensitivity_bound,
        {"problem": PROBLEM, "estimated": [1.0, 2.0, 4.0], "true": [1.0, 2.0, 5.0], "rates": None},
    ),
    "learning.solution_spread": Call(
        learning.solution_spread,
        {
            "problem": PROBLEM,
            "estimator": learning.MaximumLikelihood().fit(LOG),
            "draws": 2,
            "seed": 0,
            "solver": None,
        },
    ),
    "scheduling.Carousel": scheduled(scheduling.Carousel),
    "scheduling.EarliestDeadline": scheduled(scheduling.EarliestDeadline, age=0.0),
    "scheduling.Greedy": scheduled(scheduling.Greedy, problem=PROBLEM, age=0.0),
    "scheduling.NoisySignalFreshness": Call(
        lambda bandwidth=2.0, **given: fo.solve(
            fo.Problem(scheduling.NoisySignalFreshness(**given), SOURCES, bandwidth)
        ),
        {"recall": 0.5, "precision": [0.5, 0.9, 0.7]},
    ),
    "scheduling.DiscreteCounts": scheduled(scheduling.DiscreteCounts, problem=PROBLEM, repeats=True),
    "scheduling.Periodic": scheduled(scheduling.Periodic),
    "scheduling.PoissonArrivals": scheduled(scheduling.PoissonArrivals, seed=0),
    "scheduling.SignalCrawler": Call(
        lambda **given: scheduling.SignalCrawler(**given).pick(1.0), {"greedy": GREEDY, "last": 0.0}
    ),
    "scheduling.SignalGreedy": Call(
        lambda horizon=3.0, **given: scheduling.SignalGreedy(**given).crawls([0, 1], [0.5, 1.5], horizon),
        {"problem": GREEDY.problem, "horizon": 3.0},
    ),
    "scheduling.SignalThresholds": Call(
        lambda horizon=3.0, **given: scheduling.SignalThresholds(**given).crawls(
            [0, 1], [0.5, 1.5], horizon, [0.2, 0.8]
        ),
        {
            "signals": [1.0, 0.0],
            "wait": [0.5, 3.0],
            "bonus": [2.0, np.inf],
            "crawl_probability": 1.0,
            "names": ["a", "b"],
            "time_unit": "day",
            "horizon": 3.0,
        },
    ),
    "scheduling.SlotAssignment": scheduled(
        scheduling.SlotAssignment,
        slot=0.5,
        capacity=3,
        host=["x", "x", "y"],
        host_capacity=2,
        min_gap=0.0,
        blackouts=(),
    ),
    "scheduling.crawl_counts": Call(
        scheduling.crawl_counts, {"problem": PROBLEM, "horizon": 3.0, "refreshes": None, "repeats": True}
    ),
    "simulation.AgeCosts": Call(
        simulation.AgeCosts,
        {"curve": problems.BinaryFreshness().curve(SOURCES), "n": 3, "noise": 0.1, "seed": 0},
    ),
    "simulation.SimulatedCrawler": Call(simulation.SimulatedCrawler, {"world": WORLD}),
    "simulation.noisy_signals": Call(
        simulation.noisy_signals, {"world": WORLD, "recall": 0.5, "precision": 0.9, "end": 3.0, "seed": 0}
    ),
    "simulation.replay_signals": Call(
        simulation.replay_signals,
        {
            "rule": GREEDY,
            "world": WORLD,
            "recall": 0.5,
            "precision": 0.9,
            "horizon": 3.0,
            "skip": 0.0,
            "runs": 2,
            "seed": 0,
        },
    ),
    "simulation.missed_costs": Call(
        simulation.missed_costs,
        {"world": WORLD, "source": [0, 1], "time": [0.5, 0.7], "end": 1.0, "begin": 0.0, "penalty": None},
    ),
    "automata.Hierarchy": Call(
        automata.Hierarchy,
        {
            "n": 3,
            "resolution": 50,
            "polling": automata.Polling.CREDIT,
            "update": automata.Update.REWARD_PENALTY,
            "seed": 0,
        },
    ),
    "automata.SimulatedSources": Call(automata.SimulatedSources, {"hazard": [0.1, 0.2], "importance": 1.0}),
    "automata.TwofoldAutomaton": Call(
        automata.TwofoldAutomaton, {"resolution": 50, "update": automata.Update.REWARD_PENALTY}
    ),
    "automata.detection": Call(automata.detection, {"hazard": 0.5}),
    "automata.doubled": Call(automata.doubled, {"n": 5, "resolution": 50}),
    "exporting.export": Call(
        exporting.export,
        {
            "rates": {"a": 1.0},
            "target": exporting.Crontab(),
            "path": Path("rates.txt"),
            "time_unit": "day",
            "overwrite": False,
        },
    ),
    "testing.assert_optimal": Call(
        testing.assert_optimal,
        {"problem": PROBLEM, "rates": SOLUTION.rates, "tolerance": 1e-6},
        (AssertionError,),
    ),
    "testing.instances": Call(
        lambda **given: list(testing.instances(**given)),
        {"objective": problems.AccumulatedDelay(), "n": 2, "seed": 0, "scale": "benign"},
    ),
    "testing.known_optima": Call(testing.known_optima, {"seed": 0}),
    "testing.standard_objectives": Call(testing.standard_objectives, {}),
    "testing.validate_on": Call(
        testing.validate_on,
        {
            "solver": solvers.WaterFilling(),
            "problems": (("one", PROBLEM),),
            "tolerance": 1e-6,
            "smallest": True,
        },
    ),
}
