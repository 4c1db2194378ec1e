"""Freshness of the nodes of a pipeline, by events and by an exact recursion; knows no library code."""

import random
from collections.abc import Mapping, Sequence
from functools import cache

Edges = Sequence[tuple[str, str]]


def parents_of(edges: Edges) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for up, down in edges:
        found.setdefault(up, [])
        found.setdefault(down, []).append(up)
    return found


def ancestors_of(node: str, parents: Mapping[str, Sequence[str]]) -> frozenset[str]:
    return frozenset().union(*({p} | ancestors_of(p, parents) for p in parents[node]))


def exact_freshness(node: str, edges: Edges, change: Mapping[str, float], rate: Mapping[str, float]) -> float:
    """Return the chance that a node is fresh, under Poisson refreshes, on any acyclic graph.

    The chance P(A) that all nodes of a set A that holds its members' ancestors are fresh balances: it is left
    when a root of A changes, and entered when its only stale member, a sink, is refreshed.
    """
    parents = parents_of(edges)
    above = {name: ancestors_of(name, parents) for name in parents}

    @cache
    def chance(members: frozenset[str]) -> float:
        copies = [name for name in members if parents[name]]
        if not copies:
            return 1.0
        sinks = [name for name in copies if not any(name in above[other] for other in members)]
        roots = {root for name in sinks for root in above[name] if not parents[root]}
        entered = sum(rate[name] * chance(members - {name}) for name in sinks)
        return entered / (sum(change[root] for root in roots) + sum(rate[name] for name in sinks))

    return chance(above[node] | {node})


def drawn_events(
    change: Mapping[str, float],
    rate: Mapping[str, float],
    horizon: float,
    seed: int,
    *,
    periodic: bool = False,
) -> list[tuple[float, str]]:
    """Return changes and refreshes in order: Poisson, or refreshes at independent phases."""
    draw = random.Random(seed)
    events: list[tuple[float, str]] = []
    for name, speed in [*change.items(), *rate.items()]:
        regular = periodic and name in rate
        time = draw.random() / speed if regular else draw.expovariate(speed)
        while time < horizon:
            events.append((time, name))
            time += 1.0 / speed if regular else draw.expovariate(speed)
    return sorted(events)


def replayed(
    edges: Edges, events: Sequence[tuple[float, str]], horizon: float, views: Sequence[str] = ()
) -> tuple[dict[str, float], dict[str, float]]:
    """Return each copy's share of time fresh and mean number of missed changes, event by event.

    A copy keeps, for each root, the number of changes that it has seen; a refresh takes the least of its
    parents', so that a copy is fresh if it has seen all that there were. Views are refreshed at every event.
    """
    parents = parents_of(edges)
    roots = [name for name in parents if not parents[name]]
    copies = sorted((name for name in parents if parents[name]), key=lambda x: len(ancestors_of(x, parents)))
    above = {name: ancestors_of(name, parents) for name in parents}
    now_at = dict.fromkeys(roots, 0)
    seen = {name: {root: 0 for root in roots if root in above[name]} for name in copies}
    missed = dict.fromkeys(copies, 0)
    missed_area, fresh_area, last = dict.fromkeys(copies, 0.0), dict.fromkeys(copies, 0.0), 0.0

    def refresh(name: str) -> None:
        for root in seen[name]:
            seen[name][root] = min(
                now_at[root] if p == root else seen[p][root]
                for p in parents[name]
                if p == root or (p in seen and root in seen[p])
            )

    for time, name in [*events, (horizon, "")]:
        for copy in copies:
            missed_area[copy] += missed[copy] * (time - last)
            fresh_area[copy] += (missed[copy] == 0) * (time - last)
        last = time
        if name in now_at:
            now_at[name] += 1
        elif name:
            refresh(name)
        for copy in copies:
            if copy in views:
                refresh(copy)
            missed[copy] = sum(now_at[root] - many for root, many in seen[copy].items())
    fresh = {name: area / horizon for name, area in fresh_area.items()}
    return fresh, {name: area / horizon for name, area in missed_area.items()}
