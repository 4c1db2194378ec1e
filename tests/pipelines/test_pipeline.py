"""Pipelines as sources: the product against an exact recursion, its verdicts, and what is refused."""

import math
import re
from typing import Any

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest

import freshopt as fo
from freshopt.estimators import Naive
from freshopt.pipelines import IndependentPhases, node_freshness
from tests.ground_truth.pipeline_truth import ancestors_of, exact_freshness, parents_of
from tests.ground_truth.tolerances import EXACT as TIGHT
from tests.pipelines.graphs import BOUNDED, EXACT, GRAPHS, grid, random_graph, rates_of

PERIODIC, POISSON = fo.Refresh.PERIODIC, fo.Refresh.POISSON


def proved(solution: fo.Solution) -> bool:
    return solution.certificate is not None and solution.certificate.relative_gap < 1e-9


def fresh_at(line: fo.Pipeline, fresh: Any, node: str) -> float:  # noqa: ANN401
    return float(fresh[line.names.tolist().index(node)])


@pytest.mark.parametrize("case", GRAPHS)
def test_the_product_is_exact_or_a_lower_bound_as_it_says(case: str) -> None:
    edges, node = GRAPHS[case]
    change, rate = rates_of(edges, seed=3)
    line = fo.pipeline(edges, change)
    product = fresh_at(line, line.freshness(rate), node)
    truth = exact_freshness(node, edges, change, rate)
    assert fresh_at(line, line.exact, node) == (case in EXACT)
    if case in EXACT:
        assert product == pytest.approx(truth, rel=TIGHT)
    else:
        assert product < 0.999 * truth


@pytest.mark.parametrize("case", GRAPHS)
def test_what_is_simulated_is_the_exact_value(case: str) -> None:
    edges = GRAPHS[case][0]
    change, rate = rates_of(edges, seed=4)
    line = fo.pipeline(edges, change)
    found = node_freshness(line, rate, samples=40_000, seed=1)
    for name in rate:
        truth = exact_freshness(name, edges, change, rate)
        error = max(fresh_at(line, found.error, name), 1e-9)
        assert abs(fresh_at(line, found.sampled, name) - truth) < 4.0 * error, name


@pytest.mark.parametrize("seed", range(20))
def test_verdicts_on_random_graphs_with_views(seed: int) -> None:
    """Exact where the recursion says so, views contracted; below it elsewhere."""
    edges, views = random_graph(9, seed)
    change, rate = rates_of(edges, seed)
    try:
        line = fo.pipeline(edges, change, views=views)
    except fo.SourceDataError as error:
        assert "nothing is to be refreshed" in str(error)  # noqa: PT017
        return
    rate = {name: value for name, value in rate.items() if name not in views}
    solid = contracted(edges, views)
    product = line.freshness(rate)
    for name in rate:
        truth = exact_freshness(name, solid, change, rate)
        bound = fresh_at(line, product, name)
        assert bound <= truth * (1.0 + 1e-12)
        assert (bound > truth * (1.0 - 1e-9)) == fresh_at(line, line.exact, name)


def contracted(edges: list[tuple[str, str]], views: list[str]) -> list[tuple[str, str]]:
    """Return the edges between what is no view, through views."""
    parents = parents_of(edges)

    def solid(name: str) -> set[str]:
        return set().union(*(solid(up) if up in views else {up} for up in parents[name]))

    return [(up, name) for name in parents if name not in views for up in sorted(solid(name))]


@pytest.mark.parametrize("side", [30, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_a_grid_of_copies(side: int) -> None:
    """Of n nodes refreshed n times per change the bound is 1/e, and the truth near 1: up to 10 000 nodes."""
    n = side * side
    corner = f"{side - 1},{side - 1}"
    line = fo.pipeline(nx.DiGraph(grid(side)), {"r": 1.0}, {corner: 1.0})
    # Every node lies upstream of the corner.
    assert np.array_equal(line.sources.importance, np.ones(n))
    found = node_freshness(line, np.full(n, float(n)), samples=100)
    assert fresh_at(line, found.fresh, corner) == pytest.approx((n / (n + 1)) ** n, rel=1e-9)
    assert 2.0 < fresh_at(line, found.sampled, corner) / fresh_at(line, found.fresh, corner) < math.e


def test_missed_changes_and_periodic_cells() -> None:
    edges, node = EXACT["in-tree"]
    change, rate = rates_of(edges, seed=5)
    line = fo.pipeline(edges, change)
    parents = parents_of(edges)
    total = {
        h: sum(change[r] for r in ancestors_of(h, parents) if r in change)
        for h in [*ancestors_of(node, parents), node]
        if h in rate
    }
    lag = sum(d / rate[h] for h, d in total.items())
    assert fresh_at(line, line.missed_changes(rate), node) == pytest.approx(lag, rel=TIGHT)
    assert fresh_at(line, line.missed_changes(rate, PERIODIC), node) == pytest.approx(lag / 2.0, rel=TIGHT)
    cell = math.prod(-math.expm1(-d / rate[h]) * rate[h] / d for h, d in total.items())
    assert fresh_at(line, line.freshness(rate, PERIODIC), node) == pytest.approx(cell, rel=TIGHT)
    found = node_freshness(line, rate, PERIODIC, samples=40_000)
    assert abs(fresh_at(line, found.sampled, node) - cell) < 4.0 * fresh_at(line, found.error, node)


def test_the_optimum_is_that_of_the_declared_program() -> None:
    """The weighted −log freshness, minimised over the product itself by CVXPY."""
    edges, importance = BOUNDED["deep diamond"][0], {"a": 2.0, "b": 0.5, "c": 1.0}
    line = fo.pipeline(edges, {"r": 1.5}, importance, {"o": 0.3, "c": 4.0})
    solution = fo.solve(
        fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), line.sources, bandwidth=12.0)
    )
    assert proved(solution)
    rate = {name: cp.Variable(pos=True) for name in line.source_names}
    parents, terms = parents_of(edges), []
    for name, weight in importance.items():
        for h in (ancestors_of(name, parents) | {name}) & set(rate):
            terms.append(weight * cp.logistic(math.log(1.5) - cp.log(rate[h])))
    used = 0.3 * rate["o"] + rate["a"] + rate["b"] + 4.0 * rate["c"]
    value = cp.Problem(cp.Minimize(cp.sum(terms)), [used <= 12.0]).solve(solver=cp.CLARABEL)
    assert solution.value == pytest.approx(value, rel=1e-6)
    served = line.importance > 0.0
    own = -float(line.importance[served] @ np.log(line.freshness(solution)[served]))
    assert own == pytest.approx(solution.value, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_ill_scaled_rates(scale: float) -> None:
    edges = [(f"r{k}", f"a{k}") for k in range(6)] + [(f"a{k}", "all") for k in range(6)]
    change = {f"r{k}": scale * 10.0 ** (2 * k - 5) for k in range(6)}
    line = fo.pipeline(edges, change, {"all": 1e6, "a0": 1e-6}, {"a3": 1e6, "all": 1e-6})
    for share in (1e-3, 1.0, 20.0):
        budget = share * sum(change.values())
        solution = fo.solve(
            fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), line.sources, budget)
        )
        assert proved(solution)
        assert np.all(np.isfinite(line.freshness(solution)))
        found = node_freshness(line, solution, samples=200)
        assert np.all((found.sampled >= 0.0) & (found.sampled <= 1.0))
        method = fo.pipelines.AfterParents(line)
        used = float(line.sources.refresh_cost @ method.rates(solution.rates))
        assert used <= budget * (1.0 + 1e-12)


def test_nodes_that_need_no_refresh() -> None:
    """A root that never changes counts for nothing, nor does what is made of it alone; n = 1."""
    line = fo.pipeline([("r", "a"), ("seed", "b"), ("a", "c"), ("b", "c")], {"r": 2.0, "seed": 0.0})
    assert line.source_names == ["a", "c"]
    assert line.exact.all()
    one = fo.pipeline([("r", "a")], {"r": 2.0})
    assert one.freshness([2.0]).tolist() == [1.0, 0.5]
    assert one.freshness([0.0]).tolist() == [1.0, 0.0]
    assert one.missed_changes([0.0]).tolist() == [0.0, math.inf]


@pytest.mark.parametrize(
    ("graph", "arguments", "said"),
    [
        ([("a", "b"), ("b", "c"), ("c", "a")], {}, "cycle: a → b → c → a"),
        ([("a", "a")], {}, "cycle: a → a"),
        ([("r", "a")], {"change_rate": {}}, "root 'r' has no change rate"),
        ([("r", "a")], {"change_rate": {"r": 1.0, "x": 1.0}}, "change_rate names 'x', which is no node"),
        ([("r", "a")], {"change_rate": {"r": -1.0}}, "change_rate out of range for 'r': -1.0"),
        ([("r", "a")], {"change_rate": {"r": 1.0, "a": 1.0}}, "'a', which is made of other nodes"),
        ([("r", "a")], {"importance": {"y": 1.0}}, "importance names 'y', which is no node"),
        ([("r", "a")], {"importance": {"a": math.nan}}, "importance out of range for 'a': nan"),
        ([("r", "a")], {"cost": {"a": -2.0}}, "cost out of range for 'a': -2.0"),
        ([("r", "a")], {"cost": {"a": 0.0}}, "cost out of range for 'a': 0.0. It must be > 0"),
        ([("r", "a")], {"views": ["z"]}, "views names 'z', which is no node"),
        ([("r", "a")], {"views": ["a"]}, "nothing is to be refreshed"),
        ([("r", "a"), ("b",)], {}, "edge 1 is ('b',)"),
        (["ra"], {}, "edge 0 is 'ra'"),
        ([], {}, "the graph has no edges"),
        (nx.Graph([("r", "a")]), {}, "the graph is undirected"),
        (3.0, {}, "the graph is of type float"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(graph: Any, arguments: dict[str, Any], said: str) -> None:  # noqa: ANN401
    with pytest.raises(fo.SourceDataError, match=re.escape(said)) as caught:
        fo.pipeline(graph, **{"change_rate": {"r": 1.0}, **arguments})
    assert "\n" not in str(caught.value)


def test_estimates_are_change_rates() -> None:
    log = fo.CrawlLog.from_columns(
        {"source": ["r"] * 9, "time": np.arange(9.0), "changed": [0, 1, 0, 1, 0, 1, 0, 1, 0]}, time_unit="day"
    )
    fitted = Naive().fit(log)
    assert fo.pipeline([("r", "a")], fitted).sources.change_rate[0] == fitted.change_rate_[0]
    with pytest.raises(fo.SourceDataError, match="the estimates are per day"):
        fo.pipeline([("r", "a")], fitted, time_unit="hour")


def test_independent_phases_are_redrawn() -> None:
    method = IndependentPhases(seed=3)
    one, two = (each.times(np.array([1.0]), 1.0)[1] for each in (method.redrawn(0), method.redrawn(1)))
    assert one.tolist() != two.tolist()
    assert one.tolist() == method.times(np.array([1.0]), 1.0)[1].tolist()
