"""`SlotAssignment`: crawls moved into slots that crawlers and hosts have room for, as little as possible.

Rates say when each source would like to be crawled; crawlers have only so many hands, hosts want pauses, and
at night some may not be visited. Time is cut into slots. Each host has a line of nodes, one per slot, on
which its crawls move later or earlier at a cost of the time that they move; from a node they leave into the
slot, as many as the host takes in it, and the slot takes as many as the crawlers manage. That is a
minimum-cost flow, whose linear program has integral vertices (Ahuja, Magnanti and Orlin, "Network Flows",
1993). A pause that is longer than a slot adds a limit on each window of slots; where that leaves fractions,
whole numbers are asked for.

Crawls of one host do not overtake each other: the order of their wishes is that of their slots, which costs
nothing where all pay alike.

Cost: a linear program of about three numbers per host and slot, solved by HiGHS: 35 s for 10⁴ crawls of 100
hosts in 1440 slots that are nearly full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, IntArray
from freshopt.errors import SourceDataError, list_offenders
from freshopt.scheduling.periodic import Periodic
from freshopt.scheduling.schedule import Method

MOST = 20_000_000  # host slots; a program of this size takes about 10 GiB
WHOLE = 1e-6  # distance from an integer that a solver's rounding explains


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Crawls in slots.

    Attributes
    ----------
    source : ndarray of int, shape (m,)
    time : ndarray, shape (m,)
        Sorted by time, then source.
    wish : ndarray, shape (m,)
        When each was wanted.
    moved : float
        Σ |slot − slot wanted| in time units.
    bound : float
        What no assignment to these slots can be below: the optimum of the linear program.
    """

    source: IntArray
    time: Array
    wish: Array
    moved: float
    bound: float

    def __repr__(self) -> str:
        """Return one line."""
        return (
            f"Assignment({len(self.time)} crawls moved by {self.moved:.6g} in all, at least {self.bound:.6g})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class SlotAssignment:
    """Refreshes in slots of limited capacity, moved as little as possible from when they are wanted.

    Parameters
    ----------
    slot : float
        Length of a slot in time units, > 0.
    capacity : int
        Crawls in a slot, by all crawlers together.
    host : array_like, shape (n,), optional
        The host of each source; None: one host.
    host_capacity : int or mapping of host to int
        Crawls of a host in a slot; hosts that a mapping leaves out have no limit of their own.
    min_gap : float or mapping of host to float
        Shortest time between two crawls of a host, in time units.
    blackouts : sequence of (start, end) or (start, end, host)
        When no crawl, or none of a host, may start; a slot that one touches is closed.
    wishes : Method
        Says when crawls are wanted.

    Raises
    ------
    SourceDataError
        If an argument is out of range.

    Notes
    -----
    Within a slot a host's crawls are spread evenly, at least `min_gap` apart; with a pause longer than a slot
    they start at its beginning.

    Examples
    --------
    Three sources of one host that takes one crawl a quarter of a day, and none in the first half of a day.

    >>> import freshopt as fo
    >>> method = SlotAssignment(slot=0.25, capacity=2, host_capacity=1, blackouts=[(0.0, 0.5)])
    >>> plan = fo.schedule({"a": 1.0, "b": 1.0, "c": 0.5}, horizon=2.0, method=method)
    >>> plan.time.tolist()
    [0.5, 0.75, 1.0, 1.25, 1.75]
    """

    slot: float
    capacity: int
    host: npt.ArrayLike | None = None
    host_capacity: int | Mapping[Any, int] | None = None
    min_gap: float | Mapping[Any, float] = 0.0
    blackouts: Sequence[tuple[Any, ...]] = ()
    wishes: Method = field(default_factory=Periodic)

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        if not 0.0 < self.slot < math.inf:
            raise SourceDataError(f"slot is {self.slot}. Pass a length > 0 in time units.")
        if self.capacity < 1 or self.capacity != int(self.capacity):
            raise SourceDataError(f"capacity is {self.capacity}. Pass a whole number of crawls >= 1.")
        for key, least in (("host_capacity", 1), ("min_gap", 0)):
            given = getattr(self, key)
            values = list(given.values()) if isinstance(given, Mapping) else [] if given is None else [given]
            bad = [value for value in values if not least <= value < math.inf]
            if bad:
                raise SourceDataError(f"{key} is {bad[0]}. Pass {least} or more.")
        for window in self.blackouts:
            if len(window) not in (2, 3) or not window[0] < window[1]:
                raise SourceDataError(
                    f"blackout {window!r} is none. Pass (start, end) or (start, end, host), start < end."
                )

    def __repr__(self) -> str:
        """Return what matters, never the arrays."""
        return f"SlotAssignment(slot={self.slot:g}, capacity={self.capacity})"

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return sources and times of all refreshes in [0, horizon), sorted by time, then source.

        Raises
        ------
        SourceDataError
            If the crawls do not fit into the slots; names the hosts.
        """
        found = self.assign(rates, horizon)
        return found.source, found.time

    def assign(self, rates: Array, horizon: float) -> Assignment:
        """Return the crawls in their slots, and how far they were moved.

        Raises
        ------
        SourceDataError
            If the crawls do not fit into the slots; names the hosts.
        """
        source, wish = self.wishes.times(rates, horizon)
        names, codes = self._hosts(len(rates))
        slots = max(1, math.ceil(horizon / self.slot - 1e-9))
        if len(names) * slots > MOST:
            raise SourceDataError(
                f"{len(names)} hosts with {slots} slots each are too many. Take slots of at least "
                f"{len(names) * horizon / MOST:.3g} time units, or a shorter horizon."
            )
        open_, room, pause = self._room(names, slots)
        mine = codes[source]
        wanted = np.minimum((wish / self.slot).astype(np.int64), slots - 1)
        demand = np.zeros((len(names), slots), dtype=np.int64)
        np.add.at(demand, (mine, wanted), 1)
        self._require_room(names, demand, open_, room, pause)
        taken, bound = _flow(demand, np.where(open_, room[:, None], 0), self.capacity, pause)
        if taken is None:
            raise SourceDataError(self._reason(names, demand))
        order = np.lexsort((source, wish, mine))  # host by host, in the order of their wishes
        source, wish, wanted = source[order], wish[order], wanted[order]
        host_of, slot_of = np.nonzero(taken)
        counts = taken[host_of, slot_of]
        place = np.repeat(slot_of, counts)
        rank = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        each = np.repeat(np.where(pause[host_of] > 1, 1, room[host_of]), counts)
        time = np.minimum((place + rank / each) * self.slot, np.nextafter(horizon, 0.0))
        moved = float(np.sum(np.abs(place - wanted))) * self.slot
        order = np.lexsort((source, time))
        return Assignment(source[order], time[order], wish[order], moved, bound * self.slot)

    def _hosts(self, n: int) -> tuple[list[Any], IntArray]:
        """Return the hosts and each source's position among them."""
        if self.host is None:
            return ["all sources"], np.zeros(n, dtype=np.int64)
        host = np.asarray(self.host)
        if host.shape != (n,):
            raise SourceDataError(f"host has shape {host.shape} but there are {n} sources. Give one each.")
        known, codes = np.unique(host, return_inverse=True)
        names = known.tolist()
        for key in ("host_capacity", "min_gap"):
            given = getattr(self, key)
            listed = given if isinstance(given, Mapping) else {}
            unknown = [repr(name) for name in listed if name not in names]
            if unknown:
                raise SourceDataError(
                    f"{key} names unknown hosts {list_offenders(unknown)}. Correct the names."
                )
        return names, codes.astype(np.int64)

    def _room(self, names: list[Any], slots: int) -> tuple[npt.NDArray[np.bool_], IntArray, IntArray]:
        """Return which slots are open to a host, how many crawls it takes in one, and its pause in slots."""

        def of(given: Any, otherwise: float) -> Array:  # noqa: ANN401 - a number or a mapping
            if isinstance(given, Mapping):
                return np.array([float(given.get(name, otherwise)) for name in names])
            return np.full(len(names), otherwise if given is None else float(given))

        gap = of(self.min_gap, 0.0)
        with np.errstate(divide="ignore"):
            within = np.where(gap > 0.0, np.floor(self.slot / np.where(gap > 0.0, gap, 1.0) + 1e-9), np.inf)
        room = np.minimum(np.minimum(of(self.host_capacity, np.inf), np.maximum(within, 1.0)), self.capacity)
        pause = np.maximum(1, np.ceil(gap / self.slot - 1e-9)).astype(np.int64)
        room = np.where(pause > 1, 1.0, room)
        open_ = np.ones((len(names), slots), dtype=np.bool_)
        position = {name: k for k, name in enumerate(names)}
        for begin, end, *who in self.blackouts:
            if who and who[0] not in position:
                raise SourceDataError(f"a blackout names the unknown host {who[0]!r}. Correct the name.")
            first, last = math.floor(begin / self.slot + 1e-9), math.ceil(end / self.slot - 1e-9)
            rows = position[who[0]] if who else slice(None)
            open_[rows, max(0, first) : max(0, last)] = False
        return open_, room.astype(np.int64), pause

    def _require_room(
        self,
        names: list[Any],
        demand: IntArray,
        open_: npt.NDArray[np.bool_],
        room: IntArray,
        pause: IntArray,
    ) -> None:
        """Refuse, by arithmetic, hosts and crawlers that have too little room in all."""
        needed = demand.sum(axis=1)
        most = -(-open_.sum(axis=1) * room // pause)
        short = np.flatnonzero(needed > most)
        if len(short):
            where = list_offenders(f"{names[h]!r}: {needed[h]} crawls, room for {most[h]}" for h in short)
            raise SourceDataError(
                f"too many crawls of {where}. Lower the rates (a host limit), or allow more crawls a slot, "
                "shorter pauses or fewer blackouts."
            )
        usable = int(np.count_nonzero(open_.any(axis=0))) * self.capacity
        if int(needed.sum()) > usable:
            raise SourceDataError(
                f"{needed.sum()} crawls are wanted and the slots have room for {usable}. Raise the capacity "
                "or lower the bandwidth."
            )

    def _reason(self, names: list[Any], demand: IntArray) -> str:
        """Return what to say where all have room alone, but not together."""
        busiest = np.argsort(-demand.sum(axis=1))[:3]
        named = ", ".join(f"{names[h]!r} {demand[h].sum()}" for h in busiest)
        return (
            f"the crawls fit the hosts one by one, but not together into slots of {self.capacity} (most are "
            f"wanted of {named}). Raise the capacity, shorten pauses or lower the bandwidth."
        )


def _flow(demand: IntArray, room: IntArray, capacity: int, pause: IntArray) -> tuple[IntArray | None, float]:
    """Return the crawls of each host and slot with the least movement, and the bound, in slots.

    Parameters
    ----------
    demand, room : ndarray of int, shape (H, S)
    capacity : int
    pause : ndarray of int, shape (H,)
        Slots from one crawl of a host to the next, at least.
    """
    from scipy.optimize import Bounds, LinearConstraint, linprog, milp
    from scipy.sparse import coo_array, vstack

    hosts, slots = demand.shape
    size = hosts * slots
    node = np.arange(size).reshape(hosts, slots)
    inner = node[:, :-1].ravel()
    arcs = len(inner)
    # Columns: crawls that leave, then moves to the next slot, then moves to the one before.
    rows = np.concatenate((np.arange(size), inner, inner + 1, inner + 1, inner))
    later, earlier = size + np.arange(arcs), size + arcs + np.arange(arcs)
    columns = np.concatenate((np.arange(size), later, later, earlier, earlier))
    signs = np.repeat([1.0, 1.0, -1.0, 1.0, -1.0], [size, arcs, arcs, arcs, arcs])
    width = size + 2 * arcs
    balance = coo_array((signs, (rows, columns)), shape=(size, width))
    slot_rows = np.tile(np.arange(slots), hosts)
    shared = coo_array((np.ones(size), (slot_rows, np.arange(size))), shape=(slots, width))
    limits, most = [shared], [np.full(slots, float(capacity))]
    for h in np.flatnonzero(pause > 1):
        limits.append(_windows(node[h], int(pause[h]), width))
        most.append(np.ones(limits[-1].shape[0]))
    above, beyond = vstack(limits).tocsr(), np.concatenate(most)
    cost = np.concatenate((np.zeros(size), np.ones(2 * arcs)))
    highest = np.concatenate((room.ravel().astype(float), np.full(2 * arcs, np.inf)))
    wanted = demand.ravel().astype(np.float64)
    box = np.column_stack((np.zeros(width), highest))
    # Interior points and a crossover to a vertex take half as long as the simplex method on 10⁴ crawls.
    program: Callable[..., Any] = linprog  # whose types leave out sparse matrices
    relaxed = program(cost, above, beyond, balance.tocsr(), wanted, box, method="highs-ipm")
    if relaxed.x is None:
        return None, math.inf
    bound, taken = float(relaxed.fun), relaxed.x[:size]
    if float(np.max(np.abs(taken - np.rint(taken)))) > WHOLE:
        limited = LinearConstraint(above, -np.inf, beyond)
        balanced = LinearConstraint(balance.tocsr(), wanted, wanted)
        whole = np.concatenate((np.ones(size), np.zeros(2 * arcs)))
        exact = milp(cost, constraints=[balanced, limited], bounds=Bounds(0.0, highest), integrality=whole)
        if exact.x is None:
            return None, math.inf
        taken = exact.x[:size]
    return np.rint(taken).astype(np.int64).reshape(hosts, slots), bound


def _windows(nodes: IntArray, pause: int, width: int) -> Any:  # noqa: ANN401 - a sparse array
    """Return the rows that sum a host's crawls over each window of `pause` slots."""
    from scipy.sparse import coo_array

    count = max(1, len(nodes) - pause + 1)
    length = min(pause, len(nodes))
    rows = np.repeat(np.arange(count), length)
    columns = nodes[(np.arange(count)[:, None] + np.arange(length)).ravel()]
    return coo_array((np.ones(len(rows)), (rows, columns)), shape=(count, width))
