"""Costs of a back-test's policies over time and by source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.planning.policy_replay import PolicyReplay

if TYPE_CHECKING:
    import polars

# Parts of each window; their costs together cost about as much time as those of the windows.
PARTS = 8


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HeldOutDetails:
    """Costs of policies in parts of the windows, and of each source.

    Attributes
    ----------
    names : ndarray, shape (n,)
        The log's sources.
    edges : ndarray, shape (parts + 1,)
        On the log's clock.
    over_time : mapping of policy to ndarray, shape (parts,)
        The objective's value in each part, of the sources that are there; NaN where none is or where it is
        not measured.
    per_source : mapping of policy to ndarray, shape (n,)
        Mean cost of each source while it was there, by importance; NaN where it was not.
    """

    names: Any
    edges: Array
    over_time: dict[str, Array]
    per_source: dict[str, Array]

    def facts(self) -> dict[str, Any]:
        """Return the values over time, as `summary.json` has them."""
        told = {
            policy: [value if np.isfinite(value) else None for value in values.tolist()]
            for policy, values in self.over_time.items()
        }
        return {"edges": self.edges.tolist(), "policies": told}

    def to_frame(self) -> polars.DataFrame:
        """Return the table of the sources' mean costs.

        Columns are source and each policy; a cost is null where a source was not replayed.
        """
        import polars

        columns = {policy: polars.Series(cost).fill_nan(None) for policy, cost in self.per_source.items()}
        return polars.DataFrame({"source": self.names.tolist(), **columns})


def details_of(
    measured: Sequence[Sequence[PolicyReplay]],
    names: Any,  # noqa: ANN401 - of any type
    *,
    maximised: bool,
) -> HeldOutDetails | None:
    """Return the details of policies that were measured in all windows.

    Parameters
    ----------
    measured : sequence of sequence of PolicyReplay
        Of each window; of several bandwidths the first counts.
    names : ndarray, shape (n,)
    maximised : bool
        Whether values are what a cost leaves of everything.

    Returns
    -------
    HeldOutDetails or None
        None where windows were not cut into parts.
    """
    first: list[dict[str, PolicyReplay]] = []
    for found in measured:
        own: dict[str, PolicyReplay] = {}
        for one in found:
            own.setdefault(one.policy, one)
        first.append(own)
    windows = [next(iter(own.values())).window for own in first]
    if not all(window.parts for window in windows):
        return None
    ends = [np.linspace(window.begin, window.end, len(window.parts) + 1) for window in windows]
    edges = np.concatenate([each[:-1] for each in ends] + [ends[-1][-1:]])
    span = np.zeros(len(names))
    for window in windows:
        np.add.at(span, window.index, window.span)
    over_time, per_source = {}, {}
    for policy in first[0]:
        if not all(policy in own for own in first):
            continue
        found = [own[policy] for own in first]
        series = np.concatenate([one.over_time for one in found])
        if maximised:
            whole = np.concatenate([np.full(len(one.over_time), one.cost.everything) for one in found])
            series = whole - series
        over_time[policy] = series
        cost = np.sum([one.per_source for one in found], axis=0)
        per_source[policy] = np.divide(cost, span, out=np.full(len(names), np.nan), where=span > 0.0)
    return HeldOutDetails(names, edges, over_time, per_source)
