"""The least bandwidth for a promise, and what today's crawls reach: that less does not do, and refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy.optimize import brentq

import freshopt as fo
from freshopt.errors import CertificateError
from freshopt.modelling.objective import Refresh
from freshopt.planning.plan import make_plan
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    LaterThan,
    PollingKnapsack,
)
from freshopt.questions.rate_changes import rates_in_force
from freshopt.questions.todays_crawls import MOST, freshness_of, own_bandwidth, todays_crawls
from tests.ground_truth.named import PERIODIC, POISSON
from tests.ground_truth.plans import cell, crawls, plan_request
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]
RNG = np.random.default_rng(11)
N = 40
DELTA, WEIGHT = RNG.lognormal(0.0, 2.0, N), RNG.lognormal(0.0, 1.0, N)
SOURCES = fo.Sources(DELTA, WEIGHT)
HARMONIC = fo.Problem(HarmonicStaleness(fo.Refresh.PERIODIC), SOURCES, 5.0)


def fresh(rates: Floats, refresh: fo.Refresh = fo.Refresh.PERIODIC) -> float:
    """Share of time that copies are fresh, by importance (Cho & Garcia-Molina 2003, section 4)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        u = DELTA / rates
        each = -np.expm1(-u) / u if refresh is fo.Refresh.PERIODIC else 1.0 / (1.0 + u)
    return float(WEIGHT @ np.where(rates > 0.0, each, 0.0) / WEIGHT.sum())


def poisson_rates(price: float) -> Floats:
    """Best responses of w·ρ/(Δ + ρ) − λρ: ρ = √(wΔ/λ) − Δ, or 0."""
    return np.maximum(np.sqrt(WEIGHT * DELTA / price) - DELTA, 0.0)


@pytest.mark.parametrize("share", [0.2, 0.9, 0.999])
def test_the_bandwidth_for_a_freshness_is_that_of_water_filling(share: float) -> None:
    problem = fo.Problem(Age(fo.Refresh.POISSON), SOURCES, 5.0)
    found = fo.bandwidth_for(problem, freshness=share)
    log_price = brentq(
        lambda x: fresh(poisson_rates(np.exp(x)), fo.Refresh.POISSON) - share, -40.0, 10.0, xtol=1e-13
    )
    assert found.bandwidth == pytest.approx(float(poisson_rates(np.exp(log_price)).sum()), rel=SCALAR)
    assert found.reached == pytest.approx(share, rel=EXACT)
    assert found.fresh
    assert found.today is found.saving is None
    assert isinstance(found.solution.problem.objective, fo.Spend)


def test_the_bandwidth_for_a_value_is_cauchys() -> None:
    """Σ wΔ/ρ ≤ v has Σρ ≥ (Σ√(wΔ))²/v, with equality where ρ ∝ √(wΔ)."""
    problem = fo.Problem(AccumulatedDelay(Refresh.POISSON), SOURCES, 5.0)
    found = fo.bandwidth_for(problem, value=7.0)
    assert found.bandwidth == pytest.approx(float(np.sqrt(WEIGHT * DELTA).sum() ** 2 / 7.0), rel=SCALAR)
    assert found.reached == pytest.approx(7.0, rel=EXACT)


@pytest.mark.parametrize(
    ("objective", "value"),
    [
        (HarmonicStaleness(Refresh.POISSON), 20.0),
        (BinaryFreshness(Refresh.POISSON), 0.8 * float(WEIGHT.sum())),
        (Age(fo.Refresh.PERIODIC), 30.0),
        (PollingKnapsack(), 5.0),
        (LaterThan(0.5, fo.Refresh.PERIODIC), 3.0),
    ],
    ids=repr,
)
def test_less_does_not_do(objective: fo.Objective, value: float) -> None:
    """The optimum at the bandwidth found keeps the promise, and a thousandth less bandwidth breaks it."""
    problem = fo.Problem(objective, SOURCES, 5.0)
    found = fo.bandwidth_for(problem, value=value)
    sign = 1.0 if objective.sense == "minimise" else -1.0
    assert 0.0 <= found.bandwidth - found.at_least <= 1e-6 * found.bandwidth
    for part, kept in ((1.0 + 1e-5, True), (1.0 - 1e-3, False)):
        best = fo.solve(problem.with_bandwidth(part * found.bandwidth), tolerance=1e-6)
        assert (sign * best.value <= sign * value) is kept
    assert sign * found.reached <= sign * value + 1e-9 * abs(value)


def test_no_rates_that_keep_the_promise_use_less_than_the_proved_bound() -> None:
    found = fo.bandwidth_for(HARMONIC, freshness=0.9)
    rng = np.random.default_rng(2)
    for _ in range(50):
        shape = found.solution.rates * rng.lognormal(0.0, rng.uniform(0.001, 1.0), N)
        scale = brentq(lambda x, shape=shape: fresh(x * shape) - 0.9, 1e-3, 1e6, xtol=1e-14)
        assert scale * shape.sum() >= found.at_least * (1.0 - EXACT)


def test_as_today_is_judged_by_the_same_formula() -> None:
    today = RNG.lognormal(0.0, 1.0, N)
    found = fo.bandwidth_for(HARMONIC, freshness="as today", today=today)
    assert found.target == pytest.approx(fresh(today), rel=EXACT)
    assert found.today == pytest.approx(float(today.sum()), rel=EXACT)
    assert found.saving is not None
    assert found.saving == pytest.approx(1.0 - found.bandwidth / today.sum(), rel=SCALAR)
    assert found.saving > 0.0
    assert "fewer refreshes" in found.sentence
    # What is the cheapest already cannot be had for less.
    again = fo.bandwidth_for(HARMONIC, freshness="as today", today=found.solution.rates)
    assert again.saving == pytest.approx(0.0, abs=1e-9)
    assert "needs as many refreshes" in again.sentence
    value = fo.bandwidth_for(HARMONIC, value="as today", today=today)
    assert present(value.saving) > 0.0


def test_bounds_may_ask_for_more_than_today() -> None:
    sources = fo.Sources([1.0, 1.0], min_rate=[4.0, 0.0])
    found = fo.bandwidth_for(
        fo.Problem(Age(Refresh.POISSON), sources, 9.0), freshness="as today", today=[1.0, 1.0]
    )
    # ½ + ½ today; 4/5 of the first leave 1/5 = ρ/(1 + ρ) for the second.
    assert found.bandwidth == pytest.approx(4.25, rel=SCALAR)
    assert found.saving == pytest.approx(-1.125, rel=SCALAR)
    assert "112.5 % more refreshes" in found.sentence
    costly = fo.Sources([1.0, 1.0], refresh_cost=[1.0, 3.0])
    words = fo.bandwidth_for(
        fo.Problem(Age(Refresh.POISSON), costly, 9.0), freshness="as today", today=[1.0, 9.0]
    ).sentence
    assert "less bandwidth" in words


def test_a_logs_crawls_are_matched_by_name_and_unit() -> None:
    log = fo.CrawlLog(
        ["b"] * 3 + ["a"] * 5 + ["c"], [0, 24, 48, 0, 6, 12, 18, 24, 3], [0] * 9, time_unit="hour"
    )
    # Sorted by name: a every 6 hours, b every 24; c was crawled once, which tells no rate.
    assert rates_in_force(log) * 24.0 == pytest.approx([4.0, 1.0, 0.0], rel=EXACT)
    sources = fo.Sources([1.0, 2.0], names=["b", "a"])
    problem = fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), sources, 9.0)
    found = fo.bandwidth_for(problem, freshness="as today", today=log)
    assert found.today == pytest.approx(5.0, rel=EXACT)
    assert found.target == pytest.approx((-np.expm1(-1.0) - np.expm1(-0.5) / 0.5) / 2.0, rel=EXACT)


def test_the_problems_other_limits_hold_and_its_bandwidth_does_not() -> None:
    size = fo.Budget(500.0, cost=np.linspace(1.0, 3.0, N), name="kB")
    declared = fo.Problem(Age(Refresh.POISSON), SOURCES, constraints=[fo.Budget(0.1), size])
    found = fo.bandwidth_for(declared, freshness=0.5)
    alone = fo.bandwidth_for(fo.Problem(Age(Refresh.POISSON), SOURCES, 0.1), freshness=0.5)
    assert float(np.linspace(1.0, 3.0, N) @ found.solution.rates) <= 500.0 * (1.0 + SCALAR)
    assert found.bandwidth == pytest.approx(alone.bandwidth, rel=SCALAR)
    with pytest.raises(fo.InfeasibleProblemError, match="out of reach at any bandwidth: kB <= 500 and"):
        fo.bandwidth_for(declared, freshness=0.99)


def test_what_is_out_of_reach_says_what_is_best() -> None:
    capped = fo.Problem(Age(Refresh.POISSON), fo.Sources([1.0, 4.0], max_rate=2.0), 5.0)
    # 2/(1 + 2) and 2/(4 + 2) of the time fresh: a half.
    with pytest.raises(fo.InfeasibleProblemError) as told:
        fo.bandwidth_for(capped, freshness=0.9)
    assert str(told.value) == (
        "90 % fresh is out of reach at any bandwidth: max_rate everywhere gives copies fresh 50 % of the "
        "time. Ask for that, or raise max_rate."
    )
    assert fo.bandwidth_for(capped, freshness=0.5).bandwidth == pytest.approx(4.0, rel=SCALAR)
    delay = fo.Problem(AccumulatedDelay(Refresh.POISSON), SOURCES, 5.0)
    with pytest.raises(fo.InfeasibleProblemError, match="approach a value of 0, and do not reach it"):
        fo.bandwidth_for(delay, value=0.0)
    with pytest.raises(fo.InfeasibleProblemError, match="approach a value of 2, and do not"):
        fo.bandwidth_for(fo.Problem(BinaryFreshness(Refresh.POISSON), fo.Sources([1.0, 1.0]), 5.0), value=2.0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "either a freshness or a value"),
        ({"freshness": 0.5, "value": 1.0}, "either a freshness or a value"),
        ({"freshness": 1.0}, "only at infinite rates"),
        ({"freshness": -0.5}, "not between 0 and 1"),
        ({"freshness": "tomorrow"}, 'Pass a number, or "as today"'),
        ({"freshness": "as today"}, "need each other"),
        ({"freshness": 0.5, "today": np.ones(N)}, "need each other"),
        ({"value": "as today", "today": np.zeros(N)}, "never refreshed costs without limit"),
        ({"freshness": "as today", "today": -np.ones(N)}, "no number >= 0"),
    ],
)
def test_what_is_no_question_is_refused(asked: dict[str, Any], message: str) -> None:
    refused(message, fo.bandwidth_for, HARMONIC, **asked)


def test_a_bandwidth_has_no_value_to_promise() -> None:
    problem = fo.Problem(
        fo.Spend(), SOURCES, constraints=[fo.Target(BinaryFreshness(fo.Refresh.PERIODIC), at_least=0.3)]
    )
    refused("no mean value to promise", fo.bandwidth_for, problem, value=1.0, error=fo.ObjectiveError)
    # Of a freshness the discipline is the target's, which itself holds on.
    found = fo.bandwidth_for(problem, freshness=0.2)
    assert found.reached == pytest.approx(0.3, rel=SCALAR)


def test_a_bandwidth_that_cannot_be_proved_is_not_asked_of_linear_programs() -> None:
    """Limits are so tight that rounding has a price; HiGHS would refuse the curved target."""
    sources = fo.Sources([1.0, 2.0, 3.0, 4.0], host=["a", "b"] * 2)
    problem = fo.Problem(fo.problems.BinaryFreshness(), sources, bandwidth=10.0, host_limits={"a": 4.0})
    with pytest.raises(CertificateError, match="the certified relative gap"):
        fo.bandwidth_for(problem, value=1e-9)


def test_nothing_that_matters_has_no_freshness() -> None:
    problem = fo.Problem(Age(Refresh.POISSON), fo.Sources([1.0, 1.0], importance=0.0), 5.0)
    refused("all importances are 0", fo.bandwidth_for, problem, freshness=0.5)


def test_a_promise_beside_a_target_of_the_same_name() -> None:
    objective = BinaryFreshness(fo.Refresh.PERIODIC)
    target = fo.Target(objective, at_least=0.3, name="freshness")
    problem = fo.Problem(fo.Spend(), fo.Sources([1.0, 2.0]), 5.0, constraints=[target])
    for promised, reached in ((0.2, 0.3), (0.5, 0.5)):
        found = fo.bandwidth_for(problem, freshness=promised)
        assert found.reached == pytest.approx(reached, rel=SCALAR)


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**crawls())


@pytest.mark.parametrize("refresh", [PERIODIC, POISSON])
def test_todays_freshness_is_that_of_the_logs_rates(log: fo.CrawlLog, refresh: fo.Refresh) -> None:
    made = make_plan(log, plan_request(AccumulatedDelay(refresh)))
    today = present(made.today)
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
    rates, n = rates_in_force(log), len(log.names)
    change, code = rng.uniform(0.2, 2.0, n), np.arange(n) % 3
    most = np.where(rng.random(n) < 0.3, rates * rng.uniform(0.3, 2.0, n), np.inf)
    limit = {f"h{k}": float(rates[code == k].sum() * rng.uniform(0.3, 2.0)) for k in range(2)}
    sources = fo.Sources(
        change, names=log.names, host=[f"h{k}" for k in code.tolist()], max_rate=most.tolist()
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


def test_sources_crawled_once_add_nothing_to_the_logs_own_crawls() -> None:
    many = [f"once{k}" for k in range(98)]
    log = fo.CrawlLog(
        ["a"] * 9 + ["b"] * 9 + many, [*range(9), *range(9), *[3] * 98], [1, 0, 0] * 6 + [0] * 98
    )
    sources = fo.Sources(np.ones(100), names=log.names)
    assert own_bandwidth(BinaryFreshness(PERIODIC), sources, None, log) == pytest.approx(2.0, rel=EXACT)
    today = present(todays_crawls(fo.Problem(BinaryFreshness(PERIODIC), sources, 2.0), log))
    assert today.bandwidth == pytest.approx(2.0, rel=EXACT)
    assert today.fresh == pytest.approx(-0.02 * np.expm1(-1.0), rel=EXACT)


def test_limits_may_leave_nothing_to_compare(log: fo.CrawlLog) -> None:
    n = len(log.names)
    never = fo.Sources(np.ones(n), names=log.names, max_rate=np.zeros(n))
    today = present(todays_crawls(fo.Problem(BinaryFreshness(PERIODIC), never, 1.0), log))
    assert today.needed is None
    assert today.sentence.endswith("cut to which nothing is kept fresh")


def test_a_plan_as_fresh_as_crawls_beyond_its_limits_says_so(log: fo.CrawlLog) -> None:
    rates = rates_in_force(log)
    for share in (0.9, 2.0):
        most = np.where(np.arange(len(rates)) == 0, share * rates, np.inf)
        sources = fo.Sources(np.full(len(rates), 0.5), names=log.names, max_rate=most)
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
    assert ("To be 80 % up to date" in labels) is (asked != "as today")
    assert f"At your freshness ({made.today.fresh:.1%})".replace("%", " %") in labels


def test_constraints_may_exclude_todays_freshness(log: fo.CrawlLog) -> None:
    few = fo.Budget(1.0, cost=np.ones(len(log.names)), name="few")
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
    refused("changes are known without any", fo.plan, history, None, "7d", freshness="today")
    once = fo.CrawlLog(["a", "b"], [0.0, 1.0], [0, 0])
    some = fo.Problem(BinaryFreshness(Refresh.POISSON), fo.Sources([1.0, 2.0], names=["a", "b"]), 1.0)
    assert todays_crawls(some, once) is None
    many = fo.Problem(BinaryFreshness(Refresh.POISSON), fo.Sources(np.ones(MOST + 1)), 1.0)
    assert todays_crawls(many, log) is None


def test_attempts_are_those_that_the_statuses_tell() -> None:
    # Two fetches a day for 20 days of each; the second source answers no more after day 7.
    moments = np.arange(0.0, 20.0, 0.5)
    status = np.where(moments < 7.0, 200, 429)
    frame = pl.DataFrame(
        {
            "source": np.repeat(["a", "b"], 40),
            "time": np.tile(moments, 2),
            "status": np.concatenate([np.full(40, 200), status]),
            "etag": np.tile(np.arange(40) // 5, 2).astype(str),
        }
    )
    log = fo.read_log(frame)
    assert present(log.attempt_rate).tolist() == [2.0, 2.0]
    chance = {"a": 1.0, "b": 0.35}
    made = fo.plan(log, None, "7d", success=chance, draws=0)
    assert present(made.today).bandwidth == made.problem.bandwidth == pytest.approx(4.0)
    # Without statuses each crawl is taken for 1/success attempts.
    alone = fo.plan(fo.CrawlLog.from_frame(log.to_frame()), None, "7d", success=chance, draws=0)
    assert alone.problem.bandwidth == pytest.approx(2.0 + 2.0 / 0.35)


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
    refused(message, freshness_of, given)


def test_freshness_stands_alone(log: fo.CrawlLog) -> None:
    refused("in place of bandwidth", fo.plan, log, 5.0, "7d", freshness=0.9)
    with pytest.raises(fo.SourceDataError, match="the objective is AccumulatedDelay"):
        fo.plan(log, None, "7d", freshness=0.9, objective=AccumulatedDelay(Refresh.POISSON))
    with pytest.raises(fo.SourceDataError, match="does not go with constraints"):
        fo.plan(log, None, "7d", freshness=0.9, constraints=[fo.Budget(3.0)])


def test_fetches_without_a_state_count_as_fetches() -> None:
    moments = np.arange(0.0, 20.0, 0.5)
    hashes = [str(k // 6) if k % 2 == 0 else None for k in range(len(moments))]
    frame = pl.DataFrame({"source": "a", "time": moments, "hash": hashes})
    with pytest.warns(
        fo.SourceDataWarning, match="20 of 40 rows, such as row 1, have no hash: they count as"
    ):
        log = fo.read_log(frame)
    assert present(log.attempt_rate).tolist() == [2.0]
    assert len(log) == 20
    made = fo.plan(log, None, "7d", draws=0)
    assert made.problem.bandwidth == pytest.approx(2.0)
    # Few rows without one are told of by nobody, and count all the same.
    few = fo.read_log(frame.filter((pl.col("time") % 1.0 == 0.0) | (pl.col("time") == 0.5)))
    assert few.warnings == ()
    assert present(few.attempt_rate).tolist() == [20.0 / 19.0]


def test_what_crawls_keep_fresh_at_their_own_intervals_is_told_beside_equal_ones() -> None:
    """Intervals of 1, 1 and 10 days in a log of hours; the second source matters thrice."""
    times = np.array([0.0, 1.0, 2.0, 12.0])
    own = fo.CrawlLog(["b"] * 4 + ["a"] * 4, np.tile(24.0 * times, 2), [0, 1, 0, 1] * 2, time_unit="hour")
    change, weight = np.array([0.3, 2.0]), np.array([1.0, 3.0])
    sources = fo.Sources(change, importance=weight, names=["b", "a"])
    gaps = np.diff(times)
    fresh = [float(np.sum(-np.expm1(-rate * gaps)) / rate / 12.0) for rate in change]
    found = present(todays_crawls(fo.Problem(BinaryFreshness(PERIODIC), sources, 1.0), own))
    assert found.as_crawled == pytest.approx(np.average(fresh, weights=weight), rel=EXACT)
    assert f"if at equal intervals, {100 * present(found.as_crawled):.3g} % as they came" in found.sentence
    assert found.facts()["as_crawled"] == found.as_crawled
    alike = fo.CrawlLog(["b"] * 4, [0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    even = present(
        todays_crawls(fo.Problem(BinaryFreshness(PERIODIC), fo.Sources([0.3], names=["b"]), 1.0), alike)
    )
    assert even.as_crawled == pytest.approx(even.fresh, rel=EXACT)
    assert "as they came" not in even.sentence
    poisson = present(todays_crawls(fo.Problem(BinaryFreshness(POISSON), sources, 1.0), own))
    assert poisson.as_crawled is None
