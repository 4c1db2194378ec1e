"""Limits changed by their labels: the same problem as the one declared anew, and prices as slopes."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import Conic
from tests.ground_truth.tolerances import CONIC, SCALAR

RNG = np.random.default_rng(8)
N = 9
HOST = np.array(["a", "b", "c"])[np.arange(N) % 3]
SOURCES = fo.Sources(RNG.lognormal(size=N), RNG.lognormal(size=N), host=HOST)
SIZE = RNG.lognormal(size=N)
TIER = np.array(["news", "blog", None] * 3, dtype=object)
OUTER = np.where(HOST == "a", "x", "y")


def problem(*constraints: Any, bandwidth: float | None = 5.0, **given: Any) -> fo.Problem:  # noqa: ANN401
    return fo.Problem(HarmonicStaleness(), SOURCES, bandwidth, constraints=list(constraints), **given)


WAYS: dict[str, tuple[fo.Problem, str, float, fo.Problem]] = {
    "a budget": (
        problem(fo.Budget(9.0, cost=SIZE, name="bytes")),
        "bytes",
        4.0,
        problem(fo.Budget(4.0, cost=SIZE, name="bytes")),
    ),
    "a group of a budget": (
        problem(fo.Budget({"news": 1.0, "blog": 2.0}, by=TIER, cost=SIZE, name="tier")),
        "tier[blog]",
        0.5,
        problem(fo.Budget({"news": 1.0, "blog": 0.5}, by=TIER, cost=SIZE, name="tier")),
    ),
    "one number for all groups": (
        problem(fo.Budget(1.5, by="host", cost=SIZE, name="host")),
        "host",
        0.75,
        problem(fo.Budget(0.75, by="host", cost=SIZE, name="host")),
    ),
    "one of the groups that share a number": (
        problem(fo.Budget(1.5, by="host", cost=SIZE, name="host")),
        "host[b]",
        0.75,
        problem(fo.Budget({"a": 1.5, "b": 0.75, "c": 1.5}, by="host", cost=SIZE, name="host")),
    ),
    "a target": (
        problem(fo.Target(BinaryFreshness(), at_least=0.3, name="fresh")),
        "fresh",
        0.59,
        problem(fo.Target(BinaryFreshness(), at_least=0.59, name="fresh")),
    ),
    "a nested limit": (
        problem(fo.Nested(["host", OUTER], at_most={"x": 1.0, "b": 1.0}, at_least={"c": 0.5})),
        "nested[b]",
        0.5,
        problem(fo.Nested(["host", OUTER], at_most={"x": 1.0, "b": 0.5}, at_least={"c": 0.5})),
    ),
    "a nested reserve": (
        problem(fo.Nested(["host", OUTER], at_most={"x": 1.0}, at_least={"b": 2.0})),
        "nested reserve[b]",
        2.5,
        problem(fo.Nested(["host", OUTER], at_most={"x": 1.0}, at_least={"b": 2.5})),
    ),
    "the bandwidth": (problem(), "bandwidth", 2.0, problem(bandwidth=2.0)),
    "the bandwidth, declared": (
        problem(fo.Budget(5.0, name="pages"), bandwidth=None),
        "pages",
        2.0,
        problem(fo.Budget(2.0, name="pages"), bandwidth=None),
    ),
    "a host": (problem(host_limits={"a": 1.0}), "host[a]", 0.5, problem(host_limits={"a": 0.5})),
    "a host, declared": (
        problem(fo.Budget({"a": 1.0}, by="host", name="host")),
        "host[a]",
        0.5,
        problem(fo.Budget({"a": 0.5}, by="host", name="host")),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_limit_is_the_problem_declared_anew(way: str) -> None:
    before, label, value, expected = WAYS[way]
    changed = before.with_limit(label, value)
    one, other = fo.solve(changed), fo.solve(expected)
    assert changed.row_labels == expected.row_labels == before.row_labels
    assert np.allclose(one.rates, other.rates, rtol=SCALAR, atol=0.0)
    assert fo.solve(before).value != pytest.approx(one.value, rel=CONIC)


def written(rate: cp.Expression) -> list[cp.Expression]:
    return [(SIZE @ rate <= 9.0).set_label("bytes"), (cp.sum(rate) <= 5.0).set_label("pages")]


LIMITED = problem(
    fo.Budget({"news": 1.0}, by=TIER, cost=SIZE, name="tier"), fo.Tied(HOST), fo.Ratio([-1] * N)
)
REFUSED = {
    "unknown": (LIMITED, "nothing", "no constraint is labelled 'nothing'. Pass one of bandwidth, tier"),
    "several": (LIMITED, "tier", "for each of several groups. Pass one of tier[news]"),
    "of a group without one": (LIMITED, "tier[blog]", "no constraint is labelled"),
    "a tie": (LIMITED, "tied", "no limit of its own"),
    "a ratio": (LIMITED, "ratio[1]", "no limit of its own"),
    "a function's": (problem(written, bandwidth=None), "bytes", "a number of the function"),
    "a function's bandwidth": (problem(written, bandwidth=None), "pages", "a number of the function"),
}


@pytest.mark.parametrize("way", REFUSED)
def test_limits_that_are_none_are_refused_in_one_line(way: str) -> None:
    given, label, words = REFUSED[way]
    with pytest.raises(fo.SourceDataError) as caught:
        given.with_limit(label, 2.0)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bandwidth_in_a_function_stays_one_row() -> None:
    """Declared anew for other sources it is not taken for a second bandwidth beside the function's."""
    plain = problem(written, bandwidth=None)
    faster = plain.with_change_rate(2.0 * np.array(SOURCES.change_rate))
    assert faster.row_labels == plain.row_labels
    assert [c.label for c in plain.to_cvxpy().constraints].count("pages") == 1
    with pytest.raises(fo.SourceDataError, match="a number of the function"):
        plain.with_bandwidth(3.0)


def test_two_rows_of_one_label_are_refused() -> None:
    with pytest.raises(fo.SourceDataError, match="two constraints are named 'bandwidth'"):
        problem(fo.Budget(3.0))


@pytest.mark.parametrize("cost", ["each", "once"])
def test_ties_are_the_same_in_cvxpy(cost: Any) -> None:  # noqa: ANN401
    """Written out by hand: three hosts of three sources, one rate each."""
    sources = fo.Sources(SOURCES.change_rate, SOURCES.importance, refresh_cost=SIZE)
    tied = fo.Problem(AccumulatedDelay(), sources, 5.0, constraints=[fo.Tied(HOST, cost=cost)])
    rate = cp.Variable(3, nonneg=True)
    member = HOST[:, None] == np.array(["a", "b", "c"])
    paid = (SIZE[:, None] * member).max(axis=0) if cost == "once" else (SIZE[:, None] * member).sum(axis=0)
    weight = (np.array(SOURCES.importance * SOURCES.change_rate)[:, None] * member).sum(axis=0)
    truth = cp.Problem(cp.Minimize(weight @ cp.inv_pos(rate)), [paid @ rate <= 5.0])
    truth.solve(solver="CLARABEL")
    assert fo.solve(tied).value == pytest.approx(truth.value, rel=CONIC)
    assert tied.to_cvxpy().solve(solver="CLARABEL") == pytest.approx(truth.value, rel=CONIC)
    assert fo.solve(tied, Conic()).value == pytest.approx(truth.value, rel=CONIC)
