"""What each feedback is worth on average, against derivatives of gains that are integrated anew."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from freshopt.automata import AutomataTree, Cost, Feedback, Polling, SimulatedSources, Update
from tests.ground_truth.cost_truth import Floats

HAZARD = np.array([0.7, 0.1, 0.05, 0.02])
WEIGHT = np.array([1.0, 2.0, 0.5, 4.0])
SHARES = np.full(4, 0.25)  # with unequal shares, deadlines leave gaps that vary by a slot or two
POLLS = 600_000
Z = 4.5  # standard errors: 7e-6 of such intervals miss

Gain = Callable[[float, float], float]  # of a hazard and a share


def freshness(hazard: float, gap: float) -> float:
    """Share of a gap in which the copy is fresh, integrated."""
    return quad(lambda s: math.exp(-hazard * s), 0.0, gap, epsabs=1e-13)[0] / gap


def periodic_freshness(hazard: float, share: float) -> float:
    return freshness(hazard, 1.0 / share)


def poisson_freshness(hazard: float, share: float) -> float:
    """Expected fresh time of an exponential gap, over the mean gap."""
    fresh = quad(lambda s: math.exp(-hazard * s) * math.exp(-share * s), 0.0, np.inf, epsabs=1e-13)[0]
    return share * fresh


def poisson_news(hazard: float, share: float) -> float:
    """Polls that find news, per slot."""
    found = quad(lambda s: -math.expm1(-hazard * s) * share * math.exp(-share * s), 0.0, np.inf)[0]
    return share * found


def chances(hazard: float, share: float) -> float:
    """∫₀ˣ of the probability that a periodic poll finds news."""
    return quad(lambda x: -math.expm1(-hazard / x) if x > 0.0 else 1.0, 0.0, share, epsabs=1e-13)[0]


def slopes(gain: Gain) -> Floats:
    """Central differences, of an error of 1e-8."""
    step = 1e-4
    pairs = [
        (gain(a, x * (1 + step)) - gain(a, x * (1 - step))) / (2 * step * x)
        for a, x in zip(HAZARD, SHARES, strict=True)
    ]
    return np.array(pairs)


CASES = [
    (Polling.EARLIEST_DEADLINE, Feedback.PROBE, periodic_freshness),
    (Polling.EARLIEST_DEADLINE, Feedback.NEWS, chances),
    (Polling.RANDOM, Feedback.NEWS_TWICE, poisson_news),
    (Polling.RANDOM, Feedback.NEWS_THEN_NONE, poisson_freshness),
]


def observed(
    polling: Polling, feedback: Feedback, update: Update, probing: float = 1.0
) -> tuple[Floats, Floats]:
    """Return the mean feedback of each source and its standard error."""
    tree = AutomataTree.from_shares(SHARES, polling=polling, seed=8)
    tree.update = update
    source, value = tree.observe(SimulatedSources(HAZARD, WEIGHT), POLLS, feedback, probing=probing)
    source, value = source[100:], value[100:]
    each = [value[source == k] for k in range(4)]
    pairs = [
        v.reshape(-1, 2).sum(axis=1) if len(v) % 2 == 0 else v[:-1].reshape(-1, 2).sum(axis=1) for v in each
    ]
    # Feedback on two polls in a row depends on the polls before: pairs of pairs carry the error.
    error = [1.2 * np.std(pair, ddof=1) / (2.0 * math.sqrt(len(pair))) for pair in pairs]
    return np.array([np.mean(v) for v in each]), np.array(error)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("polling", "feedback", "gain"), CASES)
def test_the_mean_feedback_is_the_weighted_derivative(
    polling: Polling, feedback: Feedback, gain: Gain
) -> None:
    mean, error = observed(polling, feedback, Update.REWARD_INACTION)
    unit = 1.0 if feedback.is_bit else 1.0 / 4  # values are per mean share
    expected = unit * WEIGHT / WEIGHT.mean() * slopes(gain)
    assert np.all(np.abs(mean - expected) <= Z * error)
    assert np.all(error <= 0.05 * expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("polling", "feedback", "gain"), CASES[1:3])
def test_with_penalties_weights_are_chances_of_a_reward(
    polling: Polling, feedback: Feedback, gain: Gain
) -> None:
    mean, error = observed(polling, feedback, Update.REWARD_PENALTY)
    assert np.all(np.abs(mean - WEIGHT / WEIGHT.max() * slopes(gain)) <= Z * error)


@pytest.mark.exhaustive
def test_fewer_probes_are_less_feedback_of_the_same_kind() -> None:
    mean, error = observed(Polling.EARLIEST_DEADLINE, Feedback.PROBE, Update.REWARD_INACTION, probing=0.3)
    expected = 0.3 / 4 * WEIGHT / WEIGHT.mean() * slopes(periodic_freshness)
    assert np.all(np.abs(mean - expected) <= Z * error)


@pytest.mark.exhaustive
def test_news_does_not_measure_weighted_freshness() -> None:
    """The published feedback, with weights, is another derivative: what the probe is for."""
    mean, error = observed(Polling.EARLIEST_DEADLINE, Feedback.NEWS, Update.REWARD_INACTION)
    other = WEIGHT / WEIGHT.mean() * slopes(lambda a, x: a * periodic_freshness(a, x))
    assert np.all(mean - other > 10 * Z * error)


# Ages at which some cost below has a kink or a jump.
KINKS = (3.0, 6.0)


def grown(cost: Callable[[float, float], float], polling: Polling) -> Callable[[float, float], float]:
    """Return −J'(x), of J(x) = x·E C(T), by central differences of its integral."""

    def total(hazard: float, share: float) -> float:
        periodic = polling is Polling.EARLIEST_DEADLINE
        end = 1.0 / share if periodic else np.inf

        def still(s: float) -> float:
            return 1.0 if periodic else math.exp(-share * s)

        edges = [0.0, *(kink for kink in KINKS if kink < end), end]
        parts = [
            quad(lambda s: cost(hazard, s) * still(s), low, high, epsabs=1e-13, epsrel=1e-11)[0]
            for low, high in itertools.pairwise(edges)
        ]
        return -share * sum(parts)

    return total


def harmonic(hazard: float, age: float) -> float:
    """E H(m) of a Poisson number m, as the integral of (1 − e^{−t})/t."""
    return quad(lambda t: -math.expm1(-t) / t if t > 0.0 else 1.0, 0.0, hazard * age, epsrel=1e-11)[0]


def oldest(hazard: float, age: float) -> float:
    return age + math.expm1(-hazard * age) / hazard


SEEN = [
    (Cost.STALE, None, lambda a, s: -math.expm1(-a * s)),
    (Cost.HARMONIC, None, harmonic),
    (Cost.MISSED, None, lambda a, s: a * s),
    (Cost.AGE, None, oldest),
    (Cost.POWER, [0.5, 6.0], lambda _, s: min(s, 6.0) ** 0.5),
    (Cost.PIECES, [0.0, 1.0, 0.0, -3.0], lambda _, s: float(s > 3.0)),
]


# Each cost under one of the disciplines in every run, under the other by the marker.
EITHER = [
    pytest.param(polling, *seen, marks=[] if k % 2 == m else pytest.mark.exhaustive)
    for m, polling in enumerate((Polling.EARLIEST_DEADLINE, Polling.RANDOM))
    for k, seen in enumerate(SEEN)
]


@pytest.mark.parametrize(("polling", "cost", "curve", "of_age"), EITHER)
def test_what_a_cost_grows_by_from_probe_to_poll_is_its_marginal(
    polling: Polling, cost: Cost, curve: list[float] | None, of_age: Callable[[float, float], float]
) -> None:
    tree = AutomataTree.from_shares(SHARES, polling=polling, seed=8)
    tree.update = Update.REWARD_INACTION
    table = None if curve is None else np.tile(curve, (4, 1))
    sources = SimulatedSources(HAZARD, WEIGHT, cost=cost, curve=table)
    source, value = tree.observe(sources, POLLS // 4, Feedback.COST)
    each = [value[source == k][100:] for k in range(4)]
    error = np.array([np.std(v, ddof=1) / math.sqrt(len(v)) for v in each])
    expected = WEIGHT / WEIGHT.mean() / 4 * slopes(grown(of_age, polling))
    # A tree of constant shares keeps them to 1e-12, and differences of integrals are right to 1e-6.
    assert np.all(np.abs([np.mean(v) for v in each] - expected) <= Z * error + 1e-5 * expected)
    assert np.all(error <= 0.1 * expected)


# Every third case in every run, the others under the marker.
SAMPLED = [
    pytest.param(*case, marks=[] if k % 3 == 0 else pytest.mark.exhaustive) for k, case in enumerate(CASES)
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("polling", "feedback", "gain"), SAMPLED)
def test_trees_settle_where_the_derivatives_are_equal(
    polling: Polling, feedback: Feedback, gain: Gain
) -> None:
    hazard, weight = np.array([0.5, 0.2, 0.1, 0.05, 0.3]), np.array([1.0, 1.5, 2.0, 3.0, 1.0])

    def share(price: float, a: float, w: float) -> float:
        def excess(x: float) -> float:
            return w * (gain(a, x * 1.0001) - gain(a, x * 0.9999)) / (2e-4 * x) - price

        return float(brentq(excess, 1e-3, 100.0, xtol=1e-9)) if excess(1e-3) > 0.0 else 1e-3

    def shares(price: float) -> Floats:
        return np.array([share(price, a, w) for a, w in zip(hazard, weight, strict=True)])

    top = 0.98 * max(
        w * (gain(a, 0.0011) - gain(a, 0.0009)) / 2e-4 for a, w in zip(hazard, weight, strict=True)
    )
    low = 1e-2 * top
    best = shares(brentq(lambda price: shares(price).sum() - 1.0, low, top, xtol=1e-7 * top))
    runs = []
    for seed in range(12):
        tree = AutomataTree(5, polling=polling, update=Update.REWARD_INACTION, seed=seed)
        sources = SimulatedSources(hazard, weight)
        tree.simulate(sources, 30_000, feedback)
        mean = np.zeros(5)
        for _ in range(100):
            tree.simulate(sources, 400, feedback)
            mean += tree.shares() / 100
        runs.append(mean)
    error = np.std(runs, axis=0, ddof=1) / math.sqrt(12)
    assert np.all(np.abs(np.mean(runs, axis=0) - best) <= Z * error + 0.01)  # 5 states of 500
    assert np.all(error < 0.02)
