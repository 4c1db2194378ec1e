"""What a plan finds for its page, against the mathematics written out again."""

import json
import math
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.noisy_signals.with_noisy_signals import WithNoisySignals
from freshopt.planning.findings import (
    EACH_NOISY,
    FEW,
    FEWER,
    LISTED,
    MORE,
    MULTIPLES,
    findings,
    freshness_along,
)
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import Uniform
from tests.ground_truth.named import PERIODIC, POISSON
from tests.ground_truth.plans import Floats, cell
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import EXACT, SCALAR

Found = dict[str, Any]


def sources(n: int = 40, seed: int = 3, **more: Any) -> fo.Sources:  # noqa: ANN401
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.2, 3.0, n)
    weight[:4] = 0.0
    return fo.Sources(np.exp(rng.normal(0.0, 1.5, n)), weight, names=[f"s{k:02d}" for k in range(n)], **more)


def solved(objective: fo.Objective, bandwidth: float, known: fo.Sources, **more: Any) -> fo.Solution:  # noqa: ANN401
    return fo.solve(fo.Problem(objective, known, bandwidth, **more), tolerance=1e-12)


def unit_cost(objective: fo.Objective, change_rate: Floats, rate: Floats) -> Floats:
    """J(ρ) of each source, 1 at rate 0, where freshness is 0."""
    cost = np.ones(len(rate))
    some = rate > 0.0
    told = cell(objective, change_rate[some], rate[some])
    cost[some] = 1.0 - told if isinstance(objective, BinaryFreshness) else told
    return cost


@pytest.mark.parametrize("refresh", [PERIODIC, POISSON])
def test_copies_are_fresh_for_the_share_of_time_that_the_formula_tells(refresh: fo.Refresh) -> None:
    known = sources()
    plan = solved(HarmonicStaleness(refresh), 20.0, known)
    even = fo.solve(plan.problem, Uniform(), throw=False)
    fresh = findings(plan, {"uniform": even})["fresh"]
    weight = known.importance / math.fsum(known.importance)
    for name, each in (("plan", plan), ("uniform", even)):
        stale = unit_cost(BinaryFreshness(refresh), known.change_rate, each.rates)
        assert fresh[name] == pytest.approx(1.0 - float(weight @ stale), rel=SCALAR)
    assert set(fresh) == {"plan", "uniform"}


def test_signalled_sources_have_no_such_share() -> None:
    known = fo.Sources([1.0, 2.0], signalled=[True, False])
    assert findings(solved(HarmonicStaleness(POISSON), 1.0, known), {})["fresh"] is None


def test_the_price_is_the_slope_of_the_value_along_the_bandwidth() -> None:
    known = sources()
    plan = solved(BinaryFreshness(PERIODIC), 10.0, known)
    points = findings(plan, {})["frontier"]
    assert [point["bandwidth"] for point in points] == pytest.approx([10.0 * m for m in MULTIPLES], rel=EXACT)
    assert points[MULTIPLES.index(1.0)]["value"] == pytest.approx(plan.value, rel=SCALAR)
    for point in points:
        step = 1e-4 * point["bandwidth"]
        more, less = (
            solved(BinaryFreshness(PERIODIC), point["bandwidth"] + sign * step, known).value
            for sign in (1.0, -1.0)
        )
        assert (more - less) / (2.0 * step) == pytest.approx(point["price"], rel=1e-5)
        assert point["status"] == "optimal"


def test_bandwidths_that_do_not_suffice_have_no_value() -> None:
    known = sources(min_rate=0.2)  # 8 in total
    points = findings(solved(HarmonicStaleness(PERIODIC), 10.0, known), {})["frontier"]
    for point in points:
        assert (point["value"] is None) == (point["price"] is None) == (point["bandwidth"] < 8.0)


def test_who_is_never_refreshed_is_of_no_importance_or_not_worth_its_price() -> None:
    known = sources()
    plan = solved(BinaryFreshness(PERIODIC), 2.0, known)
    never = findings(plan, {})["never_refreshed"]
    zero, worth = plan.rates == 0.0, known.importance / known.change_rate  # w/Δ: the gain of a first refresh
    dear = zero & (known.importance > 0.0)
    assert never["no_importance"] == np.count_nonzero(zero & (known.importance == 0.0)) == 4
    assert never["not_worth_it"] == np.count_nonzero(dear) > LISTED
    assert np.all(worth[dear] <= plan.price)
    assert np.all(worth[~zero] > plan.price)
    first = np.flatnonzero(dear)[np.argsort(-worth[dear], kind="stable")][:LISTED]
    assert [row["source"] for row in never["sources"]] == [f"s{k:02d}" for k in first]
    for row, k in zip(never["sources"], first, strict=True):
        assert (row["worth"], row["price"]) == pytest.approx((worth[k], plan.price), rel=SCALAR)
        assert (row["change_rate"], row["importance"]) == (known.change_rate[k], known.importance[k])


@pytest.mark.parametrize(
    "objective", [HarmonicStaleness(PERIODIC), AccumulatedDelay(POISSON), BinaryFreshness(POISSON)], ids=repr
)
def test_costs_and_gains_are_those_of_the_formula(objective: fo.Objective) -> None:
    rng = np.random.default_rng(4)
    delta, weight = np.exp(rng.normal(0.0, 1.0, 25)), rng.uniform(0.5, 2.0, 25)
    plan = solved(objective, 12.0, fo.Sources(delta, weight))
    found = findings(plan, {})
    cost = weight * unit_cost(objective, delta, plan.rates)
    assert found["cost"] == pytest.approx(math.fsum(cost), rel=SCALAR)
    more = found["more_bandwidth"]
    assert more["bandwidth"] == MORE * 12.0
    then = solved(objective, MORE * 12.0, fo.Sources(delta, weight))
    assert more["value"] == pytest.approx(then.value, rel=SCALAR)
    gain = cost - weight * unit_cost(objective, delta, then.rates)
    assert [row["gain"] for row in more["sources"]] == pytest.approx(np.sort(gain)[::-1][:LISTED], rel=1e-6)
    assert math.fsum(gain) == pytest.approx(abs(then.value - plan.value), rel=1e-6)
    for row in more["sources"]:
        assert row["rate_then"] > row["rate"]


def test_where_bandwidth_does_not_bind_more_brings_nothing() -> None:
    found = findings(solved(HarmonicStaleness(PERIODIC), 100.0, sources(max_rate=1.0)), {})
    assert found["more_bandwidth"] is None
    assert [point["price"] for point in found["frontier"]][-1] == 0.0
    held = found["held_back"]
    assert len(held) == LISTED
    assert all(row["rate"] == 1.0 and row["worth"] > row["price"] == 0.0 for row in held)


def test_a_hosts_price_is_what_more_of_its_limit_brings() -> None:
    n = 40
    known = sources(host=[f"h{k % 4}" for k in range(n)])
    limits = {"h0": 0.5, "h1": 1.0, "h3": 500.0}
    objective = HarmonicStaleness(PERIODIC)
    plan = solved(objective, 20.0, known, host_limits=limits)
    told = findings(plan, {})["hosts"]
    assert (told["limited"], told["binding"]) == (3, 2)
    assert [row["price"] for row in told["hosts"]] == sorted(
        (row["price"] for row in told["hosts"]), reverse=True
    )
    for row in told["hosts"]:
        own = np.asarray(known.host) == row["host"]
        assert row["sources"] == np.count_nonzero(own) == 10
        assert row["used"] == pytest.approx(math.fsum(plan.rates[own]), rel=EXACT)
        assert row["used"] == pytest.approx(row["limit"], rel=EXACT)
        values = [
            solved(objective, 20.0, known, host_limits={**limits, row["host"]: row["limit"] + step}).value
            for step in (-1e-4, 1e-4)
        ]
        assert (values[0] - values[1]) / 2e-4 == pytest.approx(row["price"], rel=1e-5)


def test_all_of_it_goes_into_json_whatever_sources_and_hosts_are_called() -> None:
    known = fo.Sources([1.0, 4.0], names=np.array([7, 8]), host=np.array([1, 2]))
    found = findings(solved(AccumulatedDelay(POISSON), 3.0, known, host_limits={1: 0.5}), {})
    again: Found = json.loads(json.dumps(found, allow_nan=False))
    assert again == found
    assert {row["source"] for row in found["more_bandwidth"]["sources"]} <= {7, 8}
    assert found["hosts"]["hosts"][0]["host"] == 1


def test_many_sources_are_solved_at_fewer_bandwidths(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = solved(HarmonicStaleness(PERIODIC), 10.0, sources(n=40))
    for limit, multiples in (("SOME", FEWER), ("MANY", FEW)):
        monkeypatch.setattr(f"freshopt.planning.findings.{limit}", 39)
        points = findings(plan, {})["frontier"]
        assert [point["bandwidth"] for point in points] == [10.0 * multiple for multiple in multiples]
        assert points[multiples.index(1.0)]["value"] == plan.value
        assert multiples.count(1.0) == 1


def test_a_source_with_noisy_signals_counts_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = WithNoisySignals(AccumulatedDelay(PERIODIC), recall=0.5, precision=0.8)
    plan = solved(objective, 3.0, sources(n=6))
    for limit in ("SOME", "MANY"):
        monkeypatch.setattr(f"freshopt.planning.findings.{limit}", 6 * EACH_NOISY - 1)
    assert [point["bandwidth"] for point in findings(plan, {})["frontier"]] == [3.0 * each for each in FEW]


def test_extreme_bandwidths_are_left_out_rather_than_refused() -> None:
    found = findings(solved(AccumulatedDelay(POISSON), 1e100, fo.Sources([1.0])), {})
    assert max(point["bandwidth"] for point in found["frontier"]) == 1e100
    assert found["more_bandwidth"] is None


@pytest.mark.parametrize("refresh", [PERIODIC, POISSON])
def test_freshness_along_the_bandwidth_is_that_of_best_and_of_equal_rates(
    refresh: fo.Refresh,
) -> None:
    known = sources()
    plan = solved(HarmonicStaleness(refresh), 20.0, known)
    points = present(freshness_along(plan, [20.0, 70.0, 0.0]))
    at = [point["bandwidth"] for point in points]
    assert at == sorted(at)
    assert {20.0, 70.0} < set(at)
    assert (at[0], at[-1]) == pytest.approx((5.0, 105.0))
    for point in points[::6]:
        best = solved(BinaryFreshness(refresh), point["bandwidth"], known)
        weight = known.column("importance")
        equal = np.full(len(known), point["bandwidth"] / len(known))
        for key, rates in (("best", best.rates), ("equal", equal)):
            stale = unit_cost(BinaryFreshness(refresh), known.change_rate, rates)
            assert point[key] == pytest.approx(1.0 - stale @ weight / weight.sum(), rel=1e-6)
    assert all(point["best"] >= point["equal"] for point in points)


def test_no_freshness_is_drawn_where_none_is_known() -> None:
    known = fo.Sources([1.0, 2.0], importance=0.0)
    assert freshness_along(solved(HarmonicStaleness(PERIODIC), 2.0, known), [2.0]) is None
    limited = fo.Problem(BinaryFreshness(PERIODIC), sources(), 20.0, constraints=[fo.Budget(30.0, cost=2.0)])
    assert freshness_along(fo.solve(limited), [20.0]) is None
