"""Noisy change signals: cycles against simulation, the cells at both ends, and what thresholds bring."""

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt.noisy_signals import NoisySignalFreshness, renewal_cycle
from freshopt.problems import BinaryFreshness
from freshopt.solvers import Conic
from tests.ground_truth.cost_truth import cycle_by_sums
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.noisy_signals.cycles import cycle_at, split

QUALITIES = [(0.5, 0.5), (0.8, 0.3), (0.3, 0.95), (0.6, 1.0), (0.9, 0.2), (0.0, 1.0), (0.2, 0.02)]


def crawl(
    threshold: float, bonus: float, d: float, recall: float, precision: float, cycles: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate cycles of one source, change by change; return their lengths and fresh times."""
    rng = np.random.default_rng(seed)
    length, fresh = np.empty(cycles), np.empty(cycles)
    signals = recall * d / precision
    for k in range(cycles):
        time, effective, stale = 0.0, 0.0, rng.exponential(1 / ((1 - recall) * d))  # the first silent change
        while True:
            gap = rng.exponential(1 / signals) if signals else math.inf
            if effective + gap >= threshold:
                time += threshold - effective
                break
            time, effective = time + gap, effective + gap + bonus
            if rng.random() < precision:
                stale = min(stale, time)
            if effective >= threshold:
                break
        length[k], fresh[k] = time, min(time, stale)
    return length, fresh


def within(sample: np.ndarray, expected: float) -> bool:
    """Four standard errors."""
    return bool(abs(np.mean(sample) - expected) <= 4.0 * np.std(sample) / math.sqrt(len(sample)) + EXACT)


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize(("recall", "precision"), QUALITIES)
@matrix(threshold=[0.4, 2.5], every=5)
def test_cycles_are_as_simulated(threshold: float, recall: float, precision: float) -> None:
    bonus = -math.log1p(-precision) / (1 - recall) if precision < 1 and recall else math.inf
    length, fresh = crawl(threshold, bonus, 1.0, recall, precision, 4000, seed=7)
    mean, stale, marginal = cycle_at(*split(threshold, recall, precision), recall, precision)
    assert within(length, mean)
    assert within(fresh, mean - stale)
    at_end = math.exp(-(1 - recall) * threshold)
    assert marginal == pytest.approx(mean - stale - at_end * mean, abs=SCALAR)


EXTREMES = {
    "usual": lambda rng: (rng.random(), rng.uniform(0.02, 1)),
    "few true": lambda rng: (rng.random(), 10 ** rng.uniform(-11, 0)),
    "nearly all announced": lambda rng: (1 - 10 ** rng.uniform(-11, 0), 10 ** rng.uniform(-6, 0)),
    "nearly all true": lambda rng: (rng.random(), 1 - 10 ** rng.uniform(-11, 0)),
    "hardly any": lambda rng: (10 ** rng.uniform(-11, 0), 10 ** rng.uniform(-11, 0)),
    "nearly perfect": lambda rng: (1 - 10 ** rng.uniform(-11, 0), 1 - 10 ** rng.uniform(-11, 0)),
}


@pytest.mark.parametrize("kind", EXTREMES)
def test_cycles_are_the_sums_of_their_definition(kind: str) -> None:
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(20):
        recall, precision = EXTREMES[kind](rng)
        a, loss = 1 - recall, -math.log1p(-precision)
        number = int(rng.choice([0, 0, 1, 2, 3, 5, 8, 13, 30, 60]))
        wait = loss / a * rng.choice([rng.random(), 10 ** rng.uniform(-8, 0)])
        if number * loss + a * wait > 40:
            number, wait = 0, min(wait, 40 / a)
        one = cycle_at(number, wait, recall, precision)
        for found, true in zip(one, cycle_by_sums(number, wait, recall, precision), strict=False):
            worst = max(worst, abs(found / true - 1))
    assert worst < 1e-13


@matrix(precision=[1e-3, 1e-6, 1e-9, 1e-12], every=4)
def test_signals_of_no_worth_leave_a_clock(precision: float) -> None:
    rate = np.geomspace(0.05, 50.0, 40)
    quiet, loud = np.full(40, 0.0), np.full(40, 0.7)
    clock = renewal_cycle.stale_and_index(rate, quiet, quiet + 0.5)
    near = renewal_cycle.stale_and_index(rate, loud, quiet + precision)
    for one, other in zip(near, clock, strict=True):
        assert np.max(np.abs(one - other)) < precision + 1e-14
        assert np.max(np.abs(one - other)) > 1e-4 * precision - 1e-14


@pytest.mark.parametrize(("recall", "precision"), [*QUALITIES, (0.999, 0.5), (0.9, 1e-5), (1 - 1e-12, 0.3)])
@pytest.mark.sampled(4)
def test_rates_and_thresholds_are_inverted(recall: float, precision: float) -> None:
    worth = np.concatenate([np.geomspace(1e-9, 0.5, 30), 1 - np.geomspace(0.4, 1e-5, 20)])
    share = np.full(50, recall), np.full(50, precision)
    rate = renewal_cycle.rate_at_index(worth, *share)
    thresholds = np.column_stack(renewal_cycle.threshold_of_length(1 / rate, *share)).tolist()
    lengths = [cycle_at(number, wait, recall, precision)[0] for number, wait in thresholds]
    assert np.allclose(lengths * rate, 1.0, rtol=1e-12)
    # Where lengths have a plateau worths are not told by them; they lie on both sides of it.
    below, above = (renewal_cycle.stale_and_index(rate * f, *share)[1] for f in (1 + 1e-9, 1 - 1e-9))
    assert np.all((below <= worth * (1 + 1e-8)) & (worth <= above * (1 + 1e-8)))


SHARES = [0.0, 1e-300, 1e-20, 1e-9, 0.3, 0.99, 1 - 1e-9, 1 - 1e-16, 1.0]


@matrix(recall=SHARES, precision=SHARES[1:])
def test_all_shares_have_rates_at_all_worths(recall: float, precision: float) -> None:
    worth = np.concatenate([np.geomspace(1e-30, 0.5, 15), 1 - np.geomspace(0.4, 1e-15, 15)])
    share = np.full(30, recall), np.full(30, precision)
    rate = renewal_cycle.rate_at_index(worth, *share)
    assert np.all(np.isfinite(rate) & (rate > 0.0))
    assert np.all(renewal_cycle.rate_at_index(np.zeros(30), *share) >= rate.max() * (1 - 1e-9))
    assert np.all(np.diff(rate) <= 1e-9 * rate[:-1])
    below, above = (renewal_cycle.stale_and_index(rate * f, *share)[1] for f in (1 + 1e-7, 1 - 1e-7))
    assert np.all((below <= worth * (1 + 1e-6) + 1e-15) & (worth <= above * (1 + 1e-6) + 1e-15))
    every = np.geomspace(1e-12, 1e12, 60)
    stale, worth = renewal_cycle.stale_and_index(every, np.full(60, recall), np.full(60, precision))
    assert np.all((stale >= 0.0) & (stale <= 1.0) & (worth >= 0.0) & (worth <= 1.0))
    assert np.all(np.diff(stale) <= 1e-12)
    assert np.all(np.diff(worth) <= 1e-12)


def test_endless_rates_are_fresh_and_no_rates_are_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = column(0.0, 1e-300, 1e300, np.inf)
    for compiled in ("1", "0"):
        monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
        stale, worth = renewal_cycle.stale_and_index(rate, np.full(4, 0.5), np.full(4, 0.5))
        assert stale.tolist() == [1.0, 1.0, 0.0, 0.0]
        assert worth.tolist() == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.exhaustive
def test_bounds_costs_and_hosts_are_kept_to_in_plain_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    several = fo.Sources(
        rng.lognormal(0.0, 1.0, 60),
        rng.pareto(1.5, 60) + 1.0,
        refresh_cost=rng.uniform(0.5, 2.0, 60),
        max_rate=np.where(rng.random(60) < 0.3, 0.2, np.inf),
        host=rng.integers(0, 3, 60).astype(str),
    )
    objective = NoisySignalFreshness(rng.uniform(0.0, 1.0, 60), rng.uniform(0.05, 1.0, 60))
    problem = fo.Problem(objective, several, 18.0, host_limits={"0": 2.0})
    fast = fo.solve(problem, tolerance=EXACT)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    slow = fo.solve(problem, tolerance=EXACT)
    assert np.allclose(fast.rates, slow.rates, rtol=1e-9, atol=EXACT)
    assert fo.certify(problem, fast.rates).relative_gap < EXACT


def test_plain_steps_are_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    recall, precision, rate = rng.random(40), 10 ** rng.uniform(-5, 0, 40), 10 ** rng.uniform(-1, 1, 40)
    recall[:6], precision[3:9] = [0.0, 1.0, 1e-20, 0.0, 1.0, 1 - 1e-9], [1.0, 1.0, 1.0, 1.0, 1e-20, 1 - 1e-12]
    given = recall, precision
    fast = (
        *renewal_cycle.stale_and_index(rate, *given),
        renewal_cycle.rate_at_index(0.9 * recall, *given),
        renewal_cycle.index(np.floor(rate), rate, *given),
    )
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    slow = (
        *renewal_cycle.stale_and_index(rate, *given),
        renewal_cycle.rate_at_index(0.9 * recall, *given),
        renewal_cycle.index(np.floor(rate), rate, *given),
    )
    for one, other in zip(fast, slow, strict=True):
        assert np.allclose(one, other, rtol=1e-12, atol=0.0)


def sources(n: int, seed: int = 1) -> fo.Sources:
    rng = np.random.default_rng(seed)
    return fo.Sources(rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n))


def test_no_signals_are_periodic_refreshes() -> None:
    many = sources(300)
    quiet = fo.solve(fo.Problem(NoisySignalFreshness(0.0, 0.5), many, 80.0))
    known = fo.solve(fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), many, 80.0))
    assert np.allclose(quiet.rates, known.rates, rtol=SCALAR, atol=EXACT)
    assert quiet.value == pytest.approx(known.value, rel=EXACT)


def test_signals_of_all_changes_and_nothing_else_are_refreshes_on_signal() -> None:
    many = sources(300)
    announced = fo.Sources(many.change_rate, many.importance, signalled=True)
    noisy = fo.solve(fo.Problem(NoisySignalFreshness(1.0, 1.0), many, 80.0))
    known = fo.solve(fo.Problem(BinaryFreshness(fo.Refresh.POISSON), announced, 80.0))
    assert noisy.value == pytest.approx(known.value, rel=EXACT)


@pytest.mark.parametrize("share", [0.05, 0.5, 3.0])
def test_mixed_qualities_are_solved_and_proved(share: float) -> None:
    n, rng = 200, np.random.default_rng(2)
    recall, precision = rng.uniform(0.0, 1.0, n), rng.uniform(0.1, 1.0, n)
    recall[:20], recall[20:40], precision[40:60] = 0.0, 1.0, 1.0
    many = sources(n)
    problem = fo.Problem(
        NoisySignalFreshness(recall, precision), many, share * float(np.sum(many.change_rate))
    )
    found = fo.solve(problem, tolerance=EXACT)
    assert found.status is fo.Status.OPTIMAL
    worse = fo.solve(fo.Problem(NoisySignalFreshness(0.5 * recall, precision), many, problem.bandwidth))
    assert worse.value < found.value  # better signals help
    # The certificate trusts the marginals: they are the slopes of the costs.
    numerics = problem.numerics
    assert numerics is not None
    rate = many.change_rate * 10 ** rng.uniform(-2, 1, n)
    step = 1e-5 * rate
    slope = (numerics.cost(rate - step) - numerics.cost(rate + step)) / (2 * step)
    away = numerics.marginal(rate - step) - numerics.marginal(rate + step) < 1e-3 * many.importance
    assert np.sum(away) > 150
    assert np.allclose(slope[away], numerics.marginal(rate)[away], rtol=1e-4, atol=1e-6)


def test_thresholds_spend_the_rates_and_bring_the_freshness() -> None:
    few = fo.Sources([0.5, 2.0, 1.0, 3.0], [1.0, 2.0, 3.0, 1.0])
    recall, precision = np.array([0.4, 0.7, 0.0, 0.5]), np.array([0.6, 0.3, 1.0, 1.0])
    objective = NoisySignalFreshness(recall, precision)
    found = fo.solve(fo.Problem(objective, few, 4.0))
    rule = objective.thresholds(found.rates, few)
    threshold, bonus = rule.threshold, rule.bonus
    total = 0.0
    for k in range(4):
        if not np.isfinite(threshold[k]):
            continue
        jump = bonus[k] if recall[k] else math.inf
        length, fresh = crawl(threshold[k], jump, few.change_rate[k], recall[k], precision[k], 6000, seed=k)
        assert (
            abs(1 / np.mean(length) - found.rates[k])
            <= 4 * np.std(length) / np.mean(length) ** 2 / 77 + EXACT
        )
        total += few.importance[k] * float(np.sum(fresh) / np.sum(length))
    assert total == pytest.approx(found.value, rel=0.02)


def test_signals_to_wait_for_where_all_changes_are_announced() -> None:
    objective = NoisySignalFreshness(1.0, 0.5)
    one = fo.Sources([1.0])
    # g = 2: a crawl after each 3rd signal, fresh for Σ_{k<3} ½^k of the first three gaps of mean ½.
    found = fo.solve(fo.Problem(objective, one, 2.0 / 3.0))
    assert found.value == pytest.approx((1 + 0.5 + 0.25) / 3, rel=EXACT)
    rule = objective.thresholds(found.rates, one)
    soon, late = (rule.signals == 3.0) & (rule.wait < 1e-3), (rule.signals == 2.0) & (rule.wait > 10.0)
    assert (soon | late).all()  # a rate that is off by an ulp takes a share of the next plateau
    assert rule.due([3], [0.1]).tolist() == [True]
    assert rule.due([2], [0.1]).tolist() == [False]


@pytest.mark.parametrize(
    ("recall", "precision", "words"),
    [
        (1.5, 0.5, "recall is 1.5"),
        (-0.1, 0.5, "recall is -0.1"),
        (0.5, 0.0, "precision is 0"),
        (np.nan, 1.0, "recall is nan"),
    ],
)
def test_shares_out_of_range_are_refused(recall: float, precision: float, words: str) -> None:
    with pytest.raises(fo.ObjectiveError, match=words):
        NoisySignalFreshness(recall, precision)


def test_other_lengths_and_cone_solvers_are_refused() -> None:
    with pytest.raises(fo.ObjectiveError, match="each of 3 sources"):
        fo.Problem(NoisySignalFreshness([0.5, 0.5], 0.5), fo.Sources([1.0, 1.0, 1.0]), 1.0)
    with pytest.raises(fo.SolverRefusedError, match="declares no expression"):
        fo.solve(fo.Problem(NoisySignalFreshness(0.5, 0.5), fo.Sources([1.0]), 1.0), Conic())
