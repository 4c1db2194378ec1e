"""Every public callable with arguments that are right, for tests that put wrong ones in their place.

`CALLS` maps "subpackage.Name" to a function and its arguments, so small that a call takes milliseconds.
What is left out is listed in `tests.contracts.api_elsewhere`. An objective, a cost of age or a solver without
a call here gets one from its fields, with their values as `tests.contracts.discovery` finds them.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt import (
    automata,
    estimators,
    goodness_of_fit,
    noisy_signals,
    online,
    problems,
    scheduling,
    simulation,
    solvers,
    testing,
    tools,
)
from freshopt.cvx import cp
from tests.contracts import discovery
from tests.contracts.api_fixtures import (
    COUNTED,
    FEATURED,
    GREEDY,
    GROUPED,
    IN_POLICY,
    LIKELY,
    LIMITED,
    LOG,
    MATCHED,
    MIRROR_SYNC,
    OBSERVED,
    PROBLEM,
    SCHEDULE,
    SOLUTION,
    SOURCES,
    WORLD,
    Call,
    acted,
    curved,
    declared,
    fitted,
    interval,
    known_rate,
    problem,
    scheduled,
    settings,
    solved,
    sources,
    synchronized,
)
from tests.contracts.api_parts import AUTOMATA, CONSTRAINTS, LIVE, PIPELINES
from tests.ground_truth.named import AGE, BINARY, DELAY, HARMONIC, HARMONIC_PERIODIC

CALLS: dict[str, Call] = {
    **CONSTRAINTS,
    **AUTOMATA,
    **PIPELINES,
    **LIVE,
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
    "freshopt.plan": Call(
        fo.plan,
        {
            "log": LOG,
            "bandwidth": 2.0,
            "horizon": 3.0,
            "objective": HARMONIC_PERIODIC,
            "importance": 1.0,
            "hosts": {"a": "x", "b": "x", "c": "y"},
            "host_limits": {"x": "1/day"},
            "host_gap": 0.01,
            "promise": "50% younger than 5d",
            "min_rate": 0.1,
            "max_rate": 4.0,
            "estimator": estimators.MaximumLikelihood(),
            "confidence": 0.9,
            "seed": 0,
            "draws": 2,
            "time_unit": "day",
        },
    ),
    "freshopt.backtest": Call(
        fo.backtest,
        {
            "log": LOG,
            "bandwidth": 2.0,
            "objective": HARMONIC_PERIODIC,
            "importance": 1.0,
            "hosts": {"a": "x", "b": "x", "c": "y"},
            "host_limits": {"x": "1/day"},
            "min_rate": 0.1,
            "max_rate": 4.0,
            "estimator": estimators.MaximumLikelihood(),
            "seed": 0,
            "share": 0.5,
            "splits": 2,
            "every": 1.0,
            "compare_rule": ["nutch", "1d"],
            "history": None,
            "time_unit": "day",
        },
    ),
    "freshopt.Problem": Call(
        fo.Problem,
        {
            "objective": AGE,
            "sources": sources(host=["x", "x", "y"]),
            "bandwidth": 2.0,
            "host_limits": {"x": 1.0},
            "constraints": (fo.Budget(3.0, cost=[1.0, 2.0, 1.0], name="bytes"),),
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
        lambda **given: fo.solve(fo.Problem(AGE, fo.Sources(**given), 2.0)),
        {
            "change_rate": [1.0, 2.0],
            "importance": [1.0, 2.0],
            "names": ["a", "b"],
            "host": ["x", "y"],
            "signalled": [False, True],
            "min_rate": [0.0, 0.1],
            "max_rate": [1.0, np.inf],
            "refresh_cost": [1.0, 2.0],
            "time_unit": "day",
        },
    ),
    "freshopt.WeeklyProfile": Call(
        lambda gaps=7.0, load_limit=2.0, **given: fo.WeeklyProfile(**given).saving(gaps, load_limit),
        {
            "gaps": [7.0, 1.0],
            "load_limit": 2.0,
            "g": [1.0, 2.0],
            "evidence": 9.0,
            "daily_evidence": 11.0,
            "time_unit": "day",
            "origin": None,
            "time_zone": None,
        },
    ),
    "freshopt.World": Call(
        fo.World.poisson, {"sources": SOURCES, "seed": 0, "times": None, "change_rate": None}
    ),
    "freshopt.certify": Call(
        fo.certify,
        {"problem": PROBLEM, "rates": [1.0, 0.5, 0.5], "price": 0.1, "host_prices": None, "prices": None},
    ),
    "freshopt.cross_check": Call(
        fo.cross_check, {"problem": PROBLEM, "solvers": [solvers.WaterFilling()], "tolerance": 1e-6}
    ),
    "freshopt.bandwidth_for": Call(
        fo.bandwidth_for,
        {
            "problem": PROBLEM,
            "freshness": "as today",
            "value": None,
            "today": [1.0, 0.5, 0.5],
            "tolerance": 1e-6,
        },
    ),
    "freshopt.frontier": Call(
        fo.frontier,
        {"problem": LIMITED, "limits": [1.0, 2.0], "solver": None, "constraint": "bytes", "tolerance": 1e-6},
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
    "freshopt.power": Call(fo.power, {"x": cp.Variable(2), "exponents": [0.5, 0.25]}),
    "freshopt.perspective": Call(fo.perspective, {"g": cp.square, "rate": cp.Variable(2), "a": [0.5, 2.0]}),
    "freshopt.solve_many": Call(fo.solve_many, GROUPED),
    "freshopt.solve": Call(
        fo.solve,
        {
            "problem": PROBLEM,
            "solver": None,
            "tolerance": 1e-6,
            "throw": True,
            "certify": True,
            "warm_start": None,
        },
    ),
    "problems.BinaryFreshness": declared(problems.BinaryFreshness, refresh=fo.Refresh.PERIODIC),
    "problems.HarmonicStaleness": declared(problems.HarmonicStaleness, refresh=fo.Refresh.PERIODIC, nodes=16),
    "problems.PiecewiseLinearCost": curved(
        problems.PiecewiseLinearCost, slopes=[0.0, 1.0], intercepts=[0.0, -2.0]
    ),
    "problems.PollingKnapsack": declared(problems.PollingKnapsack, form="polls", nodes=16),
    "problems.PowerCost": curved(problems.PowerCost, scale=[1.0, 2.0, 3.0], exponent=0.5, cap=None),
    "solvers.AutomataTree": solved(
        solvers.AutomataTree, problems.PollingKnapsack(), polls=200, seed=0, resolution=50
    ),
    "solvers.BinaryLambdaCrawl": solved(solvers.BinaryLambdaCrawl, floor=0.1),
    "solvers.MirrorDescent": solved(solvers.MirrorDescent, DELAY, tolerance=1e-3, limit=50),
    "solvers.ProjectedGradient": solved(solvers.ProjectedGradient, tolerance=1e-3, limit=50, scaled=True),
    "online.AdaptiveRates": acted(online.AdaptiveRates, batch=2.0, floor=0.001, solver=None, seed=0),
    "online.ReplanEvery": acted(
        online.ReplanEvery, epoch=2.0, reset=0.1, prior=None, floor=0.0, solver=None, seed=0
    ),
    "online.AsyncMirrorSync": synchronized(
        online.AsyncMirrorSync, learning_rate=1.0, cycle=2.0, exploration=0.05, seed=0
    ),
    "online.AsyncProjectedGradientSync": synchronized(
        online.AsyncProjectedGradientSync, learning_rate=1.0, cycle=2.0, exploration=0.05, seed=0
    ),
    "online.AutomataTree": acted(
        online.AutomataTree,
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
    "freshopt.ChangeHistory": Call(
        fo.ChangeHistory,
        {
            "source": ["a", "a"],
            "time": [1.0, 2.0],
            "start": 0.0,
            "end": 3.0,
            "names": None,
            "time_unit": "day",
        },
    ),
    "estimators.Exact": interval(estimators.Exact, OBSERVED),
    "online.ExploreThenCommit": acted(
        online.ExploreThenCommit, exploration=2.0, doubling=None, solver=None, seed=0
    ),
    "online.FixedPolling": acted(online.FixedPolling, polling=automata.Polling.CREDIT, rounds=2, seed=0),
    "estimators.FullObservation": fitted(estimators.FullObservation, COUNTED, smoothing=0.5, half_life=None),
    "estimators.GammaPrior": Call(
        lambda **given: estimators.MaximumLikelihood(prior=estimators.GammaPrior(**given)).fit(LOG),
        {"shape": 1.0, "exposure": 1.0, "time_unit": "day"},
    ),
    "estimators.resetting_prior": Call(estimators.resetting_prior, {"log": LOG, "reset": "auto"}),
    "estimators.Hoeffding": interval(estimators.Hoeffding, MATCHED),
    "estimators.FeaturePriors": Call(estimators.FeaturePriors.from_log, FEATURED),
    "estimators.HostPriors": Call(estimators.HostPriors.from_log, {"log": LOG, "host": ["x", "x", "y"]}),
    "online.LambdaLearnAndCrawl": acted(
        online.LambdaLearnAndCrawl,
        approximate=False,
        objective=None,
        epoch=1.0,
        memory=None,
        floor=0.0,
        seed=0,
    ),
    "estimators.LawOfLargeNumbers": known_rate(
        estimators.LawOfLargeNumbers, alpha=1.0, floor=0.001, half_life=None
    ),
    "estimators.LikelihoodRatio": interval(estimators.LikelihoodRatio, LIKELY),
    "estimators.MaximumLikelihood": fitted(
        estimators.MaximumLikelihood, smoothing=0.5, prior=None, half_life=None, reset=None
    ),
    "online.MirrorSync": synchronized(online.MirrorSync, learning_rate=1.0, exploration=0.05, seed=0),
    "estimators.MomentMatching": fitted(estimators.MomentMatching, bounds=(0.001, 1000.0), half_life=None),
    "estimators.MomentumStochasticApproximation": known_rate(
        estimators.MomentumStochasticApproximation, step=1.3, beta=0.75, omega=1.0, floor=0.001
    ),
    "estimators.Naive": fitted(estimators.Naive, floor=0.001, half_life=None),
    "online.PhasedEpsilonGreedy": acted(
        online.PhasedEpsilonGreedy, epsilon=0.1, phase=1.0, solver=None, seed=0
    ),
    "estimators.Posterior": interval(estimators.Posterior, LIKELY),
    "estimators.Published": interval(estimators.Published, MATCHED, bounds=(0.01, 10.0)),
    "estimators.StochasticApproximation": known_rate(
        estimators.StochasticApproximation, step=0.75, floor=0.001
    ),
    "online.best_exploration": Call(
        online.best_exploration,
        {"problem": PROBLEM, "horizon": 8.0, "sweeps": [1, 2], "bounds": (0.01, 10.0), "draws": 2, "seed": 0},
    ),
    "online.etc_regret_bound": Call(
        online.etc_regret_bound,
        {
            "problem": PROBLEM,
            "horizon": 100.0,
            "bounds": (0.1, 10.0),
            "exploration": None,
            "confidence": 0.95,
        },
    ),
    "online.mirror_sync_regret_bound": Call(online.mirror_sync_regret_bound, MIRROR_SYNC),
    "online.mirror_sync_in_policy_bound": Call(online.mirror_sync_in_policy_bound, IN_POLICY),
    "goodness_of_fit.poisson_check": Call(
        goodness_of_fit.poisson_check, {"log_or_events": LOG, "level": 0.05, "seed": 0}
    ),
    "online.price_bracket": Call(online.price_bracket, {"problem": problem(HARMONIC)}),
    "online.sensitivity_bound": Call(
        online.sensitivity_bound,
        {"problem": PROBLEM, "estimated": [1.0, 2.0, 4.0], "true": [1.0, 2.0, 5.0], "rates": None},
    ),
    "freshopt.plan_uncertainty": Call(
        fo.plan_uncertainty,
        {
            "problem": PROBLEM,
            "estimator": estimators.MaximumLikelihood().fit(LOG),
            "draws": 2,
            "seed": 0,
            "solver": None,
        },
    ),
    "scheduling.Carousel": scheduled(scheduling.Carousel),
    "scheduling.EarliestDeadline": scheduled(scheduling.EarliestDeadline, age=0.0),
    "scheduling.Greedy": scheduled(scheduling.Greedy, problem=PROBLEM, age=0.0),
    "noisy_signals.NoisySignalFreshness": Call(
        lambda bandwidth=2.0, **given: fo.solve(
            fo.Problem(noisy_signals.NoisySignalFreshness(**given), SOURCES, bandwidth)
        ),
        {"recall": 0.5, "precision": [0.5, 0.9, 0.7]},
    ),
    "scheduling.DiscreteCounts": scheduled(scheduling.DiscreteCounts, problem=PROBLEM, repeats=True),
    "scheduling.Periodic": scheduled(
        scheduling.Periodic, profile=fo.WeeklyProfile([1.0, 2.0]), load_limit=2.0
    ),
    "scheduling.PoissonArrivals": scheduled(scheduling.PoissonArrivals, seed=0),
    "noisy_signals.SignalCrawler": Call(
        lambda **given: noisy_signals.SignalCrawler(**given).pick(1.0), {"greedy": GREEDY, "last": 0.0}
    ),
    "noisy_signals.SignalGreedy": Call(
        lambda horizon=3.0, **given: noisy_signals.SignalGreedy(**given).crawls([0, 1], [0.5, 1.5], horizon),
        {"problem": GREEDY.problem, "horizon": 3.0},
    ),
    "noisy_signals.SignalThresholds": Call(
        lambda horizon=3.0, **given: noisy_signals.SignalThresholds(**given).crawls(
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
    "noisy_signals.WithNoisySignals": Call(
        lambda bandwidth=2.0, **given: fo.solve(
            fo.Problem(noisy_signals.WithNoisySignals(**given), SOURCES, bandwidth)
        ),
        {"objective": problems.AccumulatedDelay(), "recall": 0.5, "precision": [0.5, 0.9, 0.7]},
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
    "simulation.AgeCosts": Call(
        simulation.AgeCosts, {"curve": BINARY.curve(SOURCES), "n": 3, "noise": 0.1, "seed": 0}
    ),
    "simulation.SimulatedCrawler": Call(simulation.SimulatedCrawler, {"world": WORLD}),
    "noisy_signals.noisy_signals": Call(
        noisy_signals.noisy_signals, {"world": WORLD, "recall": 0.5, "precision": 0.9, "end": 3.0, "seed": 0}
    ),
    "noisy_signals.replay_signals": Call(
        noisy_signals.replay_signals,
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
    "tools.export": Call(
        tools.export,
        {
            "rates": {"a": 1.0},
            "target": tools.Crontab(),
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
        {"objective": DELAY, "n": 2, "seed": 0, "scale": "benign"},
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


def derived(known: Collection[str] = ()) -> dict[str, Call]:
    """Return a call of each exported objective, cost of age and solver, from its fields, if not known."""
    found: dict[str, Call] = {}
    for name in problems.__all__:
        owner = getattr(problems, name)
        if f"problems.{name}" in known:
            continue
        if issubclass(owner, fo.Objective):
            one = next(each for each in discovery.objectives().values() if type(each) is owner)
            found[f"problems.{name}"] = declared(owner, **settings(discovery.sized(one, len(SOURCES))))
        else:
            found[f"problems.{name}"] = curved(
                owner, **settings(discovery.sized(discovery.instance(owner), len(SOURCES)))
            )
    for name in solvers.__all__:
        owner = getattr(solvers, name)
        if f"solvers.{name}" in known:
            continue
        one = discovery.instance(owner)
        suited = (each for each in discovery.objectives().values() if suits(one, each))
        found[f"solvers.{name}"] = solved(owner, next(suited, None), **settings(one))
    return found


def suits(solver: Any, objective: fo.Objective) -> bool:  # noqa: ANN401
    """Return whether a solver applies to an objective over the sources of these calls."""
    try:
        return solver.supports(problem(discovery.sized(objective, len(SOURCES)))) is None
    except fo.FreshoptError:
        return False


CALLS = {**CALLS, **derived(CALLS)}
