"""Standard errors are as large as deviations are: the spread of z-scores over seeds, for whatever is random.

Each cell is a replay that is repeated with other seeds. Its z-scores have a standard deviation of 0.9 to 1.1,
and the mean 0. Predictions are expectations at that very horizon, or where there is no formula the mean over
the seeds. The bounds allow for the number of seeds: chi-square quantiles of level 10⁻⁴ around the band.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import chi2

import freshopt as fo
from freshopt.noisy_signals import NoisySignalFreshness, SignalGreedy, replay_signals
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from freshopt.scheduling import Carousel, Periodic, PoissonArrivals
from freshopt.scheduling.expected_cost import expected_value
from freshopt.scheduling.schedule import Method
from tests.ground_truth.strata import matrix

OBJECTIVES = {"binary": BinaryFreshness, "harmonic": HarmonicStaleness, "delay": AccumulatedDelay, "age": Age}
N, HORIZON, SKIP = 30, 60.0, 10.0
POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC
# Of costs with a long tail the mean and its error rise together: z-scores are negative on average.
SKEWED = 0.15


class Cell(NamedTuple):
    """A replay for each seed, and what its costs are expected to be, where that is known."""

    replay: Callable[[int], fo.Replay]
    expected: dict[str, float] | None
    costs: tuple[str, ...] = tuple(OBJECTIVES)


def sources(n: int = N, *, signalled: bool = False, seed: int = 0) -> fo.Sources:
    rng = np.random.default_rng(seed)
    return fo.Sources(rng.lognormal(0.0, 0.7, n), rng.uniform(0.5, 2.0, n), signalled=signalled)


def rates_of(n: int = N) -> np.typing.NDArray[np.float64]:
    return np.random.default_rng(5).uniform(0.3, 2.0, n)


def under_poisson_refreshes(
    many: fo.Sources, rho: np.typing.NDArray[np.float64], skip: float = SKIP
) -> dict[str, float]:
    """Expected costs in skip..HORIZON, copies fresh at 0: ∫ c'(a)·P(age > a) da, averaged over time.

    At time t an age exceeds a with probability exp(−ρa) for a < t, and never for a ≥ t.
    """
    node, width = np.polynomial.legendre.leggauss(400)
    length = HORIZON - skip
    a = np.concatenate([skip * (node + 1.0) / 2.0, skip + length * (node + 1.0) / 2.0])
    da = np.concatenate([skip / 2.0 * width, length / 2.0 * width])
    delta = many.change_rate[:, None]
    slopes = {
        "binary": delta * np.exp(-delta * a),
        "harmonic": -np.expm1(-delta * a) / a,
        "delay": delta + 0.0 * a,
        "age": -np.expm1(-delta * a),
    }
    chance = np.exp(-rho[:, None] * a) * (HORIZON - np.maximum(a, skip)) / length
    costs = {name: float(many.importance @ (slope * chance @ da)) for name, slope in slopes.items()}
    costs["binary"] = float(np.sum(many.importance)) - costs["binary"]
    return costs | {"requests": costs["binary"]}


def poisson_times(n: int = N) -> Cell:
    """Refresh times, changes and requests are random."""
    many, rho = sources(n), rates_of(n)

    def replayed(seed: int) -> fo.Replay:
        plan = fo.schedule(dict(enumerate(rho)), HORIZON, PoissonArrivals(seed))
        return fo.replay(plan, fo.World.poisson(many, seed), skip=SKIP, requests=3000, seed=seed)

    return Cell(replayed, under_poisson_refreshes(many, rho), (*OBJECTIVES, "requests"))


def given_times(method: Method, n: int = N, requests: int | None = 3000) -> Cell:
    """Changes alone are random: the times stay, of whatever method they are."""
    many = sources(n)
    plan = fo.schedule(dict(enumerate(rates_of(n))), HORIZON, method)
    expected = {name: expected_value(plan, kind(PERIODIC), many) for name, kind in OBJECTIVES.items()}

    def replayed(seed: int) -> fo.Replay:
        world = fo.World.poisson(many, seed)
        return fo.replay(plan, world, requests=requests, seed=seed, redraw=False)

    costs = tuple(OBJECTIVES) if requests is None else (*OBJECTIVES, "requests")
    return Cell(replayed, expected | {"requests": expected["binary"]}, costs)


def rates_that_jump() -> Cell:
    many, rho = sources(), rates_of()

    def replayed(seed: int) -> fo.Replay:
        plan = fo.schedule(dict(enumerate(rho)), HORIZON, PoissonArrivals(seed))
        later = many.change_rate[None, ::-1]
        return fo.replay(plan, fo.World.poisson(many, seed, times=[30.0], change_rate=later))

    return Cell(replayed, None)


def on_signal(kind: str) -> Cell:
    """Coins decide which changes are crawled beside random times; seed and world have the same number."""
    many = sources(signalled=True)
    problem = fo.Problem(OBJECTIVES[kind](POISSON), many, 0.5 * float(np.sum(many.change_rate)))
    solution = fo.solve(problem)
    plan = fo.schedule(solution, HORIZON, PoissonArrivals(1))

    def replayed(seed: int) -> fo.Replay:
        return fo.replay(plan, fo.World.poisson(many, seed), skip=SKIP, seed=seed)

    return Cell(replayed, {kind: solution.value}, (kind,))


def recorded(method: Callable[[int], Method]) -> Cell:
    """One history of sources that are a sample: other sources, with other changes, for each seed."""

    def replayed(seed: int) -> fo.Replay:
        many = sources(60, seed=seed)
        offsets, time = fo.World.poisson(many, seed).events(0.0, HORIZON)
        events = {"source": np.repeat(np.arange(60), np.diff(offsets)), "time": time}
        world = fo.World.from_events(events, names=np.arange(60), start=0.0, horizon=HORIZON)
        plan = fo.schedule(dict.fromkeys(range(60), 1.0), HORIZON, method(seed))
        return fo.replay(plan, world, requests=3000, seed=seed)

    return Cell(replayed, None, (*OBJECTIVES, "requests"))


def noisy(*, greedy: bool) -> Cell:
    n = 6 if greedy else N
    many, rng = sources(n), np.random.default_rng(3)
    recall, precision = rng.uniform(0.0, 1.0, n), rng.uniform(0.2, 1.0, n)
    problem = fo.Problem(NoisySignalFreshness(recall, precision), many, 0.5 * n)
    solution = fo.solve(problem)
    rule: Any = SignalGreedy(problem)
    if not greedy:
        rule = problem.objective.thresholds(solution.rates, many)  # type: ignore[attr-defined]

    def replayed(seed: int) -> fo.Replay:
        end = 15.0 if greedy else HORIZON
        return replay_signals(
            rule,
            fo.World.poisson(many, seed),
            recall,
            precision,
            end,
            skip=5.0 if greedy else 20.0,
            seed=seed,
        )

    return Cell(replayed, None) if greedy else Cell(replayed, {"binary": solution.value}, ("binary",))


def require_calibrated(cell: Cell, seeds: int) -> None:
    found = [cell.replay(1000 * k) for k in range(seeds)]
    low, high = (float(chi2.ppf(level, seeds - 1)) / (seeds - 1) for level in (1e-4, 1.0 - 1e-4))
    for name in cell.costs:
        value = np.array([each.costs[name].value for each in found])
        error = np.array([each.costs[name].error for each in found])
        if cell.expected is None:  # in the unit of the replay: means, if each has sources of its own
            scale = value / np.array([each.costs[name].mean for each in found])
            value, error = value / scale, error / scale
        z = (value - (np.mean(value) if cell.expected is None else cell.expected[name])) / error
        assert 0.9 * math.sqrt(low) < np.std(z, ddof=1) < 1.1 * math.sqrt(high), name
        if cell.expected is not None:
            assert abs(np.mean(z)) < 4.0 * 1.1 / math.sqrt(seeds) + SKEWED, name


CELLS: dict[str, tuple[Callable[[], Cell], int]] = {
    "Poisson refreshes": (poisson_times, 60),
    "Poisson refreshes, given": (lambda: given_times(PoissonArrivals(seed=2)), 40),
    "one source": (lambda: given_times(Periodic(), n=1, requests=None), 60),
    "on signal, age": (lambda: on_signal("age"), 30),
}
MATRIX: dict[str, tuple[Callable[[], Cell], int]] = {
    "Poisson refreshes": (poisson_times, 250),
    "Poisson refreshes, few sources": (lambda: poisson_times(10), 100),
    "Poisson refreshes, given": (lambda: given_times(PoissonArrivals(seed=2)), 200),
    "Poisson refreshes, rates that jump": (rates_that_jump, 200),
    "periodic refreshes": (lambda: given_times(Periodic()), 200),
    "constant load, few sources": (lambda: given_times(Carousel(), n=4, requests=None), 100),
    "on signal, binary": (lambda: on_signal("binary"), 50),
    "on signal, harmonic": (lambda: on_signal("harmonic"), 100),
    "on signal, delay": (lambda: on_signal("delay"), 100),
    "recorded, periodic": (lambda: recorded(lambda _: Periodic()), 100),
    "recorded, Poisson refreshes": (lambda: recorded(PoissonArrivals), 200),
    "thresholds for noisy signals": (lambda: noisy(greedy=False), 60),
    "greedy picks by noisy signals": (lambda: noisy(greedy=True), 40),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("cell", [*CELLS, *MATRIX])
def test_errors_are_as_large_as_deviations_are(cell: str) -> None:
    make, seeds = (CELLS | MATRIX)[cell]
    require_calibrated(make(), seeds)


@matrix(change_rate=[0.05, 1.0, 4.0], rate=[0.1, 1.0, 3.0], every=3)
def test_the_beginning_lowers_costs_by_no_more_than_is_said(change_rate: float, rate: float) -> None:
    costs = under_poisson_refreshes(fo.Sources([change_rate]), np.array([rate]), skip=1e-6)
    limits = {
        "binary": change_rate / (change_rate + rate),
        "harmonic": math.log1p(change_rate / rate),
        "delay": change_rate / rate,
        "age": 1.0 / rate - 1.0 / (rate + change_rate),
    }
    for name, limit in limits.items():
        lost = costs[name] - (1.0 - limit) if name == "binary" else limit - costs[name]
        assert 0.0 < lost / limit < (2.0 if name == "age" else 1.0) / (rate * HORIZON), name
