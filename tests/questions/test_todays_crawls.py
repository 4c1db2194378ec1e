"""Plans that ask for a freshness, and what the log's own crawls would need."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import freshopt as fo
from freshopt.planning.plan import make_plan
from freshopt.problems import AccumulatedDelay, BinaryFreshness
from freshopt.questions.rates_in_force import rates_in_force
from freshopt.questions.todays_crawls import MOST, freshness_of, todays_crawls
from tests.ground_truth.plans import PERIODIC, POISSON, cell, crawls, plan_request
from tests.ground_truth.tolerances import EXACT, SCALAR


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**crawls())


@pytest.mark.parametrize("refresh", [PERIODIC, POISSON])
def test_todays_freshness_is_that_of_the_logs_rates(log: fo.CrawlLog, refresh: fo.Refresh) -> None:
    made = make_plan(log, plan_request(AccumulatedDelay(refresh)))
    today = made.today
    assert today is not None
    assert today.needed is not None
    rates = rates_in_force(log)
    fresh = float(np.mean(cell(BinaryFreshness(refresh), made.sources.change_rate, rates)))
    assert today.fresh == pytest.approx(fresh, rel=SCALAR)
    assert today.bandwidth == pytest.approx(float(rates.sum()), rel=EXACT)
    # The cheapest rates are as fresh, and the best rates at their bandwidth are no fresher.
    assert today.needed.reached == pytest.approx(fresh, rel=SCALAR)
    same = fo.solve(fo.Problem(BinaryFreshness(refresh), made.sources, today.needed.bandwidth))
    assert same.value / len(rates) == pytest.approx(fresh, rel=SCALAR)
    assert today.needed.bandwidth < today.bandwidth
    assert "fewer crawls" in today.sentence


@pytest.mark.parametrize("seed", range(6))
def test_crawls_beyond_limits_are_cut_to_them_and_compared_within(log: fo.CrawlLog, seed: int) -> None:
    """By maximum rates first, then a host's by one share; what they are and what they are cut to is told."""
    rng = np.random.default_rng(seed)
    rates, n = rates_in_force(log), len(log.sources_)
    change, code = rng.uniform(0.2, 2.0, n), np.arange(n) % 3
    most = np.where(rng.random(n) < 0.3, rates * rng.uniform(0.3, 2.0, n), np.inf)
    limit = {f"h{k}": float(rates[code == k].sum() * rng.uniform(0.3, 2.0)) for k in range(2)}
    sources = fo.Sources(
        change, name=log.sources_, host=[f"h{k}" for k in code.tolist()], max_rate=most.tolist()
    )
    today = todays_crawls(fo.Problem(BinaryFreshness(PERIODIC), sources, 1.0, limit), log)
    cut = np.minimum(rates, most)
    for k in range(2):
        used = cut[code == k].sum()
        cut[code == k] *= min(1.0, limit[f"h{k}"] / used)
    assert today is not None
    assert today.needed is not None
    assert (today.cut is not None) == bool(np.any(cut < rates))
    assert ("exceed maximum rates or host limits; cut to them" in today.sentence) == (today.cut is not None)
    fresh = float(np.mean(cell(BinaryFreshness(PERIODIC), change, cut)))
    used, kept = (today.bandwidth, today.fresh) if today.cut is None else today.cut
    assert (used, kept) == pytest.approx((float(cut.sum()), fresh), rel=SCALAR)
    # The best rates within the limits need no more for the same than those that were cut to them.
    assert today.needed.reached == pytest.approx(fresh, rel=SCALAR)
    assert today.needed.bandwidth <= used * (1.0 + SCALAR)
    assert "more crawls" not in today.sentence


def test_limits_may_leave_nothing_to_compare(log: fo.CrawlLog) -> None:
    n = len(log.sources_)
    never = fo.Sources(np.ones(n), name=log.sources_, max_rate=np.zeros(n))
    today = todays_crawls(fo.Problem(BinaryFreshness(PERIODIC), never, 1.0), log)
    assert today is not None
    assert today.needed is None
    assert today.sentence.endswith("cut to which nothing is kept fresh")


def test_a_plan_as_fresh_as_crawls_beyond_its_limits_says_so(log: fo.CrawlLog) -> None:
    rates = rates_in_force(log)
    for share in (0.9, 2.0):
        most = np.where(np.arange(len(rates)) == 0, share * rates, np.inf)
        sources = fo.Sources(np.full(len(rates), 0.5), name=log.sources_, max_rate=most)
        problem = fo.Problem(BinaryFreshness(PERIODIC), sources, 1.0)
        found = fo.bandwidth_for(problem, freshness="as today", today=log)
        assert found.beyond == ("within limits that today's rates exceed" in found.sentence) == (share < 1.0)


@pytest.mark.parametrize("asked", [0.8, "80%", "as today"])
@pytest.mark.sampled(2)
def test_a_plan_for_a_freshness_has_the_least_bandwidth(
    log: fo.CrawlLog, asked: float | str, tmp_path: Path
) -> None:
    made = fo.plan(log, None, "14d", freshness=asked, draws=0, load_limit=1.0)
    assert made.needed is not None
    assert made.today is not None
    share = made.today.fresh if asked == "as today" else 0.8
    assert made.problem.bandwidth == made.needed.bandwidth
    assert made.solution.value / len(made.sources) == pytest.approx(share, rel=SCALAR)
    less = fo.solve(made.problem.with_bandwidth(0.999 * made.needed.at_least))
    assert less.value / len(made.sources) < share
    made.write(tmp_path / "plan")
    facts = json.loads((tmp_path / "plan" / "summary.json").read_text())
    assert facts["needed"]["bandwidth"] == facts["bandwidth"] == made.needed.bandwidth
    assert facts["today"]["needed"] == made.today.facts()["needed"]
    labels = [line.split("  ")[0] for line in repr(made).splitlines()]
    assert ("freshness" in labels) is (asked != "as today")
    assert "as today" in labels


def test_constraints_may_exclude_todays_freshness(log: fo.CrawlLog) -> None:
    few = fo.Budget(1.0, cost=np.ones(len(log.sources_)), name="few")
    made = make_plan(log, plan_request(bandwidth=0.5, constraints=(few,)))
    assert made.today is not None
    assert made.today.needed is None
    assert "out of reach at any bandwidth" in made.today.sentence
    assert made.today.facts()["saving"] is None


def test_where_nobody_crawled_there_is_no_today(log: fo.CrawlLog) -> None:
    moments = [5.0, 9.0, 20.0, 31.0]
    history = fo.ChangeHistory(["a"] * 4, moments, 0.0, 40.0)
    made = fo.plan(history, "1/day", "7d", draws=0)
    assert made.today is None
    with pytest.raises(fo.SourceDataError, match="changes are known without any"):
        fo.plan(history, None, "7d", freshness="today")
    once = fo.CrawlLog(["a", "b"], [0.0, 1.0], [0, 0])
    some = fo.Problem(BinaryFreshness(), fo.Sources([1.0, 2.0], name=["a", "b"]), 1.0)
    assert todays_crawls(some, once) is None
    many = fo.Problem(BinaryFreshness(), fo.Sources(np.ones(MOST + 1)), 1.0)
    assert todays_crawls(many, log) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("100%", "not between 0 and 100 %"),
        (0.0, "not between 0 and 100 %"),
        ("nan", "not between 0 and 100 %"),
        ("much", "cannot be read"),
    ],
)
def test_what_is_no_share_is_refused(given: float | str, message: str) -> None:
    with pytest.raises(fo.SourceDataError, match=message):
        freshness_of(given)


def test_freshness_stands_alone(log: fo.CrawlLog) -> None:
    with pytest.raises(fo.SourceDataError, match="in place of bandwidth"):
        fo.plan(log, 5.0, "7d", freshness=0.9)
    with pytest.raises(fo.SourceDataError, match="the objective is AccumulatedDelay"):
        fo.plan(log, None, "7d", freshness=0.9, objective=AccumulatedDelay())
    with pytest.raises(fo.SourceDataError, match="does not go with constraints"):
        fo.plan(log, None, "7d", freshness=0.9, constraints=[fo.Budget(3.0)])
