"""`ShortForm`: bandwidth and host limits, told apart from other rows.

They are constraints like every other. A problem that has nothing else is solved faster, and the same
whichever way it was declared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.modelling.declared_constraints import Declared
from freshopt.modelling.host_limits import HostLimits
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, BoolArray
from freshopt.separable.rows import RATE, RowBlock

# Labels of the bandwidth and of host limits where the caller gives none.
NAMES = ("bandwidth", "host")


@dataclass(frozen=True, slots=True, eq=False)
class ShortForm:
    """Bandwidth, limits on disjoint groups in its unit, and other rows.

    - `labels`: Of the bandwidth and of the host limits.
    """

    bandwidth: float | None
    hosts: HostLimits
    rest: tuple[RowBlock, ...]
    labels: tuple[str, str]


def short_form(found: Declared, sources: Sources, bandwidth: float | None, hosts: HostLimits) -> ShortForm:
    """Return the short form of declared rows.

    The first row that limits Σ refresh_cost·ρ over all sources is the bandwidth, unless that is given; the
    first constraint that limits it over disjoint groups is the host limits.
    """
    rest, (name, host_name) = list(found.blocks), NAMES
    if bandwidth is None:
        for block in rest:
            if len(block) == 1 and len(block.source) == len(sources) and bool(np.all(_plain(block, sources))):
                bandwidth, name = float(block.limits[0]), block.name
                rest.remove(block)
                break
    if bandwidth is not None and not len(hosts):
        for block in rest:
            if block.keys != (None,) and bool(np.all(_plain(block, sources))) and _disjoint(block):
                codes = np.full(len(sources), len(block), dtype=np.int64)
                codes[block.source] = block.row
                hosts, host_name = HostLimits.from_codes(block.keys, block.limits, codes), block.name
                rest.remove(block)
                break
    return ShortForm(bandwidth, hosts, tuple(rest), (name, host_name))


def _disjoint(block: RowBlock) -> bool:
    """Return whether each source is in one row at most."""
    return len(block.source) == 0 or int(np.bincount(block.source).max()) == 1


def _plain(block: RowBlock, sources: Sources) -> BoolArray:
    """Return which entries are those of a limit on bandwidth."""
    usable = (block.limits >= SMALLEST) & (block.limits <= LARGEST) & (block.direction > 0.0)
    cost = sources.refresh_cost[block.source]
    plain: BoolArray = (block.kind == RATE) & (block.coefficient == cost) & usable[block.row]
    return plain
