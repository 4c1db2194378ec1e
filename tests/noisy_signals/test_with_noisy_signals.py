"""Objectives with noisy signals: cycles by quadrature, all other waits, both ends, replays and refusals."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import binom, poisson

import freshopt as fo
from freshopt.noisy_signals import (
    NoisySignalFreshness,
    SignalThresholds,
    SignalWaits,
    WithNoisySignals,
    replay_signals,
)
from freshopt.noisy_signals.with_signals import stale_with_signals
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    LaterThan,
    LogFreshness,
)
from freshopt.solvers import Conic
from tests.ground_truth.signal_cycles import cycles
from tests.ground_truth.tolerances import EXACT, SCALAR

DELAY, HARMONIC = AccumulatedDelay(), HarmonicStaleness()
QUALITIES = [(0.5, 0.5), (0.9, 0.3), (0.3, 1.0), (0.7, 0.9), (0.4, 0.1)]
NUMBERS = np.arange(120)
SUMS = np.concatenate([[0.0], np.cumsum(1.0 / NUMBERS[1:])])
PENALTY: dict[fo.Objective, Any] = {DELAY: NUMBERS.astype(float), HARMONIC: SUMS}


def cost_now(objective: fo.Objective, s: float, n: int, recall: float, precision: float) -> float:
    """E c(M) of M = Poisson((1 − l)s) + Binomial(n, p), summed over both."""
    told = binom.pmf(np.arange(n + 1), n, precision)
    untold = poisson.pmf(NUMBERS[: 119 - n], (1.0 - recall) * s)
    return float(np.convolve(told, untold) @ PENALTY[objective][: n + 119 - n])


def cycle(
    objective: fo.Objective, waits: list[float], recall: float, precision: float
) -> tuple[float, float]:
    """Length and cost of a cycle that ends once so much time has passed with so many signals."""
    g, length, cost = recall / precision, 0.0, 0.0
    for n, tau in enumerate(waits):
        length += quad(lambda t, n=n: poisson.pmf(n, g * t), 0.0, tau, epsabs=1e-13)[0]
        cost += quad(
            lambda t, n=n: poisson.pmf(n, g * t) * cost_now(objective, t, n, recall, precision),
            0.0,
            tau,
            epsabs=1e-13,
        )[0]
    return length, cost


def waits_at(objective: fo.Objective, eta: float, recall: float, precision: float) -> list[float]:
    """The times at which the copy costs η, by root finding."""
    found: list[float] = []
    while cost_now(objective, 0.0, len(found), recall, precision) < eta:

        def missing(s: float, n: int = len(found)) -> float:
            return cost_now(objective, s, n, recall, precision) - eta

        found.append(brentq(missing, 0.0, 60.0, xtol=1e-14, rtol=1e-15))
    return found


@pytest.mark.parametrize("objective", [DELAY, HARMONIC], ids=lambda objective: type(objective).__name__)
@pytest.mark.parametrize(("recall", "precision"), QUALITIES)
@pytest.mark.sampled(4)
def test_cycles_are_those_of_the_definition_and_no_other_waits_are_better(
    objective: fo.Objective, recall: float, precision: float
) -> None:
    eta, d = 1.27, 4.0
    waits = waits_at(objective, eta, recall, precision)
    length, cost = cycle(objective, waits, recall, precision)
    kernel = WithNoisySignals(objective, recall, precision).kernel(fo.Sources([d], importance=[2.0]))
    rate = np.array([d / length])
    # In units of 1/Δ delay and harmonic staleness are numbers, so that only rates are scaled.
    assert kernel.cost(rate)[0] == pytest.approx(2.0 * cost / length, rel=SCALAR)
    value = eta * length - cost
    assert kernel.marginal(rate)[0] == pytest.approx(2.0 * value / d, rel=SCALAR)
    assert kernel.inverse_marginal(np.array([2.0 * value / d]))[0] == pytest.approx(rate[0], rel=SCALAR)
    rule = WithNoisySignals(objective, recall, precision).rule(rate, fo.Sources([d]))
    assert isinstance(rule, SignalWaits)
    assert rule.waits[0][rule.waits[0] > 0.0] == pytest.approx(np.array(waits) / d, rel=1e-8)
    rng = np.random.default_rng(1)
    for spread in (0.05, 0.5):
        other = np.sort(np.array(waits) * rng.lognormal(0.0, spread, len(waits)))[::-1].tolist()
        longer, dearer = cycle(objective, other, recall, precision)
        assert dearer - eta * longer > -value


@pytest.mark.parametrize(("recall", "precision"), QUALITIES[1:3])
def test_rules_of_other_qualities_cost_what_quadrature_says(recall: float, precision: float) -> None:
    # What a rule costs whose signals are not what it was made for (`benchmarks/signals`).
    sources = fo.Sources([4.0])
    rule = WithNoisySignals(HARMONIC, 0.6, 0.6).rule([1.1], sources)
    assert isinstance(rule, SignalWaits)
    found = cycles(rule.waits, 4.0, recall, precision)
    waits = (4.0 * rule.waits[0][rule.waits[0] > 0.0]).tolist()
    for objective, cost in ((HARMONIC, found.harmonic), (DELAY, found.missed)):
        length, expected = cycle(objective, waits, recall, precision)
        assert 4.0 * found.length[0] == pytest.approx(length, rel=SCALAR)
        assert 4.0 * cost[0] == pytest.approx(expected, rel=SCALAR)
    # Made for them, they cost what the cell says; silent sources, and all changes announced.
    for quality in ((recall, precision), (0.0, 1.0), (1.0, 0.4)):
        for objective in (DELAY, HARMONIC):
            noisy = WithNoisySignals(objective, *quality)
            rate = np.array([4.0 * quality[0] / quality[1] / 3.0 if quality[0] == 1.0 else 1.1])
            own = noisy.rule(rate, sources)
            assert isinstance(own, SignalWaits)
            same = cycles(own.waits, 4.0, *quality)
            lost = same.missed if objective is DELAY else same.harmonic
            assert 1.0 / same.length == pytest.approx(rate, rel=SCALAR)
            assert lost / same.length == pytest.approx(noisy.kernel(sources).cost(rate), rel=SCALAR)
    # No rule leaves copies fresher at its rate than that of freshness.
    stale = WithNoisySignals(BinaryFreshness(), recall, precision).kernel(sources).cost(1.0 / found.length)
    assert found.fresh[0] / found.length[0] < 1.0 - stale[0] + EXACT


@pytest.mark.parametrize("objective", [DELAY, HARMONIC], ids=lambda objective: type(objective).__name__)
def test_both_ends_are_equal_gaps_and_perfect_signals(objective: fo.Objective) -> None:
    rate = np.geomspace(0.05, 0.95, 40)
    sources = fo.Sources(np.ones(40), importance=np.linspace(1.0, 2.0, 40))
    silent, perfect = objective.kernel(sources), objective.signalled_kernel(sources)
    assert silent is not None
    assert perfect is not None
    for end, recall, precision in ((silent, 0.0, 0.3), (perfect, 1.0, 1.0)):
        whole = WithNoisySignals(objective, recall, precision).kernel(sources)
        assert np.array_equal(whole.cost(rate), end.cost(rate))
        assert np.array_equal(whole.inverse_marginal(rate), end.inverse_marginal(rate))
    # Next to them, by the formulas of noisy signals.
    low = WithNoisySignals(objective, 1e-9, 0.3).kernel(sources)
    assert low.cost(rate) == pytest.approx(silent.cost(rate), rel=1e-7)
    assert low.marginal(rate) == pytest.approx(silent.marginal(rate), rel=1e-7)
    for recall, precision in ((1.0, 1.0 - 1e-9), (1.0 - 1e-9, 1.0 - 1e-9)):
        near = WithNoisySignals(objective, recall, precision).kernel(sources)
        assert near.cost(rate) == pytest.approx(perfect.cost(rate), rel=1e-6, abs=1e-7)


def test_signals_of_better_quality_cost_less_at_every_rate() -> None:
    rate = np.geomspace(0.1, 3.0, 30)
    sources = fo.Sources(np.ones(30))
    for objective in (DELAY, HARMONIC, Age(), LogFreshness()):
        before = np.full(30, np.inf)
        for recall, precision in ((0.0, 1.0), (0.3, 0.5), (0.6, 0.5), (0.6, 0.9), (0.95, 0.95)):
            cost = WithNoisySignals(objective, recall, precision).kernel(sources).cost(rate)
            assert np.all(cost < before)
            before = cost


def test_binary_and_log_freshness_are_made_of_one_cell() -> None:
    rate, sources = np.geomspace(0.01, 30.0, 50), fo.Sources(np.full(50, 2.0), importance=np.full(50, 3.0))
    binary = NoisySignalFreshness(0.6, 0.7).kernel(sources)
    both = WithNoisySignals(BinaryFreshness(), 0.6, 0.7).kernel(sources)
    assert np.array_equal(binary.cost(rate), both.cost(rate))
    log = WithNoisySignals(LogFreshness(), 0.6, 0.7).kernel(sources)
    assert log.cost(rate) == pytest.approx(-3.0 * np.log1p(-binary.cost(rate) / 3.0), rel=EXACT)
    up, down = log.cost(rate * 1.00001), log.cost(rate * 0.99999)
    assert log.marginal(rate) == pytest.approx((down - up) / (2e-5 * rate), rel=1e-6)
    assert log.inverse_marginal(log.marginal(rate)) == pytest.approx(rate, rel=SCALAR)
    quiet = WithNoisySignals(LogFreshness(), 0.0, 0.7).kernel(sources)
    silent = LogFreshness().kernel(sources)
    assert quiet.cost(rate) == pytest.approx(silent.cost(rate), rel=SCALAR)
    assert quiet.inverse_marginal(rate) == pytest.approx(silent.inverse_marginal(rate), rel=SCALAR)


def mixture(objective: fo.Objective, n: int, constrained: bool = True) -> fo.Problem:
    """A third silent, a third perfect, a third noisy, one of them complete but for false signals."""
    rng = np.random.default_rng(3)
    kind = np.arange(n) % 3
    recall = np.where(kind == 0, 0.0, np.where(kind == 1, 1.0, rng.uniform(0.2, 0.95, n)))
    precision = np.where(kind == 1, 1.0, rng.uniform(0.3, 1.0, n))
    precision[1] = 0.5
    d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    noisy = WithNoisySignals(objective, recall, precision)
    if not constrained:
        return fo.Problem(noisy, fo.Sources(d, w), 0.4 * float(d.sum()))
    host = np.where(np.arange(n) < n // 3, "slow", "fast")
    lower, cost = np.where(kind == 2, 0.02 * d, 0.0), rng.choice([0.5, 1.0, 2.0], n)
    sources = fo.Sources(d, w, host=host, min_rate=lower, max_rate=2.0 * d, refresh_cost=cost)
    return fo.Problem(noisy, sources, 0.3 * float(d.sum()), {"slow": 0.05 * float(d.sum())})


@pytest.mark.parametrize(
    "objective",
    [
        DELAY,
        pytest.param(HARMONIC, marks=pytest.mark.exhaustive),
        Age(),
        BinaryFreshness(),
        LogFreshness(),
    ],
    ids=["delay", "harmonic", "age", "binary", "log"],
)
def test_mixtures_with_hosts_and_bounds_are_certified(objective: fo.Objective) -> None:
    problem = mixture(objective, 30)
    solution = fo.solve(problem)
    assert solution.status is fo.Status.OPTIMAL
    assert solution.certificate is not None
    assert solution.certificate.relative_gap < SCALAR
    assert solution.host_prices["slow"] > 0.0


@pytest.mark.parametrize("objective", [DELAY, HARMONIC, Age()], ids=["delay", "harmonic", "age"])
def test_rules_cost_in_a_world_what_solutions_predict(objective: fo.Objective) -> None:
    problem = mixture(objective, 30, constrained=False)
    noisy, sources = problem.objective, problem.sources
    assert isinstance(noisy, WithNoisySignals)
    solution = fo.solve(problem)
    rule = noisy.rule(solution.rates, sources)
    world = fo.World.poisson(sources, seed=4)
    found = replay_signals(rule, world, noisy.recall, noisy.precision, horizon=420.0, skip=20.0, runs=8)
    cost = found.of(objective)
    assert abs(cost.z(solution.value)) < 4.0
    assert cost.error < 0.02 * solution.value
    assert found.refreshes / 400.0 == pytest.approx(problem.bandwidth, rel=0.02)


@pytest.mark.parametrize("quality", [*QUALITIES, (0.0, 1.0), (1.0, 1.0), (1.0, 0.4)])
@pytest.mark.sampled(2)
def test_copies_crawled_by_waits_are_stale_as_the_replay_says(quality: tuple[float, float]) -> None:
    sources = fo.Sources([1.0, 0.2, 3.0] * 30)
    objective = WithNoisySignals(HARMONIC, *quality)
    rates = np.repeat([0.35, 0.11, 0.4], 30)[np.arange(90) % 3 * 30]
    rule = objective.rule(rates, sources)
    stale = stale_with_signals(objective, rates, sources)
    found = replay_signals(rule, fo.World.poisson(sources, seed=4), *quality, 1_000.0, skip=100.0)
    assert abs(found.costs["binary"].z(float(np.sum(1.0 - stale)))) < 4.0
    # Once by quadrature, where time and signals both count.
    if 0.0 < quality[0] < 1.0 and quality[1] < 1.0:
        assert isinstance(rule, SignalWaits)
        recall, p = quality
        g = recall / p
        fresh = sum(
            quad(
                lambda t, n=n: poisson.pmf(n, g * t) * (1.0 - p) ** n * np.exp((recall - 1.0) * t),
                0.0,
                tau,
                epsabs=1e-13,
            )[0]
            for n, tau in enumerate(rule.waits[0])
        )
        assert 1.0 - stale[0] == pytest.approx(rates[0] * fresh, rel=SCALAR)


def test_waits_are_followed_by_hand() -> None:
    # Source 0: after 3 without a signal, 1 with one, at once with two. Source 1: at every second signal.
    # Source 2: at the first or the second, as the draws say. Source 3: never.
    table = [[3.0, 1.0], [np.inf, np.inf], [np.inf, 0.0], [np.inf, np.inf]]
    rule = SignalWaits(table, [1.0, 1.0, 0.5, 0.0], names=list("abcd"))
    signals = [
        (0, 0.5),
        (1, 1.0),
        (2, 1.5),
        (0, 3.0),
        (0, 3.1),
        (1, 4.0),
        (2, 4.5),
        (2, 5.0),
        (3, 5.5),
        (1, 5.6),
    ]
    who, when = zip(*signals, strict=True)
    draws = np.where(np.array(when) == 1.5, 0.9, 0.1)
    source, time = rule.crawls(who, when, 8.0, draws)
    by_source = {k: time[source == k].tolist() for k in range(4)}
    assert by_source == {0: [1.0, 3.0, 4.0, 7.0], 1: [4.0], 2: [4.5, 5.0], 3: []}
    assert rule.waiting([1, 2, 0, 9]).tolist() == [1.0, 0.0, np.inf, np.inf]
    assert rule.due([1, 2, 0, 9], [1.0, 0.1, 99.0, 99.0]).tolist() == [True, True, False, False]
    assert rule.to_frame().rows()[:3] == [
        ("a", 0, 3.0, 1.0),
        ("a", 1, 1.0, 1.0),
        ("b", 0, None, 1.0),
    ]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: WithNoisySignals(LaterThan(1.0), 0.5, 0.5), fo.ObjectiveError, "no cost of noisy signals"),
        (lambda: WithNoisySignals(cast("Any", "delay"), 0.5, 0.5), fo.ObjectiveError, "Pass an instance"),
        (
            lambda: WithNoisySignals(HarmonicStaleness(fo.Refresh.POISSON), 0.5, 0.5),
            fo.ObjectiveError,
            "Use Refresh.PERIODIC",
        ),
        (lambda: WithNoisySignals(DELAY, 1.5, 0.5), fo.ObjectiveError, "recall is 1.5"),
        (lambda: WithNoisySignals(DELAY, [0.5, 0.0], [0.001, 0.5]), fo.ObjectiveError, "precision 0.001"),
        (
            lambda: WithNoisySignals(DELAY, [0.5, 0.5], 0.5).kernel(fo.Sources([1.0])),
            fo.ObjectiveError,
            "recall and precision for each of 1 sources",
        ),
        (lambda: SignalWaits([1.0, 2.0]), fo.SourceDataError, "no table of times"),
        (lambda: SignalWaits([[1.0, 2.0]]), fo.SourceDataError, "rise with the number"),
        (lambda: SignalWaits([[1.0]], 2.0), fo.SourceDataError, "not in"),
        (lambda: SignalWaits([[1.0]], names=["a", "b"]), fo.SourceDataError, "1 rows of waits"),
        (lambda: SignalWaits([[1.0]]).crawls([], [], np.inf), fo.SourceDataError, "horizon is inf"),
        (lambda: SignalWaits([[1.0]], 0.5).crawls([0], [1.0], 2.0), fo.SourceDataError, "no draws"),
    ],
)
def test_refusals(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_quality_of_no_account_and_solvers_without_a_form() -> None:
    # Silent sources may have any precision.
    problem = fo.Problem(WithNoisySignals(DELAY, [0.0, 0.5], [0.001, 0.5]), fo.Sources([1.0, 1.0]), 1.0)
    assert fo.solve(problem).status is fo.Status.OPTIMAL
    assert Conic().supports(problem) is not None
    rule = WithNoisySignals(BinaryFreshness(), 0.5, 0.5).rule([0.5], fo.Sources([1.0]))
    assert isinstance(rule, SignalThresholds)
