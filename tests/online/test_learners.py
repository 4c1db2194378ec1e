"""What all learners have in common: runs that resume with the same bits, budgets, and what they refuse."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.automata import Feedback, Polling, Update
from freshopt.estimators import FullObservation, GammaPrior, LawOfLargeNumbers, MaximumLikelihood
from freshopt.modelling.objective import Refresh
from freshopt.simulation import AgeCosts, Crawler
from freshopt.solvers import WaterFilling
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix

N = 24
RNG = np.random.default_rng(11)
RATES, WEIGHTS = RNG.lognormal(0.0, 1.0, N), RNG.pareto(1.5, N) + 0.2
PLAIN = fo.Sources(RATES, WEIGHTS)
SIGNALLED = fo.Sources(RATES, WEIGHTS, signalled=np.arange(N) % 4 == 0)
KEPT = fo.Sources(RATES, WEIGHTS, min_rate=0.05)
COST = fo.problems.PowerCost(RNG.random(N), 0.5)
BANDWIDTH = 12.0


def guess(objective: fo.Objective, signalled: Any = False) -> fo.Problem:  # noqa: ANN401
    return fo.Problem(objective, fo.Sources(1.0, WEIGHTS, signalled=signalled), BANDWIDTH)


BINARY, HARMONIC = (
    guess(fo.problems.BinaryFreshness(Refresh.POISSON)),
    guess(fo.problems.HarmonicStaleness(Refresh.POISSON)),
)
POLLS = fo.Problem(fo.problems.PollingKnapsack(), PLAIN, BANDWIDTH)
SYNC = fo.Problem(fo.problems.SynchronizationCost(fo.problems.BinaryCost()), KEPT, BANDWIDTH)
POWER = fo.Problem(fo.problems.SynchronizationCost(COST), KEPT, BANDWIDTH)


@dataclass(frozen=True)
class Case:
    """A learner, what it is to learn, and lengths of a run and of its first part."""

    learner: fo.online.Learner
    problem: fo.Problem
    horizon: float
    part: float
    free: bool = False  # whether what it spends is its own business

    def world(self) -> fo.World | Crawler:
        """Return the world, in which nothing has happened."""
        if self.problem is POWER:
            return AgeCosts(COST.curve(KEPT), N, noise=0.1, seed=7)
        return fo.World.poisson(SIGNALLED if self.problem.sources.signalled.any() else PLAIN, seed=7)


COUNTED = fo.online.ExploreThenCommit(10.0, doubling=50.0, estimator=FullObservation())
CASES = {
    "greedy": Case(fo.online.PhasedEpsilonGreedy(phase=20.0, seed=3), BINARY, 200.0, 100.0),
    "commit": Case(fo.online.ExploreThenCommit(10.0, 50.0, MaximumLikelihood()), BINARY, 400.0, 100.0),
    "commit by counts": Case(COUNTED, BINARY, 400.0, 100.0),
    "lambda": Case(fo.online.LambdaLearnAndCrawl(epoch=5.0), HARMONIC, 50.0, 20.0),
    "lambda with signals": Case(
        fo.online.LambdaLearnAndCrawl(seed=5),
        guess(fo.problems.HarmonicStaleness(Refresh.POISSON), SIGNALLED.signalled),
        10.0,
        4.0,
    ),
    "replan": Case(fo.online.ReplanEvery(7.0, prior=GammaPrior(0.6, 1.0)), HARMONIC, 42.0, 21.0),
    "replan after resets": Case(fo.online.ReplanEvery(7.0, reset="auto"), HARMONIC, 42.0, 21.0),
    "adapt": Case(fo.online.AdaptiveRates(20.0, LawOfLargeNumbers()), BINARY, 200.0, 80.0),
    "adapt to the log": Case(fo.online.AdaptiveRates(20.0, MaximumLikelihood()), BINARY, 200.0, 80.0),
    "mirror": Case(fo.online.MirrorSync(1.0, seed=1), SYNC, 800.0, 280.0, free=True),
    "mirror by power": Case(fo.online.MirrorSync(1.0, seed=1), POWER, 400.0, 140.0, free=True),
    "async": Case(fo.online.AsyncMirrorSync(0.5, 8.0, seed=1), SYNC, 800.0, 280.0, free=True),
    "async by power": Case(fo.online.AsyncMirrorSync(0.5, 20.0, seed=1), POWER, 400.0, 140.0, free=True),
    "gradient": Case(fo.online.AsyncProjectedGradientSync(0.05, 40.0, seed=1), SYNC, 800.0, 280.0, free=True),
    "gradient by power": Case(
        fo.online.AsyncProjectedGradientSync(0.02, 20.0), POWER, 400.0, 140.0, free=True
    ),
    "tree": Case(fo.online.AutomataTree(rounds=20, seed=1), POLLS, 200.0, 200.0),
    "tree with probes": Case(
        fo.online.AutomataTree(
            Feedback.PROBE, Polling.EARLIEST_DEADLINE, Update.REWARD_INACTION, rounds=6, seed=1
        ),
        POLLS,
        200.0,
        200.0,
    ),
    "fixed": Case(fo.online.FixedPolling(rounds=20, seed=1), POLLS, 200.0, 200.0),
}


@matrix(name=CASES, every=3)
def test_a_resumed_run_has_the_same_bits(name: str, tmp_path: Path) -> None:
    case, path = CASES[name], tmp_path / "run.npz"
    whole = case.learner.run(case.world(), case.problem, case.horizon)
    case.learner.run(case.world(), case.problem, case.part, checkpoint=path)
    resumed = case.learner.run(case.world(), case.problem, case.horizon, checkpoint=path)
    for column in ("time", "value", "spent", "allowed", "rates", "final"):
        assert getattr(resumed, column).tobytes() == getattr(whole, column).tobytes()
    assert resumed.to_frame().equals(whole.to_frame())
    if case.part == case.horizon:  # its rounds are set: everything was done already
        return
    refused("Ask for more", case.learner.run, case.world(), case.problem, case.part, checkpoint=path)
    other = CASES["greedy" if name != "greedy" else "adapt"]
    with pytest.raises(fo.SourceDataError, match=f"is a checkpoint of {type(case.learner).__name__}"):
        other.learner.run(other.world(), other.problem, other.horizon, checkpoint=path)


@matrix(name=CASES, every=3)
def test_rates_and_crawls_keep_to_the_bandwidth(name: str) -> None:
    case = CASES[name]
    history = case.learner.run(case.world(), case.problem, case.part)
    assert history.learner == repr(case.learner)
    assert np.all(history.rates.sum(axis=1) <= BANDWIDTH * (1.0 + 1e-9))
    assert np.all(history.rates >= 0.0)
    assert np.all(np.isfinite(history.value))
    share = history.spent.sum() / history.allowed.sum()
    assert 0.85 < share < (1.1 if case.free else 1.0 + 1e-9)
    assert history.time[-1] == pytest.approx(case.part, abs=case.part / 4)


@matrix(horizon=[-1.0, 0.0, np.inf, np.nan], name=CASES, every=7)
def test_a_horizon_is_a_time(name: str, horizon: float) -> None:
    case = CASES[name]
    refused(r"horizon is (-1|0|inf|nan)", case.learner.run, case.world(), case.problem, horizon)


@pytest.mark.parametrize("name", CASES)
def test_a_world_has_the_sources_of_the_problem(name: str) -> None:
    case = CASES[name]
    with pytest.raises(fo.SourceDataError, match="the world has 2 sources"):
        case.learner.run(fo.World.poisson(fo.Sources([1.0, 2.0]), 1), case.problem, case.horizon)
    hours = fo.World.poisson(fo.Sources(RATES, time_unit="hour"), 1)
    refused("clock counts hours but the problem's days", case.learner.run, hours, case.problem, case.horizon)
    with pytest.raises(TypeError, match=r"problem is of type str\. Pass a freshopt\.Problem"):
        case.learner.run(case.world(), "a problem", case.horizon)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("learner", "settings", "message"),
    [
        (fo.online.PhasedEpsilonGreedy, {"epsilon": 1.5}, "epsilon is 1"),
        (fo.online.PhasedEpsilonGreedy, {"phase": 0.0}, "phase is 0"),
        (fo.online.PhasedEpsilonGreedy, {"estimator": "mle"}, "estimator is of type str"),
        (fo.online.ExploreThenCommit, {"exploration": -1}, "exploration is -1"),
        (fo.online.ExploreThenCommit, {"doubling": np.inf}, "doubling is inf"),
        (fo.online.LambdaLearnAndCrawl, {"epoch": 0.0}, "epoch is 0"),
        (fo.online.LambdaLearnAndCrawl, {"memory": -1.0}, "memory is -1"),
        (fo.online.LambdaLearnAndCrawl, {"floor": 1.5}, "floor is 1.5"),
        (fo.online.LambdaLearnAndCrawl, {"approximate": True, "solver": WaterFilling()}, "Pass one of"),
        (fo.online.ReplanEvery, {"epoch": 0.0}, r"epoch is 0\.0\. Pass a time > 0"),
        (fo.online.ReplanEvery, {"epoch": 7.0, "floor": 2.0}, r"floor is 2\.0\. Pass a share"),
        (fo.online.ReplanEvery, {"epoch": 7.0, "reset": "often"}, "reset is 'often'"),
        (fo.online.AdaptiveRates, {"batch": 0.0}, "batch is 0"),
        (fo.online.AdaptiveRates, {"batch": 1.0, "floor": -1.0}, "floor is -1"),
        (fo.online.MirrorSync, {"learning_rate": -1.0}, "learning_rate is -1"),
        (fo.online.MirrorSync, {"learning_rate": 1.0, "exploration": 0.0}, r"exploration is 0\.0"),
        (fo.online.AsyncMirrorSync, {"learning_rate": 1.0, "cycle": 0.0}, r"cycle is 0\.0"),
        (fo.online.AsyncProjectedGradientSync, {"learning_rate": 1.0, "cycle": np.inf}, "cycle is inf"),
    ],
)
def test_settings_out_of_range(learner: Any, settings: dict[str, Any], message: str) -> None:  # noqa: ANN401
    refused(message, learner, **settings, error=(fo.SourceDataError, TypeError))


LIMITED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a bound above the mean": ({"min_rate": np.r_[6.0, np.zeros(N - 1)]}, {}),
    "bounds below the mean": ({"max_rate": np.r_[np.full(N - 4, 0.2), np.full(4, 9.0)]}, {}),
    "a host": ({"host": np.arange(N) % 2}, {"host_limits": {0: 1.0}}),
}
EXPLORING = (
    fo.online.PhasedEpsilonGreedy(0.5, phase=20.0),
    fo.online.AdaptiveRates(20.0),
    fo.online.ReplanEvery(20.0),
    fo.online.ExploreThenCommit(40.0),
    fo.online.ExploreThenCommit(),
)


@pytest.mark.parametrize("limits", LIMITED)
@pytest.mark.parametrize("learner", EXPLORING, ids=repr)
def test_equal_rates_keep_to_bounds_and_limits(learner: fo.online.Learner, limits: str) -> None:
    columns, given = LIMITED[limits]
    fresh = fo.problems.BinaryFreshness(Refresh.POISSON if "Adaptive" in repr(learner) else Refresh.PERIODIC)
    problem = fo.Problem(fresh, fo.Sources(1.0, WEIGHTS, **columns), BANDWIDTH, **given)
    history = learner.run(fo.World.poisson(PLAIN, seed=7), problem, 100.0)
    assert history.spent.sum() == pytest.approx(history.allowed.sum(), abs=N)
    assert history.rates.sum(axis=1) == pytest.approx(np.full(len(history.rates), BANDWIDTH))
    if "host_limits" in given:
        assert np.all(history.rates[:, problem.sources.host == 0].sum(axis=1) <= 1.0 + 1e-9)
    assert len(history) > 1  # an exploration beyond the limits would seem better than any plan


def test_equal_rates_under_other_constraints_are_refused() -> None:
    limited = fo.Problem(BINARY.objective, BINARY.sources, BANDWIDTH, constraints=[fo.Budget(9.0, cost=2.0)])
    refused("LambdaLearnAndCrawl, which explores", EXPLORING[0].run, CASES["greedy"].world(), limited, 60.0)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.problem is not POLLS])
@pytest.mark.parametrize(
    ("columns", "message"), [({"success": 0.5}, "Drop success"), ({"changed_cost": 2.0}, "Drop changed_cost")]
)
def test_fetches_that_fail_or_cost_what_they_bring_are_refused(name: str, columns: Any, message: str) -> None:  # noqa: ANN401
    case = CASES[name]
    own = case.problem.sources
    sources = fo.Sources(own.change_rate, own.importance, min_rate=own.min_rate, **columns)
    refused(message, case.learner.run, case.world(), case.problem.restated(sources), case.horizon)


def test_copies_refreshed_on_request_are_refused() -> None:
    fresh = fo.problems.BinaryFreshness(Refresh.ON_REQUEST)
    problem = fo.Problem(fresh, fo.Sources(1.0, request_rate=np.ones(N)), BANDWIDTH)
    refused("on request leave no choice", EXPLORING[0].run, CASES["greedy"].world(), problem, 60.0)


class Sized(fo.Objective):
    """Delay weighted by a column of its own."""

    sense = "minimise"
    refresh = Refresh.POISSON

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        weight = sources["size"] * sources.change_rate
        return cp.multiply(weight, cp.inv_pos(rate))


def test_columns_of_ones_own_reach_the_problems_that_are_solved() -> None:
    size = np.geomspace(1.0, 100.0, N)
    problem = fo.Problem(Sized(), fo.Sources(1.0, columns={"size": size}), BANDWIDTH)
    history = fo.online.LambdaLearnAndCrawl(epoch=50.0).run(fo.World.poisson(PLAIN, 7), problem, 100.0)
    root = np.sqrt(size)
    assert history.rates[0] == pytest.approx(BANDWIDTH * root / root.sum(), rel=1e-6)
    assert history.best is not None
    assert history.best[0] == pytest.approx(np.sqrt(size * RATES).sum() ** 2 / BANDWIDTH, rel=1e-6)
