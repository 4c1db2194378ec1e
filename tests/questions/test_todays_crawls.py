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


def test_crawls_beyond_what_the_plan_may_use_are_told(log: fo.CrawlLog) -> None:
    rates, objective = rates_in_force(log), BinaryFreshness(PERIODIC)
    for share, beyond in ((0.9, True), (1.1, False)):
        most = np.full(len(rates), np.inf)
        most[0] = share * rates[0]
        sources = fo.Sources(np.full(len(rates), 0.5), name=log.sources_, max_rate=most)
        today = todays_crawls(fo.Problem(objective, sources, 1.0), log)
        assert today is not None
        assert today.beyond == beyond
        assert today.sentence.endswith("within limits that those crawls exceed") == beyond


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


def test_bounds_may_exclude_todays_freshness(log: fo.CrawlLog) -> None:
    made = make_plan(log, plan_request(bandwidth=0.5, max_rate=0.1))
    assert made.today is not None
    assert made.today.needed is None
    assert "out of reach at any bandwidth: max_rate everywhere gives" in made.today.sentence
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
    with pytest.raises(fo.SourceDataError, match="in place of the bandwidth"):
        fo.plan(log, 5.0, "7d", freshness=0.9)
    with pytest.raises(fo.SourceDataError, match="the objective is AccumulatedDelay"):
        fo.plan(log, None, "7d", freshness=0.9, objective=AccumulatedDelay())
    with pytest.raises(fo.SourceDataError, match="Beside other constraints"):
        fo.plan(log, None, "7d", freshness=0.9, constraints=[fo.Budget(3.0)])
