"""Sums over upstream sets and verdicts of chains, against sets that are spelled out; what trees take."""

import itertools

import numpy as np
import pytest

from freshopt.pipelines.graph import Graph, read_graph
from freshopt.pipelines.upstream import UpstreamSets, is_exact
from tests.ground_truth.pipeline_truth import parents_of
from tests.pipelines.graphs import GRAPHS, Edges, grid

CHAIN: Edges = [(f"n{k}", f"n{k + 1}") for k in range(60)]
DIAMONDS: Edges = [
    edge
    for k in range(30)
    for side in "ab"
    for edge in ((f"j{k}", f"{side}{k}"), (f"{side}{k}", f"j{k + 1}"))
]


def sparse(nodes: int, seed: int) -> Edges:
    """Return a graph with some cycles among many bridges."""
    random = np.random.default_rng(seed)
    edges = {(f"n{random.integers(0, k)}", f"n{k}") for k in range(1, nodes) if random.random() < 0.9}
    for _ in range(nodes // 6):
        up, down = sorted(random.choice(nodes, 2, replace=False).tolist())
        edges.add((f"n{up}", f"n{down}"))
    return sorted(edges)


CASES = {
    **{name: edges for name, (edges, _) in GRAPHS.items()},
    "long chain": CHAIN,
    "in-tree of 100": [(f"n{k}", f"n{(k - 1) // 2}") for k in range(1, 100)],
    "diamonds": DIAMONDS,
    "grid of 36": grid(6),
    **{f"sparse {seed}": sparse(40, seed) for seed in range(12)},
}


def spelled_out(edges: Edges, graph: Graph) -> list[frozenset[str]]:
    """Return each node's upstream set, itself included."""
    parents, found = parents_of(edges), dict[str, frozenset[str]]()
    for node in map(str, graph.nodes):
        found[node] = frozenset({node}).union(*(found[up] for up in parents[node]))
    return list(found.values())


@pytest.mark.parametrize("case", CASES)
def test_sums_count_each_node_once(case: str) -> None:
    graph = read_graph(CASES[case])
    above = spelled_out(CASES[case], graph)
    value = np.random.default_rng(1).integers(1, 10**6, len(graph)).astype(np.float64)
    known = dict(zip(graph.nodes, value.tolist(), strict=True))
    sets = UpstreamSets.of(graph)
    assert sets.sum_upstream(value).tolist() == [sum(known[name] for name in own) for own in above]
    below = [
        sum(known[other] for other, own in zip(graph.nodes, above, strict=True) if name in own)
        for name in graph.nodes
    ]
    assert sets.sum_downstream(value).tolist() == below
    value[len(value) // 3] = np.inf
    starved = [graph.nodes[len(value) // 3] in own for own in above]
    assert np.isinf(sets.sum_upstream(value)).tolist() == starved


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_a_node_is_exact_where_all_in_between_are_in_one_order(case: str, seed: int) -> None:
    random, graph = np.random.default_rng(seed), read_graph(CASES[case])
    above = dict(zip(graph.nodes, spelled_out(CASES[case], graph), strict=True))
    is_root = np.diff(graph.first) == 0
    rate = np.where(is_root & (random.random(len(graph)) < 0.8), 1.0, 0.0)
    waits = ~is_root & (random.random(len(graph)) < 0.7)
    roots = {graph.nodes[k] for k in np.flatnonzero(rate)}
    solid = {graph.nodes[k] for k in np.flatnonzero(waits)}

    def in_order(name: object, root: object) -> bool:
        between = [each for each in above[name] & solid if root in above[each]]
        return all(a in above[b] or b in above[a] for a, b in itertools.combinations(between, 2))

    expected = [all(in_order(name, root) for root in above[name] & roots) for name in graph.nodes]
    assert is_exact(UpstreamSets.of(graph), rate, waits).tolist() == expected


def test_trees_and_chains_need_no_bits_and_cycles_only_their_own() -> None:
    for edges in (CHAIN, CASES["in-tree of 100"], [(down, up) for up, down in CASES["in-tree of 100"]]):
        assert UpstreamSets.of(read_graph(edges)).blocks == ()
    assert {len(block) for block in UpstreamSets.of(read_graph(DIAMONDS)).blocks} == {4}
