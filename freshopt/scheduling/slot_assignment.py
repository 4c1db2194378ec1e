"""`SlotAssignment`: crawls in capacity-limited slots, at minimum total displacement.

Rates give each source's preferred times; crawlers and hosts have a limited capacity, hosts need pauses, and
at night some may not be visited. Time is cut into slots, and crawls are assigned to slots so that their total
displacement is minimal, by one linear program (`freshopt.scheduling.slot_program`). Its bound proves the
answer to be the best one there is, or, where branch and bound ends before, to a thousandth.

Crawls of one host do not overtake each other: the order of their preferred times is that of their slots,
which costs nothing where all pay alike. Hosts that are as free as the crawlers are taken together.

Cost: measured in docs/evidence/benchmarks.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shortened
from freshopt.estimators.week_clock import utc_moment
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_number, as_whole, shape_of
from freshopt.scheduling.periodic import Periodic
from freshopt.scheduling.schedule import Method
from freshopt.scheduling.slot_program import SlotDemand, placed

MOST_AT_ONCE = 10**15  # crawls of a slot, or a pause in time units: counts beyond 2^53 are not exact
MOST = 20_000_000  # host slots; what is known of so many takes about 1 GiB


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Crawls in slots.

    - `source` (m,)
    - `time` (m,): Sorted by time, then source.
    - `moved`: Σ |slot − preferred slot| in time units: the total displacement.
    - `bound`: Lower bound of the total displacement in these slots: what the linear program, or branch and
      bound where that has fractions, proves.
    """

    source: IntArray
    time: Array
    preferred_time: Array
    moved: float
    bound: float

    def __repr__(self) -> str:
        return (
            f"Assignment({len(self.time)} crawls moved by {self.moved:.6g} in all, at least {self.bound:.6g})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class SlotAssignment:
    """Refreshes in slots of limited capacity, near their preferred times.

    Their total displacement from the preferred times is minimal, or within a thousandth of it where pauses
    leave fractions that take too long to resolve: `Assignment` has the bound that was reached.

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
    preferred : Method
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
    preferred: Method = field(default_factory=Periodic)

    def __post_init__(self) -> None:
        if not 0.0 < as_number(self.slot, "slot", "Pass a length > 0 in time units.") < math.inf:
            raise SourceDataError(f"slot is {self.slot}. Pass a length > 0 in time units.")
        if self.host is not None and (
            isinstance(self.host, str | bytes) or not hasattr(self.host, "__len__")
        ):
            raise SourceDataError(
                f"host is {shortened(repr(self.host))}. Pass the host of each source, or None."
            )
        as_whole(self.capacity, "capacity", 1, MOST_AT_ONCE)
        for key, least in (("host_capacity", 1), ("min_gap", 0)):
            given = getattr(self, key)
            values = list(given.values()) if isinstance(given, Mapping) else [] if given is None else [given]
            numbers = [as_number(value, key, f"Pass {least} or more.") for value in values]
            bad = [value for value in numbers if not least <= value <= MOST_AT_ONCE]
            if bad:
                raise SourceDataError(f"{key} is {bad[0]:g}. Pass {least} or more, up to {MOST_AT_ONCE:.0e}.")
            parts = [value for value in numbers if key == "host_capacity" and value % 1.0]
            if parts:
                raise SourceDataError(f"{key} is {parts[0]:g}. A slot holds whole crawls. Round it.")
        for window in self.blackouts:
            if len(window) not in (2, 3) or not window[0] < window[1]:
                raise SourceDataError(
                    f"blackout {window!r} is none. Pass (start, end) or (start, end, host), start < end."
                )

    def __repr__(self) -> str:
        return f"SlotAssignment(slot={self.slot:g}, capacity={self.capacity})"

    def starting(
        self, start: float | datetime | np.datetime64 | None, weight: Array | None, time_unit: str
    ) -> tuple[SlotAssignment, np.datetime64 | None]:
        """Return the assignment for a beginning; see `Periodic.starting`."""
        if isinstance(self.preferred, Periodic):
            preferred, moment = self.preferred.starting(start, weight, time_unit)
            return replace(self, preferred=preferred), moment
        return self, None if start is None else utc_moment(start)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return sources and times of all refreshes in [0, horizon).

        They are sorted by time, then source.

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
        source, wish = self.preferred.times(rates, horizon)
        names, codes = self._hosts(len(rates))
        slots = max(1, math.ceil(min(horizon / self.slot, 1e18) - 1e-9))
        if len(names) * slots > MOST:
            raise SourceDataError(
                f"{len(names)} hosts with {slots} slots each are too many. Take slots of at least "
                f"{len(names) * horizon / MOST:.3g} time units, or a shorter horizon."
            )
        last = horizon - (slots - 1) * self.slot  # what the horizon leaves of the last slot
        open_, room, pause = self._room(names, slots, last)
        group = _together(open_, room, pause, self.capacity)
        mine = codes[source]
        wanted = np.minimum((wish / self.slot).astype(np.int64), slots - 1)
        self._require_room(
            names, SlotDemand(*_by_host(mine, wanted, len(names))[1:], open_, room, pause, self.capacity)
        )
        order, first, want = _by_host(group[mine], wanted, len(names))
        kept = np.flatnonzero(np.bincount(group[mine], minlength=len(names)))
        # Groups without crawls go; those before them have as many crawls as before.
        first = np.concatenate((first[kept], first[-1:]))
        demand = SlotDemand(first, want, open_[kept], room[kept], pause[kept], self.capacity)
        for k in np.flatnonzero(np.diff(first) > demand.most()).tolist():  # hosts taken together
            raise SourceDataError(
                self._reason(names, mine, int(np.diff(first)[k] - demand.most()[k]), demand.open[k])
            )
        found = placed(demand)
        if found.over.any():
            raise SourceDataError(self._reason(names, mine, int(found.over.sum()), found.over > 0))
        source, wish = source[order], wish[order]
        # Within a slot the crawls of a host, or of hosts taken together, are spread evenly.
        key = demand.host * np.int64(slots) + found.slot
        begin = np.searchsorted(key, key)
        each = np.where(demand.pause > 1, 1, demand.room)[demand.host]
        within = (np.arange(len(key)) - begin) / each * self.slot
        # What would be beyond the horizon has no pauses: it shares the rest of the last slot.
        beyond = (found.slot == slots - 1) & ((each - 1) / each * self.slot >= last)
        within = np.where(beyond, within * (last / self.slot), within)
        time = np.minimum(found.slot * self.slot + within, np.nextafter(horizon, 0.0))
        moved = float(demand.moved(found.slot)) * self.slot
        order = np.lexsort((source, time))
        return Assignment(source[order], time[order], wish[order], moved, found.bound * self.slot)

    def _hosts(self, n: int) -> tuple[list[Any], IntArray]:
        """Return the hosts and each source's position among them."""
        if self.host is None:
            return ["all sources"], np.zeros(n, dtype=np.int64)
        shape_of(self.host, "host")
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

    def _room(
        self, names: list[Any], slots: int, last: float
    ) -> tuple[npt.NDArray[np.bool_], IntArray, IntArray]:
        """Return each host's open slots, capacity and pause.

        The capacity is how many crawls it takes in a slot; the pause is in slots.

        A last slot that the horizon cuts short is closed to hosts whose pauses do not fit into the rest.
        """

        def of(given: Any, otherwise: float) -> Array:  # noqa: ANN401 - a number or a mapping
            if isinstance(given, Mapping):
                return np.array([float(given.get(name, otherwise)) for name in names])
            return np.full(len(names), otherwise if given is None else float(given))

        gap = of(self.min_gap, 0.0)
        with np.errstate(divide="ignore", over="ignore"):
            within = np.where(gap > 0.0, np.floor(self.slot / np.where(gap > 0.0, gap, 1.0) + 1e-9), np.inf)
        room = np.minimum(np.minimum(of(self.host_capacity, np.inf), np.maximum(within, 1.0)), self.capacity)
        pause = np.maximum(1, np.ceil(gap / self.slot - 1e-9)).astype(np.int64)
        room = np.where(pause > 1, 1.0, room)
        open_ = np.ones((len(names), slots), dtype=np.bool_)
        open_[:, -1] = (gap == 0.0) | ((room - 1.0) / room * self.slot < last)
        position = {name: k for k, name in enumerate(names)}
        for begin, end, *who in self.blackouts:
            if who and who[0] not in position:
                raise SourceDataError(f"a blackout names the unknown host {who[0]!r}. Correct the name.")
            first, last = math.floor(begin / self.slot + 1e-9), math.ceil(end / self.slot - 1e-9)
            rows = position[who[0]] if who else slice(None)
            open_[rows, max(0, first) : max(0, last)] = False
        return open_, room.astype(np.int64), pause

    def _require_room(self, names: list[Any], demand: SlotDemand) -> None:
        """Raise SourceDataError if a host's or the crawlers' capacity is exceeded."""
        needed, most = np.diff(demand.first), demand.most()
        short = np.flatnonzero(needed > most)
        if len(short):
            where = list_offenders(f"{names[h]!r}: {needed[h]} crawls, room for {most[h]}" for h in short)
            raise SourceDataError(
                f"too many crawls of {where}. Lower the rates (a host limit), or allow more crawls a slot, "
                "shorter pauses or fewer blackouts."
            )
        usable = int(np.count_nonzero(demand.open.any(axis=0))) * self.capacity
        if int(needed.sum()) > usable:
            raise SourceDataError(
                f"{needed.sum()} crawls are wanted and the slots have room for {usable}. Raise the capacity "
                "or lower the bandwidth."
            )

    def _reason(self, names: list[Any], mine: IntArray, many: int, where: BoolArray) -> str:
        """Return what to say where all have room alone, but not together."""
        full = np.flatnonzero(where)
        busiest = np.argsort(-np.bincount(mine, minlength=len(names)), kind="stable")[:3]
        named = ", ".join(f"{names[h]!r} {np.count_nonzero(mine == h)}" for h in busiest)
        return (
            f"the crawls fit the hosts one by one, but not together into slots of {self.capacity}: "
            f"{many} too many, between {full[0] * self.slot:g} and {(full[-1] + 1) * self.slot:g} "
            f"(most are wanted of {named}). Raise the capacity, shorten pauses or lower the bandwidth."
        )


def _by_host(host: IntArray, wanted: IntArray, hosts: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return crawls by host and preferred slot, hosts' beginnings, and slots."""
    order = np.lexsort((wanted, host))
    return order, np.searchsorted(host[order], np.arange(hosts + 1)), wanted[order]


def _together(open_: BoolArray, room: IntArray, pause: IntArray, capacity: int) -> IntArray:
    """Return each host's representative, one for those as free as crawlers."""
    group = np.arange(len(room))
    free = np.flatnonzero((room >= capacity) & (pause == 1))
    if len(free):
        rows, alike = np.unique(open_[free], axis=0, return_inverse=True)
        ones = np.array([free[np.flatnonzero(alike == k)[0]] for k in range(len(rows))])
        group[free] = ones[alike]
    return group
