"""docs/estimators.md shows what was measured, and what it says is so; held-out scores are what they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.pages.measured import ROOT, harness, module

FOLDER, SAVED = ROOT / "benchmarks" / "reproduce", ROOT / "benchmarks" / "results"
PAGE = (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8")


def test_what_the_page_says_of_lost_pages_is_so() -> None:
    found = {each["id"]: each for each in harness.saved("reproduce_estimators")["findings"]}
    assert found["lost-alpha-1"]["high"] < 1.0
    assert found["lost-others"]["estimate"] == 1.0
    assert found["lost-alpha-1"]["runs"] == found["lost-others"]["runs"] == 1000
    for name in ("adaptive-rates-lln", "adaptive-rates-mle"):
        assert found[name]["high"] < found["adaptive-rates-default"]["low"]


def log_of_a_few() -> CrawlLog:
    rng = np.random.default_rng(5)
    source = np.repeat(["a", "b", "c", "d"], [40, 25, 30, 3])
    time = np.concatenate([np.cumsum(rng.exponential(1.0, n)) for n in (40, 25, 30, 3)])
    return CrawlLog(source, time, rng.random(98) < 0.4)


def test_held_out_scores_are_log_likelihoods_of_gaps_after_the_middle() -> None:
    log, held_out = log_of_a_few(), module("reproduce.held_out")
    middle = (min(log.time) + max(log.time)) / 2
    assert held_out.middle_of(log) == middle
    halves = held_out.split(log, middle)
    rows = [
        (log.sources_[k], float(end - gap), float(end), bool(changed))
        for k, end, gap, changed in zip(log.source_index, log.time, log.interval, log.changed, strict=True)
        if not math.isnan(gap)
    ]
    kept = [
        name
        for name in log.sources_.tolist()
        if any(who == name and end <= middle for who, _, end, _ in rows)
        and any(who == name and begin >= middle for who, begin, _, _ in rows)
    ]
    assert kept == ["a", "b", "c"]
    assert halves.sources == len(kept)
    rates = np.array([0.3, 1.1, 2.0])
    expected = np.zeros(len(kept))
    for who, begin, end, changed in rows:
        if who in kept and begin >= middle:
            x = rates[kept.index(who)] * (end - begin)
            expected[kept.index(who)] += math.log(1 - math.exp(-x)) if changed else -x
    np.testing.assert_allclose(halves.after.scores(rates), expected, rtol=SCALAR)
    learnt = [(who, end) for who, _, end, _ in rows if who in kept and end <= middle]
    assert np.count_nonzero(~np.isnan(halves.before.interval)) == len(learnt)
    assert np.max(halves.before.time) == max(end for _, end in learnt)


def test_a_crawler_that_comes_less_often_sees_the_same_changes() -> None:
    log, every = log_of_a_few(), 7
    sparse = module("reproduce.held_out").thinned(log, every)
    expected = []
    for k, name in enumerate(log.sources_):
        rows = slice(log.offsets[k], log.offsets[k + 1])
        time, changed = log.time[rows], log.changed[rows]
        for last in range(0, len(time), every):
            found = bool(last) and bool(changed[last - every + 1 : last + 1].any())
            expected.append((name, time[last], found))
    names = sparse.sources_[sparse.source_index]
    labels = [log.sources_[int(name)] for name in names]
    assert list(zip(labels, sparse.time, sparse.changed.tolist(), strict=True)) == expected


@pytest.mark.exhaustive
def test_a_prior_gains_where_rates_are_spread_and_crawls_are_few() -> None:
    rng = np.random.default_rng(8)
    n, crawls = 300, 60
    rates = rng.gamma(0.5, 0.4, n)[:, None]
    gaps = rng.exponential(1.0, (n, crawls))
    changed = rng.random((n, crawls)) < -np.expm1(-rates * gaps)
    log = CrawlLog(np.repeat(np.arange(n), crawls), np.cumsum(gaps, axis=1).ravel(), changed.ravel())
    record = module("reproduce.held_out").judged("simulated", log)
    every, groups = record["groups"]["all"]["estimators"], record["groups"]
    assert every["MaximumLikelihood, prior"]["verdict"] == "holds"
    assert every["one rate for all"]["verdict"] == "does not hold"
    assert groups["changed before"]["sources"] + groups["never changed before"]["sources"] <= n
    assert record["learnt_from"] + record["scored"] < n * crawls  # some gaps straddle the middle
    parts = [groups[key] for key in ("changed before", "never changed before")]
    total = sum(part["scored"] * part["estimators"]["Naive"]["per_crawl"] for part in parts)
    assert total == pytest.approx(
        record["scored"] * every["Naive"]["per_crawl"], rel=1e-5
    )  # saved to 6 digits


def test_a_log_is_judged_by_signs_and_sums() -> None:
    judged = module("reproduce.held_out").compared
    told = judged(np.array([-1.0, -2.0, -3.0, -4.0]), np.array([-1.5, -2.5, -3.5, -3.0]), np.full(4, 10.0))
    assert (told["wins"], told["losses"], told["verdict"]) == (3, 1, "undecided")
    assert told["per_crawl"] == pytest.approx(-0.25, rel=EXACT)
    assert told["gain_per_1000"] == pytest.approx(1000 * 0.5 / 40, rel=EXACT)
    assert told["sign_test"] == pytest.approx(2 * (1 + 4) / 16, rel=EXACT)


def test_simulated_gaps_have_the_transforms_that_are_told() -> None:
    rng = np.random.default_rng(6)
    for kind, (draw, transform) in module("reproduce.estimator_runs").GAPS.items():
        gaps = draw(rng, (1000, 200))
        for seen, told in ((gaps, 1.0), (np.exp(-1.7 * gaps), transform(1.7))):
            error = seen.std() / math.sqrt(seen.size)
            assert abs(seen.mean() - told) <= 4 * error + EXACT, kind
