"""Classes of learnt qualities: sizes, means, what they cost, and that it is said."""

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.noisy_signals import NoisySignalFreshness, WithNoisySignals
from freshopt.noisy_signals.quality_tables import SHARED
from freshopt.noisy_signals.with_signals import (
    FEW,
    MOST,
    classes_of,
    rule_of,
    stale_with_signals,
    with_signals,
)
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, LogFreshness
from freshopt.questions.signals_bring import classes_in, cost_of_classes, unrounded
from tests.ground_truth.crawl_logs import log_at
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import EXACT

N = 3 * FEW // 2


def qualities(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Recalls and precisions as they are learnt, some sources silent, some perfect."""
    rng = np.random.default_rng(seed)
    recall, precision = rng.beta(3.0, 4.0, n), np.maximum(rng.beta(6.0, 3.0, n), 0.1)
    recall[: n // 20], recall[n // 20 : n // 10], precision[n // 20 : n // 10] = 0.0, 1.0, 1.0
    return recall, precision


def test_few_sources_keep_their_own_quality() -> None:
    recall, precision = qualities(FEW)
    assert classes_of(recall, precision) is None
    assert classes_in(with_signals(BinaryFreshness(), recall, precision)) is None


@pytest.mark.parametrize("n", [N, 10 * FEW, 20 * FEW])
def test_classes_are_of_many_like_sources_and_have_their_means(n: int) -> None:
    recall, precision = qualities(n)
    found = present(classes_of(recall, precision))
    noisy = (recall > 0.0) & (recall < 1.0)
    assert np.array_equal(found[0][~noisy], recall[~noisy])
    assert np.array_equal(found[1][~noisy], precision[~noisy])
    many, code, counts = np.unique(np.stack(found)[:, noisy], axis=1, return_inverse=True, return_counts=True)
    assert 2 < many.shape[1] <= MOST
    assert counts.min() >= SHARED
    for own, mean in zip((recall, precision), many, strict=True):
        assert np.bincount(code, own[noisy]) / counts == pytest.approx(mean, rel=EXACT)
    # Narrower than the posterior is after as many changes as its prior counts for.
    spread = np.sqrt(np.mean((np.arcsin(np.sqrt(recall)) - np.arcsin(np.sqrt(found[0])))[noisy] ** 2))
    assert spread < 0.5 / np.sqrt(16.0)


def test_equal_qualities_stay() -> None:
    half = np.repeat([0.3, 0.6], N // 2)
    assert classes_of(np.full(N, 0.4), half) is None
    assert classes_of(half, half[::-1]) is None


@pytest.mark.parametrize("objective", [BinaryFreshness(), AccumulatedDelay()], ids=["binary", "delay"])
@pytest.mark.parametrize("hosts", [False, True], ids=["bandwidth", "hosts"])
@pytest.mark.parametrize("share", [0.2, 1.0])
@pytest.mark.sampled(3)
def test_the_cost_is_below_the_bound_and_small(objective: fo.Objective, share: float, hosts: bool) -> None:
    """Against the optimum of the sources' own qualities, on weights of nine orders of magnitude."""
    rng = np.random.default_rng(2)
    sources = fo.Sources(
        rng.lognormal(0.0, 1.5, N),
        importance=rng.lognormal(0.0, 1.5, N),
        host=np.array(["a", "b", "c"])[rng.integers(0, 3, N)],
        refresh_cost=rng.lognormal(0.0, 0.5, N),
    )
    own = with_signals(objective, *qualities(N))
    assert isinstance(own, NoisySignalFreshness | WithNoisySignals)
    assert classes_in(own) is not None
    bandwidth = share * float(np.sum(sources.change_rate))
    limits = {"a": 0.1 * bandwidth} if hosts else None
    rounded = fo.Problem(own, sources, bandwidth, limits)
    solution = fo.solve(rounded)
    exact = fo.Problem(unrounded(own), sources, bandwidth, limits)
    best = fo.solve(exact)
    kernel = present(exact.objective.kernel(sources))
    least, cost = (float(np.sum(kernel.cost(each.rates))) for each in (best, solution))
    bound = present(cost_of_classes(solution))
    assert -1e-9 <= 1.0 - least / cost <= bound < 5e-3
    # Rules are those of each source's own quality, at the rates of its class.
    few = np.arange(0, N, 97)
    taken, rates = sources.take(few), solution.rates[few]
    rules = [rule_of(each.take(few), rates, taken) for each in (own, unrounded(own))]
    assert rules[0] is not None
    assert rules[1] is not None
    assert np.array_equal(rules[0].waiting(1.0), rules[1].waiting(1.0))


def test_stale_shares_of_classes_lie_on_their_curves() -> None:
    rng = np.random.default_rng(3)
    own = with_signals(AccumulatedDelay(), *qualities(N))
    assert isinstance(own, WithNoisySignals)
    sources = fo.Sources(rng.lognormal(0.0, 1.0, N))
    rates = sources.change_rate * rng.lognormal(-0.5, 1.0, N)
    rates[::50] = 0.0
    found = stale_with_signals(own, rates, sources)
    known = stale_with_signals(WithNoisySignals(AccumulatedDelay(), *present(own.classes)), rates, sources)
    assert np.max(np.abs(found - known)) < 1e-3
    assert abs(np.mean(found - known)) < 1e-5
    exact = stale_with_signals(unrounded(own), rates, sources)
    assert abs(np.mean(found - exact)) < 1e-3


@pytest.mark.parametrize("objective", [Age(), LogFreshness()], ids=["age", "log freshness"])
def test_objectives_without_tables_keep_their_own(objective: fo.Objective) -> None:
    assert classes_in(with_signals(objective, *qualities(N))) is None


def test_classes_go_with_parts_and_copies() -> None:
    own = with_signals(BinaryFreshness(), *qualities(N))
    assert isinstance(own, NoisySignalFreshness)
    part = own.take(np.array([5, 700]))
    assert part.classes is not None
    assert np.array_equal(part.classes[0], present(own.classes)[0][[5, 700]])
    assert not part.classes[0].flags.writeable


def test_a_plan_tells_what_classes_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FEW", 16), ("MEMBERS", 8), ("SHARED", 4)):
        monkeypatch.setattr(f"freshopt.noisy_signals.with_signals.{name}", value)
    rng = np.random.default_rng(4)
    n, crawls = 24, 12
    log = log_at(np.arange(crawls), rng.random((n, crawls)) < 0.4)
    found = np.flatnonzero(log.changed & (rng.random(len(log)) < 0.8))
    signals = {"source": log.source_index[found], "time": log.time[found] - 0.3}
    plan = fo.plan(log, signals=pl.DataFrame(signals), objective="binary", load_limit=1.0)
    told, facts = plan.signals, plan.summary()["signals"]
    assert told is not None
    assert told.classes == facts["classes"] == 3
    assert facts["rounding"] == told.rounding == cost_of_classes(plan.solution)
    assert "qualities rounded to 3 classes: costs ≤ " in told.sentence
