"""Graphs of pipelines: chains, in-trees, shortcuts, diamonds, grids, and random ones with views."""

import numpy as np

Edges = list[tuple[str, str]]


def grid(side: int) -> Edges:
    edges = [("r", "0,0")]
    for i in range(side):
        for j in range(side):
            edges += [(f"{i},{j}", f"{i + 1},{j}")] * (i + 1 < side)
            edges += [(f"{i},{j}", f"{i},{j + 1}")] * (j + 1 < side)
    return edges


EXACT: dict[str, tuple[Edges, str]] = {
    "chain": ([("r", "a"), ("a", "b"), ("b", "c")], "c"),
    "in-tree": ([("r", "a"), ("s", "a"), ("q", "b"), ("a", "c"), ("b", "c")], "c"),
    "shortcut": ([("r", "a"), ("a", "b"), ("r", "b"), ("b", "c"), ("a", "c"), ("s", "c")], "c"),
    "leaf of a fan": ([("r", "a"), ("r", "b"), ("a", "c"), ("b", "d")], "d"),
}
BOUNDED: dict[str, tuple[Edges, str]] = {
    "diamond": ([("r", "a"), ("r", "b"), ("a", "c"), ("b", "c")], "c"),
    "deep diamond": ([("r", "o"), ("o", "a"), ("o", "b"), ("a", "c"), ("b", "c")], "c"),
    "shared root": ([("r", "a"), ("s", "a"), ("r", "b"), ("q", "b"), ("a", "c"), ("b", "c")], "c"),
    "grid": (grid(3), "2,2"),
}
GRAPHS = {**EXACT, **BOUNDED}


def rates_of(edges: Edges, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return change rates of the roots and refresh rates of the copies."""
    random = np.random.default_rng(seed)
    copies = {down for _, down in edges}
    nodes = sorted({node for edge in edges for node in edge})
    change = {node: float(random.uniform(0.5, 1.5)) for node in nodes if node not in copies}
    return change, {node: float(random.uniform(2.0, 8.0)) for node in nodes if node in copies}


def random_graph(nodes: int, seed: int) -> tuple[Edges, list[str]]:
    """Return edges of a random acyclic graph, and some of its nodes as views."""
    random = np.random.default_rng(seed)
    edges = []
    for k in range(1, nodes):
        for up in random.choice(k, size=min(k, int(random.integers(0, 4))), replace=False):
            edges.append((f"n{up}", f"n{k}"))
    copies = sorted({down for _, down in edges})
    return edges, [name for name in copies if random.random() < 0.3]
