"""Recall and precision pooled by host: modes and curvature by other means, coverage, empty kinds."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.special import betaln, expit, logit, ndtri
from scipy.stats import beta

import freshopt as fo
from freshopt.noisy_signals import pooled_signals
from freshopt.noisy_signals.pooled_signals import STRENGTH, PooledSignals
from freshopt.noisy_signals.signal_table import SignalTable

World = tuple[fo.CrawlLog, pl.DataFrame]


def world(
    n: int,
    crawls: int,
    seed: int,
    *,
    rate: float | np.ndarray = 0.3,
    recall: float | np.ndarray = 0.6,
    precision: float | np.ndarray = 0.5,
    gap: float = 2.0,
) -> World:
    """A log of n sources with integer names, and the signals between its crawls, drawn change by change."""
    rng = np.random.default_rng(seed)
    rows, heard = [], []
    for k in range(n):
        d, told, true = (float(np.broadcast_to(each, n)[k]) for each in (rate, recall, precision))
        times = np.append(0.0, np.cumsum(rng.exponential(gap, crawls)))
        end = float(times[-1])
        changes = np.sort(rng.random(rng.poisson(d * end)) * end)
        false = rng.random(rng.poisson(told * d * (1.0 / true - 1.0) * end)) * end
        heard += [(k, float(at)) for at in (*changes[rng.random(len(changes)) < told], *false)]
        counts = np.diff(np.searchsorted(changes, times))
        rows += [(k, float(at), bool(j and counts[j - 1])) for j, at in enumerate(times)]
    source, time, changed = zip(*rows, strict=True)
    frame = pl.DataFrame(heard, schema=["source", "time"], orient="row")
    return fo.CrawlLog(list(source), list(time), list(changed)), frame


def fitted(made: World, hosts: np.ndarray | None = None) -> PooledSignals:
    log, frame = made
    return PooledSignals(SignalTable.of(log, frame), hosts).fit(log)


def density(model: PooledSignals, made: World, k: int, at: np.ndarray) -> float:
    """The log-posterior of source k in ln a, logit p and ln g, crawl by crawl, from the module's formulas."""
    log, frame = made
    a, p, g = math.exp(at[0]), float(expit(at[1])), math.exp(at[2])
    rows = np.flatnonzero(log.source_index == k)
    signals = frame.filter(pl.col("source") == k)["time"].to_numpy()
    value, many = 0.0, 0
    for before, row in pairwise(rows.tolist()):
        n = int(np.count_nonzero((signals > log.time[before]) & (signals <= log.time[row])))
        x = a * (log.time[row] - log.time[before]) - n * math.log1p(-p)
        value += math.log(-math.expm1(-x)) if log.changed[row] else -x
        many += n
    span = float(log.time[rows[-1]] - log.time[rows[0]])
    prior, change = model.posterior_, a + p * g
    told, true = STRENGTH * float(prior.recall[k]), STRENGTH * float(prior.precision[k])
    value += many * math.log(g) - g * span
    value += float(prior.shape[k]) * math.log(change) - float(prior.exposure[k]) * change
    value += told * math.log(p * g / change) + (STRENGTH - told) * math.log(a / change)
    return value + true * math.log(p) + (STRENGTH - true) * math.log1p(-p)


def place(model: PooledSignals, k: int) -> np.ndarray:
    return np.array(
        [math.log(model.silent_rate_[k]), float(logit(model.precision_[k])), math.log(model.signal_rate_[k])]
    )


@pytest.mark.parametrize("shape", ["few changes", "alike"])
def test_estimates_are_the_modes_of_the_posterior(shape: str) -> None:
    rng = np.random.default_rng(4)
    rate = rng.gamma(0.5, 0.6, 40) + 1e-3 if shape == "few changes" else 0.4  # α below and above m
    made = world(40, 12, 8, rate=rate)
    model = fitted(made, np.arange(40) % 2)
    assert model.posterior_.recall[0] != model.posterior_.recall[1]
    assert (float(model.posterior_.shape[0]) > STRENGTH) is (shape == "alike")
    for k in range(0, 40, 5):

        def loss(at: np.ndarray, k: int = k) -> float:
            return -density(model, made, k, at)

        best = minimize(loss, place(model, k), method="Nelder-Mead")
        assert density(model, made, k, place(model, k)) >= -best.fun - 1e-7


def test_standard_errors_are_those_of_the_curvature() -> None:
    made = world(30, 15, 3)
    model = fitted(made)
    for k in (0, 7, 21):
        at, step = place(model, k), 1e-3

        def value(i: int, j: int, one: float, other: float, at: np.ndarray = at, k: int = k) -> float:
            moved = at.copy()
            moved[i] += one
            moved[j] += other
            return density(model, made, k, moved)

        hessian = np.array(
            [
                [
                    sum(s * t * value(i, j, s * step, t * step) for s in (1, -1) for t in (1, -1))
                    / (4 * step * step)
                    for j in range(3)
                ]
                for i in range(3)
            ]
        )
        covariance = np.linalg.inv(-hessian)
        lower, upper = model.shares("precision", 0.9)
        error = (logit(upper[k]) - logit(lower[k])) / (2.0 * ndtri(0.95))
        assert error == pytest.approx(math.sqrt(covariance[1, 1]), rel=1e-4)
        of = np.array([-1.0, 1.0 - model.precision_[k], 1.0])  # logit l = ln p + ln g − ln a
        lower, upper = model.shares("recall", 0.9)
        error = (logit(upper[k]) - logit(lower[k])) / (2.0 * ndtri(0.95))
        assert error == pytest.approx(math.sqrt(of @ covariance @ of), rel=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("crawls", "least"), [(5, 0.75), (20, 0.84), (40, 0.86)])
def test_intervals_cover(crawls: int, least: float) -> None:
    rng = np.random.default_rng(crawls)
    n = 1_500
    recall, precision = (
        rng.beta(0.6 * STRENGTH, 0.4 * STRENGTH, n),
        rng.beta(0.5 * STRENGTH, 0.5 * STRENGTH, n),
    )
    rate = rng.gamma(0.8, 0.3, n) + 1e-3
    model = fitted(world(n, crawls, 1, rate=rate, recall=recall, precision=precision, gap=2.0))
    for key, true in (("recall", recall), ("precision", precision)):
        lower, upper = model.shares(key, 0.9)
        assert least < float(np.mean((lower <= true) & (true <= upper))) < 0.96
    lower, upper = model.interval(0.9)
    assert least < float(np.mean((lower <= rate) & (rate <= upper))) < 0.96


def test_what_a_host_teaches_is_used_where_data_are_few() -> None:
    host = np.arange(200) % 2
    recall, precision = np.array([0.9, 0.2])[host], np.array([0.9, 0.4])[host]
    made = world(200, 6, 5, recall=recall, precision=precision, gap=4.0)
    pooled, alone = fitted(made, host), fitted(made)
    for key, true in (("recall_", recall), ("precision_", precision)):
        own, without = (np.abs(getattr(model, key) - true).mean() for model in (pooled, alone))
        assert own < 0.75 * without
        assert own < 0.15
    # A source that was hardly watched has its host's.
    quiet = np.flatnonzero(pooled.posterior_.many == 0.0)
    assert np.abs(pooled.precision_[quiet] - pooled.posterior_.precision[quiet]).max() < 0.1


def test_sources_that_never_signal_are_told_from_those_that_do() -> None:
    rate = np.random.default_rng(3).gamma(2.0, 0.2, 100) + 1e-3
    recall = np.where(np.arange(100) % 10 == 0, 0.95, 0.0)
    model = fitted(world(100, 30, 3, rate=rate, recall=recall, precision=0.9))
    loud = recall > 0.0
    assert np.mean(model.recall_[loud]) > 0.85
    assert np.mean(model.recall_[~loud]) < 0.05
    assert np.mean(np.abs(np.log(model.change_rate_[loud] / rate[loud]))) < 0.3
    lower, upper = model.shares("recall", 0.9)
    assert np.all((lower <= model.recall_) & (model.recall_ <= upper))
    assert np.mean((lower <= recall + 1e-9) & (recall <= upper)) > 0.9
    # So many changes that none was announced of: the beta-binomial's chance, and a beta distribution.
    k = int(np.argmax(np.where(loud, 0.0, rate)))
    silent = float(model.posterior_.crawls.hidden(model.silent_rate_, model.precision_)[0][k])
    host, m = float(np.max(model.posterior_.recall)), STRENGTH
    told, rest = m * host, m * (1.0 - host)
    chance = math.exp(betaln(told, rest + silent) - betaln(told, rest))
    signals = float(np.sum(model.posterior_.recall / host))
    odds = (signals + 0.5) / (101.0 - signals - 0.5) * chance
    assert model.posterior_.recall[k] / host == pytest.approx(max(odds / (1.0 + odds), 1e-6), rel=1e-4)
    slow = int(np.argmin(np.where(loud, np.inf, rate)))
    silent = float(model.posterior_.crawls.hidden(model.silent_rate_, model.precision_)[0][slow])
    first = m * float(model.posterior_.recall[slow])
    assert upper[slow] == pytest.approx(float(beta.ppf(0.95, first, m - first + silent)), rel=1e-6)


def test_much_data_outweigh_the_host() -> None:
    recall, precision = np.array([0.1, 0.5, 0.9]), np.array([0.9, 0.2, 0.6])
    model = fitted(world(3, 3_000, 2, rate=0.5, recall=recall, precision=precision, gap=1.0))
    assert np.abs(model.recall_ - recall).max() < 0.08
    assert np.abs(model.precision_ - precision).max() < 0.08
    assert np.abs(model.change_rate_ / 0.5 - 1.0).max() < 0.1


def test_signals_tell_change_rates_too() -> None:
    rate = np.random.default_rng(3).gamma(0.6, 0.5, 300) + 1e-3
    log, frame = world(300, 6, 9, rate=rate, recall=0.9, precision=0.9, gap=6.0)
    model = fitted((log, frame))
    alone = fo.estimators.MaximumLikelihood(prior=fo.estimators.GammaPrior.from_log(log)).fit(log)
    own, other = (np.mean(np.abs(np.log(each.change_rate_ / rate))) for each in (model, alone))
    assert own < 0.8 * other


@pytest.mark.parametrize("scale", [1e-6, 1e5])
def test_units_of_time_do_not_matter(scale: float) -> None:
    log, frame = world(60, 8, 6)
    other = fo.CrawlLog(log.source_index, scale * log.time, log.changed)
    scaled = fitted((other, frame.with_columns(pl.col("time") * scale)))
    model = fitted((log, frame))
    assert scaled.recall_ == pytest.approx(model.recall_, rel=1e-3)
    assert scaled.precision_ == pytest.approx(model.precision_, rel=1e-3)
    assert scale * scaled.change_rate_ == pytest.approx(model.change_rate_, rel=1e-3)


def test_a_kind_that_says_nothing_is_left_out() -> None:
    log, frame = world(200, 10, 7, rate=0.2)
    rng = np.random.default_rng(1)
    noise = [
        pl.DataFrame({"source": rng.integers(0, 200, 300), "time": rng.uniform(0.0, 20.0, 300)}).with_columns(
            kind=pl.lit(f"noise {k}")
        )
        for k in range(40)
    ]
    model = fitted((log, pl.concat([frame.with_columns(kind=pl.lit("sitemap")), *noise])))
    kinds = {kind.name: kind for kind in model.kinds_}
    assert kinds["sitemap"].tells
    assert 0.4 < kinds["sitemap"].precision < 0.6
    kept = sum(kind.tells for kind in model.kinds_) - 1
    assert kept <= 6  # each is kept in 5 % of cases; seven or more of forty in 0.3 %
    alone = fitted((log, frame))
    assert len(model.signals_) >= len(alone.signals_)
    if not kept:
        assert model.recall_ == pytest.approx(alone.recall_, rel=1e-9)


def test_without_telling_signals_there_is_no_recall() -> None:
    log, _ = world(50, 8, 2)
    rng = np.random.default_rng(8)
    noise = pl.DataFrame({"source": rng.integers(0, 50, 200), "time": rng.uniform(0.0, 16.0, 200)})
    model = fitted((log, noise))
    assert not model.kinds_[0].tells
    assert np.all(model.recall_ == 0.0)
    assert np.all(model.precision_ == 1.0)


def test_the_edge_test_is_that_of_the_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    log, frame = world(20, 8, 4, rate=np.geomspace(0.05, 2.0, 20))
    model = fitted((log, frame))
    kind, prior = model.kinds_[0], model.posterior_
    table = SignalTable.of(log, frame)
    counts = table.counts(log)

    rows = [np.flatnonzero(log.source_index == k)[1:] for k in range(20)]
    alpha, beta = float(prior.shape[0]), float(prior.exposure[0])

    def best(p: float) -> float:
        def loss(u: np.ndarray) -> float:
            value = 0.0
            for k, own in enumerate(rows):
                x = math.exp(u[k]) * log.interval[own] - counts[own] * math.log1p(-p)
                value += float(np.sum(np.where(log.changed[own], np.log(-np.expm1(-x)), -x)))
                value += alpha * (u[k] - u[20]) - beta * math.exp(u[k] - u[20])
            return -value

        return -float(minimize(loss, [*[math.log(0.2)] * 20, 0.0], options={"gtol": 1e-7}).fun)

    assert kind.gain == pytest.approx(best(kind.precision) - best(0.0), abs=1e-4)
    assert best(kind.precision) >= max(best(kind.precision - 0.02), best(kind.precision + 0.02)) - 1e-6
    monkeypatch.setattr(pooled_signals, "TELLS", 2.0 * kind.gain * 1.01)
    assert not kind.tells


def test_signals_are_counted_between_crawls() -> None:
    rng = np.random.default_rng(2)
    source = rng.integers(0, 6, 300)
    time = rng.integers(0, 400, 300) / 4.0  # ties with crawls and with each other
    rows = sorted({(int(s), float(t)) for s, t in zip(source, time, strict=True)})
    log = fo.CrawlLog([s for s, _ in rows], [t for _, t in rows], [False] * len(rows))
    heard = [
        (int(s), float(t))
        for s, t in zip(rng.integers(0, 8, 500), rng.integers(-8, 440, 500) / 4.0, strict=True)
    ]
    frame = pl.DataFrame(heard, schema=["source", "time"], orient="row")
    table = SignalTable.of(log, frame)
    assert table.unknown == sum(s > 5 for s, _ in heard)
    once = {each for each in heard if each[0] < 6}
    assert len(table) == len(once)
    counts, pending = table.counts(log), table.pending(log)
    for row in range(len(log)):
        k, end = int(log.source_index[row]), float(log.time[row])
        begin = end if np.isnan(log.interval[row]) else end - float(log.interval[row])
        assert counts[row] == sum(s == k and begin < t <= end for s, t in once), row
    for k in range(6):
        assert pending[k] == sum(s == k and t > log.last_crawl[k] for s, t in once)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"source": ["b"], "time": [1.0]}, "none of which is in the log"),
        ({"source": ["a"], "time": ["2026-01-01"]}, "dates but the log's times are numbers"),
        ({"source": ["a"], "at that": [1.0]}, "A table of signals has source and time"),
        ({"source": ["a"], "time": [math.inf]}, "time is no moment"),
        ({"source": ["a"][:0], "time": [1.0][:0]}, "no rows"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(columns: dict[str, Any], told: str) -> None:
    log = fo.CrawlLog(["a", "a"], [0.0, 1.0], [False, True])
    with pytest.raises(fo.SourceDataError, match=told):
        SignalTable.of(log, pl.DataFrame(columns))


def test_a_log_without_times_has_no_place_for_signals() -> None:
    log = fo.CrawlLog.from_columns({"source": ["a", "a"], "elapsed": [1.0, 2.0], "changed": [0, 1]})
    with pytest.raises(fo.SourceDataError, match="only the time between crawls"):
        SignalTable.of(log, pl.DataFrame({"source": ["a"], "time": [1.0]}))
