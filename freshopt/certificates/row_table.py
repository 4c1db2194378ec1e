"""`RowTable` and `RowPrices`: declared rows with their dual variables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np

from freshopt.certificates.best_response import limit_term, limit_terms
from freshopt.certificates.duality_gap import Gap
from freshopt.certificates.row_gap import RowGap
from freshopt.errors import LONGEST
from freshopt.heavy import polars
from freshopt.numerics.arrays import Array, IntArray, read_only
from freshopt.numerics.frozen_arrays import frozen_arrays, frozen_value
from freshopt.separable.usage_costs import UsageCosts

# Rows that a printed table shows; a terminal has room for them.
_SHOWN = 12
# Characters of a label in a printed table.
_LABEL = 32
# Columns of a table beside the labels.
_NUMBERS = ("used", "limit", "slack", "price", "gap_share")


@frozen_arrays
class RowPrices(Mapping[str, float]):
    """Dual variables (shadow prices) of declared rows, by their labels.

    The marginal value of a looser limit of each row: a mapping that costs no more than an array.

    - `values_` (m,): In the order of `labels`.

    Examples
    --------
    >>> RowPrices(("bytes", "eu"), np.array([0.5, 0.0]))
    {'bytes': 0.5, 'eu': 0.0}
    """

    __slots__ = ("labels", "position_", "values_")

    def __init__(self, labels: Sequence[str], prices: Array) -> None:
        self.labels, self.values_ = labels, read_only(prices)
        # The labels' positions, once they are asked for.
        self.position_: dict[str, int] | None = None

    def __getitem__(self, label: str) -> float:
        """Return the price of one row."""
        if self.position_ is None:
            self.position_ = {each: k for k, each in enumerate(self.labels)}
        return float(self.values_[self.position_[label]])

    def __iter__(self) -> Iterator[str]:
        """Return the labels, in the order of the rows."""
        return iter(self.labels)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)

    def __repr__(self) -> str:
        some = zip(self.labels[:5], self.values_[:5].tolist(), strict=True)
        shown = ", ".join(f"{label!r}: {price!r}" for label, price in some)
        return f"{{{shown}{f', and {len(self) - 5} more' if len(self) > 5 else ''}}}"


@dataclass(frozen=True, slots=True)
class HostLabels(Sequence[str]):
    """Labels of bandwidth and host limits, written when asked for.

    Written at once, those of 10⁵ hosts would take as long as the proof of 10⁶ sources.

    - `bandwidth`, `host`: What the bandwidth's row and the family of the hosts' rows are called.
    - `names`: Of the limited hosts.

    Examples
    --------
    >>> list(HostLabels("bandwidth", "host", ("a", 7)))
    ['bandwidth', 'host[a]', 'host[7]']
    """

    bandwidth: str
    host: str
    names: tuple[Any, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return 1 + len(self.names)

    @overload
    def __getitem__(self, k: int) -> str: ...

    @overload
    def __getitem__(self, k: slice) -> tuple[str, ...]: ...

    def __getitem__(self, k: int | slice) -> str | tuple[str, ...]:
        """Return one label by its position, or some."""
        if isinstance(k, slice):
            return tuple(self[j] for j in range(*k.indices(len(self))))
        j = k + len(self) if k < 0 else k
        if not 0 <= j < len(self):
            raise IndexError(f"row {k} of {len(self)}")
        return self.bandwidth if j == 0 else f"{self.host}[{self.names[j - 1]}]"


@dataclass(frozen=True, slots=True)
class RowStatus:
    """One declared row at given rates and prices, as it was declared.

    - `slack`: ≥ 0, what is left; below 0 would be a violation within rounding, which counts as none.
    - `price`: Dual variable ≥ 0: by how much the optimal cost falls per unit that the limit is loosened.
    - `gap_share`: Part of the duality gap that is due to the row's slack, 0 to 1.
    """

    label: str
    used: float
    limit: float
    slack: float
    price: float
    gap_share: float


@frozen_value(repr=False)
class RowTable:
    """Declared rows of a certificate, by label or position.

    - `used`, `limit`, `slack`, `price`, `gap_share` (m,): See `RowStatus`.

    Examples
    --------
    >>> one = np.ones(2)
    >>> table = RowTable(("bytes", "eu"), one, 2.0 * one, one, np.array([0.0, 0.5]), 0.5 * one)
    >>> table
    row    used  limit  slack  price  of gap
    eu        1      2      1    0.5  50.0 %
    bytes     1      2      1      0  50.0 %
    >>> table["eu"].price, table[0].label
    (0.5, 'bytes')
    """

    labels: Sequence[str]
    used: Array
    limit: Array
    slack: Array
    price: Array
    gap_share: Array
    # The labels' positions, once they are asked for.
    position_: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, gap: RowGap, multipliers: Array, gap_bound: float | None = None) -> RowTable:
        """Return the rows of a gap at multipliers y ≥ 0.

        The whole gap is `gap_bound` where it is known.
        """
        rows, y = gap.program.rows, gap.admissible(multipliers)
        whole = gap.at(multipliers) if gap_bound is None else gap_bound
        terms = gap.row_terms(y)
        share = terms / whole if np.isfinite(whole) and whole > 0.0 else np.zeros(len(terms))
        # A priced sum is compared with its own variable.
        own, numerics = np.zeros(len(rows)), gap.program.numerics
        if isinstance(numerics, UsageCosts):
            priced = np.flatnonzero(numerics.usage[rows.source])
            np.subtract.at(own, rows.row[priced], rows.coefficient[priced] * gap.rates[rows.source[priced]])
        used, limits = rows.declared(gap.used + own), rows.declared(gap.limits + own)
        return cls(rows.labels, used, limits, gap.slack, y, share)

    @classmethod
    def of_limits(cls, gap: Gap, price: float, host_prices: Array, gap_bound: float) -> RowTable:
        """Return the rows of bandwidth and host limits."""
        hosts, limit, slack = gap.problem.hosts, gap.problem.bandwidth, gap.slack
        labels = HostLabels(*gap.problem.labels, hosts.names)
        known = 0.0 < gap_bound < math.inf
        first = limit_term(price, slack, limit) / gap_bound if known else 0.0
        table = np.array((limit - slack, limit, slack, price, first))[:, None]
        if len(hosts):
            terms = limit_terms(host_prices, gap.host_slack, hosts.limits)
            rest = terms / gap_bound if known else np.zeros(len(hosts))
            each = (hosts.limits - gap.host_slack, hosts.limits, gap.host_slack, host_prices, rest)
            table = np.concatenate((table, np.stack(each)), axis=1)
        table.flags.writeable = False
        return cls(labels, *table)

    @classmethod
    def of_nothing(cls) -> RowTable:
        """Return a table without rows."""
        nothing = np.zeros(0)
        return cls((), nothing, nothing, nothing, nothing, nothing)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)

    def __getitem__(self, row: str | int) -> RowStatus:
        """Return one row, by its label or its position."""
        if isinstance(row, str):
            if not self.position_:
                self.position_.update((label, k) for k, label in enumerate(self.labels))
            row = self.position_[row]
        return RowStatus(self.labels[row], *(float(getattr(self, name)[row]) for name in _NUMBERS))

    def take(self, rows: IntArray) -> RowTable:
        """Return some of the rows, in the order given."""
        labels = tuple(self.labels[k] for k in rows.tolist())
        return RowTable(labels, *(getattr(self, name)[rows] for name in _NUMBERS))

    def __iter__(self) -> Iterator[RowStatus]:
        """Return the rows in their order."""
        return (self[k] for k in range(len(self)))

    def to_frame(self) -> polars.DataFrame:
        """Return the table as a polars data frame, one line per row."""
        columns = {name: getattr(self, name) for name in _NUMBERS}
        return polars.DataFrame({"row": list(self.labels), **columns})

    def __repr__(self) -> str:
        order = np.argsort(-self.price * np.abs(self.limit), kind="stable")[:_SHOWN]
        lines = [["row", "used", "limit", "slack", "price", "of gap"]]
        for row in (self[int(k)] for k in order):
            label = " ".join(row.label.split())[:LONGEST]
            label = label if len(label) <= _LABEL else f"{label[: _LABEL - 3]}..."
            numbers = [f"{x:.6g}" for x in (row.used, row.limit, row.slack, row.price)]
            lines.append([label, *numbers, f"{100.0 * row.gap_share:.1f} %"])
        wide = [max(len(line[k]) for line in lines) for k in range(6)]
        text = [
            "  ".join([line[0].ljust(wide[0]), *(line[k].rjust(wide[k]) for k in range(1, 6))])
            for line in lines
        ]
        rest = len(self) - len(order)
        return "\n".join([*text, *([f"and {rest} more"] if rest else [])])
