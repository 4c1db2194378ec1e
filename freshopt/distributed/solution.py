"""`DistributedSolution`: certified solution over partitions.

The rates stay in files, or unevaluated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshopt.certificates.row_table import RowPrices, RowTable
from freshopt.certificates.solution import Status
from freshopt.distributed.dask_passes import pack
from freshopt.distributed.partition import Partition, PartitionedProblem
from freshopt.distributed.partitioned_sources import PartitionedSources
from freshopt.distributed.piece import Decision
from freshopt.distributed.write_rates import rates_frame
from freshopt.formatting import count
from freshopt.heavy import pq
from freshopt.modelling.objective import Objective
from freshopt.modelling.short_form import NAMES

# Prices in a line of the repr.
_SHOWN = 4


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedSolution:
    """Refresh rates of partitioned sources with their certificate.

    Attributes
    ----------
    objective : Objective
    sources : PartitionedSources
    bandwidth : float
    n : int
        The number of sources.
    status : Status
    value : float
        The objective in the declared sense, Σ w_k(·).
    bound : float
        The best value that any rates could have.
    gap, relative_gap, infeasibility : float
        As in `fo.Certificate`: ``|bound − value|``, the same relative to what is at stake, the largest
        relative violation of the bandwidth or of a host's limit beyond a few ulp.
    price : float
        λ, the dual variable of the bandwidth (shadow price).
    host_prices : dict
        The μ_h ≥ 0 of each limited host, on top of `price`.
    used : float
        Σ cost·ρ.
    never, at_lower, at_upper : int
        Sources at rate 0, at a min_rate > 0, and at max_rate.
    passes : int
        How often every partition was read, the first scan and the writing of rates included.
    seconds : tuple of float
        Of each pass.
    folder : Path or None
        Where the rates are: Parquet, a file per partition (source, rate, interval).
    note : str
        Why the status is not optimal, which limits leave rounding only, or empty.
    rows : RowTable or None
        Declared constraints, row by row with their dual variables; None without ``constraints=``.
    """

    objective: Objective
    sources: PartitionedSources
    bandwidth: float
    n: int
    status: Status
    value: float
    bound: float
    gap: float
    relative_gap: float
    infeasibility: float
    price: float
    host_prices: dict[Any, float]
    used: float
    never: int
    at_lower: int
    at_upper: int
    passes: int
    seconds: tuple[float, ...]
    folder: Path | None
    note: str
    terms: PartitionedProblem
    decision: Decision
    calls: tuple[tuple[Partition], ...]
    rows: RowTable | None = None

    @property
    def prices(self) -> Mapping[str, float]:
        """Dual variable of every constraint by its label.

        The value improves by the price for each unit by which the limit is relaxed.
        """
        if self.rows is not None:
            return RowPrices(self.rows.labels, self.rows.price)
        name, host = NAMES
        return {name: self.price, **{f"{host}[{key}]": price for key, price in self.host_prices.items()}}

    def rates(self) -> Any:  # noqa: ANN401 - a Dask DataFrame
        """Return the rates as a Dask DataFrame (source, rate, interval).

        It is partitioned as the sources.

        Read from `folder` where they were written, else worked out from the prices as they are computed.
        If some sources are signalled, ``signalled`` and ``change_rate`` follow, as in `Solution.to_frame`.
        """
        import dask
        import dask.dataframe as dd

        if self.folder is not None:
            files = sorted(self.folder.glob("part-*.parquet"))
            load = dask.delayed(_load, pure=False)
            return dd.from_delayed([load(file) for file in files], meta=_empty(files[0]), verify_meta=False)
        message = dask.delayed(pack((self.terms, self.decision)), pure=False, traverse=False)
        work = dask.delayed(rates_frame, pure=False)
        return dd.from_delayed([work(*call, message) for call in self.calls], verify_meta=False)

    def __repr__(self) -> str:
        unit = self.terms.time_unit
        limited = len(self.host_prices)
        limits = f", bandwidth={self.bandwidth:g} per {unit}" if self.bandwidth < math.inf else ""
        limits += f", {count(limited, 'host limit', 'd')}" if limited else ""
        limits += "" if self.rows is None else f", {count(len(self.rows), 'row', 'd')}"
        rows = [
            ("solution", f"{self.status.value}, in {len(self.calls)} partitions"),
            ("problem", f"{self.objective!r}, n={self.n}{limits}"),
            ("value", f"{self.value:.9g} ({self.objective.sense}d)"),
            ("price", self._price_line(unit)),
            (
                "sources",
                f"{self.n}: {self.never} never refreshed, {self.at_lower} at min_rate, "
                f"{self.at_upper} at max_rate",
            ),
            ("bound", f"{self.bound:.9g}, gap {self.gap:.3g} (relative {self.relative_gap:.2g})"),
            ("verdict", self.status.sentence if not self.note else self.note),
            ("effort", f"{self.passes} passes, {sum(self.seconds):.3g} s"),
        ]
        return "\n".join(f"{key:>8}: {value}" for key, value in rows)

    def _price_line(self, unit: str) -> str:
        """Return the bandwidth's price, or those of declared constraints."""
        if self.rows is None:
            return f"{self.price:.6g} per refresh/{unit}"
        priced = [(label, price) for label, price in self.prices.items() if price > 0.0]
        shown = ", ".join(f"{label} {price:.4g}" for label, price in priced[:_SHOWN])
        rest = len(priced) - _SHOWN
        return (shown or "0 throughout") + (f" and {rest} more" if rest > 0 else "")


def _load(file: Path) -> Any:  # noqa: ANN401 - a pandas frame
    return pq.ParquetFile(file).read().to_pandas()


def _empty(file: Path) -> Any:  # noqa: ANN401 - a pandas frame
    return pq.read_schema(file).empty_table().to_pandas()
