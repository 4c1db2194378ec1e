"""`HostLimits`: politeness constraints on hosts. `HostPrices`: their dual variables.

Limits on groups of sources are prepared once per problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, list_offenders, suggestion
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray, read_only, repeated
from freshopt.numerics.frozen_arrays import frozen_arrays, frozen_value
from freshopt.numerics.label_codes import label_codes
from freshopt.numerics.segments import group_sums
from freshopt.units import rate_of


@frozen_value()
class HostLimits:
    """Limited hosts, and the host of each source.

    - `names`: The limited hosts, in the caller's order.
    - `limits` (H,): Bandwidth each may take, per time unit.
    - `codes` (n,): Position in `names`, or H for sources without a limit.
    - `order` (m,): The sources of limited hosts, host by host.
    - `first` (H+1,): Where each host begins in `order`.
    - `position`: Where in `names` a host is.
    """

    names: tuple[Any, ...]
    limits: Array
    codes: IntArray
    order: IntArray
    first: IntArray
    position: dict[Any, int]

    @classmethod
    def of(cls, sources: Sources, limits: Mapping[Any, float | str] | None) -> HostLimits:
        """Match limits to the sources' hosts.

        - raises SourceDataError if sources have no hosts, a host is unknown, or a limit is not a number > 0.
        """
        if limits is not None and not isinstance(limits, Mapping):
            raise SourceDataError(f"host_limits are {limits!r}. Pass a mapping of hosts to their limits.")
        if not limits:
            return without_limits(len(sources))
        read = partial(rate_of, time_unit=sources.time_unit)
        given = {
            host: read(f"the limit of host {host!r}", limit) if isinstance(limit, str) else limit
            for host, limit in limits.items()
        }
        if sources.host is None:
            raise SourceDataError(
                "host_limits are given but the sources have no host. Pass Sources(host=...)."
            )
        try:
            known, place = label_codes(sources.host)
        except TypeError:
            known, place = [], np.full(1, -1)
        if bool(np.any(place < 0)):
            raise SourceDataError("hosts are of mixed kinds or None. Give every source a name of one kind.")
        position = {host: k for k, host in enumerate(known)}
        absent = [host for host in given if host not in position]
        if absent:
            unknown, meant = list_offenders(map(repr, absent)), suggestion(str(absent[0]), map(str, position))
            raise SourceDataError(
                f"host_limits name unknown hosts {unknown}, of which there is no source.{meant} Correct the "
                "names, or leave these hosts out."
            )
        require_usable(given)
        code_of = np.full(len(known), len(given), dtype=np.int64)
        for code, host in enumerate(given):
            code_of[position[host]] = code
        values = np.array([float(limit) for limit in given.values()])
        return cls.from_codes(tuple(given), values, code_of[place])

    @classmethod
    def from_codes(cls, names: tuple[Any, ...], limits: Array, codes: IntArray) -> HostLimits:
        """Return limits on groups given by codes, H for none."""
        count = len(names)
        first = np.concatenate(([0], np.cumsum(np.bincount(codes, minlength=count)[:count])))
        order = np.argsort(codes, kind="stable")[: first[-1]]
        return cls(names, limits, codes, order, first, {host: k for k, host in enumerate(names)})

    def __len__(self) -> int:
        """Return the number of limited hosts."""
        return len(self.names)

    def totals(self, amounts: Array) -> Array:
        """Return accurate sums per limited host, shape (H,)."""
        if not self.names:
            return np.empty(0)
        return group_sums(amounts, self.codes, len(self.names) + 1)[: len(self.names)]

    def named(self, prices: Array) -> HostPrices:
        """Return dual variables, shape (H,), by the hosts' names."""
        return HostPrices(self, read_only(prices))

    def broadcast_to_sources(self, per_host: Array, otherwise: float = 0.0) -> Array:
        """Return each source's value of its host, shape (n,)."""
        values: Array = np.append(per_host, otherwise)[self.codes]
        return values


@frozen_arrays
class HostPrices(Mapping[Any, float]):
    """Dual variables (shadow prices) of the host limits.

    The marginal value of more bandwidth of each limited host: a mapping that costs no more than an array.

    - `values_` (H,): In the order of ``hosts.names``.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([1.0, 1.0], host=["a", "b"])
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, sources, bandwidth=3.0, host_limits={"b": 1.0})
    >>> {host: round(price, 9) for host, price in fo.solve(problem).host_prices.items()}
    {'b': 0.75}
    """

    __slots__ = ("hosts", "values_")

    def __init__(self, hosts: HostLimits, prices: Array) -> None:
        self.hosts, self.values_ = hosts, prices

    def __getitem__(self, host: Any) -> float:  # noqa: ANN401 - whatever names a host
        """Return the price of one host."""
        return float(self.values_[self.hosts.position[host]])

    def __iter__(self) -> Iterator[Any]:
        """Return the hosts, in the order of their limits."""
        return iter(self.hosts.names)

    def __len__(self) -> int:
        """Return the number of limited hosts."""
        return len(self.hosts.names)

    def __repr__(self) -> str:
        shown = ", ".join(f"{host!r}: {self[host]!r}" for host in self.hosts.names[:5])
        return f"{{{shown}{f', and {len(self) - 5} more' if len(self) > 5 else ''}}}"


@lru_cache(maxsize=64)
def without_limits(n: int) -> HostLimits:
    """Return the limits of n sources of which no host has one."""
    none = np.zeros(0, dtype=np.int64)
    return HostLimits((), np.empty(0), repeated(0, n), none, none, {})


def require_usable(limits: Mapping[Any, object]) -> None:
    """Raise SourceDataError for limits that are no numbers of accepted magnitudes."""
    numbers = (int, float, np.integer, np.floating)
    bad = [
        f"{host!r}: {limit!r}"
        for host, limit in limits.items()
        if not (isinstance(limit, numbers) and SMALLEST <= float(limit) <= LARGEST)
    ]
    if bad:
        raise SourceDataError(f"host_limits must be numbers > 0, got {list_offenders(bad)}. Correct them.")
