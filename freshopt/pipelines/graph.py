"""`Graph`: nodes of a pipeline in topological order, with their parents.

Cost: one pass over nodes and edges.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, expect, list_offenders, shortened, shown
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.tools.dbt_project import read_run_times

Node = Hashable
# Nodes of a cycle that a message names; the others add nothing.
SHOWN = 8


@frozen_value()
class Graph:
    """Directed acyclic graph in compressed rows.

    - `nodes`: As they were given, parents before children.
    - `first` (n + 1,): Where each node's parents begin in `parent`.
    - `parent` (edges,): Positions, each smaller than its child's.
    """

    nodes: tuple[Node, ...]
    first: IntArray
    parent: IntArray

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.nodes)

    def parents(self, k: int) -> IntArray:
        """Return the positions of a node's parents."""
        return self.parent[self.first[k] : self.first[k + 1]]

    def children(self) -> tuple[IntArray, IntArray]:
        """Return the children in compressed rows: where they begin, and their positions."""
        child = np.repeat(np.arange(len(self)), np.diff(self.first))
        order = np.argsort(self.parent, kind="stable")
        many = np.bincount(self.parent, minlength=len(self))
        return np.concatenate([[0], np.cumsum(many)]).astype(np.int64), child[order].astype(np.int64)


def read_graph(graph: object) -> Graph:
    """Return a NetworkX graph or a list of edges in topological order.

    Examples
    --------
    >>> found = read_graph([("b", "c"), ("a", "b"), ("a", "c")])
    >>> found.nodes, [found.parents(k).tolist() for k in range(3)]
    (('a', 'b', 'c'), [[], [0], [0, 1]])
    """
    nodes: dict[Node, list[Node]] = {}
    for node in _alone(graph):
        nodes.setdefault(node, [])
    for up, down in _pairs(graph):
        nodes.setdefault(up, [])
        nodes.setdefault(down, []).append(up)
    if not nodes:
        raise SourceDataError("the graph has no edges. Pass pairs of an upstream and a downstream node.")
    parents = {node: list(dict.fromkeys(above)) for node, above in nodes.items()}
    order = _sorted(parents)
    place = {node: k for k, node in enumerate(order)}
    many = [len(parents[node]) for node in order]
    flat = [place[up] for node in order for up in sorted(parents[node], key=place.__getitem__)]
    first = np.concatenate([[0], np.cumsum(many)]).astype(np.int64)
    return Graph(tuple(order), first, np.array(flat, dtype=np.int64))


def _alone(graph: Any) -> Iterable[Node]:  # noqa: ANN401 - a graph of any kind
    """Return all nodes that a NetworkX graph knows."""
    if not hasattr(graph, "is_directed"):
        return ()
    if not graph.is_directed():
        raise SourceDataError(
            "the graph is undirected. Pass a networkx.DiGraph with edges from upstream to downstream."
        )
    nodes: Iterable[Node] = graph.nodes
    return nodes


def _pairs(graph: Any) -> Iterator[tuple[Node, Node]]:  # noqa: ANN401 - a graph of any kind
    """Yield the edges."""
    try:
        edges = iter(graph.edges() if hasattr(graph, "is_directed") else graph)
    except TypeError:
        raise SourceDataError(
            f"the graph is of type {type(graph).__name__}. Pass a networkx.DiGraph, pairs of nodes, or the "
            "path of a manifest.json."
        ) from None
    for k, edge in enumerate(edges):
        try:
            up, down = (None, None) if isinstance(edge, str | bytes) else edge
            hash((up, down))
        except (TypeError, ValueError):
            up = None
        if up is None or down is None:
            raise SourceDataError(
                f"edge {k} is {shown(edge)}. An edge is a pair of an upstream and a downstream node."
            )
        yield up, down


def _sorted(parents: dict[Node, list[Node]]) -> list[Node]:
    """Return the nodes in topological order."""
    children: dict[Node, list[Node]] = {node: [] for node in parents}
    for node, above in parents.items():
        for up in above:
            children[up].append(node)
    left = {node: len(above) for node, above in parents.items()}
    ready, order = deque(node for node, many in left.items() if not many), []
    while ready:
        node = ready.popleft()
        order.append(node)
        for child in children[node]:
            left[child] -= 1
            if not left[child]:
                ready.append(child)
    if len(order) < len(parents):
        raise SourceDataError(
            f"the graph has a cycle: {_cycle(parents, set(order))}. Remove one of its edges."
        )
    return order


def _cycle(parents: dict[Node, list[Node]], sorted_out: set[Node]) -> str:
    """Return a cycle among the nodes that have no order."""
    node = next(name for name in parents if name not in sorted_out)
    path: list[Node] = []
    while node not in path:
        path.append(node)
        node = next(up for up in parents[node] if up not in sorted_out)
    ring = [node, *reversed(path[path.index(node) :])]
    names = [shortened(str(name)) for name in ring]
    if len(names) > SHOWN:
        names = [*names[: SHOWN - 2], f"{len(names) - SHOWN + 1} more", names[-1]]
    return " → ".join(names)


def require_known(names: Iterable[Node], known: Iterable[Node], what: str) -> None:
    """Raise SourceDataError if names are of no node."""
    nodes = set(known)
    unknown = [shown(name) for name in names if name not in nodes]
    if unknown:
        raise SourceDataError(
            f"{what} names {list_offenders(unknown)}, which is no node of the graph. Correct the name."
        )


def named_numbers(
    given: Any,  # noqa: ANN401 - a mapping, or a fitted estimator
    short: Mapping[Node, Node],
    place: Mapping[Node, int],
    what: str,
    time_unit: str,
) -> dict[Node, float]:
    """Return numbers by node, full names for short ones."""
    if hasattr(given, "change_rate_"):
        if given.time_unit_ != time_unit:
            raise SourceDataError(
                f"the estimates are per {given.time_unit_}, time_unit is {time_unit!r}. Pass time_unit="
                f"{given.time_unit_!r}."
            )
        pairs = zip(given.sources_.tolist(), given.change_rate_.tolist(), strict=True)
        return {short.get(node, node): rate for node, rate in pairs if short.get(node, node) in place}
    expect(given, Mapping, what, "Pass a mapping of node to number")
    found = {short.get(node, node): value for node, value in given.items()}
    require_known(found, place, what)
    return found


def number_column(given: Mapping[Node, float], place: Mapping[Node, int], what: str, default: float) -> Array:
    """Return numbers as a column over the nodes, checked."""
    column = np.full(len(place), default)
    wrong = []
    for node, value in given.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = np.nan
        if not (number == 0.0 == default or SMALLEST <= number <= LARGEST):
            wrong.append(f"{shown(node)}: {shown(value)}")
        column[place[node]] = number
    if wrong:
        least = "0 or more" if default == 0.0 else "> 0"
        raise SourceDataError(
            f"{what} out of range for {list_offenders(wrong)}. It must be {least}, within {SMALLEST:g}.."
            f"{LARGEST:g}. Correct it."
        )
    return column


def refresh_costs(
    cost: Mapping[Any, float] | str | os.PathLike[str] | None,
    short: Mapping[Node, Node],
    place: Mapping[Node, int],
    needed: list[Node],
) -> Array:
    """Return what refreshes cost, as a column over the nodes."""
    if cost is None:
        return np.ones(len(place))
    if not isinstance(cost, str | os.PathLike):
        return number_column(named_numbers(cost, short, place, "cost", ""), place, "cost", 1.0)
    times = read_run_times(cost)
    lacking = [shown(node) for node in needed if node not in times]
    if lacking:
        raise SourceDataError(
            f"{cost} has no run time of {list_offenders(lacking)}. Pass the run_results.json of a run of all "
            "models, or costs of your own."
        )
    return number_column({node: value for node, value in times.items() if node in place}, place, "cost", 1.0)
