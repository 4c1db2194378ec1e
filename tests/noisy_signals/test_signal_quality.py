"""Recall and precision from logs that count signals: against brute force, simulation, and edges by hand."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize

import freshopt as fo
from freshopt.noisy_signals import NoisySignalFreshness, NoisySignals
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT


def simulated(
    n: int, crawls: int, d: float, recall: float, precision: float, gap: float, seed: int
) -> dict[str, Any]:
    """A log of sources with noisy signals: changes, announcements and false alarms drawn gap by gap."""
    rng = np.random.default_rng(seed)
    elapsed = rng.exponential(gap, n * crawls)
    changes = rng.poisson(d * elapsed)
    announced = rng.binomial(changes, recall)
    false = rng.poisson(recall * d * (1 / precision - 1) * elapsed)
    return {
        "source": np.repeat(np.arange(n), crawls),
        "elapsed": elapsed,
        "changed": changes > 0,
        "signals": announced + false,
    }


def brute(log: dict[str, Any]) -> float:
    """The largest log-likelihood of one source's log over a, k ≥ 0, by a bounded search from many starts."""
    s, n, changed = (np.asarray(log[key], dtype=float) for key in ("elapsed", "signals", "changed"))

    def loss(x: np.ndarray) -> float:
        exponent = x[0] * s + x[1] * n
        with np.errstate(divide="ignore"):
            each = np.where(changed > 0, np.log(-np.expm1(-exponent)), -exponent)
        return min(1e9, -float(np.sum(each)))

    starts = [(a, k) for a in (1e-6, 1.0) for k in (1e-6, 2.0)]
    found = [minimize(loss, start, method="L-BFGS-B", bounds=[(0, 50), (0, 50)]) for start in starts]
    polished = minimize(
        loss,
        min(found, key=lambda one: one.fun).x,
        method="Nelder-Mead",
        bounds=[(0, 50), (0, 50)],
        options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 4000},
    )
    return -min(polished.fun, *(one.fun for one in found))


def likelihood(log: dict[str, Any], a: float, k: float) -> float:
    """The log-likelihood of one source's log, a signal of k = inf being certain."""
    total = 0.0
    for s, n, changed in zip(log["elapsed"], log["signals"], log["changed"], strict=True):
        exponent = a * s + (k * n if n else 0.0)
        total += math.log(-math.expm1(-exponent)) if changed else -exponent
    return total


@pytest.mark.parametrize("crawls", [6, 12, pytest.param(40, marks=pytest.mark.exhaustive)])
@pytest.mark.sampled(2)
def test_no_other_rates_are_more_likely(crawls: int) -> None:
    edges = set()
    for seed in range(7):
        rng = np.random.default_rng(seed)
        log = simulated(
            1, crawls, rng.uniform(0.3, 2), rng.uniform(0.05, 0.95), rng.uniform(0.1, 0.95), 1.0, seed
        )
        model = NoisySignals().fit(log)
        edges.add(str(model.flag_[0]))
        if model.flag_[0] == "always changed":
            assert np.all(log["changed"])
            continue
        a, k = float(model.silent_rate_[0]), float(model.evidence_[0])
        mine = likelihood(log, a, 0.0 if math.isnan(k) else k)
        assert mine >= brute(log) - 1e-9
        if math.isfinite(k):
            assert mine == pytest.approx(brute(log), abs=1e-6)
    assert len(edges) >= (1 if crawls == 40 else 2)
    assert "ok" in edges or crawls < 12


def test_estimates_are_consistent_and_errors_are_what_they_say() -> None:
    d, recall, precision = 0.8, 0.6, 0.7
    model = NoisySignals().fit(simulated(600, 300, d, recall, precision, 1.0, seed=4))
    assert np.mean(model.flag_ == "ok") > 0.99
    truth = {"change_rate": d, "recall": recall, "precision": precision, "silent_rate": (1 - recall) * d}
    truth["signal_rate"] = recall * d / precision
    for key, value in truth.items():
        estimate = getattr(model, f"{key}_")
        assert abs(np.median(estimate) - value) < 0.02 * value
        lower, upper = model.interval(key, 0.95)
        inside = np.mean((lower <= value) & (value <= upper))
        assert abs(inside - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 600), key  # binomial
        assert inside > 0.92


def test_more_crawls_tell_more() -> None:
    errors = []
    for crawls in (100, 1600):
        model = NoisySignals().fit(simulated(200, crawls, 1.0, 0.5, 0.6, 0.7, seed=9))
        errors.append(float(np.median(np.abs(model.precision_ - 0.6))))
    assert 3.0 < errors[0] / errors[1] < 5.5  # √16


def test_crawls_that_follow_signals_do_not_mislead() -> None:
    """A crawler that comes at the third signal, or after 2 days, whatever is first."""
    rng, d, recall, precision = np.random.default_rng(11), 1.0, 0.6, 0.5
    rows: dict[str, list[Any]] = {"source": [], "elapsed": [], "changed": [], "signals": []}
    g = recall * d / precision
    for source in range(300):
        for _ in range(150):
            third = rng.gamma(3, 1 / g)
            s, n = min(third, 2.0 * rng.uniform(0.2, 1.0)), 3
            if s < third:  # fewer than three in s
                n = int(rng.poisson(g * s))
                while n > 2:
                    n = int(rng.poisson(g * s))
            changed = rng.random() > math.exp(-(1 - recall) * d * s) * (1 - precision) ** n
            for key, value in zip(rows, (source, s, changed, n), strict=True):
                rows[key].append(value)
    model = NoisySignals().fit(rows)
    for estimate, truth in ((model.change_rate_, d), (model.recall_, recall), (model.precision_, precision)):
        assert abs(np.mean(estimate) - truth) < 4 * np.std(estimate) / math.sqrt(300) + 0.01


def row(**columns: list[Any]) -> NoisySignals:
    return NoisySignals().fit({"source": ["a"] * len(columns["changed"]), **columns})


def test_edges_are_exact() -> None:
    quiet = row(elapsed=[1.0, 1.0, 1.0], changed=[0, 1, 0], signals=[0, 0, 0])
    assert quiet.flag_[0] == "no signals"
    assert quiet.change_rate_[0] == pytest.approx(math.log(1.5))  # e^{−a} = 2/3
    assert quiet.recall_[0] == 0.0
    assert math.isnan(quiet.precision_[0])
    never = row(elapsed=[1.0, 2.0], changed=[0, 0], signals=[1, 3])
    assert (never.flag_[0], never.change_rate_[0], never.precision_[0]) == ("never changed", 0.0, 0.0)
    always = row(elapsed=[1.0, 2.0], changed=[1, 1], signals=[1, 0])
    assert always.flag_[0] == "always changed"
    assert math.isinf(always.change_rate_[0])
    certain = row(elapsed=[1.0, 1.0, 1.0], changed=[1, 0, 1], signals=[2, 0, 0])
    assert (certain.flag_[0], certain.precision_[0]) == ("signals always true", 1.0)
    assert certain.silent_rate_[0] == pytest.approx(math.log(2.0))  # one of two without signals
    announced = row(elapsed=[1.0, 5.0, 1.0, 5.0], changed=[1, 0, 0, 0], signals=[1, 0, 1, 0])
    assert (announced.flag_[0], announced.recall_[0]) == ("all announced", 1.0)
    assert announced.precision_[0] == pytest.approx(0.5)  # one of two signals
    useless = row(elapsed=[1.0, 1.0, 1.0, 1.0], changed=[1, 0, 1, 0], signals=[0, 3, 0, 2])
    assert useless.flag_[0] == "signals never true"
    assert useless.change_rate_[0] == pytest.approx(math.log(2.0))
    baseline = NoisySignals().fit({"source": ["a"], "time": [1.0], "changed": [0], "signals": [4]})
    assert baseline.flag_[0] == "baseline only"


def test_rows_in_any_order_and_any_frame() -> None:
    log = simulated(5, 40, 1.0, 0.5, 0.6, 0.7, seed=2)
    log["time"] = np.concatenate([np.cumsum(part) for part in np.split(log["elapsed"], 5)])
    shuffled = np.random.default_rng(1).permutation(200)
    frame = pl.DataFrame({key: np.asarray(value)[shuffled] for key, value in log.items()})
    one, other = NoisySignals().fit(log), NoisySignals().fit(frame)
    assert np.allclose(one.precision_, other.precision_, rtol=1e-12)
    timed = NoisySignals().fit(frame.drop("elapsed").to_pandas())  # the first crawl is the baseline
    rest = np.arange(200) % 40 > 0
    same = NoisySignals().fit({key: np.asarray(value)[rest] for key, value in log.items() if key != "time"})
    assert np.allclose(timed.change_rate_, same.change_rate_, rtol=1e-9)


def test_what_is_learnt_is_what_a_problem_takes() -> None:
    model = NoisySignals().fit(simulated(20, 400, 1.0, 0.5, 0.6, 0.7, seed=5))
    sources = fo.Sources(model.change_rate_)
    objective = NoisySignalFreshness(model.recall_, model.precision_)
    plain = model.for_planning()
    assert [x.tolist() for x in plain] == [
        x.tolist() for x in (model.change_rate_, model.recall_, model.precision_)
    ]
    assert fo.solve(fo.Problem(objective, sources, 8.0)).status is fo.Status.OPTIMAL


def test_estimates_on_edges_can_be_planned_with() -> None:
    model = NoisySignals().fit(
        {
            "source": ["always", "always", "never", "quiet", "quiet", "useless", "useless"],
            "elapsed": [1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0],
            "signals": [1, 0, 3, 0, 0, 0, 2],
            "changed": [1, 1, 0, 1, 0, 1, 0],
        }
    )
    change, recall, precision = model.for_planning()
    assert (1 - math.exp(-change[0])) ** 2 == pytest.approx(0.5)
    assert change[1:].tolist() == pytest.approx([0.25, math.log(2), math.log(2)])
    assert recall.tolist() == [0.0] * 4
    objective = NoisySignalFreshness(recall, precision)
    assert fo.solve(fo.Problem(objective, fo.Sources(change), 1.0)).status is fo.Status.OPTIMAL


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"elapsed": [1.0], "changed": [1]}, "no column 'signals'"),
        ({"elapsed": [1.0], "changed": [1], "signals": [-1]}, r"row 0 \(source 'a'\) are -1"),
        ({"elapsed": [1.0], "changed": [1], "signals": [0.5]}, "It counts signals"),
        ({"elapsed": [1.0], "changed": [2], "signals": [0]}, "changed is neither 0 nor 1"),
    ],
)
def test_logs_that_cannot_be_used_are_refused(columns: dict[str, Any], words: str) -> None:
    refused(words, NoisySignals().fit, {"source": ["a"], **columns})
    refused("fit", NoisySignals().interval, "recall", error=fo.FreshoptError)


def test_nothing_is_likelier_in_logs_of_any_proportion() -> None:
    rng = np.random.default_rng(4)
    log: dict[str, list[float]] = {key: [] for key in ("source", "elapsed", "signals", "changed")}
    each = []
    for source in range(300):
        crawls, unit = int(rng.integers(3, 25)), np.exp(rng.normal(0.0, 3.0))
        gaps = unit * (rng.exponential(1.0, crawls) ** rng.choice([0, 1, 4]) + 1e-9)
        heard = rng.poisson(rng.choice([0.3, 2.0, 100.0]) * (gaps / unit if source % 3 else np.ones(crawls)))
        exponent = rng.exponential() / unit * gaps + rng.choice([0.0, 0.02, rng.exponential()]) * heard
        changed = rng.random(crawls) < -np.expm1(-exponent)
        each.append((gaps, heard, changed, unit))
        log["source"] += [source] * crawls
        log["elapsed"] += gaps.tolist()
        log["signals"] += heard.tolist()
        log["changed"] += changed.tolist()
    model = NoisySignals().fit(log)
    grid = np.meshgrid(np.r_[0.0, np.logspace(-4, 4, 25)], np.r_[0.0, np.logspace(-5, 2, 25)])
    usual = np.isfinite(model.silent_rate_) & np.isfinite(model.evidence_)
    assert np.count_nonzero(usual) > 100
    assert np.count_nonzero(model.flag_ == "ok") > 15
    for source in np.flatnonzero(usual).tolist():
        gaps, heard, changed, unit = each[source]
        tried_a = np.append(grid[0] / unit, model.silent_rate_[source])[:, None]
        tried_k = np.append(grid[1], model.evidence_[source])[:, None]
        exponent = tried_a * gaps + tried_k * heard
        with np.errstate(divide="ignore"):
            value = np.where(changed, np.log(-np.expm1(-exponent)), -exponent).sum(axis=1)
        assert value[-1] >= np.max(value) - EXACT * (1.0 + abs(value[-1]))


def test_signals_that_tell_nothing_but_for_rounding() -> None:
    changed = [1, 1, 1, 0, 0] * 4
    log = {
        "source": [0] * 20,
        "elapsed": [1.0] * 20,
        "signals": [0] * 15 + [1] * 5,
        "changed": changed,
    }
    model = NoisySignals().fit(log)
    assert model.flag_.tolist() == ["signals never true"]
    assert model.evidence_.tolist() == [0.0]
    assert model.silent_rate_[0] == pytest.approx(-np.log(0.4), rel=EXACT)
